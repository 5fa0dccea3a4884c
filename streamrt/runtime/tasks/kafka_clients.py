"""The Kafka clients of tasks: one set for each process that runs tasks."""

import contextlib
import logging
import time
import uuid
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from streamrt.errors import ChangelogError, StreamRTError
from streamrt.kafka import ConnectionConfig, TopicAdmin
from streamrt.kafka.cluster.committed import CommittedOffset
from streamrt.kafka.reading.changelog_reader import ChangelogReader
from streamrt.kafka.reading.input_reader import InputReader
from streamrt.kafka.writing.record_writer import KafkaRecordWriter
from streamrt.kafka.writing.transactions import TRANSACTIONAL_ID_PREFIX, KafkaTransactionalWriter, transactional_id
from streamrt.records import TopicPartition
from streamrt.runtime.chunk import Chunk
from streamrt.runtime.tasks.task_clients import ChangelogRecords, RecordWriter, TransactionalRecordWriter
from streamrt.topology import TaskId

logger = logging.getLogger("streamrt")

KEPT_WRITERS = 64
"""Maximum number of transactional producers per process in micro-batch mode. Each uses threads and memory."""
_INIT_S = 60.0
_ANSWER_S = 30.0
_IDS_S = 5.0
_CHANGELOG_S = 120.0


