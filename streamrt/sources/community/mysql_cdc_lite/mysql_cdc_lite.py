"""Changes of one table of MySQL or MariaDB: the module that defines the source in Quix Streams."""

from streamrt.connectors import MySqlCdcLiteSource
from streamrt.errors import SourceError as MySqlCdcLiteError

__all__ = ["MySqlCdcLiteError", "MySqlCdcLiteSource"]
