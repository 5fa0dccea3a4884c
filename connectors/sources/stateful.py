"""Sources with state."""

from typing import Any

from streamrt.connectors.sources.base import Instances, Source
from streamrt.connectors.sources.protocols import SourceProducer, SourceState, SourceStore
from streamrt.errors import InvalidOperationError
from streamrt.topics import Topic

__all__ = ["StatefulSource"]

_FLUSH_TIMEOUT_S = 30.0


class StatefulSource(Source):
    """A source with state, such as how far it has read; the state survives a crash.

    The state is kept in a changelog topic. `flush` first waits until all records are delivered, then makes the changes
    of the state durable. A crash at any moment therefore repeats records and loses none: the state covers only records
    that are in Kafka. The subclass calls `flush` at reasonable intervals; it is also called when `run` returns.

    With `processing_guarantee="exactly-once"`, `flush` commits the records and the changes of the state in one Kafka
    transaction. A crash then neither loses nor repeats records, for readers of committed ones.

    It runs in one of the instances of an application, and another one takes over when that one ends.

    Args:
        name: name of the source, unique in the application. The state belongs to this name.
        shutdown_timeout: seconds that `run` and `cleanup` have to end after `stop`; then the process is killed.
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails.

    Example:
        ```python
        class Lines(StatefulSource):
            def run(self) -> None:
                with open("lines.txt") as lines:
                    lines.seek(self.state.get("position", 0))
                    while self.running and (line := lines.readline()):
                        self.produce(self.serialize(value=line.rstrip()).value)
                        self.state.set("position", lines.tell())
                        self.flush()
        ```
    """

    _store: SourceStore | None = None

    def configure(
        self, topic: Topic, producer: SourceProducer, *, store_partition: SourceStore | None = None, **kwargs: Any
    ) -> None:
        """Set the topic, the producer and the store. Called in the process of the source, before `start`.

        Args:
            topic: the topic to produce to.
            producer: the producer to use.
            store_partition: the store of the state.
            **kwargs: arguments of later versions; pass them on to `super().configure`.
        """
        super().configure(topic, producer, **kwargs)
        self._store = store_partition

    @property
    def instances(self) -> Instances:
        """Where the source runs, unless the application decides: in "one" instance, whose state is the only one."""
        return "one" if self.store_partitions_count == 1 else "each"

    @property
    def store_partitions_count(self) -> int:
        """Number of store partitions: the number of partitions of the changelog topic."""
        return 1

    @property
    def assigned_store_partition(self) -> int:
        """The store partition that this instance uses."""
        return 0

    @property
    def store_name(self) -> str:
        """Name of the store, from which the name of the changelog topic is derived."""
        return f"source-{self.name}"

    @property
    def state(self) -> SourceState:
        """The state. Get it again after each `flush`, which makes older objects invalid.

        Raises:
            InvalidOperationError: if the source is not configured.
        """
        return self._configured_store.state()

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all records are delivered, then make the changes of the state durable.

        Args:
            timeout: seconds, for each of the two; None means 30, -1 means no limit.

        Raises:
            ProducerError: if a record was not delivered, or the changelog was not written, in time.
        """
        super().flush(timeout)
        self._configured_store.commit(_FLUSH_TIMEOUT_S if timeout is None else timeout)

    @property
    def _configured_store(self) -> SourceStore:
        if self._store is None:
            raise InvalidOperationError(
                f"the source {self.name} has no state yet: the application restores it in the process of the source, "
                "so use it in setup() or run()"
            )
        return self._store
