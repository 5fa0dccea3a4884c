"""External tables in applications: the source that brings their rows to a topic, and the sink that takes rows there."""

import functools
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from streamrt.connectors import BaseSink, BaseSource, ServerSentEventsSource, SQSSink, SQSSource
from streamrt.connectors.sinks.batch import SinkBatch, SinkItem
from streamrt.connectors.sinks.serializing import Serializers, decode_key
from streamrt.connectors.sources.acknowledging import Delivery
from streamrt.errors import ConfigurationError, InvalidOperationError, SchemaMismatchError, SerializationError
from streamrt.schema import Schema
from streamrt.secret import Secret, SecretRef, conceal
from streamrt.serializers import MessageField, SerializationContext
from streamrt.serializers.row_formats import RowFormat
from streamrt.tables.descriptions.connectors import (
    HTTPSSE,
    Connector,
    SinkTable,
    SourceTable,
    SQSQueue,
    table_connector,
)
from streamrt.tables.descriptions.endpoint_classes import endpoint_class
from streamrt.tables.descriptions.home import TableHome
from streamrt.tables.descriptions.info import TableInfo
from streamrt.tables.descriptions.keys import RowKey
from streamrt.tables.descriptions.permissions import AWS
from streamrt.tables.descriptions.topics import TableTopic, endpoint_topic_name, table_topic

if TYPE_CHECKING:
    import httpx_sse

__all__ = [
    "TableSQSSink",
    "connected",
    "credential",
    "endpoint_sink",
    "endpoint_source",
    "endpoint_topic",
    "queue_name",
    "row_check",
    "sqs_settings",
]

_BINARY = ("avro", "protobuf", "raw")
_BINARY_SERIALIZERS = ("bytes", "int", "double")


def endpoint_topic(info: TableInfo, home: TableHome) -> TableTopic:
    """Return the topic to which the source of an external table produces: `source__<table>`.

    Args:
        info: the table.
        home: the catalogue.

    Raises:
        SchemaError: if the table has no schema.
    """
    return table_topic(info, home, endpoint_topic_name(info.name))


def endpoint_source(info: TableInfo, home: TableHome) -> BaseSource:
    """Return the source of an external table. Its values are rows.

    Args:
        info: the table.
        home: the catalogue.

    Raises:
        ConfigurationError: if a setting cannot be used, or a variable or a secret is missing.
    """
    connector = connected(info, home)
    topic = endpoint_topic(info, home)
    rows = home.row_format(info)
    if isinstance(connector, HTTPSSE | SQSQueue):
        _require_text(info, rows)
    if isinstance(connector, HTTPSSE):
        return ServerSentEventsSource(
            connector.url,
            info.name,
            value_setter=functools.partial(_row_of_event, rows, topic.name),
            events=None if connector.event is None else [connector.event],
            headers=connector.headers,
            auth_token=credential(connector.auth),
            resume=connector.last_event_id,
        )
    if isinstance(connector, SQSQueue):
        return TableSQSSource(
            queue_name(connector),
            RowReader(rows, topic.name),
            topic.row_key,
            wait_time_seconds=connector.wait_time_s,
            visibility_timeout=connector.visibility_timeout_s,
            name=info.name,
            **sqs_settings(info, connector, home),
        )
    if isinstance(connector, SourceTable):
        source: BaseSource = _made(info, connector.source, {"name": info.name, **connector.arguments}, BaseSource)
        return source
    raise InvalidOperationError(
        f"table {info.name} ({info.connector}) can be written alone: choose a table with a topic, a queue or a source"
    )


def endpoint_sink(info: TableInfo, home: TableHome) -> BaseSink:
    """Return the sink of an external table.

    Args:
        info: the table.
        home: the catalogue.

    Raises:
        InvalidOperationError: if its system is only read.
        ConfigurationError: if a setting cannot be used, or a variable or a secret is missing.
    """
    connector = connected(info, home)
    if isinstance(connector, SinkTable):
        made: BaseSink = _made(info, connector.sink, connector.arguments, BaseSink)
        return made
    if not isinstance(connector, SQSQueue):
        raise InvalidOperationError(
            f"table {info.name} ({info.connector}) can be read alone, so to_table() cannot append rows to it: choose a table "
            "with a topic, a queue or a sink"
        )
    rows = home.row_format(info)
    _require_text(info, rows)
    return TableSQSSink(queue_name(connector), info.name, rows, **sqs_settings(info, connector, home))


