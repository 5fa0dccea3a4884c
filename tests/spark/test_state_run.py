"""State on Spark and a real broker: counts that stay right through restarts, damage, errors and foreign writers."""

import functools
import json
import logging
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from streamrt import Application
from streamrt.errors import ProcessingError, ProducerError, StoreCorruptedError
from streamrt.kafka import Producer
from streamrt.models import TopicPartition
from streamrt.runtime.driver.housekeeping.state_directory import group_directory
from streamrt.state import MemoryStore, RocksDBOptions, RocksDBStore, State
from tests.spark.stateful import (
    GUARANTEES,
    changelog,
    changes,
    count,
    counting,
    counts,
    feed,
)
from tests.support import ONE_MODE, Kafka, running, unique, wait_until

pytestmark = [pytest.mark.usefixtures("processing_mode"), pytest.mark.spark, pytest.mark.slow]


def caught_up(app: Application, records: int) -> bool:
    return app.progress().records >= records


def read(kafka: Kafka, topic: str, records: int) -> list[tuple[str, Any]]:
    """Return keys and values of the committed records of a topic; there must be exactly so many."""
    received = kafka.receive_exactly(topic, records)
    found = [(record.key or b"", json.loads(record.value or b"null")) for record in received]
    return [(key.decode(), value) for key, value in found]


def lag(kafka: Kafka, group: str, topic: str, partitions: int) -> int:
    """Return how many offsets a group is behind the ends of a topic."""
    places = [TopicPartition(topic, number) for number in range(partitions)]
    ends = kafka.admin.offset_bounds(places)
    done = kafka.admin.committed(group, places)
    return sum(ends[place][1] - (done[place] or 0) for place in places)


@contextmanager
def transaction(kafka: Kafka) -> Iterator[Producer]:
    """Produce in one transaction of a producer of our own."""
    options = {"transactional.id": unique("tx")}
    with Producer(kafka.address, extra_config=options, transactional=True) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        yield producer
        producer.flush()
        producer.commit_transaction()


# -- The happy path ----------------------------------------------------------------------------------------------------


@pytest.mark.rows("PF-L2", "PF-L7", "PF-L8")
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_counts_go_on_after_a_restart_and_without_the_local_files(kafka: Kafka, guarantee: str) -> None:
    source, target, group = kafka.topic("in", 2), kafka.topic("out", 2), unique("count")
    expected: list[tuple[str, int]] = []
    seen: Counter[str] = Counter()

    def app() -> Any:
        made = kafka.app(group, processing_guarantee=guarantee)
        sdf = made.dataframe(made.topic(source, key_deserializer="str")).apply(count, stateful=True)
        sdf.to_topic(made.topic(target, key_serializer="str"))
        return made

    def more(left: str, right: str) -> None:
        for partition, keys in enumerate((left, right)):
            feed(kafka, source, keys, partition)
            for key in keys:
                seen[key] += 1
                expected.append((key, seen[key]))

    more("aab", "xyx")
    app().run(timeout=0.5)
    more("ab", "x")
    app().run(timeout=0.5)
    more("ba", "y")
    app().clear_state()
    app().run(timeout=0.5)
    more("bb", "yx")
    shutil.rmtree(kafka.state_dir)
    app().run(timeout=0.5)
    assert sorted(read(kafka, target, len(expected))) == sorted(expected)
    assert lag(kafka, group, source, 2) == 0
    # The marker of a transaction is not a record, but it counts as lag.
    with transaction(kafka) as producer:
        producer.produce(source, b'"a"', key=b"a", partition=0)
    with running(app()):
        wait_until(lambda: lag(kafka, group, source, 2) == 0, what="lag 0")
    assert ("a", seen["a"] + 1) in read(kafka, target, len(expected) + 1)


