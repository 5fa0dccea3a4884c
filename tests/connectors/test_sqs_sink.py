"""`SQSSink` against moto."""

import json
from typing import Any, ClassVar

import cloudpickle
import pytest
from werkzeug.wrappers import Response

from streamrt.connectors import SinkBackpressureError
from streamrt.connectors.amazon import sqs_sink as sqs
from streamrt.connectors.amazon.sqs_sink import SQSSink
from streamrt.connectors.retries import Retries
from streamrt.errors import ConfigurationError, SinkError
from streamrt.testing.connectors import BatchingSinkConformance, Written
from tests.connectors.aws_server import KEY_ID, REGION, SECRET, TOKEN, AWSServer, Forward, aws, unavailable
from tests.connectors.sinks import add
from tests.servers import free_port
from tests.support import unique

__all__ = ["aws"]


@pytest.fixture
def queue(aws: AWSServer) -> str:
    name = unique("queue")
    aws.client("sqs").create_queue(QueueName=name)
    return name


@pytest.fixture
def fifo(aws: AWSServer) -> str:
    name = f"{unique('queue')}.fifo"
    aws.client("sqs").create_queue(QueueName=name, Attributes={"FifoQueue": "true"})
    return name


def sink_of(aws: AWSServer, queue: str, **settings: Any) -> SQSSink:
    chosen = {
        "aws_access_key_id": KEY_ID,
        "aws_secret_access_key": SECRET,
        "region_name": REGION,
        "aws_endpoint_url": aws.url,
        **settings,
    }
    return SQSSink(queue, **chosen)


