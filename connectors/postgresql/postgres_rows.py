"""From values as text to rows, for `PostgresCdcSource`."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from streamrt.connectors.postgresql.pgoutput import UNCHANGED, Cells, Column, Relation
from streamrt.connectors.postgresql.postgres_catalog import PostgresCatalog, Table, TableColumn, TableName
from streamrt.connectors.postgresql.postgres_types import Converter, Decimals, TypeInfo, converter
from streamrt.errors import SourceError

__all__ = ["RowFactory", "Rows"]


class Rows:
    """Makes rows of a table from values as text.

    Args:
        table: the table.
        columns: names and converters of its columns.
        key: names of its key columns.
        described: the source, as the subject of errors.
    """

    def __init__(
        self, table: TableName, columns: Sequence[tuple[str, Converter]], key: Sequence[str], described: str
    ) -> None:
        self.table = table
        self._columns = columns
        # The order of the table is the same wherever the columns come from.
        self._key = [name for name, _ in columns if name in key]
        self._described = described

    def row(self, cells: Cells, old: Cells | None = None, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Return a row; columns that were not sent are missing.

        Args:
            cells: the values.
            old: earlier values, for those that were not sent.
            names: the columns to return; all by default.
        """
        row = {}
        for place, cell in enumerate(cells):
            name, convert = self._columns[place]
            if names is not None and name not in names:
                continue
            if cell is UNCHANGED:
                cell = UNCHANGED if old is None else old[place]
                if cell is UNCHANGED or cell is None:
                    continue
            if isinstance(cell, bytes):
                try:
                    row[name] = convert(cell.decode())
                except ValueError as error:
                    raise SourceError(
                        f"{self._described} cannot read column {name!r} of table {self.table}: its value is not valid "
                        f"({type(error).__name__})"
                    ) from error
            else:
                row[name] = None
        return row

    def part(self, cells: Cells) -> dict[str, Any]:
        """Return the columns of the key.

        Args:
            cells: the values; those outside the key do not matter.
        """
        return self.row(cells, names=self._key)

    def key(self, row: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the key of a row, or None if the table has none.

        Args:
            row: the row.
        """
        return {name: row[name] for name in self._key if name in row} or None


class RowFactory:
    """Makes what makes rows; it knows the types that it has met.

    Args:
        tables: the tables that are followed; none means all.
        decimals: how `numeric` is written.
        described: the source, as the subject of errors.
    """

    def __init__(self, tables: Sequence[TableName], decimals: Decimals, described: str) -> None:
        self._tables = frozenset(tables)
        self._decimals: Decimals = decimals
        self._described = described
        self._types: dict[int, TypeInfo] = {}

    def wants(self, table: TableName) -> bool:
        """Return whether a table is followed.

        Args:
            table: the table.
        """
        return not self._tables or table in self._tables

    def of_table(self, table: Table, catalog: PostgresCatalog) -> Rows:
        """Return what makes rows of a table of the snapshot.

        Args:
            table: the table.
            catalog: the catalog, for unknown types.
        """
        self._learn_types(table.columns, catalog)
        return self._make_rows(table.name, table.columns, table.key)

    def of_relation(
        self, relation: Relation, catalogs: Callable[[], AbstractContextManager[PostgresCatalog]]
    ) -> Rows | None:
        """Return what makes rows of a table of the stream, or None if it is not followed.

        Args:
            relation: the table.
            catalogs: opens the catalog; called only if it is needed.
        """
        table = TableName(relation.schema, relation.table)
        if not self.wants(table):
            return None
        key: Sequence[str] = [column.name for column in relation.columns if column.identity]
        if relation.identity == "f" or any(column.type not in self._types for column in relation.columns):
            with catalogs() as catalog:
                self._learn_types(relation.columns, catalog)
                if relation.identity == "f":
                    key = catalog.key(relation.number)
        return self._make_rows(table, relation.columns, key)

    def _learn_types(self, columns: Sequence[Column | TableColumn], catalog: PostgresCatalog) -> None:
        for column in columns:
            if column.type not in self._types:
                self._types[column.type] = catalog.type(column.type)

    def _make_rows(self, table: TableName, columns: Sequence[Column | TableColumn], key: Sequence[str]) -> Rows:
        converters = [(column.name, converter(self._types[column.type], self._decimals)) for column in columns]
        return Rows(table, converters, key, self._described)
