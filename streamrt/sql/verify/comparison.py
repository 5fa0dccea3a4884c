"""Compares bags of rows: those of a query in DuckDB with those of a view."""

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa

__all__ = ["Comparison", "Row", "compare_again", "compare_rows", "fetch_answer", "fetch_expected", "pair_close_rows"]

TOLERANCE = 1e-9
"""Relative difference of two floats that are equal: sums of floats depend on the order of their summands."""
Row = tuple[Any, ...]


class Comparison(NamedTuple):
    """Rows that one side has more often than the other one."""

    missing: list[Row]
    surplus: list[Row]

    @property
    def size(self) -> int:
        """The number of rows that differ."""
        return len(self.missing) + len(self.surplus)


def compare_rows(connection: Any, query: str, rows: pa.Table) -> Comparison:
    """Compare the rows of a query with those of a view, as bags.

    Args:
        connection: the connection to DuckDB, with the tables of the query.
        query: its text in DuckDB's SQL.
        rows: the rows of the view, with as many columns; the result of the query is cast to their types.
    """
    connection.register("rows_of_view", rows.rename_columns(_name_columns(rows.num_columns)))
    connection.execute("CREATE OR REPLACE TEMP TABLE actual AS SELECT * FROM rows_of_view")
    connection.unregister("rows_of_view")
    return compare_again(connection, query)


def compare_again(connection: Any, query: str) -> Comparison:
    """Compare the rows of another query with those of the view of `compare_rows`.

    Args:
        connection: the connection to DuckDB.
        query: its text.
    """
    connection.execute(f"CREATE OR REPLACE TEMP TABLE expected AS {_cast_answer(connection, query)}")
    left, right = "SELECT * FROM expected", "SELECT * FROM actual"
    # Reports of the same difference are the same.
    missing = connection.execute(f"{left} EXCEPT ALL {right} ORDER BY ALL").fetchall()
    surplus = connection.execute(f"{right} EXCEPT ALL {left} ORDER BY ALL").fetchall()
    return pair_close_rows(missing, surplus)


def fetch_answer(connection: Any, query: str) -> list[Row]:
    """Return the rows of another query, cast to the types of the view; behind `compare_rows`.

    Args:
        connection: the connection to DuckDB.
        query: its text.
    """
    rows: list[Row] = connection.execute(_cast_answer(connection, query)).fetchall()
    return rows


def fetch_expected(connection: Any) -> list[Row]:
    """Return the rows of the query that was compared last."""
    rows: list[Row] = connection.execute("SELECT * FROM expected").fetchall()
    return rows


def _cast_answer(connection: Any, query: str) -> str:
    types = connection.execute("SELECT column_name, column_type FROM (DESCRIBE actual)").fetchall()
    casts = ", ".join(f"CAST({name} AS {type_}) AS {name}" for name, type_ in types)
    # The text of the query is made by `to_duckdb`, and names of columns here.
    return f"SELECT {casts} FROM ({query}) AS answer({', '.join(_name_columns(len(types)))})"  # noqa: S608


def _name_columns(count: int) -> list[str]:
    return [f"c{number}" for number in range(count)]


def pair_close_rows(missing: Sequence[Row], surplus: Sequence[Row]) -> Comparison:
    """Leave out pairs of rows that differ in floats only, and there by rounding.

    Example:
        >>> pair_close_rows([("a", 0.1 + 0.2)], [("a", 0.3), ("b", 1.0)])
        Comparison(missing=[], surplus=[('b', 1.0)])
    """
    candidates: dict[Row, list[Row]] = {}
    for row in surplus:
        candidates.setdefault(_exact_part(row), []).append(row)
    left = []
    for row in missing:
        alike = candidates.get(_exact_part(row), [])
        close = next((index for index, other in enumerate(alike) if all(map(_is_close, row, other))), None)
        if close is None:
            left.append(row)
        else:
            del alike[close]
    return Comparison(left, [row for rows in candidates.values() for row in rows])


def _exact_part(row: Row) -> Row:
    """Return what must be equal of a row, as a key of a dict."""
    return tuple(None if isinstance(value, float | Decimal) else repr(value) for value in row)


def _is_close(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=TOLERANCE) or (math.isnan(one) and math.isnan(other))
    return bool(one == other)
