"""The lease among processes, with a broker; `test_sources_one_instance.py` has processes that are frozen and killed."""

import threading
import time

import pytest
from confluent_kafka import KafkaError, TopicPartition

from streamrt.kafka import ConnectionConfig, Consumer, KafkaRequestError
from streamrt.kafka.membership.lease import GroupLease
from tests.support import Kafka, unique

pytestmark = [pytest.mark.kafka]


def test_brokers_are_asked_only_if_the_process_may_have_missed_its_end(kafka: Kafka) -> None:
    topic, group = kafka.topic(), unique("group")
    connection = ConnectionConfig(bootstrap_servers=kafka.address)
    reader = Consumer(connection, group, "earliest", auto_commit_enable=False)

    def asked() -> bool:
        """The question is a commit of the offset 0."""
        [partition] = reader.committed([TopicPartition(topic, 0)], 60)
        return bool(partition.offset == 0)

    with GroupLease(connection, group, topic, on_end=lambda lost: None) as lease:
        assert lease.acquire(300)
        assert lease.confirm()
        assert not asked()
        lease._ran_at = time.monotonic() - 3600
        assert lease.confirm()
        assert asked()
    reader.close()


def test_work_that_takes_long_to_end_may_go_on_meanwhile(kafka: Kafka) -> None:
    """The lease's thread waits for it, for longer than the session timeout."""
    topic, group = kafka.topic(), unique("group")
    ending, over = threading.Event(), threading.Event()

    def end(lost: bool) -> None:
        ending.set()
        assert over.wait(300)

    lease = GroupLease(kafka.address, group, topic, on_end=end, options={"session.timeout.ms": 6_000})
    lease.start()
    assert lease.acquire(300)
    lease._session_timeout_s = 0.001
    closing = threading.Thread(target=lease.close)
    closing.start()
    assert ending.wait(300)
    lease._in_doubt = False
    assert all(lease.confirm() and not lease._in_doubt for _ in range(1000))
    over.set()
    closing.join()


def test_work_that_takes_long_to_end_after_an_error_may_go_on_meanwhile(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    confirmed: list[bool] = []
    ended = threading.Event()

    def end(lost: bool) -> None:
        lease._session_timeout_s = -1.0
        # A question would need it.
        changed, lease._changed = lease._changed, None  # type: ignore[assignment]
        try:
            confirmed.append(lease.confirm())
        finally:
            lease._changed = changed
            ended.set()

    lease = GroupLease(kafka.address, unique("group"), kafka.topic(), on_end=end)
    monkeypatch.setattr(
        lease, "_handle_error", lambda error: lease._store_failure(KafkaRequestError("the group is not allowed"))
    )
    with lease:
        assert lease.acquire(300)
        lease._fatal = KafkaError(KafkaError._FATAL)
        assert ended.wait(300)
    assert confirmed == [True]
