"""`Materialize`: keeps the newest row of each key, so that changes can be told."""

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from streamrt.joins.notes import Warnings
from streamrt.records import Headers
from streamrt.relations.change import Change, decode_row, encode_row, holds_same_row
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
    passes_on_last: ClassVar[bool] = True
    store: StoreSpec
    what: str = ""

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        state_of = context.state(self.store)
        keyless = Warnings("%s skipped a record without a key: rows of a table have one", node)

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            if key is None:
                keyless.note()
                return
            state = state_of(key, timestamp)
            stored = state.get_bytes(_ROW)
            if value is None:
                if stored is not None:
                    state.delete(_ROW)
                    child(Change(decode_row(stored), None), key, timestamp, headers)
                return
            data = encode_row(value, timestamp)
            if not holds_same_row(stored, data):
                state.set_bytes(_ROW, data)
                child(Change(decode_row(stored), value), key, timestamp, headers)

        return run

    def describe(self) -> str:  # noqa: D102
        return self.what

    def stores(self) -> tuple[StoreSpec, ...]:  # noqa: D102
        return (self.store,)
