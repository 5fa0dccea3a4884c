"""Plans that bring rows together: groups, windows, and the first rows of an order; see `row_plans`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from streamrt.sql.binding.row_plans import Field, Filter, Key, Plan, Project, Scan
from streamrt.sql.expressions.nodes import ColumnReference

__all__ = [
    "Aggregate",
    "Call",
    "Distinct",
    "SessionAggregate",
    "Top",
    "WindowAggregate",
    "describe_order",
    "record_key",
]


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
class _WindowPlan(Plan):
    """A row for each group and window, once, when the window is over."""

    input: Plan
    time: str
    group: tuple[str, ...]
    calls: tuple[Call, ...]
    start: str
    end: str
    grace_ms: int

    appends = True

    @property
    def fields(self) -> tuple[Field, ...]:  # type: ignore[override]
        dtype = self.input.field(self.time).dtype
        return (
            *(self.input.field(name) for name in self.group),
            *(Field(name, dtype, nullable=False) for name in (self.start, self.end)),
            *(Field(call.name, call.aggregate.dtype, call.aggregate.nullable) for call in self.calls),
        )

    @property
    def keys(self) -> tuple[Key, ...]:  # type: ignore[override]
        return (frozenset((*self.group, self.start)),)

    def inputs(self) -> tuple[Plan, ...]:
        return (self.input,)

    def _describe_as(self, windows: str) -> str:
        by = f" by {', '.join(self.group)}" if self.group else ""
        calls = ", ".join(f"{call.title} AS {call.name}" for call in self.calls)
        return f"{windows}, grace {self.grace_ms} ms{by}: {calls}"


@dataclass(frozen=True)
class WindowAggregate(_WindowPlan):
    """A row for each group and window, once, when the window is over.

    Attributes:
        input: the rows; their columns are the time, those of the key, and the arguments of the calls.
        time: the column of the time.
        group: the columns of the key, without those of the window.
        calls: the aggregates.
        start: the column of the start of the window.
        end: the column of the end of the window.
        grace_ms: how long a window waits for late rows.
        size_ms: length of windows in milliseconds.
        step_ms: from the start of a window to that of the next one.
        offset_ms: how much later than the epoch a window starts.
    """

    size_ms: int
    step_ms: int
    offset_ms: int = 0

    def describe(self) -> str:  # noqa: D102
        offset = f" from {self.offset_ms} ms" if self.offset_ms else ""
        return self._describe_as(f"windows of {self.size_ms} ms each {self.step_ms} ms{offset}")


@dataclass(frozen=True)
class SessionAggregate(_WindowPlan):
    """A row for each group and session, once, when the session is over.

    Attributes:
        input: the rows; their columns are the time, those of the key, and the arguments of the calls.
        time: the column of the time.
        group: the columns of the key, without those of the window.
        calls: the aggregates.
        start: the column of the start of the session.
        end: the column of its end: the last time, and the gap.
        grace_ms: how long a session waits for late rows.
        gap_ms: the longest time between two rows of a session, in milliseconds.
    """

    gap_ms: int

    def describe(self) -> str:  # noqa: D102
        return self._describe_as(f"sessions with a gap of {self.gap_ms} ms")


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
        if self.method != "row_number":
            return self.input.keys
        one = (frozenset[str](),) if self.count == 1 and not self.group else ()
        return (*one, frozenset((*self.group, self.rank)), *self.input.keys)

    def inputs(self) -> tuple[Plan, ...]:  # noqa: D102
        return (self.input,)

    def describe(self) -> str:  # noqa: D102
        of = f" of each {', '.join(self.group)}" if self.group else ""
        return f"first {self.count}{of} by {describe_order(self.by, self.descending)}, {self.method} AS {self.rank}"


def describe_order(by: Sequence[str], descending: Sequence[bool]) -> str:
    """Return columns by which rows are ordered as ORDER BY has them.

    Args:
        by: the columns.
        descending: of each, whether the highest values come first.
    """
    return ", ".join(f"{column} DESC" if falls else column for column, falls in zip(by, descending, strict=True))


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
