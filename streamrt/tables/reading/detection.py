"""`Detected`: a schema that fits the records of a topic, found by looking at some of them."""

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

from streamrt.kafka.client import KafkaRequestError
from streamrt.kafka.reading.input_reader import InputBatch
from streamrt.records import Headers, TopicPartition
from streamrt.schema import Schema
from streamrt.tables.access.links import TableLinks
from streamrt.tables.access.positions import Positions, Start, TopicPositions
from streamrt.tables.rows.sampling import SampleReader, read_json

__all__ = ["Detected", "described", "detect"]

_POLL_S = 0.1
_GROWTH = 8
"""How many times more offsets are looked at when the last ones have too few records."""
_OPTIONS = {"fetch.wait.max.ms": 5, "queued.min.messages": 1_000}


@dataclass(frozen=True)
class Detected:
    """The form of the records of a topic.

    Attributes:
        schema: a schema that fits them, or None if there was none.
        rows: the records, oldest first.
        new_columns: columns of these that the table's schema does not have.
        missing_columns: columns of the table's schema that none of these has.
        skipped: how many records were not rows of the table's format.
        hint: what these may be, or None.
    """

    schema: Schema | None
    rows: list[dict[str, Any]] = field(default_factory=list)
    new_columns: list[str] = field(default_factory=list)
    missing_columns: list[str] = field(default_factory=list)
    skipped: int = 0
    hint: str | None = None


@dataclass(frozen=True)
class _Sample:
    timestamp: int
    partition: int
    offset: int
    value: bytes | None
    headers: Headers | None


def detect(
    links: TableLinks,
    positions: TopicPositions,
    known: Schema | None,
    *,
    limit: int,
    timeout: float,
    types: bool,
    start: Start | None,
    read: SampleReader = read_json,
) -> Detected:
    """Return what records of a topic look like; `Table.detect_schema` says how.

    Args:
        links: reach the topic.
        positions: of the topic.
        known: the schema of the table, if it has one.
        limit: most records.
        timeout: seconds to wait for the first record.
        types: whether types are inferred.
        start: where to begin; None means with the last records.
        read: reads values of the table's format.
    """
    deadline = time.monotonic() + timeout
    bounds = positions.read_bounds(positions.chosen(None, *([] if start is None else [start])))
    if start is None:
        ends = positions.ends("latest", bounds)
        samples = _read_last(links, bounds.low, ends, limit, positions.timeout)
    else:
        ends = positions.starts(start, bounds)
        samples = []
    if not samples:
        samples = _read_next(links, ends, limit, deadline)
    return described([sample.value for sample in samples], known, types, read, [sample.headers for sample in samples])


def _read_last(
    links: TableLinks, low: Mapping[int, int], ends: Positions, limit: int, timeout_s: float
) -> list[_Sample]:
    """Return the last records of all partitions together, oldest first."""
    found = [
        each
        for number, end in ends.at.items()
        for each in _last_of(links, TopicPartition(ends.topic, number), low[number], end, limit, timeout_s)
    ]
    found.sort(key=lambda each: (each.timestamp, each.partition, each.offset))
    return found[-limit:]


def _last_of(
    links: TableLinks, partition: TopicPartition, low: int, end: int, limit: int, timeout_s: float
) -> list[_Sample]:
    reach = limit
    while True:
        start = max(low, end - reach)
        found = list(_read_range(links, partition, start, end, timeout_s))
        # Markers of transactions and aborted records also have offsets.
        if len(found) >= limit or start <= low:
            return found[-limit:]
        reach *= _GROWTH


def _read_range(
    links: TableLinks, partition: TopicPartition, start: int, end: int, timeout_s: float
) -> Iterator[_Sample]:
    if start >= end:
        return
    with _open_feed(links, {partition: start}) as feed:
        moved_at = time.monotonic()
        while max(start, feed.ends().get(partition, 0)) < end:
            for _, records in feed.poll(_POLL_S, 1_000):
                yield from (each for each in _iterate_samples(partition.partition, records) if each.offset < end)
                start, moved_at = records.offsets[-1] + 1, time.monotonic()
            if time.monotonic() - moved_at > timeout_s:
                raise KafkaRequestError(
                    f"{partition} was read up to offset {start} of {end}, and no further for {timeout_s:g} s: its broker "
                    "sends no records; look at the logs of the brokers",
                    retriable=True,
                )


def _read_next(links: TableLinks, starts: Positions, limit: int, deadline: float) -> list[_Sample]:
    """Return the next records, as soon as there are some."""
    found: list[_Sample] = []
    at = {TopicPartition(starts.topic, number): offset for number, offset in starts.at.items()}
    with _open_feed(links, at) as feed:
        while len(found) < limit:
            left = deadline - time.monotonic()
            polled = feed.poll(max(0.0, min(_POLL_S, left)), limit - len(found))
            for partition, records in polled:
                found += _iterate_samples(partition.partition, records)
            if left <= 0 or (found and not polled):
                break
    found.sort(key=lambda each: (each.timestamp, each.partition, each.offset))
    return found[:limit]


@contextlib.contextmanager
def _open_feed(links: TableLinks, at: Mapping[TopicPartition, int]) -> Iterator[Any]:
    with contextlib.closing(links.feed(_OPTIONS)) as feed:
        feed.add(at)
        feed.resume(at)
        yield feed


def _iterate_samples(number: int, records: InputBatch) -> Iterator[_Sample]:
    headers = records.headers or repeat(None, len(records.values))
    for offset, timestamp, value, beside in zip(
        records.offsets, records.timestamps, records.values, headers, strict=True
    ):
        yield _Sample(timestamp, number, offset, value, beside)


def described(
    values: Sequence[bytes | None],
    known: Schema | None,
    types: bool,
    read: SampleReader = read_json,
    headers: Sequence[Headers | None] | None = None,
) -> Detected:
    """Return what values look like.

    Args:
        values: the values, oldest first.
        known: the schema of the table, if it has one.
        types: whether types are inferred.
        read: reads values of the table's format.
        headers: the headers of the record of each value.
    """
    found = read(values, types, headers)
    names = () if known is None else known.names
    return Detected(
        found.schema,
        found.rows,
        [name for name in found.columns if name not in names],
        [name for name in names if name not in found.columns] if found.rows else [],
        found.skipped,
        found.hint,
    )
