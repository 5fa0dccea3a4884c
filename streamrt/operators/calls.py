"""The common part of the contexts of users' functions: process functions, triggers and window functions."""

from collections.abc import Mapping
from typing import Any

from streamrt.errors import ArgumentTypeError, ArgumentValueError
from streamrt.state.layout import LATEST_EXPIRY
from streamrt.topology import RecordHandler

__all__ = ["checked_timer_time", "side_output_of"]


def side_output_of(outputs: Mapping[str, RecordHandler | None], tag: str, function: str) -> RecordHandler | None:
    """Return what takes the records of a side output; None where nothing reads them.

    Args:
        outputs: the side outputs of a function.
        tag: the name of one.
        function: the name of the function, for the error.

    Raises:
        ArgumentValueError: if the function does not declare it.
    """
    if tag not in outputs:
        declared = ", ".join(map(repr, outputs)) or "none"
        raise ArgumentValueError(
            f"{function} has no side output {tag!r}; its outputs: {declared}. Add it to the attribute `outputs` of the class"
        )
    return outputs[tag]


def checked_timer_time(time: Any, end: int = LATEST_EXPIRY) -> int:
    """Return the time of a timer, if it can be one.

    Args:
        time: the time, in milliseconds.
        end: the first time that is too late.

    Raises:
        ArgumentTypeError: if it is not an int.
        ArgumentValueError: if it is below 0 or too late.
    """
    if type(time) is not int:
        raise ArgumentTypeError(f"the time of a timer must be an int in milliseconds, got {type(time).__name__}")
    if not 0 <= time < end:
        raise ArgumentValueError(f"the time of a timer must be milliseconds since 1970, got {time}")
    return time
