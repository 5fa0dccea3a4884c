"""The life cycle of a group member, and its results.

                    start()             assigned               revoked
              NEW ----------> JOINING ------------> ASSIGNED ------------> REVOKING
               |                ^  ^                   |  |                   |  |
               |                |  '------- lost ------'  |                   |  |
               |                '-------------- given back -------------------'  |
               |                |                         |                      |
               |                '------ fatal error ------+----------------------'
               |                         |
               |                         v
               |                       FAILED
               |                         |
               '------ close() ----------+--------> CLOSED        (close() leads here from every state)

- With the protocol `consumer`, ASSIGNED also leads to itself, when partitions are added, and REVOKING to ASSIGNED: only
  what moves is given back, and the rest stays with the member.
- ASSIGNED, REVOKING: the member owns the partitions and can commit offsets. In REVOKING, `on_revoke` runs: it stops
  the reading and commits. Other members of the group wait for it, up to `max.poll.interval.ms`.
- lost: the group reassigned the partitions without asking, because no heartbeat arrived in time. No commit is
  possible any more.
- Partitions are given back only when no commit is in flight. An offset of one generation can thus never be
  committed in the next one, in which another member may already own the partition.
"""

import enum
import struct
import threading
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaError, KafkaException

from streamrt.errors import StreamRTError
from streamrt.kafka.client import OffsetMetadata, request_error
from streamrt.records import TopicPartition

__all__ = ["GroupAssignment", "GroupFencedError", "GroupState"]

_METADATA = b"CGMDv2:"
_GENERATION = struct.Struct("=i")

_FENCED = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.FENCED_MEMBER_EPOCH,
        KafkaError._FENCED,
        KafkaError._FATAL,
        KafkaError._STATE,
        KafkaError._DESTROY,
    }
)
_TOO_OLD = (
    "group_protocol='consumer' needs brokers of Kafka 4.0 or newer that allow it (group.coordinator.rebalance.protocols, "
    "feature group.version=1); use group_protocol='classic' with others"
)
_SAME_ID = "another process has the same group_instance_id; give each instance a different one"
_HOPELESS = {
    KafkaError.FENCED_INSTANCE_ID: _SAME_ID,
    KafkaError.UNRELEASED_INSTANCE_ID: _SAME_ID,
    KafkaError.UNSUPPORTED_VERSION: _TOO_OLD,
    KafkaError._UNSUPPORTED_FEATURE: _TOO_OLD,
    KafkaError.UNSUPPORTED_ASSIGNOR: "let the brokers offer the assignor 'range' (group.consumer.assignors)",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "grant the user READ on the group",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "grant the user READ on the topics",
    KafkaError.INCONSISTENT_GROUP_PROTOCOL: "another application is in the group; use a separate group",
    KafkaError.INVALID_SESSION_TIMEOUT: "set session.timeout.ms to a value that the brokers allow",
    KafkaError.INVALID_GROUP_ID: "choose another name for the group",
    KafkaError.GROUP_MAX_SIZE_REACHED: "the brokers allow no more members in the group",
}


class GroupFencedError(StreamRTError):
    """The member no longer owns the partitions; another member may own them, so nothing was committed."""


class GroupState(enum.Enum):
    """Life-cycle state of a `GroupMember`; see the diagram of this module."""

    NEW = "new"
    JOINING = "joining"
    ASSIGNED = "assigned"
    REVOKING = "revoking"
    FAILED = "failed"
    CLOSED = "closed"

    @property
    def successors(self) -> "frozenset[GroupState]":
        """States that may follow this one."""
        return _SUCCESSORS[self]

    @property
    def owns(self) -> bool:
        """Whether the member owns its assigned partitions in this state."""
        return self in (GroupState.ASSIGNED, GroupState.REVOKING)


_SUCCESSORS = {
    GroupState.NEW: frozenset({GroupState.JOINING, GroupState.CLOSED}),
    GroupState.JOINING: frozenset({GroupState.ASSIGNED, GroupState.FAILED, GroupState.CLOSED}),
    GroupState.ASSIGNED: frozenset(
        {GroupState.ASSIGNED, GroupState.REVOKING, GroupState.JOINING, GroupState.FAILED, GroupState.CLOSED}
    ),
    GroupState.REVOKING: frozenset({GroupState.ASSIGNED, GroupState.JOINING, GroupState.FAILED, GroupState.CLOSED}),
    GroupState.FAILED: frozenset({GroupState.CLOSED}),
    GroupState.CLOSED: frozenset[GroupState](),
}


