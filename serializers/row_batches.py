"""Batches of rows, taken apart and put together row by row."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from streamrt.errors import SerializationError
from streamrt.schema import Schema
from streamrt.serializers.row_contract import RowFormat

__all__ = ["batch_of", "decoded_one_by_one", "encoded_one_by_one", "one_by_one"]

Given = TypeVar("Given")
Made = TypeVar("Made")


def one_by_one(convert: Callable[[Given], Made], given: Iterable[Given]) -> list[Made]:
    """Convert rows; an error names the number of the row, from 0 on."""
    made: list[Made] = []
    try:
        for each in given:
            made.append(convert(each))
    except SerializationError as error:
        raise SerializationError(f"row {len(made)}: {error}") from None
    return made


def encoded_one_by_one(rows_as: RowFormat, rows: pa.RecordBatch, topic: str) -> list[bytes]:
    """Return each row of a batch as bytes, by `RowFormat.encode`."""
    return one_by_one(lambda row: rows_as.encode(row, topic), rows.to_pylist(maps_as_pydicts=None))


def decoded_one_by_one(
    rows_as: RowFormat, values: Sequence[bytes], topic: str, columns: Sequence[str] | None
) -> pa.RecordBatch:
    """Return rows as a batch, by `RowFormat.decode`."""
    return batch_of(one_by_one(lambda value: rows_as.decode(value, topic), values), rows_as.schema, columns)


def batch_of(rows: Sequence[dict[str, Any]], schema: Schema, columns: Sequence[str] | None) -> pa.RecordBatch:
    """Return checked rows as a batch with the types of their schema, of all columns or of some."""
    arrow = (schema if columns is None else schema.project(columns)).arrow
    arrays = [pa.array([row[field.name] for row in rows], field.type) for field in arrow]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow)
