"""`PubSubSource` against the server of Google's Go library."""

import logging
import threading
import time
from typing import Any

import cloudpickle
import pytest

from streamrt.connectors.failures import PassingError
from streamrt.connectors.google.pubsub_source import PubSubSource, PubSubSubscriptionNotFound
from streamrt.errors import ConfigurationError, SourceError
from streamrt.testing.connectors import RecordingProducer, SourceConformance
from tests.connectors.proxy import Proxy, silent_port
from tests.connectors.pubsub_emulator import PROJECT, PubSubServer, pubsub
from tests.connectors.sources import configured, running
from tests.servers import free_port
from tests.support import unique, wait_until

__all__ = ["pubsub"]


@pytest.fixture
def topic(pubsub: PubSubServer) -> str:
    """A topic with a subscription of the same name."""
    name = unique("topic")
    pubsub.create_topic(name)
    pubsub.subscribe(name, name)
    return name


def source_of(server: PubSubServer, topic: str, **settings: Any) -> PubSubSource:
    chosen = {"project_id": PROJECT, "topic_id": topic, "subscription_id": topic, "emulator_host": server.host}
    return PubSubSource(**{**chosen, **settings})


def values_of(producer: RecordingProducer) -> list[int]:
    return [int(record.value or b"") for record in producer.records]


@pytest.mark.slow
class TestPubSubSource(SourceConformance):
    @pytest.fixture(autouse=True)
    def place(self, pubsub: PubSubServer, topic: str) -> None:
        pubsub.publish(topic, 1, 2, 3)
        self.server, self.topic = pubsub, topic

    def make(self) -> PubSubSource:
        return source_of(self.server, self.topic)


def test_a_record_keeps_what_the_message_has(pubsub: PubSubServer, topic: str) -> None:
    begun = int(time.time() * 1000)
    pubsub.publish(topic, 5, ordering_key="ada", attributes={"trace": "größe"})
    pubsub.publish(topic, 6)
    producer = RecordingProducer()
    with running(source_of(pubsub, topic), producer):
        wait_until(lambda: len(producer.records) == 2)
    first, second = sorted(producer.records, key=lambda record: record.value or b"")
    assert (first.value, first.key) == (b"5", b"ada")
    assert begun <= (first.timestamp or 0) <= time.time() * 1000
    headers = dict(first.headers or ())
    assert headers.pop("pubsub.message_id")
    assert headers == {"trace": "größe".encode()}
    assert (second.value, second.key) == (b"6", None)


@pytest.mark.slow
def test_messages_are_acknowledged_after_the_flush(pubsub: PubSubServer, topic: str) -> None:
    pubsub.publish(topic, *range(250))
    producer = RecordingProducer()
    source = source_of(pubsub, topic, commit_every=100)
    acknowledged: list[int] = []
    early: list[bool] = []
    configured(source, producer)
    acknowledge = source.acknowledge

    def looking(handles: Any) -> None:
        acknowledged.extend([1] * len(handles))
        early.append(len(acknowledged) > producer.flushed)
        acknowledge(handles)

    source.acknowledge = looking  # type: ignore[method-assign]
    with running(source, producer):
        wait_until(lambda: len(acknowledged) == 250)
    assert sorted(values_of(producer)) == list(range(250))
    assert early
    assert not any(early)
    assert pubsub.pull(topic) == []


@pytest.mark.slow
def test_an_ordered_subscription_is_read_in_order(pubsub: PubSubServer) -> None:
    topic = unique("topic")
    pubsub.create_topic(topic)
    pubsub.subscribe(topic, topic, enable_message_ordering=True)
    for start in range(0, 40, 10):
        for number, key in enumerate("ab"):
            pubsub.publish(topic, *(1_000 * number + value for value in range(start, start + 10)), ordering_key=key)
    producer = RecordingProducer()
    with running(source_of(pubsub, topic, commit_every=7), producer):
        wait_until(lambda: len(producer.records) == 80)
    for number, key in enumerate("ab"):
        found = [int(record.value or b"") for record in producer.records if record.key == key.encode()]
        assert found == [1_000 * number + value for value in range(40)]