class KafkaTaskClients:
    """Implements `TaskClients`. Clients are created on first use and cached.

    Args:
        connection: the brokers and the login.
        group: the consumer group.
        producer_options: the user's producer options, with librdkafka's names.
        producer_poll_timeout: seconds that each poll of a producer may wait for events.
        kept_writers: maximum number of cached transactional producers; None for no limit, which concurrent transactions
            need.
    """

    def __init__(
        self,
        connection: ConnectionConfig,
        group: str,
        producer_options: Mapping[str, Any] | None = None,
        producer_poll_timeout: float = 0.0,
        kept_writers: int | None = KEPT_WRITERS,
    ) -> None:
        self._connection = connection
        self._group = group
        self._options = dict(producer_options or {})
        self._poll_timeout = producer_poll_timeout
        self._kept_writers = kept_writers
        self._worker = uuid.uuid4().hex
        self._admin = TopicAdmin(connection)
        self._writer: KafkaRecordWriter | None = None
        self._transactional: OrderedDict[TaskId, KafkaTransactionalWriter] = OrderedDict()
        self._prepared: dict[TaskId, KafkaTransactionalWriter | StreamRTError] = {}
        self._reader: ChangelogReader | None = None
        self._idle_readers: list[InputReader] = []
        self._empty: dict[TopicPartition, tuple[int, int]] = {}

    @property
    def worker(self) -> str:
        """A unique name of this process among those that run tasks of the application."""
        return self._worker

    @property
    def failed(self) -> bool:
        """Whether a client had a fatal error, so that all clients must be replaced."""
        return self._writer is not None and self._writer.failed

    def writer(self) -> RecordWriter:
        """Return the writer for at-least-once; tasks share it."""
        if self._writer is None or self._writer.failed:
            self._writer = KafkaRecordWriter(self._connection, self._options, self._poll_timeout)
        return self._writer

    def kept(self, task: TaskId) -> TransactionalRecordWriter | None:
        """Return the transactional writer that this process has for a task, if it is still usable."""
        writer = self._transactional.get(task)
        if writer is None or not writer.usable:
            return None
        self._transactional.move_to_end(task)
        return writer

    def prepare_writers(self, owners: Mapping[TaskId, TopicPartition]) -> None:
        """Start the transactional writers of several tasks at once, since each waits for brokers."""

        def try_to_begin(owner: TopicPartition) -> KafkaTransactionalWriter | StreamRTError:
            try:
                return self._begin_writer(owner, owner.topic)
            except StreamRTError as error:
                return error

        missing = [task for task in owners if not isinstance(self._prepared.get(task), KafkaTransactionalWriter)]
        if missing:
            with ThreadPoolExecutor(len(missing), "streamrt-init") as pool:
                self._prepared.update(
                    zip(missing, pool.map(try_to_begin, map(owners.__getitem__, missing)), strict=True)
                )

    def transactional(self, task: TaskId, owner: TopicPartition) -> TransactionalRecordWriter:
        """Create and keep a transactional writer for a task; it fences every earlier writer with the same id.

        Raises:
            TransactionError: if Kafka rejects the start of the writer.
        """
        prepared = self._prepared.pop(task, None)
        self.release(task)
        if isinstance(prepared, StreamRTError):
            raise prepared
        while self._kept_writers is not None and len(self._transactional) >= self._kept_writers:
            self.release(next(iter(self._transactional)))
        writer = self._transactional[task] = prepared or self._begin_writer(owner, owner.topic)
        return writer

    @contextlib.contextmanager
    def claiming(self, owner: TopicPartition, topic: str) -> Iterator[TransactionalRecordWriter]:
        """Return a temporary transactional writer; it fences every earlier writer with the same id.

        Raises:
            TransactionError: if Kafka rejects the start of the writer.
        """
        writer = self._begin_writer(owner, topic)
        try:
            yield writer
        finally:
            writer.close()

    def _begin_writer(self, owner: TopicPartition, topic: str) -> KafkaTransactionalWriter:
        writer = KafkaTransactionalWriter(
            self._connection,
            transactional_id(TRANSACTIONAL_ID_PREFIX, self._group, *owner),
            self._group,
            self._options,
            self._poll_timeout,
        )
        try:
            writer.init(_INIT_S, topic)
        except BaseException:
            writer.close()
            raise
        return writer

    @property
    def delivered(self) -> bool:
        """Whether no record of the at-least-once writer is in flight."""
        return self._writer is None or self._writer.delivered

    def send_pending(self) -> None:
        """Send lingering records of the at-least-once writer. Transactional records are invisible before the commit."""
        if self._writer is not None:
            self._writer.send_pending()

    def release(self, task: TaskId) -> None:
        """Drop the transactional writer of a task."""
        for writer in (self._transactional.pop(task, None), self._prepared.pop(task, None)):
            if isinstance(writer, KafkaTransactionalWriter):
                writer.close()

    def committed(self, partition: TopicPartition) -> int | None:
        """Return the committed offset of the group, after pending transactions on it have ended."""
        return self._admin.committed_stable(self._group, [partition], timeout=_ANSWER_S)[partition].offset

    def noted(self, partitions: Iterable[TopicPartition], *, stable: bool) -> Mapping[TopicPartition, CommittedOffset]:
        """Return the committed offsets of input partitions with their metadata."""
        ask = self._admin.committed_stable if stable else self._admin.committed_now
        return ask(self._group, list(partitions), timeout=_ANSWER_S)

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        """Return the first offset and the high watermark of a partition; records of open transactions count."""
        return self._admin.bounds(partition, timeout=_ANSWER_S)

    def ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the high watermarks of partitions, with one request; see `bounds`."""
        return self._admin.offset_ends((), partitions, _ANSWER_S)[1]

    def changelog(self, partition: TopicPartition, start: int, end: int) -> Iterator[ChangelogRecords]:
        """Yield the committed records of a changelog partition from `start` to `end`.

        Raises:
            ChangelogError: if `end` cannot be reached.
        """
        if self._reader is None:
            self._reader = ChangelogReader(self._connection)
        return self._reader.read(partition, start, end, timeout_s=_CHANGELOG_S)

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str | None]:
        """Return Kafka's ids of topics; None for one that does not exist."""
        return self._admin.topic_ids(topics, timeout=_IDS_S)

    def log_end(self, partition: TopicPartition) -> int:
        """Return the last stable offset of an input partition."""
        found = self._admin.offset_bounds([partition], _ANSWER_S, isolation_level="read_committed")
        return found[partition][1]

    def read(self, partition: TopicPartition, start: int, end: int) -> Iterator[Chunk]:
        """Yield the committed records of an input partition from `start` to below `end`.

        Raises:
            KafkaRequestError: if the records cannot be read.
        """
        empty = self._empty.get(partition)
        if empty is not None and empty[0] <= start <= empty[1]:
            # Skip transaction markers at the end of the log, which would be read again each time.
            start = empty[1]
        if start >= end:
            return
        # Several inputs may be read concurrently, and a reader reads one partition at a time.
        reader = self._idle_readers.pop() if self._idle_readers else InputReader(self._connection)
        found = False
        try:
            for batch in reader.read(partition, start, end, timeout_s=_ANSWER_S):
                if batch.offsets:
                    found = True
                    yield Chunk(partition.topic, partition.partition, *batch)
            if not found:
                self._empty[partition] = start, end
        finally:
            self._idle_readers.append(reader)

    def has_records(self, partition: TopicPartition, start: int, end: int) -> bool:
        """Return whether an offset range of a partition has committed records, and not only transaction markers."""
        low, _ = self.bounds(partition)
        if start < low:
            # Retention and purges delete processed records and markers alike, so the range may have held only markers.
            # If unprocessed records were deleted, this was reported when the group's offset was moved past them.
            logger.info(
                "%s: offsets %d to %d are deleted; they do not count as missing in state", partition, start, low
            )
        begin = max(start, low)
        try:
            return begin < end and any(batch.keys for batch in self.changelog(partition, begin, end))
        except ChangelogError:
            return True

    def now(self) -> int:
        """Return the wall clock in milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000

    def close(self) -> None:
        """Close all clients. Open transactions stay open until the next owner fences them."""
        for task in (*self._transactional, *self._prepared):
            self.release(task)
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        while self._idle_readers:
            self._idle_readers.pop().close()
        self._admin.close()
