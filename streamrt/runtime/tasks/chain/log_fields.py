"""Fields of log lines that name the operator that writes them."""

import sys
from collections.abc import Iterator
from types import FrameType

from streamrt.topology import Node

__all__ = ["operator_at_work"]


def operator_at_work() -> str | None:
    """Return the operator whose closure is innermost on the stack of this thread: closures keep it as a default argument."""
    for frame in _iterate_frames(sys._getframe(1)):
        if "_node" in frame.f_code.co_varnames:
            node = frame.f_locals.get("_node")
            if isinstance(node, Node):
                return str(node)
    return None


def _iterate_frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
