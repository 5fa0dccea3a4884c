"""Queries and programs of SQL in applications have the rows of the same query as a batch."""

import datetime
import functools
import math
from decimal import Decimal
from typing import Any

import duckdb
import pytest

from streamrt import Application
from streamrt.errors import ArgumentValueError, SchemaError, SQLAnalysisError, SQLNotSupportedError
from streamrt.testing import InputRecord, TopologyTestDriver
from streamrt.windows import Sum
from tests.unit.sql_worlds import Input, make_app, rows_of

START = datetime.datetime(2026, 1, 1)


def item(k: int, a: int | None, b: int, c: str) -> Input:
    return "items", k, {"k": k, "a": a, "b": b, "c": c}


def other(k: int, a: int | None, d: str) -> Input:
    return "others", k, {"k": k, "a": a, "d": d}


def order(number: int, customer: str | None, amount: int, at: int, tags: list[str] | None = None) -> Input:
    return "orders", None, {"id": number, "customer": customer, "amount": amount, "tags": tags, "at": at}


CHANGES: list[Input] = [
    *(item(k, k % 3 if k % 4 else None, k, "xyz"[k % 3]) for k in range(1, 9)),
    *(other(k, k % 3 if k != 3 else None, "pq"[k % 2]) for k in range(1, 5)),
    item(1, 2, 10, "z"),
    ("items", 5, None),
    other(2, 5, "q"),
    ("others", 4, None),
    item(9, None, 7, "x"),
    ("items", 8, None),
    item(8, 1, 8, "x"),
]
ORDERS: list[Input] = [order(k, "ab"[k % 2] if k % 5 else None, k * 10, k * 2) for k in range(9)]

