"""The contract of sinks.

The life of a sink:

```
process that calls run()      process that runs tasks (or, of a driver sink, the one that calls run())
------------------------      ------------------------------------------------------------------------
__init__ -> pickled  -------> start() -> setup()                          once, before the first add
                              add() ... add() -> flush()                  once for each commit
                              add() ... on_paused()                       the commit was given up:
                              add() ... flush()                           the same records come again
```

The records of one commit come from one partition, and `flush` returns before the offsets of these records move. A crash
between the two repeats records: sinks are written at least once, and those that replace by key hold each result once.
Where several partitions are processed side by side, a `BatchingSink` gathers the records of all of them, and those of each
partition are written, or dropped, by themselves; other sinks get the records of one partition until it is committed.
"""

import abc
from collections.abc import Collection
from typing import Any

from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback, connect
from streamrt.connectors.sinks.batch import SinkBatch
from streamrt.models import Headers

__all__ = ["BaseSink", "BatchingSink", "DriverSink"]


class BaseSink(abc.ABC):
    """Takes values out of Kafka: the base class of all sinks.

    Sinks travel to the processes that run tasks, by pickling, before they are started. So `__init__` keeps settings
    only; clients, connections and files are made in `setup`, which is called in the process that writes.

    Args:
        on_client_connect_success: called without arguments when `setup` has succeeded.
        on_client_connect_failure: called with the exception when `setup` has failed. If it returns, the failure counts
            as dealt with; if it raises, or if there is none, the application ends.

    Example:
        ```python
        class WebhookSink(BaseSink):
            def __init__(self, url: str) -> None:
                super().__init__()
                self._url = url

            def setup(self) -> None:
                self._client = httpx.Client(timeout=10)
                self._waiting = []

            def add(self, value, key, timestamp, headers, topic, partition, offset) -> None:
                self._waiting.append(value)

            def flush(self) -> None:
                if self._waiting:
                    self._client.post(self._url, json=self._waiting).raise_for_status()
                self._waiting = []

            def on_paused(self) -> None:
                self._waiting = []
        ```
    """

    # Classes, not instances, hold the defaults: a subclass that forgets super().__init__() still works.
    _on_client_connect_success: ClientConnectSuccessCallback | None = None
    _on_client_connect_failure: ClientConnectFailureCallback | None = None

    def __init__(
        self,
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
    ) -> None:
        self._on_client_connect_success = on_client_connect_success
        self._on_client_connect_failure = on_client_connect_failure

    def setup(self) -> None:  # noqa: B027 - a sink without a client needs none
        """Connect to the system outside. Called by `start`, once in each process that writes.

        Raises:
            Exception: whatever says why there is no connection.
        """

    def start(self) -> None:
        """Call `setup`, then the callback that fits the outcome.

        Raises:
            Exception: what `setup` raised, or what `on_client_connect_failure` made of it.
        """
        connect(self.setup, self._on_client_connect_success, self._on_client_connect_failure)

    @abc.abstractmethod
    def add(
        self,
        value: Any,
        key: Any,
        timestamp: int,
        headers: Headers | None,
        topic: str,
        partition: int,
        offset: int,
    ) -> None:
        """Take one value; may write it now or keep it for `flush`.

        Args:
            value: the value.
            key: the key of the record.
            timestamp: its event time in milliseconds since the Unix epoch.
            headers: its headers, or None.
            topic: the topic that the input record came from.
            partition: its partition.
            offset: its offset. Several values in a row may have the same.

        Raises:
            SinkBackpressureError: if the system outside cannot take data now.
        """

    @abc.abstractmethod
    def flush(self) -> None:
        """Make what was added since the last `flush` durable. Offsets move afterwards.

        Called with every commit, also if nothing was added.

        Raises:
            SinkBackpressureError: if the system outside cannot take data now; the same records come again later.
            Exception: anything else ends the application; the same records come again when it starts.
        """

    def on_paused(self) -> None:  # noqa: B027 - a sink that keeps nothing back has nothing to drop
        """Drop what was added and not flushed: its commit was given up, and the same records come again."""


