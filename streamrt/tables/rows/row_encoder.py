"""Rows as the keys, values and timestamps of records."""

import contextlib
import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from streamrt.errors import ArgumentTypeError, ProducerError, SchemaError, SchemaMismatchError, SerializationError
from streamrt.records import Headers
from streamrt.schema import Column, Schema
from streamrt.schema.columns import NO_DEFAULT
from streamrt.serializers.row_formats import KeyFormat, RowFormat
from streamrt.tables.rows.arrow_rows import Frame
from streamrt.tables.rows.row_lists import columns_of_rows

__all__ = ["EncodedRow", "EncodedRows", "RowEncoder"]

_EPOCH = datetime.datetime(1970, 1, 1)
_EPOCH_UTC = _EPOCH.replace(tzinfo=datetime.timezone.utc)
_MS = datetime.timedelta(milliseconds=1)
_DAY_MS = 86_400_000
_REFUSALS = (SchemaMismatchError, SerializationError, ProducerError)


class EncodedRow(NamedTuple):
    """A row as a record; without a value, it deletes a row, and without a timestamp, it gets that of the moment."""

    value: bytes | None
    key: bytes | None
    timestamp: int | None
    headers: Headers | None = None


@dataclass(frozen=True)
class EncodedRows:
    """Rows as records, column by column.

    Attributes:
        values: their values; None deletes the row of the key.
        keys: their keys; None if they have none.
        timestamps: their timestamps; None, as a whole or of a row, is the time of the moment.
        headers: their headers; None if they have none.
    """

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None = None
    timestamps: Sequence[int | None] | None = None
    headers: Sequence[Headers] | None = None

    @classmethod
    def joined(cls, parts: "Sequence[EncodedRows]") -> "EncodedRows":
        """Return the rows of parts of one table, in order."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            [value for part in parts for value in part.values],
            None if not parts or parts[0].keys is None else [key for part in parts for key in part.keys or ()],
            None
            if not parts or parts[0].timestamps is None
            else [each for part in parts for each in part.timestamps or ()],
        )

    def __len__(self) -> int:
        return len(self.values)


class RowEncoder:
    """Checks rows of a table, and encodes them. Of several rows, all are encoded before any is returned.

    Args:
        table: name of the table.
        topic: name of its topic.
        schema: what rows must fit.
        rows_as: format of the rows.
        keys_as: format of the keys; None if records have none.
        columns: names or numbers of the columns that rows give, in their order; None means all.
        max_bytes: how many bytes key and value of a record may have.

    Raises:
        SchemaError: if there is no such column, or one is left out that must not be null.
    """

    def __init__(
        self,
        table: str,
        topic: str,
        schema: Schema,
        rows_as: RowFormat,
        keys_as: KeyFormat | None,
        columns: Sequence[str | int] | None,
        max_bytes: int,
    ) -> None:
        self.schema = schema
        self._table = table
        self._topic = topic
        self._rows_as = rows_as
        self._keys_as = keys_as
        self._max_bytes = max_bytes
        self._given = schema if columns is None else _project_schema(schema, columns)
        keys = () if keys_as is None else keys_as.columns
        self._left_out = {} if columns is None else _find_defaults(schema, self._given.names, keys, table)
        self._time = next((each for each in schema.fields if each.name == schema.time), None)
        self._milliseconds = None if self._time is None else _milliseconds(self._time)

    @property
    def left_out(self) -> tuple[str, ...]:
        """Names of the columns that rows do not give."""
        return tuple(self._left_out)

    def row(self, row: Mapping[str, Any] | Sequence[Any]) -> EncodedRow:
        """Return a row as a record.

        Raises:
            SchemaMismatchError: if it does not fit the schema.
            SerializationError: if the format cannot carry it.
            ProducerError: if it is too large for a record.
        """
        try:
            return self._encode_row(row)
        except (SchemaMismatchError, SerializationError) as error:
            raise self._locate_error(error) from None

    def rows(
        self, rows: Sequence[Mapping[str, Any] | Sequence[Any]], numbers: Sequence[int] | None = None
    ) -> EncodedRows:
        """Return rows as records; errors, as those of `row`, name the number of the row.

        Args:
            rows: the rows.
            numbers: their numbers, for errors; by default from 0 on.
        """
        frame = columns_of_rows(rows, self._given)
        if frame is not None:
            with contextlib.suppress(*_REFUSALS):
                # The check of single rows finds the same error, and says more about it.
                table = frame.fitted(self.schema, self._given.names)
                if table is not None:
                    return self._encode_columns(table)
        return self._one_by_one(rows, numbers)

    def frame(self, rows: Any, numbers: Sequence[int] | None = None) -> EncodedRows:
        """Return the rows of a table or batch of Arrow, or a data frame of pandas or polars; errors are as those of `rows`.

        Args:
            rows: the frame.
            numbers: the numbers of its rows, for errors; by default from 0 on.

        Raises:
            ArgumentTypeError: if it is neither.
        """
        try:
            frame = Frame.of(rows, self.schema)
            table = frame.fitted(self.schema, self._given.names)
            rows_one_by_one = frame.rows(self.schema) if table is None else []
        except SchemaMismatchError as error:
            if numbers is None:
                raise self._locate_error(error) from None
            return self._one_by_one(frame.rows(self.schema), numbers)
        if table is None:
            return self._one_by_one(rows_one_by_one, numbers)
        try:
            return self._encode_columns(table)
        except _REFUSALS:
            if numbers is None:
                raise
            return self._one_by_one(frame.rows(self.schema), numbers)

    def tombstone(self, key: bytes) -> EncodedRow:
        """Return the record that deletes the row of a key.

        Raises:
            ProducerError: if it is too large for a record.
        """
        return self._check_size(EncodedRow(None, key, None))

    def tombstones(self, keys: Sequence[bytes], numbers: Sequence[int] | None = None) -> EncodedRows:
        """Return the records that delete the rows of keys.

        Args:
            keys: the keys.
            numbers: their numbers, for errors; by default from 0 on.

        Raises:
            ProducerError: if one is too large for a record.
        """
        for number, key in enumerate(keys):
            self._check_size(EncodedRow(None, key, None), f"row {number if numbers is None else numbers[number]}: ")
        empty: list[Any] = [None] * len(keys)
        return EncodedRows(empty, keys, None if self._time is None else empty)

    def _one_by_one(
        self, rows: Sequence[Mapping[str, Any] | Sequence[Any]], numbers: Sequence[int] | None = None
    ) -> EncodedRows:
        encoded: list[EncodedRow] = []
        try:
            for row in rows:
                encoded.append(self._encode_row(row))
        except _REFUSALS as error:
            number = len(encoded) if numbers is None else numbers[len(encoded)]
            raise self._locate_error(error, f"row {number}: ") from None
        return EncodedRows(
            [each.value for each in encoded],
            None if self._keys_as is None else [each.key for each in encoded],
            None if self._time is None else [each.timestamp for each in encoded],
        )

    def _encode_columns(self, table: pa.Table) -> EncodedRows:
        parts: list[EncodedRows] = []
        first = 0
        for batch in table.combine_chunks().to_batches():
            parts.append(self._encode_batch(batch, first))
            first += batch.num_rows
        return EncodedRows.joined(parts)

    def _encode_row(self, row: Mapping[str, Any] | Sequence[Any]) -> EncodedRow:
        checked = self._given.check(row)
        if self._left_out:
            checked = {name: checked[name] if name in checked else self._left_out[name] for name in self.schema.names}
        timestamp = None
        if self._milliseconds is not None and self._time is not None:
            moment = checked[self._time.name]
            timestamp = None if moment is None else _check_timestamp(self._milliseconds(moment), self._time)
        key = None if self._keys_as is None else self._keys_as.encode(checked)
        return self._check_size(EncodedRow(self._rows_as.encode_checked(checked, self._topic), key, timestamp))

    def _encode_batch(self, batch: pa.RecordBatch, first: int) -> EncodedRows:
        try:
            keys = None if self._keys_as is None else self._keys_as.encode_batch(batch)
            values = self._rows_as.encode_batch(batch, self._topic)
            timestamps = self._read_timestamps(batch)
        except (SchemaMismatchError, SerializationError) as error:
            # Formats number the rows of a batch, and tables of more than 2 GiB have several.
            raise self._locate_error(error, f"from row {first} on, " if first else "") from None
        largest = max(map(len, values), default=0) + (0 if keys is None else max(map(len, keys), default=0))
        if largest > self._max_bytes:
            for number, value in enumerate(values):
                key = None if keys is None else keys[number]
                self._check_size(EncodedRow(value, key, None), f"row {first + number}: ")
        return EncodedRows(values, keys, timestamps)

    def _read_timestamps(self, batch: pa.RecordBatch) -> Sequence[int | None] | None:
        if self._time is None:
            return None
        moments = batch.column(self._time.name)
        if pa.types.is_date(moments.type):
            moments = pc.multiply(moments.cast(pa.int32()).cast(pa.int64()), _DAY_MS)
        moments = moments.cast(pa.int64())
        early = pc.index(pc.less(moments, 0), value=True).as_py()
        if early >= 0:
            raise SchemaMismatchError(f"row {early}: {_describe_early(self._time)}")
        if pa.types.is_timestamp(self._time.dtype):
            moments = pc.divide(moments, 1_000)
        # The client takes 0 for the time of the moment.
        timestamps: list[int | None] = pc.max_element_wise(moments, pa.scalar(1), skip_nulls=False).to_pylist()
        return timestamps

    def _check_size(self, encoded: EncodedRow, where: str = "") -> EncodedRow:
        size = len(encoded.value or b"") + len(encoded.key or b"")
        if size > self._max_bytes:
            raise ProducerError(
                f"{where}a row of {size:,} bytes for table {self._table!r} is larger than message.max.bytes="
                f"{self._max_bytes}: raise it in the options of the writer, and max.message.bytes of topic "
                f"{self._topic!r}",
                self._topic,
                refused=True,
            )
        return encoded

    def _locate_error(self, error: Exception, where: str = "") -> Exception:
        if isinstance(error, ProducerError):
            return ProducerError(f"{where}{error}", error.topic, error.refused)
        return type(error)(f"{where}{error} (table {self._table!r})")


def _project_schema(schema: Schema, columns: Sequence[str | int]) -> Schema:
    if isinstance(columns, (str, bytes)) or not isinstance(columns, Sequence):
        raise ArgumentTypeError(f"writer(columns=...) must be a list of names or numbers, got {type(columns).__name__}")
    return schema.project(columns)


def _find_defaults(schema: Schema, given: Sequence[str], keys: Sequence[str], table: str) -> dict[str, Any]:
    """Return the values of the columns that rows do not give."""
    left_out = [each for each in schema.fields if each.name not in given]
    for each in left_out:
        must_be_there = each.name in keys or not each.nullable
        if must_be_there and each.default in (NO_DEFAULT, None):
            raise SchemaError(
                f"writer(columns=...) leaves out the column {each.name!r} of table {table!r}, which must not be null and "
                "has no default"
            )
    return {each.name: None if each.default is NO_DEFAULT else each.default for each in left_out}


def _milliseconds(time: Column) -> Callable[[Any], int]:
    """Return what makes milliseconds since the Unix epoch of the values of a column."""
    if time.dtype == pa.int64():
        return int
    if time.dtype == pa.date32():
        return lambda day: (day.toordinal() - _EPOCH.toordinal()) * _DAY_MS
    start = _EPOCH if time.dtype.tz is None else _EPOCH_UTC
    return lambda moment: (moment - start) // _MS


def _check_timestamp(timestamp: int, time: Column) -> int:
    if timestamp < 0:
        raise SchemaMismatchError(_describe_early(time))
    # The client takes 0 for the time of the moment.
    return max(timestamp, 1)


def _describe_early(time: Column) -> str:
    return f"column {time.name!r} ({time.word}) must be 1970 or later, because it is the timestamp of the record"
