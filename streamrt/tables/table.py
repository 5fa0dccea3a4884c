"""`Table`: the handle of a named stream."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from streamrt.errors import InvalidOperationError, SchemaError
from streamrt.kafka import Consumer, Producer
from streamrt.kafka.token import Offsets
from streamrt.schema import Schema
from streamrt.tables.home import TableHome
from streamrt.tables.info import TableInfo, TableKind
from streamrt.tables.opening import open_writer
from streamrt.tables.reads import ReadableTable
from streamrt.tables.refusals import TableRefusals
from streamrt.tables.topics import TableTopic, table_topic
from streamrt.tables.usages import Usage
from streamrt.tables.writer import TableWriter

__all__ = ["CatalogHome", "Table", "TableHome"]


@runtime_checkable
class CatalogHome(Protocol):
    """What a home is, beside this, in which tables are changed."""

    def usages(self, name: str) -> list[Usage]:
        """Return which applications use a table."""

    def set_schema(self, name: str, schema: Any, force: bool = False) -> TableInfo:
        """Give a table another schema."""


class Table(ReadableTable, TableRefusals):
    """A named, typed stream; `Catalog.table` returns it. It may be used in any thread."""

    _home: TableHome

    def __init__(self, info: TableInfo, home: TableHome) -> None:
        self._info = info
        self._home = home

    @property
    def home(self) -> TableHome:
        """The catalogue of the table."""
        return self._home

    @property
    def name(self) -> str:
        """`<database>.<table>`."""
        return self._info.name

    @property
    def kind(self) -> TableKind:
        """Kind: "log", "primary-key" or "external"."""
        return self._info.kind

    @property
    def schema(self) -> Schema:
        """The columns.

        Raises:
            SchemaError: if the table has none.
        """
        if self._info.schema is None:
            raise SchemaError(f"table {self.name!r} has no schema: set one by set_schema(), or see detect_schema()")
        return self._info.schema

    @property
    def info(self) -> TableInfo:
        """What the catalogue knew of the table when this handle was made, or by its last change through it."""
        return self._info

    @property
    def topic(self) -> TableTopic:
        """The topic, with serializers for rows and keys: it stands wherever a topic does in an application.

        Raises:
            SchemaError: if the table has no schema.
            InvalidOperationError: if it is in another system.
        """
        if self._info.topic is None:
            raise InvalidOperationError(
                f"table {self.name!r} is in another system ({self._info.connector}), and has no topic of its own"
            )
        return table_topic(self._info, self._home)

    def refresh(self) -> TableInfo:
        """Return what the catalogue knows of the table now, which this handle knows from then on.

        Raises:
            TableNotFoundError: if it was dropped.
        """
        self._info = self._home.load(self.name)
        return self._info

    def usages(self) -> list[Usage]:
        """Return which applications read and write the table, as they said at their last starts."""
        return self._catalog.usages(self.name)

    def set_schema(self, schema: Any, *, force: bool = False) -> None:
        """Give the table another schema.

        Args:
            schema: a `Schema`, or what one is made of: a list of columns, `{"columns": [...]}`, a DDL text.
            force: whether rows that exist need not fit it: they cannot be read any more, then.

        Raises:
            SchemaEvolutionError: if rows that exist would not fit, with all reasons.
        """
        self._info = self._catalog.set_schema(self.name, schema, force)

    def consumer(self, group: str, **options: Any) -> Consumer:
        """Return a consumer that has subscribed to the topic of the table; it yields keys and values as bytes.

        Args:
            group: its consumer group.
            **options: more options of librdkafka, with `_` for `.`; without `auto_offset_reset`, it begins at "earliest".

        Raises:
            InvalidOperationError: if the table is in another system.
        """
        from streamrt.tables.native import consumer_of

        return consumer_of(self._info, self._home, group, options)

    def producer(self, **options: Any) -> Producer:
        """Return a producer for the cluster of the table; what it sends is not checked. See `writer` for rows.

        Args:
            **options: more options of librdkafka, with `_` for `.`.

        Raises:
            InvalidOperationError: if the table is in another system.
        """
        from streamrt.tables.native import producer_of

        return producer_of(self._info, self._home, options)

    def native(self) -> Any:
        """Return the client of another library for an external table.

        Returns:
            For HTTP streams, an `httpx_sse.EventSource`, whose `response` is to be closed; for SQS, a queue of boto3.

        Raises:
            InvalidOperationError: if the table is a topic of Kafka, or there is no such library.
            SourceError: if a server refuses.
        """
        from streamrt.tables.native import native_of

        return native_of(self._info, self._home)

    @property
    def _catalog(self) -> CatalogHome:
        home: object = self._home
        if not isinstance(home, CatalogHome):
            raise InvalidOperationError(f"table {self.name!r} belongs to no catalogue that can be changed")
        return home

    def writer(
        self,
        *,
        columns: Sequence[str | int] | None = None,
        id: str | None = None,  # noqa: A002 - the word for it
        options: Mapping[str, Any] | None = None,
    ) -> TableWriter:
        """Return a new writer of rows; use it in a with statement, or close it.

        Args:
            columns: names, or numbers from 0, of the columns that rows give, in their order. Others get their default, or
                null. By default, rows give all columns.
            id: name of the writer. Its rows are in transactions, which `checkpoint` commits together with a state. One
                process at a time may use an id: a new writer with it aborts what the former one has not committed.
            options: `assigner`, which is "sticky" (several rows after each other go to one partition) or "round-robin", for
                tables without a key; and producer options of librdkafka.

        Raises:
            InvalidOperationError: if the table has a primary key, or is in another system.
            SchemaError: if the table has no schema, or `columns` do not fit it.
            ConfigurationError: if an option cannot be used.
            TopicNotFoundError: if the topic does not exist.
            TransactionError: if the id could not be acquired.
            KafkaRequestError: if brokers do not answer in time.

        Example:
            ```python
            with catalog.table("shop.orders").writer() as writer:
                writer.append({"order_id": 1, "customer": "ann"})
                token = writer.flush()
            ```
        """
        return open_writer(
            self._info,
            self._home.links,
            self._home.row_format,
            self._home.key_format,
            self._home.timeout,
            columns=columns,
            writer_id=id,
            options=options,
        )

    def append(self, rows: Any) -> Offsets:
        """Write rows and wait until brokers have them; all are written or, if one does not fit, none.

        Each call makes a producer, which takes half a second on Kafka. For more than one call, use `writer`.

        Args:
            rows: a list of rows, each a mapping, or a list or tuple with a value for each column; a single mapping; or a
                table or record batch of Arrow, or a data frame of pandas or polars.

        Returns:
            A completion token: the offsets after these rows, with the id of the topic.

        Raises:
            SchemaMismatchError: if a row does not fit; the message names its number, from 0 on.
            ProducerError: if rows were not delivered. Other errors are those of `writer` and of `TableWriter.append`.
        """
        with self.writer() as writer:
            writer.append_rows(rows)
            return writer.flush(self._home.timeout)

    def __repr__(self) -> str:
        return f"<Table {self.name!r} {self.kind}>"
