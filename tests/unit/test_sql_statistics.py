"""Statistics of SQL over rows that change, compared with DuckDB."""

import math
import random
from decimal import Decimal
from typing import Any

import pytest

from streamrt.schema import Schema
from tests.sql.worlds import VIEW, Change, World

COLUMNS = "id BIGINT NOT NULL, g STRING, i INT, l BIGINT, x DOUBLE, y DOUBLE, m DECIMAL(8, 2), s STRING"
SCHEMA = Schema(COLUMNS, primary_key=["id"])
CALLS = [
    "median(x)",
    "median(DISTINCT i)",
    "percentile(x, 0.25)",
    "percentile_cont(0.25) WITHIN GROUP (ORDER BY i)",
    "percentile_cont(0.25) WITHIN GROUP (ORDER BY x DESC)",
    "percentile_disc(0.25) WITHIN GROUP (ORDER BY x)",
    "percentile_disc(0.25) WITHIN GROUP (ORDER BY i DESC)",
    "percentile_approx(m, 0.6)",
    "approx_percentile(i, 0.9, 100)",
    "mode(s)",
    "mode() WITHIN GROUP (ORDER BY i DESC)",
    "corr(y, x)",
    "covar_pop(y, x)",
    "covar_samp(i, x)",
    "regr_count(y, x)",
    "regr_avgx(y, x)",
    "regr_avgy(y, x)",
    "regr_sxx(y, x)",
    "regr_syy(y, x)",
    "regr_sxy(y, x)",
    "regr_slope(y, x)",
    "regr_intercept(y, x)",
    "regr_r2(y, x)",
    "skewness(i)",
    "kurtosis(i)",
    "bit_and(i)",
    "bit_or(l)",
    "bit_xor(l)",
    "approx_count_distinct(s)",
    "approx_count_distinct(x, 0.1)",
]


def changes(seed: int) -> list[Change]:
    rng = random.Random(seed)
    found = []
    for _ in range(60):
        key = rng.randrange(20)
        row: dict[str, Any] = {
            "id": key,
            "g": rng.choice("abcde"),
            "i": rng.choice((None, -(2**31), -3, 1, 2, 2, 5)),
            "l": rng.choice((None, -(2**63), 2**63 - 1, 6, 7)),
            "x": rng.choice((None, 0.5, 1.0, 2.5, -4.0)),
            "y": rng.choice((None, 1.5, 2.0, 2.0)),
            "m": rng.choice((None, Decimal("1.25"), Decimal("-7.00"))),
            "s": rng.choice((None, "p", "q", "r")),
        }
        found.append(Change("t", key, None if rng.random() < 0.2 else row))
    return found


@pytest.mark.parametrize("seed", range(2))
def test_over_rows_that_change(seed: int) -> None:
    columns = [call if number % 3 else f"{call} FILTER (WHERE id > 4)" for number, call in enumerate(CALLS)]
    listed = ", ".join(f"{column} AS c{number}" for number, column in enumerate(columns))
    with World({"t": SCHEMA}, f"SELECT g, {listed} FROM t GROUP BY g") as world:
        for first in range(0, 60, 20):
            world.feed(changes(seed)[first : first + 20])
            found = world.driver.verify(VIEW)
            assert found.equal, str(found)


def test_of_values_that_are_not_finite() -> None:
    calls = [
        "corr(y, x)",
        "covar_pop(y, x)",
        "skewness(x)",
        "percentile(x, 1.0)",
        "percentile_approx(x, 1.0)",
        "mode(x)",
    ]
    listed = ", ".join(f"{call} AS c{number}" for number, call in enumerate(calls))
    with World({"t": SCHEMA}, f"SELECT g, {listed} FROM t GROUP BY g") as world:
        row = {"g": "a", "i": 1, "l": 1, "y": 1.0, "m": None, "s": None}
        world.feed(
            [Change("t", key, {**row, "id": key, "x": x}) for key, x in enumerate((math.nan, math.nan, 2.0, 3.0))]
        )
        ((_, *found),) = world.rows()
        assert [math.isnan(value) for value in found] == [True] * 6
        world.feed([Change("t", 0, None), Change("t", 1, None)])
        ((_, *found),) = world.rows()
        assert found == [None, 0.0, 0.0, 3.0, 3.0, 2.0]
