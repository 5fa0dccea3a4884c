"""`KinesisSource` against moto."""

import itertools
import logging
import time
from collections.abc import Sequence
from typing import Any

import cloudpickle
import pytest
from werkzeug.wrappers import Response

from streamrt.connectors.amazon.kinesis_source import KinesisSource, KinesisStreamShardsNotFound
from streamrt.errors import ConfigurationError, SourceError
from streamrt.testing.connectors import MemorySourceStore, RecordingProducer, StatefulSourceConformance
from tests.connectors.aws_server import (
    KEY_ID,
    REGION,
    SECRET,
    TOKEN,
    AWSServer,
    Forward,
    aws,
    resharding,
    unavailable,
)
from tests.connectors.proxy import silent_port
from tests.connectors.sources import Run, configured, running
from tests.servers import free_port
from tests.support import unique, wait_until

__all__ = ["aws", "resharding"]

HALF = str(2**127)


@pytest.fixture
def stream(aws: AWSServer) -> str:
    name = unique("stream")
    aws.client("kinesis").create_stream(StreamName=name, ShardCount=1)
    return name


def source_of(aws: AWSServer, stream: str, **settings: Any) -> KinesisSource:
    chosen = {
        "aws_region": REGION,
        "aws_access_key_id": KEY_ID,
        "aws_secret_access_key": SECRET,
        "aws_endpoint_url": aws.url,
        "auto_offset_reset": "earliest",
        "commit_interval": 0.1,
        "retry_backoff_secs": 0.1,
        **settings,
    }
    return KinesisSource(stream, **chosen)


def put(aws: AWSServer, stream: str, values: Sequence[int], key: str = "key") -> None:
    records = [{"Data": str(value).encode(), "PartitionKey": key} for value in values]
    aws.client("kinesis").put_records(StreamName=stream, Records=records)


def values_of(producer: RecordingProducer) -> list[int]:
    return [int(record.value or b"") for record in producer.records]


@pytest.mark.slow
class TestKinesisSource(StatefulSourceConformance):
    @pytest.fixture(autouse=True)
    def place(self, aws: AWSServer, stream: str) -> None:
        put(aws, stream, range(3))
        self.aws, self.stream = aws, stream

    def make(self) -> KinesisSource:
        return source_of(self.aws, self.stream)


def test_a_record_keeps_what_kinesis_knows(aws: AWSServer, stream: str) -> None:
    begun = int(time.time()) * 1000
    put(aws, stream, [5], key="größe")
    producer = RecordingProducer()
    with running(source_of(aws, stream), producer):
        wait_until(lambda: producer.records)
    (record,) = producer.records
    assert (record.value, record.key) == (b"5", "größe".encode())
    assert begun <= (record.timestamp or 0) <= time.time() * 1000
    assert record.headers == [("kinesis.shard_id", b"shardId-000000000000"), ("kinesis.sequence_number", b"1")]


def test_its_topic_holds_bytes() -> None:
    topic = KinesisSource("orders").default_topic()
    assert topic.name == "kinesis_orders"
    assert topic.serialize("key", b"\xff").value == b"\xff"
    assert KinesisSource("orders", name="mine").default_topic().name == "mine"


@pytest.mark.slow
def test_it_resumes_after_what_was_flushed(aws: AWSServer, stream: str) -> None:
    put(aws, stream, range(5))
    store, producer = MemorySourceStore(), RecordingProducer()
    with running(source_of(aws, stream, max_records_per_shard=2), producer, store):
        wait_until(lambda: len(producer.records) == 5)
    put(aws, stream, range(5, 8))
    with running(source_of(aws, stream), producer, store):
        wait_until(lambda: len(producer.records) == 8)
    assert values_of(producer) == list(range(8))


@pytest.mark.slow
def test_a_crash_repeats_what_was_not_flushed(aws: AWSServer, stream: str) -> None:
    put(aws, stream, range(5))
    store, producer = MemorySourceStore(), RecordingProducer()
    source = source_of(aws, stream, max_records_per_shard=2, commit_interval=0.01)
    produce = producer.produce

    def dying(*arguments: Any, **options: Any) -> None:
        if len(producer.records) == 3:
            raise RuntimeError("the process dies")
        produce(*arguments, **options)

    producer.produce = dying  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="dies"):
        configured(source, producer, store).start()
    producer.produce = produce  # type: ignore[method-assign]
    with running(source_of(aws, stream), producer, store):
        wait_until(lambda: 4 in values_of(producer))
    assert values_of(producer) == [0, 1, 2, 2, 3, 4]


