"""Bounded runs on Spark: time ends stage by stage, and the run ends by itself."""

import pytest

from streamrt.config import ProcessingMode
from streamrt.connectors import NumberSequenceSource
from streamrt.kafka import TopicConfig
from tests.support import Kafka, unique

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_run_ends_after_its_sources_with_all_windows_closed(kafka: Kafka, processing_mode: ProcessingMode) -> None:
    # Each mode with another guarantee; the tests of commits have all combinations.
    guarantee = "exactly-once" if processing_mode == "resident" else "at-least-once"
    app = kafka.app(auto_offset_reset="earliest", processing_guarantee=guarantee)
    topic = app.topic(unique("numbers"), "int", "str", "int", "str", config=TopicConfig(2, 1))
    name, start = unique("numbers"), 1_200_000
    source = NumberSequenceSource(1, 25, name, key=lambda number: "ab"[number % 2], timestamp=lambda n: start + n)
    numbers = app.dataframe(topic, source)
    sums = numbers.tumbling_window(10_000).sum().final()
    spans = sums.apply(lambda window: window["value"]).group_by(lambda value: "all", name="all")
    totals = spans.tumbling_window(60_000).sum().final(closing_strategy="watermark")
    with app.collect(totals) as values:
        assert [(value["start"], value["value"]) for value in values] == [(start, sum(range(1, 26)))]
    # Everything has been emitted: a second run finds no open window, and ends at once.
    assert app.run(until="end") == []
