"""The driver's commits in micro-batch mode: offsets to the consumer group."""

import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Mapping

from streamrt.config import ApplicationConfig
from streamrt.kafka import KafkaRequestError, TopicAdmin
from streamrt.kafka.cluster.topic_ids import DOUBTFUL
from streamrt.kafka.membership.group_member import GroupMember
from streamrt.kafka.membership.group_state import GroupFencedError
from streamrt.records import Positions, TopicPartition
from streamrt.runs.processed_purge import ProcessedPurge
from streamrt.runs.start_positions import Start
from streamrt.runtime.driver.life.schedule import CommitSchedule
from streamrt.runtime.driver.observation.progress import Progress
from streamrt.runtime.report import Report
from streamrt.runtime.sent import SentTimes
from streamrt.runtime.spec import TaskSpec
from streamrt.runtime.topic_identity import InputIdentity
from streamrt.spark.query import MicroBatchQuery

logger = logging.getLogger("streamrt")


class Commits:
    """Commits offsets. At least once, the group member commits on a schedule; exactly once, tasks commit all but markers.

    Args:
        config: has the commit interval.
        spec: has the processing guarantee.
        progress: updated with offsets that are committed without being processed.
        purge: receives committed offsets.
        lost: set when the group no longer accepts commits of this member.
        admin: requests the metadata of committed offsets.
        identity: says whether the inputs are still the same topics; None if that is not asked.
    """

    def __init__(
        self,
        config: ApplicationConfig,
        spec: TaskSpec,
        progress: Progress,
        purge: ProcessedPurge,
        lost: threading.Event,
        admin: TopicAdmin,
        identity: InputIdentity | None = None,
    ) -> None:
        self._identity = InputIdentity(lambda topics: {}, {}) if identity is None else identity
        self._schedule = CommitSchedule(config.commit_interval, config.commit_every)
        self._interval = config.commit_interval
        self._transactional = spec.transactional
        self._topology = spec.topology
        self._admin = admin
        self._group, self._timeout = config.consumer_group, config.request_timeout
        self._metadata = spec.commit_metadata
        self._claims: Mapping[TopicPartition, int] = {}
        self._sent = SentTimes(spec.topology)
        self._progress = progress
        self._purge = purge
        self._lost = lost
        self._member: GroupMember | None = None
        self._generation = 0
        self._positions = Positions()
        self._markers_at = 0.0
        # The micro-batches under way, and what was committed since they have begun.
        self._reading = 0
        self._withheld = Positions()
        self._lock = threading.RLock()

    def start(
        self,
        member: GroupMember,
        generation: int,
        start: Start,
    ) -> None:
        """Begin with the offsets of a new assignment."""
        with self._lock:
            self._member, self._generation = member, generation
            self._claims = start.claims
            self._sent.begin(start.sent, start.sent)
            self._positions = Positions(start.positions)
            self._schedule.start(dict(start.positions), time.monotonic())

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Keep the records of a micro-batch until it has ended: slice after slice, Spark reads it from its beginning."""
        with self._lock:
            self._reading += 1
        try:
            yield
        finally:
            with self._lock:
                self._reading -= 1
                if not self._reading:
                    withheld, self._withheld = self._withheld, Positions()
                    self._purge.offer(withheld)

    def report(self, report: Report) -> None:
        """Note the progress of a micro-batch, and commit it if a commit is due."""
        with self._lock:
            offsets = {partition: done.end for partition, done in report.ranges.items()}
            self._positions.advance(offsets)
            if self._transactional:
                # Only offsets that a transaction has committed: a session without records commits nothing.
                self._offer_to_purge(
                    {
                        partition: at
                        for partition, at in offsets.items()
                        if self._topology.task(partition) in report.workers
                    }
                )
                return
            self._sent.note(report)
            self._schedule.processed(offsets, report.records)
            if self._schedule.due(time.monotonic()):
                self.commit()

    def tick(self, query: MicroBatchQuery) -> None:
        """Make the commits that are due; call it often."""
        with self._lock:
            now = time.monotonic()
            if self._transactional:
                if now - self._markers_at >= self._interval:
                    self._markers_at = now
                    query.between_batches(lambda: self._commit_markers(query))
            elif self._schedule.due(now):
                self.commit()
            elif self._schedule.quiet(now):
                # Transaction markers at the end of a partition are not records, but count as lag.
                self._schedule.committed({}, now)
                self._schedule.processed(query.finished_offsets(), 0)
                self._progress.processed_to(self._schedule.pending())

    def commit(self) -> bool:
        """Commit the processed offsets; return whether all are committed.

        Raises:
            StaleTokenError: if an input was deleted and created again.
            KafkaRequestError: if the commit fails with an error that is not retriable.
        """
        with self._lock:
            offsets = self._schedule.pending()
            if not offsets or self._member is None:
                return True
            committed = True
            try:
                metadata = self._metadata.encode_all(offsets, self._claims, self._sent.of(offsets))
                self._identity.require()
                self._member.commit(offsets, generation=self._generation, metadata=metadata)
            except GroupFencedError as error:
                logger.warning("%s; uncommitted records will be reprocessed", error)
                self._lost.set()
            except KafkaRequestError as error:
                if not error.retriable:
                    raise
                if error.code in DOUBTFUL:
                    self._identity.doubt(str(error), {partition.topic for partition in offsets})
                logger.warning("%s; retrying later", error)
                offsets, committed = {}, False
            self._schedule.committed(offsets, time.monotonic())
            self._offer_to_purge(offsets)
            return committed

    def _offer_to_purge(self, offsets: Mapping[TopicPartition, int]) -> None:
        if self._reading:
            self._withheld.advance(offsets)
        else:
            self._purge.offer(offsets)

    def _commit_markers(self, query: MicroBatchQuery) -> None:
        """Move the group past transaction markers at the ends of partitions; only while no tasks run.

        Tasks commit the offsets of records in their transactions. A concurrent commit of the driver could move the
        group back.
        """
        ends = query.finished_offsets()
        offsets = {partition: end for partition, end in ends.items() if end > self._positions.get(partition, end)}
        if not offsets or self._member is None:
            return
        try:
            # The metadata, which names owner and stores of a partition, is kept: no record was processed.
            found = self._admin.committed_stable(self._group, list(offsets), timeout=self._timeout)
            metadata = {partition: committed.metadata for partition, committed in found.items()}
            # Kafka deletes offsets with their topic.
            gone = {partition.topic for partition, committed in found.items() if committed.offset is None}
            if gone:
                self._identity.doubt("the group has no committed offset of it any more", gone)
            self._identity.require()
            offsets = {partition: end for partition, end in offsets.items() if partition.topic not in gone}
            self._member.commit(offsets, generation=self._generation, metadata=metadata)
        except (GroupFencedError, KafkaRequestError) as error:
            logger.debug("the markers at the ends of partitions were not committed: %s", error)
            return
        query.moved(offsets)
        self._positions.advance(offsets)
        self._progress.processed_to(offsets)
