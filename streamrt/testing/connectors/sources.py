"""The conformance suites of sources, and test doubles for them."""
# ruff: noqa: S101 - asserting is what a test suite does

import pickle
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import cloudpickle
import pytest

from streamrt.connectors import BaseSource, Source, StatefulSource
from streamrt.errors import InvalidOperationError
from streamrt.records import Headers, HeadersMapping, HeaderValue
from streamrt.state import MemoryStore, Stamp, State, StoreIdentity
from streamrt.state.transactions.keyed import StoreTransaction
from streamrt.testing.connectors.spies import spy_on
from streamrt.topics import Topic

__all__ = [
    "BaseSourceConformance",
    "MemorySourceStore",
    "RecordingProducer",
    "RunningSource",
    "SourceConformance",
    "SourceRecord",
    "StatefulSourceConformance",
]

_TOPIC = "conformance"
_QUIET_S = 0.5
"""Without a record for so long, a source has nothing more to produce for now."""


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
        with self._run_source(self.configured(producer)):
            self._wait_until(lambda: producer.records, "produced nothing")
        assert {record.topic for record in producer.records} == {_TOPIC}

    def test_stop_ends_start_in_time(self) -> None:
        """Otherwise the process is killed."""
        producer = RecordingProducer()
        source = self.configured(producer)
        with self._run_source(source):
            self._wait_until(lambda: producer.records, "produced nothing")
            begun = time.monotonic()
        assert time.monotonic() - begun <= getattr(source, "shutdown_timeout", 10)

    def test_stop_may_come_twice_and_after_the_end(self) -> None:
        """Both the application and the system may stop it."""
        source = self.configured()
        with self._run_source(source):
            source.stop()
        source.stop()

    def test_what_was_produced_is_flushed_in_the_end(self) -> None:
        """Records that were produced before the stop are not lost."""
        producer = RecordingProducer()
        with self._run_source(self.configured(producer)):
            self._wait_until(lambda: producer.records, "produced nothing")
        assert producer.flushed == len(producer.records)

    def _run_source(self, source: BaseSource) -> "RunningSource":
        return RunningSource(source, self.patience)

    def _wait_until(self, condition: Callable[[], Any], problem: str) -> None:
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
        calls = spy_on(source, "cleanup", lambda failed: failed)
        with self._run_source(source):
            pass
        assert calls == [False]

    def test_cleanup_is_called_after_a_failure(self) -> None:
        """A failed source also has connections to close; `start` raises the failure."""
        source = self.configured()
        calls = spy_on(source, "cleanup", lambda failed: failed)

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
    """The contract of every `StatefulSource`.

    The suite lets the process of a source die at its commits, and starts another one with the state that is left: what it
    produces, together with what was delivered before, must be all that a source produces that does not die.

    Attributes:
        repeatable: whether two sources of `make` produce the same records, so that a missing one is noticed.
        remembers: whether a source that was stopped goes on where it was. Sources that cannot know where they were may begin
            again.
    """

    repeatable: ClassVar[bool] = True
    remembers: ClassVar[bool] = True

    def make(self) -> StatefulSource:
        """Return a source that is not configured and has something to produce."""
        raise NotImplementedError

    def identity(self, record: SourceRecord) -> Any:
        """Return what makes a record the same as that of another run; by default its key and its value.

        Args:
            record: the record.
        """
        return record.key, record.value

    def test_state_is_committed_after_its_records(self) -> None:
        """Otherwise a crash in between would lose them."""
        producer, store = RecordingProducer(), MemorySourceStore()
        source = self.configured(producer, store)
        flushed = spy_on(store, "commit", lambda timeout=None: producer.flushed == len(producer.records))
        with self._run_source(source):
            self._wait_until(lambda: producer.records, "produced nothing")
        assert flushed
        assert all(flushed)

    @pytest.mark.parametrize("number", [1, 2, 3])
    @pytest.mark.parametrize("stored", [True, False], ids=["after", "before"])
    def test_a_crash_at_a_commit_loses_no_record(self, number: int, stored: bool) -> None:
        """The state covers records that were delivered before it was stored, and no others."""
        if not self.repeatable:
            pytest.skip("the source does not produce the same records again")
        expected = [self.identity(record) for record in self._some_records(RecordingProducer(), MemorySourceStore())]
        producer, store = RecordingProducer(), _DyingStore(number, stored=stored)
        store.died = lambda: delivered.extend(producer.records[: producer.flushed])
        delivered: list[SourceRecord] = []
        try:
            self._some_records(producer, store, len(expected), lambda: bool(delivered) or store.is_dead)
        except _DeathError:
            pass
        else:
            delivered.extend(producer.records[: producer.flushed])
        again = RecordingProducer()

        def missing() -> list[Any]:
            found = [self.identity(record) for record in (*delivered, *list(again.records))]
            return [wanted for wanted in expected if found.count(wanted) < expected.count(wanted)]

        self._some_records(again, store.survivor(), 1_000_000, lambda: not missing())
        assert not missing(), "records are in no topic, and the state says that they are"

    def test_a_restart_goes_on(self) -> None:
        """Committed records are not produced again."""
        if not (self.repeatable and self.remembers):
            pytest.skip("the source cannot know where it was")
        producer, store = RecordingProducer(), MemorySourceStore()
        first = [self.identity(record) for record in self._some_records(producer, store)]
        begun = time.monotonic()
        records = self._some_records(RecordingProducer(), store, enough=lambda: time.monotonic() - begun > 2 * _QUIET_S)
        again = [self.identity(record) for record in records]
        assert again[:1] != first[:1], "it has begun again"

    def _some_records(
        self,
        producer: RecordingProducer,
        store: MemorySourceStore,
        count: int = 5,
        enough: Callable[[], bool] = lambda: False,
    ) -> list[SourceRecord]:
        """Run a source until it has produced some records, ends, or has nothing more to say; return all of its records."""
        running = self._run_source(self.configured(producer, store))
        with running:
            deadline, seen, since = time.monotonic() + self.patience, 0, time.monotonic()
            while running.is_alive and len(producer.records) < count and not enough():
                now = time.monotonic()
                if len(producer.records) != seen:
                    seen, since = len(producer.records), now
                if (seen and now - since > _QUIET_S) or now > deadline:
                    break
                time.sleep(0.005)
        return list(producer.records)


