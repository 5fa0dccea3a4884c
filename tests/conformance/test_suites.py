"""Suites find what they are for: each double breaks one clause of a contract, and at least one test fails for it."""

import contextlib
import copy
import inspect
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from streamrt.connectors import (
    BatchingSink,
    PositionChange,
    SinkBackpressureError,
    SinkBatch,
    SinkCommit,
    SinkPosition,
    Source,
    StatefulSource,
    TransactionalSink,
)
from streamrt.errors import SinkFencedError
from streamrt.state import MemoryStore, Stamp, Store, StorePartition
from streamrt.state.memory.store import MemoryStorePartition
from streamrt.testing.connectors import (
    BatchingSinkConformance,
    SourceConformance,
    StatefulSourceConformance,
    TransactionalSinkConformance,
    Written,
    sources,
)
from streamrt.testing.stores import StoreConformance


def failed(suite: type) -> list[str]:
    """Run the tests of a suite until one fails; return its name."""
    for name, test in inspect.getmembers(suite, inspect.isfunction):
        if not name.startswith("test_") or hasattr(test, "hypothesis"):
            continue
        marks = [mark.args for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
        for arguments in _combined(marks):
            one = suite()
            with tempfile.TemporaryDirectory() as directory:
                for parameter in inspect.signature(test).parameters:
                    if parameter == "tmp_path":
                        arguments[parameter] = Path(directory)
                    elif parameter in ("store", "partition"):
                        made = one.make("store", "topic", Path(directory))
                        arguments[parameter] = made if parameter == "store" else made.open(0)
                try:
                    getattr(one, name)(**arguments)
                except pytest.skip.Exception:
                    continue
                except (Exception, pytest.fail.Exception):
                    return [name]
    return []


def _combined(marks: list[Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{}]
    for names, values in marks:
        found = [{**one, names: value} for one in found for value in values]
    return found


# -- Sources ---------------------------------------------------------------------------------------------------------


class Numbers(StatefulSource):
    """Right: records first, then the state of all of them."""

    def run(self) -> None:
        number = self.state.get("number", 0)
        while self.running and number < 8:
            self.step(number)
            number += 1
            self.sleep(0.001)

    def step(self, number: int) -> None:
        self.produce(self.serialize(value=number).value)
        self.state.set("number", number + 1)
        self.flush()


class StateFirst(Numbers):
    def step(self, number: int) -> None:
        self.state.set("number", number + 1)
        self.flush()
        self.produce(self.serialize(value=number).value)


class StateAhead(Numbers):
    """Covers a batch of records by one state, before its last record is produced."""

    def step(self, number: int) -> None:
        if number % 4 == 2:
            self.state.set("number", number + 2)
            self.flush()
        self.produce(self.serialize(value=number).value)


class CommitFirst(Numbers):
    def flush(self, timeout: float | None = None) -> None:
        self._configured_store.commit(1)
        Source.flush(self, timeout)


class CommitOnly(Numbers):
    def flush(self, timeout: float | None = None) -> None:
        self._configured_store.commit(1)

    def cleanup(self, failed: bool) -> None:
        Source.flush(self)


class Forgetful(Numbers):
    def step(self, number: int) -> None:
        self.produce(self.serialize(value=number).value)
        self.flush()


class Elsewhere(Numbers):
    """Its position is not in the state, and moves before a commit."""

    position = 0

    def run(self) -> None:
        while self.running and Elsewhere.position < 8:
            Elsewhere.position += 1
            self.step(Elsewhere.position)
            self.sleep(0.001)


class Skipping(Numbers):
    """Begins one record too late after a restart."""

    def run(self) -> None:
        number = self.state.get("number", -1) + 1
        while self.running and number < 8:
            self.produce(self.serialize(value=number).value)
            self.state.set("number", number + 1)
            self.flush()
            number += 1
            self.sleep(0.001)


class Swallowing(Numbers):
    def flush(self, timeout: float | None = None) -> None:
        self.producer.flush(timeout)
        self._configured_store.commit(1)


class Unflushed(Numbers):
    def step(self, number: int) -> None:
        self.produce(self.serialize(value=number).value)

    def cleanup(self, failed: bool) -> None:
        """Forgets to flush."""


class Astray(Numbers):
    def produce(self, *args: Any, **kwargs: Any) -> None:
        self.producer.produce("another-topic", *args, **kwargs)


def source_suite(double: type[Numbers], within_s: float = 2.0) -> type:
    class Suite(StatefulSourceConformance):
        patience = within_s

        def make(self) -> Any:
            Elsewhere.position = 0
            return double("numbers", shutdown_timeout=within_s)

    return Suite


def test_c12_the_suite_of_sources_passes_a_right_one(monkeypatch: pytest.MonkeyPatch) -> None:
    # Where a machine is busy, it may get no time for a while.
    monkeypatch.setattr(sources, "_QUIET_S", 60.0)
    assert failed(source_suite(Numbers, 60.0)) == []


@pytest.mark.parametrize(
    "double",
    [
        StateFirst,
        StateAhead,
        CommitFirst,
        CommitOnly,
        Forgetful,
        Elsewhere,
        Skipping,
        Swallowing,
        Unflushed,
        Astray,
    ],
)
def test_c12_the_suite_of_sources_finds(double: type[Numbers]) -> None:
    assert failed(source_suite(double))


# -- Sinks -----------------------------------------------------------------------------------------------------------


class Destination:
    rows: ClassVar[list[Written]] = []
    positions: ClassVar[dict[Any, SinkPosition]] = {}


class Good(BatchingSink):
    def write(self, batch: SinkBatch) -> None:
        self.store(list(batch), batch)

    def store(self, items: Sequence[Any], batch: SinkBatch) -> None:
        Destination.rows += [
            Written(item.value, item.key, item.timestamp, batch.topic, batch.partition, item.offset) for item in items
        ]


class SwallowsAll(Good):
    def write(self, batch: SinkBatch) -> None:
        with contextlib.suppress(Exception):
            super().write(batch)


class SwallowsSome(Good):
    def write(self, batch: SinkBatch) -> None:
        with contextlib.suppress(OSError):
            super().write(batch)


class SwallowsInFlush(Good):
    def flush(self) -> None:
        try:
            super().flush()
        except Exception:
            self.on_paused()


class SwallowsBackpressure(Good):
    def flush(self) -> None:
        try:
            super().flush()
        except SinkBackpressureError:
            self.on_paused()


class WritesAtOnce(Good):
    def add(self, *args: Any) -> None:
        super().add(*args)
        self.flush()


class WritesInClose(Good):
    def close(self) -> None:
        self.flush()


class KeepsWhenPaused(Good):
    def on_paused(self) -> None:
        """Keeps what was added."""


class Reverses(Good):
    def store(self, items: Sequence[Any], batch: SinkBatch) -> None:
        super().store(items[::-1], batch)


class LosesTheLastOfMany(Good):
    def store(self, items: Sequence[Any], batch: SinkBatch) -> None:
        super().store(items[: 1_000 * (len(items) // 1_000)] or items, batch)


class ByOffset(Good):
    """Takes values of one offset for one value."""

    def store(self, items: Sequence[Any], batch: SinkBatch) -> None:
        super().store(list({item.offset: item for item in items}.values()), batch)


class LosesNone(Good):
    def store(self, items: Sequence[Any], batch: SinkBatch) -> None:
        super().store([item for item in items if item.value], batch)


def sink_suite(double: type[BatchingSink]) -> type:
    class Suite(BatchingSinkConformance):
        many = 2_500

        def make(self) -> Any:
            return double()

        def written(self) -> list[Written]:
            return copy.deepcopy(Destination.rows)

    return Suite


@pytest.fixture(autouse=True)
def fresh() -> None:
    Destination.rows.clear()
    Destination.positions.clear()


def test_c12_the_suite_of_sinks_passes_a_right_one() -> None:
    assert failed(sink_suite(Good)) == []


@pytest.mark.parametrize(
    "double",
    [
        SwallowsAll,
        SwallowsSome,
        SwallowsInFlush,
        SwallowsBackpressure,
        WritesAtOnce,
        WritesInClose,
        KeepsWhenPaused,
        Reverses,
        LosesTheLastOfMany,
        ByOffset,
        LosesNone,
    ],
)
def test_c12_the_suite_of_sinks_finds(double: type[BatchingSink]) -> None:
    assert failed(sink_suite(double))


def test_c12_a_destination_that_can_be_broken_is_broken() -> None:
    class Loose(Good):
        broken = False

        def write(self, batch: SinkBatch) -> None:
            items = list(batch)
            if not self.broken:
                self.store(items, batch)

    class Suite(sink_suite(Loose)):  # type: ignore[misc]
        def break_destination(self, sink: Any) -> Any:
            sink.broken = True

    assert failed(Suite) == ["test_a_destination_that_fails_is_not_passed_over"]


def _key(group: str, partition: tuple[str, int]) -> tuple[str, str, int]:
    return group, *partition


class GoodTransactions(TransactionalSink):
    @property
    def destination(self) -> str:
        return "memory"

    def positions(self, group: str, partitions: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], SinkPosition]:
        found = {partition: Destination.positions.get(_key(group, partition)) for partition in partitions}
        return {partition: position for partition, position in found.items() if position is not None}

    def write_transaction(self, batches: Sequence[SinkBatch], commit: SinkCommit) -> None:
        for partition, change in commit.positions.items():
            self.compare(commit.group, partition, change)
        self.store(batches)
        self.move(commit)

    def compare(self, group: str, partition: tuple[str, int], change: PositionChange) -> None:
        stored = Destination.positions.get(_key(group, partition))
        if (stored and stored.version) != (change.before and change.before.version):
            raise SinkFencedError("another position")

    def store(self, batches: Sequence[SinkBatch]) -> None:
        rows = [
            Written(item.value, item.key, item.timestamp, batch.topic, batch.partition, item.offset)
            for batch in batches
            for item in batch
        ]
        Destination.rows += rows

    def move(self, commit: SinkCommit) -> None:
        for partition, change in commit.positions.items():
            Destination.positions[_key(commit.group, partition)] = change.after


class NotFenced(GoodTransactions):
    def compare(self, group: str, partition: tuple[str, int], change: PositionChange) -> None:
        """Compares nothing."""


class ComparesAfterwards(GoodTransactions):
    def write_transaction(self, batches: Sequence[SinkBatch], commit: SinkCommit) -> None:
        self.store(batches)
        for partition, change in commit.positions.items():
            self.compare(commit.group, partition, change)
        self.move(commit)


class MovesFirst(GoodTransactions):
    def write_transaction(self, batches: Sequence[SinkBatch], commit: SinkCommit) -> None:
        for partition, change in commit.positions.items():
            self.compare(commit.group, partition, change)
        self.move(commit)
        self.store(batches)


class WritesOneByOne(GoodTransactions):
    def store(self, batches: Sequence[SinkBatch]) -> None:
        for batch in batches:
            for item in batch:
                Destination.rows.append(
                    Written(item.value, item.key, item.timestamp, batch.topic, batch.partition, item.offset)
                )


class OnePositionOnly(GoodTransactions):
    def move(self, commit: SinkCommit) -> None:
        partition, change = next(iter(commit.positions.items()), (None, None))
        if partition is not None and change is not None:
            Destination.positions[_key(commit.group, partition)] = change.after


class SharesGroups(GoodTransactions):
    def positions(self, group: str, partitions: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], SinkPosition]:
        return super().positions("", partitions)

    def write_transaction(self, batches: Sequence[SinkBatch], commit: SinkCommit) -> None:
        super().write_transaction(batches, SinkCommit("", commit.positions))


class LosesReplay(GoodTransactions):
    def move(self, commit: SinkCommit) -> None:
        for partition, change in commit.positions.items():
            Destination.positions[_key(commit.group, partition)] = change.after._replace(replay="")


class SwallowsTransactions(GoodTransactions):
    def write_transaction(self, batches: Sequence[SinkBatch], commit: SinkCommit) -> None:
        try:
            super().write_transaction(batches, commit)
        except SinkFencedError:
            raise
        except Exception:
            pass


def transactional_suite(double: type[TransactionalSink]) -> type:
    class Suite(TransactionalSinkConformance):
        many = 2_500

        def make(self) -> Any:
            return double()

        def written(self) -> list[Written]:
            return copy.deepcopy(Destination.rows)

    return Suite


def _transactional(double: type[TransactionalSink]) -> list[str]:
    """Run each test with an empty destination."""
    suite = transactional_suite(double)
    for name in [name for name in dir(suite) if name.startswith("test_")]:
        one = type("One", (suite,), {})
        arguments: list[dict[str, Any]] = _combined(
            [mark.args for mark in getattr(getattr(suite, name), "pytestmark", ()) if mark.name == "parametrize"]
        )
        for given in arguments:
            Destination.rows.clear()
            Destination.positions.clear()
            try:
                getattr(one(), name)(**given)
            except pytest.skip.Exception:
                continue
            except (Exception, pytest.fail.Exception):
                return [name]
    return []


def test_c12_the_suite_of_transactional_sinks_passes_a_right_one() -> None:
    assert _transactional(GoodTransactions) == []


@pytest.mark.parametrize(
    "double",
    [
        NotFenced,
        ComparesAfterwards,
        MovesFirst,
        WritesOneByOne,
        OnePositionOnly,
        SharesGroups,
        LosesReplay,
        SwallowsTransactions,
    ],
)
def test_c12_the_suite_of_transactional_sinks_finds(double: type[TransactionalSink]) -> None:
    assert _transactional(double)


# -- Stores ----------------------------------------------------------------------------------------------------------

Write = Callable[[StorePartition, Iterable[Any], Stamp], None]


def _without_stamp(partition: Any, changes: Iterable[Any], stamp: Stamp) -> None:
    changed = list(changes)
    MemoryStorePartition.write(partition, changed, stamp if changed else partition.stamp)


def _without_deletions(partition: Any, changes: Iterable[Any], stamp: Stamp) -> None:
    MemoryStorePartition.write(partition, [change for change in changes if change[1] is not None], stamp)


def _one_by_one(partition: Any, changes: Iterable[Any], stamp: Stamp) -> None:
    for change in changes:
        MemoryStorePartition.write(partition, [change], stamp)
    MemoryStorePartition.write(partition, [], stamp)


def _first_counts(partition: Any, changes: Iterable[Any], stamp: Stamp) -> None:
    MemoryStorePartition.write(partition, list(dict(list(changes)[::-1]).items()), stamp)


def _without_empty_values(partition: Any, changes: Iterable[Any], stamp: Stamp) -> None:
    MemoryStorePartition.write(partition, [(key, value or None) for key, value in changes], stamp)


def _inclusive(partition: Any, start: bytes, end: bytes | None, *, reverse: bool = False) -> Iterator[Any]:
    return MemoryStorePartition.scan(partition, start, None if end is None else end + b"\0", reverse=reverse)


def _forward(partition: Any, start: bytes, end: bytes | None, *, reverse: bool = False) -> Iterator[Any]:
    return MemoryStorePartition.scan(partition, start, end)


class Doubled(MemoryStore):
    changed: ClassVar[dict[str, Any]] = {}

    def open(self, partition: int) -> Any:
        opened: Any = super().open(partition)
        opened.__class__ = type("Broken", (MemoryStorePartition,), dict(self.changed))
        return opened


class OnePartition(MemoryStore):
    def open(self, partition: int) -> Any:
        self._partitions.setdefault(partition, self._partitions.setdefault(0, self._data()))
        self._partitions[partition].open = False
        return super().open(partition)

    def _data(self) -> Any:
        super().open(0).close()
        return self._partitions[0]


class NeverDestroyed(MemoryStore):
    def destroy(self, partition: int) -> None:
        """Keeps everything."""


def store_suite(kind: type[Store]) -> type:
    class Suite(StoreConformance):
        def make(self, name: str, topic: str, base_dir: Path) -> Store:
            return kind(name, topic, base_dir)

    return Suite


def test_c12_the_suite_of_stores_passes_a_right_one() -> None:
    assert failed(store_suite(MemoryStore)) == []


@pytest.mark.parametrize(
    "changed",
    [
        {"write": _without_stamp},
        {"write": _without_deletions},
        {"write": _one_by_one},
        {"write": _first_counts},
        {"write": _without_empty_values},
        {"scan": _inclusive},
        {"scan": _forward},
        {"get_many": lambda self, keys: [self.get(key) for key in sorted(set(keys))]},
        {"_check_open": lambda self: None},
    ],
    ids=lambda changed: str(next(iter(changed.values())).__name__),
)
def test_c12_the_suite_of_stores_finds(changed: dict[str, Any]) -> None:
    assert failed(store_suite(type("Double", (Doubled,), {"changed": changed})))


@pytest.mark.parametrize("kind", [OnePartition, NeverDestroyed])
def test_c12_the_suite_of_stores_finds_stores_that_mix_data(kind: type[Store]) -> None:
    assert failed(store_suite(kind))


def source_suite_of_base(double: type[Source], within_s: float = 2.0) -> type:
    class Suite(SourceConformance):
        patience = within_s

        def make(self) -> Any:
            return double("numbers", shutdown_timeout=within_s)

    return Suite


class Endless(Source):
    def run(self) -> None:
        while self.running:
            self.produce(self.serialize(value=1).value)
            self.sleep(0.01)


class CleansNever(Endless):
    def _clean_up_after_failure(self) -> None:
        """Leaves connections open."""


class IgnoresEarlyStop(Endless):
    def configure(self, *args: Any, **kwargs: Any) -> None:
        super().configure(*args, **kwargs)
        self._began = False

    def stop(self) -> None:
        if self._began:
            super().stop()

    def run(self) -> None:
        self._began = True
        for _ in range(50):
            self.produce(self.serialize(value=1).value)
            if not self.sleep(0.01):
                return


def test_c12_the_suite_of_plain_sources_finds_what_it_is_for() -> None:
    assert failed(source_suite_of_base(Endless, 60.0)) == []
    for double in (CleansNever, IgnoresEarlyStop):
        assert failed(source_suite_of_base(double)), double
