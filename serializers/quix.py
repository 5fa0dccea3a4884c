"""The JSON formats of the Quix platform: time series data and events.

The headers of a record in the new format name its kind. Its value is JSON, gzip-compressed if the codec begins with
`[GZIP]`:

    __Q_ModelKey    TimeseriesData (or ParameterData), EventData, EventData[]
    __Q_CodecId     JT, J, [GZIP]JT, [GZIP]J

A record in the legacy format has its value in an envelope, which begins with exactly `{"C":`. S and E are the offsets,
in bytes, of the text of V:

    {"C": codec, "K": model key, "V": value, "S": start, "E": end}

Time series data has columns; each list has one item for each timestamp (ns since the Unix epoch):

    {"Timestamps": [...], "NumericValues": {name: [...]}, "StringValues": {name: [...]},
     "BinaryValues": {name: [base64, ...]}, "TagValues": {name: [...]}}

An event is {"Timestamp": ns, "Id": text, "Value": text, "Tags": {name: text}}; EventData[] is a list of them.
"""

import abc
import base64
import binascii
import math
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from streamrt.errors import IgnoreMessage, SerializationError, argument_error
from streamrt.records import HeadersMapping
from streamrt.serializers.base import Deserializer, SerializationContext, Serializer
from streamrt.serializers.json import JSONDeserializer, JSONSerializer, default_dumps, default_loads

_MODEL_KEY, _CODEC_ID, _SPLIT = "__Q_ModelKey", "__Q_CodecId", "__Q_SplitMessageId"
_ENVELOPE = b'{"C":'
_GZIP = "[GZIP]"
_CODECS = ("JT", "J")
_TIMESERIES, _PARAMETERS, _EVENT, _EVENTS = "TimeseriesData", "ParameterData", "EventData", "EventData[]"
_IGNORED = frozenset({"ParameterDefinitions", "EventDefinitions", "StreamProperties", "StreamEnd"})

_MAX_INFLATED_BYTES = 10 * 2**20
_MAX_RECORDS = 100_000


