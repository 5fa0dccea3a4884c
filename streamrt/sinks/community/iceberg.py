"""A sink for tables of Apache Iceberg."""

from streamrt.connectors import AWSIcebergConfig, IcebergSink

__all__ = ["AWSIcebergConfig", "IcebergSink"]