QUERIES = [
    "SELECT k, a + b AS s, upper(c) AS c FROM items WHERE a > 0 OR c = 'x'",
    "SELECT c, count(*) AS n, count(a) AS na, sum(a) AS s, min(b) AS low, max(b) AS high FROM items GROUP BY c",
    "SELECT count(DISTINCT 60) AS d, count(60) AS n FROM items WHERE k > 1",
    "SELECT a, count(*) AS n FROM items GROUP BY a HAVING count(*) > 1",
    "SELECT a % 2 AS g, sum(b) + count(*) AS s FROM items GROUP BY a % 2",
    "SELECT count(*) AS n, sum(b) AS s, max(c) AS m FROM items",
    "SELECT count(*) AS n, sum(b) AS s, min(c) AS c FROM items WHERE k > 100",
    "SELECT count(*) AS n, max(o.d) AS d FROM items i JOIN others o ON i.k = o.k AND i.b > 100",
    "SELECT count(*) + 1 AS n FROM items WHERE k > 100 HAVING count(*) < 1",
    "SELECT DISTINCT a, c FROM items",
    "SELECT count(DISTINCT a) AS n, count(*) FILTER (WHERE b > 4) AS f FROM items",
    "SELECT i.k, o.d FROM items i JOIN others o ON i.a = o.a",
    "SELECT i.k, o.k AS ok FROM items i LEFT JOIN others o ON i.a = o.a AND o.d = 'q'",
    "SELECT i.k, o.k AS ok FROM items i RIGHT JOIN others o ON i.a = o.a AND i.b > 3",
    "SELECT i.k, o.k AS ok FROM items i FULL JOIN others o ON i.k = o.k",
    "SELECT * FROM (SELECT k, b FROM items) i JOIN others o USING (k)",
    "SELECT k, (SELECT d FROM others ORDER BY k DESC LIMIT 1) AS d FROM items",
    "SELECT k, a, i.b, o.d FROM items i JOIN others o USING (k, a)",
    "SELECT k, i.b, o.d FROM items i FULL JOIN others o USING (k)",
    "SELECT i.k, o.d FROM items i, others o WHERE i.k = o.k AND i.b < 4",
    "SELECT i.k, o.k AS ok FROM items i JOIN others o ON i.a IS NOT DISTINCT FROM o.a",
    "SELECT i.k, o.k AS ok FROM items i FULL JOIN others o ON i.a IS NOT DISTINCT FROM o.a AND o.k > 1",
    "SELECT i.k, o.d FROM items i JOIN others o ON i.a = o.a AND i.a = o.k",
    "SELECT i.k FROM items i WHERE EXISTS (SELECT 1 FROM others o WHERE i.k = o.a AND i.k = o.k)",
    "SELECT x.k, y.d FROM items x JOIN (SELECT a, d FROM others GROUP BY a, d) y ON x.a = y.a AND x.k = y.a",
    "SELECT x.k, y.k AS k2, o.d FROM items x, items y, others o WHERE x.c = y.c AND x.k < y.k AND o.k = x.k",
    "SELECT k FROM items WHERE a IN (SELECT a FROM others WHERE d = 'q')",
    "SELECT k FROM items WHERE a NOT IN (SELECT a FROM others WHERE a IS NOT NULL)",
    "SELECT k FROM items WHERE a NOT IN (SELECT a FROM others)",
    "SELECT k FROM items WHERE a NOT IN (SELECT a FROM others WHERE k > 100)",
    "SELECT k FROM items i WHERE EXISTS (SELECT 1 FROM others o WHERE o.a = i.a AND o.k <> i.k)",
    "SELECT k FROM items i WHERE NOT EXISTS (SELECT 1 FROM others o WHERE o.a = i.a)",
    "SELECT k FROM items i WHERE k > 6 OR EXISTS (SELECT 1 FROM others o WHERE o.k = i.k)",
    "SELECT k, (SELECT count(*) FROM others o WHERE o.a = i.a) AS n FROM items i",
    "SELECT k, (SELECT max(d) FROM others o WHERE o.a = i.a) AS m FROM items i",
    "SELECT k FROM items WHERE b > (SELECT avg(b) FROM items)",
    "SELECT c, sum(b) AS s FROM items GROUP BY c HAVING sum(b) > (SELECT min(b) FROM items)",
    "SELECT a, (SELECT count(*) FROM others o WHERE o.a = i.a) AS n, sum(b) AS s FROM items i GROUP BY a",
    "SELECT a, sum(b) AS s FROM items i GROUP BY a HAVING EXISTS (SELECT 1 FROM others o WHERE o.a = i.a)",
    "SELECT a FROM items i GROUP BY a HAVING count(*) >= (SELECT count(*) FROM others o WHERE o.a = i.a)",
    "SELECT k, a FROM items UNION ALL SELECT k, a FROM others",
    "SELECT a FROM items UNION SELECT a FROM others",
    "SELECT a FROM items UNION ALL SELECT k FROM others UNION ALL SELECT b FROM items UNION SELECT 7 AS a FROM others",
    "SELECT a FROM items INTERSECT SELECT a FROM others",
    "SELECT a FROM items EXCEPT SELECT a FROM others",
    "SELECT a FROM items EXCEPT ALL SELECT a FROM others",
    "WITH t AS (SELECT c, sum(b) AS s FROM items GROUP BY c) SELECT x.c, y.s AS s2 FROM t x JOIN t y ON x.c = y.c",
    "SELECT q.c, q.n FROM (SELECT c, count(*) AS n FROM items GROUP BY c) q WHERE q.n > 1",
    "SELECT * FROM (SELECT k, c, b, row_number() OVER (PARTITION BY c ORDER BY b DESC) AS rn FROM items) t WHERE rn <= 2",
    "SELECT k, c, rank() OVER (PARTITION BY c ORDER BY a NULLS FIRST) AS r FROM items QUALIFY r <= 1",
    "SELECT k, row_number() OVER (ORDER BY k DESC) AS n, dense_rank() OVER (ORDER BY a) AS d FROM items",
    "SELECT k, sum(b) OVER w AS s, lag(c, 1, '-') OVER w AS d FROM items WINDOW w AS (PARTITION BY c ORDER BY k)",
    "SELECT k, sum(b) OVER (ORDER BY a RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS s, count(*) OVER () AS n FROM items",
    "SELECT c, sum(count(*)) OVER (ORDER BY c) AS n FROM items GROUP BY c QUALIFY n > 1",
    "SELECT a, c, count(*) AS n, grouping(c) AS g FROM items GROUP BY ROLLUP (a, c)",
    "SELECT a, c, sum(b) AS s FROM items GROUP BY GROUPING SETS ((c), (a), ()) HAVING count(*) < 5",
    "SELECT a, c, max(k) AS m, grouping_id(a, c) AS g FROM items GROUP BY a, CUBE (c)",
    "SELECT k, b FROM items ORDER BY b DESC, k LIMIT 3",
    "SELECT c, count(*) AS n FROM items GROUP BY c ORDER BY n DESC, c LIMIT 2",
    "SELECT CASE WHEN a IS NULL THEN 'none' ELSE c END AS g, count(*) AS n FROM items GROUP BY 1",
    "SELECT i.* FROM items i LEFT JOIN others o ON i.k = o.k WHERE o.k IS NULL",
    "SELECT k FROM items i LEFT SEMI JOIN others o ON i.a = o.a",
    "SELECT k FROM items i LEFT ANTI JOIN others o ON i.a = o.a",
    "SELECT sum(i.b) AS s FROM items i, others o WHERE (i.k = o.k AND i.a = 1) OR (i.k = o.k AND o.d = 'q')",
]


