"""Tables and columns of sinks for SQL databases: from values to rows, and from rows to the columns that tables lack."""

import abc
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from streamrt.connectors.sinks.batch import SinkBatch, SinkItem
from streamrt.connectors.sql.sql_names import is_internal
from streamrt.connectors.sql.sql_rows import Place, Row, TableRows, key_text
from streamrt.connectors.sql.sql_values import holds_bytes
from streamrt.errors import SinkError, argument_error

__all__ = ["KEY_COLUMN", "TIMESTAMP_COLUMN", "PrimaryKeyColumns", "SQLTables", "TableName"]

TableName = str | Callable[[SinkItem], str]
"""Name of a table, or a function that returns the one for an item."""

PrimaryKeyColumns = str | Sequence[str] | Callable[[SinkItem], Sequence[str]]
"""Names of the columns of a primary key, or a function that returns those for an item."""

KEY_COLUMN = "__key"
TIMESTAMP_COLUMN = "timestamp"

_MOST_NAMES = 10_000
_POSITION_KEY = frozenset({"consumer_group", "sink", "topic", "kafka_partition"})


class _SchemaRejectionError(SinkError):
    """The database rejects columns because of their names or their number."""


class _NewColumn(NamedTuple):
    """A column that a table lacks: its type, and the row that needs it."""

    kind: str
    place: Place


