"""Turns records of a topic into rows: batches of Arrow, and dicts."""

import logging
from collections.abc import Sequence
from typing import Literal

import pyarrow as pa

from streamrt.errors import ArgumentValueError, SchemaError, SerializationError
from streamrt.kafka.reading.input_reader import InputBatch
from streamrt.schema import Schema
from streamrt.serializers.base import MessageField
from streamrt.serializers.row_formats import RowFormat
from streamrt.tables.rows.rows import ChangeType, ScanRecord

__all__ = ["OnBadRecord", "RowReader", "slice_of"]

logger = logging.getLogger("streamrt.tables")

OnBadRecord = Literal["fail", "skip"]
"""How to treat a record that does not fit the schema: as an error, or with a warning, and reading continues."""

_CHANGE = pa.field("_change_type", pa.string(), nullable=False)
_POSITION = (
    pa.field("_offset", pa.int64(), nullable=False),
    pa.field("_timestamp", pa.timestamp("ms", tz="UTC"), nullable=False),
    pa.field("_partition", pa.int32(), nullable=False),
)


class RowReader:
    """Decodes records of one topic. Use it in one thread.

    Args:
        row_format: format of the rows.
        topic: name of the topic.
        columns: names or numbers of the columns, in order; none means all.
        changes: whether batches have the column `_change_type`.
        metadata: whether they have `_change_type`, `_offset`, `_timestamp` and `_partition`.
        on_error: what becomes of records that are not rows.

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
        added = [*([_CHANGE] if changes or metadata else ()), *(_POSITION if metadata else ())]
        for each in added:
            if each.name in self.schema.names:
                raise SchemaError(
                    f"the column {each.name!r} is in the schema, and would be added again: leave it out of columns=, or the "
                    "added ones out"
                )
        self.arrow: pa.Schema = pa.schema([*self.schema.arrow, *added])
        self._with_change = bool(added)
        self.skipped = 0

    def batch(self, partition: int, records: InputBatch) -> pa.RecordBatch:
        """Return records as rows.

        Raises:
            SerializationError: if one is not a row; it names topic, partition and offset.
        """
        try:
            rows = self._decode_values(records.values)
        except SerializationError:
            records = self._drop_refused(partition, records)
            rows = self._decode_values(records.values)
        return self._finish_batch(rows, partition, records)

    def record(self, partition: int, records: InputBatch, index: int) -> ScanRecord | None:
        """Return one record as a row, or None if it is not a row and such records are skipped.

        Raises:
            SerializationError: if it is not a row; it names topic, partition and offset.
        """
        value, offset = records.values[index], records.offsets[index]
        try:
            if value is None:
                raise SerializationError("the record has no value")
            row = self._decode_one(value, None)
        except SerializationError as error:
            self._refuse_record(partition, offset, error)
            return None
        if self._names is not None:
            row = {name: row[name] for name in self._names}
        return ScanRecord(offset, records.timestamps[index], ChangeType.APPEND, row, records.keys[index], partition)

    def leading_good(self, records: InputBatch) -> int:
        """Return how many records there are before the first one that is not a row; all, if such records are skipped."""
        if self._is_skipping:
            return len(records.values)
        for index, value in enumerate(records.values):
            if self._find_fault(value) is not None:
                return index
        return len(records.values)

    def empty(self) -> pa.RecordBatch:
        """Return a batch without rows."""
        return pa.RecordBatch.from_pylist([], self.arrow)

    def _decode_values(self, values: Sequence[bytes | None]) -> pa.RecordBatch:
        if None in values:
            raise SerializationError("a record has no value")
        return self._format.decode_batch(values, self._topic, self._names)  # type: ignore[arg-type]

    def _find_fault(self, value: bytes | None) -> SerializationError | None:
        if value is None:
            return SerializationError("the record has no value")
        try:
            self._decode_one(value, None)
        except SerializationError as error:
            return error
        return None

    def _drop_refused(self, partition: int, records: InputBatch) -> InputBatch:
        """Return the records that are rows; the others are refused."""
        good = []
        for index, value in enumerate(records.values):
            fault = self._find_fault(value)
            if fault is None:
                good.append(index)
            else:
                self._refuse_record(partition, records.offsets[index], fault)
        columns = ([column[index] for index in good] if column is not None else None for column in records)
        return InputBatch(*columns)  # type: ignore[arg-type]

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

    def _finish_batch(self, rows: pa.RecordBatch, partition: int, records: InputBatch) -> pa.RecordBatch:
        arrays = list(rows.columns)
        if self._with_change:
            arrays.append(pa.repeat(ChangeType.APPEND.short, rows.num_rows))
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