def _require_text(info: TableInfo, rows: RowFormat) -> None:
    """Refuse formats whose rows neither an event nor a message of a queue can carry."""
    if info.format in _BINARY or (info.format == "single" and rows.options["serializer"] in _BINARY_SERIALIZERS):
        raise ConfigurationError(
            f"table {info.name} ({info.connector}) has the format {info.format!r}, whose bytes are not text, as events and "
            "messages are: create the table with format='json'"
        )


def connected(info: TableInfo, home: TableHome) -> Connector:
    """Return the connector of an external table, with the values of variables, if the table may use what it has.

    Args:
        info: the table.
        home: the catalogue.

    Raises:
        ConfigurationError: if a variable is not set, or the table may not use a variable, secret, server or file.
    """
    permissions, what = home.permissions, f"table {info.name!r}"
    given = table_connector(info)
    permissions.require_variables(what, vars(given))
    connector = given.resolved()
    if isinstance(connector, SourceTable):
        permissions.require_connector(what, connector.source)
        permissions.require_place(what, connector.arguments, connector.source)
    elif isinstance(connector, SinkTable):
        permissions.require_connector(what, connector.sink)
        permissions.require_place(what, connector.arguments, connector.sink)
    elif isinstance(connector, SQSQueue):
        # Otherwise, `sqs_settings` knows the server.
        if "://" in connector.name or (connector.connection or info.connection) is None:
            permissions.require_place(what, {"url": connector.name if "://" in connector.name else AWS})
    elif isinstance(connector, HTTPSSE):
        permissions.require_place(what, {"url": connector.url, "auth": connector.auth})
    return connector


def sqs_settings(info: TableInfo, connector: SQSQueue, home: TableHome) -> dict[str, Any]:
    """Return the region and the credentials of a queue, as connectors of AWS take them.

    Args:
        info: the table.
        connector: the queue.
        home: the catalogue.

    Raises:
        ConfigurationError: if there is no such connection, or a variable or a secret is missing.
    """
    name = connector.connection or info.connection
    if name is None:
        return {}
    words = {
        "access_key_id": "aws_access_key_id",
        "secret_access_key": "aws_secret_access_key",
        "session_token": "aws_session_token",
        "region": "region_name",
        "endpoint_url": "aws_endpoint_url",
    }
    connection, permissions = home.connection(name), home.permissions
    what = f"connection {name!r} of table {info.name!r}"
    options = {each: value for each, value in vars(connection).items() if value is not None}
    permissions.require_variables(what, options)
    queue = {"queue_url": connector.name} if "://" in connector.name else {}
    endpoint = options.get("endpoint_url")
    given = connection.resolve()
    resolved = given["endpoint_url"] if isinstance(endpoint, str) else None
    # Requests are signed with the credentials, and sent to the endpoint and to the queue's own address.
    permissions.require_place(what, {**options, "endpoint_url": resolved or AWS, **queue})
    return {
        words[each]: value.reveal() if isinstance(value, Secret) else value
        for each, value in given.items()
        if each in words
    }


class RowReader:
    """Reads the rows of one topic. It is picklable.

    Args:
        rows: their format.
        topic: name of the topic.
    """

    def __init__(self, rows: RowFormat, topic: str) -> None:
        self.rows = rows
        self.topic = topic

    def __call__(self, value: bytes) -> dict[str, Any]:
        """Return the row in the bytes."""
        return self.rows.decode(value, self.topic)


class TableSQSSource(SQSSource):
    """Produces the messages of a queue as rows; bodies stay as they are, and key columns become the key.

    A body that is not a row keeps the message group as its key: the application refuses it, by its policies.

    Args:
        queue: name or URL of the queue.
        read: reads rows.
        key: function from a row to its key; None if the table has no key columns.
        **settings: see `SQSSource`.
    """

    def __init__(self, queue: str, read: RowReader, key: RowKey | None, **settings: Any) -> None:
        super().__init__(queue, **settings)
        self._read = read
        self._key = key

    def receive(self, limit: int, wait_s: float) -> Sequence[Delivery]:
        """Receive messages; see `AcknowledgingSource`."""
        found = super().receive(limit, wait_s)
        return found if self._key is None else [self._add_key(each, self._key) for each in found]

    def _add_key(self, delivery: Delivery, key: RowKey) -> Delivery:
        try:
            row_key = key(self._read(delivery.value))
            made = self.producer_topic.key_serializer(row_key, SerializationContext(self._read.topic, MessageField.KEY))
        except SerializationError:
            return delivery
        return delivery._replace(key=made)


