"""Constants in views: conditions and aggregates of them, which sqllogictest has many of, and rows without a table."""

import warnings

import pytest

from streamrt.schema import Schema
from tests.sql.bags import compare_bags
from tests.sql.worlds import Batch, Change, Guarantee, World

ROWS = [Change("t", None, {"k": number, "a": None if number == 2 else number}, number) for number in range(3)]


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT k FROM t WHERE NOT (+59) IS NULL", [(0,), (1,), (2,)]),
        ("SELECT k FROM t WHERE -59 IS NULL", []),
        ("SELECT k FROM t WHERE NULL IS NOT NULL", []),
        ("SELECT k FROM t WHERE (1 + 2) IS NOT NULL", [(0,), (1,), (2,)]),
        ("SELECT count(DISTINCT 67) AS n FROM t", [(1,)]),
        ("SELECT count(DISTINCT 67) AS n, count(67) AS m, count(a) AS c FROM t", [(1, 3, 2)]),
    ],
)
def test_constants(query: str, rows: list[tuple[int, ...]]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with World({"t": Schema("k BIGINT, a BIGINT")}, query) as world:
            world.feed(ROWS)
            assert sorted(world.rows()) == rows


KEYED = {"t": Schema("k BIGINT, a BIGINT, PRIMARY KEY (k)"), "u": Schema("k BIGINT, b STRING, PRIMARY KEY (k)")}
CHUNKS = [
    [],
    [Change("t", 1, {"k": 1, "a": 0}, 1)],
    [Change("u", 2, {"k": 2, "b": "x"}, 2), Change("t", 2, {"k": 2, "a": 2}, 2)],
    [Change("t", 1, None, 3), Change("u", 2, None, 3)],
]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) AS n, sum(a) AS total FROM t WHERE a > 1",
        "SELECT count(*) AS n, max(a) AS highest FROM t JOIN u ON t.k = u.k",
        "SELECT k, (SELECT coalesce(max(k), 7) FROM u) AS latest FROM t",
        "SELECT k FROM t WHERE a IN (SELECT count(*) FROM u)",
        "SELECT n, count(*) AS times FROM (SELECT count(*) AS n FROM u) GROUP BY n",
        "SELECT 1 AS x UNION ALL SELECT a FROM t",
        "SELECT b, 5 AS n FROM u UNION ALL VALUES ('a', 1), (NULL, 2.5)",
        "SELECT v.k, n, a FROM (VALUES (1, 'one'), (2, 'two'), (2, 'two'), (3, NULL)) AS v(k, n) LEFT JOIN t ON t.k = v.k",
        "WITH c(x) AS (VALUES (1), (1)) SELECT x, (SELECT count(*) FROM t) AS n FROM c",
        "SELECT k FROM t EXCEPT SELECT 2 AS k",
        "SELECT k FROM t WHERE a > (SELECT 1) AND NOT EXISTS (SELECT 1 WHERE 1 = 2)",
        "SELECT count(*) AS n FROM (SELECT 1 AS x WHERE 1 = 2) AS q LEFT JOIN t ON t.k = q.x",
        "SELECT k, a FROM t ORDER BY k LIMIT 1 OFFSET 1",
        "(SELECT k FROM t UNION ALL VALUES (0), (5)) ORDER BY k LIMIT 2 OFFSET 1",
    ],
)
@pytest.mark.parametrize(("guarantee", "partitions"), [("exactly-once", 2), ("at-least-once", 1)])
def test_rows_that_need_no_record(query: str, guarantee: Guarantee, partitions: int) -> None:
    batch = Batch(KEYED)
    with World(KEYED, query, guarantee=guarantee, partitions=partitions) as world:
        for chunk in CHUNKS:
            batch.apply(chunk)
            world.feed([change for change in chunk if change.table in world.read_tables])
            # They are made once.
            world.driver.stop()
            world.driver.start()
            difference = compare_bags(batch.rows(query), world.rows())
            assert difference is None, difference.describe()


def test_streams_are_joined_with_constant_rows() -> None:
    query = "SELECT t.k, name FROM t JOIN (VALUES (0, 'none'), (1, 'one')) AS names(a, name) ON t.a = names.a"
    with World({"t": Schema("k BIGINT, a BIGINT")}, query) as world:
        world.feed(ROWS)
        assert sorted(world.rows()) == [(0, "none"), (1, "one")]
