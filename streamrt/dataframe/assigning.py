"""Windows of assigners, for dataframes. The public functions are methods of `StreamingDataFrame`."""

from __future__ import annotations

from datetime import timedelta
from typing import TypeVar

from streamrt.dataframe.branch import Frame
from streamrt.dataframe.triggering import template_of
from streamrt.dataframe.window_definitions import AssignedWindowDefinition
from streamrt.dataframe.windowing import emitting
from streamrt.operators.functions import require_callable
from streamrt.operators.late import OnLate
from streamrt.topics.durations import milliseconds
from streamrt.windows.assigners import GlobalWindows, WindowAssigner

F = TypeVar("F", bound=Frame)


def window(
    self: F,
    assigner: WindowAssigner,
    grace_ms: int | timedelta = 0,
    name: str | None = None,
    on_late: OnLate | None = None,
) -> AssignedWindowDefinition[F]:
    """Aggregate records in the windows of an assigner.

    Args:
        assigner: an object such as `EventTimeSessions(5_000)`, or of a class of your own derived from `WindowAssigner` or
            `MergingWindowAssigner`.
        grace_ms: as for `tumbling_window`. Not for windows by the wall clock.
        name: prefix of the store name, which has the class of the assigner; required for a second window of the same
            class and aggregation.
        on_late: as for `tumbling_window`. Not for windows by the wall clock.

    Returns:
        The definition of a window: next, say what to compute, such as `.sum()` or `.process(...)`, and when to emit it, by
        `.trigger(...)`, `.final()` or `.current()`.

    Raises:
        ConfigurationError: if `assigner` is not an assigner, or an argument has no effect on its windows.

    Example:
        ```python
        visits = clicks.window(EventTimeSessions(timedelta(minutes=30))).collect().trigger(EventTimeTrigger())
        ```
    """
    if on_late is not None:
        require_callable("window(on_late=...)", on_late)
    grace = milliseconds("window(grace_ms=...)", grace_ms)
    template = template_of(assigner, method="window()", grace_ms=grace, on_late=on_late)
    return AssignedWindowDefinition(emitting(self), f"window_{type(assigner).__name__.strip('_')}", template, name)


def global_window(self: F, name: str | None = None) -> AssignedWindowDefinition[F]:
    """Aggregate all records of a key in one window, which never ends. A trigger says when it is emitted, and emptied.

    Start and end of results are the lowest and the highest event time of the records, as for count windows.

    Args:
        name: prefix of the store name; required for a second global window of the same aggregation.

    Returns:
        The definition of a window: next, say what to compute and when to emit it, by `.trigger(...)` or `.current()`.

    Example:
        ```python
        batches = orders.global_window().collect().trigger(PurgingTrigger(CountTrigger(100)))
        ```
    """
    template = template_of(GlobalWindows(), method="global_window()")
    return AssignedWindowDefinition(emitting(self), "global_window", template, name)
