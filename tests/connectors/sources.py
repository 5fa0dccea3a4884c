"""Runs sources of tests in threads, with what they produced."""

import json
import pickle
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import cloudpickle

from streamrt.connectors import BaseSource, StatefulSource
from streamrt.testing.connectors import MemorySourceStore, RecordingProducer, RunningSource, SourceRecord
from streamrt.topics import Topic
from tests.support import wait_until

TOPIC = Topic("topic", value_serializer="json", key_serializer="str")
PATIENCE_S = 60.0


class DyingProducer(RecordingProducer):
    """A producer whose process dies before records are delivered."""

    def flush(self, timeout: float | None = None) -> int:
        raise ConnectionError("the process dies")


def crashed(store: MemorySourceStore) -> MemorySourceStore:
    """Return a store as the next process finds it: without what was not committed."""
    store._transaction = None
    return store


def configured(
    source: BaseSource, producer: RecordingProducer | None = None, store: MemorySourceStore | None = None
) -> Any:
    """Give a source what it needs to start, and return it."""
    producer = producer or RecordingProducer()
    if isinstance(source, StatefulSource):
        source.configure(TOPIC, producer, store_partition=store or MemorySourceStore())
    else:
        source.configure(TOPIC, producer)
    return source


@contextmanager
def running(source: BaseSource, producer: RecordingProducer, store: MemorySourceStore | None = None) -> Iterator[None]:
    """Run a source; stop it at the end, and raise its error."""
    with RunningSource(configured(source, producer, store), PATIENCE_S):
        yield


class Run:
    """A source in a thread; a `with` block starts it, and stops it at its end.

    Args:
        source: the source.
        store: the store of a stateful source.
        producer: its producer.
        copied: whether a pickled copy runs, as in an application.
    """

    def __init__(
        self,
        source: BaseSource,
        store: MemorySourceStore | None = None,
        producer: RecordingProducer | None = None,
        *,
        copied: bool = True,
    ) -> None:
        self.producer = producer or RecordingProducer()
        self.store = store or MemorySourceStore()
        ran = pickle.loads(cloudpickle.dumps(source)) if copied else source
        self.source: Any = configured(ran, self.producer, self.store)
        self.error: BaseException | None = None
        self.connected = threading.Event()
        if self.source._on_client_connect_success is None:
            self.source._on_client_connect_success = self.connected.set
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self.source.start()
        except BaseException as error:
            self.error = error

    @property
    def records(self) -> list[SourceRecord]:
        """The produced records."""
        return self.producer.records

    @property
    def values(self) -> list[Any]:
        """The produced values."""
        return [json.loads(record.value or b"null") for record in list(self.records)]

    @property
    def running(self) -> bool:
        """Whether the source still runs."""
        return self._thread.is_alive()

    def start(self) -> "Run":
        """Start the source, unless it was started."""
        if self._thread.ident is None:
            self._thread.start()
        return self

    def has(self, count: int) -> None:
        """Wait until so many records were produced."""
        wait_until(lambda: len(self.records) >= count or not self.running, PATIENCE_S, f"{count} records")
        if self.error is not None:
            raise self.error
        assert len(self.records) >= count

    def wait_for(self, count: int) -> list[Any]:
        """Wait until so many values were produced, and return them all."""
        self.has(count)
        return self.values

    def wait(self) -> None:
        """Wait until the source ends."""
        wait_until(lambda: not self.running, PATIENCE_S, "the end of the source")

    def failure(self) -> BaseException:
        """Wait until the source fails, and return its error."""
        self.start().wait()
        assert self.error is not None
        return self.error

    def to_end(self) -> "Run":
        """Wait until the source ends, and raise its error."""
        self.start().wait()
        if self.error is not None:
            raise self.error
        assert self.producer.flushed == len(self.records)
        return self

    def stop(self) -> float:
        """Stop the source; return the seconds that it took to end."""
        begun = time.monotonic()
        self.source.stop()
        self._thread.join(PATIENCE_S)
        assert not self.running
        return time.monotonic() - begun

    def __enter__(self) -> "Run":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        took = self.stop()
        if kind is None:
            assert took < 8, f"the source ended only {took:.1f} s after stop()"