@functools.cache
def batch_tables() -> duckdb.DuckDBPyConnection:
    """Return DuckDB with the rows that there are after `CHANGES`."""
    tables: dict[str, dict[Any, Any]] = {"items": {}, "others": {}}
    for table, key, row in CHANGES:
        tables[table].pop(key, None)
        if row is not None:
            tables[table][key] = tuple(row.values())
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET default_null_order = 'NULLS_FIRST_ON_ASC_LAST_ON_DESC'")
    connection.execute("CREATE TABLE items (k BIGINT, a BIGINT, b BIGINT, c VARCHAR)")
    connection.execute("CREATE TABLE others (k BIGINT, a BIGINT, d VARCHAR)")
    for table, rows in tables.items():
        places = ", ".join("?" * (4 if table == "items" else 3))
        connection.executemany(f"INSERT INTO {table} VALUES ({places})", list(rows.values()))
    return connection


def batch_rows(sql: str) -> list[Any]:
    text = sql.replace("LEFT SEMI JOIN", "SEMI JOIN").replace("LEFT ANTI JOIN", "ANTI JOIN")
    cursor = batch_tables().execute(text)
    return sorted(repr([_plain(value) for value in row]) for row in cursor.fetchall())


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, Decimal) and value == int(value) else value


@pytest.mark.rows("FE-152", "FE-153", "FE-154", "FE-156")
@pytest.mark.parametrize("sql", QUERIES)
def test_rows_are_those_of_the_batch(sql: str) -> None:
    rows = rows_of(sql, CHANGES, chunk=3)
    assert sorted(repr([_plain(value) for value in row.values()]) for row in rows) == batch_rows(sql)


def test_an_aggregate_without_groups_keeps_its_row() -> None:
    changes = [item(1, 1, 1, "x"), ("items", 1, None)]
    assert rows_of("SELECT count(*) AS n, sum(b) AS s FROM items", changes, chunk=1) == [{"n": 0, "s": None}]


