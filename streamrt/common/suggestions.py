"""Words of errors that suggest a name."""

import difflib
from collections.abc import Iterable

__all__ = ["suggest_name"]

_CUTOFF = 0.7


def suggest_name(name: str, known: Iterable[str]) -> str:
    """Return a hint at the known name that is closest to one, or nothing; small and capital letters are the same.

    Args:
        name: the name that is unknown.
        known: the names that are known.

    Example:
        >>> suggest_name("Substrng", ["upper", "substring"]), suggest_name("x", ["upper"])
        ('; did you mean substring?', '')
    """
    names = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower(), names, 1, _CUTOFF)
    return f"; did you mean {names[close[0]]}?" if close else ""
