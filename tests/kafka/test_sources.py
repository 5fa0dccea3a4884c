"""Sources in processes of their own, with a broker."""

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from streamrt.connectors import BaseSource, Source, StatefulSource
from streamrt.errors import ConfigurationError, InvalidOperationError, SourceError
from streamrt.kafka import ConnectionConfig
from streamrt.runtime.sources.manager import SourceManager
from streamrt.testing.kafka import EmbeddedKafka
from streamrt.topics import Topic
from tests.kafka.sources import Counter, Deaf, Make, Numbers, Three, committed, failure, managers, start, wait_for
from tests.support import LONG, Kafka, Program, unique, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

KILLS = 5 if LONG else 2
"""After two, a source has gone on with what it restored, and with what it wrote after that."""


class Failing(Source):
    """Produces one number and fails."""

    def run(self) -> None:
        self.produce(b"1")
        raise ValueError("the sensor is broken\nand smokes")


class Exiting(Source):
    """Leaves the process without a word."""

    def __init__(self, name: str, code: int) -> None:
        super().__init__(name)
        self.code = code

    def run(self) -> None:
        os._exit(self.code)


class Bare(BaseSource):
    """Derives from the smallest class, and does not flush."""

    going = True

    def start(self) -> None:
        self.producer.produce(self.producer_topic.name, b"1")

    def stop(self) -> None:
        self.going = False

    def default_topic(self) -> Topic:
        return Topic("bare")


@pytest.fixture
def make(kafka: Kafka) -> Iterator[Make]:
    """A function that makes a manager of sources; they are stopped at the end."""
    with managers(kafka) as make:
        yield make


def test_sources_produce_until_they_are_stopped(kafka: Kafka, make: Make) -> None:
    topics = [kafka.topic(), kafka.topic()]
    manager = make((Numbers("one"), topics[0]), (Numbers("two"), topics[1]))
    manager.start()
    for topic in topics:
        assert kafka.values(topic, 5) == [0, 1, 2, 3, 4]
    manager.check()
    assert manager.is_alive()
    with pytest.raises(InvalidOperationError, match="is already running"):
        manager.start()
    pids = [process.pid for process in manager.processes]
    manager.stop()
    assert not manager.is_alive()
    assert not any(psutil.pid_exists(pid or 0) for pid in pids)
    manager.check()
    manager.stop()
    # Nothing that was produced is lost.
    for topic in topics:
        count = kafka.end(topic)
        assert kafka.values(topic, count) == list(range(count))


def test_an_application_can_run_its_sources_again(kafka: Kafka, make: Make) -> None:
    topic = kafka.topic()
    manager = make((Three("three"), topic))
    for times in (1, 2):
        with manager.running():
            wait_until(lambda: not manager.is_alive())
        assert kafka.values(topic, 3 * times) == [0, 1, 2] * times


def test_a_source_that_ends_is_fine(kafka: Kafka, make: Make) -> None:
    topics = [kafka.topic(), kafka.topic()]
    manager = make((Three("three"), topics[0]), (Bare(), topics[1]))
    manager.start()
    wait_until(lambda: not manager.is_alive())
    manager.check()
    assert kafka.values(topics[0], 3) == [0, 1, 2]
    # What was produced without a flush arrives all the same.
    assert kafka.values(topics[1], 1) == [1]


def test_a_failure_is_told_in_one_sentence(kafka: Kafka, make: Make, caplog: pytest.LogCaptureFixture) -> None:
    topic = kafka.topic()
    manager = make((Failing("sensor"), topic))
    with caplog.at_level(logging.DEBUG, "streamrt.sources"):
        manager.start()
        assert failure(manager) == "source sensor failed: ValueError: the sensor is broken\nand smokes"
    assert 'raise ValueError("the sensor is broken' in caplog.text
    # Until it is started again.
    with pytest.raises(SourceError):
        manager.check()
    assert kafka.values(topic, 1) == [1]


