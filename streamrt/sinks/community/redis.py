"""A sink of Redis."""

from streamrt.connectors import RedisSink

__all__ = ["RedisSink"]
