"""Operators: one frozen description per thing that a dataframe can do to a record."""

from streamrt.operators.apply import Apply
from streamrt.operators.columns import Assign, Drop, Fill, Project, Where
from streamrt.operators.filter import Filter
from streamrt.operators.metadata import SetHeaders, SetTimestamp
from streamrt.operators.show import Print, PrintTable
from streamrt.operators.to_topic import ToTopic
from streamrt.operators.update import Update

__all__ = [
    "Apply",
    "Assign",
    "Drop",
    "Fill",
    "Filter",
    "Print",
    "PrintTable",
    "Project",
    "SetHeaders",
    "SetTimestamp",
    "ToTopic",
    "Update",
    "Where",
]
