"""The sink of files in Azure Blob Storage, on Azurite."""

import json
import pickle
from collections.abc import Iterator
from typing import Any

import cloudpickle
import pytest
from azure.storage.blob import BlobServiceClient

from streamrt.connectors import AzureFileSink, SinkPosition
from streamrt.connectors.file_sinks.azure_file_sink import (
    AzureContainerAccessDeniedError,
    AzureContainerNotFoundError,
    _AzureStore,
)
from streamrt.connectors.file_sinks.file_sink import FileSink
from streamrt.connectors.retries import Retries
from streamrt.errors import ConfigurationError, SinkBackpressureError, SinkError, SinkFencedError
from tests.connectors.file_sinks import FileSinkConformance
from tests.connectors.lake_values import commit_of
from tests.connectors.object_stores import azurite
from tests.connectors.proxy import Proxy
from tests.connectors.sql_tables import batch_of
from tests.support import unique

pytestmark = pytest.mark.slow

# The key of the account that Azurite has.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


def connection(port: int, key: str = KEY) -> str:
    endpoint = f"http://127.0.0.1:{port}/devstoreaccount1"
    return f"DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey={key};BlobEndpoint={endpoint};"


@pytest.fixture(scope="module")
def server() -> Iterator[Proxy]:
    with azurite() as gate:
        yield gate


@pytest.fixture
def container(server: Proxy) -> Iterator[Any]:
    """A client of a new container."""
    with BlobServiceClient.from_connection_string(connection(server.port)) as service:
        yield service.create_container(unique("container").lower().replace("_", "-"))


def names(container: Any) -> list[str]:
    return sorted(blob.name for blob in container.list_blobs() if "_streamrt/" not in blob.name)


class TestAzureFileSink(FileSinkConformance):
    store = _AzureStore
    many = 1_000

    @pytest.fixture(autouse=True)
    def place(self, server: Proxy, container: Any) -> None:
        self.gate, self.container = server, container

    def make(self) -> FileSink:
        return AzureFileSink(connection(self.gate.port), self.container.container_name, directory="/a/b/")

    def files(self) -> list[str]:
        return [name.removeprefix("a/b/") for name in names(self.container)]

    def content(self, name: str) -> bytes:
        data: bytes = self.container.download_blob(f"a/b/{name}").readall()
        return data


def test_a_service_that_is_away_pauses_the_partition_and_loses_nothing(server: Proxy, container: Any) -> None:
    retries = Retries(attempts=1, first_wait_s=0.01, retry_after_s=7)
    sink = AzureFileSink(connection(server.port), container.container_name, retries=retries)
    sink.start()
    sink.write_transaction([batch_of({"n": 1})], commit_of((0, None, SinkPosition(1, 1))))
    commit = commit_of((0, SinkPosition(1, 1), SinkPosition(2, 2)))
    server.close()
    try:
        with pytest.raises(SinkBackpressureError, match="gives no answer") as caught:
            sink.write_transaction([batch_of({"n": 2}, start=1)], commit)
    finally:
        server.open()
    assert caught.value.retry_after == 7
    sink.write_transaction([batch_of({"n": 2}, start=1)], commit)
    with pytest.raises(SinkFencedError):
        sink.write_transaction([batch_of({"n": 2}, start=1)], commit)
    values = [json.loads(container.download_blob(name).readall())["_value"] for name in names(container)]
    assert values == [{"n": 1}, {"n": 2}]
    assert not [blob.name for blob in container.list_blobs() if "check" in blob.name]


def test_wrong_targets_are_named_and_secrets_are_not(server: Proxy, container: Any) -> None:
    with pytest.raises(AzureContainerNotFoundError, match="'nowhere' does not exist"):
        AzureFileSink(lambda: connection(server.port), "nowhere").start()
    wrong = KEY[::-1].lstrip("=") + "=="
    sink = AzureFileSink(connection(server.port, wrong), container.container_name)
    with pytest.raises(AzureContainerAccessDeniedError, match="refuses access") as caught:
        sink.start()
    assert wrong not in f"{caught.value} {sink!r}"
    pickled = cloudpickle.dumps(sink)
    assert wrong.encode() not in pickled
    assert pickle.loads(pickled).name == f"azure://{container.container_name}"
    with pytest.raises(SinkError, match="is not a connection string") as caught_text:
        AzureFileSink("AccountKey=sesame-open", "archive").start()
    assert "sesame-open" not in str(caught_text.value)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"azure_connection_string": ""}, "azure_connection_string"),
        ({"azure_connection_string": 3}, "azure_connection_string"),
        ({"azure_container": ""}, "the name of a"),
        ({"azure_container": "a/b"}, "the name of a"),
        ({"directory": "../other"}, "must not have the parts"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises((ConfigurationError, TypeError), match=reason):
        AzureFileSink(**{"azure_connection_string": "x", "azure_container": "archive", **settings})


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"AzureFileSink needs the package azure.storage.blob: run .*azure"):
        AzureFileSink("x", "archive")
