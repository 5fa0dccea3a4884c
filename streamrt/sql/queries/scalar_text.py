"""Scalar expressions of Spark in DuckDB's SQL: names, literals, conditions, casts and calls of functions."""

import inspect
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError
from sqlglot.parsers.spark import SparkParser

from streamrt.errors import SQLError, SQLNotSupportedError
from streamrt.schema.quiet import quiet_sqlglot
from streamrt.sql.expressions.calls import check_arguments
from streamrt.sql.expressions.coercion import INT, describe_type
from streamrt.sql.expressions.failures import make_analysis_error, make_refusal
from streamrt.sql.expressions.functions.registry import find_function
from streamrt.sql.expressions.intervals import bind_interval, is_constant_interval
from streamrt.sql.expressions.lambdas import make_unknown_parameter_error
from streamrt.sql.expressions.literals import read_number
from streamrt.sql.expressions.type_names import read_type
from streamrt.sql.queries import duckdb_lambdas as _lambdas
from streamrt.sql.queries import duckdb_time_functions as _time_functions
from streamrt.sql.queries.duckdb_aggregates import AGGREGATES, WINDOW_FUNCTIONS
from streamrt.sql.queries.duckdb_casts import cast_text
from streamrt.sql.queries.duckdb_functions import pick_field
from streamrt.sql.queries.duckdb_operators import compare, compute, count_units, unify, write_interval
from streamrt.sql.queries.duckdb_text_functions import quote_text
from streamrt.sql.queries.duckdb_types import TypedText, duckdb_type
from streamrt.sql.queries.scopes import Scope
from streamrt.sql.queries.translation import FUNCTIONS, NAMED, PARAMETER, WITH_LAMBDAS

__all__ = ["ScalarText", "is_listed"]

# Importing the modules of functions registers them.
_REGISTERED = (_lambdas, _time_functions)
_LONGEST = 1_000_000
"""Characters of an expression in DuckDB's SQL: some functions have their arguments in it several times."""


