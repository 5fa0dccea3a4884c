"""A resident task's place in the consumer group: what it is assigned, and up to where its work is committed.

Two threads meet here. The member has one of its own, which waits while the task gives partitions back; the task's thread does
all the rest, and looks now and then at what the other one wants.
"""

import logging
import threading
import time
from collections.abc import Mapping

from streamrt.kafka import GroupAssignment, GroupFencedError, KafkaRequestError, OffsetMetadata
from streamrt.models import TopicPartition
from streamrt.runtime.feed import Join, Member
from streamrt.runtime.link import Committed, Link
from streamrt.runtime.sent import Sent
from streamrt.runtime.spec import TaskSpec

__all__ = ["NO_ASSIGNMENT", "Membership"]

logger = logging.getLogger("streamrt")

NO_ASSIGNMENT = GroupAssignment(0, frozenset())
_REVOKE_S = 36.0
_ACCEPT_S = 30.0
_CLOSE_S = 0.2


class Membership:
    """What a resident task knows and wants of the group. Used by the task's thread, but for the two functions of the member.

    Args:
        join: makes the member.
        link: hears of commits.
        spec: the application.

    Attributes:
        assignment: what the task works on, or has asked about.
        claims: at least once, the numbers of the claims under which the task works.
    """

    def __init__(self, join: Join, link: Link, spec: TaskSpec) -> None:
        self._member: Member = join(self._on_revoke, self._on_lost)
        self._link = link
        self._transactional = spec.transactional
        self._metadata = spec.commit_metadata
        self.assignment = NO_ASSIGNMENT
        self.claims: Mapping[TopicPartition, int] = {}
        self._uncommitted: dict[TopicPartition, int] = {}
        self._sent: dict[TopicPartition, Mapping[str, Sent]] = {}
        # Between the member's threads and the task's.
        self._revoking = threading.Event()
        self._drained = threading.Event()
        self._lost = threading.Event()
        self._accepted = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.get_ident()

    def start(self) -> None:
        """Join the group."""
        self._member.start()

    @property
    def away(self) -> bool:
        """Whether no broker answers at the moment."""
        return self._member.away

    def current(self) -> GroupAssignment | None:
        """Return what the group assigns now; None while that is not decided.

        Raises:
            StreamRTError: what made the member fail.
        """
        return self._member.current_assignment(0.0)

    def close(self) -> None:
        """Leave the group; nobody waits for the task any more, which has let go of everything."""
        self._closing.set()
        self._drained.set()
        self._accepted.set()
        self._member.close()

    # -- Partitions go -------------------------------------------------------------------------------------------------

    @property
    def wanted_back(self) -> bool:
        """Whether the group waits for the partitions."""
        return self._revoking.is_set()

    def given_back(self) -> None:
        """Let the group have the partitions, which the task has let go of."""
        self._revoking.clear()
        self._drained.set()

    @property
    def lost(self) -> bool:
        """Whether the partitions are others' by now; nothing can be committed for them."""
        return self._lost.is_set()

    def accept_loss(self) -> None:
        """Go on from a loss, and let the member join again."""
        self._lost.clear()
        self._accepted.set()

    def _on_revoke(self, _partitions: frozenset[TopicPartition]) -> None:
        """Wait, in a thread of the member's, until the task has given back what it has."""
        if self._closing.is_set():
            return
        self._drained.clear()
        self._revoking.set()
        if self._closing.is_set():
            return
        if not self._drained.wait(_REVOKE_S):
            logger.warning("the running tasks did not finish in time; their records will repeat on another member")
            self._lost.set()

    def _on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        if self._closing.is_set():
            return
        logger.warning(
            "no heartbeat has reached the group in time: %s may be with others by now; what is not committed will repeat",
            ", ".join(map(str, sorted(partitions))),
        )
        self._accepted.clear()
        self._lost.set()
        # A task that has a successor finds that out before the member joins again, and takes a static successor's place. One
        # that is busy could not work on anything else either.
        if not self._closing.is_set() and threading.get_ident() != self._thread:
            self._accepted.wait(_ACCEPT_S)
            if self._closing.is_set():
                # The next thing that the task does is to close the member, which waits for this thread.
                time.sleep(_CLOSE_S)

    # -- Offsets -------------------------------------------------------------------------------------------------------

    @property
    def behind(self) -> bool:
        """Whether there are offsets that could not be committed."""
        return bool(self._uncommitted)

    def forget(self) -> None:
        """Forget offsets that could not be committed; the partitions are let go of."""
        self._uncommitted = {}
        self._sent = {}

    def commit(
        self, offsets: Mapping[TopicPartition, int], sent: Mapping[TopicPartition, Mapping[str, Sent]] | None = None
    ) -> bool:
        """Commit offsets up to which work is done, and those that could not be committed before.

        Args:
            offsets: next offset of each input partition.
            sent: what was sent into exchanges until then.

        Returns:
            Whether the group has them.

        Raises:
            KafkaRequestError: if Kafka refuses them for good.
        """
        wanted = {**self._uncommitted, **offsets}
        self._sent.update(sent or {})
        return self._commit(wanted, self._metadata.encode_all(wanted, self.claims, self._sent))

    def commit_fresh(self, offsets: Mapping[TopicPartition, int], metadata: OffsetMetadata = None) -> bool:
        """Commit where the task begins, before anything is processed.

        Args:
            offsets: next offset of each input partition.
            metadata: what is stored with them.

        Returns:
            Whether the group has them.

        Raises:
            KafkaRequestError: if Kafka refuses them for good.
        """
        return self._commit(offsets, metadata)

    def _commit(self, wanted: Mapping[TopicPartition, int], metadata: OffsetMetadata) -> bool:
        try:
            self._member.commit(wanted, generation=self.assignment.generation, metadata=metadata)
        except GroupFencedError as error:
            logger.warning("%s; the records since the last commit will repeat", error)
            self._lost.set()
        except KafkaRequestError as error:
            if not error.retriable:
                raise
            logger.warning("%s; trying again later", error)
            if not self._transactional:
                # Exactly once, a transaction may have moved the group on by then.
                self._uncommitted = dict(wanted)
        else:
            self._uncommitted = {}
            self._link.send(Committed(wanted))
            return True
        return False
