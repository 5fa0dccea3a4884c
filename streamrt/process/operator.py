"""The operators that run process functions, of one frame and of two."""

import logging
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from streamrt.process.broadcast import BroadcastContext, BroadcastTimerContext, BroadcastWriteContext
from streamrt.process.context import TimerContext
from streamrt.process.execution import ProcessExecution, TimedOperator
from streamrt.records import Headers
from streamrt.topology import MergeOperator, Node, OperatorContext, RecordHandler

logger = logging.getLogger("streamrt")

__all__ = ["BroadcastProcess", "CoProcess", "Process"]

_LARGE_BYTES: Final = 64 << 20
"""Size of broadcast state that causes a warning: each partition and each changelog partition has a copy."""
_MEASURED_BYTES: Final = 8 << 20
"""Broadcast state is measured again when so much has been written."""


@dataclass(frozen=True)
class Process(TimedOperator):
    """Runs a process function."""

    name: ClassVar[str] = "process"

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        return ProcessExecution(self, child, node, context).handler("process_element", node)


@dataclass(frozen=True)
class CoProcess(TimedOperator, MergeOperator):
    """Runs a function of the records of two frames.

    Attributes:
        side: the method that is called for one of the inputs, in descriptions; "" for both.
    """

    name: ClassVar[str] = "process"
    by_key: ClassVar[bool] = True
    side: str = ""

    def build_inputs(self, child: RecordHandler, node: Node, context: OperatorContext) -> tuple[RecordHandler, ...]:  # noqa: D102
        execution = ProcessExecution(self, child, node, context)
        methods = ("process_element1", "process_element2")
        return tuple(execution.handler(method, self._name_input(node, method)) for method in methods)

    def describe(self) -> str:  # noqa: D102
        return super().describe() + (self.side and f", {self.side}")

    def _name_input(self, node: Node, method: str) -> Node:
        """Return the node with a description that names one of its inputs, for errors."""
        return replace(node, operator=replace(self, side=method))


@dataclass(frozen=True)
class BroadcastProcess(CoProcess):
    """Runs a function of the records of a frame, and of broadcast records, which are the second input."""

    by_key: ClassVar[bool] = False
    timer_context: ClassVar[type[TimerContext]] = BroadcastTimerContext

    def build_inputs(self, child: RecordHandler, node: Node, context: OperatorContext) -> tuple[RecordHandler, ...]:  # noqa: D102
        execution = ProcessExecution(self, child, node, context)
        method = "process_element"
        own = execution.handler(method, self._name_input(node, method), BroadcastContext)
        method = "process_broadcast_element"
        broadcast = execution.handler(method, self._name_input(node, method), BroadcastWriteContext)
        return own, _Measured(execution, broadcast, node)

    def ranks(self, inputs: int) -> tuple[int, ...]:
        """Return ranks that put a broadcast record before other ones of the same time, to which it already applies."""
        return (1, 0)


class _Measured:
    """The handler of broadcast records, which warns when broadcast state is large.

    Args:
        execution: the function at work.
        handler: its handler of broadcast records.
        node: the node of the operator.
    """

    def __init__(self, execution: ProcessExecution, handler: RecordHandler, node: Node) -> None:
        self._execution = execution
        self._handler = handler
        # All copies are equal, so what tasks of several partitions write counts together.
        self._written = 0
        self._node = node
        self._warned = False

    def __call__(self, value: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
        self._handler(value, key, timestamp, headers)
        transaction = self._execution.running()
        self._written += transaction.broadcast_bytes
        transaction.broadcast_bytes = 0
        if self._written >= _MEASURED_BYTES:
            if not self._warned and self._written + transaction.broadcast_size() >= _LARGE_BYTES:
                self._warned = True
                logger.warning(
                    "%s keeps more than 64 MiB of broadcast state; each partition has a copy of it, on disk and in its "
                    "changelog: broadcast fewer or smaller values, delete old ones, or use join_lookup()",
                    self._node,
                )
            self._written = 0
