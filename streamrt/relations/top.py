"""`top`: the first rows of each group in an order, as a table by group and rank."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from streamrt.common.copies import deep_copy
from streamrt.errors import ColumnTypeError, ConfigurationError
from streamrt.joins.notes import Warnings
from streamrt.operators.columns import column_of
from streamrt.records import Headers
from streamrt.relations.change import make_pass_on
from streamrt.relations.group_aggregate import SKIPPED, is_null_group
from streamrt.state.encoding import dumps_exact
from streamrt.state.spec import StoreSpec
from streamrt.state.transactions.timed import NEVER, TimedTransaction
from streamrt.topology import Node, Operator, OperatorContext, RecordHandler
from streamrt.topology.node import numbers_of

__all__ = ["TopRows", "sort_rows"]

Numbered = tuple[int, Any]
"""A row with its number: that of its arrival in its group."""


@dataclass(frozen=True)
class TopRows(Operator):
    """Keeps the first rows of each group in an order, and passes on which row each rank has, when that changes.

    The timeline of a group has its rows, with their numbers in place of times, and its head the next number. Of a stream, to
    which rows are only added, those are enough that have a rank; of a table, whose rows may be taken back, all are kept.
    Records without a key are skipped.

    Attributes:
        store: the store of the rows.
        count: number of ranks.
        by: the columns by which rows are ordered, the first one first.
        descending: whether the highest values come first. None comes last, in both directions.
        rank: name of the column of the rank, from 1.
        columns: number of columns of which the key of a group is made: a key of several is a list.
        retracts: whether values are the former and the present row of a change.

    Example:
        >>> store = StoreSpec("top", transaction=TimedTransaction)
        >>> TopRows(store, 10, ("price",), True, "rank", 1).describe()
        '10 by price, descending'
    """

    name: ClassVar[str] = "top"
    regroups: ClassVar[bool] = True
    store: StoreSpec
    count: int
    by: tuple[str, ...]
    descending: bool
    rank: str
    columns: int
    retracts: bool = False

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        store, count, by, descending = context.store(self.store), self.count, self.by, self.descending
        several, rank, retracts = self.columns > 1, self.rank, self.retracts
        pass_on = make_pass_on(child, context, node)
        keyless = Warnings(SKIPPED, node)

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            if key is None:
                keyless.note()
                return
            transaction = cast("TimedTransaction", store())
            prefix, timelines = transaction.prefix(key), transaction.timelines
            rows = timelines.items(prefix, 0, NEVER)
            number = transaction.head(prefix) or 0
            former, present = value if retracts else (None, value)
            before = sort_rows(rows, by, descending)
            taken = None if former is None else _find_row(rows, former)
            left = before if taken is None else [row for row in before if row[0] != taken]
            after = left
            if present is not None:
                _check_row(present, rank)
                after = sort_rows([*left, (number, present)], by, descending)
            # Nothing is stored before: what cannot be ordered leaves the rows as they were.
            dropped = [] if retracts else after[count:]
            for gone in (*(row[0] for row in dropped), *(() if taken is None else (taken,))):
                if gone != number:
                    timelines.delete(prefix, gone, gone + 1)
            if present is not None and all(row[0] != number for row in dropped):
                timelines.add(prefix, number, present)
                transaction.set_head(prefix, number + 1)
            elif not after:
                transaction.delete_head(prefix)
            for place in range(min(count, max(len(before), len(after)))):
                old, new = (each[place] if place < len(each) else None for each in (before, after))
                if old is None or new is None or old[0] != new[0]:
                    ranked = [*key, place + 1] if several or is_null_group(key) else [key, place + 1]
                    pass_on(_add_rank(old, rank, place), _add_rank(new, rank, place), ranked, timestamp, headers)

        return run

    def describe(self) -> str:  # noqa: D102
        return f"{self.count} by {', '.join(self.by)}, {'descending' if self.descending else 'ascending'}"

    def keeps(self) -> tuple[str, ...]:
        """Return how many rows are kept, in which order, and whether they may be taken back."""
        return (*super().keeps(), *numbers_of(self), self.describe(), *(("of rows",) if self.retracts else ()))

    def multiplies_records(self) -> bool:
        """A row that gets a rank changes those after it."""
        return True

    def stores(self) -> tuple[StoreSpec, ...]:  # noqa: D102
        return (self.store,)


def sort_rows(rows: Sequence[Numbered], by: tuple[str, ...], descending: bool) -> list[Numbered]:
    """Return numbered rows in the order of columns; equal ones keep theirs. None comes last.

    Args:
        rows: the rows.
        by: the columns, the first one first.
        descending: whether the highest values come first.

    Raises:
        MissingColumnError: if a row has not got a column.

    Example:
        >>> sort_rows([(0, {"a": 1}), (1, {"a": None}), (2, {"a": 5})], ("a",), True)
        [(2, {'a': 5}), (0, {'a': 1}), (1, {'a': None})]
    """
    ordered = list(rows)
    for column in reversed(by):
        values = [(column_of(row, column), (number, row)) for number, row in ordered]
        known = sorted((each for each in values if each[0] is not None), key=_first, reverse=descending)
        ordered = [row for _, row in known] + [row for value, row in values if value is None]
    return ordered


def _first(pair: tuple[Any, Any]) -> Any:
    return pair[0]


def _find_row(rows: Sequence[Numbered], row: Any) -> int | None:
    """Return the number of the first row that equals another one; None if none does, as after a state that was lost."""
    exact = dumps_exact(row)
    return next((number for number, each in rows if each == row and dumps_exact(each) == exact), None)


def _check_row(row: Any, rank: str) -> None:
    if not isinstance(row, dict):
        raise ColumnTypeError(f"top() orders values that are dicts by their columns, got {type(row).__name__}")
    if rank in row:
        raise ConfigurationError(
            f"top() adds the column {rank!r}, which the values already have: choose another name, top(..., rank='...')"
        )


def _add_rank(row: Numbered | None, rank: str, place: int) -> dict[str, Any] | None:
    return None if row is None else {**deep_copy(row[1]), rank: place + 1}
