"""How a resident task gets at records and partitions: what it needs from Kafka beside `TaskClients`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from streamrt.kafka import GroupAssignment, InputBatch, OffsetMetadata
from streamrt.models import TopicPartition

__all__ = ["Feed", "Join", "Member"]


class Feed(Protocol):
    """Reads the committed records of assigned partitions, each from a given offset on. Used by one thread."""

    def add(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions, too, from these offsets on, once they are resumed."""

    def remove(self, places: Iterable[TopicPartition]) -> None:
        """Read these partitions no longer; what was read of them and not returned is forgotten."""

    def poll(self, timeout_s: float, records: int) -> Sequence[tuple[TopicPartition, InputBatch]]:
        """Return what there is, at least one record if one comes in time; records of a partition are in order.

        Args:
            timeout_s: seconds to wait for the first record; 0 does not wait.
            records: the most to return.

        Raises:
            OffsetOutOfRangeError: if the next offset of a partition is not there any more.
            KafkaRequestError: if records cannot be read for another reason that does not pass by itself.
        """

    def seek(self, place: TopicPartition, offset: int) -> None:
        """Go on at another offset; what was read of the partition and not returned is forgotten."""

    def pause(self, places: Iterable[TopicPartition]) -> None:
        """Return no records of these partitions until `resume`."""

    def resume(self, places: Iterable[TopicPartition]) -> None:
        """Return records of these partitions again, after those that were returned before the pause."""

    def ends(self) -> Mapping[TopicPartition, int]:
        """Return, for the partitions that were last found read to their ends, the offset there: behind all markers."""

    def close(self) -> None:
        """Let go of the connections."""


class Member(Protocol):
    """A member of the consumer group, which owns partitions. `GroupMember` is one."""

    @property
    def away(self) -> bool:
        """Whether no broker answers at the moment."""

    def start(self) -> None:
        """Join the group."""

    def current_assignment(self, timeout: float) -> GroupAssignment | None:
        """Return the partitions that the member owns with their generation; None while there is no assignment.

        Raises:
            StreamRTError: what made the member fail.
        """

    def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        generation: int | None = None,
        timeout: float = 30.0,
        metadata: OffsetMetadata = None,
    ) -> None:
        """Commit offsets of partitions that the member owns, and return when the group has them.

        Raises:
            GroupFencedError: if a partition is not the member's any more.
            KafkaRequestError: if the offsets could not be committed for another reason.
        """

    def close(self) -> None:
        """Give the partitions back, which calls the function for revoked partitions, and end."""


Join = Callable[[Callable[[frozenset[TopicPartition]], None], Callable[[frozenset[TopicPartition]], None]], Member]
"""Makes a member of two functions: the first is called in a thread of its own before partitions are given back, and may
block; the second one after they were lost."""