@pytest.mark.slow
def test_a_failure_loses_nothing(pubsub: PubSubServer, topic: str) -> None:
    pubsub.publish(topic, *range(5))
    producer = RecordingProducer()
    producer.undelivered = 5
    with pytest.raises(Exception, match="5 records"):
        configured(source_of(pubsub, topic), producer).start()
    again = RecordingProducer()
    begun = time.monotonic()
    with running(source_of(pubsub, topic), again):
        wait_until(lambda: len(again.records) == 5)
    # They were given back, so no one waited for the deadline.
    assert time.monotonic() - begun < 8
    assert sorted(values_of(again)) == list(range(5))


@pytest.mark.slow
def test_deadlines_are_extended_while_kafka_is_slow(pubsub: PubSubServer, topic: str) -> None:
    pubsub.publish(topic, 1)
    producer = RecordingProducer()
    flush = producer.flush
    flushing, release = threading.Event(), threading.Event()

    def slow(timeout: float | None = None) -> int:
        flushing.set()
        release.wait(10)
        return flush(timeout)

    producer.flush = slow  # type: ignore[method-assign]
    source = source_of(pubsub, topic)
    extended: list[int] = []
    extend = source.extend
    check = source.check

    def checking() -> None:
        check()
        # Else the first extension would come after seconds.
        source._lease_s = 1

    def looking(handles: Any, lease_s: int) -> None:
        extend(handles, 10)
        extended.append(len(handles))

    source.check, source.extend = checking, looking  # type: ignore[method-assign]
    with running(source, producer):
        assert flushing.wait(60)
        wait_until(lambda: len(extended) >= 3)
        release.set()
    assert set(extended) == {1}
    assert values_of(producer) == [1]


@pytest.mark.slow
def test_a_message_that_comes_again_before_it_is_acknowledged_is_not_produced_again(
    pubsub: PubSubServer, topic: str
) -> None:
    pubsub.publish(topic, 1)
    producer = RecordingProducer()
    source = source_of(pubsub, topic)
    acknowledge = source.acknowledge
    seen: list[Any] = []

    def failing(handles: Any) -> None:
        seen.append(list(handles))
        if len(seen) == 1:
            # The deadline runs out: the message is delivered again, and its old handle is worth nothing.
            source.extend(handles, 0)
        if len(seen) < 3:
            raise PassingError("it does not answer")
        acknowledge(handles)

    source.acknowledge = failing  # type: ignore[method-assign]
    with running(source, producer):
        wait_until(lambda: len(seen) == 3)
    assert values_of(producer) == [1]
    assert pubsub.pull(topic) == []


@pytest.mark.slow
def test_an_outage_is_waited_out(pubsub: PubSubServer, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "streamrt.connectors")
    proxy = Proxy(pubsub.port)
    pubsub.publish(topic, 1)
    producer = RecordingProducer()
    with running(source_of(pubsub, topic, emulator_host=f"127.0.0.1:{proxy.port}"), producer):
        wait_until(lambda: producer.flushed == 1)
        proxy.close()
        pubsub.publish(topic, 2)
        wait_until(lambda: "does not answer" in caplog.text)
        proxy.open()
        wait_until(lambda: producer.flushed == 2)
    proxy.close()
    assert values_of(producer) == [1, 2]
    # One for each kind of request, not one for each request.
    warnings = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert 1 <= len(warnings) == len(set(warnings)) <= 2
    assert pubsub.pull(topic) == []


