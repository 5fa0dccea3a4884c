"""How a bounded run finds its end, by a real application whose run and whose Kafka do as the test says."""

import contextlib
import itertools
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streamrt import Application, RestartPolicy
from streamrt.application import bounded
from streamrt.connectors import CollectionSource
from streamrt.errors import ArgumentValueError, ConfigurationError, InvalidOperationError, RunnerError
from streamrt.event_time.end_of_time import EndOfTime
from streamrt.kafka import KafkaRequestError
from streamrt.models import TopicPartition
from streamrt.runtime.driver.life.lifecycle import ApplicationStatus
from streamrt.runtime.sources.manager import SourceStats
from streamrt.topology import TaskId
from tests.support import replace_methods, wait_until

IN, GROUPED = "in", "repartition__group--in--key"
FIRST, SECOND, INNER = TopicPartition(IN, 0), TopicPartition(IN, 1), TopicPartition(GROUPED, 0)
TASKS = [TaskId(IN, 0), TaskId(IN, 1), TaskId(GROUPED, 0), TaskId(GROUPED, 1)]


class View:
    """Kafka's view, which the test changes."""

    def __init__(self) -> None:
        self.group = dict.fromkeys([FIRST, SECOND, INNER], 0)
        self.ends = dict.fromkeys([FIRST, SECOND, INNER], 0)
        self.away = self.refuses = False

    def partitions(self, topics: Any) -> list[TopicPartition]:
        return [partition for partition in self.ends if partition.topic in topics]

    def committed(self, partitions: Any) -> dict[TopicPartition, int]:
        if self.away or self.refuses:
            raise KafkaRequestError("Kafka does not answer", retriable=not self.refuses)
        return {partition: self.group[partition] for partition in partitions}

    def bounds(self, partitions: Any) -> dict[TopicPartition, tuple[int, int]]:
        return {partition: (0, self.ends[partition]) for partition in partitions}

    def stable_ends(self, partitions: Any) -> dict[TopicPartition, int]:
        return {partition: self.ends[partition] for partition in partitions}

    def has_records(self, *_: Any) -> bool:
        return True


class StandIn(Application):
    """Runs until it is stopped, and finishes operators when the test lets it."""

    def __init__(self) -> None:
        super().__init__("unused.invalid:9092", consumer_group="group", loglevel=None, commit_interval=3_600)
        sums = self.dataframe(self.topic(IN)).tumbling_window(5_000).sum().final()
        self.totals = sums.group_by("key", name="key").tumbling_window(5_000).sum().final()
        self.kafka = View()
        self.own = frozenset(TASKS)
        self.finishes = threading.Event()
        # The streams whose time has ended, in this order, and how often a commit was requested.
        self.ended: list[str] = []
        self.commits = 0
        self.on_end: Callable[[str], None] = lambda stream: None
        self.failures: list[BaseException] = []
        replace_methods(self._offsets, view=lambda timeout=None: self.kafka)
        replace_methods(self._execution, process=self._play)

    def _play(self, timeout: float, count: int, *, collect: bool) -> list[Any]:
        with self._execution._bounded.ending() as end:
            end.describe(self.topology.resolve({IN: 2}), {IN: 2, GROUPED: 2})
            self._state.control.mark_fulfilled(self._state.control.run_request)
            self._state.control.works()
            while not self._state.stop.wait(0.005):
                end.check()
                if self.failures:
                    raise self.failures.pop()
                self.commits += self._state.control.pending
                self._state.control.mark_fulfilled(self._state.control.run_request)
                self._work(end)
        return []

    def _work(self, end: EndOfTime) -> None:
        end.assign(self.own)
        end.ready(self.own)
        due = dict(end.due)
        if due and self.finishes.is_set():
            (stream,) = {task.stream for task in due}
            self.ended.append(stream)
            self.on_end(stream)
            end.report(due)


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    monkeypatch.setattr(bounded, "_OTHERS_S", 0.2)
    made = StandIn()
    made.finishes.set()
    yield made
    if made.status.is_active:
        made.stop(wait=True, timeout=60)


