"""Words that suggest names in errors."""

import difflib
from collections.abc import Iterable

__all__ = ["suggest"]

_SHOWN = 10


def suggest(name: str, known: Iterable[str]) -> str:
    """Return words that suggest a name that is there, or list a few.

    Args:
        name: the name that is not there.
        known: the names that are.

    Example:
        >>> suggest("amont", ["id", "amount"]), suggest("x", ["id", "amount"])
        ('; did you mean amount?', '; there are amount, id')
    """
    names = sorted(set(known))
    close = difflib.get_close_matches(name.lower(), [each.lower() for each in names], n=1)
    if close:
        return f"; did you mean {next(each for each in names if each.lower() == close[0])}?"
    if not names:
        return ""
    more = f", and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"; there are {', '.join(names[:_SHOWN])}{more}"
