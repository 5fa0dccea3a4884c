"""Where the outputs of a task go: topics, the screen, and whoever counts results."""

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from streamrt.errors import KeySerializationError, SerializationError, ValueSerializationError
from streamrt.models import Headers, merge_headers
from streamrt.operators import PrintTable
from streamrt.operators.metadata import checked_headers
from streamrt.runtime.report import Output
from streamrt.runtime.spec import TaskSpec
from streamrt.serializers import BoundSerializer, MessageField
from streamrt.topics import Topic
from streamrt.topology import Executor

logger = logging.getLogger("streamrt")


class RecordWriter(Protocol):
    """The edge of a task towards Kafka. Kafka's producer is one, the test driver's memory another."""

    def produce(
        self, topic: str, value: bytes | None, key: bytes | None, timestamp: int, headers: Headers | None
    ) -> None:
        """Take a record for delivery; may return before it is delivered.

        Raises:
            ProducerError: if the record is refused at once, such as one that is too large.
        """

    def flush(self) -> list[Exception]:
        """Wait until each record is delivered or has failed; return one error for each that failed."""


class OutputRefused(Exception):  # noqa: N818 - control flow inside the runtime; never seen by users
    """A record could not be produced and the user did not choose to skip it."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class Collector:
    """Implements what operators may use (`OperatorContext`) and counts what they put out.

    Args:
        spec: the application.
        writer: where records go.
        on_error: decides about a record that cannot be produced: True skips it.
        position: tells topic, partition and offset of the input record.
    """

    def __init__(
        self,
        spec: TaskSpec,
        writer: RecordWriter,
        on_error: Callable[[Exception, Any, Any, int, "Headers | None"], bool],
        position: Callable[[], tuple[str, int, int]],
    ) -> None:
        self._writer = writer
        self._on_error = on_error
        self._position = position
        self._collect = spec.collect
        self._tables = {
            node.id: node.operator.size
            for node in spec.topology.nodes
            if isinstance(node.operator, PrintTable) and node.operator.live and spec.live_tables
        }
        self.leaf: Executor = self._leaf if spec.collect or spec.count_outputs else _nothing
        self.reset()

    def reset(self) -> None:
        """Forget what was counted and collected."""
        self.produced = 0
        self.outputs = 0
        self.collected: list[Output] = []
        self._lines: list[tuple[int, Any]] = []
        self._rows: dict[int, deque[Any]] = {node: deque(maxlen=size) for node, size in self._tables.items()}

    def shown(self) -> list[tuple[int, Any]]:
        """Return what was shown since the last reset, in order."""
        return self._lines + [(node, row) for node, rows in self._rows.items() for row in rows]

    def sender(self, topic: Topic) -> Executor:
        """Return the function that serializes a record and hands it to the writer."""
        name = topic.name
        to_value = _serialize(topic.value_serializer.bind(name, MessageField.VALUE), name, ValueSerializationError)
        to_key = _serialize(topic.key_serializer.bind(name, MessageField.KEY), name, KeySerializationError)
        extra = {**topic.key_serializer.extra_headers, **topic.value_serializer.extra_headers}
        produce = self._writer.produce

        def send(value: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
            try:
                if extra:
                    headers = merge_headers(headers, extra)
                produce(name, to_value(value, headers), to_key(key, headers), timestamp, checked_headers(headers))
            except Exception as error:
                if not self._on_error(error, value, key, timestamp, headers):
                    raise OutputRefused(error) from error
            else:
                self.produced += 1

        return send

    def show(self, node_id: int, item: Any) -> None:
        """Keep something for the report; of a live table only the last rows."""
        rows = self._rows.get(node_id)
        if rows is None:
            self._lines.append((node_id, item))
        else:
            rows.append(item)

    def _leaf(self, value: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
        self.outputs += 1
        if self._collect:
            self.collected.append(Output(value, key, timestamp, headers, *self._position()))


def _serialize(serialize: BoundSerializer, topic: str, error_type: type[SerializationError]) -> BoundSerializer:
    def run(value: Any, headers: Headers | None) -> bytes | None:
        try:
            return serialize(value, headers)
        except Exception as error:
            part = "value" if error_type is ValueSerializationError else "key"
            raise error_type(
                f"the {part} of a record for topic {topic!r} cannot be serialized: {error or type(error).__name__}"
            ) from error

    return run


def _nothing(value: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
    """Where outputs end that nobody counts."""
