"""Durations that users give."""

from datetime import timedelta

from streamrt.errors import InvalidOperationError, StreamRTError

_MILLISECOND = timedelta(milliseconds=1)


def milliseconds(
    what: str, duration: int | timedelta, least: int = 0, error: type[StreamRTError] = InvalidOperationError
) -> int:
    """Return a duration in milliseconds.

    Args:
        what: which duration it is, for the error.
        duration: milliseconds, or a timedelta of whole milliseconds.
        least: the shortest one that is allowed.
        error: what to raise.

    Raises:
        InvalidOperationError: or `error`, if it is no such duration.

    Example:
        >>> milliseconds("grace_ms", timedelta(seconds=1.5))
        1500
    """
    if isinstance(duration, timedelta):
        whole, rest = divmod(duration, _MILLISECOND)
        if rest:
            raise error(f"{what} must be whole milliseconds, got {duration}")
    elif isinstance(duration, int) and not isinstance(duration, bool):
        whole = duration
    else:
        raise error(f"{what} must be an int of milliseconds or a timedelta, got {duration!r}")
    if whole < least:
        raise error(f"{what} must be {least} ms or more, got {whole}")
    return whole
