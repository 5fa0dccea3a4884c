"""The simulator is shown mistakes, and must find them."""

from collections.abc import Callable

import pytest

from tests.sim.mutants import MUTANTS, seeds_needed

MOST = 6_000


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_found(mutant: str, record_property: Callable[[str, object], None]) -> None:
    count = seeds_needed(mutant, MOST)
    assert count is not None, f"{MOST} seeds do not show that {mutant}"
    record_property("seeds", count)
