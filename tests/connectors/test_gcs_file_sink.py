"""The sink of files in Google Cloud Storage, on gcp-storage-emulator with conditions."""

import json
import pickle
from collections.abc import Iterator
from typing import Any

import cloudpickle
import pytest
from google.api_core.client_options import ClientOptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

from streamrt.connectors import GCSFileSink, SinkPosition
from streamrt.connectors.failures import PassingError
from streamrt.connectors.file_sinks.file_sink import FileSink
from streamrt.connectors.file_sinks.file_stores import ChangedError
from streamrt.connectors.file_sinks.gcs_file_sink import GCSBucketAccessDeniedError, GCSBucketNotFoundError, _GCSStore
from streamrt.connectors.retries import Retries
from streamrt.errors import ConfigurationError, SinkBackpressureError, SinkError, SinkFencedError
from tests.connectors.file_sinks import FileSinkConformance
from tests.connectors.lake_values import commit_of
from tests.connectors.object_stores import cloud_storage
from tests.connectors.proxy import Proxy
from tests.connectors.sinks import QUICK
from tests.connectors.sql_tables import batch_of
from tests.support import unique

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[Proxy]:
    with cloud_storage() as gate:
        yield gate


@pytest.fixture(scope="module")
def client(server: Proxy) -> storage.Client:
    options = ClientOptions(api_endpoint=f"http://127.0.0.1:{server.port}")
    return storage.Client(project="test", credentials=AnonymousCredentials(), client_options=options)


@pytest.fixture
def bucket(client: storage.Client) -> Any:
    """A new bucket."""
    return made(client, "bucket")


def made(client: storage.Client, kind: str) -> Any:
    return client.create_bucket(f"{kind}-{unique('b')}".lower().replace("_", "-"))


def sink_of(server: Proxy, bucket: str, **options: Any) -> GCSFileSink:
    return GCSFileSink(bucket, "test", endpoint_url=f"http://127.0.0.1:{server.port}", **options)


def names(bucket: Any) -> list[str]:
    return sorted(blob.name for blob in bucket.list_blobs() if "_streamrt/" not in blob.name)


def values(bucket: Any) -> list[Any]:
    contents = (bucket.blob(name).download_as_bytes() for name in names(bucket))
    return [json.loads(line)["_value"] for content in contents for line in content.splitlines()]


class TestGCSFileSink(FileSinkConformance):
    store = _GCSStore
    many = 1_000

    @pytest.fixture(autouse=True)
    def place(self, server: Proxy, bucket: Any) -> None:
        self.gate, self.bucket = server, bucket

    def make(self) -> FileSink:
        return sink_of(self.gate, self.bucket.name, directory="/a/b/")

    def files(self) -> list[str]:
        return [name.removeprefix("a/b/") for name in names(self.bucket)]

    def content(self, name: str) -> bytes:
        data: bytes = self.bucket.blob(f"a/b/{name}").download_as_bytes()
        return data


def test_a_service_that_is_away_pauses_the_partition_and_loses_nothing(server: Proxy, bucket: Any) -> None:
    sink = sink_of(server, bucket.name, retries=Retries(attempts=1, first_wait_s=0.01, retry_after_s=7))
    sink.start()
    sink.write_transaction([batch_of({"n": 1})], commit_of((0, None, SinkPosition(1, 1))))
    commit = commit_of((0, SinkPosition(1, 1), SinkPosition(2, 2)))
    server.close()
    try:
        with pytest.raises(SinkBackpressureError, match="does not answer") as caught:
            sink.write_transaction([batch_of({"n": 2}, start=1)], commit)
    finally:
        server.open()
    assert caught.value.retry_after == 7
    sink.write_transaction([batch_of({"n": 2}, start=1)], commit)
    with pytest.raises(SinkFencedError):
        sink.write_transaction([batch_of({"n": 2}, start=1)], commit)
    assert values(bucket) == [{"n": 1}, {"n": 2}]
    assert not [blob.name for blob in bucket.list_blobs() if "check" in blob.name]


def test_answers_that_the_bucket_is_busy_may_pass(client: storage.Client) -> None:
    store = _GCSStore(client, made(client, "busy").name, "")
    with pytest.raises(PassingError, match="it answers TooManyRequests"):
        store.put("a", b"1")


def test_large_contents_keep_the_condition(
    client: storage.Client, bucket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Above this size, several requests carry a content.
    monkeypatch.setattr("google.cloud.storage.blob._MAX_MULTIPART_SIZE", 10)
    store = _GCSStore(client, bucket.name, "")
    first = store.replace("a", b"x" * 100, None)
    second = store.replace("a", b"y" * 100, first)
    for token in (None, first):
        with pytest.raises(ChangedError):
            store.replace("a", b"z" * 100, token)
    assert store.read("a") == (b"y" * 100, second)


def test_a_service_without_conditions_is_refused(server: Proxy, client: storage.Client) -> None:
    plain = made(client, "plain")
    with pytest.raises(SinkError, match="does not know conditional writes"):
        sink_of(server, plain.name).start()
    assert not list(plain.list_blobs())
    sink = sink_of(server, plain.name, exactly_once=False)
    sink.start()
    sink.write_transaction([batch_of({"n": 1})], commit_of((0, None, SinkPosition(1, 1))))
    assert values(plain) == [{"n": 1}]
    with pytest.raises(SinkError, match="does not name the generation"):
        _GCSStore(client, plain.name, "").read(names(plain)[0])


def test_wrong_targets_are_named_and_secrets_are_not(server: Proxy, client: storage.Client) -> None:
    with pytest.raises(GCSBucketNotFoundError, match="'nowhere' does not exist"):
        sink_of(server, "nowhere").start()
    with pytest.raises(GCSBucketAccessDeniedError, match="refuses the credentials"):
        sink_of(server, made(client, "refused").name).start()
    server.close()
    try:
        with pytest.raises(
            SinkError, match="GCSFileSink cannot reach gs://archive/a: bucket 'archive': it does not answer"
        ):
            sink_of(server, "archive", directory="a", retries=QUICK).start()
    finally:
        server.open()
    key = json.dumps({"type": "service_account", "private_key": "sesame-open", "client_email": "a@b"})
    sink = sink_of(server, "archive", service_account_json=key)
    with pytest.raises(ConfigurationError, match="is not the key of a service account") as caught:
        sink.start()
    assert "sesame-open" not in f"{caught.value} {sink!r}"
    pickled = cloudpickle.dumps(sink)
    assert b"sesame-open" not in pickled
    assert pickle.loads(pickled).name == "gs://archive"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"bucket": ""}, "the name of a"),
        ({"bucket": "a/b"}, "the name of a"),
        ({"project": 5}, "must be a str"),
        ({"service_account_json": 5}, "service_account_json"),
        ({"service_account_json": "sesame"}, "must be a JSON object"),
        ({"endpoint_url": "http://user:secret@host"}, "without credentials"),
        ({"directory": "../other"}, "must not have the parts"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises((ConfigurationError, TypeError), match=reason):
        GCSFileSink(**{"bucket": "archive", **settings})


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"GCSFileSink needs the package google.cloud.storage: run .*gcs"):
        GCSFileSink("archive")
