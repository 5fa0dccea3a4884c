"""Scalar expressions and aggregates of SQL, with its NULL and its types, as column expressions."""

from streamrt.sql.expressions.aggregates import AggregateCall, bind_aggregate, is_aggregate
from streamrt.sql.expressions.casts import Cast, cast_to
from streamrt.sql.expressions.coercion import common_type, describe_type
from streamrt.sql.expressions.failures import make_analysis_error, make_refusal
from streamrt.sql.expressions.nested import Field, select_field
from streamrt.sql.expressions.nodes import ColumnReference, Constant
from streamrt.sql.expressions.positions import position_of
from streamrt.sql.expressions.scalars import bind_condition, bind_scalar
from streamrt.sql.expressions.type_names import read_type
from streamrt.sql.expressions.typed import Scope, TypedExpression
from streamrt.sql.expressions.user_functions import FunctionRegistry, UserFunction

__all__ = [
    "AggregateCall",
    "Cast",
    "ColumnReference",
    "Constant",
    "Field",
    "FunctionRegistry",
    "Scope",
    "TypedExpression",
    "UserFunction",
    "bind_aggregate",
    "bind_condition",
    "bind_scalar",
    "cast_to",
    "common_type",
    "describe_type",
    "is_aggregate",
    "make_analysis_error",
    "make_refusal",
    "position_of",
    "read_type",
    "select_field",
]
