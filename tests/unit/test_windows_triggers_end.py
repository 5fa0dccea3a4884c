"""Windows with triggers at the end of a bounded run."""

from typing import Any

import pytest

from streamrt import Application
from streamrt.testing import TopologyTestDriver
from streamrt.windows import ContinuousEventTimeTrigger, CountTrigger, EventTimeTrigger, ProcessingTimeTrigger

pytestmark = pytest.mark.usefixtures("processing_mode")


def run(frame: Any, *values: int) -> tuple[TopologyTestDriver, list[tuple[Any, int]]]:
    """Process values at their own times, end the run, and return what came at the end."""
    app, sdf, out = frame
    sdf.to_topic(out)
    driver = TopologyTestDriver(app)
    for value in values:
        driver.pipe("in", value, key="a", timestamp=value)
    driver.read(out)
    driver.end()
    return driver, [(record.value["value"], record.timestamp) for record in driver.read(out)]


def frame_of(window: Any) -> Any:
    app = Application(broker_address="unused:9092", consumer_group="end")
    sdf = app.dataframe(app.topic("in", key_deserializer="str"))
    return app, window(sdf), app.topic("out", key_serializer="str")


@pytest.mark.rows("PF-A9", "PF-J11")
def test_windows_are_over_and_their_content_is_gone() -> None:
    frame = frame_of(lambda sdf: sdf.tumbling_window(5_000, grace_ms=2_000).collect().trigger(EventTimeTrigger()))
    driver, results = run(frame, 1_000, 6_000, 7_000)
    assert results == [([6_000, 7_000], 5_000)]
    # No clock has moved: the next run goes on in the next window, and begins without the content of the last one.
    driver.pipe("in", 8_000, key="a", timestamp=8_000)
    driver.end()
    assert [record.value["value"] for record in driver.read("out")] == [[8_000]]


def test_windows_without_an_end_fire_once_more_at_the_timers_that_they_have() -> None:
    frame = frame_of(lambda sdf: sdf.global_window().collect().trigger(ContinuousEventTimeTrigger(5_000)))
    assert run(frame, 1_000, 2_000)[1] == [([1_000, 2_000], 1_000)]


def test_a_trigger_by_count_emits_nothing() -> None:
    frame = frame_of(lambda sdf: sdf.tumbling_window(5_000).collect().trigger(CountTrigger(3)))
    assert run(frame, 1_000, 2_000)[1] == []


@pytest.mark.rows("PF-A9")
def test_timers_of_processing_time_are_dropped_with_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    frame = frame_of(
        lambda sdf: sdf.tumbling_window(5_000, time="processing").collect().trigger(ProcessingTimeTrigger())
    )
    assert run(frame, 1_000)[1] == []
    assert "dropped 1 timers of processing time of ProcessingTimeTrigger" in capsys.readouterr().err


def test_sessions_with_gaps_of_their_records_are_closed() -> None:
    def window(sdf: Any) -> Any:
        return sdf.session_window(lambda value: value // 10, grace_ms=0).collect().final(closing_strategy="partition")

    assert run(frame_of(window), 10_000, 10_500, 20_000)[1] == [([20_000], 20_000)]
