"""Protocols of administrations that know consumer groups."""

from collections.abc import Collection, Mapping
from typing import Protocol, runtime_checkable

from streamrt.kafka.cluster.committed import CommittedOffset
from streamrt.records import TopicPartition

__all__ = ["GroupAdmin", "GroupOffsets"]


@runtime_checkable
class GroupOffsets(Protocol):
    """The further methods of an administration that knows what consumer groups have committed."""

    def committed_stable(
        self, group: str, partitions: Collection[TopicPartition], timeout: float = 30
    ) -> Mapping[TopicPartition, CommittedOffset]:
        """Return the committed offsets of a group, after all transactions that may change them."""

    def delete_records(self, offsets: Mapping[TopicPartition, int], timeout: float = 30) -> None:
        """Delete the records below offsets."""


@runtime_checkable
class GroupAdmin(GroupOffsets, Protocol):
    """The further method of an administration that knows the members of consumer groups; `TopicAdmin` is one."""

    def group_is_active(self, group: str, timeout: float = 30) -> bool:
        """Return whether a consumer group has members."""
