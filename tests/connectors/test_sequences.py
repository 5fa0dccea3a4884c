"""`CollectionSource` and `NumberSequenceSource`: known values, each once."""

import json
from typing import Any

import pytest

from streamrt.connectors import CollectionSource, NumberSequenceSource, StatefulSource
from streamrt.errors import ArgumentTypeError, ArgumentValueError, SourceError
from streamrt.testing.connectors import MemorySourceStore, RecordingProducer, StatefulSourceConformance
from streamrt.topics import Topic


class TestCollectionSource(StatefulSourceConformance):
    def make(self) -> StatefulSource:
        return CollectionSource([{"number": number} for number in range(100)])


class TestNumberSequenceSource(StatefulSourceConformance):
    def make(self) -> StatefulSource:
        return NumberSequenceSource(1, 100)


def run(source: StatefulSource, store: MemorySourceStore | None = None) -> RecordingProducer:
    producer = RecordingProducer()
    topic = Topic("in", key_serializer="str")
    source.configure(topic, producer, store_partition=store or MemorySourceStore())
    source.start()
    return producer


def values(source: StatefulSource, store: MemorySourceStore | None = None) -> list[Any]:
    return [json.loads(record.value or b"") for record in run(source, store).records]


@pytest.mark.rows("PF-B1")
def test_elements_come_in_order_with_keys_and_timestamps() -> None:
    orders = [{"id": "b", "at": 7}, {"id": "a", "at": 5}]
    records = run(CollectionSource(orders, key=lambda order: order["id"], timestamp=lambda order: order["at"])).records
    assert [(json.loads(each.value or b""), each.key, each.timestamp) for each in records] == [
        (orders[0], b"b", 7),
        (orders[1], b"a", 5),
    ]


@pytest.mark.rows("PF-B5")
def test_both_ends_of_a_sequence_are_in_it() -> None:
    assert values(NumberSequenceSource(-1, 2)) == [-1, 0, 1, 2]
    assert values(NumberSequenceSource(5, 5)) == [5]
    assert values(NumberSequenceSource(5, 4)) == []
    assert run(NumberSequenceSource(7, 7, key=str, timestamp=lambda number: number)).records[0].timestamp == 7


def test_a_restart_goes_on_behind_the_last_element() -> None:
    store = MemorySourceStore()
    assert values(CollectionSource([1, 2]), store) == [1, 2]
    assert values(CollectionSource([1, 2, 3]), store) == [3]
    assert values(CollectionSource([1, 2, 3]), store) == []
    with pytest.raises(SourceError, match="has 2 values, and has produced 3 before"):
        run(CollectionSource([1, 2]), store)


def test_a_value_that_cannot_be_produced_is_named() -> None:
    with pytest.raises(SourceError, match=r"value 1 of the source collection cannot be produced: KeyError: 'id'"):
        run(CollectionSource([{"id": 1}, {}], key=lambda order: str(order["id"])))


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ArgumentValueError, match="at least one element, got an empty one"):
        CollectionSource([])
    with pytest.raises(ArgumentTypeError, match="got str"):
        CollectionSource("text")
    with pytest.raises(ArgumentTypeError, match=r"NumberSequenceSource\(end=...\) must be an int, got 1.5"):
        NumberSequenceSource(1, 1.5)  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match=r"CollectionSource\(key=...\)"):
        CollectionSource([1], key="id")  # type: ignore[arg-type]
