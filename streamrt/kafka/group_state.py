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
import threading
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException

from streamrt.errors import StreamRTError
from streamrt.kafka.client import request_error
from streamrt.models import TopicPartition

__all__ = ["GroupAssignment", "GroupFencedError", "GroupState"]


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
    """Partitions and the generation in which they are the member's."""

    generation: int
    partitions: frozenset[TopicPartition]


class CommitRequest:
    """A commit that waits for the member's thread, and its result."""

    def __init__(
        self, offsets: Mapping[TopicPartition, int], generation: int, deadline: float, metadata: str | None = None
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
