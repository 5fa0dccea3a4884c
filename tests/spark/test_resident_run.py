"""Tests that only resident tasks must pass: tasks whose processes are killed, and applications that change their mode."""

import itertools
import random
import shutil
import signal
import statistics
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from streamrt import Application, ApplicationStatus, Context, ProcessFunction, WatermarkStrategy
from streamrt.kafka import Producer
from tests.chaos import Flow, Outputs, judge, judge_windows, program_source, tasks_of
from tests.hosts import HostedProgram
from tests.support import GROUP_PROTOCOLS, LONG, MASTER, SLOTS, Kafka, running, unique, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.spark]

GUARANTEES = ["at-least-once", "exactly-once"]
PLACES = [
    ("micro-batch", MASTER),
    ("resident", MASTER),
    ("micro-batch", MASTER),
    ("resident", SLOTS),
    ("resident", MASTER),
]
"""Modes and masters of the starts of one application."""
KILLS = 4


@pytest.mark.parametrize(
    ("static", "group_protocol"),
    list(itertools.product([True, False], GROUP_PROTOCOLS)) if LONG else [(True, "consumer"), (False, "classic")],
    indirect=["group_protocol"],
)
@pytest.mark.usefixtures("group_protocol")
def test_a_task_whose_process_is_killed_goes_on(
    kafka: Kafka, hosted: Callable[..., HostedProgram], tmp_path: Path, static: bool
) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    source, target = kafka.topic("in", 2), kafka.topic("out", 2)
    flow, outputs = Flow(kafka.address, source, seed), Outputs(kafka.address, target)
    text = program_source(kafka.address, source, target, tmp_path / "state", unique("group"))
    if not static:
        # Without an id, the group waits until the session of the dead member is over.
        text = text.replace(
            "from streamrt import Application",
            "from streamrt.application import application_run\nfrom streamrt import Application",
        )
        text = text.replace(
            "\napp = ", "\nreal, application_run.instance_id = application_run.instance_id, lambda *_: None\napp = "
        )
        text = text.replace(
            "    app.run()", "    try:\n        app.run()\n    finally:\n        application_run.instance_id = real"
        )
    seconds: list[float] = []
    try:
        app = hosted(text, STREAMRT_PROCESSING_MODE="resident")
        flow.produce(200)
        outputs.wait_for(flow.count)
        for _ in range(KILLS if static else 1):
            with flow.running(outputs, per_step=20, pause_s=0.05):
                time.sleep(chance.uniform(0.0, 0.5))
                chance.choice(tasks_of(app)).kill()
                killed = time.monotonic()
            flow.produce(100)
            outputs.wait_for(flow.count)
            seconds.append(time.monotonic() - killed)
        assert app.end()[0] == 0
        judge(flow, outputs)
        judge_windows(flow, outputs)
    finally:
        outputs.close()
    print(f"seconds from the kill to the last output: median {statistics.median(seconds):.1f}, most {max(seconds):.1f}")


def count(value: str, state: object) -> int:
    number: int = state.get("n", 0) + 1  # type: ignore[attr-defined]
    state.set("n", number)  # type: ignore[attr-defined]
    return number


def counting(
    kafka: Kafka, mode: str, guarantee: str, group: str, source: str, target: str, **settings: Any
) -> Application:
    app = kafka.app(group, processing_mode=mode, processing_guarantee=guarantee, **settings)
    sdf = app.dataframe(app.topic(source)).apply(count, stateful=True)
    sdf.to_topic(app.topic(target))
    return app


@pytest.mark.parametrize("guarantee", GUARANTEES if LONG else ["exactly-once"])
def test_an_application_changes_its_mode_and_its_place_between_two_starts(kafka: Kafka, guarantee: str) -> None:
    source, target, group = kafka.topic("in", 2), kafka.topic("out", 2), unique("group")
    expected: Counter[tuple[bytes, bytes]] = Counter()
    for run, (mode, master) in enumerate(PLACES):
        for partition, key in enumerate((b"a", b"b")):
            kafka.produce(source, ["x"] * 3, key=key, partition=partition)
            expected.update((key, b"%d" % (3 * run + n)) for n in (1, 2, 3))
        if run == 2:
            shutil.rmtree(kafka.state_dir)
        counting(kafka, mode, guarantee, group, source, target, spark_master=master).run(timeout=0.5)
    received = kafka.receive(target, expected.total())
    assert Counter((one.key, one.value) for one in received) == expected


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_task_has_many_partitions(kafka: Kafka, guarantee: str) -> None:
    partitions = 7
    source, target, group = kafka.topic("in", partitions), kafka.topic("out"), unique("group")
    app = counting(kafka, "resident", guarantee, group, source, target)
    for partition in range(partitions):
        kafka.produce(source, ["x"] * 20, key=b"%d" % partition, partition=partition)
    app.run(timeout=0.5)
    received = Counter((one.key, one.value) for one in kafka.receive(target, partitions * 20))
    assert received == Counter((b"%d" % partition, b"%d" % n) for partition in range(partitions) for n in range(1, 21))
    wait_until(
        lambda: all(kafka.committed(group, source, partition) for partition in range(partitions)), what="all commits"
    )


