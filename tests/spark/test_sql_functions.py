"""Scalar functions, operators and aggregates of SQL are those of Spark SQL in ANSI mode: values, types, and what fails."""

import datetime
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyarrow import types

from streamrt.sql.expressions import ColumnReference, TypedExpression, bind_aggregate, bind_scalar, describe_type
from streamrt.sql.reading import parse_query
from tests.spark_sql import SparkSQL, SparkSQLError
from tests.sql_expressions import Columns, list_cases, make_rows, make_table
from tests.sql_trees import make_tree
from tests.sql_types import COMMON_TYPES, cast_nulls
from tests.support import LONG

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SEED = random.SystemRandom().randrange(10**6) if LONG else 1
ROWS = make_rows(SEED, 1_000)
_IN_BATCH = 60
# Spark has a time zone in these results, which its TIMESTAMP has, and ours has not.
_WITHOUT_ZONE = ("date_trunc(", "f + interval 2 hours", "timestampadd(day, n, f)")

AGGREGATES = """
count(*)
count(i)
count(distinct i)
count(distinct v, h)
count(*) filter (where h)
count_if(i > 0)
sum(n)
sum(t)
sum(p)
sum(u)
sum(distinct n)
sum(n) filter (where h)
sum(d) filter (where abs(d) < 1000)
avg(n)
avg(p)
avg(u)
avg(distinct n)
min(i)
max(i)
min(d)
max(d)
min(v)
max(v)
min(f)
max(m)
min(p)
max(h)
bool_and(h)
every(hh)
bool_or(h)
some(h)
max_by(id, id)
min_by(v, id)
max_by(d, d)
stddev(n)
stddev_samp(n)
stddev_pop(p)
var_samp(n)
var_pop(u)
variance(n)
sort_array(collect_list(n))
sort_array(collect_set(v))
sort_array(array_agg(h))
median(n)
percentile(n, 0.25)
percentile(p, 0.9)
percentile_cont(0.3) within group (order by n)
percentile_cont(0.3) within group (order by n desc)
percentile_disc(0.3) within group (order by n)
percentile_disc(0.3) within group (order by n desc)
percentile_approx(n, 0.4)
approx_percentile(id, 0.25, 1000000)
mode() within group (order by n)
mode() within group (order by n desc)
corr(n, id)
covar_pop(n, id)
covar_samp(n, p)
regr_count(n, p)
regr_avgx(n, id)
regr_avgy(n, id)
regr_sxx(n, id)
regr_syy(n, id)
regr_sxy(n, id)
regr_slope(n, id)
regr_intercept(n, id)
regr_r2(n, id)
skewness(n)
kurtosis(n)
bit_and(id)
bit_or(n)
bit_xor(n)
bit_xor(id) filter (where h)
listagg(distinct k, ',') within group (order by k)
string_agg(v, '-') within group (order by v)
"""


class Outcome(NamedTuple):
    """What an expression gives for each row, and which rows fail."""

    expression: TypedExpression
    values: list[Any]
    failures: dict[int, str]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSQL]:
    with SparkSQL() as process:
        process.create_view("t", make_table(ROWS))
        yield process


def evaluate(case: str, rows: Sequence[Mapping[str, Any]]) -> Outcome:
    """Compute an expression for each row; only errors with a rule are failures."""
    expression = bind_scalar(parse_query(f"SELECT {case}").expressions[0], Columns())
    run = expression.compile()
    values, failures = [], {}
    for number, row in enumerate(rows):
        try:
            values.append(run(row, None, 0, None))
        except (ValueError, ArithmeticError) as error:
            values.append(None)
            failures[number] = str(error)
    return Outcome(expression, values, failures)


def find_differences(spark: SparkSQL, outcomes: dict[str, Outcome], *, lenient: bool = False) -> list[str]:
    """Compare the values of rows that do not fail, many expressions in one query.

    Args:
        spark: the process.
        outcomes: results of expressions.
        lenient: whether Spark may fail where we do not.
    """
    selected = ", ".join(f"{_guard(case, outcome)} AS r{n}" for n, (case, outcome) in enumerate(outcomes.items()))
    try:
        table = spark.query(f"SELECT id, {selected} FROM t")
    except SparkSQLError as error:
        if len(outcomes) == 1:
            return [] if lenient else [f"{next(iter(outcomes))}: Spark fails: {error}"]
        items = list(outcomes.items())
        half = len(items) // 2
        return [
            *find_differences(spark, dict(items[:half]), lenient=lenient),
            *find_differences(spark, dict(items[half:]), lenient=lenient),
        ]
    ids, differences = table.column(0).to_pylist(), []
    for number, (case, outcome) in enumerate(outcomes.items()):
        column = table.column(number + 1)
        zoned = case.startswith(_WITHOUT_ZONE)
        ours, theirs = _plain_type(outcome.expression.dtype, zoned), _plain_type(column.type, zoned)
        if ours != theirs and theirs != pa.null():
            differences.append(f"{case}: type {describe_type(outcome.expression.dtype)}, and Spark has {column.type}")
        for place, value in zip(ids, column.to_pylist(), strict=True):
            if place not in outcome.failures and not _is_same(outcome.values[place], value, outcome.expression.dtype):
                differences.append(
                    f"{case}: {outcome.values[place]!r}, and Spark has {value!r}, in row {place} of {SEED}"
                )
                break
    return differences


def _guard(case: str, outcome: Outcome) -> str:
    failing = ", ".join(map(str, outcome.failures))
    return f"CASE WHEN id IN ({failing}) THEN NULL ELSE {case} END" if failing else case


