"""Hostile statements: none reaches DuckDB, and DuckDB could do nothing with them if one did."""

import contextlib
import random
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from streamrt.errors import CatalogError, QueryError, SQLError, StreamRTError, TableNotFoundError
from streamrt.sql.queries import duckdb_engine
from streamrt.sql.queries.duckdb_engine import DuckDBEngine
from streamrt.sql.queries.duckdb_text import to_duckdb
from streamrt.sql.reading import parse_query
from streamrt.tables import Catalog, MemoryCatalog
from streamrt.testing.memory_topics import MemoryLinks
from tests.support import ROOT

STATEMENTS = [
    each.replace("\x00", "\n")
    for each in (Path(__file__).parent / "hostile_statements.txt").read_text().replace("\n;", "\x00;").splitlines()
]
# All functions that DuckDB may be asked to call; what a query says adds none to them.
_CALLED_WORDS = """
    abs arg_max_null arg_min_null array_to_string ascii avg base64 bool_and bool_or cardinality cast cbrt ceil chr
    coalesce concat_ws contains cos count covar_pop covar_samp cume_dist current_localtimestamp date_diff
    date_trunc day dayofweek dayofyear decimal decode degrees dense_rank encode ends_with epoch_us error exists exp
    any_value first first_value floor from_hex greatest grouping hex hour if in isfinite isnan isodow
    json_extract_string json_valid lag last last_day last_value lead least left len length list list_contains
    list_count list_max list_min list_sort list_transform ln log10 log2 lower lpad ltrim make_date make_timestamp map
    map_keys map_values max md5 median microsecond min minute month nth_value ntile nullif over percent_rank pi pow
    quantile_cont quarter radians rank regexp_extract regexp_full_match regexp_matches regexp_replace repeat replace
    reverse right round row row_number rpad rtrim second sets sha1 sha256 sign sin split_part sqrt starts_with
    stddev_pop stddev_samp strftime string_agg string_split string_split_regex strpos strptime struct struct_extract
    struct_pack substring sum tan atan to_hex to_microseconds to_months translate trim trunc try_cast unnest upper
    values var_pop var_samp week when xor year by rollup cube as and or not then else where from on between distinct
    union all intersect except lateral select bit_and bit_or bit_xor corr kurtosis_pop mode percentile_cont
    percentile_disc quantile_disc regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy
    regr_syy skewness
"""
CALLED = frozenset(_CALLED_WORDS.split())


