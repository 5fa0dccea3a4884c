"""The link between resident tasks and the driver: messages of `runtime.link` over `multiprocessing.connection`.

The driver listens at a Unix socket if tasks run on its machine, otherwise at a TCP port. Both ends prove that they know
a random key before any message is unpickled, because unpickling may run code. The driver has a reading and a writing
thread for each connection, so a task that is slow, stuck or gone does not block the others.
"""

import contextlib
import logging
import os
import pickle
import queue
import secrets
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge
from pathlib import Path
from typing import Any

import cloudpickle

from streamrt.common.child_process import shut_down, socket_of
from streamrt.errors import RunnerError
from streamrt.runtime.link_messages import BatchDone, Failed, FromTask, LinkClosed, ProgressUpdate, ToTask
from streamrt.secret import concealed, stand_in
from streamrt.slots.reports import portable, travels

__all__ = ["DriverLink", "LinkAddress", "LinkListener", "TaskLink"]

logger = logging.getLogger("streamrt")

_KEY_BYTES = 32
_BACKLOG = 128
_AUTHENTICATION_S = 20.0
_RETRY_S = 0.2
_LONGEST_SOCKET_PATH = 100
"""Linux allows 107 bytes, macOS 103."""
_KEEP_ALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""A machine that vanishes closes no connection: after half a minute, the other end detects it."""
_UNANSWERED_MS = 30_000
"""The same while data is on its way to that machine: in that case, TCP sends no keepalive probes."""


@dataclass(frozen=True)
class LinkAddress:
    """Address of the driver.

    Attributes:
        endpoint: path of a Unix socket, or host and port.
        key: shared key of both ends. It is a secret.

    Example:
        >>> LinkAddress(("driver", 4711), b"sesame")
        LinkAddress(endpoint=('driver', 4711))
    """

    endpoint: str | tuple[str, int]
    key: bytes = field(repr=False)

    @property
    def words(self) -> str:
        """The address in readable form."""
        return self.endpoint if isinstance(self.endpoint, str) else f"{self.endpoint[0]}:{self.endpoint[1]}"

    def to_document(self) -> dict[str, Any]:
        """Return the address **with the key** as plain data."""
        return {"endpoint": self.endpoint, "key": self.key.hex()}

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> "LinkAddress":
        """Read the result of `to_document`."""
        endpoint = document["endpoint"]
        return cls(
            endpoint if isinstance(endpoint, str) else (endpoint[0], endpoint[1]), bytes.fromhex(document["key"])
        )


class DriverLink:
    """A task's end of the link. Any thread may use it.

    Args:
        address: address of the driver.

    Raises:
        LinkClosed: if the driver on this machine is gone.
        RunnerError: if the driver on another machine cannot be reached, does not answer, or has another key.
    """

    def __init__(self, address: LinkAddress) -> None:
        late = threading.Event()
        try:
            self._connection = Client(address.endpoint)
            _set_up(self._connection)
            with _in_time(self._connection, late):
                answer_challenge(self._connection, address.key)
                deliver_challenge(self._connection, address.key)
        except (AuthenticationError, AssertionError):  # the latter up to Python 3.11, for an invalid challenge
            raise RunnerError(f"the process at {address.words} is not the driver of this task") from None
        except (OSError, EOFError) as error:
            if late.is_set():
                # The driver may be frozen. Spark would not restart a task that ended here without an error.
                raise RunnerError(
                    f"the driver at {address.words} did not answer within {_AUTHENTICATION_S:.0f} s"
                ) from None
            if isinstance(address.endpoint, str):
                raise LinkClosed(f"the driver is gone: {error}") from None
            raise RunnerError(
                f"the task cannot reach the driver at {address.words} ({error}): set spark.driver.host to a name of the "
                "driver that all machines know, and let them connect to its ports"
            ) from None
        self._sending = threading.Lock()
        self._changed = threading.Condition()
        self._received: list[ToTask] = []
        self._closed = False
        threading.Thread(target=self._read_messages, name="streamrt-link", daemon=True).start()

    def send(self, message: FromTask) -> None:
        """Send a message, without the parts that cannot be pickled.

        Raises:
            LinkClosed: if the driver is gone.
        """
        data = _dump_message(message)
        try:
            with self._sending:
                self._connection.send_bytes(data)
        except OSError as error:
            raise LinkClosed(f"the driver is gone: {error}") from None

    def receive(self, timeout_s: float = 0.0) -> Sequence[ToTask]:
        """Return the messages that have arrived, in order; wait for the first one.

        Args:
            timeout_s: seconds to wait if there is none.

        Raises:
            LinkClosed: if the driver is gone and all its messages were returned.
        """
        with self._changed:
            if timeout_s > 0:
                self._changed.wait_for(lambda: self._received or self._closed, timeout_s)
            if not self._received and self._closed:
                raise LinkClosed("the driver is gone")
            received, self._received = self._received, []
            return received

    def close(self) -> None:
        """Close the link. The driver still receives earlier messages."""
        shut_down(self._connection)

    def _read_messages(self) -> None:
        try:
            while True:
                message = pickle.loads(self._connection.recv_bytes())
                with self._changed:
                    self._received.append(message)
                    self._changed.notify_all()
        except (OSError, EOFError):
            pass
        except Exception as error:  # noqa: BLE001 - after any error, nothing more can be read
            logger.error("a message of the driver cannot be read: %r", error)
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        with self._sending:
            self._connection.close()


class TaskLink:
    """The driver's end of the link to one task.

    Args:
        connection: the connection; the task has proved that it knows the key.
    """

    def __init__(self, connection: "Connection[Any, Any]") -> None:
        self._connection = connection
        self._outgoing: queue.SimpleQueue[ToTask | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write_messages, name="streamrt-link-writer", daemon=True)
        self._writer.start()

    def send(self, message: ToTask) -> None:
        """Send a message soon. A message to a task that is gone is lost."""
        self._outgoing.put(message)

    def messages(self) -> Iterator[FromTask]:
        """Yield the messages of the task, in order, until it disconnects. For one thread."""
        while True:
            try:
                data = self._connection.recv_bytes()
            except (OSError, EOFError):
                return
            try:
                message: FromTask = pickle.loads(data)
            except Exception as error:  # noqa: BLE001 - unpickling users' objects may raise anything
                message = Failed(RunnerError(f"a message of a task cannot be read in the process of run(): {error!r}"))
            yield message

    def close(self) -> None:
        """End the connection at once; the iterator of messages also ends."""
        self._outgoing.put(None)
        shut_down(self._connection)

    def release(self) -> None:
        """Free the resources of the connection, after the iterator of messages has ended."""
        self.close()
        self._writer.join()
        self._connection.close()

    def _write_messages(self) -> None:
        with contextlib.suppress(OSError):
            while (message := self._outgoing.get()) is not None:
                self._connection.send_bytes(pickle.dumps(message))


class LinkListener:
    """Waits for tasks, in separate threads.

    Args:
        serve: called in a separate thread for each task that connects and knows the key; the connection ends when it
            returns. Its errors are logged.
        directory: for a Unix socket, a directory that only this user can access; None listens at a port.
        host: name of this machine for tasks.
        bind: address of the network interface to listen at; that of `host` by default.

    Raises:
        RunnerError: if it cannot listen there.

    Example:
        >>> listener = LinkListener(lambda link: None, host="127.0.0.1")
        >>> host, port = listener.address.endpoint
        >>> listener.close()
    """

    def __init__(
        self,
        serve: Callable[[TaskLink], None],
        *,
        directory: Path | None = None,
        host: str = "127.0.0.1",
        bind: str | None = None,
    ) -> None:
        self._serve = serve
        self._links: set[TaskLink] = set()
        self._threads: set[threading.Thread] = set()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        path = None if directory is None else str(directory / f"link-{uuid.uuid4().hex[:8]}")
        if path is not None and len(os.fsencode(path)) > _LONGEST_SOCKET_PATH:
            path = None
        at = path or (bind or host, 0)
        try:
            self._listener = Listener(at, backlog=_BACKLOG)
        except OSError as error:
            raise RunnerError(
                f"the driver cannot listen for its tasks at {path or bind or host}: {error}; set spark.driver.bindAddress to "
                "an address of this machine, and spark.driver.host to a name that the other machines know"
            ) from error
        self._endpoint = path or (bind or host, self._listener.address[1])
        self.address = LinkAddress(path or (host, self._listener.address[1]), secrets.token_bytes(_KEY_BYTES))
        self._thread = threading.Thread(target=self._accept_connections, name="streamrt-link-listener", daemon=True)
        self._thread.start()

    def close(self, timeout_s: float = 5.0) -> None:
        """Close all connections, and wait until the functions that serve them have returned.

        Args:
            timeout_s: seconds to wait for all of them.
        """
        deadline = time.monotonic() + timeout_s
        with self._lock:
            self._closing.set()
            links, threads = list(self._links), list(self._threads)
        with contextlib.suppress(OSError):
            # Only this wakes a thread that waits for connections, on all systems.
            Client(self._endpoint).close()
        self._thread.join(timeout_s)
        with contextlib.suppress(OSError):
            self._listener.close()
        for link in links:
            link.close()
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))

    def _accept_connections(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except OSError as error:
                if self._closing.is_set():
                    return
                # Such as too many open files.
                logger.warning("a task could not connect to the driver: %s", error)
                self._closing.wait(_RETRY_S)
                continue
            thread = threading.Thread(
                target=self._serve_connection, args=(connection,), name="streamrt-link-task", daemon=True
            )
            with self._lock:
                if self._closing.is_set():
                    connection.close()
                    return
                self._threads.add(thread)
            thread.start()

    def _serve_connection(self, connection: "Connection[Any, Any]") -> None:
        try:
            self._run_link(connection)
        except Exception:
            logger.exception("dropping the connection to a task")
        finally:
            connection.close()
            with self._lock:
                self._threads.discard(threading.current_thread())

    def _run_link(self, connection: "Connection[Any, Any]") -> None:
        try:
            _set_up(connection)
            with _in_time(connection):
                deliver_challenge(connection, self.address.key)
                answer_challenge(connection, self.address.key)
        except (AuthenticationError, OSError, EOFError) as error:
            if not self._closing.is_set():
                reason = str(error) or "it sent nothing"
                logger.warning("rejected connection at %s: authentication failed: %s", self.address.words, reason)
            return
        link = TaskLink(connection)
        with self._lock:
            self._links.add(link)
            closed = self._closing.is_set()
        try:
            if not closed:
                self._serve(link)
        finally:
            with self._lock:
                self._links.discard(link)
            link.release()


def _dump_message(message: FromTask) -> bytes:
    if isinstance(message, BatchDone | ProgressUpdate):
        message = replace(message, report=portable(message.report))
    elif isinstance(message, Failed):
        # Before it leaves the process that may have the secrets.
        error = concealed(message.error, sent=True)
        if error is None or not travels(error):
            error = stand_in(message.error)
        message = Failed(error)
    data: bytes = cloudpickle.dumps(message)
    return data


def _set_up(connection: "Connection[Any, Any]") -> None:
    """Send small messages at once, and detect when the other machine is gone."""
    with socket_of(connection) as own:
        if own.family == socket.AF_UNIX:
            return
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        own.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEP_ALIVE.items():
            if hasattr(socket, name):
                own.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNANSWERED_MS)


@contextlib.contextmanager
def _in_time(connection: "Connection[Any, Any]", late: threading.Event | None = None) -> Iterator[None]:
    """Shut a connection down, and set `late`, if the block does not end in time."""

    def end() -> None:
        if late is not None:
            late.set()
        shut_down(connection)

    timer = threading.Timer(_AUTHENTICATION_S, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
