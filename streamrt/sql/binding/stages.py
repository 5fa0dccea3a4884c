"""A query while it is bound: the plan so far, and what names mean in it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from streamrt.sql.binding.row_plans import Filter, Plan, Project
from streamrt.sql.binding.scopes import BlockScope, BoundNames, reference
from streamrt.sql.binding.session import Session
from streamrt.sql.expressions import TypedExpression, describe_type
from streamrt.sql.expressions.failures import make_analysis_error
from streamrt.sql.expressions.nodes import ColumnReference

__all__ = ["CTEs", "Stage", "conjuncts", "keep_columns", "require_condition", "with_columns"]

CTEs = dict[str, "object"]
"""Queries of WITH, by name in lower case."""


def conjuncts(node: exp.Expr | None) -> list[exp.Expr]:
    """Return the conditions that AND combines."""
    if node is None:
        return []
    found: list[exp.Expr] = []
    waiting = [node]
    while waiting:
        each = waiting.pop()
        inner = each.this if isinstance(each, exp.Paren) else each
        if isinstance(inner, exp.And):
            waiting += [inner.right, inner.left]
        elif isinstance(inner, exp.Paren):
            waiting.append(inner)
        else:
            found.append(inner)
    return found


def require_condition(condition: TypedExpression, node: exp.Expr, what: str) -> TypedExpression:
    """Return a condition.

    Args:
        condition: the condition.
        node: where it stands.
        what: the clause, for the error.

    Raises:
        SQLAnalysisError: if it is of another type.
    """
    if condition.dtype not in (pa.bool_(), pa.null()):
        raise make_analysis_error(
            f"{what} needs a condition, which is TRUE or FALSE, and {condition} is {describe_type(condition.dtype)}",
            node,
        )
    return condition


def with_columns(plan: Plan, expressions: Sequence[TypedExpression], session: Session) -> tuple[Plan, list[str]]:
    """Return a plan that also has columns for expressions, and their names.

    Args:
        plan: the plan.
        expressions: expressions on its columns; those that are columns add none.
        session: names the columns.
    """
    names: list[str] = []
    added: list[tuple[str, TypedExpression]] = []
    for expression in expressions:
        known = next((name for name, other in added if other == expression), None)
        if isinstance(expression, ColumnReference):
            names.append(expression.name)
        elif known is not None:
            names.append(known)
        else:
            names.append(session.new_name())
            added.append((names[-1], expression))
    if added:
        plan = Project(plan, (*((field.name, reference(field)) for field in plan.fields), *added))
    return plan, names


def keep_columns(plan: Plan, names: Sequence[str]) -> Plan:
    """Return a plan with some of the columns."""
    if tuple(names) == tuple(field.name for field in plan.fields):
        return plan
    return Project(plan, tuple((name, reference(plan.field(name))) for name in names))


@dataclass(eq=False)
class Stage:
    """A query while it is bound.

    Attributes:
        session: what it is bound with.
        plan: the plan so far.
        scope: what names mean in it.
        ctes: the queries of WITH.
        rewrite: replaces keys and aggregates by the columns that they are, once rows are grouped.
    """

    session: Session
    plan: Plan
    scope: BlockScope | BoundNames
    ctes: CTEs
    rewrite: Callable[[exp.Expr], exp.Expr] | None = None

    def bind(self, node: exp.Expr) -> TypedExpression:
        """Return the expression that a node is."""
        return self.session.bind(node, self.scope)

    def bind_condition(self, node: exp.Expr, what: str) -> TypedExpression:
        """Return the condition that a node is.

        Args:
            node: the node.
            what: the clause, for errors.
        """
        return require_condition(self.bind(node), node, what)

    def filter(self, condition: TypedExpression) -> None:
        """Keep the rows for which a condition is TRUE."""
        self.plan = Filter(self.plan, condition)

    def add(self, expressions: Sequence[TypedExpression]) -> list[str]:
        """Add columns for expressions, and return their names."""
        self.plan, names = with_columns(self.plan, expressions, self.session)
        return names
