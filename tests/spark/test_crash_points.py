"""Crashes, exceptions and zombies at each step of a commit, on Kafka and Spark: each record counts once, in order."""

import contextlib
import functools
import json
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from streamrt.app import definition_of
from streamrt.control import Client
from streamrt.kafka import ConnectionConfig, Consumer
from streamrt.kafka.client import partition_offsets
from streamrt.kafka.reading.changelog_reader import ChangelogReader
from streamrt.models import TimestampType, TopicPartition
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.chunk import Chunk
from streamrt.runtime.driver.starting.state_setup import complete_spec
from streamrt.runtime.report import Report
from streamrt.runtime.tasks.faults import VARIABLE, InjectedFaultError
from streamrt.runtime.tasks.kafka_clients import KafkaTaskClients
from streamrt.runtime.tasks.task_executor import TaskExecutor
from streamrt.state import State
from streamrt.testing import EmbeddedKafka
from streamrt.topology import TaskId
from tests.chaos import Flow, Outputs, judge, judge_windows, program_source, tasks_of
from tests.hosts import HostedProgram
from tests.processes import freeze, process_tree, thaw
from tests.support import LONG, Kafka, RunningProgram, in_protocols, running, unique, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.spark]

POINTS = ("fenced", "checked", "restored", "processed", "changelog-produced", "committed", "stored")
WHEN_OPENED = ("fenced", "checked", "restored")
"""Points that a resident task passes only when it opens its stores."""
KINDS = ("exit", "raise")
FROZEN_AT = ("fenced", "processed", "changelog-produced", "committed")
WHILE_PAUSING = ("processed:exit", "changelog-produced:raise", "committed:exit")
LISTENING = "control: listening at "
ROUNDS = 6
MOST_TRIES = 12
Start = Callable[..., HostedProgram]


@pytest.fixture(scope="module")
def quick_broker() -> Iterator[EmbeddedKafka]:
    """A broker that notices soon that a member or a transaction hangs."""
    settings = {
        "group.min.session.timeout.ms": 500,
        "group.consumer.min.session.timeout.ms": 500,
        "group.consumer.session.timeout.ms": 1_500,
        "group.consumer.min.heartbeat.interval.ms": 100,
        "group.consumer.heartbeat.interval.ms": 300,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
    }
    with EmbeddedKafka(config=settings) as broker:
        yield broker


@pytest.fixture
def quick_kafka(quick_broker: EmbeddedKafka, tmp_path: Path) -> Kafka:
    return Kafka(quick_broker.bootstrap_servers, tmp_path / "state")


class Faults:
    """Asks the processes of an application for faults, one at a time.

    Args:
        file: where the fault is written.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self.environment = {VARIABLE: str(file)}

    def ask(self, fault: str) -> None:
        """Ask for the next fault."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(fault)
        fresh.replace(self._file)

    def provoke(self, fault: str, app: RunningProgram, mode: str) -> None:
        """Ask for a fault, and see to it that its point is reached."""
        self.ask(fault)
        if mode == "resident" and fault.split(":")[0] in WHEN_OPENED:
            # Some of them have no partitions, or nothing to do: tasks that stay where they are open nothing.
            for process in wait_until(lambda: tasks_of(app), what="a process that runs tasks"):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()

    def wait(self, flow: Flow | None = None) -> None:
        """Wait until it has happened; that needs records, which `flow` produces if no one else does."""

        def happened() -> bool:
            if flow is not None and self._file.exists():
                flow.produce(5)
            return not self._file.exists()

        wait_until(happened, what="the fault")


def stopped(program: RunningProgram) -> psutil.Process | None:
    """Return the process of a program that is suspended, if there is one."""
    for process in process_tree(program.process.pid):
        try:
            if process.status() == psutil.STATUS_STOPPED:
                return process
        except psutil.NoSuchProcess:
            continue
    return None


def wait_for_line(program: RunningProgram, after: int, text: str) -> None:
    """Wait until a program tells something, after what it told before."""
    wait_until(lambda: any(text in line for line in program.err[after:]), what=f"{text!r}")


