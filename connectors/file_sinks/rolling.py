"""When a file of a file sink is full, and in which folder it lies."""

import datetime
import math
import zoneinfo
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from streamrt.connectors.argument_checks import checked_type
from streamrt.connectors.file_sinks.file_commits import OpenFile, Plan
from streamrt.connectors.sinks.batch import SinkBatch, SinkItem
from streamrt.errors import ArgumentValueError, SinkError, argument_error

__all__ = ["DateFolders", "FieldFolders", "Folders", "Groups", "Rolling", "folder_of", "planned"]

_MOST_OPEN = 200
"""So many files of a partition are open at once; then the oldest one is closed."""

Folders = Callable[[SinkItem], str]
"""Returns the folder of an item, as a relative path."""

Groups = Sequence[tuple[str, SinkBatch]]
"""Values by the beginning of the names of their files."""


@dataclass(frozen=True)
class Rolling:
    """Lets the file of a file sink grow over several commits, until one of the limits is reached.

    Args:
        max_bytes: bytes of a file. The last commit in it may exceed them.
        max_records: records of a file; None for no limit.
        max_age: seconds since its first commit.
        max_idle: seconds since its last commit; None for no limit.

    Raises:
        ConfigurationError: if a limit is not above 0.

    Example:
        ```python
        sink = LocalFileSink(directory="/data/orders", format="parquet", rolling=Rolling(max_age=300))
        ```
    """

    max_bytes: int = 128 * 1024 * 1024
    max_records: int | None = None
    max_age: float = 60.0
    max_idle: float | None = None

    def __post_init__(self) -> None:
        for name in ("max_bytes", "max_records", "max_age", "max_idle"):
            limit = getattr(self, name)
            types = int if name in ("max_bytes", "max_records") else int | float
            optional = name in ("max_records", "max_idle")
            checked_type(
                "Rolling", name, limit, types, "above 0", lambda limit: 0 < limit < math.inf, optional=optional
            )

    def is_full(self, file: OpenFile) -> bool:
        """Return whether a file is large enough.

        Args:
            file: the file.
        """
        return file.size >= self.max_bytes or (self.max_records is not None and file.records >= self.max_records)

    def is_due(self, file: OpenFile, now_ms: int) -> bool:
        """Return whether a file is old enough.

        Args:
            file: the file.
            now_ms: the time, in milliseconds since the Unix epoch.
        """
        is_idle = self.max_idle is not None and now_ms - file.touched_ms >= self.max_idle * 1_000
        return is_idle or now_ms - file.began_ms >= self.max_age * 1_000


@dataclass(frozen=True)
class DateFolders:
    """Puts values into folders by the event time of their records.

    Args:
        pattern: the folder, as `strftime` has it; it may have several parts.
        timezone: name of the time zone.

    Raises:
        ConfigurationError: if the time zone is unknown.

    Example:
        >>> DateFolders("date=%Y-%m-%d/hour=%H")(SinkItem({}, None, 1_767_225_600_000, None, 0))
        'date=2026-01-01/hour=00'
    """

    pattern: str = "date=%Y-%m-%d"
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        try:
            zoneinfo.ZoneInfo(self.timezone)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, TypeError):
            raise ArgumentValueError(f"DateFolders(timezone=...): {self.timezone!r} is not a time zone") from None

    def __call__(self, item: SinkItem) -> str:
        """Return the folder of an item."""
        zone = zoneinfo.ZoneInfo(self.timezone)
        return datetime.datetime.fromtimestamp(item.timestamp / 1_000, zone).strftime(self.pattern)


class FieldFolders:
    """Puts values into folders by their fields, as Hive and Spark name them: `country=de/kind=new`.

    A missing field and None are `__HIVE_DEFAULT_PARTITION__`.

    Args:
        fields: names of fields.

    Raises:
        ConfigurationError: if there is none.

    Example:
        >>> FieldFolders("country")(SinkItem({"country": "a/b"}, None, 0, None, 0))
        'country=a%2Fb'
    """

    def __init__(self, *fields: str) -> None:
        if not fields or not all(isinstance(field, str) and field for field in fields):
            raise argument_error(f"FieldFolders needs names of fields, got {fields!r}", of_type=bool(not fields))
        self._fields = fields

    def __call__(self, item: SinkItem) -> str:
        """Return the folder of an item."""
        if not isinstance(item.value, dict):
            raise TypeError("the value is not a dict")
        return "/".join(f"{quote(field, safe='')}={_format_value(item.value.get(field))}" for field in self._fields)


def _format_value(value: Any) -> str:
    return "__HIVE_DEFAULT_PARTITION__" if value is None or value == "" else quote(str(value), safe="")


def folder_of(folders: Folders, item: SinkItem, batch: SinkBatch, part: Callable[[str], str]) -> str:
    """Return the folder of an item, as a path that stays in its directory.

    Args:
        folders: the function.
        item: the item.
        batch: its batch.
        part: makes a name of a part.

    Raises:
        SinkError: if the function fails, or returns no path.
    """
    reason = "returned no relative path"
    try:
        folder = folders(item)
        if isinstance(folder, str) and folder.strip("/"):
            return "/".join(part(name) for name in folder.split("/") if name)
    except Exception as error:  # noqa: BLE001 - the code of users
        reason = f"failed with {type(error).__name__}"
    record = batch.record_of(item)
    raise SinkError(f"folders {reason} for the record of {record[0]}[{record[1]}] at offset {record[2]}", record)


def planned(
    rolling: Rolling,
    opened: Iterable[OpenFile],
    groups: Groups,
    now_ms: int,
    named: Callable[[str, SinkBatch, int], str],
    written: Callable[[SinkBatch], bytes],
    hidden: Callable[[int], str],
) -> Plan:
    """Return what a commit does: which parts it writes, which files it closes, and which are open after it.

    Args:
        rolling: the limits.
        opened: the open files.
        groups: the values, each group of which one file can hold.
        now_ms: the time, in milliseconds since the Unix epoch.
        named: returns the name of a file for the beginning of its name, its first values, and a number.
        written: returns the content for values.
        hidden: returns the name of a part for a number.
    """
    current = {file.prefix: file for file in opened}
    files: list[tuple[str, bytes]] = []
    closing: list[OpenFile] = []
    number = 0
    for prefix, batch in groups:
        items = list(batch)
        while items:
            file = current.pop(prefix, None)
            room = len(items) if rolling.max_records is None else rolling.max_records - (file.records if file else 0)
            part = SinkBatch(batch.topic, batch.partition)
            for item in items[: max(1, room)]:
                part.append(*item)
            items = items[max(1, room) :]
            content = written(part)
            file = file or OpenFile(prefix, named(prefix, part, number), (), 0, 0, now_ms, now_ms)
            place = hidden(number)
            grown = replace(
                file,
                parts=(*file.parts, place),
                size=file.size + len(content),
                records=file.records + len(part),
                touched_ms=now_ms,
            )
            number += 1
            if not rolling.is_full(grown):
                current[prefix] = grown
            elif file.parts:
                closing.append(grown)
            else:
                # It is full at once.
                place = file.name
            files.append((place, content))
    oldest = sorted(current.values(), key=lambda file: file.began_ms)
    surplus = len(oldest) - _MOST_OPEN
    due = [file for place, file in enumerate(oldest) if place < surplus or rolling.is_due(file, now_ms)]
    return Plan(tuple(files), (*closing, *due), tuple(file for file in oldest if file not in due))
