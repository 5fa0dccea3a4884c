"""Words that suggest names in errors."""

from collections.abc import Iterable

from streamrt.common.suggestions import suggest_name

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
    close = suggest_name(name, names)
    if close or not names:
        return close
    more = f", and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"; there are {', '.join(names[:_SHOWN])}{more}"
