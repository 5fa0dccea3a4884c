"""Connected dataframes. The public functions are methods of `StreamingDataFrame`."""

from __future__ import annotations

from datetime import timedelta
from typing import Generic, TypeVar

from streamrt.dataframe.branch import Branch, Frame
from streamrt.dataframe.processing import TimerClock, check_function, run_with
from streamrt.errors import ArgumentTypeError, ArgumentValueError
from streamrt.process import CoProcessFunction
from streamrt.process.operator import CoProcess
from streamrt.topology import WhenAllIdle

__all__ = ["ConnectedFrames", "connect"]

F = TypeVar("F", bound=Frame)


def connect(self: F, other: Frame) -> ConnectedFrames[F]:  # noqa: D417 - a method
    """Connect this dataframe with another one, for a function that processes the records of both.

    Partition N of all topics of both is processed by one task, in the order of timestamps, as with `concat`. So equal keys
    must be in partitions of the same number: topics must have equal numbers of partitions. `group_by` on both sides gives
    them common keys.

    Args:
        other: a dataframe of the same application: of another topic, a branch of this one, or this one itself.

    Returns:
        Both frames; call `process` on it.

    Raises:
        InvalidOperationError: if `other` is no dataframe of the same application.

    Example:
        ```python
        matched = rides.connect(fares).process(MatchFares())
        ```
    """
    if not isinstance(other, Frame):
        raise ArgumentTypeError(f"connect() needs another dataframe, got {type(other).__name__}")
    _require_same_application(self._branch, other._branch)
    return ConnectedFrames(self, other)


class ConnectedFrames(Generic[F]):
    """Two dataframes whose records one function processes. `StreamingDataFrame.connect` makes it."""

    def __init__(self, first: F, second: Frame) -> None:
        self._first = first
        self._second = second

    def process(
        self,
        function: CoProcessFunction,
        *,
        name: str | None = None,
        clock: TimerClock = "watermark",
        grace_ms: int | timedelta = 0,
        idle_timeout_ms: int | timedelta | None = None,
        when_all_idle: WhenAllIdle | None = None,
    ) -> F:
        """Process the records of both frames by a function with common state, timers and side outputs.

        Both sides share one store, with the state of each record key.

        Args:
            function: an object of a class derived from `CoProcessFunction`.
            name: name of its store, `process_<name>`; by default the name of the class. Required for a second function of
                the same class.
            clock: event time of timers, as for `StreamingDataFrame.process`. Records of both sides count.
            grace_ms: time that timers of event time wait for late records, in milliseconds or as a timedelta.
            idle_timeout_ms: as for `StreamingDataFrame.process`.
            when_all_idle: as for `StreamingDataFrame.process`.

        Returns:
            A new frame.

        Raises:
            ConfigurationError: if an argument is invalid.
            InvalidOperationError: if `function` is no function of two frames, or another one has the same store.

        Example:
            ```python
            matched = rides.connect(fares).process(MatchFares(), clock="partition")
            ```
        """
        check_function("connect(...).process", CoProcessFunction, function)
        branch, other = self._first._branch, self._second._branch
        fields = run_with(branch.meeting((other,)), function, name, clock, grace_ms, idle_timeout_ms, when_all_idle)
        return self._first._with(branch.merge((other,), CoProcess(*fields)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._first!r}, {self._second!r})"


def _require_same_application(one: Branch, other: Branch) -> None:
    if one.builder is not other.builder:
        raise ArgumentValueError(
            "connect() got a dataframe of another application: make both with Application.dataframe() of one application"
        )
