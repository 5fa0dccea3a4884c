"""The sink of files in S3."""

import json
import pickle
import uuid
from collections.abc import Iterator
from typing import Any

import cloudpickle
import pytest

from streamrt.connectors import Rolling, S3FileSink, SinkPosition
from streamrt.connectors.file_sinks.file_sink import FileSink
from streamrt.connectors.file_sinks.s3_file_sink import S3BucketNotFoundError, _S3Store
from streamrt.connectors.retries import Retries
from streamrt.errors import ConfigurationError, SinkBackpressureError, SinkError, SinkFencedError
from tests.connectors.file_sinks import FileSinkConformance
from tests.connectors.lake_values import commit_of
from tests.connectors.s3_server import KEY_ID, REGION, SECRET_KEY, S3Service, s3_service
from tests.connectors.sql_tables import batch_of


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Service]:
    with s3_service() as service:
        yield service


def s3_sink(service: S3Service, bucket: str, **settings: Any) -> S3FileSink:
    return S3FileSink(bucket, KEY_ID, SECRET_KEY, REGION, service.url, **settings)


class TestS3FileSink(FileSinkConformance):
    store = _S3Store
    many = 1_000

    @pytest.fixture(autouse=True)
    def place(self, s3: S3Service) -> None:
        self.service, self.bucket = s3, f"bucket-{uuid.uuid4().hex}"
        s3.make_bucket(self.bucket)

    def make(self) -> FileSink:
        return s3_sink(self.service, self.bucket, directory="a/b")

    def files(self) -> list[str]:
        names = (key.removeprefix("a/b/") for key in self.service.keys(self.bucket))
        return sorted(name for name in names if not name.startswith("_"))

    def content(self, name: str) -> bytes:
        return self.service.read(self.bucket, f"a/b/{name}")


def test_c11_a_file_that_grows_over_commits(s3: S3Service) -> None:
    bucket = f"bucket-{uuid.uuid4().hex}"
    s3.make_bucket(bucket)
    sink = s3_sink(s3, bucket, rolling=Rolling(max_records=3, max_age=3_600))
    sink.start()
    for number in range(4):
        before = SinkPosition(number, number) if number else None
        commit = commit_of((0, before, SinkPosition(number + 1, number + 1)))
        sink.write_transaction([batch_of({"n": number}, start=number)], commit)
    names = [key for key in s3.keys(bucket) if not key.startswith("_")]
    assert [len(s3.read(bucket, name).splitlines()) for name in names] == [3]
    assert sum("/parts/" in key for key in s3.keys(bucket)) == 1
    sink.close()
    names = sorted(key for key in s3.keys(bucket) if not key.startswith("_"))
    assert [len(s3.read(bucket, name).splitlines()) for name in names] == [3, 1]
    assert not any("/parts/" in key for key in s3.keys(bucket))


def test_an_s3_service_that_is_away_pauses_the_partition_and_loses_nothing() -> None:
    with s3_service() as service:
        service.make_bucket("archive")
        retries = Retries(attempts=2, first_wait_s=0.01, retry_after_s=7)
        sink = s3_sink(service, "archive", retries=retries)
        sink.start()
        sink.write_transaction([batch_of({"n": 1})], commit_of((0, None, SinkPosition(1, 1))))
        service.stop()
        commit = commit_of((0, SinkPosition(1, 1), SinkPosition(2, 2)))
        with pytest.raises(SinkBackpressureError, match="gives no answer") as caught:
            sink.write_transaction([batch_of({"n": 2}, start=1)], commit)
        assert caught.value.retry_after == 7
        with pytest.raises(SinkError, match="S3FileSink cannot reach s3://archive"):
            s3_sink(service, "archive").start()
        service.start()
        sink.write_transaction([batch_of({"n": 2}, start=1)], commit)
        with pytest.raises(SinkFencedError, match=r"another position of orders\[0\]"):
            sink.write_transaction([batch_of({"n": 2}, start=1)], commit)
        values = [key for key in service.keys("archive") if not key.startswith("_")]
        assert [json.loads(service.read("archive", key))["_value"]["n"] for key in values] == [1, 2]
        # Checks of conditions leave nothing.
        assert not [key for key in service.keys("archive") if "check" in key]


def test_a_service_without_conditional_writes_is_refused(s3: S3Service, monkeypatch: pytest.MonkeyPatch) -> None:
    s3.make_bucket("unconditional")

    def put_always(store: Any, name: str, content: bytes, token: Any) -> str:
        store.put(name, content)
        return "a tag"

    monkeypatch.setattr(_S3Store, "replace", put_always)
    with pytest.raises(SinkError, match="does not know conditional writes"):
        s3_sink(s3, "unconditional").start()
    sink = s3_sink(s3, "unconditional", exactly_once=False)
    sink.start()
    sink.write(batch_of({"n": 1}))
    assert len(s3.keys("unconditional")) == 1


def test_a_bucket_that_does_not_exist_is_named_and_secrets_are_not(s3: S3Service) -> None:
    plain = s3_sink(s3, "nowhere")
    made = S3FileSink("nowhere", KEY_ID, lambda: SECRET_KEY, REGION, s3.url)
    for sink in (plain, made):
        with pytest.raises(S3BucketNotFoundError, match="'nowhere' does not exist"):
            sink.start()
        assert SECRET_KEY not in repr(sink)
    pickled = cloudpickle.dumps(s3_sink(s3, "nowhere", directory="d", aws_session_token="token-" + SECRET_KEY))
    assert SECRET_KEY.encode() not in pickled
    again = pickle.loads(pickled)
    assert again.name == "s3://nowhere/d"
    with pytest.raises(S3BucketNotFoundError):
        again.start()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"bucket": ""}, "the name of a bucket"),
        ({"bucket": "a/b"}, "the name of a bucket"),
        ({"bucket": 3}, "the name of a bucket"),
        ({"aws_access_key_id": "id"}, "needs aws_secret_access_key"),
        ({"aws_secret_access_key": 3}, "must be a non-empty str or a function"),
        ({"region_name": 3}, "must be a str"),
        ({"endpoint_url": "http://user:password@host"}, "without credentials"),
        ({"directory": "../other"}, "must not have the parts"),
        ({"config": None}, "which the sink sets"),
    ],
)
def test_arguments_of_s3_that_cannot_be_used_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises((ConfigurationError, TypeError), match=reason):
        S3FileSink(**{"bucket": "archive", **settings})


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"S3FileSink needs the package botocore: run .*s3"):
        S3FileSink("archive")
