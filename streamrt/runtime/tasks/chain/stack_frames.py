"""Frames of a stack: the operator that is at work, the one that failed, and the line of the user's program."""

import sys
from pathlib import Path
from traceback import walk_stack, walk_tb
from types import TracebackType

from streamrt.runtime.tasks.watchdog import is_own
from streamrt.topology import Node

__all__ = ["failed_operator", "operator_at_work", "user_frame"]


def operator_at_work() -> str | None:
    """Return the operator whose closure is innermost on the stack of this thread: closures keep it as a default argument."""
    for frame, _ in walk_stack(sys._getframe(1)):
        if "_node" in frame.f_code.co_varnames:
            node = frame.f_locals.get("_node")
            if isinstance(node, Node):
                return str(node)
    return None


def failed_operator(trace: TracebackType | None) -> Node | None:
    """Return the innermost node whose closure is on the stack of a failure."""
    nodes = [frame.f_locals.get("_node") for frame, _ in walk_tb(trace)]
    return next((node for node in reversed(nodes) if isinstance(node, Node)), None)


def user_frame(trace: TracebackType | None) -> str:
    """Return file and line of the innermost frame outside this package."""
    for frame, line in reversed(list(walk_tb(trace))):
        if not is_own(frame):
            return f"{Path(frame.f_code.co_filename).name}:{line} in {frame.f_code.co_name}"
    return ""
