"""A stopped application starts over, on a real broker: what is left after each step, and where it then begins."""

import contextlib
import json
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest

from streamrt import Application, Offsets
from streamrt.app import definition_of
from streamrt.cli import app as command_line
from streamrt.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ChangelogError,
    ConfigurationError,
    InvalidOperationError,
    OffsetOutOfRangeError,
    StaleTokenError,
)
from streamrt.kafka import TopicConfig
from streamrt.kafka.membership.group_member import GroupMember
from streamrt.models import TopicPartition
from streamrt.runtime.driver.housekeeping.application_reset import Reset
from streamrt.runtime.driver.housekeeping.state_directory import StateDirectory
from streamrt.topics import Topic, repartition_topic_name
from tests.command_line import CliRunner
from tests.kafka.test_deployments import Version, World, alone, count
from tests.support import Kafka, unique

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as opened:
        yield opened


def worked(kafka: Kafka, stack: contextlib.ExitStack, guarantee: str = "exactly-once") -> World:
    """Return a world in which ten records were counted, by an instance that has stopped."""
    world = World(kafka, guarantee, stack)  # type: ignore[arg-type]
    version = Version(world, alone, "0")
    version.begin(world.first)
    assert version.settle(version.work(world.first, 0, 10)).interrupted == {}
    version.close()
    return world


def app_of(world: World) -> Application:
    app = world.kafka.app(world.group, processing_guarantee=world.guarantee)
    alone(world, app)
    return app


def changelog_of(world: World) -> str:
    return f"changelog__{world.group}--{world.first.topic}--default"


def counts_from_the_beginning(world: World) -> dict[str, int]:
    version = Version(world, alone, "0")
    version.begin(world.first)
    assert version.start is not None
    assert version.start.positions[world.first] == 0
    assert version.settle(version.work(world.first, 0, 10)).interrupted == {}
    return version.state(world.first, 10)


@pytest.mark.parametrize(
    ("guarantee", "steps"),
    [*(("exactly-once", steps) for steps in range(5)), ("at-least-once", 1), ("at-least-once", 3)],
)
def test_a_reset_that_ends_after_any_step_is_run_again(
    kafka: Kafka, stack: contextlib.ExitStack, guarantee: str, steps: int
) -> None:
    world = worked(kafka, stack, guarantee)
    app = app_of(world)
    died = Reset.find(kafka.admin, definition_of(app), "earliest").steps()
    for _ in range(steps):
        next(died)
    died.close()  # type: ignore[attr-defined]
    if steps in (1, 2):
        # No start counts records again, or goes on without its state.
        with pytest.raises(ChangelogError, match="is missing, but the consumer group has processed"):
            Version(world, alone, "0")
        assert world.committed(world.first) == 10
    if steps >= 3:
        assert counts_from_the_beginning(world) == dict.fromkeys("abcde", 2)
    report = app.reset()
    assert report.offsets[world.first] == 0
    assert world.committed(world.first) == 0
    assert kafka.admin.topic_ids([changelog_of(world)])[changelog_of(world)] is None
    assert counts_from_the_beginning(world) == dict.fromkeys("abcde", 2)


@pytest.mark.rows("FE-055", "FE-057")
def test_what_is_deleted_and_what_stays(kafka: Kafka, stack: contextlib.ExitStack) -> None:
    world = worked(kafka, stack)
    stranger = f"changelog__{world.group}--x--orders--default"
    kafka.admin.create_topics([Topic(stranger, TopicConfig(1, 1))])
    app = app_of(world)
    files = Path(kafka.state_dir) / world.group / "0"
    planned = app.reset(dry_run=True)
    assert (planned.changelogs, planned.directories, planned.kept) == ((changelog_of(world),), (files,), (stranger,))
    assert files.exists()
    assert world.committed(world.first) == 10
    assert any("would be deleted" in line for line in planned.lines())
    done = app.reset()
    assert not files.exists()
    assert done.changelogs == planned.changelogs
    ids = kafka.admin.topic_ids([stranger, world.first.topic, world.output])
    assert None not in ids.values()
    assert app.reset().changelogs == ()


def test_records_between_two_parts_are_dropped(kafka: Kafka) -> None:
    group, source = unique("group"), kafka.topic("orders", 2)
    app = kafka.app(group)
    app.dataframe(app.topic(source)).group_by(lambda value: value, name="customer").apply(count, stateful=True)
    app.setup_topics()
    inner = TopicPartition(repartition_topic_name(group, source, "customer"), 1)
    kafka.produce(inner.topic, [1, 2], partition=1)
    kafka.admin.set_committed(group, {inner: 1, TopicPartition(source, 0): 0})
    assert app.reset().repartition_topics == (inner.topic,)
    assert kafka.admin.topic_ids([inner.topic])[inner.topic] is None
    app.setup_topics()
    # Otherwise a start would miss the first records of the new topic.
    assert kafka.admin.committed(group, [inner])[inner] is None
    # A grouping of a former version, by its commits.
    kafka.admin.set_committed(group, {inner: 0})
    former = kafka.app(group)
    former.dataframe(former.topic(source))
    assert former.reset().repartition_topics == (inner.topic,)


