"""The classes of `streamrt.connectors` that tables of sources and sinks name."""

import importlib
import inspect
from typing import Literal

from streamrt.common.suggestions import suggest_name
from streamrt.errors import ConfigurationError

__all__ = ["endpoint_class"]


def endpoint_class(table: str, what: Literal["source", "sink"], name: str) -> type:
    """Return the class that a table names.

    Args:
        table: name of the table, for errors.
        what: what the class must be.
        name: its name.

    Raises:
        ConfigurationError: if `streamrt.connectors` has no such class, or no table can be written by it.

    Example:
        >>> endpoint_class("city.archive", "sink", "SQLiteSink").__name__
        'SQLiteSink'
    """
    connectors = importlib.import_module("streamrt.connectors")
    base: type = connectors.BaseSource if what == "source" else connectors.BaseSink
    kind = getattr(connectors, name, None) if name in connectors.__all__ else None
    if not (isinstance(kind, type) and issubclass(kind, base) and not inspect.isabstract(kind)):
        advice = suggest_name(name, [each for each in connectors.__all__ if each.endswith(what.title())])
        raise ConfigurationError(
            f"table {table} has the {what} {name!r}, which streamrt.connectors does not have{advice}"
        )
    if issubclass(kind, connectors.DriverSink):
        raise ConfigurationError(
            f"table {table} has the sink {name!r}, which gives rows to the program that runs it, where no reader of the "
            "table finds them: name a sink of another system, or pass this one to sdf.sink()"
        )
    return kind
