"""What a query gives: its columns as a schema, and as the columns of a table."""

from dataclasses import replace
from typing import Any

import pyarrow as pa

from streamrt.errors import SQLAnalysisError
from streamrt.schema import Schema
from streamrt.sql.binding.row_plans import Project
from streamrt.sql.binding.scopes import Bound, NamedColumn, reference
from streamrt.sql.expressions import Constant, cast_to, describe_type
from streamrt.sql.expressions.coercion import can_store
from streamrt.sql.reading import Statement

__all__ = ["finish", "fit_columns", "name_as_table", "schema_of"]


def finish(bound: Bound, statement: Statement) -> Bound:
    """Return a query whose rows have its columns by their names, in order.

    Args:
        bound: the query.
        statement: where it stands, for errors.
    """
    names = [column.name for column in bound.columns]
    lowered = [name.lower() for name in names]
    twice = next((name for name in names if lowered.count(name.lower()) > 1), None)
    if twice is not None:
        raise SQLAnalysisError(
            f"two columns of the result have the name {twice}: rename one, such as {twice} AS {twice}2",
            statement.line,
            statement.column,
        )
    if names == [field.name for field in bound.plan.fields]:
        return bound
    plan = Project(
        bound.plan, tuple((column.name, reference(bound.plan.field(column.field.name))) for column in bound.columns)
    )
    return Bound(plan, tuple(NamedColumn(each.name, each) for each in plan.fields))


def name_as_table(bound: Bound, table: Any) -> Bound:
    """Return the rows of a view with the names of the columns of its table, which was made by another text of the view.

    Names have no case in SQL, and columns of tables have one.

    Args:
        bound: the query.
        table: the table.
    """
    names = {name.lower(): name for name in table.schema.names}
    return Bound(
        bound.plan,
        tuple(replace(column, name=names.get(column.name.lower(), column.name)) for column in bound.columns),
    )


def schema_of(bound: Bound, name: str, primary_key: tuple[str, ...] = ()) -> Schema:
    """Return the columns of a query as a schema.

    Args:
        bound: the query.
        name: its name, for errors.
        primary_key: columns that identify a row.
    """
    columns = []
    for column in bound.columns:
        if column.field.dtype == pa.null():
            raise SQLAnalysisError(f"the column {column.name} of {name} is always NULL, and has no type: cast it")
        nullable = column.field.nullable and column.name not in primary_key
        columns.append({"name": column.name, "type": column.field.dtype, "nullable": nullable})
    return Schema(columns, primary_key=primary_key)


def fit_columns(bound: Bound, table: Any, columns: tuple[str, ...], statement: Statement) -> Bound:
    """Return the rows of an INSERT with the columns of its table.

    Args:
        bound: the query.
        table: the table.
        columns: the columns that INSERT names; none for all.
        statement: the INSERT, for errors.
    """
    schema = table.schema.arrow
    names = list(columns) or list(table.schema.names)
    if len(names) != len(bound.columns):
        raise SQLAnalysisError(
            f"{table.name} gets {len(names)} columns, and the query has {len(bound.columns)}",
            statement.line,
            statement.column,
        )
    made = {}
    for name, column in zip(names, bound.columns, strict=True):
        target = schema.field(name).type
        value = reference(bound.plan.field(column.field.name))
        if not can_store(value.dtype, target):
            raise SQLAnalysisError(
                f"column {name} of {table.name} is {describe_type(target)}, and the query gives "
                f"{describe_type(value.dtype)}: cast it",
                statement.line,
                statement.column,
            )
        made[name] = cast_to(value, target) if value.dtype != target else value
    for name in table.schema.names:
        if name not in made and not schema.field(name).nullable:
            raise SQLAnalysisError(
                f"column {name} of {table.name} is NOT NULL, and the INSERT gives it no value",
                statement.line,
                statement.column,
            )
        if name not in made:
            made[name] = Constant(None, pa.null())
    plan = Project(bound.plan, tuple((name, made[name]) for name in table.schema.names))
    return Bound(plan, tuple(NamedColumn(each.name, each) for each in plan.fields))
