"""`concat`: merges several streams into one."""

from dataclasses import dataclass
from typing import ClassVar

from streamrt.topology import Executor, MergeOperator, Node, OperatorContext


@dataclass(frozen=True)
class Concat(MergeOperator):
    """Passes on the records of all inputs unchanged.

    Example:
        >>> Concat().name
        'concat'
    """

    name: ClassVar[str] = "concat"

    def build_inputs(self, child: Executor, node: Node, context: OperatorContext) -> tuple[Executor, ...]:  # noqa: D102
        return (child,) * len(node.parents)
