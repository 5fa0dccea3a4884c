"""`agg_all`: aggregates of a whole stream in two phases, so that no task processes all records.

Each partition aggregates its records by itself, and now and then sends what has been added since the last time to one
partition, where the parts are merged. What is sent is forgotten, so parts may be merged in any order, and partitions may come
and go.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Final, cast

from streamrt.records import Headers, Tick
from streamrt.relations.change import make_pass_on
from streamrt.state.journal import due
from streamrt.state.spec import StoreSpec
from streamrt.state.transactions.timed import NEVER, TimedTransaction
from streamrt.topology import Node, Operator, OperatorContext, RecordHandler
from streamrt.windows.aggregation import Aggregation, Plan
from streamrt.windows.parts import ALL, PartSource, make_parts_plan

__all__ = ["MergeParts", "PartialAggregate", "WholeKey", "make_table_plan"]

_COLLECTING: Final = "it would keep every value for ever; collect values in a window of each key"


def make_table_plan(aggregation: Aggregation) -> Plan:
    """Return the aggregation of parts, all of which are merged for ever; see `make_parts_plan`."""
    return make_parts_plan(aggregation, _COLLECTING)


@dataclass(frozen=True)
class WholeKey:
    """Gives all records the same key. A function for `Repartition`."""

    def __call__(self, value: Any) -> str:
        """Return the key."""
        return ALL


@dataclass(frozen=True)
class _Phase(Operator):
    """One of the two phases.

    Attributes:
        aggregation: the aggregations, by column.
        store: the store of their states.
    """

    aggregation: Aggregation
    store: StoreSpec

    def describe(self) -> str:
        return ", ".join(name for name, _ in self.aggregation.aggregators)

    def keeps(self) -> tuple[str, ...]:
        """Return the names of the aggregates."""
        return (*super().keeps(), *self.aggregation.keeps())

    def stores(self) -> tuple[StoreSpec, ...]:
        return (self.store,)


@dataclass(frozen=True)
class PartialAggregate(_Phase):
    """Aggregates the records of a partition, and passes on what was added, at most so often.

    Values below are the number of records and their state. The store has what has not been passed on; its record key is the
    partition.

    Attributes:
        every_ms: after how many milliseconds of the wall clock it is passed on.
    """

    name: ClassVar[str] = "agg_part"
    every_ms: int

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        plan, store, every = make_table_plan(self.aggregation), context.store(self.store), self.every_ms
        fold, source = plan.fold, PartSource(self.store, context)
        # Wall clock of the session, set by its first tick.
        now = 0

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            transaction = cast("TimedTransaction", store())
            prefix = transaction.prefix(source.name())
            head = transaction.head(prefix)
            count, state, latest, until = (
                (0, fold.initial(transaction), timestamp, now + every) if head is None else head
            )
            state = fold.step(state, plan.input_of(value), timestamp, transaction)
            transaction.set_head(prefix, [count + 1, state, max(latest, timestamp), until], until)

        def tick(tick: Tick, *, _node: Node = node) -> None:
            nonlocal now
            now = max(now, tick.now)
            transaction = cast("TimedTransaction", store())
            for _, found, (count, state, latest, _) in transaction.due(NEVER if tick.final else now):
                transaction.delete_head(found)
                due(transaction.journal, child)([count, state], ALL, latest, None)

        context.on_tick(node, tick)
        return run

    def wall_clock_stores(self) -> tuple[str, ...]:  # noqa: D102
        return (self.store.name,)

    @property
    def holds_back_ms(self) -> int | None:
        """A part has the time of its latest record, however long it has waited."""
        return None

    def ends(self) -> bool:
        """What was added is passed on."""
        return True

    def timed(self) -> bool:  # noqa: D102
        return True


@dataclass(frozen=True)
class MergeParts(_Phase):
    """Merges what partitions have aggregated, and passes on each change of the whole."""

    name: ClassVar[str] = "agg_all"
    passes_on_last: ClassVar[bool] = True

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        fold, store = make_table_plan(self.aggregation).fold, context.store(self.store)
        merge: Any = fold.merge
        pass_on = make_pass_on(child, context, node)

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            transaction = cast("TimedTransaction", store())
            prefix, (added, part) = transaction.prefix(key), value
            head = transaction.head(prefix)
            count, state = (0, None) if head is None else head
            before = fold.result(state, transaction) if count else None
            state = merge(state, part, transaction) if count else part
            transaction.set_head(prefix, [count + added, state])
            transaction.advance(timestamp)
            pass_on(before, fold.result(state, transaction), key, timestamp, None)

        return run
