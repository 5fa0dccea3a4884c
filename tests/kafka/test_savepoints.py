"""Savepoints and repartitioning on a real broker, with real tasks and without Spark."""

import contextlib
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamrt.app import definition_of, environment_of
from streamrt.cli import app as command_line
from streamrt.config import ProcessingGuarantee
from streamrt.errors import (
    ArgumentValueError,
    ChangelogError,
    InvalidOperationError,
    SavepointError,
    StreamRTError,
    TopicConfigurationError,
)
from streamrt.kafka import ConnectionConfig, TopicConfig
from streamrt.kafka.membership.group_member import GroupMember
from streamrt.kafka.partitioner import partition_for
from streamrt.models import TopicPartition
from streamrt.savepoints.copying import Copies
from streamrt.savepoints.format import (
    Savepoint,
    all_savepoints,
    find_savepoint,
    group_record,
    manifest_record,
    refuse_taken,
    savepoint_topic,
)
from streamrt.savepoints.repartition import Repartitioning
from streamrt.savepoints.restore import TargetGroup
from streamrt.topics import Topic, repartition_topic_name
from tests.command_line import CliRunner
from tests.kafka.shops import DAY_MS, KEYS, OwnRules, RuledShop, Shop, TimedShop
from tests.support import LONG, Kafka, unique

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as opened:
        yield opened


