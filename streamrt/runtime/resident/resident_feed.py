"""The Kafka interface of a resident task in addition to `TaskClients`: its consumer and its group member."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from streamrt.kafka.client import OffsetMetadata
from streamrt.kafka.membership.group_state import GroupAssignment
from streamrt.kafka.reading.input_reader import InputBatch
from streamrt.records import TopicPartition

__all__ = ["Feed", "Join", "Member"]


class Feed(Protocol):
    """Reads the committed records of partitions, each from a given offset. Used by one thread."""

    def add(self, positions: Mapping[TopicPartition, int]) -> None:
        """Add partitions with their start offsets; they are paused until `resume`."""

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions, and drop their fetched records that were not returned."""

    def poll(self, timeout_s: float, records: int) -> Sequence[tuple[TopicPartition, InputBatch]]:
        """Return the available records, at least one if one arrives in time; the records of a partition are in order.

        Args:
            timeout_s: seconds to wait for the first record; 0 to return at once.
            records: maximum number of records.

        Raises:
            OffsetOutOfRangeError: if the next offset of a partition no longer exists.
            KafkaRequestError: if records cannot be read because of another lasting error.
        """

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at another offset, and drop the fetched records of the partition that were not returned."""

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these partitions until `resume`."""

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Return records of these partitions again, from where the pause began."""

    def ends(self) -> Mapping[TopicPartition, int]:
        """Return the end offset, after all transaction markers, of each partition that the feed has read to its end."""

    def close(self) -> None:
        """Close the connections."""


class Member(Protocol):
    """A member of the consumer group, which owns partitions; implemented by `GroupMember`."""

    @property
    def away(self) -> bool:
        """Whether no broker is reachable at the moment."""

    def start(self) -> None:
        """Join the group."""

    def join_again(self) -> None:
        """Have the group divide its partitions among all of its members now."""

    def current_assignment(self, timeout: float) -> GroupAssignment | None:
        """Return the assigned partitions and their generation; None while there is no assignment.

        Raises:
            StreamRTError: the error that ended the member.
        """

    def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        generation: int | None = None,
        timeout: float = 30.0,
        metadata: OffsetMetadata = None,
    ) -> None:
        """Commit offsets of assigned partitions, and return after the group has stored them.

        Raises:
            GroupFencedError: if a partition is no longer assigned to the member.
            KafkaRequestError: if the commit failed for another reason.
        """

    def close(self) -> None:
        """Leave the group. This calls the function for revoked partitions first."""


Join = Callable[[Callable[[frozenset[TopicPartition]], None], Callable[[frozenset[TopicPartition]], None]], Member]
"""Creates a member from two functions: for revoked partitions and for lost partitions. The first one is called in a
separate thread before the partitions are released, and may block."""
