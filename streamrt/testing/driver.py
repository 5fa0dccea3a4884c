"""`TopologyTestDriver`: an application in this process, without Kafka, Spark or Java.

The driver feeds records to the same tasks that run in production and keeps what they produce. Only the edges differ:
records come from `pipe`, and go to memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any

from typing_extensions import Self

from streamrt.errors import InvalidOperationError
from streamrt.models import Headers, TimestampType
from streamrt.runtime import BatchContext, Chunk, Output, Report, Tasks
from streamrt.runtime.display import Display
from streamrt.serializers import MessageField
from streamrt.topics import Topic

if TYPE_CHECKING:
    from streamrt.app import Application


@dataclass(frozen=True)
class TestRecord:
    """A record in a topic of the test driver, deserialized with the topic's deserializers.

    Attributes:
        key: the key.
        value: the value.
        timestamp: milliseconds since the Unix epoch.
        headers: the headers, or None where there are none.
        raw_key: the key's bytes.
        raw_value: the value's bytes, or None for a tombstone.
    """

    __test__ = False  # pytest must not take the class for a test

    key: Any
    value: Any
    timestamp: int
    headers: Headers | None
    raw_key: bytes | None
    raw_value: bytes | None


@dataclass(frozen=True)
class _Written:
    value: bytes | None
    key: bytes | None
    timestamp: int
    headers: Headers | None


class _MemoryWriter:
    """The edge towards Kafka: keeps records by topic."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self.topics: dict[str, list[_Written]] = {}

    def produce(
        self, topic: str, value: bytes | None, key: bytes | None, timestamp: int, headers: Headers | None
    ) -> None:
        # librdkafka takes 0 for "now".
        record = _Written(value, key, timestamp or self._now(), headers)
        self.topics.setdefault(topic, []).append(record)

    def flush(self) -> list[Exception]:
        return []


