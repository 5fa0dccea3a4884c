"""Time that passes without records: ticks reach operators, and what they put out counts as all other output."""

from datetime import timedelta
from typing import Any

import pytest

from streamrt import Application, message_context
from streamrt.connectors.sinks import ListSink, SinkBatch
from streamrt.dataframe import StreamingDataFrame
from streamrt.errors import ProcessingError
from streamrt.testing import TopologyTestDriver
from streamrt.topics import Topic, TopicConfig

pytestmark = pytest.mark.usefixtures("processing_mode")

GUARANTEES = ("at-least-once", "exactly-once")


class Shop:
    """An application that counts clicks in windows of a second, closed by a watermark."""

    def __init__(self, partitions: int = 1, **settings: Any) -> None:
        self.app = Application(broker_address="unused:9092", consumer_group="shop", **settings)
        text: dict[str, Any] = {"key_serializer": "str", "key_deserializer": "str"}
        self.clicks = self.app.topic("clicks", config=TopicConfig(partitions, 1), **text)
        self.counts = self.app.topic("counts", **text)
        self.sdf = self.app.dataframe(self.clicks)

    def count(self, sdf: StreamingDataFrame | None = None, **options: Any) -> StreamingDataFrame:
        window = (self.sdf if sdf is None else sdf).tumbling_window(1_000).count()
        return window.final(closing_strategy="watermark", **{"idle_timeout_ms": 5_000, **options})


def counts(driver: TopologyTestDriver, topic: Topic) -> list[tuple[Any, int, int]]:
    return [(record.key, record.value["start"], record.value["value"]) for record in driver.read(topic)]


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_quiet_key_is_closed_by_records_of_others(guarantee: str) -> None:
    shop = Shop(processing_guarantee=guarantee)
    shop.count().to_topic(shop.counts)
    driver = TopologyTestDriver(shop.app)
    driver.pipe(shop.clicks, {}, key="ann", timestamp=100)
    driver.pipe(shop.clicks, {}, key="bob", timestamp=900)
    assert counts(driver, shop.counts) == []
    driver.pipe(shop.clicks, {}, key="bob", timestamp=1_000)
    assert counts(driver, shop.counts) == [("ann", 0, 1), ("bob", 0, 1)]


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_quiet_partition_is_left_out_when_it_is_idle(guarantee: str) -> None:
    shop = Shop(partitions=2, processing_guarantee=guarantee)
    shop.count().to_topic(shop.counts)
    driver = TopologyTestDriver(shop.app)
    driver.pipe(shop.clicks, {}, key="ann", timestamp=100, partition=0)
    driver.pipe(shop.clicks, {}, key="bob", timestamp=200, partition=1)
    driver.advance(4_000)
    driver.pipe(shop.clicks, {}, key="bob", timestamp=1_500, partition=1)
    assert counts(driver, shop.counts) == [], "the first partition may be slow"
    driver.advance(1_000)
    assert counts(driver, shop.counts) == [("ann", 0, 1), ("bob", 0, 1)]


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_the_last_windows_close_in_silence(guarantee: str) -> None:
    shop = Shop(partitions=2, processing_guarantee=guarantee)
    shop.count().to_topic(shop.counts)
    driver = TopologyTestDriver(shop.app)
    driver.pipe(shop.clicks, {}, key="ann", timestamp=100, partition=0)
    driver.pipe(shop.clicks, {}, key="bob", timestamp=200, partition=1)
    driver.advance(timedelta(milliseconds=4_999))
    assert counts(driver, shop.counts) == []
    driver.advance(1)
    assert counts(driver, shop.counts) == [("ann", 0, 1), ("bob", 0, 1)]


def test_a_tick_goes_through_groupings() -> None:
    shop = Shop(partitions=3)
    totals = shop.count().apply(lambda value: {"total": value["value"], "all": "all"}).group_by("all")
    shop.count(totals).to_topic(shop.counts)
    driver = TopologyTestDriver(shop.app)
    for number in range(6):
        driver.pipe(shop.clicks, {}, key=str(number), timestamp=7_100, partition=number % 3)
    driver.advance(5_000)
    assert counts(driver, shop.counts) == [], "the windows of all clicks have just begun"
    driver.advance(5_000)
    assert counts(driver, shop.counts) == [("all", 7_000, 6)]


def test_what_fails_on_a_tick_ends_the_application() -> None:
    shop = Shop()
    shop.count().apply(lambda value: value["missing"]).to_topic(shop.counts)
    driver = TopologyTestDriver(shop.app)
    driver.pipe(shop.clicks, {}, key="ann", timestamp=100)
    with pytest.raises(ProcessingError, match=r"apply-\d+ .* failed on clicks\[0\] at offset 1 .*KeyError"):
        driver.advance(5_000)


