"""kill -9 at random, lost disks, brokers that go away, replicas that come and go: each record counts once, in order."""

import functools
import itertools
import random
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos import Flow, Outputs, judge, judge_windows, kill_tree, program_source
from tests.hosts import HostedProgram
from tests.kafka_versions import OLDEST, broker_of
from tests.support import (
    GROUP_PROTOCOLS,
    LONG,
    PROCESSING_MODES,
    Kafka,
    Program,
    RunningProgram,
    in_protocols,
    unique,
    wait_until,
)

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.spark]

KILLS = 10 if LONG else 4
"""With both modes in turn, four are the fewest after which each mode has gone on with its disk, and without."""
RECORDS = 20_000 if LONG else 6_000
BROKER_KILLS = 3 if LONG else 2
BACKLOG = 3_000 if LONG else 2_000
"""Records that an application has before it when its broker is killed, but for the first 500."""
ROUNDS = 5 if LONG else 3
BOTH_PROTOCOLS = ("classic", "consumer", "consumer", "classic")
"""In turn with the modes: each mode has each protocol, and each protocol follows each."""
COSTLY = "starts and kills take long, and the simulator does both; make test-long shows the other one"


def is_in_group(app: RunningProgram) -> bool:
    """Return whether a member of an application has been assigned partitions, by either protocol."""
    return any(word in line for line in app.err for word in ("assigned", ": added"))


def describe(seconds: list[float]) -> str:
    return f"median {statistics.median(seconds):.1f}, most {max(seconds):.1f}"


@pytest.mark.parametrize(
    ("wiped", "modes", "protocols"),
    [
        *itertools.product([0.0, 0.5, 1.0], [*PROCESSING_MODES, "both"], ["classic"]),
        *itertools.product([0.5], [*PROCESSING_MODES, "both"], ["consumer"]),
        (0.5, "both", "both"),
    ]
    if LONG
    else [(0.5, "both", "both")],
)
def test_kill_9_of_the_whole_process_tree(
    kafka: Kafka, program: Callable[..., Program], tmp_path: Path, wiped: float, modes: str, protocols: str
) -> None:
    """`wiped` is how many of the killed processes also lose their disk. With "both", starts change modes and protocols."""
    taking_turns = zip(
        itertools.cycle(PROCESSING_MODES if modes == "both" else [modes]),
        itertools.cycle(BOTH_PROTOCOLS if protocols == "both" else [protocols]),
        strict=False,
    )

    def start() -> Program:
        mode, protocol = next(taking_turns)
        return program(text, STREAMRT_PROCESSING_MODE=mode, STREAMRT_GROUP_PROTOCOL=protocol)

    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    source, target = kafka.topic("in", 2), kafka.topic("out", 2)
    flow, outputs = Flow(kafka.address, source, seed), Outputs(kafka.address, target)
    text = program_source(kafka.address, source, target, tmp_path / "state", unique("group"))
    late: list[float] = []
    beyond: list[float] = []
    try:
        with flow.running(outputs, per_step=120, pause_s=0.1):
            killed_at: float | None = None
            for kill in range(KILLS):
                before = outputs.count
                app = start()
                app.wait_for("is ready with 2 slots")
                booted = time.monotonic()
                outputs.wait_for(before + 1)
                if killed_at is not None:
                    late.append(time.monotonic() - killed_at)
                    beyond.append(time.monotonic() - booted)
                # Somewhere in the middle of batches, commits and restores.
                time.sleep(chance.uniform(0.0, 2.0))
                kill_tree(app)
                killed_at = time.monotonic()
                if kill >= KILLS * (1 - wiped):
                    shutil.rmtree(tmp_path / "state")
        if flow.count < RECORDS:
            flow.produce(RECORDS - flow.count)
        app = start()
        outputs.wait_for(flow.count)
        code, _ = app.end()
        assert code == 0
        judge(flow, outputs)
        judge_windows(flow, outputs)
    finally:
        outputs.close()
    print(f"{flow.count} records, {KILLS} kills; seconds from kill to the next output: {describe(late)}")
    print(f"seconds from ready slots to the next output: {describe(beyond)}")


@pytest.mark.only_mode("micro-batch", reason=COSTLY, always=False)
@pytest.mark.usefixtures("processing_mode")
@in_protocols("classic")
def test_a_broker_that_is_killed_again_and_again(
    hosted: Callable[..., HostedProgram], group_protocol: str, tmp_path: Path
) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    # A broker of 4.3 or 4.4 that is killed while it ends a transaction may leave it open forever. 3.7 has no KIP-848.
    with broker_of(OLDEST if group_protocol == "classic" else "4.1.2") as broker:
        kafka = Kafka(broker.bootstrap_servers, tmp_path / "state")
        source, target = kafka.topic("in", 2), kafka.topic("out", 2)
        flow, outputs = Flow(kafka.address, source, seed), Outputs(kafka.address, target)
        app = hosted(program_source(kafka.address, source, target, tmp_path / "state", unique("group")))
        try:
            for _ in range(BROKER_KILLS):
                flow.produce(BACKLOG)
                outputs.wait_for(flow.count - BACKLOG + 500)
                time.sleep(chance.uniform(0.0, 0.5))
                broker.kill()
                broker.restart()
            flow.produce(BACKLOG)
            outputs.wait_for(flow.count)
            code, _ = app.end()
            assert code == 0
            judge(flow, outputs)
            judge_windows(flow, outputs)
        finally:
            outputs.close()


@pytest.mark.only_mode("resident", reason=COSTLY, always=False)
@pytest.mark.usefixtures("processing_mode")
@pytest.mark.parametrize("protocols", [*GROUP_PROTOCOLS, "both"] if LONG else ["both"])
def test_instances_that_join_and_leave(
    kafka: Kafka, hosted: Callable[..., HostedProgram], tmp_path: Path, protocols: str
) -> None:
    """With "both" protocols, instances of each are in the group at once, as while an application changes it."""
    taking_turns = itertools.cycle(BOTH_PROTOCOLS if protocols == "both" else [protocols])
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    source, target = kafka.topic("in", 4), kafka.topic("out", 2)
    flow, outputs = Flow(kafka.address, source, seed), Outputs(kafka.address, target)
    text = program_source(kafka.address, source, target, tmp_path / "state", unique("group"))
    try:
        with flow.running(outputs, per_step=60, pause_s=0.1):
            replicas = [hosted(text, STREAMRT_GROUP_PROTOCOL=next(taking_turns))]
            outputs.wait_for(1)
            for _ in range(ROUNDS):
                replicas.append(hosted(text, STREAMRT_GROUP_PROTOCOL=next(taking_turns)))
                wait_until(functools.partial(is_in_group, replicas[-1]), what="an assignment")
                time.sleep(chance.uniform(0.0, 2.0))
                leaving = replicas.pop(chance.randrange(len(replicas)))
                code, _ = leaving.end()
                assert code == 0
                seen = outputs.count
                outputs.wait_for(seen + 100)
        outputs.wait_for(flow.count)
        for replica in replicas:
            assert replica.end()[0] == 0
        judge(flow, outputs)
        judge_windows(flow, outputs)
    finally:
        outputs.close()