def committed_values(kafka: Kafka, topic: str) -> list[Any]:
    """Return the values of all committed records of a topic with one partition, read as JSON."""
    place = TopicPartition(topic, 0)
    with contextlib.closing(ChangelogReader(ConnectionConfig(bootstrap_servers=kafka.address))) as reader:
        batches = reader.read(place, *kafka.admin.bounds(place), timeout_s=30)
        return [json.loads(value or b"null") for batch in batches for value in batch.values]


def printed(program: RunningProgram) -> None:
    """Show what a program has told, without the stack traces of what it was asked to raise."""
    print("".join(line for line in program.err if line.startswith("[20")))


@pytest.mark.both_modes
@pytest.mark.usefixtures("group_protocol")
@in_protocols("classic")
@pytest.mark.parametrize("slots", ["spark", "processes"] if LONG else ["either"])
def test_workers_that_die_raise_or_hang_at_any_point_do_no_harm(
    kafka: Kafka, hosted: Start, tmp_path: Path, processing_mode: str, slots: str
) -> None:
    """With "either", resident tasks run in processes without Spark."""
    if slots == "processes" and processing_mode != "resident":
        pytest.skip("micro-batches need Spark")
    has_spark = slots == "spark" or processing_mode != "resident"
    start = hosted if has_spark else functools.partial(hosted, STREAMRT_SPARK_MASTER="processes[2]")
    source, target = kafka.topic("in", 2), kafka.topic("out", 2)
    flow, outputs = Flow(kafka.address, source, 1), Outputs(kafka.address, target)
    text = program_source(kafka.address, source, target, tmp_path / "state", unique("group"))
    app = start(text)
    faults = Faults(app.fault)
    try:
        with flow.running(outputs, per_step=30, pause_s=0.1):
            outputs.wait_for(1)
            for point in POINTS:
                for kind in KINDS:
                    faults.provoke(f"{point}:{kind}", app, processing_mode)
                    faults.wait()
                    outputs.wait_for(flow.count)
            # Spark repeated each task within the same query. A job of resident tasks lasts longer, and not all of that.
            given_up = [line for line in app.err if "gave the query up" in line or "interrupted" in line]
            assert not given_up or processing_mode == "resident"

            # A worker hangs in the middle of a commit, and the rest of the application is gone.
            faults.ask("changelog-produced:stop")
            faults.wait()
            zombie = wait_until(functools.partial(stopped, app), what="the stop")
            for process in process_tree(app.process.pid):
                if process != zombie:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.kill()
            app.kill()
            # The system hangs up on what is suspended and has no parents left, so the state is free. Where the process that
            # adopts it is of the same session, as the first one of a container may be, it does not.
            if psutil.wait_procs([zombie], timeout=10)[1]:
                zombie.kill()
                zombie.wait(60)
            app = start(text)
            outputs.wait_for(flow.count + 1)
        outputs.wait_for(flow.count)
        assert app.end()[0] == 0
        judge(flow, outputs)
        judge_windows(flow, outputs)
    finally:
        outputs.close()
        printed(app)


@pytest.mark.usefixtures("group_protocol")
@in_protocols("classic")
def test_workers_that_die_or_raise_while_the_application_is_being_paused_do_no_harm(
    kafka: Kafka, hosted: Start, tmp_path: Path, processing_mode: str
) -> None:
    source, target, group = kafka.topic("in", 2), kafka.topic("out", 2), unique("group")
    flow, outputs = Flow(kafka.address, source, 3), Outputs(kafka.address, target)
    text = program_source(kafka.address, source, target, tmp_path / "state", group)
    app = hosted(text.replace("commit_interval=1.0,", 'commit_interval=1.0, control="0",'))
    faults = Faults(app.fault)

    def committed() -> list[int | None]:
        return [kafka.committed(group, source, number) for number in range(2)]

    try:
        app.wait_for(LISTENING)
        address = next(line for line in app.err if LISTENING in line).partition(LISTENING)[2].strip()
        with flow.running(outputs, per_step=30, pause_s=0.1), Client(address) as client:
            outputs.wait_for(1)
            for fault in (f"{point}:{kind}" for point in POINTS for kind in KINDS) if LONG else WHILE_PAUSING:
                faults.provoke(fault, app, processing_mode)
                client.pause(timeout=120)
                # Nothing is processed, and everything that was is committed.
                before, count = committed(), flow.count
                wait_until(lambda: flow.count > count + 60, what="more records")  # noqa: B023
                assert committed() == before
                client.resume(timeout=120)
                # If the pause came first, the fault comes with the records that have waited.
                faults.wait()
                outputs.wait_for(flow.count)
        outputs.wait_for(flow.count)
        assert app.end()[0] == 0
        judge(flow, outputs)
        judge_windows(flow, outputs)
    finally:
        outputs.close()
        printed(app)


