"""Process functions: functions of records and timers, with state and side outputs."""

from streamrt.process.broadcast import BroadcastContext, BroadcastProcessFunction, BroadcastTimerContext
from streamrt.process.context import Context, TaskContext, TimeDomain, TimerContext
from streamrt.process.function import CoProcessFunction, ProcessFunction

__all__ = [
    "BroadcastContext",
    "BroadcastProcessFunction",
    "BroadcastTimerContext",
    "CoProcessFunction",
    "Context",
    "ProcessFunction",
    "TaskContext",
    "TimeDomain",
    "TimerContext",
]
