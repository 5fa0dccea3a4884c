"""Reading CSV with the module `csv`, without its limit for fields."""

import csv
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["rows_of"]

_LONGEST_FIELD = 64 * 1024 * 1024


def rows_of(lines: Iterable[str], settings: Mapping[str, Any]) -> Any:
    """Return a `csv.reader` of the rows, with fields of up to 64 MiB; the module `csv` ends at 128 KiB.

    Args:
        lines: the lines.
        settings: keyword arguments for `csv.reader`.

    Example:
        >>> list(rows_of(["a,b"], {"delimiter": ","}))
        [['a', 'b']]
    """
    # The limit is the module's, so it is only raised.
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_FIELD))
    return csv.reader(lines, **settings)
