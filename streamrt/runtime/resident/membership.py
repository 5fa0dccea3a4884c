"""The membership of a resident task in the consumer group: its assignment and its commits.

Two threads meet here. The member's thread waits while the task releases revoked partitions. The task's thread does
everything else, and checks regularly for revocations.
"""

import logging
import threading
import time
from collections.abc import Mapping

from streamrt.kafka import KafkaRequestError
from streamrt.kafka.client import OffsetMetadata
from streamrt.kafka.cluster.topic_ids import DOUBTFUL
from streamrt.kafka.membership.group_state import GroupAssignment, GroupFencedError
from streamrt.records import Positions, TopicPartition
from streamrt.runtime.link_messages import Committed, Link
from streamrt.runtime.resident.resident_feed import Join, Member
from streamrt.runtime.sent import Sent
from streamrt.runtime.spec import TaskSpec
from streamrt.runtime.topic_identity import InputIdentity

__all__ = ["NO_ASSIGNMENT", "Membership"]

logger = logging.getLogger("streamrt")

NO_ASSIGNMENT = GroupAssignment(0, frozenset())
_REVOKE_S = 36.0
_ACCEPT_S = 30.0
_CLOSE_S = 0.2


class Membership:
    """The task's view of the group. Used by the task's thread, except for the two callbacks of the member.

    Args:
        join: creates the member.
        link: receives a message for each commit.
        spec: the application.
        identity: says whether the inputs are still the same topics; None if that is not asked.

    Attributes:
        assignment: the assignment that the task works on, or has requested the start offsets of.
        claims: with at-least-once, the numbers of the task's claims.
    """

    def __init__(self, join: Join, link: Link, spec: TaskSpec, identity: InputIdentity | None = None) -> None:
        self._member: Member = join(self._on_revoke, self._on_lost)
        self._link = link
        self._identity = InputIdentity(lambda topics: {}, {}) if identity is None else identity
        self._transactional = spec.transactional
        self._metadata = spec.commit_metadata
        self.assignment = NO_ASSIGNMENT
        self.claims: Mapping[TopicPartition, int] = {}
        self._uncommitted = Positions()
        self._sent: dict[TopicPartition, Mapping[str, Sent]] = {}
        # Signals between the member's threads and the task's thread.
        self._revoking = threading.Event()
        self._drained = threading.Event()
        self._lost = threading.Event()
        self._accepted = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.get_ident()

    def start(self) -> None:
        """Join the group."""
        self._member.start()

    def join_again(self) -> None:
        """Have the group divide its partitions among all of its members now."""
        self._member.join_again()

    @property
    def away(self) -> bool:
        """Whether no broker is reachable at the moment."""
        return self._member.away

    def current(self) -> GroupAssignment | None:
        """Return the current assignment; None while there is none.

        Raises:
            StreamRTError: the error that ended the member.
        """
        return self._member.current_assignment(0.0)

    def close(self) -> None:
        """Leave the group. The task has released all partitions."""
        self._closing.set()
        self._drained.set()
        self._accepted.set()
        self._member.close()

    # -- Revoked and lost partitions -----------------------------------------------------------------------------------

    @property
    def revocation_pending(self) -> bool:
        """Whether the group waits for revoked partitions."""
        return self._revoking.is_set()

    def acknowledge_revocation(self) -> None:
        """Confirm that the task has released the partitions."""
        self._revoking.clear()
        self._drained.set()

    @property
    def lost(self) -> bool:
        """Whether the partitions may be reassigned already, so that nothing can be committed for them."""
        return self._lost.is_set()

    def accept_loss(self) -> None:
        """Acknowledge a loss, and let the member join again."""
        self._lost.clear()
        self._accepted.set()

    def _on_revoke(self, _partitions: frozenset[TopicPartition]) -> None:
        """Wait, in a thread of the member, until the task has released its partitions."""
        if self._closing.is_set():
            return
        self._drained.clear()
        self._revoking.set()
        if self._closing.is_set():
            return
        if not self._drained.wait(_REVOKE_S):
            logger.warning("running tasks did not finish before a rebalance; another member reprocesses their records")
            self._lost.set()

    def _on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        if self._closing.is_set():
            return
        logger.warning(
            "group session timed out: %s may have been reassigned; uncommitted records will be reprocessed",
            ", ".join(map(str, sorted(partitions))),
        )
        self._accepted.clear()
        self._lost.set()
        # A task that has been replaced learns this before its member rejoins, and so does not take over the static
        # membership of its successor. A busy task could not use a new assignment anyway.
        if not self._closing.is_set() and threading.get_ident() != self._thread:
            self._accepted.wait(_ACCEPT_S)
            if self._closing.is_set():
                # The task closes the member next, and this waits for the current thread.
                time.sleep(_CLOSE_S)

    # -- Offsets -------------------------------------------------------------------------------------------------------

    @property
    def has_pending_commit(self) -> bool:
        """Whether there are offsets whose commit failed."""
        return bool(self._uncommitted)

    def forget(self) -> None:
        """Forget offsets whose commit failed; their partitions are released."""
        self._uncommitted = Positions()
        self._sent = {}

    def commit(
        self, offsets: Mapping[TopicPartition, int], sent: Mapping[TopicPartition, Mapping[str, Sent]] | None = None
    ) -> bool:
        """Commit the offsets of finished work, and those whose commit failed before.

        Args:
            offsets: next offset of each input partition.
            sent: event times sent into exchanges up to these offsets.

        Returns:
            Whether the commit succeeded.

        Raises:
            KafkaRequestError: if the commit fails with an error that is not retriable.
            StaleTokenError: if an input was deleted and created again.
        """
        wanted = Positions(self._uncommitted)
        wanted.advance(offsets)
        self._sent.update(sent or {})
        return self._commit_offsets(wanted, self._metadata.encode_all(wanted, self.claims, self._sent))

    def commit_initial_offsets(self, offsets: Mapping[TopicPartition, int], metadata: OffsetMetadata = None) -> bool:
        """Commit the start offsets, before anything is processed.

        Args:
            offsets: next offset of each input partition.
            metadata: metadata of these offsets.

        Returns:
            Whether the commit succeeded.

        Raises:
            KafkaRequestError: if the commit fails with an error that is not retriable.
        """
        return self._commit_offsets(offsets, metadata)

    def _commit_offsets(self, wanted: Mapping[TopicPartition, int], metadata: OffsetMetadata) -> bool:
        try:
            self._identity.require()
            self._member.commit(wanted, generation=self.assignment.generation, metadata=metadata)
        except GroupFencedError as error:
            logger.warning("%s; records since the last commit will be reprocessed", error)
            self._lost.set()
        except KafkaRequestError as error:
            if not error.retriable:
                raise
            if error.code in DOUBTFUL:
                self._identity.doubt(str(error), {partition.topic for partition in wanted})
            logger.warning("%s; retrying later", error)
            if not self._transactional:
                # Not with exactly-once: a transaction may have moved the offsets before the retry.
                self._uncommitted = Positions(wanted)
        else:
            self._uncommitted = Positions()
            self._link.send(Committed(dict(wanted)))
            return True
        return False
