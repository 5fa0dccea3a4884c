"""A sink for InfluxDB 1."""

from streamrt.connectors import InfluxDB1Sink

__all__ = ["InfluxDB1Sink"]
