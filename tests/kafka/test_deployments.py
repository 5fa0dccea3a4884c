"""Another version of an application begins while an instance of the former one stands still: on a real broker."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import orjson
import pytest
from confluent_kafka import Consumer as ConfluentConsumer

from streamrt import Application, State
from streamrt.app import definition_of
from streamrt.config import AutoOffsetReset, ProcessingGuarantee
from streamrt.errors import StaleTokenError
from streamrt.kafka import ConnectionConfig, TopicConfig
from streamrt.kafka.client import partition_offsets
from streamrt.kafka.writing.transactions import KafkaTransactionalWriter, transactional_id
from streamrt.models import TopicPartition
from streamrt.runs.launch import client_settings, fence
from streamrt.runs.runner_settings import RunSettings
from streamrt.runs.start_positions import Start, StartOffsets
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.driver.starting.group_layout import begin_layout
from streamrt.runtime.driver.starting.state_setup import complete_spec
from streamrt.runtime.metadata import CommittedMetadata
from streamrt.runtime.report import Report
from streamrt.runtime.tasks import faults
from streamrt.runtime.tasks.kafka_clients import KafkaTaskClients
from streamrt.runtime.tasks.task_executor import TaskExecutor
from streamrt.runtime.tasks.work_cycle import WorkCycle
from streamrt.savepoints.create import create_savepoint
from streamrt.state.transactions.keyed import state_of
from streamrt.topics import Topic
from streamrt.topology import TaskId
from tests.support import Kafka, unique, wait_until
from tests.unit.tasks import numbers

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def count(value: int, state: State) -> dict[str, int]:
    number: int = state.get("n", 0) + 1
    state.set("n", number)
    return {"v": value, "n": number}


class Version:
    """One version of the application, in one process, with a state directory of its own.

    Args:
        world: the topics.
        build: makes the dataframes.
    """

    reset: AutoOffsetReset = "earliest"

    def __init__(self, world: "World", build: Callable[["World", Application], None], directory: str) -> None:
        self._world = world
        kafka = world.kafka
        self.app = kafka.app(world.group, processing_guarantee=world.guarantee, auto_offset_reset=self.reset)
        build(world, self.app)
        self.app.setup_topics()
        path = Path(kafka.state_dir) / world.group / directory
        admin = kafka.admin
        spec = complete_spec(
            definition_of(self.app).task_spec(), self.app.topic_manager, admin, path, None, self.app.config
        )
        connection = ConnectionConfig(bootstrap_servers=kafka.address)
        spec = begin_layout(spec, self.app.topic_manager, admin, connection, self.app.config)
        self.clients = KafkaTaskClients(connection, world.group)
        world.stack.callback(self.clients.close)
        self.tasks = TaskExecutor(spec, self.clients)
        settings = RunSettings(connection, {}, {}, {}, None, None)
        clients = client_settings(self.app.config, settings)
        self._offsets = StartOffsets(
            self.app.config, connection, spec, admin, partial(fence, clients, spec.commit_metadata), notes=True
        )
        self._metadata = spec.commit_metadata
        self.start: Start | None = None

    def begin(self, *places: TopicPartition) -> None:
        """Begin to work on partitions, as when the group has just given them to this process."""
        self.start = self._offsets.find(places)
        self._world.commit(self.start.initial_offsets, self.start.metadata)

    def work(self, place: TopicPartition, start: int, end: int) -> WorkCycle:
        """Process records, without a commit."""
        assert self.start is not None
        positions = {**self.start.positions, place: start}
        context = BatchContext(positions, stateful=self.start.stateful, claims=self.start.claims)
        batch = self.tasks.begin(context)
        records = numbers(
            end - start,
            start,
            topic=place.topic,
            keys=[b"abcde"[each % 5 : each % 5 + 1] for each in range(start, end)],
        )
        batch.begin_slice()
        left, _ = batch.take_turn(self.tasks.task_of(place), [records])
        assert left == []
        assert not batch.report.interrupted
        return batch

    def settle(self, batch: WorkCycle) -> Report:
        """Commit the work, and the offsets if it succeeds at least once."""
        try:
            report = self.tasks.end(batch)
        finally:
            batch.close()
        if self._world.guarantee == "at-least-once" and not report.interrupted:
            assert self.start is not None
            ends = {place: done.end for place, done in report.ranges.items()}
            self._world.commit(ends, self._metadata.encode_all(ends, self.start.claims))
        return report

    def close(self) -> None:
        """Let go of the stores."""
        for task in list(self.tasks.assigned.values()):
            self.tasks.release(task)

    def state(self, place: TopicPartition, end: int) -> dict[str, int]:
        """Return the counters of a partition, as a process finds them that opens its store now."""
        self.close()
        assert self.start is not None
        task = self.tasks.assign(self.tasks.task_of(place), {place: end})
        task.stateful = self.start.stateful
        report = self.tasks.restore([task.id], BatchContext(claims=self.start.claims))
        assert report.failure is None, report.failure
        assert not report.interrupted, report.interrupted
        transaction = task.stores.transaction("default")
        found = {key: state_of("default", transaction)(key.encode(), 0).get("n", 0) for key in "abcde"}
        self.close()
        return found


class World:
    """Two inputs of 30 records each, an output, and a group."""

    def __init__(self, kafka: Kafka, guarantee: ProcessingGuarantee, stack: contextlib.ExitStack) -> None:
        self.kafka, self.guarantee, self.stack = kafka, guarantee, stack
        self.group = unique("group")
        self.first, self.second = (TopicPartition(kafka.topic(name), 0) for name in ("a", "b"))
        self.output = kafka.topic("out")
        for topic in (self.first.topic, self.second.topic):
            kafka.produce(topic, list(range(30)))

    def commit(self, offsets: Mapping[TopicPartition, int], metadata: Mapping[TopicPartition, str | None]) -> None:
        """Commit offsets to the group, as its member does."""
        if not offsets:
            return
        consumer = ConfluentConsumer({"bootstrap.servers": self.kafka.address, "group.id": self.group})
        try:
            consumer.commit(offsets=partition_offsets(offsets, metadata), asynchronous=False)
        finally:
            consumer.close()

    def committed(self, place: TopicPartition) -> int | None:
        return self.kafka.admin.committed_stable(self.group, [place])[place].offset

    def outputs(self, number: int) -> list[dict[str, int]]:
        return [orjson.loads(record.value or b"") for record in self.kafka.receive_exactly(self.output, number)]


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as opened:
        yield opened


def alone(world: World, app: Application) -> None:
    app.dataframe(app.topic(world.first.topic)).apply(count, stateful=True).to_topic(app.topic(world.output))


def second_alone(world: World, app: Application) -> None:
    app.dataframe(app.topic(world.second.topic)).apply(count, stateful=True).to_topic(app.topic(world.output))


def merged(world: World, app: Application) -> None:
    second = app.dataframe(app.topic(world.second.topic))
    frame = app.dataframe(app.topic(world.first.topic)).apply(count, stateful=True).concat(second)
    frame.to_topic(app.topic(world.output))


def counted_twice(world: World, app: Application) -> None:
    frame = app.dataframe(app.topic(world.first.topic)).apply(count, stateful=True)
    frame.to_topic(app.topic(world.output))
    frame.tumbling_window(1_000).count().current()


def claimed_for_a_version(world: World) -> bool:
    return '"version"' in world.kafka.admin.committed_stable(world.group, [world.first])[world.first].metadata


def test_a_first_transaction_that_its_task_left_open_is_ended(
    kafka: Kafka, stack: contextlib.ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(kafka, "exactly-once", stack)
    place = world.first
    former, latter = Version(world, alone, "0"), Version(world, alone, "1")
    former.begin(place)

    def take_over(point: str) -> None:
        if point == "changelog-produced":
            # The first offset is committed and names no store; their changelogs have records that wait.
            monkeypatch.undo()
            former.tasks.assigned[former.tasks.task_of(place)].writer.flush()
            latter.begin(place)

    monkeypatch.setattr(faults, "reached", take_over)
    assert "fenced" in str(former.settle(former.work(place, 0, 10)).interrupted)
    assert latter.settle(latter.work(place, 0, 10)).interrupted == {}
    assert latter.state(place, 10) == dict.fromkeys("abcde", 2)


def plain(world: World, app: Application) -> None:
    app.dataframe(app.topic(world.first.topic)).to_topic(app.topic(world.output))


def recreate(world: World) -> None:
    """Delete the first input, and create it again with fewer records."""
    topic, admin = world.first.topic, world.kafka.admin
    former = admin.topic_ids([topic])[topic]
    admin.delete_topics([topic])
    wait_until(lambda: admin.topic_ids([topic])[topic] is None)
    admin.create_topics([Topic(topic, TopicConfig(1, 1))])
    world.kafka.produce(topic, list(range(100, 120)))
    wait_until(lambda: admin.topic_ids([topic])[topic] not in (None, former))


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a3_an_offset_that_was_committed_late_is_not_one_of_the_new_topic(
    kafka: Kafka, stack: contextlib.ExitStack, guarantee: ProcessingGuarantee
) -> None:
    world = World(kafka, guarantee, stack)
    place = world.first
    former = Version(world, plain, "0")
    former.begin(place)
    assert former.settle(former.work(place, 0, 10)).interrupted == {}
    late = former.work(place, 10, 12)
    recreate(world)
    # Nothing has told this process.
    assert former.settle(late).interrupted == {}
    assert world.committed(place) == 12
    latter = Version(world, plain, "1")
    for version in (former, latter):
        with pytest.raises(StaleTokenError, match=r"created again: its id was .* `streamrt reset`"):
            version.begin(place)
    with pytest.raises(StaleTokenError, match="created again"):
        # Its copy would not show it any more.
        create_savepoint(
            kafka.admin, ConnectionConfig(bootstrap_servers=kafka.address), definition_of(latter.app), "late"
        )
    # As a reset, or a tool that sets offsets.
    world.commit({place: 0}, {})
    latter = Version(world, plain, "2")
    latter.begin(place)
    assert latter.settle(latter.work(place, 0, 10)).interrupted == {}
    note = kafka.admin.committed_stable(world.group, [place])[place].metadata
    assert CommittedMetadata.decode(note).topic == kafka.admin.topic_ids([place.topic])[place.topic]


def test_a3_a_task_whose_offset_was_deleted_with_its_topic_says_so(kafka: Kafka, stack: contextlib.ExitStack) -> None:
    world = World(kafka, "exactly-once", stack)
    place = world.first
    former = Version(world, plain, "0")
    former.begin(place)
    recreate(world)
    wait_until(lambda: world.committed(place) is None)
    task = former.tasks.assign(former.tasks.task_of(place), {place: 0})
    report = former.tasks.restore([task.id], BatchContext())
    assert report.failure is not None
    assert isinstance(report.failure.error(), StaleTokenError)


@pytest.mark.parametrize("named", ["first", "second"])
def test_fault_6_a_version_with_a_merge_fences_tasks_of_single_inputs(
    kafka: Kafka, stack: contextlib.ExitStack, named: str
) -> None:
    world = World(kafka, "exactly-once", stack)
    place = world.first if named == "first" else world.second
    former = Version(world, alone if named == "first" else second_alone, "0")
    former.begin(place)
    assert former.settle(former.work(place, 0, 10)).interrupted == {}
    standing = former.work(place, 10, 20)
    # Its outputs are there, and wait for their commit.
    task = former.tasks.task_of(place)
    former.tasks.assigned[task].writer.flush()
    latter = Version(world, merged, "1")
    latter.begin(world.first, world.second)
    assert latter.settle(latter.work(place, 10, 30)).interrupted == {}
    report = former.settle(standing)
    assert "another producer has taken its id" in report.interrupted[task]
    assert world.committed(place) == 30
    assert len(world.outputs(30)) == 30


def test_fault_6_a_version_without_a_merge_fences_the_merged_task(kafka: Kafka, stack: contextlib.ExitStack) -> None:
    world = World(kafka, "exactly-once", stack)
    former = Version(world, merged, "0")
    former.begin(world.first, world.second)
    task = TaskId(f"{world.first.topic}--{world.second.topic}", 0)
    assert former.settle(former.work(world.second, 0, 10)).interrupted == {}
    note = kafka.admin.committed_stable(world.group, [world.second])[world.second].metadata
    assert CommittedMetadata.decode(note).owner == world.first.topic
    standing = former.work(world.second, 10, 20)
    former.tasks.assigned[task].writer.flush()
    # It has nothing to do with the input whose id moves the offset.
    latter = Version(world, second_alone, "1")
    latter.begin(world.second)
    assert latter.settle(latter.work(world.second, 10, 30)).interrupted == {}
    assert "another producer has taken its id" in former.settle(standing).interrupted[task]
    assert world.committed(world.second) == 30
    assert len(world.outputs(30)) == 30


def test_fault_6_the_id_that_merged_tasks_had_before_is_taken(kafka: Kafka, stack: contextlib.ExitStack) -> None:
    world = World(kafka, "exactly-once", stack)
    name = f"{world.first.topic}--{world.second.topic}"
    old = KafkaTransactionalWriter(
        ConnectionConfig(bootstrap_servers=kafka.address),
        transactional_id("streamrt", world.group, name, 0),
        world.group,
    )
    stack.callback(old.close)
    old.init(30, world.first.topic)
    world.commit({world.first: 0, world.second: 0}, {})
    old.produce(world.output, b'{"v":0,"n":1}', b"a", 0, None)
    old.flush()
    latter = Version(world, merged, "1")
    latter.begin(world.first, world.second)
    assert latter.settle(latter.work(world.first, 0, 30)).interrupted == {}
    with pytest.raises(Exception, match="another producer has taken its id"):
        old.commit({world.first: 10})
    assert world.committed(world.first) == 30


def test_fault_6_a_former_version_that_wakes_up_does_not_pass_new_stores_by(
    kafka: Kafka, stack: contextlib.ExitStack
) -> None:
    world = World(kafka, "exactly-once", stack)
    former = Version(world, alone, "0")
    former.begin(world.first)
    assert former.settle(former.work(world.first, 0, 10)).interrupted == {}
    former.close()
    sleeper = Version(world, alone, "1")
    sleeper.begin(world.first)
    assert sleeper.start is not None
    assert not claimed_for_a_version(world), "the same one claims nothing"
    latter = Version(world, counted_twice, "2")
    latter.begin(world.first)
    assert claimed_for_a_version(world)
    task = sleeper.tasks.task_of(world.first)
    woken = sleeper.tasks.restore([task], BatchContext(sleeper.start.positions))
    assert "was taken over by another version of the application" in woken.interrupted[task]
    assert latter.settle(latter.work(world.first, 10, 30)).interrupted == {}
    assert len(world.outputs(30)) == 30
    assert not claimed_for_a_version(world), "its stores tell of it now"


@pytest.mark.parametrize("reopened", [True, False])
def test_fault_7_at_least_once_an_owner_that_wakes_up_too_late_loses_nothing(
    kafka: Kafka, stack: contextlib.ExitStack, reopened: bool
) -> None:
    world = World(kafka, "at-least-once", stack)
    place = world.first
    former, latter = Version(world, alone, "0"), Version(world, alone, "1")
    former.begin(place)
    former.settle(former.work(place, 0, 10))
    standing = former.work(place, 10, 15)
    latter.begin(place)
    latter.settle(latter.work(place, 10, 30))
    # It has found the partition as it left it, and appends what it had made of it.
    report = former.settle(standing)
    assert "was reassigned to another process" in report.interrupted[former.tasks.task_of(place)]
    if reopened:
        assert latter.state(place, 30) == dict.fromkeys("abcde", 6)
    kafka.produce(place.topic, [30])
    latter.settle(latter.work(place, 30, 31))
    latter.close()
    expected = {**dict.fromkeys("bcde", 6), "a": 7}
    assert latter.state(place, 31) == expected
    elsewhere = Version(world, alone, "2")
    elsewhere.begin(place)
    assert elsewhere.state(place, 31) == expected
    # On the machine of the one that woke up, its own files are of no harm.
    again = Version(world, alone, "0")
    former.close()
    again.begin(place)
    assert again.state(place, 31) == expected


def test_a_task_that_died_in_its_first_transaction_holds_nobody_up(kafka: Kafka, stack: contextlib.ExitStack) -> None:
    """Nothing is committed, so that the position is looked for in the changelog, whose end is behind the open transaction."""
    world = World(kafka, "exactly-once", stack)
    app = Version(world, alone, "0")
    (log,) = (
        TopicPartition(changelog.topic, 0)
        for source in app.tasks.spec.state.sources.values()  # type: ignore[union-attr]
        for changelog in source.stores.values()
        if changelog is not None
    )
    dead = KafkaTransactionalWriter(
        ConnectionConfig(bootstrap_servers=kafka.address),
        transactional_id("streamrt", world.group, world.first.topic, 0),
        world.group,
    )
    stack.callback(dead.close)
    dead.init(30, world.first.topic)
    dead.produce(log.topic, b"value", b"key", 0, None)
    dead.flush()
    app.begin(world.first)
    assert app.start is not None
    assert app.start.positions[world.first] == 0
    assert app.settle(app.work(world.first, 0, 30)).interrupted == {}
    assert len(world.outputs(30)) == 30
