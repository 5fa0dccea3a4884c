"""Running a dataframe's closures on single values, without tasks, topics or Kafka."""

from typing import Any

from streamrt.models import Headers, MessageContext, MessageTimestamp, TimestampType
from streamrt.operators.metadata import checked_headers, checked_timestamp
from streamrt.serializers import MessageField
from streamrt.topics import Topic
from streamrt.topology import Executor


class TrialContext:
    """Stands in for a task: knows the record, serializes what goes to topics, and shows nothing.

    Args:
        key: key of the record.
        timestamp: its timestamp in milliseconds.
        headers: its headers.
        context: what `message_context()` shall return; by default topic "test", partition 0, offset 0.
    """

    def __init__(self, key: Any, timestamp: int, headers: Headers | None, context: MessageContext | None) -> None:
        self._own = context or MessageContext(
            topic="test",
            partition=0,
            offset=0,
            size=0,
            key=key,
            timestamp=MessageTimestamp.create(TimestampType.TIMESTAMP_CREATE_TIME, timestamp),
            headers=headers,
        )
        self._current = self._own

    def message_context(self) -> MessageContext:
        """Return the context of the record on trial."""
        return self._current

    def set_message_context(self, context: MessageContext | None) -> None:
        """Replace the context; None restores the record's own."""
        self._current = context or self._own

    def sender(self, topic: Topic) -> Executor:
        """Return a function that serializes as a task would, and drops the bytes."""
        to_value = topic.value_serializer.bind(topic.name, MessageField.VALUE)
        to_key = topic.key_serializer.bind(topic.name, MessageField.KEY)

        def send(value: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
            checked_timestamp(timestamp)
            checked_headers(headers)
            if key is not None:
                to_key(key, headers)
            to_value(value, headers)

        return send

    def show(self, node_id: int, item: Any) -> None:
        """Print text as `sdf.print()` would; rows of tables are left out."""
        if isinstance(item, str):
            print(item)  # noqa: T201 - printing is what sdf.print() is for