class SQLTables(abc.ABC):
    """The dialect of a database, and what a sink does about its tables."""

    _longest_identifier = 63
    _placeholder = "%s"
    # Types of the table of positions: of its key, and of the other text columns.
    _position_type = "TEXT"
    _position_text = "TEXT"
    # What follows the columns of a new table.
    _table_options = ""
    # How many columns a table can have, and names that none can have.
    _most_columns = 1 << 20
    _reserved_columns: frozenset[str] = frozenset()

    _table_name: TableName
    _primary_key_columns: Sequence[str] | Callable[[SinkItem], Sequence[str]]
    _schema_auto_update: bool
    _upsert: bool
    _ignore: bool
    _include_metadata: bool
    _position_table: str | None
    # Checked names of columns; the columns of each table with their types, as last seen.
    _names: set[str]
    _columns: dict[str, dict[str, str]]

    # -- The dialect ---------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def _connect(self) -> Any:
        """Return a new connection (PEP 249), in which statements begin a transaction."""

    @abc.abstractmethod
    def _may_pass(self, error: BaseException) -> bool:
        """Return whether an error may pass."""

    @abc.abstractmethod
    def _error_reason(self, error: BaseException) -> str:
        """Return the reason of an error, without values of rows."""

    @abc.abstractmethod
    def _type_of(self, value: Any) -> str | None:
        """Return the type of a column for a value; None for a value that no column can hold."""

    @abc.abstractmethod
    def _find_columns(self, table: str) -> dict[str, str]:
        """Return the columns of a table with their types; empty if the table does not exist."""

    @abc.abstractmethod
    def _find_primary_key(self, table: str) -> tuple[str, ...]:
        """Return the columns of a table's primary key."""

    @abc.abstractmethod
    def _insert_rows(self, rows: TableRows, columns: Sequence[str]) -> None:
        """Insert rows into a table in the open transaction; lacking columns are null.

        Raises:
            SinkError: if the database rejects a row.
        """

    def _quote_name(self, name: str) -> str:
        """Return a checked name as an identifier."""
        doubled = name.replace('"', '""')
        return f'"{doubled}"'

    def _qualify_name(self, table: str) -> str:
        """Return the name of a table in statements."""
        return self._quote_name(table)

    def _fold_name(self, name: str) -> str:
        """Return a text that is the same for all spellings of the name of a column."""
        return name

    def _is_about_columns(self, error: BaseException) -> bool:
        """Return whether a table cannot be changed because of the names or the number of its columns."""
        return False

    @abc.abstractmethod
    def _define_table(self, statement: str) -> None:
        """Run a statement that defines a table."""

    # -- Rows and tables -----------------------------------------------------------------------------------------------

    def _rows_by_table(self, batches: Sequence[SinkBatch]) -> list[TableRows]:
        tables: dict[str, TableRows] = {}
        for batch in batches:
            for item in batch:
                place = Place(batch, item)
                table = self._table_of(item, place)
                rows = tables.get(table)
                if rows is None:
                    rows = tables[table] = TableRows(table, self._primary_key_of(item, place))
                rows.rows.append(self._make_row(item, place))
                rows.places.append(place)
        return list(tables.values())

    def _table_of(self, item: SinkItem, place: Place) -> str:
        if isinstance(self._table_name, str):
            return self._table_name
        table = self._table_name(item)
        fault = self._find_fault(table)
        if fault is None and is_internal(table, self._position_table):
            fault = f"{table!r} names a table of positions"
        if fault is not None:
            raise SinkError(f"table_name returned no usable name of a table for {place}: {fault}", place.record)
        return table

    def _primary_key_of(self, item: SinkItem, place: Place) -> tuple[str, ...]:
        if not callable(self._primary_key_columns):
            return tuple(self._primary_key_columns)
        found = self._primary_key_columns(item)
        columns = (found,) if isinstance(found, str) else tuple(found)
        for column in columns:
            if self._find_fault(column) is not None:
                raise SinkError(
                    f"primary_key_columns returned no usable name for {place}: {self._find_fault(column)}", place.record
                )
        return columns

    def _make_row(self, item: SinkItem, place: Place) -> Row:
        if not isinstance(item.value, Mapping):
            raise SinkError(
                f"the value of {place} is of type {type(item.value).__name__}: rows are made of dicts, so convert it with "
                "apply() before sink()",
                place.record,
            )
        row: Row = dict(item.value)
        if not self._names.issuperset(row):
            for column in row:
                fault = self._find_fault(column)
                if fault is None and column in self._reserved_columns:
                    fault = f"{column!r} is a column of the system"
                if fault is not None:
                    raise SinkError(f"a field of {place} has no usable name of a column: {fault}", place.record)
            # Names from data have no end, so old ones are checked again.
            self._names = set(row) if len(self._names) > _MOST_NAMES else self._names.union(row)
        if self._include_metadata:
            own = [column for column in (KEY_COLUMN, TIMESTAMP_COLUMN) if column in row]
            if own:
                raise SinkError(
                    f"the value of {place} has a field {own[0]!r}, the column of the record's "
                    f"{'key' if own[0] == KEY_COLUMN else 'timestamp'}: rename the field, or set include_metadata=False",
                    place.record,
                )
            if item.key is not None:
                row[KEY_COLUMN] = item.key
            try:
                row[TIMESTAMP_COLUMN] = self._make_timestamp(item.timestamp)
            except OverflowError:
                raise SinkError(
                    f"the timestamp of {place} is beyond the years 1 to 9999: is it in milliseconds?", place.record
                ) from None
        return row

    @abc.abstractmethod
    def _make_timestamp(self, milliseconds: int) -> Any:
        """Return the event time of a record, as its column holds it."""

    def _prepare_table(self, rows: TableRows) -> list[str]:
        """Create the table of rows and columns that it lacks; return the columns to write."""
        existing = self._find(rows.table)
        if existing.keys() >= _POSITION_KEY:
            raise SinkError(
                f"table {rows.table!r} holds positions of consumer groups: write to another table ({rows.places[0]})",
                rows.places[0].record if callable(self._table_name) else None,
            )
        self._respell_fields(rows, existing)
        if self._include_metadata and not holds_bytes(existing.get(KEY_COLUMN, "")):
            for row in rows.rows:
                if isinstance(row.get(KEY_COLUMN), bytes):
                    row[KEY_COLUMN] = key_text(row[KEY_COLUMN])
        added = self._find_missing(rows, existing)
        for column in rows.primary_key:
            for row, place in zip(rows.rows, rows.places, strict=True):
                if row.get(column) is None:
                    raise SinkError(
                        f"column {column!r} of the primary key of table {rows.table!r} is null in {place}", place.record
                    )
        if added and not self._schema_auto_update:
            column, (_, place) = next(iter(added.items()))
            lacking = "table" if not existing else f"column {column!r} of table"
            raise SinkError(
                f"{lacking} {rows.table!r} does not exist, and schema_auto_update=False ({place}): create it, or "
                "drop the field before sink()",
                place.record if existing else None,
            )
        if not existing and not added:
            raise SinkError(
                f"table {rows.table!r} cannot be created without a column: {rows.places[0]} has no value in it"
            )
        if not existing:
            self._create_table(rows, added)
            # Another process may have created it with other columns at the same moment.
            existing = self._find(rows.table)
            self._respell_fields(rows, existing)
            added = self._find_missing(rows, existing)
        elif rows.primary_key and (self._upsert or self._ignore):
            self._check_primary_key(rows)
        if added:
            self._add_columns(rows.table, added)
        rows.kinds = dict(self._find(rows.table))
        return [column for column in rows.columns() if column in rows.kinds]

    def _find_missing(self, rows: TableRows, existing: Mapping[str, str]) -> dict[str, _NewColumn]:
        """Return the columns with values that a table lacks."""
        missing: dict[str, _NewColumn] = {}
        for row, place in zip(rows.rows, rows.places, strict=True):
            if existing.keys() >= row.keys():
                continue
            for column, value in row.items():
                if column in existing or column in missing or value is None:
                    continue
                kind = self._type_of(value)
                if kind is None:
                    raise SinkError(
                        f"column {column!r} of table {rows.table!r} cannot hold a value of type {type(value).__name__}, "
                        f"that of {place}: convert it with apply() before sink()",
                        place.record,
                    )
                if len(existing) + len(missing) >= self._most_columns:
                    raise SinkError(
                        f"table {rows.table!r} can have {self._most_columns:,} columns, and {place} needs another one, "
                        f"{column!r}: drop fields, or keep them in one dict, with apply() before sink()",
                        place.record,
                    )
                missing[column] = _NewColumn(kind, place)
        return missing

    def _respell_fields(self, rows: TableRows, existing: Mapping[str, str]) -> None:
        """Give fields the names of their columns, which differ if the database ignores case."""
        spellings = {self._fold_name(column): column for column in existing}
        for number, (row, place) in enumerate(zip(rows.rows, rows.places, strict=True)):
            if row.keys() <= existing.keys():
                continue
            respelled: Row = {}
            for name, value in row.items():
                column = spellings.setdefault(self._fold_name(name), name)
                if column in respelled:
                    raise SinkError(
                        f"two fields of {place} belong to column {column!r} of table {rows.table!r}, since the database "
                        "ignores case in names: rename one before sink()",
                        place.record,
                    )
                respelled[column] = value
            rows.rows[number] = respelled
        rows.primary_key = tuple(spellings.get(self._fold_name(column), column) for column in rows.primary_key)

    def _check_primary_key(self, rows: TableRows) -> None:
        found = self._find_primary_key(rows.table)
        if set(found) != set(rows.primary_key):
            has = f"the primary key ({', '.join(found)})" if found else "no primary key"
            raise SinkError(
                f"table {rows.table!r} has {has}, and the sink needs ({', '.join(rows.primary_key)}) to recognize equal "
                "rows: change the table, or primary_key_columns"
            )

    def _create_table(self, rows: TableRows, columns: Mapping[str, _NewColumn]) -> None:
        try:
            self._create_with(rows, columns)
        except _SchemaRejectionError as error:
            # Some record is the reason. The columns of the others follow one by one, so that it is found.
            first = next(iter(columns.values())).place
            own = {name: column for name, column in columns.items() if column.place is first}
            own.update((name, columns[name]) for name in rows.primary_key if name in columns)
            if len(own) == len(columns):
                raise SinkError(f"{error} ({first})", first.record) from None
            self._create_with(rows, own)

    def _create_with(self, rows: TableRows, columns: Mapping[str, _NewColumn]) -> None:
        parts = [
            f"{self._quote_name(name)} {self._key_type(column.kind) if name in rows.primary_key else column.kind}"
            for name, column in columns.items()
        ]
        if rows.primary_key:
            parts.append(f"PRIMARY KEY ({', '.join(map(self._quote_name, rows.primary_key))})")
        statement = (
            f"CREATE TABLE IF NOT EXISTS {self._qualify_name(rows.table)} ({', '.join(parts)}){self._table_options}"
        )
        self._change_schema(rows.table, statement, ())

    def _add_columns(self, table: str, columns: Mapping[str, _NewColumn]) -> None:
        for name, column in columns.items():
            statement = f"ALTER TABLE {self._qualify_name(table)} ADD COLUMN {self._quote_name(name)} {column.kind}"
            try:
                self._change_schema(table, statement, (name,))
            except _SchemaRejectionError as error:
                raise SinkError(f"{error} (column {name!r} of {column.place})", column.place.record) from None

    def _change_schema(self, table: str, statement: str, columns: Collection[str]) -> None:
        try:
            self._define_table(statement)
        except Exception as error:
            if self._may_pass(error):
                raise
            # Another process may have done the same at the same moment.
            found = self._find(table)
            if not found or not found.keys() >= set(columns):
                kind = _SchemaRejectionError if self._is_about_columns(error) else SinkError
                raise kind(f"table {table!r} cannot be changed: {self._error_reason(error)}") from error
        self._columns.pop(table, None)

    def _key_type(self, kind: str) -> str:
        """Return the type of a column of a primary key."""
        return kind

    def _find(self, table: str) -> dict[str, str]:
        found = self._columns.get(table)
        if not found:
            found = self._columns[table] = self._find_columns(table)
        return found

    # -- Names ---------------------------------------------------------------------------------------------------------

    def _find_fault(self, name: Any) -> str | None:
        """Return why a name cannot be that of a table or column."""
        if not isinstance(name, str) or not name:
            return f"a name must be a non-empty string, not {'an empty one' if name == '' else type(name).__name__}"
        if "\0" in name:
            return "a name must not contain a zero character"
        try:
            size = len(name.encode())
        except UnicodeEncodeError:
            return "a name must be valid Unicode"
        if size > self._longest_identifier:
            return f"a name must have {self._longest_identifier} bytes at most, not {size}"
        return None

    def _check_identifier(self, parameter: str, name: Any) -> None:
        fault = self._find_fault(name)
        if fault is not None:
            raise argument_error(f"{type(self).__name__}({parameter}=...): {fault}", of_type=isinstance(name, str))
