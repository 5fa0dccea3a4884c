"""`ReadableTable`: the methods of a table that read."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from streamrt.errors import ArgumentTypeError, ArgumentValueError, InvalidOperationError, SchemaError
from streamrt.kafka.token import Offsets
from streamrt.serializers.row_formats import RowFormat
from streamrt.tables.changes import ChangeListener, OnChanges, require_listener_arguments
from streamrt.tables.decoding import OnBadRecord
from streamrt.tables.detection import Detected, detect
from streamrt.tables.feed_options import check_feed_options
from streamrt.tables.info import TableInfo
from streamrt.tables.links import TableLinks
from streamrt.tables.positions import Start, TopicPositions, is_by_number
from streamrt.tables.sampling import sample_reader
from streamrt.tables.scan import RowReaderFactory, TableScan
from streamrt.tables.stream import TableStream

if TYPE_CHECKING:
    from streamrt.serializers.registry import SchemaRegistryClientConfig

__all__ = ["ReadableTable"]


class ReadHome(Protocol):
    """What reading needs of a catalogue."""

    @property
    def links(self) -> TableLinks:
        """How topics are reached."""

    @property
    def timeout(self) -> float:
        """Seconds to wait for answers."""

    def row_format(self, info: TableInfo) -> RowFormat:
        """Return the format of rows."""


@runtime_checkable
class HasRegistry(Protocol):
    """The part of a catalogue that knows a schema registry."""

    @property
    def schema_registry(self) -> "SchemaRegistryClientConfig | None":
        """Connection to the schema registry, or None."""


class ReadableTable:
    """The rows of a table, read from its topic. All methods read committed records alone."""

    _info: TableInfo
    _home: ReadHome

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
    ) -> TableScan:
        """Return the rows between two positions. Both are fixed now, and rows are read when they are asked for.

        Kafka sends whole records, whatever columns are chosen, but only these are decoded.

        Args:
            columns: names or numbers of the columns, in order; None means all.
            start: where to begin: "earliest", "latest", a time (UTC without a zone), `Offsets`, their text, or the offset by
                number of partition. The last one chooses the partitions, too.
            until: where to end, in the same forms; "latest" is the present end. An open transaction holds it back.
            partitions: numbers of the partitions; None means all.
            limit: most rows; reading stops there. Which ones they are is open if there are several partitions.
            changes: whether results of Arrow and frames have the column `_change_type`; rows of log tables are all "+A".
            metadata: whether they have the columns `_change_type`, `_offset`, `_timestamp` and `_partition`.
            on_error: "fail" raises at a record that is no row of the table; "skip" counts such records, and warns once.
            options: consumer options of librdkafka, such as `fetch.min.bytes`. Those of the connection, of groups, offsets
                and commits are refused.

        Raises:
            SchemaError: if the table has no schema, or no such column.
            ConfigurationError: if an option cannot be used.
            ArgumentValueError: if the topic does not have a partition, or a list is empty.
            OffsetOutOfRangeError: if an offset is no longer, or not yet, in the topic.
            StaleTokenError: if the topic was deleted and created again since the token was made.
            TopicNotFoundError: if the topic does not exist.
            InvalidOperationError: if the table has no topic, or a primary key.

        Example:
            ```python
            scan = table.scan(["id", "score"], start=datetime(2026, 11, 1))
            frame = scan.to_pandas()
            table.scan(start=scan.end).to_parquet("following.parquet")
            ```
        """
        readers = self._readers(columns, changes=changes, metadata=metadata, on_error=on_error)
        chosen = check_feed_options("scan", options)
        positions = self._positions()
        bounds = positions.look(positions.chosen(partitions, start, until))
        return TableScan(
            self._home.links,
            positions,
            (positions.starts(start, bounds), positions.ends(until, bounds)),
            readers,
            limit=limit,
            timeout=self._home.timeout,
            options=chosen,
        )

    def subscribe(
        self,
        columns: Sequence[str | int] | None = None,
        *,
        start: Start = "latest",
        partitions: Collection[int] | None = None,
        changes: Literal["log", "full"] = "log",
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
            changes: "log" or "full". Rows of log tables are only appended, so both are the same.
            max_records: most rows that `poll`, `poll_arrow` or `poll_batches` return.
            metadata: whether results of Arrow have the columns `_change_type`, `_offset`, `_timestamp` and `_partition`.
            on_error: "fail" raises at a record that is no row of the table; "skip" counts such records, and warns once.
            options: consumer options of librdkafka, such as `fetch.min.bytes`. Those of the connection, of groups, offsets
                and commits are refused.

        Raises:
            SchemaError: if the table has no schema, or no such column.
            ConfigurationError: if an option cannot be used.
            ArgumentValueError: if the topic does not have a partition, or a list is empty.
            OffsetOutOfRangeError: if an offset is no longer, or not yet, in the topic.
            StaleTokenError: if the topic was deleted and created again since the token was made.
            TopicNotFoundError: if the topic does not exist.
            InvalidOperationError: if the table has no topic, or a primary key.

        Example:
            ```python
            with table.subscribe(start="earliest") as stream:
                for record in stream.poll(timeout=5.0):
                    print(record.partition, record.offset, record.row)
                saved = str(stream.position)
            ```
        """
        readers = self._readers(columns, metadata=metadata, on_error=on_error)
        chosen = check_feed_options("subscribe", options)
        return self._stream(readers, start, partitions, changes, max_records, chosen)

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
                ("+A") and `insert_delete` (1 for a row that is added, -1 for one that is taken back).
            columns: names or numbers of the columns, in order; None means all.
            start: where to begin, as in `scan`.
            partitions: numbers of the partitions; None means all.
            changes: "log" or "full". Rows of log tables are only appended, so both are the same.
            max_rows: most rows of a frame.
            max_delay: seconds for which the first row of a frame waits for others at most.
            options: consumer options of librdkafka, such as `fetch.min.bytes`. Those of the connection, of groups, offsets
                and commits are refused.

        Raises:
            ArgumentTypeError: if `callback` is no function.
            ConfigurationError: if an option cannot be used.
            ArgumentValueError: if a number is too low, the topic does not have a partition, or a list is empty.
            SchemaError: if the table has no schema, no such column, or one with a name of those that are added.
            OffsetOutOfRangeError: if an offset is no longer, or not yet, in the topic.
            InvalidOperationError: if the table has no topic, or a primary key.

        Example:
            ```python
            listener = table.on_changes(lambda frame, number: print(number, len(frame)), start="earliest")
            ...
            listener.stop()
            ```
        """
        require_listener_arguments(callback, max_rows, max_delay)
        chosen = check_feed_options("on_changes", options)
        stream = self._stream(self._readers(columns, changes=True), start, partitions, changes, max_rows, chosen)
        return ChangeListener(stream, callback, max_rows, max_delay)

    def offsets(self, spec: Start = "latest", partitions: Collection[int] | None = None) -> Offsets:
        """Return the offsets of a place in each partition, with the topic's id.

        Args:
            spec: the place: "earliest", "latest" (the end of what can be read now), or a time (UTC without a zone), which
                means the first record that is not older, or the end if there is none. Other starts are resolved, too.
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
        positions = self._positions()
        return positions.find(spec, positions.look(positions.chosen(partitions, spec))).offsets()

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
            InvalidOperationError: if the table has no topic, and is no HTTP stream; or if values of its format do not say
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
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            raise ArgumentValueError(f"limit must be 1 or more records, got {limit!r}")
        if not timeout >= 0:
            raise ArgumentValueError(f"timeout must be 0 or more seconds, got {timeout!r}")
        if self._info.kind == "external":
            from streamrt.tables.event_detection import detect_events

            return detect_events(self._info, limit=limit, timeout=timeout, types=types, start=start)
        home: object = self._home
        read = sample_reader(self._info, home.schema_registry if isinstance(home, HasRegistry) else None)
        return detect(
            self._home.links,
            self._positions(),
            self._info.schema,
            limit=limit,
            timeout=timeout,
            types=types,
            start=start,
            read=read,
        )

    def _stream(
        self,
        readers: RowReaderFactory,
        start: Start,
        partitions: Collection[int] | None,
        changes: str,
        max_records: int,
        options: Mapping[str, Any],
    ) -> TableStream:
        if changes not in ("log", "full"):
            raise ArgumentValueError(f'changes must be "log" or "full", got {changes!r}')
        positions = self._positions()
        chosen = positions.chosen(partitions, start)
        return TableStream(
            self._home.links,
            positions,
            positions.starts(start, positions.look(chosen)),
            readers(),
            max_records=max_records,
            follows_new=partitions is None and not is_by_number(start),
            options=options,
        )

    def _positions(self) -> TopicPositions:
        info = self._info
        if info.topic is None:
            raise InvalidOperationError(
                f"table {info.name!r} is in another system ({info.connector}), and reading it without an application is not "
                "there yet: read it by app.dataframe(table)"
            )
        return TopicPositions(self._home.links.admin(), info.topic, info.name, self._home.timeout)

    def _readers(
        self,
        columns: Sequence[str | int] | None,
        *,
        changes: bool = False,
        metadata: bool = False,
        on_error: OnBadRecord = "fail",
    ) -> RowReaderFactory:
        info = self._info
        if info.kind == "primary-key":
            raise InvalidOperationError(
                f"reading the rows of table {info.name!r}, which has a primary key, is not there yet: read its topic "
                f"{info.topic!r} by app.dataframe()"
            )
        if info.kind == "external":
            self._positions()
        if info.schema is None:
            raise SchemaError(f"table {info.name!r} has no schema: set one by set_schema(), or see detect_schema()")
        if columns is not None and not isinstance(columns, Sequence):
            raise ArgumentTypeError(f"columns must be a list of names or numbers, got {type(columns).__name__}")
        if columns is not None and not columns:
            raise ArgumentValueError("columns must name one column or more: leave it out for all")
        return RowReaderFactory(
            self._home.row_format(info), info.topic, columns, changes=changes, metadata=metadata, on_error=on_error
        )
