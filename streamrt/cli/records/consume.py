"""`streamrt consume`: prints records of a topic."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from streamrt.cli.broker import BrokerOption, Cluster, ConfigOption, TimeoutOption, open_cluster
from streamrt.cli.output import examples, note, quiet_pipe, time_text
from streamrt.cli.records.record_values import ReadFormat, decode, json_form, parse_time_ms
from streamrt.cli.records.schemas import Decoder, MessageOption, RegistryOption, decoders
from streamrt.common.texts import readable
from streamrt.errors import SerializationError
from streamrt.records import TopicPartition

if TYPE_CHECKING:
    from streamrt.kafka.reading.input_reader import InputBatch

__all__ = ["EXAMPLES", "consume"]

_BATCH = 1_000
_POLL_S = 0.2
_APPENDED = 2
"""librdkafka's number for timestamps of the broker."""
EXAMPLES = examples(
    "streamrt consume orders",
    "streamrt consume orders --from latest",
    "streamrt consume orders --from 2026-11-23T12:00:00Z --until 2026-11-23T13:00:00Z --json",
    "streamrt consume orders --partition 0 --from -10 --values",
    "streamrt consume orders --key ann --max 1",
)


class Isolation(str, Enum):
    """Which records are read."""

    read_committed = "read_committed"
    read_uncommitted = "read_uncommitted"


@dataclass(frozen=True)
class _Record:
    """A record as it was read."""

    place: TopicPartition
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    timestamp_type: int
    headers: list[tuple[str, bytes | None]]


_Show = Callable[[_Record], tuple[str, str] | None]


@dataclass(frozen=True)
class _Range:
    """The range to read: offsets of each partition, and when reading ends at the latest."""

    starts: dict[TopicPartition, int]
    ends: dict[TopicPartition, int] | None
    """None if reading does not end at an offset."""
    deadline: float | None = None
    """Value of `time.time()`."""


def consume(
    topic: Annotated[str, typer.Argument(help="Name of the topic.")],
    broker: BrokerOption = None,
    config: ConfigOption = None,
    timeout: TimeoutOption = 10.0,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="START",
            help="earliest, latest, an offset, -N for N offsets before the end, or a time in ISO 8601 (UTC without zone).",
        ),
    ] = "earliest",
    until: Annotated[
        str | None,
        typer.Option(
            metavar="END",
            help="end (the present one), an offset (excluded), a time, or never. By default end; never with --from latest.",
        ),
    ] = None,
    most: Annotated[int | None, typer.Option("--max", "-n", min=1, help="Stop after this many records.")] = None,
    partition: Annotated[list[int] | None, typer.Option(min=0, help="Only this partition; may be repeated.")] = None,
    key: Annotated[str | None, typer.Option(help="Only records with this key.")] = None,
    value_format: Annotated[
        ReadFormat,
        typer.Option(
            "--format",
            help="Format of the values. auto: JSON, else text, else hexadecimal digits. avro and json-schema need a "
            "schema registry, protobuf needs --message.",
        ),
    ] = ReadFormat.auto,
    key_format: Annotated[ReadFormat, typer.Option(help="Format of the keys.")] = ReadFormat.auto,
    registry: RegistryOption = None,
    message: MessageOption = None,
    isolation: Annotated[
        Isolation, typer.Option(help="read_uncommitted also reads records of open and aborted transactions.")
    ] = Isolation.read_committed,
    values_only: Annotated[bool, typer.Option("--values", help="Print only the values.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object in each line; produce --format records reads it.")
    ] = False,
) -> None:
    """Print records of a topic: partition, offset, timestamp, key, headers and value.

    It joins no consumer group and commits nothing. Records of different
    partitions come in any order. Ctrl+C ends it.
    """
    if values_only and as_json:
        raise typer.BadParameter("choose one of --values and --json", param_hint="--values")
    wanted_key = None if key is None else key.encode()
    value_decoder, key_decoder = decoders(topic, value_format, key_format, registry, config, message)
    show = _Printer(
        _make_show("value", value_format, value_decoder),
        _make_show("key", key_format, key_decoder),
        values_only,
        as_json,
    )
    with contextlib.suppress(KeyboardInterrupt), quiet_pipe(), open_cluster(broker, config, timeout) as cluster:
        chosen = _find_range(cluster, topic, partition or (), start, until, isolation)
        printed = 0
        for record in _read_records(cluster, chosen, isolation):
            if wanted_key is not None and record.key != wanted_key:
                continue
            show(record)
            printed += 1
            if printed == most:
                break


