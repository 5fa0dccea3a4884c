"""Queries over tables: `catalog.query`, `catalog.execute`, and what they refuse."""

import datetime as dt
import os
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from streamrt.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ConfigurationError,
    InvalidOperationError,
    LookupTimeoutError,
    QueryError,
    QueryTimeoutError,
    ResultTooLargeError,
    SerializationError,
    SQLAnalysisError,
    SQLNotSupportedError,
    SQLSyntaxError,
    TableNotFoundError,
)
from streamrt.kafka.completion_token import Offsets
from streamrt.sql.queries.ask import ask
from streamrt.sql.queries.catalog_queries import home_of
from streamrt.tables import Catalog, MemoryCatalog
from streamrt.testing.memory_topics import MemoryLinks
from tests.support import wait_until


@pytest.fixture
def catalog() -> Iterator[Catalog]:
    with Catalog(store=MemoryCatalog(), links=MemoryLinks()) as catalog:
        catalog.create_database("demo")
        catalog.create_database("app")
        events = catalog.create_table("demo.events", "id INT, name STRING, score DOUBLE", num_partitions=2)
        events.append([{"id": 1, "name": "Alice", "score": 95.5}, [2, "Bob", 87.0], [3, "Charlie", 91.0]])
        users = catalog.create_table("app.users", "id INT, name STRING, age INT, PRIMARY KEY (id)", num_partitions=2)
        users.upsert([[1, "Alice", 27], [2, "Bob", 30], [3, "Charlie", 35]])
        users.delete([2])
        yield catalog


def rows(catalog: Catalog, sql: str, args: dict[str, Any] | None = None, **options: Any) -> list[dict[str, Any]]:
    return list(catalog.query(sql, args, **options))


@pytest.mark.rows("FE-090", "FE-094")
def test_fe090_a_query_gives_rows_of_a_log_and_current_rows(catalog: Catalog) -> None:
    assert rows(catalog, "SELECT name, score FROM demo.events WHERE score > 90 ORDER BY score DESC") == [
        {"name": "Alice", "score": 95.5},
        {"name": "Charlie", "score": 91.0},
    ]
    joined = "SELECT u.name, u.age, e.score FROM app.users u JOIN demo.events e ON e.id = u.id ORDER BY u.id"
    assert rows(catalog, joined) == [
        {"name": "Alice", "age": 27, "score": 95.5},
        {"name": "Charlie", "age": 35, "score": 91.0},
    ]


@pytest.mark.rows("FE-091")
def test_fe091_nothing_is_read_before_rows_are_asked_for(catalog: Catalog) -> None:
    result = catalog.query("SELECT count(*) AS n FROM demo.events")
    catalog.table("demo.events").append([[4, "Dora", 1.0]])
    assert result.one() == {"n": 4}
    catalog.table("demo.events").append([[5, "Eve", 1.0]])
    # The offsets are those of the first call.
    assert result.one() == {"n": 4}
    assert catalog.query("SELECT count(*) AS n FROM demo.events").one() == {"n": 5}


@pytest.mark.rows("FE-092")
def test_fe092_numbers_have_the_types_of_their_columns(catalog: Catalog) -> None:
    catalog.create_table("demo.money", "amount DECIMAL(10, 2), rate DOUBLE", num_partitions=1).append(
        [{"amount": Decimal("1.10"), "rate": 0.5}]
    )
    result = catalog.query("SELECT amount, rate, amount * 2 AS twice, sum(amount) OVER () AS total FROM demo.money")
    assert result.schema.types == [pa.decimal128(10, 2), pa.float64(), pa.decimal128(12, 2), pa.decimal128(20, 2)]
    assert result.one() == {
        "amount": Decimal("1.10"),
        "rate": 0.5,
        "twice": Decimal("2.20"),
        "total": Decimal("1.10"),
    }


