"""`S3FileSource` with moto."""

import urllib.request
from collections.abc import Iterator
from typing import Any, ClassVar

import boto3
import pytest
from botocore.config import Config

from streamrt.connectors import S3FileSource, Source
from streamrt.connectors.file_sources.s3_file_source import MissingS3Bucket
from streamrt.errors import ConfigurationError, SourceError
from tests.connectors.file_sources import SECRET, ObjectStoreConformance, lines, numbers
from tests.connectors.object_stores import moto
from tests.connectors.proxy import Proxy
from tests.connectors.sources import Run
from tests.support import unique

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[Proxy]:
    with moto() as gate:
        yield gate


def client(gate: Proxy, secret: str = SECRET) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{gate.port}",
        region_name="us-east-1",
        aws_access_key_id="id",
        aws_secret_access_key=secret,
        config=Config(retries={"max_attempts": 1}),
    )


def switch(address: str, requests: bytes) -> None:
    """Have moto accept any credentials for a number of requests."""
    with urllib.request.urlopen(urllib.request.Request(address, requests, {"Content-Type": "text/plain"})):
        pass


class TestS3FileSource(ObjectStoreConformance):
    missing: ClassVar[type[SourceError]] = MissingS3Bucket

    @pytest.fixture(autouse=True)
    def place(self, server: Proxy) -> Iterator[None]:
        self.gate = server
        self.folder = unique("folder")
        self.client = client(server)
        self.client.create_bucket(Bucket=self.container)
        yield
        server.close()
        server.open()

    def put(self, path: str, data: bytes) -> None:
        self.client.put_object(Bucket=self.container, Key=f"{self.folder}/{path}", Body=data)

    def source(
        self, filepath: str = "", container: str = ObjectStoreConformance.container, whole: bool = False, **options: Any
    ) -> Source:
        return S3FileSource(
            "" if whole else f"{self.folder}/{filepath}".rstrip("/"),
            container,
            "us-east-1",
            "id",
            options.pop("secret", SECRET),
            f"http://127.0.0.1:{self.gate.port}",
            name="rows",
            **options,
        )

    def test_refused_credentials(self) -> None:
        self.put("a.jsonl", lines(numbers(0, 1)))
        address = f"http://127.0.0.1:{self.gate.port}/moto-api/reset-auth"
        switch(address, b"0")
        try:
            message = str(Run(self.source()).failure())
        finally:
            switch(address, b"inf")
        assert message.startswith("the source rows cannot read ")
        assert SECRET not in message

    def test_a_function_returns_the_secret(self) -> None:
        self.put("a.jsonl", lines(numbers(0, 1)))
        assert self.run(secret=lambda: SECRET).to_end().values == numbers(0, 1)

    def test_settings_of_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.put("a.jsonl", lines(numbers(0, 1)))
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{self.gate.port}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        source = S3FileSource(self.folder, self.container, replay_speed=0)
        assert source.name == self.folder
        assert Run(source).to_end().values == numbers(0, 1)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"bucket": ""}, "must be the name of a bucket"),
            ({"bucket": "a/b"}, "must be the name of a bucket"),
            ({"bucket": 5}, "must be the name of a bucket"),
            ({"endpoint_url": "127.0.0.1:5000"}, "must be a URL"),
            ({"endpoint_url": f"http://id:{SECRET}@host"}, "without credentials"),
            ({"aws_secret_access_key": 5}, "must be a non-empty str or a function"),
            ({"aws_secret_access_key": ""}, "must be a non-empty str or a function"),
            ({"region_name": 5}, "must be a str"),
        ],
    )
    def test_wrong_arguments(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(ConfigurationError, match=message) as caught:
            S3FileSource(**{"filepath": "a", "bucket": "b", **options})
        assert SECRET not in str(caught.value)
