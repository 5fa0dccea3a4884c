"""Sources for data of other packages."""

from streamrt.connectors import PandasDataFrameSource

__all__ = ["PandasDataFrameSource"]
