"""The plan of a query: a tree of relations, each with its columns, which is independent of its text.

Rows are dicts by the names of `fields`. A relation is a bag of rows: append-only, or updating. State depends on the text of a
plan, of which `digest_plan` makes a digest.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import pyarrow as pa

from streamrt.schema.types import type_word
from streamrt.sql.expressions import TypedExpression
from streamrt.sql.expressions.nodes import ColumnReference, Constant

__all__ = [
    "Expand",
    "Field",
    "Filter",
    "Key",
    "Plan",
    "Project",
    "Scan",
    "Values",
    "describe_plan",
    "digest_plan",
    "replace_inputs",
    "walk_plan",
]

_DIGITS = 16
_SHORT = 200
Key = frozenset[str]
"""Columns that no two rows have in common."""


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
class Values(Plan):
    """Rows that the text has itself, and that are there before all records.

    Attributes:
        fields: the columns.
        rows: the values of each row.
    """

    fields: tuple[Field, ...]
    rows: tuple[tuple[Any, ...], ...]

    appends = False

    @property
    def keys(self) -> tuple[Key, ...]:  # type: ignore[override]  # noqa: D102
        return (frozenset(),) if len(self.rows) == 1 else ()

    def describe(self) -> str:  # noqa: D102
        rows = [zip(row, self.fields, strict=True) for row in self.rows]
        text = ", ".join(f"({', '.join(str(Constant(value, field.dtype)) for value, field in row)})" for row in rows)
        return f"values {text}" if len(text) <= _SHORT else f"values of {len(rows)} rows, {_digest(text)}"


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


def walk_plan(plan: Plan) -> Iterator[Plan]:
    """Yield a plan and all that it is computed from, inputs first."""
    for part in plan.inputs():
        yield from walk_plan(part)
    yield plan


def replace_inputs(plan: Plan, change: Callable[[Plan], Plan]) -> Plan:
    """Return a plan with other inputs; the same one if none changes.

    Args:
        plan: the plan.
        change: returns what stands for an input.
    """
    changed: dict[str, Any] = {}
    for each in fields(plan):  # type: ignore[arg-type]  # plans are dataclasses
        value = getattr(plan, each.name)
        if isinstance(value, Plan):
            made: Any = change(value)
            differs = made is not value
        elif isinstance(value, tuple) and value and isinstance(value[0], Plan):
            made = tuple(map(change, value))
            differs = any(one is not other for one, other in zip(made, value, strict=True))
        else:
            continue
        if differs:
            changed[each.name] = made
    return replace(plan, **changed) if changed else plan  # type: ignore[type-var]  # plans are dataclasses


def describe_plan(plan: Plan, depth: int = 0) -> str:
    """Return a plan as lines, each relation above what it is computed from."""
    lines = [f"{'  ' * depth}{plan.describe()}"]
    if isinstance(plan, Scan):
        lines[0] += f" ({', '.join(map(str, plan.fields))})"
    lines += [describe_plan(part, depth + 1) for part in plan.inputs()]
    return "\n".join(lines)


def digest_plan(plan: Plan) -> str:
    """Return a text that differs if a plan does: in what it reads, or in what becomes of that."""
    digests: dict[int, str] = {}

    def digest(part: Plan) -> str:
        # Views share parts, so a plan may be much larger than what it is made of.
        if id(part) not in digests:
            read = [f"{each.name} {each.dtype}" for each in part.fields] if isinstance(part, Scan) else []
            texts = [part.describe(), *read, *map(digest, part.inputs())]
            digests[id(part)] = _digest("\n".join(texts))
        return digests[id(part)]

    return digest(plan)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
