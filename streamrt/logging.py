"""How programs set up the logger of the package: what `streamrt.config` has of it."""

from streamrt.config import LOGGER_NAME, LogLevel, configure_logging

__all__ = ["LOGGER_NAME", "LogLevel", "configure_logging"]
