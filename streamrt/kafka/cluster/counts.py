"""Numbers of things, such as partitions or replicas."""

from streamrt.arguments import checked_int
from streamrt.errors import ArgumentValueError

__all__ = ["MOST", "check_count"]

MOST = 999_999
"""The most partitions or replicas: no cluster has as many."""


def check_count(what: str, value: int | None) -> None:
    """Raise unless a count is None or an integer from 1 to `MOST`.

    Raises:
        ArgumentTypeError: if it is not an integer.
        ArgumentValueError: if it is below 1 or too large.
    """
    if value is None:
        return
    checked_int(what, value, 1, "an integer")
    if value > MOST:
        raise ArgumentValueError(f"{what} must be {MOST:,} or less")
