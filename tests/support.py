"""Common parts of tests with a broker: topics of their own, records in, records out, and programs as processes."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol, get_args

import pytest

from streamrt import Application
from streamrt.config import GroupProtocol, ProcessingMode
from streamrt.kafka import Consumer, Producer, TopicAdmin, TopicConfig
from streamrt.kafka.client import partition_offsets
from streamrt.models import TopicPartition
from streamrt.topics import Topic

ROOT = Path(__file__).resolve().parent.parent
MASTER = "local[2]"
SLOTS = "processes[2]"
"""Where resident tasks of programs run: they need no Spark, whose start costs 10 to 20 s of processor time."""
PROCESSING_MODES = get_args(ProcessingMode)
GROUP_PROTOCOLS = get_args(GroupProtocol)
LONG = os.environ.get("STREAMRT_LONG_TESTS") == "1"
"""Whether tests shall look at more cases than there is time for each time: `make test-long`."""
ONE_MODE = pytest.mark.only_mode(
    "resident", reason="tasks, starts and sources know no mode; make test-long runs both", always=False
)
"""Of what is done by tasks or sources, or before a mode begins; other tests of its kind run in both modes."""

SHORTEST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 0.25
"""Many conditions ask a broker, which takes processor time from what they wait for."""


class Received(NamedTuple):
    """A record as another client sees it."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: list[tuple[str, bytes | None]] | None
    partition: int


def in_protocols(ordinary: str) -> pytest.MarkDecorator:
    """Return what runs a test in each protocol of the consumer group, by the fixture `group_protocol`.

    Args:
        ordinary: the protocol of ordinary runs, which do not take the other one.
    """
    return pytest.mark.parametrize("group_protocol", GROUP_PROTOCOLS if LONG else [ordinary], indirect=True)


def unique(name: str) -> str:
    """Return a name that no other test has."""
    return f"{name}-{uuid.uuid4().hex[:10]}"


def forked_end(act: Callable[[], object]) -> int:
    """Return how a forked process ends that does something: 0, 1 after an exception, or the negative number of a signal."""
    child = os.fork()
    if not child:
        code = 1
        try:
            # It may wait for a thread that only its parent has.
            signal.alarm(60)
            act()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def broken_pythons(directory: Path) -> str:
    """Return a directory with names of Python that start nothing."""
    directory.mkdir()
    for name in ("python", "python3"):
        fake = directory / name
        fake.write_text("#!/bin/sh\necho 'the Python of another environment' >&2\nexit 97\n")
        fake.chmod(0o755)
    return str(directory)


def replace_methods(part: object, **functions: Any) -> None:
    """Let functions stand in for methods of a part of an application, which has them only in this process."""
    vars(part).update(functions)


def wait_until(
    condition: Callable[[], Any],
    timeout_s: float = 300.0,
    what: str = "the condition",
    found: Callable[[], Any] | None = None,
) -> Any:
    """Wait until a function returns something true, and return it. If it does not, tell what `found` returns."""
    deadline = time.monotonic() + timeout_s
    pause_s = SHORTEST_PAUSE_S
    while time.monotonic() < deadline:
        result = condition()
        if result:
            return result
        time.sleep(pause_s)
        pause_s = min(1.25 * pause_s, LONGEST_PAUSE_S)
    instead = "" if found is None else f"; found {found()}"
    raise AssertionError(f"{what} did not hold within {timeout_s} s{instead}")