def _make_show(what: str, read_format: ReadFormat, decoder: Decoder) -> _Show:
    """Return a function of a record that shows its key or value.

    Args:
        what: "key" or "value".
        read_format: the format, for the error.
        decoder: function of bytes and headers.
    """
    option = "--format" if what == "value" else "--key-format"

    def show(record: _Record) -> tuple[str, str] | None:
        data = record.value if what == "value" else record.key
        try:
            return None if data is None else decoder(data, record.headers)
        except SerializationError as error:
            raise SerializationError(
                f"the {what} of {record.place.topic}[{record.place.partition}] at offset {record.offset} does not have "
                f"the format {read_format.value}: {error}; use {option} auto or hex"
            ) from None

    return show


class _Printer:
    """Prints records.

    Args:
        show_value: function of a record that returns its value as text and the format of the text.
        show_key: the same for the key.
        values_only: the option `--values`.
        as_json: the option `--json`.
    """

    def __init__(self, show_value: _Show, show_key: _Show, values_only: bool, as_json: bool) -> None:
        self._show_value = show_value
        self._show_key = show_key
        self._values_only = values_only
        self._as_json = as_json
        self._raw = values_only and not sys.stdout.isatty()

    def __call__(self, record: _Record) -> None:
        """Print one record.

        Raises:
            SerializationError: if key or value do not have their format.
        """
        value = self._show_value(record)
        if self._values_only:
            text = "null" if value is None else value[0]
            line = text if self._raw else readable(text)
        elif self._as_json:
            line = self._json_line(record, self._show_key(record), value)
        else:
            line = self._text_line(record, self._show_key(record), value)
        sys.stdout.write(f"{line}\n")

    @staticmethod
    def _text_line(record: _Record, key: tuple[str, str] | None, value: tuple[str, str] | None) -> str:
        parts = [f"{record.place.topic}[{record.place.partition}]@{record.offset}", time_text(record.timestamp)]
        if key is not None:
            parts.append(f"key={readable(key[0])}")
        for name, data in record.headers:
            shown = "null" if data is None else decode(data, ReadFormat.auto)[0]
            parts.append(f"{readable(name)}={readable(shown)}")
        parts.append("null" if value is None else readable(value[0]))
        return "  ".join(parts)

    @staticmethod
    def _json_line(record: _Record, key: tuple[str, str] | None, value: tuple[str, str] | None) -> str:
        headers = []
        for name, data in record.headers:
            text, kind = (None, "string") if data is None else _header_text(data)
            headers.append({"name": name, "value": text, "format": kind})
        line: dict[str, Any] = {
            **record.place._asdict(),
            "offset": record.offset,
            "timestamp": record.timestamp,
            "timestamp_type": "append" if record.timestamp_type == _APPENDED else "create",
            "key": None if key is None else json_form(*key),
            "key_format": None if key is None else key[1],
            "value": None if value is None else json_form(*value),
            "value_format": None if value is None else value[1],
            "headers": headers,
        }
        return orjson.dumps(line).decode()


def _header_text(data: bytes) -> tuple[str, str]:
    """Return a header as text; JSON in it stays a text, because headers rarely are JSON."""
    try:
        return decode(data, ReadFormat.string)
    except SerializationError:
        return decode(data, ReadFormat.hex)


