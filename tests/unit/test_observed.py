"""Waits and numbers, by a real application whose run and whose Kafka do as the test says."""

import json
import threading
from collections.abc import Collection, Mapping
from typing import Any

import pytest

from streamrt import Application, Offsets
from streamrt.errors import (
    ApplicationStateError,
    ApplicationTimeoutError,
    ArgumentTypeError,
    ArgumentValueError,
    RunnerError,
    StaleTokenError,
)
from streamrt.kafka import KafkaRequestError
from streamrt.models import TopicPartition
from streamrt.records import OffsetRange
from streamrt.runtime.driver.life.lifecycle import ApplicationStatus
from streamrt.runtime.driver.observation.stats import ApplicationStats, StoreStats
from streamrt.runtime.report import FailedRecord, Pause, Report, RestoredPart, StoreSize
from streamrt.runtime.sources.manager import SourceStats
from streamrt.topology import Tally, TaskId
from streamrt.topology.tallies import LATE_RECORDS
from tests.support import replace_methods

S = ApplicationStatus
IN, GROUPED = "in", "repartition__group--in--key"
FIRST, SECOND = TopicPartition(IN, 0), TopicPartition(IN, 1)
INNER = TopicPartition(GROUPED, 0)


class View:
    """Kafka's view, which the test changes."""

    def __init__(self) -> None:
        self.group: dict[TopicPartition, int | None] = {FIRST: 0, SECOND: 0, INNER: 0}
        self.ends = {FIRST: 0, SECOND: 0, INNER: 0}
        self.markers: set[TopicPartition] = set()
        self.ids = {IN: "x", GROUPED: "y"}
        self.away = False
        self.asked = 0

    def partitions(self, topics: Collection[str]) -> list[TopicPartition]:
        return [partition for partition in self.ends if partition.topic in topics]

    def committed(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int | None]:
        self.asked += 1
        if self.away:
            raise KafkaRequestError("no broker answers", retriable=True)
        return {partition: self.group[partition] for partition in partitions}

    def bounds(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, tuple[int, int]]:
        return {partition: (0, self.ends[partition]) for partition in partitions}

    def stable_ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {partition: self.ends[partition] for partition in partitions}

    def has_records(self, partition: TopicPartition, start: int, end: int) -> bool:
        return partition not in self.markers

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        return {topic: self.ids[topic] for topic in topics if topic in self.ids}


class StandIn(Application):
    """Runs until it is stopped or fails, and commits what its positions say when it is asked to."""

    def __init__(self) -> None:
        super().__init__("unused.invalid:9092", consumer_group="group", loglevel=None, commit_interval=3_600)
        self.dataframe(self.topic(IN)).group_by("key", name="key").to_topic(self.topic("out"))
        self.kafka = View()
        self.failure: BaseException | None = None
        self.commits = 0
        replace_methods(self._offsets, view=lambda timeout=None: self.kafka)
        replace_methods(self._execution, process=self._play)

    def _play(self, timeout: float, count: int, *, collect: bool) -> list[Any]:
        self._state.control.mark_fulfilled(self._state.control.run_request)
        self._state.control.works()
        while not self._state.stop.wait(0.005):
            if self.failure is not None:
                raise self.failure
            if self._state.control.pending:
                run_request = self._state.control.run_request
                self.commits += 1
                self.kafka.group.update(self._state.progress.snapshot().positions)
                self._state.control.mark_fulfilled(run_request)
        return []

    def processed(self, **positions: int) -> None:
        """Move the positions of this instance, without a commit."""
        self._state.progress.processed_to(
            {{"first": FIRST, "second": SECOND, "inner": INNER}[n]: at for n, at in positions.items()}
        )


@pytest.fixture
def app() -> Any:
    made = StandIn()
    made.start(timeout=30)
    yield made
    made.failure = None
    if made.status.is_active:
        made.stop(wait=True, timeout=30)


def later(seconds: float, act: Any) -> None:
    timer = threading.Timer(seconds, act)
    timer.daemon = True
    timer.start()


