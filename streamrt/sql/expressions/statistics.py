"""Aggregates of SQL that describe a distribution: spread, rank, dependence, and bits."""

from collections.abc import Callable
from typing import Any, Final

from pyarrow import types
from sqlglot import exp

from streamrt.sql.expressions.aggregate_parts import Aggregate, Parts, require_number
from streamrt.sql.expressions.calls import Call
from streamrt.sql.expressions.casts import cast_to
from streamrt.sql.expressions.coercion import BIGINT, DOUBLE, NULL, STRING, is_integral, is_numeric
from streamrt.sql.expressions.failures import make_refusal
from streamrt.sql.expressions.results import MostFrequent, NearestRank, Percentile, Statistic
from streamrt.sql.expressions.typed import TypedExpression
from streamrt.windows import CollectList, CollectSet, CountDistinct, StandardDeviation, Variance
from streamrt.windows.moments import Bits, Moments
from streamrt.windows.totals import MappedResult

__all__ = ["STATISTICS"]

_OF_PAIRS: Final = ((1, 0), (0, 1), (2, 0), (0, 2), (1, 1))
_OF_VALUES: Final = ((1, 0), (2, 0), (3, 0), (4, 0))


def _refuse_distinct(call: Call, distinct: bool) -> None:
    if distinct:
        raise make_refusal(
            f"{call.name}(DISTINCT ...) is not supported: use a subquery with SELECT DISTINCT", call.node
        )


def _bind_spread(kind: type[Variance], of: str) -> Callable[[Call, bool], Parts]:
    def bind(call: Call, distinct: bool) -> Parts:
        _refuse_distinct(call, distinct)
        return Parts((cast_to(require_number(call), DOUBLE),), DOUBLE, lambda column: kind(column, of=of))  # type: ignore[arg-type]

    return bind


def _bind_shape(call: Call, distinct: bool) -> Parts:
    _refuse_distinct(call, distinct)
    statistic = Statistic(call.name)
    return Parts(
        (cast_to(require_number(call), DOUBLE),),
        DOUBLE,
        lambda column: MappedResult(Moments(column, powers=_OF_VALUES), statistic),
    )


def _bind_pair(call: Call, distinct: bool) -> Parts:
    _refuse_distinct(call, distinct)
    arguments = tuple(_as_double(call, place) for place in (0, 1))
    if call.name == "regr_count":
        return Parts(arguments, BIGINT, lambda y, x: MappedResult(Moments(y, x, powers=()), _count_of), nullable=False)
    statistic = Statistic(call.name)
    return Parts(arguments, DOUBLE, lambda y, x: MappedResult(Moments(y, x, powers=_OF_PAIRS), statistic))


def _count_of(moments: tuple[int, Any, Any]) -> int:
    return moments[0]


def _as_double(call: Call, place: int) -> TypedExpression:
    argument = call.arguments[place]
    if argument.dtype not in (STRING, NULL) and not is_numeric(argument.dtype):
        raise call.misfit(place, "a number")
    return cast_to(argument, DOUBLE)


def _bind_bits(of: Any) -> Callable[[Call, bool], Parts]:
    def bind(call: Call, distinct: bool) -> Parts:
        _refuse_distinct(call, distinct)
        argument = call.arguments[0]
        if not is_integral(argument.dtype):
            raise call.misfit(0, "an integer")
        return Parts((argument,), argument.dtype, lambda column: Bits(column, of=of))

    return bind


def _bind_distinct_count(call: Call, distinct: bool) -> Parts:
    if len(call.arguments) > 1:
        call.constant(1, DOUBLE, "the error")
    return Parts((call.arguments[0],), BIGINT, CountDistinct, nullable=False)


def _bind_percentile(call: Call, distinct: bool) -> Parts:
    rank, descending = _read_rank(call), _is_descending(call)
    argument = cast_to(require_number(call), DOUBLE)
    finish = NearestRank if call.name == "percentile_disc" else Percentile
    return Parts((argument,), DOUBLE, _of_list(finish(rank, descending), distinct), options=(rank, descending))


def _bind_nearest(call: Call, distinct: bool) -> Parts:
    rank = _read_rank(call)
    if len(call.arguments) > 2:
        call.constant(2, BIGINT, "the accuracy")
    argument = require_number(call)
    return Parts((argument,), argument.dtype, _of_list(NearestRank(rank), distinct), options=(rank,))


def _bind_mode(call: Call, distinct: bool) -> Parts:
    _refuse_distinct(call, distinct)
    argument, descending = call.arguments[0], _is_descending(call)
    if types.is_map(argument.dtype):
        raise make_refusal("mode() cannot compare MAPs", call.node)
    return Parts((argument,), argument.dtype, _of_list(MostFrequent(descending), distinct), options=(descending,))


def _of_list(finish: Any, distinct: bool) -> Callable[[str], MappedResult]:
    kind = CollectSet if distinct else CollectList
    return lambda column: MappedResult(kind(column), finish)


