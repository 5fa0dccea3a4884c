"""`over`: each record with aggregates of the records of its key before it, and of itself, when it arrives.

For all records, the head of a key has the states of the columns, by their keys. For a number of records, it is the number of
its records so far, and the timeline has the last ones, with their numbers in place of times, as `[event time, input]`. For a
time, the head only has a deadline, and the timeline the inputs.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, cast

from streamrt.operators.closing import Closing, DueHeads, delete_expired, start_clock
from streamrt.operators.late import LATE
from streamrt.records import Headers
from streamrt.state.spec import StoreSpec
from streamrt.state.transactions.timed import TimedTransaction
from streamrt.topology import Node, Operator, OperatorContext, RecordHandler, SideOutput, WatermarkStrategy
from streamrt.topology.node import numbers_of
from streamrt.windows.aggregation import Aggregation, Plan
from streamrt.windows.closing import log_no_key
from streamrt.windows.over_functions import OverColumn
from streamrt.windows.running import make_running, require_row

__all__ = ["OverRange", "OverRows", "OverRunning"]


@dataclass(frozen=True)
class OverRows(Operator):
    """Adds aggregates of the last records of its key to each record, in the order of their arrival.

    Attributes:
        store: the store of the records.
        aggregation: the aggregations, by column.
        rows: number of records, with that to which they are added.

    Example:
        >>> from streamrt.windows import Mean
        >>> store = StoreSpec("over", transaction=TimedTransaction)
        >>> OverRows(store, Aggregation.named(average=Mean("price")), 10).describe()
        '10 rows, average'
    """

    name: ClassVar[str] = "over"
    passes_on_last: ClassVar[bool] = True
    store: StoreSpec
    aggregation: Aggregation
    rows: int

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        store, rows, plan = context.store(self.store), self.rows, self.aggregation.plan(keep_inputs=True)
        no_key = log_no_key(self.store.name)

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            if key is None:
                no_key()
                return
            transaction = cast("TimedTransaction", store())
            prefix, timelines = transaction.prefix(key), transaction.timelines
            number = transaction.head(prefix) or 0
            first = max(0, number - rows + 1)
            timelines.add(prefix, number, [timestamp, plan.input_of(value)])
            found = timelines.items_with_arrival(prefix, first, number + 1)
            result = _add_columns(plan, value, [(time, at, item) for _, at, (time, item) in found], transaction)
            # What the next record does not need.
            timelines.delete(prefix, first, number - rows + 2)
            transaction.set_head(prefix, number + 1)
            child(result, key, timestamp, headers)

        return run

    def describe(self) -> str:  # noqa: D102
        return f"{self.rows} rows, {_names(self.aggregation)}"

    def keeps(self) -> tuple[str, ...]:
        """Return the number of records, and the aggregations."""
        return (*super().keeps(), *numbers_of(self), *self.aggregation.keeps())

    def keeps_columns(self, columns: tuple[str, ...]) -> bool:  # noqa: D102
        return _keeps_columns(self.aggregation, columns)

    def stores(self) -> tuple[StoreSpec, ...]:  # noqa: D102
        return (self.store,)


@dataclass(frozen=True)
class OverRunning(Operator):
    """Adds functions of all records of its key so far to each record, in the order of their arrival.

    Attributes:
        store: the store of the states.
        columns: the columns that are added, for each of which a state is enough; one that the value has is replaced.

    Example:
        >>> from streamrt.windows.frames import ALL_ROWS
        >>> from streamrt.windows.over_functions import RowNumber
        >>> store = StoreSpec("over", transaction=TimedTransaction)
        >>> OverRunning(store, (OverColumn("n", RowNumber(), ALL_ROWS),)).describe()
        'n'
    """

    name: ClassVar[str] = "over"
    passes_on_last: ClassVar[bool] = True
    store: StoreSpec
    columns: tuple[OverColumn, ...]

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        store, no_key = context.store(self.store), log_no_key(self.store.name)
        running = [each for each in map(make_running, self.columns) if each is not None]

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            if key is None:
                no_key()
                return
            require_row(value)
            transaction = cast("TimedTransaction", store())
            prefix = transaction.prefix(key)
            former, states = transaction.head(prefix) or {}, {}
            for each in running:
                state = former[each.key] if each.key in former else each.initial(transaction)
                # No two records of an order of arrival are peers.
                states[each.key] = each.enter(state, value, timestamp, True, transaction)
            transaction.set_head(prefix, states)
            results = {each.name: each.result(states[each.key], transaction) for each in running}
            child({**value, **results}, key, timestamp, headers)

        return run

    def describe(self) -> str:  # noqa: D102
        return ", ".join(column.name for column in self.columns)

    def keeps(self) -> tuple[str, ...]:
        """Return the columns that are added."""
        return (*super().keeps(), *(f"{column.name}: {column.function!r}" for column in self.columns))

    def keeps_columns(self, columns: tuple[str, ...]) -> bool:  # noqa: D102
        return not any(column.name in columns for column in self.columns)

    def stores(self) -> tuple[StoreSpec, ...]:  # noqa: D102
        return (self.store,)


@dataclass(frozen=True)
class OverRange(Operator):
    """Adds aggregates of the records of its key in the time before it to each record, of those that have arrived.

    Attributes:
        store: the store of the records.
        aggregation: the aggregations, by column.
        range_ms: how long before a record others may be, in milliseconds, inclusive.
        grace_ms: how far a record may be behind the clock, in milliseconds.
        closing: the clock: that of a partition, or a watermark.

    Example:
        >>> from streamrt.windows import Sum
        >>> store = StoreSpec("over", transaction=TimedTransaction)
        >>> OverRange(store, Aggregation.named(total=Sum("price")), 60_000, 0, Closing("partition")).describe()
        '60000 ms, total'
    """

    name: ClassVar[str] = "over"
    store: StoreSpec
    aggregation: Aggregation
    range_ms: int
    grace_ms: int
    closing: Closing

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        span, keep = self.range_ms, self.range_ms + self.grace_ms
        plan, no_key = self.aggregation.plan(keep_inputs=True), log_no_key(self.store.name)

        def close(transaction: TimedTransaction, prefix: bytes, head: Any, key: Any, clock: int) -> None:
            deadline = delete_expired(transaction, prefix, keep, clock)
            if deadline is None:
                transaction.delete_head(prefix)
            else:
                transaction.set_head(prefix, head, deadline)

        clock = start_clock(self.store, self.grace_ms, DueHeads(self.store.name, close, self.closing), node, context)
        admit, advance = clock.admit, clock.advance

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            if key is None:
                no_key()
                return
            transaction = admit(value, key, timestamp, headers)
            if transaction is None:
                return
            prefix, timelines = transaction.prefix(key), transaction.timelines
            timelines.add(prefix, timestamp, plan.input_of(value))
            found = timelines.items_with_arrival(prefix, max(timestamp - span, 0), timestamp + 1)
            result = _add_columns(plan, value, found, transaction)
            if transaction.head(prefix) is None:
                transaction.set_head(prefix, 1, timestamp + keep + 1)
            advance(transaction, timestamp)
            child(result, key, timestamp, headers)

        return clock.wrap(run, node)

    def describe(self) -> str:  # noqa: D102
        return f"{self.range_ms} ms, {_names(self.aggregation)}"

    def keeps(self) -> tuple[str, ...]:
        """Return how long records are kept, and the aggregations."""
        return (*super().keeps(), *numbers_of(self), *self.aggregation.keeps())

    def keeps_columns(self, columns: tuple[str, ...]) -> bool:  # noqa: D102
        return _keeps_columns(self.aggregation, columns)

    def stores(self) -> tuple[StoreSpec, ...]:  # noqa: D102
        return (self.store,)

    def watermarks(self) -> tuple[tuple[str, WatermarkStrategy], ...]:  # noqa: D102
        return self.closing.watermarks(self.store.name)

    def side_outputs(self) -> tuple[SideOutput, ...]:  # noqa: D102
        return (LATE,)

    def resumes(self) -> bool:  # noqa: D102
        return True

    def timed(self) -> bool:  # noqa: D102
        return self.closing.watermark is not None


def _add_columns(
    plan: Plan, value: Any, found: list[tuple[int, int, Any]], transaction: TimedTransaction
) -> dict[str, Any]:
    """Return a value with the aggregates of records, given as event time, arrival and input."""
    require_row(value)
    items = [item for _, _, item in found]
    return {**value, **plan.aggregate(plan.fold_all(found, transaction), items, transaction)}


def _names(aggregation: Aggregation) -> str:
    return ", ".join(name for name, _ in (*aggregation.aggregators, *aggregation.collectors))


def _keeps_columns(aggregation: Aggregation, columns: tuple[str, ...]) -> bool:
    return not any(name in columns for name, _ in (*aggregation.aggregators, *aggregation.collectors))
