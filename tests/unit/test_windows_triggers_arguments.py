"""Windows with triggers: wrong arguments, and names."""

from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from streamrt.errors import ArgumentTypeError, ArgumentValueError, InvalidOperationError, UnfinishedWindowError
from streamrt.windows import (
    ContinuousEventTimeTrigger,
    CountEvictor,
    CountTrigger,
    DeltaTrigger,
    EventTimeSessions,
    EventTimeTrigger,
    GlobalWindows,
    NeverTrigger,
    ProcessingTimeSessions,
    ProcessWindowFunction,
    PurgingTrigger,
    SlidingEventTimeWindows,
    Sum,
    Trigger,
    TriggerContext,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    Window,
    WindowContext,
)
from tests.unit.apps import Stage


class Other(Trigger):
    """A trigger that cannot merge."""

    def on_element(self, value: Any, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE


class Spread(ProcessWindowFunction):
    """A window function."""

    def process(self, key: Any, ctx: WindowContext, elements: list[Any]) -> None:
        return None


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (
            lambda sdf: sdf.session_window(10).count().trigger(Other()),
            ArgumentValueError,
            "Other cannot be the trigger",
        ),
        (
            lambda sdf: sdf.session_window(10).count().trigger(PurgingTrigger(DeltaTrigger(1, max))),
            ArgumentValueError,
            "no method on_merge",
        ),
        (lambda sdf: sdf.window(EventTimeSessions(5)).reduce(max, abs).final(), ArgumentValueError, "needs a merger"),
        (lambda sdf: sdf.tumbling_window(10).count().trigger(EventTimeTrigger), ArgumentTypeError, "the class Event"),
        (
            lambda sdf: sdf.tumbling_window(10).count().trigger(EventTimeTrigger(), closing_strategy="key"),
            ArgumentValueError,
            "cannot wake a key",
        ),
        (lambda sdf: sdf.tumbling_window(10).process(print).final("key"), ArgumentValueError, "cannot wake a key"),
        (
            lambda sdf: sdf.tumbling_window(10).count().trigger(EventTimeTrigger(), evictor=CountEvictor(1)),
            ArgumentValueError,
            r"use collect\(\) or process\(\)",
        ),
        (
            lambda sdf: sdf.tumbling_window(10).sum().process(print).trigger(NeverTrigger(), evictor=CountEvictor(1)),
            ArgumentValueError,
            "needs the elements",
        ),
        (
            lambda sdf: sdf.tumbling_window(10).collect().trigger(NeverTrigger(), evictor=5),
            ArgumentTypeError,
            "subclass of Evictor, got int",
        ),
        (lambda sdf: sdf.sliding_window(10).count().trigger(EventTimeTrigger()), ArgumentValueError, "hopping_window"),
        (lambda sdf: sdf.sliding_window(10).process(print), ArgumentValueError, "hopping_window"),
        (
            lambda sdf: sdf.tumbling_window(10, after_update=max).count().trigger(EventTimeTrigger()),
            ArgumentValueError,
            "before_update and after_update",
        ),
        (lambda sdf: sdf.tumbling_window(10).process(print).current(), ArgumentValueError, "keep their elements"),
        (lambda sdf: sdf.tumbling_window(10).process(Spread), ArgumentTypeError, "the class Spread"),
        (lambda sdf: sdf.tumbling_window(10).process(5), ArgumentTypeError, "got int"),
        (lambda sdf: sdf.tumbling_window(10).process(print).process(print), ArgumentValueError, "one process"),
        (lambda sdf: sdf.global_window().count().final(), ArgumentValueError, "does not end"),
        (lambda sdf: sdf.global_window().count().trigger(EventTimeTrigger()), ArgumentValueError, "does not end"),
        (lambda sdf: sdf.window(5), ArgumentTypeError, "subclass of WindowAssigner, got int"),
        (lambda sdf: sdf.window(GlobalWindows), ArgumentTypeError, "the class GlobalWindows"),
        (
            lambda sdf: sdf.window(TumblingProcessingTimeWindows(5), grace_ms=1),
            ArgumentValueError,
            "grace_ms has no effect",
        ),
        (
            lambda sdf: sdf.window(ProcessingTimeSessions(5), on_late=print),
            ArgumentValueError,
            "on_late has no effect",
        ),
        (
            lambda sdf: sdf.tumbling_window(10, 5, time="processing"),
            ArgumentValueError,
            r"tumbling_window\(grace_ms=...\) has no effect",
        ),
        (lambda sdf: sdf.session_window(10, time="wall"), ArgumentValueError, "'event' .* or 'processing'"),
        (
            lambda sdf: sdf.tumbling_window(10, time="processing").count().final("partition"),
            ArgumentValueError,
            "have no effect on windows that end by the wall clock",
        ),
        (
            lambda sdf: sdf.tumbling_window(10, time="processing").count().trigger(EventTimeTrigger()),
            ArgumentValueError,
            "waits for event time",
        ),
        (lambda sdf: sdf.tumbling_window(10).count().trigger(CountTrigger(0)), ArgumentValueError, "at least 1, got 0"),
        (lambda sdf: CountEvictor("1"), ArgumentTypeError, "number of records"),  # type: ignore[arg-type]
        (lambda sdf: PurgingTrigger(CountTrigger), ArgumentTypeError, "PurgingTrigger"),  # type: ignore[arg-type]
        (lambda sdf: TumblingEventTimeWindows(10, 10), ArgumentValueError, "offset must be less"),
        (lambda sdf: SlidingEventTimeWindows(10, 11), ArgumentValueError, "slide must be at most"),
        (lambda sdf: EventTimeSessions(0), ArgumentValueError, "must be 1 ms or more"),
        (lambda sdf: ContinuousEventTimeTrigger(0), ArgumentValueError, "must be 1 ms or more"),
    ],
)
def test_wrong_arguments(build: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        build(Stage().sdf)


@pytest.mark.rows("PF-C8", "PF-F7")
def test_names_of_side_outputs_and_stores() -> None:
    class Own(Spread):
        outputs: ClassVar[tuple[str, ...]] = ("late",)

    stage = Stage()
    with pytest.raises(ArgumentValueError, match="not 'late', which windows have"):
        stage.sdf.tumbling_window(10).process(Own())
    stage.sdf.tumbling_window(10).count().trigger(EventTimeTrigger())
    stage.sdf.tumbling_window(10).count().final()
    stage.sdf.tumbling_window(10).agg(n=Sum()).process(print).final()
    with pytest.raises(InvalidOperationError, match="already has a window"):
        stage.sdf.tumbling_window(10).count().trigger(CountTrigger(1))
    stage.sdf.window(EventTimeSessions(5), name="w").collect().trigger(EventTimeTrigger())
    names = [store.name for node in stage.app.topology.nodes for store in node.operator.stores()]
    assert names == [
        "tumbling_window_10_count_triggered",
        "tumbling_window_10_count",
        "tumbling_window_10_process",
        "w_window_EventTimeSessions_collect",
    ]
    words = [node.operator.describe() for node in stage.app.topology.nodes]
    assert words[1] == "tumbling_window_10_count_triggered, EventTimeTrigger"


def test_count_windows_name_what_has_triggers_and_functions() -> None:
    sdf: Any = Stage().sdf
    uses: list[Callable[[], Any]] = [
        lambda: sdf.tumbling_count_window(3).process(print),
        lambda: sdf.hopping_count_window(3, 1).trigger(EventTimeTrigger()),
        lambda: sdf.sliding_count_window(3).count().trigger(EventTimeTrigger()),
        lambda: sdf.tumbling_count_window(3).count().process(print),
    ]
    for use in uses:
        with pytest.raises(UnfinishedWindowError, match=r"a count window has no (process|trigger): ") as told:
            use()
        assert "sdf.global_window().process(function).trigger(PurgingTrigger(CountTrigger(n)))" in str(told.value)
    # What it says works.
    results: list[Any] = []
    stage = Stage()
    frame = stage.sdf.global_window().process(lambda key, ctx, elements: [sum(elements)])
    frame.trigger(PurgingTrigger(CountTrigger(3))).update(results.append)
    driver = stage.drive()
    for value in (1, 2, 3, 4, 5, 6, 7):
        driver.pipe(stage.source, value, key=b"a")
    assert results == [6, 15]


def test_a_sliding_window_has_no_offset() -> None:
    sdf: Any = Stage().sdf
    with pytest.raises(ArgumentValueError, match=r"sliding_window\(\) has no offset_ms: its windows end at each"):
        sdf.sliding_window(10, offset_ms=3)
