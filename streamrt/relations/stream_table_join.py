"""`StreamTableJoin`: the join of a stream with the present rows of a table."""

from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

from streamrt.joins.merging import Merge
from streamrt.joins.stream import matches_nothing
from streamrt.records import Headers
from streamrt.relations.change import decode_row, encode_row, holds_same_row
from streamrt.state.spec import StoreSpec
from streamrt.topology import MergeOperator, Node, OperatorContext, RecordHandler

__all__ = ["StreamTableHow", "StreamTableJoin"]

StreamTableHow = Literal["inner", "left"]
"""Which records are passed on: those of which the table has a row, or all."""

_ROW: Final = "row"


@dataclass(frozen=True)
class StreamTableJoin(MergeOperator):
    """Merges each record of a stream, the first input, with the present row of its key in a table, the second one.

    Changes of the table produce no output. Records without a key, or with a null in it, match nothing.

    Attributes:
        how: which records are passed on.
        merge: function of the record's value and the row; a missing row is None.
        store: the store of the rows.
    """

    name: ClassVar[str] = "join"
    by_key: ClassVar[bool] = True
    keeps_rows: ClassVar[bool] = True
    passes_on_last: ClassVar[bool] = True
    how: StreamTableHow
    merge: Merge
    store: StoreSpec

    def build_inputs(self, child: RecordHandler, node: Node, context: OperatorContext) -> tuple[RecordHandler, ...]:  # noqa: D102
        merge, all_records, state_of = self.merge, self.how == "left", context.state(self.store)

        def stream(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            stored = None if matches_nothing(key) else state_of(key, timestamp).get_bytes(_ROW)
            if stored is not None or all_records:
                child(merge(value, decode_row(stored)), key, timestamp, headers)

        def table(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            state, after = state_of(key, timestamp), value[1]
            data, stored = None if after is None else encode_row(after, timestamp), state.get_bytes(_ROW)
            if data is not None and not holds_same_row(stored, data):
                state.set_bytes(_ROW, data)
            elif data is None and stored is not None:
                state.delete(_ROW)

        return stream, table

    def ranks(self, inputs: int) -> tuple[int, ...]:
        """Return ranks that put a row before records of the same time."""
        return (1, 0)

    def describe(self) -> str:  # noqa: D102
        return self.how

    def stores(self) -> tuple[StoreSpec, ...]:  # noqa: D102
        return (self.store,)
