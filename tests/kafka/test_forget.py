"""`streamrt state forget` and what the start refuses, on a real broker."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamrt import Application
from streamrt.cli import app as command_line
from streamrt.errors import ChangelogError, InvalidOperationError, TopicConfigurationError
from streamrt.kafka import ConnectionConfig, TopicConfig
from streamrt.kafka.membership.group_member import GroupMember
from streamrt.models import TopicPartition
from streamrt.runtime.driver.housekeeping.state_directory import StateDirectory
from streamrt.runtime.driver.starting.leftovers import refuse_leftovers
from streamrt.runtime.metadata import CommittedMetadata
from streamrt.topics import repartition_topic_name
from tests.command_line import CliRunner
from tests.kafka.test_deployments import Version, World, alone, count
from tests.support import Kafka, unique, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture
def world(kafka: Kafka) -> Iterator[World]:
    with contextlib.ExitStack() as stack:
        yield World(kafka, "exactly-once", stack)


def stateless(world: World, app: Application) -> None:
    app.dataframe(app.topic(world.first.topic)).to_topic(app.topic(world.output))


def forget(world: World, *options: str) -> tuple[int, str]:
    """Run the command; return its exit code and what it says."""
    arguments = [
        *("state", "forget", "--broker-address", world.kafka.address, "--state-dir", str(world.kafka.state_dir)),
        *("--group", world.group, "--topic", world.first.topic, *options),
    ]
    result = CliRunner().invoke(command_line, arguments, input="n\n", standalone_mode=False)
    if result.exception is not None and not result.output:
        raise result.exception
    return result.exit_code, result.output


def test_fault_14_a_rollback_is_refused_by_name_and_the_store_can_begin_again(world: World) -> None:
    place = world.first
    first = Version(world, alone, "0")
    first.begin(place)
    assert first.settle(first.work(place, 0, 10)).interrupted == {}
    second = Version(world, stateless, "0")
    second.begin(place)
    assert second.settle(second.work(place, 10, 20)).interrupted == {}
    third = Version(world, alone, "0")
    with pytest.raises(
        ChangelogError, match="the state lacks the records between them; if an application version without the store"
    ):
        third.begin(place)
    assert world.committed(place) == 20
    first.close()
    code, said = forget(world, "--store", "default")
    changelog = f"changelog__{world.group}--{place.topic}--default"
    assert code != 0, said
    assert f"the topic {changelog}" in said
    assert world.kafka.admin.topic_ids([changelog])[changelog] is not None, "nobody said yes"
    code, said = forget(world, "--store", "default", "--yes", "--json")
    assert code == 0, said
    told = json.loads(said)
    assert (told["group"], told["topic"], told["store"], told["changelog"]) == (
        world.group,
        place.topic,
        "default",
        changelog,
    )
    assert len(told["files"]) == 1
    wait_until(lambda: world.kafka.admin.topic_ids([changelog])[changelog] is None)
    fourth = Version(world, alone, "0")
    fourth.begin(place)
    assert fourth.settle(fourth.work(place, 20, 30)).interrupted == {}
    assert fourth.state(place, 30) == dict.fromkeys("abcde", 2)


def test_a_store_in_use_can_be_forgotten_while_nothing_runs(world: World) -> None:
    place = world.first
    version = Version(world, alone, "0")
    version.begin(place)
    version.settle(version.work(place, 0, 10))
    version.close()
    files = list(Path(world.kafka.state_dir).glob(f"{world.group}/0/*/default/0"))
    assert files
    part = StateDirectory.acquire(Path(world.kafka.state_dir), world.group, "cluster")
    with pytest.raises(InvalidOperationError, match="in use by a running instance"):
        forget(world, "--store", "default", "--yes")
    part.release()
    _, said = forget(world, "--store", "default", "--yes")
    assert str(files[0]) in said
    assert not files[0].exists()
    note = world.kafka.admin.committed_stable(world.group, [place])[place]
    assert note.offset == 10
    assert not CommittedMetadata.decode(note.metadata).names(place.topic, "default")
    with pytest.raises(InvalidOperationError, match="has no store 'other'"):
        forget(world, "--store", "other", "--yes")


def test_nothing_is_forgotten_while_the_group_has_members(world: World) -> None:
    member = GroupMember(world.kafka.address, world.group, [world.first.topic], on_revoke=lambda _: None)
    with member:
        assert member.assignment(300) is not None
        with pytest.raises(InvalidOperationError, match="has members: stop all instances"):
            forget(world, "--store", "default", "--yes")


def test_fault_18_records_of_a_grouping_that_is_gone_are_refused_by_name(kafka: Kafka) -> None:
    group, source = unique("group"), kafka.topic("orders", 2)

    def start(name: str | None) -> None:
        app = kafka.app(group)
        frame = app.dataframe(app.topic(source))
        if name is not None:
            frame.group_by(lambda value: value, name=name).apply(count, stateful=True)
        topology = app.topology.resolve({source: 2})
        refuse_leftovers(topology, group, kafka.admin, ConnectionConfig(bootstrap_servers=kafka.address), 30)

    start(None)
    left = repartition_topic_name(group, source, "customer")
    kafka.admin.create_topics([_Definition(left)])
    start(None)
    kafka.produce(left, [1, 2], partition=1)
    start("customer")
    for name in (None, "client"):
        with pytest.raises(TopicConfigurationError, match=f"{left}\\[1\\] has unprocessed records from offset 0 to 2"):
            start(name)
    place = TopicPartition(left, 1)
    kafka.admin.set_committed(group, {place: 2})
    start("client")
    # A group whose name goes on like a topic's.
    kafka.admin.create_topics([_Definition(other := repartition_topic_name(f"{group}--x", source, "customer"))])
    kafka.produce(other, [1], partition=0)
    start("client")


class _Definition:
    def __init__(self, name: str) -> None:
        self.name, self.config = name, TopicConfig(2, 1)
