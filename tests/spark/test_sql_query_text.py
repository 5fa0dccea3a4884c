"""Expressions and queries by Spark SQL, and by DuckDB with the text that `to_duckdb` makes: equal values and types."""

import datetime as dt
import math
import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamrt.errors import QueryError, StreamRTError
from streamrt.spark.sessions.spark_session import create_spark_session
from streamrt.sql.queries.duckdb_engine import DuckDBEngine
from streamrt.sql.queries.duckdb_text import translate_query
from streamrt.sql.queries.from_clause import SourceTable
from streamrt.sql.reading import parse_query
from tests.support import LONG

pytestmark = [pytest.mark.spark, pytest.mark.slow]

HERE = Path(__file__).parent


def _read(name: str) -> list[str]:
    return (HERE / name).read_text().splitlines()


SCHEMA = pa.schema(
    [
        *(("n", pa.int32()), ("t", pa.int8()), ("i", pa.int32()), ("l", pa.int64()), ("f", pa.float32())),
        *(("d", pa.float64()), ("m", pa.decimal128(10, 2)), ("k", pa.decimal128(15, 4)), ("s", pa.string())),
        *(("u", pa.string()), ("b", pa.bool_()), ("c", pa.date32()), ("a", pa.timestamp("us"))),
        ("v", pa.list_(pa.int32())),
    ]
)
WORDS = [
    "",
    "a",
    "Ann",
    "bob says",
    " x ",
    "élan",
    "a,b,,c",
    "100%",
    "a_b",
    "2026-01-05",
    "-12",
    "it's",
    "Ünïcode ß",
    "a\nb",
]

EXPRESSIONS = _read("sql_expressions.txt")
AGGREGATES = _read("sql_aggregates.txt")
QUERIES = _read("sql_queries.txt")
FAILING = [
    *("i / 0", "i % 0", "1 div 0", "m / 0", "CAST('x' AS INT)", "CAST('1.5' AS INT)", "CAST('maybe' AS BOOLEAN)"),
    *(
        "CAST('2026-13-01' AS DATE)",
        "2147483647 + n",
        "CAST(300 AS TINYINT)",
        "CAST('NaN' AS DOUBLE) % 0",
        "array(1, 2)[5]",
    ),
    *("CAST(1e20 AS BIGINT)", "CAST(123.4 AS DECIMAL(3, 1))", "-(-2147483648 - n * 0)", "make_date(2026, 2, 30)"),
]


class World:
    """The same random rows in Spark and in DuckDB."""

    def __init__(self, seed: int) -> None:
        self.rows = [_make_row(random.Random(f"{seed} {number}"), number) for number in range(40)]
        self.spark = create_spark_session("local[2]")
        for name, value in (
            *(("spark.sql.ansi.enabled", "true"), ("spark.sql.session.timeZone", "UTC")),
            *(("spark.sql.timestampType", "TIMESTAMP_NTZ"), ("spark.sql.shuffle.partitions", "1")),
        ):
            self.spark.conf.set(name, value)
        ddl = (
            "n INT, t TINYINT, i INT, l BIGINT, f FLOAT, d DOUBLE, m DECIMAL(10, 2), k DECIMAL(15, 4), s STRING, u STRING, "
            "b BOOLEAN, c DATE, a TIMESTAMP_NTZ, v ARRAY<INT>"
        )
        self.spark.createDataFrame([tuple(row.values()) for row in self.rows], ddl).createOrReplaceTempView("r")
        self.engine = DuckDBEngine()
        self.engine.create_table("r", SCHEMA)
        self.engine.insert("r", pa.Table.from_pylist(self.rows, SCHEMA))

    def ask_spark(self, sql: str) -> tuple[list[tuple[Any, ...]], list[str]]:
        made = self.spark.sql(sql)
        return [_plain(tuple(row)) for row in made.collect()], [field.dataType.simpleString() for field in made.schema]

    def ask_duckdb(self, sql: str) -> tuple[list[tuple[Any, ...]], list[pa.DataType]]:
        made = translate_query(parse_query(sql), lambda _: SourceTable("r", SCHEMA))
        rows = [
            tuple(row)
            for batch in self.engine.run(made.sql)
            for row in zip(*(c.to_pylist() for c in batch.columns), strict=True)
        ]
        return [_plain(row) for row in rows], [column.dtype for column in made.columns]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    world = World(7)
    with closing(world.engine):
        yield world


