"""Connection settings of a cluster, re-exported from `streamrt.kafka.connection`."""

from streamrt.kafka.connection import ConnectionConfig

__all__ = ["ConnectionConfig"]
