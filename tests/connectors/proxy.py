"""A way to a server that fails as networks and servers do, while the data of the server stay; and a port that hangs."""

import contextlib
import socket
import threading
from collections.abc import Iterator


class Proxy:
    """Passes connections on to a port of the loopback interface.

    Args:
        target: the port.

    Attributes:
        port: port of the proxy.
        taken: number of connections so far.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self._flowing = threading.Event()
        # What clients may still send, and what the server may still answer, before connections are cut; None for all.
        self._left: dict[bool, int | None] = {}
        self.port = 0
        self.taken = 0
        self.open()

    @property
    def is_open(self) -> bool:
        """Whether connections are accepted."""
        return self._listener is not None

    def open(self) -> None:
        """Accept connections, at the same port as before."""
        self._left = {False: None, True: None}
        self._flowing.set()
        listener = socket.create_server(("127.0.0.1", self.port), backlog=64)
        self.port = listener.getsockname()[1]
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def close(self) -> None:
        """Cut all connections, and refuse new ones."""
        listener, self._listener = self._listener, None
        if listener is not None:
            # Closing by itself does not wake the thread that accepts.
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        with self._lock:
            connections, self._connections = self._connections, set()
        for connection in connections:
            close_connection(connection)
        self._flowing.set()

    def close_after(self, size: int, *, answers: bool = False) -> None:
        """Close when clients have sent this many bytes more, or got as many answers."""
        self._left[answers] = size

    def hang(self) -> None:
        """Keep connections open, and pass nothing on."""
        self._flowing.clear()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
                self.taken += 1
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                return
            with self._lock:
                self._connections |= {client, server}
            if self._listener is not listener:
                close_connection(client)
                close_connection(server)
            threading.Thread(target=self._pass_on, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self._pass_on, args=(server, client, True), daemon=True).start()

    def _pass_on(self, origin: socket.socket, target: socket.socket, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := origin.recv(1 << 16):
                self._flowing.wait()
                left = self._left[answers]
                if left is not None:
                    self._left[answers] = left - len(data)
                    if left < len(data):
                        self.close()
                        break
                target.sendall(data)
        close_connection(origin)
        close_connection(target)


def close_connection(connection: socket.socket) -> None:
    """Close a connection at once, also for threads that wait for it."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


@contextlib.contextmanager
def proxy(target: int) -> Iterator[Proxy]:
    """A proxy that is closed at the end."""
    made = Proxy(target)
    try:
        yield made
    finally:
        made.close()


@contextlib.contextmanager
def silent_port() -> Iterator[int]:
    """A port that accepts connections and never answers: a service that hangs."""
    with socket.create_server(("127.0.0.1", 0), backlog=50) as listener:
        yield listener.getsockname()[1]
