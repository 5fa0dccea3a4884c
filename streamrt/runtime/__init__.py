"""Tasks and the services that they use. Spark and the test driver run the same code."""

from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.chunk import Chunk
from streamrt.runtime.clients import RecordWriter, TaskClients, TransactionalRecordWriter
from streamrt.runtime.placement import ChangelogSettings, ScopeInfo, StateSettings
from streamrt.runtime.report import Failure, Output, Report
from streamrt.runtime.schedule import CommitSchedule
from streamrt.runtime.spec import ErrorCallbacks, TaskSpec
from streamrt.runtime.task_executor import TaskExecutor

__all__ = [
    "BatchContext",
    "ChangelogSettings",
    "Chunk",
    "CommitSchedule",
    "ErrorCallbacks",
    "Failure",
    "Output",
    "RecordWriter",
    "Report",
    "ScopeInfo",
    "StateSettings",
    "TaskClients",
    "TaskExecutor",
    "TaskSpec",
    "TransactionalRecordWriter",
]
