"""An S3 service in the test process."""

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import boto3
from moto.server import ThreadedMotoServer

KEY_ID, SECRET_KEY, REGION = "AKIATESTTESTTEST", "s3-secret-sesame-for-tests", "eu-central-1"


class S3Service:
    """A service of moto, and a client for it.

    Args:
        port: the port; 0 for a free one.
    """

    def __init__(self, port: int = 0) -> None:
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
        self._server.start()
        host, self.port = self._server.get_host_and_port()
        self.url = f"http://{host}:{self.port}"
        self.client: Any = boto3.client(
            "s3", endpoint_url=self.url, aws_access_key_id=KEY_ID, aws_secret_access_key=SECRET_KEY, region_name=REGION
        )

    def make_bucket(self, name: str) -> None:
        """Create a bucket."""
        self.client.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})

    def keys(self, bucket: str) -> list[str]:
        """Return the names of all objects of a bucket."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket)
        return [entry["Key"] for page in pages for entry in page.get("Contents", ())]

    def read(self, bucket: str, key: str) -> bytes:
        """Return the content of an object."""
        content: bytes = self.client.get_object(Bucket=bucket, Key=key)["Body"].read()
        return content

    def stop(self) -> None:
        """Stop the service; the objects remain until `start`, since moto holds them in this process."""
        self._server.stop()

    def start(self) -> None:
        """Start it again on the same port."""
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=self.port, verbose=False)
        self._server.start()


@contextlib.contextmanager
def s3_service() -> Iterator[S3Service]:
    """An S3 service, stopped at the end."""
    # The server logs each request as an error.
    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    service = S3Service()
    try:
        yield service
    finally:
        service.stop()
