"""INSERT, UPDATE and DELETE: a query of the rows, and a writer that writes them."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from sqlglot import exp

from streamrt.errors import InvalidOperationError, SQLNotSupportedError
from streamrt.sql.expressions.coercion import can_store, describe_type
from streamrt.sql.expressions.failures import make_analysis_error, make_refusal
from streamrt.sql.queries.arguments import bind_arguments
from streamrt.sql.queries.ask import check_limits, read_statement
from streamrt.sql.queries.checked_query import CheckedQuery, QueryLimits
from streamrt.sql.queries.duckdb_casts import cast_text
from streamrt.sql.queries.duckdb_query import DuckDBQuery
from streamrt.sql.queries.duckdb_types import TypedText, quote
from streamrt.sql.queries.fixed_keys import fixed_keys_of
from streamrt.sql.queries.from_clause import QueryOutput
from streamrt.sql.queries.query_sources import STATE, SYSTEM, QueryHome, find_table
from streamrt.sql.queries.scopes import OutputColumn
from streamrt.tables.catalogue.query_engine import MAX_SCAN_BYTES
from streamrt.tables.catalogue.statements import Execution
from streamrt.tables.reading.query_result import QueryResult
from streamrt.tables.table import Table

__all__ = ["change_rows"]

_INSERT_PARTS = frozenset(["this", "expression"])
_UPDATE_PARTS = frozenset(["this", "expressions", "where"])
_DELETE_PARTS = frozenset(["this", "where"])
_STATEMENTS = "execute() takes INSERT, UPDATE, DELETE, CREATE, ALTER and DROP; a SELECT is for query()"


def change_rows(
    home: QueryHome, sql: str, args: Mapping[str, Any] | None = None, *, timeout: float | None = 60.0
) -> Execution:
    """Do what INSERT, UPDATE or DELETE says; `Catalog.execute` says more.

    Args:
        home: where the names in it lead.
        sql: the statement.
        args: values of its parameters.
        timeout: seconds.
    """
    limits = check_limits("execute", None, timeout, MAX_SCAN_BYTES)
    statement = read_statement(sql, "execute")
    tree = statement.tree
    if not isinstance(tree, exp.Insert | exp.Update | exp.Delete):
        raise SQLNotSupportedError(_STATEMENTS, statement.line, statement.column)
    bind_arguments(tree, args, "execute")
    if isinstance(tree, exp.Insert):
        return _insert(home, tree, limits)
    if isinstance(tree, exp.Update):
        return _update(home, tree, limits)
    return _delete(home, tree, limits)


def _insert(home: QueryHome, tree: exp.Insert, limits: QueryLimits) -> Execution:
    _refuse_parts(tree, _INSERT_PARTS, "INSERT INTO table [(columns)] VALUES ... or SELECT ...")
    target = tree.this
    names = [each.name for each in target.expressions] if isinstance(target, exp.Schema) else None
    node = target.this if isinstance(target, exp.Schema) else target
    table = _find_target(home, node, "INSERT")
    columns = _find_columns(table, names, target)
    source = tree.expression
    if not isinstance(source, exp.Query | exp.Values):
        raise make_refusal("INSERT takes VALUES or a query", tree)
    rows = _read_rows(home, source, limits, [(name, table.schema.arrow.field(name).type) for name in columns], "INSERT")
    # Of a maintained table, columns that are not named stay as they are.
    is_partial = table.info.requests_topic is not None and len(columns) < len(table.schema.names)
    return _write(table, "INSERT", rows, columns if is_partial else None)


def _update(home: QueryHome, tree: exp.Update, limits: QueryLimits) -> Execution:
    _refuse_parts(tree, _UPDATE_PARTS, "UPDATE table SET column = value, ... [WHERE condition]")
    table = _find_target(home, tree.this, "UPDATE")
    values: dict[str, exp.Expr] = {}
    for each in tree.expressions:
        if not isinstance(each, exp.EQ) or not isinstance(each.left, exp.Column):
            raise make_refusal("SET takes column = value", each)
        (name,) = _find_columns(table, [each.left.name], each.left)
        if name in table.schema.primary_key:
            raise make_analysis_error(
                f"UPDATE changes no primary key, and {name!r} is in it: insert the new row, and delete the old one",
                each,
            )
        if name in values:
            raise make_analysis_error(f"SET names the column {name!r} twice", each)
        values[name] = each.right
    is_maintained = table.info.requests_topic is not None
    written = [name for name in table.schema.names if name in values or name in table.schema.primary_key]
    names = written if is_maintained else list(table.schema.names)
    qualifier = exp.to_identifier(tree.this.alias_or_name, quoted=True)
    cells = [
        exp.alias_(values[name].copy(), name, quoted=True)
        if name in values
        else exp.Column(this=exp.to_identifier(name, quoted=True), table=qualifier.copy())
        for name in names
    ]
    query = _select(tree, cells)
    types = [(name, table.schema.arrow.field(name).type) for name in names]
    rows = _read_rows(home, query, limits, types, "SET")
    return _write(table, "UPDATE", rows, names if is_maintained else None)


def _delete(home: QueryHome, tree: exp.Delete, limits: QueryLimits) -> Execution:
    _refuse_parts(tree, _DELETE_PARTS, "DELETE FROM table [WHERE condition]")
    table = _find_target(home, tree.this, "DELETE")
    keys = _fix_keys(tree, table)
    if keys is None:
        names = list(table.schema.primary_key)
        cells = [exp.Column(this=exp.to_identifier(name, quoted=True)) for name in names]
        types = [(name, table.schema.arrow.field(name).type) for name in names]
        rows = _read_rows(home, _select(tree, cells), limits, types, "DELETE")
        if not rows.num_rows:
            return Execution("DELETE", table.name, False)
        return Execution("DELETE", table.name, True, rows=rows.num_rows, token=table.delete(rows))
    return Execution("DELETE", table.name, True, rows=len(keys), token=table.delete(keys))


def _fix_keys(tree: exp.Delete, table: Table) -> list[dict[str, Any]] | None:
    """Return the keys of WHERE if it has nothing else, so that nothing need be read."""
    where = tree.args.get("where")
    if where is None:
        return None
    parts = list(where.this.flatten()) if isinstance(where.this, exp.And) else [where.this]
    if len(parts) != len(table.schema.primary_key):
        return None
    return fixed_keys_of(where.this, table.schema, {tree.this.alias_or_name.lower()}, is_alone=True)


def _select(tree: exp.Update | exp.Delete, cells: Sequence[exp.Expr]) -> exp.Select:
    query = exp.Select(expressions=list(cells), from_=exp.From(this=tree.this.copy()))
    if tree.args.get("where") is not None:
        query.set("where", tree.args["where"].copy())
    return query


def _find_target(home: QueryHome, node: exp.Expr, word: str) -> Table:
    if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
        raise make_refusal(f"{word} takes the name of a table", node)
    parts = [part.name for part in node.parts]
    if parts[0].lower() in (SYSTEM, STATE) and len(parts) == 2:
        raise make_refusal(f"{'.'.join(parts)!r} can only be read", node)
    table = find_table(home, ".".join(parts), node, writes=True)
    if table.info.schema is None:
        raise make_analysis_error(f"table {table.name!r} has no schema: give it one by table.set_schema()", node)
    if word != "INSERT" and table.kind != "primary-key":
        raise InvalidOperationError(
            f"{word} of table {table.name!r}: it has no primary key, and a log keeps its records as they were written; give "
            "the table a primary key, or INSERT a record that says what has changed"
        )
    return table


def _find_columns(table: Table, names: Sequence[str] | None, node: exp.Expr) -> list[str]:
    if names is None:
        return list(table.schema.names)
    known = {name.lower(): name for name in table.schema.names}
    found = []
    for name in names:
        if name.lower() not in known:
            raise make_analysis_error(
                f"table {table.name!r} has no column {name!r}; its columns are {', '.join(table.schema.names)}", node
            )
        if known[name.lower()] in found:
            raise make_analysis_error(f"the column {name!r} is there twice", node)
        found.append(known[name.lower()])
    return found


def _read_rows(
    home: QueryHome, query: exp.Expr, limits: QueryLimits, types: Sequence[tuple[str, pa.DataType]], word: str
) -> pa.Table:
    """Return all rows before one is written, so that an error writes none."""

    def reshape(made: QueryOutput) -> QueryOutput:
        if len(made.columns) != len(types):
            raise make_analysis_error(f"{word} needs {len(types)} columns, and gets {len(made.columns)}", query)
        cells, columns = [], []
        for given, (name, dtype) in zip(made.columns, types, strict=True):
            value = TypedText(f"given.{given.sql}", given.dtype)
            if not can_store(given.dtype, dtype):
                raise make_analysis_error(
                    f"{word}: the column {name!r} is {describe_type(dtype)}, and gets {describe_type(given.dtype)}: cast it",
                    query,
                )
            cells.append(f"{cast_text(value, dtype).sql} AS {quote(name)}")
            columns.append(OutputColumn(name, dtype, quote(name)))
        return QueryOutput(f"SELECT {', '.join(cells)} FROM ({made.sql}) AS given", columns)

    return QueryResult(DuckDBQuery(CheckedQuery(home, query, limits, None, reshape))).to_arrow()


def _write(table: Table, word: str, rows: pa.Table, columns: Sequence[str] | None) -> Execution:
    if not rows.num_rows:
        return Execution(word, table.name, False)
    with table.writer(columns=columns) as writer:
        if table.kind == "primary-key":
            writer.upsert_rows(rows)
        else:
            writer.append_rows(rows)
        token = writer.flush(table.home.timeout)
    return Execution(word, table.name, True, rows=rows.num_rows, token=token)


def _refuse_parts(tree: exp.Expr, known: frozenset[str], shape: str) -> None:
    for name, part in tree.args.items():
        if part and name not in known:
            raise make_refusal(f"{name.rstrip('_').upper()} is not there in this statement: write {shape}", tree)
