"""Dataframes and series, with which users build topologies."""

from streamrt.dataframe.dataframe import StreamingDataFrame
from streamrt.dataframe.series import StreamingSeries
from streamrt.dataframe.streaming_table import StreamingTable

__all__ = ["StreamingDataFrame", "StreamingSeries", "StreamingTable"]