class BatchingSink(BaseSink):
    """A sink that gathers values in memory and writes them with each commit, a batch for each partition.

    Subclasses define `write`. How large a batch becomes is up to `commit_interval` and `commit_every` of the
    application.

    Args:
        on_client_connect_success: called without arguments when `setup` has succeeded.
        on_client_connect_failure: called with the exception when `setup` has failed.

    Example:
        >>> class Shout(BatchingSink):
        ...     def write(self, batch):
        ...         print(batch.topic, batch.partition, [item.value for item in batch])
        >>> sink = Shout()
        >>> sink.start()
        >>> sink.add("a", b"key", 0, None, "words", 0, 7)
        >>> sink.add("b", b"key", 0, None, "words", 0, 8)
        >>> sink.flush()
        words 0 ['a', 'b']
    """

    # Made on first use, so that a subclass may forget super().__init__().
    __batches: dict[tuple[str, int], SinkBatch] | None = None

    @abc.abstractmethod
    def write(self, batch: SinkBatch) -> None:
        """Write one batch; when this returns, it is durable.

        Args:
            batch: the values of one partition, never empty.

        Raises:
            SinkBackpressureError: if the system outside cannot take data now; the same records come again later.
            Exception: anything else ends the application; the same records come again when it starts.
        """

    def add(  # noqa: D102
        self,
        value: Any,
        key: Any,
        timestamp: int,
        headers: Headers | None,
        topic: str,
        partition: int,
        offset: int,
    ) -> None:
        batches = self.__batches
        if batches is None:
            batches = self.__batches = {}
        batch = batches.get((topic, partition))
        if batch is None:
            batch = batches[topic, partition] = SinkBatch(topic, partition)
        batch.append(value, key, timestamp, headers, offset)

    def flush(self) -> None:
        """Write the batches and drop each one that was written.

        Raises:
            Exception: what `write` raised; this batch and those after it are still there, until `on_paused`.
        """
        self.flush_partitions(list(self.__batches or ()))

    def on_paused(self) -> None:
        """Drop all batches."""
        self.drop_partitions(list(self.__batches or ()))

    def flush_partitions(self, places: Collection[tuple[str, int]]) -> None:
        """Write the batches of some partitions, as `flush` does for all.

        Args:
            places: topics and partitions.

        Raises:
            Exception: what `write` raised; this batch and those after it are still there, until they are dropped.
        """
        batches = self.__batches or {}
        for place in [place for place in batches if place in places]:
            self.write(batches[place])
            del batches[place]

    def drop_partitions(self, places: Collection[tuple[str, int]]) -> None:
        """Drop the batches of some partitions.

        Args:
            places: topics and partitions.
        """
        for place in places:
            (self.__batches or {}).pop(place, None)

    def take_batches(self, places: Collection[tuple[str, int]] | None = None) -> list[SinkBatch]:
        """Hand over batches instead of writing them, and keep none of them.

        Args:
            places: topics and partitions; None for all.

        Returns:
            The batches that were gathered, in the order in which their first items came; none is empty.
        """
        batches = self.__batches or {}
        return [batches.pop(place) for place in list(batches) if places is None or place in places]


class DriverSink(BatchingSink):
    """A batching sink that lives in the process that called `run()`, such as a list that the program goes on to read.

    Tasks gather its values by a copy of the sink and send them back with their reports; the copy is neither started
    nor flushed. In the process that called `run()`, `write` gets them once for each micro-batch, before offsets are
    committed. What reaches the sink therefore passes through the memory of that one process: write large results by
    sinks that write where the tasks run.

    Args:
        on_client_connect_success: called without arguments when `setup` has succeeded.
        on_client_connect_failure: called with the exception when `setup` has failed.

    Example:
        >>> class Total(DriverSink):
        ...     total = 0
        ...     def write(self, batch):
        ...         self.total += sum(item.value for item in batch)
        >>> sink = Total()
        >>> batch = SinkBatch("numbers", 0)
        >>> batch.append(3, None, 0, None, 0)
        >>> sink.write_batches([batch])
        >>> sink.total
        3
    """

    def write_batches(self, batches: list[SinkBatch]) -> None:
        """Write what the tasks of one micro-batch have gathered.

        Args:
            batches: in each partition in the order of the offsets.

        Raises:
            Exception: what `write` raised; offsets do not move, and the same records come again.
        """
        for batch in batches:
            if not batch.empty():
                self.write(batch)
