"""Aggregates of SQL: values, types, and what they say when they are refused."""

import math
import pickle
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from streamrt.errors import SQLAnalysisError, SQLError, SQLNotSupportedError
from streamrt.sql.expressions import (
    AggregateCall,
    FunctionRegistry,
    bind_aggregate,
    describe_type,
    is_aggregate,
)
from streamrt.sql.reading import parse_query
from streamrt.windows import Max
from tests.unit.test_sql_expressions import NULLS, Columns

ROWS = [
    {**NULLS, "a": a, "b": b, "c": c, "d": d, "e": e, "h": h}
    for a, b, c, d, e, h in [
        (1, 5, "b", 1.0, Decimal("1.00"), True),
        (None, 2, "a", math.nan, None, None),
        (3, 2, None, 2.5, Decimal("2.50"), False),
        (3, None, "b", -1.0, Decimal("0.01"), True),
    ]
]


def bind(text: str, functions: FunctionRegistry | None = None) -> AggregateCall:
    node = parse_query(f"SELECT {text}").expressions[0]
    assert is_aggregate(node, functions)
    return bind_aggregate(node, Columns(), functions)


def aggregate(call: AggregateCall, rows: list[dict[str, Any]]) -> Any:
    columns = [f"_{number}" for number in range(len(call.arguments))]
    aggregator = pickle.loads(pickle.dumps(call.make(columns)))
    evaluators = [argument.compile() for argument in call.arguments]
    halves = [aggregator.initialize(), aggregator.initialize()]
    for number, row in enumerate(rows):
        value = {name: run(row, None, 0, None) for name, run in zip(columns, evaluators, strict=True)}
        halves[number % 2] = aggregator.agg(halves[number % 2], value, number)
    return aggregator.result(aggregator.merge(*halves))


@pytest.mark.parametrize(
    ("text", "value", "of_nothing", "word"),
    [
        ("count(*)", 4, 0, "BIGINT"),
        ("count(a)", 3, 0, "BIGINT"),
        ("count(DISTINCT a)", 2, 0, "BIGINT"),
        ("count(DISTINCT a, b)", 2, 0, "BIGINT"),
        ("count(*) FILTER (WHERE h)", 2, 0, "BIGINT"),
        ("count_if(a > 1)", 2, 0, "BIGINT"),
        ("sum(a)", 7, None, "BIGINT"),
        ("sum(DISTINCT a)", 4, None, "BIGINT"),
        ("sum(e)", Decimal("3.51"), None, "DECIMAL(20, 2)"),
        ("sum(a) FILTER (WHERE b > 2)", 1, None, "BIGINT"),
        ("sum(a) FILTER (WHERE FALSE)", None, None, "BIGINT"),
        ("avg(a)", 7 / 3, None, "DOUBLE"),
        ("avg(e)", Decimal("1.170000"), None, "DECIMAL(14, 6)"),
        ("avg(DISTINCT a)", 2.0, None, "DOUBLE"),
        ("min(d)", -1.0, None, "DOUBLE"),
        ("max(c)", "b", None, "STRING"),
        ("every(h)", False, None, "BOOLEAN"),
        ("some(h)", True, None, "BOOLEAN"),
        ("any_value(c)", "b", None, "STRING"),
        ("max_by(a, d)", None, None, "INT"),
        ("min_by(c, e)", "b", None, "STRING"),
        ("collect_list(a)", [1, 3, 3], [], "ARRAY<INT NOT NULL>"),
        ("array_agg(DISTINCT c)", ["a", "b"], [], "ARRAY<STRING NOT NULL>"),
        ("collect_set(a)", [1, 3], [], "ARRAY<INT NOT NULL>"),
        ("listagg(c, '-') WITHIN GROUP (ORDER BY c)", "a-b-b", None, "STRING"),
        ("string_agg(DISTINCT c)", "ab", None, "STRING"),
        ("listagg(DISTINCT c, ',') WITHIN GROUP (ORDER BY c)", "a,b", None, "STRING"),
        ("stddev(a)", math.sqrt(4 / 3), None, "DOUBLE"),
        ("var_pop(a)", 8 / 9, None, "DOUBLE"),
        ("median(a)", 3.0, None, "DOUBLE"),
        ("percentile(b, 0.25)", 2.0, None, "DOUBLE"),
        ("percentile_cont(0.25) WITHIN GROUP (ORDER BY a DESC)", 3.0, None, "DOUBLE"),
        ("percentile_disc(0.25) WITHIN GROUP (ORDER BY a)", 1.0, None, "DOUBLE"),
        ("percentile_approx(e, 0.5, 10)", Decimal("1.00"), None, "DECIMAL(10, 2)"),
        ("mode(a)", 3, None, "INT"),
        ("mode() WITHIN GROUP (ORDER BY c DESC)", "b", None, "STRING"),
        ("corr(a, a)", 1.0, None, "DOUBLE"),
        ("covar_samp(a, a)", 4 / 3, None, "DOUBLE"),
        ("regr_count(a, a)", 3, 0, "BIGINT"),
        ("regr_slope(a, a)", 1.0, None, "DOUBLE"),
        ("skewness(a)", -1 / math.sqrt(2), None, "DOUBLE"),
        ("kurtosis(a)", -1.5, None, "DOUBLE"),
        ("bit_xor(a)", 1, None, "INT"),
        ("approx_count_distinct(a)", 2, 0, "BIGINT"),
    ],
)
def test_aggregates(text: str, value: Any, of_nothing: Any, word: str) -> None:
    call = bind(text)
    found = aggregate(call, ROWS)
    assert found == pytest.approx(value) if isinstance(value, float) else found == value
    assert type(found) is type(value)
    assert aggregate(call, []) == of_nothing
    assert describe_type(call.dtype) == word
    assert call.nullable is (of_nothing is None)
    assert call.retractable


