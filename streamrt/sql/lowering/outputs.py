"""Where rows of programs go: INSERT INTO, and tables of materialized views."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from streamrt.dataframe import StreamingDataFrame
from streamrt.errors import SQLAnalysisError, SQLNotSupportedError
from streamrt.schema import Schema
from streamrt.schema.types import can_be_key
from streamrt.sql.binding.group_plans import record_key
from streamrt.sql.binding.row_plans import Key
from streamrt.sql.binding.scopes import Bound
from streamrt.sql.binding.suggestions import suggest
from streamrt.sql.expressions.failures import make_analysis_error, make_refusal
from streamrt.sql.lowering.lower import Lowered, to_frame
from streamrt.sql.lowering.results import schema_of
from streamrt.sql.lowering.state_names import name_state
from streamrt.sql.reading import Statement

ROW_ID = "_row_key"
"""The key of rows of views that have none of their own, as a column of their table."""

__all__ = ["ROW_ID", "insert_rows", "materialize_view", "read_insert"]


def read_insert(tree: exp.Insert, tables: Any, statement: Statement) -> tuple[Any, exp.Expr, tuple[str, ...]]:
    """Return table, query and columns of an INSERT.

    Args:
        tree: the INSERT.
        tables: the tables of the application.
        statement: the statement, for errors.
    """
    if tree.args.get("overwrite"):
        raise make_refusal("INSERT OVERWRITE is refused: rows keep coming; write INSERT INTO", tree)
    for name in ("conflict", "returning", "partition", "where", "alternative"):
        if tree.args.get(name):
            raise make_refusal(f"INSERT with {name.upper()} is refused: write INSERT INTO table SELECT ...", tree)
    target = tree.this
    names: tuple[str, ...] = ()
    if isinstance(target, exp.Schema):
        names = tuple(each.name for each in target.expressions)
        target = target.this
    name = ".".join(part.name for part in target.parts)
    table = tables.find(name)
    if table is None:
        raise make_analysis_error(f"there is no table {name}{suggest(name, tables.names())}", target)
    query = tree.expression
    if not isinstance(query, exp.Query):
        raise SQLNotSupportedError(
            "a program inserts the rows of a query: INSERT INTO table SELECT ...; app.execute('INSERT ... VALUES ...') "
            "inserts rows once",
            statement.line,
            statement.column,
        )
    known = {each.lower(): each for each in table.schema.names}
    for each in names:
        if each.lower() not in known:
            raise make_analysis_error(f"{table.name} has no column {each}{suggest(each, known.values())}", tree)
    return table, query, tuple(known[each.lower()] for each in names)


def insert_rows(rows: Lowered, bound: Bound, table: Any, name: str, statement: Statement) -> None:
    """Write rows to a table.

    Args:
        rows: where the rows are.
        bound: the query.
        table: the table.
        name: name of the state that this needs.
        statement: the INSERT, for errors.
    """
    frame = to_frame(rows)
    if isinstance(frame, StreamingDataFrame):
        frame.to_table(table)
        return
    key = tuple(table.schema.primary_key)
    if table.kind != "primary-key":
        raise SQLNotSupportedError(
            f"rows of this query change, and {table.name} is a log, to which rows are only added: insert into a table with a "
            "primary key",
            statement.line,
            statement.column,
        )
    if frozenset(key) not in bound.plan.keys and not any(each <= frozenset(key) for each in bound.plan.keys):
        raise SQLAnalysisError(
            f"several rows of this query may have the same {', '.join(key)}, the primary key of {table.name}: group by it",
            statement.line,
            statement.column,
        )
    if record_key(bound.plan) != frozenset(key):
        frame = frame.keyed_by(list(key), name_state(name, "key"))
    frame.to_table(table)


def materialize_view(rows: Lowered, bound: Bound, name: str, statement: Statement, tables: Any) -> Any:
    """Write the rows of a view to a table of its name, and return the table.

    Args:
        rows: where the rows are.
        bound: the query.
        name: name of the view.
        statement: the statement.
        tables: the tables of the application.
    """
    frame = to_frame(rows)
    if isinstance(frame, StreamingDataFrame):
        table = _create(tables, name, schema_of(bound, name), statement)
        frame.to_table(table)
        return table
    names = [column.name for column in bound.columns]
    key = _choose_key(bound)
    if key is not None:
        chosen = tuple(each for each in names if each in key)
        table = _create(tables, name, schema_of(bound, name, chosen), statement)
        if record_key(bound.plan) != key:
            frame = frame.keyed_by(list(chosen), name_state(name, "key"))
        frame.to_table(table)
        return table
    schema = schema_of(bound, name)
    if ROW_ID in schema.names:
        raise SQLAnalysisError(
            f"the view {name} has a column {ROW_ID}, which its table needs for itself: rename it",
            statement.line,
            statement.column,
        )
    columns = [{"name": ROW_ID, "type": "STRING", "nullable": False}, *schema.columns]
    table = _create(tables, name, Schema(columns, primary_key=(ROW_ID,)), statement)
    frame.numbered(ROW_ID, name_state(name, "row")).to_table(table)
    return table


def _choose_key(bound: Bound) -> Key | None:
    """Return the shortest key whose columns are never NULL, and may be in the key of a table; None if there is none."""
    usable = {column.name for column in bound.columns if not column.field.nullable and can_be_key(column.field.dtype)}
    keys = [key for key in bound.plan.keys if key and key <= usable]
    return min(keys, key=lambda key: (len(key), sorted(key)), default=None)


def _create(tables: Any, name: str, schema: Schema, statement: Statement) -> Any:
    table = tables.open_view(name, schema, statement.comment, statement.replaces)
    columns = [(each.name, each.type) for each in table.schema.arrow]
    if columns != [(each.name, each.type) for each in schema.arrow] or tuple(table.schema.primary_key) != tuple(
        schema.primary_key
    ):
        raise SQLAnalysisError(
            f"there is a table {table.name} with other columns than the view {name}: drop it; or give the view another name; "
            "or write CREATE OR REPLACE MATERIALIZED VIEW in an application with another consumer_group, which builds the "
            f"new version next to it; the table has {table.schema}, the view {schema}",
            statement.line,
            statement.column,
        )
    return table