class Reader:
    """Takes the messages out of a queue, and keeps them."""

    def __init__(self, aws: AWSServer, queue: str) -> None:
        self._client = aws.client("sqs")
        self._url = self._client.get_queue_url(QueueName=queue)["QueueUrl"]
        self._messages: list[dict[str, Any]] = []

    def messages(self) -> list[dict[str, Any]]:
        """Return all messages so far."""
        while received := self._client.receive_message(
            QueueUrl=self._url, MaxNumberOfMessages=10, AttributeNames=["All"], MessageAttributeNames=["All"]
        ).get("Messages"):
            self._messages += received
            entries = [
                {"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]}
                for number, message in enumerate(received)
            ]
            self._client.delete_message_batch(QueueUrl=self._url, Entries=entries)
        return list(self._messages)

    def bodies(self) -> list[Any]:
        """Return the values of all messages so far."""
        return [json.loads(message["Body"]) for message in self.messages()]


@pytest.mark.slow
class TestSQSSink(BatchingSinkConformance):
    keys: ClassVar[Any] = (b"key", None, b"", "schlüssel", "two\r\nlines")
    many = 100

    @pytest.fixture(autouse=True)
    def place(self, aws: AWSServer, queue: str) -> None:
        self.aws, self.queue, self.reader = aws, queue, Reader(aws, queue)

    def make(self) -> SQSSink:
        return sink_of(self.aws, self.queue)

    def written(self) -> list[Written]:
        return [Written(body) for body in self.reader.bodies()]


@pytest.mark.slow
class TestSQSSinkWithMetadata(TestSQSSink):
    many = 20

    def make(self) -> SQSSink:
        return sink_of(self.aws, self.queue, metadata=True)

    def written(self) -> list[Written]:
        return [
            Written(
                json.loads(message["Body"]),
                attributes.get("key"),
                int(attributes["timestamp"]),
                attributes["topic"],
                int(attributes["partition"]),
                int(attributes["offset"]),
            )
            for message in self.reader.messages()
            for attributes in [
                {name: attribute["StringValue"] for name, attribute in message["MessageAttributes"].items()}
            ]
        ]


@pytest.mark.slow
class TestSQSSinkToFIFO(TestSQSSink):
    many = 40

    @pytest.fixture(autouse=True)
    def place(self, aws: AWSServer, fifo: str) -> None:
        self.aws, self.queue, self.reader = aws, fifo, Reader(aws, fifo)


def test_keys_become_message_groups(aws: AWSServer, fifo: str) -> None:
    sink = sink_of(aws, fifo)
    for offset, key in enumerate((b"ada", "grace", None, b"", "größe", "k" * 129)):
        add(sink, offset, key=key, start=offset)
    sink.flush()
    groups = [message["Attributes"]["MessageGroupId"] for message in Reader(aws, fifo).messages()]
    assert groups[:4] == ["ada", "grace", "orders/3", "orders/3"]
    assert all(group.startswith("sha256:") and len(group) == 71 for group in groups[4:])
    assert len(set(groups)) == 5


def test_a_fifo_queue_recognizes_repeats(aws: AWSServer, fifo: str) -> None:
    for _ in range(2):
        # Another process, after a crash.
        sink = sink_of(aws, fifo)
        for value in range(3):
            sink.add(value, b"key", 0, None, "orders", 0, 7)
        sink.add(3, b"key", 0, None, "orders", 0, 8)
        sink.flush()
    other = sink_of(aws, fifo, deduplication_prefix="totals/")
    other.add(4, b"key", 0, None, "orders", 0, 7)
    other.flush()
    assert Reader(aws, fifo).bodies() == [0, 1, 2, 3, 4]


def test_an_answer_that_is_lost_gives_no_repeats(aws: AWSServer, fifo: str) -> None:
    sink = sink_of(aws, fifo)
    lost = [True]

    def gate(operation: str, body: bytes, forward: Forward) -> Response:
        answer = forward(body)
        return unavailable() if operation == "SendMessageBatch" and lost and lost.pop() else answer

    add(sink, 1, 2)
    with aws.gated(gate):
        sink.flush()
    assert Reader(aws, fifo).bodies() == [1, 2]


@pytest.mark.parametrize("kind", ["queue", "fifo"])
def test_what_is_refused_for_now_is_repeated(aws: AWSServer, kind: str, request: pytest.FixtureRequest) -> None:
    name = request.getfixturevalue(kind)
    sink = sink_of(aws, name)
    refusals = [True]

    def gate(operation: str, body: bytes, forward: Forward) -> Response:
        if operation != "SendMessageBatch" or not refusals:
            return forward(body)
        refusals.pop()
        asked = json.loads(body)
        refused = asked["Entries"].pop(0)
        answer: dict[str, Any] = {"Successful": []}
        if asked["Entries"]:
            answer = json.loads(forward(json.dumps(asked).encode()).get_data())
        answer["Failed"] = [{"Id": refused["Id"], "SenderFault": False, "Code": "InternalError"}]
        return Response(json.dumps(answer))

    add(sink, 0, 1, 2, key=b"a")
    add(sink, 3, 4, key=b"b", start=3)
    with aws.gated(gate):
        sink.flush()
    bodies = Reader(aws, name).bodies()
    if kind == "fifo":
        # The order of a group holds.
        assert [body for body in bodies if body < 3] == [0, 1, 2]
        assert [body for body in bodies if body >= 3] == [3, 4]
    assert sorted(bodies) == list(range(5))


def test_a_message_that_is_refused_for_good_is_named(aws: AWSServer, queue: str) -> None:
    sink = sink_of(aws, queue)

    def gate(operation: str, body: bytes, forward: Forward) -> Response:
        if operation != "SendMessageBatch":
            return forward(body)
        failed = {"Id": "1", "SenderFault": True, "Code": "InvalidMessageContents", "Message": "hidden"}
        return Response(json.dumps({"Successful": [{"Id": "0"}], "Failed": [failed]}))

    add(sink, "a", "hidden", start=7)
    reason = r"SQSSink cannot write orders\[3\] offset 8: the SQS queue .* answers InvalidMessageContents"
    with aws.gated(gate), pytest.raises(SinkError, match=reason) as caught:
        sink.flush()
    assert "hidden" not in str(caught.value)
    assert caught.value.record == ("orders", 3, 8)


def test_requests_have_bounds(aws: AWSServer, queue: str) -> None:
    sink = sink_of(aws, queue)
    sink.start()
    aws.operations.clear()
    add(sink, *("x" * 100_000 for _ in range(5)))
    add(sink, *range(21), start=5)
    sink.flush()
    assert aws.operations.count("SendMessageBatch") == 2 + 3
    assert len(Reader(aws, queue).messages()) == 26


@pytest.mark.parametrize(
    ("value", "key", "settings", "reason"),
    [
        ({1}, b"key", {}, "value_serializer failed with TypeError"),
        ("hidden" * 200_000, b"key", {}, "takes 1048576 at most"),
        ("hidden", b"\xffhidden", {}, "key_serializer failed with UnicodeDecodeError"),
        ("hidden\x00", b"key", {"value_serializer": str}, r"it contains the character U\+0000"),
        ("hidden\uffff", b"key", {"value_serializer": str}, r"it contains the character U\+FFFF"),
        (b"\xffhidden", b"key", {"value_serializer": bytes}, "bytes that are not UTF-8"),
        ("", b"key", {"value_serializer": str}, "no message is empty"),
    ],
)
def test_a_poison_value_is_named_and_not_shown(
    aws: AWSServer, queue: str, value: Any, key: Any, settings: dict[str, Any], reason: str
) -> None:
    sink = sink_of(aws, queue, **settings)
    sink.start()
    add(sink, value, key=key, start=41)
    with pytest.raises(SinkError, match=rf"SQSSink cannot write orders\[3\] offset 41: .*{reason}") as caught:
        sink.flush()
    assert "hidden" not in str(caught.value)


def test_nothing_is_lost_while_the_service_is_down(aws: AWSServer, queue: str) -> None:
    sink = sink_of(aws, queue)
    sink.start()
    add(sink, 0)
    sink.flush()
    add(sink, 1, start=1)
    with aws.down(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqs, "_RETRIES", Retries(first_wait_s=0.01))
        with pytest.raises(SinkBackpressureError, match="does not answer"):
            sink.flush()
    sink.on_paused()
    add(sink, 1, start=1)
    sink.flush()
    assert sorted(Reader(aws, queue).bodies()) == [0, 1]


@pytest.mark.slow
def test_what_is_missing_or_wrong_is_named(aws: AWSServer, queue: str) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    for settings, reason in (
        ({"queue": "nothing"}, f"SQSSink cannot use the SQS queue nothing at {aws.url}: there is no such queue"),
        ({"queue": f"{aws.url}/123456789012/nothing"}, "there is no such queue"),
        ({"aws_endpoint_url": nowhere}, f"{queue} at {nowhere}: it does not answer"),
    ):
        with pytest.raises(SinkError, match=reason):
            sink_of(aws, **{"queue": queue, **settings}).start()
    with aws.checking_credentials(), pytest.raises(SinkError, match="refuses the credentials") as caught:
        sink_of(aws, queue, aws_session_token=TOKEN).start()
    assert all(secret not in str(caught.value) for secret in (KEY_ID, SECRET, TOKEN))


def test_a_queue_is_known_by_its_url(aws: AWSServer, queue: str) -> None:
    sink = sink_of(aws, aws.client("sqs").get_queue_url(QueueName=queue)["QueueUrl"])
    assert repr(sink) == f"SQSSink({queue!r})"
    sink.start()
    add(sink, 1)
    sink.flush()
    assert Reader(aws, queue).bodies() == [1]


def test_secrets_are_in_no_repr_and_no_pickle(aws: AWSServer, queue: str) -> None:
    sink = sink_of(aws, queue, aws_session_token=TOKEN)
    text = f"{sink!r} {vars(sink)!r} {cloudpickle.dumps(sink)!r}"
    assert all(secret not in text for secret in (KEY_ID, SECRET, TOKEN))


def test_expired_credentials_are_fetched_again(aws: AWSServer, queue: str) -> None:
    fetched: list[str] = []

    def key_id() -> str:
        fetched.append(KEY_ID)
        return KEY_ID

    sink = sink_of(aws, queue, aws_access_key_id=key_id)
    sink.start()
    expired = [Response('{"__type": "ExpiredTokenException"}', 403)]
    add(sink, 1)
    with aws.gated(lambda operation, body, forward: expired.pop() if expired else forward(body)):
        sink.flush()
    assert len(fetched) == 2
    assert Reader(aws, queue).bodies() == [1]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"queue": ""}, "queue"),
        ({"queue": 5}, "queue"),
        ({"metadata": 1}, "metadata"),
        ({"deduplication_prefix": None}, "deduplication_prefix"),
        ({"key_serializer": None}, "key_serializer"),
        ({"colour": "red"}, "unknown arguments: colour"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        SQSSink(**{"queue": "orders", **arguments})


def test_the_library_is_named_if_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match="SQSSink needs the package boto3"):
        SQSSink("orders")
