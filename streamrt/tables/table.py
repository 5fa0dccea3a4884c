"""`Table`: the handle of a named stream."""

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn, Protocol, TypeVar, runtime_checkable

from streamrt.errors import InvalidOperationError, StaleTokenError, StreamRTError
from streamrt.kafka import Consumer, Producer
from streamrt.kafka.completion_token import Offsets
from streamrt.schema import Schema
from streamrt.state import MemoryStore, Store
from streamrt.state.snapshots import StateSnapshots
from streamrt.tables.access.positions import Start
from streamrt.tables.descriptions.home import TableHome
from streamrt.tables.descriptions.info import TableInfo, TableKind, required_schema
from streamrt.tables.descriptions.topics import TableTopic, table_topic
from streamrt.tables.descriptions.usages import Usage
from streamrt.tables.reading.changes import ChangeListener, OnChanges
from streamrt.tables.reading.detection import Detected
from streamrt.tables.reading.reads import Snapshot, TableReads
from streamrt.tables.reading.scan import TableScan
from streamrt.tables.reading.stream import TableStream
from streamrt.tables.refusals import refuse_lake, require_primary_key
from streamrt.tables.replicas.replica import TableReplica
from streamrt.tables.replicas.table_lookups import TableLookups
from streamrt.tables.rows.decoding import OnBadRecord
from streamrt.tables.writing.opening import open_writer
from streamrt.tables.writing.writer import TableWriter

__all__ = ["CatalogHome", "Table", "TableHome"]

T = TypeVar("T")


@runtime_checkable
class CatalogHome(Protocol):
    """The further methods of a home in which tables are changed."""

    def usages(self, name: str) -> list[Usage]:
        """Return which applications use a table."""

    def set_schema(self, name: str, schema: Any, force: bool = False) -> TableInfo:
        """Give a table another schema."""


