"""Conformance suites for sinks and sources, StreamRT's and yours, and test doubles for sources.

Subclass a suite in a test module, give the subclass a name that begins with `Test`, and define what it tests. pytest
collects the inherited tests.

Example:
    ```python
    class TestTableSink(BatchingSinkConformance):
        @pytest.fixture(autouse=True)
        def table(self, tmp_path):
            self.path = tmp_path / "table.sqlite"

        def make(self) -> BatchingSink:
            return TableSink(self.path)

        def written(self) -> list[Written]:
            return [Written(*row) for row in sqlite3.connect(self.path).execute("SELECT ... ORDER BY rowid")]
    ```
"""
# ruff: noqa: S101 - asserting is what a test suite does

import contextlib
import copy
import pickle
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

import cloudpickle
import pytest

from streamrt.connectors import BaseSource, BatchingSink, SinkBackpressureError, SinkBatch, Source, StatefulSource
from streamrt.errors import InvalidOperationError
from streamrt.records import Headers, HeadersMapping, HeaderValue
from streamrt.state import MemoryStore, Stamp, State, StoreIdentity
from streamrt.state.transaction import StoreTransaction
from streamrt.topics import Topic

__all__ = [
    "BaseSourceConformance",
    "BatchingSinkConformance",
    "MemorySourceStore",
    "RecordingProducer",
    "SourceConformance",
    "SourceRecord",
    "StatefulSourceConformance",
    "Written",
]

T = TypeVar("T")

_TOPIC = "conformance"


class Written(NamedTuple):
    """A value at the destination of a sink. Fields that the external system does not store are None.

    Attributes:
        value: the value.
        key: the key, in its written form.
        timestamp: milliseconds since the Unix epoch.
        topic: topic of the input record.
        partition: partition of the input record.
        offset: offset of the input record.
    """

    value: Any
    key: Any = None
    timestamp: int | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None


