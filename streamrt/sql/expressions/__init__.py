"""Scalar expressions and aggregates of SQL, with its NULL and its types, as column expressions."""

from streamrt.sql.expressions.typed import Scope, TypedExpression

__all__ = ["Scope", "TypedExpression"]
