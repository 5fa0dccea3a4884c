"""Functions and expressions on rows that operators of a plan run."""

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from streamrt.operators.expression import Expression
from streamrt.relations.group_aggregate import key_row
from streamrt.schema import Schema
from streamrt.sql.expressions import TypedExpression
from streamrt.topology import InlinedCode

_EPOCH = datetime(1970, 1, 1)

__all__ = [
    "CheckRow",
    "ConstantRows",
    "ExpandRow",
    "MergeColumns",
    "NewRow",
    "PairCondition",
    "SessionRow",
    "WindowRow",
]


@dataclass(frozen=True)
class NewRow(Expression):
    """A row, each column of which is an expression on another row."""

    columns: tuple[tuple[str, TypedExpression], ...]

    def code(self, code: InlinedCode) -> ast.expr:  # noqa: D102
        names: list[ast.expr | None] = [ast.Name(code.name_object(name), ast.Load()) for name, _ in self.columns]
        return ast.Dict(names, [expression.code(code) for _, expression in self.columns])

    def parts(self) -> tuple[Expression, ...]:  # noqa: D102
        return tuple(expression for _, expression in self.columns)

    def __str__(self) -> str:
        return ", ".join(
            str(expression) if str(expression) == name else f"{expression} AS {name}"
            for name, expression in self.columns
        )


@dataclass(frozen=True)
class CheckRow:
    """Returns a row with the columns of a schema. A function for `Apply`."""

    schema: Schema

    def __call__(self, row: Any) -> dict[str, Any]:
        """Return the row."""
        return self.schema.check(row)

    def __str__(self) -> str:
        return "rows of the schema"


@dataclass(frozen=True)
class ExpandRow:
    """Returns a row as often as another function makes columns of it. A function for `Apply`."""

    rows_of: Callable[[dict[str, Any]], Iterable[dict[str, Any]]]
    title: str

    def __call__(self, row: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the rows."""
        return [{**row, **added} for added in self.rows_of(row)]

    def __str__(self) -> str:
        return self.title


@dataclass(frozen=True)
class ConstantRows:
    """Returns the same rows for each row. A function for `ExpandChanges`."""

    rows: tuple[dict[str, Any], ...]

    def __call__(self, row: Any) -> list[dict[str, Any]]:
        """Return the rows."""
        return [dict(each) for each in self.rows]

    def __str__(self) -> str:
        return "values"


@dataclass(frozen=True)
class WindowRow:
    """Returns the row of a window that is over. A function for `Apply` with metadata.

    Attributes:
        group: the columns of the key.
        start: the column of the start.
        end: the column of the end.
        calls: the columns of the aggregates.
        zoned: whether times have a time zone.
    """

    group: tuple[str, ...]
    start: str
    end: str
    calls: tuple[str, ...]
    zoned: bool

    def __call__(self, value: Any, key: Any, timestamp: int, headers: Any) -> dict[str, Any]:
        """Return the row."""
        return {
            **key_row(self.group, key),
            self.start: self._time(value["start"]),
            self.end: self._time(value["end"]),
            **{name: value[name] for name in self.calls},
        }

    def _time(self, ms: int) -> datetime:
        time = _EPOCH + timedelta(milliseconds=ms)
        return time.replace(tzinfo=timezone.utc) if self.zoned else time

    def __str__(self) -> str:
        return "window"


@dataclass(frozen=True)
class SessionRow:
    """Returns the row of a session that is over. A function for `Apply` with metadata.

    Attributes:
        group: the columns of the key.
        start: the column of the first time.
        end: the column of the last time, to which the gap is added.
        calls: the columns of the aggregates.
        gap_ms: the gap in milliseconds.
    """

    group: tuple[str, ...]
    start: str
    end: str
    calls: tuple[str, ...]
    gap_ms: int

    def __call__(self, value: Any, key: Any, timestamp: int, headers: Any) -> dict[str, Any]:
        """Return the row."""
        return {
            **key_row(self.group, key),
            self.start: value[self.start],
            self.end: value[self.end] + timedelta(milliseconds=self.gap_ms),
            **{name: value[name] for name in self.calls},
        }

    def __str__(self) -> str:
        return "session"


@dataclass(frozen=True)
class MergeColumns:
    """Merges two rows of a join, which have no column in common; one that is missing has NULL in all columns."""

    left: tuple[str, ...]
    right: tuple[str, ...]

    def __call__(self, left: Any, right: Any) -> dict[str, Any]:
        """Return the row."""
        return {
            **(dict.fromkeys(self.left) if left is None else left),
            **(dict.fromkeys(self.right) if right is None else right),
        }


@dataclass(frozen=True)
class PairCondition:
    """Returns whether a condition is TRUE of two rows of a join."""

    condition: TypedExpression

    def __post_init__(self) -> None:
        object.__setattr__(self, "_evaluate", None)

    def __call__(self, left: Any, right: Any) -> bool:
        """Return it."""
        evaluate: Any = self.__dict__["_evaluate"]
        if evaluate is None:
            evaluate = self.condition.compile()
            object.__setattr__(self, "_evaluate", evaluate)
        return evaluate({**left, **right}, None, 0, None) is True

    def __getstate__(self) -> dict[str, Any]:
        return {"condition": self.condition, "_evaluate": None}

    def __str__(self) -> str:
        return str(self.condition)
