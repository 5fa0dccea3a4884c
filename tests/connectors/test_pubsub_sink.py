"""`PubSubSink` against the server of Google's Go library."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, ClassVar

import cloudpickle
import grpc
import pytest

from streamrt.connectors import SinkBackpressureError
from streamrt.connectors.google import pubsub_sink
from streamrt.connectors.google.pubsub_sink import PubSubSink, PubSubTopicNotFoundError
from streamrt.errors import ConfigurationError, SinkError
from streamrt.testing.connectors import BatchingSinkConformance, Written
from tests.connectors.pubsub_emulator import PROJECT, PubSubServer, pubsub
from tests.connectors.sinks import add
from tests.servers import free_port, workspace
from tests.support import unique, wait_until

__all__ = ["pubsub"]

KEY_OF_ACCOUNT = json.dumps({"type": "service_account", "private_key": "hidden", "client_email": "me@example.com"})


class Topic:
    """A topic with one subscription."""

    def __init__(self, server: PubSubServer, **settings: Any) -> None:
        self.name = unique("topic")
        self._server = server
        self._messages: list[Any] = []
        server.create_topic(self.name)
        server.subscribe(self.name, self.name, **settings)

    def messages(self) -> list[Any]:
        """Return all messages so far."""
        self._messages += self._server.pull(self.name)
        return list(self._messages)

    def values(self) -> list[Any]:
        """Return the values of all messages so far, sorted by the offset of the record."""
        ordered = sorted(self.messages(), key=lambda message: int(message.attributes["__offset"]))
        return [json.loads(message.data) for message in ordered]


@pytest.fixture
def topic(pubsub: PubSubServer) -> Topic:
    return Topic(pubsub)


def sink_of(server: PubSubServer, topic: str, **settings: Any) -> PubSubSink:
    return PubSubSink(PROJECT, topic, **{"emulator_host": server.host, **settings})


@contextmanager
def refusing(status: grpc.StatusCode) -> Iterator[str]:
    """A double of the service that refuses every request."""

    class Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, details: Any) -> Any:
            def refuse(request: bytes, context: Any) -> bytes:
                context.abort(status, "hidden details")
                return b""

            return grpc.unary_unary_rpc_method_handler(refuse)

    server = grpc.server(ThreadPoolExecutor(2), handlers=[Handler()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


@pytest.mark.slow
class TestPubSubSink(BatchingSinkConformance):
    keys: ClassVar[Any] = (b"key", None, b"", "schlüssel", "two\r\nlines")
    many = 2_000

    @pytest.fixture(autouse=True)
    def place(self, pubsub: PubSubServer) -> None:
        self.server, self.topic = pubsub, Topic(pubsub)
        self.found: list[Written] = []

    def make(self) -> PubSubSink:
        return sink_of(self.server, self.topic.name)

    def written(self) -> list[Written]:
        # Pub/Sub keeps no order here: each look sorts what is new.
        new = self.topic.messages()[len(self.found) :]
        self.found += sorted(
            (
                Written(
                    json.loads(message.data),
                    message.attributes.get("__key"),
                    int(message.attributes["__timestamp"]),
                    message.attributes["__topic"],
                    int(message.attributes["__partition"]),
                    int(message.attributes["__offset"]),
                )
                for message in new
            ),
            key=lambda item: (item.offset, item.partition),
        )
        return list(self.found)

    def _check_same(self, found: Any, origins: Any) -> None:
        super()._check_same(found, sorted(origins, key=lambda origin: (origin[1], origin[0])))


@pytest.mark.slow
class TestPubSubSinkWithOrder(TestPubSubSink):
    many = 200

    @pytest.fixture(autouse=True)
    def place(self, pubsub: PubSubServer) -> None:
        self.server, self.topic = pubsub, Topic(pubsub, enable_message_ordering=True)
        self.found = []

    def make(self) -> PubSubSink:
        return sink_of(self.server, self.topic.name, enable_message_ordering=True)


def test_a_message_has_what_the_record_has(pubsub: PubSubServer, topic: Topic) -> None:
    sink = sink_of(pubsub, topic.name, value_serializer=lambda value: value)
    headers = [("trace", b"abc"), ("raw", b"\xff"), ("none", None), ("trace", "größe")]
    for _ in range(2):
        sink.add(b"\xff\x00", "ada", 1_000, headers, "orders", 3, 7)
    sink.flush()
    messages = sorted(topic.messages(), key=lambda message: str(message.attributes["__number"]))
    assert [dict(message.attributes) for message in messages] == [
        {
            "__key": "ada",
            "__timestamp": "1000",
            "__topic": "orders",
            "__partition": "3",
            "__offset": "7",
            "__number": number,
            "trace": "größe",
            "raw": "\\xff",
            "none": "",
        }
        for number in "01"
    ]
    assert {message.data for message in messages} == {b"\xff\x00"}
    assert {message.ordering_key for message in messages} == {""}


def test_keys_are_ordering_keys_if_wanted(pubsub: PubSubServer) -> None:
    topic = Topic(pubsub, enable_message_ordering=True)
    sink = sink_of(pubsub, topic.name, enable_message_ordering=True)
    for offset in range(60):
        add(sink, offset, key=None if offset % 3 == 2 else "ab"[offset % 3], start=offset)
    sink.flush()
    messages = topic.messages()
    for position, key in enumerate(["a", "b"]):
        found = [json.loads(message.data) for message in messages if message.ordering_key == key]
        assert found == list(range(position, 60, 3))
    assert sum(message.ordering_key == "" for message in messages) == 20


@pytest.mark.slow
def test_requests_have_bounds(pubsub: PubSubServer, topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = sink_of(pubsub, topic.name)
    calls: list[int] = []
    call = sink._client.call

    def counting(method: str, **fields: Any) -> Any:
        calls.append(len(fields["messages"]))
        return call(method, **fields)

    monkeypatch.setattr(sink._client, "call", counting)
    # The server takes 4 MB at most.
    monkeypatch.setattr(pubsub_sink, "_REQUEST_BYTES", 3_000_000)
    add(sink, *range(2_001))
    add(sink, *("x" * 1_200_000 for _ in range(3)), start=2_001)
    sink.flush()
    assert calls == [1_000, 1_000, 3, 1]
    assert len(topic.messages()) == 2_004


@pytest.mark.slow
def test_what_is_missing_or_wrong_is_named(pubsub: PubSubServer, topic: Topic) -> None:
    with pytest.raises(
        PubSubTopicNotFoundError, match="PubSubSink cannot use the Pub/Sub topic nothing of the project"
    ):
        sink_of(pubsub, "nothing").start()
    nowhere = f"127.0.0.1:{free_port()}"
    with pytest.raises(
        SinkError, match=rf"topic {topic.name} of the project {PROJECT} at {nowhere}: it does not answer"
    ):
        sink_of(pubsub, topic.name, emulator_host=nowhere).start()
    for status in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
        with refusing(status) as host, pytest.raises(SinkError, match="refuses the credentials") as caught:
            sink_of(pubsub, topic.name, emulator_host=host).start()
        assert "hidden" not in str(caught.value)


def test_a_key_that_is_no_key_is_refused_without_it(pubsub: PubSubServer, topic: Topic) -> None:
    sink = PubSubSink(PROJECT, topic.name, service_account_json=lambda: KEY_OF_ACCOUNT)
    with pytest.raises(ConfigurationError, match="not the key of a service account") as caught:
        sink.start()
    assert "hidden" not in str(caught.value)


def test_secrets_are_in_no_repr_and_no_pickle() -> None:
    sink = PubSubSink(PROJECT, "orders", service_account_json=KEY_OF_ACCOUNT)
    assert "hidden" not in f"{sink!r} {vars(sink)!r} {cloudpickle.dumps(sink)!r}"


def test_no_credentials_are_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.delenv("PUBSUB_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "nothing.json"))
    with pytest.raises(SinkError, match="there are no credentials"):
        PubSubSink(PROJECT, "orders").start()


def test_the_emulator_comes_from_the_environment(
    pubsub: PubSubServer, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", pubsub.host)
    sink = PubSubSink(PROJECT, topic.name)
    # Tasks may run where it is not set.
    monkeypatch.delenv("PUBSUB_EMULATOR_HOST")
    sink.start()
    add(sink, 1)
    sink.flush()
    assert topic.values() == [1]


@pytest.fixture
def mortal() -> Iterator[PubSubServer]:
    """A server that a test may kill, in which case it keeps nothing."""
    with workspace("pubsub") as directory:
        server = PubSubServer(directory)
        server.start()
        yield server
        server.close()
        server.stop()


@pytest.mark.slow
@pytest.mark.parametrize("ordered", [False, True])
def test_nothing_is_lost_if_the_server_dies(mortal: PubSubServer, ordered: bool) -> None:
    topic = Topic(mortal)
    sink = sink_of(mortal, topic.name, enable_message_ordering=ordered)
    sink.start()
    add(sink, 0)
    sink.flush()
    assert topic.values() == [0]
    mortal.kill()
    add(sink, 1, 2, start=1)
    with pytest.raises(SinkBackpressureError, match="does not answer"):
        sink.flush()
    sink.on_paused()
    mortal.start()
    mortal.create_topic(topic.name)
    mortal.subscribe(topic.name, topic.name)

    def flush_again() -> bool:
        # Older versions of gRPC take a while to connect again.
        add(sink, 1, 2, start=1)
        try:
            sink.flush()
        except SinkBackpressureError:
            sink.on_paused()
            return False
        return True

    wait_until(flush_again)
    assert topic.values() == [0, 1, 2]


@pytest.mark.slow
def test_a_server_that_hangs_is_given_up_in_time(pubsub: PubSubServer, topic: Topic) -> None:
    sink = sink_of(pubsub, topic.name, flush_timeout=0.5)
    sink.start()
    add(sink, 1)
    pubsub.freeze()
    try:
        with pytest.raises(SinkBackpressureError, match="does not answer"):
            sink.flush()
    finally:
        pubsub.thaw()
    sink.on_paused()
    add(sink, 1)
    sink.flush()
    assert 1 in topic.values()


def test_a_deleted_topic_ends_the_application(pubsub: PubSubServer, topic: Topic) -> None:
    sink = sink_of(pubsub, topic.name)
    sink.start()
    pubsub.client("Publisher").delete_topic(topic=f"projects/{PROJECT}/topics/{topic.name}")
    add(sink, 1)
    with pytest.raises(PubSubTopicNotFoundError):
        sink.flush()


def test_a_message_that_the_service_refuses_is_named() -> None:
    with refusing(grpc.StatusCode.INVALID_ARGUMENT) as host:
        sink = PubSubSink(PROJECT, "orders", emulator_host=host)
        add(sink, 1, 2, start=7)
        with pytest.raises(SinkError, match=r"cannot write orders\[3\] offset 7: .*answers InvalidArgument") as caught:
            sink.flush()
    assert caught.value.record == ("orders", 3, 7)


@pytest.mark.parametrize(
    ("value", "key", "headers", "reason"),
    [
        ({1}, b"key", None, "value_serializer failed with TypeError"),
        ("hidden" * 2_000_000, b"key", None, "at most 10 MB"),
        (1, b"\xffhidden", None, "key_serializer failed"),
        (1, "hidden" * 200, None, "its key has more than 1024 bytes"),
        (1, b"key", [("trace", b"hidden" * 200)], "its header 'trace' has more than 1024 bytes"),
        (1, b"key", [("google-id", b"hidden")], "the name of its header 'google-id' cannot be"),
        (1, b"key", [(f"h{number}", b"") for number in range(100)], "it has 106 attributes"),
    ],
)
def test_a_poison_value_is_named_and_not_shown(
    pubsub: PubSubServer, topic: Topic, value: Any, key: Any, headers: Any, reason: str
) -> None:
    sink = sink_of(pubsub, topic.name)
    add(sink, value, key=key, headers=headers, start=41)
    with pytest.raises(SinkError, match=rf"PubSubSink cannot write orders\[3\] offset 41: .*{reason}") as caught:
        sink.flush()
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"project_id": ""}, "project_id"),
        ({"topic_id": 5}, "topic_id"),
        ({"flush_timeout": 0}, "flush_timeout"),
        ({"enable_message_ordering": 1}, "enable_message_ordering"),
        ({"emulator_host": "localhost"}, "emulator_host"),
        ({"service_account_json": "hidden"}, "must be a JSON object"),
        ({"service_account_json": 5}, "service_account_json"),
        ({"publisher_options": None}, "give enable_message_ordering itself"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason) as caught:
        PubSubSink(**{"project_id": PROJECT, "topic_id": "orders", **arguments})
    assert "hidden" not in str(caught.value)


def test_the_library_is_named_if_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"PubSubSink needs the package google.pubsub_v1: .*\[pubsub\]"):
        PubSubSink(PROJECT, "orders")
