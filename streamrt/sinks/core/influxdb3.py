"""A sink for InfluxDB 3."""

from streamrt.connectors import InfluxDB3Sink
from streamrt.connectors.time_series.line_protocol import (
    FieldsSetter,
    MeasurementSetter,
    TagsSetter,
    TimePrecision,
    TimeSetter,
)

__all__ = ["FieldsSetter", "InfluxDB3Sink", "MeasurementSetter", "TagsSetter", "TimePrecision", "TimeSetter"]
