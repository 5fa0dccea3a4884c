"""Dataframes and series, with which users build topologies."""

from streamrt.dataframe.dataframe import StreamingDataFrame
from streamrt.dataframe.series import StreamingSeries

__all__ = ["StreamingDataFrame", "StreamingSeries"]
