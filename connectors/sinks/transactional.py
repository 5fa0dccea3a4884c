"""The contract of sinks whose system stores the position of the group with the values.

```
task                                              system
----                                              ------
opens, after it has fenced earlier owners
positions(group, inputs)            ----------->  reads the position of each input partition
                                                  values of records below it are there, and are not written again
add() ... add()
flush, before the offsets are committed
write_transaction(batches, commit)  ----------->  one transaction: compares each position with `before`,
                                                  writes the values, and stores `after`
```

If the process dies after this transaction and before the offsets are committed, the records are delivered again. The task
finds the position ahead, and drops their values. An instance that was suspended, and wakes up after its partitions were
reassigned, finds another position than the one it read: its transaction fails with `SinkFencedError`.
"""

import abc
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from streamrt.connectors.argument_checks import checked_type
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.sinks.base import BatchingSink
from streamrt.connectors.sinks.batch import SinkBatch
from streamrt.errors import SinkFencedError

__all__ = ["PositionChange", "SinkCommit", "SinkPosition", "TransactionalSink"]


class SinkPosition(NamedTuple):
    """The position that a system stores for one input partition of a group.

    Attributes:
        offset: offset of the next record; the values of all records below it are in the system.
        version: number of transactions that have moved it, from 1 on.
        topic_id: Kafka's id of the topic, so that a topic that was deleted and created again is noticed; None if
            unknown.
        replay: what a task needs to repeat the work of the last transaction; a text of StreamRT, often empty.
    """

    offset: int
    version: int
    topic_id: str | None = None
    replay: str = ""


class PositionChange(NamedTuple):
    """How one transaction moves a position.

    Attributes:
        before: the stored position, as the task knows it; None if there is none.
        after: the position to store.
    """

    before: SinkPosition | None
    after: SinkPosition


@dataclass(frozen=True)
class SinkCommit:
    """Data that a transaction of a sink stores besides values.

    Attributes:
        group: the consumer group.
        positions: the change of the position of each input partition, by topic and partition; empty outside of an
            application.
    """

    group: str = ""
    positions: Mapping[tuple[str, int], PositionChange] = field(default_factory=dict)


class TransactionalSink(BatchingSink):
    """A batching sink that writes each value once, because its system stores the position with the values.

    With `processing_guarantee="exactly-once"`, values, outputs and state agree after any crash. With at-least-once, each
    value is also written once if the same records give the same values; state may count records of a crash twice, and
    values then differ from those that were dropped.

    A position belongs to the group, the input partition and the name of the sink, so the name must stay the same when
    the application changes.

    Args:
        name: name of the sink, unique in the application; by default the `destination`.
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails.

    Raises:
        ConfigurationError: if the name is empty.
    """

    _name: str | None = None

    def __init__(
        self,
        name: str | None = None,
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
    ) -> None:
        super().__init__(on_client_connect_success, on_client_connect_failure)
        self._name = checked_type(type(self).__name__, "name", name, str, "a non-empty string", bool, optional=True)

    @property
    def name(self) -> str:
        """Name of the sink, under which its positions are stored."""
        return self._name or self.destination

    @property
    def keeps_positions(self) -> bool:
        """Whether positions are stored; without them, values are written at least once."""
        return True

    @property
    @abc.abstractmethod
    def destination(self) -> str:
        """Name of the table, directory or other target, without secrets."""

    @abc.abstractmethod
    def positions(self, group: str, partitions: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], SinkPosition]:
        """Return the stored positions.

        Args:
            group: the consumer group.
            partitions: topics and partitions.

        Returns:
            The positions by topic and partition; partitions without one are missing.

        Raises:
            SinkBackpressureError: if the system cannot answer now.
            Exception: any other error stops the application.
        """

    @abc.abstractmethod
    def write_transaction(self, batches: Sequence[SinkBatch], commit: SinkCommit) -> None:
        """Write values and positions in one transaction; both are durable when this returns.

        Args:
            batches: the values of one task, in order; none of the batches is empty. Where frames were merged, an input
                partition may have several: a batch ends where a key gets a value from another topic.
            commit: the positions.

        Raises:
            SinkFencedError: if a stored position is not the expected one; nothing was written.
            SinkBackpressureError: if the system cannot accept data now; the same records are delivered again later.
            Exception: any other error stops the application; the same records are delivered again after a restart.
        """

    def finish(self, group: str, partitions: Collection[tuple[str, int]]) -> None:
        """Do what is left of committed transactions. Called when an application ends whose tasks may have been killed.

        It may be called in any process, without `start`, and while other processes write.

        Args:
            group: the consumer group.
            partitions: topics and partitions of the inputs.
        """

    def write(self, batch: SinkBatch) -> None:
        """Write the values of one partition without a position."""
        self.write_transaction([batch], SinkCommit())

    def _make_fenced_error(self, topic: str, partition: int) -> SinkFencedError:
        return SinkFencedError(
            f"the sink {self.name} has another position of {topic}[{partition}] than expected: another process has written "
            "to it"
        )
