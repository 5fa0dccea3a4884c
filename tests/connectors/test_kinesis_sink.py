"""`KinesisSink` against moto."""

import json
import logging
from typing import Any, ClassVar

import cloudpickle
import pytest
from werkzeug.wrappers import Response

from streamrt.connectors import SinkBackpressureError
from streamrt.connectors.amazon import kinesis_sink as kinesis
from streamrt.connectors.amazon.kinesis_sink import KinesisSink, KinesisStreamNotFoundError
from streamrt.connectors.retries import Retries
from streamrt.errors import ConfigurationError, SinkError
from streamrt.testing.connectors import BatchingSinkConformance, Written
from tests.connectors.aws_server import KEY_ID, REGION, SECRET, TOKEN, AWSServer, Forward, aws, unavailable
from tests.connectors.sinks import add
from tests.servers import free_port
from tests.support import unique

__all__ = ["aws"]


@pytest.fixture
def stream(aws: AWSServer) -> str:
    name = unique("stream")
    aws.client("kinesis").create_stream(StreamName=name, ShardCount=1)
    return name


def sink_of(aws: AWSServer, stream: str, **settings: Any) -> KinesisSink:
    return KinesisSink(
        stream,
        aws_access_key_id=settings.pop("key_id", KEY_ID),
        aws_secret_access_key=settings.pop("secret", SECRET),
        region_name=REGION,
        aws_endpoint_url=settings.pop("url", aws.url),
        **settings,
    )