def _plain_type(dtype: pa.DataType, zoned: bool) -> Any:
    if types.is_list(dtype) or types.is_large_list(dtype):
        return "list", _plain_type(dtype.value_type, zoned)
    if types.is_struct(dtype):
        return "struct", tuple((field.name, _plain_type(field.type, zoned)) for field in dtype)
    if types.is_map(dtype):
        return "map", _plain_type(dtype.key_type, zoned), _plain_type(dtype.item_type, zoned)
    if types.is_duration(dtype) or (zoned and types.is_timestamp(dtype)):
        return str(dtype)[:4]
    return dtype


def _is_same(ours: Any, theirs: Any, dtype: pa.DataType) -> bool:
    if ours is None or theirs is None:
        return ours is theirs
    if types.is_list(dtype):
        return len(ours) == len(theirs) and all(map(lambda a, b: _is_same(a, b, dtype.value_type), ours, theirs))
    if types.is_map(dtype):
        pairs = dict(theirs)
        return bool(ours.keys() == pairs.keys()) and all(
            _is_same(ours[key], pairs[key], dtype.item_type) for key in ours
        )
    if types.is_struct(dtype):
        return all(_is_same(ours[field.name], theirs[field.name], field.type) for field in dtype)
    if isinstance(ours, float):
        if math.isnan(ours) or ours == 0:
            return str(ours) == str(theirs)
        # Functions such as sin differ in the last digit between Java and C.
        return math.isclose(ours, theirs, rel_tol=1e-14)
    if isinstance(ours, datetime.datetime):
        return bool(ours.replace(tzinfo=None) == theirs.replace(tzinfo=None))
    return bool(ours == theirs) and str(ours) == str(theirs)


def _batches(cases: Sequence[str]) -> Iterator[dict[str, Outcome]]:
    for first in range(0, len(cases), _IN_BATCH):
        yield {case: evaluate(case, ROWS) for case in cases[first : first + _IN_BATCH]}


def test_functions_and_operators(spark: SparkSQL) -> None:
    """Ordinary runs take some of the expressions, with all rows; long ones take all."""
    cases = list_cases() if LONG else list_cases()[::8]
    differences = [difference for batch in _batches(cases) for difference in find_differences(spark, batch)]
    assert differences == []


def test_common_types(spark: SparkSQL) -> None:
    known = {types: common for types, common in COMMON_TYPES.items() if common is not None}
    selected = ", ".join(f"typeof({cast_nulls(types)}) AS r{number}" for number, types in enumerate(known))
    assert list(spark.query(f"SELECT {selected}").to_pylist()[0].values()) == list(known.values())
    for types_ in COMMON_TYPES.keys() - known.keys():
        with pytest.raises(SparkSQLError, match="DATATYPE_MISMATCH"):
            spark.query(f"SELECT {cast_nulls(types_)} AS r")


def test_what_fails(spark: SparkSQL) -> None:
    """For one of the rows for which an expression fails here, it fails in Spark."""
    cases = list_cases() if LONG else list_cases()[::40]
    accepted = []
    for case in cases:
        failures = evaluate(case, ROWS[:200]).failures
        if failures:
            place = next(iter(failures))
            try:
                found = spark.query(f"SELECT {case} AS r FROM t WHERE id = {place}").column(0).to_pylist()
                accepted.append(f"{case}: {failures[place]}; Spark has {found} in row {place} of {SEED}")
            except SparkSQLError:
                pass
    assert accepted == []


def test_aggregates(spark: SparkSQL) -> None:
    cases = AGGREGATES.strip().splitlines()
    # Spark cannot plan several of these in one query.
    single = [case for case in cases if "distinct" in case or "group" in case]
    together = [case for case in cases if case not in single]
    expected = {case: spark.query(f"SELECT {case} AS r FROM t").column(0) for case in single}
    selected = ", ".join(f"{case} AS r{number}" for number, case in enumerate(together))
    expected.update(zip(together, spark.query(f"SELECT {selected} FROM t").columns, strict=True))
    for case, column in expected.items():
        node = parse_query(
            f"SELECT {case.removeprefix('sort_array(')}".replace("))", ")" if "sort_array" in case else "))")
        )
        call = bind_aggregate(node.expressions[0], _WithId())
        aggregator = call.make([f"_{each}" for each in range(len(call.arguments))])
        runs = [argument.compile() for argument in call.arguments]
        state = aggregator.initialize()
        for place, row in enumerate(ROWS):
            values = {f"_{each}": run({**row, "id": place}, None, 0, None) for each, run in enumerate(runs)}
            state = aggregator.agg(state, values, 0)
        found, theirs = aggregator.result(state), column.to_pylist()[0]
        assert _is_same(_rounded(found), _rounded(theirs), call.dtype), (case, found, theirs, SEED)
        assert _plain_type(column.type, False) == _plain_type(call.dtype, False), case


def _rounded(value: Any) -> Any:
    # Spark's sums of floats depend on their order.
    return float(f"{value:.12g}") if isinstance(value, float) and math.isfinite(value) else value


class _WithId(Columns):
    def resolve_column(self, column: Any) -> TypedExpression:
        return ColumnReference("id", pa.int32()) if column.name == "id" else super().resolve_column(column)


def test_random_trees(spark: SparkSQL) -> None:
    """Trees of operators and functions, whose types fit."""
    dice = random.Random(SEED)
    for _ in range(60 if LONG else 1):
        cases = [make_tree(dice, 4) for _ in range(_IN_BATCH)]
        assert find_differences(spark, {case: evaluate(case, ROWS) for case in cases}, lenient=True) == []