class Kafka:
    """A broker, with the few things that tests do with one.

    Args:
        address: the broker.
        state_dir: state directory for applications.
    """

    def __init__(self, address: str, state_dir: Path) -> None:
        self.address = address
        self.state_dir = state_dir
        self.admin = TopicAdmin(address)

    def topic(self, name: str = "topic", partitions: int = 1, config: dict[str, str] | None = None) -> str:
        """Create a topic and return its unique name."""
        chosen = unique(name)
        self.admin.create_topics([Topic(chosen, TopicConfig(partitions, 1, config or {}))])
        return chosen

    def app(self, group: str | None = None, **settings: Any) -> Application:
        """Return an application that reads from the beginning, and runs in the Spark of this process."""
        chosen = {
            "auto_offset_reset": "earliest",
            "spark_master": MASTER,
            "loglevel": None,
            "state_dir": self.state_dir,
            "commit_interval": 0.5,
            **settings,
        }
        return Application(self.address, consumer_group=group or unique("group"), **chosen)

    def produce(
        self,
        topic: str,
        values: Sequence[Any],
        *,
        key: bytes | None = b"key",
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Any = None,
        raw: bool = False,
    ) -> None:
        """Produce values, as JSON unless `raw`."""
        # An idempotent producer takes half a second to begin.
        with Producer(self.address, extra_config={"enable.idempotence": False}) as producer:
            for value in values:
                producer.produce(
                    topic,
                    value if raw else json.dumps(value).encode(),
                    key=key,
                    partition=partition,
                    timestamp=timestamp,
                    headers=headers,
                )

    def receive(
        self, topic: str, count: int, timeout_s: float = 300.0, until: Callable[[Received], bool] = lambda record: False
    ) -> list[Received]:
        """Return the first `count` records of a topic, or those up to one; fewer if they do not come in time."""
        records: list[Received] = []
        deadline = time.monotonic() + timeout_s
        with read_topic(self.address, topic, self.admin) as consumer:
            while len(records) < count and time.monotonic() < deadline:
                message = consumer.poll(0.2)
                if message is not None and message.error() is None:
                    records.append(
                        Received(
                            message.key(),
                            message.value(),
                            message.timestamp()[1],
                            message.headers(),
                            message.partition(),
                        )
                    )
                    if until(records[-1]):
                        break
        return records

    def receive_exactly(
        self, topic: str, count: int, timeout_s: float = 300.0, linger_s: float = 0.7
    ) -> list[Received]:
        """Return the records of a topic; there must be exactly `count` for a moment after the last one came."""
        records: list[Received] = []
        deadline = time.monotonic() + timeout_s
        with read_topic(self.address, topic, self.admin) as consumer:
            while len(records) <= count and time.monotonic() < deadline:
                message = consumer.poll(0.2)
                if message is None or message.error() is not None:
                    continue
                at = message.timestamp()[1]
                records.append(Received(message.key(), message.value(), at, message.headers(), message.partition()))
                if len(records) == count:
                    deadline = time.monotonic() + linger_s
        assert len(records) == count
        return records

    def receive_committed(self, topic: str) -> list[Received]:
        """Return the records of a topic that are committed now."""
        ends = self.admin.offset_bounds(list_partitions(self.admin, topic), isolation_level="read_committed")
        waited = {place: end for place, (_, end) in ends.items() if end}
        records: list[Received] = []
        options = {"enable.partition.eof": True, "fetch.wait.max.ms": 5}
        with Consumer(self.address, None, "earliest", extra_config=options) as consumer:
            consumer.assign(partition_offsets(dict.fromkeys(waited, 0)))
            while waited:
                message = consumer.poll(30)
                assert message is not None
                place = TopicPartition(message.topic(), message.partition())
                if message.error() is None:
                    at = message.timestamp()[1]
                    records.append(Received(message.key(), message.value(), at, message.headers(), place.partition))
                elif (message.offset() or 0) >= waited.get(place, 0):
                    waited.pop(place, None)
        return records

    def values(self, topic: str, count: int) -> list[Any]:
        """Return the first values of a topic, read as JSON."""
        return [json.loads(record.value or b"null") for record in self.receive(topic, count)]

    def end(self, topic: str) -> int:
        """Return the number of offsets in a topic, over all partitions."""
        bounds = self.admin.offset_bounds(list_partitions(self.admin, topic), isolation_level="read_uncommitted")
        return sum(high for _, high in bounds.values())

    def committed(self, group: str, topic: str, partition: int = 0) -> int | None:
        """Return the offset that a group has committed for a partition."""
        place = TopicPartition(topic, partition)
        return self.admin.committed(group, [place]).get(place)