def test_dataframes_of_two_topics_do_not_mix_their_state(kafka: Kafka) -> None:
    left, right, group = kafka.topic("left"), kafka.topic("right", 2), unique("two")

    def run() -> Counter[tuple[str, str, int]]:
        app = kafka.app(group)
        for name in (left, right):
            app.dataframe(app.topic(name, key_deserializer="str")).apply(count, stateful=True)
        rows = app.run(timeout=0.5, metadata=True)
        return Counter((row["_topic"], row["_key"], row["_value"]) for row in rows)

    feed(kafka, left, "aab")
    feed(kafka, right, "ac", 0)
    feed(kafka, right, "ab", 1)
    assert run() == Counter(
        [
            *[(left, "a", 1), (left, "a", 2), (left, "b", 1)],
            *[(right, "a", 1), (right, "c", 1), (right, "a", 1), (right, "b", 1)],
        ]
    )
    feed(kafka, left, "a")
    feed(kafka, right, "c", 0)
    feed(kafka, right, "c", 1)
    shutil.rmtree(kafka.state_dir)
    assert run() == Counter([(left, "a", 3), (right, "c", 2), (right, "c", 1)])
    for name, partitions in ((left, 1), (right, 2)):
        assert kafka.admin.inspect_topics([changelog(group, name)])[changelog(group, name)].num_partitions == partitions  # type: ignore[union-attr]


@pytest.mark.only_mode("micro-batch", reason="a resident task stays in its process")
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_state_in_memory_stays_right_when_micro_batches_change_their_process(kafka: Kafka, guarantee: str) -> None:
    source, target, group = kafka.topic("in", 3), kafka.topic("out", 3), unique("memory")
    rounds = 12
    app = kafka.app(group, processing_guarantee=guarantee)
    sdf = app.dataframe(app.topic(source, key_deserializer="str"))
    sdf.register_store(MemoryStore)
    sdf.apply(count, stateful=True).to_topic(app.topic(target, key_serializer="str"))
    with running(app):
        for number in range(rounds):
            # Sometimes one partition has records, sometimes several, so that processes take turns.
            for partition in range(3):
                if (number + partition) % 3:
                    feed(kafka, source, "ab", partition)
            wait_until(functools.partial(caught_up, app, kafka.end(source)), what="a round")
    batches = app.progress().batches
    values = Counter(read(kafka, target, kafka.end(source)))
    assert batches >= rounds
    assert values == Counter((key, number) for key in "ab" for number in range(1, 9) for _ in range(3))


@ONE_MODE
@pytest.mark.rows("PF-F19")
def test_a_time_to_live_runs_by_event_time_and_survives_a_restore(kafka: Kafka) -> None:
    source, group = kafka.topic("in"), unique("ttl")

    def remember(value: int, state: State) -> list[Any]:
        known = [state.get("short"), state.get("long")]
        if value:
            state.set("short", value, ttl=timedelta(seconds=10))
            state.set("long", value, ttl=timedelta(hours=1))
        return known

    def run(*records: tuple[int, int]) -> list[list[Any]]:
        for value, timestamp in records:
            kafka.produce(source, [value], timestamp=timestamp)
        app = kafka.app(group)
        app.dataframe(app.topic(source)).apply(remember, stateful=True)
        return [row["_value"] for row in app.run(timeout=0.5)]

    start = 1_700_000_000_000
    assert run((1, start), (0, start + 9_999), (0, start + 10_000)) == [[None, None], [1, 1], [None, 1]]
    # Time stands still while nothing comes, however long that takes; a restore brings the times along.
    shutil.rmtree(kafka.state_dir)
    assert run((2, start + 20_000), (0, start + 29_999), (0, start + 30_001)) == [[None, 1], [2, 2], [None, 2]]
    shutil.rmtree(kafka.state_dir)
    # A late record lives in its own time, but what has expired stays so.
    assert run((0, start + 25_000), (0, start + 4_000_000)) == [[None, 2], [None, None]]