class GroupAssignment(NamedTuple):
    """The partitions of a member in one generation.

    Attributes:
        generation: number of the member's assignment, counted by the member.
        partitions: the partitions that it owns.
        unbroken: whether the group had no other generation since the member's previous assignment. No other member can
            then have owned, in between, a partition that is in both assignments.
        held: with the protocol `consumer`, for each partition the generation since which the member holds it; empty with
            `classic`, where each assignment begins with partitions that no member holds.
        member: id of the member, from the group's coordinator; a member that has lost its place gets another one. None if it
            is unknown.
    """

    generation: int
    partitions: frozenset[TopicPartition]
    unbroken: bool = False
    member: bytes | None = None
    held: Mapping[TopicPartition, int] = MappingProxyType({})

    def follows(self, generation: int) -> bool:
        """Return whether no other member can have owned the common partitions since a former assignment.

        Args:
            generation: generation of the former assignment.
        """
        return self.unbroken and self.generation == generation + 1

    def kept(self, generation: int) -> frozenset[TopicPartition]:
        """Return the partitions that no other member can have owned since a former assignment that also had them.

        Args:
            generation: generation of the former assignment.
        """
        if self.held:
            return frozenset(partition for partition, since in self.held.items() if since <= generation)
        return self.partitions if self.follows(generation) else frozenset()

    def holds(self, generation: int, partitions: Collection[TopicPartition]) -> bool:
        """Return whether the member has held all of these partitions without a break since a generation.

        Args:
            generation: generation of a former assignment.
            partitions: the partitions.

        Example:
            >>> one, two = TopicPartition("orders", 0), TopicPartition("orders", 1)
            >>> added = GroupAssignment(2, frozenset({one, two}), held={one: 1, two: 2})
            >>> added.holds(1, {one}), added.holds(1, {one, two})
            (True, False)
        """
        return all(self.held.get(partition, generation + 1) <= generation for partition in partitions)


class GroupPlace(NamedTuple):
    """Position of a member in the history of its group.

    Attributes:
        member: member id from the group's coordinator. A member that was away for too long gets another one.
        generation: the group's number of the assignment.

    Example:
        >>> GroupPlace(b"one", 7).follows(GroupPlace(b"one", 6)), GroupPlace(b"one", 8).follows(GroupPlace(b"one", 6))
        (True, False)
    """

    member: bytes
    generation: int

    @classmethod
    def of(cls, consumer: ConfluentConsumer) -> "GroupPlace | None":
        """Return the place of a member that was just assigned partitions; None if librdkafka does not expose it."""
        return cls.of_metadata(bytes(consumer.consumer_group_metadata()))

    @classmethod
    def of_metadata(cls, metadata: bytes) -> "GroupPlace | None":
        """Return the place that the metadata of a member say; None if they have another format."""
        # "CGMDv2:", generation, group id, 0, member id, 0, and more. The client exposes the generation nowhere else.
        start = len(_METADATA) + _GENERATION.size
        ids = metadata[start:].split(b"\0")
        if not metadata.startswith(_METADATA) or len(ids) < 3 or not ids[1]:
            return None
        return cls(ids[1], *_GENERATION.unpack_from(metadata, len(_METADATA)))

    def follows(self, former: "GroupPlace | None") -> bool:
        """Return whether no other generation lies between two assignments of one member."""
        return former is not None and self == (former.member, former.generation + 1)


class CommitRequest:
    """A commit that is queued for the member's thread, and its result."""

    def __init__(
        self, offsets: Mapping[TopicPartition, int], generation: int, deadline: float, metadata: OffsetMetadata = None
    ) -> None:
        self.offsets = offsets
        self.metadata = metadata
        self.generation = generation
        self.deadline = deadline
        self.sent_at = 0.0
        self.error: KafkaError | None = None
        self.done = threading.Event()

    def finish(self, error: KafkaError | None) -> None:
        """Set the result, and wake the requesting thread."""
        self.error = error
        self.done.set()

    def refuse(self) -> None:
        """Refuse the commit, because the member no longer owns the partitions."""
        self.finish(KafkaError(KafkaError.ILLEGAL_GENERATION, "the partitions were reassigned"))


def is_fatal(error: KafkaError) -> bool:
    """Return whether the client refuses to continue."""
    return bool(error.fatal()) or error.code() == KafkaError._FATAL


def is_fenced(error: KafkaError) -> bool:
    """Return whether the group has moved on without the member."""
    return is_fatal(error) or error.code() in _FENCED


def is_hopeless(error: KafkaError) -> bool:
    """Return whether further attempts to be a member are useless."""
    return is_fatal(error) or error.code() in _HOPELESS


def is_unreleased(error: KafkaError) -> bool:
    """Return whether another member, which may be dead, has the static id of this one; with the protocol `consumer`."""
    # A fatal error contains its cause only in its text.
    unreleased = KafkaError(KafkaError.UNRELEASED_INSTANCE_ID)
    return error.code() == unreleased.code() or unreleased.str() in error.str()


def is_same_instance(error: KafkaError) -> bool:
    """Return whether the brokers say that another member has the static id of this one."""
    # A fatal error contains its cause only in its text.
    fenced = KafkaError(KafkaError.FENCED_INSTANCE_ID)
    return error.code() == fenced.code() or fenced.str() in error.str()


def advice_for(error: KafkaError) -> str | None:
    """Return advice for an error that ended a membership, or None."""
    # A fatal error contains its cause only in its text.
    causes = (code for code in _HOPELESS if code == error.code() or KafkaError(code).str() in error.str())
    return next((_HOPELESS[code] for code in causes), None)


def names_of(partitions: Iterable[TopicPartition]) -> str:
    """Return the partitions as text for messages."""
    return ", ".join(str(partition) for partition in sorted(partitions)) or "no partitions"


def streamrt_error(error: Exception) -> Exception:
    """Convert the error that ended a membership to a StreamRT error."""
    if isinstance(error, KafkaException):
        return request_error("the membership in the consumer group ended", error)
    return error
