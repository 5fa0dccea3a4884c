"""Operators that count equal rows: `distinct`, `intersect`, `subtract`, and keys for rows that have none.

Equal rows are sent to one partition, by a digest. The head of a digest is `[count, row]`, or `[left, right, row]` for two
inputs: how often the row is there, and the row as exact JSON.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, cast

from streamrt.joins.notes import Warnings
from streamrt.records import Headers
from streamrt.relations.change import Change
from streamrt.relations.change_counts import ChangeCounts
from streamrt.relations.exact_keys import make_digest, normalize_value
from streamrt.state.encoding import dumps_exact, unpack
from streamrt.state.spec import StoreSpec
from streamrt.state.transactions.timed import TimedTransaction
from streamrt.topology import MergeOperator, Node, Operator, OperatorContext, RecordHandler

__all__ = ["CombineRows", "DistinctRows", "NumberRows", "RowDigest", "RowSets"]

RowSets = Literal["intersect", "intersect all", "subtract", "subtract all"]
"""How the rows of two tables are combined, as by SQL's INTERSECT and EXCEPT."""

_MISSING: Final = (
    "%s was to take back a row that it has not got: a record was repeated, or a function above gives another result for the "
    "same row than before"
)
_COUNTS: Final[dict[str, Callable[[int, int], int]]] = {
    "intersect": lambda left, right: int(left > 0 and right > 0),
    "intersect all": min,
    "subtract": lambda left, right: int(left > 0 and not right),
    "subtract all": lambda left, right: max(left - right, 0),
}


@dataclass(frozen=True)
class RowDigest:
    """Makes a key of a row, the same for equal rows.

    Attributes:
        exact: whether rows must be the same, and not only equal, as 1 and 1.0 are.

    Example:
        >>> RowDigest()({"a": 1, "b": None}) == RowDigest()({"b": None, "a": 1.0})
        True
        >>> RowDigest(exact=True)({"a": 1}) == RowDigest(exact=True)({"a": 1.0})
        False
    """

    exact: bool = False

    def __call__(self, row: Any) -> list[str]:
        """Return the key of a row."""
        return [make_digest(row if self.exact else normalize_value(row))]


@dataclass(frozen=True)
class DistinctRows(Operator):
    """Passes on one of equal rows.

    Attributes:
        store: the store of the counts.
    """

    name: ClassVar[str] = "distinct"
    keeps_rows: ClassVar[bool] = True
    passes_on_last: ClassVar[bool] = True
    store: StoreSpec

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        store, missing, add = context.store(self.store), Warnings(_MISSING, node), ChangeCounts(node, context).add

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            before, after = value
            if before is not None and after is not None:
                # Equal rows, as they have one key.
                return
            transaction = cast("TimedTransaction", store())
            prefix = transaction.prefix(key)
            head = transaction.head(prefix)
            if head is None:
                if after is None:
                    missing.note()
                    return
                head = [0, dumps_exact(after).decode()]
            head[0] += 1 if before is None else -1
            count, row = head
            if count:
                transaction.set_head(prefix, head)
            else:
                transaction.delete_head(prefix)
            transaction.advance(timestamp)
            if count == 0 or (count == 1 and before is None):
                change = Change(None, unpack(row)) if count else Change(unpack(row), None)
                add(*change, differs=True)
                child(change, None, timestamp, None)

        return run

    def stores(self) -> tuple[StoreSpec, ...]:  # noqa: D102
        return (self.store,)


@dataclass(frozen=True)
class CombineRows(MergeOperator):
    """Passes on the rows that two tables have in common, or those that the left one has more of.

    Attributes:
        sets: which rows, and how often.
        store: the store of the counts.
    """

    name: ClassVar[str] = "combine"
    keeps_rows: ClassVar[bool] = True
    updates: ClassVar[bool] = True
    sets: RowSets
    store: StoreSpec

    def build_inputs(self, child: RecordHandler, node: Node, context: OperatorContext) -> tuple[RecordHandler, ...]:  # noqa: D102
        store, missing, add = context.store(self.store), Warnings(_MISSING, node), ChangeCounts(node, context).add
        count_rows = _COUNTS[self.sets]

        def make_handler(side: int) -> RecordHandler:
            def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
                before, after = value
                if before is not None and after is not None:
                    return
                transaction = cast("TimedTransaction", store())
                prefix = transaction.prefix(key)
                head = transaction.head(prefix) or [0, 0, None]
                if after is None and not head[side]:
                    missing.note()
                    return
                former = count_rows(head[0], head[1])
                if head[2] is None:
                    head[2] = dumps_exact(after).decode()
                head[side] += 1 if before is None else -1
                left, right, row = head
                if left or right:
                    transaction.set_head(prefix, head)
                else:
                    transaction.delete_head(prefix)
                transaction.advance(timestamp)
                # One row more or less of a side is at most one of the result.
                more = count_rows(left, right) - former
                if more:
                    change = Change(None, unpack(row)) if more > 0 else Change(unpack(row), None)
                    add(*change, differs=True)
                    child(change, None, timestamp, None)

            return run

        return make_handler(0), make_handler(1)

    def describe(self) -> str:  # noqa: D102
        return self.sets

    def keeps(self) -> tuple[str, ...]:
        """Return how rows are combined."""
        return (*super().keeps(), self.sets)

    def stores(self) -> tuple[StoreSpec, ...]:  # noqa: D102
        return (self.store,)


@dataclass(frozen=True)
class NumberRows(Operator):
    """Gives each row a key: its digest, and its number among the rows that are the same.

    Attributes:
        column: the column that gets the key.
        store: the store of the counts.
    """

    name: ClassVar[str] = "numbered"
    keeps_rows: ClassVar[bool] = True
    regroups: ClassVar[bool] = True
    passes_on_last: ClassVar[bool] = True
    column: str
    store: StoreSpec

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        store, missing, add = context.store(self.store), Warnings(_MISSING, node), ChangeCounts(node, context).add
        column = self.column

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            before, after = value
            if before is not None and after is not None:
                return
            transaction = cast("TimedTransaction", store())
            prefix = transaction.prefix(key)
            (count,) = transaction.head(prefix) or (0,)
            if after is None and not count:
                missing.note()
                return
            number = count + 1 if before is None else count
            left = number if before is None else number - 1
            if left:
                transaction.set_head(prefix, [left])
            else:
                transaction.delete_head(prefix)
            transaction.advance(timestamp)
            name = f"{key[0]}-{number}"
            change = Change(*(None if row is None else {**row, column: name} for row in value))
            add(*change, differs=True)
            child(change, name, timestamp, headers)

        return run

    def describe(self) -> str:  # noqa: D102
        return self.column

    def stores(self) -> tuple[StoreSpec, ...]:  # noqa: D102
        return (self.store,)
