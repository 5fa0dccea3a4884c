"""Dataframes and series: what users build topologies with."""

from streamrt.dataframe.dataframe import StreamingDataFrame
from streamrt.dataframe.series import StreamingSeries

__all__ = ["StreamingDataFrame", "StreamingSeries"]
