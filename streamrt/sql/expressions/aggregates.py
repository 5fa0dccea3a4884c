"""`bind_aggregate`: aggregates of SQL, on the aggregators of windows and tables."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from pyarrow import types
from sqlglot import exp

from streamrt.errors import InvalidOperationError
from streamrt.sql.expressions.aggregate_parts import Aggregate, Make, Parts, require_number
from streamrt.sql.expressions.calls import Call, FunctionCall
from streamrt.sql.expressions.coercion import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    FLOAT,
    STRING,
    average_type,
    describe_type,
    is_binary,
    is_integral,
    sum_type,
)
from streamrt.sql.expressions.failures import make_analysis_error, make_refusal
from streamrt.sql.expressions.functions.refused import reason_of
from streamrt.sql.expressions.logic import Case
from streamrt.sql.expressions.nodes import Constant, fold_constants
from streamrt.sql.expressions.operators import require_boolean
from streamrt.sql.expressions.results import (
    AsFloat,
    AsMean,
    Chain,
    FitBigint,
    FitDecimal,
    JoinTexts,
    SumOfList,
)
from streamrt.sql.expressions.scalars import bind_scalar
from streamrt.sql.expressions.statistics import STATISTICS
from streamrt.sql.expressions.typed import Scope, TypedExpression
from streamrt.sql.expressions.user_functions import FunctionRegistry, UserFunction
from streamrt.windows import (
    Aggregator,
    AnyValue,
    BoolAnd,
    BoolOr,
    CollectList,
    CollectSet,
    Count,
    CountDistinct,
    Max,
    MaxBy,
    Mean,
    Min,
    MinBy,
    Total,
)
from streamrt.windows.retraction import retracting_fold_of
from streamrt.windows.totals import MappedResult

__all__ = ["AGGREGATES", "AggregateCall", "bind_aggregate", "is_aggregate"]


@dataclass(frozen=True)
class AggregateCall:
    """An aggregate, ready to be computed over columns.

    Attributes:
        name: its name in SQL.
        arguments: what is aggregated: columns of its values are given to `make`, in this order. FILTER and DISTINCT are in
            them, or in what `make` makes.
        dtype: type of the result.
        nullable: whether the result may be NULL.
        distinct: whether equal values count once.
        text: the call, in words of SQL.
        options: what else decides about the result, such as the rank of a percentile.
    """

    name: str
    arguments: tuple[TypedExpression, ...]
    dtype: pa.DataType
    nullable: bool
    distinct: bool
    text: str
    _make: Make = field(compare=False, repr=False)
    options: tuple[Any, ...] = ()

    def make(self, columns: Sequence[str]) -> Aggregator:
        """Return the aggregator of columns that have the values of the arguments.

        Args:
            columns: their names, one for each argument.
        """
        return self._make(*columns)

    @property
    def retractable(self) -> bool:
        """Whether values may be taken back, as over tables whose rows change."""
        try:
            retracting_fold_of(self.name, self.make([f"_{number}" for number in range(len(self.arguments))]))
        except InvalidOperationError:
            return False
        return True

    def __str__(self) -> str:
        return self.text


def is_aggregate(node: exp.Expr, functions: FunctionRegistry | None = None) -> bool:
    """Return whether a node is the call of an aggregate, with its FILTER or WITHIN GROUP if it has one.

    Aggregates with OVER, and functions of windows such as ROW_NUMBER, are not.
    """
    if isinstance(node, exp.Filter | exp.WithinGroup):
        return is_aggregate(node.this, functions)
    if isinstance(node.parent, exp.Window) and node.arg_key == "this":
        return False
    name = _name_of(node)
    if name is None:
        return False
    if name in AGGREGATES or name in _REFUSED:
        return True
    user = None if functions is None else functions.find(name)
    return user is not None and user.kind == "aggregate"


def bind_aggregate(node: exp.Expr, scope: Scope, functions: FunctionRegistry | None = None) -> AggregateCall:
    """Return an aggregate: a call such as `sum(DISTINCT x) FILTER (WHERE y > 0)`.

    Args:
        node: the call, for which `is_aggregate` is true.
        scope: what names in its arguments mean.
        functions: those of users.

    Raises:
        SQLAnalysisError: if arguments do not fit.
        SQLNotSupportedError: if the aggregate is refused.
    """
    return _AggregateBinder(node, scope, functions or FunctionRegistry()).bind()


def _name_of(node: exp.Expr) -> str | None:
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower()
    return _NAMES.get(type(node))


class _AggregateBinder:
    """Binds one call."""

    def __init__(self, node: exp.Expr, scope: Scope, functions: FunctionRegistry) -> None:
        self._whole = node
        self._scope = scope
        self._functions = functions
        self._where: TypedExpression | None = None
        self._order: exp.Order | None = None
        while isinstance(node, exp.Filter | exp.WithinGroup):
            if isinstance(node, exp.Filter):
                condition = node.expression.this
                self._where = require_boolean(self._bind(condition), condition, "FILTER")
            else:
                self._order = node.expression
            node = node.this
        self._node = node
        self._name = _name_of(node) or ""

    def bind(self) -> AggregateCall:
        if self._name in _REFUSED:
            raise make_refusal(_REFUSED[self._name], self._node)
        user = self._functions.find(self._name)
        if user is not None:
            return self._bind_user_function(user)
        define = AGGREGATES.get(self._name)
        if define is None:
            raise make_refusal(reason_of(self._name) or f"{self._name}() is not supported as an aggregate", self._node)
        nodes, distinct = self._read_arguments()
        if self._order is not None and self._name not in _ORDERED:
            raise make_refusal(f"WITHIN GROUP has no meaning for {self._name}()", self._whole)
        arguments = tuple(self._bind(node) for node in nodes)
        call = Call(self._name, self._node, arguments, tuple(nodes))
        least, most = define.counts
        if not least <= len(nodes) <= most:
            raise make_analysis_error(
                f"the aggregate is called as {define.usage}, and {len(nodes)} arguments are given", self._node
            )
        parts = define.bind(call, distinct)
        made = tuple(self._filter(part) for part in parts.arguments)
        if not made and self._where is not None:
            made = (Case(((self._where, Constant(True, BOOLEAN)),), Constant(None, BOOLEAN), BOOLEAN),)
        return AggregateCall(
            self._name,
            made,
            parts.dtype,
            parts.nullable,
            distinct,
            self._text(arguments, distinct),
            parts.make,
            parts.options,
        )

    def _bind(self, node: exp.Expr) -> TypedExpression:
        return bind_scalar(node, self._scope, self._functions)

    def _read_arguments(self) -> tuple[list[exp.Expr], bool]:
        node = self._node
        nodes: list[exp.Expr] = []
        distinct = False
        for name in node.arg_types:
            value = node.args.get(name)
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, exp.Distinct):
                    distinct = True
                    nodes += each.expressions
                elif isinstance(each, exp.Order):
                    self._order = each
                    distinct = distinct or isinstance(each.this, exp.Distinct)
                    nodes += each.this.expressions if isinstance(each.this, exp.Distinct) else [each.this]
                elif isinstance(each, exp.Expr) and not isinstance(each, exp.Star):
                    nodes.append(each)
        if self._name == "listagg":
            nodes = self._read_listagg(nodes)
        elif self._name in _ORDERED:
            nodes = self._read_group(nodes)
        return nodes, distinct

    def _read_group(self, nodes: list[exp.Expr]) -> list[exp.Expr]:
        """Return the arguments, of which the first one is the value that WITHIN GROUP orders."""
        if self._order is None:
            if self._name == "mode":
                return nodes
            raise make_analysis_error(f"{self._name}(0.5) needs WITHIN GROUP (ORDER BY x)", self._node)
        if len(self._order.expressions) != 1 or (self._name == "mode" and nodes):
            raise make_analysis_error(f"{self._name}() is of the one value in WITHIN GROUP (ORDER BY x)", self._whole)
        return [self._order.expressions[0].this, *nodes]

    def _read_listagg(self, nodes: list[exp.Expr]) -> list[exp.Expr]:
        """Check the order of a list: it may be that of its values."""
        if self._order is None:
            return nodes
        ordered = self._order.expressions
        if len(ordered) != 1 or ordered[0].args.get("desc") or ordered[0].this != nodes[0]:
            raise make_refusal(
                "listagg() is ordered by its own values, ascending; collect_list and a query order otherwise",
                self._order,
            )
        return nodes

    def _filter(self, argument: TypedExpression) -> TypedExpression:
        if self._where is None:
            return argument
        return Case(((self._where, argument),), Constant(None, argument.dtype), argument.dtype)

    def _text(self, arguments: Sequence[TypedExpression], distinct: bool) -> str:
        shown = ", ".join(map(str, arguments)) or "*"
        filtered = "" if self._where is None else f" FILTER (WHERE {self._where})"
        return f"{self._name}({'DISTINCT ' if distinct else ''}{shown}){filtered}"

    def _bind_user_function(self, user: UserFunction) -> AggregateCall:
        if user.kind != "aggregate":
            raise make_analysis_error(f"{user.name} is a function of kind {user.kind}, not an aggregate", self._node)
        nodes = list(self._node.expressions)
        arguments = tuple(self._bind(node) for node in nodes)
        cast = user.cast_arguments(Call(user.name, self._node, arguments, tuple(nodes)))
        if self._where is None:
            return AggregateCall(
                user.name, cast, user.returns, True, False, self._text(arguments, False), user.function
            )
        raise make_refusal(
            f"FILTER of the aggregate {user.name} is not supported: write CASE WHEN condition THEN a END as its argument",
            self._whole,
        )


def _bind_count(call: Call, distinct: bool) -> Parts:
    is_known = all(isinstance(each, Constant) and each.value is not None for each in call.arguments)
    if not call.arguments or (is_known and not distinct):
        return Parts((), BIGINT, Count, nullable=False)
    argument = call.arguments[0]
    if len(call.arguments) > 1:
        # Rows with NULL do not count.
        dtype = pa.list_(pa.field("item", STRING))
        argument = FunctionCall("row", _make_list, call.arguments, dtype)
    return Parts((argument,), BIGINT, CountDistinct if distinct else Count, nullable=False)


def _make_list(*values: Any) -> list[Any]:
    return list(values)


def _bind_sum(call: Call, distinct: bool) -> Parts:
    argument = require_number(call)
    dtype: pa.DataType = argument.dtype
    result = sum_type(dtype)
    fit: FitBigint | FitDecimal | AsFloat = AsFloat()
    if is_integral(dtype):
        fit = FitBigint(call.name)
    elif types.is_decimal128(dtype):
        fit = FitDecimal(call.name, result.precision, result.scale)
    return Parts((argument,), result, _total(SumOfList(), Total, fit, distinct))


def _bind_avg(call: Call, distinct: bool) -> Parts:
    argument = require_number(call)
    result = average_type(argument.dtype)
    is_decimal = types.is_decimal128(result)
    fit = FitDecimal(call.name, result.precision, result.scale) if is_decimal else AsFloat()
    return Parts((argument,), result, _total(AsMean(), Mean, fit, distinct))


def _total(of_list: Any, kind: Callable[[str], Aggregator], fit: Any, distinct: bool) -> Make:
    if distinct:
        return lambda column: MappedResult(CollectSet(column), Chain(of_list, fit))
    return lambda column: MappedResult(kind(column), fit)


def _bind_extreme(kind: type[Min] | type[Max]) -> Callable[[Call, bool], Parts]:
    def bind(call: Call, distinct: bool) -> Parts:
        argument = call.arguments[0]
        if types.is_nested(argument.dtype):
            raise make_refusal(
                f"{call.name}() of {describe_type(argument.dtype)} is not supported; compare a field, or use {call.name}_by",
                call.node,
            )
        if argument.dtype in (FLOAT, DOUBLE):
            return Parts((argument,), argument.dtype, lambda column: kind(column, nan="highest"))
        return Parts((argument,), argument.dtype, kind)

    return bind


def _bind_extreme_by(kind: type[MinBy] | type[MaxBy]) -> Callable[[Call, bool], Parts]:
    def bind(call: Call, distinct: bool) -> Parts:
        value, by = call.arguments
        if types.is_nested(by.dtype):
            raise make_refusal(f"{call.name}() compares no {describe_type(by.dtype)}", call.node)
        if by.dtype in (FLOAT, DOUBLE):
            return Parts((value, by), value.dtype, lambda column, other: kind(column, other, nan="highest"))
        return Parts((value, by), value.dtype, kind)

    return bind


def _bind_bool(kind: type[BoolAnd] | type[BoolOr]) -> Callable[[Call, bool], Parts]:
    def bind(call: Call, distinct: bool) -> Parts:
        return Parts((require_boolean(call.arguments[0], call.nodes[0], f"{call.name}()"),), BOOLEAN, kind)

    return bind


def _bind_any(call: Call, distinct: bool) -> Parts:
    return Parts((call.arguments[0],), call.arguments[0].dtype, AnyValue)


def _bind_count_if(call: Call, distinct: bool) -> Parts:
    condition = require_boolean(call.arguments[0], call.nodes[0], "count_if()")
    counted = Case(((condition, Constant(True, BOOLEAN)),), Constant(None, BOOLEAN), BOOLEAN)
    return Parts((fold_constants(counted),), BIGINT, Count, nullable=False)


def _bind_list(call: Call, distinct: bool) -> Parts:
    argument = call.arguments[0]
    dtype = pa.list_(pa.field("item", argument.dtype, nullable=False))
    return Parts((argument,), dtype, CollectSet if distinct else CollectList, nullable=False)


def _bind_set(call: Call, distinct: bool) -> Parts:
    argument = call.arguments[0]
    if types.is_map(argument.dtype):
        raise make_refusal("collect_set() cannot compare MAPs", call.node)
    return Parts((argument,), pa.list_(pa.field("item", argument.dtype, nullable=False)), CollectSet, nullable=False)


def _bind_listagg(call: Call, distinct: bool) -> Parts:
    argument = call.arguments[0]
    kind = CollectSet if distinct else CollectList
    if is_binary(argument.dtype):
        separator: Any = call.constant(1, pa.binary(), "the separator") if len(call.arguments) > 1 else b""
        return Parts(
            (argument,),
            pa.binary(),
            lambda column: MappedResult(kind(column), JoinTexts(separator)),
            options=(separator,),
        )
    separator = call.constant(1, STRING, "the separator") if len(call.arguments) > 1 else ""
    text = call.cast(0, STRING)
    return Parts((text,), STRING, lambda column: MappedResult(kind(column), JoinTexts(separator)), options=(separator,))


_ORDERED: Final = ("listagg", "percentile_cont", "percentile_disc", "mode")
AGGREGATES: Final[dict[str, Aggregate]] = {
    "count": Aggregate(
        "count(*), count(x), count(DISTINCT x[, y])",
        "BIGINT",
        "number of rows, or of those without NULL",
        _bind_count,
        (0, 50),
    ),
    "count_if": Aggregate("count_if(condition)", "BIGINT", "number of rows for which it is TRUE", _bind_count_if),
    "sum": Aggregate("sum([DISTINCT] x)", "BIGINT, DOUBLE or DECIMAL", "sum; NULL without values", _bind_sum),
    "avg": Aggregate("avg([DISTINCT] x)", "DOUBLE or DECIMAL", "mean", _bind_avg),
    "min": Aggregate("min(x)", "type of x", "lowest value", _bind_extreme(Min)),
    "max": Aggregate("max(x)", "type of x", "highest value; NaN is highest", _bind_extreme(Max)),
    "min_by": Aggregate("min_by(x, y)", "type of x", "x where y is lowest", _bind_extreme_by(MinBy), (2, 2)),
    "max_by": Aggregate("max_by(x, y)", "type of x", "x where y is highest", _bind_extreme_by(MaxBy), (2, 2)),
    "bool_and": Aggregate("bool_and(condition)", "BOOLEAN", "whether all are TRUE; also every", _bind_bool(BoolAnd)),
    "bool_or": Aggregate("bool_or(condition)", "BOOLEAN", "whether one is TRUE; also some", _bind_bool(BoolOr)),
    "any_value": Aggregate("any_value(x)", "type of x", "one of the values", _bind_any),
    "collect_list": Aggregate(
        "collect_list([DISTINCT] x)", "ARRAY", "values in their order; also array_agg", _bind_list
    ),
    "collect_set": Aggregate("collect_set(x)", "ARRAY", "different values in their order", _bind_set),
    "listagg": Aggregate(
        "listagg([DISTINCT] x[, separator])",
        "STRING",
        "strings in their order, joined; also string_agg",
        _bind_listagg,
        (1, 2),
    ),
    **STATISTICS,
}
"""The aggregates, by name."""

_NAMES: Final[dict[type, str]] = {
    exp.Count: "count",
    exp.CountIf: "count_if",
    exp.Sum: "sum",
    exp.Avg: "avg",
    exp.Min: "min",
    exp.Max: "max",
    exp.ArgMin: "min_by",
    exp.ArgMax: "max_by",
    exp.LogicalAnd: "bool_and",
    exp.LogicalOr: "bool_or",
    exp.AnyValue: "any_value",
    exp.ArrayAgg: "collect_list",
    exp.ArrayUniqueAgg: "collect_set",
    exp.GroupConcat: "listagg",
    exp.Stddev: "stddev_samp",
    exp.StddevSamp: "stddev_samp",
    exp.StddevPop: "stddev_pop",
    exp.Variance: "var_samp",
    exp.VariancePop: "var_pop",
    exp.Median: "median",
    exp.Quantile: "percentile",
    exp.PercentileCont: "percentile_cont",
    exp.ApproxDistinct: "approx_count_distinct",
    exp.First: "first",
    exp.FirstValue: "first",
    exp.Last: "last",
    exp.LastValue: "last",
    exp.Corr: "corr",
    exp.CovarPop: "covar_pop",
    exp.CovarSamp: "covar_samp",
    exp.RegrAvgx: "regr_avgx",
    exp.RegrAvgy: "regr_avgy",
    exp.RegrCount: "regr_count",
    exp.RegrIntercept: "regr_intercept",
    exp.RegrR2: "regr_r2",
    exp.RegrSlope: "regr_slope",
    exp.RegrSxx: "regr_sxx",
    exp.RegrSxy: "regr_sxy",
    exp.RegrSyy: "regr_syy",
    exp.Mode: "mode",
    exp.PercentileDisc: "percentile_disc",
    exp.ApproxQuantile: "percentile_approx",
    exp.Skewness: "skewness",
    exp.Kurtosis: "kurtosis",
    exp.BitwiseAndAgg: "bit_and",
    exp.BitwiseOrAgg: "bit_or",
    exp.BitwiseXorAgg: "bit_xor",
}
_REFUSED: Final = {name: reason_of(name) or "" for name in ("first", "last")}