def check(found: dict[int, dict[str, Any]], begin: int, end: int) -> None:
    """Check that these are the outputs of a range of records, and that all were counted from the very first one on."""
    assert sorted(found) == list(range(begin, end))
    assert {i: each["n"] for i, each in found.items()} == {i: i // len(KEYS) + 1 for i in range(begin, end)}
    for group in range(5):
        # The order within a group is that in which the tasks of the input have worked.
        numbers = sorted(each["m"] for i, each in found.items() if i % 5 == group)
        assert numbers == [i // 5 + 1 for i in range(begin, end) if i % 5 == group]
    for each in found.values():
        # Lists have one element for each record so far.
        assert len(each["all"]) == len(set(each["all"])) == each["m"]


@pytest.mark.rows("PF-L10")
@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"] if LONG else ["exactly-once"])
def test_a_fork_goes_on_where_the_savepoint_was_made(
    kafka: Kafka, stack: contextlib.ExitStack, guarantee: ProcessingGuarantee
) -> None:
    shop = Shop(kafka, stack, guarantee)
    shop.produce(12)
    shop.work()
    shop.produce(5)
    shop.work(grouped=False)
    app = shop.app()
    made = app.savepoint("before")
    assert {each.store for each in made.stores} == {"default", "default.c"}
    topic = kafka.admin.inspect_topics([made.topic])[made.topic]
    assert topic is not None
    kept = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
    assert {name: topic.extra_config[name] for name in kept} == kept, "neither compaction nor age deletes a record"
    shop.produce(7)
    shop.work()
    fork = shop.fork(unique("fork"))
    saved = find_savepoint(kafka.admin, environment_of(app).connection, shop.group, "before", 30)
    assert saved == made
    assert set(fork.app().restore_savepoint("before", group=shop.group)) == {
        TopicPartition(shop.source, n) for n in (0, 1)
    }
    fork.work()
    # Those that waited between the two parts are also in the fork.
    check(shop.outputs(24), 0, 24)
    check(fork.outputs(12), 12, 24)
    shop.produce(3)
    for each in (shop, fork):
        each.work()
    check(shop.outputs(27), 0, 27)
    check(fork.outputs(15), 12, 27)


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"] if LONG else ["at-least-once"])
def test_a_repartitioned_application_goes_on(
    kafka: Kafka, stack: contextlib.ExitStack, guarantee: ProcessingGuarantee
) -> None:
    shop = Shop(kafka, stack, guarantee)
    shop.produce(12)
    shop.work()
    done = shop.app().repartition(5)
    exchange = repartition_topic_name(shop.group, shop.source, "c")
    assert done.topics == {shop.source: 2, exchange: 2}
    found = kafka.admin.inspect_topics([shop.source, exchange, f"changelog__{shop.group}--{shop.source}--default"])
    assert [each.num_partitions for each in found.values() if each is not None] == [5, 5, 5]
    shop.produce(15)
    shop.work()
    # An instance whose files are of the time before.
    shop.produce(3)
    shop.work()
    check(shop.outputs(30), 0, 30)
    assert kafka.admin.topic_names(f"savepoint__{shop.group}") == []
    with pytest.raises(SavepointError, match="have 5 partitions already"):
        shop.app().repartition(5)
    with pytest.raises(TopicConfigurationError, match="has 5 partitions: Kafka cannot take any away"):
        shop.app().repartition(3)


@pytest.mark.rows("PF-A10", "PF-B15", "PF-L17")
def test_timers_windows_and_joins_are_where_their_keys_are_after_a_repartition(
    kafka: Kafka, stack: contextlib.ExitStack
) -> None:
    shop = TimedShop(kafka, stack, "exactly-once")
    shop.produce_prices(0)
    shop.work()
    shop.produce(12)
    shop.work()
    done = shop.app().repartition(5)
    assert done.topics[shop.prices] == 2
    assert len({store for _, store in done.stores}) == 7
    # They match the orders of before, and are younger than the first prices.
    shop.produce_prices(1)
    shop.work()
    shop.produce(12)
    shop.work()
    # All timers are due in each partition, and the windows of the day before are closed.
    shop.produce(8, later_ms=2 * DAY_MS)
    shop.work()
    of_key = {key.encode(): list(range(number, 24, len(KEYS))) for number, key in enumerate(KEYS)}
    panes = kafka.receive_exactly(shop.panes, len(KEYS), 60)
    found = {record.key: json.loads(record.value or b"")["value"] for record in panes}
    # Both the elements and the count of the trigger: two or one of the three records were before.
    assert found == {key: each[:3] for key, each in of_key.items()}
    days: dict[bytes | None, list[int]] = {}
    for record in kafka.receive_exactly(shop.days, len(KEYS), 60):
        days.setdefault(record.key, []).extend(json.loads(record.value or b"")["value"])
    assert days == of_key
    alarms = [
        (record.key, json.loads(record.value or b"")["all"])
        for record in kafka.receive_exactly(shop.alarms, 3 * len(KEYS), 60)
    ]
    # The first timer of a key clears its list, and all are due: a timer that stayed behind would have put nothing out.
    assert {key: each[:3] for key, each in alarms if each} == of_key
    valid = [json.loads(record.value or b"") for record in kafka.receive_exactly(shop.valid, 32, 60)]
    assert sorted(valid) == [[number, int(number >= 12)] for number in range(32)]
    pairs = [json.loads(record.value or b"") for record in kafka.receive_exactly(shop.pairs, 48, 60)]
    assert sorted(pairs) == [[number, turn] for number in range(24) for turn in (0, 1)]


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"] if LONG else ["exactly-once"])
def test_new_partitions_have_the_broadcast_state(
    kafka: Kafka, stack: contextlib.ExitStack, guarantee: ProcessingGuarantee
) -> None:
    shop = RuledShop(kafka, stack, guarantee)
    shop.produce_rules("a", "b", "c")
    shop.work()
    shop.produce_rules("b", on=False)
    shop.work()
    shop.produce(12)
    shop.work()
    done = shop.app().repartition(5)
    # The number of partitions of the rules means nothing.
    assert done.topics == {shop.source: 2, shop.broadcast: 2}
    found = kafka.admin.inspect_topics([shop.source, shop.broadcast, shop.rules])
    assert [each.num_partitions for each in found.values() if each is not None] == [5, 5, 3]
    shop.produce(12)
    shop.work()
    shop.produce_rules("d")
    shop.work()
    shop.produce(8)
    shop.work()
    outputs = shop.outputs(32)
    assert {number: each["n"] for number, each in outputs.items()} == {i: i // len(KEYS) + 1 for i in range(32)}
    assert {number: each["rules"] for number, each in outputs.items()} == {
        number: ["a", "c"] if number < 24 else ["a", "c", "d"] for number in range(32)
    }
    assert {partition_for(key.encode(), 5) for key in KEYS} > {0, 1}, "new partitions have had orders"
    with pytest.raises(SavepointError, match="have 5 partitions already"):
        shop.app().repartition(5)


def test_copies_of_broadcast_state_that_differ_are_refused(kafka: Kafka, stack: contextlib.ExitStack) -> None:
    shop = RuledShop(kafka, stack, "exactly-once", rules=OwnRules)
    shop.produce_rules("a")
    shop.work()
    shop.produce(8)
    shop.work()
    with pytest.raises(
        SavepointError, match=r"has other broadcast state in partition 1 than in partition 0, .* nothing was"
    ):
        shop.app().repartition(5)
    shop.produce(8)
    shop.work()
    assert {each["n"] for each in shop.outputs(16).values()} == {1, 2}


@pytest.mark.parametrize("steps", range(6) if LONG else (3,))
def test_a_repartition_that_ends_after_any_step_is_run_again(
    kafka: Kafka, stack: contextlib.ExitStack, steps: int
) -> None:
    shop = Shop(kafka, stack, "exactly-once")
    shop.produce(10)
    shop.work()
    app = shop.app()
    found = Repartitioning(kafka.admin, environment_of(app).connection, definition_of(app), 3).steps()
    for _ in range(steps):
        next(found)
    found.close()  # type: ignore[attr-defined]
    if steps < 2:
        # The state is as it was, and an application that goes on makes this savepoint useless.
        shop.produce(2)
        shop.work()
    else:
        with pytest.raises(ChangelogError, match="a repartition ended in the middle"):
            shop.work()
        assert shop.app().repartition(3, dry_run=True).resumed
    shop.app().repartition(3)
    shop.produce(20 - shop.written)
    shop.work()
    check(shop.outputs(20), 0, 20)


def test_a_restore_that_ends_in_the_middle_is_run_again(
    kafka: Kafka, stack: contextlib.ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(kafka, stack, "exactly-once")
    shop.produce(10)
    shop.work()
    shop.produce(5)
    shop.work(grouped=False)
    shop.app().savepoint("before")
    fork = shop.fork(unique("fork"))
    for name in ("create_changelogs", "finish"):
        with monkeypatch.context() as patched:
            patched.setattr(TargetGroup, name, lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                fork.app().restore_savepoint("before", group=shop.group)
        with pytest.raises(ChangelogError, match="a restore of a savepoint or a repartition ended in the middle"):
            fork.work()
    fork.app().restore_savepoint("before", group=shop.group)
    with pytest.raises(
        InvalidOperationError, match=r"has state in .*: choose a consumer group that does not exist yet"
    ):
        fork.app().restore_savepoint("before", group=shop.group)
    fork.work()
    check(fork.outputs(5), 10, 15)
    # Back to it, in the same group.
    shop.work()
    with pytest.raises(InvalidOperationError, match=r"`streamrt reset` lets consumer group .* start over"):
        shop.app().restore_savepoint("before")
    app = shop.app()
    app.reset()
    app.restore_savepoint("before")
    shop.output = kafka.topic("out")
    shop.work()
    check(shop.outputs(5), 10, 15)


def test_a_group_has_its_own_savepoints_alone(kafka: Kafka) -> None:
    group = unique("shop")
    other, connection = f"{group}--x", ConnectionConfig(bootstrap_servers=kafka.address)

    def begin(group: str, name: str, *records: tuple[bytes, bytes]) -> None:
        topic = savepoint_topic(group, name)
        kafka.admin.create_topics([Topic(topic, TopicConfig(1, 1))])
        with Copies(kafka.admin, connection, 30) as copies:
            for record in records:
                copies.write_pair(TopicPartition(topic, 0), *record)
            copies.flush()

    begin(other, "before", group_record(other))
    begin(group, "x--after", group_record(group))
    # As earlier versions have begun them.
    begin(other, "old")
    begin(group, "older")
    done = Savepoint("done", other, 0, "exactly-once", {}, (), (), (), ())
    begin(other, "done", manifest_record(done))
    listed = {each: dict(all_savepoints(kafka.admin, connection, each, 30)) for each in (group, other)}
    assert listed == {group: {"x--after": None, "older": None}, other: {"before": None, "old": None, "done": done}}
    assert find_savepoint(kafka.admin, connection, group, "x--done", 30) is None
    for name in ("x--before", "x--done"):
        with pytest.raises(SavepointError, match=f"has a savepoint of consumer group '{other}': choose another name"):
            refuse_taken(kafka.admin, connection, group, name, 30)
    refuse_taken(kafka.admin, connection, group, "x--after", 30)
    with pytest.raises(SavepointError, match="has no savepoint 'x--before'"):
        CliRunner().invoke(
            command_line,
            ["savepoint", "delete", "x--before", "--group", group, "--broker", kafka.address, "--yes"],
            standalone_mode=False,
            catch_exceptions=False,
        )


@pytest.mark.parametrize("junk", [b"", b"[" * 100_000, b'{"v":1}'])
def test_s6_a_damaged_manifest_hides_no_other_savepoint(kafka: Kafka, junk: bytes) -> None:
    group, connection = unique("shop"), ConnectionConfig(bootstrap_servers=kafka.address)
    manifests = {
        "bad": (b"manifest", junk),
        "good": manifest_record(Savepoint("good", group, 0, "exactly-once", {}, ())),
    }
    for name, record in manifests.items():
        kafka.admin.create_topics([Topic(savepoint_topic(group, name), TopicConfig(1, 1))])
        with Copies(kafka.admin, connection, 30) as copies:
            for pair in (group_record(group), record):
                copies.write_pair(TopicPartition(savepoint_topic(group, name), 0), *pair)
            copies.flush()
    with pytest.raises(SavepointError, match="damaged"):
        find_savepoint(kafka.admin, connection, group, "bad", 30)
    arguments = ["--group", group, "--broker", kafka.address]
    listed = CliRunner().invoke(command_line, ["savepoint", "list", *arguments, "--json"])
    found = {each["name"]: each["complete"] for each in json.loads(listed.stdout)["savepoints"]}
    assert (listed.exit_code, found) == (0, {"bad": False, "good": True})
    deleted = CliRunner().invoke(command_line, ["savepoint", "delete", "bad", *arguments, "--yes"])
    assert deleted.exit_code == 0, deleted.output


def test_a1_two_processes_that_copy_to_one_topic_notice_it(kafka: Kafka) -> None:
    connection, topic = ConnectionConfig(bootstrap_servers=kafka.address), kafka.topic("copied")
    with Copies(kafka.admin, connection, 30) as first, Copies(kafka.admin, connection, 30) as second:
        first.write_pair(TopicPartition(topic, 0), b"k", b"1")
        first.flush()
        assert first.is_alone(topic, 1)
        second.write_pair(TopicPartition(topic, 0), b"k", b"2")
        second.flush()
        assert not first.is_alone(topic, 1)
        assert not second.is_alone(topic, 1)


def test_what_is_refused(kafka: Kafka, stack: contextlib.ExitStack) -> None:
    shop = Shop(kafka, stack, "exactly-once")
    app = shop.app()
    with pytest.raises(StreamRTError, match="nothing can be saved before the first start"):
        app.savepoint("first")
    app.setup_topics()
    with pytest.raises(SavepointError, match="has committed nothing for the topics"):
        app.savepoint("first")
    shop.produce(10)
    shop.work()
    member = GroupMember(kafka.address, shop.group, [shop.source], on_revoke=lambda _: None)
    with member:
        assert member.assignment(300) is not None
        for call in (lambda: app.savepoint("first"), lambda: app.repartition(3)):
            with pytest.raises(InvalidOperationError, match="has members: stop all instances"):
                call()
    app.savepoint("first")
    with pytest.raises(SavepointError, match="has a savepoint 'first': choose another name"):
        app.savepoint("first")
    with pytest.raises(ArgumentValueError, match="cannot be the name of a savepoint"):
        app.savepoint("no/name")
    with pytest.raises(SavepointError, match="has no complete savepoint 'second'"):
        app.restore_savepoint("second", group=shop.group)
    shop.produce(1)
    with pytest.raises(
        SavepointError, match=r"has records from offset \d+ to \d+ that consumer group .* has not processed: end"
    ):
        app.repartition(3)
    shop.work(grouped=False)
    with pytest.raises(SavepointError, match="has not processed"):
        app.repartition(3)
    shop.work()
    # A producer that chooses partitions in another way.
    key = next(key.encode() for key in KEYS if partition_for(key.encode(), 2) == 0)
    kafka.produce(shop.source, [{"i": 11, "c": "c-1"}], key=key, partition=1)
    shop.work()
    with pytest.raises(SavepointError, match="has a key in partition 1 that belongs to partition 0"):
        app.repartition(3)
    shop.work()
    assert kafka.admin.inspect_topics([shop.source])[shop.source].num_partitions == 2  # type: ignore[union-attr]
    other = kafka.app(shop.group)
    other.dataframe(other.topic(shop.source))
    with pytest.raises(SavepointError, match=r"names the store 'default' .*, which this version"):
        other.savepoint("other")
    for wrong in (0, -1):
        with pytest.raises(ArgumentValueError, match="must be 1 or more"):
            app.repartition(wrong)


def test_records_that_come_while_a_topic_grows_are_refused(kafka: Kafka, stack: contextlib.ExitStack) -> None:
    shop = Shop(kafka, stack, "exactly-once")
    shop.produce(10)
    shop.work()
    app = shop.app()
    steps = Repartitioning(kafka.admin, environment_of(app).connection, definition_of(app), 3).steps()
    next(steps)
    next(steps)
    value, key = {"i": 10, "c": "c-0"}, KEYS[10 % len(KEYS)].encode()
    place = TopicPartition(shop.source, next(n for n in (0, 1) if n != partition_for(key, 3)))
    kafka.produce(shop.source, [value], key=key, partition=place.partition)
    with pytest.raises(
        SavepointError, match="was written while the topic got partitions, and its key belongs to another"
    ):
        next(steps)
    kafka.admin.delete_records({place: kafka.admin.bounds(place)[1]})
    # These are in the right partitions.
    shop.produce(5)
    shop.app().repartition(3)
    shop.work()
    check(shop.outputs(15), 0, 15)


def test_the_commands(
    kafka: Kafka, stack: contextlib.ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(kafka, stack, "at-least-once")
    shop.produce(10)
    shop.work()
    name = unique("program").replace("-", "_")
    (tmp_path / f"{name}.py").write_text("SHOP = None\ndef app():\n    return SHOP.app()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    vars(importlib.import_module(name))["SHOP"] = shop

    def run(*arguments: str, answer: str = "y\n") -> str:
        result = CliRunner().invoke(command_line, list(arguments), input=answer, standalone_mode=False)
        if result.exception is not None:
            raise result.exception
        return result.stdout

    where = ("--broker", kafka.address, "--group", shop.group)
    assert f"savepoint 'a' of consumer group {shop.group!r}" in run("savepoint", "create", f"{name}:app", "a")
    assert json.loads(run("savepoint", "list", *where, "--json"))["savepoints"][0]["name"] == "a"
    assert "complete" in run("savepoint", "list", *where)
    assert f"{shop.source}: offset 0: " in run("savepoint", "show", "a", *where)
    fork = shop.fork(unique("fork"))
    said = run("savepoint", "restore", "a", *where, "--to", fork.group)
    assert f"consumer group {fork.group!r} begins" in said
    shop.produce(2)
    fork.work()
    check(fork.outputs(2), 10, 12)
    deleted = run("savepoint", "delete", "a", *where, "--yes", "--json")
    assert json.loads(deleted) == {"deleted": "a", "group": shop.group}
    assert json.loads(run("savepoint", "list", *where, "--json")) == {"savepoints": []}
    shop.work()
    assert "would get 4 partitions instead of 2" in run("repartition", f"{name}:app", "--partitions", "4", "--dry-run")
    said = run("repartition", f"{name}:app", "--partitions", "4", "--yes", "--json")
    assert json.loads(said)["topics"][shop.source] == 2
    shop.produce(3)
    shop.work()
    check(shop.outputs(15), 0, 15)
