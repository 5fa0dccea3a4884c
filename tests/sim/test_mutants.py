"""The simulator is shown mistakes, and must find them."""

import pytest

from tests.sim.mutants import MUTANTS, seeds_needed
from tests.support import LONG

FEW = 100
MOST = 6_000 if LONG else FEW
"""How many seeds are tried. When the runtime or the simulator changes, a seed below may show its mutant no more: a long run
searches further, and tells the seed to write here."""
FOUND_WITH = {
    "asynchronous, calls of a task that is given up go on": 6,
    "processing, the counter of lists is not in the changelog": 5,
    "tokens, the end of a level is the last stable offset": 5,
    "resident, transactional sink, positions are not compared": 8,
    "transactional sink, positions are stored after the values": 6,
    "incremental, at least once, what is lost is parked": 8,
    "incremental, at least once, parked tasks work": 120,
    "incremental, what is lost is parked": 8,
    "incremental, what is not committed is parked": 6,
    "partitions that were added begin at their ends": 6,
    "resident, records of a task that was aborted are processed": 13,
    "resident, a transactional id fences nobody": 14,
    "a merge does not read ahead": 10,
    "late, a producer is used again after trouble": 5,
    "the committed offset is not compared": 165,
    "a producer is used again after trouble": 2_850,
    "stores of any age are replayed": 763,
    "resident, a task goes on with a producer that is spent": 759,
    "resident, the committed offset is not compared": 113,
    "resident, tasks do not take turns": 155,
    "resident, at least once, parked tasks go on after any generation": 248,
    "incremental, at least once, parked tasks go on with what others had": 940,
    "incremental, at least once, offsets of what was given back are committed": 99,
    "resident, what is lost is parked": 36,
    "at least once, keys of others are not written again": 443,
    "resident, transactions are left open when an offset is moved behind deleted records": 1_603,
    "deployed, only the id of the first input is taken": 1_657,
    "deployed, inputs are not claimed": 995,
    "deployed, whoever claims an input is not fenced": 3_446,
    "deployed, a version does not claim what another one had": 2_287_396_309,
    "deployed, a former version goes on after it was followed": 2_287_396_309,
    "restores end at the last stable offset": 67,
    "stores are written before the transaction is committed": 16,
    "resident, stores are written before the transaction is committed": 91,
    "resident, a commit of the member that failed counts": 25,
    "resident, an answer of any assignment is heard": 117,
    "resident, at least once, what is lost is parked": 273,
    "resident, what is not committed is parked": 30,
    "resident, at least once, parked tasks work": 37,
    "resident, slow functions work without an end": 38,
    "records behind deleted ones are skipped": 21,
    "deployed, inputs are claimed with another id than their own": 19,
    "at least once, records of former owners count": 195,
    "at least once, what others write over stays": 195,
    "at least once, a former owner writes its values again": 478,
    "at least once, all owners have one epoch": 354,
    "resident tokens, the end of a level is the last stable offset": 35,
    "joining, all is read at once": 1,
    "resident joining, a second exchange is not waited for": 25,
    "resident joining, at least once, outputs in flight count": 346,
    "resident joining, at least once, ends are asked for too early": 82,
    "transactional sink, positions are not compared": 44,
    "at least once, transactional sink, positions are not compared": 32,
    "windows, tasks report only changes": 796,
    "recreated, no commit is held back": 34,
    "recreated, errors are no sign": 34,
    "resident recreated, no commit is held back": 37,
    "resident recreated, errors are no sign": 37,
    "at least once, transactional sink, positions are stored after the values": 120,
    "resident, transactional sink, positions are stored after the values": 167,
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
