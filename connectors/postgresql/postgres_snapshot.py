"""Reading whole tables for `PostgresCdcSource`."""

from collections.abc import Iterator, Sequence

from streamrt.connectors.postgresql.postgres_catalog import Table
from streamrt.connectors.postgresql.postgres_session import Row, Session, identifier, literal

__all__ = ["key_of", "statement", "table_rows"]


def table_rows(session: Session, table: Table, after: Sequence[str] | None, chunk: int) -> Iterator[Row]:
    """Yield the rows of a table in the order of its key; a table without a key is read in any order, at once.

    Each query reads a part by the index of the key, so the server never sorts the table.

    Args:
        session: the connection, in a transaction whose snapshot is read.
        table: the table.
        after: the key after which it begins, as text.
        chunk: number of rows of a query.

    Raises:
        PostgresError: if the server refuses it.
    """
    if not table.key:
        yield from session.rows(statement(table, None, None))
        return
    while True:
        count = 0
        row: Row = ()
        for row in session.rows(statement(table, after, chunk)):
            count += 1
            yield row
        if count < chunk:
            return
        after = key_of(table, row)


def key_of(table: Table, row: Row) -> list[str]:
    """Return the key of a row, as text.

    Args:
        table: the table.
        row: its columns.
    """
    places = {column.name: place for place, column in enumerate(table.columns)}
    return [(row[places[name]] or b"").decode() for name in table.key]


def statement(table: Table, after: Sequence[str] | None, limit: int | None) -> str:
    """Return the query of a part of a table.

    Args:
        table: the table.
        after: the key after which it begins, as text.
        limit: number of rows, or None for all.
    """
    columns = ", ".join(identifier(column.name) for column in table.columns)
    conditions = [] if table.row_filter is None else [f"({table.row_filter})"]
    key = ", ".join(map(identifier, table.key))
    if after is not None:
        types = {column.name: column.sql_type for column in table.columns}
        values = ", ".join(f"{literal(text)}::{types[name]}" for name, text in zip(table.key, after, strict=True))
        conditions.append(f"({key}) > ({values})")
    # Rows of tables that inherit from this one belong to those.
    parts = [f"SELECT {columns} FROM {'' if table.partitioned else 'ONLY '}{table.name.sql}"]  # noqa: S608
    if conditions:
        parts.append(f"WHERE {' AND '.join(conditions)}")
    if limit is not None:
        parts.append(f"ORDER BY {key} LIMIT {limit:d}")
    return " ".join(parts)