BACKLOG = 400
ALIGNMENT = 20
REACTION = 150
"""Records that a partition may process before its task hears that it is ahead: two slices do on a quiet machine, 14 records.

All of the backlog comes with one poll.
"""


class Distances(ProcessFunction):
    """Notes how far each record of a backlog is ahead of the last record of the slow partition, in seconds of event time."""

    def __init__(self, directory: Path) -> None:
        self.slow, self.fast = directory / "slow", directory / "fast"

    def process_element(self, value: int, ctx: Context) -> None:
        if ctx.key == "slow":
            written = self.slow.with_suffix(".new")
            written.write_text(str(value))
            written.replace(self.slow)
            return
        with self.fast.open("a") as file:
            file.write(f"{value - int(self.slow.read_text())}\n")
        time.sleep(0.03)


def test_a_backlog_waits_for_the_slowest_partition(kafka: Kafka, tmp_path: Path) -> None:
    source, function = kafka.topic("in", 2), Distances(tmp_path)
    start_ms = int(time.time() * 1_000) - 2 * BACKLOG * 1_000

    def produce_slow(second: int) -> None:
        kafka.produce(source, [second], key=b"slow", partition=1, timestamp=start_ms + second * 1_000)

    def distances() -> list[int]:
        return [int(line) for line in function.fast.read_text().split()] if function.fast.exists() else []

    def standing() -> bool:
        """Whether the backlog has stopped, or is done: nothing has come for a while."""
        before = len(distances())
        time.sleep(1.0)
        return before > 0 and len(distances()) == before

    app = kafka.app(processing_mode="resident")
    strategy = WatermarkStrategy(idle_timeout=timedelta(hours=1), alignment=timedelta(seconds=ALIGNMENT))
    app.dataframe(app.topic(source, key_deserializer="str")).process(function, clock=strategy)
    produce_slow(0)
    function.slow.write_text("0")
    with Producer(kafka.address) as producer:
        for second in range(BACKLOG):
            producer.produce(
                source, str(second).encode(), key=b"fast", partition=0, timestamp=start_ms + second * 1_000
            )
    with running(app):
        for second in (150, BACKLOG):
            wait_until(standing, what="a backlog that waits")
            assert len(distances()) < BACKLOG
            produce_slow(second)
        wait_until(lambda: len(distances()) == BACKLOG, what="the whole backlog")
    print(f"at most {max(distances())} s ahead of the slow partition, with an alignment of {ALIGNMENT} s")
    assert max(distances()) > ALIGNMENT
    assert max(distances()) <= ALIGNMENT + REACTION


COUNTER = """
from streamrt import Application

app = Application(
    {address!r}, consumer_group={group!r}, auto_offset_reset="earliest", spark_master="processes[1]", state_dir={state_dir!r},
    processing_mode="resident", processing_guarantee={guarantee!r},
)

def count(value, state):
    number = state.get("n", 0) + 1
    state.set("n", number)
    return number

app.dataframe(app.topic({source!r})).apply(count, stateful=True).to_topic(app.topic({target!r}))
app.run()
"""


@pytest.mark.parametrize("guarantee", GUARANTEES if LONG else ["exactly-once"])
def test_partitions_that_stay_go_on_with_open_stores_when_an_instance_joins_and_leaves(
    kafka: Kafka, hosted: Callable[..., HostedProgram], tmp_path: Path, guarantee: str
) -> None:
    partitions, rounds, group = 4, 0, unique("group")
    source, target = kafka.topic("in", partitions), kafka.topic("out")
    text = COUNTER.format(
        address=kafka.address,
        group=group,
        state_dir=str(tmp_path / "state"),
        guarantee=guarantee,
        source=source,
        target=target,
    )

    def produce_until(done: Callable[[], object]) -> None:
        """Produce to all partitions until something has happened, and once more."""

        def produce() -> bool:
            nonlocal rounds
            happened = bool(done())
            for partition in range(partitions):
                kafka.produce(source, ["x"], key=b"%d" % partition, partition=partition)
            rounds += 1
            assert stays.process.poll() is None, stays.err
            return happened

        wait_until(produce, 150, "what an instance says")

    def said(app: HostedProgram, word: str) -> list[str]:
        return [line for line in app.err if word in line]

    def committed() -> bool:
        return all((kafka.committed(group, source, partition) or 0) > 0 for partition in range(partitions))

    stays = hosted(text)
    # What is not open yet cannot stay open.
    produce_until(committed)
    guest = hosted(text)
    produce_until(lambda: said(guest, "processing") and said(stays, "continuing with"))
    guest.process.send_signal(signal.SIGTERM)
    produce_until(lambda: len(said(stays, "continuing with")) == len(said(stays, "processing")) == 2)
    assert guest.wait(60) == 0
    received = Counter((one.key, one.value) for one in kafka.receive(target, partitions * rounds))
    assert stays.end()[0] == 0
    assert received == Counter(
        (b"%d" % partition, b"%d" % n) for partition in range(partitions) for n in range(1, rounds + 1)
    )
    # Half of the partitions were never begun again, and the others when they came back.
    first, second = said(stays, "processing")
    kept = [number for number in range(partitions) if f"{source}[{number}]" not in second]
    assert len(kept) == partitions // 2
    for line in said(stays, "continuing with"):
        assert [number for number in range(partitions) if f"{source}[{number}]" in line] == kept
    assert all(f"{source}[{number}]" in first for number in range(partitions))


