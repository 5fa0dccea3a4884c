"""A sink of Neo4j: a Cypher query runs for each value."""

import functools
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

from streamrt.arguments import type_name
from streamrt.connectors.argument_checks import check_texts, checked_choice, checked_count, checked_seconds
from streamrt.connectors.background import StoppedError, call_in_background
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.credentials import ClientSettings, Credential, CredentialInput
from streamrt.connectors.failures import PassingError, first_line
from streamrt.connectors.libraries import require_library
from streamrt.connectors.sinks.batch import SinkBatch, SinkItem
from streamrt.connectors.sinks.client_sink import ClientSink
from streamrt.connectors.sinks.common import bounded, identified, text_key
from streamrt.errors import SinkBackpressureError, SinkError

if TYPE_CHECKING:
    import neo4j

__all__ = ["Neo4jSink"]

Scheme = Literal["bolt", "bolt+s", "bolt+ssc", "neo4j", "neo4j+s", "neo4j+ssc"]

# The names are those of Neo4j's own connectors.
_PREFIX = """UNWIND $records AS __record
WITH __record.value AS event, __record.value AS __value, __record.key AS __key, __record.header AS __header,
 __record.timestamp AS __timestamp, __record.topic AS __topic, __record.partition AS __partition,
 __record.offset AS __offset, __record.id AS __id
"""
_GRACE_S = 5.0
_RETRY_AFTER_S = 5.0
# What the client raises for values that it cannot send.
_UNSENDABLE = (OverflowError, TypeError, ValueError, RecursionError)


class _HangingError(PassingError):
    """The server does not answer."""


