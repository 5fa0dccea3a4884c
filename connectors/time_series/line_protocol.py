"""Values as lines of the line protocol of InfluxDB (https://docs.influxdata.com/influxdb3/core/reference/line-protocol/).

Lines are made here and not by the client libraries: these drop what has no form in the protocol, such as NaN, and the error
of the server does not name the record.
"""

import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, Literal

from streamrt.connectors.argument_checks import checked_choice, checked_flag, checked_text
from streamrt.connectors.sinks.batch import SinkBatch, SinkItem
from streamrt.errors import ArgumentTypeError, ArgumentValueError, SinkError

__all__ = [
    "FieldsSetter",
    "LineProtocol",
    "MeasurementSetter",
    "RefusedWriteError",
    "TagsSetter",
    "TimePrecision",
    "TimeSetter",
    "explained",
]

TimePrecision = Literal["ms", "ns", "us", "s"]
MeasurementSetter = str | Callable[[dict[str, Any]], str]
FieldsSetter = Iterable[str] | Callable[[dict[str, Any]], Iterable[str]]
TagsSetter = Iterable[str] | Callable[[dict[str, Any]], Iterable[str]]
TimeSetter = str | Callable[[dict[str, Any]], int | str | datetime | None]

_NANOSECONDS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_INT64 = range(-(2**63), 2**63)
# Characters with a meaning in names and in values of tags.
_SPECIAL = re.compile(r"([,= ])")
_LINE_ENDS = re.compile(r"[\r\n\x00]")


