"""A sink for MongoDB."""

from typing import Any

from streamrt.connectors import MongoDBSink

MongoQueryFilter = dict[str, Any]

__all__ = ["MongoDBSink", "MongoQueryFilter"]
