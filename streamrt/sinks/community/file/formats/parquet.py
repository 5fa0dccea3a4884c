"""Parquet files that sinks write."""

from streamrt.connectors.files import ParquetBatchFormat as ParquetFormat

__all__ = ["ParquetFormat"]
