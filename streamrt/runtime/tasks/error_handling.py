"""Consequences of errors of tasks: a pause, a repair, another attempt, or the end of the application."""

import logging
import traceback

from streamrt.errors import (
    KafkaBrokerUnavailableError,
    LookupUnavailableError,
    SchemaRegistryError,
    SchemaRegistryUnavailableError,
    SinkBackpressureError,
    SinkError,
    SinkFencedError,
    StaleTokenError,
    StateError,
    StoreCorruptedError,
    StoreLockedError,
    TransactionError,
)
from streamrt.kafka import KafkaRequestError
from streamrt.runtime.report import Failure, Pause, Report
from streamrt.runtime.tasks.chain.task_sinks import pause_of
from streamrt.runtime.tasks.stream_task import StreamTask
from streamrt.secret import masked
from streamrt.topology import TaskId

logger = logging.getLogger("streamrt")

RETRIABLE_ERRORS = (
    TransactionError,
    KafkaRequestError,
    KafkaBrokerUnavailableError,
    LookupUnavailableError,
    SchemaRegistryUnavailableError,
    SinkFencedError,
    StoreLockedError,
)
"""Retriable errors: another attempt from the committed offsets may succeed."""

HANDLED_ERRORS = (SchemaRegistryError, SinkBackpressureError, StaleTokenError, StateError, *RETRIABLE_ERRORS)
"""The errors that `record_task_error` handles."""


def record_task_error(report: Report, task: StreamTask, trouble: Exception, *, repair: bool = True) -> None:
    """Note the consequence of an error in a report; damaged stores are deleted, to be restored.

    Args:
        report: the report.
        task: the task, which was aborted.
        trouble: one of `HANDLED_ERRORS`.
        repair: whether to delete damaged stores; otherwise they end the application.
    """
    if isinstance(trouble, SinkBackpressureError):
        report.stalled[task.id] = Pause(pause_of(trouble), masked(trouble.reason), sink=trouble.sink)
    elif isinstance(trouble, StoreCorruptedError) and repair:
        try:
            task.stores.destroy(trouble)
        except StoreLockedError as held:
            # The process that has opened the store meanwhile repairs or releases it.
            report.interrupted[task.id] = masked(str(held))
        except StateError as refusal:
            note_failure(report, state_failure(task.id, refusal))
        else:
            report.interrupted[task.id] = masked(str(trouble))
    elif isinstance(trouble, StoreLockedError):
        report.locked[task.id] = masked(str(trouble))
    elif isinstance(trouble, RETRIABLE_ERRORS):
        report.interrupted[task.id] = masked(str(trouble))
    elif isinstance(trouble, SchemaRegistryError):
        note_failure(report, Failure("registry", task.id, None, str(trouble), trouble, trace_of(trouble)))
    elif isinstance(trouble, StateError | StaleTokenError):
        note_failure(report, state_failure(task.id, trouble))
    else:
        raise TypeError(f"{trouble!r} is not an error of a task")


def note_close_error(report: Report | None, task: StreamTask, error: StateError | None) -> None:
    """Note the result of `StreamTask.abort` or `close`: a store that cannot be written ends the application.

    Args:
        report: the report; None to log the error instead.
        task: the task.
        error: the error; None if there was none.
    """
    if error is not None and report is not None:
        note_failure(report, state_failure(task.id, error))
    elif error is not None:
        logger.error("the state of %s must be restored from its changelog: %s", task.id, error)


def note_failure(report: Report, failure: Failure) -> None:
    """Note in a report why the application must end; the first reason is kept."""
    report.failure = report.failure or failure
    report.complete = False


def state_failure(task_id: TaskId, error: StateError | StaleTokenError) -> Failure:
    """Return the failure for unusable state, or for an input that is another topic."""
    return Failure("state", task_id, None, str(error), error, trace_of(error))


def sink_failure(task_id: TaskId, error: SinkError) -> Failure:
    """Return the failure for a sink that cannot go on."""
    cause = error.__cause__ if isinstance(error.__cause__, Exception) else None
    return Failure("sink", task_id, None, str(error), cause or error, trace_of(error), error.sink)


def trace_of(error: Exception) -> str:
    """Return the traceback of an error as text."""
    return "".join(traceback.format_exception(error))
