"""`GCSFileSource` with gcp-storage-emulator."""

import contextlib
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from streamrt.connectors import GCSFileSource, Source
from streamrt.connectors.file_sources.gcs_file_source import MissingGCSBucket
from streamrt.errors import ConfigurationError, SourceError
from tests.connectors.file_sources import ObjectStoreConformance, lines, numbers
from tests.connectors.object_stores import cloud_storage
from tests.connectors.proxy import Proxy
from tests.support import unique

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[Proxy]:
    with cloud_storage() as gate:
        yield gate


class TestGCSFileSource(ObjectStoreConformance):
    missing: ClassVar[type[SourceError]] = MissingGCSBucket

    @pytest.fixture(autouse=True)
    def place(self, server: Proxy) -> Iterator[None]:
        self.gate = server
        self.folder = unique("folder")
        # Conflict: an earlier test has made it.
        with contextlib.suppress(urllib.error.HTTPError):
            self.post("/storage/v1/b?project=test", json.dumps({"name": self.container}).encode(), "application/json")
        yield
        server.close()
        server.open()

    def post(self, path: str, data: bytes, kind: str) -> None:
        request = urllib.request.Request(f"http://127.0.0.1:{self.gate.port}{path}", data, {"Content-Type": kind})
        with urllib.request.urlopen(request):
            pass

    def put(self, path: str, data: bytes) -> None:
        upload = f"/upload/storage/v1/b/{self.container}/o?uploadType=media&name={self.folder}/{path}"
        self.post(upload, data, "application/octet-stream")

    def source(
        self, filepath: str = "", container: str = ObjectStoreConformance.container, whole: bool = False, **options: Any
    ) -> Source:
        return GCSFileSource(
            "" if whole else f"{self.folder}/{filepath}".rstrip("/"),
            container,
            "test",
            endpoint_url=f"http://127.0.0.1:{self.gate.port}",
            name="rows",
            **options,
        )

    def test_a_key_that_is_no_json(self) -> None:
        self.put("a.jsonl", lines(numbers(0, 1)))
        for key in ("sesame", '"sesame"'):
            message = str(self.run(service_account_json=key).failure())
            assert message.startswith("service_account_json of the source rows is not the key of a service account")
            assert "sesame" not in message

    def test_a_key_that_cannot_be_used(self) -> None:
        self.put("a.jsonl", lines(numbers(0, 1)))
        key = json.dumps({"type": "service_account", "private_key": "sesame-open", "client_email": "a@b"})
        assert "sesame-open" not in str(self.run(service_account_json=lambda: key).failure())

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"bucket": ""}, "must be the name of a bucket"),
            ({"service_account_json": {}}, "must be a non-empty str or a function"),
            ({"project": 5}, "must be a str"),
        ],
    )
    def test_wrong_arguments(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(ConfigurationError, match=message):
            GCSFileSource(**{"filepath": "a", "bucket": "b", **options})