def test_a_pause_outlasts_the_session_and_an_instance_that_joins_and_leaves(
    kafka: Kafka, hosted: Callable[..., HostedProgram], tmp_path: Path
) -> None:
    partitions, session_s, group, guarantee = 4, 6.0, unique("group"), "exactly-once"
    source, target = kafka.topic("in", partitions), kafka.topic("out")
    session = {"session.timeout.ms": int(1_000 * session_s), "heartbeat.interval.ms": 500}

    def produce(count: int) -> None:
        for partition in range(partitions):
            kafka.produce(source, ["x"] * count, key=b"%d" % partition, partition=partition)

    def committed() -> int:
        return sum(kafka.committed(group, source, partition) or 0 for partition in range(partitions))

    # Without Spark, as the other instance.
    settings = {"consumer_extra_config": session, "spark_master": SLOTS}
    app = counting(kafka, "resident", guarantee, group, source, target, **settings)
    produce(3)
    app.start(timeout=180)
    try:
        wait_until(lambda: app.progress().records == 3 * partitions, what="the first records")
        app.pause()
        before, rebalances = app.progress().records, app._state.progress.meters.snapshot().rebalances
        mine = committed()
        produce(3)
        guest = hosted(
            COUNTER.format(
                address=kafka.address,
                group=group,
                state_dir=str(tmp_path / "guest"),
                guarantee=guarantee,
                source=source,
                target=target,
            )
        )
        # The one that is not paused takes its share.
        wait_until(lambda: committed() > mine, 120, "records of the other instance")
        guest.process.send_signal(signal.SIGTERM)
        assert guest.wait(60) == 0
        assert app._state.progress.meters.snapshot().rebalances > rebalances
        wait_until(lambda: len(app.progress().positions) == partitions, what="the partitions of the other instance")

        def paused_s() -> float:
            return (datetime.now(timezone.utc) - app.status_since).total_seconds()

        wait_until(lambda: paused_s() > 1.5 * session_s, what="a pause that is longer than the session")
        assert app.status is ApplicationStatus.PAUSED
        description = kafka.admin.describe_group(group)
        assert description is not None
        assert description.members
        assert app.progress().records == before
        app.resume()
        produce(1)
        received = Counter((one.key, one.value) for one in kafka.receive_exactly(target, 7 * partitions))
    finally:
        app.stop(wait=True, timeout=120)
    assert received == Counter((b"%d" % partition, b"%d" % n) for partition in range(partitions) for n in range(1, 8))


def test_instances_in_different_modes_share_the_partitions(
    kafka: Kafka, hosted: Callable[..., HostedProgram], tmp_path: Path
) -> None:
    source, target = kafka.topic("in", 4), kafka.topic("out", 2)
    flow, outputs = Flow(kafka.address, source, 7), Outputs(kafka.address, target)
    text = program_source(kafka.address, source, target, tmp_path / "state", unique("group"))
    try:
        with flow.running(outputs, per_step=40, pause_s=0.1):
            first = hosted(text, STREAMRT_PROCESSING_MODE="micro-batch")
            outputs.wait_for(1)
            second = hosted(text, STREAMRT_PROCESSING_MODE="resident")
            second.wait_for("processing")
            outputs.wait_for(outputs.count + 200)
            assert first.end()[0] == 0
            outputs.wait_for(outputs.count + 200)
            third = hosted(text, STREAMRT_PROCESSING_MODE="micro-batch")
            third.wait_for("processing")
            outputs.wait_for(outputs.count + 200)
        outputs.wait_for(flow.count)
        for copy in (second, third):
            assert copy.end()[0] == 0
        judge(flow, outputs)
        judge_windows(flow, outputs)
    finally:
        outputs.close()
