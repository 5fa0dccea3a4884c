"""Aggregate functions and functions of windows of Spark in DuckDB's SQL."""

from collections.abc import Callable

import pyarrow as pa
from sqlglot import exp

from streamrt.sql.expressions.coercion import STRING, average_type, describe_type, is_numeric, sum_type
from streamrt.sql.expressions.failures import make_analysis_error, make_refusal
from streamrt.sql.queries.duckdb_casts import convert_implicitly
from streamrt.sql.queries.duckdb_operators import divide_exactly, unify
from streamrt.sql.queries.duckdb_types import TypedText, duckdb_type
from streamrt.sql.queries.translation import Translation, as_double, as_text, literal_integer

__all__ = ["AGGREGATES", "WINDOW_FUNCTIONS", "aggregate", "window_function"]

_DOUBLES: dict[type[exp.Expr], str] = {
    exp.Stddev: "stddev_samp",
    exp.StddevSamp: "stddev_samp",
    exp.StddevPop: "stddev_pop",
    exp.Variance: "var_samp",
    exp.VariancePop: "var_pop",
    exp.Median: "median",
    exp.Kurtosis: "kurtosis_pop",
}
_PAIRS: dict[type[exp.Expr], str] = {
    exp.Corr: "corr",
    exp.CovarSamp: "covar_samp",
    exp.CovarPop: "covar_pop",
    exp.RegrAvgx: "regr_avgx",
    exp.RegrAvgy: "regr_avgy",
    exp.RegrIntercept: "regr_intercept",
    exp.RegrR2: "regr_r2",
    exp.RegrSlope: "regr_slope",
    exp.RegrSxx: "regr_sxx",
    exp.RegrSxy: "regr_sxy",
    exp.RegrSyy: "regr_syy",
}
_OF_EQUAL_VALUES: dict[type[exp.Expr], tuple[str, ...]] = {
    exp.Corr: ("regr_sxx", "regr_syy"),
    exp.RegrSlope: ("regr_sxx",),
    exp.RegrIntercept: ("regr_sxx",),
}
"""Sums of squares that are 0 where there is no result."""
_BITS: dict[type[exp.Expr], str] = {
    exp.BitwiseAndAgg: "bit_and",
    exp.BitwiseOrAgg: "bit_or",
    exp.BitwiseXorAgg: "bit_xor",
}
_KEEPING: dict[type[exp.Expr], str] = {
    exp.Min: "min",
    exp.Max: "max",
    exp.AnyValue: "any_value",
    exp.First: "first",
    exp.Last: "last",
}
_CONDITIONS: dict[type[exp.Expr], str] = {exp.LogicalAnd: "bool_and", exp.LogicalOr: "bool_or"}
_OTHERS: tuple[type[exp.Expr], ...] = (
    *(exp.Count, exp.Sum, exp.Avg, exp.CountIf, exp.ArgMax, exp.ArgMin, exp.ArrayAgg, exp.ArrayUniqueAgg),
    *(exp.GroupConcat, exp.Quantile, exp.ApproxQuantile, exp.PercentileCont, exp.PercentileDisc, exp.Mode),
    *(exp.Skewness, exp.ApproxDistinct, exp.RegrCount),
)
AGGREGATES: tuple[type[exp.Expr], ...] = (*_OTHERS, *_DOUBLES, *_PAIRS, *_KEEPING, *_CONDITIONS, *_BITS)
"""Aggregates of a query."""

_RANKS: dict[type[exp.Expr], str] = {exp.RowNumber: "row_number", exp.Rank: "rank", exp.DenseRank: "dense_rank"}
_SHARES: dict[type[exp.Expr], str] = {exp.PercentRank: "percent_rank", exp.CumeDist: "cume_dist"}
_PLACES: dict[type[exp.Expr], str] = {
    exp.FirstValue: "first_value",
    exp.LastValue: "last_value",
    exp.NthValue: "nth_value",
}
_NEIGHBOURS: dict[type[exp.Expr], str] = {exp.Lag: "lag", exp.Lead: "lead"}
WINDOW_FUNCTIONS: tuple[type[exp.Expr], ...] = (exp.Ntile, *_RANKS, *_SHARES, *_PLACES, *_NEIGHBOURS)
"""Functions that need OVER."""

