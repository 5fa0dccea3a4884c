"""CSV dialects as picklable settings: other processes do not know the dialects of `csv.register_dialect`."""

import csv
from typing import Any

from streamrt.errors import argument_error

_SETTINGS = (
    "delimiter",
    "doublequote",
    "escapechar",
    "lineterminator",
    "quotechar",
    "quoting",
    "skipinitialspace",
    "strict",
)


def dialect_settings(name: str, owner: str) -> dict[str, Any]:
    """Return the settings of a dialect, as keyword arguments for `csv.reader` and `csv.writer`.

    Args:
        name: name of the dialect.
        owner: the connector, for the error message.

    Raises:
        ConfigurationError: if there is no such dialect.

    Example:
        >>> dialect_settings("unix", "CSVSink")["delimiter"]
        ','
    """
    try:
        dialect = csv.get_dialect(name)
    except (csv.Error, TypeError):
        known = ", ".join(csv.list_dialects())
        raise argument_error(
            f"{owner}: unknown CSV dialect {name!r}; known are {known}; see csv.register_dialect",
            of_type=isinstance(name, str),
        ) from None
    return {setting: getattr(dialect, setting) for setting in _SETTINGS}
