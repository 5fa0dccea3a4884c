"""`over` in the order of time: each record with functions of the records of its key up to it, when no earlier one can come.

The timeline of a key has the records that wait, as `[value, headers]`, and those that frames still reach. Its head is
`[time, passed, entered, left out, states]`: the time of the earliest record that waits, and how many records of this time
are passed on, and in the states of peers; places of those whose entry has failed; and the states of `Running`, by their keys.
So a record that fails is left out, and all others are passed on once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Final, NamedTuple

from streamrt.common.copies import deep_copy
from streamrt.operators.closing import Closing, DueHeads, delete_expired, start_clock
from streamrt.operators.late import LATE
from streamrt.records import Headers
from streamrt.state.journal import due
from streamrt.state.spec import StoreSpec
from streamrt.state.transactions.timed import NEVER, TimedTransaction
from streamrt.topology import Node, Operator, OperatorContext, RecordHandler, SideOutput, WatermarkStrategy
from streamrt.topology.node import numbers_of
from streamrt.windows.closing import log_no_key
from streamrt.windows.frames import OrderedRows
from streamrt.windows.over_functions import OverColumn
from streamrt.windows.running import Running, check_row, keeps_rows, make_running, require_row

__all__ = ["OverTime"]

_MILLISECOND: Final = timedelta(milliseconds=1)


@dataclass(frozen=True)
class OverTime(Operator):
    """Adds functions of the records of its key up to it to each record, in the order of time.

    A record waits until the clock has passed its time and the grace period, or for the end of a bounded run. One that is
    further behind the clock is late, and dropped.

    Attributes:
        store: the store of the records and the states.
        columns: the columns that are added, of which `is_up_to_row` is true; one that the value has is replaced.
        grace_ms: how far a record may be behind the clock, in milliseconds.
        closing: the clock: that of a partition, or a watermark.
        time: the column that has the time more exactly than the timestamp; records with equal values are peers. None: those
            with equal timestamps are.

    Example:
        >>> from streamrt.windows.frames import ALL_ROWS
        >>> from streamrt.windows.over_functions import RowNumber
        >>> store, column = StoreSpec("over", transaction=TimedTransaction), OverColumn("n", RowNumber(), ALL_ROWS)
        >>> OverTime(store, (column,), 5_000, Closing("partition")).describe()
        'grace 5000 ms: n'
    """

    name: ClassVar[str] = "over"
    store: StoreSpec
    columns: tuple[OverColumn, ...]
    grace_ms: int
    closing: Closing
    time: str | None = None

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        grace, no_key, checks = (
            self.grace_ms,
            log_no_key(self.store.name),
            [*filter(None, map(check_row, self.columns))],
        )
        turn = _Turn(self.columns, self.time, grace, child)
        heads = DueHeads(self.store.name, turn.close, self.closing, _all_heads, ends=self.ends())
        clock = start_clock(self.store, grace, heads, node, context)
        admit, advance = clock.admit, clock.advance

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            if key is None:
                no_key()
                return
            transaction = admit(value, key, timestamp, headers)
            if transaction is None:
                return
            require_row(value)
            for check in checks:
                check(value)
            prefix = transaction.prefix(key)
            transaction.timelines.add(prefix, timestamp, [value, headers])
            head = transaction.head(prefix)
            if head is None or head[0] is None or timestamp < head[0]:
                states = {} if head is None else head[-1]
                transaction.set_head(prefix, [timestamp, 0, 0, [], states], timestamp + grace + 1)
            advance(transaction, timestamp)

        return clock.wrap(run, node)

    def describe(self) -> str:  # noqa: D102
        return f"grace {self.grace_ms} ms: {', '.join(column.name for column in self.columns)}"

    def keeps(self) -> tuple[str, ...]:
        """Return how long it keeps records, and the columns that are added."""
        columns = (f"{column.name}: {column.function!r}, {column.frame}" for column in self.columns)
        return (*super().keeps(), *numbers_of(self), *columns)

    def keeps_columns(self, columns: tuple[str, ...]) -> bool:  # noqa: D102
        return not any(column.name in columns for column in self.columns)

    def multiplies_records(self) -> bool:
        """One record may make several others due."""
        return True

    @property
    def holds_back_ms(self) -> int | None:
        """A record is passed on when the clock has passed its time and the grace period."""
        return self.grace_ms + 1

    def stores(self) -> tuple[StoreSpec, ...]:  # noqa: D102
        return (self.store,)

    def watermarks(self) -> tuple[tuple[str, WatermarkStrategy], ...]:  # noqa: D102
        return self.closing.watermarks(self.store.name)

    def side_outputs(self) -> tuple[SideOutput, ...]:  # noqa: D102
        return (LATE,)

    def resumes(self) -> bool:  # noqa: D102
        return True

    def ends(self) -> bool:
        """At the end, all records that wait are passed on."""
        return True

    def timed(self) -> bool:  # noqa: D102
        return self.closing.watermark is not None


def _all_heads(transaction: TimedTransaction) -> Iterator[tuple[int, bytes, Any]]:
    return transaction.due(NEVER)


class _Rows(NamedTuple):
    """Records of a key in their order: those that frames reach, and those of the present time.

    Attributes:
        values: the values.
        headers: their headers.
        times: their timestamps.
        orders: what is equal for peers.
        first: the place of the first record of the present time.
    """

    values: list[Any]
    headers: list[Any]
    times: list[int]
    orders: list[Any]
    first: int

    def end_of_peers(self, place: int) -> int:
        end = place + 1
        while end < len(self.orders) and self.orders[end] == self.orders[place]:
            end += 1
        return end


class _Turn:
    """Passes on the records of one time of a key.

    Args:
        columns: the columns that are added.
        time: the column of the order.
        grace_ms: how far a record may be behind the clock.
        child: takes the records.
    """

    def __init__(self, columns: tuple[OverColumn, ...], time: str | None, grace_ms: int, child: RecordHandler) -> None:
        self._columns, self._time, self._grace_ms, self._child = columns, time, grace_ms, child
        running = [each for each in map(make_running, columns) if each is not None]
        self._by_peers = [each for each in running if each.by_peers]
        self._by_row = [each for each in running if not each.by_peers]
        states = {each.name for each in running}
        self._framed = [column for column in columns if column.name not in states and keeps_rows(column)]
        starts = [column.frame for column in self._framed]
        self._rows = max((-frame.start for frame in starts if frame.unit == "rows"), default=0)
        self._span = max((_milliseconds(-frame.start) for frame in starts if frame.unit == "range"), default=0)

    def close(self, transaction: TimedTransaction, prefix: bytes, head: Any, key: Any, clock: int) -> None:
        time = head[0]
        if time is None:
            self._expire(transaction, prefix, head, clock)
            return
        rows = self._read(transaction, prefix, time)
        deadline = time + self._grace_ms + 1
        _, passed, entered, left_out, states = head

        def keep(passed: int, entered: int, left_out: list[int], states: dict[str, Any]) -> None:
            transaction.set_head(prefix, [time, passed, entered, left_out, states], deadline)

        def enter(place: int) -> None:
            nonlocal states
            first = place == rows.first or rows.orders[place] != rows.orders[place - 1]
            entering = self._enter(self._by_peers, states, rows, place, transaction, first=first)
            keep(passed, entered, left_out, entering)
            states = entering

        def pass_on(place: int, end: int) -> None:
            nonlocal states
            entering = self._enter(self._by_row, states, rows, place, transaction, first=True)
            keep(passed, entered, left_out, entering)
            result = self._add_columns(rows, place, end, entering, transaction)
            headers = rows.headers[place]
            kept = None if headers is None else [(name, content) for name, content in headers]
            self._child(result, key, time, kept)
            states = entering

        # One at a time: if an operator below fails on a record, the next ones are still passed on.
        enter_row, pass_row = due(transaction.journal, enter), due(transaction.journal, pass_on)
        for number, place in enumerate(range(rows.first, len(rows.values))):
            if number < passed:
                continue
            end = rows.end_of_peers(place)
            while self._by_peers and entered < end - rows.first:
                keep(passed, entered + 1, [*left_out, entered], states)
                entered += 1
                enter_row(rows.first + entered - 1)
            passed = number + 1
            keep(passed, entered, left_out, states)
            if number not in left_out:
                pass_row(place, end)
        self._end(transaction, prefix, time, rows, states)

    def _read(self, transaction: TimedTransaction, prefix: bytes, time: int) -> _Rows:
        start = 0 if self._rows else max(0, time - self._span)
        items = transaction.timelines.items(prefix, start, time + 1)
        column = self._time
        if column is not None:
            items = sorted(items, key=lambda item: (item[0], item[1][0][column]))
        values, times = [value for _, (value, _) in items], [at for at, _ in items]
        orders = times if column is None else [value[column] for value in values]
        return _Rows(values, [headers for _, (_, headers) in items], times, orders, times.index(time))

    def _enter(
        self,
        columns: list[Running],
        states: dict[str, Any],
        rows: _Rows,
        place: int,
        transaction: TimedTransaction,
        *,
        first: bool,
    ) -> dict[str, Any]:
        value, time, found = rows.values[place], rows.times[place], dict(states)
        for _, key, _, initial, enter, _ in columns:
            state = found[key] if key in found else initial(transaction)
            found[key] = enter(state, value, time, first, transaction)
        return found

    def _add_columns(
        self, rows: _Rows, place: int, end: int, states: dict[str, Any], transaction: TimedTransaction
    ) -> dict[str, Any]:
        """Return a value with its columns."""
        found = {each.name: each.result(states[each.key], transaction) for each in (*self._by_peers, *self._by_row)}
        for name, function, frame in self._framed:
            behind = place + 1 if frame.unit == "rows" else end
            first = max(0, place + frame.start) if frame.unit == "rows" else 0
            section = slice(first, behind)
            ordered = OrderedRows.of(
                rows.orders[section],
                rows.values[section],
                self._time,
                times=rows.times[section],
                first=place - first,
            )
            # Those that wait may be in other frames, and must not change below.
            found[name] = deep_copy(function.compute(ordered, frame)[0])
        return {**deep_copy(rows.values[place]), **{column.name: found[column.name] for column in self._columns}}

    def _end(
        self, transaction: TimedTransaction, prefix: bytes, time: int, rows: _Rows, states: dict[str, Any]
    ) -> None:
        """Delete what frames do not reach any more, and go on with the next time."""
        timelines, grace = transaction.timelines, self._grace_ms
        until = time - self._span if self._span else time + 1
        if self._rows:
            until = min(until, rows.times[max(0, len(rows.times) - self._rows)])
        if until > 0:
            timelines.delete(prefix, 0, until)
        following = timelines.first_time(prefix, time + 1)
        if following is not None:
            transaction.set_head(prefix, [following, 0, 0, [], states], following + grace + 1)
        elif self._span and not self._rows:
            transaction.set_head(prefix, [None, 0, 0, [], states], time + self._span + grace + 1)
        elif states or self._rows:
            transaction.set_head(prefix, [None, 0, 0, [], states])
        else:
            transaction.delete_head(prefix)

    def _expire(self, transaction: TimedTransaction, prefix: bytes, head: Any, clock: int) -> None:
        """Delete records that are too old for a frame; those of a run that ends may be needed by the next one."""
        if clock > transaction.clock:
            transaction.set_head(prefix, head)
            return
        deadline = delete_expired(transaction, prefix, self._span + self._grace_ms, clock)
        if deadline is not None or head[-1]:
            transaction.set_head(prefix, head, deadline)
        else:
            transaction.delete_head(prefix)


def _milliseconds(distance: Any) -> int:
    """Return a distance in whole milliseconds, not less."""
    return -(-distance // _MILLISECOND) if isinstance(distance, timedelta) else distance
