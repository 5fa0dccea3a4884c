"""`agg`: a table of aggregates, one row for each key."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, cast

from streamrt.joins.notes import Warnings
from streamrt.kafka.partitioner import partition_for
from streamrt.records import Headers, Tick
from streamrt.relations.change import make_pass_on
from streamrt.state.journal import due
from streamrt.state.spec import StoreSpec
from streamrt.state.transactions.timed import TimedTransaction
from streamrt.topology import Node, Operator, OperatorContext, RecordHandler
from streamrt.windows.aggregation import Aggregation, Plan
from streamrt.windows.parts import ALL

__all__ = ["GroupAggregate"]

_EARLIEST: Final = 0
"""The time of a row that is there before all records."""

SKIPPED: Final = (
    "%s skipped a record without a key: it belongs to no group, unless group_by(..., nulls='group') makes one of null"
)


@dataclass(frozen=True)
class GroupAggregate(Operator):
    """Aggregates all values of a key, for ever, or the present rows of a group, and passes on each change of the aggregate.

    A row has the columns of the key and those of the aggregations. Records without a key are skipped.

    Attributes:
        aggregation: the aggregations, by column.
        store: the store of the aggregates.
        key_columns: names of the columns of the key; without any, rows have the aggregations only.
        retracts: whether values are the former and the present row of a change. A group without rows has no row.
        whole: the key of all records, in the bytes of its topic: their group has a row before the first of them, and without
            any, of aggregates of nothing. None if groups come and go with their records.
    """

    name: ClassVar[str] = "agg"
    passes_on_last: ClassVar[bool] = True
    aggregation: Aggregation
    store: StoreSpec
    key_columns: tuple[str, ...] = ()
    retracts: bool = False
    whole: bytes | None = None

    def plan(self) -> Plan:
        """Return the aggregation in the form that runs.

        Raises:
            InvalidOperationError: if rows may be taken back, and an aggregator cannot do that.
        """
        return self.aggregation.plan(retracts=self.retracts)

    @property
    def keeps_rows(self) -> bool:  # type: ignore[override]
        """Whether its values are those of rows that may be taken back."""
        return self.retracts

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        plan, store, columns = self.plan(), context.store(self.store), self.key_columns
        pass_on = make_pass_on(child, context, node)
        fold, keyless = plan.fold, Warnings(SKIPPED, node)

        def row_of(key: Any, state: Any, packing: TimedTransaction) -> dict[str, Any]:
            return {**key_row(columns, key), **fold.result(state, packing)}

        def begin(transaction: TimedTransaction, prefix: bytes) -> None:
            state = fold.initial(transaction)
            transaction.set_head(prefix, [0, state])
            pass_on(None, row_of(ALL, state, transaction), ALL, _EARLIEST, None)

        if self.whole is not None:
            self._begin_group(self.whole, begin, node, context)

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            if key is None:
                keyless.note()
                return
            transaction = cast("TimedTransaction", store())
            prefix = transaction.prefix(key)
            head = transaction.head(prefix)
            count, state = (0, fold.initial(transaction)) if head is None else head
            before = None if head is None else row_of(key, state, transaction)
            state = fold.step(state, plan.input_of(value), timestamp, transaction)
            transaction.set_head(prefix, [count + 1, state])
            transaction.advance(timestamp)
            pass_on(before, row_of(key, state, transaction), key, timestamp, headers)

        retract: Any = fold.retract
        always = self.whole is not None

        def run_change(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            if key is None:
                keyless.note()
                return
            transaction = cast("TimedTransaction", store())
            prefix = transaction.prefix(key)
            head = transaction.head(prefix)
            count, state = (0, fold.initial(transaction)) if head is None else head
            before = None if head is None else row_of(key, state, transaction)
            former, present = value
            # First what is added, so that a value that stays is not taken out of its set.
            if present is not None:
                state = fold.step(state, plan.input_of(present), timestamp, transaction)
                count += 1
            if former is not None:
                state = retract(state, plan.input_of(former), timestamp, transaction)
                count -= 1
            after = None
            if count > 0:
                transaction.set_head(prefix, [count, state])
                after = row_of(key, state, transaction)
            else:
                plan.release((state,), transaction)
                if always:
                    state = fold.initial(transaction)
                    transaction.set_head(prefix, [0, state])
                    after = row_of(key, state, transaction)
                else:
                    transaction.delete_head(prefix)
            transaction.advance(timestamp)
            pass_on(before, after, key, timestamp, headers)

        return run_change if self.retracts else run

    def _begin_group(
        self, key: bytes, begin: Callable[[TimedTransaction, bytes], None], node: Node, context: OperatorContext
    ) -> None:
        """Let the first tick of a task begin the group of all records, if it is there where these come."""
        store, access = context.store(self.store), context.access(self.store)

        def tick(moment: Tick, *, _node: Node = node) -> None:
            if not moment.still or access.task().partition != partition_for(key, access.partitions()):
                return
            transaction = cast("TimedTransaction", store())
            prefix = transaction.prefix(ALL)
            if transaction.head(prefix) is None:
                due(transaction.journal, begin)(transaction, prefix)

        context.on_tick(node, tick)

    def begins(self) -> bool:
        """The group of all records has a row before the first of them."""
        return self.whole is not None

    def ends(self) -> bool:
        """A bounded run has this row, also if there is nothing to process."""
        return self.whole is not None

    def describe(self) -> str:  # noqa: D102
        return ", ".join(name for name, _ in (*self.aggregation.aggregators, *self.aggregation.collectors))

    def keeps(self) -> tuple[str, ...]:
        """Return the names of the aggregates, and whether they are those of rows that may be taken back."""
        return (
            *super().keeps(),
            *self.aggregation.keeps(),
            *(("of rows",) if self.retracts else ()),
            *(("always",) if self.whole is not None else ()),
        )

    def stores(self) -> tuple[StoreSpec, ...]:  # noqa: D102
        return (self.store,)


def is_null_group(key: Any) -> bool:
    """Return whether a key is that of the group of null, as `NullGroup` makes it of one column."""
    return type(key) is list and len(key) == 1 and key[0] is None


def key_row(columns: tuple[str, ...], key: Any) -> dict[str, Any]:
    """Return the columns of a key.

    Args:
        columns: their names.
        key: the key: the value of one column, which for null is a list of None, or a list of those of several.

    Example:
        >>> key_row(("customer",), "ann"), key_row(("country", "city"), ["FR", "Lyon"])
        ({'customer': 'ann'}, {'country': 'FR', 'city': 'Lyon'})
        >>> key_row(("customer",), [None])
        {'customer': None}
    """
    if len(columns) == 1:
        return {columns[0]: None if is_null_group(key) else key}
    return dict(zip(columns, key, strict=True)) if columns else {}