class LineProtocol:
    """Makes lines of values; it can be pickled.

    Args:
        owner: the sink.
        table: the name of the measurement, or a function of the value that returns it.
        fields_keys: names of the columns that become fields, or a function of the value that returns them; without
            them, all columns that are not tags.
        tags_keys: names of the columns that become tags, or a function of the value that returns them.
        time_setter: name of the column with the time, or a function of the value that returns the time; without it, or
            if it returns None, the timestamp of the record.
        time_precision: unit of times.
        allow_missing_fields: whether columns of `fields_keys` may be missing.
        include_metadata_tags: whether key, topic and partition become tags.
        convert_ints_to_floats: whether ints become floats.
        table_parameter: name of the parameter with the measurement.
        more_tags: tags that are added, by functions of the value.

    Raises:
        ConfigurationError: if an argument cannot be used.
    """

    def __init__(
        self,
        owner: str,
        table: MeasurementSetter,
        fields_keys: FieldsSetter,
        tags_keys: TagsSetter,
        time_setter: TimeSetter | None,
        time_precision: TimePrecision,
        allow_missing_fields: bool,
        include_metadata_tags: bool,
        convert_ints_to_floats: bool,
        *,
        table_parameter: str = "measurement",
        more_tags: Mapping[str, str | Callable[[dict[str, Any]], str]] | None = None,
    ) -> None:
        self._owner = owner
        self._table_parameter = table_parameter
        self._table = table if callable(table) else checked_text(owner, table_parameter, table)
        self._fields = _checked_names(owner, "fields_keys", fields_keys)
        self._tags = _checked_names(owner, "tags_keys", tags_keys)
        if not callable(self._fields) and not callable(self._tags) and set(self._fields) & set(self._tags):
            both = ", ".join(sorted(set(self._fields) & set(self._tags)))
            raise ArgumentValueError(f"{owner}: {both} cannot be in fields_keys and in tags_keys")
        if time_setter is not None and not callable(time_setter):
            checked_text(owner, "time_setter", time_setter)
        self._time_setter = time_setter
        self.precision = checked_choice(owner, "time_precision", time_precision, ("ms", "ns", "us", "s"))
        self._allow_missing = checked_flag(owner, "allow_missing_fields", allow_missing_fields)
        self._metadata = checked_flag(owner, "include_metadata_tags", include_metadata_tags)
        self._floats = checked_flag(owner, "convert_ints_to_floats", convert_ints_to_floats)
        self._more_tags = dict(more_tags or {})

    def line(self, item: SinkItem, batch: SinkBatch) -> str:
        """Return the line of an item, without a line end.

        Args:
            item: the item.
            batch: the batch that it is from.

        Raises:
            SinkError: if it has no form in the protocol.
        """
        try:
            return self._make_line(item, batch)
        except _NoLineError as error:
            raise SinkError(
                f"{self._owner} cannot write {batch.topic}[{batch.partition}] offset {item.offset}: {error}",
                batch.record_of(item),
            ) from error.__cause__

    def _make_line(self, item: SinkItem, batch: SinkBatch) -> str:
        value = item.value
        if not isinstance(value, dict):
            raise _NoLineError(f"its value is a {type(value).__name__}, not a dict")
        table = _write_name(self._call_setter(self._table, value, self._table_parameter), self._table_parameter)
        tag_names = self._read_names(self._tags, value, "tags_keys")
        tags = {name: value[name] for name in tag_names if name in value}
        for name, tag in self._more_tags.items():
            tags[name] = self._call_setter(tag, value, "subtable")
        if self._metadata:
            tags |= {"__key": item.key, "__topic": batch.topic, "__partition": batch.partition}
        field_names = self._read_names(self._fields, value, "fields_keys") or [
            name for name in value if name not in tag_names
        ]
        fields = []
        for name in field_names:
            if name not in value:
                if not self._allow_missing:
                    raise _NoLineError(f"it lacks the field {name!r}; allow_missing_fields=True permits that")
            elif value[name] is not None:
                fields.append(f"{_write_name(name, 'field')}={self._write_field(name, value[name])}")
        if not fields:
            raise _NoLineError("it has no field, and a point needs one")
        written = [
            f"{_write_name(name, 'tag')}={text}" for name, tag in tags.items() if (text := _write_tag(name, tag))
        ]
        return f"{','.join([table, *written])} {','.join(fields)} {self._write_time(item)}"

    def _write_field(self, name: str, field: Any) -> str:
        if isinstance(field, bool):
            return "true" if field else "false"
        if isinstance(field, str):
            if "\x00" in field or not _has_utf8(field):
                raise _NoLineError(f"its field {name!r} holds a character that has no form in UTF-8, or a NUL")
            return '"' + field.replace("\\", "\\\\").replace('"', '\\"') + '"'
        if isinstance(field, int) and not self._floats:
            if field not in _INT64:
                raise _NoLineError(f"its field {name!r} is an int of more than 64 bits")
            return f"{field}i"
        if isinstance(field, int | float):
            try:
                number = float(field)
            except OverflowError:
                number = math.inf
            if not math.isfinite(number):
                raise _NoLineError(f"its field {name!r} is not a finite number")
            return repr(number)
        raise _NoLineError(f"its field {name!r} is a {type(field).__name__}; fields are str, float, int or bool")

    def _write_time(self, item: SinkItem) -> int:
        time: Any = None
        if callable(self._time_setter):
            time = self._call_setter(self._time_setter, item.value, "time_setter")
        elif self._time_setter is not None:
            if self._time_setter not in item.value:
                raise _NoLineError(f"it lacks the time {self._time_setter!r}")
            time = item.value[self._time_setter]
        if time is None:
            return item.timestamp * _NANOSECONDS["ms"] // _NANOSECONDS[self.precision]
        if isinstance(time, str):
            try:
                time = datetime.fromisoformat(time.replace("Z", "+00:00"))
            except ValueError:
                raise _NoLineError("its time is a str without an ISO 8601 date") from None
        if isinstance(time, datetime):
            aware = time if time.tzinfo is not None else time.replace(tzinfo=timezone.utc)
            return (aware - _EPOCH) // timedelta(microseconds=1) * 1_000 // _NANOSECONDS[self.precision]
        if not isinstance(time, int) or isinstance(time, bool) or time not in _INT64:
            raise _NoLineError(f"its time is a {type(time).__name__}, not an int of 64 bits, a str or a datetime")
        return time

    def _read_names(self, names: Any, value: dict[str, Any], parameter: str) -> Sequence[str]:
        if isinstance(names, tuple):
            # They were checked at the beginning.
            return names
        found = self._call_setter(names, value, parameter)
        if isinstance(found, str) or not isinstance(found, Iterable):
            raise _NoLineError(f"{parameter} returned a {type(found).__name__}, not a list of names")
        return list(found)

    @staticmethod
    def _call_setter(setter: Any, value: dict[str, Any], parameter: str) -> Any:
        if not callable(setter):
            return setter
        try:
            return setter(value)
        except Exception as error:
            raise _NoLineError(f"{parameter} failed with {type(error).__name__}") from error


