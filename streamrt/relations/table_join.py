"""`TableJoin`: the join of two tables by their key."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

from streamrt.joins.merging import Merge
from streamrt.joins.notes import Warnings
from streamrt.joins.stream import matches_nothing
from streamrt.records import Headers
from streamrt.relations.change import decode_row, encode_row, holds_same_row, make_pass_on, row_time
from streamrt.state.spec import StoreSpec
from streamrt.topology import MergeOperator, Node, OperatorContext, RecordHandler

__all__ = ["MergeWithKey", "TableHow", "TableJoin"]

TableHow = Literal["inner", "left", "right", "outer"]
"""Which keys a joined table has: those of both tables, of the left one, of the right one, or of any."""

_LEFT: Final = "left"
_RIGHT: Final = "right"


@dataclass(frozen=True)
class MergeWithKey:
    """Merges two rows, both of which have the columns of their common key: those of the left row count.

    Attributes:
        merge: merges the rows without these columns in the right one.
        columns: names of the columns.

    Example:
        >>> MergeWithKey(lambda left, right: {**left, **right}, ("id",))({"id": 1, "a": 2}, {"id": 1, "b": 3})
        {'id': 1, 'a': 2, 'b': 3}
    """

    merge: Merge
    columns: tuple[str, ...]

    def __call__(self, left: Any, right: Any) -> Any:
        """Return the merged row."""
        if isinstance(left, dict) and isinstance(right, dict):
            right = {column: value for column, value in right.items() if column not in self.columns}
        return self.merge(left, right)


@dataclass(frozen=True)
class TableJoin(MergeOperator):
    """Joins the present rows of two tables. Each change of a row, on either side, changes the joined row of its key.

    The time of a joined row is the later one of its two rows. The store keeps the rows of both sides. Keys with a null match
    nothing; as the result has one row for each key, an outer join drops the right rows of such keys, with a warning.

    Attributes:
        how: which keys the result has.
        merge: function of the left and the right row; a missing row is None.
        store: the store of the rows.
    """

    name: ClassVar[str] = "join"
    by_key: ClassVar[bool] = True
    updates: ClassVar[bool] = True
    keeps_rows: ClassVar[bool] = True
    passes_on_last: ClassVar[bool] = True
    how: TableHow
    merge: Merge
    store: StoreSpec

    def build_inputs(self, child: RecordHandler, node: Node, context: OperatorContext) -> tuple[RecordHandler, ...]:  # noqa: D102
        merge, state_of, pass_on = self.merge, context.state(self.store), make_pass_on(child, context, node)
        dropped = Warnings("%s dropped the right row of the key %s, which has a null in it and matches nothing", node)
        outer = self.how == "outer"
        needs_left, needs_right = self.how in ("inner", "left"), self.how in ("inner", "right")

        def join(left: bytes | None, right: bytes | None) -> Any:
            """Return the joined row. Rows are decoded for each call, because a merge may change them."""
            if left is None and (needs_left or right is None):
                return None
            if right is None and needs_right:
                return None
            return merge(decode_row(left), decode_row(right))

        def side(own: str, other: str, joined: Callable[[bytes | None, bytes | None], Any]) -> RecordHandler:
            """Return the closure of one side; `joined` takes its row and that of the other side."""

            def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
                if outer and own == _RIGHT and matches_nothing(key):
                    dropped.note(key)
                    return
                state, after = state_of(key, timestamp), value[1]
                stored = state.get_bytes(own)
                # As in SQL, null equals nothing.
                counterpart = None if matches_nothing(key) else state.get_bytes(other)
                data = None if after is None else encode_row(after, timestamp)
                if data is not None and not holds_same_row(stored, data):
                    state.set_bytes(own, data)
                elif data is None and stored is not None:
                    state.delete(own)
                time = timestamp if counterpart is None else max(timestamp, row_time(counterpart))
                pass_on(joined(stored, counterpart), joined(data, counterpart), key, time, headers)

            return run

        return side(_LEFT, _RIGHT, join), side(_RIGHT, _LEFT, lambda right, left: join(left, right))

    def describe(self) -> str:  # noqa: D102
        return self.how

    def keeps(self) -> tuple[str, ...]:
        """Return which keys the result has: others have passed on no row."""
        return (*super().keeps(), self.how)

    def stores(self) -> tuple[StoreSpec, ...]:  # noqa: D102
        return (self.store,)
