"""A producer that meets a fatal error takes records along: the work is done again, and nothing of it may be skipped."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError

from streamrt.errors import ProducerError
from streamrt.kafka import ConnectionConfig
from streamrt.kafka.writing.record_writer import KafkaRecordWriter, WriterFailedError
from streamrt.models import OffsetRange
from streamrt.runtime.tasks.task_clients import RecordWriter
from tests.unit.commit_world import World
from tests.unit.mock_cluster import MockCluster, mock_cluster
from tests.unit.tasks import PLACE, TASK, numbers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the mock cluster is found by way of /proc")

FATAL = KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER
"""For librdkafka it is fatal if a broker says so of the oldest request on its way."""


@pytest.fixture
def brokers() -> Iterator[MockCluster]:
    with mock_cluster() as cluster:
        yield cluster


def writer_to(brokers: MockCluster) -> KafkaRecordWriter:
    return KafkaRecordWriter(ConnectionConfig(bootstrap_servers=brokers.address))


def produce(writer: RecordWriter, count: int) -> None:
    for number in range(count):
        writer.produce("out", b"%d" % number, None, 1_000, None)


def test_fault_10_a_fatal_error_is_no_list_of_lost_records(brokers: MockCluster) -> None:
    writer = writer_to(brokers)
    produce(writer, 1)
    assert writer.flush() == []
    brokers.refuse_produce_requests(FATAL)
    produce(writer, 3)
    for _ in range(2):
        with pytest.raises(WriterFailedError, match=r"fatal error .*sequence") as caught:
            writer.flush()
        assert caught.value.retriable
    assert writer.failed
    with pytest.raises(WriterFailedError, match=r"fatal error .*sequence"):
        produce(writer, 1)
    writer.close()


def test_fault_10_records_that_go_with_their_producer_are_not_told_one_by_one(brokers: MockCluster) -> None:
    # librdkafka goes on with a new epoch here, but has given up records with which nothing is wrong.
    writer = writer_to(brokers)
    produce(writer, 1)
    assert writer.flush() == []
    brokers.refuse_produce_requests(KafkaError.INVALID_PRODUCER_EPOCH)
    produce(writer, 3)
    with pytest.raises(WriterFailedError, match="epoch"):
        writer.flush()
    assert writer.failed
    writer.close()


def test_fault_10_a_record_that_is_refused_for_itself_is_told_by_itself(brokers: MockCluster) -> None:
    writer = writer_to(brokers)
    brokers.refuse_produce_requests(KafkaError.MSG_SIZE_TOO_LARGE)
    produce(writer, 1)
    (error,) = writer.flush()
    assert isinstance(error, ProducerError)
    assert (error.topic, error.refused, writer.failed) == ("out", True, False)
    writer.close()


class Skipping:
    """Answers that every record may be skipped, and notes what it was asked about."""

    def __init__(self) -> None:
        self.asked: list[Exception] = []

    def __call__(self, error: Exception, record: Any, logger: Any) -> bool:
        self.asked.append(error)
        return True


@pytest.mark.usefixtures("processing_mode")
@pytest.mark.parametrize("during", ["the flush", "the changelog", "the outputs"])
def test_fault_10_no_callback_is_asked_and_the_work_is_done_again(brokers: MockCluster, during: str) -> None:
    skip = Skipping()
    world = World(transactional=False, on_producer_error=skip)
    writers: list[KafkaRecordWriter] = []

    class Both:
        """Produces to real brokers, and to the memory that changelogs are read from only what those have taken."""

        def __init__(self) -> None:
            self.real = writer_to(brokers)
            self.taken: list[tuple[Any, ...]] = []
            writers.append(self.real)

        def produce(self, *record: Any) -> None:
            self.real.produce(*record)
            self.taken.append(record)
            if (during, record[0]) in (("the outputs", "out"), ("the changelog", "log")):
                # What follows is refused by the client itself.
                self.flush_now()

        def flush_now(self) -> None:
            if self.real.failed or not refusing:
                return
            with pytest.raises(WriterFailedError):
                self.real.flush()

        def flush(self) -> list[Exception]:
            errors = self.real.flush()
            for record in self.taken:
                world.clients.produce(*record)
            self.taken.clear()
            return errors

    both = [Both()]

    def writer() -> RecordWriter:
        if both[0].real.failed:
            both[0] = Both()
        return both[0]

    world.clients.writer = writer  # type: ignore[method-assign]
    refusing = False
    assert world.run(numbers(2)).ranges == {PLACE: OffsetRange("in", 0, 0, 2)}
    refusing = True
    brokers.refuse_produce_requests(FATAL)
    report = world.run(numbers(3, start=2), positions={PLACE: 2})
    assert skip.asked == []
    assert report.failure is None
    assert "fatal error" in report.interrupted[TASK]
    assert report.ranges[PLACE].end == 2
    assert (report.records, report.outputs, report.collected) == (0, 0, [])
    assert world.counted == 2
    refusing = False
    # Another disk knows as much.
    world.catalog.disk.destroy(0)
    again = world.run(numbers(3, start=2), positions={PLACE: 2})
    assert again.ranges[PLACE].end == 5
    assert again.failure is None
    assert world.counted == 5
    assert len(writers) == 2
    for each in writers:
        each.close()
