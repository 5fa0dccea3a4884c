"""A sink for InfluxDB 3."""

from streamrt.connectors import InfluxDB3Sink

__all__ = ["InfluxDB3Sink"]
