"""A sink for PostgreSQL."""

from streamrt.connectors import PostgreSQLSink
from streamrt.errors import SinkError as PostgreSQLSinkException

__all__ = ["PostgreSQLSink", "PostgreSQLSinkException"]
