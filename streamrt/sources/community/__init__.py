"""Sources of what other packages hold."""

from streamrt.connectors import PandasDataFrameSource

__all__ = ["PandasDataFrameSource"]
