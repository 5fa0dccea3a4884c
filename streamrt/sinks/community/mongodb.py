"""A sink of MongoDB."""

from streamrt.connectors import MongoDBSink

__all__ = ["MongoDBSink"]
