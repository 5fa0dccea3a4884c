"""Crashes, exceptions and zombies at each step of a commit, on Kafka and Spark: each record counts once, in order."""

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from streamrt import Application
from streamrt.kafka import Consumer, TopicAdmin
from streamrt.models import TimestampType, TopicPartition
from streamrt.runtime import BatchContext, Chunk, Report, Tasks
from streamrt.runtime.faults import VARIABLE, InjectedFaultError
from streamrt.runtime.kafka_clients import KafkaTaskClients
from streamrt.runtime.state_setup import complete_spec
from streamrt.testing import EmbeddedKafka
from tests.chaos import Flow, Outputs, judge, program_source
from tests.support import Kafka, Program, running, unique, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.spark]

POINTS = ("fenced", "checked", "restored", "processed", "changelog-produced", "committed", "stored")
Start = Callable[..., Program]


@pytest.fixture(scope="module")
def quick_broker() -> Iterator[EmbeddedKafka]:
    """A broker that notices soon that a member or a transaction hangs."""
    settings = {
        "group.min.session.timeout.ms": 500,
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

    def wait(self) -> None:
        """Wait until it has happened."""
        wait_until(lambda: not self._file.exists(), 60, "the fault")


def tree(program: Program) -> list[psutil.Process]:
    """Return a program with everything that it has started."""
    root = psutil.Process(program.process.pid)
    return [root, *root.children(recursive=True)]


def stopped(program: Program) -> psutil.Process | None:
    """Return the process of a program that is suspended, if there is one."""
    for process in tree(program):
        try:
            if process.status() == psutil.STATUS_STOPPED:
                return process
        except psutil.NoSuchProcess:
            continue
    return None


def signal_all(processes: list[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            continue


def printed(program: Program) -> None:
    """Show what a program has told, without the stack traces of what it was asked to raise."""
    print("".join(line for line in program.err if line.startswith("[20")))


def test_workers_that_die_raise_or_hang_at_any_point_do_no_harm(kafka: Kafka, program: Start, tmp_path: Path) -> None:
    source, target = kafka.topic("in", 2), kafka.topic("out", 2)
    flow, outputs = Flow(kafka.address, source, 1), Outputs(kafka.address, target)
    faults = Faults(tmp_path / "fault")
    text = program_source(kafka.address, source, target, tmp_path / "state", unique("group"))
    app = program(text, **faults.environment)
    try:
        with flow.running(per_step=30, pause_s=0.1):
            outputs.wait_for(1)
            for point in POINTS:
                for kind in ("exit", "raise"):
                    faults.ask(f"{point}:{kind}")
                    faults.wait()
                    outputs.wait_for(flow.count, 30)
            # Spark repeated each task within the same query.
            assert not [line for line in app.err if "gave the query up" in line or "interrupted" in line]

            # A worker hangs in the middle of a commit, and the rest of the application is gone.
            faults.ask("changelog-produced:stop")
            faults.wait()
            zombie = wait_until(lambda: stopped(app), what="the stop")
            signal_all([process for process in tree(app) if process != zombie], signal.SIGKILL)
            app.kill()
            # The system hangs up on what is suspended and has no parents left, so the state is free.
            assert not psutil.wait_procs([zombie], timeout=10)[1]
            app = program(text)
            outputs.wait_for(flow.count + 1)
        outputs.wait_for(flow.count)
        assert app.end()[0] == 0
        judge(flow, outputs)
    finally:
        outputs.close()
        printed(app)


def test_a_frozen_copy_that_wakes_up_does_no_harm(quick_kafka: Kafka, program: Start, tmp_path: Path) -> None:
    kafka = quick_kafka
    source, target, group = kafka.topic("in", 2), kafka.topic("out", 2), unique("group")
    flow, outputs = Flow(kafka.address, source, 2), Outputs(kafka.address, target)
    member = {"session.timeout.ms": 1_500, "heartbeat.interval.ms": 300}
    faults = [Faults(tmp_path / f"fault-{number}") for number in range(2)]
    copies = [
        program(
            program_source(kafka.address, source, target, tmp_path / f"state-{number}", group, member),
            **faults[number].environment,
        )
        for number in range(2)
    ]
    began = time.monotonic()
    try:
        for copy in copies:
            copy.wait_for("processing ")
        for number, point in enumerate(POINTS):
            flow.produce(100)
            outputs.wait_for(flow.count)
            faults[number % 2].ask(f"{point}:stop")
            flow.produce(100)
            faults[number % 2].wait()
            victim = copies[number % 2]
            wait_until(lambda victim=victim: stopped(victim), what="the stop")
            # The whole machine freezes, in the middle of a commit.
            frozen = tree(victim)
            signal_all(frozen, signal.SIGSTOP)
            # The other copy does all the work...
            flow.produce(100)
            outputs.wait_for(flow.count, 30)
            # ... and the zombie goes on where it was, and then comes back as a member.
            told = len(victim.err)
            signal_all(frozen, signal.SIGCONT)
            back = lambda victim=victim, told=told: any("processing " in line for line in victim.err[told:])  # noqa: E731
            wait_until(back, 30, "the copy that woke up")
            print(f"{time.monotonic() - began:.1f} s: {point}")
        flow.produce(100)
        outputs.wait_for(flow.count)
        for copy in copies:
            assert copy.end()[0] == 0
        judge(flow, outputs)
    finally:
        outputs.close()
        for copy in copies:
            printed(copy)


def test_a_transaction_that_lasts_too_long_is_tried_again(quick_kafka: Kafka, tmp_path: Path) -> None:
    kafka = quick_kafka
    source, target, group = kafka.topic("in"), kafka.topic("out"), unique("group")
    kafka.produce(source, list(range(100)))
    flag = tmp_path / "slept"

    def count(value: int, state: object) -> list[int]:
        n = state.get("n", 0) + 1  # type: ignore[attr-defined]
        state.set("n", n)  # type: ignore[attr-defined]
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
    outputs = Committed(kafka, target)
    with running(app):
        wait_until(lambda: kafka.committed(group, source) == 100, what="the whole input")
    assert flag.exists()
    assert outputs.values() == [[n, n + 1] for n in range(100)]


# -- Tasks in this process -----------------------------------------------------------------------------------------


class Committed:
    """The committed records of a topic with one partition."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self._kafka = kafka
        self._place = TopicPartition(topic, 0)

    def values(self) -> list[object]:
        """Return all values until the end of the topic."""
        place = self._place
        end = self._kafka.admin.bounds(place)[1]
        out: list[object] = []
        options = {"isolation.level": "read_committed", "enable.partition.eof": True}
        with Consumer(self._kafka.address, unique("reader"), "earliest", extra_config=options) as consumer:
            consumer.subscribe([place.topic])
            deadline = time.monotonic() + 30
            while time.monotonic() < deadline:
                message = consumer.poll(0.2)
                if message is None:
                    continue
                if message.error() is not None:
                    break
                out.append(json.loads(message.value() or b"null"))
        assert len(out) <= end
        return out


class Counting:
    """An application that counts, as the tasks of several processes or attempts run it.

    Args:
        kafka: the broker.
        partitions: number of input partitions.
    """

    def __init__(self, kafka: Kafka, partitions: int = 1) -> None:
        self.kafka = kafka
        self.group = unique("group")
        self.source, self.target = kafka.topic("in", partitions), kafka.topic("out")
        self.place = TopicPartition(self.source, 0)
        self.wait: Callable[[], None] = lambda: None

    def tasks(self, state_dir: Path) -> tuple[Tasks, KafkaTaskClients]:
        """Return tasks with clients of their own."""
        app = Application(
            self.kafka.address,
            consumer_group=self.group,
            processing_guarantee="exactly-once",
            state_dir=state_dir,
            loglevel=None,
        )
        sdf = app.dataframe(app.topic(self.source))
        sdf.apply(self._count, stateful=True).to_topic(app.topic(self.target))
        app.setup_topics()
        admin = TopicAdmin(self.kafka.address)
        spec = complete_spec(app.task_spec(), app.topic_manager, admin, state_dir, None, app.config)
        clients = KafkaTaskClients(admin.connection, self.group)
        return Tasks(spec, clients), clients

    def _count(self, value: int, state: object) -> list[int]:
        self.wait()
        n = state.get("n", 0) + 1  # type: ignore[attr-defined]
        state.set("n", n)  # type: ignore[attr-defined]
        return [value, n]

    def chunk(self, start: int, end: int) -> Chunk:
        """Produce records whose values are their offsets, and return them as a task gets them."""
        offsets = list(range(start, end))
        self.kafka.produce(self.source, offsets, partition=0)
        kinds = [TimestampType.TIMESTAMP_CREATE_TIME] * len(offsets)
        values = [json.dumps(offset).encode() for offset in offsets]
        return Chunk(self.source, 0, offsets, [b"key"] * len(offsets), values, [0] * len(offsets), kinds, None)
