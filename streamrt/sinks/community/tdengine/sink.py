"""A sink for TDengine."""

from streamrt.connectors import TDengineSink
from streamrt.connectors.time_series.line_protocol import FieldsSetter, TagsSetter, TimePrecision, TimeSetter
from streamrt.connectors.time_series.tdengine_sink import SubtableNameSetter, SupertableSetter

__all__ = [
    "FieldsSetter",
    "SubtableNameSetter",
    "SupertableSetter",
    "TDengineSink",
    "TagsSetter",
    "TimePrecision",
    "TimeSetter",
]
