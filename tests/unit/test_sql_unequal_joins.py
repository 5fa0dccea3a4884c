"""Joins and subqueries whose rows are not bound by equalities: after each commit, the rows of the batch query in DuckDB."""

import logging
import random

import pytest

from streamrt.schema import Schema
from tests.sql.bags import compare_bags
from tests.sql.worlds import Batch, Change, Guarantee, World
from tests.unit.sql_worlds import Input, make_app, rows_of

TABLES = {
    "t": Schema("k BIGINT, a BIGINT, PRIMARY KEY (k)"),
    "u": Schema("k BIGINT, b BIGINT, PRIMARY KEY (k)"),
    "v": Schema("k BIGINT, c BIGINT"),
}
VALUES = {"t": "a", "u": "b", "v": "c"}


def make_change(source: random.Random, time: int) -> Change:
    """Return an upsert or a deletion of a table, or a row of the log `v`, which has equal ones."""
    table, key = source.choice("tuv"), source.randrange(4)
    if table != "v" and source.random() < 0.25:
        return Change(table, key, None, time)
    row = {"k": key, VALUES[table]: source.choice([None, 1, 2, 3])}
    return Change(table, None if table == "v" else key, row, time)


def make_chunks(seed: int = 5) -> list[list[Change]]:
    """Return changes that are committed together."""
    source = random.Random(seed)
    return [[make_change(source, 10 * chunk + number) for number in range(5)] for chunk in range(6)]


def check_view(query: str, guarantee: Guarantee = "exactly-once", partitions: int = 2) -> None:
    """Compare a view with DuckDB after each chunk, and by `verify` in the end."""
    batch = Batch(TABLES)
    with World(TABLES, query, guarantee=guarantee, partitions=partitions) as world:
        for chunk in make_chunks():
            batch.apply(chunk)
            world.feed([change for change in chunk if change.table in world.read_tables])
            difference = compare_bags(batch.rows(query), world.rows())
            assert difference is None, difference.describe()
        assert world.driver.verify("result").equal


@pytest.mark.parametrize(
    "query",
    [
        "SELECT t.k, u.k AS other, a, b FROM t CROSS JOIN u",
        "SELECT t.k, u.k AS other, a, b FROM t JOIN u ON t.a < u.b",
        "SELECT t.k, u.k AS other, a, b FROM t LEFT JOIN u ON t.a < u.b AND u.k <> 1",
        "SELECT t.k, u.k AS other, a, b FROM t RIGHT JOIN u ON t.a < u.b AND u.k > 1",
        "SELECT v.k, w.k AS other, v.c FROM v FULL JOIN v AS w ON v.c < w.c",
        "SELECT v.k, v.c FROM v LEFT SEMI JOIN v AS w ON v.c < w.c",
        "SELECT v.k, v.c FROM v LEFT ANTI JOIN v AS w ON v.c < w.c",
        "SELECT t.k, n FROM t CROSS JOIN (SELECT count(*) AS n FROM u) AS counts",
        "SELECT one.k, two.k AS other FROM v AS one, v AS two WHERE one.c <= two.c AND one.k > 0",
        # Equalities come first, on either side, and what they leave meets in one partition.
        "SELECT t.k, u.k AS k2, s.k AS k3 FROM t, u, t AS s WHERE u.k = s.k AND t.a <> u.b",
        "SELECT t.k, w.k AS k4 FROM t, t AS s, u, u AS w WHERE u.k = s.k AND t.k = w.k AND t.a + w.b >= s.a + u.b",
    ],
)
def test_joins(query: str) -> None:
    check_view(query)


@pytest.mark.parametrize("query", ["SELECT t.k, u.k AS other FROM t LEFT JOIN u ON t.a < u.b"])
def test_joins_at_least_once(query: str) -> None:
    check_view(query, "at-least-once", 1)


