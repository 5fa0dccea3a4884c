"""The services of AWS for tests: moto's server in this process, behind a gate that makes it fail as the services do."""

import contextlib
import functools
import hashlib
import io
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from moto.core import enable_iam_authentication
from moto.kinesis.models import KinesisBackend, Shard, Stream
from moto.kinesis.utils import decompose_shard_iterator
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import BaseWSGIServer, make_server
from werkzeug.wrappers import Request, Response

from tests.servers import free_port

REGION = "eu-west-1"
KEY_ID = "AKIAIOSFODNN7EXAMPLE"
SECRET = "wJalrXUtnFEMI-K7MDENG-bPxRfiCYEXAMPLEKEY"
TOKEN = "a-token-that-is-shown-to-no-one"

Forward = Callable[[bytes], Response]
Gate = Callable[[str, bytes, Forward], Response]
"""Gets the operation and the body of a request, and a function that lets the service answer a body."""


class AWSServer:
    """A server of moto on a port of the loopback interface; its data outlive it."""

    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.operations: list[str] = []
        self.agents = ""
        self._gate: Gate | None = None
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._server: BaseWSGIServer | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Accept connections."""
        server = make_server("127.0.0.1", self.port, self._answer, True, request_handler=MotoRequestHandler)
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Refuse connections."""
        assert self._server is not None
        assert self._thread is not None
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @contextlib.contextmanager
    def down(self) -> Iterator[None]:
        """Refuse connections for a while."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    @contextlib.contextmanager
    def gated(self, gate: Gate) -> Iterator[None]:
        """Let a function decide what becomes of requests."""
        self._gate = gate
        try:
            yield
        finally:
            self._gate = None

    @staticmethod
    @contextlib.contextmanager
    def checking_credentials() -> Iterator[None]:
        """Refuse keys that do not exist; else, moto accepts all."""
        with enable_iam_authentication():
            yield

    @functools.cache  # noqa: B019 - the server lives as long as the process
    def client(self, service: str) -> Any:
        """Return a client of a service; to make one takes a while."""
        config = Config(retries={"total_max_attempts": 1})
        return boto3.session.Session().client(
            service,
            region_name=REGION,
            endpoint_url=self.url,
            aws_access_key_id=KEY_ID,
            aws_secret_access_key=SECRET,
            config=config,
        )

    def _answer(self, environ: Any, start_response: Any) -> Any:
        request = Request(environ)
        body = request.get_data()
        operation = request.headers.get("X-Amz-Target", "").rpartition(".")[2]
        self.operations.append(operation)
        self.agents = request.headers.get("User-Agent", "")

        def forward(data: bytes) -> Response:
            inner = {**environ, "wsgi.input": io.BytesIO(data), "CONTENT_LENGTH": str(len(data))}
            inner.pop("werkzeug.request", None)
            return Response.from_app(self._moto, inner)

        response = forward(body) if self._gate is None else self._gate(operation, body, forward)
        return response(environ, start_response)


def unavailable() -> Response:
    """Return the answer of a service that is down."""
    return Response("the service is down", 503)


@pytest.fixture(scope="session")
def aws() -> Iterator[AWSServer]:
    """A server for the whole run."""
    server = AWSServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def resharding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Correct how moto splits and merges shards: records stay in closed shards, which end and take no more records."""
    split, merge = Stream.split_shard, Stream.merge_shards
    get_records = KinesisBackend.get_records

    def keeping(change: Callable[..., None], count: int) -> Callable[..., None]:
        def changed(stream: Stream, *arguments: str) -> None:
            shards = [stream.shards[name] for name in arguments[:count]]
            kept = [shard.records for shard in shards]
            for shard in shards:
                shard.records = OrderedDict()
            change(stream, *arguments)
            for shard, records in zip(shards, kept, strict=True):
                shard.is_open, shard.records = False, records

        return changed

    def of_key(stream: Stream, partition_key: str, explicit_hash_key: str) -> Shard | None:
        number = int.from_bytes(hashlib.md5(partition_key.encode()).digest(), "big")
        return next(
            (
                shard
                for shard in stream.shards.values()
                if shard.is_open and shard.starting_hash <= number <= shard.ending_hash
            ),
            None,
        )

    def read(backend: KinesisBackend, stream_arn: str | None, shard_iterator: str, limit: int | None) -> Any:
        found = get_records(backend, stream_arn, shard_iterator, limit)
        name, shard_id, _ = decompose_shard_iterator(shard_iterator)
        shard = backend.streams[name].shards[shard_id]
        last = int(decompose_shard_iterator(found[0])[2])
        return found if shard.is_open or last < shard.get_max_sequence_number() else (None, *found[1:])

    monkeypatch.setattr(Stream, "split_shard", keeping(split, 1))
    monkeypatch.setattr(Stream, "merge_shards", keeping(merge, 2))
    monkeypatch.setattr(Stream, "get_shard_for_key", of_key)
    monkeypatch.setattr(KinesisBackend, "get_records", read)
