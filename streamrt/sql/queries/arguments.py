"""Values of the parameters of a query: they become literals, and never part of its text."""

import datetime as dt
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from sqlglot import exp

from streamrt.arguments import checked, type_name
from streamrt.common.suggestions import suggest_name
from streamrt.errors import ArgumentTypeError, ArgumentValueError
from streamrt.sql.expressions.failures import make_analysis_error

__all__ = ["bind_arguments", "fill_view"]


def bind_arguments(tree: exp.Expr, args: Mapping[str, Any] | None, method: str) -> exp.Expr:
    """Return a tree with literals in place of its parameters `:name`.

    Args:
        tree: the tree, which is changed.
        args: values by name: None, bool, int, float, Decimal, str, bytes, date, datetime, and lists of them for IN.
        method: whose arguments they are, for errors.

    Raises:
        SQLAnalysisError: if a parameter has no value.
        ArgumentValueError: if a value is for no parameter.
        ArgumentTypeError: if a value has another type.

    Example:
        >>> from streamrt.sql.reading import parse_query
        >>> bind_arguments(parse_query("SELECT :a AS a"), {"a": 5}, "query").sql("spark")
        'SELECT 5 AS a'
    """
    checked(f"{method}(args=...)", args, Mapping, "a mapping", optional=True, show=type_name)
    given = dict(args or {})
    used: set[str] = set()
    for node in list(tree.find_all(exp.Placeholder)):
        if node.args.get("widget") or not node.name:
            raise make_analysis_error(
                "a query has parameters such as :name, and no {frames} and no ?: name tables of the catalogue", node
            )
        if node.name not in given:
            advice = suggest_name(f":{node.name}", [f":{name}" for name in given])
            raise make_analysis_error(f"{method}(args=...) has no value for :{node.name}{advice}", node)
        used.add(node.name)
        value = given[node.name]
        if isinstance(value, list | tuple) and isinstance(node.parent, exp.In) and node.arg_key == "expressions":
            _put_list(node, value, method)
        else:
            node.replace(_make_literal(value, f"{method}(args=...), :{node.name}"))
    unused = [name for name in given if name not in used]
    if unused:
        raise ArgumentValueError(f"{method}(args=...) has {unused[0]!r}, and the text no parameter :{unused[0]}")
    return tree


def fill_view(tree: exp.Expr, args: Mapping[str, Any]) -> exp.Expr:
    """Return the query of a view with literals in place of its parameters, of which its program has the values.

    Args:
        tree: the query, which is not changed.
        args: values by name, also those that other statements use.

    Example:
        >>> from streamrt.sql.reading import parse_query
        >>> fill_view(parse_query("SELECT :a AS a"), {"a": 5, "b": 6}).sql("spark")
        'SELECT 5 AS a'
    """
    nodes = list(tree.find_all(exp.Placeholder))
    if any(isinstance(node.parent, exp.Table) for node in nodes):
        # Queries refuse frames in FROM.
        return tree
    return bind_arguments(tree.copy(), {node.name: args[node.name] for node in nodes}, "sql")


def _put_list(node: exp.Placeholder, values: list[Any] | tuple[Any, ...], method: str) -> None:
    where = f"{method}(args=...), :{node.name}"
    if not values:
        raise ArgumentValueError(f"{where}: IN needs a list with one value or more")
    # `bind_arguments` comes here for elements of IN.
    parent: Any = node.parent
    others = [each for each in parent.expressions if each is not node]
    parent.set("expressions", [*others, *(_make_literal(value, where) for value in values)])


def _make_literal(value: Any, where: str) -> exp.Expr:
    if value is None:
        return exp.Null()
    if isinstance(value, bool):
        return exp.Boolean(this=value)
    if isinstance(value, int):
        if not -(10**38) < value < 10**38:
            raise ArgumentValueError(f"{where}: a number has 38 digits at most")
        return exp.Literal(this=str(value), is_string=False)
    if isinstance(value, float):
        text = repr(value) if math.isfinite(value) else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
        return _make_cast(text, "DOUBLE")
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise ArgumentValueError(f"{where}: {value} is not a DECIMAL")
        digits = value.as_tuple()
        scale = max(0, -int(digits.exponent))
        precision = max(len(digits.digits) + max(0, int(digits.exponent)), scale, 1)
        if precision > 38:
            raise ArgumentValueError(f"{where}: a DECIMAL has 38 digits at most")
        return _make_cast(f"{value:f}", f"DECIMAL({precision}, {scale})")
    if isinstance(value, str):
        return exp.Literal(this=value, is_string=True)
    if isinstance(value, bytes | bytearray):
        return exp.HexString(this=bytes(value).hex())
    if isinstance(value, dt.datetime):
        if value.tzinfo is None:
            return _make_cast(value.isoformat(" "), "TIMESTAMP_NTZ")
        return _make_cast(value.astimezone(dt.timezone.utc).replace(tzinfo=None).isoformat(" "), "TIMESTAMP_LTZ")
    if isinstance(value, dt.date):
        return _make_cast(value.isoformat(), "DATE")
    raise ArgumentTypeError(
        f"{where} must be None, a bool, a number, a text, bytes, a date or a datetime, got {type(value).__name__}"
    )


def _make_cast(text: str, word: str) -> exp.Cast:
    return exp.Cast(this=exp.Literal(this=text, is_string=True), to=exp.DataType.build(word, dialect="spark"))
