"""Checks of the rules of a maintained table: its arguments in `create_table`, and whether they fit its columns."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pyarrow as pa

from streamrt.errors import ArgumentTypeError, ConfigurationError, SchemaError
from streamrt.schema import Column, Schema
from streamrt.schema.columns import NO_DEFAULT
from streamrt.tables.descriptions.maintenance import (
    AGGREGATES,
    Aggregate,
    Deletes,
    ListAgg,
    Maintenance,
    Merge,
    SequenceGroups,
    Versioned,
)

__all__ = ["check_rules", "choose_maintenance"]

_MERGES = "'last', 'first', Versioned(column), SequenceGroups(groups) or Aggregate(column=function)"
_ADDED = ("_change_type", "_at")
"""Columns that a log of changes has in addition to those of the table."""
_Test = Callable[[pa.DataType], bool]


def choose_maintenance(
    maintained: bool | None, merge: Any, deletes: Any, changelog: Any, ttl: timedelta | None
) -> Maintenance | None:
    """Return the rules that arguments of `create_table` ask for; None for a direct table.

    Raises:
        ArgumentTypeError: if one has another type.
        ConfigurationError: if one has another value, or they do not go together.
    """
    for name, value in (("maintained", maintained), ("changelog", changelog)):
        if value is not None and type(value) is not bool:
            raise ArgumentTypeError(f"create_table({name}=...) must be True or False, got {type(value).__name__}")
    chosen = _choose_merge(merge)
    asks = [name for name, is_given in (("merge", chosen != "last"), ("changelog", bool(changelog))) if is_given]
    asks += [name for name, value in (("deletes", deletes), ("ttl", ttl)) if value is not None]
    if not maintained:
        if maintained is None and asks:
            maintained = True
        elif asks:
            raise ConfigurationError(
                f"create_table(maintained=False, {asks[0]}=...): only a maintained table has such a rule: leave one of "
                "them out"
            )
        else:
            return None
    return Maintenance(chosen, _choose_deletes(chosen, deletes), bool(changelog), _choose_ttl(ttl))


def check_rules(table: str, rules: Maintenance, schema: Schema) -> None:
    """Refuse rules that do not fit the columns of a table.

    Raises:
        SchemaError: if a rule names a column that is not there or is in the primary key, or the type of one does not fit.
    """
    columns = {each.name: each for each in schema.fields}
    where = f"merge= of table {table!r}"
    merge = rules.merge
    if isinstance(merge, Versioned):
        _require_order(where, _find_column(where, columns, schema, merge.column))
    elif isinstance(merge, SequenceGroups):
        _check_groups(where, merge, columns, schema)
    elif isinstance(merge, Aggregate):
        for name, chosen in merge.functions.items():
            function = chosen if isinstance(chosen, str) else "listagg"
            column = _find_column(where, columns, schema, name)
            if not _TESTS[function](column.dtype) or (function in _GROWING and column.length is not None):
                raise SchemaError(
                    f"{where}: {function!r} cannot take the column {name!r} ({column.word}): it needs {_NEEDS[function]}"
                )
    added = [name for name in _ADDED if name in columns]
    if rules.changelog and added:
        raise SchemaError(
            f"table {table!r} has a column {added[0]!r}, and a log of changes has its own of that name: rename it, or leave "
            "out changelog=True"
        )


def _choose_merge(merge: Any) -> Merge:
    if merge == "last":
        return "last"
    if merge == "first":
        return "first"
    if isinstance(merge, str):
        raise ConfigurationError(f"create_table(merge=...) must be {_MERGES}, got {merge!r}")
    if not isinstance(merge, Versioned | SequenceGroups | Aggregate):
        raise ArgumentTypeError(f"create_table(merge=...) must be {_MERGES}, got {type(merge).__name__}")
    if isinstance(merge, Versioned):
        if not isinstance(merge.column, str):
            raise ArgumentTypeError(f"Versioned(column) must be a name, got {type(merge.column).__name__}")
    elif isinstance(merge, SequenceGroups):
        groups = merge.groups
        if not isinstance(groups, Mapping) or not all(
            isinstance(columns, tuple) and all(isinstance(each, str) for each in (sequence, *columns))
            for sequence, columns in groups.items()
        ):
            raise ArgumentTypeError(
                'SequenceGroups(groups) must have lists of columns by sequence, such as {"moved_at": ["street", "city"]}'
            )
        if not groups or not all(groups.values()):
            raise ConfigurationError("SequenceGroups(groups) must have a group or more, each with a column or more")
    else:
        if not merge.functions:
            raise ConfigurationError(
                'Aggregate() needs a function for a column or more, such as Aggregate(total="sum")'
            )
        for column, function in merge.functions.items():
            if isinstance(function, ListAgg):
                if not isinstance(function.delimiter, str):
                    raise ArgumentTypeError(
                        f"ListAgg(delimiter) must be a text, got {type(function.delimiter).__name__}"
                    )
            elif function not in AGGREGATES:
                raise ConfigurationError(
                    f"Aggregate({column}=...) must be ListAgg(delimiter) or one of {', '.join(AGGREGATES)}, got {function!r}"
                )
    return merge


def _choose_deletes(merge: Merge, deletes: Any) -> Deletes:
    if deletes is None:
        return "allow" if merge == "last" else "ignore"
    if deletes == "allow" and (merge == "first" or isinstance(merge, Versioned)):
        raise ConfigurationError(
            'create_table(deletes="allow"): with merge="first" or Versioned(...), a delete would let a row count that came '
            'too late: choose "ignore", which is the default, or "refuse"'
        )
    if deletes == "allow":
        return "allow"
    if deletes == "ignore":
        return "ignore"
    if deletes == "refuse":
        return "refuse"
    raise ConfigurationError(f"create_table(deletes=...) must be 'allow', 'ignore' or 'refuse', got {deletes!r}")


def _choose_ttl(ttl: timedelta | None) -> int | None:
    if ttl is None:
        return None
    if not isinstance(ttl, timedelta):
        raise ArgumentTypeError(f"create_table(ttl=...) must be a timedelta, got {type(ttl).__name__}")
    milliseconds = ttl // timedelta(milliseconds=1)
    if milliseconds < 1:
        raise ConfigurationError(f"create_table(ttl=...) must be a millisecond or more, got {ttl}")
    return milliseconds


def _check_groups(where: str, merge: SequenceGroups, columns: Mapping[str, Column], schema: Schema) -> None:
    group_of: dict[str, str] = {}
    for sequence, names in merge.groups.items():
        found = _find_column(where, columns, schema, sequence)
        _require_order(where, found)
        for name in names:
            column = _find_column(where, columns, schema, name)
            if name in merge.groups:
                raise SchemaError(f"{where}: column {name!r} is a sequence, and cannot be in a group")
            if name in group_of:
                other = group_of[name]
                raise SchemaError(
                    f"{where}: column {name!r} is in the group of {other!r} and in that of {sequence!r}"
                    if other != sequence
                    else f"{where}: column {name!r} is twice in the group of {sequence!r}"
                )
            if found.nullable and not column.nullable and column.default in (NO_DEFAULT, None):
                raise SchemaError(
                    f"{where}: column {name!r} must not be null, but new rows without {sequence!r} would not have it: give "
                    f"it a default, or make {sequence!r} NOT NULL"
                )
            group_of[name] = sequence


def _find_column(where: str, columns: Mapping[str, Column], schema: Schema, name: str) -> Column:
    if name not in columns:
        raise SchemaError(f"{where} names the column {name!r}, which the table does not have: {', '.join(columns)}")
    if name in schema.primary_key:
        raise SchemaError(f"{where} names the column {name!r} of the primary key, which stays the same")
    return columns[name]


def _require_order(where: str, column: Column) -> None:
    if not _is_sequence(column.dtype):
        raise SchemaError(
            f"{where}: column {column.name!r} ({column.word}) cannot say which row is newer: it must be an integer, DECIMAL, "
            "DATE, TIMESTAMP or TIMESTAMP_LTZ"
        )


def _is_sequence(dtype: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(dtype)
        or pa.types.is_decimal(dtype)
        or pa.types.is_date(dtype)
        or pa.types.is_timestamp(dtype)
    )


def _is_number(dtype: pa.DataType) -> bool:
    return bool(pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_decimal(dtype))


def _has_order(dtype: pa.DataType) -> bool:
    return _is_sequence(dtype) or _is_number(dtype) or pa.types.is_string(dtype) or pa.types.is_time(dtype)


def _is_any(dtype: pa.DataType) -> bool:
    return True


_GROWING = ("listagg", "rbm32", "rbm64")
_TESTS: Mapping[str, _Test] = {
    "sum": _is_number,
    "product": _is_number,
    "min": _has_order,
    "max": _has_order,
    "listagg": pa.types.is_string,
    "bool_and": pa.types.is_boolean,
    "bool_or": pa.types.is_boolean,
    "first_value": _is_any,
    "first_value_ignore_nulls": _is_any,
    "last_value": _is_any,
    "last_value_ignore_nulls": _is_any,
    "rbm32": pa.types.is_binary,
    "rbm64": pa.types.is_binary,
}
_NEEDS = {
    "sum": "a number",
    "product": "a number",
    "min": "a number, a text, or a date or time",
    "max": "a number, a text, or a date or time",
    "listagg": "STRING, of any length",
    "bool_and": "BOOLEAN",
    "bool_or": "BOOLEAN",
    "rbm32": "BINARY, of any length",
    "rbm64": "BINARY, of any length",
}
