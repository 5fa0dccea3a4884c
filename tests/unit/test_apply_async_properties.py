"""Random calls, failures, retries, commits and crashes: each record has its result once, in the promised order."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import streamrt.runtime.tasks.faults as faults_module
from streamrt import Retry, message_context
from streamrt.kafka import TopicConfig
from streamrt.models import TimestampType, TopicPartition
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.chunk import Chunk
from streamrt.runtime.tasks.faults import InjectedFaultError
from streamrt.runtime.tasks.stores.store_catalog import StoreCatalog
from streamrt.runtime.tasks.task_executor import TaskExecutor
from streamrt.testing.memory import MemoryClients
from tests.sim.simulation import replaced
from tests.support import LONG
from tests.unit.apps import application, completed
from tests.unit.tasks import Process

pytestmark = pytest.mark.usefixtures("processing_mode")

PARTITIONS = 2
PLACES = [TopicPartition("in", number) for number in range(PARTITIONS)]
GUARANTEES = pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
ATTEMPTS = 3


@dataclass(frozen=True)
class Record:
    """A record, and what its call does.

    Attributes:
        rounds: how many rounds of the event loop an attempt takes.
        failures: how many attempts fail; with as many as there are, the record fails.
        below: whether the operator below fails.
    """

    rounds: int = 0
    failures: int = 0
    below: bool = False

    @property
    def comes_out(self) -> bool:
        """Whether it has a result, and is not skipped."""
        return not self.below and self.failures < ATTEMPTS


@dataclass(frozen=True)
class Step:
    """A batch: how many records of each partition, in what time, and at which step of a commit the process dies."""

    sizes: tuple[int, ...]
    slice_s: float = 10.0
    wipe: bool = False
    crash: int = 0


records = st.builds(
    Record,
    st.integers(0, 5),
    st.sampled_from([0, 0, 0, 1, 2, ATTEMPTS]),
    st.sampled_from([False] * 8 + [True]),
)
steps = st.builds(
    Step,
    st.tuples(*(st.integers(0, 12) for _ in range(PARTITIONS))),
    st.sampled_from([10.0, 10.0, 0.0, 0.001]),
    st.booleans(),
    st.sampled_from([0, 0, *range(1, 13)]),
)


@dataclass(frozen=True)
class Plan:
    """Plan of one case."""

    inputs: Sequence[Sequence[Record]]
    steps: Sequence[Step]
    capacity: int = 3
    ordered: bool = True


plans = st.builds(
    Plan,
    st.tuples(*(st.lists(records, max_size=25) for _ in range(PARTITIONS))),
    st.lists(steps, max_size=6),
    st.sampled_from([1, 2, 3, 10, 100]),
    st.booleans(),
)


class World:
    """Kafka in memory, and a process that runs the tasks of an application."""

    def __init__(self, plan: Plan, guarantee: str) -> None:
        self.plan = plan
        self.crashes = 0
        self.most = 0
        # Which records are behind which commit, for each partition.
        self.commits: list[list[int]] = [[0] for _ in range(PARTITIONS)]
        app = application(processing_guarantee=guarantee, on_processing_error=self._skip)
        running: dict[tuple[int, int], int] = {}
        attempts: dict[tuple[int, int], int] = {}

        async def call(value: Any) -> Any:
            where = (message_context().partition, message_context().offset)
            assert [*where] == value
            wanted = plan.inputs[where[0]][where[1]]
            running[where] = 1
            self.most = max(self.most, len(running))
            try:
                for _ in range(wanted.rounds):
                    await asyncio.sleep(0)
                attempts[where] = attempts.get(where, 0) + 1
                if wanted.failures >= ATTEMPTS or (attempts[where] - 1) % ATTEMPTS < wanted.failures:
                    raise ConnectionError(f"attempt {attempts[where]}")
                attempts[where] = 0
            finally:
                running.pop(where, None)
            return value

        def below(value: Any, state: Any) -> Any:
            partition, offset = value
            assert (message_context().partition, message_context().offset) == (partition, offset)
            if plan.inputs[partition][offset].below:
                raise ValueError("below")
            state.set("count", state.get("count", 0) + 1)
            return [*value, state.get("count")]

        frame = app.dataframe(app.topic("in", config=TopicConfig(PARTITIONS, 1))).apply_async(
            call,
            # Longer than any test: times are not conditions.
            timeout=timedelta(hours=1),
            capacity=plan.capacity,
            ordered=plan.ordered,
            retry=Retry(ATTEMPTS, on_error=ConnectionError),
        )
        frame.apply(below, stateful=True).to_topic(app.topic("out"))
        self.spec = completed(app)
        assert self.spec.state is not None
        self.transactional = guarantee == "exactly-once"
        self.clients = MemoryClients(lambda: 0)
        self.positions = dict.fromkeys(PLACES, 0)
        self._mode = app.config.processing_mode
        self._catalog = StoreCatalog(self.spec.state)
        self._begin()

    def _skip(self, error: Exception, record: Any, logger: Any) -> bool:
        partition, offset = record.value
        assert (record.context.partition, record.context.offset) == (partition, offset)
        wanted = self.plan.inputs[partition][offset]
        reason = "attempt" if wanted.failures >= ATTEMPTS else "below"
        assert str(error).startswith(reason)
        return True

    def _begin(self) -> None:
        self._tasks = TaskExecutor(self.spec, self.clients, self._catalog)
        self._process = Process(self._tasks, self._mode)

    def _start_again(self, *, wipe: bool) -> None:
        self._process.let_go()
        self._tasks.close()
        if wipe:
            self._catalog = StoreCatalog(self._catalog.settings)
        self._begin()
        if self.transactional:
            self.positions = {place: self.clients.committed(place) or 0 for place in self.positions}

    def run(self, step: Step) -> None:
        if step.wipe:
            self._start_again(wipe=True)
        left = step.crash if self.transactional else 0

        def reached(point: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise InjectedFaultError(point)

        chunks = [self._chunk(number, size) for number, size in enumerate(step.sizes)]
        context = BatchContext(dict(self.positions), step.slice_s)
        try:
            with replaced(faults_module, "reached", reached):
                report = self._process.run([chunk for chunk in chunks if chunk.offsets], context)
        except InjectedFaultError:
            self.crashes += 1
            self._start_again(wipe=False)
            self._note()
            return
        assert report.failure is None, report.failure
        assert not report.interrupted
        self.positions.update({place: done.end for place, done in report.ranges.items()})
        self._note()

    def _note(self) -> None:
        for place, position in self.positions.items():
            self.commits[place.partition].append(position)

    def finish(self) -> None:
        for _ in range(200):
            if [*self.positions.values()] == [*map(len, self.plan.inputs)]:
                self._process.let_go()
                self._tasks.close()
                return
            self.run(Step((1_000,) * PARTITIONS))
        raise AssertionError("the input does not come to its end")

    def _chunk(self, partition: int, size: int) -> Chunk:
        start = self.positions[PLACES[partition]]
        offsets = list(range(start, min(start + size, len(self.plan.inputs[partition]))))
        values = [json.dumps([partition, offset]).encode() for offset in offsets]
        kinds = [TimestampType.TIMESTAMP_CREATE_TIME] * len(offsets)
        return Chunk("in", partition, offsets, [b"%d" % partition] * len(offsets), values, [0] * len(offsets), kinds)  # type: ignore[arg-type]

    def judge(self) -> None:
        """Compare what came out with the naive model: one record after the other."""
        found = [json.loads(record.value or b"") for record in self.clients.written("out")]
        for partition, inputs in enumerate(self.plan.inputs):
            own = [value for value in found if value[0] == partition]
            wanted = [offset for offset, record in enumerate(inputs) if record.comes_out]
            offsets = [value[1] for value in own]
            assert sorted(offsets) == wanted
            assert not self.plan.ordered or offsets == wanted
            # State is what came out, in this order: nothing counted twice, nothing in another commit.
            assert [value[2] for value in own] == [*range(1, len(own) + 1)]
            # No result is behind one of a later commit.
            boundaries = sorted(set(self.commits[partition]))
            numbers = [sum(boundary <= offset for boundary in boundaries) for offset in offsets]
            assert numbers == sorted(numbers)
        assert self.most <= self.plan.capacity


def judged(plan: Plan, guarantee: str) -> World:
    world = World(plan, guarantee)
    for step in plan.steps:
        world.run(step)
    world.finish()
    world.judge()
    return world


@pytest.mark.rows("PF-K4")
@pytest.mark.slow
@GUARANTEES
@settings(
    max_examples=2_000 if LONG else 12,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)
@given(plans)
def test_each_record_has_its_result_once_and_in_order(guarantee: str, plan: Plan) -> None:
    judged(plan, guarantee)


@pytest.mark.parametrize("ordered", [True, False])
def test_a_crash_at_each_step_of_a_commit(ordered: bool) -> None:
    inputs = [[Record(rounds=(7 * n) % 5, failures=n % 4, below=n % 9 == 8) for n in range(40)] for _ in range(2)]
    crashes = 0
    for crash in range(1, 12):
        steps = [Step((7, 5), wipe=wipe, crash=crash) for wipe in (False, True)]
        crashes += judged(Plan(inputs, steps, 4, ordered), "exactly-once").crashes
    assert crashes > 15
