"""Libraries of connectors: each is an optional dependency, imported by only one connector."""

import importlib.util

from streamrt.errors import ConfigurationError
from streamrt.extras import install_command

__all__ = ["require_library"]


def require_library(connector: str, module: str, extra: str) -> None:
    """Refuse a connector whose library is not installed. The library is not imported.

    Connectors call this in `__init__`, so the program that defines them fails, not a task. They import the library in
    `setup`.

    Args:
        connector: name of the class.
        module: the module to import, such as `redis` or `google.cloud.pubsub_v1`.
        extra: the extra of StreamRT that installs it.

    Raises:
        ConfigurationError: if the module cannot be found.

    Example:
        >>> require_library("CSVSink", "csv", "none")
    """
    try:
        found = importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        # A parent package is missing.
        found = False
    if not found:
        raise ConfigurationError(f"{connector} needs the package {module}: run {install_command(extra)}")
