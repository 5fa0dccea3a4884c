"""`to_stream`: the changes of a table as a stream of records."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from streamrt.records import Headers
from streamrt.relations.change import Change, drop_unchanged
from streamrt.topology import Node, Operator, OperatorContext, RecordHandler

__all__ = ["StreamChanges", "ToStream"]

StreamChanges = Literal["new", "both", "rows"]
"""What a record of a change has: the new row, both rows with the kind of the change, or one row of several records."""


@dataclass(frozen=True)
class ToStream(Operator):
    """Passes changes on as values.

    Attributes:
        changes: "new" for the new row, or None; "both" for a dict of `op`, `before` and `after`; "rows" for one record of
            each row that is taken back or added, with its kind in the column `_change_type`.
    """

    name: ClassVar[str] = "to_stream"
    changes: StreamChanges

    @property
    def passes_on_last(self) -> bool:  # type: ignore[override]
        """Whether a change is one record."""
        return self.changes != "rows"

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        def new(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            child(value[1], key, timestamp, headers)

        def both(value: Change, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            child({"op": value.kind, "before": value.before, "after": value.after}, key, timestamp, headers)

        def rows(value: Change, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            before, after = value
            if before is not None:
                kind = "-D" if after is None else "-U"
                child({**before, "_change_type": kind}, key, timestamp, headers)
            if after is not None:
                child({**after, "_change_type": value.kind}, key, timestamp, headers)

        return drop_unchanged({"new": new, "both": both, "rows": rows}[self.changes], context)

    def multiplies_records(self) -> bool:
        """An update is two rows."""
        return self.changes == "rows"

    def describe(self) -> str:  # noqa: D102
        return self.changes
