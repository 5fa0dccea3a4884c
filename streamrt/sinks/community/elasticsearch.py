"""A sink of Elasticsearch."""

from streamrt.connectors import ElasticsearchSink

__all__ = ["ElasticsearchSink"]
