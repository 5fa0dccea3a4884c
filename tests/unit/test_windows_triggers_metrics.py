"""Metrics of triggers, window functions and evictors."""

from typing import Any

from streamrt.windows import (
    Evictor,
    ProcessWindowFunction,
    Trigger,
    TriggerContext,
    TriggerResult,
    Window,
    WindowContext,
)
from tests.unit.apps import Stage


def test_triggers_window_functions_and_evictors_have_metrics() -> None:
    class Early(Trigger):
        def on_element(self, value: Any, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:
            ctx.metrics.counter("records").inc()
            ctx.register_event_time_timer(window.max_timestamp)
            return TriggerResult.FIRE if value > 2 else TriggerResult.CONTINUE

        def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
            ctx.metrics.counter("ends").inc()
            return TriggerResult.FIRE

    class Largest(ProcessWindowFunction):
        def process(self, key: Any, ctx: WindowContext, elements: Any) -> Any:
            ctx.metrics.distribution("largest").update(max(elements))
            yield max(elements)

    class Odd(Evictor):
        def evict_before(self, elements: list[tuple[int, Any]], window: Window, ctx: Any) -> Any:
            ctx.metrics.gauge("elements").set(len(elements))
            return elements

    stage = Stage()
    stage.sdf.tumbling_window(10, name="w").process(Largest()).trigger(
        Early(), evictor=Odd(), closing_strategy="partition"
    ).update(print)
    driver = stage.drive()
    for value, timestamp in ((1, 1), (3, 2), (2, 15)):
        driver.pipe(stage.source, value, key=b"a", timestamp=timestamp)
    found: Any = driver.metrics(stage.app.topology.stores("in")[0].name)
    assert (found["records"], found["ends"], found["elements"]) == (3, 1, 2)
    assert (found["largest"].count, found["largest"].greatest) == (2, 3)