class BatchingSinkConformance:
    """The contract of every `BatchingSink`, driver sinks included.

    Attributes:
        values: values that the sink can write, at least three, all different.
        keys: keys that it can write.
        many: number of items of a large batch.
    """

    values: ClassVar[Sequence[Any]] = ({"n": 1}, {"n": 2, "text": "größer 🚆"}, {"n": 3, "list": [1, None, "\n"]}, {})
    keys: ClassVar[Sequence[Any]] = (b"key", None, b"", "schlüssel", "two\r\nlines", b"\xff\x00")
    many: ClassVar[int] = 10_000

    def make(self) -> BatchingSink:
        """Return a sink that is not started and writes to the destination of `written`."""
        raise NotImplementedError

    def written(self) -> list[Written]:
        """Return the values at the destination, in the order in which they were written."""
        raise NotImplementedError

    def started(self) -> BatchingSink:
        """Return a sink in the state of a task: unpickled and started."""
        sink: BatchingSink = pickle.loads(cloudpickle.dumps(self.make()))
        sink.start()
        return sink

    def test_it_can_be_pickled_before_it_is_started(self) -> None:
        """A sink is sent to the processes that run tasks, and connects there."""
        sink = self.make()
        again = pickle.loads(cloudpickle.dumps(sink))
        assert type(again).__name__ == type(sink).__name__
        # Spark may run several tasks in one process, each from the same bytes.
        copy.deepcopy(pickle.loads(cloudpickle.dumps(again))).start()

    def test_start_connects_once_and_tells_the_callback(self) -> None:
        """`start` calls `setup`, then `on_client_connect_success`."""
        sink = self.make()
        calls = _spy_on(sink, "setup", lambda: "setup")
        sink._on_client_connect_success = lambda: calls.append("success")
        sink.start()
        assert calls == ["setup", "success"]

    def test_a_failed_setup_is_told_to_the_callback(self) -> None:
        """Without a callback the error propagates; a callback that returns has handled it."""
        sink = self.make()
        problem = ConnectionError("nobody is there")
        heard: list[Exception] = []

        def fail() -> None:
            raise problem

        sink.setup = fail  # type: ignore[method-assign]
        sink._on_client_connect_failure = None
        with pytest.raises(ConnectionError, match="nobody is there"):
            sink.start()
        sink._on_client_connect_failure = heard.append
        sink.start()
        assert heard == [problem]

    def test_nothing_is_written_before_flush(self) -> None:
        """Added values belong to a commit that may be abandoned."""
        sink, before = self.started(), self.written()
        self._add(sink, 0, 3)
        assert self.written() == before

    def test_flush_writes_what_was_added_in_order(self) -> None:
        """Each value once, in the order of arrival."""
        sink, before = self.started(), self.written()
        self._add(sink, 0, 3)
        sink.flush()
        self._same(self.written()[len(before) :], [(0, offset) for offset in range(3)])

    def test_flush_empties(self) -> None:
        """A second flush has nothing to write; later values form another batch."""
        sink = self.started()
        self._add(sink, 0, 2)
        sink.flush()
        once = self.written()
        sink.flush()
        assert self.written() == once
        self._add(sink, 2, 3)
        sink.flush()
        self._same(self.written()[len(once) :], [(0, 2)])

    def test_a_flush_without_values_is_fine(self) -> None:
        """Commits also happen when nothing reaches the sink."""
        sink, before = self.started(), self.written()
        sink.flush()
        assert self.written() == before

    def test_partitions_are_batches_of_their_own(self) -> None:
        """Each batch comes from one partition and has its offsets."""
        sink = self.started()
        batches = _spy_on(sink, "write", lambda batch: batch)
        for offset in (7, 8, 9):
            for partition in (1, 0):
                self._add(sink, offset, offset + 1, partition)
        sink.flush()
        seen = {(batch.topic, batch.partition): (batch.first_offset, batch.last_offset) for batch in batches}
        assert seen == {(_TOPIC, 1): (7, 9), (_TOPIC, 0): (7, 9)}
        assert len(batches) == 2
        for batch in batches:
            assert batch.start_offset == batch.first_offset
            assert [item.offset for item in batch] == [7, 8, 9]

    def test_several_values_may_have_one_offset(self) -> None:
        """An operator may make several values from one record."""
        sink, before = self.started(), self.written()
        for _ in range(3):
            self._add(sink, 5, 6)
        sink.flush()
        self._same(self.written()[len(before) :], [(0, 5)] * 3)

    def test_on_paused_drops_what_was_added(self) -> None:
        """The same records come again."""
        sink, before = self.started(), self.written()
        self._add(sink, 0, 3)
        sink.on_paused()
        sink.flush()
        assert self.written() == before
        self._add(sink, 0, 3)
        sink.flush()
        self._same(self.written()[len(before) :], [(0, offset) for offset in range(3)])

    def test_on_paused_is_allowed_at_any_time(self) -> None:
        """Another sink may fail before this one got anything."""
        sink = self.started()
        sink.on_paused()
        sink.on_paused()
        sink.flush()

    def test_a_failed_flush_can_be_repeated(self) -> None:
        """After `on_paused`, the same records are added again and written once more."""
        sink, before = self.started(), self.written()
        self._add(sink, 0, 2)
        with _failing_write(sink, OSError("the disk is full")), pytest.raises(OSError, match="the disk is full"):
            sink.flush()
        sink.on_paused()
        self._add(sink, 0, 3)
        sink.flush()
        self._same(self.written()[len(before) :], [(0, offset) for offset in range(3)])

    def test_backpressure_passes_through(self) -> None:
        """The runtime pauses the partition for as long as the sink asks."""
        sink, before = self.started(), self.written()
        self._add(sink, 0, 2)
        with _failing_write(sink, SinkBackpressureError(2.5)), pytest.raises(SinkBackpressureError) as caught:
            sink.flush()
        assert caught.value.retry_after == 2.5
        sink.on_paused()
        self._add(sink, 0, 2)
        sink.flush()
        self._same(self.written()[len(before) :], [(0, offset) for offset in range(2)])

    def test_all_kinds_of_keys_and_values(self) -> None:
        """Keys may be missing, empty, text or bytes; values may be as large and as unusual as the suite defines."""
        sink, before = self.started(), self.written()
        pairs = [(value, key) for key in self.keys for value in self.values]
        for offset, (value, key) in enumerate(pairs):
            sink.add(value, key, 1_000 + offset, [("name", b"\xff"), ("name", None)], _TOPIC, 0, offset)
        sink.flush()
        found = self.written()[len(before) :]
        assert [item.value for item in found] == [value for value, _ in pairs]
        for offset, item in enumerate(found):
            assert item.timestamp in (None, 1_000 + offset)

    def test_a_large_batch(self) -> None:
        """Sinks write in chunks, and lose nothing between them."""
        sink, before = self.started(), self.written()
        self._add(sink, 0, self.many)
        sink.flush()
        self._same(self.written()[len(before) :], [(0, offset) for offset in range(self.many)])

    def test_two_sinks_may_write_to_one_destination(self) -> None:
        """Several processes run tasks."""
        one, other, before = self.started(), self.started(), self.written()
        self._add(one, 0, 1, 0)
        self._add(other, 0, 1, 1)
        one.flush()
        other.flush()
        self._add(one, 1, 2, 0)
        one.flush()
        self._same(self.written()[len(before) :], [(0, 0), (1, 0), (0, 1)])

    def _value(self, offset: int) -> Any:
        return self.values[offset % len(self.values)]

    def _add(self, sink: BatchingSink, start: int, end: int, partition: int = 0) -> None:
        for offset in range(start, end):
            sink.add(copy.deepcopy(self._value(offset)), b"key", 1_000 + offset, None, _TOPIC, partition, offset)

    def _same(self, found: Sequence[Written], origins: Sequence[tuple[int, int]]) -> None:
        assert [item.value for item in found] == [self._value(offset) for _, offset in origins]
        for item, (partition, offset) in zip(found, origins, strict=True):
            assert item.topic in (None, _TOPIC)
            assert item.partition in (None, partition)
            assert item.offset in (None, offset)
            assert item.timestamp in (None, 1_000 + offset)


