"""The simulator is shown mistakes, and must find them."""

import pytest

from tests.sim.mutants import MUTANTS, seeds_needed
from tests.support import LONG

FEW = 100
MOST = 6_000 if LONG else FEW
"""How many seeds are tried. When the runtime or the simulator changes, a seed below may show its mutant no more: a long run
searches further, and tells the seed to write here."""
FOUND_WITH = {
    "snapshots, snapshots of any age are used": 281,
    "snapshots, snapshots have what may be aborted": 8,
    "snapshots, at least once, snapshots of any age are used": 221,
    "snapshots, at least once, snapshots have what may be aborted": 138,
    "asynchronous, calls of a task that is given up go on": 6,
    "processing, the counter of lists is not in the changelog": 5,
    "tokens, the end of a level is the last stable offset": 5,
    "resident, transactional sink, positions are not compared": 8,
    "transactional sink, positions are stored after the values": 6,
    "incremental, at least once, what is lost is parked": 19,
    "incremental, at least once, parked tasks work": 120,
    "incremental, what is lost is parked": 8,
    "incremental, what is not committed is parked": 6,
    "partitions that were added begin at their ends": 6,
    "resident, records of a task that was aborted are processed": 24,
    "resident, a transactional id fences nobody": 14,
    "a merge does not read ahead": 10,
    "late, a producer is used again after trouble": 5,
    "the committed offset is not compared": 165,
    "a producer is used again after trouble": 2_850,
    "stores of any age are replayed": 763,
    "resident, a task goes on with a producer that is spent": 759,
    "resident, the committed offset is not compared": 145,
    "resident, tasks do not take turns": 155,
    "resident, at least once, parked tasks go on after any generation": 312,
    "incremental, at least once, parked tasks go on with what others had": 940,
    "incremental, at least once, offsets of what was given back are committed": 147,
    "resident, what is lost is parked": 46,
    "at least once, keys of others are not written again": 443,
    "resident, transactions are left open when an offset is moved behind deleted records": 1_603,
    "deployed, only the id of the first input is taken": 1_657,
    "deployed, inputs are not claimed": 995,
    "deployed, whoever claims an input is not fenced": 3_446,
    "deployed, a version does not claim what another one had": 2_287_396_309,
    "deployed, a former version goes on after it was followed": 2_287_396_309,
    "restores end at the last stable offset": 67,
    "stores are written before the transaction is committed": 16,
    "resident, stores are written before the transaction is committed": 110,
    "resident, a commit of the member that failed counts": 25,
    "resident, an answer of any assignment is heard": 131,
    "resident, at least once, what is lost is parked": 275,
    "resident, what is not committed is parked": 30,
    "resident, at least once, parked tasks work": 66,
    "resident, slow functions work without an end": 38,
    "records behind deleted ones are skipped": 21,
    "deployed, inputs are claimed with another id than their own": 19,
    "at least once, records of former owners count": 195,
    "at least once, what others write over stays": 537,
    "at least once, a former owner writes its values again": 478,
    "at least once, all owners have one epoch": 354,
    "resident tokens, the end of a level is the last stable offset": 35,
    "joining, all is read at once": 3,
    "resident joining, a second exchange is not waited for": 37,
    "resident joining, at least once, outputs in flight count": 346,
    "resident joining, at least once, ends are asked for too early": 82,
    "transactional sink, positions are not compared": 44,
    "at least once, transactional sink, positions are not compared": 32,
    "windows, tasks report only changes": 796,
    "tables, at least once, equal rows are never passed on": 115,
    "resident tables, at least once, equal rows are never passed on": 75,
    "resident tables, former rows are kept in memory": 13,
    "standbys, copies are ahead of what is committed": 61,
    "standby snapshots, copies are ahead of what is committed": 268,
    "standby snapshots, snapshots have what may be aborted": 155,
    "standby snapshots, open transactions count": 49,
    "resident snapshots, snapshots have what may be aborted": 102,
    "recreated, no commit is held back": 34,
    "recreated, errors are no sign": 34,
    "resident recreated, no commit is held back": 37,
    "resident recreated, errors are no sign": 37,
    "at least once, transactional sink, positions are stored after the values": 120,
    "resident, transactional sink, positions are stored after the values": 194,
    "no position is produced": 2,
    "the stamp's changelog offset is one too high": 3,
    "resident, positions are not taken back": 3,
    "resident, state that was given up is used": 18,
    "resident, stores stay open when partitions go": 3,
    "resident, at least once, what is not committed is parked": 4,
    "at least once, the stamp's changelog offset is one too high": 3,
    "deployed, stores that were passed by are used": 3,
    "incremental, at least once, what is not committed is parked": 2,
    "resident, transactional sink, values that are there are written again": 3,
    "tokens, at least once, the second level is forgotten": 2,
    "tokens, at least once, all ends are taken at once": 3,
    "resident tokens, at least once, the second level is forgotten": 15,
    "resident tokens, at least once, all ends are taken at once": 4,
    "resident processing, the counter of lists is not in the changelog": 2,
    "resident asynchronous, calls of a task that is given up go on": 3,
    "windows, a watermark that stands still passes no more": 2,
    "resident joining, nobody is waited for": 3,
    "resident joining, at least once, nobody is waited for": 11,
    "resident joining, at least once, merges do not read to the ends": 4,
    "recreated, committed offsets name no topic": 8,
    "recreated, state of any topic is taken": 10,
    "recreated, at least once, committed offsets name no topic": 18,
    "recreated, at least once, no commit is held back": 6,
    "recreated, at least once, errors are no sign": 6,
    "recreated, at least once, state of any topic is taken": 10,
    "resident recreated, committed offsets name no topic": 7,
    "resident recreated, state of any topic is taken": 5,
    "resident recreated, at least once, committed offsets name no topic": 3,
    "resident recreated, at least once, no commit is held back": 3,
    "resident recreated, at least once, errors are no sign": 3,
    "resident recreated, at least once, state of any topic is taken": 10,
}
"""A seed that shows the mutant, for those that few seeds show: the fewer are tried, the less it costs."""


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_found(mutant: str) -> None:
    first = FOUND_WITH.get(mutant, 0)
    count = seeds_needed(mutant, MOST, first)
    assert count is not None, (
        f"{MOST} seeds from {first} on do not show that {mutant}; STREAMRT_LONG_TESTS=1 tries more"
    )
    assert count <= FEW, f"write {first + count - 1} into FOUND_WITH"