def records_of(aws: AWSServer, stream: str) -> list[dict[str, Any]]:
    client = aws.client("kinesis")
    records: list[dict[str, Any]] = []
    for shard in client.list_shards(StreamName=stream)["Shards"]:
        iterator = client.get_shard_iterator(
            StreamName=stream, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        while found := (answer := client.get_records(ShardIterator=iterator))["Records"]:
            records += found
            iterator = answer["NextShardIterator"]
    return records


@pytest.mark.slow
class TestKinesisSink(BatchingSinkConformance):
    keys: ClassVar[Any] = (b"key", None, b"", "schlüssel", "two\r\nlines")
    many = 2_000

    @pytest.fixture(autouse=True)
    def place(self, aws: AWSServer, stream: str) -> None:
        self.aws, self.stream = aws, stream

    def make(self) -> KinesisSink:
        return sink_of(self.aws, self.stream)

    def written(self) -> list[Written]:
        return [
            Written(json.loads(record["Data"]), record["PartitionKey"]) for record in records_of(self.aws, self.stream)
        ]


@pytest.mark.rows("PF-M16")
def test_keys_become_partition_keys(aws: AWSServer, stream: str) -> None:
    sink = sink_of(aws, stream, value_serializer=lambda value: value)
    sink.start()
    for offset, key in enumerate((b"ada", "grace", None, b"")):
        add(sink, b"\xff\x00", key=key, start=offset)
    sink.flush()
    found = records_of(aws, stream)
    assert [record["PartitionKey"] for record in found] == ["ada", "grace", "orders/3", "orders/3"]
    assert {record["Data"] for record in found} == {b"\xff\x00"}


def test_a_missing_stream_is_named(aws: AWSServer) -> None:
    with pytest.raises(
        KinesisStreamNotFoundError, match=rf"KinesisSink .* stream nothing at {aws.url}: the stream does not exist"
    ):
        sink_of(aws, "nothing").start()


def test_a_wrong_host_is_named(aws: AWSServer, stream: str) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(SinkError, match=rf"stream {stream} at {url}: it does not answer"):
        sink_of(aws, stream, url=url).start()


def test_refused_credentials_are_reported_without_them(
    aws: AWSServer, stream: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "streamrt")
    with aws.checking_credentials(), pytest.raises(SinkError, match="refuses the credentials") as caught:
        sink_of(aws, stream, aws_session_token=lambda: TOKEN).start()
    assert stream in str(caught.value)
    for secret in (KEY_ID, SECRET, TOKEN):
        assert secret not in f"{caught.value} {caplog.text}"
        assert caught.value.__cause__ is None


def test_no_region_and_no_credentials_are_reported(
    aws: AWSServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(SinkError, match="it has no region"):
        KinesisSink("orders", aws_endpoint_url=aws.url).start()
    with pytest.raises(SinkError, match="there are no credentials"):
        KinesisSink("orders", region_name=REGION, aws_endpoint_url=aws.url).start()


def test_settings_come_from_the_environment(aws: AWSServer, stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "AWS_ACCESS_KEY_ID": KEY_ID,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_SESSION_TOKEN": TOKEN,
        "AWS_REGION": REGION,
        "AWS_ENDPOINT_URL_KINESIS": aws.url,
    }.items():
        monkeypatch.setenv(name, value)
    sink = KinesisSink(stream)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_ENDPOINT_URL_KINESIS"):
        # Tasks may run where they are not set.
        monkeypatch.delenv(name)
    sink.start()
    add(sink, 1)
    sink.flush()
    assert len(records_of(aws, stream)) == 1


def test_secrets_are_in_no_repr_and_no_pickle(aws: AWSServer, stream: str) -> None:
    sink = sink_of(aws, stream, aws_session_token=TOKEN)
    text = f"{sink!r} {vars(sink)!r} {cloudpickle.dumps(sink)!r}"
    for secret in (KEY_ID, SECRET, TOKEN):
        assert secret not in text


def test_nothing_is_lost_while_the_service_is_down(aws: AWSServer, stream: str) -> None:
    sink = sink_of(aws, stream)
    sink.start()
    add(sink, 0, 1)
    sink.flush()
    add(sink, 2, 3, start=2)
    with aws.down(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(kinesis, "_RETRIES", Retries(first_wait_s=0.01))
        with pytest.raises(SinkBackpressureError, match="does not answer"):
            sink.flush()
    sink.on_paused()
    add(sink, 2, 3, start=2)
    sink.flush()
    assert [json.loads(record["Data"]) for record in records_of(aws, stream)] == [0, 1, 2, 3]


def test_a_short_failure_is_bridged(aws: AWSServer, stream: str) -> None:
    sink = sink_of(aws, stream)
    sink.start()
    failures = iter([unavailable(), Response('{"__type": "ThrottlingException"}', 400)])

    def gate(operation: str, body: bytes, forward: Forward) -> Response:
        return next(failures, None) or forward(body)

    add(sink, 1)
    with aws.gated(gate):
        sink.flush()
    assert len(records_of(aws, stream)) == 1


def test_what_follows_a_refused_record_of_its_key_is_repeated(aws: AWSServer, stream: str) -> None:
    sink = sink_of(aws, stream)
    sink.start()
    refusals = [1]

    def gate(operation: str, body: bytes, forward: Forward) -> Response:
        if not refusals:
            return forward(body)
        refused = refusals.pop()
        asked = json.loads(body)
        kept = [record for number, record in enumerate(asked["Records"]) if number != refused]
        answer = json.loads(forward(json.dumps({**asked, "Records": kept}).encode()).get_data())
        answer["FailedRecordCount"] = 1
        code = "ProvisionedThroughputExceededException"
        answer["Records"].insert(refused, {"ErrorCode": code, "ErrorMessage": "slow down"})
        return Response(json.dumps(answer))

    for offset, (key, value) in enumerate([("a", 0), ("b", 1), ("a", 2), ("b", 3), ("c", 4)]):
        add(sink, value, key=key, start=offset)
    with aws.gated(gate):
        sink.flush()
    assert [json.loads(record["Data"]) for record in records_of(aws, stream)] == [0, 2, 3, 4, 1, 3]


@pytest.mark.parametrize(
    ("code", "record"),
    # Without the right to its key, a stream takes no record: none may be skipped.
    [("InvalidArgumentException", ("orders", 3, 8)), ("KMSAccessDeniedException", None)],
)
def test_a_record_that_is_refused_for_good_is_named(
    aws: AWSServer, stream: str, code: str, record: tuple[str, int, int] | None
) -> None:
    sink = sink_of(aws, stream)
    sink.start()

    def gate(operation: str, body: bytes, forward: Forward) -> Response:
        return Response(json.dumps({"FailedRecordCount": 1, "Records": [{}, {"ErrorCode": code}]}))

    add(sink, "first", "hidden", start=7)
    with aws.gated(gate), pytest.raises(SinkError, match=rf"orders\[3\] offset 8: .*{code}") as caught:
        sink.flush()
    assert "hidden" not in str(caught.value)
    assert caught.value.record == record


def test_a_stream_that_is_deleted_ends_the_application(aws: AWSServer, stream: str) -> None:
    sink = sink_of(aws, stream)
    sink.start()
    aws.client("kinesis").delete_stream(StreamName=stream)
    add(sink, 1)
    with pytest.raises(KinesisStreamNotFoundError):
        sink.flush()


@pytest.mark.parametrize(
    ("value", "key", "reason"),
    [
        ({1, 2}, b"key", "value_serializer failed with TypeError on a set"),
        ("hidden" * 200_000, b"key", "it has 1200005 bytes"),
        ("hidden", b"\xffhidden", "key_serializer failed with UnicodeDecodeError"),
        ("hidden", 7, "key_serializer failed with TypeError"),
        ("hidden", "k" * 257, "the key has 257 characters"),
    ],
)
def test_a_poison_value_is_named_and_not_shown(aws: AWSServer, stream: str, value: Any, key: Any, reason: str) -> None:
    sink = sink_of(aws, stream)
    sink.start()
    add(sink, value, key=key, start=41)
    with pytest.raises(SinkError, match=rf"KinesisSink cannot write orders\[3\] offset 41: .*{reason}") as caught:
        sink.flush()
    assert "hidden" not in str(caught.value)


def test_results_of_serializers_are_checked(aws: AWSServer, stream: str) -> None:
    for settings, reason in [
        ({"value_serializer": lambda value: value}, "value_serializer returned a dict"),
        ({"value_serializer": lambda value: "\ud800"}, "no form in UTF-8"),
        ({"key_serializer": lambda key: b"\xff"}, "key_serializer returned bytes that are not UTF-8"),
    ]:
        sink = sink_of(aws, stream, **settings)
        add(sink, {})
        with pytest.raises(SinkError, match=reason):
            sink.flush()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"stream_name": ""}, "stream_name"),
        ({"stream_name": 5}, "stream_name"),
        ({"aws_access_key_id": "id"}, "needs both"),
        ({"aws_access_key_id": "id", "aws_secret_access_key": 5}, "aws_secret_access_key"),
        ({"region_name": ""}, "region"),
        ({"aws_endpoint_url": "ftp://host"}, "http"),
        ({"aws_endpoint_url": "http://me:hidden@host"}, "must not hold credentials"),
        ({"aws_endpoint_url": 5}, "must be a str"),
        ({"value_serializer": "json"}, "value_serializer"),
        ({"streams": 1}, "unknown arguments: streams"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)
    with pytest.raises(ConfigurationError, match=reason) as caught:
        KinesisSink(**{"stream_name": "orders", **arguments})
    assert "hidden" not in str(caught.value)


def test_the_library_is_named_if_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"KinesisSink needs the package boto3: run pip install .*\[aws\]"):
        KinesisSink("orders")


def test_options_of_boto3_are_used(aws: AWSServer, stream: str) -> None:
    from botocore.config import Config

    made = sink_of(aws, stream, config=Config(user_agent_extra="mine"), verify=False, endpoint_url=aws.url, url=None)
    sink: KinesisSink = cloudpickle.loads(cloudpickle.dumps(made))
    sink.start()
    assert "mine" in aws.agents
