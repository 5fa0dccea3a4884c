"""Suites of queries as views: samples of what `python -m tests.sql` and long runs compare with DuckDB as a whole."""

import pytest

from tests.sql import logictest, nexmark, tpch
from tests.sql.suites import Suite, describe_outcomes, run_suite
from tests.support import LONG

pytestmark = pytest.mark.slow


def check(suite: Suite, *, passed: int, only: tuple[str, ...] = ()) -> None:
    """Run a suite: nothing may be wrong, and some queries at least must pass."""
    outcomes = [*run_suite(suite, only)]
    bad = [outcome for outcome in outcomes if outcome.kind in ("wrong", "failed")]
    assert not bad, "\n".join(f"{each.query} {each.kind}: {each.detail}" for each in bad)
    for outcome in outcomes:
        if outcome.kind == "refused":
            assert outcome.detail.startswith("line "), outcome
    counted = sum(outcome.kind == "passed" for outcome in outcomes)
    assert counted >= passed, describe_outcomes(outcomes, 0)


def test_tpch() -> None:
    """Ordinary runs take a small scale and some of the queries."""
    if LONG:
        check(tpch.make_suite(0.01, 10), passed=20)
    else:
        check(tpch.make_suite(0.001, 1), passed=3, only=("q13", "q15", "q22"))


def test_nexmark() -> None:
    if LONG:
        check(nexmark.make_suite(100_000, 5), passed=21)
    else:
        check(nexmark.make_suite(600, 2), passed=4, only=("q3", "q8", "q11", "q19", "q21"))


@pytest.mark.skipif(not LONG, reason="its files have 106 MB: make sql-suites")
@pytest.mark.parametrize("pattern", logictest.SHARES)
def test_sqllogictest(pattern: str) -> None:
    for name in logictest.file_names(pattern):
        suite = logictest.make_suite(name, keep=slice(7, None, logictest.SHARES[pattern]))
        check(suite, passed=len(suite.queries) * 3 // 4)
