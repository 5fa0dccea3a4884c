"""A sink for InfluxDB 1."""

from streamrt.connectors import InfluxDB1Sink
from streamrt.connectors.time_series.line_protocol import (
    FieldsSetter,
    MeasurementSetter,
    TagsSetter,
    TimePrecision,
    TimeSetter,
)

__all__ = ["FieldsSetter", "InfluxDB1Sink", "MeasurementSetter", "TagsSetter", "TimePrecision", "TimeSetter"]
