"""`RowAdoption`: rows that a table has before an application maintains it become those of the application."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streamrt.errors import LookupUnavailableError, SerializationError, StaleTokenError
from streamrt.joins.notes import Warnings
from streamrt.kafka import KafkaRequestError
from streamrt.kafka.cluster.topic_ids import confirmed_ids
from streamrt.records import Tick, TopicPartition
from streamrt.serializers import MessageField, SerializationContext
from streamrt.topology import Node, OperatorContext, StateAccess, TaskAccess

if TYPE_CHECKING:
    # With pyarrow, which programs without tables do not wait for.
    from streamrt.tables.access.links import RecordFeed
    from streamrt.tables.access.task_links import TaskLinks
    from streamrt.tables.descriptions.topics import TableTopic

__all__ = ["RowAdoption", "TakeRow"]

logger = logging.getLogger("streamrt")

TakeRow = Callable[[Any, Any, int], None]
"""Takes key, row (None for none) and timestamp of a record of the table."""

_ADOPTED: Final = "adopted"
_POLL_S: Final = 0.1
_RECORDS: Final = 1_000


class _Progress(NamedTuple):
    """How far a partition is read: up to offset `at`, of those below `end`, where it ended when reading began."""

    topic_id: str | None
    at: int
    end: int


class RowAdoption:
    """Reads the records that a partition of a table already has, in portions, before the first request of the partition.

    Its progress is in the store, under the key None, and is committed with the rows. So a group does it once for each state:
    at its beginning, and again if that state was given up. All rows that are written later are its own. At the end, the id of
    the topic is there: in another topic, the rows of the group would be missing.

    Args:
        topic: the topic of the table.
        task_links: how tasks read it.
        take: takes a record.
        state_of: returns the state of a key.
        access: knows the task at work.
        node: the node of the operator.
        context: the services of the task.
    """

    def __init__(
        self,
        topic: TableTopic,
        task_links: TaskLinks,
        take: TakeRow,
        state_of: StateAccess,
        access: TaskAccess,
        node: Node,
        context: OperatorContext,
    ) -> None:
        self._topic = topic
        self._task_links = task_links
        self._take = take
        self._state_of = state_of
        self._access = access
        self._node = node
        self._begin_portion = context.begin_portion
        self._unreadable = Warnings(
            f"%s left out the record at offset %d of {topic.name}[%d], which is not a row of table {topic.table}: a request "
            "for its key makes a new row (%s)",
            node,
        )
        self._of_key = SerializationContext(topic.name, MessageField.KEY)
        self._of_value = SerializationContext(topic.name, MessageField.VALUE)
        self._taken = False
        self._compared: set[TopicPartition] = set()
        self._feed: RecordFeed | None = None
        self._fed: tuple[TopicPartition, int] | None = None
        context.on_close(self._close_feed)

    def handle_tick(self, moment: Tick) -> None:
        """Read records until the portion is over; the next ticks read the rest.

        Args:
            moment: the tick.

        Raises:
            LookupUnavailableError: if brokers do not answer, or refuse. No callback may skip that: requests would not find
                the rows.
            StaleTokenError: if the topic was deleted and created again meanwhile, or since its rows were read.
        """
        try:
            self._adopt_rows(moment)
        except KafkaRequestError as error:
            raise LookupUnavailableError(
                f"the rows that table {self._topic.table!r} has already could not be read: {error}"
            ) from error

    def _adopt_rows(self, moment: Tick) -> None:
        state = self._state_of(None, moment.now)
        stored = state.get(_ADOPTED)
        partition = TopicPartition(self._topic.name, self._access.task().partition)
        if stored is True or isinstance(stored, str):
            if stored is not True and partition not in self._compared:
                self._refuse_recreated(stored)
                self._compared.add(partition)
            return
        progress = self._begin(partition) if stored is None else _Progress(*stored)
        must_stop = self._begin_portion(self._node)
        while progress.at < progress.end and not must_stop():
            progress = self._read_on(partition, progress)
        if progress.at < progress.end:
            state.set(_ADOPTED, list(progress))
            return
        self._close_feed()
        state.set(_ADOPTED, progress.topic_id or True)
        if stored is not None or self._taken:
            logger.info("table %s: the rows in %s are part of the state now", self._topic.table, partition)
        self._taken = False

    def _begin(self, partition: TopicPartition) -> _Progress:
        admin, timeout = self._task_links.links.admin(), self._task_links.timeout
        topic_id = admin.topic_ids([partition.topic], timeout)[partition.topic]
        low, high = admin.offset_bounds([partition], timeout)[partition]
        return _Progress(topic_id, low, max(low, high))

    def _read_on(self, partition: TopicPartition, progress: _Progress) -> _Progress:
        self._refuse_recreated(progress.topic_id)
        feed = self._open_feed(partition, progress.at)
        at = progress.at
        for _, records in feed.poll(_POLL_S, _RECORDS):
            for offset, key, value, timestamp in zip(
                records.offsets, records.keys, records.values, records.timestamps, strict=True
            ):
                if offset < progress.end and key is not None:
                    self._take_record(offset, key, value, timestamp)
                at = offset + 1
        at = max(at, feed.ends().get(partition, at))
        self._fed = partition, at
        return progress._replace(at=at)

    def _refuse_recreated(self, topic_id: str | None) -> None:
        before = {self._topic.name: topic_id}
        found = confirmed_ids(self._task_links.links.admin().topic_ids, before, timeout=self._task_links.timeout)
        if None not in (topic_id, found[self._topic.name]) and found != before:
            raise StaleTokenError(
                f"topic {self._topic.name!r} of table {self._topic.table!r} was deleted and created again, so the rows that "
                "the application has are not in it: stop all instances, and let the application start over with "
                "`streamrt reset`, which gives these rows up, and takes those of the new topic"
            )

    def _take_record(self, offset: int, data: bytes, value: bytes | None, timestamp: int) -> None:
        key = row = None
        try:
            key = self._topic.key_deserializer(data, self._of_key)
            row = None if value is None else self._topic.value_deserializer(value, self._of_value)
        except SerializationError as error:
            self._unreadable.note(offset, self._access.task().partition, error)
        if key is not None:
            self._take(key, row, timestamp)
            self._taken = True

    def _open_feed(self, partition: TopicPartition, at: int) -> RecordFeed:
        if self._feed is None or self._fed != (partition, at):
            self._close_feed()
            self._feed, self._fed = self._task_links.links.feed(), (partition, at)
            self._feed.add({partition: at})
            self._feed.resume([partition])
        return self._feed

    def _close_feed(self) -> None:
        if self._feed is not None:
            self._feed.close()
            self._feed = self._fed = None
