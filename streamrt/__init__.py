"""StreamRT: Kafka-native stream processing for Python on Spark Structured Streaming."""

import importlib
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any

from streamrt.common.collection import collection_paused

if TYPE_CHECKING:
    from streamrt.app import Application
    from streamrt.context import message_context, set_message_context
    from streamrt.dataframe import StreamingDataFrame, StreamingSeries, StreamingTable
    from streamrt.kafka import ConnectionConfig, TopicConfig
    from streamrt.kafka.completion_token import Offsets
    from streamrt.operators import Retry
    from streamrt.process import (
        BroadcastContext,
        BroadcastProcessFunction,
        BroadcastTimerContext,
        Context,
        CoProcessFunction,
        ProcessFunction,
        TaskContext,
        TimeDomain,
        TimerContext,
    )
    from streamrt.queries.stored_state import StateAnswer, StateEntry
    from streamrt.records import MessageContext
    from streamrt.runtime.driver.life.lifecycle import ApplicationStatus
    from streamrt.runtime.driver.life.restart import RestartPolicy
    from streamrt.schema import Schema
    from streamrt.spark.sessions.spark_session import create_spark_session
    from streamrt.state import RocksDBOptions, State
    from streamrt.state.snapshots import StateSnapshots
    from streamrt.tables.catalogue.catalog import Catalog
    from streamrt.topics import DeadLetters, Topic, WatermarkStrategy
    from streamrt.tracing import Tracing

__version__ = "0.1.0"

# Imported on first use: pytest loads this package's plugin at every start, and tasks do not need Application.
_HOMES = {
    "Application": "streamrt.app",
    "ApplicationStatus": "streamrt.runtime.driver.life.lifecycle",
    "BroadcastContext": "streamrt.process",
    "BroadcastProcessFunction": "streamrt.process",
    "BroadcastTimerContext": "streamrt.process",
    "Catalog": "streamrt.tables.catalogue.catalog",
    "CoProcessFunction": "streamrt.process",
    "ConnectionConfig": "streamrt.kafka",
    "Context": "streamrt.process",
    "DeadLetters": "streamrt.topics",
    "MessageContext": "streamrt.records",
    "Offsets": "streamrt.kafka.completion_token",
    "ProcessFunction": "streamrt.process",
    "RestartPolicy": "streamrt.runtime.driver.life.restart",
    "Retry": "streamrt.operators",
    "RocksDBOptions": "streamrt.state",
    "Schema": "streamrt.schema",
    "State": "streamrt.state",
    "StateAnswer": "streamrt.queries.stored_state",
    "StateEntry": "streamrt.queries.stored_state",
    "StateSnapshots": "streamrt.state.snapshots",
    "StreamingDataFrame": "streamrt.dataframe",
    "StreamingSeries": "streamrt.dataframe",
    "StreamingTable": "streamrt.dataframe",
    "TaskContext": "streamrt.process",
    "TimeDomain": "streamrt.process",
    "TimerContext": "streamrt.process",
    "Topic": "streamrt.topics",
    "TopicConfig": "streamrt.kafka",
    "Tracing": "streamrt.tracing",
    "WatermarkStrategy": "streamrt.topics",
    "create_spark_session": "streamrt.spark.sessions.spark_session",
    "message_context": "streamrt.context",
    "set_message_context": "streamrt.context",
}

__all__ = [
    "Application",
    "ApplicationStatus",
    "BroadcastContext",
    "BroadcastProcessFunction",
    "BroadcastTimerContext",
    "Catalog",
    "CoProcessFunction",
    "ConnectionConfig",
    "Context",
    "DeadLetters",
    "MessageContext",
    "Offsets",
    "ProcessFunction",
    "RestartPolicy",
    "Retry",
    "RocksDBOptions",
    "Schema",
    "State",
    "StateAnswer",
    "StateEntry",
    "StateSnapshots",
    "StreamingDataFrame",
    "StreamingSeries",
    "StreamingTable",
    "TaskContext",
    "TimeDomain",
    "TimerContext",
    "Topic",
    "TopicConfig",
    "Tracing",
    "WatermarkStrategy",
    "create_spark_session",
    "message_context",
    "set_message_context",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'streamrt' has no attribute {name!r}")
    try:
        # Modules are never garbage, and there are hundreds of them.
        with collection_paused():
            value = getattr(importlib.import_module(_HOMES[name]), name)
    except KeyboardInterrupt:
        if sys.excepthook is sys.__excepthook__ and not hasattr(sys, "ps1"):
            sys.excepthook = _say_interrupted
        raise
    globals()[name] = value
    return value


def _say_interrupted(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    """Print one line, without a traceback, if Ctrl+C interrupts the import of this package, as after the import."""
    if kind is KeyboardInterrupt:
        print("streamrt: interrupted", file=sys.stderr)  # noqa: T201 - the process ends
    else:
        sys.__excepthook__(kind, error, traceback)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
