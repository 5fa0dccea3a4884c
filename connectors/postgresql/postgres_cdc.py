"""`PostgresCdcSource`: the rows of PostgreSQL's tables and their changes, as records."""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal, get_args

from streamrt.connectors.argument_checks import (
    check_texts,
    checked_choice,
    checked_count,
    checked_flag,
    checked_seconds,
)
from streamrt.connectors.background import StoppedError
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.credentials import Credential, CredentialInput
from streamrt.connectors.libraries import require_library
from streamrt.connectors.postgresql import pgoutput
from streamrt.connectors.postgresql.postgres_catalog import (
    LONGEST_NAME,
    PostgresCatalog,
    Table,
    checked_name,
    table_names,
)
from streamrt.connectors.postgresql.postgres_rows import RowFactory
from streamrt.connectors.postgresql.postgres_session import (
    PostgresError,
    Session,
    checked_settings,
    identifier,
    literal,
)
from streamrt.connectors.postgresql.postgres_snapshot import key_of, table_rows
from streamrt.connectors.postgresql.postgres_stream import LostSlot, Position, Stream, next_step
from streamrt.connectors.postgresql.postgres_types import Decimals
from streamrt.connectors.sources.changes import (
    Change,
    ChangeSource,
    UnavailableError,
)
from streamrt.connectors.tls import LIBPQ_NAMES, TLS, check_tls, libpq_settings
from streamrt.errors import ArgumentValueError, SourceError
from streamrt.secret import Secret

__all__ = ["PostgresCdcSource"]

_POSITION = "position"
_RECEIVE_S = 0.2
_STATUS_S = 10.0
_SILENCE_S = 60.0
_SLOT = re.compile(r"[a-z0-9_]{1,63}", re.ASCII)


