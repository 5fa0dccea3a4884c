"""How programs set up the logger of the package: what `streamrt.common.logs` and `streamrt.config` have of it."""

from streamrt.common.logs import LogFormat
from streamrt.config import LOGGER_NAME, LogLevel, configure_logging

__all__ = ["LOGGER_NAME", "LogFormat", "LogLevel", "configure_logging"]
