"""Conditions and aggregates of constants in views, which sqllogictest has many of."""

import warnings

import pytest

from streamrt.schema import Schema
from tests.sql.worlds import Change, World

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
