"""Changes of one table of MySQL or MariaDB."""

from streamrt.connectors import MySqlCdcLiteSource
from streamrt.errors import SourceError as MySqlCdcLiteError

__all__ = ["MySqlCdcLiteError", "MySqlCdcLiteSource"]
