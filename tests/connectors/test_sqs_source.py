"""`SQSSource` against moto."""

import logging
import re
import threading
import time
from typing import Any

import cloudpickle
import pytest
from werkzeug.wrappers import Response

from streamrt.connectors.amazon.sqs_source import SQSSource
from streamrt.errors import ConfigurationError, SourceError
from streamrt.testing.connectors import RecordingProducer, SourceConformance
from tests.connectors.aws_server import KEY_ID, REGION, SECRET, TOKEN, AWSServer, Forward, aws, unavailable
from tests.connectors.proxy import silent_port
from tests.connectors.sources import PATIENCE_S, Run, configured, running
from tests.servers import free_port
from tests.support import unique, wait_until

__all__ = ["aws"]


class Queue:
    """A queue, and what tests do with one."""

    def __init__(self, aws: AWSServer, *, fifo: bool = False) -> None:
        self.name = unique("queue") + (".fifo" if fifo else "")
        self._fifo = fifo
        self._client = aws.client("sqs")
        self.url = self._client.create_queue(QueueName=self.name, Attributes={"FifoQueue": "true"} if fifo else {})[
            "QueueUrl"
        ]

    def send(self, *values: int, group: str = "group", **options: Any) -> None:
        for value in values:
            if self._fifo:
                options.update(MessageGroupId=group, MessageDeduplicationId=str(value))
            self._client.send_message(QueueUrl=self.url, MessageBody=str(value), **options)

    def left(self) -> int:
        """Return the number of messages that were not deleted."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self._client.get_queue_attributes(QueueUrl=self.url, AttributeNames=names)["Attributes"]
        return sum(int(number) for number in found.values())

    def delete(self) -> None:
        self._client.delete_queue(QueueUrl=self.url)


@pytest.fixture
def queue(aws: AWSServer) -> Queue:
    return Queue(aws)


def source_of(aws: AWSServer, queue: str, **settings: Any) -> SQSSource:
    chosen = {
        "aws_access_key_id": KEY_ID,
        "aws_secret_access_key": SECRET,
        "region_name": REGION,
        "aws_endpoint_url": aws.url,
        "wait_time_seconds": 1,
        **settings,
    }
    return SQSSource(queue, **chosen)


def values_of(producer: RecordingProducer) -> list[int]:
    return [int(record.value or b"") for record in producer.records]


@pytest.mark.slow
class TestSQSSource(SourceConformance):
    @pytest.fixture(autouse=True)
    def place(self, aws: AWSServer, queue: Queue) -> None:
        queue.send(1, 2, 3)
        self.aws, self.queue = aws, queue

    def make(self) -> SQSSource:
        return source_of(self.aws, self.queue.name)


@pytest.mark.slow
def test_messages_are_deleted_after_the_flush(aws: AWSServer, queue: Queue) -> None:
    queue.send(*range(25))
    producer = RecordingProducer()
    flush = producer.flush
    deleted_early: list[bool] = []

    def looking(timeout: float | None = None) -> int:
        deleted_early.append(queue.left() < 25 - producer.flushed)
        return flush(timeout)

    producer.flush = looking  # type: ignore[method-assign]
    with running(source_of(aws, queue.name, commit_every=10), producer):
        wait_until(lambda: queue.left() == 0)
    assert sorted(values_of(producer)) == list(range(25))
    assert not any(deleted_early)


@pytest.mark.slow
def test_a_record_keeps_what_the_message_has(aws: AWSServer) -> None:
    queue = Queue(aws, fifo=True)
    begun = int(time.time() * 1000)
    attributes = {
        "text": {"DataType": "String", "StringValue": "größe"},
        "data": {"DataType": "Binary", "BinaryValue": b"\xff"},
    }
    queue.send(5, group="ada", MessageAttributes=attributes)
    producer = RecordingProducer()
    with running(source_of(aws, queue.name), producer):
        wait_until(lambda: producer.records)
    (record,) = producer.records
    assert (record.value, record.key) == (b"5", b"ada")
    assert begun <= (record.timestamp or 0) <= time.time() * 1000
    headers = dict(record.headers or ())
    assert headers.pop("sqs.message_id")
    assert headers == {"text": "größe".encode(), "data": b"\xff"}


@pytest.mark.slow
def test_a_fifo_queue_is_read_in_order(aws: AWSServer) -> None:
    queue = Queue(aws, fifo=True)
    for group in "ab":
        queue.send(*range(ord(group) * 100, ord(group) * 100 + 25), group=group)
    producer = RecordingProducer()
    with running(source_of(aws, queue.name), producer):
        wait_until(lambda: len(producer.records) == 50)
    for group in "ab":
        found = [int(record.value or b"") for record in producer.records if record.key == group.encode()]
        assert found == list(range(ord(group) * 100, ord(group) * 100 + 25))


@pytest.mark.slow
def test_a_crash_loses_nothing(aws: AWSServer, queue: Queue) -> None:
    queue.send(*range(5))
    producer = RecordingProducer()
    producer.undelivered = 5
    with pytest.raises(Exception, match="5 records"):
        configured(source_of(aws, queue.name, visibility_timeout=1), producer).start()
    assert queue.left() == 5
    again = RecordingProducer()
    with running(source_of(aws, queue.name), again):
        wait_until(lambda: len(again.records) == 5)
    assert sorted(values_of(again)) == list(range(5))


@pytest.mark.slow
def test_messages_stay_hidden_while_kafka_is_slow(aws: AWSServer, queue: Queue) -> None:
    queue.send(1)
    producer = RecordingProducer()
    flush = producer.flush
    flushing, release = threading.Event(), threading.Event()

    def slow(timeout: float | None = None) -> int:
        flushing.set()
        release.wait(10)
        return flush(timeout)

    producer.flush = slow  # type: ignore[method-assign]
    other = RecordingProducer()
    with running(source_of(aws, queue.name, visibility_timeout=1), producer):
        assert flushing.wait(60)
        aws.operations.clear()
        with running(source_of(aws, queue.name), other):
            wait_until(lambda: aws.operations.count("ChangeMessageVisibilityBatch") > 6)
        release.set()
        wait_until(lambda: queue.left() == 0)
    assert values_of(producer) == [1]
    assert other.records == []


@pytest.mark.slow
def test_a_message_that_could_not_be_deleted_is_not_produced_again(aws: AWSServer, queue: Queue) -> None:
    queue.send(1)
    producer = RecordingProducer()
    refused: list[str] = []

    def gate(operation: str, body: bytes, forward: Forward) -> Response:
        if operation == "DeleteMessageBatch" and len(refused) < 3:
            refused.append(operation)
            return unavailable()
        # The lease runs out.
        return unavailable() if operation == "ChangeMessageVisibilityBatch" else forward(body)

    with aws.gated(gate), running(source_of(aws, queue.name, visibility_timeout=1), producer):
        wait_until(lambda: queue.left() == 0)
    assert values_of(producer) == [1]


@pytest.mark.slow
def test_an_outage_is_waited_out(aws: AWSServer, queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "streamrt.connectors")
    queue.send(1)
    producer = RecordingProducer()
    with running(source_of(aws, queue.name), producer):
        wait_until(lambda: len(producer.records) == 1)
        with aws.down():
            wait_until(lambda: "does not answer" in caplog.text)
        queue.send(2)
        wait_until(lambda: len(producer.records) == 2)
        wait_until(lambda: queue.left() == 0)
    assert values_of(producer) == [1, 2]


@pytest.mark.slow
def test_a_deleted_queue_ends_the_source(aws: AWSServer, queue: Queue) -> None:
    queue.send(1)
    run = Run(source_of(aws, queue.name)).start()
    # A source that is stopped need not wait for its answer, so it ends by itself.
    wait_until(lambda: queue.left() == 0 or not run.running, PATIENCE_S)
    queue.delete()
    error = run.failure()
    assert isinstance(error, SourceError)
    assert re.match(f"the source sqs_{queue.name} cannot read the SQS queue {queue.name} .*no such queue", str(error))


@pytest.mark.slow
def test_what_is_missing_or_wrong_is_named(aws: AWSServer, queue: Queue) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    for settings, reason in (
        ({"queue": "nothing"}, f"the SQS queue nothing at {aws.url}: there is no such queue"),
        ({"aws_endpoint_url": nowhere}, f"at {nowhere}: it does not answer"),
    ):
        with pytest.raises(SourceError, match=reason):
            configured(source_of(aws, **{"queue": queue.name, **settings})).start()
    source = source_of(aws, queue.name, aws_session_token=TOKEN)
    with aws.checking_credentials(), pytest.raises(SourceError, match="refuses the credentials") as caught:
        configured(source).start()
    text = f"{caught.value} {source!r} {vars(source)!r}"
    assert all(secret not in text for secret in (KEY_ID, SECRET, TOKEN))
    pickled = cloudpickle.dumps(source_of(aws, queue.name, aws_session_token=TOKEN))
    assert all(secret.encode() not in pickled for secret in (KEY_ID, SECRET, TOKEN))


@pytest.mark.slow
@pytest.mark.parametrize("started", [False, True], ids=["while it connects", "while it reads"])
def test_stop_does_not_wait_for_a_service_that_hangs(aws: AWSServer, queue: Queue, started: bool) -> None:
    producer = RecordingProducer()
    queue.send(1)
    hanging: list[str] = []
    released: list[bool] = []

    def gate(operation: str, body: bytes, forward: Forward) -> Response:
        if producer.records:
            hanging.append(operation)
            wait_until(lambda: released)
        return forward(body)

    with silent_port() as port:
        url = aws.url if started else f"http://127.0.0.1:{port}"
        source = source_of(aws, queue.name, aws_endpoint_url=url)
        with aws.gated(gate):
            with running(source, producer):
                wait_until(lambda: hanging if started else source.running)
                begun = time.monotonic()
            # What was flushed is acknowledged for a second.
            assert time.monotonic() - begun < 8
            released.append(True)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"queue": ""}, "queue"),
        ({"commit_every": 0}, "commit_every"),
        ({"commit_interval": -1}, "commit_interval"),
        ({"wait_time_seconds": 21}, "wait_time_seconds"),
        ({"visibility_timeout": 0}, "visibility_timeout"),
        ({"name": ""}, "name"),
        ({"colour": "red"}, "unknown arguments: colour"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        SQSSource(**{"queue": "orders", **arguments})


def test_its_topic_holds_bytes() -> None:
    topic = SQSSource("http://host/1/orders.fifo").default_topic()
    assert topic.name == "sqs_orders.fifo"
    assert topic.serialize("key", b"\xff").value == b"\xff"


def test_the_library_is_named_if_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match="SQSSource needs the package boto3"):
        SQSSource("orders")
