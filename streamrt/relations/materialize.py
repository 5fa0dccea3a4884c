"""`Materialize`: keeps the newest row of each key, so that changes can be told."""

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from streamrt.joins.notes import Warnings
from streamrt.records import Headers
from streamrt.relations.change import Change, decode_row, encode_row, holds_same_row
from streamrt.relations.change_counts import ChangeCounts
from streamrt.state.spec import StoreSpec
from streamrt.topology import Node, Operator, OperatorContext, RecordHandler

__all__ = ["Materialize"]

_ROW: Final = "row"


@dataclass(frozen=True)
class Materialize(Operator):
    """Turns a stream of rows into changes: the last row of a key is its present one, and None deletes it.

    "Last" is the order of the records in their partition, as compaction sees it. A row that equals the present one changes
    nothing. Records without a key are skipped.

    Attributes:
        store: the store of the rows.
        what: name of the table, for drawings.
    """

    name: ClassVar[str] = "table"
    keeps_rows: ClassVar[bool] = True
    passes_on_last: ClassVar[bool] = True
    store: StoreSpec
    what: str = ""

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        state_of, repeats = context.state(self.store), context.repeats_records
        count = ChangeCounts(node, context).add
        keyless = Warnings("%s skipped a record without a key: rows of a table have one", node)

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            if key is None:
                keyless.note()
                return
            state = state_of(key, timestamp)
            stored = state.get_bytes(_ROW)
            data = None if value is None else encode_row(value, timestamp)
            changed = stored is not None if data is None else not holds_same_row(stored, data)
            if changed and data is not None:
                state.set_bytes(_ROW, data)
            elif changed:
                state.delete(_ROW)
            count(stored, data, differs=changed)
            # At least once, a store below may lack what this one has.
            if changed or repeats:
                child(Change(decode_row(stored), value), key, timestamp, headers)

        return run

    def describe(self) -> str:  # noqa: D102
        return self.what

    def stores(self) -> tuple[StoreSpec, ...]:  # noqa: D102
        return (self.store,)
