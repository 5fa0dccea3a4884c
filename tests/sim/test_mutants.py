"""The simulator is shown mistakes, and must find them."""

import pytest

from tests.sim.mutants import MUTANTS, seeds_needed
from tests.support import LONG

FEW = 100
MOST = 6_000 if LONG else FEW
"""How many seeds are tried. When the runtime or the simulator changes, a seed below may show its mutant no more: a long run
searches further, and tells the seed to write here."""
FOUND_WITH = {
    "the committed offset is not compared": 165,
    "a producer is used again after trouble": 2_850,
    "stores of any age are replayed": 763,
    "resident, a task goes on with a producer that is spent": 743,
    "resident, the committed offset is not compared": 76,
    "resident, at least once, parked tasks go on after any generation": 1_442,
    "resident, tasks do not take turns": 155,
    "resident, what is lost is parked": 363,
    "at least once, keys of others are not written again": 137,
    "resident, transactions are left open when an offset is moved behind deleted records": 1_603,
    "deployed, only the id of the first input is taken": 1_657,
    "deployed, inputs are not claimed": 995,
    "deployed, whoever claims an input is not fenced": 3_446,
    "deployed, a version does not claim what another one had": 2_287_396_309,
    "deployed, a former version goes on after it was followed": 2_287_396_309,
    "restores end at the last stable offset": 50,
    "stores are written before the transaction is committed": 16,
    "resident, stores are written before the transaction is committed": 42,
    "resident, a commit of the member that failed counts": 25,
    "resident, an answer of any assignment is heard": 117,
    "resident, at least once, what is lost is parked": 273,
    "resident, what is not committed is parked": 25,
    "resident, at least once, parked tasks work": 10,
    "resident, slow functions work without an end": 17,
    "records behind deleted ones are skipped": 21,
    "deployed, inputs are claimed with another id than their own": 19,
    "at least once, records of former owners count": 99,
    "at least once, what others write over stays": 285,
    "at least once, a former owner writes its values again": 38,
    "at least once, all owners have one epoch": 265,
    "resident tokens, the end of a level is the last stable offset": 16,
    "transactional sink, positions are not compared": 44,
    "at least once, transactional sink, positions are not compared": 32,
    "at least once, transactional sink, positions are stored after the values": 79,
    "resident, transactional sink, positions are stored after the values": 84,
}
"""A seed that shows the mutant, for those that few seeds show."""


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_found(mutant: str) -> None:
    first = FOUND_WITH.get(mutant, 0)
    count = seeds_needed(mutant, MOST, first)
    assert count is not None, (
        f"{MOST} seeds from {first} on do not show that {mutant}; STREAMRT_LONG_TESTS=1 tries more"
    )
    assert count <= FEW, f"write {first + count - 1} into FOUND_WITH"