def test_the_block_of_running_raises_it(kafka: Kafka, make: Make) -> None:
    manager = make((Failing("sensor"), kafka.topic()))
    with pytest.raises(SourceError, match="source sensor failed: ValueError"), manager.running():
        wait_until(lambda: not manager.is_alive())


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (Exiting("gone", 3), "source gone failed: its process ended with exit code 3 without a report"),
        (Exiting("gone", 0), "source gone failed: its process ended with exit code 0 without a report"),
        (signal.SIGKILL, "source numbers failed: its process was ended by SIGKILL, possibly because memory ran out"),
        (signal.SIGSEGV, "source numbers failed: its process was ended by SIGSEGV"),
    ],
)
def test_a_process_that_is_gone(kafka: Kafka, make: Make, how: Any, words: str) -> None:
    topic = kafka.topic()
    if isinstance(how, Source):
        manager = make((how, topic))
        manager.start()
    else:
        manager = make((Numbers("numbers"), topic))
        manager.start()
        kafka.values(topic, 1)
        os.kill(manager.processes[0].pid or 0, how)
    assert failure(manager) == words


def test_a_source_that_does_not_stop_is_killed(kafka: Kafka, make: Make, caplog: pytest.LogCaptureFixture) -> None:
    topic = kafka.topic()
    manager = make((Deaf("deaf", shutdown_timeout=0.2), topic))
    manager.start()
    kafka.values(topic, 1)
    manager.stop()
    assert not manager.is_alive()
    assert "source deaf did not stop within 0.2 s; killing its process; raise its shutdown_timeout" in caplog.text
    manager.check()


def test_a_source_that_is_resumed_while_it_is_being_paused_starts_again(kafka: Kafka, make: Make) -> None:
    topic = kafka.topic()
    manager = make((Deaf("deaf", shutdown_timeout=1.0), topic))
    manager.start()
    kafka.values(topic, 1)
    former = manager.processes[0].pid
    pausing = threading.Thread(target=manager.pause, args=["deaf"])
    pausing.start()
    wait_until(lambda: manager.paused)
    manager.resume("deaf")
    pausing.join()
    assert kafka.values(topic, 2) == [1, 1]
    # The pause ends the process that it has asked to stop, and not the next one.
    assert manager.stats()["deaf"].alive
    assert manager.processes[0].pid != former
    manager.check()


def test_a_source_that_is_resumed_while_the_application_stops_stays_stopped(kafka: Kafka, make: Make) -> None:
    topic = kafka.topic()
    manager = make((Deaf("deaf", shutdown_timeout=1.0), topic))
    manager.start()
    kafka.values(topic, 1)
    calls = [threading.Thread(target=manager.pause, args=["deaf"]), threading.Thread(target=manager.stop)]
    for call in calls:
        call.start()
        wait_until(lambda: manager.paused)
    manager.resume("deaf")
    for call in calls:
        call.join()
    manager.stop()
    assert not manager.processes[0].is_alive()
    assert kafka.end(topic) == 1
    # The next run has it.
    assert manager.paused == frozenset()
    manager.start()
    kafka.values(topic, 2)


def test_sigterm_stops_and_sigint_does_not(kafka: Kafka, make: Make) -> None:
    topic = kafka.topic()
    manager = make((Numbers("numbers"), topic))
    manager.start()
    kafka.values(topic, 1)
    pid = manager.processes[0].pid or 0
    assert os.getpgid(pid) != os.getpgid(0)
    os.kill(pid, signal.SIGINT)
    before = kafka.end(topic)
    wait_for(manager, lambda: kafka.end(topic) > before + 2)
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not manager.is_alive())
    manager.check()


def test_topics_that_do_not_exist(make: Make) -> None:
    options = {"message.timeout.ms": 500, "allow.auto.create.topics": False}
    manager = make((Three("three"), unique("missing")), producer_options=options)
    manager.start()
    assert "ProducerError: a record for topic 'missing-" in failure(manager)


def test_records_that_are_too_large(kafka: Kafka, make: Make) -> None:
    class Large(Source):
        def run(self) -> None:
            self.produce(b"x" * 2_000_000)

    manager = make((Large("large"), kafka.topic()))
    manager.start()
    assert "ProducerError: a record for topic" in failure(manager)