@pytest.mark.rows("FE-071")
def test_a_token_is_complete_when_the_group_has_committed_it_through_the_grouping(app: StandIn) -> None:
    app.wait_for(Offsets({}))
    app.wait_for(Offsets({(IN, 0): 0}))
    token = Offsets({(IN, 0): 5}, {IN: "x"})
    with pytest.raises(ApplicationTimeoutError, match=r"behind after 0.05 s; in\[0\] is committed up to 0 of 5"):
        app.wait_for(token, timeout=0.05)
    app.kafka.ends |= {FIRST: 9, SECOND: 9, INNER: 3}
    # Another instance commits: this one has no positions.
    app.kafka.group[FIRST] = 6
    with pytest.raises(ApplicationTimeoutError, match=r"repartition__group--in--key\[0\] is committed up to 0 of 3"):
        app.wait_for(str(token), timeout=0.05)
    later(0.1, lambda: app.kafka.group.update({INNER: 3}))
    app.wait_for(token, timeout=30)
    assert app.commits == 0


def test_this_instance_commits_for_a_token_instead_of_waiting_for_the_interval(app: StandIn) -> None:
    app.kafka.ends |= {FIRST: 5, INNER: 3}
    app.processed(first=5, inner=3)
    app.wait_for(Offsets({FIRST: 5}), timeout=30)
    assert app.commits == 1
    # Others come ever later, and none for the partitions of other instances.
    with pytest.raises(ApplicationTimeoutError):
        app.wait_for(Offsets({FIRST: 6}), timeout=1)
    assert 3 <= app.commits <= 5
    commits = app.commits
    with pytest.raises(ApplicationTimeoutError):
        app.wait_for(Offsets({SECOND: 6}), timeout=0.5)
    assert app.commits == commits


def test_markers_at_the_end_hold_no_token_up(app: StandIn) -> None:
    app.kafka.ends |= {FIRST: 5}
    app.kafka.group[FIRST] = 4
    app.pause()
    with pytest.raises(ApplicationTimeoutError, match=r"committed up to 4 of 5; it is paused: resume\(\) it"):
        app.wait_for(Offsets({FIRST: 5}), timeout=0.05)
    app.kafka.markers.add(FIRST)
    app.wait_for(Offsets({FIRST: 5}), timeout=30)


def test_a_paused_topic_is_named(app: StandIn) -> None:
    app.pause(IN)
    with pytest.raises(ApplicationTimeoutError, match=r"in\[0\] is committed up to 0 of 5; in paused: resume\(\) them"):
        app.wait_for(Offsets({FIRST: 5}), timeout=0.05)


def test_kafka_may_be_away_for_a_while(app: StandIn) -> None:
    app.kafka.away = True
    with pytest.raises(ApplicationTimeoutError, match="no broker answers"):
        app.wait_for(Offsets({FIRST: 5}), timeout=0.05)
    app.kafka.group[FIRST] = 5
    later(0.1, lambda: setattr(app.kafka, "away", False))
    app.wait_for(Offsets({FIRST: 5}), timeout=30)


def test_tokens_that_mean_nothing_here(app: StandIn) -> None:
    with pytest.raises(
        ArgumentValueError, match="got offsets of other, which the application does not read; it reads in"
    ):
        app.wait_for(Offsets({("other", 0): 1}))
    with pytest.raises(ArgumentValueError, match=r"got an offset of in\[2\]"):
        app.wait_for(Offsets({(IN, 2): 1}))
    with pytest.raises(StaleTokenError, match="'in' was deleted and created again"):
        app.wait_for(Offsets({FIRST: 1}, {IN: "z"}))
    with pytest.raises(ArgumentValueError, match="is not a token"):
        app.wait_for("earliest")
    with pytest.raises(ArgumentTypeError, match="needs Offsets or their text, got dict"):
        app.wait_for({FIRST: 1})  # type: ignore[arg-type]
    del app.kafka.ids[IN]
    with pytest.raises(StaleTokenError, match="'in' was deleted and not created again"):
        app.wait_for(Offsets({FIRST: 1}))


def test_an_application_that_ends_meanwhile(app: StandIn) -> None:
    later(0.1, lambda: setattr(app, "failure", RunnerError("no")))
    with pytest.raises(RunnerError, match="no"):
        app.wait_for(Offsets({FIRST: 5}), timeout=30)
    with pytest.raises(ApplicationStateError, match="is failed and cannot wait for a token"):
        app.wait_for(Offsets({FIRST: 5}), timeout=30)
    app.failure = None
    app.start(timeout=30)
    later(0.1, app.stop)
    with pytest.raises(ApplicationStateError, match="was stopped before everything was processed"):
        app.wait_for(Offsets({FIRST: 5}), timeout=30)


