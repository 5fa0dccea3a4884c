"""Changes captured at the origin of rows, for `to_table`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from streamrt.arguments import checked, checked_choice
from streamrt.dataframe.aggregating import key_columns
from streamrt.dataframe.branch import Branch, Frame
from streamrt.dataframe.grouping import column_list
from streamrt.dataframe.series import StreamingSeries
from streamrt.dataframe.streaming_table import StreamingTable
from streamrt.dataframe.tables import choose_output_topic
from streamrt.errors import ArgumentValueError, InvalidOperationError
from streamrt.operators import ColumnKey, ColumnsKey, Filter, Repartition
from streamrt.operators.functions import require_callable
from streamrt.relations import (
    END_AT,
    START_AT,
    ApplyChanges,
    ChangeEvents,
    ChangeKey,
    ChangeReader,
    ChangeRows,
    IsEventOf,
    KeyChanges,
    PresentRow,
    RowHistory,
    RowRules,
)
from streamrt.relations.captured import Condition
from streamrt.state.transactions.timed import TimedTransaction
from streamrt.topics.durations import milliseconds

if TYPE_CHECKING:
    from streamrt.tables import Table

__all__ = ["CaptureSettings", "ChangeCondition", "SequenceOf", "capture_changes"]

F = TypeVar("F", bound=Frame)
ChangeCondition = StreamingSeries | Callable[[Any], Any]
SequenceOf = str | Sequence[str] | StreamingSeries | Callable[[Any], Any]

_RETENTION = timedelta(days=2)
_OF_EVENTS = "does not go with change_events: the events say it themselves"
_OF_HISTORY = "needs scd=2: with scd=1, the table has no history"


@dataclass(frozen=True, eq=False)
class CaptureSettings:
    """Arguments of `to_table` that need changes; see there. None and False stand for arguments that were not given."""

    scd: Literal[1, 2] = 1
    apply_as_deletes: ChangeCondition | None = None
    apply_as_truncates: ChangeCondition | None = None
    columns: Sequence[str] | None = None
    except_columns: Sequence[str] | None = None
    ignore_null_updates: bool | Sequence[str] = False
    track_history_columns: Sequence[str] | None = None
    track_history_except_columns: Sequence[str] | None = None
    retention: timedelta | int | None = None

    def refuse_all(self, but: Sequence[str] = ()) -> None:
        """Refuse all arguments, because values are not changes.

        Args:
            but: names of those that may be given.

        Raises:
            ArgumentValueError: if one was given.
        """
        names = [field.name for field in fields(self) if field.name not in but]
        self._refuse(names, "needs sequence_by, which orders changes, or change_events")

    def check(self, with_events: bool) -> None:
        """Refuse arguments that do not fit each other.

        Args:
            with_events: whether values are change events.

        Raises:
            ArgumentValueError: if two arguments exclude each other.
            ArgumentTypeError: if one is of another type.
        """
        checked_choice("to_table(scd=...)", self.scd, (1, 2))
        if with_events:
            self._refuse(["apply_as_deletes", "apply_as_truncates"], _OF_EVENTS)
        if self.scd == 1:
            self._refuse(["track_history_columns", "track_history_except_columns"], _OF_HISTORY)
        for one, other in (
            ("columns", "except_columns"),
            ("track_history_columns", "track_history_except_columns"),
        ):
            if getattr(self, one) is not None and getattr(self, other) is not None:
                raise ArgumentValueError(f"to_table() takes {one} or {other}, not both")

    def _refuse(self, names: Sequence[str], reason: str) -> None:
        for name in names:
            value = getattr(self, name)
            if not (value is None or value is False or (name == "scd" and value == 1)):
                raise ArgumentValueError(f"to_table({name}=...) {reason}")


def capture_changes(
    frame: F, table: Table, sequence_by: SequenceOf | None, change_events: bool | str, settings: CaptureSettings
) -> StreamingTable[F]:
    """Apply the changes of a frame to a table, and return the table of its present rows.

    Args:
        frame: the frame.
        table: the table.
        sequence_by: what orders changes; None for change events.
        change_events: whether values are change events, or the name of their table.
        settings: the other arguments of `to_table`.

    Raises:
        InvalidOperationError: if an argument does not fit the table or another argument.
    """
    if sequence_by is not None and change_events:
        raise ArgumentValueError(f"to_table(sequence_by=...) {_OF_EVENTS}")
    settings.check(bool(change_events))
    branch, reader = frame._branch, _make_reader(frame, sequence_by, change_events, settings)
    if isinstance(change_events, str):
        branch = branch.add(Filter(IsEventOf(change_events)))
    elif change_events:
        branch = branch.add(Filter(IsEventOf(None)))
    rules = _make_rules(table, bool(change_events), settings)
    branch = _group_changes(branch, table, rules.key, reader)
    store = branch.own_store("changes", "to_table() with changes", "group_by(..., name='...') before it")
    retention = milliseconds(
        "to_table(retention=...)", _RETENTION if settings.retention is None else settings.retention
    )
    keeper: PresentRow | RowHistory = PresentRow(rules, retention)
    if settings.scd == 2:
        keeper = RowHistory(rules, _tracked_columns(table, rules, settings), retention)
    chosen = settings.columns is not None or settings.except_columns is not None
    partly = chosen and table.info.maintenance is not None
    topic = choose_output_topic(table, rules.columns if partly else None, of_changes=True)
    branch.topic_manager.register(topic)
    operator = ApplyChanges(topic, reader, rules, keeper, branch.store(store, TimedTransaction))
    return StreamingTable(frame, branch.add(operator).of_tables(), rules.key)


def _make_reader(
    frame: Frame, sequence_by: SequenceOf | None, change_events: bool | str, settings: CaptureSettings
) -> ChangeReader:
    if sequence_by is None:
        checked("to_table(change_events=...)", change_events, bool | str, "True or the name of a table")
        return ChangeEvents()
    sequence: tuple[str, ...] | Condition
    if isinstance(sequence_by, str | Sequence):
        sequence = column_list(
            "to_table(sequence_by=...)", [sequence_by] if isinstance(sequence_by, str) else sequence_by
        )
        if settings.scd == 2 and len(sequence) > 1:
            raise ArgumentValueError(
                f"to_table(sequence_by={list(sequence)!r}) does not fit the column {START_AT}, which has one value: with "
                "scd=2, name one column, or give a function that makes one value of them, in the same order"
            )
    else:
        sequence = _condition("sequence_by", sequence_by, frame)
    deletes, truncates = (
        None if given is None else _condition(name, given, frame)
        for name, given in (
            ("apply_as_deletes", settings.apply_as_deletes),
            ("apply_as_truncates", settings.apply_as_truncates),
        )
    )
    return ChangeRows(sequence, deletes, truncates)


def _condition(argument: str, given: ChangeCondition, frame: Frame) -> Condition:
    if isinstance(given, StreamingSeries):
        if given.frame is not frame:
            raise ArgumentValueError(
                f"to_table({argument}=...) got a series of another dataframe: take it from the current one, after the last "
                "assignment to its variable"
            )
        return given.expression
    require_callable(f"to_table({argument}=...) takes a series or a function of the value; it", given)
    return given


def _make_rules(table: Table, with_events: bool, settings: CaptureSettings) -> RowRules:
    schema, name = table.schema, table.name
    if table.info.kind != "primary-key":
        kind = "an external one" if table.info.kind == "external" else "a log"
        raise InvalidOperationError(
            f"to_table() of changes needs a table with a primary key, and {name} is {kind}: create one, or leave sequence_by "
            "and change_events out, and append the changes"
        )
    key = table.info.key
    if settings.scd == 2:
        _check_history(table)
        key = tuple(column for column in key if column != START_AT)
    elif START_AT in schema.names or END_AT in schema.names:
        raise ArgumentValueError(
            f"table {name} has a column {START_AT} or {END_AT}, so it is a history: give to_table(scd=2)"
        )
    data = tuple(column for column in schema.names if column not in (START_AT, END_AT))
    written = set(_chosen_columns("columns", settings.columns, "except_columns", settings.except_columns, data, name))
    written.update(key)
    for field in schema.fields:
        if field.name in data and field.name not in written and not field.nullable:
            raise ArgumentValueError(
                f"to_table() does not write column {field.name!r} of table {name}, which must not be null: add it to columns"
            )
    others = tuple(column for column in data if column not in key)
    given = settings.ignore_null_updates
    if isinstance(given, bool):
        nulls = others if given else ()
    else:
        nulls = _named("ignore_null_updates", given, others, name, "column that is not of its key")
    # Events leave out what the log of the database does not have.
    ignored = others if with_events else nulls
    return RowRules(
        schema, key, tuple(column for column in data if column in written), frozenset(ignored), frozenset(nulls)
    )


def _check_history(table: Table) -> None:
    schema, key, name = table.schema, table.info.key, table.name
    found = {field.name: field for field in schema.fields}
    for column in (START_AT, END_AT):
        if column not in found:
            raise ArgumentValueError(
                f"to_table(scd=2) needs the columns {START_AT} and {END_AT}, of the type of the sequence, and table {name} "
                f"has no {column}"
            )
    if START_AT not in key or END_AT in key or len(key) < 2:
        raise ArgumentValueError(
            f"to_table(scd=2) needs a primary key of the columns that identify a row at its origin and {START_AT}, and that "
            f"of table {name} is {', '.join(key)}"
        )
    if found[START_AT].dtype != found[END_AT].dtype or not found[END_AT].nullable:
        raise ArgumentValueError(
            f"to_table(scd=2) needs {START_AT} and {END_AT} of the same type, and {END_AT} null for versions in force; in "
            f"table {name}, they are {found[START_AT].word} and {found[END_AT].word}"
            f"{'' if found[END_AT].nullable else ' NOT NULL'}"
        )


def _tracked_columns(table: Table, rules: RowRules, settings: CaptureSettings) -> tuple[str, ...]:
    data = tuple(column for column in rules.columns if column not in rules.key)
    return _chosen_columns(
        "track_history_columns",
        settings.track_history_columns,
        "track_history_except_columns",
        settings.track_history_except_columns,
        data,
        table.name,
    )


def _chosen_columns(
    argument: str,
    chosen: Sequence[str] | None,
    other: str,
    left_out: Sequence[str] | None,
    columns: Sequence[str],
    table: str,
) -> tuple[str, ...]:
    if left_out is not None:
        excluded = _named(other, left_out, columns, table)
        return tuple(column for column in columns if column not in excluded)
    return tuple(columns) if chosen is None else _named(argument, chosen, columns, table)


def _named(
    argument: str, given: Sequence[str], columns: Sequence[str], table: str, kind: str = "column to write"
) -> tuple[str, ...]:
    names = column_list(f"to_table({argument}=...)", [given] if isinstance(given, str) else given)
    for name in names:
        if name not in columns:
            raise ArgumentValueError(f"to_table({argument}=...) names {name!r}, and table {table} has no such {kind}")
    return names


def _group_changes(branch: Branch, table: Table, key: tuple[str, ...], reader: ChangeReader) -> Branch:
    """Return the position at which changes are grouped by the columns of a key."""
    if not reader.may_truncate and branch.keyed and key_columns(branch) == key:
        return branch
    name = table.name.replace(".", "-")
    topic = branch.exact_topic(name)
    if not reader.may_truncate:
        make_key = ColumnKey(key[0]) if len(key) == 1 else ColumnsKey(key)
        return branch.exchange(Repartition(topic, make_key, name), name)
    return branch.exchange(KeyChanges(topic, ChangeKey(key, reader), name), name)
