"""Dead letters in a real broker: they are replayed, dropped or left, and each is handled once."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from streamrt.errors import StaleTokenError, TopicNotFoundError, TransactionError
from streamrt.kafka import ConnectionConfig, TopicConfig
from streamrt.kafka.writing.transactions import KafkaTransactionalWriter
from streamrt.records import TopicPartition
from streamrt.topics import DeadLetter, Topic
from streamrt.topics.dead_letter_queue import DeadLetterQueue, Handled, Letter
from tests.support import Kafka, unique, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


class Box:
    """A topic with dead letters of two inputs."""

    def __init__(self, kafka: Kafka) -> None:
        self.kafka = kafka
        self.inputs = [kafka.topic(name, partitions=2) for name in ("orders", "returns")]
        self.topic = kafka.topic("letters", partitions=2)
        self.connection = ConnectionConfig(bootstrap_servers=kafka.address)
        self.queue = DeadLetterQueue(self.connection, self.topic)

    def put(self, number: int, *, source: int = 0, attempt: int = 1, operator: str = "apply-1 (price)") -> None:
        why = DeadLetter("process", "KeyError", "'price'", operator, self.inputs[source], number % 2, number, "shop")
        earlier = [("streamrt.error.attempt", str(attempt - 1).encode())]
        headers = why.headers([("n", str(number).encode()), *earlier])
        self.kafka.produce(
            self.topic, [number], key=b"k%d" % number, partition=number % 2, timestamp=1_000 + number, headers=headers
        )

    def numbers(self) -> list[int]:
        return sorted(int(letter.record.value or b"") for letter in self.queue.pending())

    def replayed(self, source: int, count: int) -> list[tuple[Any, ...]]:
        found = self.kafka.receive_exactly(self.inputs[source], count)
        return sorted(
            (int(each.value or b""), each.key, each.partition, each.timestamp, each.headers) for each in found
        )


@pytest.fixture
def box(kafka: Kafka) -> Box:
    return Box(kafka)


def numbered(*numbers: int) -> Any:
    return lambda letter: int(letter.record.value) in numbers


def test_dead_letters_go_back_to_where_they_come_from_once(box: Box) -> None:
    for number in (1, 2, 3):
        box.put(number)
    box.put(4, source=1)
    found = {int(letter.record.value or b""): letter for letter in box.queue.pending()}
    assert sorted(found) == [1, 2, 3, 4]
    assert found[3].why == DeadLetter("process", "KeyError", "'price'", "apply-1 (price)", box.inputs[0], 1, 3, "shop")
    assert box.queue.replay() == Handled(4, topics={box.inputs[0]: 3, box.inputs[1]: 1})
    assert box.replayed(0, 3) == [
        (n, b"k%d" % n, n % 2, 1_000 + n, [("n", b"%d" % n), ("streamrt.error.attempt", b"1")]) for n in (1, 2, 3)
    ]
    assert [each[0] for each in box.replayed(1, 1)] == [4]
    assert box.numbers() == []
    assert box.queue.replay() == Handled()
    assert len(box.replayed(0, 3)) == 3


def test_what_is_not_selected_stays_as_it_is(box: Box) -> None:
    for number in range(8):
        box.put(number)
    before = {letter.record.value: (letter.record.headers, letter.record.timestamp) for letter in box.queue.pending()}
    assert box.queue.replay(numbered(2, 5)).done == 2
    assert box.numbers() == [0, 1, 3, 4, 6, 7]
    assert box.queue.drop(numbered(0, 7)) == Handled(2, left=4)
    assert box.numbers() == [1, 3, 4, 6]
    after = {letter.record.value: (letter.record.headers, letter.record.timestamp) for letter in box.queue.pending()}
    assert after == {value: before[value] for value in after}
    assert box.queue.drop(limit=3).done == 3
    assert len(box.numbers()) == 1


def test_other_topics_get_them_by_their_keys(box: Box) -> None:
    target = box.kafka.topic("again")
    box.put(1)
    assert box.queue.replay(to=target).topics == {target: 1}
    ((value, partition),) = [(each.value, each.partition) for each in box.kafka.receive_exactly(target, 1)]
    assert (value, partition) == (b"1", 0)


def test_records_that_fail_again_and_again_are_noticed(box: Box) -> None:
    box.put(1, attempt=3)
    box.put(2, attempt=2)
    assert box.queue.replay() == Handled(1, 1, 1, {box.inputs[0]: 1})
    assert box.numbers() == [1]
    assert box.queue.replay(most_attempts=0).done == 1


def test_other_records_stay(box: Box) -> None:
    box.kafka.produce(box.topic, ["no dead letter"], partition=0)
    box.put(2)
    assert box.queue.replay() == Handled(1, 1, 0, {box.inputs[0]: 1})
    assert [(letter.record.value, letter.why) for letter in box.queue.pending()] == [(b'"no dead letter"', None)]


def test_topics_that_are_gone_are_named_and_nothing_is_sent(box: Box) -> None:
    box.put(1)
    box.put(2, source=1)
    box.kafka.admin.delete_topics([box.inputs[1]])
    with pytest.raises(TopicNotFoundError, match=f"no topic '{box.inputs[1]}', which 1 dead letters are for"):
        box.queue.replay()
    assert box.numbers() == [1, 2]
    with pytest.raises(TopicNotFoundError, match="there is no topic 'missing-"):
        list(DeadLetterQueue(box.connection, unique("missing")).pending())


@pytest.mark.parametrize("sends", [True, False])
def test_a3_dead_letters_of_a_topic_that_was_created_again_stay(box: Box, sends: bool) -> None:
    for number in (2, 4, 6):
        box.put(number)
    remade: list[int] = []

    def selected(letter: Letter) -> bool:
        if not remade:
            remade.append(1)
            admin = box.kafka.admin
            admin.delete_topics([box.topic])
            wait_until(lambda: admin.topic_ids([box.topic])[box.topic] is None)
            admin.create_topics([Topic(box.topic, TopicConfig(2, 1))])
            for number in (12, 14, 16):
                box.put(number)
        return True

    with pytest.raises(StaleTokenError, match="deleted and created again while its dead letters were handled"):
        box.queue.replay(selected) if sends else box.queue.drop(selected)
    assert box.numbers() == [12, 14, 16]
    assert box.queue.replay().done == 3
    assert [each[0] for each in box.replayed(0, 3)] == [12, 14, 16]


@pytest.mark.parametrize("step", ["before the commit", "after it"])
def test_wherever_a_replay_ends_each_record_is_sent_once(box: Box, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    for number in range(6):
        box.put(number)
    commit = KafkaTransactionalWriter.commit

    def end(self: KafkaTransactionalWriter, *arguments: Any) -> None:
        if step == "after it":
            commit(self, *arguments)
        else:
            self.flush()
        raise TransactionError("the process ends")

    def selected(letter: Letter) -> bool:
        return int(letter.record.value or b"") % 3 != 0

    monkeypatch.setattr(KafkaTransactionalWriter, "commit", end)
    with pytest.raises(TransactionError):
        box.queue.replay(selected)
    monkeypatch.undo()
    DeadLetterQueue(box.connection, box.topic).replay(selected)
    assert [each[0] for each in box.replayed(0, 4)] == [1, 2, 4, 5]
    assert box.numbers() == [0, 3]


class Contender:
    """Another process with the same dead letters, which acts at a moment of the first one's work."""

    def __init__(self, box: Box, act: str, at: int) -> None:
        self.queue = DeadLetterQueue(box.connection, box.topic)
        self.act, self.at = act, at
        self.seen = 0
        self.handled: Handled | None = None

    def selected(self, letter: Letter) -> bool:
        if self.seen == self.at:
            self.handled = self.queue.replay() if self.act == "replay" else self.queue.drop()
        self.seen += 1
        return True


