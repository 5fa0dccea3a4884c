"""Random expressions of SQL have the values that DuckDB computes for their translations."""

import math
import random
from typing import Any

import duckdb
import pytest

from streamrt.errors import SQLNotSupportedError
from streamrt.sql.expressions import bind_scalar
from streamrt.sql.queries.duckdb_text import to_duckdb
from streamrt.sql.reading import parse_query
from tests.sql_expressions import Columns, make_rows, make_table
from tests.sql_trees import make_tree
from tests.support import LONG

SEED = random.SystemRandom().randrange(10**6) if LONG else 2
ROWS = make_rows(SEED, 60)


def is_same(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, float) and isinstance(theirs, float):
        return math.isclose(ours, theirs, rel_tol=1e-13) or (math.isnan(ours) and math.isnan(theirs))
    return bool(ours == theirs)


@pytest.mark.slow
def test_random_trees() -> None:
    table, dice = make_table(ROWS), random.Random(SEED)
    compared = 0
    with duckdb.connect() as connection:
        connection.register("t", table)
        for _ in range(5_000 if LONG else 40):
            tree = make_tree(dice, 3)
            run = bind_scalar(parse_query(f"SELECT {tree}").expressions[0], Columns()).compile()
            values: dict[int, Any] = {}
            for number, row in enumerate(ROWS):
                try:
                    values[number] = run(row, None, 0, None)
                except (ValueError, ArithmeticError):
                    continue
            chosen = ", ".join(map(str, values)) or "-1"
            query = parse_query(f"SELECT id, CASE WHEN id IN ({chosen}) THEN {tree} END AS r FROM t")
            try:
                found = dict(connection.execute(to_duckdb(query, {"t": table.schema})).fetchall())
            except (SQLNotSupportedError, duckdb.Error):
                # DuckDB may fail in one operand where another one is NULL, and here only the other is looked at.
                continue
            compared += 1
            for number, value in values.items():
                assert is_same(value, found[number]), (tree, number, SEED)
    assert compared > 20