def test_nan_is_highest() -> None:
    assert math.isnan(aggregate(bind("max(d)"), ROWS))
    assert math.isnan(aggregate(bind("sum(d)"), ROWS))


def test_sums_have_bounds() -> None:
    rows = [{**NULLS, "b": 2**62}, {**NULLS, "b": 2**62}]
    with pytest.raises(OverflowError, match=r"out of the range of BIGINT: sum\(\)"):
        aggregate(bind("sum(b)"), rows)
    assert aggregate(bind("avg(b)"), rows) == 2.0**62


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        ("first(a)", SQLNotSupportedError, "depends on the order of records"),
        ("last_value(a)", SQLNotSupportedError, "depends on the order of records"),
        ("skewness(DISTINCT a)", SQLNotSupportedError, r"skewness\(DISTINCT \.\.\.\) is not supported"),
        ("bit_and(d)", SQLAnalysisError, "d is DOUBLE"),
        ("percentile_disc(0.5)", SQLAnalysisError, "needs WITHIN GROUP"),
        ("percentile_cont(2) WITHIN GROUP (ORDER BY a)", SQLAnalysisError, "between 0.0 and 1.0"),
        ("sum(h)", SQLAnalysisError, "h is BOOLEAN"),
        ("max(m)", SQLNotSupportedError, "MAP"),
        ("listagg(c) WITHIN GROUP (ORDER BY a)", SQLNotSupportedError, "ordered by its own values"),
        ("count(sum(a))", SQLAnalysisError, "an aggregate cannot stand here"),
        ("sum(a) FILTER (WHERE b)", SQLAnalysisError, "FILTER needs BOOLEAN"),
    ],
)
def test_refused_aggregates(text: str, kind: type[SQLError], reason: str) -> None:
    with pytest.raises(kind, match=reason) as error:
        bind(text)
    assert error.value.line == 1


def test_what_is_no_aggregate() -> None:
    for text in ("a + sum(b)", "upper(c)", "row_number() OVER (ORDER BY a)", "sum(a) OVER ()"):
        node = parse_query(f"SELECT {text}").expressions[0]
        assert not is_aggregate(node)
    assert not is_aggregate(parse_query("SELECT sum(a) OVER ()").expressions[0].this)


def test_aggregates_of_users() -> None:
    functions = FunctionRegistry()
    functions.register("highest", lambda column: Max(column), pa.int64(), [pa.int64()], kind="aggregate")
    call = bind("highest(a)", functions)
    assert (aggregate(call, ROWS[:1]), call.retractable, str(call)) == (1, True, "highest(a)")