@pytest.mark.only_mode(
    "resident",
    reason="two instances take long; make test-long shows the other mode",
    always=False,
)
@in_protocols("classic")
def test_a_frozen_instance_that_wakes_up_does_no_harm(
    quick_kafka: Kafka, hosted: Start, tmp_path: Path, processing_mode: str, group_protocol: str
) -> None:
    kafka = quick_kafka
    source, target, group = kafka.topic("in", 2), kafka.topic("out", 2), unique("group")
    flow, outputs = Flow(kafka.address, source, 2), Outputs(kafka.address, target)
    # With the other protocol, the broker decides.
    own: dict[str, object] = {"session.timeout.ms": 1_500, "heartbeat.interval.ms": 300}
    member = own if group_protocol == "classic" else {}
    copies = [
        hosted(program_source(kafka.address, source, target, tmp_path / f"state-{number}", group, member))
        for number in range(2)
    ]
    faults = [Faults(copy.fault) for copy in copies]
    began = time.monotonic()
    try:
        for copy in copies:
            copy.wait_for("processing ")
        for number, point in enumerate(POINTS if LONG else FROZEN_AT):
            flow.produce(100)
            outputs.wait_for(flow.count)
            victim = copies[number % 2]
            faults[number % 2].provoke(f"{point}:stop", victim, processing_mode)
            faults[number % 2].wait(flow)
            wait_until(functools.partial(stopped, victim), what="the stop")
            # The whole machine freezes, in the middle of a commit.
            frozen = process_tree(victim.process.pid)
            freeze(frozen)
            # The other copy does all the work...
            flow.produce(100)
            outputs.wait_for(flow.count)
            # ... and the zombie goes on where it was, and then comes back as a member.
            told = len(victim.err)
            thaw(frozen)
            wait_for_line(victim, told, "processing ")
            print(f"{time.monotonic() - began:.1f} s: {point}")
        flow.produce(100)
        outputs.wait_for(flow.count)
        for copy in copies:
            assert copy.end()[0] == 0
        judge(flow, outputs)
        judge_windows(flow, outputs)
    finally:
        outputs.close()
        for copy in copies:
            printed(copy)