class TableSQSSink(SQSSink):
    """Writes rows of a table to a queue, in the format of the table.

    Args:
        queue: name or URL of the queue.
        table: name of the table.
        rows: the format.
        **settings: see `SQSSink`.
    """

    def __init__(self, queue: str, table: str, rows: RowFormat, **settings: Any) -> None:
        super().__init__(queue, **settings)
        self.table = table
        self._serializers = _RowSerializers(table, rows)


class _RowSerializers(Serializers):
    """Says which column does not fit; messages of formats have no values in them."""

    def __init__(self, table: str, rows: RowFormat) -> None:
        super().__init__("SQSSink", _key_text, functools.partial(_encode_row, rows, table))
        self._table = table

    def _made(
        self, serializer: Callable[[Any], str | bytes], given: Any, what: str, item: SinkItem, batch: SinkBatch
    ) -> str | bytes:
        try:
            return serializer(given)
        except SerializationError as error:
            raise self.refused(item, batch, f"the row does not fit table {self._table}: {error}") from None
        except UnicodeDecodeError:
            raise self.refused(item, batch, "its key is not UTF-8") from None


def _encode_row(rows: RowFormat, table: str, row: Any) -> bytes:
    return rows.encode(row, table)


def _key_text(key: Any) -> str:
    """Return a key as text: that of strings and bytes, and others as JSON."""
    return decode_key(key) if isinstance(key, str | bytes | bytearray | memoryview) else json.dumps(key, default=str)


def _row_of_event(rows: RowFormat, topic: str, event: "httpx_sse.ServerSentEvent") -> dict[str, Any]:
    return rows.decode(event.data.encode(), topic)


def queue_name(connector: SQSQueue) -> str:
    """Return the name or the URL of a queue."""
    # Names of FIFO queues end so; AWS knows no others.
    return f"{connector.name}.fifo" if connector.fifo and not connector.name.endswith(".fifo") else connector.name


def credential(reference: SecretRef | None) -> Callable[[], str] | None:
    """Return a function that the process that connects calls, so that a secret that was renewed is read again."""
    return None if reference is None else functools.partial(_reveal_secret, reference)


def _reveal_secret(reference: SecretRef) -> str:
    return reference.resolve().reveal()


def row_check(info: TableInfo, home: TableHome) -> "Callable[[Any], dict[str, Any]] | None":
    """Return what checks rows before the sink of an external table gets them; None if the sink itself does.

    Args:
        info: the table.
        home: the catalogue.

    Raises:
        SchemaError: if the table has no schema.
    """
    if info.connector != SinkTable.word:
        return None
    return RowFit(info.name, home.row_format(info).schema)


class RowFit:
    """Checks rows of one table. It is picklable.

    Args:
        table: name of the table.
        schema: what rows must fit.
    """

    def __init__(self, table: str, schema: Schema) -> None:
        self.table = table
        self.schema = schema

    def __call__(self, row: Any) -> dict[str, Any]:
        """Return the row with all columns, and values of their types.

        Raises:
            SerializationError: if it does not fit; the message names column, type and rule, and no value.
        """
        try:
            return self.schema.check(row)
        except SchemaMismatchError as error:
            raise SerializationError(f"the row does not fit table {self.table}: {error}") from None


def _made(info: TableInfo, name: str, given: Mapping[str, Any], base: type) -> Any:
    """Return the connector of a class of `streamrt.connectors`."""
    what: Literal["source", "sink"] = "source" if base is BaseSource else "sink"
    kind = endpoint_class(info.name, what, name)
    arguments = {each: _make_argument(value) for each, value in given.items()}
    try:
        inspect.signature(kind).bind(**arguments)
    except TypeError as error:
        raise ConfigurationError(
            f"the {what} {name} of table {info.name} cannot be made of {', '.join(sorted(arguments))}: {error}"
        ) from None
    return kind(**arguments)


def _make_argument(value: Any) -> Any:
    return credential(value) if isinstance(value, SecretRef) else _with_secrets(value)


def _with_secrets(value: Any) -> Any:
    """Return a value with the secrets that references inside it mean: connectors take no functions there."""
    if isinstance(value, SecretRef):
        text = value.resolve().reveal()
        conceal(text)
        return text
    if isinstance(value, Mapping):
        return {name: _with_secrets(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_with_secrets(each) for each in value]
    return value
