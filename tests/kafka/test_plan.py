"""`streamrt plan diff` on a real broker: what it finds, and that it changes nothing."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from streamrt import Application, BroadcastContext, BroadcastProcessFunction
from streamrt.app import definition_of, environment_of
from streamrt.application.startup_plan import DeploymentPlan, plan_deployment
from streamrt.kafka import TopicConfig
from streamrt.runtime.driver.starting.layout_changes import Kind
from streamrt.topics import Topic
from tests.command_line import streamrt
from tests.kafka.test_deployments import Version, World, alone, count
from tests.support import Kafka, unique

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as opened:
        yield opened


def deployed(kafka: Kafka, stack: contextlib.ExitStack, guarantee: str = "exactly-once") -> World:
    """Return a world in which ten records were counted, by an instance that has stopped."""
    world = World(kafka, guarantee, stack)  # type: ignore[arg-type]
    version = Version(world, alone, "0")
    version.begin(world.first)
    assert version.settle(version.work(world.first, 0, 10)).interrupted == {}
    version.close()
    return world


def plan_of(world: World, build: Callable[[World, Application], None], **settings: Any) -> DeploymentPlan:
    """Return the plan of a version; nothing in Kafka may be changed by it."""
    app = world.kafka.app(world.group, **{"processing_guarantee": world.guarantee, **settings})
    build(world, app)
    admin = world.kafka.admin
    places = [world.first, world.second]

    def all_there_is() -> tuple[Any, ...]:
        offsets = admin.committed_stable(world.group, places)
        groups = {name: group for name, group in admin.list_groups(30).items() if world.group in name}
        return sorted(name for name in admin.list_topics(30) if world.group in name), offsets, groups

    before = all_there_is()
    plan = plan_deployment(definition_of(app), environment_of(app))
    assert all_there_is() == before
    return plan


def kinds(plan: DeploymentPlan, *ignored: Kind) -> dict[str, str]:
    return {each.subject: each.kind.value for each in plan.changes if each.kind not in ignored}


def found(plan: DeploymentPlan, kind: Kind) -> str:
    (only,) = plan.of_kind(kind)
    return f"{only.subject}: {only.detail}; {only.remedy}"


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_the_same_version_continues(kafka: Kafka, stack: contextlib.ExitStack, guarantee: str) -> None:
    world = deployed(kafka, stack, guarantee)
    plan = plan_of(world, alone)
    assert kinds(plan, Kind.OK) == {}
    assert [(each.topic, each.start, each.end, each.lag) for each in plan.offsets] == [(world.first.topic, 10, 30, 20)]


def test_a_first_start_creates_its_topics(kafka: Kafka, stack: contextlib.ExitStack) -> None:
    world = World(kafka, "at-least-once", stack)
    many = kafka.topic("many", 3)

    def build(world: World, app: Application) -> None:
        grouped = app.dataframe(app.topic(many)).group_by("customer", name="customer")
        grouped.apply(count, stateful=True).to_topic(app.topic(unique("new-output")))

    plan = plan_of(world, build)
    assert not plan.of_kind(Kind.REFUSED)
    created = [each for each in plan.changes if "will be created" in each.detail]
    details = {each.subject: each.detail for each in created}
    changelog = next(detail for subject, detail in details.items() if "changelog" in subject)
    assert changelog.startswith("will be created: 3 partitions, cleanup.policy=compact")
    assert len(created) == 3
    assert "has never committed" in str(plan.changes)


class Rules(BroadcastProcessFunction):
    def process_element(self, value: Any, ctx: BroadcastContext) -> None: ...

    def process_broadcast_element(self, value: Any, ctx: BroadcastContext) -> None: ...


def test_the_topic_of_a_broadcast_is_like_the_other_side(kafka: Kafka, stack: contextlib.ExitStack) -> None:
    world = World(kafka, "at-least-once", stack)
    many = kafka.topic("many", 3)

    def build(world: World, app: Application) -> None:
        rules = app.dataframe(app.topic(world.first.topic))
        grouped = app.dataframe(app.topic(many)).group_by("customer", name="customer")
        grouped.connect(rules.broadcast()).process(Rules()).to_topic(app.topic(world.output))

    plan = plan_of(world, build)
    assert not plan.of_kind(Kind.REFUSED)
    details = {each.subject: each.detail for each in plan.changes if "will be created" in each.detail}
    assert sorted(subject.partition("__")[0] for subject in details) == [
        "topic changelog",
        "topic repartition",
        "topic repartition",
    ]
    assert all(detail.startswith("will be created: 3 partitions") for detail in details.values())
    assert f"topic repartition__{world.group}--{world.first.topic}--broadcast" in details


def renamed(world: World, app: Application) -> None:
    frame = app.dataframe(app.topic(world.first.topic))
    frame.tumbling_window(1_000).count().current().to_topic(app.topic(world.output))


def stateless(world: World, app: Application) -> None:
    app.dataframe(app.topic(world.first.topic)).to_topic(app.topic(world.output))


def other_input(world: World, app: Application) -> None:
    app.dataframe(app.topic(world.second.topic)).apply(count, stateful=True).to_topic(app.topic(world.output))


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (renamed, "if it was renamed to"),
        (stateless, "is gone: from the first commit on it misses records"),
        (other_input, "its topics or a group_by have changed"),
    ],
)
def test_a_store_that_is_gone_loses_state(
    kafka: Kafka, stack: contextlib.ExitStack, build: Callable[[World, Application], None], words: str
) -> None:
    world = deployed(kafka, stack)
    plan = plan_of(world, build)
    lost = found(plan, Kind.LOSES_STATE)
    assert lost.startswith(f"store 'default' of {world.first.topic}")
    assert words in lost
    assert not plan.of_kind(Kind.REFUSED)


def test_an_input_that_is_removed_is_named_with_its_offset(kafka: Kafka, stack: contextlib.ExitStack) -> None:
    plan = plan_of(world := deployed(kafka, stack), other_input)
    details = {each.subject: each.detail for each in plan.of_kind(Kind.CHANGE)}
    assert "from offset 10 on" in details[f"input {world.first.topic}"]
    assert "is added: 1 partition" in details[f"input {world.second.topic}"]


def test_the_refusals_of_a_start_are_findings(kafka: Kafka, stack: contextlib.ExitStack) -> None:
    world = deployed(kafka, stack)
    changelog = f"changelog__{world.group}--{world.first.topic}--default"
    kafka.admin.delete_topics([changelog])
    assert f"the changelog topic {changelog} is missing" in found(plan_of(world, alone), Kind.REFUSED)
    kafka.admin.create_topics([Topic(changelog, TopicConfig(1, 1, {"cleanup.policy": "compact"}))])
    assert "was deleted and created again" in found(plan_of(world, alone), Kind.REFUSED)


def test_an_offset_that_was_set_back_is_refused(kafka: Kafka, stack: contextlib.ExitStack) -> None:
    world = deployed(kafka, stack)
    kafka.admin.set_committed(world.group, {world.first: 3})
    assert "contains the records" in found(plan_of(world, alone), Kind.REFUSED)


def test_an_instance_that_works_is_not_disturbed(kafka: Kafka, stack: contextlib.ExitStack) -> None:
    world = deployed(kafka, stack)
    running = Version(world, alone, "0")
    running.begin(world.first)
    batch = running.work(world.first, 10, 20)
    # Its outputs and changes of state are there, in an open transaction.
    running.tasks.assigned[running.tasks.task_of(world.first)].writer.flush()
    plan = plan_of(world, alone)
    assert kinds(plan, Kind.OK) == {}
    assert [(each.start, each.end) for each in plan.offsets] == [(10, 30)]
    for build in (stateless, renamed):
        assert not plan_of(world, build).of_kind(Kind.REFUSED)
    assert running.settle(batch).interrupted == {}
    assert world.committed(world.first) == 20
    running.close()


def test_records_of_a_former_grouping_are_refused(kafka: Kafka, stack: contextlib.ExitStack) -> None:
    world = deployed(kafka, stack)
    former = f"repartition__{world.group}--{world.first.topic}--customer"
    kafka.admin.create_topics([Topic(former, TopicConfig(2, 1))])
    kafka.produce(former, [1], partition=1)
    plan = plan_of(world, alone)
    assert "has unprocessed records from offset 0 to 1" in found(plan, Kind.REFUSED)
    assert any(each.subject == f"topic {former}" for each in plan.of_kind(Kind.WARNING))


def test_added_partitions_and_the_guarantee(kafka: Kafka, stack: contextlib.ExitStack) -> None:
    world = deployed(kafka, stack, "at-least-once")
    plan = plan_of(world, alone, processing_guarantee="exactly-once")
    assert "from at-least-once to exactly-once" in found(plan, Kind.CHANGE)
    admin = AdminClient({"bootstrap.servers": kafka.address})
    admin.create_partitions([NewPartitions(world.first.topic, 2)])[world.first.topic].result(300)
    refused = plan_of(world, alone)
    assert "partitions" in found(refused, Kind.REFUSED)
    assert "has 2 partitions, and had 1 when the group began" in str(refused.changes)


def test_topics_that_would_be_missing_or_refused(kafka: Kafka, stack: contextlib.ExitStack) -> None:
    world = World(kafka, "at-least-once", stack)

    def build(world: World, app: Application) -> None:
        app.dataframe(app.topic(world.first.topic)).to_topic(app.topic(unique("absent")))

    assert "these topics do not exist" in found(plan_of(world, build, auto_create_topics=False), Kind.REFUSED)

    def costly(world: World, app: Application) -> None:
        config = TopicConfig(1, 9)
        app.dataframe(app.topic(world.first.topic)).to_topic(app.topic(unique("absent"), config=config))

    assert "replication" in found(plan_of(world, costly), Kind.REFUSED)


def test_the_command_says_it_with_its_exit_code(
    kafka: Kafka, stack: contextlib.ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = deployed(kafka, stack)
    module = unique("planned").replace("-", "_")
    (tmp_path / f"{module}.py").write_text(
        "from streamrt import Application\n"
        f"app = Application({kafka.address!r}, consumer_group={world.group!r}, loglevel=None,\n"
        f"    auto_offset_reset='earliest', processing_guarantee='exactly-once')\n"
        f"app.dataframe(app.topic({world.first.topic!r})).to_topic(app.topic({world.output!r}))\n"
        f"kept = Application({kafka.address!r}, consumer_group={world.group!r}, loglevel=None,\n"
        f"    auto_offset_reset='earliest', processing_guarantee='exactly-once')\n"
        f"frame = kept.dataframe(kept.topic({world.first.topic!r})).apply(lambda v, state: v, stateful=True)\n"
        f"frame.to_topic(kept.topic({world.output!r}))\n"
    )
    monkeypatch.chdir(tmp_path)
    lost = streamrt("plan", "diff", f"{module}:app")
    assert lost.code == 3
    assert lost.out.splitlines()[0].startswith(f"loses state  store 'default' of {world.first.topic}: is gone")
    assert "1 that loses state, 0 refused" in lost.out.splitlines()[-1]
    assert "\x1b" not in lost.out
    allowed = streamrt("plan", "diff", f"{module}:app", "--allow-loss", "--json").json
    assert allowed["counts"]["loses state"] == 1
    assert allowed["offsets"][0]["start"] == 10
    same = streamrt("plan", "diff", f"{module}:kept")
    assert same.code == 0
    assert len(same.out.splitlines()) == 1
    every = streamrt("plan", "diff", f"{module}:kept", "--all").out
    assert f"offsets of {world.first.topic}: continues at the committed offsets, 20 offsets behind the end" in every
    assert streamrt("plan", f"{module}:kept", "--json").json["group"] == world.group