@ONE_MODE
def test_changelogs_are_compacted_topics_like_their_source_with_tombstones_for_what_is_deleted(kafka: Kafka) -> None:
    source, group = kafka.topic("in", 2, {"max.message.bytes": "2000000"}), unique("log")

    def keep(value: str, state: State) -> bool:
        if value == "x":
            state.delete("kept")
        else:
            state.set("kept", value)
        return state.exists("kept")

    def run() -> list[bool]:
        app = kafka.app(group)
        app.dataframe(app.topic(source)).apply(keep, stateful=True)
        return [row["_value"] for row in app.run(timeout=0.5)]

    kafka.produce(source, ["v", "w"], key=b"a", partition=1)
    assert run() == [True, True]
    kafka.produce(source, ["x"], key=b"a", partition=1)
    assert run() == [False]
    name = f"changelog__{group}--{source}--default"
    found = kafka.admin.inspect_topics([name])[name]
    assert found is not None
    assert (found.num_partitions, found.extra_config["cleanup.policy"]) == (2, "compact")
    assert found.extra_config["max.message.bytes"] == "2000000"
    written = changes(kafka, name, 1)
    assert [value is None for _, value in written] == [False, True], "one change for each commit, and a tombstone"
    assert len({key for key, _ in written}) == 1
    assert changes(kafka, name, 0) == []
    shutil.rmtree(kafka.state_dir)
    kafka.produce(source, ["x"], key=b"a", partition=1)
    assert run() == [False], "what was deleted does not come back"


# -- group_by ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_group_by_brings_keys_together_over_a_repartition_topic(kafka: Kafka, guarantee: str) -> None:
    source, target, group = kafka.topic("in", 3), kafka.topic("out", 3), unique("group")
    values = [{"who": "abcde"[number % 5], "n": number} for number in range(30)]
    internal = f"repartition__{group}--{source}--who"

    def app() -> Any:
        made = kafka.app(group, processing_guarantee=guarantee)
        by_who = made.dataframe(made.topic(source)).group_by("who")
        by_who.apply(count, stateful=True).to_topic(made.topic(target, key_serializer="str"))
        return made

    def run(records: int, total: int) -> Counter[tuple[str, int]]:
        counted = app()
        with running(counted) as thread:
            # Each record is read twice: from the input, and from the repartition topic.
            wait_until(lambda: not thread.is_alive() or counted.progress().records >= 2 * records, what="the outputs")
            wait_until(lambda: lag(kafka, group, internal, 3) == 0, what="lag 0")
        return Counter(read(kafka, target, total))

    for number in range(3):
        kafka.produce(source, values[number::3], key=None, partition=number)
    assert run(30, 30) == Counter((who, number) for who in "abcde" for number in range(1, 7))
    found = kafka.admin.inspect_topics([internal])[internal]
    assert found is not None
    assert found.num_partitions == 3
    assert (found.extra_config["cleanup.policy"], found.extra_config["retention.ms"]) == ("delete", "-1")
    log = f"changelog__{group}--repartition.{source}.who--default"
    assert kafka.admin.inspect_topics([log])[log].num_partitions == 3  # type: ignore[union-attr]
    # What is processed is deleted at the end of a run, and the next one does not miss it.
    places = [TopicPartition(internal, number) for number in range(3)]
    assert sum(low for low, _ in kafka.admin.offset_bounds(places).values()) >= 30
    shutil.rmtree(kafka.state_dir)
    kafka.produce(source, values[:5], key=None, partition=1)
    assert run(5, 35) == Counter((who, number) for who in "abcde" for number in range(1, 8))


