"""The text of a view as a batch query of DuckDB; the views that it reads become queries within it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from sqlglot import exp

from streamrt.errors import InvalidOperationError, SQLError, SQLNotSupportedError, TableNotFoundError
from streamrt.schema import Schema
from streamrt.sql.binding import plan as plans
from streamrt.sql.binding.session import Emit
from streamrt.sql.queries.arguments import fill_view
from streamrt.sql.queries.duckdb_text import SourceTable, translate_query
from streamrt.sql.queries.window_text import ClosedWindows
from streamrt.sql.reading import parse_statements
from streamrt.sql.verify.verify import VerifiedView
from streamrt.tables.catalogue.table_names import find_table_name
from streamrt.tables.table import Table

__all__ = ["DefinedView", "make_verified_view", "name_columns"]

OpenTable = Callable[[str], Table]


class DefinedView(Protocol):
    """What a view has that is verified."""

    name: str
    sql: str
    schema: Schema
    table: Any
    plan: plans.Plan | None
    args: Mapping[str, Any]
    emit: Emit

    @property
    def siblings(self) -> "Mapping[str, DefinedView]":
        """The views of its program, also local ones, by their names in lower case."""


def make_verified_view(view: DefinedView, views: Mapping[str, DefinedView], open_table: OpenTable) -> VerifiedView:
    """Return a view for its verification.

    Args:
        view: the view.
        views: all views of the application, by their names in lower case.
        open_table: opens a table of the catalogue by its name.

    Raises:
        InvalidOperationError: if its rows are in no table, or it reads frames, whose rows are in none.
        SQLNotSupportedError: if DuckDB cannot compute the same.
    """
    if view.table is None or view.plan is None:
        raise InvalidOperationError(
            f"view {view.name!r} has no table whose rows could be verified: write CREATE MATERIALIZED VIEW, or verify a "
            "materialized view that reads it"
        )
    scans = [plan for plan in _walk(view.plan) if isinstance(plan, plans.Scan)]
    frame = next((scan.name for scan in scans if scan.kind == "frame"), None)
    if frame is not None:
        raise InvalidOperationError(
            f"view {view.name!r} reads the frame {frame!r}, whose rows are in no table: write them to a table by to_table(), "
            "and let the view read that"
        )
    tables = {scan.name: open_table(scan.name) for scan in scans}
    query = partial(_Translator(views, tables).text_of, view)
    try:
        query(None)
    except SQLError as error:
        raise SQLNotSupportedError(
            f"view {view.name!r} cannot be verified, because DuckDB cannot compute the same: {error}"
        ) from error
    return VerifiedView(view.name, view.plan, query, tables, open_table(view.table.name))


def name_columns(tree: exp.Expr, names: Sequence[str]) -> None:
    """Give the columns of a query names, as `CREATE VIEW name (columns) AS` does."""
    select = tree
    while isinstance(select, exp.SetOperation | exp.Subquery):
        select = select.this
    if any(column.is_star for column in select.expressions):
        return
    columns = [column.this if isinstance(column, exp.Alias) else column for column in select.expressions]
    aliases = [exp.to_identifier(name, quoted=True) for name in names]
    select.set("expressions", [exp.Alias(this=each, alias=name) for each, name in zip(columns, aliases, strict=True)])


class _Translator:
    """Writes queries of views in DuckDB's SQL.

    Args:
        views: views by their names in lower case.
        tables: tables by their names.
    """

    def __init__(self, views: Mapping[str, DefinedView], tables: Mapping[str, Table]) -> None:
        self._views = views
        self._tables = tables

    def text_of(self, view: DefinedView, over_ms: int | None) -> str:
        """Return the query of a view, with the windows that are over at a time; None for all."""
        (statement,) = parse_statements(view.sql)
        assert statement.tree is not None  # noqa: S101 - it was bound
        if statement.columns:
            name_columns(statement.tree, statement.columns)
        tree = fill_view(statement.tree, view.args)
        find_table = partial(self._find_table, {**self._views, **view.siblings}, over_ms)
        closed = None if over_ms is None else ClosedWindows(over_ms, view.emit.grace_ms or 0, view.emit.final)
        return translate_query(tree, find_table, closed=closed).sql

    def _find_table(self, views: Mapping[str, DefinedView], over_ms: int | None, node: exp.Table) -> SourceTable:
        name = ".".join(part.name for part in node.parts)
        view = views.get(name.lower())
        if view is not None:
            return SourceTable(f"({self.text_of(view, over_ms)})", view.schema.arrow)
        known = find_table_name(name, self._tables)
        if known is None:
            raise TableNotFoundError(f"there is no table {name!r}")
        parts = [exp.to_identifier(part, quoted=True).sql(dialect="duckdb") for part in known.split(".")]
        return SourceTable(".".join(parts), self._tables[known].schema.arrow)


def _walk(plan: plans.Plan) -> Iterator[plans.Plan]:
    yield plan
    for each in plan.inputs():
        yield from _walk(each)