class _DeathError(BaseException):
    """The process dies. No source survives it by catching errors."""


class _DyingStore(MemorySourceStore):
    """A store whose process dies at a commit.

    Args:
        number: the number of the commit.
        stored: whether the commit is durable.
    """

    died: Callable[[], object]

    def __init__(self, number: int, *, stored: bool) -> None:
        super().__init__()
        self.is_dead = False
        self._number = number
        self._stored = stored

    def commit(self, timeout: float | None = None) -> None:
        if self.is_dead:
            raise _DeathError
        if self.commits + 1 == self._number:
            if self._stored:
                super().commit(timeout)
            self.is_dead = True
            self.died()
            raise _DeathError
        super().commit(timeout)

    def survivor(self) -> MemorySourceStore:
        """Return what the next process finds."""
        store = MemorySourceStore()
        store._partition = self._partition
        return store


class RunningSource:
    """Runs a configured source in a thread; at the end stops it, and raises its error.

    Args:
        source: the source.
        patience: seconds in which `stop` must end it.

    Example:
        ```python
        producer = RecordingProducer()
        source.configure(Topic("orders"), producer)
        with RunningSource(source):
            wait_until(lambda: producer.records)
        ```
    """

    def __init__(self, source: BaseSource, patience: float = 10.0) -> None:
        self._source = source
        self._patience = patience
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run_thread, daemon=True)

    @property
    def is_alive(self) -> bool:
        """Whether the source runs."""
        return self._thread.is_alive()

    def _run_thread(self) -> None:
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
