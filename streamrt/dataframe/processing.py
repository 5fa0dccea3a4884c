"""Process functions of dataframes. The public function is a method of `StreamingDataFrame`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, Literal, TypeVar

from streamrt.dataframe.branch import Branch, Frame
from streamrt.dataframe.clocks import lag_ms, watermark_of
from streamrt.errors import ArgumentTypeError, ArgumentValueError
from streamrt.operators.functions import require_name
from streamrt.process import ProcessFunction
from streamrt.process.function import TimedFunction
from streamrt.process.operator import Process
from streamrt.state.spec import ProcessStoreSpec
from streamrt.state.transactions.process_functions import ProcessTransaction
from streamrt.topics.durations import milliseconds
from streamrt.topology import WatermarkStrategy, WhenAllIdle

TimerClock = Literal["watermark", "partition"] | WatermarkStrategy

_CLOCKS = ("watermark (one clock for all partitions)", "partition (one clock per partition)")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,60}", re.ASCII)

F = TypeVar("F", bound=Frame)


def process(
    self: F,
    function: ProcessFunction,
    *,
    name: str | None = None,
    clock: TimerClock | None = None,
    grace_ms: int | timedelta = 0,
    idle_timeout_ms: int | timedelta | None = None,
    when_all_idle: WhenAllIdle | None = None,
) -> F:
    """Process records and timers by a function with state and side outputs.

    Args:
        function: an object of a class derived from `ProcessFunction`.
        name: name of its store, `process_<name>`; by default the name of the class. Required for a second function of
            the same class.
        clock: event time of timers. "watermark": the lowest among the highest event times of all partitions, as for windows;
            idle partitions are left out, so timers of quiet keys and partitions fire. A `WatermarkStrategy` is the same with
            other rules. "partition": the highest event time of all records that reach the function in its partition. Timers
            then fire after the record that makes them due, in each replay at the same place, but those of a quiet partition
            wait. By default the watermark strategy of the topic, or else "watermark".
        grace_ms: time that timers of event time wait for late records, in milliseconds or as a timedelta.
        idle_timeout_ms: for "watermark": time without records after which a partition counts as idle, in milliseconds or as
            a timedelta; 10 seconds by default. Not allowed with "partition".
        when_all_idle: for "watermark": while all partitions are idle, event time advances with the wall clock ("advance", the
            default) or waits for the next record ("hold"). Not allowed with "partition".

    Returns:
        A new frame.

    Raises:
        ConfigurationError: if an argument is invalid.
        InvalidOperationError: if `function` is not a process function, or this frame has another one with the same store.

    Example:
        ```python
        alarms = sdf.process(Sessions(), clock="partition")
        ```
    """
    check_function("process", ProcessFunction, function)
    branch = self._branch
    return self._with(
        branch.add(Process(*run_with(branch, function, name, clock, grace_ms, idle_timeout_ms, when_all_idle)))
    )


def run_with(
    branch: Branch,
    function: TimedFunction,
    name: str | None,
    clock: TimerClock | None,
    grace_ms: int | timedelta,
    idle_timeout_ms: int | timedelta | None,
    when_all_idle: WhenAllIdle | None,
) -> tuple[Any, ProcessStoreSpec, WatermarkStrategy | None, int, tuple[str, ...]]:
    """Return the function and its settings as the fields of a `TimedOperator`; the arguments are those of `process`.

    Args:
        branch: the position of the operator; for several inputs, the one that they meet at.
        function: the function.
        name: see `process`.
        clock: see `process`.
        grace_ms: see `process`.
        idle_timeout_ms: see `process`.
        when_all_idle: see `process`.
    """
    require_name("process", name)
    own = type(function).__name__.strip("_") if name is None else name
    if not _NAME.fullmatch(own):
        raise ArgumentValueError(
            f"process(name=...): {own!r} cannot be part of a store's name: use at most 60 letters, digits, '_' and '-'"
        )
    store = branch.own_store(f"process_{own}", "a process function", "process(..., name='...')")
    chosen = "watermark" if clock is None else clock
    watermark = watermark_of(branch, "clock", chosen, _CLOCKS, idle_timeout_ms, when_all_idle)
    # A watermark is below all later records, so a timer is due when the clock has passed it.
    delay = milliseconds("process(grace_ms=...)", grace_ms) + 1
    plain = branch.store(store, ProcessTransaction)
    due_after = None if watermark is None else delay
    spec = ProcessStoreSpec(plain.name, plain.store_type, plain.transaction, due_after, lag_ms(watermark))
    return function, spec, watermark, delay, tuple(topic.name for topic in branch.topics)


def check_function(method: str, wanted: type[TimedFunction], function: Any) -> None:
    """Refuse what is not a function of a class, and wrong names of side outputs.

    Args:
        method: the call, for errors.
        wanted: the class.
        function: the function.

    Raises:
        ArgumentTypeError: if it is not an object of the class.
        ArgumentValueError: if it names a side output twice.
    """
    if not isinstance(function, wanted):
        given = f"the class {function.__name__}" if isinstance(function, type) else type(function).__name__
        raise ArgumentTypeError(f"{method}() needs an object of a subclass of {wanted.__name__}, got {given}")
    outputs: Any = function.outputs
    if not isinstance(outputs, tuple) or not all(isinstance(tag, str) and tag for tag in outputs):
        raise ArgumentTypeError(
            f"{type(function).__name__}.outputs must be a tuple of names, such as ('late',), got {outputs!r}"
        )
    if len(set(outputs)) < len(outputs):
        raise ArgumentValueError(f"{type(function).__name__}.outputs names a side output twice: {outputs!r}")
