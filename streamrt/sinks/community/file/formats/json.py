"""JSON lines that sinks write."""

from streamrt.connectors.files import JSONBatchFormat as JSONFormat

__all__ = ["JSONFormat"]