@pytest.fixture(scope="module")
def catalog() -> Iterator[Catalog]:
    with Catalog(store=MemoryCatalog(), links=MemoryLinks()) as catalog:
        catalog.create_database("shop")
        catalog.create_table("shop.orders", "id INT, name STRING", num_partitions=1)
        yield catalog


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What DuckDB gets."""
    texts: list[str] = []
    monkeypatch.setattr(duckdb_engine.DuckDBEngine, "_open_reader", lambda _, sql: texts.append(sql))
    return texts


def test_there_are_enough_statements() -> None:
    assert len(STATEMENTS) >= 150


@pytest.mark.parametrize("statement", STATEMENTS)
def test_hostile_statements_do_not_reach_the_engine(catalog: Catalog, reached: list[str], statement: str) -> None:
    with pytest.raises((SQLError, TableNotFoundError, CatalogError)):
        list(catalog.query(statement))
    assert reached == []


@pytest.mark.parametrize(
    "statement",
    [
        *(
            "SELECT * FROM read_csv('/etc/passwd')",
            "SELECT * FROM '/etc/passwd'",
            "SELECT * FROM read_text('/etc/passwd')",
        ),
        *(
            "COPY (SELECT 1) TO '/tmp/streamrt-test-x'",
            "ATTACH '/tmp/streamrt-test.db' AS x",
            "INSTALL httpfs",
            "LOAD httpfs",
        ),
        *(
            "SET enable_external_access = true",
            "SET memory_limit = '100GB'",
            "SET threads = 8",
            "SELECT getenv('HOME')",
        ),
        *("SELECT * FROM glob('/*')", "EXPORT DATABASE '/tmp/streamrt-test-x'"),
        # Queries of users do not get there: what they contain is translated.
        pytest.param(
            "PRAGMA enable_profiling", marks=pytest.mark.skipif(duckdb.__version__ < "2", reason="not locked")
        ),
        *("RESET lock_configuration", "SELECT * FROM catalog", "SELECT * FROM STATEMENTS"),
    ],
)
def test_the_engine_itself_is_locked(statement: str) -> None:
    engine = DuckDBEngine()
    try:
        with pytest.raises(StreamRTError):
            list(engine.run(statement))
    finally:
        engine.close()
    assert not Path("/tmp/streamrt-test-x").exists()
    assert not Path("/tmp/streamrt-test.db").exists()


def test_memory_of_the_engine_is_bounded() -> None:
    engine = DuckDBEngine(32 * 1024**2)
    try:
        with pytest.raises(StreamRTError, match="GiB of memory"):
            list(engine.run("SELECT list(i) FROM range(100000000) t(i)"))
    finally:
        engine.close()


def test_an_interrupt_at_any_moment_is_an_error_of_the_query() -> None:
    engine, over = DuckDBEngine(), threading.Event()

    def interrupt() -> None:
        while not over.wait(0.0001):
            engine.interrupt()

    thread = threading.Thread(target=interrupt)
    thread.start()
    found = set()
    rows = pa.table({"a": pa.array([1, 2], pa.int32())})
    try:
        for number in range(10):
            try:
                engine.create_table(f"t{number}", rows.schema)
                engine.insert(f"t{number}", rows)
                engine.register("once", rows.to_reader())
                list(engine.run(f"SELECT a FROM t{number}"))
            except QueryError as error:
                found.add(str(error))
    finally:
        over.set()
        thread.join()
        engine.close()
    assert found == {"the query was interrupted"}


def test_parts_of_statements_in_random_order_call_known_functions_only() -> None:
    words = sorted({word for each in STATEMENTS for word in re.findall(r"[\w.]+|'[^']*'|\S", each)})
    parts = [
        "SELECT id FROM shop.orders WHERE",
        "SELECT",
        "FROM shop.orders",
        "id",
        "name",
        "(",
        ")",
        ",",
        "upper(name)",
        "=",
    ]
    rng = random.Random(34)
    accepted = 0
    schema = pa.schema([("id", pa.int32()), ("name", pa.string())])
    for _ in range(3_000):
        middle = " ".join(rng.choice(words if rng.random() < 0.3 else parts) for _ in range(rng.randrange(1, 8)))
        text = rng.choice(
            ["SELECT {} FROM shop.orders", "SELECT id FROM shop.orders WHERE {}", "SELECT {}", "{}"]
        ).format(middle)
        try:
            made = to_duckdb(parse_query(text), {"shop.orders": schema})
        except StreamRTError:
            continue
        accepted += 1
        _require_known(made)
    assert accepted > 20


def _require_known(sql: str) -> None:
    """Fail unless a text calls known functions, and reads known tables, only."""
    bare = re.sub(r"'(?:[^']|'')*'", "''", sql)
    bare = re.sub(r'"(?:[^"]|"")*"', "x", bare)
    called = {each.lower() for each in re.findall(r"([A-Za-z_]\w*)\s*\(", bare)}
    unknown = {each for each in called - CALLED if not re.fullmatch(r"(r|wr|v|e)\d+|decimal|x", each)}
    assert not unknown, sql
    assert ";" not in bare, sql
    assert "/*" not in bare, sql


def test_every_translation_calls_known_functions() -> None:
    schema = pa.schema([("i", pa.int32()), ("s", pa.string()), ("d", pa.float64()), ("v", pa.list_(pa.int32()))])
    text = "SELECT upper(s), i / 2, round(d, 2), v[0], CAST(s AS DATE), sum(i) OVER (ORDER BY s) FROM t"
    _require_known(to_duckdb(parse_query(text), {"t": schema}))


def test_texts_do_not_explode() -> None:
    for name in ("sqrt", "ascii", "nullif", "x / "):
        inner = "d"
        for _ in range(40):
            inner = (
                f"nullif({inner}, 1)"
                if name == "nullif"
                else f"{name}({inner})"
                if name != "x / "
                else f"d / ({inner})"
            )
        with contextlib.suppress(SQLError):
            assert (
                len(to_duckdb(parse_query(f"SELECT {inner} AS x FROM t"), {"t": pa.schema([("d", pa.float64())])}))
                < 3_000_000
            )


def test_the_functions_of_the_page_are_known() -> None:
    page = (ROOT / "docs" / "sql-queries.md").read_text()
    table = page.partition("## Functions")[2].partition("## Limits")[0]
    names = re.findall(r"`(\w+)`", table)
    assert len(names) > 150
    # Whatever is wrong with the arguments, the name is on the list.
    refusals = {
        name: [_refusal(f"SELECT {name}({given}) AS a FROM t") for given in ("", "x", "x, x", "'day', x")]
        for name in names
    }
    unknown = [
        name for name, texts in refusals.items() if all(f"{name}() is not on the list" in each for each in texts)
    ]
    assert unknown == []
    assert "crc32() is not on the list" in _refusal("SELECT crc32(x) AS a FROM t")


def _refusal(text: str) -> str:
    """Return why a query is refused; nothing if it is not."""
    try:
        to_duckdb(parse_query(text), {"t": pa.schema([("x", pa.int32())])})
    except SQLError as error:
        return str(error)
    return ""
