"""Snapshots, and machines that lose their disks, with all kinds of faults."""

import random

import pytest

from tests.sim.snapshots import (
    AgingSnapshotSimulation,
    AgingStandbySimulation,
    ResidentSnapshotSimulation,
    SnapshotSimulation,
    StandbySnapshotSimulation,
)
from tests.support import LONG

SEEDS = 2_000 if LONG else 16


@pytest.mark.slow
@pytest.mark.parametrize("transactional", [True, False])
@pytest.mark.parametrize(
    "kind",
    [
        SnapshotSimulation,
        ResidentSnapshotSimulation,
        AgingSnapshotSimulation,
        StandbySnapshotSimulation,
        AgingStandbySimulation,
    ],
)
def test_whatever_goes_wrong_a_restore_from_a_snapshot_is_right(
    kind: type[SnapshotSimulation], transactional: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    base = random.SystemRandom().randrange(1 << 32) if LONG else 1
    with capsys.disabled():
        print(f"\nbase seed of the simulator with snapshots: {base}")
    restored = 0
    for seed in range(base, base + SEEDS):
        simulation = kind(seed, transactional=transactional)
        simulation.run_to_end()
        restored += simulation.restored
    assert restored > SEEDS
