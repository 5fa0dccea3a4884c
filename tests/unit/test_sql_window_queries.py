"""Windows of time in queries: their bounds are those of Spark, and each row is in all of its windows."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from streamrt.errors import SQLError
from streamrt.tables import Catalog, MemoryCatalog
from streamrt.testing.memory_topics import MemoryLinks

TIMES = (-2.5, 1.0, 4.0, None, 9.999999)
"""Seconds since 1970."""


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    catalog = Catalog(store=MemoryCatalog(), links=MemoryLinks())
    visits = catalog.create_table("visits", "page STRING, at TIMESTAMP, `r1` INT, weight DOUBLE", num_partitions=1)
    weights = (0.0, -0.0, 0.0, 0.0, 1.5)
    visits.append(
        ["a", None if time is None else moment(time), number, weight]
        for number, (time, weight) in enumerate(zip(TIMES, weights, strict=True))
    )
    pages = catalog.create_table("pages", "page STRING, title STRING, PRIMARY KEY (page)", num_partitions=1)
    pages.upsert([["a", "first"]])
    return catalog


def moment(seconds: float) -> datetime:
    return datetime(1970, 1, 1) + timedelta(seconds=seconds)


def ask(catalog: Catalog, text: str) -> list[tuple[Any, ...]]:
    rows = [tuple(row.values()) for row in catalog.query(text)]
    epoch = moment(0)
    return [tuple((v - epoch).total_seconds() if isinstance(v, datetime) else v for v in row) for row in rows]


@pytest.mark.parametrize(
    ("window", "bounds"),
    [
        ("window(at, '5 seconds')", [(-5, 0, 1), (0, 5, 2), (5, 10, 1)]),
        ("window(at, INTERVAL '5' SECONDS, '5 seconds', '1 second')", [(-4, 1, 1), (1, 6, 2), (6, 11, 1)]),
        ("window(at, '5 seconds', '5 seconds', '-1 second')", [(-6, -1, 1), (-1, 4, 1), (4, 9, 1), (9, 14, 1)]),
        (
            "window(at, '5 seconds', '3 seconds')",
            [(-6, -1, 1), (-3, 2, 2), (0, 5, 2), (3, 8, 1), (6, 11, 1), (9, 14, 1)],
        ),
        ("session_window(at, '5 seconds')", [(-2.5, 9, 3), (9.999999, 14.999999, 1)]),
        ("session_window(at, '3 seconds')", [(-2.5, 0.5, 1), (1, 7, 2), (9.999999, 12.999999, 1)]),
    ],
)
def test_rows_are_counted_in_all_of_their_windows(catalog: Catalog, window: str, bounds: list[Any]) -> None:
    name = window.partition("(")[0]
    text = f"SELECT {name}.start, window.end, count(*) AS n FROM visits GROUP BY {window} ORDER BY {name}.start"
    assert ask(catalog, text) == bounds
    again = f"SELECT {window}.start AS s, {window}.end AS e, count(*) AS n FROM visits GROUP BY {window} ORDER BY s"
    assert ask(catalog, again) == bounds


def test_windows_are_of_the_rows_of_joins_and_conditions(catalog: Catalog) -> None:
    text = """
        WITH some AS (SELECT * FROM visits WHERE at < TIMESTAMP '1970-01-01 00:00:05')
        SELECT window.start AS s, p.title, sum(v.r1) AS total, (SELECT count(*) FROM pages q WHERE q.title > p.title) AS n
        FROM some v JOIN pages p USING (page)
        WHERE v.r1 > 0
        GROUP BY window(v.at, '5 seconds'), p.title
        HAVING count(*) FILTER (WHERE v.r1 > 1) = 1
    """
    assert ask(catalog, text) == [(0, "first", 3, 0)]


def test_sessions_are_of_rows_that_are_equal_in_group_by(catalog: Catalog) -> None:
    text = """
        SELECT session_window.start AS s, weight AS w, count(*) AS n
        FROM visits GROUP BY session_window(at, '5 seconds'), weight ORDER BY s
    """
    # -0.0 is 0.0.
    assert ask(catalog, text) == [(-2.5, 0.0, 3), (9.999999, 1.5, 1)]


def test_functions_of_windows_stand_in_from(catalog: Catalog) -> None:
    text = """
        SELECT visits.r1, window_start, window_end, window_time
        FROM TUMBLE(TABLE visits, DESCRIPTOR(at), INTERVAL '5' SECONDS) ORDER BY r1
    """
    assert ask(catalog, text) == [
        (0, -5, 0, -0.001),
        (1, 0, 5, 4.999),
        (2, 0, 5, 4.999),
        (4, 5, 10, 9.999),
    ]
    text = """
        SELECT h.window_start, count(*) AS n
        FROM HOP(TABLE (SELECT at AS moment FROM visits), DESCRIPTOR(moment), INTERVAL '3' SECONDS, INTERVAL '5' SECONDS) AS h
        GROUP BY h.window_start ORDER BY window_start
    """
    assert ask(catalog, text) == [(-6, 1), (-3, 2), (0, 2), (3, 1), (6, 1), (9, 1)]
    text = """
        SELECT window_start, window_end, count(*) AS n
        FROM CUMULATE(TABLE visits, DESCRIPTOR(at), INTERVAL '5' SECONDS, INTERVAL '10' SECONDS)
        GROUP BY window_start, window_end ORDER BY window_start, window_end
    """
    assert ask(catalog, text) == [(-10, 0, 1), (0, 5, 2), (0, 10, 3)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT count(*) AS n FROM visits GROUP BY window(page, '1 hour')", "needs a column of type TIMESTAMP"),
        ("SELECT count(*) AS n FROM visits GROUP BY window(at, '1 month')", "'1 month' is not a duration"),
        ("SELECT count(*) AS n FROM visits GROUP BY window(at, '1 day'), window(at, '2 days')", "has two windows"),
        (
            "SELECT window(at, '1 day') AS w FROM visits GROUP BY window(at, '1 day')",
            r"take window\.start or window\.end",
        ),
        ("SELECT window.begin AS w FROM visits GROUP BY window(at, '1 day')", "there is no column"),
        ("SELECT page FROM CUMULATE(TABLE visits, DESCRIPTOR(at), INTERVAL '1' DAY)", "has two durations"),
    ],
)
def test_windows_that_do_not_exist_are_refused(catalog: Catalog, text: str, message: str) -> None:
    with pytest.raises(SQLError, match=message):
        catalog.query(text)