class ScalarText:
    """Translates expressions; subclasses add what belongs to a query: subqueries, aggregates and windows.

    Args:
        scope: what names mean.
    """

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self._expanding: list[str] = []
        # What the parameters of lambdas around stand for, from outside, and how many names DuckDB has for them.
        self._parameters: list[tuple[str, TypedText]] = []
        self._parameter_count = 0

    def scalar(self, node: exp.Expr) -> TypedText:
        """Return an expression in DuckDB's SQL.

        Raises:
            SQLAnalysisError: if names or types do not fit.
            SQLNotSupportedError: if it is not on the list of what queries have.
        """
        try:
            made = self._translate(node)
            if len(made.sql) > _LONGEST:
                raise make_refusal("this expression is too large for a query: compute parts of it in WITH", node)
            return made
        except SQLNotSupportedError as error:
            if error.line:
                raise
            raise make_refusal(str(error), node) from None
        except SQLError:
            raise
        except (AttributeError, IndexError, KeyError, ValueError):
            # Parts of calls are taken as they come; one that is missing ends here.
            raise make_analysis_error("this call has too few arguments, or others than it takes", node) from None

    def condition(self, node: exp.Expr, what: str) -> str:
        """Return an expression that must be a BOOLEAN."""
        value = self.scalar(node)
        if value.dtype not in (pa.bool_(), pa.null()):
            raise make_analysis_error(f"{what} needs a condition, and this is a {describe_type(value.dtype)}", node)
        return value.sql if value.dtype == pa.bool_() else "CAST(NULL AS BOOLEAN)"

    def _translate(self, node: exp.Expr) -> TypedText:
        own = _OWN.get(type(node))
        if own is not None:
            return own(self, node)
        if isinstance(node, exp.Func) and node.error_messages():
            raise make_analysis_error(f"{_describe(node)} has too few arguments", node)
        if isinstance(node, AGGREGATES + WINDOW_FUNCTIONS + (exp.Filter, exp.Window, exp.IgnoreNulls, exp.WithinGroup)):
            return self._outside_lambdas(node)
        known = FUNCTIONS.get(type(node))
        if known is not None:
            return known(self, node)
        if isinstance(node, exp.Anonymous):
            return self._call_by_name(node)
        raise make_refusal(f"{_describe(node)} is not on the list of what queries have; see docs/sql-queries.md", node)

    def translate_lambda(
        self, node: exp.Lambda, count: int, make: Callable[[Sequence[str]], Sequence[TypedText]]
    ) -> tuple[Sequence[str], TypedText]:
        """Return the names of the parameters of a lambda, and its body; see `Translation`."""
        first = self._parameter_count
        names = [f"{PARAMETER}{number}" for number in range(first, first + count)]
        before = self._parameters
        texts = zip(node.expressions, make(names), strict=False)
        self._parameters = [*before, *((parameter.name.lower(), text) for parameter, text in texts)]
        self._parameter_count += count
        try:
            return names, self.scalar(node.this)
        finally:
            self._parameters = before
            self._parameter_count = first

    def _parameter(self, node: exp.Identifier) -> TypedText:
        for name, text in reversed(self._parameters):
            if name == node.name.lower():
                return text
        raise make_unknown_parameter_error(node)

    def _outside_lambdas(self, node: exp.Expr) -> TypedText:
        """Return a call of an aggregate or a function of windows, which read no parameters of lambdas around."""
        before, self._parameters = self._parameters, []
        try:
            return self.translate_call(node)
        finally:
            self._parameters = before

    def translate_call(self, node: exp.Expr) -> TypedText:
        """Return a call of an aggregate function, or of a function of windows."""
        raise make_refusal(f"{_describe(node)} cannot stand here", node)

    def translate_query(self, node: exp.Expr) -> TypedText:
        """Return a subquery that is one value, or a condition."""
        raise make_refusal("a query cannot stand here", node)

    def _call_by_name(self, node: exp.Anonymous) -> TypedText:
        name = node.name.lower()
        if name in WITH_LAMBDAS:
            function = find_function(name)
            assert function is not None  # noqa: S101 - the binder of views has it
            check_arguments(function, node.expressions, node)
            if isinstance(node.expressions[-1], exp.Lambda):
                return WITH_LAMBDAS[name](self, node)
        found = NAMED.get(name)
        if found is None:
            return self._call_known(node, name)
        least, most, handler = found
        if not least <= len(node.expressions) <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            raise make_analysis_error(f"{name}() has {wanted} arguments, and not {len(node.expressions)}", node)
        return handler(self, node, [self.scalar(each) for each in node.expressions])

    def _call_known(self, node: exp.Anonymous, name: str) -> TypedText:
        """Return a call of a function for which sqlglot has a class, and the tables a translation."""
        made = self.find_known(node)
        if type(made) not in (*FUNCTIONS, *AGGREGATES, exp.Cast, exp.TryCast):
            raise make_refusal(
                f"the function {name}() is not on the list of what queries have; see docs/sql-queries.md", node
            )
        return self.scalar(made)

    def find_known(self, node: exp.Anonymous) -> exp.Expr:
        """Return the node that sqlglot has for a call by name, or the call itself."""
        build = SparkParser.FUNCTIONS.get(node.name.upper())
        arguments = [each.copy() for each in node.expressions]
        made = None if build is None else _build(build, arguments)
        if made is None:
            return node
        if isinstance(made, exp.Func) and made.error_messages(arguments):
            raise make_analysis_error(
                f"{node.name.lower()}() has too few arguments, or too many: {len(arguments)}", node
            )
        made.parent = node.parent
        return made

    def _column(self, node: exp.Column) -> TypedText:
        if isinstance(node.this, exp.Star):
            raise make_analysis_error("* cannot stand here", node)
        parts = [
            part for part in (node.args.get("catalog"), node.args.get("db"), node.args.get("table"), node.this) if part
        ]
        name = parts[0].name.lower()
        alias = self.scope.aliases.get(name)
        if alias is not None and name not in self._expanding and not self._has_column(node):
            # An alias of the select list, which Spark also knows in the list itself, in WHERE of no query.
            self._expanding.append(name)
            try:
                value = self.scalar(alias)
            finally:
                self._expanding.pop()
            fields = [part.name for part in parts[1:]]
        else:
            value, fields = self.scope.resolve(parts, node)
        for each in fields:
            value = pick_field(value, each, node)
        return value

    def _has_column(self, node: exp.Column) -> bool:
        name = node.this.name.lower() if not node.args.get("table") else node.args["table"].name.lower()
        return name in self.scope.merged or any(each.find(name) for each in self.scope.relations)

    def _literal(self, node: exp.Literal) -> TypedText:
        if node.is_string:
            return TypedText(quote_text(node.name), pa.string(), node.name)
        constant = read_number(node)
        value, dtype = constant.value, constant.type
        if dtype == INT:
            return TypedText(f"{value}::INTEGER" if value >= 0 else f"CAST({value} AS INTEGER)", INT, value)
        shown = f"{value:f}" if isinstance(value, Decimal) else str(value)
        return TypedText(f"CAST('{shown}' AS {duckdb_type(dtype)})", dtype, value)

    def _cast(self, node: exp.Cast | exp.TryCast) -> TypedText:
        inner = node.this
        value = self.scalar(inner)
        return cast_text(value, read_type(node.to), safe=node.args.get("safe") is True)

    def _junction(self, node: exp.And | exp.Or) -> TypedText:
        word = "AND" if isinstance(node, exp.And) else "OR"
        return TypedText(f"({self.condition(node.left, word)} {word} {self.condition(node.right, word)})", pa.bool_())

    def _not(self, node: exp.Not) -> TypedText:
        return TypedText(f"(NOT {self.condition(node.this, 'NOT')})", pa.bool_())

    def _is(self, node: exp.Is) -> TypedText:
        wanted = node.expression
        if isinstance(wanted, exp.Null):
            return TypedText(f"({self.scalar(node.this).sql} IS NULL)", pa.bool_())
        if isinstance(wanted, exp.Boolean):
            word = "TRUE" if wanted.this else "FALSE"
            return TypedText(f"({self.condition(node.this, 'IS')} IS {word})", pa.bool_())
        raise make_refusal("IS takes NULL, TRUE or FALSE; for other values there is <=>", node)

    def _between(self, node: exp.Between) -> TypedText:
        value = self.scalar(node.this)
        bounds = [(node.args["low"], node.args["high"])]
        if node.args.get("symmetric"):
            bounds.append((node.args["high"], node.args["low"]))
        parts = []
        for low, high in bounds:
            least = compare(exp.GTE(this=node.this.copy(), expression=low.copy()), value, self.scalar(low))
            most = compare(exp.LTE(this=node.this.copy(), expression=high.copy()), value, self.scalar(high))
            parts.append(f"({least.sql} AND {most.sql})")
        return TypedText(parts[0] if len(parts) == 1 else f"({' OR '.join(parts)})", pa.bool_())

    def _in(self, node: exp.In) -> TypedText:
        if node.args.get("query") is not None:
            return self.translate_query(node)
        if not node.expressions or node.args.get("unnest") is not None:
            raise make_refusal("IN takes a list of values or a query", node)
        if isinstance(node.this, exp.Tuple):
            parts = []
            for each in node.expressions:
                if not isinstance(each, exp.Tuple) or len(each.expressions) != len(node.this.expressions):
                    raise make_analysis_error("each element of this IN must have as many values as its left side", each)
                pairs = zip(node.this.expressions, each.expressions, strict=True)
                equal = [
                    compare(exp.EQ(this=a.copy(), expression=b.copy()), self.scalar(a), self.scalar(b))
                    for a, b in pairs
                ]
                parts.append(f"({' AND '.join(part.sql for part in equal)})")
            return TypedText(f"({' OR '.join(parts)})", pa.bool_())
        values, _dtype = unify([self.scalar(each) for each in [node.this, *node.expressions]], node, "the values of IN")
        listed = ", ".join(each.sql for each in values[1:])
        return TypedText(f"({values[0].sql} IN ({listed}))", pa.bool_())

    def _case(self, node: exp.Case) -> TypedText:
        subject = node.this
        conditions = []
        for each in node.args["ifs"]:
            if subject is None:
                conditions.append(self.condition(each.this, "WHEN"))
            else:
                pair = exp.EQ(this=subject.copy(), expression=each.this.copy())
                conditions.append(compare(pair, self.scalar(subject), self.scalar(each.this)).sql)
        branches = [each.args["true"] for each in node.args["ifs"]]
        default = node.args.get("default")
        return self._choose(conditions, branches, default, node)

    def _if(self, node: exp.If) -> TypedText:
        condition = self.condition(node.this, "if()")
        return self._choose([condition], [node.args["true"]], node.args.get("false"), node)

    def _choose(
        self, conditions: list[str], branches: list[exp.Expr], default: exp.Expr | None, node: exp.Expr
    ) -> TypedText:
        values = [self.scalar(each) for each in [*branches, *([] if default is None else [default])]]
        fitted, common = unify(values, node, "the branches")
        whens = " ".join(f"WHEN {when} THEN {then.sql}" for when, then in zip(conditions, fitted, strict=False))
        otherwise = f" ELSE {fitted[-1].sql}" if default is not None else ""
        return TypedText(f"CASE {whens}{otherwise} END", common)

    def _interval(self, node: exp.Interval) -> TypedText:
        if is_constant_interval(node):
            return write_interval(bind_interval(node))
        return count_units(node, self.scalar(node.this))

    def _bits(self, node: exp.Binary) -> TypedText:
        (left, right), dtype = unify([self.scalar(node.left), self.scalar(node.right)], node, "the sides")
        if not pa.types.is_integer(dtype):
            raise make_analysis_error("this operator takes integers", node)
        if isinstance(node, exp.BitwiseXor):
            return TypedText(f"xor({left.sql}, {right.sql})", dtype)
        return TypedText(f"({left.sql} {'&' if isinstance(node, exp.BitwiseAnd) else '|'} {right.sql})", dtype)


