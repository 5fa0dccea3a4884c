"""State queries under load, while partitions move and instances freeze: each answer is compared with a naive model.

The state is a count by key, and the test knows the key at each offset. So it knows the value of each key at each position:
an answer with a value of an aborted transaction, or of another position, differs. Positions never go back from one answer
to a later question.
"""

import contextlib
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from streamrt.control import Client
from streamrt.errors import ApplicationStateError, ControlUnavailableError, StateNotOwnedError, StateUnavailableError
from streamrt.kafka import Producer
from streamrt.kafka.partitioner import partition_for
from streamrt.queries.stored_state import StateAnswer
from streamrt.records import TopicPartition
from tests.hosts import HostedProgram
from tests.processes import freeze, process_tree, thaw
from tests.support import LONG, Kafka, unique, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]

Start = Callable[..., HostedProgram]

PARTITIONS = 4
KEYS = [b"key-%d" % number for number in range(24)]
REFUSALS = (StateUnavailableError, StateNotOwnedError, ControlUnavailableError, ApplicationStateError)
LISTENING = "control: listening at "
PROGRAM = """
from streamrt import Application

app = Application(
    {address!r}, consumer_group={group!r}, auto_offset_reset="earliest", spark_master="local[2]", state_dir={state_dir!r},
    processing_guarantee="exactly-once", commit_interval=0.3, control="0",
    consumer_extra_config={{"session.timeout.ms": 6000}},
)

def count(value, state):
    state.set("n", state.get("n", 0) + 1)

app.dataframe(app.topic({source!r})).update(count, stateful=True)
app.run()
"""


@dataclass
class Log:
    """The keys of the records of each partition, in the order of their offsets."""

    address: str
    topic: str
    keys: list[list[bytes]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])

    @contextlib.contextmanager
    def growing(self, seed: int) -> Iterator[None]:
        """Produce some hundred records in a second during the `with` block."""
        over = threading.Event()
        chance = random.Random(seed)

        def produce() -> None:
            with Producer(self.address) as producer:
                while not over.wait(0.02):
                    for _ in range(10):
                        key = chance.choice(KEYS)
                        partition = partition_for(key, PARTITIONS)
                        # Before it is sent: an answer may be faster than this thread.
                        self.keys[partition].append(key)
                        producer.produce(self.topic, json.dumps(1).encode(), key=key, partition=partition)
                producer.flush()

        thread = threading.Thread(target=produce)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(60)

    def value(self, key: bytes, position: int) -> int | None:
        """Return the value that the state of a key has at a position."""
        counted = self.keys[partition_for(key, PARTITIONS)][:position].count(key)
        return counted or None


@dataclass
class Asked:
    """A question and its answer."""

    key: bytes
    began: float
    ended: float
    answer: StateAnswer

    def position(self, topic: str) -> int:
        return self.answer.position[TopicPartition(topic, self.answer.partition)]


class Asking:
    """Asks instances for keys, again and again."""

    def __init__(self, log: Log, urls: list[str], seed: int) -> None:
        self._log = log
        self._urls = urls
        self._chance = random.Random(seed)
        self.asked: list[Asked] = []
        self.refused: list[str] = []
        self.errors: list[BaseException] = []
        self._clients: dict[str, Client] = {}
        self._lock = threading.Lock()

    def _client(self, url: str) -> Client:
        """Return the client for an instance: each costs a tenth of a second."""
        with self._lock:
            if url not in self._clients:
                self._clients[url] = Client(url, timeout=30)
            return self._clients[url]

    def close(self) -> None:
        """Close the clients."""
        for client in self._clients.values():
            client.close()

    def ask(self, url: str, key: bytes, timeout: float = 3.0, *, follow: bool = True) -> Asked | None:
        """Ask once; return the answer, unless there is none."""
        began = time.monotonic()
        try:
            answer = self._client(url).query_state("default", key, timeout=timeout, follow=follow)
        except REFUSALS as refusal:
            with self._lock:
                self.refused.append(f"{type(refusal).__name__}: {refusal}")
            return None
        found = Asked(key, began, time.monotonic(), answer)
        with self._lock:
            self.asked.append(found)
        return found

    @contextlib.contextmanager
    def asking(self, threads: int = 3) -> Iterator[None]:
        """Ask during the `with` block, in several threads."""
        over = threading.Event()

        def run(chance: random.Random) -> None:
            try:
                while not over.wait(0.01):
                    self.ask(chance.choice(self._urls), chance.choice(KEYS))
            except BaseException as error:
                self.errors.append(error)

        running = [threading.Thread(target=run, args=(random.Random(self._chance.random()),)) for _ in range(threads)]
        for thread in running:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in running:
                thread.join(90)

    def judge(self) -> None:
        """Compare the answers with the model."""
        assert self.errors == []
        for each in self.asked:
            position = each.position(self._log.topic)
            assert each.answer.get("n") == self._log.value(each.key, position), (each.key, each.answer)
        # A question that began after an answer has one that is not older.
        for partition in range(PARTITIONS):
            own = [each for each in self.asked if each.answer.partition == partition]
            by_end = sorted(own, key=lambda each: each.ended)
            highest, at = -1, 0
            for each in sorted(own, key=lambda each: each.began):
                while at < len(by_end) and by_end[at].ended < each.began:
                    highest = max(highest, by_end[at].position(self._log.topic))
                    at += 1
                assert each.position(self._log.topic) >= highest, (each, highest)