@pytest.mark.slow
def test_latest_begins_when_the_source_does_even_if_it_dies_before_the_first_record(
    aws: AWSServer, stream: str
) -> None:
    put(aws, stream, [0])
    second = int(time.time())
    wait_until(lambda: int(time.time()) > second)
    store, producer = MemorySourceStore(), RecordingProducer()
    with running(source_of(aws, stream, auto_offset_reset="latest"), producer, store):
        wait_until(lambda: store.commits)
    assert producer.records == []
    put(aws, stream, [1])
    with running(source_of(aws, stream, auto_offset_reset="latest"), producer, store):
        wait_until(lambda: producer.records)
    assert values_of(producer) == [1]


@pytest.mark.slow
@pytest.mark.usefixtures("resharding")
def test_children_are_read_after_their_parents(aws: AWSServer, stream: str) -> None:
    client = aws.client("kinesis")
    put(aws, stream, range(10))
    client.split_shard(StreamName=stream, ShardToSplit="shardId-000000000000", NewStartingHashKey=HALF)
    put(aws, stream, range(10, 20))
    client.merge_shards(
        StreamName=stream, ShardToMerge="shardId-000000000001", AdjacentShardToMerge="shardId-000000000002"
    )
    put(aws, stream, range(20, 30))
    store, producer = MemorySourceStore(), RecordingProducer()
    with running(source_of(aws, stream, max_records_per_shard=4), producer, store):
        wait_until(lambda: len(producer.records) == 30)
        # Also while it runs.
        client.split_shard(StreamName=stream, ShardToSplit="shardId-000000000003", NewStartingHashKey=HALF)
        put(aws, stream, range(30, 40))
        wait_until(lambda: len(producer.records) == 40)
    assert values_of(producer) == list(range(40))
    put(aws, stream, range(40, 42))
    with running(source_of(aws, stream), producer, store):
        wait_until(lambda: len(producer.records) == 42)
    assert values_of(producer) == list(range(42))


@pytest.mark.slow
def test_several_shards_are_read_side_by_side(aws: AWSServer) -> None:
    stream = unique("stream")
    aws.client("kinesis").create_stream(StreamName=stream, ShardCount=4)
    for key in range(20):
        put(aws, stream, [key], key=str(key))
    producer = RecordingProducer()
    with running(source_of(aws, stream), producer):
        wait_until(lambda: len(producer.records) == 20)
    assert sorted(values_of(producer)) == list(range(20))


@pytest.mark.slow
def test_another_stream_of_the_same_name_is_read_from_its_beginning(
    aws: AWSServer, stream: str, caplog: pytest.LogCaptureFixture
) -> None:
    put(aws, stream, range(3))
    store, producer = MemorySourceStore(), RecordingProducer()
    with running(source_of(aws, stream), producer, store):
        wait_until(lambda: len(producer.records) == 3)
    client = aws.client("kinesis")
    client.delete_stream(StreamName=stream)
    client.create_stream(StreamName=stream, ShardCount=1)
    put(aws, stream, [7])
    with running(source_of(aws, stream, auto_offset_reset="latest"), producer, store):
        wait_until(lambda: len(producer.records) == 4)
    assert values_of(producer) == [0, 1, 2, 7]
    assert "was created again" in caplog.text


@pytest.mark.slow
def test_an_outage_is_waited_out(aws: AWSServer, stream: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "streamrt.connectors")
    put(aws, stream, range(2))
    producer = RecordingProducer()
    with running(source_of(aws, stream), producer):
        wait_until(lambda: len(producer.records) == 2)
        with aws.down():
            wait_until(lambda: "does not answer" in caplog.text)
        put(aws, stream, range(2, 4))
        wait_until(lambda: len(producer.records) == 4)
    assert values_of(producer) == list(range(4))
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len([record for record in warnings if "tries again" in record.message]) == 1


