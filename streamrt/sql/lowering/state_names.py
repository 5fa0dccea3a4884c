"""Names of the state that views keep."""

import hashlib
import re
from typing import Final

__all__ = ["name_state"]

_LONGEST: Final = 90
"""Longest name of a view that stands in the names of its state as it is: operators add words, up to 120 characters."""


def name_state(view: str, part: str) -> str:
    """Return the name of a state of a view.

    Names of views have no case. One that state cannot have gets a digest, so that no two views have the same.

    Args:
        view: name of the view.
        part: what it is within the view.

    Example:
        >>> name_state("Shop.Totals", "1")
        'sql.shop.totals.1'
        >>> name_state("größe", "key")
        'sql.gr__e-d353a2671b67.key'
    """
    name = view.lower()
    kept = re.sub(r"[^a-z0-9._-]", "_", name)
    if kept != name or len(name) > _LONGEST:
        digest = hashlib.sha256(name.encode()).hexdigest()[:12]
        kept = f"{kept[: _LONGEST - 13]}-{digest}"
    return f"sql.{kept}.{part}"
