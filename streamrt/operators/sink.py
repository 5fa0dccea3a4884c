"""`sink`: writes values to a system outside Kafka."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from streamrt.connectors import BaseSink
from streamrt.records import Headers
from streamrt.topology import Node, OperatorContext, OutletOperator, RecordHandler


@dataclass(frozen=True)
class SinkOperator(OutletOperator):
    """Passes each value, with its metadata, to a sink. This ends a branch.

    Each value in the sink counts as an output of the branch, for `run(count=...)` and `test()`.

    Attributes:
        sink: the sink; the same object in several places is one sink.
        check: function from the value to what the sink gets, which raises SerializationError if it does not fit; None passes
            values as they are.

    Example:
        >>> from streamrt.connectors import ListSink
        >>> SinkOperator(ListSink()).describe()
        'ListSink'
    """

    name: ClassVar[str] = "sink"
    in_place: ClassVar[bool] = True
    sink: BaseSink
    check: Callable[[Any], Any] | None = None

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        write = context.sink(self.sink, self.check)

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            write(value, key, timestamp, headers)
            child(value, key, timestamp, headers)

        return run

    def describe(self) -> str:  # noqa: D102
        return type(self.sink).__name__
