"""From the binary log of MySQL and MariaDB to changes, for `MySQLCdcSource`; and the position that its state keeps."""

import logging
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from streamrt.connectors.mysql.mysql_session import READ_TIMEOUT_S, Connections
from streamrt.connectors.mysql.mysql_types import Decimals, choose_codec, kind_of_field, to_json
from streamrt.connectors.sources.changes import Change, UnavailableError
from streamrt.errors import SourceError

__all__ = ["BinaryLog", "Position", "truncated_table"]

_HEARTBEAT_S = 1.0
_COMMENTS = re.compile(r"/\*.*?\*/|--[^\n]*\n|#[^\n]*\n", re.DOTALL)
_NAME = r"(?:`((?:[^`]|``)+)`|([^\s`.;]+))"
_TRUNCATE = re.compile(rf"\s*TRUNCATE\s+(?:TABLE\s+)?{_NAME}(?:\s*\.\s*{_NAME})?", re.IGNORECASE)
# Statements inside of transactions.
_INSIDE = ("BEGIN", "SAVEPOINT", "ROLLBACK TO", "ROLLBACK WORK TO")
_UNREADABLE = (UnicodeDecodeError, NotImplementedError, ValueError, KeyError, IndexError, TypeError, struct.error)


@dataclass(frozen=True)
class Position:
    """How far a source has read.

    Attributes:
        server: identity of the server.
        file: file of the binary log.
        offset: position after the last whole transaction.
        rows: number of changes after it that were produced.
        follows: names of the tables that `rows` counts.
        tables: progress of the snapshot: True for a whole table, else the last key that was read.
    """

    server: str
    file: str
    offset: int
    rows: int = 0
    follows: tuple[str, ...] = ()
    tables: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value."""
        return {
            "server": self.server,
            "file": self.file,
            "offset": self.offset,
            "rows": self.rows,
            "follows": list(self.follows),
            "tables": dict(self.tables),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Position":
        """Return the position of a JSON value.

        Args:
            value: the result of `to_json`.
        """
        return cls(**{**value, "follows": tuple(value["follows"])})

    def with_table(self, table: str, progress: Any) -> "Position":
        """Return the position with the progress of a table.

        Args:
            table: name of the table.
            progress: see `tables`.
        """
        return replace(self, tables={**self.tables, table: progress})


class BinaryLog:
    """Reads a binary log from a position on.

    Args:
        connections: the connections of the source.
        server_id: number by which the server knows the source.
        position: where it begins.
        database: name of the database.
        tables: names of the tables.
        source: fields that all changes have in `source`.
        decimals: how decimals are written.
        described: the source, as the subject of errors.
    """

    def __init__(
        self,
        connections: Connections,
        server_id: int,
        position: Position,
        database: str,
        tables: Sequence[str],
        source: Mapping[str, Any],
        decimals: Decimals,
        described: str,
    ) -> None:
        from pymysqlreplication import BinLogStreamReader, event, row_event

        # It warns of settings that were checked before.
        logging.getLogger("pymysqlreplication").setLevel(logging.ERROR)
        self._events = event
        self._row_events = row_event
        self._connections = connections
        self._connected = False
        self._database = database
        self._tables = frozenset(tables)
        self._source = source
        self._decimals: Decimals = decimals
        self._described = described
        follows = tuple(sorted(tables))
        # Changes of other tables would be counted differently, so they are read again.
        self._skipped = position.rows if position.follows == follows else 0
        self._count = 0
        self._gtid: tuple[str, int] | None = None
        self.position = replace(position, rows=self._skipped, follows=follows)
        self._reader = BinLogStreamReader(
            connection_settings={"read_timeout": READ_TIMEOUT_S},
            server_id=server_id,
            blocking=True,
            resume_stream=True,
            log_file=position.file,
            log_pos=position.offset,
            slave_heartbeat=_HEARTBEAT_S,
            only_schemas=[database],
            only_tables=list(tables),
            only_events=[
                event.GtidEvent,
                event.HeartbeatLogEvent,
                event.MariadbGtidEvent,
                event.QueryEvent,
                event.RotateEvent,
                event.XAPrepareEvent,
                event.XidEvent,
                row_event.DeleteRowsEvent,
                row_event.UpdateRowsEvent,
                row_event.WriteRowsEvent,
            ],
            pymysql_wrapper=self._connect,
            enable_logging=False,
        )

    def changes(self) -> Iterator[Change]:
        """Wait for one event, and yield its changes; the position includes a change when the next one is asked for.

        There is an event each second at least: servers send heartbeats.

        Raises:
            UnavailableError: if the connection is broken.
            SourceError: if the log cannot be read.
        """
        try:
            with self._connections.failures():
                event = self._reader.fetchone()
        except _UNREADABLE as error:
            raise self._make_unreadable_error(error) from error
        if event is None:
            raise UnavailableError("the server has ended the binary log")
        events = self._events
        if isinstance(event, self._row_events.RowsEvent):
            yield from self._row_changes(event)
        elif isinstance(event, events.GtidEvent | events.MariadbGtidEvent):
            self._gtid = (str(event.gtid), event.timestamp)
        elif isinstance(event, events.QueryEvent):
            yield from self._statement_changes(event)
        elif isinstance(event, events.RotateEvent):
            # Each connection begins with one that is not in the log.
            if (event.next_binlog, event.position) != (self.position.file, self.position.offset):
                self._move_to(event.next_binlog, event.position)
        elif not isinstance(event, events.HeartbeatLogEvent):
            self._move_to(self._reader.log_file, self._reader.log_pos)

    def _connect(self, **settings: Any) -> Any:
        # The second connection asks for settings of the server. A third one would go on in the middle of a transaction.
        if "cursorclass" not in settings:
            if self._connected:
                raise self._connections.broken()
            self._connected = True
        # Names that the other client has deprecated, and a character set of its own choice.
        settings.pop("charset", None)
        database = settings.pop("db", None)
        return self._connections.connect(database=database, **settings)

    def _move_to(self, file: str, offset: int) -> None:
        self.position = replace(self.position, file=file, offset=offset, rows=0)
        self._count = self._skipped = 0
        self._gtid = None

    def _statement_changes(self, event: Any) -> Iterator[Change]:
        query = event.query if isinstance(event.query, str) else event.query.decode(errors="replace")
        schema = event.schema.decode() if isinstance(event.schema, bytes) else event.schema
        table = truncated_table(query, schema, self._database)
        if table is not None and table in self._tables:
            self._count += 1
            if self._count > self._skipped:
                yield self._make_change("t", table, event.timestamp, (), None, None)
        if not query.lstrip().upper().startswith(_INSIDE):
            self._move_to(self._reader.log_file, self._reader.log_pos)

    def _row_changes(self, event: Any) -> Iterator[Change]:
        for column in event.columns:
            try:
                choose_codec(column)
            except ValueError as error:
                where = f"column {column.name!r} of table {event.table} after {self._place}"
                raise SourceError(f"{self._described} cannot read {where}: {error}") from None
        try:
            rows = event.rows
        except _UNREADABLE as error:
            raise self._make_unreadable_error(error, event.table) from error
        if any(column.name is None for column in event.columns):
            raise SourceError(
                f"{self._described} cannot read changes of {event.table} at {self._place}: the server did not log the "
                "names of columns; set binlog_row_metadata=FULL"
            )
        key = [column.name for column in event.columns if column.is_primary]
        for row in rows:
            self._count += 1
            if self._count <= self._skipped:
                continue
            if isinstance(event, self._row_events.UpdateRowsEvent):
                before = self._make_row(event, row["before_values"], row["before_none_sources"])
                after = self._make_row(event, row["after_values"], row["after_none_sources"])
                yield self._make_change("u", event.table, event.timestamp, key, before, after)
            else:
                values = self._make_row(event, row["values"], row["none_sources"])
                if isinstance(event, self._row_events.WriteRowsEvent):
                    yield self._make_change("c", event.table, event.timestamp, key, None, values)
                else:
                    yield self._make_change("d", event.table, event.timestamp, key, values, None)
            self.position = replace(self.position, rows=self._count)

    def _make_row(self, event: Any, values: Mapping[str, Any], missing: Mapping[str, str]) -> dict[str, Any]:
        row = {}
        for column in event.columns:
            reason = missing.get(column.name)
            # A session may log parts of rows only.
            if reason == "cols bitmap":
                continue
            value = values[column.name]
            kind = kind_of_field(column)
            try:
                row[column.name] = to_json(
                    kind,
                    [] if reason == "empty set" else value,
                    self._decimals,
                    width=getattr(column, "max_length", 0),
                    members=column.set_values or (),
                )
            except _UNREADABLE as error:
                raise self._make_unreadable_error(error, f"{event.table}, column {column.name!r}") from error
        return row

    def _make_change(
        self,
        op: str,
        table: str,
        timestamp: int,
        key: Sequence[str],
        before: dict[str, Any] | None,
        after: dict[str, Any] | None,
    ) -> Change:
        gtid, committed = self._gtid or (None, timestamp)
        source = {
            **self._source,
            "table": table,
            "snapshot": False,
            "ts_ms": committed * 1000,
            "file": self.position.file,
            "pos": self.position.offset,
            "seq": self._count,
            "gtid": gtid,
        }
        new, old = (_key_part(row, key) for row in (after, before))
        return Change(op, table, new or old, old, before, after, source, committed * 1000)

    @property
    def _place(self) -> str:
        return f"{self.position.file}:{self.position.offset}"

    def _make_unreadable_error(self, error: Exception, table: str = "a table") -> SourceError:
        return SourceError(
            f"{self._described} cannot read a change of {table} after {self._place} in the binary log "
            f"({type(error).__name__})"
        )


def truncated_table(query: str, schema: str, database: str) -> str | None:
    """Return the name of the table that a statement empties, or None if it does not or is of another database.

    Args:
        query: the statement.
        schema: the database in which it ran.
        database: the database that matters.

    Example:
        >>> truncated_table("truncate table `shop`.`odd``name`", "other", "shop")
        'odd`name'
    """
    found = _TRUNCATE.match(_COMMENTS.sub(" ", query))
    if found is None:
        return None
    names = [(quoted or plain or "").replace("``", "`") for quoted, plain in (found.group(1, 2), found.group(3, 4))]
    given, table = names if names[1] else (schema, names[0])
    return table if given == database else None


def _key_part(row: Mapping[str, Any] | None, key: Sequence[str]) -> dict[str, Any] | None:
    return None if row is None else {name: row[name] for name in key if name in row} or None