@pytest.mark.rows("FE-103", "FE-105")
def test_idle(app: StandIn) -> None:
    app.wait_for_idle(idle_interval=0.1, timeout=30, poll_interval=0.02)
    app.kafka.ends[SECOND] = 7
    with pytest.raises(
        ApplicationTimeoutError, match=r"not idle for 0.1 s after 0.5 s; in\[1\] is committed up to 0 of 7"
    ):
        app.wait_for_idle(idle_interval=0.1, timeout=0.5, poll_interval=0.02)

    def grow() -> None:
        app.kafka.ends[SECOND] += 1
        app.kafka.group[SECOND] = app.kafka.ends[SECOND]

    # Another instance works: the counters of this one stand still.
    grower = threading.Event()

    def grow_on() -> None:
        while not grower.wait(0.02):
            grow()

    thread = threading.Thread(target=grow_on)
    thread.start()
    with pytest.raises(ApplicationTimeoutError, match="not idle"):
        app.wait_for_idle(idle_interval=0.1, timeout=0.5, poll_interval=0.02)
    grower.set()
    thread.join()
    app.processed(second=app.kafka.ends[SECOND])
    app.wait_for_idle(idle_interval=0.1, timeout=30, poll_interval=0.02)


@pytest.mark.rows("FE-104")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"idle_interval": 2.0, "timeout": 1.0}, "idle_interval=2, which is longer than timeout=1"),
        (
            {"idle_interval": 1.0, "timeout": 1.0, "poll_interval": 2.0},
            "poll_interval=2, which is longer than timeout=1",
        ),
        ({"idle_interval": 1.0, "poll_interval": 2.0}, "poll_interval=2, which is longer than idle_interval=1"),
    ],
)
def test_intervals_that_do_not_fit(app: StandIn, arguments: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        app.wait_for_idle(**arguments)


@pytest.mark.rows("FE-100", "FE-101")
def test_completion_without_sources_is_the_end_at_the_call(app: StandIn) -> None:
    app.kafka.ends |= {FIRST: 5}
    with pytest.raises(ApplicationTimeoutError, match=r"in\[0\] is committed up to 0 of 5"):
        app.wait_for_completion(timeout=0.05)
    later(0.1, lambda: app.kafka.group.update({FIRST: 5}))
    app.wait_for_completion(timeout=30)
    app.kafka.ends |= {FIRST: 50}
    app.wait_for_completion(until=Offsets({FIRST: 5}), timeout=30)
    app.wait_for_completion(until=Offsets({FIRST: 5}), stop=True, timeout=30)
    assert app.status is S.STOPPED


def test_completion_waits_for_sources_and_for_what_they_wrote(app: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    states = {"ticks": SourceStats(IN, alive=True, paused=False, ended=False)}
    monkeypatch.setattr(app._definition.sources, "stats", lambda: states)
    with pytest.raises(ApplicationTimeoutError, match="because the sources ticks have not ended"):
        app.wait_for_completion(timeout=0.05)

    def end() -> None:
        app.kafka.ends[FIRST] = 9
        states["ticks"] = SourceStats(IN, alive=False, paused=False, ended=True)

    later(0.1, end)
    with pytest.raises(ApplicationTimeoutError, match=r"in\[0\] is committed up to 0 of 9"):
        app.wait_for_completion(timeout=1)
    app.kafka.group[FIRST] = 9
    app.wait_for_completion(timeout=30)


@pytest.mark.rows("FE-050", "FE-051", "FE-052")
def test_checkpoints(app: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        app._state.checkpoints,
        "_committed",
        lambda: Offsets({each: at or 0 for each, at in app.kafka.group.items()}, {IN: "x"}),
    )
    app.processed(first=5)
    first = app.checkpoint(timeout=30)
    assert (first.number, first.status, first.offsets[FIRST]) == (1, "success", 5)
    app.processed(first=6)
    second = app.checkpoint(timeout=30)
    assert second.number == 2
    assert second.offsets.covers(first.offsets)
    assert app.checkpoint_status(1) == first
    assert app.checkpoint_status(3).status == "unknown"
    app.wait_for(first.offsets, timeout=30)
    app.stop(wait=True)
    assert app.checkpoint_status(2) == second
    app.start(timeout=30)
    assert app.checkpoint_status(1).status == "unknown"


def test_a_running_application_is_not_reset(app: StandIn) -> None:
    with pytest.raises(ApplicationStateError, match=r"is running and cannot be reset: stop\(\) it first"):
        app.reset()
    with pytest.raises(ArgumentTypeError, match="must be a bool, got str"):
        app.reset(dry_run="yes")  # type: ignore[arg-type]


def test_numbers(app: StandIn) -> None:
    app.kafka.ends |= {FIRST: 9, INNER: 3}
    app.kafka.group |= {FIRST: 4, SECOND: None}
    app.processed(first=6)
    stats = app.stats()
    assert stats.status is stats.desired_status is S.RUNNING
    assert stats.started_at is not None
    assert stats.uptime > 0
    first = stats.partitions[FIRST]
    assert (first.position, first.committed, first.end, first.lag, first.paused) == (6, 4, 9, 5, False)
    assert stats.partitions[SECOND].committed is None
    assert stats.partitions[INNER].lag == 3
    assert stats.lag == 8
    app.pause(IN)
    as_json = app.stats().as_dict()
    assert as_json["partitions"][IN]["0"]["paused"] is True
    assert as_json["status"] == "running"
    app.kafka.away = True
    away = app.stats()
    assert away.kafka_error == "no broker answers"
    assert away.partitions[FIRST].position == 6
    assert away.partitions[FIRST].lag is None
    app.kafka.away = False
    app.failure = RunnerError("no")
    with pytest.raises(RunnerError):
        app.wait(30)
    ended = app.stats()
    assert (ended.status, ended.error, ended.uptime) == (S.FAILED, "RunnerError: no", 0.0)


@pytest.mark.rows("FE-106", "FE-107")
def test_stores_rates_and_errors(app: StandIn) -> None:
    task, other = TaskId(IN, 0), TaskId(IN, 1)
    app._state.progress.assigned({FIRST: 0, SECOND: 0, INNER: 0})
    app._state.progress.report(
        Report(
            ranges={FIRST: OffsetRange(*FIRST, 0, 40), SECOND: OffsetRange(*SECOND, 0, 10)},
            sizes={
                (task, "default"): StoreSize(5_000, 40),
                (other, "default"): StoreSize(600, 2),
                (task, "own"): StoreSize(7, None),
            },
            restores={
                (task, "default"): RestoredPart(10, 10, 10, finished=True),
                (other, "default"): RestoredPart(3, 10, 3, finished=False),
            },
            tallies={Tally(LATE_RECORDS, IN, "default"): 3, Tally(LATE_RECORDS, GROUPED, "counts"): 4},
            failed=[FailedRecord(task, "skipped record", "process", IN, 5, "apply-1", "ValueError: no")],
            stalled={task: Pause(1.0, "the disk is full", sink="Disk")},
        )
    )
    stats = app.stats()
    assert stats.stores == {
        IN: {
            "default": StoreStats(partitions=2, rows=42, bytes=5_600, restored=1, restoring=7),
            "own": StoreStats(partitions=1, rows=None, bytes=7),
        }
    }
    assert stats.late_records == 7
    assert stats.rates[IN] > 0
    assert stats.rates[GROUPED] == 0
    [failed], [paused] = stats.errors["topic"][IN], stats.errors["sink"]["Disk"]
    assert failed.message == "skipped record: in[0] at 5 (apply-1): ValueError: no"
    assert paused.message == "the disk is full"
    assert ApplicationStats.of_dict(json.loads(json.dumps(stats.as_dict()))).errors == stats.errors
    assert ApplicationStats.of_dict(json.loads(json.dumps(stats.as_dict()))).stores == stats.stores


def test_why_sources_failed_is_remembered(app: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = {"meter": SourceStats("daily", False, False, False, "source meter failed: OSError: no device")}
    monkeypatch.setattr(app._definition.sources, "stats", lambda: failed)
    app.failure = RunnerError("no")
    with pytest.raises(RunnerError):
        app.wait(30)
    assert [each.message for each in app.stats().errors["source"]["meter"]] == [failed["meter"].error]