@pytest.mark.slow
def test_answers_that_pass_are_waited_out(aws: AWSServer, stream: str) -> None:
    put(aws, stream, range(3))
    expired = Response('{"__type": "ExpiredIteratorException"}', 400)
    busy = Response('{"__type": "ProvisionedThroughputExceededException"}', 400)
    answers = iter([unavailable(), busy, expired])

    def gate(operation: str, body: bytes, forward: Forward) -> Response:
        return (operation == "GetRecords" and next(answers, None)) or forward(body)

    producer = RecordingProducer()
    with aws.gated(gate), running(source_of(aws, stream, max_records_per_shard=1), producer):
        wait_until(lambda: len(producer.records) == 3)
    assert values_of(producer) == list(range(3))


@pytest.mark.slow
def test_a_deleted_stream_ends_the_source(aws: AWSServer, stream: str) -> None:
    put(aws, stream, [0])
    with Run(source_of(aws, stream)) as run:
        run.has(1)
        aws.client("kinesis").delete_stream(StreamName=stream)
        reason = f"source kinesis_{stream} cannot read .*: the stream does not exist, or was deleted"
        with pytest.raises(KinesisStreamShardsNotFound, match=reason):
            raise run.failure()


def test_what_is_missing_is_named(aws: AWSServer, stream: str) -> None:
    with pytest.raises(KinesisStreamShardsNotFound, match=f"Kinesis stream nothing at {aws.url}"):
        configured(source_of(aws, "nothing")).start()


@pytest.mark.slow
def test_a_wrong_host_is_named(aws: AWSServer, stream: str) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    source = configured(source_of(aws, stream, aws_endpoint_url=url))
    with pytest.raises(SourceError, match=f"{stream} at {url}: it does not answer"):
        source.start()


def test_refused_credentials_are_reported_without_them(aws: AWSServer, stream: str) -> None:
    source = configured(source_of(aws, stream, aws_session_token=TOKEN))
    with aws.checking_credentials(), pytest.raises(SourceError, match="refuses the credentials") as caught:
        source.start()
    for secret in (KEY_ID, SECRET, TOKEN):
        assert secret not in f"{caught.value} {source!r} {vars(source)!r}"
        assert secret.encode() not in cloudpickle.dumps(source_of(aws, stream, aws_session_token=TOKEN))


@pytest.mark.slow
def test_a_failed_setup_that_was_handled_is_made_up_for(aws: AWSServer, stream: str) -> None:
    put(aws, stream, [1])
    heard: list[Exception] = []
    producer = RecordingProducer()
    answers = itertools.repeat(Response('{"__type": "AccessDeniedException"}', 400), 1)
    source = source_of(aws, stream, on_client_connect_failure=heard.append)
    with (
        aws.gated(lambda operation, body, forward: next(answers, None) or forward(body)),
        running(source, producer),
    ):
        wait_until(lambda: producer.records)
    assert "AccessDenied" in str(heard[0])


@pytest.mark.slow
@pytest.mark.parametrize("started", [False, True], ids=["while it connects", "while it reads"])
def test_stop_does_not_wait_for_a_service_that_hangs(aws: AWSServer, stream: str, started: bool) -> None:
    producer = RecordingProducer()
    put(aws, stream, [1])
    with silent_port() as port:
        source = source_of(aws, stream, **({} if started else {"aws_endpoint_url": f"http://127.0.0.1:{port}"}))
        hanging: list[str] = []

        def gate(operation: str, body: bytes, forward: Forward) -> Response:
            if producer.records:
                hanging.append(operation)
                wait_until(lambda: released)
            return forward(body)

        released: list[bool] = []
        with aws.gated(gate):
            with running(source, producer):
                wait_until(lambda: hanging if started else source.running)
                begun = time.monotonic()
            assert time.monotonic() - begun < 8
            released.append(True)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"stream_name": ""}, "stream_name"),
        ({"auto_offset_reset": "newest"}, "auto_offset_reset"),
        ({"max_records_per_shard": 10_001}, "max_records_per_shard"),
        ({"max_records_per_shard": 1.5}, "max_records_per_shard"),
        ({"commit_interval": 0}, "commit_interval"),
        ({"retry_backoff_secs": "1"}, "retry_backoff_secs"),
        ({"shutdown_timeout": -1}, "shutdown_timeout"),
        ({"name": ""}, "name"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        KinesisSource(**{"stream_name": "orders", **arguments})


def test_the_library_is_named_if_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match="KinesisSource needs the package boto3"):
        KinesisSource("orders")
