"""`MapRows`: filters and functions on the rows of a table."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from streamrt.operators.expression import Expression
from streamrt.operators.functions import function_name
from streamrt.records import Headers
from streamrt.relations.change import make_pass_on
from streamrt.topology import Node, Operator, OperatorContext, RecordHandler

__all__ = ["MapRows", "callable_of"]


@dataclass(frozen=True)
class MapRows(Operator):
    """Passes the former and the present row through the same function or condition, and passes on what changes.

    A function must give the same result for the same row. A row that becomes None, or does not fulfil the condition, is no
    row: one that no longer fulfils it is deleted below.

    Attributes:
        does: "filter" keeps rows, "apply" replaces them, and "assign" sets a column.
        function: function of a row, or an expression on its columns.
        column: the column that is set.

    Example:
        >>> MapRows("filter", bool).describe()
        'bool'
    """

    name: ClassVar[str] = "map_rows"
    passes_on_last: ClassVar[bool] = True
    does: Literal["filter", "apply", "assign"]
    function: Callable[[Any], Any] | Expression
    column: str | None = None

    @property
    def in_place(self) -> bool:  # type: ignore[override]
        """Whether it changes its frame, as the assignment of a column does."""
        return self.does == "assign"

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        convert, pass_on = self.make_function(), make_pass_on(child, context)

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            before, after = value
            if before is not None:
                before = convert(before)
            if after is not None:
                after = convert(after)
            pass_on(before, after, key, timestamp, headers)

        return run

    def make_function(self) -> Callable[[Any], Any]:
        """Return the function from a row to what becomes of it; it may change the row."""
        call, column = callable_of(self.function), self.column

        def keep(row: Any) -> Any:
            return row if call(row) else None

        def assign(row: Any) -> Any:
            row[column] = call(row)
            return row

        return {"filter": keep, "apply": call, "assign": assign}[self.does]

    def describe(self) -> str:  # noqa: D102
        function = self.function
        words = str(function) if isinstance(function, Expression) else function_name(function)
        return words if self.column is None else f"{self.column} = {words}"


def callable_of(function: Callable[[Any], Any] | Expression) -> Callable[[Any], Any]:
    """Return a function of a row that computes an expression, or the function itself."""
    if not isinstance(function, Expression):
        return function
    evaluate = function.compile()

    def call(row: Any) -> Any:
        return evaluate(row, None, 0, None)

    return call
