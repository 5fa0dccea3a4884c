"""Sources alongside dataframes on Spark: they feed, go on after a restart, and their failures end the application."""

import json
import time
from pathlib import Path

import pytest

from streamrt.connectors import CSVSource, Source, StatefulSource
from streamrt.errors import SourceError
from tests.support import ONE_MODE, Kafka, running, unique, wait_until

pytestmark = [pytest.mark.usefixtures("processing_mode"), pytest.mark.spark, pytest.mark.slow]


class Numbers(Source):
    """Produces numbers until it is stopped, or so many of them."""

    def __init__(self, name: str, end: int = 1_000_000, gap_s: float = 0.01, fails: bool = False) -> None:
        super().__init__(name)
        self.end = end
        self.gap_s = gap_s
        self.fails = fails

    def run(self) -> None:
        for number in range(self.end):
            if not self.running:
                return
            self.produce(json.dumps(number), b"key")
            self.sleep(self.gap_s)
        if self.fails:
            self.flush()
            raise ValueError("the sensor is broken")


class FiveMore(StatefulSource):
    """Produces the next five numbers each time."""

    def run(self) -> None:
        for _ in range(5):
            number = self.state.get("number", 0)
            self.produce(json.dumps(number))
            self.state.set("number", number + 1)
            self.flush()


def test_a_csv_file_is_the_source_of_a_dataframe(kafka: Kafka, tmp_path: Path) -> None:
    path, target, name = tmp_path / "prices.csv", kafka.topic("out"), unique("prices")
    path.write_text("sku,price\na,1.5\nb,2.5\n", encoding="utf-8")
    source = CSVSource(path, name=name, key_extractor=lambda row: row["sku"], timestamp_extractor=lambda row: 1_000)
    # As by default: the source begins to write before partitions are assigned.
    app = kafka.app(auto_offset_reset="latest")
    sdf = app.dataframe(source=source)
    sdf.apply(lambda row: {**row, "price": float(row["price"])}).to_topic(app.topic(target, key_serializer="str"))
    rows = app.run(count=2, timeout=300, metadata=True)
    assert [(row["sku"], row["price"]) for row in rows] == [("a", 1.5), ("b", 2.5)]
    assert [(record.key, record.timestamp) for record in kafka.receive(target, 2)] == [(b"a", 1_000), (b"b", 1_000)]
    assert rows[0]["_topic"] == f"source__{name}"


@ONE_MODE
@pytest.mark.rows("PF-B3")
def test_a_source_may_have_a_topic_of_its_own_and_stops_with_the_application(kafka: Kafka) -> None:
    name = kafka.topic("numbers", 2)
    app = kafka.app()
    source = Numbers(unique("numbers"))
    # It ends when it is told, and need not be killed.
    source.shutdown_timeout = 600
    topic = app.add_source(source, app.topic(name))
    assert topic.name == name
    app.dataframe(topic)
    with running(app):
        wait_until(lambda: app.progress().records >= 20, what="the first numbers")
    end = kafka.end(name)
    time.sleep(0.3)
    assert kafka.end(name) == end, "nobody produces any more"


@ONE_MODE
def test_a_stateful_source_goes_on_where_it_was(kafka: Kafka) -> None:
    name, group = unique("five"), unique("group")

    def run() -> list[int]:
        app = kafka.app(group)
        app.dataframe(source=FiveMore(name))
        return [row["_value"] for row in app.run(count=5, timeout=300)]

    assert run() == [0, 1, 2, 3, 4]
    assert run() == [5, 6, 7, 8, 9]
    log = f"changelog__{group}--source-{name}"
    found = kafka.admin.inspect_topics([log])[log]
    assert found is not None
    assert found.extra_config["cleanup.policy"] == "compact"


def test_a_source_that_fails_ends_the_application_and_what_it_produced_stays(kafka: Kafka) -> None:
    name, group = unique("broken"), unique("group")
    app = kafka.app(group)
    app.dataframe(source=Numbers(name, end=3, fails=True))
    with pytest.raises(SourceError) as caught:
        app.run()
    assert str(caught.value) == f"source {name} failed: ValueError: the sensor is broken"
    assert kafka.end(f"source__{name}") == 3
    again = kafka.app(group)
    again.dataframe(again.topic(f"source__{name}"))
    rest = [row["_value"] for row in again.run(timeout=0.5)]
    assert rest == [0, 1, 2][3 - len(rest) :], "what was not processed before the failure comes now"


@pytest.mark.only_mode("resident", reason="no dataframe, so no mode begins")
def test_sources_run_alone_until_they_end_or_are_stopped(kafka: Kafka) -> None:
    few, many = unique("few"), unique("many")
    app = kafka.app()
    app.add_source(Numbers(few, end=3, gap_s=0))
    assert app.run() == []
    assert kafka.values(f"source__{few}", 3) == [0, 1, 2]
    app.add_source(Numbers(many))
    with running(app):
        wait_until(lambda: f"source__{many}" in kafka.admin.list_topics() and kafka.end(f"source__{many}") > 3)
        # The process of the other one may begin later.
        wait_until(lambda: kafka.end(f"source__{few}") == 6)
    assert kafka.values(f"source__{few}", 6) == [0, 1, 2, 0, 1, 2], "a source without state begins anew"
    broken = kafka.app()
    broken.add_source(Numbers(unique("broken"), end=0, fails=True))
    with pytest.raises(SourceError, match="the sensor is broken"):
        broken.run()