@pytest.mark.parametrize(
    ("first", "second", "at"), [("replay", "replay", 0), ("replay", "drop", 3), ("drop", "replay", 3)]
)
def test_a1_two_processes_at_once_handle_each_dead_letter_once(box: Box, first: str, second: str, at: int) -> None:
    for number in range(4):
        box.put(number)
    other = Contender(box, second, at)
    with pytest.raises(TransactionError, match="another process handles the dead letters") as error:
        box.queue.replay(other.selected) if first == "replay" else box.queue.drop(other.selected)
    assert error.value.fenced
    assert other.handled is not None
    assert other.handled.done == 4
    assert box.numbers() == []
    if second == "replay":
        assert [each[0] for each in box.replayed(0, 4)] == [0, 1, 2, 3]
    else:
        inputs = [TopicPartition(box.inputs[0], partition) for partition in range(2)]
        assert set(box.kafka.admin.offset_bounds(inputs, isolation_level="read_committed").values()) == {(0, 0)}


def test_a1_real_contenders_send_each_dead_letter_once(box: Box) -> None:
    for number in range(40):
        box.put(number)
    barrier = threading.Barrier(3)

    def contend() -> None:
        queue = DeadLetterQueue(box.connection, box.topic)
        barrier.wait(300)
        with contextlib.suppress(TransactionError):
            queue.replay(most_attempts=0)

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(lambda _: contend(), range(3)))
    # All may have failed, as each took the id from another one.
    box.queue.replay(most_attempts=0)
    assert sorted(each[0] for each in box.replayed(0, 40)) == list(range(40))
    assert box.numbers() == []
