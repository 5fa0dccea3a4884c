"""Windows that are closed in portions, with commits, restarts and crashes in between, come out as if closed at once."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import streamrt.runtime.resident.loop as resident_module
import streamrt.runtime.tasks.faults as faults_module
import streamrt.testing.driver.record_processing as driver_module
import streamrt.windows.closing as closing_module
from streamrt import message_context
from streamrt.app import definition_of
from streamrt.config import ProcessingMode
from streamrt.dataframe import StreamingDataFrame
from streamrt.kafka import TopicConfig
from streamrt.models import TopicPartition
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.report import Report
from streamrt.runtime.tasks.faults import InjectedFaultError
from streamrt.runtime.tasks.stores.store_catalog import StoreCatalog
from streamrt.runtime.tasks.task_executor import TaskExecutor
from streamrt.testing.cluster import MemoryCluster
from streamrt.testing.driver import TopologyTestDriver
from streamrt.testing.memory import MemoryClients, WrittenRecord
from streamrt.topology import TaskId
from tests.sim.simulation import replaced
from tests.support import LONG
from tests.unit.apps import application
from tests.unit.tasks import Process
from tests.unit.test_windows_properties import histories, windows
from tests.unit.test_windows_replay import chunk_of
from tests.unit.window_model import Record, Window, side_by_side

PARTITIONS = 2
LOOK_S = 0.001
PLACES = [TopicPartition("in", number) for number in range(PARTITIONS)]
TASKS = [TaskId("in", number) for number in range(PARTITIONS)]
GUARANTEES = pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
CLOSINGS = pytest.mark.parametrize("closing", ["partition", "watermark"])
WATERMARK = {"closing_strategy": "watermark", "idle_timeout_ms": 10_000}

Build = Callable[[StreamingDataFrame], Sequence[StreamingDataFrame]]

thoroughly = settings(
    max_examples=500 if LONG else 10,
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        # The mode is the same for all examples.
        HealthCheck.function_scoped_fixture,
    ],
)


class Clock:
    """Seconds, of which a thousandth passes whenever somebody looks: slices end after so many looks."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        self.seconds += LOOK_S
        return self.seconds


@dataclass(frozen=True)
class Cut:
    """How a batch is interrupted.

    Attributes:
        looks: length of its time slice.
        event: "" or "restart", or "wipe" for a restart with an empty disk, before it.
        crash: at which of the steps of a commit the process dies; 0 for never. Exactly once only.
    """

    looks: float = float("inf")
    event: str = ""
    crash: int = 0


cuts = st.lists(
    st.builds(
        Cut,
        st.sampled_from([0, 1, 2, 3, 5, 8, 20]),
        st.sampled_from(["", "", "", "", "restart", "wipe"]),
        st.one_of(st.just(0), st.just(0), st.just(0), st.integers(1, 12)),
    ),
    min_size=1,
    max_size=20,
)


