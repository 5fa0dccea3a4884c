"""Windows of time in DuckDB's SQL: `GROUP BY window(at, '1 hour')`, `session_window(at, '5 minutes')`, TUMBLE and HOP.

Each relation of FROM becomes a column with its name, which is a STRUCT of the columns of the relation. So `r1."amount"`
means the same before and behind the windows.
"""

from dataclasses import dataclass
from typing import Protocol

from sqlglot import exp

from streamrt.sql.binding.windows import WindowFunction, Windowing, is_window_call, read_window_call
from streamrt.sql.expressions.failures import make_analysis_error, make_refusal
from streamrt.sql.queries.duckdb_types import TypedText, quote, without_negative_zero
from streamrt.sql.queries.scopes import OutputColumn, Relation, Scope
from streamrt.sql.queries.translation import Translation

__all__ = ["ClosedWindows", "GroupWindows", "expand_table"]

_START, _END, _MOMENT = '"start"', '"end"', "moment"
_MS = 1000


@dataclass(frozen=True)
class ClosedWindows:
    """Which windows of a view are over; the others have no rows.

    Attributes:
        until_ms: the time up to which everything has been processed, in milliseconds since 1970.
        grace_ms: how long a window waits for late rows.
        is_final: whether windows of one length give one result, when they are over, as sessions always do.
    """

    until_ms: int
    grace_ms: int
    is_final: bool

    def condition(self, window: Windowing[TypedText]) -> str:
        """Return a condition of windows, or nothing."""
        if window.kind == "fixed" and not self.is_final:
            return ""
        # A record may come up to a gap after a session, and make it longer.
        wait = self.grace_ms + (window.size_ms + 1 if window.kind == "session" else 0)
        return f" WHERE epoch_us({_END}) <= {(self.until_ms - wait) * _MS}"


class Names(Protocol):
    """Makes names."""

    def next_relation(self) -> str:
        """Return a name for a relation, which no other has."""


class GroupWindows:
    """Adds the windows of GROUP BY to the rows of FROM and WHERE.

    Args:
        names: makes names of relations.
        text: translates expressions.
        scope: what names mean; it gets a relation with the bounds.
        closed: which windows are over; None for all.
    """

    def __init__(self, names: Names, text: Translation, scope: Scope, closed: ClosedWindows | None) -> None:
        self._names = names
        self._text = text
        self._scope = scope
        self._closed = closed

    def translate(self, node: exp.Select, source: str) -> tuple[exp.Select, str]:
        """Return a query whose GROUP BY has the bounds of windows as columns, and the rows that it is over.

        Args:
            node: the query, which is not changed.
            source: FROM and WHERE.
        """
        group = node.args.get("group")
        calls = [] if group is None else [each.unnest() for each in group.expressions if is_window_call(each.unnest())]
        if not calls:
            return node, source
        if len(calls) > 1:
            raise make_refusal("GROUP BY has two windows: one is possible", calls[1])
        call = calls[0]
        if not call.expressions:
            raise make_analysis_error(f"{call.name}() needs the column of the time", call)
        name = call.name.lower()
        window = read_window_call(name, self._text.scalar(call.expressions[0]), call.expressions[1:], call)
        keys = self._session_keys(node, call) if window.kind == "session" else []
        used = {each.name.lower() for each in node.find_all(exp.Identifier)}
        if node.is_star:
            used |= {column.name.lower() for each in self._scope.relations for column in each.columns}
        cells = [made for each in self._scope.relations if (made := _pack(each, used))]
        cells += [f"{window.time.sql} AS {_MOMENT}", *(f"{key} AS key_{n}" for n, key in enumerate(keys))]
        rows = f"SELECT {', '.join(cells)}{source}"
        rows = _add_sessions(rows, window, len(keys)) if window.kind == "session" else _add_fixed(rows, window)
        alias = self._names.next_relation()
        condition = "" if self._closed is None else self._closed.condition(window)
        dtype = window.time.dtype
        bounds = [OutputColumn("start", dtype, _START), OutputColumn("end", dtype, _END)]
        self._scope.relations.append(Relation((name, "window"), alias, bounds, {"start", "end"}))
        return _name_bounds(node, call, name), f" FROM (SELECT * FROM ({rows}){condition}) AS {alias}"

    def _session_keys(self, node: exp.Select, call: exp.Expr) -> list[str]:
        """Return the expressions that rows of a session have in common."""
        self._scope.aliases = {
            each.alias.lower(): each.this for each in node.expressions if isinstance(each, exp.Alias)
        }
        keys = []
        for each in node.args["group"].expressions:
            if each.unnest() is call:
                continue
            if isinstance(each, exp.Literal) and not each.is_string:
                raise make_refusal("beside session_window(), GROUP BY takes no numbers of columns: name them", each)
            keys.append(without_negative_zero(self._text.scalar(each)))
        return keys