class SourceRecord(NamedTuple):
    """A record that a source has produced.

    Attributes:
        topic: name of the topic.
        value: the value's bytes, or None.
        key: the key's bytes, or None.
        headers: the headers, or None.
        partition: the partition, or None if the key decides.
        timestamp: milliseconds since the Unix epoch, or None for the time of producing.
    """

    topic: str
    value: bytes | None
    key: bytes | None
    headers: Headers | None
    partition: int | None
    timestamp: int | None


class RecordingProducer:
    """Test double of a producer: records the output of a source, and how much of it was flushed.

    Attributes:
        records: the produced records, in order.
        flushed: number of records at the last flush.
        undelivered: number of undelivered records that `flush` returns; set it to test how a source reacts.

    Example:
        >>> producer = RecordingProducer()
        >>> producer.produce("orders", b"1", "key")
        >>> producer.records[0].key, producer.flushed
        (b'key', 0)
        >>> producer.flush()
        0
    """

    def __init__(self) -> None:
        self.records: list[SourceRecord] = []
        self.flushed = 0
        self.undelivered = 0

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        headers: Sequence[tuple[str, HeaderValue]] | HeadersMapping | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        poll_timeout: float = 30.0,
        buffer_error_max_tries: int = 10,
    ) -> None:
        """Store one record; the arguments are those of `Source.produce`, and there is always space."""
        pairs: Any = headers.items() if isinstance(headers, dict) else headers
        data, raw_key = (item.encode() if isinstance(item, str) else item for item in (value, key))
        kept = None if pairs is None else list(pairs)
        self.records.append(SourceRecord(topic, data, raw_key, kept, partition, timestamp))

    def flush(self, timeout: float | None = None) -> int:
        """Note the number of records; return `undelivered`.

        Args:
            timeout: ignored.
        """
        self.flushed = len(self.records)
        return self.undelivered