def test_streams_are_projected_filtered_and_grouped() -> None:
    assert rows_of("SELECT id, amount * 2 AS d FROM orders WHERE customer = 'a' AND amount > 20", ORDERS) == [
        {"id": 4, "d": 80},
        {"id": 6, "d": 120},
        {"id": 8, "d": 160},
    ]
    assert rows_of("SELECT customer, sum(amount) AS s FROM orders GROUP BY customer", ORDERS) == [
        {"customer": "a", "s": 200},
        {"customer": "b", "s": 110},
        {"customer": None, "s": 50},
    ]


def test_lists_are_expanded() -> None:
    tagged = [order(1, "a", 1, 1, ["x", "y"]), order(2, "a", 1, 2, []), order(3, "b", 1, 3, None)]
    assert rows_of("SELECT id, t.tag FROM orders LATERAL VIEW explode(tags) t AS tag", tagged) == [
        {"id": 1, "tag": "x"},
        {"id": 1, "tag": "y"},
    ]
    outer = rows_of("SELECT id, pos, tag FROM orders LATERAL VIEW OUTER posexplode(tags) t AS pos, tag", tagged)
    assert [row["pos"] for row in outer] == [0, 1, None, None]
    assert len(rows_of("SELECT id, u.tag FROM orders, unnest(tags) AS u(tag)", tagged)) == 2
    assert rows_of("SELECT explode(tags) AS tag, id FROM orders", tagged)[0] == {"tag": "x", "id": 1}


def test_tables_are_expanded() -> None:
    sql = "SELECT t.v, count(*) AS n FROM items LATERAL VIEW explode(array(a, b)) t AS v GROUP BY t.v"
    rows = rows_of(sql, [item(1, 1, 2, "x"), item(2, 2, 3, "x"), item(1, 3, 3, "x"), ("items", 2, None)])
    assert rows == [{"v": 3, "n": 2}]


@pytest.mark.rows("FE-155")
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT window.start AS s, window.end AS e, count(*) AS n FROM orders GROUP BY window(at, '5 seconds')",
        """SELECT window_start AS s, window_end AS e, count(*) AS n
           FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(at), INTERVAL '5' SECONDS)) GROUP BY window_start, window_end""",
        """CREATE VIEW v WITH (emit = 'final') AS
           SELECT window.start AS s, window.end AS e, count(*) AS n FROM orders GROUP BY window(at, '5 seconds')""",
    ],
)
def test_windows(sql: str) -> None:
    rows = sorted(rows_of(sql, ORDERS[:6], end=True), key=lambda row: row["s"])
    five = datetime.timedelta(seconds=5)
    assert rows == [{"s": START + n * five, "e": START + (n + 1) * five, "n": (3, 2, 1)[n]} for n in range(3)]


def test_hopping_windows_count_each_row_several_times() -> None:
    sql = "SELECT window.start AS s, count(*) AS n FROM orders GROUP BY window(at, '4 seconds', '2 seconds')"
    rows = rows_of(sql, ORDERS[:3])
    counts = {(row["s"] - START).total_seconds(): row["n"] for row in rows}
    assert counts == {-2: 1, 0: 2, 2: 2, 4: 1}
    final = f"CREATE VIEW v WITH (emit = 'final', grace = '1 minute') AS {sql}"
    assert rows_of(final, ORDERS[:3], end=True) == rows


@pytest.mark.rows("FE-155")
def test_sessions_end_the_gap_after_their_last_row() -> None:
    sql = (
        "SELECT session_window.start AS s, session_window.end AS e, count(*) AS n FROM orders "
        "GROUP BY session_window(at, '3 seconds')"
    )
    rows = rows_of(sql, [order(1, "a", 1, 0), order(2, "a", 1, 2), order(3, "a", 1, 5), order(4, "a", 1, 9)], end=True)
    seconds = [((row["s"] - START).seconds, (row["e"] - START).seconds, row["n"]) for row in rows]
    # A row that comes the gap after another one is in its session, as in Spark.
    assert seconds == [(0, 8, 3), (9, 12, 1)]


