"""How to reach a cluster: what `streamrt.kafka.connection` has of it."""

from streamrt.kafka.connection import ConnectionConfig

__all__ = ["ConnectionConfig"]
