"""`MapVersions`: the functions of a table on the records that its rows come from."""

from dataclasses import dataclass
from typing import Any, ClassVar

from streamrt.records import Headers
from streamrt.relations.map_rows import MapRows
from streamrt.topology import Node, Operator, OperatorContext, RecordHandler

__all__ = ["MapVersions"]


@dataclass(frozen=True)
class MapVersions(Operator):
    """Passes on the row of each record, as operators of a table make it; None for no row.

    `MapRows` passes on changes of the present row only. A record that is out of order, or repeats the present row, changes
    what the row was at some time nevertheless.

    Attributes:
        steps: the operators, in order.

    Example:
        >>> MapVersions((MapRows("filter", bool), MapRows("apply", len))).describe()
        'filter bool, apply len'
    """

    name: ClassVar[str] = "rows_at_times"
    passes_on_last: ClassVar[bool] = True
    steps: tuple[MapRows, ...]

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        functions = [step.make_function() for step in self.steps]

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            for function in functions:
                if value is None:
                    break
                value = function(value)
            child(value, key, timestamp, headers)

        return run

    def describe(self) -> str:  # noqa: D102
        return ", ".join(f"{step.does} {step.describe()}" for step in self.steps)