def url_of(program: HostedProgram) -> str:
    """Return the control address of a program."""
    program.wait_for(LISTENING)
    return next(line.split(LISTENING)[1].strip() for line in program.err if LISTENING in line)


def test_answers_are_linearizable_while_partitions_move_and_an_instance_freezes(
    kafka: Kafka, hosted: Start, tmp_path: Path, processing_mode: str
) -> None:
    if processing_mode != "resident" and not LONG:
        pytest.skip("STREAMRT_LONG_TESTS is not set")

    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    source, group = kafka.topic("in", PARTITIONS), unique("group")
    log = Log(kafka.address, source)

    def start(number: int) -> HostedProgram:
        settings = {"address": kafka.address, "group": group, "source": source}
        return hosted(PROGRAM.format(**settings, state_dir=str(tmp_path / f"state-{number}")))

    first = start(0)
    urls = [url_of(first)]
    asking = Asking(log, urls, seed)

    def answers(url: str, *, from_partition_of: set[int] | None = None) -> bool:
        """Return whether an instance itself answers for a key of some partitions."""
        key = random.choice(
            [key for key in KEYS if not from_partition_of or partition_for(key, PARTITIONS) in from_partition_of]
        )
        return asking.ask(url, key, follow=False) is not None

    with log.growing(seed):
        wait_until(lambda: answers(urls[0]), what="the first answer")
        with asking.asking():
            second = start(1)
            other = url_of(second)
            wait_until(lambda: answers(other), what="an answer of the second instance")
            urls.append(other)
            asked = len(asking.asked)
            wait_until(lambda: len(asking.asked) >= asked + 200, what="more answers")
        assert all(asking.ask(url, key, 30.0) is not None for url in urls for key in KEYS), asking.refused[-3:]
        own = {
            partition_for(key, PARTITIONS) for key in KEYS if asking.ask(urls[1], key, 10.0, follow=False) is not None
        }
        assert own, asking.refused
        for _ in range(4 if LONG else 1):
            # The whole instance freezes, with questions on their way to it.
            frozen = process_tree(second.process.pid)
            freeze(frozen)
            late = [
                threading.Thread(target=asking.ask, args=(urls[1], key, 20.0), kwargs={"follow": False})
                for key in KEYS[:8]
            ]
            for thread in late:
                thread.start()
            wait_until(lambda: answers(urls[0], from_partition_of=own), what="an answer of the one that has taken over")
            time.sleep(0.5)
            assert wait_until(lambda: answers(urls[0], from_partition_of=own), what="a later answer")
            thaw(frozen)
            # The zombie is asked before it can know that it has lost its partitions.
            for key in KEYS[:8]:
                asking.ask(urls[1], key, 0.2, follow=False)
            for thread in late:
                thread.join(60)
            wait_until(lambda: answers(urls[1]), what="an answer of the one that came back")
        with asking.asking(2):
            assert second.end()[0] == 0
            urls.pop()
            wait_until(
                lambda: all(asking.ask(urls[0], key, follow=False) for key in KEYS), what="all answers of the first"
            )
    assert first.end()[0] == 0
    asking.close()
    print(f"{processing_mode}: {len(asking.asked)} answers, {len(asking.refused)} refused")
    asking.judge()
