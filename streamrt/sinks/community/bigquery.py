"""A sink of Google BigQuery."""

from streamrt.connectors.google.bigquery_sink import BigQuerySink, BigQuerySinkException

__all__ = ["BigQuerySink", "BigQuerySinkException"]
