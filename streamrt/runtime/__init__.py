"""Tasks, and what they need: the same code under Spark and in the test driver."""

from streamrt.runtime.collector import RecordWriter
from streamrt.runtime.commit import CommitSchedule
from streamrt.runtime.report import Failure, Output, Report
from streamrt.runtime.spec import ErrorCallbacks, TaskSpec
from streamrt.runtime.task import Chunk
from streamrt.runtime.tasks import BatchContext, Tasks

__all__ = [
    "BatchContext",
    "Chunk",
    "CommitSchedule",
    "ErrorCallbacks",
    "Failure",
    "Output",
    "RecordWriter",
    "Report",
    "TaskSpec",
    "Tasks",
]