class Neo4jSink(ClientSink):
    """Runs a Cypher query for each value, in order, with one transaction for each chunk.

    In the query, `event` and `__value` are the value, `__key` the key, `__header` a map of headers, `__timestamp` the time of
    the record in milliseconds, and `__topic`, `__partition` and `__offset` its origin. `__id` is a text of these three and
    the number of the value within its offset: no two values have the same one.

    Chunks repeat after a crash. If the query only merges nodes and relationships by keys, and sets properties, the graph
    is the same afterwards. If it creates nodes, let it `MERGE` them by `__id`, so that each value is stored once. Needs the
    extra `neo4j`.

    Args:
        host: host of the server.
        port: port of its Bolt protocol.
        username: name of the user.
        password: the password, or a function that returns it. The process that connects calls the function. A string
            reaches tasks by a broadcast of Spark.
        cypher_query: the query for one value.
        chunk_size: maximum number of values in a transaction.
        database: name of the database; None for the user's home database.
        scheme: the scheme of the connection: "bolt" for one server; "neo4j" for the addresses that a cluster
            announces; with "+s" for TLS, and with "+ssc" for TLS without verification.
        timeout: seconds that the server may take for a transaction. It ends a longer one. If it hangs, the sink gives its
            connections up 5 seconds later, and pauses.
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails.
        kwargs: more settings of `neo4j.GraphDatabase.driver`, such as `max_connection_lifetime`.

    Raises:
        ConfigurationError: if an argument cannot be used, or neo4j is not installed.

    Example:
        ```python
        sink = Neo4jSink(
            "graph",
            7687,
            "writer",
            lambda: os.environ["GRAPH_PASSWORD"],
            "MERGE (p:Person {name: event.name}) MERGE (c:City {name: event.city}) MERGE (p)-[:LIVES_IN]->(c)",
        )
        sdf.sink(sink)
        ```
    """

    _owner = "Neo4jSink"
    _password: Credential
    _client: "neo4j.Driver | None" = None

    def __init__(
        self,
        host: str,
        port: int,
        username: str,
        password: CredentialInput,
        cypher_query: str,
        chunk_size: int = 10_000,
        *,
        database: str | None = None,
        scheme: Scheme = "bolt",
        timeout: float = 120.0,
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(on_client_connect_success, on_client_connect_failure)
        require_library("Neo4jSink", "neo4j", "neo4j")
        check_texts("Neo4jSink", host=host, username=username, cypher_query=cypher_query)
        if database is not None:
            check_texts("Neo4jSink", database=database)
        checked_count("Neo4jSink", "port", port, 1, 65_535)
        checked_count("Neo4jSink", "chunk_size", chunk_size)
        checked_choice("Neo4jSink", "scheme", scheme, get_args(Scheme))
        self._timeout_s = checked_seconds("Neo4jSink", "timeout", timeout)
        self._uri = f"{scheme}://{host}:{port}"
        self._target = f"{f'database {database}' if database else 'the home database'} of Neo4j at {host}:{port}"
        self._username = username
        self._password = Credential(password, "Neo4jSink(password=...)")
        self._query = _PREFIX + cypher_query
        self._chunk_size = chunk_size
        self._database = database
        self._settings = ClientSettings("Neo4jSink", kwargs)
        try:
            # It does not connect yet.
            self._make_driver("unused").close()
        except Exception:  # noqa: BLE001 - the text of the error would show values
            raise self._make_unsupported_error(("host", *kwargs), "neo4j.GraphDatabase.driver") from None

    def setup(self) -> None:
        """Connect to the server, and let it check the query.

        Raises:
            SinkError: if the server cannot be reached, or refuses the credentials, the database or the query.
        """
        import neo4j.exceptions as errors

        def explain() -> None:
            with self._open_session() as session:
                session.run("EXPLAIN " + self._query, records=[]).consume()

        try:
            self._call_in_time(explain)
        except PassingError as error:
            raise self._make_unreachable_error(error) from None
        except (errors.Neo4jError, errors.DriverError, OSError) as error:
            translated = self._translate_error(error)
            if isinstance(translated, PassingError):
                raise self._make_unreachable_error(translated) from None
            if isinstance(error, errors.ClientError) and str(error.code).startswith("Neo.ClientError.Statement."):
                first = str(error.message).splitlines()[0]
                raise SinkError(f"Neo4jSink cannot run its query in {self._target}: {first}") from None
            raise translated from None

    def write(self, batch: SinkBatch) -> None:
        """Run the query for the values of a batch.

        Args:
            batch: the values of one partition.

        Raises:
            SinkBackpressureError: if the server is away or busy.
            SinkError: if a value cannot be sent, or the query fails for it.
        """
        records = [(item, _make_record(batch, identity, item)) for identity, item in identified(batch)]
        self._write_chunks(batch, bounded(records, lambda _: 1, count=self._chunk_size, total=self._chunk_size))

    def _send_chunk(self, batch: SinkBatch, chunk: list[tuple[SinkItem, dict[str, Any]]]) -> None:
        error = self._run_query([record for _, record in chunk], commit=True)
        if error is None:
            return
        # The shortest beginning of the chunk that fails ends with the value to blame.
        works, fails = 0, len(chunk)
        while fails - works > 1:
            middle = (works + fails) // 2
            found = self._run_query([record for _, record in chunk[:middle]], commit=False)
            works, fails, error = (middle, fails, error) if found is None else (works, middle, found)
        item, record = chunk[fails - 1]
        if not isinstance(error, _UNSENDABLE):
            code = getattr(error, "code", None) or type_name(error)
            raise self._make_rejection(batch, item, f"its query fails with {code}")
        reason = f"Neo4j has no such type or number ({type_name(error)})"
        raise self._make_rejection(batch, item, reason, part=self._find_unsendable(record))

    def _run_query(self, records: list[dict[str, Any]], *, commit: bool) -> Exception | None:
        """Run the query in a transaction; return the error if it will not pass."""
        import neo4j.exceptions as errors

        def run() -> None:
            with self._open_session() as session, session.begin_transaction(timeout=self._timeout_s) as transaction:
                transaction.run(self._query, records=records).consume()
                if commit:
                    transaction.commit()
                else:
                    transaction.rollback()

        try:
            self._call_in_time(run)
        except _HangingError as error:
            # It has taken long enough: no further attempts before the pause.
            raise SinkBackpressureError(_RETRY_AFTER_S, f"{self._target}: {error}") from None
        except _UNSENDABLE as error:
            return error
        except (errors.Neo4jError, errors.DriverError, OSError) as error:
            translated = self._translate_error(error)
            if isinstance(translated, PassingError):
                self._disconnect()
                raise translated from None
            return error
        return None

    def _find_unsendable(self, record: Mapping[str, Any]) -> str:
        """Return the column that the client cannot send, in words."""
        value = record["value"]
        if isinstance(value, Mapping):
            for name, part in value.items():
                try:
                    self._call_in_time(functools.partial(self._send_part, {name: part}))
                except _UNSENDABLE:
                    return f"column {name!r} of "
        return ""

    def _send_part(self, part: Mapping[str, Any]) -> None:
        with self._open_session() as session:
            session.run("RETURN 0", part=part).consume()

    def _call_in_time(self, request: Callable[[], None]) -> None:
        """Make a request, and give it up with its connections if the server hangs: the client would wait for ever.

        Raises:
            _HangingError: if there is no answer in time.
            Exception: the error of the request.
        """
        # The server ends a query that takes too long before this does.
        limit_s = self._timeout_s + _GRACE_S
        deadline = time.monotonic() + limit_s
        try:
            call_in_background(request, lambda: time.monotonic() < deadline)
        except StoppedError:
            close, self._client, self._close = self._close, None, None
            if close is not None:
                # It says goodbye, which may also hang.
                threading.Thread(target=close, name="streamrt-request", daemon=True).start()
            raise _HangingError(f"it does not answer within {limit_s:g} s") from None

    def _connect_client(self) -> "neo4j.Driver":
        if self._client is None:
            self._keep_client(self._make_driver(self._password.reveal()))
        return self._client

    def _open_session(self) -> "neo4j.Session":
        return self._connect_client().session(database=self._database)

    def _make_driver(self, password: str) -> "neo4j.Driver":
        import neo4j

        settings = {
            "connection_timeout": 10.0,
            # Also bounds the login: a server that accepts connections may not answer.
            "connection_acquisition_timeout": 20.0,
            # Advice on the query is for those who write it, not for the log of each chunk.
            "notifications_min_severity": "OFF",
            **self._settings.reveal(),
        }
        return neo4j.GraphDatabase.driver(self._uri, auth=(self._username, password), **settings)

    def _translate_error(self, error: Exception) -> Exception:
        """Return an error that shows no values."""
        import neo4j.exceptions as errors

        if isinstance(error, errors.AuthError):
            return self._refused_credentials()
        if isinstance(error, errors.ServiceUnavailable | errors.SessionExpired | OSError):
            return PassingError(first_line(error).rstrip(":."))
        code = getattr(error, "code", None) or type_name(error)
        if "TransactionTimedOut" in code:
            return PassingError(f"its query takes more than {self._timeout_s:g} s")
        retryable = isinstance(error, errors.Neo4jError | errors.DriverError) and error.is_retryable()
        return PassingError(f"it answers {code}") if retryable else self._make_unusable_error(f"it answers {code}")


def _make_record(batch: SinkBatch, identity: str, item: SinkItem) -> dict[str, Any]:
    return {
        "value": item.value,
        "key": text_key(item.key),
        "header": {name: text_key(value) for name, value in item.headers or ()},
        "timestamp": item.timestamp,
        "topic": batch.topic,
        "partition": batch.partition,
        "offset": item.offset,
        "id": identity,
    }
