"""`concat`: merges several streams into one."""

from dataclasses import dataclass
from typing import ClassVar

from streamrt.topology import MergeOperator, Node, OperatorContext, RecordHandler


@dataclass(frozen=True)
class Concat(MergeOperator):
    """Passes on the records of all inputs unchanged.

    Example:
        >>> Concat().name
        'concat'
    """

    name: ClassVar[str] = "concat"

    def build_inputs(self, child: RecordHandler, node: Node, context: OperatorContext) -> tuple[RecordHandler, ...]:  # noqa: D102
        return (child,) * len(node.parents)
