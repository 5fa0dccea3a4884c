"""Random views: after each commit, their rows are those of the same query as a batch in DuckDB, and in Spark."""

import random
from collections import Counter

import pytest

from tests.sql.random_cases import Case, make_case, run_case, shrink_case
from tests.support import LONG

pytestmark = pytest.mark.slow

COUNT = 500 if LONG else 100
"""A fourth has windows that close, a fourth windows that follow changes, and the others few windows; half of each with each
guarantee."""
BASES = [random.SystemRandom().randrange(1 << 32) for _ in range(20)] if LONG else [1]
"""The first seeds: one test with all 10,000 cases of a long run would not end before it is given up."""


def describe(case: Case) -> str:
    """Return what replays a case."""
    tables = "; ".join(f"{name}: {schema}" for name, schema in case.tables.items())
    changes = "\n".join(f"  {change}" for chunk in case.chunks for change in chunk)
    return f"seed {case.seed}\n{tables}\n{case.query}\n{changes}"


@pytest.mark.parametrize("base", BASES)
def test_a_view_has_the_rows_of_the_batch_query(base: int) -> None:
    kinds: Counter[str] = Counter()
    for seed in range(base, base + COUNT):
        case = make_case(seed)
        result = run_case(case, guarantee="exactly-once" if seed // 4 % 2 else "at-least-once")
        kinds[result.kind] += 1
        if result.kind in ("wrong", "failed"):
            raise AssertionError(f"{result.detail}\n{describe(shrink_case(case, result.kind))}")
        if result.kind == "refused":
            assert result.detail.startswith("line "), f"{result.detail}\n{describe(case)}"
    # Refusals show nothing.
    assert kinds["passed"] > 0.8 * COUNT, kinds