class Table:
    """A named, typed stream; `Catalog.table` returns it. It may be used in any thread."""

    _home: TableHome

    def __init__(self, info: TableInfo, home: TableHome) -> None:
        self._info = info
        self._home = home
        # Lookups check keys and decode rows by the schema of a description.
        self._made_lookups: TableLookups | None = None

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
        return required_schema(self._info)

    @property
    def info(self) -> TableInfo:
        """The catalogue's description of the table when this handle was made, or by its last change through it."""
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
        return self._catalog_home.usages(self.name)

    def set_schema(self, schema: Any, *, force: bool = False) -> None:
        """Give the table another schema.

        Args:
            schema: a `Schema`, or what one is made of: a list of columns, `{"columns": [...]}`, a DDL text.
            force: whether rows that exist need not fit it: then they cannot be read any more.

        Raises:
            SchemaEvolutionError: if rows that exist would not fit, with all reasons.
        """
        self._info = self._catalog_home.set_schema(self.name, schema, force)

    def consumer(self, group: str, **options: Any) -> Consumer:
        """Return a consumer that has subscribed to the topic of the table; it yields keys and values as bytes.

        Args:
            group: its consumer group.
            **options: more options of librdkafka, with `_` for `.`; without `auto_offset_reset`, it begins at "earliest".

        Raises:
            InvalidOperationError: if the table is in another system.
        """
        from streamrt.tables.endpoints.native import consumer_of

        return consumer_of(self._info, self._home, group, options)

    def producer(self, **options: Any) -> Producer:
        """Return a producer for the cluster of the table; what it sends is not checked. See `writer` for rows.

        Args:
            **options: more options of librdkafka, with `_` for `.`.

        Raises:
            InvalidOperationError: if the table is in another system.
        """
        from streamrt.tables.endpoints.native import producer_of

        return producer_of(self._info, self._home, options)

    def native(self) -> Any:
        """Return the client of another library for an external table.

        Returns:
            For HTTP streams, an `httpx_sse.EventSource`, whose `response` is to be closed; for SQS, a queue of boto3.

        Raises:
            InvalidOperationError: if the table is a topic of Kafka, or there is no such library.
            SourceError: if a server refuses.
        """
        from streamrt.tables.endpoints.native import native_of

        return native_of(self._info, self._home)

    def writer(
        self,
        *,
        columns: Sequence[str | int] | None = None,
        id: str | None = None,  # noqa: A002 - the word for it
        options: Mapping[str, Any] | None = None,
    ) -> TableWriter:
        """Return a new writer of rows; use it in a with statement, or close it.

        Args:
            columns: names, or numbers from 0, of the columns that rows give, in their order. By default, rows give all
                columns. Others get their default, or null; in a maintained table, they stay as they are.
            id: name of the writer. Its rows are in transactions, which `checkpoint` commits together with a state. One
                process at a time may use an id: a new writer with it aborts what the former one has not committed.
            options: `assigner`, which is "sticky" (several rows after each other go to one partition) or "round-robin", for
                tables without a key; and producer options of librdkafka.

        Raises:
            InvalidOperationError: if the table is in another system, or `columns` leave some out and it has a primary key,
                and is not maintained.
            SchemaError: if the table has no schema, or `columns` do not fit it or the rules of the table.
            TopicConfigurationError: if the topic with the requests of a maintained table has other partitions.
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

    def upsert(self, rows: Any) -> Offsets:
        """Insert rows into a table with a primary key, or replace those with their keys; wait until brokers have them.

        All are written or, if one does not fit, none. Each call makes a producer: for more than one, use `writer`.

        Args:
            rows: a list of rows, a single mapping, or a frame, as `append` takes them.

        Returns:
            A completion token: the offsets after these rows, with the id of the topic.

        Raises:
            SchemaMismatchError: if a row does not fit; the message names its number, from 0 on.
            InvalidOperationError: if the table has no primary key.
            ProducerError: if rows were not delivered. Other errors are those of `writer` and of `TableWriter.upsert`.
        """
        with self.writer() as writer:
            writer.upsert_rows(rows)
            return writer.flush(self._home.timeout)

    def delete(self, keys: Any) -> Offsets:
        """Delete the rows with some primary keys, where there are such; wait until brokers have the records that do so.

        All keys are checked first, and if one does not fit, no row is deleted.

        Args:
            keys: a list of keys, each the value of the one key column; or a list or tuple with those of all, in the order
                of the primary key; or a mapping with the key columns, or with all. Or a single mapping, or a frame with
                these columns.

        Returns:
            A completion token: the offsets after these records, with the id of the topic.

        Raises:
            SchemaMismatchError: if a key does not fit; the message names its number, from 0 on.
            InvalidOperationError: if the table has no primary key.
            ProducerError: if records were not delivered. Other errors are those of `writer` and of `TableWriter.delete`.
        """
        with self.writer() as writer:
            writer.delete_rows(keys)
            return writer.flush(self._home.timeout)

    def scan(
        self,
        columns: Sequence[str | int] | None = None,
        *,
        start: Start = "earliest",
        until: Start = "latest",
        partitions: Collection[int] | None = None,
        limit: int | None = None,
        changes: bool = False,
        metadata: bool = False,
        on_error: OnBadRecord = "fail",
        options: Mapping[str, Any] | None = None,
        after: Offsets | str | None = None,
        timeout: float = 30.0,
    ) -> TableScan:
        """Return the rows between two positions. Both are fixed now, and rows are read when they are asked for.

        Kafka sends whole records, whatever columns are chosen, but only these are decoded.

        Of a table with a primary key, these are the current rows: the last one of each key between the positions, without
        those that were deleted. Memory has the bytes of one row for each key of the largest partition.

        Args:
            columns: names or numbers of the columns, in order; None means all.
            start: where to begin: "earliest", "latest", a time (UTC without a zone), `Offsets`, their text, or the offset by
                number of partition. The last one also chooses the partitions.
            until: where to end, in the same forms; "latest" is the present end. An open transaction holds it back.
            partitions: numbers of the partitions; None means all.
            limit: most rows; reading stops there. Which ones they are is open if there are several partitions. Of current
                rows, it stops after the partitions that have so many.
            changes: whether results of Arrow and frames have the column `_change_type`; rows of log tables are all "+A". Of
                a table with a primary key, they are then its upserts ("+U") and deletes ("-D", with the columns of the key
                only) in the order in which they were written, as far as compaction has left them.
            metadata: whether they have the columns `_change_type`, `_offset`, `_timestamp` and `_partition`.
            on_error: "fail" raises at a record that is not a row of the table; "skip" counts such records, and warns once.
            options: consumer options of librdkafka, such as `fetch.min.bytes`. Those of the connection, of groups, offsets
                and commits are refused.
            after: a token that a writer has returned, or its text: the call waits until rows up to it can be read, so that
                they are among those of the scan. It needs the present end, `until="latest"`.
            timeout: seconds that it waits for `after`.

        Raises:
            SchemaError: if the table has no schema, or no such column.
            ConfigurationError: if an option cannot be used.
            ArgumentValueError: if the topic does not have a partition, or a list is empty.
            LookupTimeoutError: if the rows of `after` cannot be read in time.
            OffsetOutOfRangeError: if an offset is no longer, or not yet, in the topic.
            StaleTokenError: if the topic was deleted and created again since the token was made.
            TopicNotFoundError: if the topic does not exist.
            InvalidOperationError: if the table has no topic.

        Example:
            ```python
            scan = table.scan(["id", "score"], start=datetime(2026, 11, 1))
            frame = scan.to_pandas()
            table.scan(start=scan.end).to_parquet("following.parquet")
            ```
        """
        return self._reads.scan(
            columns,
            start,
            until,
            partitions,
            limit,
            changes=changes,
            metadata=metadata,
            on_error=on_error,
            options=options,
            after=after,
            timeout=timeout,
        )

    def subscribe(
        self,
        columns: Sequence[str | int] | None = None,
        *,
        start: Start = "latest",
        partitions: Collection[int] | None = None,
        changes: Literal["log", "full"] = "log",
        updates: Literal["changed", "all"] = "changed",
        max_records: int = 500,
        metadata: bool = False,
        on_error: OnBadRecord = "fail",
        options: Mapping[str, Any] | None = None,
    ) -> TableStream:
        """Return the rows from a position on, without an end. Close it, or use it in `with`.

        Partitions that are added to the topic later are read from their beginning, unless partitions were chosen.

        Args:
            columns: names or numbers of the columns, in order; None means all.
            start: where to begin, as in `scan`; `str(stream.position)` of an earlier one continues it.
            partitions: numbers of the partitions; None means all.
            changes: "log" or "full". Rows of log tables are only appended, so both are the same. Of a table with a primary
                key, "log" has its upserts ("+U") and deletes ("-D", with the columns of the key only). "full" has inserts
                ("+I"), both rows of updates ("-U", then "+U" with the same offset), and deletes with the row ("-D"). For
                that, this call first reads all rows that were there at `start`, and their bytes stay in memory.
            updates: "changed" leaves out an upsert with the bytes of the row that is there; "all" returns it. For full
                changes.
            max_records: most rows that `poll`, `poll_arrow` or `poll_batches` return, and one more if the two of an update
                would be separated.
            metadata: whether results of Arrow have the columns `_change_type`, `_offset`, `_timestamp` and `_partition`.
            on_error: "fail" raises at a record that is not a row of the table; "skip" counts such records, and warns once.
            options: consumer options of librdkafka, such as `fetch.min.bytes`. Those of the connection, of groups, offsets
                and commits are refused.

        Raises:
            SchemaError: if the table has no schema, or no such column.
            ConfigurationError: if an option cannot be used.
            ArgumentValueError: if the topic does not have a partition, or a list is empty.
            OffsetOutOfRangeError: if an offset is no longer, or not yet, in the topic.
            StaleTokenError: if the topic was deleted and created again since the token was made.
            TopicNotFoundError: if the topic does not exist.
            InvalidOperationError: if the table has no topic.

        Example:
            ```python
            with table.subscribe(start="earliest") as stream:
                for record in stream.poll(timeout=5.0):
                    print(record.partition, record.offset, record.row)
                saved = str(stream.position)
            ```
        """
        return self._reads.subscribe(
            columns,
            start,
            partitions,
            changes,
            max_records,
            updates=updates,
            metadata=metadata,
            on_error=on_error,
            options=options,
        )

    def on_changes(
        self,
        callback: OnChanges,
        *,
        columns: Sequence[str | int] | None = None,
        start: Start = "latest",
        partitions: Collection[int] | None = None,
        changes: Literal["log", "full"] = "full",
        max_rows: int = 10_000,
        max_delay: float = 0.5,
        options: Mapping[str, Any] | None = None,
    ) -> ChangeListener:
        """Call a function with the rows that come, in a thread, until `stop` or an exception.

        Args:
            callback: function of a DataFrame of pandas and its number, from 0 on. Beside the columns it has `_change_type`
                and `insert_delete` (1 for a row that is added, -1 for one that is taken back).
            columns: names or numbers of the columns, in order; None means all.
            start: where to begin, as in `scan`.
            partitions: numbers of the partitions; None means all.
            changes: "log" or "full", as in `subscribe`. Without upserts that change nothing.
            max_rows: most rows of a frame, and one more if the two of an update would be separated.
            max_delay: seconds for which the first row of a frame waits for others at most.
            options: consumer options of librdkafka, such as `fetch.min.bytes`. Those of the connection, of groups, offsets
                and commits are refused.

        Raises:
            ArgumentTypeError: if `callback` is not a function.
            ConfigurationError: if an option cannot be used.
            ArgumentValueError: if a number is too low, the topic does not have a partition, or a list is empty.
            SchemaError: if the table has no schema, no such column, or one with a name of those that are added.
            OffsetOutOfRangeError: if an offset is no longer, or not yet, in the topic.
            InvalidOperationError: if the table has no topic.

        Example:
            ```python
            listener = table.on_changes(lambda frame, number: print(number, len(frame)), start="earliest")
            ...
            listener.stop()
            ```
        """
        return self._reads.on_changes(callback, columns, start, partitions, changes, max_rows, max_delay, options)

    def offsets(self, spec: Start = "latest", partitions: Collection[int] | None = None) -> Offsets:
        """Return the offsets of a place in each partition, with the topic's id.

        Args:
            spec: the place: "earliest", "latest" (the end of what can be read now), or a time (UTC without a zone), which
                means the first record that is not older, or the end if there is none. Other starts are also resolved.
            partitions: numbers of the partitions; None means all.

        Raises:
            ArgumentValueError: if the topic does not have a partition, or a list is empty.
            TopicNotFoundError: if the topic does not exist.
            InvalidOperationError: if the table has no topic.

        Example:
            ```python
            table.offsets("latest").partition_map(table.info.topic)
            ```
        """
        return self._reads.offsets(spec, partitions)

    def detect_schema(
        self, limit: int = 10, timeout: float = 60.0, types: bool = False, start: Start | None = None
    ) -> Detected:
        """Look at records of the topic, and return a schema that fits them. The table is not changed.

        It looks at the last records; if there are none, it waits for the first ones. The table's format decides what they
        are: JSON objects; Avro, whose schema comes from the registry of the catalogue, by the id in the newest record; or one
        column (`single`, `string`, `raw`). Of an HTTP stream, it takes the events that arrive, until there are `limit` or
        `timeout` is over.

        Args:
            limit: most records.
            timeout: seconds to wait while there is no record.
            types: whether types of JSON are inferred; otherwise its columns are `STRING`. Other formats have types.
            start: where to begin, as in `scan`; None means with the last records.

        Raises:
            ArgumentValueError: if `limit` is below 1, or `timeout` below 0.
            OffsetOutOfRangeError: if an offset is no longer, or not yet, in the topic.
            TopicNotFoundError: if the topic does not exist.
            InvalidOperationError: if the table has no topic, and is not an HTTP stream; or if values of its format do not say
                what their columns are: Protobuf, and Avro without a registry.
            SchemaError: if no table can have the columns of the Avro records.
            SchemaRegistryError: if the registry cannot be asked.
            SourceError: if the server of an HTTP stream refuses, or the stream breaks off before the first event.

        Example:
            ```python
            found = table.detect_schema(types=True)
            print(found.schema, found.new_columns, found.missing_columns)
            ```
        """
        return self._reads.detect_schema(limit, timeout, types, start)

    def get(
        self, key: Any, *, after: Offsets | str | None = None, fresh: bool = False, timeout: float = 30.0
    ) -> dict[str, Any] | None:
        """Return the current row of a key, or None if there is none.

        A topic has no index. So the first lookup in a partition reads all of it into a copy in memory, which later lookups
        share, and which follows the topic until the catalogue is closed: about 200 bytes and the row for each key. Other
        lookups answer from it at once. For a large table, or many processes, use `replica` with a store on disk.

        Args:
            key: the value of the one key column; a mapping with the key columns in any order; or a list or tuple with their
                values in the order of the primary key.
            after: a token that a writer has returned, or its text: rows up to it are seen.
            fresh: whether all rows are seen that were written before this call, by whatever writer. Brokers are asked for
                the end of the partition, and an open transaction there is waited for.
            timeout: seconds to wait, also for the first reading.

        Raises:
            SchemaMismatchError: if it is not a key of the table; the message names the column.
            LookupTimeoutError: if the copy is not up to date in time, or requests to a maintained table are not merged; it
                reads on, so that a later call may succeed.
            StaleTokenError: if the topic was deleted and created again since the token was made.
            SerializationError: if the record is not a row of the table.
            TopicNotFoundError: if the topic does not exist.
            InvalidOperationError: if the table has no primary key, or is in another system.

        Example:
            ```python
            token = customers.upsert({"country": "FR", "id": 7, "name": "ann"})
            customers.get({"id": 7, "country": "FR"}, after=token)
            ```
        """
        return self._look_up("get", lambda rows: rows.get_many("get", [key], after, fresh, timeout))[0]

    def get_many(
        self, keys: Sequence[Any], *, after: Offsets | str | None = None, fresh: bool = False, timeout: float = 30.0
    ) -> list[dict[str, Any] | None]:
        """Return the current row of each key, or None, in the order of the keys; the rest is as in `get`.

        Args:
            keys: the keys, each as in `get`.
            after: a token that a writer has returned, or its text: rows up to it are seen.
            fresh: whether all rows are seen that were written before this call.
            timeout: seconds to wait for all of them together.

        Raises:
            SchemaMismatchError: if one is not a key of the table; it has its number. Other errors are those of `get`.

        Example:
            ```python
            ann, bob = customers.get_many([("FR", 7), ("DE", 2)])
            ```
        """
        return self._look_up("get_many", lambda rows: rows.get_many("get_many", keys, after, fresh, timeout))

    def prefix(
        self,
        key: Any,
        *,
        limit: int | None = None,
        after: Offsets | str | None = None,
        fresh: bool = False,
        timeout: float = 30.0,
    ) -> list[dict[str, Any]]:
        """Return the rows whose key begins with some values.

        They may lie in all partitions, so that the copy that `get` describes has the whole table from then on. There they are
        next to each other: others are not read.

        Args:
            key: values of the first columns of the primary key: a mapping in any order, a list or tuple, or one value.
            limit: most rows.
            after: a token that a writer has returned, or its text: rows up to it are seen.
            fresh: whether all rows are seen that were written before this call.
            timeout: seconds to wait.

        Returns:
            The rows, partition after partition, in the order of the bytes of their keys.

        Raises:
            SchemaMismatchError: if these are not the first columns, or all of them; the message names the column. Other
                errors are those of `get`.

        Example:
            ```python
            french = customers.prefix({"country": "FR"}, limit=100)
            ```
        """
        return self._look_up("prefix", lambda rows: rows.prefix(key, limit, after, fresh, timeout))

    def replica(
        self,
        *,
        store: type[Store] = MemoryStore,
        directory: str | Path | None = None,
        partitions: Collection[int] | None = None,
        snapshots: StateSnapshots | str | None = None,
    ) -> TableReplica:
        """Return a local copy of the current rows, which follows the table. Close it, or use it in `with`.

        It begins to read at once, in a thread. Its lookups wait until it has read the table for the first time. A replica on
        disk goes on where the last one in its directory ended, unless its rows may be wrong: then they are read again, and
        the log says why. So it is after half of the topic's `delete.retention.ms`, when deletes may be gone.

        Args:
            store: class of the stores: `MemoryStore`, or `RocksDBStore` for tables of any size and fast starts.
            directory: where stores on disk are. One process uses it at a time.
            partitions: numbers of the partitions; None means all, those that are added later included.
            snapshots: an object store in which replicas of the table leave copies of their files: a replica with much to read
                begins with the newest one that fits, and one of them leaves another one after each interval. As a URL or
                `StateSnapshots`; only for stores on disk.

        Raises:
            ConfigurationError: if store, directory and snapshots do not fit each other.
            ArgumentValueError: if the topic does not have a partition.
            StoreLockedError: if another replica uses the directory.
            StateError: if the directory has other files, or cannot be used.
            TopicNotFoundError: if the topic does not exist.
            InvalidOperationError: if the table has no primary key, or is in another system.

        Example:
            ```python
            with customers.replica(store=RocksDBStore, directory="/var/lib/customers") as replica:
                replica.get(("FR", 7))
            ```
        """
        return self._lookups("replica").open_replica(store, directory, partitions, snapshots)

    def snapshot(
        self,
        columns: Sequence[str | int] | None = None,
        *,
        after: Offsets | str | None = None,
        timeout: float = 30.0,
    ) -> Snapshot:
        """Return the current rows, and the offsets up to which they contain the table.

        Of each transaction it has all rows or none. `subscribe(start=snapshot.offsets, changes="full")` continues it.

        Args:
            columns: names or numbers of the columns, in order; None means all.
            after: a token that a writer has returned, or its text: rows up to it are among them.
            timeout: seconds that it waits for `after`.

        Raises:
            ResultTooLargeError: if the rows take more than 1 GiB in memory: `scan` writes files of any size.
            InvalidOperationError: if the table has no primary key, or is in another system. Other errors are those of `scan`.

        Example:
            ```python
            rows, offsets = customers.snapshot(["id", "name"])
            ```
        """
        require_primary_key(self._info, "snapshot")
        return self._reads.snapshot(columns, after, timeout)

    def lake_snapshot(self) -> NoReturn:
        """Refuse to return what a lake has of the table.

        Raises:
            InvalidOperationError: always.
        """
        refuse_lake(self._info)

    @property
    def _catalog_home(self) -> CatalogHome:
        home: object = self._home
        if not isinstance(home, CatalogHome):
            raise InvalidOperationError(f"table {self.name!r} belongs to no catalogue that can be changed")
        return home

    def _lookups(self, method: str) -> TableLookups:
        require_primary_key(self._info, method)
        if self._made_lookups is None or self._made_lookups.info is not self._info:
            self._made_lookups = TableLookups(self._info, self._home)
        return self._made_lookups

    def _look_up(self, method: str, ask: Callable[[TableLookups], T]) -> T:
        """Return what lookups answer; if the table has another topic by now, those of this topic."""
        try:
            return ask(self._lookups(method))
        except StaleTokenError:
            if not self._follow():
                raise
        return ask(self._lookups(method))

    def _follow(self) -> bool:
        """Read again what the catalogue knows of the table, if it does; return whether the topic is another one."""
        former = self._info.topic
        with contextlib.suppress(StreamRTError):
            return self.refresh().topic != former
        return False

    @property
    def _reads(self) -> TableReads:
        if self._info.is_view:
            # Views are swapped.
            self._follow()
        return TableReads(self._info, self._home)

    def __repr__(self) -> str:
        return f"<Table {self.name!r} {self.kind}>"
