"""`AzureFileSource` with Azurite."""

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from azure.core.exceptions import ResourceExistsError
from azure.storage.blob import BlobServiceClient

from streamrt.connectors import AzureFileSource, Source
from streamrt.connectors.file_sources.azure_file_source import MissingAzureContainer
from streamrt.errors import ConfigurationError, SourceError
from tests.connectors.file_sources import ObjectStoreConformance, lines, numbers
from tests.connectors.object_stores import azurite
from tests.connectors.proxy import Proxy
from tests.support import unique

pytestmark = pytest.mark.slow

# The published key of each Azurite.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


def connection(port: int, key: str = KEY) -> str:
    endpoint = f"http://127.0.0.1:{port}/devstoreaccount1"
    return f"DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey={key};BlobEndpoint={endpoint};"


@pytest.fixture(scope="module")
def server() -> Iterator[Proxy]:
    with azurite() as gate:
        yield gate


class TestAzureFileSource(ObjectStoreConformance):
    missing: ClassVar[type[SourceError]] = MissingAzureContainer

    @pytest.fixture(autouse=True)
    def place(self, server: Proxy) -> Iterator[None]:
        self.gate = server
        self.folder = unique("folder")
        with BlobServiceClient.from_connection_string(connection(server.port)) as service:
            try:
                self.client = service.create_container(self.container)
            except ResourceExistsError:
                self.client = service.get_container_client(self.container)
            yield
        server.close()
        server.open()

    def put(self, path: str, data: bytes) -> None:
        self.client.upload_blob(f"{self.folder}/{path}", data, overwrite=True)

    def source(
        self, filepath: str = "", container: str = ObjectStoreConformance.container, whole: bool = False, **options: Any
    ) -> Source:
        return AzureFileSource(
            options.pop("connection_string", connection(self.gate.port)),
            container,
            "" if whole else f"{self.folder}/{filepath}".rstrip("/"),
            name="rows",
            **options,
        )

    def test_refused_credentials(self) -> None:
        self.put("a.jsonl", lines(numbers(0, 1)))
        wrong = KEY[::-1].lstrip("=") + "=="
        message = str(self.run(connection_string=connection(self.gate.port, wrong)).failure())
        assert message.startswith("the source rows cannot read ")
        assert wrong not in message
        assert "\n" not in message

    def test_a_function_returns_the_connection_string(self) -> None:
        self.put("a.jsonl", lines(numbers(0, 1)))
        text = connection(self.gate.port)
        assert self.run(connection_string=lambda: text).to_end().values == numbers(0, 1)

    def test_a_connection_string_that_is_none(self) -> None:
        message = str(self.run(connection_string="AccountKey=sesame-open").failure())
        assert "sesame-open" not in message

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"container": ""}, "must be the name of a container"),
            ({"connection_string": ""}, "must be a non-empty str or a function"),
            ({"connection_string": None}, "must be a non-empty str or a function"),
        ],
    )
    def test_wrong_arguments(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(ConfigurationError, match=message):
            AzureFileSource(**{"connection_string": "a", "container": "b", "filepath": "c", **options})