@pytest.mark.slow
def test_a_deleted_subscription_ends_the_source(pubsub: PubSubServer, topic: str) -> None:
    pubsub.publish(topic, 1)
    producer = RecordingProducer()
    source = source_of(pubsub, topic)

    def delete() -> None:
        with running(source, producer):
            wait_until(lambda: producer.flushed)
            pubsub.client("Subscriber").delete_subscription(subscription=pubsub.path(topic))
            wait_until(lambda: source._client._client is None)

    with pytest.raises(PubSubSubscriptionNotFound, match=f"cannot read the Pub/Sub subscription {topic} .*no such"):
        delete()


@pytest.mark.slow
def test_a_subscription_is_created_if_wanted(pubsub: PubSubServer) -> None:
    topic = unique("topic")
    pubsub.create_topic(topic)
    with pytest.raises(PubSubSubscriptionNotFound, match="there is no such subscription; create it, or give"):
        configured(source_of(pubsub, topic)).start()
    producer = RecordingProducer()
    # The second one finds it.
    for count in (1, 2):
        connected = threading.Event()
        source = source_of(
            pubsub,
            topic,
            create_subscription=True,
            enable_message_ordering=True,
            on_client_connect_success=connected.set,
        )
        with running(source, producer):
            assert connected.wait(60)
            pubsub.publish(topic, count, ordering_key="a")
            wait_until(lambda: len(producer.records) == count)  # noqa: B023 - called here
    found = pubsub.client("Subscriber").get_subscription(subscription=pubsub.path(topic))
    assert found.enable_message_ordering
    assert values_of(producer) == [1, 2]


@pytest.mark.slow
def test_what_is_missing_or_wrong_is_named(pubsub: PubSubServer, topic: str) -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"topic_id": "nothing", "subscription_id": unique("new"), "create_subscription": True}, "no topic nothing"),
        ({"topic_id": "another"}, f"it belongs to projects/{PROJECT}/topics/{topic}, not to"),
        ({"emulator_host": nowhere}, f"subscription {topic} of the project {PROJECT} at {nowhere}: it does not answer"),
    ]
    for settings, reason in wrong:
        with pytest.raises(SourceError, match=reason):
            configured(source_of(pubsub, **{"topic": topic, **settings})).start()


@pytest.mark.slow
@pytest.mark.parametrize("started", [False, True], ids=["while it connects", "while it reads"])
def test_stop_does_not_wait_for_a_server_that_hangs(pubsub: PubSubServer, topic: str, started: bool) -> None:
    producer = RecordingProducer()
    pubsub.publish(topic, 1)
    with silent_port() as port:
        source = source_of(pubsub, topic, **({} if started else {"emulator_host": f"127.0.0.1:{port}"}))
        try:
            with running(source, producer):
                if started:
                    wait_until(lambda: producer.records)
                    pubsub.freeze()
                else:
                    wait_until(lambda: source._client._client is not None)
                begun = time.monotonic()
            assert time.monotonic() - begun < 8
        finally:
            if started:
                pubsub.thaw()


def test_secrets_are_in_no_repr_and_no_pickle() -> None:
    key = '{"type": "service_account", "private_key": "hidden"}'
    source = PubSubSource(PROJECT, "orders", "orders", service_account_json=key)
    assert "hidden" not in f"{source!r} {vars(source)!r} {cloudpickle.dumps(source)!r}"


def test_its_topic_holds_bytes() -> None:
    topic = PubSubSource(PROJECT, "orders", "mine").default_topic()
    assert topic.name == "pubsub_mine_orders"
    assert topic.serialize("key", b"\xff").value == b"\xff"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"subscription_id": ""}, "subscription_id"),
        ({"commit_every": 0}, "commit_every"),
        ({"commit_interval": None}, "commit_interval"),
        ({"create_subscription": "yes"}, "create_subscription"),
        ({"name": ""}, "name"),
        ({"colour": "red"}, "unknown arguments: colour"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        PubSubSource(**{"project_id": PROJECT, "topic_id": "orders", "subscription_id": "mine", **arguments})


def test_the_library_is_named_if_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match="PubSubSource needs the package"):
        PubSubSource(PROJECT, "orders", "mine")
