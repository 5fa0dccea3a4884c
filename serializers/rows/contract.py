"""The contract of formats of rows and keys; `row_formats` finds them by name."""

import abc
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from streamrt.schema import Schema
from streamrt.serializers.base import Deserializer, MessageField, SerializationContext, Serializer
from streamrt.serializers.rows.batches import one_by_one, rows_of

__all__ = ["KeyFormat", "RowFormat"]


class RowFormat(abc.ABC):
    """Writes rows of one schema as bytes of one format, and reads them.

    Batches and single rows have the same meaning: `decode_batch` returns what `decode` returns for each value.

    Args:
        schema: what rows must fit.
    """

    name: str
    """The word for the format, such as `json`; a catalogue keeps it."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    @property
    def options(self) -> Mapping[str, Any]:
        """Options that a catalogue keeps with the name, so that another process builds the same format; no secrets."""
        return {}

    @property
    @abc.abstractmethod
    def serializer(self) -> Serializer:
        """The serializer for values of a topic."""

    @property
    @abc.abstractmethod
    def deserializer(self) -> Deserializer:
        """The deserializer for values of a topic."""

    def is_registrable(self, topic: str) -> bool:
        """Return whether the schema registry would take the schema for values of a topic; True without a registry.

        Args:
            topic: name of the topic.

        Raises:
            SchemaRegistryError: if the registry refuses the request, or does not answer.
        """
        return True

    def encode(self, row: Mapping[str, Any] | Sequence[Any], topic: str) -> bytes:
        """Return a row as bytes; by default, those of `serializer`.

        Args:
            row: a mapping, or a list or tuple with a value for each column.
            topic: name of the topic, by which registries know the schema.

        Raises:
            SerializationError: if it does not fit: the message names column, type and rule, and no value.
        """
        data: bytes = self.serializer(row, SerializationContext(topic, MessageField.VALUE))  # type: ignore[assignment]
        return data

    def encode_checked(self, row: Mapping[str, Any], topic: str) -> bytes:
        """Return a row as bytes, without checking it again: `Schema.check` has returned it.

        Raises:
            SerializationError: if the format cannot carry it.
        """
        return self.encode(row, topic)

    def decode(self, value: bytes, topic: str) -> dict[str, Any]:
        """Return the row in the bytes; by default, as `deserializer` reads it.

        Raises:
            SerializationError: if they are not a row of the schema.
        """
        row: dict[str, Any] = self.deserializer(value, SerializationContext(topic, MessageField.VALUE))
        return row

    def encode_batch(self, rows: pa.RecordBatch, topic: str) -> list[bytes]:
        """Return each row of a batch as bytes; columns are found by name. By default, row by row.

        Raises:
            SerializationError: if a row does not fit: the message names row number, column, type and rule.
        """
        return one_by_one(lambda row: self.encode(row, topic), rows_of(rows))

    @abc.abstractmethod
    def decode_batch(self, values: Sequence[bytes], topic: str, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """Return rows as a batch with the types of the schema.

        Args:
            values: bytes of each row.
            topic: name of the topic.
            columns: names of the columns to decode, in order; None means all.

        Raises:
            SerializationError: if one is not a row of the schema: the message names its number in the batch.
        """


class KeyFormat(abc.ABC):
    """Writes the key columns of rows as keys of records, and reads them.

    Equal keys have equal bytes, so that they meet in one partition.

    Args:
        schema: the schema of the rows.
        columns: names of the key columns, in order.
    """

    name: str
    """The word for the format; a catalogue keeps it."""

    def __init__(self, schema: Schema, columns: Sequence[str]) -> None:
        self.schema = schema
        self.columns = tuple(columns)

    @abc.abstractmethod
    def encode(self, row: Mapping[str, Any]) -> bytes:
        """Return the key of a checked row.

        Raises:
            SerializationError: if a key column is null, or cannot be written.
        """

    @abc.abstractmethod
    def decode(self, key: bytes) -> dict[str, Any]:
        """Return the key columns.

        Raises:
            SerializationError: if the bytes are not a key.
        """

    @abc.abstractmethod
    def encode_batch(self, rows: pa.RecordBatch) -> list[bytes]:
        """Return the key of each row of a batch."""
