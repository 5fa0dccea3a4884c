"""Connections of `PostgresCdcSource`: they speak the replication protocol, and give up when the source is stopped.

psycopg wraps all of libpq that replication needs, below its usual interface. Queries go in the simple protocol, the only
one that replication connections know, so values come as text, as in the stream of changes.
"""

import select
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from streamrt.connectors.background import StoppedError
from streamrt.connectors.sources.changes import UnavailableError
from streamrt.errors import ArgumentTypeError, ArgumentValueError

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn, PGresult

__all__ = ["PostgresError", "Session", "checked_settings", "identifier", "literal"]

_POLL_S = 0.2
"""How long a wait lasts before the source is asked whether it was stopped."""

# Both kinds of connections write values in the same form, whatever the settings of the server, the database and the role.
_OPTIONS = {
    "DateStyle": "ISO",
    "IntervalStyle": "iso_8601",
    "TimeZone": "UTC",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "lc_monetary": "C",
    "standard_conforming_strings": "on",
    # A table with row security is refused, not read in part.
    "row_security": "off",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
}
# Errors that pass: broken connections, missing resources, shutdown and start of the server, slots of dead connections.
_PASSING_CLASSES = ("08", "40", "53", "57P", "58")
_OBJECT_IN_USE = "55006"
# Failures of opening a connection have no code. Messages of a server with another language are taken for passing.
_LASTING = (
    "authentication failed",
    "pg_hba.conf",
    "does not exist",
    "permission denied",
    "not permitted",
    "password",
    "role",
)

Row = tuple[bytes | None, ...]


class PostgresError(Exception):
    """The server refused a statement, and will again.

    Args:
        message: the primary message.
        code: its SQLSTATE.
    """

    def __init__(self, message: str, code: str | None) -> None:
        super().__init__(message)
        self.code = code


def identifier(name: str) -> str:
    """Return a name as a quoted identifier.

    Args:
        name: the name.

    Example:
        >>> print(identifier('an "odd" name'))
        "an ""odd"" name"
    """
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a text as a quoted literal.

    Args:
        text: the text.

    Example:
        >>> print(literal("it's"))
        'it''s'
    """
    return "'" + text.replace("'", "''") + "'"


def checked_settings(owner: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return additional connection settings, if libpq knows them all.

    Args:
        owner: the class that takes them, for errors.
        settings: the settings.

    Raises:
        ConfigurationError: if one is unknown or belongs to the source.
    """
    from psycopg import ProgrammingError
    from psycopg.conninfo import make_conninfo

    for name, value in settings.items():
        if not isinstance(value, str | int | float | bool):
            raise ArgumentTypeError(
                f"{owner}({name}=...) must be a string or a number, got {type(value).__name__}: settings are sent to "
                "another process"
            )
        if name in ("client_encoding", "replication", "options"):
            raise ArgumentValueError(f"{owner}({name}=...) is not supported: the source sets it itself")
    try:
        make_conninfo("", **settings)
    except ProgrammingError:
        # The original message would show values.
        raise ArgumentValueError(
            f"{owner} got unsupported settings among {', '.join(settings)}: it takes the connection settings of libpq"
        ) from None
    return dict(settings)