class QuixDeserializer(Deserializer):
    """Reads Quix's time series data and events, new or legacy, into dicts: a record for each timestamp or event.

    The dict of a timestamp has the parameters by name, `Timestamp` (ns) and `Tags`; binary values are bytes. The dict
    of an event has `Timestamp`, `Id`, `Value` and `Tags`. Each is processed as a record with the key, timestamp and
    headers of the Kafka record. Definitions of parameters and events, stream properties and stream ends are ignored.

    Args:
        loads: function from bytes to an object; orjson by default.
        max_inflated_bytes: largest size of an inflated value in bytes; larger values are errors.
        max_records: largest number of records in one value; more are an error.

    Raises:
        ConfigurationError: if a limit is not positive.

    Example:
        >>> from streamrt.serializers import MessageField, SerializationContext
        >>> headers = [("__Q_ModelKey", b"TimeseriesData"), ("__Q_CodecId", b"JT")]
        >>> data = b'{"Timestamps": [10, 20], "NumericValues": {"celsius": [31.5, 32.0]}}'
        >>> for row in QuixDeserializer()(data, SerializationContext("t", MessageField.VALUE, headers)):
        ...     print(row)
        {'celsius': 31.5, 'Tags': {}, 'Timestamp': 10}
        {'celsius': 32.0, 'Tags': {}, 'Timestamp': 20}
    """

    def __init__(
        self,
        loads: Callable[[bytes], Any] | None = default_loads,
        *,
        max_inflated_bytes: int = _MAX_INFLATED_BYTES,
        max_records: int = _MAX_RECORDS,
    ) -> None:
        for name, limit in (("max_inflated_bytes", max_inflated_bytes), ("max_records", max_records)):
            if not isinstance(limit, int) or limit < 1:
                raise argument_error(
                    f"{name} must be a positive int, not {limit!r}",
                    of_type=isinstance(limit, int) and not isinstance(limit, bool),
                )
        self._json = JSONDeserializer(loads)
        self._max_inflated_bytes = max_inflated_bytes
        self._max_records = max_records

    @property
    def split_values(self) -> bool:
        """True: one value contains several records."""
        return True

    def __call__(self, value: bytes, ctx: SerializationContext) -> list[dict[str, Any]]:  # noqa: D102
        return self.deserialize(*self._open_envelope(value, ctx))

    def deserialize(self, model_key: str, value: Any) -> list[dict[str, Any]]:
        """Return the records that a value contains.

        Args:
            model_key: kind of data, from the header `__Q_ModelKey`.
            value: the value, parsed from JSON: a mapping, or a list of events.

        Raises:
            SerializationError: if the value is not of this kind, or the kind is unknown.
            IgnoreMessage: if data of this kind contains no records.

        Example:
            >>> QuixDeserializer().deserialize("EventData", {"Timestamp": 10, "Id": "door", "Value": "open"})
            [{'Timestamp': 10, 'Id': 'door', 'Value': 'open', 'Tags': {}}]
        """
        kind = _checked_kind(model_key, "model_key")
        if kind in (_TIMESERIES, _PARAMETERS):
            return list(_iterate_rows(_check_mapping(value, "time series data"), self._max_records))
        if kind == _EVENT:
            return [_read_event(value)]
        if kind != _EVENTS:
            raise SerializationError(f"the Quix model key {_shorten_value(kind)} is unknown")
        if not isinstance(value, list):
            raise SerializationError(f"{_EVENTS} must be a list, not a {type(value).__name__}")
        if len(value) > self._max_records:
            raise SerializationError(_too_many(len(value), self._max_records))
        return [_read_event(event) for event in value]

    def _open_envelope(self, value: bytes, ctx: SerializationContext) -> tuple[str, Any]:
        """Return the model key and its content."""
        headers = {name: _read_text(name, data) for name, data in ctx.headers or () if name.startswith("__Q_")}
        if _SPLIT in headers:
            raise SerializationError("the record is a part of a split Quix message; raise the maximum message size")
        parsed = None
        if value.startswith(_ENVELOPE):
            parsed = self._json(value, ctx)
            if isinstance(parsed, dict) and "K" in parsed and "V" in parsed:
                kind = _checked_kind(parsed["K"], "K")
                codec = parsed["C"]
                if codec not in _CODECS:
                    raise SerializationError(f"the Quix codec {_shorten_value(codec)} is unknown in a legacy envelope")
                return kind, parsed["V"]
        kind = _checked_kind(headers.get(_MODEL_KEY), f"the header {_MODEL_KEY}")
        codec = headers.get(_CODEC_ID)
        if not codec:
            raise SerializationError(f"the header {_CODEC_ID} is missing or empty")
        plain = codec.removeprefix(_GZIP)
        if plain not in _CODECS:
            raise SerializationError(
                f"the Quix codec {_shorten_value(codec)} is unknown; {', '.join(_CODECS)} are supported"
            )
        if plain != codec:
            return kind, self._json(_inflate_data(value, self._max_inflated_bytes), ctx)
        return kind, self._json(value, ctx) if parsed is None else parsed


