"""Many records in one call: what a producer takes of them, in which order, and what is told of those that are lost."""

import _thread
import logging
import threading
import time
from collections.abc import Sequence

import pytest

from streamrt.errors import ProducerError
from streamrt.kafka.connection import as_connection
from streamrt.kafka.writing.portion import Portion, produce_each
from streamrt.kafka.writing.sender import KafkaSender
from streamrt.tables.rows.row_encoder import EncodedRows
from streamrt.tables.writing.assigner import RoundRobin
from streamrt.tables.writing.portions import portions_of
from streamrt.testing.memory_topics import MemoryLinks

NOBODY = "127.0.0.1:1"
TIMES = [None, [1_000] * 20]


def values(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "streamrt.kafka")


@pytest.mark.parametrize("timestamps", TIMES)
def test_a_queue_takes_the_first_ones_and_names_what_it_loses(timestamps: Sequence[int] | None) -> None:
    sender = KafkaSender(as_connection(NOBODY), {"queue.buffering.max.messages": 7})
    portion = Portion(values(20), None, timestamps, numbers=range(100, 140, 2))
    assert portion.offer(sender._producer, "orders") is None
    assert (portion.accepted, portion.outstanding, portion.settled) == (7, 7, False)
    assert portion.offer(sender._producer, "orders") is None
    assert portion.accepted == 7
    portion.finish()
    sender.close()
    assert portion.settled
    assert sorted(number for number, _ in portion.lost) == list(range(100, 114, 2))
    assert "was not delivered" in str(portion.take_losses()[0][1])
    assert portion.take_losses() == []


@pytest.mark.parametrize("timestamps", TIMES)
def test_record_that_is_refused(timestamps: Sequence[int] | None) -> None:
    sender = KafkaSender(as_connection(NOBODY), {"message.max.bytes": 1_000})
    large = [b"a", b"b", b"x" * 2_000, *values(17)]
    portion = Portion(large, [b"k"] * 20, timestamps)
    with pytest.raises(ProducerError, match=r"a record of 2,001 bytes for topic 'orders' was refused"):
        sender.produce_all("orders", portion)
    portion.finish()
    lost_later = ProducerError("the writer was closed")
    portion.end(lost_later)
    sender.close()
    assert portion.settled
    assert portion.accepted == len(portion.lost)
    assert portion.lost[0][1] is lost_later
    assert 2 not in {number for number, _ in portion.lost}


def test_interrupted_portion_is_never_settled_and_waits_for_nothing() -> None:
    portion = Portion(values(3))
    portion.accepted = 1
    portion.finish(doubtful=True)
    for place in range(3):
        portion.record_outcome(place, None, 0, 7 + place, 0)
    assert (portion.outstanding, portion.settled, portion.last) == (0, False, {0: 9})


def test_records_one_by_one_in_memory() -> None:
    links = MemoryLinks(auto_create=True)
    sender = links.sender()
    portion = Portion(values(3), [b"k"] * 3, [1, 2, 3], 0)
    produce_each(sender.produce, "orders", portion)
    sender.flush(1)
    portion.finish()
    assert (portion.settled, portion.delivered, portion.last) == (True, 3, {0: 2})


@pytest.mark.parametrize("count", [0, 1, 2, 999, 1_000, 2_999, 7_001])
@pytest.mark.parametrize("partitions", [None, 1, 3])
def test_rows_are_in_one_portion_each_and_go_around(count: int, partitions: int | None) -> None:
    rows = EncodedRows(values(count), values(count), list(range(count)))
    around = None if partitions is None else RoundRobin("t", partitions, lambda: None)
    if around is not None:
        around.take()
    found = list(portions_of(rows, 50, around))
    assert sorted(number for each in found for number in each.numbers) == list(range(50, 50 + count))
    for each in found:
        assert len(each) == len(each.values)
        assert 0 < len(each) <= 1_000
        assert each.keys == each.values == [b"%d" % (number - 50) for number in each.numbers]
        if partitions is not None:
            assert {(number - 50 + 1) % partitions for number in each.numbers} == {each.partition}
    if around is not None:
        assert around.take() == (count + 1) % (partitions or 1)


def test_interrupt_ends_a_flush() -> None:
    sender = KafkaSender(as_connection(NOBODY), {"linger.ms": 100_000})
    sender.produce("orders", b"1", None)
    timer = threading.Timer(0.1, _thread.interrupt_main)
    timer.start()
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        sender.flush(60)
    assert time.monotonic() - begun < 30
    timer.join()
    sender.close()


def test_sender_in_memory_reports_by_itself() -> None:
    links = MemoryLinks(auto_create=True)
    sender = links.sender()
    told: list[int] = []
    for _ in range(5_000):
        sender.produce("orders", b"1", None, on_delivery=lambda error, partition, offset, at: told.append(offset))
    assert told == list(range(4_000))
    sender.poll()
    assert told == list(range(5_000))
