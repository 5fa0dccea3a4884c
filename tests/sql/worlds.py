"""A view of an application over tables in memory, and DuckDB with the same rows."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import pyarrow as pa
from typing_extensions import Self

from streamrt import Application
from streamrt.schema import Schema
from streamrt.sql.queries.duckdb_text import to_duckdb
from streamrt.sql.reading import parse_query
from streamrt.sql.verify.batch_query import name_columns
from streamrt.tables import Catalog, MemoryCatalog
from streamrt.testing import InputRecord, TopologyTestDriver
from tests import duckdbs

__all__ = ["VIEW", "Batch", "Change", "Guarantee", "Row", "World", "apply_changes"]

VIEW = "result"
Guarantee = Literal["at-least-once", "exactly-once"]
Row = tuple[Any, ...]


class Change(NamedTuple):
    """A row that a table gets, or, without a row, the key of one that it loses."""

    table: str
    key: Any
    row: dict[str, Any] | None
    timestamp: int = 0


class World:
    """An application with one materialized view over tables, in the test driver.

    Args:
        tables: the schemas, by the names of tables.
        query: the text of the view.
        columns: names for its columns, which have none of their own.
        guarantee: the processing guarantee.
        partitions: number of partitions of each table.
        functions: Python functions with their SQL types, by name.
        options: options of the view, as text.

    Raises:
        SQLError: if the view is refused.
    """

    def __init__(
        self,
        tables: Mapping[str, Schema],
        query: str,
        columns: Sequence[str] = (),
        guarantee: Guarantee = "exactly-once",
        partitions: int = 2,
        functions: Mapping[str, tuple[Any, str]] | None = None,
        options: str = "",
    ) -> None:
        self._partitions = partitions
        catalog = Catalog(store=MemoryCatalog())
        self._topics = {
            name: catalog.create_table(name, schema, num_partitions=partitions).info.topic or ""
            for name, schema in tables.items()
        }
        self.app = Application(
            "unused:9092", consumer_group="views", catalog=catalog, processing_guarantee=guarantee, loglevel=None
        )
        for name, (function, returns) in (functions or {}).items():
            self.app.register_function(name, function, returns)
        names = f" ({', '.join(columns)})" if columns else ""
        self.app.sql(f"CREATE MATERIALIZED VIEW {VIEW}{names}{options} AS {query}")
        self.driver = TopologyTestDriver(self.app)
        sources = self.app.topology.sources
        self.read_tables = {name for name, topic in self._topics.items() if topic in sources}

    def feed(self, changes: Sequence[Change], chunk: int | None = None) -> None:
        """Process changes: those of a chunk, by default all, in one commit."""
        self.driver.pipe_many(
            (
                InputRecord(
                    self._topics[table], row, key, timestamp, None, number % self._partitions if key is None else None
                )
                for number, (table, key, row, timestamp) in enumerate(changes)
            ),
            chunk=chunk or max(1, len(changes)),
        )

    def rows(self) -> list[Row]:
        """Return the present rows of the view."""
        view = self.app.view(VIEW)
        return [tuple(row[name] for name in view.schema.names) for row in self.driver.table(VIEW).scan().rows()]

    def close(self) -> None:
        """Close the application."""
        self.driver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Batch:
    """DuckDB with the rows that tables have after some changes.

    Args:
        tables: the schemas, by the names of tables.
    """

    def __init__(self, tables: Mapping[str, Schema]) -> None:
        self._schemas = tables
        self._rows: dict[str, dict[Any, dict[str, Any]]] = {name: {} for name in tables}
        self._dirty = set(tables)
        self._texts: dict[tuple[str, tuple[str, ...]], str] = {}
        self._connection = duckdbs.connect()

    def apply(self, changes: Iterable[Change]) -> None:
        """Take over changes; rows without a key are all kept."""
        self._dirty |= apply_changes(self._rows, self._schemas, changes)

    def rows(self, query: str, columns: Sequence[str] = ()) -> list[Row]:
        """Return the rows of a query.

        Args:
            query: its text.
            columns: names for its columns, which have none of their own.

        Raises:
            SQLNotSupportedError: if the query has no text in DuckDB that means the same.
        """
        for table in self._dirty:
            data = pa.Table.from_pylist([*self._rows[table].values()], schema=self._schemas[table].arrow)
            self._connection.register(table, data)
        self._dirty.clear()
        made = query, tuple(columns)
        if made not in self._texts:
            self._texts[made] = self._translate(*made)
        rows: list[Row] = self._connection.execute(self._texts[made]).fetchall()
        return rows

    def _translate(self, query: str, columns: Sequence[str]) -> str:
        tree = parse_query(query)
        if columns:
            name_columns(tree, columns)
        return to_duckdb(tree, {name: schema.arrow for name, schema in self._schemas.items()})


def apply_changes(
    rows: dict[str, dict[Any, dict[str, Any]]], schemas: Mapping[str, Schema], changes: Iterable[Change]
) -> set[str]:
    """Change the rows of tables, and return the names of those that changed; rows without a key are all kept."""
    changed = set()
    for table, key, row, _ in changes:
        changed.add(table)
        if not schemas[table].primary_key:
            rows[table][len(rows[table])] = schemas[table].check(row or {})
        elif row is None:
            rows[table].pop(key, None)
        else:
            rows[table][key] = schemas[table].check(row)
    return changed
