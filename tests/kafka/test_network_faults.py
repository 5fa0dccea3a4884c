"""Networks that lose requests and answers, deliver them late, or close connections: whatever happens, records count once."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamrt.errors import TransactionError
from streamrt.kafka import ConnectionConfig, KafkaError
from streamrt.kafka.membership import group_member
from streamrt.kafka.membership.group_member import GroupMember
from streamrt.kafka.writing.transactions import KafkaTransactionalWriter
from streamrt.records import TopicPartition
from tests.kafka.broker_proxy import BrokerProxy, Disturbance, proxied_broker
from tests.support import Kafka, unique, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.kafka]


@pytest.fixture(scope="module")
def ways() -> Iterator[tuple[str, BrokerProxy]]:
    """The address of a broker, and the disturbed way to it."""
    with proxied_broker() as (broker, proxy):
        yield broker.bootstrap_servers, proxy


class Setting:
    """A group that moves values from one topic to another, on a way that is disturbed."""

    def __init__(self, address: str, proxy: BrokerProxy, directory: Path) -> None:
        self.kafka = Kafka(address, directory)
        self.proxy = proxy
        self.source, self._target = TopicPartition(self.kafka.topic("source"), 0), self.kafka.topic("target")
        self.group = unique("group")
        self._moved = 0

    def writer(self, options: dict[str, Any] | None = None) -> KafkaTransactionalWriter:
        """Return a writer of the group; earlier ones are fenced."""
        connection = ConnectionConfig(bootstrap_servers=self.proxy.address)
        writer = KafkaTransactionalWriter(connection, self.group, self.group, options)
        writer.init(30, self.source.topic)
        return writer

    def produce(self, writer: KafkaTransactionalWriter) -> None:
        """Produce the next value."""
        writer.produce(self._target, b"%d" % self._moved, None, None, None)
        self._moved += 1

    def commit(self, writer: KafkaTransactionalWriter) -> None:
        """Commit what was produced."""
        writer.commit({self.source: self._moved})

    def visible(self) -> list[bytes | None]:
        """Return the values that readers of committed records see now."""
        return [record.value for record in self.kafka.receive_committed(self._target)]


@pytest.fixture
def setting(ways: tuple[str, BrokerProxy], tmp_path: Path) -> Setting:
    return Setting(*ways, tmp_path)


@pytest.mark.parametrize("name", ["AddPartitionsToTxn", "Produce", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"])
def test_a_request_that_may_arrive_late_is_of_the_last_transaction_of_its_producer(setting: Setting, name: str) -> None:
    writer = setting.writer()
    for _ in range(2):
        setting.produce(writer)
        setting.commit(writer)
        assert writer.usable
    setting.proxy.disturb(name, Disturbance.LATE_REQUEST)
    # The client repeats the request, mostly without an error.
    with contextlib.suppress(TransactionError):
        setting.produce(writer)
        setting.commit(writer)
    assert not setting.proxy.planned
    assert not writer.usable
    writer.close()


def test_a_late_end_of_a_transaction_does_not_end_the_next_one(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    # How much is logged does not matter.
    first = setting.writer({"log_level": 3, "log.connection.close": False})
    setting.proxy.disturb("EndTxn", Disturbance.LATE_REQUEST, late_s=1.0)
    late = setting.proxy.arrived_late
    with caplog.at_level("INFO", "streamrt"):
        setting.produce(first)
        setting.commit(first)
    assert caplog.messages == []
    assert first.worn_out
    second = setting.writer()
    setting.produce(second)
    assert second.flush() == []
    assert setting.proxy.arrived_late == late
    wait_until(lambda: setting.proxy.arrived_late > late)
    assert setting.visible() == [b"0"]
    setting.commit(second)
    wait_until(lambda: setting.visible() == [b"0", b"1"])
    first.close()
    second.close()


class DelayedMember(GroupMember):
    """A static member with a heartbeat that arrives when it has joined again after a loss: brokers refuse its client."""

    _told = False
    _delayed = False

    def _tell_lost(self, lost: frozenset[TopicPartition]) -> None:
        super()._tell_lost(lost)
        self._told = True

    def _send_next(self) -> None:
        super()._send_next()
        if self._told and not self._delayed:
            self._delayed = True
            self._on_client_error(KafkaError(KafkaError.FENCED_INSTANCE_ID, fatal=True))


def test_a_static_member_that_is_refused_when_it_joins_again_after_a_loss_connects_once_more(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(group_member, "_LONG_WAIT_S", 0.2)
    lost: list[frozenset[TopicPartition]] = []
    member = DelayedMember(
        setting.proxy.address,
        setting.group,
        [setting.source.topic],
        member_options={"session.timeout.ms": 6_000, "heartbeat.interval.ms": 300},
        group_instance_id="one",
        on_revoke=lambda _partitions: None,
        on_lost=lost.append,
    )
    with member:
        assert member.assignment(300) == frozenset({setting.source})
        with setting.proxy.holding():
            wait_until(lambda: lost)
            wait_until(lambda: "no partitions were assigned to this member" in caplog.text)
        assert member.assignment(60) == frozenset({setting.source})
        assert member.generation == 2
        member.commit({setting.source: 1})
    assert lost == [{setting.source}]
