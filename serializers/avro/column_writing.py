"""Columns of Arrow as values of Avro, all rows at once; `AvroColumns` reads them in the same way.

The bytes of one field of all rows stand one after the other in an array, along with their number in each row. Fields become
records when the bytes of each row are moved together.
"""

import datetime
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamrt.serializers.avro.column_reading import NotVectorizableError

__all__ = ["avro_rows"]

_LONGEST = 10


class _Part(NamedTuple):
    """Bytes of rows: their number in each row, and all of them in the order of the rows."""

    lengths: npt.NDArray[np.int64]
    content: npt.NDArray[np.uint8]


def avro_rows(columns: Sequence[pa.Array], fields: Sequence[Any], prefix: bytes = b"") -> list[bytes]:
    """Return rows as records.

    Args:
        columns: the columns, without a value that their type in Avro does not hold.
        fields: the fields of the record, as `Schema.to_avro` returns them.
        prefix: bytes in front of each record.

    Raises:
        NotVectorizableError: if they must be written one by one.
    """
    rows = len(columns[0])
    parts = [_Part(np.full(rows, len(prefix), np.int64), np.tile(np.frombuffer(prefix, np.uint8), rows))]
    parts += [_write_field(column, field["type"]) for column, field in zip(columns, fields, strict=True)]
    joined = _join_parts(parts)
    content = joined.content.tobytes()
    ends = np.cumsum(joined.lengths).tolist()
    return [content[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)] if rows else []


def _join_parts(parts: Sequence[_Part]) -> _Part:
    """Return the parts of each row one after the other."""
    lengths: npt.NDArray[np.int64] = np.sum([part.lengths for part in parts], axis=0, dtype=np.int64)
    content = np.empty(int(lengths.sum()), np.uint8)
    at = np.cumsum(lengths) - lengths
    for part in parts:
        begins = np.cumsum(part.lengths) - part.lengths
        content[np.repeat(at - begins, part.lengths) + np.arange(len(part.content))] = part.content
        at = at + part.lengths
    return _Part(lengths, content)


def _write_field(array: pa.Array, declared: Any) -> _Part:
    if not isinstance(declared, list):
        if array.null_count:
            raise NotVectorizableError
        return _write_values(array, declared)
    null = declared.index("null")
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    # Branches 0 and 1 are the bytes 0 and 2.
    branch = _Part(np.ones(len(array), np.int64), np.where(valid, 2 * (1 - null), 2 * null).astype(np.uint8))
    some = _write_values(array.drop_null() if array.null_count else array, declared[1 - null])
    lengths = np.zeros(len(array), np.int64)
    lengths[valid] = some.lengths
    return _join_parts([branch, _Part(lengths, some.content)])