@ONE_MODE
def test_group_by_on_one_partition_needs_no_internal_topic(kafka: Kafka) -> None:
    source, group = kafka.topic("in"), unique("one")

    def run() -> list[Any]:
        app = kafka.app(group)
        sdf = app.dataframe(app.topic(source)).update(
            lambda value, state: value.update(all=count(0, state)), stateful=True
        )
        by_day = sdf.group_by("who").apply(lambda value, state: {**value, "mine": count(0, state)}, stateful=True)
        by_day.group_by("day").apply(lambda value, state: [value["all"], value["mine"], count(0, state)], stateful=True)
        return [row["_value"] for row in app.run(timeout=0.5)]

    kafka.produce(source, [{"who": "a", "day": 1}, {"who": "b", "day": 1}, {"who": "a", "day": 2}])
    assert run() == [[1, 1, 1], [2, 1, 2], [3, 2, 1]]
    shutil.rmtree(kafka.state_dir)
    kafka.produce(source, [{"who": "a", "day": 1}])
    assert run() == [[4, 3, 3]]
    logs = [f"changelog__{group}--{source}--{store}" for store in ("default", "default.who", "default.who.day")]
    assert sorted(name for name in kafka.admin.list_topics() if group in name) == sorted([f"layout__{group}", *logs])


def test_group_by_may_follow_group_by(kafka: Kafka) -> None:
    source, group, target = kafka.topic("in", 2), unique("nested"), kafka.topic("out")
    values = [{"who": "ab"[number % 2], "day": number % 3} for number in range(12)]
    for number in range(2):
        kafka.produce(source, values[number * 6 :][:6], key=None, partition=number)
    app = kafka.app(group, processing_guarantee="exactly-once")
    by_who = app.dataframe(app.topic(source)).group_by("who")
    by_who = by_who.apply(lambda value, state: {**value, "who_count": count(0, state)}, stateful=True)
    by_day = by_who.group_by("day").apply(lambda value, state: [value["day"], count(0, state)], stateful=True)
    by_day.to_topic(app.topic(target), key=lambda value: b"all")
    names = [f"repartition__{group}--{source}--who", f"repartition__{group}--repartition.{source}.who--day"]
    with running(app) as thread:
        wait_until(lambda: not thread.is_alive() or kafka.end(target) >= 12, what="the outputs")
        wait_until(lambda: lag(kafka, group, names[1], 2) == 0, what="lag 0")
    expected = [[day, number] for day in range(3) for number in range(1, 5)]
    assert sorted(value for _, value in read(kafka, target, 12)) == expected
    logs = [
        f"changelog__{group}--repartition.{source}.who--default",
        f"changelog__{group}--repartition.repartition.{source}.who.day--default",
    ]
    assert sorted(name for name in kafka.admin.list_topics() if group in name) == sorted(
        [f"layout__{group}", *names, *logs]
    )


# -- Restore -----------------------------------------------------------------------------------------------------------


