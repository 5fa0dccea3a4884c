"""The plan of a query: a tree of relations, each with its columns, which is independent of its text.

Rows are dicts by the names of `fields`. A relation is a bag of rows: append-only, or updating. The text of a plan, which
`describe_plan` makes, is what state depends on.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from streamrt.schema.types import type_word
from streamrt.sql.expressions import TypedExpression
from streamrt.sql.expressions.nodes import ColumnReference

__all__ = [
    "Aggregate",
    "Announced",
    "AsOfJoin",
    "Call",
    "Distinct",
    "Expand",
    "Field",
    "Filter",
    "IntervalJoin",
    "Join",
    "JoinHow",
    "OverRows",
    "Plan",
    "Project",
    "Scan",
    "SessionAggregate",
    "SetOperation",
    "Top",
    "Union",
    "WindowAggregate",
    "describe_plan",
    "record_key",
    "walk_plan",
]

JoinHow = Literal["inner", "left", "right", "outer", "semi", "anti"]
Key = frozenset[str]


@dataclass(frozen=True)
class Field:
    """A column of a relation.

    Attributes:
        name: its name in rows.
        dtype: its type.
        nullable: whether it may be NULL.
    """

    name: str
    dtype: pa.DataType
    nullable: bool = True

    def __str__(self) -> str:
        word = "NULL" if self.dtype == pa.null() else type_word(self.dtype)
        return f"{self.name} {word}{'' if self.nullable else ' NOT NULL'}"


class Plan:
    """A relation.

    Attributes:
        fields: its columns.
        appends: whether rows are only added.
        keys: sets of columns, each of which no two rows have in common; an empty set if there is one row at most.
    """

    fields: tuple[Field, ...]
    appends: bool
    keys: tuple[Key, ...]

    def inputs(self) -> "tuple[Plan, ...]":
        """Return what it is computed from."""
        return ()

    def describe(self) -> str:
        """Return what it does, in one line."""
        raise NotImplementedError

    def field(self, name: str) -> Field:
        """Return a column by its name in rows."""
        return next(field for field in self.fields if field.name == name)


@dataclass(frozen=True)
class Scan(Plan):
    """The rows of a table, or of a frame that is given.

    Attributes:
        name: name of the table, or of the frame.
        kind: "table" of the catalogue, or "frame".
        fields: its columns that are read.
        appends: whether rows are only added.
        keys: its primary key.
        time: its time column, which is the time of its records.
    """

    name: str
    kind: Literal["table", "frame"]
    fields: tuple[Field, ...]
    appends: bool
    keys: tuple[Key, ...] = ()
    time: str | None = None

    def describe(self) -> str:  # noqa: D102
        return f"scan {self.name if self.kind == 'table' else '{' + self.name + '}'}"


@dataclass(frozen=True)
class Filter(Plan):
    """The rows for which a condition is TRUE."""

    input: Plan
    condition: TypedExpression

    @property
    def fields(self) -> tuple[Field, ...]:  # type: ignore[override]  # noqa: D102
        return self.input.fields

    @property
    def appends(self) -> bool:  # type: ignore[override]  # noqa: D102
        return self.input.appends

    @property
    def keys(self) -> tuple[Key, ...]:  # type: ignore[override]  # noqa: D102
        return self.input.keys

    def inputs(self) -> tuple[Plan, ...]:  # noqa: D102
        return (self.input,)

    def describe(self) -> str:  # noqa: D102
        return f"filter {self.condition}"


@dataclass(frozen=True)
class Announced(Plan):
    """A row of no columns for each partition of an input that has had any row."""

    input: Plan

    fields = ()
    keys = ()

    @property
    def appends(self) -> bool:  # type: ignore[override]  # noqa: D102
        return self.input.appends

    def inputs(self) -> tuple[Plan, ...]:  # noqa: D102
        return (self.input,)

    def describe(self) -> str:  # noqa: D102
        return "any row"


@dataclass(frozen=True)
class Project(Plan):
    """Each row, computed from one row.

    Attributes:
        input: the rows.
        columns: what each column is.
    """

    input: Plan
    columns: tuple[tuple[str, TypedExpression], ...]

    @property
    def fields(self) -> tuple[Field, ...]:  # type: ignore[override]  # noqa: D102
        return tuple(Field(name, expression.dtype, expression.nullable) for name, expression in self.columns)

    @property
    def appends(self) -> bool:  # type: ignore[override]  # noqa: D102
        return self.input.appends

    @property
    def keys(self) -> tuple[Key, ...]:  # type: ignore[override]  # noqa: D102
        renamed: dict[str, str] = {}
        for name, expression in self.columns:
            if isinstance(expression, ColumnReference):
                renamed.setdefault(expression.name, name)
        return tuple(frozenset(renamed[column] for column in key) for key in self.input.keys if key <= renamed.keys())

    def inputs(self) -> tuple[Plan, ...]:  # noqa: D102
        return (self.input,)

    def describe(self) -> str:  # noqa: D102
        return "project " + ", ".join(
            str(expression) if str(expression) == name else f"{expression} AS {name}"
            for name, expression in self.columns
        )


@dataclass(frozen=True)
class Expand(Plan):
    """Each row as often as a list in it has elements.

    Attributes:
        input: the rows.
        rows_of: makes the rows that are added to a row: dicts of `columns`. Picklable.
        columns: the columns that are added.
        title: what it does, in a few words.
        keeps: whether a row without elements stays, with NULL.
        added_keys: columns that tell rows apart that come from the same row.
    """

    input: Plan
    rows_of: Any
    columns: tuple[Field, ...]
    title: str
    keeps: bool = False
    added_keys: Key = frozenset()

    @property
    def fields(self) -> tuple[Field, ...]:  # type: ignore[override]  # noqa: D102
        return (*self.input.fields, *self.columns)

    @property
    def appends(self) -> bool:  # type: ignore[override]  # noqa: D102
        return self.input.appends

    @property
    def keys(self) -> tuple[Key, ...]:  # type: ignore[override]  # noqa: D102
        return tuple(key | self.added_keys for key in self.input.keys) if self.added_keys else ()

    def inputs(self) -> tuple[Plan, ...]:  # noqa: D102
        return (self.input,)

    def describe(self) -> str:  # noqa: D102
        return f"expand {self.title}{' outer' if self.keeps else ''}"


@dataclass(frozen=True)
class Call:
    """An aggregate, as a column.

    Attributes:
        name: name of the column.
        aggregate: what `bind_aggregate` returned.
        arguments: names of the columns of its arguments.
        title: what it computes, in a few words.
    """

    name: str
    aggregate: Any
    arguments: tuple[str, ...]
    title: str


@dataclass(frozen=True)
class Aggregate(Plan):
    """A row for each group. Without a key, there is one group, which also has a row if it is empty.

    Attributes:
        input: the rows; their columns are those of the key, and the arguments of the calls.
        group: the columns of the key.
        calls: the aggregates.
    """

    input: Plan
    group: tuple[str, ...]
    calls: tuple[Call, ...]

    @property
    def fields(self) -> tuple[Field, ...]:  # type: ignore[override]  # noqa: D102
        groups = tuple(self.input.field(name) for name in self.group)
        return (*groups, *(Field(call.name, call.aggregate.dtype, call.aggregate.nullable) for call in self.calls))

    appends = False

    @property
    def keys(self) -> tuple[Key, ...]:  # type: ignore[override]  # noqa: D102
        return (frozenset(self.group),)

    def inputs(self) -> tuple[Plan, ...]:  # noqa: D102
        return (self.input,)

    def describe(self) -> str:  # noqa: D102
        by = f" by {', '.join(self.group)}" if self.group else ""
        return f"aggregate{by}: {', '.join(f'{call.title} AS {call.name}' for call in self.calls) or 'nothing'}"


@dataclass(frozen=True)
class WindowAggregate(Plan):
    """A row for each group and window, once, when the window is over.

    Attributes:
        input: the rows; their columns are the time, those of the key, and the arguments of the calls.
        time: the column of the time.
        group: the columns of the key, without those of the window.
        size_ms: length of windows in milliseconds.
        step_ms: from the start of a window to that of the next one.
        calls: the aggregates.
        start: the column of the start of the window.
        end: the column of the end of the window.
        grace_ms: how long a window waits for late rows.
    """

    input: Plan
    time: str
    group: tuple[str, ...]
    size_ms: int
    step_ms: int
    calls: tuple[Call, ...]
    start: str
    end: str
    grace_ms: int

    appends = True

    @property
    def fields(self) -> tuple[Field, ...]:  # type: ignore[override]  # noqa: D102
        return _fields_of_windows(self.input, self.group, self.time, (self.start, self.end), self.calls)

    @property
    def keys(self) -> tuple[Key, ...]:  # type: ignore[override]  # noqa: D102
        return (frozenset((*self.group, self.start)),)

    def inputs(self) -> tuple[Plan, ...]:  # noqa: D102
        return (self.input,)

    def describe(self) -> str:  # noqa: D102
        by = f" by {', '.join(self.group)}" if self.group else ""
        calls = ", ".join(f"{call.title} AS {call.name}" for call in self.calls)
        return f"windows of {self.size_ms} ms each {self.step_ms} ms, grace {self.grace_ms} ms{by}: {calls}"


@dataclass(frozen=True)
class SessionAggregate(Plan):
    """A row for each group and session, once, when the session is over.

    Attributes:
        input: the rows; their columns are the time, those of the key, and the arguments of the calls.
        time: the column of the time.
        group: the columns of the key, without those of the window.
        gap_ms: how long nothing happens between two sessions, in milliseconds.
        calls: the aggregates.
        start: the column of the start of the session.
        end: the column of its end: the last time, and the gap.
        grace_ms: how long a session waits for late rows.
    """

    input: Plan
    time: str
    group: tuple[str, ...]
    gap_ms: int
    calls: tuple[Call, ...]
    start: str
    end: str
    grace_ms: int

    appends = True

    @property
    def fields(self) -> tuple[Field, ...]:  # type: ignore[override]  # noqa: D102
        return _fields_of_windows(self.input, self.group, self.time, (self.start, self.end), self.calls)

    @property
    def keys(self) -> tuple[Key, ...]:  # type: ignore[override]  # noqa: D102
        return (frozenset((*self.group, self.start)),)

    def inputs(self) -> tuple[Plan, ...]:  # noqa: D102
        return (self.input,)

    def describe(self) -> str:  # noqa: D102
        by = f" by {', '.join(self.group)}" if self.group else ""
        calls = ", ".join(f"{call.title} AS {call.name}" for call in self.calls)
        return f"sessions with a gap of {self.gap_ms} ms, grace {self.grace_ms} ms{by}: {calls}"


def _fields_of_windows(
    rows: Plan, group: tuple[str, ...], time: str, bounds: tuple[str, str], calls: tuple[Call, ...]
) -> tuple[Field, ...]:
    dtype = rows.field(time).dtype
    return (
        *(rows.field(name) for name in group),
        *(Field(name, dtype, nullable=False) for name in bounds),
        *(Field(call.name, call.aggregate.dtype, call.aggregate.nullable) for call in calls),
    )


@dataclass(frozen=True)
class Join(Plan):
    """The rows of two relations that fit together. Names of their columns differ.

    Attributes:
        left: one relation.
        right: the other one.
        how: which rows there are.
        left_on: columns of the left relation.
        right_on: the columns of the right one that are equal to them; NULL is equal to nothing.
        condition: what else holds of both.
    """

    left: Plan
    right: Plan
    how: JoinHow
    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    condition: TypedExpression | None = None

    appends = False

    @property
    def fields(self) -> tuple[Field, ...]:  # type: ignore[override]  # noqa: D102
        return _join_fields(self.left, self.right, self.how)

    @property
    def keys(self) -> tuple[Key, ...]:  # type: ignore[override]  # noqa: D102
        if self.how in ("semi", "anti"):
            return self.left.keys
        left_matches_one = any(key <= frozenset(self.right_on) for key in self.right.keys)
        right_matches_one = any(key <= frozenset(self.left_on) for key in self.left.keys)
        keys: list[Key] = []
        # Rows without a partner have NULL in the columns of the other side.
        if left_matches_one and self.how in ("inner", "left"):
            keys += self.left.keys
        if right_matches_one and self.how in ("inner", "right"):
            keys += self.right.keys
        keys += [one | other for one in self.left.keys for other in self.right.keys]
        return tuple(dict.fromkeys(keys))

    def inputs(self) -> tuple[Plan, ...]:  # noqa: D102
        return (self.left, self.right)

    def describe(self) -> str:  # noqa: D102
        pairs = [f"{one} = {other}" for one, other in zip(self.left_on, self.right_on, strict=True)]
        on = " AND ".join((*pairs, *([] if self.condition is None else [str(self.condition)])))
        return f"{self.how} join on {on or 'all rows'}"


def _join_fields(left: Plan, right: Plan, how: JoinHow) -> tuple[Field, ...]:
    if how in ("semi", "anti"):
        return left.fields
    return (
        *(_nullable(field, how in ("right", "outer")) for field in left.fields),
        *(_nullable(field, how in ("left", "outer")) for field in right.fields),
    )


def _nullable(field: Field, nullable: bool) -> Field:
    return Field(field.name, field.dtype, nullable=field.nullable or nullable)


@dataclass(frozen=True)
class AsOfJoin(Plan):
    """Each row of a stream, with the row of a table that was there at its time.

    Attributes:
        left: the stream.
        right: the table, by its primary key.
        how: whether rows without a partner stay.
        left_on: columns of the stream.
        right_on: the columns of the table that are equal to them: its primary key.
        time: column of the stream with the time.
    """

    left: Plan
    right: Plan
    how: Literal["inner", "left"]
    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    time: str

    appends = True

    @property
    def fields(self) -> tuple[Field, ...]:  # type: ignore[override]  # noqa: D102
        return _join_fields(self.left, self.right, self.how)

    @property
    def keys(self) -> tuple[Key, ...]:  # type: ignore[override]  # noqa: D102
        return self.left.keys

    def inputs(self) -> tuple[Plan, ...]:  # noqa: D102
        return (self.left, self.right)

    def describe(self) -> str:  # noqa: D102
        pairs = " AND ".join(f"{one} = {other}" for one, other in zip(self.left_on, self.right_on, strict=True))
        return f"{self.how} join as of {self.time} on {pairs}"


@dataclass(frozen=True)
class IntervalJoin(Plan):
    """Pairs of rows of two streams whose times are near each other.

    Attributes:
        left: one stream.
        right: the other one.
        left_on: columns of the left stream.
        right_on: the columns of the right one that are equal to them.
        left_time: column with the time of the left one.
        right_time: column with the time of the right one.
        before_ms: how much earlier the right row may be, in milliseconds.
        after_ms: how much later it may be.
        grace_ms: how long late rows find partners.
    """

    left: Plan
    right: Plan
    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    left_time: str
    right_time: str
    before_ms: int
    after_ms: int
    grace_ms: int

    appends = True

    @property
    def fields(self) -> tuple[Field, ...]:  # type: ignore[override]  # noqa: D102
        return _join_fields(self.left, self.right, "inner")

    @property
    def keys(self) -> tuple[Key, ...]:  # type: ignore[override]  # noqa: D102
        return tuple(one | other for one in self.left.keys for other in self.right.keys)

    def inputs(self) -> tuple[Plan, ...]:  # noqa: D102
        return (self.left, self.right)

    def describe(self) -> str:  # noqa: D102
        pairs = " AND ".join(f"{one} = {other}" for one, other in zip(self.left_on, self.right_on, strict=True))
        return (
            f"join on {pairs}, {self.right_time} from {self.before_ms} ms before to {self.after_ms} ms after "
            f"{self.left_time}, grace {self.grace_ms} ms"
        )


@dataclass(frozen=True)
class Union(Plan):
    """The rows of several relations, whose columns have the same names and types: UNION ALL."""

    parts: tuple[Plan, ...]

    @property
    def fields(self) -> tuple[Field, ...]:  # type: ignore[override]  # noqa: D102
        return tuple(
            Field(columns[0].name, columns[0].dtype, nullable=any(column.nullable for column in columns))
            for columns in zip(*(part.fields for part in self.parts), strict=True)
        )

    @property
    def appends(self) -> bool:  # type: ignore[override]  # noqa: D102
        return all(part.appends for part in self.parts)

    keys = ()

    def inputs(self) -> tuple[Plan, ...]:  # noqa: D102
        return self.parts

    def describe(self) -> str:  # noqa: D102
        return "union all"


@dataclass(frozen=True)
class Distinct(Plan):
    """Each row once."""

    input: Plan

    appends = False

    @property
    def fields(self) -> tuple[Field, ...]:  # type: ignore[override]  # noqa: D102
        return self.input.fields

    @property
    def keys(self) -> tuple[Key, ...]:  # type: ignore[override]  # noqa: D102
        return (frozenset(field.name for field in self.input.fields), *self.input.keys)

    def inputs(self) -> tuple[Plan, ...]:  # noqa: D102
        return (self.input,)

    def describe(self) -> str:  # noqa: D102
        return "distinct"


@dataclass(frozen=True)
class SetOperation(Plan):
    """The rows that two relations have in common, or that only the left one has.

    Attributes:
        left: one relation.
        right: the other one, whose columns have the same names and types.
        kind: INTERSECT or EXCEPT.
        counts: whether equal rows count: ALL.
    """

    left: Plan
    right: Plan
    kind: Literal["intersect", "except"]
    counts: bool

    appends = False

    @property
    def fields(self) -> tuple[Field, ...]:  # type: ignore[override]  # noqa: D102
        return self.left.fields

    @property
    def keys(self) -> tuple[Key, ...]:  # type: ignore[override]  # noqa: D102
        return self.left.keys if self.counts else (frozenset(field.name for field in self.left.fields),)

    def inputs(self) -> tuple[Plan, ...]:  # noqa: D102
        return (self.left, self.right)

    def describe(self) -> str:  # noqa: D102
        return f"{self.kind}{' all' if self.counts else ''}"


@dataclass(frozen=True)
class Top(Plan):
    """The first rows of each group in an order, with their number.

    Attributes:
        input: the rows.
        group: the columns of the group.
        by: columns by which rows are ordered.
        descending: of each, whether the highest values come first.
        count: the highest number.
        method: how rows are numbered.
        rank: the column of the number.
    """

    input: Plan
    group: tuple[str, ...]
    by: tuple[str, ...]
    descending: tuple[bool, ...]
    count: int
    method: Literal["row_number", "rank", "dense_rank"]
    rank: str

    appends = False

    @property
    def fields(self) -> tuple[Field, ...]:  # type: ignore[override]  # noqa: D102
        return (*self.input.fields, Field(self.rank, pa.int32(), nullable=False))

    @property
    def keys(self) -> tuple[Key, ...]:  # type: ignore[override]  # noqa: D102
        own = ((frozenset((*self.group, self.rank))),) if self.method == "row_number" else ()
        return (*own, *self.input.keys)

    def inputs(self) -> tuple[Plan, ...]:  # noqa: D102
        return (self.input,)

    def describe(self) -> str:  # noqa: D102
        order = ", ".join(
            f"{column} DESC" if descending else column
            for column, descending in zip(self.by, self.descending, strict=True)
        )
        of = f" of each {', '.join(self.group)}" if self.group else ""
        return f"first {self.count}{of} by {order}, {self.method} AS {self.rank}"


@dataclass(frozen=True)
class OverRows(Plan):
    """Each row of a stream, with aggregates of the rows before it.

    Attributes:
        input: the rows.
        group: the columns of the group.
        time: the column of the time, by which rows are ordered.
        rows: how many rows are aggregated, with the row itself.
        calls: the aggregates.
        grace_ms: how late rows may be.
    """

    input: Plan
    group: tuple[str, ...]
    time: str
    rows: int
    calls: tuple[Call, ...]
    grace_ms: int

    appends = True

    @property
    def fields(self) -> tuple[Field, ...]:  # type: ignore[override]  # noqa: D102
        added = (Field(call.name, call.aggregate.dtype, call.aggregate.nullable) for call in self.calls)
        return (*self.input.fields, *added)

    @property
    def keys(self) -> tuple[Key, ...]:  # type: ignore[override]  # noqa: D102
        return self.input.keys

    def inputs(self) -> tuple[Plan, ...]:  # noqa: D102
        return (self.input,)

    def describe(self) -> str:  # noqa: D102
        calls = ", ".join(f"{call.title} AS {call.name}" for call in self.calls)
        of = f" of each {', '.join(self.group)}" if self.group else ""
        return f"over {self.rows} rows{of} by {self.time}, grace {self.grace_ms} ms: {calls}"


def walk_plan(plan: Plan) -> Iterator[Plan]:
    """Yield a plan and all that it is computed from, inputs first."""
    for part in plan.inputs():
        yield from walk_plan(part)
    yield plan


def record_key(plan: Plan) -> Key | None:
    """Return the columns that are the key of the records of an updating relation; None if records have another key, or none.

    A row with such a key stays in its partition, and its changes are in order.
    """
    if isinstance(plan, Scan):
        return None if plan.appends or not plan.keys else plan.keys[0]
    if isinstance(plan, Filter):
        return record_key(plan.input)
    if isinstance(plan, Aggregate | Distinct):
        return plan.keys[0]
    if isinstance(plan, Project):
        key = record_key(plan.input)
        if key is None:
            return None
        renamed = {
            expression.name: name for name, expression in plan.columns if isinstance(expression, ColumnReference)
        }
        return frozenset(renamed[column] for column in key) if key <= renamed.keys() else None
    return None


def describe_plan(plan: Plan, depth: int = 0) -> str:
    """Return a plan as lines, each relation above what it is computed from."""
    lines = [f"{'  ' * depth}{plan.describe()}"]
    if isinstance(plan, Scan):
        lines[0] += f" ({', '.join(map(str, plan.fields))})"
    lines += [describe_plan(part, depth + 1) for part in plan.inputs()]
    return "\n".join(lines)
