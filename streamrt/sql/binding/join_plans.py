"""Plans of several relations: joins, unions, and differences; see `row_plans`."""

from dataclasses import dataclass
from typing import Literal

from streamrt.sql.binding.row_plans import Field, Key, Plan
from streamrt.sql.expressions import TypedExpression

__all__ = [
    "AsOfJoin",
    "IntervalJoin",
    "Join",
    "JoinHow",
    "SetOperation",
    "Union",
]

JoinHow = Literal["inner", "left", "right", "outer", "semi", "anti"]
"""Which rows there are."""


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

    @property
    def compares_all(self) -> bool:
        """Whether each row may be compared with many rows of the other side, all in one partition."""
        return not self.left_on and not any(frozenset() in side.keys for side in self.inputs())

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
            f"join on {pairs or 'all rows'}, {self.right_time} from {self.before_ms} ms before to {self.after_ms} ms after "
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
