"""Key columns of rows as keys of records."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import pyarrow as pa

from streamrt.errors import SchemaMismatchError, SerializationError
from streamrt.schema import Schema
from streamrt.schema.columns import RowCheck
from streamrt.serializers.row_batches import one_by_one, rows_of
from streamrt.serializers.row_contract import KeyFormat
from streamrt.serializers.rows import json_value

__all__ = ["JSONKeyFormat"]


class JSONKeyFormat(KeyFormat):
    """The value of one key column as JSON, or those of several as a compact array, in key order.

    Dates, times and timestamps are ISO 8601 texts, decimals texts with all digits of their scale, and bytes base64.
    """

    name = "json"

    def __init__(self, schema: Schema, columns: Sequence[str]) -> None:
        super().__init__(schema, columns)
        self._check = RowCheck([schema.fields[schema.names.index(name)] for name in self.columns], from_json=True)

    def encode(self, row: Mapping[str, Any]) -> bytes:  # noqa: D102
        values = [row[name] for name in self.columns]
        for name, value in zip(self.columns, values, strict=True):
            if value is None:
                raise SerializationError(f"column {name!r} is in the key and must not be null")
        what = values[0] if len(values) == 1 else values
        return orjson.dumps(what, json_value, orjson.OPT_PASSTHROUGH_DATETIME)

    def decode(self, key: bytes) -> dict[str, Any]:  # noqa: D102
        try:
            read = orjson.loads(key)
        except orjson.JSONDecodeError as error:
            raise SerializationError(f"the key is not JSON: {error.msg} at character {error.pos}") from None
        values = [read] if len(self.columns) == 1 else read
        if not isinstance(values, list) or len(values) != len(self.columns):
            raise SerializationError(f"the key must be a JSON array with {len(self.columns)} values")
        try:
            return self._check(values)
        except SchemaMismatchError as error:
            raise SerializationError(f"the key does not fit: {error}") from None

    def encode_batch(self, rows: pa.RecordBatch) -> list[bytes]:  # noqa: D102
        return one_by_one(self.encode, rows_of(rows.select(list(self.columns))))
