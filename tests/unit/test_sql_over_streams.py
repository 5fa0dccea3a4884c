"""OVER on streams in the order of their time: rows of a stream again, from little state."""

import random
from datetime import datetime, timedelta

import pytest

from streamrt.schema import Schema
from tests.sql.worlds import VIEW, Change, World
from tests.unit.sql_worlds import make_app

START = datetime(2026, 1, 1)
SCHEMA = Schema("id BIGINT NOT NULL, page STRING, n INT, at TIMESTAMP NOT NULL", time="at")
AGGREGATES = ["sum(n)", "count(DISTINCT n)", "min(n)", "max(n)", "avg(n)", "count(*)"]
PLACES = ["last_value(n)", "nth_value(n, 2)", "first_value(n) IGNORE NULLS"]
FRAMES = [
    "",
    "RANGE BETWEEN INTERVAL '2' SECONDS PRECEDING AND CURRENT ROW",
    "RANGE BETWEEN CURRENT ROW AND CURRENT ROW",
]


def visits(seed: int) -> list[Change]:
    rng = random.Random(seed)
    microseconds, rows = 0, []
    for number in range(60):
        microseconds += rng.choice((0, 0, 1, 400, 700_000, 5_000_000))
        at = START + timedelta(microseconds=microseconds)
        n = rng.choice((None, 1, 2, 3))
        rows.append(Change("visits", None, {"id": number, "page": rng.choice("ab"), "n": n, "at": at}))
    for index in range(0, 50, 5):
        # Within the grace period.
        rows[index : index + 3] = rng.sample(rows[index : index + 3], 3)
    return rows


@pytest.mark.parametrize("seed", range(3))
def test_rows_are_those_of_the_batch_query(seed: int) -> None:
    columns = [f"{call} OVER (PARTITION BY page ORDER BY at {frame})" for call in AGGREGATES for frame in FRAMES]
    columns += [f"{name}() OVER (PARTITION BY page ORDER BY at)" for name in ("rank", "dense_rank")]
    listed = ", ".join(f"{column} AS c{number}" for number, column in enumerate(columns))
    with World({"visits": SCHEMA}, f"SELECT *, {listed} FROM visits", options=" WITH (grace = '30 seconds')") as world:
        world.feed(visits(seed))
        found = world.driver.verify(VIEW)
        assert found.equal, str(found)
        world.driver.end()
        found = world.driver.verify(VIEW)
        assert (found.equal, found.rows, found.notes) == (True, 60, ()), str(found)


def test_rows_in_an_order_without_equal_times() -> None:
    frames = ["ROWS UNBOUNDED PRECEDING", "ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING"]
    columns = [f"{call} OVER (ORDER BY at {frame})" for call in (*AGGREGATES, *PLACES) for frame in frames]
    columns += ["row_number() OVER (ORDER BY at)", "lag(n, 2, -1) OVER (ORDER BY at)", "lag(page) OVER (ORDER BY at)"]
    listed = ", ".join(f"{column} AS c{number}" for number, column in enumerate(columns))
    with World({"visits": SCHEMA}, f"SELECT id, {listed} FROM visits") as world:
        world.feed(
            [
                Change("visits", None, {**(each.row or {}), "at": START + timedelta(seconds=number)})
                for number, each in enumerate(visits(1))
            ]
        )
        world.driver.end()
        found = world.driver.verify(VIEW)
        assert (found.equal, found.rows, found.notes) == (True, 60, ()), str(found)


@pytest.mark.parametrize(
    ("column", "state"),
    [
        ("row_number() OVER (PARTITION BY page ORDER BY at)", "an entry for each page, for ever"),
        ("lag(n) OVER (ORDER BY at)", "an entry for all rows, for ever"),
        ("sum(n) OVER (ORDER BY at ROWS 2 PRECEDING)", "rows -2 to 0 of all rows"),
        (
            "sum(n) OVER (ORDER BY at RANGE INTERVAL '1' HOUR PRECEDING)",
            "range -1 day, 23:00:00 to 0 of all rows",
        ),
    ],
)
def test_explain_says_what_is_kept(column: str, state: str) -> None:
    app = make_app(["CREATE TABLE visits (id BIGINT, page STRING, n INT, at TIMESTAMP NOT NULL) WITH ('time' = 'at')"])
    text = app.explain(f"SELECT id, {column} AS x FROM visits")
    assert "append-only" in text
    assert state in text
    assert "exactness: E*" in text


@pytest.mark.parametrize(
    "column",
    [
        "lead(n) OVER (ORDER BY at)",
        "sum(n) OVER (ORDER BY at DESC)",
        "sum(n) OVER (PARTITION BY page)",
        "sum(n) OVER (ORDER BY id)",
        "sum(n) OVER (ORDER BY at ROWS BETWEEN CURRENT ROW AND 1 FOLLOWING)",
        "sum(n) OVER (ORDER BY open)",
    ],
)
def test_other_results_change(column: str) -> None:
    table = "CREATE TABLE visits (id BIGINT, page STRING, n INT, at TIMESTAMP NOT NULL, open TIMESTAMP) WITH ('time' = 'at')"
    text = make_app([table]).explain(f"SELECT id, {column} AS x FROM visits")
    assert "updating" in text
    assert "in order, for ever" in text


def test_a_time_that_may_be_missing_is_tested_first() -> None:
    app = make_app(["CREATE TABLE visits (id BIGINT, n INT, at TIMESTAMP) WITH ('time' = 'at')"])
    query = "SELECT id, sum(n) OVER (ORDER BY at) AS s, row_number() OVER (ORDER BY at) AS r FROM visits"
    assert "updating" in app.explain(query)
    text = app.explain(f"{query} WHERE id > 1 AND at IS NOT NULL")
    assert "append-only" in text


def test_functions_of_one_order_are_one_operator() -> None:
    table = "CREATE TABLE visits (id BIGINT, n INT, at TIMESTAMP NOT NULL) WITH ('time' = 'at')"
    query = (
        "SELECT row_number() OVER (ORDER BY at) AS r, sum(n) OVER (ORDER BY at) AS s, lag(n) OVER (ORDER BY at) AS l"
    )
    assert make_app([table]).explain(f"{query} FROM visits").count("over rows by") == 1
