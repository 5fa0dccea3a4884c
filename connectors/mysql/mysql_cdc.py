"""`MySQLCdcSource`: the rows of tables of MySQL or MariaDB and their changes, as records."""

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, get_args

from streamrt.connectors.argument_checks import (
    check_texts,
    checked_choice,
    checked_count,
    checked_seconds,
    checked_text,
)
from streamrt.connectors.background import StoppedError
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.credentials import Credential, CredentialInput
from streamrt.connectors.libraries import require_library
from streamrt.connectors.mysql.mysql_binlog import BinaryLog, Position
from streamrt.connectors.mysql.mysql_catalog import MySQLCatalog, Table
from streamrt.connectors.mysql.mysql_session import BrokenLogError, Connections, MySQLError
from streamrt.connectors.mysql.mysql_types import Decimals
from streamrt.connectors.sources.changes import (
    Change,
    ChangeSource,
    UnavailableError,
)
from streamrt.connectors.tls import check_tls, tls_context
from streamrt.errors import ArgumentTypeError, ArgumentValueError, SourceError

__all__ = ["MySQLCdcSource"]

_POSITION = "position"
# MySQL's own replicas mostly have small numbers.
_SERVER_IDS = (1_000_000_000, 4_294_967_295)
_MOST_FAILURES = 5
LostLog = Literal["fail", "snapshot"]