def test_empty_lists_and_maps_have_the_types_of_their_columns(catalog: Catalog) -> None:
    catalog.create_table("demo.nested", "l ARRAY<INT>, m MAP<STRING, INT>, x DOUBLE", num_partitions=1)
    catalog.execute("INSERT INTO demo.nested VALUES (array(), map(), 'NaN'::DOUBLE)")
    catalog.execute("INSERT INTO demo.nested VALUES (array(NULL, 1L), map('a', NULL), 1)")
    assert rows(catalog, "SELECT l, m FROM demo.nested ORDER BY size(l)") == [
        {"l": [], "m": {}},
        {"l": [None, 1], "m": {"a": None}},
    ]
    assert rows(catalog, "SELECT isnan(x) AS n FROM demo.nested ORDER BY x") == [{"n": False}, {"n": True}]
    typed = catalog.query("SELECT array() AS l, map() AS m, array(NULL) AS n UNION ALL SELECT array(1), NULL, NULL")
    assert typed.schema.types == [pa.list_(pa.int32()), pa.map_(pa.string(), pa.string()), pa.list_(pa.string())]
    assert list(typed) == [{"l": [], "m": {}, "n": [None]}, {"l": [1], "m": None, "n": None}]


@pytest.mark.rows("FE-093")
def test_fe093_every_table_with_a_schema_can_be_read(catalog: Catalog) -> None:
    catalog.create_table("demo.bare", num_partitions=1)
    with pytest.raises(SQLAnalysisError, match=r"line 1, column 15: table 'demo.bare' has no schema"):
        catalog.query("SELECT * FROM demo.bare")
    with pytest.raises(TableNotFoundError):
        catalog.query("SELECT * FROM nowhere")