class TestState:
    def test_the_changelog_topic(self, kafka: Kafka, make: Make) -> None:
        (topic,) = make((Counter("counter"), "numbers"), (Numbers("other"), "others"), group="shop").changelog_topics()
        assert topic.name == "changelog__shop--source-counter"
        assert topic.config is not None
        assert topic.config.as_dict() == {
            "num_partitions": 1,
            "replication_factor": 1,
            "extra_config": {"cleanup.policy": "compact"},
        }

    def test_it_goes_on_after_a_stop(self, kafka: Kafka, make: Make) -> None:
        topic, group = kafka.topic(), unique("group")
        ends = [0]
        for _ in range(KILLS):
            manager = make((Counter("counter"), topic), group=group)
            start(kafka, manager)
            wait_for(manager, lambda: kafka.end(topic) > ends[-1] + 20)
            manager.stop()
            manager.check()
            ends.append(kafka.end(topic))
        # No number is missing, and none repeats.
        assert kafka.values(topic, ends[-1]) == list(range(ends[-1]))

    def test_it_loses_nothing_after_kill_9(self, kafka: Kafka, make: Make) -> None:
        topic, group = kafka.topic(), unique("group")
        for _ in range(KILLS):
            # In one instance, the next one would wait for the end of a session.
            manager = make((Counter("counter"), topic), group=group, instances="each")
            changelog = start(kafka, manager)
            before = kafka.end(changelog)
            wait_for(manager, lambda: kafka.end(changelog) > before + 2)  # noqa: B023
            os.kill(manager.processes[0].pid or 0, signal.SIGKILL)
            assert "SIGKILL" in failure(manager)
        numbers = kafka.values(topic, kafka.end(topic))
        assert sorted(set(numbers)) == list(range(max(numbers) + 1))
        # What was flushed does not repeat: each time less than what lies between two flushes does.
        assert len(numbers) - len(set(numbers)) <= KILLS * 10
        assert numbers[0] == 0
        assert numbers.count(0) == 1

    def test_changes_without_a_flush_are_dropped(self, kafka: Kafka, make: Make) -> None:
        class Forgetful(StatefulSource):
            def run(self) -> None:
                seen = self.state.get("runs", 0)
                self.state.set("runs", seen + 1)
                self.state.delete("gone")
                self.state.set("gone", 1)
                self.flush()
                self.state.set("runs", 100)
                self.produce(json.dumps(seen))
                raise ValueError("before the flush")

        topic, group = kafka.topic(), unique("group")
        for _ in range(2):
            manager = make((Forgetful("forgetful"), topic), group=group)
            start(kafka, manager)
            assert "before the flush" in failure(manager)
        assert kafka.values(topic, 2) == [0, 1]

    def test_without_changelogs(self, make: Make) -> None:
        with pytest.raises(ConfigurationError, match="cannot be used with use_changelog_topics=False"):
            make((Counter("counter"), "numbers"), use_changelogs=False)

    def test_a_missing_changelog(self, kafka: Kafka, make: Make) -> None:
        manager = make((Counter("counter"), kafka.topic()), instances="each")
        manager.start()
        assert "source counter failed" in failure(manager)


