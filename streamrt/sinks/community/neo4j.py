"""A sink of Neo4j."""

from streamrt.connectors import Neo4jSink

__all__ = ["Neo4jSink"]