class TopologyTestDriver:
    """Runs the dataframes of an application record by record, synchronously.

    Values are serialized and deserialized as in production, errors go to the application's callbacks, and an operator that
    could not be sent to Spark is refused here too. Functions run in this process, so they may append to lists of a test.

    Args:
        app: the application; its broker is never contacted.
        start: wall clock of the driver at the beginning, in milliseconds since the Unix epoch. Records that are piped
            without a timestamp get the wall clock, which `advance` moves; it does not move by itself.

    Raises:
        UnpicklableOperatorError: if an operator could not be sent to the processes that run tasks.
        InvalidOperationError: if the application has no dataframe.

    Example:
        ```python
        def test_late_flights():
            app = Application(broker_address="unused:9092")
            flights, late = app.topic("flights"), app.topic("late")
            sdf = app.dataframe(flights)
            sdf[sdf["dep_delay"] > 60].to_topic(late)
            driver = TopologyTestDriver(app)
            driver.pipe(flights, {"dep_delay": 90}, key="UA")
            driver.pipe(flights, {"dep_delay": 5}, key="UA")
            assert [record.value for record in driver.read(late)] == [{"dep_delay": 90}]
        ```
    """

    def __init__(self, app: Application, *, start: int = 0) -> None:
        spec = app.task_spec(count_outputs=True, collect=True)
        if not spec.topology.sources:
            raise InvalidOperationError("there is nothing to test: the application has no dataframe")
        spec.dumps()
        self._app = app
        self._now = start
        self._writer = _MemoryWriter(lambda: self._now)
        self._tasks = Tasks(spec, self._writer)
        self._display = Display(spec.topology)
        self._offsets: dict[tuple[str, int], int] = {}
        self._read: dict[str, int] = {}
        self._outputs: list[Output] = []
        self._on_message_processed = app.on_message_processed

    @property
    def now(self) -> int:
        """The driver's wall clock, in milliseconds since the Unix epoch."""
        return self._now

    def advance(self, by: timedelta | int) -> None:
        """Move the wall clock on.

        Args:
            by: how far, as a timedelta or in milliseconds; not negative.
        """
        step = by // timedelta(milliseconds=1) if isinstance(by, timedelta) else by
        if step < 0:
            raise InvalidOperationError("the wall clock cannot go back")
        self._now += step

    def pipe(
        self,
        topic: Topic | str,
        value: Any = None,
        *,
        key: Any = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
        partition: int = 0,
    ) -> None:
        """Send one record through the application.

        Args:
            topic: an input topic.
            value: the value, serialized by the topic's value serializer; None sends a tombstone.
            key: the key, serialized by the topic's key serializer.
            timestamp: milliseconds since the Unix epoch; the wall clock by default.
            headers: the headers.
            partition: the partition to send it to.

        Raises:
            ProcessingError: if an operator failed and no callback skipped the record; likewise `ConsumerError` and
                `ProducerError`.
        """
        known = self._topic(topic)
        to_value = known.value_serializer.bind(known.name, MessageField.VALUE)
        to_key = known.key_serializer.bind(known.name, MessageField.KEY)
        self.pipe_bytes(
            known,
            None if value is None else to_value(value, headers),
            key=None if key is None else to_key(key, headers),
            timestamp=timestamp,
            headers=headers,
            partition=partition,
        )

    def pipe_bytes(
        self,
        topic: Topic | str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
        partition: int = 0,
    ) -> None:
        """Send one record of raw bytes through the application: for testing what bad input does.

        Args:
            topic: an input topic.
            value: the value's bytes; None is a tombstone.
            key: the key's bytes.
            timestamp: milliseconds since the Unix epoch; the wall clock by default.
            headers: the headers.
            partition: the partition to send it to.

        Raises:
            ProcessingError: if an operator failed and no callback skipped the record; likewise `ConsumerError` and
                `ProducerError`.
        """
        name = topic if isinstance(topic, str) else topic.name
        if name not in self._app.topology.sources:
            known = ", ".join(self._app.topology.sources)
            raise InvalidOperationError(f"no dataframe reads topic {name!r}; the application reads {known}")
        offset = self._offsets.get((name, partition), 0)
        self._offsets[name, partition] = offset + 1
        chunk = Chunk(
            topic=name,
            partition=partition,
            offsets=[offset],
            keys=[key],
            values=[value],
            timestamps=[self._now if timestamp is None else timestamp],
            timestamp_types=[TimestampType.TIMESTAMP_CREATE_TIME],
            headers=[headers] if headers else None,
        )
        self._take(self._tasks.run([chunk], BatchContext()))

    def read(self, topic: Topic | str) -> list[TestRecord]:
        """Return the records produced to a topic since the last call.

        Args:
            topic: an output topic.
        """
        known = self._topic(topic)
        written = self._writer.topics.get(known.name, [])
        start = self._read.get(known.name, 0)
        self._read[known.name] = len(written)
        return [_test_record(known, record) for record in written[start:]]

    def outputs(self) -> list[tuple[Any, Any, int, Any]]:
        """Return value, key, timestamp and headers of what left the branches since the last call."""
        outputs, self._outputs = self._outputs, []
        return [(output.value, output.key, output.timestamp, output.headers) for output in outputs]

    def close(self) -> None:
        """Print the rest of unfinished tables."""
        self._display.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _take(self, report: Report) -> None:
        self._outputs += report.collected
        self._display.show(report.shown)
        if self._on_message_processed is not None:
            for place, offsets in report.processed.items():
                for offset in offsets:
                    self._on_message_processed(place.topic, place.partition, offset)
        if report.failure is not None:
            raise report.failure.error() from report.failure.cause

    def _topic(self, topic: Topic | str) -> Topic:
        if isinstance(topic, Topic):
            return topic
        known = self._app.topic_manager.all_topics.get(topic)
        if known is None:
            raise InvalidOperationError(f"the application has no topic {topic!r}")
        return known


def _test_record(topic: Topic, written: _Written) -> TestRecord:
    load_value = topic.value_deserializer.bind(topic.name, MessageField.VALUE)
    load_key = topic.key_deserializer.bind(topic.name, MessageField.KEY)
    return TestRecord(
        key=None if written.key is None else load_key(written.key, written.headers),
        value=None if written.value is None else load_value(written.value, written.headers),
        timestamp=written.timestamp,
        headers=written.headers,
        raw_key=written.key,
        raw_value=written.value,
    )