class MySQLCdcSource(ChangeSource):
    """Produces the rows of tables of MySQL or MariaDB, then each change of them, from the binary log.

    Keys are JSON objects of the primary key; values have the form

    ```
    {"op": "c", "before": null, "after": {"id": 1, "name": "ann"},
     "source": {"table": "customers", "snapshot": false, "file": "binlog.000003", "pos": 342, "seq": 1, ...}}
    ```

    where `op` is "r" for a row of the snapshot, "c" for an insert, "u" for an update, "d" for a delete and "t" for a
    truncate. Timestamps of records are the times of transactions, in whole seconds. A crash repeats the changes since
    the last flush, and loses none; with `processing_guarantee="exactly-once"`, it repeats none, either. Needs the extra
    `mysql`, and a server with `binlog_format=ROW`, `binlog_row_image=FULL` and `binlog_row_metadata=FULL`.

    Args:
        host: host of the server.
        user: name of the user; it needs SELECT and LOCK TABLES on the tables, REPLICATION SLAVE, and REPLICATION CLIENT
            (BINLOG MONITOR in MariaDB).
        password: the password, or a function that returns it, which is called in the process of the source.
        database: name of the database.
        tables: names of the tables; None for all tables that the database has at each start.
        port: port of the server.
        name: name of the source, unique in the application.
        shutdown_timeout: seconds that the source has to end when the application stops.
        on_client_connect_success: called without arguments after the first connection.
        on_client_connect_failure: called with the exception if the first connection fails.
        tls: True for TLS with a certificate that the system trusts, or the path of a file of trusted certificates;
            False for no encryption.
        snapshot: "initial" to read tables first, "never" to produce changes only.
        flat: values are rows; a delete is a tombstone, and a truncate is left out.
        tombstones: after the record of a delete, produce a tombstone with the same key.
        decimals: write `DECIMAL` as "string" or as "float".
        lost_log: what to do if changes are lost because the server has deleted its log: "fail", or "snapshot" to begin
            again.
        server_id: number by which the server knows the source, different from those of all its replicas; random by
            default.
        commit_interval: seconds between flushes.
        commit_every: number of records after which it flushes earlier.
        heartbeat_interval: seconds between flushes of the position while no table changes.
        snapshot_chunk: number of rows that one query of the snapshot reads.
        connection_timeout_seconds: time limit for opening a connection, in seconds.

    Raises:
        ConfigurationError: if an argument cannot be used, or a library is not installed.

    Example:
        ```python
        customers = MySQLCdcSource(
            "db", "replicator", lambda: os.environ["DB_PASSWORD"], "shop", tables=["customers"], name="customers"
        )
        sdf = app.dataframe(source=customers)
        ```
    """

    def __init__(
        self,
        host: str,
        user: str,
        password: CredentialInput,
        database: str,
        tables: Sequence[str] | None = None,
        port: int = 3306,
        name: str | None = None,
        shutdown_timeout: float = 10,
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
        *,
        tls: bool | str = True,
        snapshot: Literal["initial", "never"] = "initial",
        flat: bool = False,
        tombstones: bool = False,
        decimals: Decimals = "string",
        lost_log: LostLog = "fail",
        server_id: int | None = None,
        commit_interval: float = 5.0,
        commit_every: int = 10_000,
        heartbeat_interval: float = 10.0,
        snapshot_chunk: int = 5_000,
        connection_timeout_seconds: float = 30.0,
        **kwargs: Any,
    ) -> None:
        owner = type(self).__name__
        if kwargs:
            hint = ": TLS is tls=True, the path of a file of certificates, or False" if "ssl" in "".join(kwargs) else ""
            raise ArgumentTypeError(f"{owner} has no parameter {min(kwargs)!r}{hint}")
        for module in ("pymysqlreplication", "pymysql"):
            require_library(owner, module, "mysql")
        check_texts(owner, host=host, user=user, database=database)
        super().__init__(
            f"mysql-cdc-{database}" if name is None else name,
            shutdown_timeout,
            on_client_connect_success,
            on_client_connect_failure,
            commit_interval=commit_interval,
            commit_every=commit_every,
            heartbeat_interval=heartbeat_interval,
            flat=flat,
            tombstones=tombstones,
        )
        checked_choice(owner, "snapshot", snapshot, ("initial", "never"))
        checked_choice(owner, "decimals", decimals, get_args(Decimals))
        checked_choice(owner, "lost_log", lost_log, get_args(LostLog))
        checked_count(owner, "port", port, 1, 65_535)
        if server_id is not None:
            checked_count(owner, "server_id", server_id, 1, _SERVER_IDS[1])
        check_tls(owner, tls, {}, ())
        self._settings = {"host": host, "port": port, "user": user}
        self._password = Credential(password, f"{owner}(password=...)")
        self._tls = tls
        self._database = database
        self._tables = _table_names(owner, tables)
        self._snapshot = snapshot == "initial"
        self._decimals: Decimals = decimals
        self._lost_log: LostLog = lost_log
        self._server_id = server_id
        self._chunk = checked_count(owner, "snapshot_chunk", snapshot_chunk)
        self._timeout = checked_seconds(owner, "connection_timeout_seconds", connection_timeout_seconds, least=1)
        self._described = f"{owner} {self.name!r} of the database {database!r} at {host}:{port}"
        # Opened in the process of the source.
        self._connections: Connections | None = None
        # What was produced, which may be more than what was flushed.
        self._position: Position | None = None
        self._committed: Position | None = None
        # How often in a row the server could not read its log.
        self._failures = 0

    def __repr__(self) -> str:
        return f"<{self._described}>"

    def setup(self) -> None:
        """Connect, and check the settings of the server and the tables.

        Raises:
            SourceError: if tables cannot be followed, or the database cannot be reached at the very first start.
        """
        try:
            with self._lasting_failures():
                self._open_catalog()
        except UnavailableError as error:
            self._wait_for_database(error)
        except StoppedError:
            return
        finally:
            self._disconnect()

    def stop(self) -> None:
        """Make `running` False, and end what waits for the server."""
        super().stop()
        connections = self._connections
        if connections is not None:
            connections.interrupt()

    def _follow_changes(self) -> None:
        try:
            with self._lasting_failures():
                self._position = self._position or self._stored_position()
                self._committed = self._stored_position()
                catalog, server, tables = self._open_catalog()
                self._begin_snapshot(catalog, server, tables)
                self._read_tables(catalog, tables)
                self._stream_changes([table.name for table in tables])
        except StoppedError:
            self._commit()
            raise

    def _disconnect(self) -> None:
        connections = self._connections
        if connections is not None:
            connections.close()

    def _stored_position(self) -> Position | None:
        stored = self.state.get(_POSITION)
        return None if stored is None else Position.from_json(stored)

    def _commit(self) -> None:
        if self._position is not None:
            self.state.set(_POSITION, self._position.to_json())
            self._committed = self._position
        self.flush()

    @contextmanager
    def _lasting_failures(self) -> Iterator[None]:
        try:
            yield
        except MySQLError as error:
            reason = self._password.masked(str(error))
            raise SourceError(f"{self._described} was refused: {reason} (error {error.code})") from None

    def _open_connections(self) -> Connections:
        """Close all connections, and prepare others."""
        self._disconnect()
        settings: dict[str, Any] = {**self._settings, "password": self._password.reveal()}
        if self._tls is False:
            settings["ssl_disabled"] = True
        else:
            try:
                settings["ssl"] = tls_context(self._tls)
            except OSError as error:
                raise SourceError(f"{self._described} cannot read certificates from {self._tls}: {error}") from None
        self._connections = Connections(settings, lambda: self.running, self._timeout)
        return self._connections

    def _open_catalog(self) -> tuple[MySQLCatalog, str, list[Table]]:
        connections = self._open_connections()
        catalog = MySQLCatalog(connections, connections.connect(autocommit=True), self._database, self._described)
        server = catalog.check()
        tables = catalog.tables(self._tables)
        for table in tables:
            if self._flat and not table.key:
                raise SourceError(f"{self._described} cannot follow {table.name} with flat=True: it has no primary key")
        return catalog, server, tables

    def _begin_snapshot(self, catalog: MySQLCatalog, server: str, tables: Sequence[Table]) -> None:
        position = self._position
        if position is not None:
            reason = None
            if position.server != server:
                reason = "the server is not the one whose changes it has read"
            elif not catalog.has(position.file, position.offset):
                reason = f"the server no longer has the position {position.offset} of its log {position.file}"
            if reason is None:
                return
            if self._lost_log == "fail":
                raise SourceError(
                    f"{self._described} has lost changes: {reason}; set lost_log='snapshot' to begin again with a snapshot"
                )
        self._position = None
        if not self._snapshot or not tables:
            done = {table.name: True for table in tables}
            self._position = Position(server, *catalog.end(), tables=done)
            self._commit()

    def _read_tables(self, catalog: MySQLCatalog, tables: Sequence[Table]) -> None:
        progress = {} if self._position is None else self._position.tables
        waiting = [table for table in tables if progress.get(table.name) is not True]
        if not waiting:
            return
        if not self._snapshot:
            for table in waiting:
                self._position = self._current_position.with_table(table.name, True)
            return
        reading = self._open_snapshot(catalog, waiting)
        timestamp = int(time.time() * 1000)
        for table in waiting:
            self._read_table(reading, table, timestamp)
        self._commit()

    def _open_snapshot(self, catalog: MySQLCatalog, tables: Sequence[Table]) -> MySQLCatalog:
        """Return a catalog within a transaction that reads tables as of the position, or as of a later one."""
        connections = self._connections
        assert connections is not None  # noqa: S101 - the catalog has one
        reader, locker = connections.connect(autocommit=True), connections.connect(autocommit=True)
        for statement in (
            "SET SESSION time_zone = '+00:00'",
            "SET SESSION net_write_timeout = 600",
            "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
        ):
            connections.query(reader, statement)
        # Changes are in the log before they are visible. While the tables are locked, the log has no other changes of
        # them than those that the snapshot sees.
        locking = MySQLCatalog(connections, locker, self._database, self._described)
        locking.lock(tables)
        try:
            connections.query(reader, "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
            if self._position is None:
                self._position = Position(catalog.check(), *catalog.end())
        finally:
            locker.close()
        self._commit()
        return MySQLCatalog(connections, reader, self._database, self._described)

    def _read_table(self, catalog: MySQLCatalog, table: Table, timestamp: int) -> None:
        position = self._current_position
        source = {
            **self._source,
            "table": table.name,
            "snapshot": True,
            "ts_ms": timestamp,
            "file": position.file,
            "pos": position.offset,
            "seq": None,
            "gtid": None,
        }
        begin = position.tables.get(table.name)
        for row, progress in catalog.rows(table, begin, self._chunk, self._decimals):
            key = {column.name: row[column.name] for column in table.columns if column.name in table.key}
            self._produce_change(Change("r", table.name, key or None, None, None, row, source, timestamp))
            if self._is_due() or not self.running:
                self._position = self._current_position.with_table(table.name, progress)
                self._commit()
                if not self.running:
                    raise StoppedError
        self._position = self._current_position.with_table(table.name, True)

    def _stream_changes(self, tables: Sequence[str]) -> None:
        connections = self._open_connections()
        server_id = self._server_id or random.randint(*_SERVER_IDS)  # noqa: S311 - it need not be a secret
        log = BinaryLog(
            connections,
            server_id,
            self._current_position,
            self._database,
            tables,
            self._source,
            self._decimals,
            self._described,
        )
        begun = log.position
        try:
            while self.running:
                for change in log.changes():
                    self._produce_change(change)
                self._position = log.position
                self._commit_if_due(moved=self._position is not self._committed)
        except BrokenLogError as error:
            self._failures = self._failures + 1 if log.position == begun else 1
            if self._failures >= _MOST_FAILURES:
                raise SourceError(
                    f"{self._described} cannot read the log after {begun.file}:{begun.offset}: {error}"
                ) from None
            raise
        self._commit()

    @property
    def _current_position(self) -> Position:
        assert self._position is not None  # noqa: S101 - `_begin_snapshot` or the snapshot see to it
        return self._position

    @property
    def _source(self) -> dict[str, Any]:
        return {"connector": "mysql", "name": self.name, "database": self._database}


def _table_names(owner: str, tables: Any) -> list[str]:
    if tables is None:
        return []
    if isinstance(tables, str) or not isinstance(tables, Sequence):
        raise ArgumentTypeError(f"{owner}(tables=...) must be a list of names, got {type(tables).__name__}")
    if not tables:
        raise ArgumentValueError(f"{owner}(tables=...) needs at least one table, or None for all")
    return list(dict.fromkeys(checked_text(owner, "tables", table) for table in tables))