class PostgresCdcSource(ChangeSource):
    """Produces the rows of tables of PostgreSQL, then each change of them, by logical replication.

    The source creates a publication and a replication slot, reads the tables in the slot's snapshot, and then follows
    the slot. Keys are JSON objects of the primary key; values have the form

    ```
    {"op": "c", "before": null, "after": {"id": 1, "name": "ann"},
     "source": {"schema": "public", "table": "customers", "snapshot": false, "lsn": "0/1943B80", "seq": 1, ...}}
    ```

    where `op` is "r" for a row of the snapshot, "c" for an insert, "u" for an update, "d" for a delete and "t" for a
    truncate. Timestamps of records are the times of commits. A crash repeats the changes since the last flush, and
    loses none; with `processing_guarantee="exactly-once"`, it repeats none, either. Needs the extra `postgres`, and a
    server with `wal_level=logical`.

    Args:
        host: host of the server.
        port: its port.
        dbname: name of the database.
        user: name of the user; it needs the attribute REPLICATION, SELECT on the tables, and their ownership to create
            the publication.
        password: the password, or a function that returns it, which is called in the process of the source.
        tables: names of the tables, as `table`, `schema.table` or `(schema, table)`; None for all tables of an existing
            publication.
        name: name of the source, unique in the application.
        shutdown_timeout: seconds that the source has to end when the application stops.
        on_client_connect_success: called without arguments after the first connection.
        on_client_connect_failure: called with the exception if the first connection fails.
        publication: name of the publication; by default that of the slot.
        slot: name of the replication slot; by default `streamrt_<name>`.
        create_publication: create the publication if it is missing, and add tables that it lacks.
        create_slot: create the slot; False to use one that exists.
        snapshot: "initial" to read tables first, "never" to produce changes only.
        flat: values are rows; a delete is a tombstone, and a truncate is left out.
        tombstones: after the record of a delete, produce a tombstone with the same key.
        decimals: write `numeric` as "string" or as "float".
        lost_slot: what to do if changes are lost because the slot is gone: "fail", or "snapshot" to create another one
            and begin again.
        commit_interval: seconds between flushes.
        commit_every: number of records after which it flushes earlier.
        heartbeat_interval: seconds between acknowledgements while no table changes, so that the server can delete log.
        snapshot_chunk: number of rows that one query of the snapshot reads.
        connection_timeout_seconds: time limit for opening a connection, in seconds.
        tls: True for TLS with a certificate that the system trusts, the path of a file of trusted certificates, or False
            for none; by default, libpq decides.
        kwargs: more connection settings of libpq, such as `application_name`, or `sslcert` for a certificate of the client.

    Raises:
        ConfigurationError: if an argument cannot be used, or psycopg is not installed.

    Example:
        ```python
        customers = PostgresCdcSource(
            "db", 5432, "shop", "replicator", lambda: os.environ["DB_PASSWORD"], tables=["customers"], name="customers"
        )
        sdf = app.dataframe(source=customers)
        ```
    """

    def __init__(
        self,
        host: str,
        port: int,
        dbname: str,
        user: str,
        password: CredentialInput,
        tables: Sequence[str | tuple[str, str]] | None = None,
        name: str | None = None,
        shutdown_timeout: float = 10,
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
        *,
        publication: str | None = None,
        slot: str | None = None,
        create_publication: bool = True,
        create_slot: bool = True,
        snapshot: Literal["initial", "never"] = "initial",
        flat: bool = False,
        tombstones: bool = False,
        decimals: Decimals = "string",
        lost_slot: LostSlot = "fail",
        commit_interval: float = 5.0,
        commit_every: int = 10_000,
        heartbeat_interval: float = 10.0,
        snapshot_chunk: int = 10_000,
        connection_timeout_seconds: float = 30.0,
        tls: TLS = None,
        **kwargs: Any,
    ) -> None:
        require_library("PostgresCdcSource", "psycopg", "postgres")
        check_texts("PostgresCdcSource", host=host, dbname=dbname, user=user)
        super().__init__(
            f"postgres-cdc-{dbname}" if name is None else name,
            shutdown_timeout,
            on_client_connect_success,
            on_client_connect_failure,
            commit_interval=commit_interval,
            commit_every=commit_every,
            heartbeat_interval=heartbeat_interval,
            flat=flat,
            tombstones=tombstones,
        )
        checked_choice("PostgresCdcSource", "snapshot", snapshot, ("initial", "never"))
        checked_choice("PostgresCdcSource", "decimals", decimals, get_args(Decimals))
        checked_choice("PostgresCdcSource", "lost_slot", lost_slot, get_args(LostSlot))
        self._create_publication = checked_flag("PostgresCdcSource", "create_publication", create_publication)
        self._create_slot = checked_flag("PostgresCdcSource", "create_slot", create_slot)
        checked_count("PostgresCdcSource", "port", port, 1, 65_535)
        self._settings = {"host": host, "port": port, "dbname": dbname, "user": user, "application_name": "streamrt"}
        self._password = Credential(password, "PostgresCdcSource(password=...)")
        check_tls("PostgresCdcSource", tls, kwargs, LIBPQ_NAMES)
        kwargs |= libpq_settings(tls)
        # Some settings, such as sslpassword, are also secrets.
        self._more = {
            key: Secret(value) if isinstance(value, str) else value
            for key, value in checked_settings("PostgresCdcSource", kwargs).items()
        }
        self._dbname = dbname
        self._tables = table_names(tables)
        if not self._tables and publication is None:
            raise ArgumentValueError("PostgresCdcSource(tables=...) needs at least one table, or give a publication")
        default = "streamrt_" + re.sub("[^a-z0-9_]", "_", self.name.lower())
        self._slot = default[:LONGEST_NAME] if slot is None else slot
        if not isinstance(self._slot, str) or not _SLOT.fullmatch(self._slot):
            raise ArgumentValueError(
                f"PostgresCdcSource(slot={slot!r}) must be 1 to 63 small letters, digits and underscores"
            )
        self._publication = checked_name("publication", self._slot if publication is None else publication)
        self._snapshot = snapshot == "initial"
        self._lost_slot: LostSlot = lost_slot
        self._chunk = checked_count("PostgresCdcSource", "snapshot_chunk", snapshot_chunk)
        self._timeout = checked_seconds(
            "PostgresCdcSource", "connection_timeout_seconds", connection_timeout_seconds, least=1
        )
        self._described = f"PostgresCdcSource {self.name!r} of the database {dbname!r} at {host}:{port}"
        self._rows = RowFactory(self._tables, decimals, self._described)
        self._sessions: list[Session] = []
        self._replication: Session | None = None
        # What was produced, which may be more than what was flushed.
        self._position: Position | None = None
        self._committed: Position | None = None

    def __repr__(self) -> str:
        return f"<{self._described}>"

    def setup(self) -> None:
        """Connect, and prepare the publication.

        Raises:
            SourceError: if tables cannot be followed, or the database cannot be reached at the very first start.
        """
        try:
            with self._lasting_failures(), self._open_session() as session:
                self._prepare_slot(session)
                with self._open_session(replication=True):
                    # Another kind of connection, which needs another permission.
                    pass
        except UnavailableError as error:
            self._wait_for_database(error)
        except StoppedError:
            return

    def _follow_changes(self) -> None:
        with self._lasting_failures():
            self._position = self._position or self._stored_position()
            self._committed = self._stored_position()
            with self._open_session() as session:
                catalog, tables = self._prepare_slot(session)
                self._begin_snapshot(session, catalog, tables)
                self._read_tables(session, catalog, tables)
            with self._open_session(replication=True) as self._replication:
                self._stream_changes(self._replication)
            self._replication = None

    def _disconnect(self) -> None:
        self._replication = None
        while self._sessions:
            self._sessions.pop().close()

    def _stored_position(self) -> Position | None:
        stored = self.state.get(_POSITION)
        return None if stored is None else Position.from_json(stored)

    def _commit(self) -> None:
        position = self._position
        if position is not None:
            self.state.set(_POSITION, position.to_json())
            self.flush()
            self._committed = position
            # Only what is in Kafka, and known to be there, is acknowledged.
            if self._replication is not None:
                self._acknowledge_position(self._replication)

    def _acknowledge_position(self, session: Session) -> None:
        committed = self._committed
        if committed is not None and committed.lsn is not None:
            session.send(pgoutput.status_update(committed.lsn, committed.lsn, int(time.time() * 1000)))

    @contextmanager
    def _open_session(self, *, replication: bool = False) -> Iterator[Session]:
        settings = {**self._settings, "password": self._password.reveal()}
        for name, value in self._more.items():
            settings[name] = value.reveal() if isinstance(value, Secret) else value
        session = Session(settings, lambda: self.running, self._timeout, replication=replication)
        self._sessions.append(session)
        try:
            yield session
        finally:
            session.close()
            if session in self._sessions:
                self._sessions.remove(session)

    @contextmanager
    def _lasting_failures(self) -> Iterator[None]:
        try:
            yield
        except PostgresError as error:
            reason = self._password.masked(str(error))
            code = "" if error.code is None else f" (SQLSTATE {error.code})"
            raise SourceError(f"{self._described} was refused: {reason}{code}") from None

    def _prepare_slot(self, session: Session) -> tuple[PostgresCatalog, list[Table]]:
        catalog = PostgresCatalog(session, self._described)
        catalog.ensure_publication(self._publication, self._tables, self._create_publication)
        tables = [table for table in catalog.tables(self._publication) if self._rows.wants(table.name)]
        for table in tables:
            if self._flat and not table.key:
                raise SourceError(f"{self._described} cannot follow {table.name} with flat=True: it has no primary key")
        return catalog, tables

    def _begin_snapshot(self, session: Session, catalog: PostgresCatalog, tables: Sequence[Table]) -> None:
        """Make sure that there are a slot and a position; leave the session in the snapshot to read."""
        with self._open_session(replication=True) as replication:
            system = str(replication.execute("IDENTIFY_SYSTEM")[0][0])
            slot = catalog.slot(self._slot)
            step = next_step(
                self._position,
                slot,
                system=system,
                name=self._slot,
                create=self._create_slot,
                lost=self._lost_slot,
                described=self._described,
            )
            if step == "restart" and slot is not None:
                catalog.drop_slot(self._slot)
            if step != "stream":
                done = {} if self._snapshot else {str(table.name): True for table in tables}
                self._position = Position(system, self._slot, tables=done)
            session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            if step in ("create", "restart"):
                # A slot without a position is known to be this source's own, and not finished.
                self._commit()
                self._create(session, replication, tables)
            elif step == "adopt" and slot is not None:
                self._position = replace(self._current_position, lsn=slot.confirmed)
        if step != "stream":
            self._commit()

    def _create(self, session: Session, replication: Session, tables: Sequence[Table]) -> None:
        if self._snapshot and tables:
            # Between the snapshot and the first query, no table can be rewritten.
            session.execute(f"LOCK TABLE {', '.join(table.name.sql for table in tables)} IN ACCESS SHARE MODE")
        export = "EXPORT_SNAPSHOT" if self._snapshot else "NOEXPORT_SNAPSHOT"
        made = replication.execute(f"CREATE_REPLICATION_SLOT {identifier(self._slot)} LOGICAL pgoutput {export}")
        _, lsn, snapshot, _ = made[0]
        if snapshot is not None:
            session.execute(f"SET TRANSACTION SNAPSHOT {literal(snapshot)}")
            session.execute("SELECT 1")
        self._position = replace(self._current_position, lsn=pgoutput.lsn_number(str(lsn)))

    @property
    def _current_position(self) -> Position:
        assert self._position is not None  # noqa: S101 - `_begin_snapshot` sees to it
        return self._position

    def _read_tables(self, session: Session, catalog: PostgresCatalog, tables: Sequence[Table]) -> None:
        begun = session.execute("SELECT floor(extract(epoch FROM now()) * 1000)::bigint")
        timestamp = int(str(begun[0][0]))
        for table in tables:
            progress = self._current_position.tables.get(str(table.name))
            if progress is True:
                continue
            if not self._snapshot:
                self._position = self._current_position.with_table(table.name, True)
                continue
            self._read_table(session, catalog, table, progress, timestamp)
        session.execute("COMMIT")
        if self._position is not self._committed:
            self._commit()

    def _read_table(
        self, session: Session, catalog: PostgresCatalog, table: Table, progress: list[str] | None, timestamp: int
    ) -> None:
        rows = self._rows.of_table(table, catalog)
        source = {
            **self._source,
            "schema": table.name.schema,
            "table": table.name.table,
            "snapshot": True,
            "ts_ms": timestamp,
            "lsn": pgoutput.lsn_text(self._current_position.lsn or 0),
            "seq": None,
            "xid": None,
        }
        for cells in table_rows(session, table, progress, self._chunk):
            row = rows.row(cells)
            self._produce_change(Change("r", str(table.name), rows.key(row), None, None, row, source, timestamp))
            if table.key:
                progress = key_of(table, cells)
            if self._is_due() or not self.running:
                self._position = self._current_position.with_table(table.name, progress)
                self._commit()
                if not self.running:
                    raise StoppedError
        self._position = self._current_position.with_table(table.name, True)

    @property
    def _source(self) -> dict[str, Any]:
        return {"connector": "postgresql", "name": self.name, "database": self._dbname}

    @contextmanager
    def _open_catalog(self) -> Iterator[PostgresCatalog]:
        with self._open_session() as session:
            yield PostgresCatalog(session, self._described)

    def _stream_changes(self, session: Session) -> None:
        position = self._current_position
        session.start_replication(
            f"START_REPLICATION SLOT {identifier(self._slot)} LOGICAL {pgoutput.lsn_text(position.lsn or 0)} "
            f"(proto_version '1', publication_names {literal(identifier(self._publication))})"
        )
        stream = Stream(position, lambda relation: self._rows.of_relation(relation, self._open_catalog), self._source)
        heard = told = time.monotonic()
        while self.running:
            data = session.receive(_RECEIVE_S)
            now = time.monotonic()
            if data is not None:
                heard = now
                self._take_message(session, stream, pgoutput.frame(data))
            elif now - heard > _SILENCE_S:
                raise UnavailableError(f"the server has been silent for {_SILENCE_S:g} s")
            self._commit_if_due(moved=self._position is not self._committed)
            if now - told >= _STATUS_S:
                told = now
                self._acknowledge_position(session)
        self._commit()

    def _take_message(self, session: Session, stream: Stream, framed: pgoutput.WALData | pgoutput.Keepalive) -> None:
        if isinstance(framed, pgoutput.WALData):
            for change in stream.changes(framed.message):
                self._produce_change(change)
            self._position = stream.position
            return
        stream.advance(framed.end)
        self._position = stream.position
        if framed.wants_reply:
            # A server that shuts down waits until everything is acknowledged.
            if not stream.in_transaction and self._position is not self._committed:
                self._commit()
            self._acknowledge_position(session)