Finish = Callable[[str], str]
"""Adds FILTER and OVER to a call."""


def aggregate(
    c: Translation, node: exp.Expr, condition: str | None, over: str, group: exp.WithinGroup | None = None
) -> TypedText:
    """Return a call of an aggregate function.

    Args:
        c: translates the arguments.
        node: the call.
        condition: that of FILTER.
        over: `OVER (...)`, or nothing.
        group: the WITHIN GROUP around the call, if there is one.
    """

    def finish(call: str, and_also: str | None = None) -> str:
        both = " AND ".join(each for each in (condition, and_also) if each is not None)
        return f"{call} FILTER (WHERE {both}){over}" if both else f"{call}{over}"

    if isinstance(node, exp.Count):
        return TypedText(finish(_count(c, node)), pa.int64())
    if group is not None:
        return _within_group(c, node, group, finish)
    distinct, argument = _take_distinct(node)
    kind = type(node)
    if isinstance(node, exp.CountIf):
        value = _boolean(c, argument, "count_if()")
        return TypedText(finish("count(*)", value.sql), pa.int64())
    if kind in _CONDITIONS:
        return TypedText(finish(f"{_CONDITIONS[kind]}({_boolean(c, argument, _CONDITIONS[kind]).sql})"), pa.bool_())
    value = c.scalar(argument)
    if kind in _KEEPING:
        return TypedText(finish(f"{_KEEPING[kind]}({value.sql})"), value.dtype)
    if isinstance(node, exp.Sum):
        return _sum(value, distinct, finish, node)
    if isinstance(node, exp.Avg):
        return _average(value, distinct, finish, node)
    if kind in _DOUBLES:
        return TypedText(finish(f"{_DOUBLES[kind]}({distinct}{as_double(value, argument).sql})"), pa.float64())
    if kind in _PAIRS:
        other = as_double(c.scalar(node.expression), node.expression)
        both = f"({as_double(value, argument).sql}, {other.sql})"
        # Without this, NaN, which is also the result of NaN.
        equal = [f"{finish(word + both)} = 0" for word in _OF_EQUAL_VALUES.get(kind, ())]
        result = finish(f"{_PAIRS[kind]}{both}")
        return TypedText(
            f"CASE WHEN {' OR '.join(equal)} THEN NULL ELSE {result} END" if equal else result, pa.float64()
        )
    if isinstance(node, exp.RegrCount):
        pair = [as_double(value, argument).sql, as_double(c.scalar(node.expression), node.expression).sql]
        return TypedText(f"CAST({finish(f'regr_count({pair[0]}, {pair[1]})')} AS BIGINT)", pa.int64())
    if kind in _BITS:
        if not pa.types.is_integer(value.dtype):
            raise make_analysis_error(
                f"{_BITS[kind]}() takes an integer, and this is a {describe_type(value.dtype)}", node
            )
        return TypedText(finish(f"{_BITS[kind]}({value.sql})"), value.dtype)
    if isinstance(node, exp.Skewness):
        return _skewness(as_double(value, argument).sql, finish)
    if isinstance(node, exp.ApproxDistinct):
        return TypedText(finish(f"count(DISTINCT {value.sql})"), pa.int64())
    if isinstance(node, exp.Mode):
        return TypedText(finish(f"mode({value.sql} ORDER BY {value.sql})"), value.dtype)
    if isinstance(node, exp.ArgMax | exp.ArgMin):
        word = "arg_max_null" if isinstance(node, exp.ArgMax) else "arg_min_null"
        order = c.scalar(node.expression)
        return TypedText(finish(f"{word}({value.sql}, {order.sql})", f"{order.sql} IS NOT NULL"), value.dtype)
    if isinstance(node, exp.ArrayAgg | exp.ArrayUniqueAgg):
        distinct = "DISTINCT " if isinstance(node, exp.ArrayUniqueAgg) else distinct
        call = finish(f"list({distinct}{value.sql})", f"{value.sql} IS NOT NULL")
        return TypedText(f"coalesce({call}, [])", pa.list_(value.dtype))
    if isinstance(node, exp.GroupConcat):
        separator = node.args.get("separator")
        between = "''" if separator is None else as_text(c.scalar(separator), separator).sql
        return TypedText(finish(f"string_agg({distinct}{as_text(value, argument).sql}, {between})"), pa.string())
    if isinstance(node, exp.ApproxQuantile):
        number, share = _as_summand(value, node), c.scalar(node.args["quantile"])
        return TypedText(finish(f"quantile_disc({distinct}{number.sql}, {share.sql}::DOUBLE)"), number.dtype)
    if isinstance(node, exp.Quantile):
        share = c.scalar(node.args["quantile"])
        return TypedText(finish(f"quantile_cont({as_double(value, argument).sql}, {share.sql})"), pa.float64())
    raise make_refusal(f"{kind.__name__} is not an aggregate of a query", node)


