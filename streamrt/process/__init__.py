"""Process functions: functions of records and timers, with state and side outputs."""

from streamrt.process.context import Context, TaskContext, TimeDomain, TimerContext
from streamrt.process.function import ProcessFunction

__all__ = ["Context", "ProcessFunction", "TaskContext", "TimeDomain", "TimerContext"]
