"""Timestamps of records that are produced: 0 must not become the wall clock, and negative ones are refused."""

from typing import Any

import pytest

from streamrt import DeadLetters
from streamrt.errors import ProducerError
from streamrt.kafka.wire import client_timestamp
from streamrt.testing.memory_topics import MemoryLinks
from tests.unit.apps import START, Stage

TEXT: dict[str, Any] = {"key_serializer": "str", "key_deserializer": "str"}
both_guarantees = pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
EPOCH_MS = 1
"""Timestamp with which the epoch itself is written."""


def test_only_the_absence_of_a_timestamp_is_now() -> None:
    assert [client_timestamp(each, "out") for each in (None, 0, 1, 253_402_300_800_000)] == [
        0,
        1,
        1,
        253_402_300_800_000,
    ]


@both_guarantees
@pytest.mark.usefixtures("processing_mode")
def test_results_of_the_epoch_do_not_get_the_wall_clock(guarantee: str) -> None:
    stage = Stage(TEXT, TEXT, processing_guarantee=guarantee)
    stage.sdf.to_topic(stage.out)
    stage.sdf.set_timestamp(lambda *_: 0).to_topic(stage.app.topic("set", **TEXT))
    stage.sdf.tumbling_window(10).sum().final().to_topic(stage.app.topic("sums", **TEXT))
    stage.sdf.group_by(lambda value: "all", name="all").to_topic(stage.app.topic("grouped", **TEXT))
    with stage.drive() as driver:
        driver.pipe("in", 5, key="k", timestamp=0)
        driver.pipe("in", 6, key="k", timestamp=START)
        times = {name: [each.timestamp for each in driver.read(name)] for name in ("out", "set", "sums", "grouped")}
    assert times == {"out": [EPOCH_MS, START], "set": [EPOCH_MS] * 2, "sums": [EPOCH_MS], "grouped": [EPOCH_MS, START]}


@both_guarantees
@pytest.mark.usefixtures("processing_mode")
def test_a_dead_letter_of_the_epoch_keeps_its_time(guarantee: str) -> None:
    stage = Stage(processing_guarantee=guarantee, on_error=DeadLetters())
    stage.sdf.apply(lambda value: 1 / value)
    with stage.drive() as driver:
        driver.pipe("in", 0, timestamp=0)
        assert [each.timestamp for each in driver.read("dead-letters__group")] == [EPOCH_MS]


@both_guarantees
@pytest.mark.usefixtures("processing_mode")
def test_a_record_before_1970_is_refused_with_advice(guarantee: str) -> None:
    stage = Stage(processing_guarantee=guarantee)
    stage.sdf.to_topic(stage.out)
    with stage.drive() as driver, pytest.raises(ProducerError, match=r"timestamp is -5 ms.*set_timestamp\(\)"):
        driver.pipe("in", 5, timestamp=-5)


def test_a_topic_in_memory_keeps_the_same_timestamps() -> None:
    links = MemoryLinks(auto_create=True)
    sent: list[int] = []
    sender = links.sender()
    for timestamp in (0, 7):
        sender.produce("t", b"v", None, timestamp, on_delivery=lambda error, partition, offset, at: sent.append(at))
    sender.flush(1)
    assert sent == [EPOCH_MS, 7]
    with pytest.raises(ProducerError, match="timestamp is -1 ms"):
        sender.produce("t", b"v", None, -1)