def test_a_long_changelog_is_restored_in_slices_that_tell_how_far_they_are(
    kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    source, group, entries = kafka.topic("in"), unique("long"), 200_000

    def fill(value: int, state: State) -> int:
        for number in range(value):
            state.set(number, f"value number {number}")
        return sum(state.exists(number) for number in range(0, entries, 1_000))

    def run() -> list[Any]:
        app = kafka.app(group, commit_interval=0.5)
        app.dataframe(app.topic(source)).apply(fill, stateful=True)
        return [row["_value"] for row in app.run(timeout=0.5)]

    kafka.produce(source, [entries])
    assert run() == [200]
    shutil.rmtree(kafka.state_dir)
    kafka.produce(source, [0])
    caplog.set_level(logging.INFO, logger="streamrt")
    assert run() == [200]
    ready = next(record for record in caplog.records if "Spark is ready" in record.message)
    told = [record for record in caplog.records if "restoring store" in record.message]
    assert told[-1].message == f"restoring store 'default' of {source}[0]: 100 % of {entries + 1} changelog offsets"
    seconds = told[-1].created - ready.created
    print(f"restored {entries / seconds:,.0f} records/s, with the assignment, in {len(told)} slices")


def test_fault_23_a_locked_store_holds_up_its_own_partition_alone(kafka: Kafka) -> None:
    source, target, group = kafka.topic("in", 2), kafka.topic("out", 2), unique("locked")
    base = group_directory(kafka.state_dir, group) / "0"
    app = kafka.app(group, rocksdb_options=RocksDBOptions(open_retry_backoff=1.0))
    sdf = app.dataframe(app.topic(source, key_deserializer="str")).apply(count, stateful=True)
    sdf.to_topic(app.topic(target, key_serializer="str"))
    held = RocksDBStore("default", source, base).open(0)
    feed(kafka, source, "a", 0)
    feed(kafka, source, "x", 1)
    with running(app):
        wait_until(lambda: caught_up(app, 1), what="the other partition")
        feed(kafka, source, "xx", 1)
        wait_until(lambda: caught_up(app, 3), what="more of it")
        assert sorted(read(kafka, target, 3)) == [("x", 1), ("x", 2), ("x", 3)]
        held.close()
        wait_until(lambda: caught_up(app, 4), what="the partition whose store was locked")
    assert sorted(read(kafka, target, 4))[0] == ("a", 1)


def damage_manifest(store: Path) -> None:
    manifest = next(store.glob("MANIFEST-*"))
    manifest.write_bytes(manifest.read_bytes()[:-7])


def damage_data(store: Path) -> None:
    next(store.glob("*.sst")).unlink()


@pytest.mark.parametrize("damage", [damage_manifest, damage_data])
def test_a_damaged_store_is_restored(kafka: Kafka, damage: Any, caplog: pytest.LogCaptureFixture) -> None:
    source, group = kafka.topic("in"), unique("damaged")
    feed(kafka, source, "aab")
    assert counts(counting(kafka, group, source)) == [("a", 1), ("a", 2), ("b", 1)]
    store = next(path.parent for path in group_directory(kafka.state_dir, group).rglob("CURRENT"))
    damage(store)
    feed(kafka, source, "ab")
    strict = counting(kafka, group, source, rocksdb_options=RocksDBOptions(on_corrupted_recreate=False))
    with pytest.raises(StoreCorruptedError, match=f"{source}"):
        strict.run(timeout=0.5)
    assert kafka.committed(group, source) == 3
    assert counts(counting(kafka, group, source)) == [("a", 3), ("b", 2)]


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_foreign_transaction_on_the_changelog_is_waited_for(kafka: Kafka, guarantee: str) -> None:
    source, group = kafka.topic("in"), unique("open")
    feed(kafka, source, "aab")
    assert len(counts(counting(kafka, group, source, processing_guarantee=guarantee))) == 3
    log = changelog(group, source)
    options = {"transactional.id": unique("foreign")}
    with Producer(kafka.address, extra_config=options, transactional=True) as foreign:
        foreign.init_transactions()
        foreign.begin_transaction()
        key, value = changes(kafka, log)[0]
        foreign.produce(log, (value or b"")[:-1] + b"7", key=key, partition=0)
        foreign.flush()
        # Behind the open transaction lies another change of state, which a reader of committed records cannot see yet.
        with Producer(kafka.address) as other:
            other.produce(log, (value or b"")[:-1] + b"5", key=key, partition=0)
        shutil.rmtree(kafka.state_dir)
        feed(kafka, source, "ab")
        app = counting(kafka, group, source, processing_guarantee=guarantee)
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.extend(counts(app, timeout=3)))
        thread.start()
        wait_until(lambda: app.progress().positions, what="the start")
        # There is nothing to wait for: the restore must not end, and nothing be processed.
        time.sleep(1.5)
        assert app.progress().records == 0
        foreign.abort_transaction()
        thread.join(60)
    assert found == [("a", 6), ("b", 2)]


# -- Errors ------------------------------------------------------------------------------------------------------------


