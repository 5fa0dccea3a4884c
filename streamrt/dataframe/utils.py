"""Small helpers that programs share with dataframes."""

from datetime import timedelta

from streamrt.topics.durations import milliseconds

__all__ = ["ensure_milliseconds"]


def ensure_milliseconds(delta: int | timedelta) -> int:
    """Return a duration in milliseconds.

    Args:
        delta: milliseconds, or a timedelta, which is rounded to the nearest millisecond.

    Raises:
        ArgumentTypeError: if `delta` is neither.

    Example:
        >>> ensure_milliseconds(timedelta(seconds=1.5)), ensure_milliseconds(7)
        (1500, 7)
    """
    return milliseconds("delta", delta, least=None)
