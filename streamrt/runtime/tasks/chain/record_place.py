"""The place of a record in its chunk, for results that come after the next records have begun."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from streamrt.records import Headers, MessageContext, MessageTimestamp, RawRecord
from streamrt.runtime.chunk import Chunk
from streamrt.runtime.tasks.task_clients import RecordWriter
from streamrt.serializers import BoundDeserializer
from streamrt.serializers.base import BatchDeserializer
from streamrt.topics import TimestampExtractor
from streamrt.topology import RecordHandler

__all__ = ["Input", "RecordPlace", "RunRecords", "WholeRuns", "context_of"]

RunRecords = Callable[..., int]
"""Function of the chain, the records, the index of the first one, the limits, and the functions that load values and keys;
returns the index of the last record that it has processed."""


class WholeRuns(Protocol):
    """Makes loops that execute the records of a topic without closures."""

    @property
    def with_bare_loads(self) -> RunRecords:
        """The loop for a function that loads a value without its headers."""

    @property
    def with_batches(self) -> RunRecords:
        """The loop for records some of whose values are loaded."""

    @property
    def with_loads(self) -> RunRecords:
        """The loop for a deserializer."""


@dataclass(frozen=True)
class Input:
    """The processing of one topic's records.

    Attributes:
        execute: takes the records.
        load_value: the deserializer of values.
        load_key: the deserializer of keys; None if keys are bytes, which saves a call per record.
        split: whether a value contains several records.
        extract_timestamp: returns the timestamp of a record; None for that of Kafka.
        whole: executes records without closures; None if closures must do it.
        load_batch: the deserializer of many values that are dicts; None if they are deserialized one by one.
    """

    execute: RecordHandler
    load_value: BoundDeserializer
    load_key: BoundDeserializer | None
    split: bool
    extract_timestamp: TimestampExtractor | None
    whole: WholeRuns | None = None
    load_batch: BatchDeserializer | None = None


class RecordPlace:
    """The place of a record or tick in its chunk; in asynchronous functions, the provider of its context.

    Args:
        chunk: the chunk.
        index: index of the record.
        source: the topic of the record.
        ticking: whether it is a tick.
        item: value, key, timestamp and headers as the source has them.
        context: what replaces the context of the record; None for its own.
        writer: the target of its outputs.
        processed: offsets of processed records, among them this one; None if they are not noted.

    Attributes:
        where: the first five.
        context: see above.
        writer: see above.
    """

    __slots__ = ("_processed", "context", "where", "writer")

    def __init__(
        self,
        chunk: Chunk,
        index: int,
        source: Input,
        ticking: bool,
        item: tuple[Any, Any, int, Headers | None],
        context: MessageContext | None,
        writer: RecordWriter,
        processed: list[int] | None,
    ) -> None:
        self.where = chunk, index, source, ticking, item
        self.context = context
        self.writer = writer
        self._processed = processed

    def message_context(self) -> MessageContext:
        """Return the context of the record."""
        chunk, index, source, _, _ = self.where
        return self.context or context_of(chunk.raw(index), source)

    def set_message_context(self, context: MessageContext | None) -> None:
        """Replace the context of the record for what is below the operator."""
        self.context = context

    def log_fields(self) -> dict[str, Any]:
        """Return what log lines say about the record."""
        chunk, index, _, ticking, _ = self.where
        return {} if ticking else {"topic": chunk.topic, "offset": chunk.offsets[index]}

    def fail(self) -> None:
        """Note that the record was not processed."""
        offset = self.where[0].offsets[self.where[1]]
        if self._processed is not None and offset in self._processed:
            self._processed.remove(offset)


def context_of(raw: RawRecord, source: Input) -> MessageContext:
    """Build the context of a record."""
    key = raw.key()
    if key is not None and source.load_key is not None:
        key = source.load_key(key, raw.headers())
    kind, timestamp = raw.timestamp()
    return MessageContext(
        topic=raw.topic(),
        partition=raw.partition(),
        offset=raw.offset(),
        size=len(raw),
        key=key,
        timestamp=MessageTimestamp.create(kind, timestamp),
        headers=raw.headers(),
    )
