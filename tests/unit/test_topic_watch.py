"""Whether the topic of a table is still the same, as brokers answer that start, hang, or do not know it."""

from collections.abc import Collection
from typing import Any

import pytest

from streamrt.errors import StaleTokenError, TopicNotFoundError
from streamrt.kafka.client import KafkaRequestError
from streamrt.tables.access import topic_watch
from streamrt.tables.access.positions import TopicPositions
from streamrt.tables.access.topic_watch import TopicWatch
from streamrt.testing.memory_topics import MemoryLinks
from tests.table_home import Home, ids, table

SILENT = KafkaRequestError("no broker answers", retriable=True)


class Clock:
    """A clock that goes on when someone sleeps, or a broker takes its time."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Brokers:
    """Answers in order, the last one for ever: an id, None for a topic that they do not know, or an error."""

    def __init__(self, clock: Clock, *answers: str | Exception | None) -> None:
        self.clock = clock
        self.answers = list(answers)
        self.timeouts: list[float] = []

    def topic_ids(self, topic_names: Collection[str], timeout: float = 30) -> dict[str, str | None]:
        self.timeouts.append(timeout)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            self.clock.sleep(timeout)
            raise answer
        return dict.fromkeys(topic_names, answer)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(topic_watch, "time", clock)
    return clock


def watch_of(brokers: Any) -> TopicWatch:
    return TopicWatch(TopicPositions(brokers, "events", "demo.events", 30.0), "id")


@pytest.mark.parametrize(("timeout", "expected"), [(None, 30.0), (60.0, 30.0), (1.0, 1.0), (-3.0, 0.1)])
def test_answers_are_waited_for_as_long_as_a_call_may(clock: Clock, timeout: float | None, expected: float) -> None:
    brokers = Brokers(clock, SILENT)
    with pytest.raises(KafkaRequestError, match=r"no broker answers"):
        watch_of(brokers).require_same_topic(timeout)
    assert brokers.timeouts == [expected]


def test_topic_that_is_not_known_until_a_call_must_end(clock: Clock) -> None:
    brokers = Brokers(clock, None)
    watch = watch_of(brokers)
    with pytest.raises(KafkaRequestError, match=r"brokers did not know topic 'events' of table 'demo.events'") as error:
        watch.require_same_topic(1.0)
    assert error.value.retriable
    assert 1.0 <= clock.now - 1_000.0 < 1.3
    # Calls that follow each other find out that it is gone.
    for _ in range(4):
        with pytest.raises((KafkaRequestError, TopicNotFoundError)) as last:
            watch.require_same_topic(1.2)
    assert last.type is TopicNotFoundError


def test_absence_counts_from_the_last_other_outcome(clock: Clock) -> None:
    brokers = Brokers(clock, None, SILENT, None, None, "id")
    watch = watch_of(brokers)
    for _ in range(2):
        # The topic is not known, and then no one answers for 30 s, which is longer than it may be unknown.
        with pytest.raises(KafkaRequestError):
            watch.require_same_topic(0.0 if len(brokers.timeouts) == 0 else None)
    watch.require_same_topic()
    assert brokers.answers == ["id"]


def test_absence_before_a_pause_does_not_count(clock: Clock) -> None:
    brokers = Brokers(clock, None, None, "id")
    watch = watch_of(brokers)
    with pytest.raises(KafkaRequestError, match=r"did not know"):
        watch.require_same_topic(0.0)
    clock.sleep(60)
    watch.require_same_topic()
    assert brokers.answers == ["id"]


def test_readers_count_absence_from_the_last_other_outcome(clock: Clock) -> None:
    watch = watch_of(Brokers(clock, None, SILENT, SILENT, None, "id"))
    assert [watch.confirm() for _ in range(5)] == [False, False, False, False, True]


def test_end_is_patient_with_brokers_that_start(clock: Clock) -> None:
    brokers = Brokers(clock, None, None, None, "id")
    watch_of(brokers).check_after_close()
    assert brokers.answers == ["id"]
    watch_of(Brokers(clock, SILENT)).check_after_close()
    with pytest.raises(TopicNotFoundError):
        watch_of(Brokers(clock, None)).check_after_close()


def test_writer_is_closed_while_brokers_start(monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(MemoryLinks())
    events = table(home=home)
    answers: list[str | None] = []
    ask = TopicPositions.topic_id

    def absent_first(positions: TopicPositions, timeout: float | None = None) -> str | None:
        answers.append(found := ask(positions, timeout))
        if len(answers) == 1:
            raise TopicNotFoundError("brokers do not know it yet")
        return found

    writer = events.writer()
    result = writer.append(ids(1)[0])
    monkeypatch.setattr(TopicPositions, "topic_id", absent_first)
    writer.close()
    assert result.wait(60).offset == 0
    assert len(answers) == 2


def test_flush_waits_for_the_id_as_long_as_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    links = MemoryLinks()
    events = table(home=Home(links))
    waited: list[float] = []
    ask = TopicPositions.topic_id

    def noted(positions: TopicPositions, timeout: float | None = None) -> str | None:
        waited.append(positions.timeout if timeout is None else timeout)
        return ask(positions, timeout)

    with events.writer() as writer:
        writer.append(ids(1)[0])
        with monkeypatch.context() as patch:
            patch.setattr(TopicPositions, "topic_id", noted)
            writer.flush(timeout=1)
    assert len(waited) == 1
    assert waited[0] <= 1


@pytest.mark.parametrize("lagging", [["old"], ["old", "old", None], [None, "old"]], ids=str)
def test_a3_answers_of_brokers_that_lag_are_not_believed(clock: Clock, lagging: list[str | None]) -> None:
    watch = watch_of(Brokers(clock, *lagging, "id"))
    watch.require_same_topic()
    watch.require_same()
    watch = watch_of(Brokers(clock, "new"))
    with pytest.raises(StaleTokenError, match=r"deleted and created again"):
        watch.require_same_topic()