class QuixSerializer(Serializer):
    """Base of both Quix serializers: the envelope, or the headers that describe the value.

    Args:
        as_legacy: whether the value goes into a legacy envelope; otherwise headers describe it.
        dumps: function from an object to JSON as bytes or str; orjson by default.
    """

    _kind: str
    _legacy_kind: str

    def __init__(self, as_legacy: bool = True, dumps: Callable[[Any], bytes | str] | None = default_dumps) -> None:
        self._as_legacy = as_legacy
        self._json = JSONSerializer(dumps)

    @property
    def extra_headers(self) -> HeadersMapping:
        """Headers that describe the value; none in the legacy format."""
        return {} if self._as_legacy else {_MODEL_KEY: self._kind, _CODEC_ID: "JT"}

    def __call__(self, value: Any, ctx: SerializationContext) -> bytes | None:  # noqa: D102
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise SerializationError(
                f"the serializer of Quix's {self._kind} got a {type(value).__name__}, not a mapping"
            )
        body = self._json(self._make_model(value), ctx) or b""
        if not self._as_legacy:
            return body
        start = b'{"C":"JT","K":"%b","V":' % self._legacy_kind.encode()
        return b'%b%b,"S":%d,"E":%d}' % (start, body, len(start), len(start) + len(body))

    @abc.abstractmethod
    def _make_model(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """Return the content of the record."""


class QuixTimeseriesSerializer(QuixSerializer):
    """Writes mappings as Quix's time series data: one timestamp with its parameters and tags.

    Items are parameters: int, float, str, bytes or bytearray; items that are None are left out. `Timestamp` (ns) is
    required if there is a parameter; `Tags` may be a mapping. None becomes a tombstone.

    Args:
        as_legacy: whether the value goes into a legacy envelope; otherwise headers describe it.
        dumps: function from an object to JSON as bytes or str; orjson by default.

    Example:
        >>> from streamrt.serializers import MessageField, SerializationContext
        >>> write = QuixTimeseriesSerializer(as_legacy=False)
        >>> data = write({"Timestamp": 10, "celsius": 31.5}, SerializationContext("t", MessageField.VALUE))
        >>> print(data.decode())
        {"BinaryValues":{},"StringValues":{},"NumericValues":{"celsius":[31.5]},"Timestamps":[10],"TagValues":{}}
        >>> dict(write.extra_headers)
        {'__Q_ModelKey': 'TimeseriesData', '__Q_CodecId': 'JT'}
    """

    _kind, _legacy_kind = _TIMESERIES, _PARAMETERS

    def _make_model(self, value: Mapping[str, Any]) -> dict[str, Any]:
        binary: dict[str, list[Any]] = {}
        strings: dict[str, list[Any]] = {}
        numbers: dict[str, list[Any]] = {}
        for name, item in value.items():
            if item is None or name in ("Timestamp", "Tags"):
                continue
            if isinstance(item, str):
                strings[name] = [item]
            elif isinstance(item, int | float) and not isinstance(item, bool):
                numbers[name] = [item]
            elif isinstance(item, bytes | bytearray):
                binary[name] = [base64.b64encode(item).decode()]
            else:
                raise SerializationError(
                    f"the parameter {_shorten_value(name)} of Quix's time series data is a {type(item).__name__}; it must be "
                    f"an int, float, str, bytes or bytearray"
                )
        return {
            "BinaryValues": binary,
            "StringValues": strings,
            "NumericValues": numbers,
            "Timestamps": [_read_timestamp(value)] if binary or strings or numbers else [],
            "TagValues": {name: [tag] for name, tag in _read_tags(value).items()},
        }


class QuixEventsSerializer(QuixSerializer):
    """Writes mappings as Quix's events.

    `Timestamp` (ns) is required; `Id` and `Value` (str, empty by default) and `Tags` (a mapping) are optional; other
    items are left out. None becomes a tombstone.

    Args:
        as_legacy: whether the value goes into a legacy envelope; otherwise headers describe it.
        dumps: function from an object to JSON as bytes or str; orjson by default.

    Example:
        >>> from streamrt.serializers import MessageField, SerializationContext
        >>> write = QuixEventsSerializer(as_legacy=False)
        >>> write({"Timestamp": 10, "Id": "door", "Value": "open"}, SerializationContext("t", MessageField.VALUE))
        b'{"Id":"door","Value":"open","Tags":{},"Timestamp":10}'
    """

    _kind, _legacy_kind = _EVENT, _EVENT

    def _make_model(self, value: Mapping[str, Any]) -> dict[str, Any]:
        texts = {name: value.get(name, "") for name in ("Id", "Value")}
        for name, text in texts.items():
            if not isinstance(text, str):
                raise SerializationError(f"{name} of a Quix event must be a str, not a {type(text).__name__}")
        return {**texts, "Tags": dict(_read_tags(value)), "Timestamp": _read_timestamp(value)}


# -- Writing ---------------------------------------------------------------------------------------------------------


def _read_timestamp(value: Mapping[str, Any]) -> int | float:
    if "Timestamp" not in value:
        raise SerializationError("Quix's formats need 'Timestamp' in the value, in nanoseconds since the Unix epoch")
    timestamp = value["Timestamp"]
    if isinstance(timestamp, bool) or not isinstance(timestamp, int | float) or not math.isfinite(timestamp):
        raise SerializationError(f"'Timestamp' must be a number of nanoseconds, not a {type(timestamp).__name__}")
    return timestamp


def _read_tags(value: Mapping[str, Any]) -> Mapping[str, Any]:
    tags = value.get("Tags")
    if tags is None:
        return {}
    if not isinstance(tags, Mapping):
        raise SerializationError(f"'Tags' must be a mapping, not a {type(tags).__name__}")
    return tags


# -- Reading ---------------------------------------------------------------------------------------------------------


def _iterate_rows(data: Mapping[str, Any], limit: int) -> Iterator[dict[str, Any]]:
    """Convert columns to one dict for each timestamp."""
    timestamps = data.get("Timestamps")
    if not isinstance(timestamps, list):
        raise SerializationError("time series data has no list of Timestamps")
    count = len(timestamps)
    if count > limit:
        raise SerializationError(_too_many(count, limit))
    columns = [
        *_iterate_columns(data, "NumericValues", count),
        *_iterate_columns(data, "StringValues", count),
        *(
            (name, [_read_binary(name, item) for item in items])
            for name, items in _iterate_columns(data, "BinaryValues", count)
        ),
    ]
    for name, _ in columns:
        if name in ("Timestamp", "Tags"):
            raise SerializationError(f"a parameter has the name {name!r}, which is taken by the record's own {name}")
    tags = list(_iterate_columns(data, "TagValues", count))
    for index, timestamp in enumerate(timestamps):
        row: dict[str, Any] = {}
        for name, items in columns:
            item = items[index]
            # A parameter may have numbers at some timestamps and text at others.
            if item is not None or name not in row:
                row[name] = item
        row["Tags"] = {name: items[index] for name, items in tags}
        row["Timestamp"] = timestamp
        yield row


def _iterate_columns(data: Mapping[str, Any], part: str, count: int) -> Iterator[tuple[str, list[Any]]]:
    for name, items in _check_mapping(data.get(part, {}), part).items():
        if not isinstance(items, list) or len(items) < count:
            problem = f"{len(items)} values" if isinstance(items, list) else f"a {type(items).__name__}"
            raise SerializationError(
                f"{part} of time series data have {problem} for {_shorten_value(name)} and {count} timestamps"
            )
        yield name, items


def _read_binary(name: str, item: Any) -> bytes | None:
    if item is None:
        return None
    try:
        return base64.b64decode(item, validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise SerializationError(f"the binary value of {_shorten_value(name)} is not base64: {error}") from error


def _read_event(event: Any) -> dict[str, Any]:
    content = _check_mapping(event, "an event")
    missing = [name for name in ("Timestamp", "Id", "Value") if name not in content]
    if missing:
        raise SerializationError(f"the Quix event has no {missing[0]}")
    return {
        "Timestamp": content["Timestamp"],
        "Id": content["Id"],
        "Value": content["Value"],
        "Tags": content.get("Tags", {}),
    }


def _checked_kind(kind: Any, where: str) -> str:
    if not isinstance(kind, str) or not kind:
        raise SerializationError(f"{where} contains no Quix model key, so the value is not in a Quix format")
    if kind in _IGNORED:
        raise IgnoreMessage(f"Quix's {kind} contain no data")
    return kind


def _check_mapping(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise SerializationError(f"{what} must be a JSON object, not a {type(value).__name__}")
    return value


def _read_text(name: str, data: Any) -> str:
    try:
        return data.decode() if isinstance(data, bytes) else str(data or "")
    except UnicodeDecodeError as error:
        raise SerializationError(f"the header {name} is not UTF-8 text") from error


def _inflate_data(data: bytes, limit: int) -> bytes:
    inflater = zlib.decompressobj(wbits=31)
    try:
        result = inflater.decompress(data, limit)
    except zlib.error as error:
        raise SerializationError(f"the value cannot be inflated: {error}") from error
    if inflater.eof and not inflater.unused_data:
        return result
    if inflater.eof:
        raise SerializationError("the compressed value has bytes after its end")
    if inflater.unconsumed_tail or len(result) >= limit:
        raise SerializationError(f"the compressed value is larger than max_inflated_bytes={limit}")
    raise SerializationError("the compressed value is truncated")


def _too_many(count: int, limit: int) -> str:
    return f"the value contains {count} records, more than max_records={limit}"


def _shorten_value(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}..."
