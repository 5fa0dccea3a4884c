"""A source for InfluxDB 3."""

from streamrt.connectors import InfluxDB3Source

__all__ = ["InfluxDB3Source"]