def test_a_failure_that_is_skipped_leaves_the_other_windows() -> None:
    seen: list[Any] = []

    def skip(error: Exception, record: Any, logger: Any) -> bool:
        seen.append((type(error), record.value))
        return True

    shop = Shop(on_processing_error=skip)
    shop.count().apply(lambda value, key, timestamp, headers: {"ann": 1}[key], metadata=True).to_topic(shop.counts)
    driver = TopologyTestDriver(shop.app)
    for key in ("zoe", "ann", "bob"):
        driver.pipe(shop.clicks, {}, key=key, timestamp=100)
    for _ in range(3):
        driver.advance(5_000)
    assert [record.value for record in driver.read(shop.counts)] == [1]
    assert seen == [(KeyError, None), (KeyError, None)]


def test_outputs_of_ticks_reach_sinks_without_an_offset_of_a_record() -> None:
    shop = Shop()
    sink = ListSink(metadata=True)
    shop.count().sink(sink)
    driver = TopologyTestDriver(shop.app)
    driver.pipe(shop.clicks, {}, key="ann", timestamp=100)
    driver.advance(5_000)
    assert [(row["_key"], row["value"], row["_topic"], row["_partition"]) for row in sink] == [("ann", 1, "clicks", 0)]
    # By the wall clock, and by how many ticks there were in this millisecond.
    assert -5_001_000 < sink[0]["_offset"] <= -5_000_000


def test_functions_may_ask_for_the_context() -> None:
    shop = Shop()
    found: list[Any] = []
    shop.count().update(lambda value: found.append(message_context()))
    driver = TopologyTestDriver(shop.app)
    driver.pipe(shop.clicks, {}, key="ann", timestamp=100)
    driver.advance(5_000)
    assert [(context.topic, context.partition, context.offset, context.key) for context in found] == [
        ("clicks", 0, 1, None)
    ]


def test_a_silent_partition_holds_all_windows_open_for_as_long_as_the_idle_timeout() -> None:
    shop = Shop(partitions=2)
    shop.count(idle_timeout_ms=timedelta(days=1)).to_topic(shop.counts)
    driver = TopologyTestDriver(shop.app)
    driver.pipe(shop.clicks, {}, key="ann", timestamp=100, partition=0)
    driver.pipe(shop.clicks, {}, key="ann", timestamp=9_000, partition=0)
    driver.advance(1_000_000)
    assert counts(driver, shop.counts) == []
    driver.pipe(shop.clicks, {}, key="bob", timestamp=5_000, partition=1)
    assert counts(driver, shop.counts) == [("ann", 0, 1)]


class Rows(ListSink):
    """Keeps values by the key that the documentation recommends."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[tuple[str, int, int, int], Any] = {}
        self.items = 0

    def write(self, batch: SinkBatch) -> None:
        numbers: dict[int, int] = {}
        for item in batch:
            number = numbers[item.offset] = numbers.get(item.offset, -1) + 1
            self.rows[batch.topic, batch.partition, item.offset, number] = item.value
            self.items += 1


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_what_time_has_made_is_told_from_what_the_next_record_gives(guarantee: str) -> None:
    """Also what two ticks have made in front of the same record."""
    shop, rows = Shop(partitions=2, processing_guarantee=guarantee), Rows()
    shop.count().sink(rows)
    shop.sdf.apply(lambda value: ["one", "two"], expand=True).sink(rows)
    driver = TopologyTestDriver(shop.app, start=1_000)
    for timestamp in (100, 1_100):
        driver.pipe(shop.clicks, {}, key="ann", timestamp=timestamp, partition=0)
    driver.pipe(shop.clicks, {}, key="bob", timestamp=1_500, partition=1)
    driver.pipe(shop.clicks, {}, key="bob", timestamp=2_500, partition=1)
    driver.advance(6_000)
    driver.pipe(shop.clicks, {}, key="bob", timestamp=3_500, partition=1)
    driver.pipe(shop.clicks, {}, key="ann", timestamp=3_600, partition=0)
    assert len(rows.rows) == rows.items
    made = {place: value for place, value in rows.rows.items() if isinstance(value, dict)}
    assert sorted((value["start"], place[1]) for place, value in made.items()) == [
        (0, 0),
        (1_000, 0),
        (1_000, 1),
        (2_000, 1),
    ]
    assert all(offset < 0 for _, _, offset, _ in made)
    ofs = {place[2] for place in made if place[1] == 0}
    assert len(ofs) == 2, "each tick has a number of its own"
    assert {offset for _, _, offset, _ in rows.rows.keys() - made.keys()} == {0, 1, 2}
