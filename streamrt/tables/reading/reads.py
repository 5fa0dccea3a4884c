"""The part of a table that reads it."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from streamrt.arguments import checked, type_name
from streamrt.errors import ArgumentValueError, InvalidOperationError
from streamrt.kafka.completion_token import Offsets
from streamrt.tables.access.feed_options import check_feed_options
from streamrt.tables.access.positions import Positions, Start, TopicPositions, is_by_number
from streamrt.tables.descriptions.home import TableHome
from streamrt.tables.descriptions.info import TableInfo, required_schema
from streamrt.tables.reading.changes import ChangeListener, OnChanges, require_listener_arguments
from streamrt.tables.reading.detection import Detected, detect
from streamrt.tables.reading.old_rows import OldRows
from streamrt.tables.reading.ranges import RangeReader
from streamrt.tables.reading.scan import TableScan
from streamrt.tables.reading.stream import TableStream
from streamrt.tables.rows.decoding import OnBadRecord, RowReader
from streamrt.tables.rows.sampling import sample_reader
from streamrt.tables.rows.token_places import TokenPlaces

__all__ = ["Snapshot", "TableReads"]


class Snapshot(NamedTuple):
    """The current rows of a table with a primary key at one position.

    Attributes:
        arrow: the rows.
        offsets: the position: all records before it are contained, and no others.
    """

    arrow: pa.Table
    offsets: Offsets


class TableReads:
    """Reads the rows of a table from its topic, committed records only; `Table` says what each method does.

    Args:
        info: the table.
        home: its catalogue.
    """

    def __init__(self, info: TableInfo, home: TableHome) -> None:
        self._info = info
        self._home = home

    def scan(
        self,
        columns: Sequence[str | int] | None,
        start: Start,
        until: Start,
        partitions: Collection[int] | None,
        limit: int | None,
        *,
        changes: bool = False,
        metadata: bool = False,
        on_error: OnBadRecord = "fail",
        options: Mapping[str, Any] | None = None,
        after: Offsets | str | None = None,
        timeout: float = 30.0,
        method: str = "scan",
        keys: Collection[bytes] | None = None,
        on_poll: Callable[[int], None] | None = None,
    ) -> TableScan:
        """Return the rows between two positions. Both are fixed now, and rows are read when they are asked for.

        `keys` are the only keys of current rows that are wanted; `on_poll` is that of `RangeReader`.
        """
        current = self._info.kind == "primary-key" and not changes
        readers = self._make_readers(columns, changes=changes, metadata=metadata, on_error=on_error, current=current)
        chosen = check_feed_options("scan", options)
        if after is not None and not (isinstance(until, str) and until == "latest"):
            raise ArgumentValueError("scan(after=..., until=...): a scan ends at one of them; leave the other one out")
        positions = self._make_positions()
        numbers = positions.chosen(partitions, start, until)
        if after is None:
            bounds = positions.read_bounds(numbers)
        else:
            places = TokenPlaces(self._info, self._home, positions)
            bounds = places.wait_until_readable(after, numbers, timeout, f"{method}(after=...)")
        ranges = RangeReader(
            self._home.links,
            positions,
            positions.starts(start, bounds),
            positions.ends(until, bounds),
            self._home.timeout,
            chosen,
            on_poll,
        )
        return TableScan(ranges, readers, limit=limit, current=current, keys=keys)

    def snapshot(self, columns: Sequence[str | int] | None, after: Offsets | str | None, timeout: float) -> Snapshot:
        """Return the current rows, and the offsets up to which they contain the table."""
        scan = self.scan(columns, "earliest", "latest", None, None, after=after, timeout=timeout, method="snapshot")
        return Snapshot(scan.to_arrow(), scan.end)

    def subscribe(
        self,
        columns: Sequence[str | int] | None,
        start: Start,
        partitions: Collection[int] | None,
        changes: Literal["log", "full"],
        max_records: int,
        *,
        updates: Literal["changed", "all"],
        metadata: bool,
        on_error: OnBadRecord,
        options: Mapping[str, Any] | None,
    ) -> TableStream:
        """Return the rows from a position on, without an end. Close it, or use it in `with`."""
        readers = self._make_readers(columns, metadata=metadata, on_error=on_error)
        chosen = check_feed_options("subscribe", options)
        return self._make_stream(readers, start, partitions, changes, max_records, chosen, updates)

    def on_changes(
        self,
        callback: OnChanges,
        columns: Sequence[str | int] | None,
        start: Start,
        partitions: Collection[int] | None,
        changes: Literal["log", "full"],
        max_rows: int,
        max_delay: float,
        options: Mapping[str, Any] | None,
    ) -> ChangeListener:
        """Call a function with the rows that come, in a thread, until `stop` or an exception."""
        require_listener_arguments(callback, max_rows, max_delay)
        chosen = check_feed_options("on_changes", options)
        stream = self._make_stream(
            self._make_readers(columns, changes=True), start, partitions, changes, max_rows, chosen
        )
        return ChangeListener(stream, callback, max_rows, max_delay)

    def offsets(self, spec: Start, partitions: Collection[int] | None) -> Offsets:
        """Return the offsets of a place in each partition, with the topic's id."""
        positions = self._make_positions()
        return positions.find(spec, positions.read_bounds(positions.chosen(partitions, spec))).offsets()

    def detect_schema(self, limit: int, timeout: float, types: bool, start: Start | None) -> Detected:
        """Look at records of the topic, and return a schema that fits them. The table is not changed."""
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            raise ArgumentValueError(f"limit must be 1 or more records, got {limit!r}")
        if not timeout >= 0:
            raise ArgumentValueError(f"timeout must be 0 or more seconds, got {timeout!r}")
        if self._info.kind == "external":
            from streamrt.tables.reading.event_detection import detect_events

            return detect_events(self._info, self._home, limit=limit, timeout=timeout, types=types, start=start)
        read = sample_reader(self._info, self._home.schema_registry)
        return detect(
            self._home.links,
            self._make_positions(),
            self._info.schema,
            limit=limit,
            timeout=timeout,
            types=types,
            start=start,
            read=read,
        )

    def _make_stream(
        self,
        readers: Callable[[], RowReader],
        start: Start,
        partitions: Collection[int] | None,
        changes: str,
        max_records: int,
        options: Mapping[str, Any],
        updates: str = "changed",
    ) -> TableStream:
        if changes not in ("log", "full"):
            raise ArgumentValueError(f'changes must be "log" or "full", got {changes!r}')
        if updates not in ("changed", "all"):
            raise ArgumentValueError(f'updates must be "changed" or "all", got {updates!r}')
        is_full = changes == "full" and self._info.kind == "primary-key"
        if updates == "all" and not is_full:
            raise ArgumentValueError(
                'updates="all" is for changes="full" of tables with a primary key: others return all rows in any case'
            )
        positions = self._make_positions()
        chosen = positions.chosen(partitions, start)
        return TableStream(
            self._home.links,
            positions,
            positions.starts(start, positions.read_bounds(chosen)),
            readers(),
            max_records=max_records,
            follows_new=partitions is None and not is_by_number(start),
            options=options,
            old_rows=self._make_old_rows(positions, options, updates) if is_full else None,
        )

    def _make_old_rows(self, positions: TopicPositions, options: Mapping[str, Any], updates: str) -> OldRows:
        def read_range(start: Positions, end: Positions) -> RangeReader:
            return RangeReader(self._home.links, positions, start, end, self._home.timeout, options)

        return OldRows(positions.topic, positions.read_bounds, read_range, reports_all=updates == "all")

    def _make_positions(self) -> TopicPositions:
        info = self._info
        if info.topic is None:
            raise InvalidOperationError(
                f"table {info.name!r} is in another system ({info.connector}), and reading it without an application is not "
                "there yet: read it by app.dataframe(table)"
            )
        admin, home = self._home.links.admin(), self._home
        return TopicPositions(admin, info.topic, info.name, home.timeout, lambda: home.load(info.name).topic)

    def _make_readers(
        self,
        columns: Sequence[str | int] | None,
        *,
        changes: bool = False,
        metadata: bool = False,
        on_error: OnBadRecord = "fail",
        current: bool = False,
    ) -> Callable[[], RowReader]:
        info = self._info
        if info.kind == "external":
            self._make_positions()
        required_schema(info)
        checked("columns", columns, Sequence, "a list of names or numbers", optional=True, show=type_name)
        if columns is not None and not columns:
            raise ArgumentValueError("columns must name one column or more: leave it out for all")
        return partial(
            RowReader,
            self._home.row_format(info),
            # Only external tables have none.
            str(info.topic),
            columns,
            changes=changes,
            metadata=metadata,
            on_error=on_error,
            keys=self._home.key_format(info) if info.kind == "primary-key" else None,
            current=current,
        )