def _read_rank(call: Call) -> float:
    rank = 0.5 if call.name == "median" else call.constant(1, DOUBLE, "the percentage")
    if not 0 <= rank <= 1:
        raise call.error("a percentage is between 0.0 and 1.0", 1)
    return float(rank)


def _is_descending(call: Call) -> bool:
    group = call.node.parent
    return isinstance(group, exp.WithinGroup) and bool(group.expression.expressions[0].args.get("desc"))


_VARIANCE, _DEVIATION = "variance", "standard deviation"
_GROUP: Final = "WITHIN GROUP (ORDER BY x [DESC])"
STATISTICS: Final[dict[str, Aggregate]] = {
    "stddev_samp": Aggregate(
        "stddev_samp(x)", "DOUBLE", f"{_DEVIATION} of a sample; also stddev", _bind_spread(StandardDeviation, "sample")
    ),
    "stddev_pop": Aggregate("stddev_pop(x)", "DOUBLE", _DEVIATION, _bind_spread(StandardDeviation, "population")),
    "var_samp": Aggregate(
        "var_samp(x)", "DOUBLE", f"{_VARIANCE} of a sample; also variance", _bind_spread(Variance, "sample")
    ),
    "var_pop": Aggregate("var_pop(x)", "DOUBLE", _VARIANCE, _bind_spread(Variance, "population")),
    "skewness": Aggregate("skewness(x)", "DOUBLE", "skewness; NULL of equal values", _bind_shape),
    "kurtosis": Aggregate("kurtosis(x)", "DOUBLE", "kurtosis less 3; NULL of equal values", _bind_shape),
    "corr": Aggregate("corr(y, x)", "DOUBLE", "correlation of Pearson; NULL of equal values", _bind_pair, (2, 2)),
    "covar_pop": Aggregate("covar_pop(y, x)", "DOUBLE", "covariance", _bind_pair, (2, 2)),
    "covar_samp": Aggregate("covar_samp(y, x)", "DOUBLE", "covariance of a sample", _bind_pair, (2, 2)),
    "regr_count": Aggregate("regr_count(y, x)", "BIGINT", "number of pairs without NULL", _bind_pair, (2, 2)),
    "regr_avgx": Aggregate("regr_avgx(y, x)", "DOUBLE", "mean of x of these pairs", _bind_pair, (2, 2)),
    "regr_avgy": Aggregate("regr_avgy(y, x)", "DOUBLE", "mean of y", _bind_pair, (2, 2)),
    "regr_sxx": Aggregate("regr_sxx(y, x)", "DOUBLE", "regr_count times the variance of x", _bind_pair, (2, 2)),
    "regr_syy": Aggregate("regr_syy(y, x)", "DOUBLE", "regr_count times the variance of y", _bind_pair, (2, 2)),
    "regr_sxy": Aggregate("regr_sxy(y, x)", "DOUBLE", "regr_count times the covariance", _bind_pair, (2, 2)),
    "regr_slope": Aggregate("regr_slope(y, x)", "DOUBLE", "slope of the line nearest to all pairs", _bind_pair, (2, 2)),
    "regr_intercept": Aggregate("regr_intercept(y, x)", "DOUBLE", "where this line is at x = 0", _bind_pair, (2, 2)),
    "regr_r2": Aggregate(
        "regr_r2(y, x)", "DOUBLE", "share of the variance that this line explains", _bind_pair, (2, 2)
    ),
    "bit_and": Aggregate("bit_and(x)", "type of x", "bits that all integers have", _bind_bits("and")),
    "bit_or": Aggregate("bit_or(x)", "type of x", "bits that some have", _bind_bits("or")),
    "bit_xor": Aggregate("bit_xor(x)", "type of x", "bits that an odd number has", _bind_bits("xor")),
    "median": Aggregate("median([DISTINCT] x)", "DOUBLE", "value in the middle", _bind_percentile),
    "percentile": Aggregate(
        "percentile([DISTINCT] x, percentage)",
        "DOUBLE",
        "value at a rank, between its neighbours",
        _bind_percentile,
        (2, 2),
    ),
    "percentile_cont": Aggregate(
        f"percentile_cont(percentage) {_GROUP}", "DOUBLE", "the same", _bind_percentile, (2, 2)
    ),
    "percentile_disc": Aggregate(
        f"percentile_disc(percentage) {_GROUP}",
        "DOUBLE",
        "first value up to which so many are",
        _bind_percentile,
        (2, 2),
    ),
    "percentile_approx": Aggregate(
        "percentile_approx(x, percentage[, accuracy])",
        "type of x",
        "first value up to which so many are: exact, with any accuracy; also approx_percentile",
        _bind_nearest,
        (2, 3),
    ),
    "mode": Aggregate(
        "mode(x), mode() WITHIN GROUP (ORDER BY x [DESC])",
        "type of x",
        "most frequent value; the first in order of several",
        _bind_mode,
    ),
    "approx_count_distinct": Aggregate(
        "approx_count_distinct(x[, error])",
        "BIGINT",
        "count(DISTINCT x): exact, with any error",
        _bind_distinct_count,
        (1, 2),
    ),
}
"""These aggregates, by name."""
