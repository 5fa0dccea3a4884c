"""An input topic is deleted and created again at any step: the application says so, and leaves no record out."""

import random
from collections import Counter

import pytest

from tests.sim.__main__ import ALL_MODES
from tests.support import LONG

SEEDS = 2_000 if LONG else 20


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["recreated", "resident-recreated"])
def test_a3_a_topic_that_is_created_again_is_never_taken_for_the_former_one(
    mode: str, capsys: pytest.CaptureFixture[str]
) -> None:
    base = random.SystemRandom().randrange(1 << 32) if LONG else 1
    with capsys.disabled():
        print(f"\nbase seed of the simulator of {mode} topics: {base}")
    events: Counter[str] = Counter()
    for seed in range(base, base + SEEDS):
        simulation = ALL_MODES[mode](seed)
        simulation.run_to_end()
        events.update(simulation.counts.events)
    assert events["recreated"] == events["ended"] == SEEDS
    assert SEEDS // 4 < events["refused"] < SEEDS
