"""Connections of `MySQLCdcSource` to MySQL and MariaDB; a stop interrupts whatever they wait for."""

import contextlib
import os
import select
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from streamrt.connectors.background import StoppedError
from streamrt.connectors.sources.changes import UnavailableError

__all__ = ["BrokenLogError", "Connections", "MySQLError", "identifier"]

READ_TIMEOUT_S = 30
"""How long a connection may be silent; the stream of changes has heartbeats."""

_POLL_S = 0.2
_FATAL_LOG_ERROR = 1236
_TLS_ERROR = 2026
_NO_TLS = "the server has no TLS: give it a certificate, or use tls=False, and everything is sent as it is"
# Broken connections, missing resources, a server that shuts down or starts, locks, tables that change during a snapshot.
_PASSING = {0, 1040, 1053, 1077, 1078, 1079, 1080, 1158, 1159, 1160, 1161, 1203, 1205, 1213, 1226, 1317, 1412, 1927}
_PASSING |= {2002, 2003, 2006, 2013, 2014, 2055, 4031}


class MySQLError(Exception):
    """The server refused something, and will again.

    Args:
        message: the message.
        code: number of the error.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class BrokenLogError(UnavailableError):
    """The server could not read its log; it may be able to later."""


def identifier(name: str) -> str:
    """Return a name as a quoted identifier.

    Args:
        name: the name.

    Example:
        >>> identifier("odd `name`")
        '`odd ``name```'
    """
    return "`" + name.replace("`", "``") + "`"


class Connections:
    """The connections of one source.

    Args:
        settings: arguments of `pymysql.connect`.
        running: whether to continue.
        timeout_s: seconds to wait for a connection.
    """

    def __init__(self, settings: Mapping[str, Any], running: Callable[[], bool], timeout_s: float) -> None:
        self._settings = settings
        self._running = running
        self._timeout = timeout_s
        self._open: list[tuple[Any, socket.socket]] = []

    def connect(self, **more: Any) -> Any:
        """Return a new connection.

        Args:
            more: further arguments of `pymysql.connect`.

        Raises:
            StoppedError: if the source is stopped meanwhile.
            UnavailableError: if the server cannot be reached.
            MySQLError: if it refuses the connection.
        """
        import pymysql

        own = {"charset": "utf8mb4", "read_timeout": READ_TIMEOUT_S, "write_timeout": READ_TIMEOUT_S}
        settings = {**own, "local_infile": False, **self._settings, **more, "defer_connect": True}
        connection = pymysql.connect(**settings)
        transport = self._open_transport()
        # TLS replaces the socket. A second descriptor of it can be shut down at any time, from another thread.
        handle = socket.socket(fileno=os.dup(transport.fileno()))
        self._open.append((connection, handle))
        with self.failures():
            if not self._running():
                # The stop came too early to interrupt it.
                transport.close()
                raise StoppedError
            connection.connect(transport)
        if "ssl" in settings and not connection._secure:
            # Older clients go on without a word.
            raise MySQLError(_NO_TLS, _TLS_ERROR)
        return connection

    def broken(self) -> Exception:
        """Return the reason for which a connection is broken: a stop, or the server."""
        return UnavailableError("the connection is broken") if self._running() else StoppedError()

    def close(self) -> None:
        """Close all connections."""
        while self._open:
            connection, handle = self._open.pop()
            with contextlib.suppress(Exception):
                # It would wait for the rest of a result.
                connection._force_close()
            handle.close()

    def interrupt(self) -> None:
        """Make whatever waits for the server fail at once; called in another thread."""
        for _, handle in list(self._open):
            with contextlib.suppress(OSError):
                handle.shutdown(socket.SHUT_RDWR)

    def query(self, connection: Any, statement: str, arguments: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement, and return its rows.

        Args:
            connection: the connection.
            statement: the statement, with `%s` for each argument.
            arguments: the arguments.

        Raises:
            MySQLError: if the server refuses it.
        """
        with self.failures(), connection.cursor() as cursor:
            cursor.execute(statement, tuple(arguments) or None)
            return list(cursor.fetchall())

    def rows(self, connection: Any, statement: str) -> Iterator[tuple[Any, ...]]:
        """Run a statement, and yield its rows while they arrive.

        Args:
            connection: the connection.
            statement: the statement.

        Raises:
            MySQLError: if the server refuses it.
        """
        from pymysql.cursors import SSCursor

        cursor = SSCursor(connection)
        try:
            with self.failures():
                cursor.execute(statement)
            while True:
                with self.failures():
                    row = cursor.fetchone()
                if row is None:
                    return
                yield row
        finally:
            # Otherwise the collector of garbage would wait for the rest of the rows.
            result, cursor.connection = cursor._result, None
            if result is not None:
                result.unbuffered_active = False

    @contextlib.contextmanager
    def failures(self) -> Iterator[None]:
        """Turn errors of the client inside the block into those of this module."""
        import pymysql

        try:
            yield
        except (pymysql.err.Error, OSError, EOFError) as error:
            if not self._running():
                raise StoppedError from None
            raise _classify_error(error) from error

    def _open_transport(self) -> socket.socket:
        """Return a socket that is connected; the client would not notice a stop meanwhile."""
        host, port = self._settings["host"], self._settings["port"]
        deadline = time.monotonic() + self._timeout
        problem: OSError | None = None
        try:
            addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise UnavailableError(f"the host {host!r} has no address: {error.strerror}") from error
        for family, kind, protocol, _, address in addresses:
            transport = socket.socket(family, kind, protocol)
            try:
                self._connect_transport(transport, address, deadline)
            except OSError as error:
                transport.close()
                problem = error
            except BaseException:
                transport.close()
                raise
            else:
                transport.setblocking(True)
                transport.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                transport.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                return transport
        raise UnavailableError(f"{host}:{port} cannot be reached: {problem}") from problem

    def _connect_transport(self, transport: socket.socket, address: Any, deadline: float) -> None:
        transport.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            transport.connect(address)
        poll = select.poll()
        poll.register(transport, select.POLLOUT)
        while not poll.poll(_POLL_S * 1000):
            if not self._running():
                raise StoppedError
            if time.monotonic() > deadline:
                raise TimeoutError(f"no answer within {self._timeout:g} s")
        code = transport.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))


def _classify_error(error: Exception) -> Exception:
    code = error.args[0] if error.args else 0
    message = " ".join(str(error.args[-1] if error.args else error).split()) or "the connection failed"
    if code == _FATAL_LOG_ERROR:
        return BrokenLogError(message)
    # Errors without a number are those of a broken connection.
    if isinstance(error, OSError | EOFError) or not isinstance(code, int) or code in _PASSING:
        return UnavailableError(message)
    return MySQLError(_NO_TLS if code == _TLS_ERROR and "support" in message else message, code)