def _within_group(c: Translation, node: exp.Expr, group: exp.WithinGroup, finish: Finish) -> TypedText:
    """Return a percentile, or the most frequent value, of what WITHIN GROUP orders."""
    ordered = group.expression.expressions
    if len(ordered) != 1:
        raise make_analysis_error("WITHIN GROUP orders one value here", node)
    value = c.scalar(ordered[0].this)
    falls = bool(ordered[0].args.get("desc"))
    if isinstance(node, exp.Mode):
        return TypedText(finish(f"mode({value.sql} ORDER BY {value.sql}{' DESC' if falls else ''})"), value.dtype)
    if not isinstance(node, exp.PercentileCont | exp.PercentileDisc):
        raise make_analysis_error("WITHIN GROUP has no meaning for this function", node)
    word = "percentile_cont" if isinstance(node, exp.PercentileCont) else "percentile_disc"
    number, share = as_double(value, ordered[0].this).sql, c.scalar(node.this).sql
    order = f"ORDER BY {number}{' DESC' if falls else ''}"
    return TypedText(finish(f"{word}({share}::DOUBLE) WITHIN GROUP ({order})"), pa.float64())


def _skewness(number: str, finish: Finish) -> TypedText:
    """Return the skewness of all values, from DuckDB's, which is of a sample."""
    count, spread = (finish(f"{word}({number})") for word in ("count", "var_pop"))
    of_sample = f"{finish(f'skewness({number})')} * ({count} - 2) / sqrt({count} * ({count} - 1.0))"
    return TypedText(
        f"CASE WHEN {spread} = 0 THEN NULL WHEN {count} = 2 THEN 0.0 WHEN {count} > 2 THEN {of_sample} END",
        pa.float64(),
    )


def _take_distinct(node: exp.Expr) -> tuple[str, exp.Expr]:
    argument = node.this
    if isinstance(argument, exp.Distinct):
        if len(argument.expressions) != 1:
            raise make_analysis_error("DISTINCT of several columns is for count() only", node)
        return "DISTINCT ", argument.expressions[0]
    if not isinstance(argument, exp.Expr):
        raise make_analysis_error("this function needs an argument", node)
    if isinstance(argument, exp.IgnoreNulls | exp.RespectNulls | exp.Order | exp.Limit | exp.HavingMax):
        raise make_refusal("an aggregate of a query has no ORDER BY, LIMIT or IGNORE NULLS in its parentheses", node)
    return "", argument


def _count(c: Translation, node: exp.Count) -> str:
    if node.this is None or isinstance(node.this, exp.Star):
        return "count(*)"
    if isinstance(node.this, exp.Distinct):
        values = [c.scalar(each) for each in node.this.expressions]
        if len(values) == 1:
            return f"count(DISTINCT {values[0].sql})"
        # Rows with a NULL do not count, which is not so of rows of DuckDB.
        known = " AND ".join(f"{each.sql} IS NOT NULL" for each in values)
        return f"count(DISTINCT CASE WHEN {known} THEN row({', '.join(each.sql for each in values)}) END)"
    values = [c.scalar(each) for each in [node.this, *node.expressions]]
    if len(values) == 1:
        return f"count({values[0].sql})"
    known = " AND ".join(f"{each.sql} IS NOT NULL" for each in values)
    return f"count(CASE WHEN {known} THEN 1 END)"


