"""The same records give the same windows: in one batch or many, with restarts, lost disks and crashes in between."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import streamrt.runtime.tasks.faults as faults_module
from streamrt import message_context
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
from tests.unit.test_windows_properties import histories, in_partition, windows
from tests.unit.window_model import Model, Output, Record, Window, shown, side_by_side

pytestmark = pytest.mark.usefixtures("processing_mode")

PARTITIONS = 2
GUARANTEES = ("at-least-once", "exactly-once")
THROUGH = "through"

# With each guarantee, in each of the two modes.
thoroughly = settings(
    max_examples=500 if LONG else 10,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@dataclass(frozen=True)
class Step:
    """A batch, and what comes before it.

    Attributes:
        sizes: records from each partition.
        event: "" or "restart", or "wipe" for a restart with an empty disk.
        crash: at which of the steps of a commit the process dies; 0 for never.
    """

    sizes: tuple[int, ...]
    event: str = ""
    crash: int = 0


steps = st.lists(
    st.builds(
        Step,
        st.tuples(*(st.integers(0, 12) for _ in range(PARTITIONS))),
        st.sampled_from(["", "", "", "restart", "wipe"]),
        st.one_of(st.just(0), st.just(0), st.integers(1, 16)),
    ),
    min_size=2,
    max_size=10,
)


def located(value: Any) -> Any:
    """Also tell the partition."""
    return [value, message_context().partition]


class World:
    """Kafka in memory, and a machine with a process that runs tasks on it.

    Args:
        several: the windows of the application.
        guarantee: the processing guarantee.
        records: the input, of all partitions.
    """

    def __init__(self, several: Sequence[Window], guarantee: str, records: Sequence[Record]) -> None:
        app = application(processing_guarantee=guarantee)
        sdf = app.dataframe(app.topic("in", config=TopicConfig(PARTITIONS, 1)))
        out = app.topic("out")
        # Behind the windows, a branch tells that a record is through.
        for frame in (*side_by_side(sdf, several), sdf.apply(lambda value: [THROUGH, None])):
            frame.apply(located).to_topic(out)
        self.spec = completed(app)
        assert self.spec.state is not None
        self.transactional = guarantee == "exactly-once"
        self.clients = MemoryClients(lambda: 0)
        self.inputs = [[record for record in records if record.partition == number] for number in range(PARTITIONS)]
        self.positions = {TopicPartition("in", number): 0 for number in range(PARTITIONS)}
        self.crashes = 0
        self._mode = app.config.processing_mode
        self._catalog = StoreCatalog(self.spec.state)
        self._process = self._new_process()

    def start(self, *, wipe: bool) -> None:
        """Start a process, on the disk of the former one or on an empty one."""
        self._process.let_go()
        if wipe:
            self._catalog = StoreCatalog(self._catalog.settings)
        self._process = self._new_process()
        if self.transactional:
            self.positions = {place: self.clients.committed(place) or 0 for place in self.positions}

    def run(self, step: Step) -> None:
        """Run a batch, or a part of it."""
        if step.event:
            self.start(wipe=step.event == "wipe")
        left = step.crash

        def reached(point: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise InjectedFaultError(point)

        chunks = [
            chunk_of(number, self.inputs[number], self.positions[TopicPartition("in", number)], size)
            for number, size in enumerate(step.sizes)
        ]
        try:
            with replaced(faults_module, "reached", reached):
                report = self._process.run([chunk for chunk in chunks if chunk.offsets], self._context())
        except InjectedFaultError:
            self.crashes += 1
            # What the process has left is found by the next one.
            self.start(wipe=False)
            return
        assert report.failure is None, report.failure
        assert not report.interrupted
        self.positions.update({place: done.end for place, done in report.ranges.items()})

    def finish(self) -> None:
        """Process what is left."""
        for _ in range(100):
            if [self.positions[TopicPartition("in", n)] for n in range(PARTITIONS)] == [*map(len, self.inputs)]:
                return
            self.run(Step((1_000,) * PARTITIONS))
        raise AssertionError("the input does not come to its end")

    def outputs(self, number: int, partition: int) -> list[list[Output]]:
        """Return what a window has put out for each record of a partition."""
        outputs: list[list[Output]] = [[]]
        for record in self.clients.written("out"):
            (name, value), place = json.loads(record.value or b"")
            if place != partition:
                continue
            if name == THROUGH:
                outputs.append([])
            elif name == f"w{number}":
                outputs[-1].append(Output(value, record.key or b"", record.timestamp))
        assert outputs.pop() == []
        return outputs

    def _new_process(self) -> Process:
        return Process(TaskExecutor(self.spec, self.clients, self._catalog), self._mode)

    def _context(self) -> BatchContext:
        return BatchContext(positions=dict(self.positions))


def chunk_of(partition: int, records: Sequence[Record], start: int, size: int) -> Chunk:
    """Return the next records of a partition."""
    taken = records[start : start + size]
    return Chunk(
        topic="in",
        partition=partition,
        offsets=list(range(start, start + len(taken))),
        keys=[record.key for record in taken],
        values=[json.dumps(record.value).encode() for record in taken],
        timestamps=[record.timestamp for record in taken],
        timestamp_types=[TimestampType.TIMESTAMP_CREATE_TIME] * len(taken),
        headers=None,
    )


@st.composite
def inputs(draw: Any) -> list[Record]:
    """Return records of several partitions, each with keys of its own."""
    records: list[Record] = draw(histories(partitions=PARTITIONS, most=60))
    return [record._replace(key=in_partition(record.key, record.partition)) for record in records]


def places(outputs: Sequence[Sequence[Output]]) -> set[tuple[bytes, int, int]]:
    """Return which windows outputs are of."""
    return {(one.key, one.value["start"], one.value["end"]) for of_record in outputs for one in of_record}


def written(one: Output) -> Output:
    """Return an output as it is in the topic, where the epoch itself is the first millisecond."""
    return one._replace(timestamp=max(one.timestamp, 1))


def judge(world: World, several: Sequence[Window]) -> None:
    """Compare what came out with the model."""
    for number, window in enumerate(several):
        for partition, records in enumerate(world.inputs):
            model = Model(window)
            wanted = [[written(one) for one in model.record(record)] for record in records]
            found = world.outputs(number, partition)
            if world.transactional or not world.crashes:
                assert [*map(shown, found)] == [*map(shown, wanted)], window
            elif window.kind in ("tumbling", "hopping", "session"):
                # At least once, a record may count twice after a crash, but no window is lost.
                assert places(found) == places(wanted), window


@pytest.mark.slow
@pytest.mark.parametrize("guarantee", GUARANTEES)
@thoroughly
@given(st.lists(windows(closing=["key", "partition"]), min_size=4, max_size=8), inputs(), steps)
def test_a_replay_gives_the_same_windows(
    guarantee: str, several: list[Window], records: list[Record], plan: list[Step]
) -> None:
    world = World(several, guarantee, records)
    for step in plan:
        world.run(step)
    world.finish()
    judge(world, several)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_all_crashes_and_events_happen(guarantee: str) -> None:
    """The test above would be worth nothing if its crashes were none."""
    records = [Record(b"%d" % partition, 5 * number, number, partition) for number in range(40) for partition in (0, 1)]
    several = [Window("tumbling", 10), Window("session", 7, final=False), Window("sliding", 12, closing="partition")]
    for crash in range(1, 12):
        world = World(several, guarantee, records)
        for event in ("", "restart", "wipe", ""):
            world.run(Step((7, 5), event, crash))
        assert world.crashes
        world.finish()
        judge(world, several)
