"""`Consolidate`: gives rows of a bag a key again.

Rows that a join makes are in the partitions of the values that it compares, and the changes of a key may come from several
of them, in any order: the new row of a key may be added before the former one is taken back. So the rows of each key are
counted.

The head of a key is `[count, row, count, row, ...]`: the rows that are there, as exact JSON, the last one added at the end.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Final, cast

from streamrt.errors import InvalidOperationError
from streamrt.joins.notes import Warnings
from streamrt.records import Headers
from streamrt.relations.change import make_pass_on
from streamrt.state.encoding import dumps_exact, unpack
from streamrt.state.spec import StoreSpec
from streamrt.state.transactions.timed import TimedTransaction
from streamrt.topology import Node, Operator, OperatorContext, RecordHandler

__all__ = ["Consolidate"]

_MOST: Final = 1_000
"""Number of rows of a key above which it is not one: only while changes are on their way are there several."""


@dataclass(frozen=True)
class Consolidate(Operator):
    """Passes on one row for each key, given changes of rows of which a key may have several: the last one added.

    Attributes:
        store: the store of the rows.
        columns: names of the columns of the key.
    """

    name: ClassVar[str] = "keyed_by"
    keeps_rows: ClassVar[bool] = True
    passes_on_last: ClassVar[bool] = True
    store: StoreSpec
    columns: tuple[str, ...]

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        store, columns = context.store(self.store), ", ".join(self.columns)
        pass_on = make_pass_on(child, context, node)
        missing = Warnings(
            "%s was to take back a row of the key %s that it has not got: a record was repeated, or a function above gives "
            "another result for the same row than before",
            node,
        )

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            former, present = (None if row is None else dumps_exact(row).decode() for row in value)
            transaction = cast("TimedTransaction", store())
            prefix = transaction.prefix(key)
            rows: list[Any] = transaction.head(prefix) or []
            before = rows[-1] if rows else None
            if present is not None:
                rows += (_take_out(rows, present) + 1, present)
                if len(rows) > 2 * _MOST:
                    raise InvalidOperationError(
                        f"{node} has more than {_MOST:,} different rows of the key {key!r}: {columns} must have a value of "
                        "its own in each row, or drop columns and call distinct() before"
                    )
            if former is not None:
                place = _find(rows, former)
                if place is None:
                    missing.note(key)
                elif rows[place] > 1:
                    rows[place] -= 1
                else:
                    del rows[place : place + 2]
            if rows:
                transaction.set_head(prefix, rows)
            else:
                transaction.delete_head(prefix)
            transaction.advance(timestamp)
            after = rows[-1] if rows else None
            pass_on(unpack(before), unpack(after), key, timestamp, headers)

        return run

    def describe(self) -> str:  # noqa: D102
        return ", ".join(self.columns)

    def keeps(self) -> tuple[str, ...]:
        """Return the columns of the key."""
        return (*super().keeps(), *self.columns)

    def stores(self) -> tuple[StoreSpec, ...]:  # noqa: D102
        return (self.store,)


def _find(rows: list[Any], row: str) -> int | None:
    """Return the place of the count of a row; None if it is not there."""
    return next((place for place in range(0, len(rows), 2) if rows[place + 1] == row), None)


def _take_out(rows: list[Any], row: str) -> int:
    """Take a row out, however often it is there, and return how often it was."""
    place = _find(rows, row)
    if place is None:
        return 0
    count: int = rows[place]
    del rows[place : place + 2]
    return count
