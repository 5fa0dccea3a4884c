"""Errors of expressions, with line and column."""

from sqlglot import exp

from streamrt.errors import SQLAnalysisError, SQLNotSupportedError
from streamrt.sql.expressions.positions import position_of

__all__ = ["make_analysis_error", "make_refusal"]


def make_analysis_error(text: str, node: exp.Expr | None) -> SQLAnalysisError:
    """Return the error that a name or a type is wrong at a node."""
    return SQLAnalysisError(text, *position_of(node))


def make_refusal(text: str, node: exp.Expr | None) -> SQLNotSupportedError:
    """Return the error that a construct is refused at a node."""
    return SQLNotSupportedError(text, *position_of(node))