def read_topic(address: str, topic: str, admin: TopicAdmin | None = None) -> Consumer:
    """Read committed records of a topic from its beginning, in no group.

    A member of a group would read all of them again if its session ended while the broker is away; and it would cost the
    broker more than all the records.
    """
    consumer = Consumer(address, None, "earliest", extra_config={"isolation.level": "read_committed"})
    consumer.assign(partition_offsets(dict.fromkeys(list_partitions(admin or TopicAdmin(address), topic), 0)))
    return consumer


def list_partitions(admin: TopicAdmin, topic: str) -> list[TopicPartition]:
    """Return the partitions of a topic that is there."""
    found = admin.inspect_topics([topic])[topic]
    assert found is not None
    return [TopicPartition(topic, number) for number in range(found.num_partitions or 1)]


@contextmanager
def running(app: Application) -> Iterator[threading.Thread]:
    """Run an application in a thread; stop it at the end and raise what it raised."""
    errors: list[BaseException] = []

    def target() -> None:
        try:
            app.run()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=target)
    thread.start()
    try:
        yield thread
    finally:
        app.stop()
        thread.join(300)
        assert not thread.is_alive(), "the application did not stop"
    if errors:
        raise errors[0]


class Process(Protocol):
    """Process of a program, as tests use it, such as `Popen`."""

    pid: int

    def poll(self) -> int | None:
        """Return the exit code, if it has ended."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end."""

    def send_signal(self, sig: int) -> None:
        """Send a signal."""

    def kill(self) -> None:
        """Kill it."""


def program_environment(more: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a program; a `spark_master` for its mode is part of it."""
    resident = {**os.environ, **more}.get("STREAMRT_PROCESSING_MODE") == "resident"
    return {
        "STREAMRT_SPARK_MASTER": SLOTS if resident else MASTER,
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
        **more,
    }


class RunningProgram:
    """A Python program in another process, whose output can be waited for.

    Args:
        process: the process.
    """

    def __init__(self, process: Process) -> None:
        self.process = process
        self.out: list[str] = []
        self.err: list[str] = []

    def wait_for(self, text: str, timeout_s: float = 300.0) -> None:
        """Wait until the program has printed a line with `text`, on either stream."""

        def seen() -> bool:
            if self.process.poll() is not None and not any(text in line for line in self.out + self.err):
                raise AssertionError(f"the program ended: {self.out} {self.err}")
            return any(text in line for line in self.out + self.err)

        wait_until(seen, timeout_s, f"output with {text!r}", found=lambda: f"{self.out} {self.err}")

    def end(self, how: signal.Signals = signal.SIGTERM, timeout_s: float = 300.0) -> tuple[int, float]:
        """Send a signal; return the exit code and the seconds that it took."""
        begun = time.monotonic()
        self.process.send_signal(how)
        return self.wait(timeout_s), time.monotonic() - begun

    def wait(self, timeout_s: float = 300.0) -> int:
        """Wait for the end; return the exit code. A program that does not end tells what its threads do."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)
            self.process.wait(10)
            raise
        finally:
            self.kill()

    def kill(self) -> None:
        """Kill the program if it still runs."""
        raise NotImplementedError


class Program(RunningProgram):
    """A Python program in a process of its own. It costs the start of a Spark: see `tests.hosts`.

    Args:
        path: its file.
        environment: additional environment variables.
    """

    process: "subprocess.Popen[str]"

    def __init__(self, path: Path, environment: dict[str, str] | None = None) -> None:
        super().__init__(
            subprocess.Popen(
                [sys.executable, "-W", "ignore", str(path)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=path.parent,
                env=program_environment(environment or {}),
            )
        )
        self._readers = [
            threading.Thread(target=lambda: self.out.extend(self.process.stdout or ()), daemon=True),
            threading.Thread(target=lambda: self.err.extend(self.process.stderr or ()), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def kill(self) -> None:
        """Kill the program if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for reader in self._readers:
            reader.join(5)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