def _write_values(array: pa.Array, declared: Any) -> _Part:
    dtype = array.type
    if pa.types.is_boolean(dtype):
        return _write_fixed(array.to_numpy(zero_copy_only=False).astype(np.uint8), 1)
    if pa.types.is_integer(dtype):
        return _write_longs(array.to_numpy().astype(np.int64))
    if pa.types.is_floating(dtype):
        return _write_fixed(np.ascontiguousarray(array.to_numpy()).view(np.uint8), dtype.bit_width // 8)
    if dtype in (pa.date32(), pa.time32("ms")):
        return _write_longs(_check_years(array).view(pa.int32()).to_numpy().astype(np.int64))
    if pa.types.is_timestamp(dtype):
        return _write_longs(_check_years(array).view(pa.int64()).to_numpy())
    if dtype in (pa.string(), pa.binary()):
        # Strings of Arrow need not be UTF-8, and nothing could read such rows.
        array.validate(full=True)
        return _write_strings(array.cast(pa.binary()))
    if pa.types.is_fixed_size_binary(dtype) and not pa.types.is_decimal(dtype):
        joined = b"".join(array.to_pylist())
        return _write_fixed(np.frombuffer(joined, np.uint8), dtype.byte_width)
    if pa.types.is_decimal128(dtype):
        return _write_decimals(array)
    if pa.types.is_struct(dtype):
        fields = zip(array.flatten(), declared["fields"], strict=True)
        return _join_parts([_write_field(child, field["type"]) for child, field in fields])
    if pa.types.is_list(dtype):
        return _write_lists(array, declared)
    raise NotVectorizableError


def _check_years(array: pa.Array) -> pa.Array:
    """Refuse times that Python does not have; rows with such are errors."""
    dtype = array.type
    if dtype == pa.time32("ms"):
        return array
    zone = datetime.timezone.utc if pa.types.is_timestamp(dtype) and dtype.tz else None
    first, last = datetime.datetime.min.replace(tzinfo=zone), datetime.datetime.max.replace(tzinfo=zone)
    if dtype == pa.date32():
        bounds = pa.scalar(first.date(), dtype), pa.scalar(last.date(), dtype)
    else:
        bounds = pa.scalar(first, dtype), pa.scalar(last, dtype)
    if pc.any(pc.or_(pc.less(array, bounds[0]), pc.greater(array, bounds[1]))).as_py():
        raise NotVectorizableError
    return array


def _write_fixed(content: npt.NDArray[np.uint8], size: int) -> _Part:
    return _Part(np.full(len(content) // size, size, np.int64), content)


def _write_longs(numbers: npt.NDArray[np.int64]) -> _Part:
    zigzag = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    lengths = np.ones(len(numbers), np.int64)
    for number in range(1, _LONGEST):
        lengths += zigzag >= np.uint64(1 << 7 * number)
    content = np.empty(int(lengths.sum()), np.uint8)
    at = np.cumsum(lengths) - lengths
    rows = np.arange(len(numbers))
    number = 0
    while len(rows):
        more = lengths[rows] > number + 1
        byte = (zigzag[rows] >> np.uint64(7 * number)) & np.uint64(0x7F)
        content[at[rows] + number] = byte.astype(np.uint8) | (more.astype(np.uint8) << 7)
        rows = rows[more]
        number += 1
    return _Part(lengths, content)


def _write_strings(array: pa.Array) -> _Part:
    lengths = pc.binary_length(array).to_numpy().astype(np.int64)
    content = np.frombuffer(b"".join(array.to_pylist()), np.uint8)
    return _join_parts([_write_longs(lengths), _Part(lengths, content)])


def _write_decimals(array: pa.Array) -> _Part:
    buffer = array.buffers()[1]
    held = np.frombuffer(buffer, np.uint8)[array.offset * 16 : (array.offset + len(array)) * 16].reshape(-1, 16)
    sign = np.where(held[:, 15] >= 0x80, 0xFF, 0).astype(np.uint8)
    lengths = np.ones(len(array), np.int64)
    for number in range(1, 16):
        # A byte counts if it is none of the sign, or the one below would look like the other sign.
        needed = (held[:, number] != sign) | ((held[:, number - 1] ^ sign) >= 0x80)
        lengths[needed] = number + 1
    rows = np.repeat(np.arange(len(array)), lengths)
    begins = np.cumsum(lengths) - lengths
    place = np.repeat(lengths, lengths) - 1 - (np.arange(len(rows)) - np.repeat(begins, lengths))
    return _join_parts([_write_longs(lengths), _Part(lengths, held[rows, place])])


def _write_lists(array: pa.Array, declared: Any) -> _Part:
    counts = pc.list_value_length(array).to_numpy().astype(np.int64)
    items = _write_field(array.flatten(), declared["items"])
    ends = np.concatenate([[0], np.cumsum(items.lengths)])[np.cumsum(counts)]
    bytes_of_items = np.diff(ends, prepend=0)
    some = np.flatnonzero(counts)
    begun = _write_longs(counts[some])
    lengths = np.zeros(len(array), np.int64)
    lengths[some] = begun.lengths
    closed = _write_fixed(np.zeros(len(array), np.uint8), 1)
    return _join_parts([_Part(lengths, begun.content), _Part(bytes_of_items, items.content), closed])