class TestExactlyOnce:
    def test_nothing_repeats_after_kill_9(self, kafka: Kafka, make: Make) -> None:
        topic, group = kafka.topic(), unique("group")
        for _ in range(KILLS):
            manager = make((Counter("counter"), topic), group=group, instances="each", exactly_once=True)
            changelog = start(kafka, manager)
            before = kafka.end(changelog)
            wait_for(manager, lambda: kafka.end(changelog) > before + 5)  # noqa: B023
            os.kill(manager.processes[0].pid or 0, signal.SIGKILL)
            assert "SIGKILL" in failure(manager)
        manager = make((Counter("counter"), topic), group=group, instances="each", exactly_once=True)
        changelog = start(kafka, manager)
        before = kafka.end(changelog)
        wait_for(manager, lambda: kafka.end(changelog) > before + 5)
        manager.stop()
        manager.check()
        numbers = committed(kafka, topic)
        assert numbers == list(range(len(numbers)))
        # Five flushes each time, of ten numbers each; a transaction may have been open.
        assert len(numbers) > 20 * KILLS

    def test_what_was_produced_before_a_failure_is_not_committed(self, kafka: Kafka, make: Make) -> None:
        class Forgetful(StatefulSource):
            def run(self) -> None:
                run = self.state.get("runs", 0)
                self.produce(json.dumps(run))
                self.state.set("runs", run + 1)
                self.flush()
                self.produce("100", headers={"a": "b"})
                self.state.set("runs", 100)
                raise ValueError("before the flush")

        topic, group = kafka.topic(), unique("group")
        for _ in range(2):
            manager = make((Forgetful("forgetful"), topic), group=group, instances="each", exactly_once=True)
            start(kafka, manager)
            assert "before the flush" in failure(manager)
        assert committed(kafka, topic) == [0, 1]

    def test_a_second_instance_of_a_source_that_runs_in_each_is_told(self, kafka: Kafka, make: Make) -> None:
        topic, group = kafka.topic(), unique("group")
        first, second = (
            make((Counter("counter"), topic), group=group, instances="each", exactly_once=True) for _ in range(2)
        )
        start(kafka, first)
        wait_for(first, lambda: kafka.end(topic) > 20)
        second.start()
        # The first one, unless brokers answer its commit with an unknown error: then it starts again, and fences the other.
        assert "fenced" in failure(first, second)
        for each in (first, second):
            each.stop()
        numbers = committed(kafka, topic)
        assert numbers == list(range(len(numbers)))

    @pytest.mark.parametrize("outage_s", [0.0, 18.0], ids=["short", "longer-than-the-lease"])
    def test_a_broker_may_restart(
        self, mortal_broker: EmbeddedKafka, tmp_path: Path, make: Make, outage_s: float
    ) -> None:
        kafka = Kafka(mortal_broker.bootstrap_servers, tmp_path)
        topic = kafka.topic()
        manager = SourceManager(ConnectionConfig(bootstrap_servers=kafka.address), unique("group"), exactly_once=True)
        # The source hangs in its commit meanwhile, and does not stop in this time.
        manager.register(Counter("counter", shutdown_timeout=1.0), Topic(topic))
        changelog = start(kafka, manager, run=False)
        with manager.running():
            for _ in range(3 if LONG else 1):
                wait_for(manager, lambda: kafka.end(changelog) > 5)
                mortal_broker.kill()
                time.sleep(outage_s)
                mortal_broker.start()
                before = kafka.end(changelog)
                wait_for(manager, lambda: kafka.end(changelog) > before + 5)  # noqa: B023
        numbers = committed(kafka, topic)
        assert numbers == list(range(len(numbers)))


PROGRAM = """
import sys, time
from streamrt.connectors import Source
from streamrt.kafka import ConnectionConfig
from streamrt.runtime.sources.manager import SourceManager
from streamrt.topics import Topic

address, topic = sys.argv[1:] or {arguments!r}

class Mine(Source):
    # Defined in the program itself, which has no guard for its last lines.
    def setup(self):
        print("setup", flush=True)

    def run(self):
        while self.running or {deaf}:
            self.produce(b"1")
            self.flush()
            self.sleep(0.02)

    def cleanup(self, failed):
        super().cleanup(failed)
        print("cleanup", flush=True)

connection = ConnectionConfig(bootstrap_servers=address, sasl_password="open-sesame")
manager = SourceManager(connection, "group", {{"ssl.key.password": "open-sesame"}})
manager.register(Mine("mine", shutdown_timeout={shutdown_timeout}), Topic(topic))
with manager.running():
    print("pid", manager.processes[0].pid, flush=True)
    {body}
print("done", flush=True)
"""


