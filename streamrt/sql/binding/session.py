"""What a query is bound with: tables, views, frames, parameters and functions."""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Protocol

import pyarrow as pa
from sqlglot import exp

from streamrt.schema.types import type_word
from streamrt.sql.binding.scopes import Bound, bound_name
from streamrt.sql.binding.suggestions import suggest
from streamrt.sql.expressions import (
    AggregateCall,
    Constant,
    FunctionRegistry,
    Scope,
    TypedExpression,
    bind_aggregate,
    bind_scalar,
)
from streamrt.sql.expressions.failures import make_analysis_error, make_refusal

__all__ = ["Emit", "Session", "Sources", "fill_parameters"]


class Sources(Protocol):
    """Where names in FROM lead."""

    def find_relation(self, name: str, node: exp.Expr) -> Bound:
        """Return the table or view of a name.

        Raises:
            SQLAnalysisError: if there is none.
        """

    def find_frame(self, name: str, node: exp.Expr) -> Bound:
        """Return the frame that was given by a name.

        Raises:
            SQLAnalysisError: if there is none.
        """


@dataclass(frozen=True)
class Emit:
    """When windows give results.

    Attributes:
        final: once, when they are over; otherwise with each change.
        grace_ms: how long they wait for late rows, in milliseconds; None if nothing is said.
    """

    final: bool = False
    grace_ms: int | None = None


@dataclass(eq=False)
class Session:
    """What all parts of one query share.

    Attributes:
        sources: where names in FROM lead.
        args: values of parameters.
        emit: when windows give results.
        used: names of parameters that were used.
        functions: functions that the application has registered.
    """

    sources: Sources
    args: Mapping[str, Any] = field(default_factory=dict)
    emit: Emit = field(default_factory=Emit)
    used: set[str] = field(default_factory=set)
    functions: FunctionRegistry = field(default_factory=FunctionRegistry)
    _count: int = 0
    _labels: dict[str, int] = field(default_factory=dict)

    def bind(self, node: exp.Expr, scope: Scope) -> TypedExpression:
        """Return the expression that a node is.

        Args:
            node: the node.
            scope: what its names mean.
        """
        return bind_scalar(node, scope, self.functions)

    def bind_aggregate(self, node: exp.Expr, scope: Scope) -> AggregateCall:
        """Return the aggregate that a node is.

        Args:
            node: the node.
            scope: what its names mean.
        """
        return bind_aggregate(node, scope, self.functions)

    def new_name(self) -> str:
        """Return a name of a column that no other column of the query has."""
        self._count += 1
        return f"_{self._count}"

    def new_label(self, alias: str) -> str:
        """Return what stands before the names of the columns of a relation."""
        number = self._labels.get(alias, 0) + 1
        self._labels[alias] = number
        return alias if number == 1 else f"{alias}_{number}"


def fill_parameters(tree: exp.Expr, session: Session) -> exp.Expr:
    """Replace parameters by their values.

    Args:
        tree: the tree, which is changed.
        session: has the values.

    Raises:
        SQLAnalysisError: if a parameter has no value, or one of a type that SQL has not.
    """
    for node in list(tree.find_all(exp.Placeholder)):
        if node.args.get("widget") or isinstance(node.parent, exp.Table):
            continue
        name = node.this
        if not isinstance(name, str) or not name:
            raise make_refusal("parameters have names: write :name, and args={'name': ...}", node)
        if name not in session.args:
            raise make_analysis_error(f"there is no value for the parameter :{name}{suggest(name, session.args)}", node)
        session.used.add(name)
        constant = bound_name(Constant(*_value_of(name, session.args[name], node)), node)
        if node is tree:
            return constant
        node.replace(constant)
    return tree


def _value_of(name: str, value: Any, node: exp.Expr) -> tuple[Any, pa.DataType]:
    if value is None:
        return None, pa.null()
    if isinstance(value, bool):
        return value, pa.bool_()
    if isinstance(value, int):
        small = -(2**31) <= value < 2**31
        if small or -(2**63) <= value < 2**63:
            return value, pa.int32() if small else pa.int64()
    if isinstance(value, float):
        return value, pa.float64()
    if isinstance(value, str):
        return value, pa.string()
    if isinstance(value, bytes):
        return value, pa.binary()
    if isinstance(value, Decimal) and value.is_finite():
        _, digits, exponent = value.as_tuple()
        scale = max(0, -int(exponent))
        precision = max(len(digits) + max(0, int(exponent)), scale)
        if precision <= 38:
            return value.quantize(Decimal(1).scaleb(-scale)), pa.decimal128(max(precision, 1), scale)
    if isinstance(value, datetime.datetime):
        if value.tzinfo is None:
            return value, pa.timestamp("us")
        return value.astimezone(datetime.timezone.utc), pa.timestamp("us", "UTC")
    if isinstance(value, datetime.date):
        return value, pa.date32()
    words = ", ".join(type_word(dtype) for dtype in (pa.bool_(), pa.int64(), pa.float64(), pa.string(), pa.date32()))
    raise make_analysis_error(
        f"the parameter :{name} is of type {type(value).__name__}, or has too many digits: parameters have values of "
        f"{words}, DECIMAL, BINARY or TIMESTAMP",
        node,
    )
