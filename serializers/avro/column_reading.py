"""Values of Avro as columns of Arrow, all values at once and without an object for each field.

A value of Avro has no offsets: where a field begins is known when the one before it was read. So all values are read side by
side: an array of NumPy holds where each value is, and each step reads the same field of all of them and moves the array on.

    values    [1, "ab", 2.5]  [2, "", 0.5]  ...     one buffer, one after the other
    at        0                13           ...     then 1, 14 (after the first field), then 4, 15, ...

Of a union, the values with the same branch go on side by side; of arrays and maps, the n-th items of all values. What this
module does not know, or finds odd (numbers that are too long, bytes that end too early or too late), raises
`NotVectorizableError`: the values must then be read one by one, and that decides what they are.
"""

import datetime
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamrt.errors import SerializationError

__all__ = ["UNSURE", "AvroColumns", "NotVectorizableError", "column_objects"]

Positions = npt.NDArray[np.int64]

_PADDING = bytes(16)
_MAX_ROUNDS = 1_000
_MAX_BYTES = 1 << 31
_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NULLS = ("null", {"type": "null"})
_ONE = np.uint64(1)
_HIGHEST_BITS = np.uint64(0x8080808080808080)
_JOINS = tuple(
    (np.uint64(low), np.uint64(high), np.uint64(shift))
    for low, high, shift in (
        (0x007F007F007F007F, 0x7F007F007F007F00, 1),
        (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
        (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
    )
)
"""Bits that stay, bits that move to the right, and how far."""
_DAY_MS = 86_400_000
# The years 1 to 9999, which Python has.
_DAYS = (-719_162, 2_932_896)
_MICROSECONDS = (_DAYS[0] * _DAY_MS * 1000, (_DAYS[1] + 1) * _DAY_MS * 1000 - 1)


class NotVectorizableError(Exception):
    """The values must be read one by one."""


UNSURE = (
    NotVectorizableError,
    SerializationError,
    pa.ArrowException,
    ArithmeticError,
    TypeError,
    ValueError,
    IndexError,
    KeyError,
    RecursionError,
)
"""Errors after which values must be read one by one, which tells what they are."""


class AvroColumns:
    """Reads fields of records of one schema.

    Args:
        parsed: the schema that the values were written with, as fastavro parsed it.
        named: the types with names, by full name.

    Raises:
        NotVectorizableError: if the schema is not a record.
    """

    def __init__(self, parsed: Any, named: Mapping[str, Any]) -> None:
        if not isinstance(parsed, dict) or parsed.get("type") != "record":
            raise NotVectorizableError
        self._fields = [(field["name"], field["type"]) for field in parsed["fields"]]
        self._named = named

    def read(self, values: Sequence[bytes], skipped: int, wanted: Collection[str] | None = None) -> dict[str, pa.Array]:
        """Return the wanted fields of all values, each with the type that Arrow has for Avro's.

        Args:
            values: bytes of records.
            skipped: number of bytes in front of each record.
            wanted: names of fields; None for all. Only what is wanted is checked.

        Raises:
            NotVectorizableError: if they must be read one by one.
        """
        reader = _Reader(values, self._named)
        at = reader.starts + skipped
        columns = {}
        for name, declared in self._fields:
            at, array = reader.read(declared, at, reader.ends, wanted is None or name in wanted)
            if array is not None:
                columns[name] = array
        if not np.array_equal(at, reader.ends):
            raise NotVectorizableError
        return columns


class _Reader:
    def __init__(self, values: Sequence[bytes], named: Mapping[str, Any]) -> None:
        lengths = np.fromiter(map(len, values), np.int64, len(values))
        self.ends = np.cumsum(lengths)
        self.starts = self.ends - lengths
        joined = b"".join([*values, _PADDING])
        if len(joined) >= _MAX_BYTES:
            raise NotVectorizableError
        self._buffer = pa.py_buffer(joined)
        self._data = np.frombuffer(joined, np.uint8)
        # The eight bytes from each byte on.
        self._words = np.ndarray(len(joined) - 7, "<u8", joined, strides=(1,))
        self._named = named

    def read(self, declared: Any, at: Positions, ends: Positions, build: bool) -> tuple[Positions, pa.Array | None]:
        """Read values of one type; return where each ends, and the values if they are asked for."""
        if isinstance(declared, list):
            return self._read_union(declared, at, ends, build)
        if isinstance(declared, str) and declared not in _PRIMITIVES:
            declared = self._named.get(declared)
        kind, logical = (declared["type"], declared) if isinstance(declared, dict) else (declared, {})
        read = _KINDS.get(kind)
        if read is None:
            raise NotVectorizableError
        at, array = read(self, logical, at, ends, build)
        if (at > ends).any():
            raise NotVectorizableError
        return at, array

    def longs(self, at: Positions) -> tuple[Positions, Positions]:
        """Read numbers of variable length; return where each ends, and the numbers."""
        byte = self._data[at]
        if not len(at) or byte.max() < 0x80:
            number = byte.astype(np.int64)
            return at + 1, (number >> 1) ^ -(number & 1)
        words = self._words[at]
        # The highest bit of each byte is 1 if another one follows; of the lowest 0 among them, all bits below.
        last = ~words & _HIGHEST_BITS
        last &= np.negative(last)
        if not last.all():
            return self._long_longs(at)
        words &= (last - 1) & ~_HIGHEST_BITS
        # From seven bits in each byte to adjacent ones: in pairs, in pairs of these, and once more.
        for low, high, shift in _JOINS:
            words = (words & low) | ((words & high) >> shift)
        number = (words >> _ONE).view(np.int64) ^ -(words & _ONE).view(np.int64)
        # The exponent of a power of two is its number of bits.
        bits = (last.astype(np.float64).view(np.int64) >> 52) - 1022
        return at + (bits >> 3), number

    def _long_longs(self, at: Positions) -> tuple[Positions, Positions]:
        """Read numbers some of which have more than eight bytes."""
        byte = self._data[at]
        at = at + 1
        number = (byte & 0x7F).astype(np.uint64)
        more = np.flatnonzero(byte >= 0x80)
        shift = 7
        while len(more):
            byte = self._data[at[more]]
            if shift == 63 and (byte > 1).any():
                raise NotVectorizableError
            at[more] += 1
            number[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            more = more[byte >= 0x80]
            shift += 7
        return at, (number >> _ONE).view(np.int64) ^ -(number & _ONE).view(np.int64)

    # -- Composed types --------------------------------------------------------------------------------------------

    def _read_union(
        self, branches: list[Any], at: Positions, ends: Positions, build: bool
    ) -> tuple[Positions, pa.Array | None]:
        # A number below 64 has one byte, which is twice that number.
        first = int(self._data[at[0]]) if len(at) else 1
        if not first & 1 and first < min(128, 2 * len(branches)) and (self._data[at] == first).all():
            declared = branches[first >> 1]
            if declared not in _NULLS and not (build and sum(each not in _NULLS for each in branches) > 1):
                return self.read(declared, at + 1, ends, build)
        at, branch = self.longs(at)
        if (at > ends).any() or ((branch < 0) | (branch >= len(branches))).any():
            raise NotVectorizableError
        others = [number for number, each in enumerate(branches) if each not in _NULLS]
        if build and len(others) != 1:
            raise NotVectorizableError
        array = None
        for number in others:
            chosen = branch == number
            if chosen.all():
                return self.read(branches[number], at, ends, build)
            rows = np.flatnonzero(chosen)
            at[rows], array = self.read(branches[number], at[rows], ends[rows], build)
            if array is not None:
                places = np.zeros(len(at), np.int64)
                places[rows] = np.arange(len(rows))
                array = array.take(pa.array(places, mask=~chosen)) if len(rows) else pa.nulls(len(at), array.type)
        return at, array

    def _read_record(
        self, declared: dict[str, Any], at: Positions, ends: Positions, build: bool
    ) -> tuple[Positions, pa.Array | None]:
        names, arrays = [], []
        for field in declared["fields"]:
            at, array = self.read(field["type"], at, ends, build)
            names.append(field["name"])
            arrays.append(array)
        if build and not arrays:
            raise NotVectorizableError
        return at, pa.StructArray.from_arrays(arrays, names) if build else None

    def _read_array(
        self, declared: dict[str, Any], at: Positions, ends: Positions, build: bool
    ) -> tuple[Positions, pa.Array | None]:
        at, offsets, _, items = self._read_items(declared["items"], False, at, ends, build)
        return at, pa.ListArray.from_arrays(offsets, items) if build else None

    def _read_map(
        self, declared: dict[str, Any], at: Positions, ends: Positions, build: bool
    ) -> tuple[Positions, pa.Array | None]:
        at, offsets, keys, items = self._read_items(declared["values"], True, at, ends, build)
        if build and any(len(set(each)) != len(each) for each in pa.ListArray.from_arrays(offsets, keys).to_pylist()):
            raise NotVectorizableError
        return at, pa.MapArray.from_arrays(offsets, keys, items) if build else None

    def _read_items(
        self, declared: Any, keyed: bool, at: Positions, ends: Positions, build: bool
    ) -> tuple[Positions, pa.Array, pa.Array, pa.Array]:
        """Read the n-th items of all values that have so many, for n from 1 on."""
        rows = np.arange(len(at))
        left = np.zeros(len(at), np.int64)
        counts = np.zeros(len(at), np.int64)
        found_rows, found_keys, found_items = [rows[:0]], [], []
        key = item = None
        for number in range(_MAX_ROUNDS + 1):
            if number == _MAX_ROUNDS:
                raise NotVectorizableError
            begun = rows[left[rows] == 0]
            at[begun], left[begun] = self._read_block(at[begun], ends[begun])
            rows = rows[left[rows] > 0]
            # Once without any rows, for the types of empty columns.
            if keyed:
                at[rows], key = self._read_text({}, at[rows], ends[rows], build, "string")
                if (at[rows] > ends[rows]).any():
                    raise NotVectorizableError
            at[rows], item = self.read(declared, at[rows], ends[rows], build)
            left[rows] -= 1
            counts[rows] += 1
            found_rows.append(rows)
            found_keys.append(key)
            found_items.append(item)
            if not len(rows):
                break
        offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
        if not build:
            return at, offsets, None, None
        order = pa.array(np.argsort(np.concatenate(found_rows), kind="stable"))
        keys = pa.concat_arrays(found_keys).take(order) if keyed else None
        return at, offsets, keys, pa.concat_arrays(found_items).take(order)

    def _read_block(self, at: Positions, ends: Positions) -> tuple[Positions, Positions]:
        at, count = self.longs(at)
        sized = np.flatnonzero(count < 0)
        if len(sized):
            # Behind a negative number of items is that of their bytes.
            at[sized], _ = self.longs(at[sized])
        count = np.abs(count)
        # The lowest number has no positive one.
        if (at > ends).any() or (count < 0).any():
            raise NotVectorizableError
        return at, count

    # -- Plain types -----------------------------------------------------------------------------------------------

    def _read_null(
        self, declared: Any, at: Positions, ends: Positions, build: bool
    ) -> tuple[Positions, pa.Array | None]:
        return at, pa.nulls(len(at)) if build else None

    def _read_boolean(
        self, declared: Any, at: Positions, ends: Positions, build: bool
    ) -> tuple[Positions, pa.Array | None]:
        byte = self._data[at]
        if (byte > 1).any():
            raise NotVectorizableError
        return at + 1, pa.array(byte.astype(bool)) if build else None

    def _read_int(
        self, declared: Mapping[str, Any], at: Positions, ends: Positions, build: bool
    ) -> tuple[Positions, pa.Array | None]:
        at, number = self.longs(at)
        if not build:
            return at, None
        logical = declared.get("logicalType")
        first, last = {"date": _DAYS, "time-millis": (0, _DAY_MS - 1)}.get(str(logical), (-(1 << 31), (1 << 31) - 1))
        if ((number < first) | (number > last)).any():
            raise NotVectorizableError
        array = pa.array(number.astype(np.int32))
        if logical in ("date", "time-millis"):
            return at, array.view(pa.date32() if logical == "date" else pa.time32("ms"))
        return at, array

    def _read_long(
        self, declared: Mapping[str, Any], at: Positions, ends: Positions, build: bool
    ) -> tuple[Positions, pa.Array | None]:
        at, number = self.longs(at)
        logical = declared.get("logicalType")
        if not build or logical is None:
            return at, pa.array(number) if build else None
        place, _, unit = str(logical).rpartition("-")
        dtype = {"timestamp": pa.timestamp("us", "UTC"), "local-timestamp": pa.timestamp("us")}.get(place)
        size = {"millis": 1000, "micros": 1}.get(unit)
        if dtype is None or size is None:
            raise NotVectorizableError
        if ((number < _MICROSECONDS[0] // size) | (number > _MICROSECONDS[1] // size)).any():
            raise NotVectorizableError
        return at, pa.array(number * size).view(dtype)

    def _read_float(
        self, declared: Any, at: Positions, ends: Positions, build: bool
    ) -> tuple[Positions, pa.Array | None]:
        return at + 4, pa.array(self._fixed_bytes(at, 4).view("<f4").reshape(-1)) if build else None

    def _read_double(
        self, declared: Any, at: Positions, ends: Positions, build: bool
    ) -> tuple[Positions, pa.Array | None]:
        if not build:
            return at + 8, None
        if len(at) and at.max() >= len(self._words):
            raise NotVectorizableError
        return at + 8, pa.array(self._words[at].view("<f8"))

    def _fixed_bytes(self, at: Positions, size: int) -> npt.NDArray[np.uint8]:
        if len(at) and at.max() + size > len(self._data):
            raise NotVectorizableError
        taken: npt.NDArray[np.uint8] = self._data[at[:, None] + np.arange(size)]
        return taken

    def _read_bytes(
        self, declared: Mapping[str, Any], at: Positions, ends: Positions, build: bool
    ) -> tuple[Positions, pa.Array | None]:
        if declared.get("logicalType") == "decimal":
            at, lengths = self._read_lengths(at, ends)
            return at + lengths, self._read_decimals(declared, at, lengths) if build else None
        if declared.get("logicalType") is not None and build:
            raise NotVectorizableError
        return self._read_text(declared, at, ends, build, "bytes")

    def _read_string(
        self, declared: Mapping[str, Any], at: Positions, ends: Positions, build: bool
    ) -> tuple[Positions, pa.Array | None]:
        if declared.get("logicalType") is not None and build:
            raise NotVectorizableError
        return self._read_text(declared, at, ends, build, "string")

    def _read_text(
        self, declared: Any, at: Positions, ends: Positions, build: bool, kind: str
    ) -> tuple[Positions, pa.Array | None]:
        at, lengths = self._read_lengths(at, ends)
        after = at + lengths
        if not build:
            return after, None
        if not len(at):
            return after, pa.array([], pa.string() if kind == "string" else pa.binary())
        # Every second one is a text; the others are what lies between.
        bounds = np.empty(2 * len(at) + 1, np.int32)
        bounds[0] = 0
        bounds[1::2] = at
        bounds[2::2] = after
        pieces = pa.Array.from_buffers(pa.binary(), 2 * len(at), [None, pa.py_buffer(bounds), self._buffer])
        array = pieces.take(pa.array(np.arange(1, 2 * len(at), 2)))
        if kind == "string":
            # It is refused unless it is UTF-8.
            array = array.cast(pa.string())
        return after, array

    def _read_lengths(self, at: Positions, ends: Positions) -> tuple[Positions, Positions]:
        at, lengths = self.longs(at)
        if ((lengths < 0) | (lengths > ends - at)).any():
            raise NotVectorizableError
        return at, lengths

    def _read_fixed(
        self, declared: Mapping[str, Any], at: Positions, ends: Positions, build: bool
    ) -> tuple[Positions, pa.Array | None]:
        size = declared["size"]
        if (at + size > ends).any() or (build and size < 1):
            raise NotVectorizableError
        if not build:
            return at + size, None
        logical = declared.get("logicalType")
        if logical == "decimal":
            return at + size, self._read_decimals(declared, at, np.full(len(at), size))
        if logical is not None:
            raise NotVectorizableError
        content = np.ascontiguousarray(self._fixed_bytes(at, size))
        return at + size, pa.Array.from_buffers(pa.binary(size), len(at), [None, pa.py_buffer(content)])

    def _read_enum(
        self, declared: Mapping[str, Any], at: Positions, ends: Positions, build: bool
    ) -> tuple[Positions, pa.Array | None]:
        at, number = self.longs(at)
        if ((number < 0) | (number >= len(declared["symbols"]))).any():
            raise NotVectorizableError
        return at, pa.array(declared["symbols"], pa.string()).take(pa.array(number)) if build else None

    def _read_decimals(self, declared: Mapping[str, Any], at: Positions, lengths: Positions) -> pa.Array:
        precision, scale = declared["precision"], declared.get("scale", 0)
        if not 1 <= precision <= 38 or scale > precision or ((lengths < 1) | (lengths > 16)).any():
            raise NotVectorizableError
        # Two's complement, from the highest byte on; Arrow has the lowest first.
        content = np.empty((len(at), 16), np.uint8)
        sign = np.where(self._data[at] >= 0x80, 0xFF, 0).astype(np.uint8)
        for number in range(16):
            held = number < lengths
            place = np.where(held, at + lengths - 1 - number, 0)
            content[:, number] = np.where(held, self._data[place], sign)
        array = pa.Array.from_buffers(pa.decimal128(precision, scale), len(at), [None, pa.py_buffer(content)])
        array.validate(full=True)
        return array


def column_objects(array: pa.Array) -> list[Any]:
    """Return the values of a column as fastavro returns them.

    Raises:
        NotVectorizableError: if it has parts that Arrow would return as other objects.
    """
    dtype = array.type
    if pa.types.is_timestamp(dtype):
        times: list[Any] = array.view(pa.timestamp("us")).to_pylist()
        utc = datetime.timezone.utc
        return times if dtype.tz is None else [time and time.replace(tzinfo=utc) for time in times]
    items = dtype.value_type if pa.types.is_list(dtype) else dtype
    if pa.types.is_nested(items) or pa.types.is_timestamp(items):
        raise NotVectorizableError
    objects: list[Any] = array.to_pylist()
    return objects


_KINDS: Mapping[Any, Any] = {
    "null": _Reader._read_null,
    "boolean": _Reader._read_boolean,
    "int": _Reader._read_int,
    "long": _Reader._read_long,
    "float": _Reader._read_float,
    "double": _Reader._read_double,
    "bytes": _Reader._read_bytes,
    "string": _Reader._read_string,
    "fixed": _Reader._read_fixed,
    "enum": _Reader._read_enum,
    "array": _Reader._read_array,
    "map": _Reader._read_map,
    "record": _Reader._read_record,
    "error": _Reader._read_record,
}
