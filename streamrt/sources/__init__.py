"""The sources of `streamrt.connectors`."""

from streamrt.connectors import BaseSource, CSVSource, PandasDataFrameSource, Source, StatefulSource
from streamrt.errors import SourceError as SourceException

__all__ = ["BaseSource", "CSVSource", "PandasDataFrameSource", "Source", "SourceException", "StatefulSource"]