class MemorySourceStore:
    """Test double of a stateful source's store: real state without a changelog. It counts commits.

    Attributes:
        commits: number of calls of `commit`.

    Example:
        >>> store = MemorySourceStore()
        >>> store.state().set("position", 5)
        >>> store.commit()
        >>> store.state().get("position"), store.commits
        (5, 1)
    """

    def __init__(self) -> None:
        self.commits = 0
        self._identity = StoreIdentity("test", _TOPIC, 0, "source", None, None, 1)
        self._partition = MemoryStore("source", _TOPIC, Path()).open(0)
        self._transaction: StoreTransaction | None = None

    def state(self) -> State:
        """Return the state, including changes since the last commit."""
        if self._transaction is None:
            self._transaction = StoreTransaction(self._partition)
        return self._transaction.state(None, time.time_ns() // 1_000_000)

    def commit(self, timeout: float | None = None) -> None:
        """Keep the changes.

        Args:
            timeout: ignored.
        """
        self.commits += 1
        if self._transaction is not None:
            self._transaction.prepare()
            self._transaction.flush(Stamp(self._identity, None, None, None, 0))
            self._transaction = None


class BaseSourceConformance:
    """The contract of every source, for those that derive from `BaseSource` directly.

    Attributes:
        patience: time limit in seconds for what a source has to do.
    """

    patience: ClassVar[float] = 10.0

    def make(self) -> BaseSource:
        """Return a source that is not configured and has something to produce."""
        raise NotImplementedError

    def arrived(self) -> BaseSource:
        """Return a source in the state of its process: unpickled."""
        source: BaseSource = pickle.loads(cloudpickle.dumps(self.make()))
        return source

    def configured(
        self, producer: RecordingProducer | None = None, store: MemorySourceStore | None = None
    ) -> BaseSource:
        """Return a source that is ready to start.

        Args:
            producer: its producer.
            store: the store of a stateful source.
        """
        source = self.arrived()
        topic = Topic(_TOPIC, value_serializer="json", key_serializer="str")
        if isinstance(source, StatefulSource):
            source.configure(topic, producer or RecordingProducer(), store_partition=store or MemorySourceStore())
        else:
            source.configure(topic, producer or RecordingProducer())
        return source

    def test_it_can_be_pickled_before_it_is_configured(self) -> None:
        """A source is sent to its process, and connects there."""
        assert type(self.arrived()).__name__ == type(self.make()).__name__

    def test_it_has_a_default_topic(self) -> None:
        """The application uses it if it gives no topic."""
        topic = self.make().default_topic()
        assert isinstance(topic, Topic)
        assert topic.name == self.make().default_topic().name

    def test_it_has_no_topic_and_no_producer_before_configure(self) -> None:
        """The error message explains it."""
        source = self.make()
        for ask in (lambda: source.producer, lambda: source.producer_topic):
            with pytest.raises(InvalidOperationError):
                ask()

    def test_it_produces_to_its_topic(self) -> None:
        """Records arrive, all of them in the given topic."""
        producer = RecordingProducer()
        with self._running(self.configured(producer)):
            self._until(lambda: producer.records, "produced nothing")
        assert {record.topic for record in producer.records} == {_TOPIC}

    def test_stop_ends_start_in_time(self) -> None:
        """Otherwise the process is killed."""
        producer = RecordingProducer()
        source = self.configured(producer)
        with self._running(source):
            self._until(lambda: producer.records, "produced nothing")
            begun = time.monotonic()
        assert time.monotonic() - begun <= getattr(source, "shutdown_timeout", 10)

    def test_stop_may_come_twice_and_after_the_end(self) -> None:
        """Both the application and the system may stop it."""
        source = self.configured()
        with self._running(source):
            source.stop()
        source.stop()

    def test_what_was_produced_is_flushed_in_the_end(self) -> None:
        """Records that were produced before the stop are not lost."""
        producer = RecordingProducer()
        with self._running(self.configured(producer)):
            self._until(lambda: producer.records, "produced nothing")
        assert producer.flushed == len(producer.records)

    def _running(self, source: BaseSource) -> "_Running":
        return _Running(source, self.patience)

    def _until(self, condition: Callable[[], Any], problem: str) -> None:
        deadline = time.monotonic() + self.patience
        while not condition():
            assert time.monotonic() < deadline, f"the source {problem} within {self.patience:g} s"
            time.sleep(0.005)


class SourceConformance(BaseSourceConformance):
    """The contract of every `Source`."""

    def make(self) -> Source:
        """Return a source that is not configured and has something to produce."""
        raise NotImplementedError

    def configured(self, producer: RecordingProducer | None = None, store: MemorySourceStore | None = None) -> Source:
        """Return a source that is ready to start.

        Args:
            producer: its producer.
            store: the store of a stateful source.
        """
        source = super().configured(producer, store)
        assert isinstance(source, Source)
        return source

    def test_cleanup_is_called_once(self) -> None:
        """After `run` has ended, and with `failed` False."""
        source = self.configured()
        calls = _spy_on(source, "cleanup", lambda failed: failed)
        with self._running(source):
            pass
        assert calls == [False]

    def test_cleanup_is_called_after_a_failure(self) -> None:
        """A failed source also has connections to close; `start` raises the failure."""
        source = self.configured()
        calls = _spy_on(source, "cleanup", lambda failed: failed)

        def fail() -> None:
            raise RuntimeError("the system outside is gone")

        source.run = fail  # type: ignore[method-assign]
        with pytest.raises(RuntimeError, match="the system outside is gone"):
            source.start()
        assert calls == [True]

    def test_a_stop_before_the_start_counts(self) -> None:
        """An application may be stopped while its sources start."""
        producer = RecordingProducer()
        source = self.configured(producer)
        source.stop()
        source.start()
        assert producer.records == []

    def test_flush_tells_what_was_not_delivered(self) -> None:
        """A source must learn of undelivered records."""
        producer = RecordingProducer()
        source = self.configured(producer)
        producer.undelivered = 3
        with pytest.raises(Exception, match="3 records"):
            source.flush()


class StatefulSourceConformance(SourceConformance):
    """The contract of every `StatefulSource`."""

    def make(self) -> StatefulSource:
        """Return a source that is not configured and has something to produce."""
        raise NotImplementedError

    def test_state_is_committed_after_its_records(self) -> None:
        """Otherwise a crash in between would lose them."""
        producer, store = RecordingProducer(), MemorySourceStore()
        source = self.configured(producer, store)
        flushed = _spy_on(store, "commit", lambda timeout=None: producer.flushed == len(producer.records))
        with self._running(source):
            self._until(lambda: producer.records, "produced nothing")
        assert flushed
        assert all(flushed)


class _Running:
    """Runs a source in a thread; at the end stops it and raises its error."""

    def __init__(self, source: BaseSource, patience: float) -> None:
        self._source = source
        self._patience = patience
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self._source.start()
        except BaseException as error:  # noqa: BLE001 - it is raised in the test's thread
            self._error = error

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *exc: object) -> None:
        self._source.stop()
        self._thread.join(self._patience)
        assert not self._thread.is_alive(), f"stop() did not end the source within {self._patience:g} s"
        if self._error is not None:
            raise self._error


@contextlib.contextmanager
def _failing_write(sink: BatchingSink, error: Exception) -> Iterator[None]:
    def fail(batch: SinkBatch) -> None:
        raise error

    sink.write = fail  # type: ignore[method-assign]
    try:
        yield
    finally:
        del sink.write


def _spy_on(item: Any, name: str, note: Callable[..., T]) -> list[T]:
    """Call a function before each call of a method; return the results."""
    notes: list[T] = []
    method = getattr(item, name)

    def spy(*args: Any, **options: Any) -> Any:
        notes.append(note(*args, **options))
        return method(*args, **options)

    setattr(item, name, spy)
    return notes
