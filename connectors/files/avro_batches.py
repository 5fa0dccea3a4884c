"""Avro files that sinks write."""

import hashlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from streamrt.connectors.files.batch_formats import Batch, KeyedFormat, problem
from streamrt.connectors.libraries import require_library
from streamrt.errors import ArgumentValueError

__all__ = ["AvroBatchFormat", "AvroCodec"]

AvroCodec = Literal["null", "deflate", "bzip2", "xz"]


class AvroBatchFormat(KeyedFormat):
    """Avro files with the fields `_timestamp`, `_key` and `_value`. Needs the extra `avro`.

    Args:
        schema: schema of the values, as JSON or as a dict.
        file_extension: end of the names of files.
        codec: compression of the blocks: "null", "deflate", "bzip2" or "xz".
        key_serializer: function from a key to its text; by default bytes are decoded as UTF-8.

    Raises:
        ConfigurationError: if an argument cannot be used, or fastavro is not installed.

    Example:
        >>> schema = {"type": "record", "name": "Order", "fields": [{"name": "n", "type": "long"}]}
        >>> AvroBatchFormat(schema).file_extension
        '.avro'
    """

    def __init__(
        self,
        schema: str | Mapping[str, Any] | Sequence[Any],
        file_extension: str = ".avro",
        codec: AvroCodec = "deflate",
        *,
        key_serializer: Callable[[Any], Any] | None = None,
    ) -> None:
        require_library("AvroBatchFormat", "fastavro", "avro")
        super().__init__(file_extension, key_serializer)
        import fastavro

        try:
            value = json.loads(schema) if isinstance(schema, str) else schema
            self._schema = {
                "type": "record",
                "name": "SinkRecord",
                "namespace": "streamrt",
                "fields": [
                    {"name": "_timestamp", "type": "long"},
                    {"name": "_key", "type": ["null", "string"]},
                    {"name": "_value", "type": value},
                ],
            }
            fastavro.parse_schema(self._schema)
            fastavro.writer(io.BytesIO(), self._schema, [], codec=codec)
        except Exception as error:  # noqa: BLE001 - the library has many
            reason = str(error).splitlines() or [""]
            raise ArgumentValueError(
                f"AvroBatchFormat(schema=..., codec={codec!r}) is not an Avro schema, or has an unknown codec: {reason[0]}"
            ) from None
        self._codec = codec

    @property
    def supports_append(self) -> bool:
        """False: each file begins with its schema."""
        return False

    def serialize(self, batch: Batch) -> bytes:  # noqa: D102
        items = list(batch)
        records = [
            {"_timestamp": item.timestamp, "_key": self._item_key(item, batch), "_value": item.value} for item in items
        ]
        try:
            return self._write_records(records)
        except Exception:
            for item, record in zip(items, records, strict=True):
                try:
                    self._write_records([record])
                except Exception as error:  # noqa: BLE001
                    # Its text quotes the value.
                    raise problem(batch, item, f"its value does not fit the schema ({type(error).__name__})") from None
            raise

    def merge(self, contents: Sequence[bytes]) -> list[bytes]:
        """Return the records of all contents in one file."""
        import fastavro

        return [
            self._write_records([record for content in contents for record in fastavro.reader(io.BytesIO(content))])
        ]

    def _write_records(self, records: Sequence[Any]) -> bytes:
        import fastavro

        # Without chance, a repeated batch gives the same file.
        marker = hashlib.md5(json.dumps(self._schema).encode(), usedforsecurity=False).digest()
        output = io.BytesIO()
        fastavro.writer(output, self._schema, records, codec=self._codec, sync_marker=marker, strict=True)
        return output.getvalue()
