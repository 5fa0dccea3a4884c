"""Parquet files that sources read."""

from streamrt.connectors.files import ParquetFormat

__all__ = ["ParquetFormat"]
