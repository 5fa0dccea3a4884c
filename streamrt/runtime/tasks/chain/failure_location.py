"""The location of a failure: the operator, and the line of the user's program."""

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from streamrt.runtime.tasks.watchdog import is_own
from streamrt.topology import Node

__all__ = ["failed_operator", "user_frame"]


def _iterate_frames(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def failed_operator(trace: TracebackType | None) -> Node | None:
    """Return the innermost node whose closure is on the stack: closures keep it as a default argument."""
    nodes = [step.tb_frame.f_locals.get("_node") for step in _iterate_frames(trace)]
    return next((node for node in reversed(nodes) if isinstance(node, Node)), None)


def user_frame(trace: TracebackType | None) -> str:
    """Return file and line of the innermost frame outside this package."""
    for step in reversed(list(_iterate_frames(trace))):
        code = step.tb_frame.f_code
        if not is_own(step.tb_frame):
            return f"{Path(code.co_filename).name}:{step.tb_lineno} in {code.co_name}"
    return ""