@contextlib.contextmanager
def begun(app: StandIn, **settings: Any) -> Iterator[None]:
    app.start(timeout=60, until="end", **settings)
    yield
    assert app.wait(timeout=60)


def test_levels_end_one_after_the_other(app: StandIn) -> None:
    app.kafka.ends[FIRST] = 5
    # The last results of the first level lie in the repartition topic, and are processed before the second one ends.
    app.on_end = lambda stream: app.kafka.ends.update({INNER: 3})
    with begun(app):
        assert not app.wait(timeout=0.2)
        assert app.ended == []
        app.kafka.group[FIRST] = 5
        wait_until(lambda: app.ended == [IN])
        assert not app.wait(timeout=0.2)
        app.kafka.group[INNER] = 3
    assert app.ended == [IN, GROUPED]
    assert app.status is ApplicationStatus.STOPPED


def test_the_end_is_that_of_the_topics_when_the_run_began(app: StandIn) -> None:
    app.kafka.ends[FIRST] = 5
    with begun(app):
        wait_until(lambda: app._state.until == "end")
        app.kafka.group[FIRST] = 5
    assert app.run(until="end") == []


def test_a_run_ends_after_its_sources_and_names_those_it_waits_for(
    app: StandIn, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(bounded, "_REMIND_S", 0.1)
    states = {"ticks": SourceStats(IN, alive=True, paused=False, ended=False)}
    monkeypatch.setattr(app._definition.sources, "stats", lambda: states)
    with caplog.at_level(logging.INFO, logger="streamrt"), begun(app):
        wait_until(lambda: "waits for the sources ticks" in caplog.text)
        assert "the run ends when the sources ticks have ended" in caplog.text
        app.kafka.ends[FIRST] = app.kafka.group[FIRST] = 9
        states["ticks"] = SourceStats(IN, alive=False, paused=False, ended=True)
    assert "the run ends when the sources ticks have ended" in caplog.text


def test_commits_come_soon_and_kafka_may_be_away(app: StandIn) -> None:
    app.kafka.ends[FIRST] = 5
    app.finishes.clear()
    app.kafka.away = True
    with begun(app):
        assert not app.wait(timeout=0.2)
        app.kafka.group[FIRST] = 5
        app.kafka.away = False
        app._state.progress.assigned({FIRST: 5, SECOND: 0})
        # What the operators have finished becomes durable with a commit.
        wait_until(lambda: app.commits > 1)
        app.finishes.set()
    assert app.ended == [IN, GROUPED]


def test_a_run_that_is_stopped_or_fails_before_its_end(app: StandIn) -> None:
    app.kafka.ends[FIRST] = 5
    app.start(timeout=60, until="end")
    app.pause()
    app.resume()
    app.stop(wait=True, timeout=60)
    assert (app.status, app.ended) == (ApplicationStatus.STOPPED, [])
    app.kafka.refuses = True
    with pytest.raises(KafkaRequestError):
        app.run(until="end")
    app.kafka.refuses = False
    app.failures.append(RunnerError("Spark is gone"))
    with pytest.raises(RunnerError, match="Spark is gone"):
        app.run(until="end")
    assert not [thread for thread in threading.enumerate() if thread.name == "streamrt-end"]


def test_a_restart_goes_on_to_the_end(app: StandIn) -> None:
    app.failures.append(RunnerError("Spark is gone"))
    assert app.run(until="end", collect=False, restart=RestartPolicy(initial_delay=0.01)) == []
    assert app.ended == [IN, GROUPED]


def test_partitions_of_other_members(app: StandIn) -> None:
    app.own = frozenset(TASKS[:1])
    with pytest.raises(InvalidOperationError, match=r"windows and timers of in\[1\]: another member"):
        app.run(until="end")
    assert app.ended == []


def test_arguments() -> None:
    app = StandIn()
    for call in (app.run, app.start):
        with pytest.raises(ConfigurationError, match=r"until='later': it must be 'end'"):
            call(until="later")  # type: ignore[arg-type]
    with pytest.raises(ArgumentValueError, match="only if collect=False"):
        app.run(until="end", restart=RestartPolicy())
    other = StandIn()
    with pytest.raises(ConfigurationError, match="another application"):
        app.collect(other.totals)
    with pytest.raises(ConfigurationError, match="got str"):
        app.collect("totals")  # type: ignore[call-overload]
    for limit in (0, 1.5, -1):
        with pytest.raises(ConfigurationError, match="limit"):
            app.collect(app.totals, limit=limit)  # type: ignore[arg-type]


# -- Collections -------------------------------------------------------------------------------------------------------


class Counting(StandIn):
    """Puts numbers out, so many or without an end."""

    def __init__(self, end: int | None = None) -> None:
        super().__init__()
        self.numbers = itertools.count() if end is None else iter(range(end))

    def _work(self, end: EndOfTime) -> None:
        number = next(self.numbers, None)
        if number is None:
            super()._work(end)
            return
        for sink in self._collections._collecting.values():
            sink.data.append(number)

    def _play(self, timeout: float, count: int, *, collect: bool) -> list[Any]:
        # Something is left to be processed, until the test says otherwise.
        self.kafka.ends[FIRST] = 1
        return super()._play(timeout, count, collect=collect)


def test_values_are_collected_up_to_the_end() -> None:
    app = Counting(5)
    app.finishes.set()
    with app.collect(app.totals) as values:
        first = next(values)
        app.kafka.group[FIRST] = 1
        assert [first, *values] == list(range(5))
        assert list(values) == []
    assert app.status is ApplicationStatus.STOPPED
    # The sink stays, once for each frame.
    app.numbers, app.kafka.group[FIRST] = iter(range(3)), 1
    assert app.collect(app.totals, limit=10) == [0, 1, 2]
    assert len(app._collections._collecting) == 1


@pytest.mark.rows("PF-A6")
def test_values_are_collected_up_to_a_limit_or_a_close() -> None:
    app = Counting()
    assert app.collect(app.totals, limit=3) == [0, 1, 2]
    assert app.status is ApplicationStatus.STOPPED
    values = app.collect(app.totals)
    next(values)
    with pytest.raises(InvalidOperationError, match="is running already"):
        app.collect(app.totals)
    values.close()
    values.close()
    assert (list(values), app.status) == ([], ApplicationStatus.STOPPED)


def test_a_failure_reaches_who_collects() -> None:
    app = Counting()
    with app.collect(app.totals) as values:
        next(values)
        app.failures.append(RunnerError("Spark is gone"))
        with pytest.raises(RunnerError, match="Spark is gone"):
            list(values)
    assert app.status is ApplicationStatus.FAILED


@pytest.mark.rows("PF-A20", "PF-B1")
def test_a_dataframe_of_a_collection(caplog: pytest.LogCaptureFixture) -> None:
    app = Application("unused.invalid:9092", loglevel=None)
    topic = app.topic("numbers", "int")
    sdf = app.from_collection([1, 2], "numbers", topic=topic, timestamp=lambda number: number)
    assert [each.name for each in sdf.topics] == ["numbers"]
    app.from_collection([{"a": 1}])
    assert [process.name for process in app._definition.sources.processes] == ["numbers", "collection"]
    with pytest.raises(ConfigurationError, match="at least one element"):
        app.from_collection([], "none")
    with pytest.raises(InvalidOperationError):
        app.dataframe(source=CollectionSource([3], "numbers"))
    app._state.until = "end"
    with caplog.at_level(logging.WARNING, logger="streamrt"), app._execution._bounded.ending():
        assert not caplog.text
    app.from_collection([3], "late", topic=app.topic("late", auto_offset_reset="latest"))
    with caplog.at_level(logging.WARNING, logger="streamrt"), app._execution._bounded.ending():
        assert "auto_offset_reset='latest' of topic late" in caplog.text, "the first run might find nothing"
