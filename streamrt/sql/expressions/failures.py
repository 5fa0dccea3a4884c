"""Errors of expressions, with line and column."""

import difflib
from collections.abc import Iterable

from sqlglot import exp

from streamrt.errors import SQLAnalysisError, SQLNotSupportedError
from streamrt.sql.expressions.positions import position_of

__all__ = ["make_analysis_error", "make_refusal", "suggest_name"]


def make_analysis_error(text: str, node: exp.Expr | None) -> SQLAnalysisError:
    """Return the error that a name or a type is wrong at a node."""
    return SQLAnalysisError(text, *position_of(node))


def make_refusal(text: str, node: exp.Expr | None) -> SQLNotSupportedError:
    """Return the error that a construct is refused at a node."""
    return SQLNotSupportedError(text, *position_of(node))


def suggest_name(name: str, known: Iterable[str]) -> str:
    """Return a hint at the known name that is closest to one, or nothing.

    Example:
        >>> suggest_name("substrng", ["upper", "substring"])
        '; did you mean substring?'
    """
    close = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.7)
    return f"; did you mean {close[0]}?" if close else ""