def test_rows_before_each_row() -> None:
    over = "sum(amount) OVER (ORDER BY at ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)"
    sql = f"SELECT id, {over} AS s FROM orders WHERE at IS NOT NULL"
    assert [row["s"] for row in rows_of(sql, ORDERS[:4], end=True)] == [0, 10, 30, 50]


def test_joins_of_streams_with_an_interval() -> None:
    sql = (
        "SELECT o.id, p.id AS parcel FROM orders o JOIN parcels p ON o.id = p.order_id "
        "AND p.at BETWEEN o.at AND o.at + INTERVAL '3' SECONDS"
    )
    parcels: list[Input] = [("parcels", None, {"id": k, "order_id": k, "at": k * 2 + k}) for k in range(6)]
    assert rows_of(sql, [*ORDERS[:6], *parcels], end=True) == [{"id": k, "parcel": k} for k in range(4)]


@pytest.mark.rows("FE-153")
def test_joins_as_of_a_time() -> None:
    sql = "SELECT o.id, c.name FROM orders o LEFT JOIN customers FOR SYSTEM_TIME AS OF o.at AS c ON o.customer = c.id"
    app = make_app()
    frame = app.sql(sql)
    seen: list[Any] = []
    frame.update(seen.append)
    driver = TopologyTestDriver(app)
    start = 1767225600000
    driver.pipe("default.customers", {"id": "a", "name": "Ann"}, key="a", timestamp=start)
    driver.pipe("default.customers", {"id": "a", "name": "Anna"}, key="a", timestamp=start + 5000)
    for _, _, row in ORDERS[1:5]:
        assert row is not None
        time = f"2026-01-01T00:00:{row['at']:02}"
        driver.pipe("default.orders", {**row, "at": time}, timestamp=start + row["at"] * 1000)
    assert [(row["id"], row["name"]) for row in seen] == [(1, None), (2, "Ann"), (3, None), (4, "Anna")]


# -- Programs ----------------------------------------------------------------------------------------------------------


@pytest.mark.rows("FE-001", "FE-012", "FE-013", "FE-088", "FE-151")
def test_a_program_has_views_in_any_order_and_keeps_tables() -> None:
    app = make_app(())
    frames = app.sql(
        """
        CREATE MATERIALIZED VIEW totals AS SELECT customer, sum(total) AS total FROM large GROUP BY customer;
        CREATE LOCAL VIEW large (customer, total) AS SELECT customer, amount FROM payments WHERE amount > :least;
        CREATE TABLE payments (id BIGINT NOT NULL, customer STRING NOT NULL, amount BIGINT, PRIMARY KEY (id));
        CREATE MATERIALIZED VIEW pairs AS SELECT amount, customer FROM payments;
        """,
        {"least": 5},
    )
    assert list(frames) == ["totals", "large", "pairs"]
    view = app.view("Totals")
    assert (view.name, view.schema.names, view.table.schema.primary_key) == (
        "totals",
        ("customer", "total"),
        ("customer",),
    )
    with pytest.raises(ArgumentValueError, match="no view 'large'"):
        app.view("large")
    driver = TopologyTestDriver(app)
    rows = [(1, "ann", 10), (2, "ann", 3), (3, "bob", 7), (4, "bob", 7)]
    for number, customer, amount in rows:
        driver.pipe("default.payments", {"id": number, "customer": customer, "amount": amount}, key=number)
    assert sorted(row["total"] for row in driver.table("totals").scan().rows()) == [10, 14]
    driver.pipe("default.payments", None, key=1)
    driver.pipe("default.payments", None, key=3)
    assert [row["total"] for row in driver.table("totals").scan().rows()] == [7]
    pairs = list(driver.table("pairs").scan().rows())
    assert sorted((row["customer"], row["amount"]) for row in pairs) == [("ann", 3), ("bob", 7)]


