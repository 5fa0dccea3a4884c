"""Rows as JSON objects, one by one and in batches of Arrow."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from streamrt.schema import Schema
from streamrt.serializers.base import MessageField
from streamrt.serializers.row_batches import decoded_one_by_one, encoded_one_by_one
from streamrt.serializers.row_contract import RowFormat
from streamrt.serializers.rows import RowDeserializer, RowSerializer

__all__ = ["JSONRowFormat"]


class JSONRowFormat(RowFormat):
    """Writes and reads rows as JSON objects, as `RowSerializer` and `RowDeserializer` do.

    Args:
        schema: what rows must fit.
    """

    name = "json"

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema)
        self._serializer = RowSerializer(schema)
        self._deserializer = RowDeserializer(schema)

    @property
    def serializer(self) -> RowSerializer:  # noqa: D102
        return self._serializer

    @property
    def deserializer(self) -> RowDeserializer:  # noqa: D102
        return self._deserializer

    def encode(self, row: Mapping[str, Any] | Sequence[Any], topic: str) -> bytes:  # noqa: D102
        data: bytes = self._serializer.bind(topic, MessageField.VALUE)(row, None)  # type: ignore[assignment]
        return data

    def decode(self, value: bytes, topic: str) -> dict[str, Any]:  # noqa: D102
        row: dict[str, Any] = self._deserializer.bind(topic, MessageField.VALUE)(value, None)
        return row

    def encode_batch(self, rows: pa.RecordBatch, topic: str) -> list[bytes]:  # noqa: D102
        return encoded_one_by_one(self, rows, topic)

    def decode_batch(  # noqa: D102
        self, values: Sequence[bytes], topic: str, columns: Sequence[str] | None = None
    ) -> pa.RecordBatch:
        return decoded_one_by_one(self, values, topic, columns)