def expand_table(
    name: str, function: WindowFunction, time: TypedText, relation: Relation, source: str
) -> tuple[str, list[OutputColumn]]:
    """Return the query that TUMBLE or HOP stands for, and its columns.

    Args:
        name: a name that no other relation has.
        function: the function.
        time: its time.
        relation: the table or query that it is of.
        source: what the relation is, with its name.
    """
    window = read_window_call(function.name, time, function.durations, function.call)
    titles = ("window_start", "window_end", "window_time")
    added = [OutputColumn(title, time.dtype, quote(f"{name}:{title}")) for title in titles]
    bounds = (_START, _END, f"{_END} - to_microseconds({_MS})")
    cells = [f"{relation.sql}.{column.sql} AS {column.sql}" for column in relation.columns]
    cells += [f"{bound} AS {column.sql}" for bound, column in zip(bounds, added, strict=True)]
    names = {column.name.lower() for column in relation.columns}
    rows = _add_fixed(f"SELECT {_pack(relation, names)}, {time.sql} AS {_MOMENT} FROM {source}", window)
    return f"SELECT {', '.join(cells)} FROM ({rows})", [*relation.columns, *added]


def _pack(relation: Relation, names: set[str]) -> str:
    """Return the columns of a relation that have some names as one column; nothing if there are none."""
    # Several names of one column have the same text, as those of USING.
    fields = dict.fromkeys(column.sql for column in relation.columns if column.name.lower() in names)
    listed = ", ".join(f"{field} := {relation.sql}.{field}" for field in fields)
    return f"struct_pack({listed}) AS {relation.sql}" if listed else ""


def _add_fixed(rows: str, window: Windowing[TypedText]) -> str:
    """Return rows with the bounds of each window that they are in."""
    if window.kind == "cumulate":
        return _add_growing(rows, window)
    step = f"to_microseconds({window.step_ms * _MS})"
    last = f"time_bucket({step}, {_MOMENT}, make_timestamp({window.offset_ms * _MS}))"
    count = -(-window.size_ms // window.step_ms)
    starts = f"SELECT *, {last} AS {_START} FROM ({rows}) WHERE {_MOMENT} IS NOT NULL"
    if count > 1:
        earlier = f"{_START} - to_microseconds(number * {window.step_ms * _MS})"
        numbered = f"SELECT *, unnest(range({count})) AS number FROM ({starts})"
        starts = f"SELECT * REPLACE ({earlier} AS {_START}) FROM ({numbered})"
    ended = f"SELECT *, {_START} + to_microseconds({window.size_ms * _MS}) AS {_END} FROM ({starts})"
    return ended if count == 1 else f"SELECT * FROM ({ended}) WHERE {_END} > {_MOMENT}"


def _add_growing(rows: str, window: Windowing[TypedText]) -> str:
    """Return rows with the bounds of each window that they are in, of windows that grow from the same start."""
    size = f"to_microseconds({window.size_ms * _MS})"
    start = f"time_bucket({size}, {_MOMENT}, make_timestamp({window.offset_ms * _MS}))"
    numbers = f"unnest(range(1, {window.size_ms // window.step_ms + 1})) AS number"
    started = f"SELECT *, {start} AS {_START}, {numbers} FROM ({rows}) WHERE {_MOMENT} IS NOT NULL"
    end = f"{_START} + to_microseconds(number * {window.step_ms * _MS})"
    return f"SELECT * FROM (SELECT *, {end} AS {_END} FROM ({started})) WHERE {_END} > {_MOMENT}"


def _add_sessions(rows: str, window: Windowing[TypedText], key_count: int) -> str:
    """Return rows with the bounds of the session that they are in."""
    gap = window.size_ms * _MS
    keys = [f"key_{number}" for number in range(key_count)]
    by = f"PARTITION BY {', '.join(keys)} " if keys else ""
    before = f"epoch_us({_MOMENT}) - epoch_us(lag({_MOMENT}) OVER ({by}ORDER BY {_MOMENT}))"
    begins = f"SELECT *, if({before} <= {gap}, 0, 1) AS begins FROM ({rows}) WHERE {_MOMENT} IS NOT NULL"
    # Rows of the same time are in the same session, whatever their order is.
    number = f"sum(begins) OVER ({by}ORDER BY {_MOMENT} RANGE UNBOUNDED PRECEDING)"
    numbered = f"SELECT *, {number} AS number FROM ({begins})"
    session = f"PARTITION BY {', '.join([*keys, 'number'])}"
    start = f"min({_MOMENT}) OVER ({session})"
    end = f"max({_MOMENT}) OVER ({session}) + to_microseconds({gap})"
    return f"SELECT *, {start} AS {_START}, {end} AS {_END} FROM ({numbered})"


def _name_bounds(node: exp.Select, call: exp.Expr, name: str) -> exp.Select:
    """Return a query that names the bounds of its windows, in GROUP BY and elsewhere, by columns."""
    text = call.sql().lower()
    node = node.copy()
    for each in list(node.find_all(exp.Dot)):
        if is_window_call(each.this) and each.this.sql().lower() == text:
            each.replace(_bound(each.expression.name.lower(), name, each.this))
    group = node.args["group"]
    keys = []
    for each in group.expressions:
        is_window = is_window_call(each.unnest())
        keys += [_bound(title, name, each.unnest()) for title in ("start", "end")] if is_window else [each]
    group.set("expressions", keys)
    for other in node.find_all(exp.Anonymous):
        if is_window_call(other):
            raise make_refusal(f"take {name}.start or {name}.end, one by one", other)
    return node


def _bound(title: str, name: str, node: exp.Expr) -> exp.Column:
    made = exp.column(title, name, quoted=True)
    made.this.meta.update(node.meta)
    return made
