"""A way to a broker that fails as networks do, between one request and the next."""

import contextlib
import enum
import itertools
import socket
import struct
import threading
import time
from collections.abc import Iterator

from streamrt.testing import EmbeddedKafka
from streamrt.testing.guarded import free_port
from tests.connectors.proxy import close_connection

API_KEYS = {
    "Produce": 0,
    "Fetch": 1,
    "ListOffsets": 2,
    "Metadata": 3,
    "OffsetFetch": 9,
    "FindCoordinator": 10,
    "JoinGroup": 11,
    "Heartbeat": 12,
    "SyncGroup": 14,
    "InitProducerId": 22,
    "AddPartitionsToTxn": 24,
    "AddOffsetsToTxn": 25,
    "EndTxn": 26,
    "TxnOffsetCommit": 28,
    "ConsumerGroupHeartbeat": 68,
}
"""Numbers of the requests that can be disturbed, in Kafka's protocol."""

_FRAME = struct.Struct(">i")
_REQUEST = struct.Struct(">hhi")
_LISTENER = "SASL_PLAINTEXT"
"""The second listener, by the name that `EmbeddedKafka` has for it. It has no login here."""

_Connection = tuple[socket.socket, socket.socket]
"""To the client, and to the broker."""


class Disturbance(enum.Enum):
    """What happens to a request. Unless only its answer is late, its connection is closed as well."""

    LOST_REQUEST = "the request does not arrive"
    LATE_REQUEST = "the request arrives when its client has given the connection up"
    LOST_ANSWER = "the request arrives, and the answer does not"
    LATE_ANSWER = "the answer arrives late"


class BrokerProxy:
    """Passes requests and answers of Kafka's protocol on.

    Attributes:
        port: port of the proxy.
        target: port of the broker.
        arrived_late: how many late requests the broker has taken.
    """

    def __init__(self) -> None:
        self.port = 0
        self.target = 0
        self.arrived_late = 0
        self._lock = threading.Lock()
        self._connections: set[_Connection] = set()
        self._planned: list[tuple[int, Disturbance, float]] = []
        self._flowing = threading.Event()
        self._flowing.set()
        self._listener: socket.socket | None = None
        self.open()

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self.port}"

    @property
    def planned(self) -> int:
        """How many disturbances have not happened yet."""
        return len(self._planned)

    def open(self) -> None:
        """Accept connections, at the same port as before."""
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=128)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def close(self) -> None:
        """Cut all connections, and refuse new ones."""
        listener, self._listener = self._listener, None
        if listener is not None:
            close_connection(listener)
        self.cut()
        self._flowing.set()

    def cut(self) -> None:
        """Cut all connections."""
        with self._lock:
            connections, self._connections = self._connections, set()
        for connection in itertools.chain.from_iterable(connections):
            close_connection(connection)

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """Pass nothing on as long as the context lasts."""
        self._flowing.clear()
        try:
            yield
        finally:
            self._flowing.set()

    def disturb(self, request: str, disturbance: Disturbance, late_s: float = 0.0) -> None:
        """Disturb the next request of a kind.

        Args:
            request: its name, of `API_KEYS`.
            disturbance: what happens to it.
            late_s: how late it or its answer is, in seconds.
        """
        with self._lock:
            self._planned.append((API_KEYS[request], disturbance, late_s))

    def disturb_no_more(self) -> None:
        """Forget the disturbances that have not happened yet."""
        with self._lock:
            self._planned.clear()

    def _take(self, key: int | None, *kinds: Disturbance) -> tuple[Disturbance, float] | None:
        with self._lock:
            for planned in self._planned:
                if planned[0] == key and planned[1] in kinds:
                    self._planned.remove(planned)
                    return planned[1:]
        return None

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                close_connection(client)
                continue
            connection = (client, server)
            for end in connection:
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._connections.add(connection)
            asked: dict[int, int] = {}
            threading.Thread(target=self._pass_requests, args=(connection, asked), daemon=True).start()
            threading.Thread(target=self._pass_answers, args=(connection, asked), daemon=True).start()

    def _pass_requests(self, connection: _Connection, asked: dict[int, int]) -> None:
        client, server = connection
        with contextlib.suppress(OSError, ValueError):
            for frame in _read_frames(client):
                key, _, number = _REQUEST.unpack_from(frame, _FRAME.size)
                asked[number] = key
                self._flowing.wait()
                taken = self._take(key, Disturbance.LOST_REQUEST, Disturbance.LATE_REQUEST)
                if taken is None:
                    server.sendall(frame)
                    continue
                close_connection(client)
                if taken[0] is Disturbance.LATE_REQUEST:
                    time.sleep(taken[1])
                    server.sendall(frame)
                    # The broker reads it, and closes.
                    server.shutdown(socket.SHUT_WR)
                    while server.recv(1 << 16):
                        pass
                    self.arrived_late += 1
                break
        self._forget(connection)

    def _pass_answers(self, connection: _Connection, asked: dict[int, int]) -> None:
        client, server = connection
        with contextlib.suppress(OSError, ValueError):
            for frame in _read_frames(server):
                key = asked.pop(_FRAME.unpack_from(frame, _FRAME.size)[0], None)
                taken = self._take(key, Disturbance.LOST_ANSWER, Disturbance.LATE_ANSWER)
                if taken is not None and taken[0] is Disturbance.LOST_ANSWER:
                    break
                time.sleep(taken[1] if taken is not None else 0.0)
                self._flowing.wait()
                client.sendall(frame)
        # The other thread ends with that, and closes the way to the broker.
        close_connection(client)

    def _forget(self, connection: _Connection) -> None:
        with self._lock:
            self._connections.discard(connection)
        for end in connection:
            close_connection(end)


def _read_frames(origin: socket.socket) -> Iterator[bytes]:
    """Yield requests or answers, each with its size in front of it."""
    with origin.makefile("rb") as file:
        while len(size := file.read(_FRAME.size)) == _FRAME.size:
            (length,) = _FRAME.unpack(size)
            body = file.read(length)
            if len(body) < length:
                return
            yield size + body


@contextlib.contextmanager
def proxied_broker() -> Iterator[tuple[EmbeddedKafka, BrokerProxy]]:
    """A broker, and a proxy whose clients reach it by nothing else. The address of the broker itself is undisturbed."""
    proxy = BrokerProxy()
    port = free_port()
    config: dict[str, str | int | bool] = {
        "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,{_LISTENER}:PLAINTEXT",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port},{_LISTENER}://{proxy.address}",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
    }
    try:
        with EmbeddedKafka(port=port, config=config, extra_listeners=(_LISTENER,)) as broker:
            proxy.target = int(broker.address(_LISTENER).rpartition(":")[2])
            yield broker, proxy
    finally:
        proxy.close()
