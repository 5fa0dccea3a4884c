"""Output to tables. `to_table` is a method of `StreamingDataFrame`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from streamrt.dataframe.branch import Frame
from streamrt.dataframe.capturing import CaptureSettings, ChangeCondition, SequenceOf, capture_changes
from streamrt.dataframe.streaming_table import StreamingTable
from streamrt.dataframe.tables import KeyOfRow, choose_output_topic, find_table, make_key_function
from streamrt.operators.to_table import TableSinkOperator, ToTable
from streamrt.relations import UpsertRows

if TYPE_CHECKING:
    from streamrt.tables import Table

__all__ = ["to_table"]

F = TypeVar("F", bound=Frame)


@overload
def to_table(
    self: F, table: Table | str, key: KeyOfRow | None = None, *, columns: Sequence[str] | None = None
) -> F: ...


@overload
def to_table(
    self: F,
    table: Table | str,
    key: KeyOfRow | None = None,
    *,
    sequence_by: SequenceOf | None = None,
    change_events: bool | str = False,
    scd: Literal[1, 2] = 1,
    apply_as_deletes: ChangeCondition | None = None,
    apply_as_truncates: ChangeCondition | None = None,
    columns: Sequence[str] | None = None,
    except_columns: Sequence[str] | None = None,
    ignore_null_updates: bool | Sequence[str] = False,
    track_history_columns: Sequence[str] | None = None,
    track_history_except_columns: Sequence[str] | None = None,
    retention: timedelta | int | None = None,
) -> StreamingTable[F]: ...


def to_table(  # noqa: D417 - a method
    self: F,
    table: Table | str,
    key: KeyOfRow | None = None,
    *,
    sequence_by: SequenceOf | None = None,
    change_events: bool | str = False,
    scd: Literal[1, 2] = 1,
    apply_as_deletes: ChangeCondition | None = None,
    apply_as_truncates: ChangeCondition | None = None,
    columns: Sequence[str] | None = None,
    except_columns: Sequence[str] | None = None,
    ignore_null_updates: bool | Sequence[str] = False,
    track_history_columns: Sequence[str] | None = None,
    track_history_except_columns: Sequence[str] | None = None,
    retention: timedelta | int | None = None,
) -> Any:
    """Write each value, as a row, to a table: append it, or upsert it if the table has a primary key.

    A value of None deletes the row whose primary key is the record's key; tables without a primary key refuse it.

    Values are checked against the table's schema. One that does not fit is handled as a record that cannot be produced is:
    by `on_producer_error`, and by the policy of `on_error` for "produce". The row has the timestamp and the headers of the
    record, and its delivery the guarantee of the application, as with `to_topic`.

    Rows of a maintained table are requests, which the application that maintains it merges (docs/partial-updates.md).

    An external table is written by its sink, whose errors are those of `sink()`; its delivery is at least once.

    With `sequence_by` or `change_events`, values are changes captured at the origin of the rows, in any order. The table then
    has, of each key, the row after the change with the greatest sequence, or, with `scd=2`, all versions of it. Records are
    grouped by the primary key. The result is a table of the present rows, and values that do not fit are errors of
    processing. See docs/cdc.md.

    Args:
        table: the table, or its name in the catalogue of the application.
        key: what the key is. A table with key columns takes it from the row, so nothing but their names can be given. For
            other tables, a function from the value to a text, bytes or None; by default the record's key.
        sequence_by: what orders the changes of a key: a column, several columns, a series, or a function of the value. Never
            null. Of changes with the same sequence, the later record counts.
        change_events: whether values are events of `PostgresCdcSource` or `MySQLCdcSource`, which say their sequence, deletes
            and truncates themselves; or the name of the table at the origin whose events are taken.
        scd: type of the slowly changing dimension. 1: a change overwrites the row. 2: each version is a row, with the
            sequence from which it is in force in the column `__START_AT`, which ends the primary key, and that from which
            it no longer is in `__END_AT`.
        apply_as_deletes: condition of a delete: a series, or a function of the value. By default, all changes are upserts.
        apply_as_truncates: condition of a change that deletes all rows of lower sequences.
        columns: the columns of the table that are written; all by default. The key is written in any case. Of a maintained
            table, they can also be chosen without changes: other columns of the row stay as they are.
        except_columns: columns of the table that are not written.
        ignore_null_updates: whether a column that is null or missing keeps its value; or the columns for which it does.
            Columns that a change event leaves out keep theirs in any case.
        track_history_columns: with `scd=2`, the columns whose changes make a version; other changes are made to the version
            in force. All columns by default.
        track_history_except_columns: with `scd=2`, the columns whose changes make no version.
        retention: how long a deletion is remembered, and with `scd=2` how long a version can be split by an older change: a
            timedelta or milliseconds of event time; two days by default.

    Returns:
        This frame; no assignment is needed. With changes, a `StreamingTable` of the present rows.

    Raises:
        InvalidOperationError: if rows cannot be written to the table, because its system is only read, or because it has a
            primary key and its topic got more partitions; or if an argument does not fit the table or another argument.
        SchemaError: if the table has no schema.
        TableNotFoundError: if there is no table of this name.

    Example:
        ```python
        orders = app.dataframe("shop.orders")
        orders[orders["total"] > 1_000].to_table("shop.large_orders")

        changes = app.dataframe(app.topic("customer-changes"))
        customers = changes.to_table("shop.customers", sequence_by="version", apply_as_deletes=changes["op"] == "DELETE")
        ```
    """
    settings = CaptureSettings(
        scd,
        apply_as_deletes,
        apply_as_truncates,
        columns,
        except_columns,
        ignore_null_updates,
        track_history_columns,
        track_history_except_columns,
        retention,
    )
    found = find_table(self._branch, table)
    info, home = found.info, found.home
    # With pyarrow, which programs without tables do not wait for.
    from streamrt.tables.descriptions.info import require_keys_in_place

    require_keys_in_place(info, info.num_partitions)
    chosen = make_key_function(found, key)
    if sequence_by is not None or change_events:
        return capture_changes(self, found, sequence_by, change_events, settings)
    settings.refuse_all(but=() if info.maintenance is None else ("columns",))
    if info.kind == "external":
        from streamrt.tables.endpoints.endpoints import endpoint_sink, row_check

        sink = endpoint_sink(info, home)
        self._branch.add(TableSinkOperator(sink, row_check(info, home), info.name, chosen))
        return self
    topic = self._branch.topic_manager.register(choose_output_topic(found, columns))
    writes = UpsertRows if info.kind == "primary-key" else ToTable
    return self._in_place(writes(topic, chosen, None, info.name))
