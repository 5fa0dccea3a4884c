"""What SQL refuses, with its place, and with what to write instead."""

import pytest

from streamrt import Application
from streamrt.errors import SQLError
from tests.unit.sql_worlds import make_app

LOOKUP = (
    "would have to revise former rows when a row of default.customers changes: write JOIN default.customers FOR SYSTEM"
)
AGAIN = "gives another answer each time a record is processed again: use a column"
NO_ORDER = "has no meaning while rows keep coming: leave it out"

REFUSED = [
    (
        "SELECT k FROM items ORDER BY k",
        30,
        "ORDER BY of a view has no meaning while rows keep coming: order the result when",
    ),
    ("SELECT k FROM items LIMIT 3", 27, "LIMIT without ORDER BY keeps any rows: add ORDER BY"),
    ("SELECT k FROM items ORDER BY k OFFSET 2", 39, "OFFSET without LIMIT"),
    ("SELECT 1", 8, "needs FROM with a table or a frame: without one it has no input"),
    ("SELECT now() FROM items", 8, AGAIN),
    ("SELECT rand() FROM items", 8, AGAIN),
    ("SELECT uuid() FROM items", 8, AGAIN),
    ("SELECT current_user() FROM items", 8, "depends on who asks"),
    ("SELECT o.id FROM orders o CROSS JOIN customers c", 38, LOOKUP),
    ("SELECT o.id FROM orders o JOIN customers c ON o.customer = c.id", 47, LOOKUP),
    ("SELECT o.id FROM orders o LEFT JOIN customers c ON o.customer = c.id", 37, LOOKUP),
    ("WITH RECURSIVE t AS (SELECT k FROM t) SELECT k FROM t", 16, "WITH RECURSIVE is refused"),
    (
        "SELECT count(*) FROM items GROUP BY CUBE (k, a, b, c, k + 1, k + 2, k + 3)",
        43,
        "each row would be in 128 sets of keys: at most 64",
    ),
    ("SELECT c, grouping(c) FROM items GROUP BY c", 11, "grouping() needs GROUPING SETS, ROLLUP or CUBE in GROUP BY"),
    ("SELECT c, grouping(a) FROM items GROUP BY ROLLUP (c)", 11, "grouping() names keys of GROUP BY"),
    (
        "SELECT count(*) FROM orders GROUP BY window(at, '1 hour'), ROLLUP (customer)",
        38,
        "GROUPING SETS, ROLLUP and CUBE have no windows: group by window.start in a query",
    ),
    ("SELECT /*+ BROADCAST(items) */ k FROM items", 12, "hints do not change a topology: leave them out"),
    ("SELECT k FROM items TABLESAMPLE (10 PERCENT)", 15, "TABLESAMPLE has no place"),
    ("SELECT * FROM items PIVOT (sum(b) FOR c IN ('x', 'y'))", 15, "PIVOT has no place"),
    ("SELECT k FROM items DISTRIBUTE BY k", 35, "DISTRIBUTE BY has no meaning here"),
    ("SELECT k FROM items SORT BY k", 29, f"SORT BY {NO_ORDER}"),
    ("SELECT k FROM items CLUSTER BY k", 32, f"CLUSTER BY {NO_ORDER}"),
    ("SELECT lag(b) OVER (PARTITION BY c) FROM items", 8, "lag(b, 1) needs OVER (... ORDER BY ...)"),
    (
        "SELECT lag(b, 1, k) OVER (ORDER BY k) FROM items",
        18,
        "the last argument of lag() is a constant: write coalesce",
    ),
    ("SELECT lag(b) IGNORE NULLS OVER (ORDER BY k) FROM items", 8, "lag() IGNORE NULLS is refused: filter rows"),
    ("SELECT sum(b) IGNORE NULLS OVER (ORDER BY k) FROM items", 8, "IGNORE NULLS is for first_value, last_value"),
    ("SELECT ntile(0) OVER (ORDER BY k) FROM items", 8, "ntile(4) takes a number of parts, at least 1"),
    ("SELECT ntile(2) OVER (ORDER BY k ROWS 1 PRECEDING) FROM items", 8, "ntile(2) has no frame: leave out ROWS"),
    ("SELECT sum(b) OVER (ROWS 1 PRECEDING) FROM items", 26, "a frame of ROWS needs ORDER BY"),
    (
        "SELECT sum(b) OVER (ORDER BY k ROWS BETWEEN 1 FOLLOWING AND 1 PRECEDING) FROM items",
        45,
        "this frame ends before it starts",
    ),
    (
        "SELECT sum(b) OVER (ORDER BY k GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM items",
        47,
        "GROUPS frames are refused: write ROWS or RANGE",
    ),
    (
        "SELECT sum(b) OVER (ORDER BY k ROWS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE CURRENT ROW) FROM items",
        45,
        "EXCLUDE is refused: write two OVERs",
    ),
    (
        "SELECT sum(b) OVER (ORDER BY k, a RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) FROM items",
        49,
        "RANGE with a distance needs ORDER BY of one column",
    ),
    (
        "SELECT sum(b) OVER (ORDER BY c RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) FROM items",
        46,
        "RANGE with a distance needs a number, a date or a time, and c is STRING",
    ),
    (
        "SELECT sum(amount) OVER (ORDER BY at RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) FROM orders",
        52,
        "RANGE of at needs an INTERVAL, such as INTERVAL '1' HOUR",
    ),
    (
        "SELECT sum(b) OVER (ORDER BY k ROWS BETWEEN a PRECEDING AND CURRENT ROW) FROM items",
        45,
        "ROWS needs a number of rows, such as 9 PRECEDING",
    ),
    ("SELECT rank() OVER w FROM items", 8, "there is no window w"),
    (
        "SELECT k FROM items WHERE (k, a) NOT IN (SELECT o.k, o.a FROM others o WHERE o.k > items.k)",
        28,
        "IN of several columns that may be NULL is a condition of WHERE, without NOT",
    ),
    ("SELECT k FROM items WHERE k > ALL (SELECT k FROM others)", 43, "ALL and ANY of a query are refused: write NOT"),
    ("SELECT k, (SELECT k, d FROM others) FROM items", 19, "a subquery that is a value has one column, and this one 2"),
    (
        "SELECT k FROM items i WHERE EXISTS (SELECT d FROM others o WHERE o.k > i.k GROUP BY d)",
        72,
        "i.k is of the query around this one: a subquery with GROUP BY",
    ),
    (
        "SELECT k, (SELECT max(d) FROM others o GROUP BY o.a + items.a) FROM items",
        55,
        "items.a is of the query around this one: a subquery with GROUP BY",
    ),
    (
        "SELECT k FROM items i WHERE EXISTS (SELECT max(k) FROM others o WHERE o.k = i.k)",
        44,
        "always TRUE: leave it out",
    ),
    (
        "SELECT k FROM items i JOIN others o ON i.k = o.k AND i.a IN (SELECT a FROM others)",
        69,
        "a subquery in ON is refused: join with it in FROM, or put it into WHERE",
    ),
    ("SELECT k FROM items NATURAL JOIN customers", 34, "NATURAL JOIN finds no column that both sides have"),
    ("SELECT i.k FROM items i JOIN others o USING (zz)", 46, "o has no column zz for USING"),
    ("SELECT k FROM VALUES (1), (2) AS t(k)", 8, "needs FROM with a table or a frame"),
    ("SELECT * FROM range(10)", 15, "range() cannot stand in FROM"),
    ("SELECT * FROM read_csv('x')", 15, "read_csv() cannot stand in FROM"),
    ("SELECT * FROM parquet.`/etc/passwd`", 15, "there is no table or view parquet./etc/passwd"),
    (
        "SELECT * FROM SESSION(TABLE orders, DESCRIPTOR(at), INTERVAL '1' MINUTE)",
        15,
        "SESSION in FROM is refused: write GROUP BY session_window(at, '5 minutes')",
    ),
    (
        "SELECT * FROM CUMULATE(TABLE orders, DESCRIPTOR(at), INTERVAL '2' MINUTES, INTERVAL '3' MINUTES)",
        15,
        "the size of windows of CUMULATE is a multiple of the step",
    ),
    (
        "SELECT count(*) FROM orders GROUP BY window(current_timestamp(), '1 hour')",
        38,
        "windows of the wall clock have other rows each time records are processed",
    ),
    ("SELECT count(*) FROM orders GROUP BY window(id, '1 hour')", 38, "window() needs a column of type TIMESTAMP"),
    ("SELECT count(*) FROM orders GROUP BY window(at, '1 month')", 49, "'1 month' is not a duration"),
    (
        "SELECT count(*) FROM orders GROUP BY window(at, '1 hour'), window(at, '2 hours')",
        60,
        "GROUP BY has two windows: one is possible",
    ),
    ("SELECT count(*) FROM orders GROUP BY window(at, '1 day', '1 second')", 38, "in 86,400 windows: at most 1,000"),
    ("SELECT first(b) FROM items", 8, "depends on the order of records"),
    ("SELECT sum(count(*)) FROM items GROUP BY c", 12, "an aggregate within an aggregate needs a query in FROM"),
    ("SELECT k FROM items WHERE count(*) > 1", 27, "an aggregate cannot stand here"),
    ("SELECT k FROM items HAVING k > 1", 28, "HAVING needs GROUP BY or an aggregate: write WHERE"),
    ("SELECT k, count(*) FROM items", 8, "k is neither in GROUP BY nor in an aggregate: add it to GROUP BY"),
    ("SELECT java_method('java.lang.Math', 'abs', 1) FROM items", 8, "reaches outside of the query"),
    ("SELECT k FROM items FOR UPDATE", 8, "FOR UPDATE locks no rows: leave it out"),
    ("SELECT DISTINCT ON (c) k FROM items", 21, "DISTINCT ON is refused: number the rows by row_number()"),
    ("SELECT k FROM items UNION BY NAME SELECT k FROM others", 8, "BY NAME is refused: list the columns"),
    ("SELECT k FROM items UNION SELECT k, a FROM others", 8, "UNION combines 1 columns with 2"),
    ("SELECT explode(tags), explode(tags) FROM orders", 23, "SELECT has one explode(...): use LATERAL VIEW for more"),
    ("SELECT k FROM items LATERAL VIEW explode(c) t AS x", 34, "c is neither a list nor a map"),
    (
        "SELECT k FROM items WHERE (k, a) IN (SELECT k FROM others)",
        28,
        "IN compares 2 values with a query of 1 columns",
    ),
    (
        "SELECT o.id FROM orders o JOIN orders FOR SYSTEM_TIME AS OF o.at AS p ON o.id = p.id",
        61,
        "p is not a table with a primary key, of which former rows are kept",
    ),
    (
        "SELECT k FROM items JOIN customers FOR SYSTEM_TIME AS OF '2026-01-01' AS x ON items.c = x.id",
        58,
        "FOR SYSTEM_TIME AS OF joins rows of a stream",
    ),
    (
        "SELECT o.id FROM orders o JOIN customers FOR SYSTEM_TIME AS OF o.at AS c ON o.customer = c.name",
        32,
        "a join as of a time names the whole primary key of c",
    ),
    ("SELECT k FROM items VERSION AS OF 3", 15, "AS OF a time stands behind JOIN"),
    ("SELECT k FROM items, items", 22, "items is in FROM twice: give both a name"),
    ("SELECT zz FROM items", 8, "there is no column zz; there are a, b, c, k"),
    ("SELECT * EXCEPT (k, zz) FROM items", 8, "there is no column 'zz' that EXCEPT could leave out"),
    ("SELECT k, a AS k FROM items", 1, "two columns of the result have the name k"),
    (
        "SELECT c FROM items i GROUP BY c HAVING EXISTS (SELECT 1 FROM others o WHERE o.k = i.k)",
        84,
        "i.k is neither in",
    ),
    ("SELECT x.k FROM items", 8, "there is no x.k"),
    ("SELECT k FROM itms", 15, "there is no table or view itms"),
    ("SELECT a FROM items i JOIN others o ON i.k = o.k", 8, "a is ambiguous: it is a column of i and of o; write i.a"),
    ("SELECT k FROM items WHERE b", 27, "needs a condition, which is TRUE or FALSE"),
    ("SELECT k FROM items GROUP BY 5", 30, "GROUP BY 5: there are 1 columns in SELECT"),
    ("SELECT map('a', k) AS m, count(*) FROM items GROUP BY 1", 8, "maps have no equality"),
    ("INSERT OVERWRITE items SELECT k, a, b, c FROM items", 18, "write INSERT INTO"),
    ("INSERT INTO items SELECT k FROM others", 1, "default.items gets 4 columns, and the query has 1"),
    ("INSERT INTO items VALUES (1, 2, 3, 'x')", 1, "a program inserts the rows of a query"),
    ("UPDATE items SET a = 1", 1, "a program has CREATE TABLE"),
    ("DELETE FROM items", 1, "app.execute(...) changes rows once"),
    ("CREATE OR REPLACE VIEW v AS SELECT k FROM items", 1, "OR REPLACE is not needed"),
    ("CREATE VIEW v WITH (emits = 'final') AS SELECT k FROM items", 1, "did you mean emit?"),
    ("CREATE VIEW v WITH (emit = 'first') AS SELECT k FROM items", 1, "the option 'emit' is 'changes' or 'final'"),
    ("CREATE VIEW v WITH (emit = 'final') AS SELECT k FROM items", 1, "emit = 'final' is for windows"),
    ("CREATE VIEW v WITH (grace = '1 hour') AS SELECT k FROM items", 1, "grace is how long windows"),
    ("INSERT INTO items (k, a) SELECT k, a FROM others", 1, "column b of default.items is NOT NULL"),
    ("CREATE VIEW v (a, b) AS SELECT k FROM items", 1, "the view v names 2 columns, and its query has 1"),
    ("CREATE VIEW v AS SELECT k FROM items; CREATE VIEW v AS SELECT k FROM items", 39, "there is a view v already"),
]


@pytest.fixture(scope="module")
def app() -> Application:
    return make_app()


@pytest.mark.rows("FE-007", "FE-095", "FE-156")
@pytest.mark.parametrize(("sql", "column", "reason"), REFUSED, ids=[sql for sql, _, _ in REFUSED])
def test_refusals_name_the_place_and_what_to_write(app: Application, sql: str, column: int, reason: str) -> None:
    with pytest.raises(SQLError) as error:
        app.sql(sql)
    assert reason in str(error.value)
    assert (error.value.line, error.value.column) == (1, column)
    assert app.topology.sources == {}
