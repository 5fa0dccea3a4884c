"""Requests to write rows of a maintained table: their form in its topic of requests, and this topic in applications.

```
key      that of the row, in the format of the table's keys
value    a JSON object of the columns that are given, the key among them; none for the delete of a whole row
headers  streamrt-op = u | d, streamrt-schema = number of the schema
```
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import orjson

from streamrt.errors import SchemaMismatchError, SerializationError
from streamrt.kafka.cluster.topic_config import TopicConfig
from streamrt.records import Headers, HeaderValue
from streamrt.schema import RowCheck, Schema
from streamrt.serializers import (
    BoundDeserializer,
    BoundSerializer,
    Deserializer,
    MessageField,
    SerializationContext,
    Serializer,
)
from streamrt.serializers.rows.json_rows import RowSerializer
from streamrt.tables.descriptions.keys import RowKey, TableKeyDeserializer, TableKeySerializer
from streamrt.tables.descriptions.maintenance import name_requests_topic
from streamrt.tables.descriptions.topics import TableTopic
from streamrt.topics import Topic

if TYPE_CHECKING:
    from streamrt.tables.descriptions.home import TableHome
    from streamrt.tables.descriptions.info import TableInfo

__all__ = [
    "OP_HEADER",
    "SCHEMA_HEADER",
    "Request",
    "RequestDeserializer",
    "RequestSerializer",
    "make_request_headers",
    "make_requests_topic",
    "read_op",
]

Op = Literal["u", "d"]

OP_HEADER: Final = "streamrt-op"
"""What a request does: `u` (upsert) or `d` (delete)."""

SCHEMA_HEADER: Final = "streamrt-schema"
"""Number of the schema that its columns have."""

_KEPT: Final = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""Settings of the topic: requests are deleted when they are merged, and not before."""

_MOST_KINDS: Final = 1_000
"""Sets of columns whose checks are kept."""


class Request(NamedTuple):
    """A request to write a row.

    Attributes:
        op: "u" for an upsert, "d" for a delete.
        columns: the columns that are given, the key among them; None for a delete of the whole row.
    """

    op: Op
    columns: Mapping[str, Any] | None


def make_request_headers(op: Op, schema_version: int) -> Headers:
    """Return the headers of a request.

    Example:
        >>> make_request_headers("u", 3)
        [('streamrt-op', b'u'), ('streamrt-schema', b'3')]
    """
    return [(OP_HEADER, op.encode()), (SCHEMA_HEADER, str(schema_version).encode())]


def read_op(headers: Headers | None) -> Op:
    """Return what a request does.

    Raises:
        SerializationError: if the headers do not say so.
    """
    op = _read_header(headers, OP_HEADER)
    if op == "u":
        return "u"
    if op == "d":
        return "d"
    raise SerializationError(
        f"the header {OP_HEADER} of a request must be u or d; rows of maintained tables are written by the writers of the "
        "table"
    )


class RequestSerializer(Serializer):
    """Writes rows as requests of upserts, a JSON object with headers, and None as one of a delete, which has no value.

    Args:
        schema: schema of the table.
        schema_version: number of the schema.
        columns: names of the columns that rows give; None for all, of which rows may leave out those with a default or null.

    Raises:
        SerializationError: by a row that does not fit: the message names column, type and rule, and no value.
    """

    def __init__(self, schema: Schema, schema_version: int, columns: tuple[str, ...] | None = None) -> None:
        self.schema = schema
        self.schema_version = schema_version
        self.columns = columns
        rows = RowSerializer(schema if columns is None else schema.project(columns))
        self._write = rows.bind("", MessageField.VALUE)
        self._upsert, self._delete = (
            make_request_headers("u", schema_version),
            make_request_headers("d", schema_version),
        )

    @property
    def writes_headers(self) -> bool:
        """Each request has its own."""
        return True

    def __call__(self, value: Any, ctx: SerializationContext) -> bytes | None:  # noqa: D102
        return self._write_request(value, ctx.headers)

    def bind(self, topic: str, field: MessageField) -> BoundSerializer:  # noqa: D102
        return self._write_request

    def _write_request(self, row: Any, headers: Headers | None) -> bytes | None:
        if isinstance(headers, list):
            headers += self._delete if row is None else self._upsert
        if row is None:
            return None
        if self.columns is not None and isinstance(row, Mapping):
            row = {name: row[name] for name in self.columns if name in row}
        return self._write(row, None)

    def __reduce__(self) -> tuple[Any, ...]:
        return RequestSerializer, (self.schema, self.schema_version, self.columns)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RequestSerializer) and self.__reduce__()[1] == other.__reduce__()[1]

    def __hash__(self) -> int:
        return hash((RequestSerializer, self.schema_version, self.columns))


