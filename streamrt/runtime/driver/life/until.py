"""When a run ends by itself: `until`."""

from typing import Literal, get_args

from streamrt.errors import argument_error

__all__ = ["Until", "require_until"]

Until = Literal["end"]
"""The end of a bounded run: sources have ended, and everything in the topics is processed."""


def require_until(what: str, until: Until | None) -> None:
    """Check the argument `until`.

    Args:
        what: the method that got it.
        until: the argument.

    Raises:
        ConfigurationError: if it is unknown.

    Example:
        >>> require_until("run", "end")
    """
    if until is not None and until not in get_args(Until):
        raise argument_error(
            f"{what}() got until={until!r}: it must be 'end', or None for a run without an end",
            of_type=isinstance(until, str),
        )