class _NoLineError(Exception):
    """A value has no form in the line protocol; the message does not show it."""


def _checked_names(owner: str, parameter: str, names: Any) -> Any:
    if callable(names):
        return names
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise ArgumentTypeError(f"{owner}({parameter}=...) must be a list of names or a function")
    kept = tuple(names)
    if not all(isinstance(name, str) and name for name in kept):
        raise ArgumentTypeError(f"{owner}({parameter}=...) must be names of type str that are not empty")
    return kept


def _write_name(name: Any, kind: str) -> str:
    """Return an escaped name of a measurement, a tag or a field."""
    if not isinstance(name, str) or not name:
        raise _NoLineError(f"the name of a {kind} is {'empty' if name == '' else f'a {type(name).__name__}'}")
    return _escaped_name(name, kind)


# Most names come with each item. Those that come from data have no end.
@functools.lru_cache(maxsize=1_024)
def _escaped_name(name: str, kind: str) -> str:
    # The protocol has no form for these.
    if _LINE_ENDS.search(name) or name.endswith("\\") or name.startswith("#") or not _has_utf8(name):
        raise _NoLineError(
            f"the name of a {kind} contains a line end, a NUL or a character without a form in UTF-8, begins with a number "
            "sign or ends with a backslash"
        )
    return _SPECIAL.sub(r"\\\1", name)


def _write_tag(name: str, tag: Any) -> str:
    """Return an escaped value of a tag; empty if there is none."""
    if tag is None:
        return ""
    if isinstance(tag, bytes):
        try:
            tag = tag.decode()
        except UnicodeDecodeError:
            raise _NoLineError(f"its tag {name!r} is not UTF-8") from None
    if not isinstance(tag, str | int | float | bool):
        raise _NoLineError(f"its tag {name!r} is a {type(tag).__name__}; tags are str, numbers or bool")
    text = str(tag)
    if _LINE_ENDS.search(text) or text.endswith("\\") or not _has_utf8(text):
        raise _NoLineError(
            f"its tag {name!r} contains a line end, a NUL or a character without a form in UTF-8, or ends with a backslash"
        )
    return _SPECIAL.sub(r"\\\1", text)


def _has_utf8(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class RefusedWriteError(SinkError):
    """A server refuses lines, and will do so again.

    Args:
        status: status of the answer.
        reason: why, without values.
        text: the text of the server, which may hold values.
    """

    def __init__(self, status: int, reason: str, text: str = "") -> None:
        super().__init__(reason)
        self.status = status
        self.text = text

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.status, str(self), self.text)


def explained(text: str) -> str:
    """Return what a server says about a point in words of this project, which hold no value.

    Example:
        >>> explained('partial write: field type conflict: input field "n" on measurement "m" is type string')
        ": field 'n' has another type there; see convert_ints_to_floats"
    """
    named = re.search(r'(?:input field \\?"|column: )([^"\\,;]+)', text)
    field = f"field {named.group(1)!r}" if named else "a field"
    text = text.lower()
    if "type" in text and ("conflict" in text or "cast error" in text or "invalid column" in text):
        return f": {field} has another type there; see convert_ints_to_floats"
    return ": it is older than the retention period" if "retention" in text else ""
