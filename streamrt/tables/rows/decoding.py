"""Turns records of a topic into rows: batches of Arrow, and dicts."""

import logging
from collections.abc import Sequence
from typing import Any, Literal

import pyarrow as pa

from streamrt.errors import ArgumentValueError, SchemaError, SerializationError
from streamrt.kafka.reading.input_reader import InputBatch
from streamrt.schema import Schema
from streamrt.serializers.base import MessageField
from streamrt.serializers.row_formats import KeyFormat, RowFormat
from streamrt.tables.rows.rows import ChangeType, ScanRecord

__all__ = ["POSITION_COLUMNS", "OnBadRecord", "RowReader", "slice_of"]

logger = logging.getLogger("streamrt.tables")

OnBadRecord = Literal["fail", "skip"]
"""How to treat a record that does not fit the schema: as an error, or with a warning, and reading continues."""

_CHANGE = pa.field("_change_type", pa.string(), nullable=False)
POSITION_COLUMNS = (
    pa.field("_offset", pa.int64(), nullable=False),
    pa.field("_timestamp", pa.timestamp("ms", tz="UTC"), nullable=False),
    pa.field("_partition", pa.int32(), nullable=False),
)
"""Columns that `metadata` adds after `_change_type`."""


class RowReader:
    """Decodes records of one topic. Use it in one thread.

    Args:
        row_format: format of the rows.
        topic: name of the topic.
        columns: names or numbers of the columns, in order; none means all.
        changes: whether batches have the column `_change_type`.
        metadata: whether they have `_change_type`, `_offset`, `_timestamp` and `_partition`.
        on_error: what becomes of records that are not rows.
        keys: format of the keys of a table with a primary key; None for a log table.
        current: whether records of a table with a primary key are the last ones of their keys, each of them an insert.
            Otherwise they are upserts and deletes; rows that are deleted have the columns of their key, and null in others.

    Raises:
        SchemaError: if there is no such column, or a column has the name of one that is added.
    """

    def __init__(
        self,
        row_format: RowFormat,
        topic: str,
        columns: Sequence[str | int] | None = None,
        *,
        changes: bool = False,
        metadata: bool = False,
        on_error: OnBadRecord = "fail",
        keys: KeyFormat | None = None,
        current: bool = False,
    ) -> None:
        if on_error not in ("fail", "skip"):
            raise ArgumentValueError(f'on_error must be "fail" or "skip", got {on_error!r}')
        if isinstance(columns, str):
            raise ArgumentValueError(f"columns must be a list of names or numbers, such as [{columns!r}]")
        schema = row_format.schema
        self.schema: Schema = schema.project(columns) if columns else schema
        self._format = row_format
        self._decode_one = row_format.deserializer.bind(topic, MessageField.VALUE)
        self._topic = topic
        self._names = self.schema.names if columns else None
        self._is_skipping = on_error == "skip"
        self._metadata = metadata
        added = [*([_CHANGE] if changes or metadata else ()), *(POSITION_COLUMNS if metadata else ())]
        for each in added:
            if each.name in self.schema.names:
                raise SchemaError(
                    f"the column {each.name!r} is in the schema, and would be added again: leave it out of columns=, or the "
                    "added ones out"
                )
        self._keys = keys
        self._current = current
        self._has_deletes = keys is not None and not current
        # Rows that are deleted have their key only.
        self._base: pa.Schema = pa.schema(
            [
                each.with_nullable(each.nullable or (self._has_deletes and each.name not in schema.primary_key))
                for each in self.schema.arrow
            ]
        )
        self.arrow: pa.Schema = pa.schema([*self._base, *added])
        self._with_change = bool(added)
        self.skipped = 0

    def batch(self, partition: int, records: InputBatch, changes: Sequence[ChangeType] | None = None) -> pa.RecordBatch:
        """Return records as rows.

        Args:
            partition: number of the partition.
            records: the records.
            changes: what each of them does to the table, if their values do not say it.

        Raises:
            SerializationError: if one is not a row; it names topic, partition and offset.
        """
        try:
            rows = self._decode_values(records)
        except SerializationError:
            good = self._refuse_bad_records(partition, records)
            columns = (None if column is None else [column[index] for index in good] for column in records)
            records = InputBatch(*columns)  # type: ignore[arg-type]
            changes = None if changes is None else [changes[index] for index in good]
            rows = self._decode_values(records)
        return self._finish_batch(rows, partition, records, changes)

    def record(
        self, partition: int, records: InputBatch, index: int, change: ChangeType | None = None
    ) -> ScanRecord | None:
        """Return one record as a row, or None if it is not a row and such records are skipped.

        Args:
            partition: number of the partition.
            records: records of it.
            index: which of them.
            change: what it does to the table, if its value does not say it.

        Raises:
            SerializationError: if it is not a row; it names topic, partition and offset.
        """
        value, offset, key = records.values[index], records.offsets[index], records.keys[index]
        try:
            row = self._decode_record(key, value)
        except SerializationError as error:
            self._refuse_record(partition, offset, error)
            return None
        if self._names is not None:
            row = {name: row[name] for name in self._names}
        change = self._change_of(value) if change is None else change
        return ScanRecord(offset, records.timestamps[index], change, row, key, partition)

    def leading_good(self, records: InputBatch) -> int:
        """Return how many records there are before the first one that is not a row; all, if such records are skipped."""
        if self._is_skipping:
            return len(records.values)
        for index, (key, value) in enumerate(zip(records.keys, records.values, strict=True)):
            if self._find_fault(key, value) is not None:
                return index
        return len(records.values)

    def empty(self) -> pa.RecordBatch:
        """Return a batch without rows."""
        return pa.RecordBatch.from_pylist([], self.arrow)

    def _change_of(self, value: bytes | None) -> ChangeType:
        if self._keys is None:
            return ChangeType.APPEND
        if self._current:
            return ChangeType.INSERT
        return ChangeType.UPDATE_AFTER if value is not None else ChangeType.DELETE

    def _decode_record(self, key: bytes | None, value: bytes | None) -> dict[str, Any]:
        if self._keys is not None and key is None:
            raise SerializationError("the record has no key, which is the primary key of a row")
        if value is not None:
            row: dict[str, Any] = self._decode_one(value, None)
            return row
        if self._keys is None or key is None or not self._has_deletes:
            raise SerializationError("the record has no value")
        return {**dict.fromkeys(self._format.schema.names), **self._keys.decode(key)}

    def _decode_values(self, records: InputBatch) -> pa.RecordBatch:
        values = records.values
        if self._keys is not None and None in records.keys:
            raise SerializationError("a record has no key")
        if None not in values:
            return self._format.decode_batch(values, self._topic, self._names)  # type: ignore[arg-type]
        if not self._has_deletes:
            raise SerializationError("a record has no value")
        written = [index for index, value in enumerate(values) if value is not None]
        deleted = [index for index, value in enumerate(values) if value is None]
        rows = self._format.decode_batch([value for value in values if value is not None], self._topic, self._names)
        gone = [self._decode_record(records.keys[index], None) for index in deleted]
        found = pa.Table.from_batches(
            [
                pa.RecordBatch.from_arrays(rows.columns, schema=self._base),
                pa.RecordBatch.from_pylist(
                    [{name: row[name] for name in self._base.names} for row in gone], self._base
                ),
            ]
        )
        order = [0] * len(values)
        for at, index in enumerate([*written, *deleted]):
            order[index] = at
        return found.take(pa.array(order, pa.int64())).combine_chunks().to_batches()[0]

    def _find_fault(self, key: bytes | None, value: bytes | None) -> SerializationError | None:
        try:
            self._decode_record(key, value)
        except SerializationError as error:
            return error
        return None

    def _refuse_bad_records(self, partition: int, records: InputBatch) -> list[int]:
        """Return which records are rows; the others are refused."""
        good = []
        for index, (key, value) in enumerate(zip(records.keys, records.values, strict=True)):
            fault = self._find_fault(key, value)
            if fault is None:
                good.append(index)
            else:
                self._refuse_record(partition, records.offsets[index], fault)
        return good

    def _refuse_record(self, partition: int, offset: int, error: SerializationError) -> None:
        where = f"{self._topic}[{partition}] at offset {offset}"
        if not self._is_skipping:
            raise SerializationError(
                f'the record of {where} is not a row of the table: {error}; read with on_error="skip" to leave such records '
                "out"
            ) from error
        self.skipped += 1
        if self.skipped == 1:
            logger.warning(
                "the record of %s is not a row of the table and is skipped: %s; more of them are counted as `skipped`",
                where,
                error,
            )

    def _finish_batch(
        self, rows: pa.RecordBatch, partition: int, records: InputBatch, changes: Sequence[ChangeType] | None
    ) -> pa.RecordBatch:
        arrays = list(rows.columns)
        if self._with_change and changes is None and not self._has_deletes:
            arrays.append(pa.repeat(self._change_of(b"").short, rows.num_rows))
        elif self._with_change:
            kinds = map(self._change_of, records.values) if changes is None else changes
            arrays.append(pa.array([each.short for each in kinds], pa.string()))
        if self._metadata:
            arrays += [
                pa.array(records.offsets, pa.int64()),
                pa.array(records.timestamps, pa.timestamp("ms", tz="UTC")),
                pa.repeat(pa.scalar(partition, pa.int32()), rows.num_rows),
            ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)


def slice_of(records: InputBatch, start: int, end: int | None = None) -> InputBatch:
    """Return some of the records of a batch."""
    columns = (None if column is None else column[start:end] for column in records)
    return InputBatch(*columns)  # type: ignore[arg-type]
