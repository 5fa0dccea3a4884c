"""`ExpandChanges`: makes several rows of each row of a table."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from streamrt.operators.functions import function_name
from streamrt.records import Headers
from streamrt.relations.change import Change, drop_unchanged
from streamrt.topology import Node, Operator, OperatorContext, RecordHandler

__all__ = ["ExpandChanges"]


@dataclass(frozen=True)
class ExpandChanges(Operator):
    """Passes on the rows that a function makes of a row. They have no key: former ones are taken back, new ones added.

    Attributes:
        function: function of a row that returns rows, the same for the same row.

    Example:
        >>> ExpandChanges(list).describe()
        'list'
    """

    name: ClassVar[str] = "expand_rows"
    function: Callable[[Any], Iterable[Any]]

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        rows_of = self.function

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            before, after = value
            # All are made before any is passed on, so that an error leaves out the whole change.
            former = [] if before is None else list(rows_of(before))
            present = [] if after is None else list(rows_of(after))
            for row in former:
                child(Change(row, None), key, timestamp, headers)
            for row in present:
                child(Change(None, row), key, timestamp, headers)

        return drop_unchanged(run, context)

    def multiplies_records(self) -> bool:
        """A row may become many."""
        return True

    def describe(self) -> str:  # noqa: D102
        return function_name(self.function)
