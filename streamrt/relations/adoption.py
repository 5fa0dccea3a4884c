"""`RowAdoption`: rows that a table has before an application maintains it become those of the application."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streamrt.errors import SerializationError, StaleTokenError
from streamrt.joins.notes import Warnings
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

_PLACE: Final = "adopted"
_POLL_S: Final = 0.1
_RECORDS: Final = 1_000


class _Place(NamedTuple):
    """How far a partition is read: up to `at`; `end` is where it ended when that began."""

    topic_id: str | None
    at: int
    end: int


class RowAdoption:
    """Reads the records that a partition of a table has when its first request is due, in portions, before that request.

    How far it is stands in the store, under no key, and is committed with the rows. So it happens once for a group, whether
    its state is new, or its former state was given up. Rows that are written later are those of the application.

    Args:
        topic: the topic of the table.
        reached: reads it.
        take: takes a record.
        state_of: returns the state of a key.
        access: knows the task at work.
        node: the node of the operator.
        context: the services of the task.
    """

    def __init__(
        self,
        topic: TableTopic,
        reached: TaskLinks,
        take: TakeRow,
        state_of: StateAccess,
        access: TaskAccess,
        node: Node,
        context: OperatorContext,
    ) -> None:
        self._topic = topic
        self._reached = reached
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
        self._feed: RecordFeed | None = None
        self._fed: tuple[TopicPartition, int] | None = None
        context.on_close(self._close_feed)

    def handle_tick(self, moment: Tick) -> None:
        """Read on, until the portion is over; ticks go on with the rest.

        Args:
            moment: the tick.

        Raises:
            StaleTokenError: if the topic was deleted and created again meanwhile.
        """
        state = self._state_of(None, moment.now)
        stored = state.get(_PLACE)
        if stored is True:
            return
        partition = TopicPartition(self._topic.name, self._access.task().partition)
        place = self._begin(partition) if stored is None else _Place(*stored)
        must_stop = self._begin_portion(self._node)
        while place.at < place.end and not must_stop():
            place = self._read_on(partition, place)
        if place.at < place.end:
            state.set(_PLACE, list(place))
            return
        self._close_feed()
        state.set(_PLACE, True)
        if stored is not None or self._taken:
            logger.info("table %s: the rows in %s are part of the state now", self._topic.table, partition)
        self._taken = False

    def _begin(self, partition: TopicPartition) -> _Place:
        admin, timeout = self._reached.links.admin(), self._reached.timeout
        topic_id = admin.topic_ids([partition.topic], timeout)[partition.topic]
        low, high = admin.offset_bounds([partition], timeout)[partition]
        return _Place(topic_id, low, high if low < high else low)

    def _read_on(self, partition: TopicPartition, place: _Place) -> _Place:
        found = self._reached.links.admin().topic_ids([partition.topic], self._reached.timeout)[partition.topic]
        if found != place.topic_id:
            raise StaleTokenError(
                f"topic {partition.topic!r} of table {self._topic.table!r} was deleted and created again while its rows were "
                "read: start the application again with another consumer_group"
            )
        feed = self._open_feed(partition, place.at)
        at = place.at
        for _, records in feed.poll(_POLL_S, _RECORDS):
            for offset, key, value, timestamp in zip(
                records.offsets, records.keys, records.values, records.timestamps, strict=True
            ):
                if offset < place.end and key is not None:
                    self._take_record(offset, key, value, timestamp)
                at = offset + 1
        at = max(at, feed.ends().get(partition, at))
        self._fed = partition, at
        return place._replace(at=at)

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
            self._feed, self._fed = self._reached.links.feed(), (partition, at)
            self._feed.add({partition: at})
            self._feed.resume([partition])
        return self._feed

    def _close_feed(self) -> None:
        if self._feed is not None:
            self._feed.close()
            self._feed = self._fed = None
