"""A source of DataFrames."""

from streamrt.connectors import PandasDataFrameSource

__all__ = ["PandasDataFrameSource"]
