"""Views and queries have the types of Spark for values of several types, and convert values to them alike."""

from typing import Any

import duckdb
import pyarrow as pa
import pytest

from streamrt.errors import SQLAnalysisError
from streamrt.sql.expressions import bind_scalar
from streamrt.sql.expressions.coercion import TIMESTAMP, TIMESTAMP_LTZ, can_store, describe_type
from streamrt.sql.queries.duckdb_text import to_duckdb, translate_query
from streamrt.sql.reading import parse_query
from tests.sql_expressions import Columns
from tests.sql_types import COMMON_TYPES, cast_nulls


def type_in_view(text: str) -> pa.DataType:
    return bind_scalar(parse_query(f"SELECT {text}").expressions[0], Columns()).dtype


def type_in_query(text: str) -> pa.DataType:
    def find_no_table(node: Any) -> Any:
        raise AssertionError(node)

    return translate_query(parse_query(f"SELECT {text} AS r"), find_no_table).columns[0].dtype


def name_in_spark(dtype: pa.DataType) -> str:
    if dtype in (TIMESTAMP, TIMESTAMP_LTZ):
        return "timestamp_ntz" if dtype == TIMESTAMP else "timestamp"
    return describe_type(dtype).lower().replace(", ", ",").replace(": ", ":")


@pytest.mark.parametrize("find_type", [type_in_view, type_in_query])
@pytest.mark.parametrize(("types", "common"), list(COMMON_TYPES.items()))
def test_values_of_several_types_have_the_type_of_spark(types: str, common: str | None, find_type: Any) -> None:
    if common is None:
        with pytest.raises(SQLAnalysisError, match="cast"):
            find_type(cast_nulls(types))
    else:
        assert name_in_spark(find_type(cast_nulls(types))) == common


@pytest.mark.parametrize(
    "text",
    [
        "coalesce(named_struct('a', 1, 'b', '2026-01-02'), named_struct('a', 2.5, 'b', DATE '2026-01-01'))",
        "if(1 > 2, named_struct('a', 1), named_struct('a', 2.5D))",
        "coalesce(CAST(NULL AS STRUCT<a: INT>), named_struct('a', CAST(7 AS BIGINT)))",
        "coalesce(map('x', 1), map('y', 2.5))['x']",
        "coalesce(array(1, NULL), array('7'))",
        "coalesce(array(named_struct('a', 1)), array(named_struct('a', 7L)))",
        "DATE '2026-03-01' + (DATE '2026-01-05' - DATE '2026-01-01')",
        "DATE '2026-03-01' + (INTERVAL 1 DAY + INTERVAL 2 HOURS)",
        "INTERVAL 1 DAY = INTERVAL 24 HOURS",
        "TIMESTAMP_NTZ '2026-01-01 00:00:00' - INTERVAL '1 02:30' DAY TO MINUTE",
        "DATE '2026-01-31' + INTERVAL '1-1' YEAR TO MONTH",
        "DATE '2026-01-31' + INTERVAL -2 MONTHS",
        "DATE '2026-01-31' - INTERVAL '-3' DAY",
        "DATE '2026-01-31' + INTERVAL '1 week 2 days'",
        "TIMESTAMP_NTZ '2026-01-01 00:00:00' - DATE '2025-12-31' > INTERVAL 23 HOURS",
        "1.50 + 2147483648 - 9223372036854775808",
        "-2147483648 % 7",
        "2.5 * 1e3",
        "10.00 / 3",
        "CAST(12345.678 AS DECIMAL(10, 3)) % 7",
    ],
)
def test_views_and_queries_compute_the_same(text: str) -> None:
    bound = bind_scalar(parse_query(f"SELECT {text}").expressions[0], Columns())
    found = duckdb.execute(to_duckdb(parse_query(f"SELECT {text} AS r"))).fetchone()
    assert found == (bound.compile()({}, None, 0, None),)
    # Queries do not follow which parts of nested values are never NULL.
    assert describe_type(type_in_query(text)) == describe_type(bound.dtype).replace(" NOT NULL", "")


def test_intervals_of_two_kinds_have_no_common_type() -> None:
    for find_type in (type_in_view, type_in_query):
        with pytest.raises(SQLAnalysisError, match="INTERVAL"):
            find_type("INTERVAL 1 MONTH = INTERVAL 30 DAYS")


@pytest.mark.parametrize(
    ("source", "target", "can"),
    [
        (pa.int64(), pa.int8(), True),
        (pa.int64(), pa.string(), True),
        (pa.string(), pa.int64(), False),
        (pa.date32(), TIMESTAMP, True),
        (pa.bool_(), pa.int64(), False),
        (pa.null(), pa.list_(pa.int64()), True),
        (pa.list_(pa.null()), pa.list_(pa.int64()), True),
        (pa.list_(pa.int32()), pa.string(), False),
        (pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.int64()), True),
        (pa.struct([("a", pa.int32())]), pa.struct([("b", pa.int64())]), True),
        (pa.struct([("a", pa.string())]), pa.struct([("a", pa.int64())]), False),
    ],
)
def test_what_columns_store(source: pa.DataType, target: pa.DataType, can: bool) -> None:
    assert can_store(source, target) is can
