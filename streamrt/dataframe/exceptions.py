"""Exceptions of dataframes, under their names in Quix Streams."""

from streamrt.errors import InvalidOperationError as GroupByDuplicate
from streamrt.errors import InvalidOperationError as GroupByNestingLimit
from streamrt.errors import InvalidOperationError as InvalidColumnReference
from streamrt.errors import InvalidOperationError as StreamingDataFrameDuplicate
from streamrt.errors import MissingColumnError as ColumnDoesNotExist

__all__ = [
    "ColumnDoesNotExist",
    "GroupByDuplicate",
    "GroupByNestingLimit",
    "InvalidColumnReference",
    "StreamingDataFrameDuplicate",
]