def _make_row(r: random.Random, number: int) -> dict[str, Any]:
    def maybe(value: Any) -> Any:
        return None if r.random() < 0.15 else value

    day = dt.date(1960, 1, 1) + dt.timedelta(days=r.randrange(30_000))
    return {
        "n": number,
        "t": maybe(r.randrange(-5, 6)),
        "i": maybe(r.choice([0, 1, -1, 5, r.randrange(-1000, 1000)])),
        "l": maybe(r.choice([0, 1, 2, r.randrange(-(10**12), 10**12)])),
        "f": maybe(r.choice([0.5, -2.25, 1024.0])),
        "d": maybe(r.choice([0.0, -0.0, 1.5, -2.5, 2.675, 1e10, 1e-7, math.nan, math.inf, r.uniform(-100, 100)])),
        "m": maybe(Decimal(r.randrange(-100_000, 100_000)) / 100),
        "k": maybe(Decimal(r.randrange(-(10**9), 10**9)) / 10_000),
        "s": maybe(r.choice(WORDS)),
        "u": maybe(r.choice(WORDS)),
        "b": maybe(r.random() < 0.5),
        "c": maybe(r.choice([day, dt.date(2024, 2, 29), dt.date(1970, 1, 1)])),
        "a": maybe(
            dt.datetime(
                day.year,
                day.month,
                day.day,
                r.randrange(24),
                r.randrange(60),
                r.randrange(60),
                r.choice([0, 500_000, 1]),
            )
        ),
        "v": maybe([maybe(r.randrange(5)) for _ in range(r.randrange(4))]),
    }


def _plain(row: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(_plain_value(value) for value in row)


def _plain_value(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None)
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else float(f"{value:.9g}") + 0.0
    if isinstance(value, list):
        return [_plain_value(each) for each in value]
    return value


def _split(lines: list[str]) -> list[str]:
    made = [each.strip() for line in lines for each in line.split(" | ")]
    # Divisors that are never zero, and doubles that fit.
    return [each.replace("k2", "(abs(k) + 1)").replace("d2", "if(isnan(d) OR abs(d) > 1e9, 0D, d)") for each in made]


def _spark_word(dtype: pa.DataType) -> str:
    words = {
        pa.int8(): "tinyint",
        pa.int16(): "smallint",
        pa.int32(): "int",
        pa.int64(): "bigint",
        pa.float32(): "float",
    }
    words |= {
        pa.float64(): "double",
        pa.string(): "string",
        pa.bool_(): "boolean",
        pa.date32(): "date",
        pa.binary(): "binary",
    }
    words |= {pa.timestamp("us"): "timestamp_ntz", pa.timestamp("us", "UTC"): "timestamp"}
    if pa.types.is_decimal(dtype):
        return f"decimal({dtype.precision},{dtype.scale})"
    if pa.types.is_list(dtype):
        return f"array<{_spark_word(dtype.value_type)}>"
    return words.get(dtype, str(dtype))


def _find_faults(world: World, head: str, expressions: list[str], tail: str) -> list[str]:
    wrong: list[str] = []
    for start in range(0, len(expressions), 12):
        part = expressions[start : start + 12]
        cells = ", ".join(f"{each} AS x{number}" for number, each in enumerate(part))
        sql = f"SELECT {head}{cells} FROM r{tail}"
        expected, types = world.ask_spark(sql)
        try:
            found, dtypes = world.ask_duckdb(sql)
        except StreamRTError as error:
            if len(part) == 1:
                wrong.append(f"{part[0]}: {error}")
            else:
                wrong += [fault for each in part for fault in _find_faults(world, head, [each], tail)]
            continue
        skipped = len(types) - len(part)
        for number, each in enumerate(part):
            column = number + skipped
            # A TIMESTAMP of StreamRT has no time zone, and stays one where Spark makes another of it.
            if _spark_word(dtypes[column]).removesuffix("_ntz") != types[column].removesuffix("_ntz"):
                wrong.append(f"{each}: {types[column]} in Spark, and {_spark_word(dtypes[column])} here")
            values = [(a[column], b[column]) for a, b in zip(expected, found, strict=True) if a[column] != b[column]]
            if values:
                wrong.append(f"{each}: {values[0][0]!r} in Spark, and {values[0][1]!r} here")
    return wrong


def test_scalar_expressions_are_those_of_spark(world: World) -> None:
    assert "\n".join(_find_faults(world, "n, ", _split(EXPRESSIONS), " ORDER BY n")) == ""


def test_aggregates_are_those_of_spark(world: World) -> None:
    assert "\n".join(_find_faults(world, "t, ", _split(AGGREGATES), " GROUP BY t ORDER BY t")) == ""
    if LONG:
        assert "\n".join(_find_faults(world, "", _split(AGGREGATES), "")) == ""
        assert "\n".join(_find_faults(world, "", _split(AGGREGATES), " WHERE n < 0")) == ""


@pytest.mark.parametrize("sql", QUERIES if LONG else QUERIES[::3])
def test_queries_are_those_of_spark(world: World, sql: str) -> None:
    expected, types = world.ask_spark(sql)
    found, dtypes = world.ask_duckdb(sql)
    assert found == expected
    assert [_spark_word(each) for each in dtypes] == types


@pytest.mark.parametrize("expression", FAILING if LONG else FAILING[::4])
def test_values_that_fail_in_spark_fail_here(world: World, expression: str) -> None:
    sql = f"SELECT {expression} AS x FROM r WHERE n = 3 AND coalesce(i, 0) = coalesce(i, 0)"
    with pytest.raises(Exception, match=r"."):
        world.ask_spark(sql)
    with pytest.raises(QueryError):
        world.ask_duckdb(sql)
