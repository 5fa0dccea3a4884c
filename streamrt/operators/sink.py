"""`sink`: hand values over to a system outside Kafka."""

from dataclasses import dataclass
from typing import Any, ClassVar

from streamrt.connectors import BaseSink
from streamrt.models import Headers
from streamrt.topology import Executor, Node, OperatorContext, OutletOperator


@dataclass(frozen=True)
class SinkOperator(OutletOperator):
    """Hands each value, with its metadata, to a sink. A branch ends here.

    What the sink took counts as an output of the branch, so that `run(count=...)` and `test()` see it.

    Attributes:
        sink: the sink; the same object in several places is one sink.

    Example:
        >>> from streamrt.connectors import ListSink
        >>> SinkOperator(ListSink()).describe()
        'ListSink'
    """

    name: ClassVar[str] = "sink"
    in_place: ClassVar[bool] = True
    sink: BaseSink

    def build(self, child: Executor, node: Node, context: OperatorContext) -> Executor:  # noqa: D102
        write = context.sink(self.sink)

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            write(value, key, timestamp, headers)
            child(value, key, timestamp, headers)

        return run

    def describe(self) -> str:  # noqa: D102
        return type(self.sink).__name__