def test_floats_are_not_the_key_of_a_view() -> None:
    app = make_app()
    app.sql("CREATE MATERIALIZED VIEW v AS SELECT DISTINCT coalesce(CAST(a AS DOUBLE), 0.5D) AS x FROM items")
    driver = TopologyTestDriver(app)
    driver.pipe_many(InputRecord("default.items", {"k": k, "a": 1, "b": 1, "c": "x"}, key=k) for k in range(3))
    assert [row["x"] for row in driver.table("v").scan().rows()] == [1.0]


def test_equal_rows_of_a_view_have_keys_of_their_own() -> None:
    app = make_app()
    app.sql("CREATE MATERIALIZED VIEW v AS SELECT c, a FROM items")
    driver = TopologyTestDriver(app)
    driver.pipe_many(
        [InputRecord("default.items", {"k": k, "a": 1, "b": 1, "c": "x"}, key=k) for k in range(3)]
        + [InputRecord("default.items", None, key=1)]
    )
    assert [(row["c"], row["a"]) for row in driver.table("v").scan().rows()] == [("x", 1), ("x", 1)]


@pytest.mark.rows("FE-088")
def test_insert_writes_to_a_table() -> None:
    app = make_app()
    app.sql(
        "CREATE TABLE counts (c STRING NOT NULL, n BIGINT, note STRING, PRIMARY KEY (c)); "
        "INSERT INTO counts (c, n) SELECT coalesce(c, '-'), count(*) FROM items GROUP BY coalesce(c, '-')"
    )
    driver = TopologyTestDriver(app)
    driver.pipe("default.items", {"k": 1, "a": 1, "b": 1, "c": "x"}, key=1)
    assert list(driver.table("counts").scan().rows()) == [{"c": "x", "n": 1, "note": None}]


def test_a_view_keeps_numbers_that_json_does_not_have() -> None:
    app = make_app()
    app.sql(
        "CREATE MATERIALIZED VIEW v AS SELECT k, array(CAST(c AS DOUBLE)) AS xs, CAST(c AS FLOAT) AS x FROM items; "
        "CREATE MATERIALIZED VIEW w AS SELECT count(*) AS n, max(x) AS high FROM v"
    )
    driver = TopologyTestDriver(app)
    for k, text in enumerate(["NaN", "-Infinity", "-0.0"]):
        driver.pipe("default.items", {"k": k, "a": 1, "b": 1, "c": text}, key=k)
    rows = sorted(driver.table("v").scan().rows(), key=lambda row: int(row["k"]))
    assert [(row["xs"], row["x"]) for row in rows[1:]] == [([-math.inf], -math.inf), ([0.0], 0.0)]
    assert math.isnan(rows[0]["x"])
    assert math.isnan(rows[0]["xs"][0])
    assert math.isnan(next(driver.table("w").scan().rows())["high"])
    assert driver.verify("v").equal
    assert driver.verify("w").equal


def test_names_of_columns_have_no_case_at_a_restart() -> None:
    catalog = make_app().catalog
    for text in ("SELECT k, a FROM items", "SELECT K, A FROM items"):
        app = Application("unused:9092", consumer_group="views", catalog=catalog)
        app.sql(f"CREATE MATERIALIZED VIEW v AS {text}")
        driver = TopologyTestDriver(app)
        driver.pipe("default.items", {"k": 1, "a": 2, "b": 1, "c": "x"}, key=1)
        assert list(driver.table("v").scan().rows()) == [{"k": 1, "a": 2}]


def test_a_join_of_a_stream_with_a_table_names_the_time_of_the_stream() -> None:
    app = make_app(
        (
            "CREATE TABLE logs (id BIGINT, happened TIMESTAMP) WITH ('time' = 'happened')",
            "CREATE TABLE plain (id BIGINT)",
            "CREATE TABLE items (id BIGINT NOT NULL, PRIMARY KEY (id))",
        )
    )
    with pytest.raises(SQLNotSupportedError, match=r"FOR SYSTEM_TIME AS OF logs\.happened, or give"):
        app.sql("SELECT l.id FROM logs l JOIN items i ON l.id = i.id")
    with pytest.raises(
        SQLNotSupportedError, match="AS OF a column with the time of the rows, which the stream has to have"
    ):
        app.sql("SELECT l.id FROM plain l JOIN items i ON l.id = i.id")