class TestPrograms:
    def start(
        self, program: Callable[..., Program], kafka: Kafka, topic: str, body: str, *, deaf: bool = False
    ) -> tuple[Program, psutil.Process]:
        timeout = 0.5 if deaf else 10
        text = PROGRAM.format(arguments=[kafka.address, topic], body=body, shutdown_timeout=timeout, deaf=deaf)
        started = program(text)
        started.wait_for("pid")
        pid = next(int(line.split()[1]) for line in started.out if line.startswith("pid"))
        process = psutil.Process(pid)
        kafka.values(topic, 2)
        return started, process

    def test_a_program_without_a_guard(self, program: Callable[..., Program], kafka: Kafka, tmp_path: Path) -> None:
        end = tmp_path / "end"
        body = f"import os; sys.stdin.close()\n    while not os.path.exists({str(end)!r}): time.sleep(0.05)"
        started, _ = self.start(program, kafka, kafka.topic(), body)
        end.touch()
        assert started.wait() == 0
        assert [line.split()[0] for line in started.out] == ["pid", "setup", "cleanup", "done"]

    def test_no_secret_is_to_be_seen(self, program: Callable[..., Program], kafka: Kafka) -> None:
        started, process = self.start(program, kafka, kafka.topic(), "time.sleep(60)")
        assert "streamrt source mine" in process.cmdline()
        assert "open-sesame" not in str(process.cmdline())
        assert "open-sesame" not in str(process.environ())
        started.kill()

    @pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
    def test_the_source_ends_with_the_program(
        self, program: Callable[..., Program], kafka: Kafka, how: signal.Signals
    ) -> None:
        topic = kafka.topic()
        started, process = self.start(program, kafka, topic, "time.sleep(60)")
        started.process.send_signal(how)
        psutil.wait_procs([process], timeout=20)
        assert not process.is_running()
        # It had the time to stop well.
        wait_until(lambda: "cleanup\n" in started.out)

    def test_a_source_that_does_not_stop_ends_with_the_program(
        self, program: Callable[..., Program], kafka: Kafka
    ) -> None:
        started, process = self.start(program, kafka, kafka.topic(), "time.sleep(60)", deaf=True)
        started.process.kill()
        psutil.wait_procs([process], timeout=20)
        assert not process.is_running()
        assert "cleanup\n" not in started.out

    def test_a_fork_of_the_program_does_not_keep_the_source_alive(
        self, program: Callable[..., Program], kafka: Kafka
    ) -> None:
        # It holds on to the pipe, so the source does not hear that the program is gone.
        body = "import os; fork = os.fork(); fork and print('fork', fork, flush=True); time.sleep(60)"
        started, process = self.start(program, kafka, kafka.topic(), body)
        started.wait_for("fork")
        fork = psutil.Process(next(int(line.split()[1]) for line in started.out if line.startswith("fork")))
        try:
            started.process.kill()
            psutil.wait_procs([process], timeout=20)
            assert not process.is_running()
            assert fork.is_running()
        finally:
            fork.kill()

    def test_ctrl_c_leaves_the_source_to_the_program(self, tmp_path: Path, kafka: Kafka) -> None:
        topic = kafka.topic()
        body = "\n    ".join(
            [
                # A shell that starts the tests in the background lets them, and so the program, ignore Ctrl-C.
                "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)",
                "try:",
                "    time.sleep(60)",
                "except KeyboardInterrupt:",
                "    manager.check(); print('alive', manager.is_alive())",
            ]
        )
        path = tmp_path / "program.py"
        path.write_text(PROGRAM.format(arguments=[kafka.address, topic], body=body, shutdown_timeout=10, deaf=False))
        root = str(Path(__file__).resolve().parents[2])
        # A group of its own, as a shell makes it, so that the signal reaches all of it and nothing else.
        with subprocess.Popen(
            [sys.executable, "-W", "ignore", str(path)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": root, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        ) as process:
            kafka.values(topic, 2)
            os.killpg(process.pid, signal.SIGINT)
            out, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        assert "alive True" in out
        assert out.split()[-2:] == ["cleanup", "done"]