@pytest.mark.rows("PF-B13")
def test_where_it_begins(kafka: Kafka) -> None:
    source = kafka.topic("orders", 2)
    app = kafka.app()
    app.dataframe(app.topic(source))
    first, second = (TopicPartition(source, number) for number in (0, 1))
    begun = 1_700_000_000_000
    for number in range(5):
        kafka.produce(source, [number], partition=0, timestamp=begun + number * 1_000)
    kafka.produce(source, [1], partition=1, timestamp=begun)
    group = app.config.consumer_group

    def committed() -> list[int | None]:
        found = kafka.admin.committed(group, [first, second])
        return [found[first], found[second]]

    report = app.reset("latest")
    assert committed() == [5, 1]
    assert report.offsets.ids == {source: kafka.admin.topic_ids([source])[source]}
    app.reset("earliest")
    assert committed() == [0, 0]
    app.reset(report.offsets)
    assert committed() == [5, 1]
    app.reset(datetime.fromtimestamp(begun / 1_000 + 2, timezone.utc))
    assert committed() == [2, 1]
    app.reset(datetime.fromtimestamp(begun / 1_000 - 9, timezone.utc).replace(tzinfo=None))
    assert committed() == [0, 0]
    app.reset(datetime.fromtimestamp(time.time() + 60, timezone.utc))
    assert committed() == [5, 1]
    with pytest.raises(ArgumentValueError, match=r"got no offset of .*\[1\]"):
        app.reset(Offsets({first: 1}))
    with pytest.raises(ArgumentValueError, match="got offsets of other"):
        app.reset(Offsets({first: 1, second: 1, ("other", 0): 1}))
    with pytest.raises(OffsetOutOfRangeError, match=r"got offset 6 of .*\[0\], which has offsets 0 to 5"):
        app.reset(Offsets({first: 6, second: 1}))
    with pytest.raises(StaleTokenError, match="deleted and created again"):
        app.reset(Offsets({first: 1, second: 1}, {source: "other"}))
    with pytest.raises(ArgumentValueError, match="give 'earliest', 'latest', a datetime, or Offsets"):
        app.reset("newest")  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="got int"):
        app.reset(7)  # type: ignore[arg-type]
    assert committed() == [5, 1]


def test_nothing_is_reset_while_an_instance_runs(kafka: Kafka, stack: contextlib.ExitStack) -> None:
    world = worked(kafka, stack)
    app = app_of(world)
    part = StateDirectory.acquire(Path(kafka.state_dir), world.group, "cluster")
    with pytest.raises(InvalidOperationError, match="in use by a running instance"):
        app.reset()
    part.release()
    member = GroupMember(kafka.address, world.group, [world.first.topic], on_revoke=lambda _: None)
    with member:
        assert member.assignment(300) is not None
        with pytest.raises(InvalidOperationError, match="has members: stop all instances"):
            app.reset()
    assert world.committed(world.first) == 10
    assert kafka.admin.topic_ids([changelog_of(world)])[changelog_of(world)] is not None


def test_the_command(
    kafka: Kafka, stack: contextlib.ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = worked(kafka, stack)
    name = unique("program").replace("-", "_")
    (tmp_path / f"{name}.py").write_text(
        "from streamrt import Application\n"
        f"app = Application({kafka.address!r}, consumer_group={world.group!r}, loglevel=None,\n"
        f"    state_dir={str(kafka.state_dir)!r})\n"
        f"app.dataframe(app.topic({world.first.topic!r})).apply(lambda value, state: value, stateful=True)\n"
        "def made():\n    return app\n"
        "number = 7\n"
    )
    (tmp_path / f"{name}_broken.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def run(*arguments: str, answer: str = "n\n") -> tuple[int, str]:
        result = CliRunner().invoke(command_line, ["reset", *arguments], input=answer, standalone_mode=False)
        if result.exception is not None and not result.output:
            raise result.exception
        return result.exit_code, result.stdout

    code, said = run(f"{name}:app", "--dry-run")
    assert code == 0
    assert f"the topic {changelog_of(world)}: would be deleted" in said
    code, said = run(f"{name}:made", "--dry-run", "--json")
    assert json.loads(said)["changelogs"] == [changelog_of(world)]
    code, said = run(f"{name}:app")
    assert code != 0
    assert world.committed(world.first) == 10
    code, said = run(f"{name}:app", "--json", "--to", "latest", answer="y\n")
    # The runner shows the answer on the output.
    assert (code, json.loads(said[said.index("{") :])["offsets"]) == (0, {world.first.topic: {"0": 30}})
    assert world.committed(world.first) == 30
    code, said = run(f"{name}:app", "--yes", "--to", str(Offsets({world.first: 7})))
    assert f"{world.first.topic}: begins at offset 0: 7 (by partition)" in said
    run(f"{name}:app", "--yes", "--to", "2001-01-01T00:00Z")
    assert world.committed(world.first) == 0
    for wrong, words in (
        (f"{name}:number", "is a value of type int, and not an Application"),
        (f"{name}:none", "is nothing, and not an Application"),
        (name, "names no application"),
        ("nowhere:app", "module 'nowhere' was not found"),
        (f"{name}_broken:app", "cannot be loaded: ZeroDivisionError: division by zero"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            run(wrong)
    with pytest.raises(Exception, match="'newest' is not earliest, latest, a time or offsets"):
        run(f"{name}:app", "--to", "newest")