def fail_on_x(value: str, state: State) -> int:
    seen = count(value, state)
    if value == "x":
        raise ValueError("x is not allowed")
    return seen


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a17_a_skipped_record_leaves_no_change_of_state(kafka: Kafka, guarantee: str) -> None:
    source, group = kafka.topic("in"), unique("skip")
    kafka.produce(source, ["a", "x", "a"], key=b"k")
    app = kafka.app(group, processing_guarantee=guarantee, on_processing_error=lambda error, record, logger: True)
    app.dataframe(app.topic(source)).apply(fail_on_x, stateful=True)
    assert [row["_value"] for row in app.run(timeout=0.5)] == [1, 2]


@pytest.mark.rows("PF-C15", "PF-F20", "PF-L2")
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_an_error_leaves_nothing_of_its_batch_in_state_or_offsets(kafka: Kafka, guarantee: str) -> None:
    source, target, group = kafka.topic("in"), kafka.topic("out"), unique("fail")
    kafka.produce(source, ["a", "a"], key=b"k")

    def run(skip: bool = False) -> None:
        app = kafka.app(
            group,
            processing_guarantee=guarantee,
            on_processing_error=(lambda error, record, logger: True) if skip else None,
        )
        sdf = app.dataframe(app.topic(source)).apply(fail_on_x, stateful=True)
        sdf.to_topic(app.topic(target))
        app.run(timeout=0.5)

    run()
    done = kafka.committed(group, source)
    kafka.produce(source, ["a", "a", "x", "a"], key=b"k")
    for _ in range(2):
        with pytest.raises(ProcessingError, match=rf"{source}\[0\] at offset 4 .*x is not allowed"):
            run()
        assert kafka.committed(group, source) == done
    if guarantee == "exactly-once":
        assert [value for _, value in read(kafka, target, 2)] == [1, 2], "partial outputs are not visible"
    run(skip=True)
    assert kafka.committed(group, source) == 6
    if guarantee == "exactly-once":
        assert [value for _, value in read(kafka, target, 5)] == [1, 2, 3, 4, 5]
    else:
        assert set(kafka.values(target, kafka.end(target))) == {1, 2, 3, 4, 5}


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize(("limit", "size"), [(None, 1_500_000), (2_000, 3_000)], ids=["client", "broker"])
def test_state_that_is_too_large_for_its_changelog_is_not_lost(
    kafka: Kafka, guarantee: str, limit: int | None, size: int
) -> None:
    source = kafka.topic("in", config=None if limit is None else {"max.message.bytes": str(limit)})
    group = unique("large")

    def keep(value: int, state: State) -> int:
        state.set_bytes("data", bytes(value))
        return value

    def run() -> list[Any]:
        # Who does without outputs that cannot be delivered does not do without state.
        app = kafka.app(group, processing_guarantee=guarantee, on_producer_error=lambda error, record, logger: True)
        app.dataframe(app.topic(source)).apply(keep, stateful=True)
        return app.run(timeout=0.5)

    kafka.produce(source, [1])
    assert len(run()) == 1
    done = kafka.committed(group, source)
    kafka.produce(source, [size])
    with pytest.raises(ProducerError) as caught:
        run()
    message = str(caught.value)
    assert changelog(group, source) in message
    assert "max.message.bytes" in message
    assert "\n" not in message
    assert kafka.committed(group, source) == done


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_count_of_outputs_is_exact_with_state(kafka: Kafka, guarantee: str) -> None:
    source, group = kafka.topic("in", 2), unique("exact")
    feed(kafka, source, "a" * 40, 0)
    feed(kafka, source, "b" * 40, 1)

    def run(number: int) -> list[tuple[str, int]]:
        app = counting(kafka, group, source, processing_guarantee=guarantee)
        return [(row["_key"], row["_value"]) for row in app.run(count=number, timeout=300, metadata=True)]

    first, second = run(17), run(63)
    assert (len(first), len(second)) == (17, 63)
    for key in "ab":
        assert [number for name, number in first + second if name == key] == list(range(1, 41))
    assert lag(kafka, group, source, 2) == 0
