"""The plan of OVER on rows that change; see `row_plans`."""

from dataclasses import dataclass

from streamrt.sql.binding.group_plans import Call, describe_order
from streamrt.sql.binding.row_plans import Field, Key, Plan
from streamrt.windows.frame_aggregates import make_over_function
from streamrt.windows.frames import Frame
from streamrt.windows.over_functions import OverColumn

__all__ = ["FramedCall", "OverStream", "OverTable"]


@dataclass(frozen=True)
class FramedCall:
    """A function of the rows around a row, as a column.

    Attributes:
        call: the function.
        frame: the rows that it is about.
        numbers: whether no two rows of a group have the same result.
    """

    call: Call
    frame: Frame
    numbers: bool = False

    def column(self) -> OverColumn:
        """Return what an operator adds to rows."""
        call = self.call
        function = make_over_function(call.name, call.aggregate.make(call.arguments))
        assert function is not None  # noqa: S101 - aggregates and functions of places are
        return OverColumn(call.name, function, self.frame)

    def __str__(self) -> str:
        return f"{self.call.title} of {self.frame} AS {self.call.name}"


@dataclass(frozen=True)
class _Over(Plan):
    """Each row, with functions of the rows around it in its group.

    Attributes:
        input: the rows.
        group: the columns of the group.
        by: columns by which rows are ordered.
        descending: of each, whether the highest values come first.
        calls: the functions.
    """

    input: Plan
    group: tuple[str, ...]
    by: tuple[str, ...]
    descending: tuple[bool, ...]
    calls: tuple[FramedCall, ...]

    @property
    def fields(self) -> tuple[Field, ...]:  # type: ignore[override]
        calls = (each.call for each in self.calls)
        return (
            *self.input.fields,
            *(Field(call.name, call.aggregate.dtype, call.aggregate.nullable) for call in calls),
        )

    @property
    def keys(self) -> tuple[Key, ...]:  # type: ignore[override]
        numbers = (frozenset((*self.group, each.call.name)) for each in self.calls if each.numbers)
        return (*self.input.keys, *numbers)

    def inputs(self) -> tuple[Plan, ...]:
        return (self.input,)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The columns that the functions read."""
        return tuple(name for each in self.calls for name in each.call.arguments)

    def describe(self) -> str:
        order = describe_order(self.by, self.descending)
        of = f" of each {', '.join(self.group)}" if self.group else ""
        return f"over rows{of}{f' by {order}' if order else ''}: {', '.join(map(str, self.calls))}"


class OverTable(_Over):
    """Each row, with functions of the rows around it in its group, which change former results."""

    appends = False


@dataclass(frozen=True)
class OverStream(_Over):
    """Each row of a stream, in the order of its time, with functions of the rows up to it.

    Attributes:
        grace_ms: how late rows may be.
    """

    grace_ms: int

    appends = True

    @property
    def time(self) -> str:
        """The column of the time."""
        return self.by[-1]

    def as_table(self) -> OverTable:
        """Return the same with results that change."""
        return OverTable(self.input, self.group, self.by, self.descending, self.calls)

    def describe(self) -> str:  # noqa: D102
        of = f" of each {', '.join(self.group)}" if self.group else ""
        return f"over rows{of} by {self.time}, grace {self.grace_ms} ms: {', '.join(map(str, self.calls))}"