class World:
    """Kafka in memory, and a machine with a process that runs tasks on it.

    Args:
        build: makes the dataframes whose results are looked at.
        guarantee: the processing guarantee.
        mode: the processing mode.
        cuts: how batches are interrupted, one after the other and then from the first one on.
    """

    most_batches = 5_000
    """After so many, what is not finished never will be."""

    def __init__(self, build: Build, guarantee: str, mode: ProcessingMode, cuts: Sequence[Cut] = (Cut(),)) -> None:
        app = application(processing_guarantee=guarantee, processing_mode=mode)
        for frame in build(app.dataframe(app.topic("in", config=TopicConfig(PARTITIONS, 1)))):
            frame.apply(lambda value: [message_context().partition, value]).to_topic(app.topic("out"))
        spec = definition_of(app).rehearse_start(definition_of(app).task_spec(), MemoryCluster(), Path("unused"))
        assert spec.state is not None
        state = replace(spec.state, in_memory=True)
        self.spec = replace(spec, state=state)
        # The wall clock stands still while records are processed, so that it is the same in any portions.
        self.wall = 0
        self.clients = MemoryClients(lambda: self.wall)
        self.positions = dict.fromkeys(PLACES, 0)
        self.watermarks: dict[TaskId, dict[str, int]] = {}
        self.others: dict[TaskId, dict[str, int]] = {}
        self.portions = self.crashes = 0
        self._transactional = guarantee == "exactly-once"
        self._mode = mode
        self._catalog = StoreCatalog(state)
        self._cuts = self._cycle(cuts)
        self._process = self._new_process()

    def feed(self, records: Sequence[Sequence[Record]], ends: Sequence[int]) -> None:
        """Process the records of each partition up to an end, and all that they make due."""

        def run(context: BatchContext) -> Report:
            chunks = [
                chunk_of(number, records[number], start, ends[number] - start)
                for number in range(PARTITIONS)
                if (start := self.positions[PLACES[number]]) < ends[number]
            ]
            return self._process.run(chunks, context)

        for _ in range(self.most_batches):
            if [*self.positions.values()] == [*ends]:
                break
            self._run(run)
        else:
            raise AssertionError("the records do not come to their end")
        self._tick()

    def pass_time(self, watermark: int) -> None:
        """Tell all tasks of a watermark, and let them do what is then due."""
        self.watermarks = self._in_all_stores(watermark)
        self._tick()

    def hear_of_others(self, watermark: int | None) -> None:
        """Tell all tasks what the other partitions have; None if it is unknown."""
        self.others = {} if watermark is None else self._in_all_stores(watermark)

    def _in_all_stores(self, watermark: int) -> dict[TaskId, dict[str, int]]:
        return {task: dict.fromkeys(self.spec.topology.watermarks("in"), watermark) for task in TASKS}

    def close(self) -> None:
        self._process.let_go()

    def written(self) -> list[WrittenRecord]:
        return self.clients.written("out")

    def outputs(self, *, by_key: bool = False) -> dict[Any, list[Any]]:
        """Return what came out, in order, by partition or by partition and key."""
        found: dict[Any, list[Any]] = {}
        for record in self.written():
            partition, value = orjson.loads(record.value or b"")
            name = (partition, value[0], record.key) if by_key else (partition, value[0])
            found.setdefault(name, []).append((record.key, record.timestamp, value[1]))
        return found

    def _tick(self) -> None:
        unfinished = set(TASKS)
        for _ in range(self.most_batches):
            report = self._run(partial(self._process_tick, sorted(unfinished)))
            # Who had no turn in the slice is not reported.
            left = dict.fromkeys(TASKS, True) if report is None else report.unfinished
            unfinished = {task for task in TASKS if left.get(task, task in unfinished)}
            if not unfinished:
                return
        raise AssertionError("what is due is never finished")

    def _process_tick(self, tasks: Sequence[TaskId], context: BatchContext) -> Report:
        return self._process.tick(tasks, context)

    def _run(self, run: Callable[[BatchContext], Report]) -> Report | None:
        cut = next(self._cuts)
        if cut.event:
            self._start(wipe=cut.event == "wipe")
        left = cut.crash if self._transactional else 0

        def reached(point: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise InjectedFaultError(point)

        try:
            with replaced(faults_module, "reached", reached):
                seconds = cut.looks * LOOK_S
                report = run(
                    BatchContext(
                        dict(self.positions), seconds, now=self.wall, watermarks=self.watermarks, others=self.others
                    )
                )
        except InjectedFaultError:
            self.crashes += 1
            self._start(wipe=False)
            return None
        assert report.failure is None, report.failure
        assert not report.interrupted
        self.portions += any(report.unfinished.values())
        self.positions.update({place: done.end for place, done in report.ranges.items()})
        return report

    def _start(self, *, wipe: bool) -> None:
        """Start a process, on the disk of the former one or on an empty one."""
        self._process.let_go()
        if wipe:
            self._catalog = StoreCatalog(self._catalog.settings)
        self._process = self._new_process()
        if self._transactional:
            self.positions = {place: self.clients.committed(place) or 0 for place in self.positions}

    def _new_process(self) -> Process:
        return Process(TaskExecutor(self.spec, self.clients, self._catalog, clock=Clock()), self._mode)

    @staticmethod
    def _cycle(cuts: Sequence[Cut]) -> Iterator[Cut]:
        yield from cuts
        while True:
            # Each crash and event once, or the end might never be reached.
            yield from (Cut(max(cut.looks, 1)) for cut in cuts)


def history(world: World, records: Sequence[Record], watermarks: Sequence[int]) -> World:
    """Let a world process records in as many parts as there are watermarks, with each of these behind a part."""
    inputs = [[record for record in records if record.partition == number] for number in range(PARTITIONS)]
    for number, watermark in enumerate(watermarks, 1):
        # Before the records: at that point, what waits for the wall clock is due.
        world.wall += 4
        # In every second part, windows and timers of all partitions are also due between records.
        world.hear_of_others(watermark if number % 2 else None)
        world.feed(inputs, [len(own) * number // len(watermarks) for own in inputs])
        world.pass_time(watermark)
    world.wall += 1_000
    world.pass_time(watermarks[-1])
    world.close()
    return world


def judge(
    build: Build, guarantee: str, mode: ProcessingMode, plan: tuple[list[Record], list[int], list[Cut]], *, by_key: bool
) -> World:
    """Compare what comes out in portions with what comes out at once; return the world of portions."""
    records, watermarks, several = plan
    at_once = history(World(build, guarantee, mode), records, watermarks)
    portioned = history(World(build, guarantee, mode, several), records, watermarks)
    assert not at_once.portions
    assert portioned.outputs(by_key=by_key) == at_once.outputs(by_key=by_key)
    return portioned


plans = st.tuples(
    histories(partitions=PARTITIONS, most=40), st.lists(st.integers(0, 120), min_size=1, max_size=5).map(sorted), cuts
)


@pytest.mark.slow
@GUARANTEES
@thoroughly
@given(st.lists(windows(), min_size=2, max_size=6), plans)
def test_fault_11_windows_closed_in_portions_are_the_same(
    processing_mode: ProcessingMode, guarantee: str, several: list[Window], plan: tuple[Any, Any, Any]
) -> None:
    judge(lambda sdf: side_by_side(sdf, several), guarantee, processing_mode, plan, by_key=False)


@pytest.mark.slow
@GUARANTEES
@thoroughly
@given(st.lists(windows(closing=["key"]), min_size=2, max_size=6), plans)
def test_a6_windows_of_a_key_closed_in_portions_are_the_same(
    processing_mode: ProcessingMode, guarantee: str, several: list[Window], plan: tuple[Any, Any, Any]
) -> None:
    with replaced(closing_module, "_FEW", 0):
        judge(lambda sdf: side_by_side(sdf, several), guarantee, processing_mode, plan, by_key=True)


@GUARANTEES
@pytest.mark.parametrize("several", ["tumbling", "hopping", "session", "sliding"])
def test_a6_windows_of_a_key_that_one_record_closes_close_in_portions(
    processing_mode: ProcessingMode, several: str, guarantee: str
) -> None:
    def build(sdf: StreamingDataFrame) -> list[StreamingDataFrame]:
        windows = {
            "tumbling": lambda: sdf.tumbling_window(5, grace_ms=1_000),
            "hopping": lambda: sdf.hopping_window(500, 5, grace_ms=1_000),
            "session": lambda: sdf.session_window(2, grace_ms=1_000),
            "sliding": lambda: sdf.sliding_window(3, grace_ms=1_000),
        }
        return [windows[several]().count().final().apply(lambda value: ["", value])]

    records = [Record(b"key", 600 + 5 * number, number) for number in range(40)] + [Record(b"key", 50_000, 0)]
    world = World(build, guarantee, processing_mode, [Cut(3), Cut(3, crash=3), Cut(3, "wipe")])
    world.feed([records, []], [40, 0])
    assert world.portions == len(world.written()) == 0
    report = world._process.run(
        [chunk_of(0, records, 40, 1)], BatchContext(dict(world.positions), time_limit_s=3 * LOOK_S)
    )
    assert report.unfinished[TASKS[0]]
    assert 0 < len(world.written()) < 10
    world.positions[PLACES[0]] = 41
    world.feed([records, []], [41, 0])
    starts = [value["start"] for _, _, value in world.outputs()[0, ""]]
    assert starts == sorted(set(starts))
    assert len(starts) >= 40
    assert world.portions > 5
    world.close()


def spread(value: Any) -> list[list[Any]]:
    """Make several records of one; what they are follows from their numbers."""
    return [[value, number] for number in range(4)]


def chained(closing: str) -> Build:
    """Return what puts windows behind windows, and behind records that become several."""
    options: dict[str, Any] = WATERMARK if closing == "watermark" else {"closing_strategy": closing}

    def build(sdf: StreamingDataFrame) -> list[StreamingDataFrame]:
        many = sdf.apply(spread, expand=True).set_timestamp(
            lambda value, key, timestamp, headers: timestamp + 7 * value[1]
        )
        first = many.session_window(5, grace_ms=3, name="first").count().final(**options)
        second = first.tumbling_window(10, name="second").collect().final(**options)
        third = many.hopping_window(12, 4, name="third", after_update=lambda old, new, *_: len(new) > 3).reduce(
            lambda values, value: [*values, value], lambda value: [value]
        )
        return [
            frame.apply(lambda value, name=name: [name, value])
            for name, frame in (("first", first), ("second", second), ("third", third.final(**options)))
        ]

    return build


@pytest.mark.slow
@GUARANTEES
@CLOSINGS
@thoroughly
@given(plans)
def test_fault_11_windows_behind_windows_are_the_same_for_each_key(
    processing_mode: ProcessingMode, closing: str, guarantee: str, plan: tuple[Any, Any, Any]
) -> None:
    """A record that meets windows that are due and not closed yet finds them as if they were."""
    judge(chained(closing), guarantee, processing_mode, plan, by_key=True)


@GUARANTEES
def test_results_move_time_below_in_portions_as_they_do_at_once(
    processing_mode: ProcessingMode, guarantee: str
) -> None:
    """The last session of key a is late for the window below it, because a result of key b has come before."""
    keys = ((b"a", 0), (b"b", 11), (b"a", 11), (b"a", 58), (b"a", 58), (b"a", 58))
    records = [Record(key, timestamp, None, 0) for key, timestamp in keys]
    judge(chained("watermark"), guarantee, processing_mode, (records, [0, 0, 77], [Cut(0, "", 0)]), by_key=True)


@GUARANTEES
@CLOSINGS
def test_fault_11_there_are_portions_and_crashes_in_between(
    processing_mode: ProcessingMode, closing: str, guarantee: str
) -> None:
    """The tests above would be worth nothing if nothing was ever left over."""
    records = [Record(b"%d" % (number % 7), 2 * number, number, number % 2) for number in range(60)]
    records += [Record(b"last", 1_000, 0, partition) for partition in range(PARTITIONS)]
    several = [Window("tumbling", 100, closing=closing), Window("session", 90, closing=closing)]
    crashes = [Cut(0, event, crash) for crash in range(12) for event in ("", "restart", "wipe")]
    world = judge(
        lambda sdf: side_by_side(sdf, several),
        guarantee,
        processing_mode,
        (records, [50, 5_000], crashes),
        by_key=False,
    )
    assert world.portions > 10
    assert (world.crashes > 5) is (guarantee == "exactly-once")


@GUARANTEES
def test_fault_11_one_record_closes_windows_in_portions_with_commits_in_between(
    processing_mode: ProcessingMode, guarantee: str
) -> None:
    """Windows that are due and not closed yet survive the process, and close without a record."""
    several = [Window("tumbling", 10, aggregation="count", closing="partition")]
    records = [Record(b"%d" % key, 1, key) for key in range(50)] + [Record(b"late", 20, 0)]
    world = World(lambda sdf: side_by_side(sdf, several), guarantee, processing_mode)
    world.feed([records, []], [50, 0])
    assert not world.written()
    process = world._process
    chunk = chunk_of(0, records, 50, 1)
    report = process.run([chunk], BatchContext(dict(world.positions), time_limit_s=5 * LOOK_S))
    # The record is processed and its offset committed, and some of the windows are not closed yet.
    assert report.unfinished[TASKS[0]]
    assert report.ranges[PLACES[0]].end == 51
    closed = len(world.written())
    assert 0 < closed < 20
    world.positions[PLACES[0]] = 51
    world._start(wipe=True)
    for _ in range(100):
        report = world._process.tick([TASKS[0]], BatchContext(dict(world.positions), time_limit_s=5 * LOOK_S))
        before, closed = closed, len(world.written())
        assert closed - before < 20
        if not report.unfinished[TASKS[0]]:
            break
    assert closed == 50
    world.close()


def test_fault_11_the_test_driver_goes_on_until_all_is_closed(
    processing_mode: ProcessingMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resident_module, "_SLICE_S", 0.0)
    monkeypatch.setattr(driver_module, "_SLICE_S", 0.0)
    app = application(processing_mode=processing_mode)
    frame = app.dataframe(app.topic("in")).tumbling_window(10).count().final(closing_strategy="partition")
    frame.to_topic(app.topic("out"))
    with TopologyTestDriver(app) as driver:
        for key in range(30):
            driver.pipe("in", key, key=str(key), timestamp=1)
        assert driver.read("out") == []
        driver.pipe("in", 0, key="late", timestamp=50)
        assert len(driver.read("out")) == 30


@GUARANTEES
def test_a_portion_leaves_time_for_its_commit_within_a_second(processing_mode: ProcessingMode, guarantee: str) -> None:
    """However long the slice is, as in micro-batches: a commit takes about as long as what it has."""
    world = World(
        lambda sdf: [
            sdf.tumbling_window(10).count().final(closing_strategy="partition").apply(lambda value: ["", value])
        ],
        guarantee,
        processing_mode,
    )
    keys = 1_000
    records = [Record(b"%d" % key, 1, key) for key in range(keys)] + [Record(b"0", 1_000, 0)]
    world.feed([records, []], [keys, 0])
    report = world._process.run([chunk_of(0, records, keys, 1)], BatchContext(dict(world.positions), time_limit_s=4.0))
    assert report.unfinished[TASKS[0]]
    # The clock goes on by a look for each of them.
    assert len(world.written()) * LOOK_S <= 0.5
    world.close()
