"""Rows from streams, and from several tables."""

from dataclasses import dataclass
from typing import Any, ClassVar

from streamrt.records import Headers
from streamrt.relations.change import Change
from streamrt.topology import MergeOperator, Node, Operator, OperatorContext, RecordHandler

__all__ = ["AddRows", "UnionRows"]


@dataclass(frozen=True)
class AddRows(Operator):
    """Turns each value into a row that is added. None is not a row."""

    name: ClassVar[str] = "to_rows"
    passes_on_last: ClassVar[bool] = True

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            if value is not None:
                child(Change(None, value), key, timestamp, headers)

        return run


@dataclass(frozen=True)
class UnionRows(MergeOperator):
    """Passes on the changes of rows of all inputs."""

    name: ClassVar[str] = "union_all"
    updates: ClassVar[bool] = True
    passes_on_last: ClassVar[bool] = True

    def build_inputs(self, child: RecordHandler, node: Node, context: OperatorContext) -> tuple[RecordHandler, ...]:  # noqa: D102
        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            # Behind an exchange, a change is a list.
            child(Change(*value), key, timestamp, headers)

        return (run,) * len(node.parents)
