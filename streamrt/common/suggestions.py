"""Words of errors that suggest a name."""

import difflib
from collections.abc import Iterable

__all__ = ["suggest_name"]


def suggest_name(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return a hint at the known name that is closest to one, or nothing; small and capital letters are the same.

    Args:
        name: the name that is unknown.
        known: the names that are known.
        cutoff: the least similarity, from 0 to 1, as `difflib` defines it.

    Example:
        >>> suggest_name("Substrng", ["upper", "substring"]), suggest_name("x", ["upper"])
        ('; did you mean substring?', '')
        >>> suggest_name("datetime", ["date"]), suggest_name("datetime", ["date"], 0.7)
        ('; did you mean date?', '')
    """
    names = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower(), names, 1, cutoff)
    return f"; did you mean {names[close[0]]}?" if close else ""
