"""A sink of Google BigQuery."""

from streamrt.connectors.sinks.bigquery import BigQuerySink, BigQuerySinkException

__all__ = ["BigQuerySink", "BigQuerySinkException"]