def test_frames_and_parameters() -> None:
    app = make_app()
    frame = app.dataframe(app.topic("clicks")).apply(lambda value: value)
    result = app.sql(
        "SELECT page, n * :factor AS n FROM {clicks} WHERE page <> :page",
        {"factor": 2, "page": "b"},
        schemas={"clicks": "page STRING, n INT"},
        clicks=frame,
    )
    seen: list[Any] = []
    result.update(seen.append)
    driver = TopologyTestDriver(app)
    for page in "abc":
        driver.pipe("clicks", {"page": page, "n": 3})
    assert seen == [{"page": "a", "n": 6}, {"page": "c", "n": 6}]
    with pytest.raises(ArgumentValueError, match="needs the columns of this frame"):
        app.sql("SELECT page FROM {clicks}", clicks=frame)
    with pytest.raises(ArgumentValueError, match="no parameter :x"):
        app.sql("SELECT k FROM items", {"x": 1})
    with pytest.raises(SQLAnalysisError, match="no value for the parameter :x"):
        app.sql("SELECT :x AS x FROM items")


@pytest.mark.rows("FE-010", "FE-157")
def test_registered_functions() -> None:
    app = make_app()
    app.register_function("twice", lambda value: None if value is None else value * 2, "BIGINT", ["BIGINT"])
    app.register_function("added", Sum, "BIGINT", kind="aggregate")
    rows = rows_of("SELECT twice(b) AS b FROM items", [item(1, 1, 4, "x")], app=app)
    assert rows == [{"b": 8}]
    other_app = make_app()
    other_app.register_function("added", Sum, "BIGINT", kind="aggregate")
    assert rows_of("SELECT added(b) AS s FROM items", [item(1, 1, 4, "x")], app=other_app) == [{"s": 4}]


def test_registered_functions_that_make_rows() -> None:
    app = make_app()
    returns = "STRUCT<letter: STRING, place: INT>"
    with pytest.raises(ArgumentValueError, match="is a STRUCT of their columns"):
        app.register_function("letters", list, "STRING", kind="table")
    app.register_function("letters", list_letters, returns, ["STRING"], kind="table")
    rows = rows_of("SELECT k, l.letter, place FROM items LATERAL VIEW letters(c) l", [item(1, 1, 4, "xy")], app=app)
    assert rows == [{"k": 1, "letter": "x", "place": 0}, {"k": 1, "letter": "y", "place": 1}]
    assert "expand letters(c)" in app.explain("SELECT k, a1 FROM items LATERAL VIEW OUTER letters(c) l AS a1, b1")


def list_letters(text: str | None) -> list[dict[str, Any]]:
    return [{"letter": letter, "place": place} for place, letter in enumerate(text or "")]


def test_views_that_depend_on_themselves_are_refused() -> None:
    with pytest.raises(SQLAnalysisError, match="depends on itself"):
        make_app().sql("CREATE VIEW a AS SELECT k FROM b; CREATE VIEW b AS SELECT k FROM a")


def test_programs_share_what_they_read() -> None:
    app = make_app()
    app.sql("CREATE VIEW first AS SELECT customer, count(*) AS n FROM orders GROUP BY customer")
    app.sql("CREATE VIEW `second one` AS SELECT n, count(*) AS m FROM first GROUP BY n")
    total = app.sql("SELECT sum(amount) AS total FROM default.orders")
    assert [app.view(name).frame is not None for name in ("first", "second one")] == [True, True]
    seen: list[Any] = []
    total.to_stream().update(seen.append)
    driver = TopologyTestDriver(app)
    driver.pipe("default.orders", {"id": 1, "customer": "a", "amount": 5, "tags": None, "at": "2026-01-01T00:00:00"})
    assert seen == [{"total": None}, {"total": 5}]
    assert [source for source in app.topology.sources if not source.startswith("repartition")] == ["default.orders"]


