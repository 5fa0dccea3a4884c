"""Checks and conversions of windows with triggers, evictors and window functions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from streamrt.dataframe.branch import Branch
from streamrt.dataframe.clocks import Clock, lag_ms
from streamrt.errors import ArgumentTypeError, ArgumentValueError
from streamrt.operators.closing import Closing
from streamrt.operators.late import LATE
from streamrt.state.spec import ProcessStoreSpec
from streamrt.state.transactions.panes import PaneTransaction
from streamrt.windows.aggregation import Aggregation
from streamrt.windows.assigners import (
    EventTimeSessions,
    GlobalWindows,
    MergingWindowAssigner,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    WindowAssigner,
)
from streamrt.windows.closing import TimeWindowOperator
from streamrt.windows.evictors import Evictor
from streamrt.windows.fixed import FixedWindow
from streamrt.windows.functions import ProcessWindowFunction, WindowFunction
from streamrt.windows.session import DynamicSessionWindow, SessionWindow
from streamrt.windows.triggered import DELAY_MS, TriggeredWindow
from streamrt.windows.triggers import (
    AtEnd,
    ContinuousEventTimeTrigger,
    EachRecord,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    Trigger,
)

_NO_STORE = ProcessStoreSpec()


def template_of(assigner: Any, *, method: str, grace_ms: int = 0, on_late: Any = None) -> TriggeredWindow:
    """Return windows of an assigner, without aggregation and trigger.

    Raises:
        ArgumentTypeError: if it is not an assigner.
        ArgumentValueError: if its windows take no late records, but an argument is about them.
    """
    if not isinstance(assigner, WindowAssigner):
        raise ArgumentTypeError(f"{method} needs an object of a subclass of WindowAssigner, got {_kind_of(assigner)}")
    if assigner.time not in ("event", "processing"):
        raise ArgumentValueError(
            f"{type(assigner).__name__}.time must be 'event' or 'processing', got {assigner.time!r}"
        )
    if assigner.time == "processing":
        for name, given in (("grace_ms", grace_ms), ("on_late", on_late)):
            if given:
                raise ArgumentValueError(
                    f"{method}: {name} has no effect on windows by the wall clock, where no record is late; leave it out"
                )
    return TriggeredWindow(None, assigner, NeverTrigger(), grace_ms=grace_ms, store=_NO_STORE, on_late=on_late)


def triggered(operator: TimeWindowOperator, aggregation: Aggregation | None) -> TriggeredWindow:
    """Return a window over event time as one with triggers.

    Raises:
        ArgumentValueError: if its kind, or one of its functions, does not go with triggers.
    """
    if isinstance(operator, FixedWindow):
        if operator.before_update is not None or operator.after_update is not None:
            raise ArgumentValueError(
                "before_update and after_update do not go with trigger() or process(): write a Trigger that decides in "
                "on_element"
            )
        duration, step, offset = operator.duration_ms, operator.step_ms, operator.offset_ms
        assigner: WindowAssigner = (
            TumblingEventTimeWindows(duration, offset)
            if duration == step
            else SlidingEventTimeWindows(duration, step, offset)
        )
    elif isinstance(operator, SessionWindow):
        assigner = EventTimeSessions(operator.gap_ms)
    elif isinstance(operator, DynamicSessionWindow):
        assigner = EventTimeSessions(operator.gap)
    else:
        raise ArgumentValueError(
            "sliding_window() has a window for each record, and works with final() and current() only: use hopping_window() "
            "with trigger() or process()"
        )
    template = template_of(assigner, method="window()", grace_ms=operator.grace_ms, on_late=operator.on_late)
    return replace(template, aggregation=aggregation)


def with_function(operator: TriggeredWindow, function: Any) -> TriggeredWindow:
    """Return a window with a window function.

    Raises:
        ArgumentTypeError: if it is not such a function, or its `outputs` are not names.
        ArgumentValueError: if its `outputs` name one twice, or "late".
    """
    if isinstance(function, type) or not (isinstance(function, ProcessWindowFunction) or callable(function)):
        raise ArgumentTypeError(
            "process() of a window needs an object of a subclass of ProcessWindowFunction, or a function of key, context and "
            f"elements, got {_kind_of(function)}"
        )
    if isinstance(function, ProcessWindowFunction):
        _check_outputs(function)
    chosen: WindowFunction = function
    return replace(operator, function=chosen)


def with_trigger(
    operator: TriggeredWindow, trigger: Any, clock: Clock | None, *, verb: str = "trigger", evictor: Any = None
) -> TriggeredWindow:
    """Return a window with its trigger.

    Args:
        operator: the window.
        trigger: the trigger.
        clock: the clock of event time that the user has chosen; None if none.
        verb: the method that the user has called, for errors.
        evictor: the evictor, or None.

    Raises:
        ArgumentTypeError: if an argument is of another type.
        ArgumentValueError: if they do not fit together.
    """
    if not isinstance(trigger, Trigger):
        raise ArgumentTypeError(f"trigger() needs an object of a subclass of Trigger, got {_kind_of(trigger)}")
    if clock == "key":
        raise ArgumentValueError(
            f"{verb}(closing_strategy='key') is not possible here, because the records of a key cannot wake a key without "
            "records: use 'watermark' or 'partition'"
        )
    _check_merging(operator, trigger)
    _check_ends(operator, trigger)
    if evictor is not None:
        if not isinstance(evictor, Evictor):
            raise ArgumentTypeError(
                f"trigger(evictor=...) needs an object of a subclass of Evictor, got {_kind_of(evictor)}"
            )
        aggregation = operator.aggregation
        if aggregation is not None and (aggregation.aggregators or not aggregation.collectors):
            raise ArgumentValueError(
                "an evictor needs the elements of windows, but this aggregation keeps none: use collect() or process()"
            )
    return replace(operator, trigger=trigger, evictor=evictor)


def at_end(operator: TriggeredWindow) -> Trigger:
    """Return what `final()` stands for.

    Raises:
        ArgumentValueError: if the windows do not end.
    """
    if isinstance(operator.assigner, GlobalWindows):
        raise ArgumentValueError(
            "final() would never emit a global window, which does not end: use trigger(), such as "
            "trigger(PurgingTrigger(CountTrigger(100)))"
        )
    return AtEnd(operator.grace_ms)


def each_record(operator: TriggeredWindow) -> Trigger:
    """Return what `current()` stands for.

    Raises:
        ArgumentValueError: if the windows keep their elements.
    """
    if operator.keeps_elements:
        raise ArgumentValueError(
            "current() cannot emit windows that keep their elements, because each record would read all of them again: use "
            "final() or trigger(), or an aggregation such as reduce()"
        )
    return EachRecord()


def pane_store(branch: Branch, store: str, closing: Closing) -> ProcessStoreSpec:
    """Return the store of windows with a trigger."""
    plain = branch.store(store, PaneTransaction)
    delay = None if closing.watermark is None else DELAY_MS
    return ProcessStoreSpec(plain.name, plain.store_type, plain.transaction, delay, lag_ms(closing.watermark))


def _check_merging(operator: TriggeredWindow, trigger: Trigger) -> None:
    if not isinstance(operator.assigner, MergingWindowAssigner):
        return
    if not trigger.can_merge:
        raise ArgumentValueError(
            f"{trigger.describe()} cannot be the trigger of windows that merge, such as sessions: it has no method on_merge"
        )
    aggregation = operator.aggregation
    if aggregation is not None and (names := aggregation.unmergeable()):
        wanted = "reduce() needs a merger" if aggregation.single else f"{', '.join(names)} need a merge(a, b)"
        raise ArgumentValueError(
            f"{type(operator.assigner).__name__}: windows merge, and then their aggregates: {wanted}, a function of the "
            "aggregates of the earlier and of the later window"
        )


def _check_ends(operator: TriggeredWindow, trigger: Trigger) -> None:
    inner = trigger
    while isinstance(inner, PurgingTrigger):
        inner = inner.trigger
    if isinstance(operator.assigner, GlobalWindows) and isinstance(inner, EventTimeTrigger | ProcessingTimeTrigger):
        raise ArgumentValueError(
            f"{trigger.describe()} would never emit a global window, which does not end: use a trigger such as CountTrigger"
        )
    if operator.assigner.time == "processing" and isinstance(inner, EventTimeTrigger | ContinuousEventTimeTrigger):
        raise ArgumentValueError(
            f"{trigger.describe()} waits for event time, but the windows of {type(operator.assigner).__name__} end by the "
            "wall clock: use ProcessingTimeTrigger or ContinuousProcessingTimeTrigger"
        )


def _check_outputs(function: ProcessWindowFunction) -> None:
    outputs: Any = function.outputs
    name = type(function).__name__
    if not isinstance(outputs, tuple) or not all(isinstance(tag, str) and tag for tag in outputs):
        raise ArgumentTypeError(f"{name}.outputs must be a tuple of names, such as ('invalid',), got {outputs!r}")
    if len({*outputs, LATE.tag}) <= len(outputs):
        raise ArgumentValueError(
            f"{name}.outputs must name each side output once, and not {LATE.tag!r}, which windows have: {outputs!r}"
        )


def _kind_of(item: Any) -> str:
    return f"the class {item.__name__}" if isinstance(item, type) else type(item).__name__
