"""Programs of SQL in an application: their views, by name, and the frames that they become."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa
from sqlglot import exp

from streamrt.arguments import checked_choice
from streamrt.dataframe import StreamingDataFrame
from streamrt.dataframe.streaming_table import StreamingTable
from streamrt.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    SQLAnalysisError,
    SQLError,
    SQLNotSupportedError,
    SQLSyntaxError,
)
from streamrt.schema import Schema
from streamrt.schema.ddl import parse_type
from streamrt.schema.types import column_type
from streamrt.sql.binding.binder import bind_statement
from streamrt.sql.binding.group_plans import SessionAggregate, WindowAggregate
from streamrt.sql.binding.join_plans import IntervalJoin
from streamrt.sql.binding.over_plans import OverStream
from streamrt.sql.binding.pruning import prune_plan
from streamrt.sql.binding.row_plans import Field, Plan, Scan, walk_plan
from streamrt.sql.binding.scopes import Bound, NamedColumn
from streamrt.sql.binding.session import Emit, Session
from streamrt.sql.binding.suggestions import suggest
from streamrt.sql.binding.windows import read_duration
from streamrt.sql.expressions.failures import make_analysis_error
from streamrt.sql.expressions.user_functions import FunctionRegistry
from streamrt.sql.lowering.explain import explain_plan, find_warnings
from streamrt.sql.lowering.lower import Lowered, Lowering, to_frame
from streamrt.sql.lowering.outputs import insert_rows, materialize_view, read_insert
from streamrt.sql.lowering.results import finish, fit_columns, name_as_table, schema_of
from streamrt.sql.lowering.rows import CheckRow
from streamrt.sql.reading import Statement, parse_statements
from streamrt.tables.catalogue.table_names import find_table_name

__all__ = ["FrameMapping", "Programs", "TableSources", "View"]

logger = logging.getLogger("streamrt")

Rows = StreamingDataFrame | StreamingTable[StreamingDataFrame]
_OPTIONS = ("emit", "grace")


class TableSources(Protocol):
    """What programs need of an application."""

    def find(self, name: str) -> Any:
        """Return a table of the catalogue, or None if there is none."""

    def names(self) -> list[str]:
        """Return the names of tables."""

    def execute(self, text: str) -> None:
        """Do what a statement of the catalogue says."""

    def read_stream(self, table: Any) -> StreamingDataFrame:
        """Return the rows of a log."""

    def read_table(self, table: Any) -> StreamingTable[StreamingDataFrame]:
        """Return the rows of a table with a primary key."""

    def open_view(self, name: str, schema: Schema, comment: str | None, replaces: bool) -> Any:
        """Return the table of a materialized view, which is created if there is none."""


@dataclass(eq=False)
class View:
    """A view, or another query, of an application.

    Attributes:
        name: its name.
        sql: its text.
        schema: its columns.
        table: the table that keeps its rows, if it is materialized.
        siblings: all views of its program, also local ones, by their names in lower case.
        args: values of the parameters of its program.
        emit: when its windows give results.
    """

    name: str
    sql: str
    schema: Schema
    table: Any = None
    _frame: Rows | None = None
    _lower: Any = None
    plan: Plan | None = field(default=None, repr=False)
    tree: exp.Expr | None = field(default=None, repr=False)
    siblings: Mapping[str, View] = field(default_factory=dict, repr=False)
    args: Mapping[str, Any] = field(default_factory=dict, repr=False)
    emit: Emit = field(default_factory=Emit)

    @property
    def frame(self) -> Rows:
        """Its rows, as a dataframe if they are only added, else as a table."""
        if self._frame is None:
            self._frame = self._lower()
        return self._frame


class FrameMapping(Mapping[str, Rows]):
    """The frames of the views of a program, by name, which has no case.

    One that nothing uses becomes part of the topology when it is taken.
    """

    def __init__(self, views: Mapping[str, View]) -> None:
        self._views = dict(views)
        self._known = {name.lower(): view for name, view in views.items()}

    def __getitem__(self, name: str) -> Rows:
        if name not in self:
            raise KeyError(f"there is no view {name!r}; there are {', '.join(self._views) or 'none'}")
        return self._known[name.lower()].frame

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._known

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)

    def __repr__(self) -> str:
        return f"frames of {', '.join(self._views)}"


@dataclass(eq=False)
class _Definition:
    """A view that is bound when it is used."""

    statement: Statement
    bound: Bound | None = None
    is_binding: bool = False
    frame: Lowered | None = None


@dataclass(eq=False)
class _Given:
    """A frame that is given by name, and the schema of its rows."""

    frame: Rows
    schema: Schema


class Programs:
    """The programs of an application.

    Args:
        tables: the tables of the application.
    """

    def __init__(self, tables: TableSources) -> None:
        self._tables = tables
        self._views: dict[str, View] = {}
        self._queries = 0
        self.functions = FunctionRegistry()
        # Tables by the names that programs have for them: each is read once.
        self.scans: dict[str, Bound] = {}
        # Plans of views, and where they are in the topology: views that use them share their operators.
        self._lowered: dict[int, tuple[Plan, Lowered]] = {}
        self._owners: dict[int, tuple[Plan, str]] = {}
        self._warnings: set[str] = set()

    @property
    def views(self) -> Mapping[str, View]:
        """Views by name in lower case."""
        return self._views

    def run(
        self,
        text: str,
        args: Mapping[str, Any] | None,
        schemas: Mapping[str, Any] | None,
        frames: Mapping[str, Any],
    ) -> Any:
        """Add a program to the application; see `Application.sql`."""
        if not isinstance(text, str):
            raise ArgumentTypeError(f"sql() needs a text, got {type(text).__name__}")
        statements = parse_statements(text)
        if not statements:
            raise ArgumentValueError("sql() got a text without a statement")
        program = _Program(self, self._tables, args or {}, _read_frames(frames, schemas or {}))
        try:
            return program.run(statements)
        except RecursionError:
            raise SQLSyntaxError(
                "queries are nested too deeply within each other: keep the rows of some in materialized views",
                statements[0].line,
                statements[0].column,
            ) from None

    def find_view(self, name: str) -> View:
        """Return a view by its name."""
        view = self._views.get(name.lower())
        if view is None:
            known = [each.name for each in self._views.values()]
            raise ArgumentValueError(f"there is no view {name!r}{suggest(name, known)}")
        return view

    def explain(
        self,
        text: str,
        args: Mapping[str, Any] | None,
        schemas: Mapping[str, Any] | None,
        frames: Mapping[str, Any],
    ) -> str:
        """Say what a text would become; see `Application.explain`."""
        try:
            statements = parse_statements(text)
            program = _Program(self, self._tables, args or {}, _read_frames(frames, schemas or {}))
            plans = program.bind_all(statements)
        except SQLError as error:
            return f"refused: {error}"
        return "\n\n".join(explain_plan(name, plan) for name, plan in plans)

    def register_function(
        self, name: str, function: Callable[..., Any], returns: Any, arguments: Sequence[Any] | None, kind: Any
    ) -> None:
        """Give a Python function a name; see `Application.register_function`."""
        checked_choice("register_function(kind=...)", kind, ("scalar", "aggregate", "table"))
        types = None if arguments is None else [_read_type(each) for each in arguments]
        result = _read_type(returns)
        if kind == "table" and not pa.types.is_struct(result):
            raise ArgumentValueError(
                f"register_function(returns=...) of a function that makes rows is a STRUCT of their columns, got {returns!r}"
            )
        self.functions.register(name, function, result, types, kind=kind)

    def next_query(self) -> str:
        """Return the name of a query that has none."""
        self._queries += 1
        return f"query{self._queries}"

    def add_view(self, view: View) -> None:
        """Add a view under its name."""
        self._views[view.name.lower()] = view

    @property
    def owned(self) -> Collection[int]:
        """Identities of the plans of views."""
        return self._owners.keys()

    def own(self, plan: Plan, name: str) -> None:
        """Note that a plan is that of a view, whose name its state has."""
        self._owners[id(plan)] = plan, name

    def lower(self, name: str, plan: Plan, frames: _Frames) -> Lowered:
        """Add the operators of a plan, and return where their rows are."""
        for warning in find_warnings(plan):
            # The plan of a view is part of those of views that use it.
            if warning not in self._warnings:
                self._warnings.add(warning)
                logger.warning("%s: %s", name, warning)
        lowering = Lowering(name, plan, frames, self._lowered, self._owners)
        return lowering.lower_plan()


class _Frames:
    """Makes frames of what plans scan.

    Args:
        tables: the tables of the application.
        given: the frames that are given by name.
    """

    def __init__(self, tables: TableSources, given: Mapping[str, _Given]) -> None:
        self._tables = tables
        self._given = given

    def read(self, scan: Scan) -> Rows:
        """Return the rows of a table or of a frame."""
        if scan.kind == "frame":
            given = self._given[scan.name]
            check = CheckRow(given.schema)
            return given.frame.apply(check)
        table = self._tables.find(scan.name)
        return self._tables.read_table(table) if not scan.appends else self._tables.read_stream(table)


class _Program:
    """One program while it is bound; what names in FROM lead to."""

    def __init__(
        self, programs: Programs, tables: TableSources, args: Mapping[str, Any], given: Mapping[str, _Given]
    ) -> None:
        self._programs = programs
        self._tables = tables
        self._args = args
        self._given = given
        self._used_args: set[str] = set()
        self._used_frames: set[str] = set()
        self._definitions: dict[str, _Definition] = {}
        self.frames = _Frames(tables, given)

    def run(self, statements: list[Statement]) -> Any:
        """Bind all statements, then add their operators."""
        self._check_kinds(statements)
        for statement in statements:
            if statement.kind == "catalog":
                # In its place, so that errors name lines of the program.
                place = "\n" * (statement.line - 1) + " " * (statement.column - 1)
                self._tables.execute(place + statement.text)
        self._define(statements)
        for definition in self._definitions.values():
            self._bind_view(definition)
        inserts = [(statement, self._bind_insert(statement)) for statement in statements if statement.kind == "insert"]
        queries = [statement for statement in statements if statement.kind == "query"]
        result = self._lower_query(queries[0]) if queries else self._add_views()
        for statement, (table, bound) in inserts:
            rows = self._programs.lower(self._programs.next_query(), bound.plan, self.frames)
            insert_rows(rows, bound, table, f"insert_{table.name}", statement)
        self._require_used()
        return result

    def _check_kinds(self, statements: list[Statement]) -> None:
        for statement in statements:
            if statement.kind == "other":
                raise SQLNotSupportedError(
                    "a program has CREATE TABLE, CREATE [LOCAL | MATERIALIZED] VIEW, INSERT INTO ... SELECT, and queries: "
                    "app.execute(...) changes rows once",
                    statement.line,
                    statement.column,
                )
        queries = [statement for statement in statements if statement.kind == "query"]
        if queries and len(queries) < len(statements):
            query = queries[0]
            raise SQLNotSupportedError(
                "a query among other statements has no name: write CREATE VIEW name AS ..., or give it to sql() by itself",
                query.line,
                query.column,
            )
        if len(queries) > 1:
            raise SQLNotSupportedError("one query at a time", queries[1].line, queries[1].column)

    def bind_all(self, statements: list[Statement]) -> list[tuple[str, Plan]]:
        """Return the plans of statements by name, without any effect."""
        self._check_kinds(statements)
        self._define(statements)
        plans = []
        for statement in statements:
            if statement.kind == "query":
                plans.append(("query", self._finish(self._bind(statement), statement).plan))
            elif statement.kind == "insert":
                table, bound = self._bind_insert(statement)
                plans.append((f"INSERT INTO {table.name}", bound.plan))
        views = [
            (f"{each.statement.kind} {each.statement.name}", self._bind_view(each).plan)
            for each in self._definitions.values()
        ]
        return [*views, *plans]

    def _define(self, statements: list[Statement]) -> None:
        for statement in statements:
            if statement.kind not in ("view", "local view", "materialized view") or statement.name is None:
                continue
            key = statement.name.lower()
            if key in self._definitions or (key in self._programs.views and not statement.ignores):
                raise SQLAnalysisError(
                    f"there is a view {statement.name} already: give this one another name",
                    statement.line,
                    statement.column,
                )
            if statement.replaces and statement.kind != "materialized view":
                raise SQLNotSupportedError(
                    "OR REPLACE is not needed: a program defines its views each time it starts, and only a materialized view "
                    "has rows; leave it out",
                    statement.line,
                    statement.column,
                )
            if key not in self._programs.views:
                self._definitions[key] = _Definition(statement)

    def _bind_view(self, definition: _Definition) -> Bound:
        """Return the plan of a view."""
        statement = definition.statement
        if definition.bound is not None:
            return definition.bound
        if definition.is_binding:
            raise SQLAnalysisError(
                f"the view {statement.name} depends on itself, which has no result that could be kept up to date",
                statement.line,
                statement.column,
            )
        definition.is_binding = True
        try:
            bound = self._bind(statement)
        finally:
            definition.is_binding = False
        if statement.columns:
            if len(statement.columns) != len(bound.columns):
                raise SQLAnalysisError(
                    f"the view {statement.name} names {len(statement.columns)} columns, and its query has "
                    f"{len(bound.columns)}",
                    statement.line,
                    statement.column,
                )
            bound = Bound(
                bound.plan,
                tuple(
                    NamedColumn(name, column.field)
                    for name, column in zip(statement.columns, bound.columns, strict=True)
                ),
            )
        table = self._tables.find(str(statement.name)) if statement.kind == "materialized view" else None
        if table is not None and table.info.schema is not None:
            bound = name_as_table(bound, table)
        definition.bound = self._finish(bound, statement)
        self._programs.own(definition.bound.plan, str(statement.name))
        return definition.bound

    def _finish(self, bound: Bound, statement: Statement) -> Bound:
        """Return a query with its columns by their names, and without those that nothing reads."""
        finished = finish(bound, statement)
        return Bound(prune_plan(finished.plan, self._programs.owned), finished.columns)

    def _bind(self, statement: Statement) -> Bound:
        tree = statement.tree
        assert tree is not None  # noqa: S101 - of views and queries
        session = Session(self, self._args, _read_emit(statement), self._used_args, self._programs.functions)
        bound = bind_statement(tree, session)
        _require_effect(statement, bound.plan)
        return bound

    def _bind_insert(self, statement: Statement) -> tuple[Any, Bound]:
        tree = statement.tree
        assert isinstance(tree, exp.Insert)  # noqa: S101 - that is what an INSERT is
        table, query, columns = read_insert(tree, self._tables, statement)
        self._require_no_view(table, statement)
        session = Session(self, self._args, Emit(), self._used_args, self._programs.functions)
        bound = bind_statement(query, session)
        fitted = fit_columns(bound, table, columns, statement)
        return table, Bound(prune_plan(fitted.plan, self._programs.owned), fitted.columns)

    def _require_no_view(self, table: Any, statement: Statement) -> None:
        """Refuse to insert into the table of a view of this application."""
        statements = [each.statement for each in self._definitions.values()]
        own = [str(each.name) for each in statements if each.kind == "materialized view"]
        kept = [view.table.name for view in self._programs.views.values() if view.table is not None]
        if any(find_table_name(name, [table.name]) is not None for name in (*own, *kept)):
            raise SQLAnalysisError(
                f"{table.name} is a materialized view, whose rows are those of its query: insert into its inputs",
                statement.line,
                statement.column,
            )

    def _lower_query(self, statement: Statement) -> Rows:
        bound = self._finish(self._bind(statement), statement)
        return to_frame(self._programs.lower(self._programs.next_query(), bound.plan, self.frames))

    def _add_views(self) -> FrameMapping:
        views: dict[str, View] = {}
        siblings: dict[str, View] = {}
        for definition in self._definitions.values():
            statement, bound = definition.statement, definition.bound
            name = statement.name
            assert name is not None  # noqa: S101 - all were bound
            assert bound is not None  # noqa: S101
            schema = schema_of(bound, name)
            view = View(
                name,
                statement.text,
                schema,
                plan=bound.plan,
                tree=statement.tree,
                siblings=siblings,
                args=self._args,
                emit=_read_emit(statement),
            )
            siblings[name.lower()] = view
            view._lower = self._make_lower(name, bound)
            if statement.kind == "materialized view":
                rows = self._programs.lower(name, bound.plan, self.frames)
                view._frame = to_frame(rows)
                view.table = materialize_view(rows, bound, name, statement, self._tables)
            views[name] = view
            if statement.kind != "local view":
                self._programs.add_view(view)
        return FrameMapping(views)

    def _make_lower(self, name: str, bound: Bound) -> Any:
        return lambda: to_frame(self._programs.lower(name, bound.plan, self.frames))

    def _require_used(self) -> None:
        unused = [name for name in self._args if name not in self._used_args]
        if unused:
            raise ArgumentValueError(f"sql(args=...) has {unused[0]!r}, and the text no parameter :{unused[0]}")
        frames = [name for name in self._given if name not in self._used_frames]
        if frames:
            raise ArgumentValueError(f"sql({frames[0]}=...) is not in the text: write FROM {{{frames[0]}}}")

    # -- Names in FROM -------------------------------------------------------------------------------------------------

    def find_relation(self, name: str, node: exp.Expr) -> Bound:
        """Return the view or table of a name."""
        definition = self._definitions.get(name.lower())
        if definition is not None:
            return self._bind_view(definition)
        view = self._programs.views.get(name.lower())
        if view is not None and view.plan is not None:
            columns = (NamedColumn(each.name, each) for each in view.plan.fields)
            return Bound(view.plan, tuple(columns))
        scans = self._programs.scans
        if name.lower() not in scans:
            scans[name.lower()] = self._scan_table(name, node)
        return scans[name.lower()]

    def _scan_table(self, name: str, node: exp.Expr) -> Bound:
        table = self._tables.find(name)
        if table is None:
            known = [*self._tables.names(), *(each.statement.name or "" for each in self._definitions.values())]
            known += [each.name for each in self._programs.views.values()]
            raise make_analysis_error(f"there is no table or view {name}{suggest(name, known)}", node)
        schema = table.schema
        is_log = table.kind != "primary-key"
        keys = (frozenset(schema.primary_key),) if schema.primary_key and not is_log else ()
        former = next((each.plan for each in self._programs.scans.values() if _is_scan_of(each.plan, table.name)), None)
        scan: Plan = former or Scan(table.name, "table", _fields_of(schema), is_log, keys, schema.time)
        return Bound(scan, tuple(NamedColumn(each.name, each) for each in scan.fields))

    def find_frame(self, name: str, node: exp.Expr) -> Bound:
        """Return the frame that was given by a name."""
        given = self._given.get(name)
        if given is None:
            raise make_analysis_error(
                f"there is no frame {name}: give it, sql(..., {name}=frame){suggest(name, self._given)}", node
            )
        self._used_frames.add(name)
        is_stream = isinstance(given.frame, StreamingDataFrame)
        scan = Scan(name, "frame", _fields_of(given.schema), is_stream, (), given.schema.time)
        return Bound(scan, tuple(NamedColumn(each.name, each) for each in scan.fields))


def _is_scan_of(plan: Plan, table: str) -> bool:
    return isinstance(plan, Scan) and plan.name == table


def _read_type(given: Any) -> Any:
    """Return a type of Arrow, which is given as one or as a word."""
    return parse_type(given, "register_function(...)")[0] if isinstance(given, str) else column_type(given)


def _fields_of(schema: Schema) -> tuple[Field, ...]:
    return tuple(Field(each.name, each.type, each.nullable) for each in schema.arrow)


def _read_frames(frames: Mapping[str, Any], schemas: Mapping[str, Any]) -> dict[str, _Given]:
    given = {}
    for name in schemas:
        if name not in frames:
            raise ArgumentValueError(f"sql(schemas=...) has {name!r}, and there is no frame of this name")
    for name, frame in frames.items():
        if not isinstance(frame, StreamingDataFrame | StreamingTable):
            raise ArgumentTypeError(f"sql({name}=...) needs a dataframe or a table, got {type(frame).__name__}")
        schema = schemas.get(name)
        if schema is None:
            schema = _schema_of_frame(frame)
        if schema is None:
            raise ArgumentValueError(
                f"sql({name}=...) needs the columns of this frame: schemas={{{name!r}: 'id BIGINT, name STRING'}}"
            )
        given[name] = _Given(frame, schema if isinstance(schema, Schema) else Schema.parse(schema))
    return given


def _schema_of_frame(frame: Rows) -> Schema | None:
    """Return the schema of a frame that is a table as it was read."""
    from streamrt.tables.descriptions.topics import TableTopic
    from streamrt.topology import SourceOperator

    branch = frame._branch
    operator = branch.node.operator
    if isinstance(operator, SourceOperator) and isinstance(operator.topic, TableTopic):
        schema: Schema | None = getattr(operator.topic, "schema", None)
        return schema
    return None


def _require_effect(statement: Statement, plan: Plan) -> None:
    """Refuse options that have no effect on a query."""
    windows = [each for each in walk_plan(plan) if isinstance(each, WindowAggregate | SessionAggregate)]
    timed = [each for each in walk_plan(plan) if isinstance(each, IntervalJoin | OverStream)]
    emit = statement.options.get("emit")
    if emit == "final" and not windows:
        reason = "emit = 'final' is for windows, GROUP BY window(at, '1 hour'), and this query has none: leave it out"
    elif emit == "changes" and any(isinstance(each, SessionAggregate) for each in windows):
        reason = "sessions give one result, when they are over: leave emit = 'changes' out"
    elif "grace" in statement.options and not windows and not timed:
        reason = (
            "grace is how long windows that give one result, and joins of streams, wait for late rows, and this query has "
            "neither: leave it out"
        )
    else:
        return
    raise SQLAnalysisError(reason, statement.line, statement.column)


def _read_emit(statement: Statement) -> Emit:
    for name in statement.options:
        if name not in _OPTIONS:
            raise SQLAnalysisError(
                f"there is no option {name!r} of a view{suggest(name, _OPTIONS)}", statement.line, statement.column
            )
    emit = statement.options.get("emit", "changes")
    if emit not in ("changes", "final"):
        raise SQLAnalysisError(
            f"the option 'emit' is 'changes' or 'final', got {emit!r}", statement.line, statement.column
        )
    grace = statement.options.get("grace")
    return Emit(emit == "final", None if grace is None else read_duration(exp.Literal.string(grace)))