def is_listed(node: exp.Expr) -> bool:
    """Return whether expressions of queries may have a node, whatever is below it."""
    if isinstance(node, exp.Anonymous):
        if node.name.lower() in NAMED or node.name.lower() in WITH_LAMBDAS:
            return True
        node = ScalarText(Scope()).find_known(node)
    return type(node) in (*_OWN, *FUNCTIONS, *AGGREGATES, *WINDOW_FUNCTIONS)


def _build(build: Callable[..., exp.Expr], arguments: list[exp.Expr]) -> exp.Expr | None:
    """Return the node that sqlglot makes of a call; None if it has none for these arguments."""
    try:
        with quiet_sqlglot():
            if "dialect" in inspect.signature(build).parameters:
                return build(arguments, dialect=Dialect.get_or_raise("spark"))
            return build(arguments)
    except (SqlglotError, IndexError, AttributeError, ValueError):
        return None


def _describe(node: exp.Expr) -> str:
    if isinstance(node, exp.Func):
        return f"the function {node.sql_name().lower()}()"
    return f"{type(node).__name__} ({node.sql(dialect='spark')[:60]})"


_OWN: dict[type[exp.Expr], Callable[[ScalarText, Any], TypedText]] = {
    exp.Column: ScalarText._column,
    exp.Identifier: ScalarText._parameter,
    exp.Literal: ScalarText._literal,
    exp.Null: lambda self, node: TypedText("NULL", pa.null()),
    exp.Boolean: lambda self, node: TypedText("TRUE" if node.this else "FALSE", pa.bool_(), bool(node.this)),
    exp.Paren: lambda self, node: self.scalar(node.this),
    exp.Alias: lambda self, node: self.scalar(node.this),
    exp.Cast: ScalarText._cast,
    exp.TryCast: ScalarText._cast,
    exp.And: ScalarText._junction,
    exp.Or: ScalarText._junction,
    exp.Not: ScalarText._not,
    exp.Is: ScalarText._is,
    exp.Between: ScalarText._between,
    exp.In: ScalarText._in,
    exp.Case: ScalarText._case,
    exp.If: ScalarText._if,
    exp.Interval: ScalarText._interval,
    exp.BitwiseAnd: ScalarText._bits,
    exp.BitwiseOr: ScalarText._bits,
    exp.BitwiseXor: ScalarText._bits,
    exp.Exists: lambda self, node: self.translate_query(node),
    exp.Subquery: lambda self, node: self.translate_query(node),
    exp.HexString: lambda self, node: TypedText(f"from_hex('{_hex_of(node)}')", pa.binary()),
    **{
        kind: lambda self, node: compare(node, self.scalar(node.left), self.scalar(node.right))
        for kind in (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ)
    },
    **{
        kind: lambda self, node: compute(node, self.scalar(node.left), self.scalar(node.right))
        for kind in (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.IntDiv)
    },
}


def _hex_of(node: exp.HexString) -> str:
    text = node.name
    if not re.fullmatch(r"([0-9A-Fa-f]{2})*", text):
        raise make_analysis_error(f"X'{text}' is not pairs of hexadecimal digits", node)
    return text
