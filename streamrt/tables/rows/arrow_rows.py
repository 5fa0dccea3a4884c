"""Rows in columns, as Arrow, pandas and polars have them, brought to the types of a schema.

What Arrow converts without loss, and with the meaning that single rows have, is converted column by column. All else is
checked row by row, so that it is taken, or refused, as `Schema.check` does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamrt.errors import ArgumentTypeError, SchemaMismatchError
from streamrt.schema import Column, Schema
from streamrt.schema.columns import NO_DEFAULT
from streamrt.serializers.rows.batches import objects_of

__all__ = ["Frame"]

_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
_FAMILIES = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_date, pa.types.is_time)


@dataclass(frozen=True)
class Frame:
    """Rows in columns.

    Attributes:
        columns: values by name of the column; a list has values that are of no common type.
        whole_floats: whether numbers without a fraction are integers for columns that want these. pandas keeps integers as
            floats where one is missing.
    """

    columns: "Mapping[str, pa.ChunkedArray | list[Any]]"
    whole_floats: bool = False

    @classmethod
    def of(cls, rows: Any, schema: Schema) -> "Frame":
        """Return a table or batch of Arrow, or a data frame of pandas or polars.

        In pandas, a missing value is null, NaN among them; the index is left out.

        Args:
            rows: the rows.
            schema: what they are for.

        Raises:
            ArgumentTypeError: if it is neither.
            SchemaMismatchError: if the name of a column is not a string, or is there twice.
        """
        if isinstance(rows, pa.RecordBatch):
            rows = pa.Table.from_batches([rows])
        if isinstance(rows, pa.Table):
            return cls(_name_values(rows.column_names, rows.columns))
        if is_frame_of("pandas", rows):
            maps = {each.name for each in schema.fields if _has_map(each.dtype)}
            made = [_of_dicts(series) if name in maps else _of_pandas(series) for name, series in rows.items()]
            return cls(_name_values(list(rows.columns), made), True)
        if is_frame_of("polars", rows):
            return cls.of(rows.to_arrow(), schema)
        raise ArgumentTypeError(
            "rows in columns are a table or record batch of Arrow, or a data frame of pandas or polars, not "
            f"{type(rows).__name__}"
        )

    def rows(self, schema: Schema) -> list[dict[str, Any]]:
        """Return the rows one by one, unchecked."""
        lists = {}
        types = {each.name: each.dtype for each in schema.fields}
        for name, values in self.columns.items():
            taken = values if isinstance(values, list) else _to_objects(name, values)
            if self.whole_floats and name in types and pa.types.is_integer(types[name]):
                taken = [int(value) if isinstance(value, float) and value.is_integer() else value for value in taken]
            lists[name] = taken
        return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]

    def fitted(self, schema: Schema, given: Sequence[str]) -> pa.Table | None:
        """Return the rows with the columns and types of a schema; None if they must be checked row by row.

        Args:
            schema: columns and types.
            given: names of the columns that may have values; others get their default, or null.

        Raises:
            SchemaMismatchError: if there is another column, one is missing that must not be null, or a value does not fit.
        """
        unknown = [name for name in self.columns if name not in given]
        if unknown:
            raise SchemaMismatchError(f"there is no column {unknown[0]!r}; the columns are {', '.join(given)}")
        count = len(next(iter(self.columns.values()), ()))
        made = []
        for column in schema.fields:
            values = self.columns[column.name] if column.name in self.columns else _missing_values(column, count)
            converted = None if isinstance(values, list) else _convert_values(values, column.dtype, self.whole_floats)
            if converted is None:
                return None
            _check_values(converted, column)
            made.append(converted)
        return pa.table(made, schema=schema.arrow)


def is_frame_of(package: str, rows: Any) -> bool:
    """Return whether rows are a data frame of pandas or polars, which may be not installed."""
    return type(rows).__name__ == "DataFrame" and type(rows).__module__.partition(".")[0] == package


def is_frame(rows: Any) -> bool:
    """Return whether rows are a table or record batch of Arrow, or a data frame of pandas or polars."""
    return isinstance(rows, (pa.Table, pa.RecordBatch)) or is_frame_of("pandas", rows) or is_frame_of("polars", rows)


def _name_values(names: Sequence[Any], values: Sequence[Any]) -> dict[str, Any]:
    for number, name in enumerate(names):
        if not isinstance(name, str):
            raise SchemaMismatchError(f"column {number} has the name {name!r}, which is not a string")
        if name in names[:number]:
            raise SchemaMismatchError(f"the column {name!r} is there twice")
    return dict(zip(names, values, strict=True))


def _of_pandas(series: Any) -> "pa.ChunkedArray | list[Any]":
    try:
        made = pa.array(series, from_pandas=True)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return [None if absent else value for value, absent in zip(series, series.isna(), strict=True)]
    return made if isinstance(made, pa.ChunkedArray) else pa.chunked_array([made])


def _of_dicts(series: Any) -> "pa.ChunkedArray | list[Any]":
    """Return values that may be, or have, maps as dicts: Arrow takes these for structs, and gives each the keys of all."""
    return [_plain_value(value) for value in series] if series.dtype == object else _of_pandas(series)


def _plain_value(value: Any) -> Any:
    """Return a value of pandas as rows have it: lists instead of arrays, and None for what is missing."""
    import numpy as np
    import pandas as pd

    if isinstance(value, Mapping):
        return {key: _plain_value(each) for key, each in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        if isinstance(value, np.ndarray) and value.dtype != object:
            return objects_of(pa.array(value, from_pandas=True))
        items = [_plain_value(each) for each in value]
        return tuple(items) if isinstance(value, tuple) else items
    return None if pd.api.types.is_scalar(value) and pd.isna(value) else value


def _has_map(dtype: pa.DataType) -> bool:
    if pa.types.is_map(dtype):
        return True
    return any(_has_map(dtype.field(number).type) for number in range(dtype.num_fields))


def _to_objects(name: str, values: pa.ChunkedArray) -> list[Any]:
    objects: list[Any] = []
    for chunk in values.chunks:
        try:
            objects += objects_of(chunk)
        except (pa.ArrowException, ArithmeticError, ValueError):
            raise SchemaMismatchError(
                f"column {name!r} ({values.type}) has a value that Python cannot hold, in the rows from "
                f"{len(objects)} to {len(objects) + len(chunk) - 1}"
            ) from None
    return objects


def _missing_values(column: Column, count: int) -> pa.ChunkedArray:
    """Return the values of a column that rows do not give."""
    if column.default is not NO_DEFAULT:
        return pa.chunked_array([pa.repeat(pa.scalar(column.default, column.dtype), count)])
    if not column.nullable:
        raise SchemaMismatchError(f"column {column.name!r} is missing, and it must not be null")
    return pa.chunked_array([pa.nulls(count, column.dtype)])


def _convert_values(values: pa.ChunkedArray, target: pa.DataType, whole_floats: bool) -> pa.ChunkedArray | None:
    if values.type == target:
        return values
    if not _is_alike(values.type, target, whole_floats):
        return None
    try:
        converted = values.cast(target)
    except pa.ArrowException:
        return None
    if target == pa.float32() and pc.any(pc.is_inf(converted)).as_py():
        # Arrow does not say which of them were finite.
        return None
    return converted


def _is_alike(source: pa.DataType, target: pa.DataType, whole_floats: bool) -> bool:
    """Return whether Arrow's conversion, where it loses nothing, is that of single rows."""
    if pa.types.is_dictionary(source):
        source = source.value_type
    if pa.types.is_null(source) or source == target:
        return True
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(target):
        # What has no time zone counts as UTC, in a row, and not always for Arrow.
        return (source.tz is None) == (target.tz is None)
    if pa.types.is_integer(source) and pa.types.is_floating(target):
        return True
    if pa.types.is_floating(source) and pa.types.is_integer(target):
        return whole_floats
    if target in (pa.string(), pa.binary()):
        return any(is_one(source) for is_one in (_TEXTS if target == pa.string() else _BYTES))
    return any(is_one(source) and is_one(target) for is_one in _FAMILIES)


def _check_values(values: pa.ChunkedArray, column: Column) -> None:
    if not column.nullable and values.null_count:
        _refuse_values(pc.is_null(values), column, "not null")
    if column.length is not None:
        _refuse_values(
            pc.greater(pc.utf8_length(values), column.length), column, f"a text with {column.length} characters at most"
        )


def _refuse_values(wrong: pa.ChunkedArray, column: Column, rule: str) -> None:
    row = pc.index(wrong, value=True).as_py()
    if row >= 0:
        raise SchemaMismatchError(f"row {row}: column {column.name!r} ({column.word}) must be {rule}")
