"""The at-least-once writer says when its records are delivered, without a further record or a flush."""

import contextlib
import sys

import pytest

from streamrt.kafka import ConnectionConfig
from streamrt.kafka.writing.record_writer import KafkaRecordWriter
from tests.support import wait_until
from tests.unit.mock_cluster import mock_cluster

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the mock cluster is found by way of /proc")


def test_a_writer_notices_by_itself_that_records_are_delivered() -> None:
    # As the positions that follow a commit: nothing else comes if the input is idle, and merges behind it wait.
    with mock_cluster() as brokers:
        writer = KafkaRecordWriter(ConnectionConfig(bootstrap_servers=brokers.address), {"linger.ms": 0})
        with contextlib.closing(writer):
            writer.produce("out", b"1", None, 1_000, None)
            wait_until(lambda: writer.delivered, what="the delivery", timeout_s=60)
            assert writer.flush() == []
