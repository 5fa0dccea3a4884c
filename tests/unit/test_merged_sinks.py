"""Sinks behind a merge: the values of a key come in the order in which the task has made them."""

import json
import random
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamrt import Application
from streamrt.connectors import (
    BatchingSink,
    ListSink,
    SinkBatch,
    SinkCommit,
    SinkItem,
    SinkPosition,
    SparkSink,
    TransactionalSink,
)
from streamrt.connectors.sinks.merged_batches import join_batches, join_partitions
from streamrt.testing import InputRecord, TopologyTestDriver
from tests.support import LONG


class LastRows(BatchingSink):
    """Upserts by key, as tables of databases do."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[Any, Any] = {}
        self.batches = 0

    def write(self, batch: SinkBatch) -> None:
        self.batches += 1
        self.rows.update((json.dumps(item.key), item.value) for item in batch)


class LastRowsInTransactions(TransactionalSink):
    """Does so in transactions."""

    destination = "rows"

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[Any, Any] = {}
        self.stored: dict[tuple[str, int], SinkPosition] = {}

    def positions(self, group: str, partitions: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], SinkPosition]:
        return dict(self.stored)

    def write_transaction(self, batches: Sequence[SinkBatch], commit: SinkCommit) -> None:
        self.rows.update((json.dumps(item.key), item.value) for batch in batches for item in batch)
        self.stored.update({partition: change.after for partition, change in commit.positions.items()})


@pytest.mark.usefixtures("processing_mode")
@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_the_last_write_of_a_key_is_its_last_change(guarantee: Any) -> None:
    app = Application("unused:9092", consumer_group="shop", processing_guarantee=guarantee)
    names = [app.topic(name, key_deserializer="str", key_serializer="str") for name in ("left", "right")]
    left, right = (app.table(name) for name in names)
    batching, transactional, everything = LastRows(), LastRowsInTransactions(), ListSink()
    joined = left.join(right, how="outer", on_merge=lambda one, other: {"left": one, "right": other}).to_stream()
    joined.sink(batching)
    joined.sink(transactional)
    joined.apply(lambda value, key, timestamp, headers: [key, value], metadata=True).sink(everything)
    joined.to_topic(app.topic("out", key_serializer="str", key_deserializer="str"))
    dice = random.Random(3)
    records = [
        InputRecord(dice.choice(names), dice.choice([None, {"n": number}]), f"k{dice.randrange(20)}", number)
        for number in range(1, 400)
    ]
    with TopologyTestDriver(app) as driver:
        driver.pipe_many(records, chunk=100)
        written = [(record.key, record.value) for record in driver.read("out")]
    expected = {json.dumps(key): value for key, value in written}
    assert transactional.rows == expected
    assert batching.rows == expected
    assert list(everything) == [[key, value] for key, value in written]
    # Not one for each turn of the topics.
    assert batching.batches < len(written) / 3


def one_batch(topic: str, partition: int, item: SinkItem) -> SinkBatch:
    batch = SinkBatch(topic, partition)
    batch.extend([item])
    return batch


@st.composite
def arrivals(draw: st.DrawFn) -> list[tuple[str, SinkItem]]:
    """Draw the values of a task: some records give several, of keys that may be lists."""
    offsets = {"a": 0, "b": 0, "c": 0}
    arrived: list[tuple[str, SinkItem]] = []
    for _ in range(draw(st.integers(0, 40))):
        topic = draw(st.sampled_from("abc"))
        offsets[topic] += 1
        for _ in range(draw(st.integers(1, 3))):
            key = draw(st.sampled_from([b"x", "y", ["x", 1], {"z": 2}, None, 5]))
            arrived.append((topic, SinkItem(len(arrived), key, 0, None, offsets[topic])))
    return arrived


@given(arrivals())
@settings(max_examples=1_000 if LONG else 60, deadline=None)
def test_joined_batches_keep_the_order_of_topics_and_of_keys(arrived: list[tuple[str, SinkItem]]) -> None:
    sink = LastRows()
    for topic, item in arrived:
        sink.add(*item[:4], topic, 0, item.offset)
    turns = sink.take_batches()
    assert [(batch.topic, item) for batch in turns for item in batch] == arrived
    assert len(turns) == len(list(groupby(topic for topic, _ in arrived)))
    joined = join_batches(turns)
    written = [(batch.topic, item) for batch in joined for item in batch]
    assert sorted(written, key=lambda each: each[1].value) == arrived
    for topic in "abc":
        assert [item for name, item in written if name == topic] == [item for name, item in arrived if name == topic]
    for key in (b"x", "y", ["x", 1], {"z": 2}, 5):
        assert [item for _, item in written if item.key == key] == [item for _, item in arrived if item.key == key]
    # The number of an item within its offset identifies it.
    homes = [(batch.topic, item.offset, number) for number, batch in enumerate(joined) for item in batch]
    assert len(set(homes)) == len({(topic, item.offset) for topic, item in arrived})
    assert len(join_partitions(turns)) == len({topic for topic, _ in arrived})


def test_values_of_a_record_that_come_apart_stay_in_one_batch() -> None:
    # As those of asynchronous calls, whose results need not be in order.
    items = [("a", 1), ("b", 1), ("a", 1), ("b", 2)]
    joined = join_batches(one_batch(topic, 0, SinkItem(0, "k", 0, None, offset)) for topic, offset in items)
    assert [(batch.topic, [item.offset for item in batch]) for batch in joined] == [("a", [1, 1]), ("b", [1, 2])]


def test_only_the_inputs_of_a_task_are_written() -> None:
    sink = LastRows()
    for topic, partition in [("a", 0), ("other", 0), ("b", 0), ("a", 1), ("a", 0)]:
        sink.add(topic, f"{topic}{partition}", 0, None, topic, partition, 7)
    sink.flush_partitions([("a", 0), ("b", 0)])
    assert sorted(sink.rows.values()) == ["a", "b"]
    sink.drop_partitions([("a", 1)])
    assert [(batch.topic, batch.partition) for batch in sink.take_batches()] == [("other", 0)]


def test_a_spark_sink_names_the_offsets_of_all_turns() -> None:
    received: list[Any] = []
    sink = SparkSink(lambda frame, offsets: received.append(offsets))

    class Session:
        def createDataFrame(self, data: Any, schema: Any = ...) -> Any:  # noqa: N802 - Spark's name
            return data

    sink.use(Session())
    turns = [("a", 3), ("b", 0), ("a", 4), ("b", -5), ("a", 9)]
    sink.write_batches([one_batch(topic, 0, SinkItem(1, None, 0, None, offset)) for topic, offset in turns])
    assert received == [{("a", 0): (3, 10), ("b", 0): (0, 1)}]
