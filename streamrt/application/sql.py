"""SQL in an application: programs, their views, and what they do."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from streamrt.application.declarations import Declarations
from streamrt.application.tables import ApplicationTables
from streamrt.dataframe import StreamingDataFrame
from streamrt.dataframe.streaming_table import StreamingTable
from streamrt.errors import ArgumentValueError, TableNotFoundError
from streamrt.tables.catalogue.table_names import find_table_name

if TYPE_CHECKING:
    from sqlglot import exp

    from streamrt.schema import Schema
    from streamrt.sql.lowering import Programs, View
    from streamrt.tables import Table

__all__ = ["ApplicationSQL"]


class ApplicationSQL:
    """The programs in SQL of an application.

    Args:
        declarations: what it reads.
        tables: its tables.
    """

    def __init__(self, declarations: Declarations, tables: ApplicationTables) -> None:
        self._sources = _Sources(declarations, tables)
        self._programs: Programs | None = None

    def sql(
        self,
        program: str,
        args: Mapping[str, Any] | None,
        schemas: Mapping[str, Any] | None,
        frames: Mapping[str, Any],
    ) -> Any:
        """See `Application.sql`."""
        return self._get().run(program, args, schemas, frames)

    def view(self, name: str) -> View:
        """See `Application.view`."""
        return self._get().find_view(name)

    def find_query(self, name: str, within: Sequence[str]) -> tuple[exp.Expr, tuple[str, ...]] | None:
        """Return the query of a view that keeps no rows, and the names of its columns; None if there is none of this name.

        Args:
            name: the name.
            within: names of the views whose queries it is in, in lower case: local views are those of their program.
        """
        view, known = None, self.views
        for each in (*within, name.lower()):
            view = known.get(each)
            known = {**self.views, **({} if view is None else view.siblings)}
        if view is None or view.table is not None or view.tree is None:
            return None
        from streamrt.sql.queries.arguments import fill_view

        return fill_view(view.tree, view.args), view.schema.names

    @property
    def views(self) -> Mapping[str, View]:
        """The views, by their names in lower case."""
        return {} if self._programs is None else self._programs.views

    def explain(
        self, program: str, args: Mapping[str, Any] | None, schemas: Mapping[str, Any] | None, frames: Mapping[str, Any]
    ) -> str:
        """See `Application.explain`."""
        return self._get().explain(program, args, schemas, frames)

    def register_function(
        self, name: str, function: Callable[..., Any], returns: Any, arguments: Sequence[Any] | None, kind: str
    ) -> None:
        """See `Application.register_function`."""
        self._get().register_function(name, function, returns, arguments, kind)

    def _get(self) -> Programs:
        if self._programs is None:
            # Most applications have no SQL, and do not wait for its parser.
            from streamrt.sql.lowering import Programs

            self._programs = Programs(self._sources)
        return self._programs


class _Sources:
    """What programs need of an application."""

    def __init__(self, declarations: Declarations, tables: ApplicationTables) -> None:
        self._declarations = declarations
        self._tables = tables

    def find(self, name: str) -> Table | None:
        """Return a table of the catalogue, or None if there is none."""
        with contextlib.suppress(TableNotFoundError, ArgumentValueError):
            # A text that no table can have as its name is not one either.
            return self._tables.find(name)
        found = find_table_name(name, self.names())
        return None if found is None else self._tables.find(found)

    def names(self) -> list[str]:
        """Return the names of tables, without the database where it can be left out."""
        return self._tables.catalog.tables()

    def execute(self, text: str) -> None:
        """Do what a statement of the catalogue says; a table that it creates may exist already."""
        # Most applications do not wait for what writes rows.
        from streamrt.tables.catalogue.statements import execute

        execute(self._tables.catalog, text, repeats=True)

    def read_stream(self, table: Table) -> StreamingDataFrame:
        """Return the rows of a log."""
        return self._declarations.dataframe(table)

    def read_table(self, table: Table) -> StreamingTable[StreamingDataFrame]:
        """Return the rows of a table with a primary key."""
        return self._declarations.table(table)

    def open_view(self, name: str, schema: Schema, comment: str | None, replaces: bool) -> Table:
        """Return the table of a materialized view, which is created if there is none."""
        name = find_table_name(name, self.names()) or name
        return self._tables.open_view(name, schema, comment, replaces)