@pytest.mark.usefixtures("processing_mode")
def test_a_transaction_that_lasts_too_long_is_tried_again(
    quick_kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kafka = quick_kafka
    source, target, group = kafka.topic("in"), kafka.topic("out"), unique("group")
    kafka.produce(source, list(range(100)))
    flag = tmp_path / "slept"

    def count(value: int, state: State) -> list[int]:
        n = state.get("n", 0) + 1
        state.set("n", n)
        if value == 50 and not flag.exists():
            flag.touch()
            time.sleep(5)
        return [value, n]

    app = kafka.app(
        group,
        processing_guarantee="exactly-once",
        producer_extra_config={"transaction.timeout.ms": 2_000},
    )
    app.dataframe(app.topic(source)).apply(count, stateful=True).to_topic(app.topic(target))
    with running(app):
        wait_until(lambda: kafka.committed(group, source) == 100, what="the whole input")
    assert "exceeded its timeout of 2 s" in caplog.text
    assert committed_values(kafka, target) == [[n, n + 1] for n in range(100)]


# -- Tasks in this process -----------------------------------------------------------------------------------------


class Counting:
    """An application that counts one key, as tasks of several processes or attempts run it.

    Args:
        kafka: the broker.
    """

    def __init__(self, kafka: Kafka) -> None:
        self.kafka = kafka
        self.group = unique("group")
        self.source, self.target = kafka.topic("in"), kafka.topic("out")
        self.place = TopicPartition(self.source, 0)
        with Consumer(kafka.address, self.group, "earliest") as consumer:
            consumer.commit(offsets=partition_offsets({self.place: 0}), asynchronous=False)

    def tasks(self, state_dir: Path, pause: Callable[[], None] = lambda: None) -> tuple[TaskExecutor, KafkaTaskClients]:
        """Return tasks, as of a process of their own."""

        def count(value: int, state: State) -> list[int]:
            pause()
            n = state.get("n", 0) + 1
            state.set("n", n)
            return [value, n]

        app = self.kafka.app(self.group, processing_guarantee="exactly-once", state_dir=state_dir)
        app.dataframe(app.topic(self.source)).apply(count, stateful=True).to_topic(app.topic(self.target))
        app.setup_topics()
        spec = complete_spec(
            definition_of(app).task_spec(), app.topic_manager, self.kafka.admin, state_dir, None, app.config
        )
        clients = KafkaTaskClients(ConnectionConfig(bootstrap_servers=self.kafka.address), self.group)
        return TaskExecutor(spec, clients), clients

    def chunk(self, start: int, end: int) -> Chunk:
        """Produce records whose values are their offsets, and return them as a task gets them."""
        offsets = list(range(start, end))
        self.kafka.produce(self.source, offsets)
        kinds = [int(TimestampType.TIMESTAMP_CREATE_TIME)] * len(offsets)
        values: list[bytes | None] = [json.dumps(offset).encode() for offset in offsets]
        return Chunk(self.source, 0, offsets, [b"key"] * len(offsets), values, [0] * len(offsets), kinds)

    def outputs(self) -> list[list[int]]:
        """Return all committed outputs."""
        return committed_values(self.kafka, self.target)


@pytest.mark.parametrize("reuse", [True, False], ids=["same-producer", "new-producer"])
def test_after_an_exception_the_next_attempt_in_the_same_process_works(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reuse: bool
) -> None:
    counting, faults = Counting(kafka), Faults(tmp_path / "fault")
    for name, value in faults.environment.items():
        monkeypatch.setenv(name, value)
    tasks, clients = counting.tasks(tmp_path / "state")
    end = 0
    workers: dict[TaskId, str] = {}
    for point in POINTS:
        begin, end = end, end + 10
        chunk, context = counting.chunk(begin, end), BatchContext({counting.place: begin}, last_committer=workers)
        faults.ask(f"{point}:raise")
        with pytest.raises(InjectedFaultError):
            tasks.run([chunk], context)
        report = tasks.run([chunk], context)
        assert (report.failure, report.interrupted) == (None, {})
        assert report.ranges[counting.place].end == end
        workers = dict(report.workers) if reuse else {}
    clients.close()
    assert counting.outputs() == [[n, n + 1] for n in range(end)]


@pytest.mark.parametrize("disks", [1, 2], ids=["same-disk", "disks-of-their-own"])
def test_two_attempts_at_the_same_records_commit_them_once(kafka: Kafka, tmp_path: Path, disks: int) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    counting = Counting(kafka)
    attempts = [
        counting.tasks(tmp_path / f"state-{number % disks}", lambda: time.sleep(chance.choice((0, 0, 0.01))))
        for number in range(2)
    ]
    end = 0
    with ThreadPoolExecutor(2) as pool:
        for number in range(ROUNDS):
            begin, end = end, end + 20
            chunk = counting.chunk(begin, end)
            at, tries = begin, 0
            while at < end:
                # As for applications, pauses grow: on a slow machine two attempts that begin together fence each other.
                longest_s = 0.1 * 1.5**tries
                tries += 1
                assert tries <= MOST_TRIES
                context = BatchContext({counting.place: at})
                delays = [chance.uniform(0, longest_s) for _ in attempts]

                def attempt(number: int, context: BatchContext = context, delays: list[float] = delays) -> Report:
                    time.sleep(delays[number])
                    return attempts[number][0].run([chunk], context)  # noqa: B023 - used in this turn only

                reports = list(pool.map(attempt, range(2)))
                assert [report.failure for report in reports] == [None, None]
                at = kafka.committed(counting.group, counting.source) or 0
                done = max((report.ranges[counting.place].end for report in reports if report.ranges), default=begin)
                assert done <= at, "no report tells of more than what is committed"
            print(f"round {number}: {tries} tries")
    for _, clients in attempts:
        clients.close()
    assert counting.outputs() == [[n, n + 1] for n in range(end)]
