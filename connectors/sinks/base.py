"""The contract of sinks.

The life of a sink:

```
process that calls run()      process that runs tasks (or, of a driver sink, the one that calls run())
------------------------      ------------------------------------------------------------------------
__init__ -> pickled  -------> start() -> setup()                          once, before the first add
                              add() ... add() -> flush()                  once for each commit
                              add() ... on_paused()                       the commit was given up:
                              add() ... flush()                           the same records are delivered again
                              close()                                     the process no longer uses the sink
```

The records of one commit come from one partition or, where frames were merged, from one of each topic. `flush` returns
before the offsets of these records are committed. A crash between the two repeats records: sinks are at-least-once, and a
sink that replaces by key holds each result once. When a process runs several partitions, a `BatchingSink` gathers the
records of all of them and writes or drops each
partition separately. Other sinks receive the records of one partition until it is committed.
"""

import abc
from collections.abc import Collection
from typing import Any

from streamrt.arguments import refuse_async
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback, connect
from streamrt.connectors.sinks.batch import SinkBatch
from streamrt.connectors.sinks.merged_batches import join_batches
from streamrt.records import Headers

__all__ = ["BaseSink", "BatchingSink", "DriverSink"]


class BaseSink(abc.ABC):
    """Base class of all sinks: takes values out of Kafka.

    A sink is pickled and sent to the processes that run tasks before it is started. `__init__` therefore keeps only
    settings; `setup` makes clients, connections and files, and is called in the process that writes.

    Args:
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails. If it returns, the failure counts
            as handled. If it raises, or if there is none, the application stops.

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

            def close(self) -> None:
                self._client.close()
        ```
    """

    # The defaults are class attributes, so that a subclass that forgets super().__init__() still works.
    _on_client_connect_success: ClientConnectSuccessCallback | None = None
    _on_client_connect_failure: ClientConnectFailureCallback | None = None

    def __init__(
        self,
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
    ) -> None:
        refuse_async("on_client_connect_success=...", on_client_connect_success)
        refuse_async("on_client_connect_failure=...", on_client_connect_failure)
        self._on_client_connect_success = on_client_connect_success
        self._on_client_connect_failure = on_client_connect_failure

    def setup(self) -> None:  # noqa: B027 - a sink without a client needs none
        """Connect to the external system. Called by `start`, once in each process that writes.

        Raises:
            Exception: any error that explains why there is no connection.
        """

    def start(self) -> None:
        """Call `setup`, then the callback for its outcome.

        Raises:
            Exception: the error of `setup`, or the one that `on_client_connect_failure` raised instead.
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
        """Accept one value; write it now or keep it for `flush`.

        Args:
            value: the value.
            key: the key of the record.
            timestamp: event time of the record in milliseconds since the Unix epoch.
            headers: headers of the record, or None.
            topic: topic of the input record.
            partition: partition of the input record.
            offset: offset of the input record. Several values in a row may have the same offset.

        Raises:
            SinkBackpressureError: if the external system cannot accept data now.
        """

    @abc.abstractmethod
    def flush(self) -> None:
        """Make the values added since the last `flush` durable. Offsets are committed afterwards.

        Called with every commit, even if nothing was added.

        Raises:
            SinkBackpressureError: if the external system cannot accept data now; the same records are delivered again later.
            Exception: any other error stops the application; the same records are delivered again after a restart.
        """

    def on_paused(self) -> None:  # noqa: B027 - a sink without a buffer has nothing to drop
        """Drop the values that were added and not flushed: the commit was abandoned, the same records are delivered again."""

    def close(self) -> None:  # noqa: B027 - a sink without a client has nothing to close
        """Close what `setup` opened: the process no longer uses the sink. `start` may follow and opens it again.

        Write nothing here: what was not flushed is not committed, and is delivered again. A process that is killed does not
        call it, and neither do the processes of tasks in micro-batch mode when Spark ends them.

        Raises:
            Exception: is logged; nothing else follows from it.
        """


class BatchingSink(BaseSink):
    """A sink that gathers values in memory and writes one batch for each partition with each commit.

    Where frames were merged, values that records of several topics have caused take turns. Values of one key stay in order:
    where it moves to another topic, a further batch begins.

    Subclasses define `write`. The settings `commit_interval` and `commit_every` of the application limit the size of a
    batch.

    Args:
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails.

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

    # Made on first use, so that a subclass that forgets super().__init__() works. By partition, which is the same for all
    # inputs of a task, the values in order; a batch ends where the topic changes.
    __batches: dict[int, list[SinkBatch]] | None = None

    @abc.abstractmethod
    def write(self, batch: SinkBatch) -> None:
        """Write one batch; it is durable when this returns.

        Args:
            batch: the values of one partition, never empty.

        Raises:
            SinkBackpressureError: if the external system cannot accept data now; the same records are delivered again later.
            Exception: any other error stops the application; the same records are delivered again after a restart.
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
        of_task = batches.get(partition)
        if of_task is None:
            of_task = batches[partition] = []
        if not of_task or of_task[-1].topic != topic:
            of_task.append(SinkBatch(topic, partition))
        of_task[-1].append(value, key, timestamp, headers, offset)

    def flush(self) -> None:
        """Write the batches, and drop each one after it is written.

        Raises:
            Exception: the error of `write`; this batch and those after it remain until `on_paused`.
        """
        for partition, batches in list((self.__batches or {}).items()):
            self.flush_partitions({(batch.topic, partition) for batch in batches})

    def on_paused(self) -> None:
        """Drop all batches."""
        (self.__batches or {}).clear()

    def flush_partitions(self, partitions: Collection[tuple[str, int]]) -> None:
        """Write the batches of the inputs of one task; `flush` does so for all.

        Args:
            partitions: topics and partitions.

        Raises:
            Exception: the error of `write`; this batch and those after it remain until they are dropped.
        """
        batches = join_batches(self.take_batches(partitions))
        written = 0
        try:
            for batch in batches:
                self.write(batch)
                written += 1
        finally:
            for batch in batches[written:]:
                (self.__batches or {}).setdefault(batch.partition, []).append(batch)

    def drop_partitions(self, partitions: Collection[tuple[str, int]]) -> None:
        """Drop the batches of some partitions.

        Args:
            partitions: topics and partitions.
        """
        self.take_batches(partitions)

    def take_batches(self, partitions: Collection[tuple[str, int]] | None = None) -> list[SinkBatch]:
        """Return batches instead of writing them, and remove them from the sink.

        Args:
            partitions: topics and partitions; None for all.

        Returns:
            The gathered batches, none of them empty. Those of a task are in the order of its values: where records of several
            topics take turns, each turn has a batch.
        """
        gathered = self.__batches or {}
        taken: list[SinkBatch] = []
        for number in gathered if partitions is None else {number for _, number in partitions} & gathered.keys():
            rest: list[SinkBatch] = []
            for batch in gathered[number]:
                (taken if partitions is None or (batch.topic, number) in partitions else rest).append(batch)
            gathered[number] = rest
        return taken


class DriverSink(BatchingSink):
    """A batching sink that writes in the process that called `run()`, such as a list that the program reads afterwards.

    Each task gathers values in a copy of the sink and sends them back with its reports; the copy is neither started nor
    flushed. The process that called `run()` passes them to `write` once for each micro-batch, before offsets are
    committed. All values pass through the memory of that one process: for large results, use sinks that write where the
    tasks run.

    Args:
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails.

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
        """Write the batches that the tasks of one micro-batch gathered.

        Args:
            batches: the batches, in the order of the values of each task.

        Raises:
            Exception: the error of `write`; offsets are not committed, and the same records are delivered again.
        """
        for batch in batches:
            if not batch.empty():
                self.write(batch)