class Session:
    """A connection.

    Args:
        settings: connection settings of libpq.
        running: whether to continue waiting.
        timeout_s: seconds to wait for the connection.
        replication: whether it shall speak the replication protocol.

    Raises:
        StoppedError: if the source is stopped meanwhile; every method may raise it.
        UnavailableError: if the server cannot be reached; every method may raise it.
        PostgresError: if it refuses the connection.
    """

    def __init__(
        self, settings: Mapping[str, Any], running: Callable[[], bool], timeout_s: float, *, replication: bool = False
    ) -> None:
        import psycopg
        from psycopg import pq
        from psycopg.conninfo import make_conninfo

        self._errors = psycopg.Error
        self._status = pq.ExecStatus
        self._fields = pq.DiagnosticField
        self._running = running
        options = " ".join(f"-c {name}={value}" for name, value in _OPTIONS.items())
        own: dict[str, Any] = {"client_encoding": "UTF8", "options": options}
        if replication:
            own["replication"] = "database"
        conninfo = make_conninfo("", **{**settings, **own})
        self._connection: PGconn = pq.PGconn.connect_start(conninfo.encode())
        try:
            self._connect(timeout_s)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection; it may be closed already."""
        self._connection.finish()

    def execute(self, statement: str) -> list[tuple[str | None, ...]]:
        """Run one statement, and return its rows.

        Args:
            statement: the statement.

        Raises:
            PostgresError: if the server refuses it.
        """
        return [tuple(None if cell is None else cell.decode() for cell in row) for row in self.rows(statement)]

    def rows(self, statement: str) -> Iterator[Row]:
        """Run one statement, and yield its rows while they arrive; all must be taken before the next statement.

        Args:
            statement: the statement.

        Raises:
            PostgresError: if the server refuses it.
        """
        self._send_statement(statement, by_row=True)
        while (result := self._result()) is not None:
            if result.status == self._status.SINGLE_TUPLE:
                yield tuple(result.get_value(0, column) for column in range(result.nfields))

    def start_replication(self, command: str) -> None:
        """Run a command after which messages can be received.

        Args:
            command: START_REPLICATION.

        Raises:
            PostgresError: if the server refuses it.
        """
        self._send_statement(command)
        result = self._result()
        if result is None or result.status != self._status.COPY_BOTH:
            raise PostgresError("the server did not start the replication", None)

    def receive(self, timeout_s: float) -> bytes | None:
        """Return a message, or None if none arrives in time.

        Args:
            timeout_s: seconds to wait, in which a stop is not noticed.

        Raises:
            PostgresError: if the server ends the replication with an error.
        """
        with _Failures(self._errors):
            size, data = self._connection.get_copy_data(1)
            if size == 0 and _wait(self._connection.socket, select.POLLIN, timeout_s):
                self._connection.consume_input()
                size, data = self._connection.get_copy_data(1)
        if size > 0:
            return bytes(data)
        if size < 0:
            self._result()
            raise UnavailableError("the server has ended the replication")
        return None

    def send(self, message: bytes) -> None:
        """Send a message of the replication protocol.

        Args:
            message: the message.
        """
        with _Failures(self._errors):
            # It does not wait: an acknowledgement that finds no space goes out with a later one.
            self._connection.put_copy_data(message)
            self._connection.flush()

    def _connect(self, timeout_s: float) -> None:
        from psycopg.pq import PollingStatus

        deadline = time.monotonic() + timeout_s
        while True:
            status = self._connection.connect_poll()
            if status == PollingStatus.OK:
                break
            if status == PollingStatus.FAILED:
                message = _one_line(self._connection.get_error_message("utf-8"))
                if any(words in message for words in _LASTING):
                    raise PostgresError(message, None)
                raise UnavailableError(message)
            event = select.POLLIN if status == PollingStatus.READING else select.POLLOUT
            self._wait_for(event, deadline)
        self._connection.nonblocking = 1

    def _send_statement(self, statement: str, *, by_row: bool = False) -> None:
        with _Failures(self._errors):
            self._connection.send_query(statement.encode())
            if by_row:
                self._connection.set_single_row_mode()
            while self._connection.flush():
                self._wait_for(select.POLLIN | select.POLLOUT)
                self._connection.consume_input()

    def _result(self) -> "PGresult | None":
        with _Failures(self._errors):
            while self._connection.is_busy():
                self._wait_for(select.POLLIN)
                self._connection.consume_input()
            result = self._connection.get_result()
        if result is not None and result.status == self._status.FATAL_ERROR:
            raise self._make_refusal(result)
        return result

    def _make_refusal(self, result: "PGresult") -> Exception:
        code = (result.error_field(self._fields.SQLSTATE) or b"").decode()
        message = result.error_field(self._fields.MESSAGE_PRIMARY) or self._connection.error_message
        text = _one_line(message.decode(errors="replace"))
        # Without a code, libpq itself has found that the connection is broken.
        if not code or code.startswith(_PASSING_CLASSES) or code == _OBJECT_IN_USE:
            return UnavailableError(text)
        return PostgresError(text, code)

    def _wait_for(self, event: int, deadline: float | None = None) -> None:
        while not _wait(self._connection.socket, event, _POLL_S):
            if not self._running():
                raise StoppedError
            if deadline is not None and time.monotonic() > deadline:
                raise UnavailableError("the server does not answer")


class _Failures:
    """Turns errors of the client, which are broken connections, into one that passes."""

    def __init__(self, errors: type[Exception]) -> None:
        self._errors = errors

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, self._errors):
            raise UnavailableError(_one_line(str(error))) from error


def _wait(descriptor: int, event: int, timeout_s: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, event)
    return bool(poll.poll(timeout_s * 1000))


def _one_line(text: str) -> str:
    return " ".join(text.split()) or "the connection failed"
