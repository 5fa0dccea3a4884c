"""The input records of a row: those that have the values of its columns that come from tables unchanged.

A column comes from a table unchanged if operators only pass it on, or group or join by it. Conditions of equality are
followed, so that `orders.id = lines.order_id` names records of both tables.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from streamrt.common.texts import readable
from streamrt.kafka.completion_token import Offsets
from streamrt.sql.binding import plan as plans
from streamrt.sql.verify.verification import InputRecord
from streamrt.tables.table import Table

__all__ = ["Columns", "find_records", "trace_columns"]

Columns = frozenset[tuple[str, str]]
"""Columns of tables: name of the table, and of the column."""
_MOST_RECORDS = 5


def trace_columns(plan: plans.Plan) -> dict[str, Columns]:
    """Return, for each column of a relation, the columns of tables that have its value in the rows that it is made of."""
    match plan:
        case plans.Scan():
            return {field.name: frozenset({(plan.name, _source_name(field.name))}) for field in plan.fields}
        case plans.Project():
            below = trace_columns(plan.input)
            return {name: below.get(_passed_on(expression) or "", frozenset()) for name, expression in plan.columns}
        case plans.Join() | plans.AsOfJoin() | plans.IntervalJoin():
            return _trace_join(plan)
        case plans.Union():
            return _merge([trace_columns(part) for part in plan.parts])
        case plans.SetOperation():
            return _merge([trace_columns(plan.left), trace_columns(plan.right)])
    if not plan.inputs():
        return {}
    below = trace_columns(plan.inputs()[0])
    return {field.name: below.get(field.name, frozenset()) for field in plan.fields}


def _trace_join(plan: "plans.Join | plans.AsOfJoin | plans.IntervalJoin") -> dict[str, Columns]:
    left, right = trace_columns(plan.left), trace_columns(plan.right)
    traced = left | right
    how = getattr(plan, "how", "inner")
    for one, other in zip(plan.left_on, plan.right_on, strict=True):
        both = left.get(one, frozenset()) | right.get(other, frozenset())
        # Of a row without a partner, the other side has NULL, and no record.
        traced[one], traced[other] = both, both
    if how in ("semi", "anti"):
        return {field.name: traced[field.name] for field in plan.fields}
    return traced


def _merge(parts: Sequence[Mapping[str, Columns]]) -> dict[str, Columns]:
    names = parts[0]
    return {name: frozenset().union(*(part.get(name, frozenset()) for part in parts)) for name in names}


def _passed_on(expression: Any) -> str | None:
    """Return the name of the column that an expression is, or None if it computes something."""
    return expression.name if type(expression).__name__ == "ColumnReference" else None


def _source_name(name: str) -> str:
    """Return the name of a column in its table, of its name in rows."""
    return name.rpartition(".")[2]


def find_records(
    rows: Sequence[Mapping[str, Any]],
    columns: Mapping[str, Columns],
    tables: Mapping[str, Table],
    until: Offsets,
) -> list[tuple[InputRecord, ...]]:
    """Return the newest input records of each row, at most five.

    Args:
        rows: the rows, by the names of their columns.
        columns: what `trace_columns` returned.
        tables: the tables by their names in the query.
        until: the offsets up to which to look.
    """
    found: list[list[InputRecord]] = [[] for _ in rows]
    for name, table in tables.items():
        wanted = [(number, _conditions(row, columns, name)) for number, row in enumerate(rows)]
        wanted = [(number, conditions) for number, conditions in wanted if conditions]
        if not wanted:
            continue
        newest: dict[int, list[InputRecord]] = {}
        for record, row in _read_changes(table, until):
            for number, conditions in wanted:
                if _meets(row, conditions):
                    newest.setdefault(number, []).append(record)
                    del newest[number][:-_MOST_RECORDS]
        for number, records in newest.items():
            found[number].extend(records)
    return [tuple(records[:_MOST_RECORDS]) for records in found]


def _conditions(row: Mapping[str, Any], columns: Mapping[str, Columns], table: str) -> dict[str, Any]:
    return {
        column: row[name]
        for name, sources in columns.items()
        for source, column in sources
        if source == table and row.get(name) is not None
    }


def _meets(row: Mapping[str, Any], conditions: Mapping[str, Any]) -> bool:
    # A deletion has the columns of the key only.
    common = conditions.keys() & row.keys()
    return bool(common) and all(row[name] == conditions[name] for name in common)


def _read_changes(table: Table, until: Offsets) -> Iterator[tuple[InputRecord, Mapping[str, Any]]]:
    """Yield the records of a table up to some offsets, with their columns; of deletions, those of the key."""
    topic = table.info.topic or table.name
    scan = table.scan(until=until, changes=True, on_error="skip")
    for record in scan.records():
        key = None if record.key is None else readable(record.key.decode("utf-8", "replace"))
        yield (
            InputRecord(topic, record.partition, record.offset, key),
            _known(record.row, table.schema.primary_key, record),
        )


def _known(row: Mapping[str, Any], key: Iterable[str], record: Any) -> Mapping[str, Any]:
    if record.change_type.short != "-D":
        return row
    return {name: row[name] for name in key}
