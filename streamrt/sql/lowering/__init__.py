"""From plans of SQL to operators of dataframes and tables, and programs of views."""

from streamrt.sql.lowering.program import FrameMapping, Programs, View

__all__ = ["FrameMapping", "Programs", "View"]