@pytest.mark.rows("FE-095")
@pytest.mark.parametrize(
    ("sql", "error", "message"),
    [
        ("SELEC 1", SQLSyntaxError, "line 1, column 1: at 'SELEC'"),
        ("SELECT\n  1 +", SQLSyntaxError, "line 2"),
        ("SELECT 1; DELETE FROM app.users", SQLSyntaxError, "line 1, column 11: .* a second one begins here"),
        ("", SQLSyntaxError, "no statement"),
        ("SELECT nam FROM demo.events", SQLAnalysisError, "line 1, column 8: .* did you mean name"),
        ("SELECT name + 1 + at FROM demo.events", SQLAnalysisError, "line 1, column 19: there is no column 'at'"),
        ("SELECT id FROM demo.events a, app.users b", SQLAnalysisError, "in several relations"),
        ("SELECT id + DATE '2026-01-01' FROM demo.events", SQLAnalysisError, r"\+ does not take INT and DATE"),
        ("DROP TABLE demo.events", SQLNotSupportedError, "for execute"),
        ("SELECT :x AS x", SQLAnalysisError, "no value for :x"),
    ],
)
def test_fe095_what_is_no_query_is_refused_with_its_place(
    catalog: Catalog, sql: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        catalog.query(sql)


@pytest.mark.rows("FE-096")
def test_fe096_results_are_drawn_as_tables(catalog: Catalog, capsys: pytest.CaptureFixture[str]) -> None:
    result = catalog.query("SELECT id, name FROM app.users ORDER BY id")
    drawn = "+----+---------+\n| id | name    |\n+----+---------+\n| 1  | Alice   |\n| 3  | Charlie |\n+----+---------+"
    assert str(result) == drawn
    result.show(1)
    assert "only the first 1 rows are shown" in capsys.readouterr().out


@pytest.mark.rows("FE-097")
def test_fe097_a_result_becomes_a_parquet_file(catalog: Catalog, tmp_path: Path) -> None:
    result = catalog.query("SELECT id, score FROM demo.events ORDER BY id")
    assert result.to_parquet(tmp_path / "out") == 3
    assert parquet.read_table(tmp_path / "out.parquet").to_pylist()[0] == {"id": 1, "score": 95.5}
    assert result.to_parquet(tmp_path / "other.parquet") == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.parquet", "out.parquet"]


@pytest.mark.rows("FE-099")
def test_fe099_results_are_arrow_and_frames(catalog: Catalog) -> None:
    result = catalog.query("SELECT id FROM demo.events WHERE id > :least ORDER BY id", {"least": 1})
    assert result.to_arrow().to_pydict() == {"id": [2, 3]}
    assert list(result.to_pandas()["id"]) == [2, 3]
    assert result.to_polars()["id"].to_list() == [2, 3]
    assert [batch.num_rows for batch in result.batches()] == [2]
    assert result.offsets.topics == ("demo.events",) or list(result.offsets.topics) == ["demo.events"]
    assert "s1 = demo.events (id; as it comes)" in result.explain()


def test_one_wants_one_row(catalog: Catalog) -> None:
    with pytest.raises(QueryError, match="several"):
        catalog.query("SELECT id FROM demo.events").one()
    with pytest.raises(QueryError, match="none"):
        catalog.query("SELECT id FROM demo.events WHERE id > 7").one()


def test_limits(catalog: Catalog) -> None:
    assert len(rows(catalog, "SELECT id FROM demo.events", limit=2)) == 2
    assert rows(catalog, "SELECT id FROM demo.events", limit=0) == []
    with pytest.raises(ResultTooLargeError, match="more than 3 bytes"):
        rows(catalog, "SELECT id FROM demo.events", max_scan_bytes=3)
    with pytest.raises(ResultTooLargeError, match="max_bytes"):
        catalog.query("SELECT id FROM demo.events").to_arrow(max_bytes=1)
    with pytest.raises(ArgumentValueError, match="above 0 seconds"):
        catalog.query("SELECT 1 AS a", timeout=0)
    with pytest.raises(ArgumentTypeError, match="a text of SQL"):
        catalog.query(1)  # type: ignore[arg-type]


def test_a_query_that_works_too_long_ends(catalog: Catalog) -> None:
    numbers = "SELECT explode(array(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16)) AS n"
    names = ", ".join(f"w w{number}" for number in range(9))
    with pytest.raises(QueryTimeoutError, match=r"did not end in 0\.2 s"):
        rows(catalog, f"WITH w AS ({numbers}) SELECT sum(w0.n) AS total FROM {names}", timeout=0.2)


def test_a_query_is_cancelled(catalog: Catalog) -> None:
    result = catalog.query("SELECT id FROM demo.events")
    batches = result.batches()
    next(batches)
    result.cancel()
    with pytest.raises(QueryError, match="cancelled"):
        list(batches)
    # Another call runs it again.
    assert result.to_arrow().num_rows == 3


def test_a_query_waits_for_a_token(catalog: Catalog) -> None:
    token = catalog.table("app.users").upsert([[9, "Zoe", 1]])
    assert rows(catalog, "SELECT name FROM app.users WHERE id = 9", after=token) == [{"name": "Zoe"}]
    assert rows(catalog, "SELECT name FROM app.users WHERE id = 9", after=str(token)) == [{"name": "Zoe"}]
    with pytest.raises(ArgumentValueError, match="of no table in the query"):
        catalog.query("SELECT 1 AS a FROM app.users", after=Offsets({("other", 0): 1}))


def test_records_that_are_no_rows_end_a_query(catalog: Catalog) -> None:
    sender = catalog.links.sender()
    sender.produce("demo.events", b"{broken", None)
    sender.flush(1.0)
    with pytest.raises(SerializationError, match="events"):
        rows(catalog, "SELECT id FROM demo.events")
    with pytest.raises(SerializationError, match="events"):
        rows(catalog, "SELECT a.id FROM demo.events a JOIN demo.events b USING (id)")


def test_values_that_cannot_be_computed_end_a_query(catalog: Catalog) -> None:
    with pytest.raises(QueryError, match="division by zero"):
        rows(catalog, "SELECT id / 0 AS x FROM demo.events")
    with pytest.raises(QueryError, match=r"[Oo]verflow"):
        rows(catalog, "SELECT id + 2147483647 AS x FROM demo.events")
    with pytest.raises(QueryError, match="cannot be cast to INT"):
        rows(catalog, "SELECT CAST(name AS INT) AS x FROM demo.events")


def test_conditions_on_the_key_read_only_its_rows(catalog: Catalog) -> None:
    result = catalog.query("SELECT name FROM app.users u WHERE u.id IN (1, 2, 3) AND age > 30")
    assert "only the keys of WHERE" in result.explain()
    assert result.one() == {"name": "Charlie"}
    for sql in (
        "SELECT name FROM app.users WHERE id = 1 OR age = 35",
        "SELECT u.name FROM demo.events e LEFT JOIN app.users u ON u.id = e.id WHERE u.id = 1",
        "SELECT name FROM app.users WHERE id > 1",
    ):
        assert "only the keys" not in catalog.query(sql).explain()


def test_names_with_all_kinds_of_characters(catalog: Catalog) -> None:
    table = catalog.create_table("demo.odd", '`a "b"` INT, `select` STRING, `x.y` INT', num_partitions=1)
    table.append([[1, "it's", 2]])
    assert rows(catalog, 'SELECT * FROM demo.odd WHERE `a "b"` = 1') == [{'a "b"': 1, "select": "it's", "x.y": 2}]


def test_columns_may_have_the_names_of_parameters(catalog: Catalog) -> None:
    """The text for DuckDB has functions of one parameter, for values that are used several times."""
    catalog.create_table("demo.letters", "v0 STRING, w STRING, e0 ARRAY<INT>", num_partitions=1)
    catalog.execute("INSERT INTO demo.letters VALUES ('abc', 'one two', array(1))")
    query = "SELECT substring(w, -1, 1) AS a, initcap(v0) AS b, initcap(w) AS c, CAST(e0 AS ARRAY<BIGINT>) AS d"
    assert rows(catalog, f"{query} FROM demo.letters") == [{"a": "o", "b": "Abc", "c": "One Two", "d": [1]}]


def test_all_types_come_back(catalog: Catalog) -> None:
    columns = (
        "b BOOLEAN, t TINYINT, s SMALLINT, i INT, l BIGINT, f FLOAT, d DOUBLE, x STRING, y BINARY, z DATE, h TIME, "
        "n TIMESTAMP, u TIMESTAMP_LTZ, m DECIMAL(5, 2), a ARRAY<INT>, r STRUCT<p: INT, q: STRING>, k MAP<STRING, INT>"
    )
    row = {
        "b": True,
        "t": 1,
        "s": 2,
        "i": 3,
        "l": 4,
        "f": 0.5,
        "d": 1.5,
        "x": "é",
        "y": b"\x00\xff",
        "z": dt.date(2026, 2, 3),
        "h": dt.time(1, 2, 3),
        "n": dt.datetime(2026, 1, 1, 12),
        "u": dt.datetime(2026, 1, 1, 12, tzinfo=dt.timezone.utc),
        "m": Decimal("1.25"),
        "a": [1, None],
        "r": {"p": 1, "q": None},
        "k": {"x": 1},
    }
    table = catalog.create_table("demo.all", columns, num_partitions=1)
    table.append([row, dict.fromkeys(row)])
    for sql in ("SELECT * FROM demo.all", "WITH w AS (SELECT * FROM demo.all) SELECT * FROM w"):
        result = catalog.query(sql)
        assert list(result) == [row, dict.fromkeys(row)]
        assert result.schema.types == table.schema.arrow.types


def test_parameters_are_values(catalog: Catalog) -> None:
    given = {
        "a": None,
        "b": True,
        "c": -5,
        "d": 1.5,
        "e": Decimal("1.20"),
        "f": "'; DROP TABLE x; --",
        "g": b"\x01",
        "h": dt.date(2026, 1, 1),
        "i": dt.datetime(2026, 1, 1, 1, 2, 3, 4),
        "j": 2**40,
    }
    text = ", ".join(f":{name} AS {name}" for name in given)
    assert catalog.query(f"SELECT {text}", given).one() == given
    assert rows(catalog, "SELECT id FROM demo.events WHERE id IN (:ids) ORDER BY id", {"ids": [1, 3]}) == [
        {"id": 1},
        {"id": 3},
    ]
    with pytest.raises(ArgumentValueError, match="no parameter :x"):
        catalog.query("SELECT 1 AS a", {"x": 1})
    with pytest.raises(ArgumentTypeError, match=":x must be"):
        catalog.query("SELECT :x AS a", {"x": object()})


@pytest.mark.rows("FE-131")
def test_system_tables(catalog: Catalog) -> None:
    assert rows(catalog, "SELECT name, kind, primary_key FROM system.tables ORDER BY name") == [
        {"name": "app.users", "kind": "primary-key", "primary_key": ["id"]},
        {"name": "demo.events", "kind": "log", "primary_key": []},
    ]
    catalog.record_usage("shop", reads=["demo.events"])
    assert rows(catalog, "SELECT `table`, application FROM system.usages WHERE kind = 'reads'") == [
        {"table": "demo.events", "application": "shop"}
    ]
    assert catalog.query("SELECT reads FROM system.applications").one() == {"reads": ["demo.events"]}
    total = "SELECT sum(end_offset - first_offset) AS n FROM system.topics WHERE topic = 'demo.events'"
    assert catalog.query(total).one() == {"n": 3}
    with pytest.raises(TableNotFoundError, match=r"system\.applications, system\.tables"):
        catalog.query("SELECT * FROM system.secrets")
    with pytest.raises(SQLAnalysisError, match=r"app\.query"):
        catalog.query("SELECT * FROM streamrt_state.default")


@pytest.mark.rows("FE-068", "FE-070", "FE-098")
def test_fe068_insert(catalog: Catalog) -> None:
    done = catalog.execute("INSERT INTO demo.events (name, id) VALUES (:name, 4)", {"name": "Dora"})
    assert (done.statement, done.name, done.rows, done.changed) == ("INSERT", "demo.events", 1, True)
    assert catalog.query("SELECT * FROM demo.events WHERE id = 4", after=done.token).one() == {
        "id": 4,
        "name": "Dora",
        "score": None,
    }
    copied = catalog.execute("INSERT INTO app.users SELECT id + 10, name, 1 FROM demo.events WHERE score > 90")
    assert copied.rows == 2
    assert catalog.table("app.users").get(11) == {"id": 11, "name": "Alice", "age": 1}
    assert catalog.execute("INSERT INTO app.users SELECT * FROM app.users WHERE id > 99").changed is False


@pytest.mark.rows("FE-069", "FE-098")
def test_fe069_delete_and_update(catalog: Catalog) -> None:
    users = catalog.table("app.users")
    assert catalog.execute("UPDATE app.users SET age = 36 WHERE id = 3").rows == 1
    assert users.get(3, fresh=True) == {"id": 3, "name": "Charlie", "age": 36}
    assert catalog.execute("UPDATE app.users AS u SET age = u.age + 1, name = upper(name) WHERE age < 30").rows == 1
    assert users.get(1, fresh=True) == {"id": 1, "name": "ALICE", "age": 28}
    assert catalog.execute("DELETE FROM app.users WHERE age < 30").rows == 1
    assert users.get(1, fresh=True) is None
    assert catalog.execute("DELETE FROM app.users WHERE id IN (3, 7)").rows == 2
    assert rows(catalog, "SELECT * FROM app.users") == []
    assert catalog.execute("DELETE FROM app.users").rows == 0


def test_null_is_stored_in_columns_of_all_types_and_rows_are_inserted_by_position(catalog: Catalog) -> None:
    users = catalog.table("app.users")
    assert catalog.execute("UPDATE app.users SET age = NULL WHERE id = 3").rows == 1
    assert users.get(3, fresh=True) == {"id": 3, "name": "Charlie", "age": None}
    assert catalog.execute("INSERT INTO app.users SELECT 20, NULL, NULL").rows == 1
    assert catalog.execute("INSERT INTO app.users SELECT 21, x, x FROM (SELECT NULL AS x)").rows == 1
    assert users.get(21, fresh=True) == {"id": 21, "name": None, "age": None}
    typed = catalog.query("SELECT coalesce(x, 1) AS a, x AS b FROM (SELECT NULL AS x) UNION ALL SELECT NULL, NULL")
    assert typed.to_arrow().schema.types == [pa.int32(), pa.string()]


def test_between_symmetric_takes_its_bounds_in_any_order(catalog: Catalog) -> None:
    assert rows(catalog, "SELECT 2 BETWEEN SYMMETRIC 3 AND 1 AS a, 2 BETWEEN 3 AND 1 AS b") == [{"a": True, "b": False}]


@pytest.mark.parametrize("limit", ["9", "CAST('9' AS INT)"])
def test_in_of_a_query_is_null_only_where_null_leaves_it_open(catalog: Catalog, limit: str) -> None:
    """A cast of text may raise, which must not change what is around it."""
    query = f"""
        WITH t AS (SELECT * FROM VALUES (1, 7, 0), (2, 7, 0), (3, 7, 0), (4, NULL, 0), (5, NULL, 0) AS t (k, a, b)),
             u AS (SELECT * FROM VALUES (1, 7, 0), (2, 8, 0), (2, NULL, 0), (4, 7, 0) AS u (k, a, b))
        SELECT k, a IN (SELECT u.a FROM u WHERE u.k = t.k AND t.k < {limit}) AS one,
               a NOT IN (SELECT u.a FROM u WHERE u.k = t.k AND t.k < {limit}) AS none,
               a IN (SELECT max(u.a) FROM u WHERE u.k = t.k AND t.k < {limit}) AS largest,
               (a, b) IN (SELECT u.a, u.b FROM u WHERE u.k = t.k AND t.k < {limit}) AS pair,
               k > 9 OR a IN (SELECT u.a FROM u WHERE u.k = t.k AND t.k < {limit}) AS other,
               max(a) IN (SELECT u.a FROM u WHERE u.k = t.k AND t.k < {limit}) AS grouped,
               a IN (SELECT u.a FROM u WHERE u.k > {limit}) AS apart
        FROM t GROUP BY k, a, b ORDER BY k"""
    assert [tuple(row.values()) for row in rows(catalog, query)] == [
        (1, True, False, True, True, True, True, False),
        (2, None, None, False, None, None, None, False),
        (3, False, True, None, False, False, False, False),
        (4, None, None, None, None, None, None, False),
        (5, False, True, None, False, False, False, False),
    ]


def test_names_of_tables_have_no_case(catalog: Catalog) -> None:
    catalog.execute("CREATE TABLE app.Parts (id INT, PRIMARY KEY (id))")
    catalog.execute("INSERT INTO APP.parts VALUES (1)")
    assert rows(catalog, "SELECT P.ID FROM app.PARTS p") == [{"ID": 1}]
    catalog.execute("CREATE TABLE app.PARTS (id INT, PRIMARY KEY (id))")
    assert rows(catalog, "SELECT id FROM app.PARTS") == []
    with pytest.raises(SQLAnalysisError, match=r"may be app\.PARTS or app\.Parts: write one"):
        catalog.query("SELECT id FROM app.parts")


@pytest.mark.parametrize(
    ("sql", "error", "message"),
    [
        ("DELETE FROM demo.events", InvalidOperationError, "has no primary key"),
        ("UPDATE demo.events SET id = 1", InvalidOperationError, "has no primary key"),
        ("UPDATE app.users SET id = 1", SQLAnalysisError, "changes no primary key"),
        ("UPDATE app.users SET agee = 1", SQLAnalysisError, "has no column 'agee'"),
        ("INSERT INTO demo.events SELECT 1", SQLAnalysisError, "needs 3 columns, and gets 1"),
        ("INSERT INTO demo.events VALUES ('x', 'y', 1)", SQLAnalysisError, "the column 'id' is INT, and gets STRING"),
        ("INSERT OVERWRITE app.users SELECT 1, 'a', 2", SQLNotSupportedError, "OVERWRITE"),
        ("INSERT INTO system.tables VALUES (1)", SQLNotSupportedError, "can only be read"),
        ("INSERT INTO nowhere VALUES (1)", TableNotFoundError, "nowhere"),
        ("DELETE FROM app.users WHERE id = 1; DELETE FROM app.users", SQLSyntaxError, "one statement"),
    ],
)
def test_fe098_statements_that_are_refused_change_nothing(
    catalog: Catalog, sql: str, error: type[Exception], message: str
) -> None:
    before = catalog.query("SELECT sum(end_offset) AS n FROM system.topics").one()
    with pytest.raises(error, match=message):
        catalog.execute(sql)
    assert catalog.query("SELECT sum(end_offset) AS n FROM system.topics").one() == before


def test_a_statement_that_fails_writes_nothing(catalog: Catalog) -> None:
    with pytest.raises(QueryError, match="division by zero"):
        catalog.execute("INSERT INTO app.users SELECT id, name, 10 / (id - 3) FROM demo.events")
    assert rows(catalog, "SELECT count(*) AS n FROM app.users") == [{"n": 2}]


@pytest.mark.rows("FE-093")
def test_views_are_read_as_their_queries() -> None:
    from streamrt.sql.queries.duckdb_text import translate_query
    from streamrt.sql.queries.from_clause import SourceTable
    from streamrt.sql.reading import parse_query

    views = {
        "big": (parse_query("SELECT x FROM t WHERE x > 1"), ["y"]),
        "loop": (parse_query("SELECT * FROM loop"), ["y"]),
    }
    table = SourceTable("t", pa.schema([("x", pa.int32())]))
    made = translate_query(parse_query("SELECT b.y FROM big b"), lambda _: table, lambda name, _: views.get(name))
    assert "WHERE" in made.sql
    assert made.columns[0].dtype == pa.int32()
    with pytest.raises(SQLAnalysisError, match="reads itself"):
        translate_query(parse_query("SELECT * FROM loop"), lambda _: table, lambda name, _: views.get(name))


def test_a_query_waits_for_the_application_and_for_open_transactions(catalog: Catalog) -> None:
    sender = catalog.links.sender(None, "someone")
    sender.produce("demo.events", b'{"id": 9, "name": "Zoe", "score": 1.0}', None, partition=0)
    sender.flush(1.0)
    application = Processing(inputs=["inputs"], outputs=["demo.events"])
    home = replace(home_of(catalog), application=application)
    token = Offsets({("inputs", 0): 7})
    with pytest.raises(LookupTimeoutError):
        ask(home, "SELECT count(*) AS n FROM demo.events", after=token, timeout=0.3).one()
    assert application.waited == [token]
    sender.commit()
    assert ask(home, "SELECT count(*) AS n FROM demo.events", after=token).one() == {"n": 4}


@pytest.mark.parametrize(
    ("sql", "waits"),
    [
        ("SELECT e.id FROM demo.events e JOIN app.users u ON u.id = e.id", True),
        ("SELECT u.id FROM app.users u", True),
        ("SELECT e.id FROM demo.events e", False),
    ],
)
def test_rows_that_follow_from_an_input_are_waited_for_next_to_the_input(
    catalog: Catalog, sql: str, waits: bool
) -> None:
    application = Processing(inputs=["demo.events"], outputs=["app.users"])
    home = replace(home_of(catalog), application=application)
    token = Offsets({("demo.events", 0): 1})
    ask(home, sql, after=token).to_arrow()
    assert application.waited == ([token] if waits else [])


class Processing:
    """An application that has processed everything."""

    def __init__(self, inputs: list[str], outputs: list[str]) -> None:
        self._inputs, self._outputs = inputs, outputs
        self.waited: list[Offsets] = []

    def wait_for(self, token: Offsets, timeout: float | None = 60.0) -> None:
        self.waited.append(token)

    def input_topics(self) -> list[str]:
        return self._inputs

    def output_tables(self) -> list[str]:
        return self._outputs


def test_ctrl_c_ends_a_query(catalog: Catalog) -> None:
    numbers = "SELECT explode(array(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16)) AS n"
    names = ", ".join(f"w w{number}" for number in range(9))
    result = catalog.query(f"WITH w AS ({numbers}) SELECT sum(w0.n) AS total FROM {names}", timeout=30.0)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        list(result)
    timer.join()
    # What comes next is not interrupted.
    assert catalog.query("SELECT 1 AS a").one() == {"a": 1}


def test_without_duckdb_the_extra_is_named(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(ConfigurationError, match=r"queries need DuckDB: run pip install .*\[sql\]"):
        catalog.query("SELECT 1 AS a")
    # What needs no query works without it.
    assert catalog.execute("DELETE FROM app.users WHERE id = 1").rows == 1


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_an_interrupt_that_comes_too_early_comes_again(*, is_cancelled: bool) -> None:
    """DuckDB forgets one that comes before it executes."""
    from streamrt.sql.queries.duckdb_engine import TimeBudget

    calls: list[None] = []
    budget = TimeBudget(60 if is_cancelled else 0.01, lambda: calls.append(None))
    with budget.spending():
        if is_cancelled:
            budget.cancel()
        wait_until(lambda: len(calls) > 1)
    with pytest.raises(QueryError if is_cancelled else QueryTimeoutError):
        budget.check()