@pytest.mark.parametrize(
    "query",
    [
        # Values: aggregates over no rows, rows of the outer query that are equal, values of it within the aggregate.
        "SELECT k, (SELECT count(*) FROM u WHERE u.b < t.a) AS n FROM t",
        "SELECT v.k, (SELECT sum(u.b * v.c) FROM u WHERE u.b <= v.c) AS n, (SELECT max(b) FROM u) AS m FROM v",
        "SELECT k, (SELECT b FROM u WHERE u.k = t.k) AS b, (SELECT DISTINCT 5 FROM u WHERE u.k > t.k) AS c FROM t",
        "SELECT k, (SELECT count(*) FROM u WHERE u.b <=> t.a) AS n FROM t",
        # Conditions by themselves, and as parts of others.
        "SELECT k FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.b < t.a) OR k = 1",
        "SELECT k, CASE WHEN NOT EXISTS (SELECT 1 FROM u WHERE u.b < t.a) THEN 1 ELSE 0 END AS e FROM t",
        "SELECT k FROM t WHERE a + (SELECT count(*) FROM u WHERE u.b < t.a) > (SELECT count(*) FROM u WHERE u.b >= t.a)",
        "SELECT t.k FROM t, u WHERE t.k = u.k AND EXISTS (SELECT 1 FROM v WHERE v.c < t.a + u.b)",
        # IN, with NULL on both sides.
        "SELECT k, a IN (SELECT b FROM u) AS e, a NOT IN (SELECT b FROM u WHERE u.k < t.k) AS f FROM t",
        "SELECT k FROM t WHERE a NOT IN (SELECT b FROM u WHERE u.k <> t.k)",
        "SELECT k FROM t WHERE a NOT IN (SELECT b FROM u) OR a IN (VALUES (1), (NULL))",
        "SELECT k FROM t WHERE a IN (VALUES (1), (2)) AND (k, a) IN (SELECT k, b FROM u)",
        "SELECT k, a IN (SELECT b FROM u WHERE u.k < t.k AND t.k < CAST('9' AS INT)) AS e FROM t",
        # Groups.
        """SELECT c, count(*) AS n, (SELECT count(*) FROM u WHERE u.b > v.c) AS m FROM v GROUP BY c
           HAVING count(*) > (SELECT min(u.k) FROM u WHERE u.b <= v.c) OR EXISTS (SELECT 1 FROM u WHERE u.b > v.c)""",
        "SELECT a, sum(CASE WHEN EXISTS (SELECT 1 FROM u WHERE u.b < t.a) THEN 1 ELSE 0 END) AS n FROM t GROUP BY a",
        # Subqueries of subqueries, which depend on one or on both queries around them.
        "SELECT k FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND t.a IN (SELECT c FROM v WHERE v.k < u.b))",
        "SELECT k, (SELECT count(*) FROM u WHERE u.b < t.a AND u.b > (SELECT min(c) FROM v WHERE v.k >= t.k)) AS n FROM t",
    ],
)
def test_subqueries(query: str) -> None:
    check_view(query)


@pytest.mark.parametrize("query", ["SELECT array(a) AS x, count(*) AS n FROM t GROUP BY array(a)"])
def test_groups_of_lists(query: str) -> None:
    """A list of NULL is another group than NULL."""
    check_view(query)


def test_a_value_of_several_rows_is_an_error() -> None:
    with World(TABLES, "SELECT k, (SELECT b FROM u WHERE u.k > t.k) AS b FROM t") as world:
        world.feed([Change("t", 1, {"k": 1, "a": 1}), Change("u", 2, {"k": 2, "b": 5})])
        assert world.rows() == [(1, 5)]
        with pytest.raises(Exception, match="a subquery that is a value has 2 rows: take an aggregate"):
            world.feed([Change("u", 3, {"k": 3, "b": 5})])


def test_the_cost_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """All rows of both sides meet in one partition: explain and a warning of the definition say so."""
    query = "SELECT i.k, o.k AS other FROM items i JOIN others o ON i.b > o.k"
    warning = (
        "the inner join on (`i.b` > `o.k`) has no equality of columns, so all rows of both sides meet in one partition"
    )
    app = make_app(loglevel=None)
    text = app.explain(query)
    assert "state: the rows of default.items; the rows of default.others; all rows of both sides of the join" in text
    assert f"warning: {warning}" in text
    with caplog.at_level(logging.WARNING, "streamrt"):
        app.sql(query)
    assert warning in caplog.text


def test_joins_with_one_row_or_an_equality_have_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    app = make_app(loglevel=None)
    with caplog.at_level(logging.WARNING, "streamrt"):
        app.sql("SELECT k, n FROM items CROSS JOIN (SELECT count(*) AS n FROM others) AS counts")
        app.sql("SELECT i.k FROM items i JOIN others o ON i.k = o.k AND i.b > o.k")
    assert caplog.text == ""


def test_streams_are_joined_by_times_only() -> None:
    """Times bound the state, so there is no need of an equality, and no warning."""
    query = (
        "SELECT o.id AS order, p.id AS parcel FROM orders o JOIN parcels p "
        "ON p.at BETWEEN o.at AND o.at + INTERVAL '3' SECONDS AND p.id <> o.id"
    )
    app = make_app(processing_guarantee="exactly-once")
    assert "warning" not in app.explain(query)
    inputs: list[Input] = [
        ("orders", None, {"id": 1, "customer": "a", "amount": 1, "tags": [], "at": 10}),
        ("orders", None, {"id": 2, "customer": "b", "amount": 1, "tags": [], "at": 11}),
        ("parcels", None, {"id": 2, "order_id": 1, "at": 12}),
        ("parcels", None, {"id": 3, "order_id": 1, "at": 14}),
    ]
    pairs = [(row["order"], row["parcel"]) for row in rows_of(query, inputs, app=app)]
    assert sorted(pairs) == [(1, 2), (2, 3)]
