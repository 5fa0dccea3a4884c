"""Networks that lose requests and answers, deliver them late, or close connections: whatever happens, records count once."""

import contextlib
import functools
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streamrt.errors import TransactionError
from streamrt.kafka import ConnectionConfig, KafkaError
from streamrt.kafka.membership import group_member
from streamrt.kafka.membership.group_member import GroupMember
from streamrt.kafka.writing.transactions import KafkaTransactionalWriter
from streamrt.records import TopicPartition
from tests.chaos import Flow, Outputs, judge, judge_windows, program_source
from tests.kafka.broker_proxy import API_KEYS, BrokerProxy, Disturbance, proxied_broker
from tests.support import LONG, Kafka, Program, in_protocols, unique, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.kafka]

REQUESTS_OF_TRANSACTIONS = ("AddPartitionsToTxn", "Produce", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn")


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


@pytest.mark.parametrize("name", REQUESTS_OF_TRANSACTIONS)
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


def test_a_producer_that_was_refused_before_it_was_connected_is_used_again(setting: Setting) -> None:
    setting.proxy.close()
    opening = threading.Timer(0.3, setting.proxy.open)
    opening.start()
    writer = setting.writer()
    opening.join()
    for _ in range(2):
        setting.produce(writer)
        setting.commit(writer)
        assert writer.usable
    writer.close()


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


class Network:
    """Disturbs an application, and waits until records are counted again.

    Args:
        proxy: its way to the broker.
        outputs: what it puts out.
        seed: decides what happens in long runs.
    """

    def __init__(self, proxy: BrokerProxy, outputs: Outputs, seed: int) -> None:
        self._proxy = proxy
        self._outputs = outputs
        self._chance = random.Random(seed)

    def trouble(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """Yield what happens, each with its name."""
        if not LONG:
            yield from ((name, functools.partial(self._disturb, name)) for name in REQUESTS_OF_TRANSACTIONS)
            # Each may arrive in a transaction that has been produced to, or not.
            yield from (("ends", functools.partial(self._disturb_ends, late_s)) for late_s in (0.2, 0.35))
            yield "no answer for longer than a session", functools.partial(self._hold, 8.0)
            yield "no way", functools.partial(self._close, 1.0)
            return
        for _ in range(60):
            if self._chance.random() < 0.2:
                act = self._chance.choice((self._hold, self._close))
                yield act.__name__, functools.partial(act, self._chance.choice((0.5, 2.0, 5.0, 9.0)))
                continue
            name, kind = self._chance.choice([*API_KEYS]), self._chance.choice([*Disturbance])
            late_s = self._chance.choice((0.2, 1.0, 3.0, 8.0))
            yield f"{name}: {kind.value} {late_s}", functools.partial(self._disturb, name, kind, late_s)

    def happen(self, name: str, act: Callable[[], None]) -> None:
        """Let something happen."""
        seen = self._outputs.count
        print(f"{seen} outputs: {name}")
        act()
        self._outputs.wait_for(seen + 50)

    def _disturb(self, name: str, kind: Disturbance = Disturbance.LATE_REQUEST, late_s: float = 1.0) -> None:
        self._proxy.disturb(name, kind, late_s)

    def _disturb_ends(self, late_s: float) -> None:
        for number in range(8):
            self._disturb("EndTxn", late_s=late_s + number / 20)

    def _hold(self, seconds: float) -> None:
        with self._proxy.holding():
            time.sleep(seconds)

    def _close(self, seconds: float) -> None:
        self._proxy.close()
        time.sleep(seconds)
        self._proxy.open()


@pytest.mark.parametrize(
    ("mode", "master"),
    [("resident", "processes[2]"), ("micro-batch", "local[2]")] if LONG else [("resident", "processes[2]")],
)
@in_protocols("classic")
def test_whatever_a_network_does_each_record_counts_once(
    setting: Setting, program: Callable[..., Program], tmp_path: Path, mode: str, master: str, group_protocol: str
) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    kafka, proxy = setting.kafka, setting.proxy
    source, target = kafka.topic("in", 4), kafka.topic("out", 2)
    flow, outputs = Flow(kafka.address, source, seed), Outputs(kafka.address, target)
    options: dict[str, object] = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 300}
    consumer = options if group_protocol == "classic" else {}
    settings = f"""commit_interval=0.3,
    processing_mode={mode!r},
    spark_master={master!r},
    group_protocol={group_protocol!r},"""
    text = program_source(proxy.address, source, target, tmp_path / "state", setting.group, consumer)
    network = Network(proxy, outputs, seed)
    try:
        app = program(text.replace("commit_interval=1.0,", settings))
        with flow.running(outputs, per_step=30, pause_s=0.1):
            outputs.wait_for(200)
            for name, act in network.trouble():
                network.happen(name, act)
            proxy.disturb_no_more()
        flow.read_back()
        outputs.wait_for(flow.count)
        assert app.end()[0] == 0
        judge(flow, outputs)
        judge_windows(flow, outputs)
    finally:
        outputs.close()
