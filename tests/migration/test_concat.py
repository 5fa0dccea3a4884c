"""`concat` takes topics with any numbers of partitions where nothing needs equal keys in one place."""

import logging
from typing import Any

import pytest

from streamrt import Application, State, TopicConfig
from streamrt.connectors import ListSink
from streamrt.errors import TopicConfigurationError
from streamrt.testing import TopologyTestDriver
from tests.unit.apps import application


def frames(app: Application, **partitions: int) -> list[Any]:
    return [app.dataframe(app.topic(name, config=TopicConfig(count, 1))) for name, count in partitions.items()]


def count(value: Any, state: State) -> Any:
    state.set("n", state.get("n", 0) + 1)
    return value, state.get("n")


@pytest.mark.usefixtures("processing_mode")
@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_stateless_concat_takes_topics_with_different_numbers_of_partitions(
    guarantee: Any, caplog: pytest.LogCaptureFixture
) -> None:
    app = application(processing_guarantee=guarantee)
    a, b = frames(app, a=1, b=3)
    sink = ListSink()
    merged = a.apply(lambda value: value * 10).concat(b).apply(str)
    merged.to_topic(app.topic("out"))
    merged.sink(sink)
    with caplog.at_level(logging.INFO), TopologyTestDriver(app) as driver:
        driver.pipe("a", 1)
        for partition in range(3):
            driver.pipe("b", partition, partition=partition)
        assert [record.value for record in driver.read("out")] == ["10", "0", "1", "2"]
    assert list(sink) == ["10", "0", "1", "2"]
    assert "(a has 1, b has 3) are processed by separate tasks" in caplog.text


@pytest.mark.usefixtures("processing_mode")
def test_state_in_front_of_the_concat_stays_with_its_topic() -> None:
    app = application()
    a, b = frames(app, a=2, b=3)
    a.apply(count, stateful=True).concat(b.apply(count, stateful=True))
    with TopologyTestDriver(app) as driver:
        for topic, partition in (("a", 1), ("b", 2), ("a", 1), ("b", 2)):
            driver.pipe(topic, topic, key="k", partition=partition)
        assert [output[0] for output in driver.outputs()] == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]


def test_a_stateful_concat_needs_equal_numbers_of_partitions() -> None:
    app = application()
    a, b = frames(app, a=1, b=3)
    a.concat(b).apply(count, stateful=True)
    with pytest.raises(TopicConfigurationError, match=r"\(a has 1, b has 3\)"):
        TopologyTestDriver(app)
