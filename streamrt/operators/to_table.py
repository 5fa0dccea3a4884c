"""`to_table`: appends the current value to a table: by its topic, or by the sink of another system."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from streamrt.operators.sink import SinkOperator
from streamrt.operators.to_topic import ToTopic
from streamrt.records import Headers
from streamrt.topology import Node, OperatorContext, RecordHandler


@dataclass(frozen=True)
class ToTable(ToTopic):
    """Appends the current value to a table with a topic, and passes it on.

    Attributes:
        table: name of the table.
    """

    name: ClassVar[str] = "to_table"
    table: str = ""

    def describe(self) -> str:  # noqa: D102
        return self.table


@dataclass(frozen=True)
class TableSinkOperator(SinkOperator):
    """Passes each value to the sink of an external table. This ends a branch.

    Attributes:
        table: name of the table.
        key: function from the value to the key that the sink gets; None keeps the record's key.
    """

    name: ClassVar[str] = "to_table"
    table: str = ""
    key: Callable[[Any], Any] | None = None

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        write, make_key = super().build(child, node, context), self.key
        if make_key is None:
            return write

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            write(value, make_key(value), timestamp, headers)

        return run

    def describe(self) -> str:  # noqa: D102
        return self.table