def test_errors_of_tables_name_lines_of_the_program() -> None:
    with pytest.raises(SchemaError, match="line 3, column 11"):
        make_app().sql("CREATE VIEW v AS SELECT k FROM items;\n\n   CREATE TABEL x (a INT)")


def test_long_unions_are_one_operator() -> None:
    text = make_app().explain(" UNION ALL ".join(f"SELECT k + {number} AS k FROM items" for number in range(140)))
    assert text.count("union all") == 1


def test_windows_that_grow() -> None:
    text = """
        SELECT window_end, count(*) AS n
        FROM CUMULATE(TABLE orders, DESCRIPTOR(at), INTERVAL '5' SECONDS, INTERVAL '15' SECONDS)
        GROUP BY window_start, window_end
    """
    rows = sorted((row["window_end"].second, row["n"]) for row in rows_of(text, ORDERS))
    assert rows == [(5, 3), (10, 5), (15, 8), (20, 1), (25, 1), (30, 1)]


@pytest.mark.rows("FE-008")
def test_explain_says_state_and_exactness() -> None:
    app = make_app()
    text = app.explain("SELECT customer, sum(amount) AS s FROM orders WHERE amount > 1 GROUP BY customer")
    assert "updating" in text
    assert "filter" in text
    assert "an entry for each" in text
    assert "exactness: E:" in text
    text = app.explain("SELECT sum(amount) OVER (PARTITION BY customer ORDER BY amount) AS s FROM orders")
    assert "over rows of each customer by" in text
    assert "state: all rows of each group, in order, for ever" in text
    assert app.explain("SELECT id FROM orders ORDER BY id").startswith("refused: line 1, column")
    assert app.topology.sources == {}


def test_a_query_has_no_other_statements_next_to_it() -> None:
    with pytest.raises(SQLNotSupportedError, match="has no name"):
        make_app().sql("CREATE VIEW a AS SELECT k FROM items; SELECT k FROM a")


def test_views_with_long_and_odd_names_keep_state_of_their_own() -> None:
    name = "v" * 100
    app = make_app(processing_guarantee="exactly-once")
    app.sql(f"""
        CREATE MATERIALIZED VIEW {name} AS SELECT C AS c, count(*) AS n FROM ITEMS GROUP BY c;
        CREATE VIEW `a b` AS SELECT a, sum(b) AS s FROM items GROUP BY a;
        CREATE VIEW a_b AS SELECT a, max(b) AS s FROM items GROUP BY a;
        CREATE MATERIALIZED VIEW Both AS SELECT x.a, x.s AS total, y.s AS most FROM `A B` x JOIN a_b y ON x.a = y.a;
    """)
    with TopologyTestDriver(app) as driver:
        driver.execute("INSERT INTO items VALUES (1, 1, 3, 'x'), (2, 1, 4, 'x')")
        assert driver.query(f"SELECT c, n FROM {name}").one() == {"c": "x", "n": 2}
        assert driver.query("SELECT a, total, most FROM BOTH").one() == {"a": 1, "total": 7, "most": 4}


def test_frames_are_found_without_case_and_asking_for_a_name_takes_none() -> None:
    app = make_app()
    frames = app.sql("CREATE VIEW Large AS SELECT k FROM items WHERE b > 1")
    assert "LARGE" in frames
    assert "small" not in frames
    assert "default.items" not in app.topology.sources
    with pytest.raises(KeyError, match="there is no view 'small'; there are Large"):
        frames["small"]
    assert frames["large"] is frames["Large"]
    assert "default.items" in app.topology.sources
