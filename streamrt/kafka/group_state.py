"""The life of a group member, and what it reports.

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

- ASSIGNED, REVOKING: the partitions are ours and offsets can be committed. In REVOKING, `on_revoke` runs: it
  stops what is reading and commits; other members of the group wait for it, up to `max.poll.interval.ms`.
- lost: the group gave the partitions to others without asking, since no heartbeat arrived in time. Nothing
  can be committed any more.
- The partitions are given back only when no commit is on its way: an offset of one generation can never be
  committed in the next one, in which another member may already own the partition.
"""

import enum
import struct
import threading
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaError, KafkaException

from streamrt.errors import StreamRTError
from streamrt.kafka.client import OffsetMetadata, request_error
from streamrt.models import TopicPartition

__all__ = ["GroupAssignment", "GroupFencedError", "GroupState"]

MEMBER_DEFAULTS = {
    # librdkafka's own 60 s outlast a session: a broker that went away would be noticed too late.
    "socket.timeout.ms": 10_000,
    # How soon partitions that are added to a topic are seen. librdkafka's own 5 minutes leave their records waiting.
    "topic.metadata.refresh.interval.ms": 10_000,
    # By these a member hears that the group shares its partitions out anew. All members stand still from when the first one
    # hears of it until the last one has: up to 3 s with librdkafka's own value.
    "heartbeat.interval.ms": 500,
}
_METADATA = b"CGMDv2:"
_GENERATION = struct.Struct("=i")

_FENCED = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError._FENCED,
        KafkaError._FATAL,
        KafkaError._STATE,
        KafkaError._DESTROY,
    }
)
_HOPELESS = {
    KafkaError.FENCED_INSTANCE_ID: "another process has the same group_instance_id; give each copy its own",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "grant the user READ on the group",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "grant the user READ on the topics",
    KafkaError.INCONSISTENT_GROUP_PROTOCOL: "another application is in the group; use a group of your own",
    KafkaError.INVALID_SESSION_TIMEOUT: "set session.timeout.ms to what the brokers allow",
    KafkaError.INVALID_GROUP_ID: "choose another name for the group",
    KafkaError.GROUP_MAX_SIZE_REACHED: "the brokers allow no more members in the group",
}


class GroupFencedError(StreamRTError):
    """The partitions are not this member's any more; another may own them, so nothing was committed."""


class GroupState(enum.Enum):
    """Where a `GroupMember` is in its life; see the diagram of this module."""

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
        """Whether the assigned partitions are the member's in this state."""
        return self in (GroupState.ASSIGNED, GroupState.REVOKING)


_SUCCESSORS = {
    GroupState.NEW: frozenset({GroupState.JOINING, GroupState.CLOSED}),
    GroupState.JOINING: frozenset({GroupState.ASSIGNED, GroupState.FAILED, GroupState.CLOSED}),
    GroupState.ASSIGNED: frozenset({GroupState.REVOKING, GroupState.JOINING, GroupState.FAILED, GroupState.CLOSED}),
    GroupState.REVOKING: frozenset({GroupState.JOINING, GroupState.FAILED, GroupState.CLOSED}),
    GroupState.FAILED: frozenset({GroupState.CLOSED}),
    GroupState.CLOSED: frozenset[GroupState](),
}


class GroupAssignment(NamedTuple):
    """Partitions and the generation in which they are the member's.

    Attributes:
        generation: counts the assignments of the member.
        partitions: what it owns.
        unbroken: whether the group has had no other generation since the member's assignment before: what the member owned
            then and owns now, no other member can have owned in between.
    """

    generation: int
    partitions: frozenset[TopicPartition]
    unbroken: bool = False

    def follows(self, generation: int) -> bool:
        """Tell whether no other member can have owned, in between, what is owned now and was owned in a former generation.

        Args:
            generation: of the former assignment.
        """
        return self.unbroken and self.generation == generation + 1


class GroupPlace(NamedTuple):
    """Where a member is in the history of its group.

    Attributes:
        member: id that the group's coordinator gave the member. A member that was away for too long gets another one.
        generation: the group's own number of the assignment.

    Example:
        >>> GroupPlace(b"one", 7).follows(GroupPlace(b"one", 6)), GroupPlace(b"one", 8).follows(GroupPlace(b"one", 6))
        (True, False)
    """

    member: bytes
    generation: int

    @classmethod
    def of(cls, consumer: ConfluentConsumer) -> "GroupPlace | None":
        """Return the place of a member that was just assigned partitions; None if this librdkafka does not tell it."""
        # "CGMDv2:", generation, group id, 0, member id, 0, and more. Else, the client keeps the generation to itself.
        metadata = bytes(consumer.consumer_group_metadata())
        start = len(_METADATA) + _GENERATION.size
        ids = metadata[start:].split(b"\0")
        if not metadata.startswith(_METADATA) or len(ids) < 3 or not ids[1]:
            return None
        return cls(ids[1], *_GENERATION.unpack_from(metadata, len(_METADATA)))

    def follows(self, former: "GroupPlace | None") -> bool:
        """Tell whether no other generation lies between two assignments of one member."""
        return former is not None and self == (former.member, former.generation + 1)


class CommitRequest:
    """A commit that waits for the member's thread, and its result."""

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
        """Tell the thread that asked."""
        self.error = error
        self.done.set()

    def refuse(self) -> None:
        """Give up: the partitions are no longer the member's."""
        self.finish(KafkaError(KafkaError.ILLEGAL_GENERATION, "the partitions were given away"))


def is_fatal(error: KafkaError) -> bool:
    """Return whether the client refuses to go on."""
    return bool(error.fatal()) or error.code() == KafkaError._FATAL


def is_fenced(error: KafkaError) -> bool:
    """Return whether the group has moved on without the member."""
    return is_fatal(error) or error.code() in _FENCED


def is_hopeless(error: KafkaError) -> bool:
    """Return whether it makes no sense to go on trying to be a member."""
    return is_fatal(error) or error.code() in _HOPELESS


def advice_for(error: KafkaError) -> str | None:
    """Return what to do about an error that ended a membership, if that is known."""
    # A fatal error tells its cause in its text alone.
    causes = (code for code in _HOPELESS if code == error.code() or KafkaError(code).str() in error.str())
    return next((_HOPELESS[code] for code in causes), None)


def names_of(partitions: Iterable[TopicPartition]) -> str:
    """Return the partitions as messages tell them."""
    return ", ".join(str(partition) for partition in sorted(partitions)) or "no partitions"


def streamrt_error(error: Exception) -> Exception:
    """Return what ended a membership, in StreamRT's terms."""
    if isinstance(error, KafkaException):
        return request_error("the membership in the consumer group ended", error)
    return error
