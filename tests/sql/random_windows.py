"""Random windows with one result, over a stream with late rows, and what they must be.

Which rows are late is fixed by the order of rows if they are in one partition: the highest time so far decides, of the
rows that come to the windows. So the oracle computes in Python which windows each row is counted in. Of several
partitions, no row is later than windows wait.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from streamrt.schema import Schema
from tests.sql.random_queries import TYPES, Column, QueryMaker
from tests.sql.worlds import Batch, Change, Row

__all__ = ["EVENTS", "Closing", "Windows", "make_closing", "make_events"]

EVENTS = "events"
_START = datetime(2024, 2, 28, 23, 59, 48)
_EPOCH = datetime(1970, 1, 1)
_MS = timedelta(milliseconds=1)


@dataclass(frozen=True)
class Windows:
    """Windows of a query.

    Attributes:
        table: the table of the oracle: rows of `events`, once for each window, with the columns `ws` and `we`; for sessions,
            the rows that are in time.
        size_ms: their length, or the gap between sessions.
        step_ms: from one start to the next; None for sessions.
        offset_ms: how much later than the epoch one starts.
        where: the condition for rows that come to the windows; others do not move their time.
    """

    table: str
    size_ms: int
    step_ms: int | None
    offset_ms: int = 0
    where: str = ""

    def counted(self, at: datetime, clock: datetime | None, grace_ms: int) -> Iterator[dict[str, datetime]]:
        """Yield the bounds of the windows in which a row is counted that comes when the time is `clock`."""
        time = (at - _EPOCH) // _MS
        until = -1 if clock is None else (clock - _EPOCH) // _MS
        if self.step_ms is None:
            if time + self.size_ms >= until - grace_ms:
                yield {}
            return
        start = time - (time - self.offset_ms) % self.step_ms
        while start + self.size_ms > time:
            if start + self.size_ms + grace_ms > until:
                yield {"ws": _EPOCH + start * _MS, "we": _EPOCH + (start + self.size_ms) * _MS}
            start -= self.step_ms


@dataclass(frozen=True)
class Closing:
    """What a query over windows with one result must give.

    Attributes:
        schema: columns of `events`.
        windows: all windows of the query.
        oracle: the query, over the tables of the windows.
        grace_ms: how long windows wait.
        partitions: number of partitions of `events`.
    """

    schema: Schema
    windows: tuple[Windows, ...]
    oracle: str
    grace_ms: int
    partitions: int

    @property
    def options(self) -> str:
        """The options of the view."""
        return f" WITH (emit = 'final', grace = '{self.grace_ms} milliseconds')"

    @property
    def _columns(self) -> str:
        return ", ".join(f"{name} {type_}" for name, type_ in zip(self.schema.names, self.schema.types, strict=True))

    def expect(self, changes: Iterable[Change]) -> list[Row]:
        """Return the rows of the view when all windows are over.

        Raises:
            SQLNotSupportedError: if DuckDB cannot compute the query.
        """
        batch = Batch(
            {
                each.table: Schema(self._columns + (", ws TIMESTAMP, we TIMESTAMP" if each.step_ms else ""))
                for each in self.windows
            }
        )
        rows = [change.row or {} for change in changes]
        for each in self.windows:
            clock: datetime | None = None
            for row in self._choose(rows, each.where):
                counted = each.counted(row["at"], clock if self.partitions == 1 else None, self.grace_ms)
                batch.apply(Change(each.table, None, {**row, **bounds}) for bounds in counted)
                clock = row["at"] if clock is None else max(clock, row["at"])
        return batch.rows(self.oracle)

    def _choose(self, rows: Sequence[dict[str, Any]], where: str) -> list[dict[str, Any]]:
        """Return the rows for which a condition is true."""
        if not where:
            return list(rows)
        batch = Batch({EVENTS: Schema(f"place BIGINT, {self._columns}")})
        batch.apply(Change(EVENTS, None, {"place": place, **row}) for place, row in enumerate(rows))
        chosen = {place for (place,) in batch.rows(f"SELECT place FROM {EVENTS} WHERE {where}")}
        return [row for place, row in enumerate(rows) if place in chosen]


def make_closing(source: random.Random) -> tuple[str, Closing]:
    """Return a query over windows of `events`, and what it must give."""
    types = source.sample([type_ for type_ in TYPES if type_ != "TIMESTAMP"], source.randint(2, 4))
    columns = (
        Column("k", "BIGINT"),
        *(Column(f"v{n}", type_) for n, type_ in enumerate(types)),
        Column("at", "TIMESTAMP"),
    )
    schema = Schema(", ".join(f"{column.name} {column.type}" for column in columns), time="at")
    maker = QueryMaker(source, {EVENTS: columns})
    results, windows = {}, []
    for number in range(source.choice((1, 1, 2))):
        chosen = _choose_windows(source, f"windows_{number}")
        results[f"results_{number}"] = made = maker.make_window_results(_call(chosen), chosen.table)
        windows.append(replace(chosen, where=made[0].partition(" WHERE ")[2].partition(" GROUP BY ")[0]))
    if len(results) == 1 and source.random() < 0.4:
        ((text, oracle, _),) = results.values()
    else:
        outer = QueryMaker(source, {name: made for name, (_, _, made) in results.items()}, windows="never")
        query, _ = outer.make_query()
        text = oracle = query
        for name, (own, expected, _) in results.items():
            text, oracle = text.replace(f"{name} AS", f"({own}) AS"), oracle.replace(f"{name} AS", f"({expected}) AS")
    used = tuple(each for each in windows if each.table in oracle)
    return text, Closing(schema, used, oracle, source.choice((0, 1000, 4000)), source.choice((1, 1, 2)))


def _choose_windows(source: random.Random, table: str) -> Windows:
    size, step = source.choice(
        ((5000, 5000), (10_000, 10_000), (10_000, 4000), (6000, 3000), (2500, None), (6000, None))
    )
    return Windows(table, size, step, 0 if step is None else source.choice((0, 0, 500)))


def _call(windows: Windows) -> str:
    if windows.step_ms is None:
        return f"session_window(at, '{windows.size_ms} milliseconds')"
    offset = f", '{windows.offset_ms} milliseconds'" if windows.offset_ms else ""
    step = f", '{windows.step_ms} milliseconds'" if offset or windows.step_ms != windows.size_ms else ""
    return f"window(at, '{windows.size_ms} milliseconds'{step}{offset})"


def make_events(source: random.Random, closing: Closing, values: dict[str, tuple[Any, ...]]) -> list[list[Change]]:
    """Return rows of `events` in chunks, some of which are late.

    Args:
        source: chooses.
        closing: the windows.
        values: values of columns by type.
    """
    now, chunks = _START, []
    most = closing.grace_ms if closing.partitions > 1 else 15_000
    for _ in range(source.randint(2, 6)):
        chunk = []
        for _ in range(source.randint(1, 6)):
            now += source.choice((0, 1, 700, 2500, 2500, 9000)) * _MS
            late = min(most, source.choice((0, 0, 0, 1, 900, 2500, 4000, 15_000)))
            row: dict[str, Any] = {"k": source.randrange(3), "at": now - late * _MS}
            for name, type_ in zip(closing.schema.names, closing.schema.types, strict=True):
                if name not in row:
                    row[name] = None if source.random() < 0.25 else source.choice(values[type_])
            chunk.append(Change(EVENTS, None, row, (row["at"] - _EPOCH) // _MS))
        chunks.append(chunk)
    return chunks
