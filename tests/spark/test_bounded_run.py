"""Bounded runs on Spark: time ends stage by stage, and the run ends by itself."""

import importlib.util
from pathlib import Path
from types import ModuleType

import orjson
import pytest

from streamrt.config import ProcessingMode
from streamrt.connectors import NumberSequenceSource
from streamrt.kafka import TopicConfig
from tests.support import Kafka, unique

pytestmark = [pytest.mark.spark, pytest.mark.slow]

EXAMPLE = Path(__file__).parents[2] / "examples" / "energy.py"
START = 1_200_000


def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("example_energy", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.rows("PF-A6", "PF-A9", "PF-B5", "PF-J11")
def test_a_run_ends_after_its_sources_with_all_windows_closed(kafka: Kafka, processing_mode: ProcessingMode) -> None:
    # Each mode with another guarantee; the unit tests have all combinations.
    guarantee = "exactly-once" if processing_mode == "resident" else "at-least-once"
    app = kafka.app(processing_guarantee=guarantee)
    topic = app.topic(unique("numbers"), "int", "str", "int", "str", config=TopicConfig(2, 1))
    source = NumberSequenceSource(
        1, 25, unique("numbers"), key=lambda number: "ab"[number % 2], timestamp=lambda number: START + number
    )
    sums = app.dataframe(topic, source).tumbling_window(10_000).sum().final()
    grouped = sums.apply(lambda window: window["value"]).group_by(lambda value: "all", name="all")
    totals = grouped.tumbling_window(60_000).sum().final(closing_strategy="watermark")
    example().build(app, energy := kafka.topic("energy"), unique("readings"))
    with app.collect(totals) as values:
        assert [(value["start"], value["value"]) for value in values] == [(START, sum(range(1, 26)))]
    hours = [orjson.loads(record.value or b"") for record in kafka.receive(energy, 2)]
    assert [hour["value"] for hour in hours] == [230, 105]
    # Everything has been emitted: a second run finds no open window, and ends at once.
    assert app.run(until="end") == []
