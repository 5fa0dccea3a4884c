"""Conversion of durations in arguments."""

from datetime import timedelta

from streamrt.errors import ArgumentTypeError, ArgumentValueError
from streamrt.records.timestamps import LATEST_TIMESTAMP_MS

_MILLISECOND = timedelta(milliseconds=1)


def milliseconds(what: str, duration: int | timedelta, least: int | None = 0) -> int:
    """Return a duration in milliseconds; a timedelta is rounded to the nearest millisecond, a half up.

    Args:
        what: name of the duration, for errors.
        duration: milliseconds, or a timedelta.
        least: the shortest allowed duration in milliseconds; None for no limit.

    Raises:
        ArgumentTypeError: if `duration` is neither an int nor a timedelta.
        ArgumentValueError: if `duration` is too short, or longer than all timestamps together.

    Example:
        >>> milliseconds("grace_ms", timedelta(seconds=1.5)), milliseconds("grace_ms", timedelta(microseconds=2_500))
        (1500, 3)
    """
    if isinstance(duration, timedelta):
        # Not by an addition, which overflows for timedelta.max.
        whole, rest = divmod(duration, _MILLISECOND)
        whole += 2 * rest >= _MILLISECOND
    elif isinstance(duration, int) and not isinstance(duration, bool):
        whole = duration
    else:
        raise ArgumentTypeError(
            f"{what} must be an int of milliseconds or a timedelta, got {type(duration).__name__} {duration!r}"
        )
    if least is not None and whole < least:
        raise ArgumentValueError(f"{what} must be {least} ms or more, got {whole}")
    if abs(whole) > LATEST_TIMESTAMP_MS:
        raise ArgumentValueError(
            f"{what} must be {LATEST_TIMESTAMP_MS} ms or less, the latest timestamp of a record, got {whole}"
        )
    return whole