class RequestDeserializer(Deserializer):
    """Reads requests of a table, as a `Request` with columns in the order of the schema.

    Columns that an earlier schema had, and this one does not, are left out.

    Args:
        schema: schema of the table.
        key: names of the columns of its primary key.
        schema_version: number of the schema.

    Raises:
        SerializationError: by another record, or one with columns of a later schema; the message names column, type and rule,
            and no value.
    """

    def __init__(self, schema: Schema, key: tuple[str, ...], schema_version: int) -> None:
        self.schema = schema
        self.key = key
        self.schema_version = schema_version
        self._checks: dict[tuple[str, ...], Callable[[Mapping[str, Any]], dict[str, Any]]] = {}
        self._check_key = RowCheck([field for field in schema.fields if field.name in key], from_json=True).mapping

    def __call__(self, value: bytes, ctx: SerializationContext) -> Any:  # noqa: D102
        return self._read_request(value, ctx.headers)

    def bind(self, topic: str, field: MessageField) -> BoundDeserializer:  # noqa: D102
        return self._read_request

    def _read_request(self, value: bytes, headers: Headers | None) -> Request:
        op = read_op(headers)
        version = _read_header(headers, SCHEMA_HEADER)
        if not version.isascii() or not version.isdigit():
            raise SerializationError(f"the header {SCHEMA_HEADER} of a request must be the number of a schema")
        if int(version) > self.schema_version:
            raise SerializationError(
                f"the request has columns of schema {version}, and this program knows the schemas up to "
                f"{self.schema_version}: start it again"
            )
        try:
            given = orjson.loads(value)
        except orjson.JSONDecodeError as error:
            raise SerializationError(f"not JSON: {error.msg} at character {error.pos}") from None
        if not isinstance(given, dict):
            raise SerializationError(f"a request must be a JSON object, not {type(given).__name__}")
        names = tuple(given)
        _require_key(names, self.key)
        try:
            if op == "d":
                key = self._check_key(given)
                return Request(op, {name: key.get(name) for name in self.schema.names if name in given})
            check = self._checks.get(names)
            if check is None:
                check = self._make_check(names, is_current=int(version) == self.schema_version)
                if len(self._checks) < _MOST_KINDS:
                    self._checks[names] = check
            return Request(op, check(given))
        except SchemaMismatchError as error:
            raise SerializationError(str(error)) from None

    def _make_check(self, names: tuple[str, ...], *, is_current: bool) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
        unknown = [name for name in names if name not in self.schema.names]
        if unknown and is_current:
            raise SerializationError(
                f"there is no column {unknown[0]!r}; the columns are {', '.join(self.schema.names)}"
            )
        fields = [field for field in self.schema.fields if field.name in names]
        return RowCheck(fields, from_json=True, decoded=True).mapping

    def __reduce__(self) -> tuple[Any, ...]:
        return RequestDeserializer, (self.schema, self.key, self.schema_version)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RequestDeserializer) and self.__reduce__()[1] == other.__reduce__()[1]

    def __hash__(self) -> int:
        return hash((RequestDeserializer, self.key, self.schema_version))


def make_requests_topic(info: TableInfo, home: TableHome, columns: tuple[str, ...] | None = None) -> TableTopic:
    """Return the topic with the requests of a maintained table, as applications read and write it.

    Its values are `Request` where they are read, and rows or None where they are written.

    Args:
        info: the table, which has rules and a topic.
        home: its catalogue.
        columns: names of the columns that rows give, in their order; None for all.

    Raises:
        SchemaError: if it has no schema.
        TypeError: if it is not a maintained table.
    """
    keys = home.key_format(info)
    if info.schema is None or keys is None or info.topic is None:
        raise TypeError(f"{info.name} is not a maintained table")
    topic = Topic(
        name_requests_topic(info.topic),
        TopicConfig(info.num_partitions, None, dict(_KEPT)),
        RequestDeserializer(info.schema, keys.columns, info.schema_version),
        TableKeyDeserializer(keys),
        RequestSerializer(info.schema, info.schema_version, columns),
        TableKeySerializer(keys),
        auto_offset_reset="earliest",
    )
    return TableTopic(info.name, topic, RowKey(info.schema, keys.columns), info.schema_version)


def _read_header(headers: Headers | None, name: str) -> str:
    found: HeaderValue = next((value for key, value in headers or () if key == name), None)
    return found.decode("utf-8", "replace") if isinstance(found, bytes) else str(found or "")


def _require_key(names: tuple[str, ...], key: tuple[str, ...]) -> None:
    for name in key:
        if name not in names:
            raise SerializationError(f"column {name!r} of the primary key is missing")
