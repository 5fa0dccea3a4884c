"""Verifies a view: its query as a batch in DuckDB, over the records that it has processed, gives the rows of its table."""

import contextlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from streamrt.errors import InvalidOperationError
from streamrt.kafka.completion_token import Offsets
from streamrt.records import TopicPartition
from streamrt.runtime.driver.life.completion import OffsetView
from streamrt.sql.binding import plan as plans
from streamrt.sql.verify.batch_tables import add_table, connect_duckdb
from streamrt.sql.verify.comparison import Comparison, compare_rows
from streamrt.sql.verify.excuses import Excuses, excuse_rows
from streamrt.sql.verify.origins import find_records, trace_columns
from streamrt.sql.verify.processed import Processed, find_processed
from streamrt.sql.verify.verification import DifferingRow, Verification
from streamrt.tables.table import Table
from streamrt.topology import Topology

__all__ = ["VerifiedView", "verify_view"]

_MOST_ROWS = 20
"""Rows that differ, and are shown with the records that they are made of."""


@dataclass(frozen=True)
class VerifiedView:
    """A view as its verification sees it.

    Attributes:
        name: its name.
        plan: its plan.
        query: returns its query in DuckDB's SQL: with the windows that are over at a time in milliseconds since 1970, or,
            for None, with all.
        tables: the tables that the query reads, by their names in it.
        output: the table with its rows.
    """

    name: str
    plan: plans.Plan
    query: Callable[[int | None], str]
    tables: Mapping[str, Table]
    output: Table

    @property
    def columns(self) -> list[str]:
        """The names of its columns."""
        return [field.name for field in self.plan.fields]


def verify_view(
    view: VerifiedView,
    topology: Topology,
    offsets: OffsetView,
    *,
    transactional: bool,
    timeout: float,
    late_records: int = 0,
) -> Verification:
    """Compare the rows of a view with those of its query.

    Args:
        view: the view.
        topology: the operators of its application, resolved.
        offsets: offsets of the topics and of the group.
        transactional: whether the application processes exactly once.
        timeout: seconds to wait for a moment at which no records are in flight.
        late_records: number of records that came too late for windows of the application, as far as it is known.

    Raises:
        ApplicationTimeoutError: if records were in flight all the time.
        ConfigurationError: if DuckDB is not installed.
        InvalidOperationError: if records that the view has processed are no longer in a table.
    """
    topics = {table.info.topic or table.name for table in view.tables.values()}
    processed = find_processed(topology, topics, view.output, offsets, transactional=transactional, timeout=timeout)
    until = _make_offsets(processed.inputs, view.tables.values())
    for table in view.tables.values():
        _require_whole(view, table, offsets)
    _require_whole(view, view.output, offsets)
    rows = view.output.scan(view.columns, until=processed.output).to_arrow()
    tables = {name: (table, _part(until, table)) for name, table in view.tables.items()}
    with contextlib.closing(connect_duckdb()) as connection:
        for name, (table, end) in tables.items():
            add_table(connection, name, table.scan(until=end).to_arrow())
        differing = compare_rows(connection, view.query(None), rows)
        excuses = excuse_rows(connection, view.plan, tables, view.query, differing)
    return Verification(
        view.name,
        until,
        rows.num_rows,
        _describe(view, excuses.differing, until),
        excuses.differing.size,
        _make_notes(view, excuses, late_records, processed, offsets),
        _describe(view, excuses.excused, until),
        excuses.excused.size,
    )


def _make_offsets(at: Mapping[TopicPartition, int], tables: Collection[Table]) -> Offsets:
    """Return offsets with the ids that the topics have now: a scan notices if one is created again meanwhile."""
    ids: dict[str, str] = {}
    for table in tables:
        ids |= table.offsets("earliest").ids
    return Offsets(at, ids)


def _part(until: Offsets, table: Table) -> Offsets:
    """Return the offsets of the topic of a table."""
    topic = table.info.topic or table.name
    at = {each: offset for each, offset in until.items() if each.topic == topic}
    return Offsets(at, {topic: until.ids[topic]} if topic in until.ids else {})


def _require_whole(view: VerifiedView, table: Table, offsets: OffsetView) -> None:
    """Refuse a log table whose first records are gone."""
    if table.kind == "primary-key":
        return
    partitions = offsets.partitions([table.info.topic or table.name])
    for each, (first, _) in sorted(offsets.bounds(partitions).items()):
        if first:
            raise InvalidOperationError(
                f"view {view.name!r} cannot be verified: {table.name!r} no longer has the records before offset {first} of "
                f"{each}, which retention has deleted, and its rows were made of them or are among them. Give the table a "
                "longer retention.ms, or a primary key"
            )


def _describe(view: VerifiedView, differing: Comparison, until: Offsets) -> tuple[DifferingRow, ...]:
    """Return the first rows that differ, some of each kind, with the records that they are made of."""
    half = _MOST_ROWS // 2
    missing = differing.missing[: max(half, _MOST_ROWS - len(differing.surplus))]
    surplus = differing.surplus[: _MOST_ROWS - len(missing)]
    rows = [dict(zip(view.columns, row, strict=True)) for row in (*missing, *surplus)]
    if not rows:
        return ()
    records = find_records(rows, trace_columns(view.plan), view.tables, until)
    kinds = ("missing",) * len(missing) + ("surplus",) * len(surplus)
    return tuple(map(DifferingRow, kinds, rows, records))  # type: ignore[arg-type]


def _make_notes(
    view: VerifiedView, excuses: Excuses, late_records: int, processed: Processed, offsets: OffsetView
) -> tuple[str, ...]:
    notes = []
    if late_records:
        notes.append(
            f"{late_records} records came too late for a window or join of the application since its start, and were dropped"
        )
    if excuses.excused.size and excuses.late_records:
        notes.append(
            "records of its inputs that may have come too late, as they are far behind others of their partition: "
            f"{excuses.late_records}"
        )
    if excuses.open_rows:
        why = "of windows that may be open"
        if any(isinstance(each, plans.OverStream) for each in plans.walk_plan(view.plan)):
            why += ", or that wait for earlier ones"
        notes.append(f"rows {why}, and are not in the view yet: {excuses.open_rows}")
    if excuses.differing.size:
        notes += _find_rewritten(view, processed, offsets)
    return tuple(notes)


def _find_rewritten(view: VerifiedView, processed: Processed, offsets: OffsetView) -> list[str]:
    """Return which tables were written further: compaction may have removed rows of before."""
    ends = offsets.bounds(list(processed.inputs))
    names = []
    for name, table in view.tables.items():
        topic = table.info.topic or table.name
        ahead = [each for each, at in processed.inputs.items() if each.topic == topic and at < ends[each][1]]
        if table.kind == "primary-key" and ahead:
            names.append(name)
    return [
        f"{name} has further records behind these offsets, so compaction may have removed rows that they have replaced"
        for name in names
    ]