def _boolean(c: Translation, node: exp.Expr, what: str) -> TypedText:
    value = c.scalar(node)
    if value.dtype not in (pa.bool_(), pa.null()):
        raise make_analysis_error(f"{what} takes a condition, and this is a {describe_type(value.dtype)}", node)
    return convert_implicitly(value, pa.bool_())


def _as_summand(value: TypedText, node: exp.Expr) -> TypedText:
    if value.dtype == STRING or value.dtype == pa.null():
        return convert_implicitly(value, pa.float64())
    if not is_numeric(value.dtype):
        raise make_analysis_error(f"sum() and avg() take numbers, and this is a {describe_type(value.dtype)}", node)
    return value


def _sum(value: TypedText, distinct: str, finish: Finish, node: exp.Expr) -> TypedText:
    value = _as_summand(value, node)
    dtype = sum_type(value.dtype)
    summed = value.sql if not pa.types.is_floating(value.dtype) else f"{value.sql}::DOUBLE"
    return TypedText(f"CAST({finish(f'sum({distinct}{summed})')} AS {duckdb_type(dtype)})", dtype)


def _average(value: TypedText, distinct: str, finish: Finish, node: exp.Expr) -> TypedText:
    value = _as_summand(value, node)
    if not pa.types.is_decimal(value.dtype):
        return TypedText(finish(f"avg({distinct}{value.sql}::DOUBLE)"), pa.float64())
    total = _sum(value, distinct, finish, node)
    counted = finish(f"count({distinct}{value.sql})")
    # NULL, and not a division by zero, of no rows.
    count = TypedText(f"nullif({counted}, 0)", pa.int64())
    return divide_exactly(total, count, total.dtype, pa.decimal128(20, 0), average_type(value.dtype))


def window_function(c: Translation, node: exp.Expr, over: str) -> TypedText:
    """Return a call of a function of windows.

    Args:
        c: translates the arguments.
        node: the call, in IGNORE NULLS or not.
        over: `OVER (...)`.
    """
    nulls = ""
    if isinstance(node, exp.IgnoreNulls | exp.RespectNulls):
        nulls = " IGNORE NULLS" if isinstance(node, exp.IgnoreNulls) else ""
        node = node.this
    kind = type(node)
    if kind in _RANKS:
        return TypedText(f"CAST({_RANKS[kind]}(){over} AS INTEGER)", pa.int32())
    if kind in _SHARES:
        return TypedText(f"{_SHARES[kind]}(){over}", pa.float64())
    if isinstance(node, exp.Ntile):
        count = literal_integer(c.scalar(node.this), node, "the number of ntile()")
        return TypedText(f"CAST(ntile({count}){over} AS INTEGER)", pa.int32())
    value = c.scalar(node.this)
    if kind in _NEIGHBOURS:
        offset = node.args.get("offset")
        distance = 1 if offset is None else literal_integer(c.scalar(offset), node, "the distance of lag() and lead()")
        default = node.args.get("default")
        rest = f", {distance}"
        if default is not None:
            (value, other), _dtype = unify([value, c.scalar(default)], node, "the arguments of lag() and lead()")
            rest += f", {other.sql}"
        return TypedText(f"{_NEIGHBOURS[kind]}({value.sql}{rest}{nulls}){over}", value.dtype)
    if kind in _PLACES:
        rest = ""
        if isinstance(node, exp.NthValue):
            rest = f", {literal_integer(c.scalar(node.args['offset']), node, 'the number of nth_value()')}"
        return TypedText(f"{_PLACES[kind]}({value.sql}{rest}{nulls}){over}", value.dtype)
    raise make_refusal(f"{kind.__name__} is not a function of windows of a query", node)