def _find_range(
    cluster: Cluster, topic: str, chosen: Sequence[int], start: str, until: str | None, isolation: Isolation
) -> _Range:
    """Return what is to be read."""
    partitions = cluster.partitions_of(topic, chosen)
    bounds = cluster.admin.offset_bounds(partitions, cluster.timeout, isolation_level=isolation.value)
    _tell_of_open_transactions(cluster, bounds, isolation)
    starts = _find_starts(cluster, bounds, start)
    until = until or ("never" if start == "latest" else "end")
    if until == "never":
        return _Range(starts, None)
    if until == "end":
        return _Range(starts, {place: high for place, (_, high) in bounds.items()})
    if until.isdecimal():
        # An offset that does not exist yet is waited for.
        return _Range(starts, dict.fromkeys(partitions, int(until)))
    milliseconds = parse_time_ms(until)
    if milliseconds is None:
        raise typer.BadParameter(f"{until!r} is not end, an offset, a time or never", param_hint="--until")
    if milliseconds > time.time() * 1000:
        return _Range(starts, None, milliseconds / 1000)
    return _Range(starts, _at_time(cluster, bounds, milliseconds))


def _find_starts(
    cluster: Cluster, bounds: dict[TopicPartition, tuple[int, int]], start: str
) -> dict[TopicPartition, int]:
    """Return the first offset to read of each partition."""
    if start == "earliest":
        return {place: low for place, (low, _) in bounds.items()}
    if start == "latest":
        return {place: high for place, (_, high) in bounds.items()}
    if start.removeprefix("-").isdecimal():
        number = int(start)
        found = {}
        for place, (low, high) in bounds.items():
            wanted = number if not start.startswith("-") else high + number
            found[place] = min(max(wanted, low), high)
            if not start.startswith("-") and found[place] != wanted:
                note(
                    f"{place.topic}[{place.partition}] has the offsets {low} to {high}: reading begins at {found[place]}"
                )
        return found
    milliseconds = parse_time_ms(start)
    if milliseconds is None:
        raise typer.BadParameter(f"{start!r} is not earliest, latest, an offset or a time", param_hint="--from")
    return _at_time(cluster, bounds, milliseconds)


def _at_time(
    cluster: Cluster, bounds: dict[TopicPartition, tuple[int, int]], milliseconds: int
) -> dict[TopicPartition, int]:
    """Return the first offset at or after a time; the end where all records are older."""
    found = cluster.admin.offsets_at(list(bounds), milliseconds, cluster.timeout)
    return {place: min(found[place], high) for place, (_, high) in bounds.items()}


def _tell_of_open_transactions(
    cluster: Cluster, bounds: dict[TopicPartition, tuple[int, int]], isolation: Isolation
) -> None:
    if isolation is not Isolation.read_committed:
        return
    ends = cluster.admin.offset_bounds(list(bounds), cluster.timeout)
    for place, (_, stable) in bounds.items():
        if ends[place][1] > stable:
            note(
                f"{place.topic}[{place.partition}] ends at {ends[place][1]}, but an open transaction holds back records "
                f"from offset {stable} on: they come after it; --isolation read_uncommitted shows them now"
            )


def _read_records(cluster: Cluster, chosen: _Range, isolation: Isolation) -> Iterator[_Record]:
    """Yield the records of a range as they arrive."""
    from streamrt.kafka.reading.partition_feed import PartitionFeed

    left = {place: start for place, start in chosen.starts.items() if chosen.ends is None or start < chosen.ends[place]}
    with contextlib.closing(PartitionFeed(cluster.connection, {"isolation.level": isolation.value})) as feed:
        feed.add(left)
        feed.resume(left)
        while left and (chosen.deadline is None or time.time() < chosen.deadline):
            sys.stdout.flush()
            for place, batch in feed.poll(_POLL_S, _BATCH):
                end = None if chosen.ends is None else chosen.ends[place]
                yield from _iterate_records(place, batch, end)
                left[place] = batch.offsets[-1] + 1
            if chosen.ends is not None:
                # The end of a partition may lie after transaction markers, which are not records.
                left.update({place: end for place, end in feed.ends().items() if place in left})
                done = [place for place, position in left.items() if position >= chosen.ends[place]]
                feed.remove(done)
                for place in done:
                    del left[place]


def _iterate_records(place: TopicPartition, batch: "InputBatch", end: int | None) -> Iterator[_Record]:
    headers = batch.headers or [None] * len(batch.offsets)
    columns = (batch.offsets, batch.keys, batch.values, batch.timestamps, batch.timestamp_types, headers)
    for offset, key, value, timestamp, kind, found in zip(*columns, strict=True):
        if end is None or offset < end:
            yield _Record(place, offset, key, value, timestamp, kind, list(found or ()))
