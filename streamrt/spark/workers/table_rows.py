"""Spark tasks of queries: records to rows of a table, and rows to what the process that asks reads."""

import contextlib
import json
import pickle
from collections.abc import Callable, Iterable, Iterator

import cloudpickle
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import Accumulator

from streamrt.errors import SerializationError
from streamrt.kafka.reading.input_reader import InputBatch
from streamrt.secret import accept_secrets, collect_secrets
from streamrt.slots.worker_process import HeldText, SharedText
from streamrt.tables.rows.decoding import RowReader, slice_of

__all__ = ["RECORD_COLUMNS", "DecodeRows", "plain_schema", "write_batches"]

RECORD_COLUMNS = ("key", "value", "partition", "offset", "scanned")
"""The columns of records: `scanned` is how many bytes of records one stands for."""


class DecodeRows:
    """The function for `mapInArrow` that makes rows of records, by the decoder that scans use.

    Args:
        readers: returns a decoder.
        schema: the columns that it returns.
        is_current: whether records are the last ones of their keys; those without a value are deleted rows.
        share: shares the secrets of the decoder with tasks.
        scanned: counts the bytes of records.
    """

    def __init__(
        self,
        readers: Callable[[], RowReader],
        schema: pa.Schema,
        is_current: bool,
        share: Callable[[str], SharedText],
        scanned: "Accumulator[int]",
    ) -> None:
        with collect_secrets() as collected:
            self._readers = cloudpickle.dumps(readers)
        self.secrets: SharedText = share(json.dumps(dict(collected))) if collected else HeldText("{}")
        self._schema = plain_schema(schema)
        self._is_current = is_current
        self._scanned = scanned

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the rows of one Spark task."""
        accept_secrets(json.loads(self.secrets.value))
        reader: RowReader = pickle.loads(self._readers)()
        for batch in batches:
            if not batch.num_rows:
                continue
            self._scanned += pc.sum(batch.column("scanned")).as_py()
            if self._is_current:
                # A record without a key and a value is none that deletes; the decoder refuses it.
                is_row = pc.or_(pc.is_valid(batch.column("value")), pc.is_null(batch.column("key")))
                batch = batch.filter(is_row)
            if batch.num_rows:
                rows = _decode(reader, batch).cast(self._schema)
                yield rows


def _decode(reader: RowReader, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return records of any partitions as rows.

    Raises:
        SerializationError: if one is not a row; it names topic, partition and offset.
    """
    partitions = batch.column("partition").to_pylist()
    times = [0] * batch.num_rows
    offsets, keys, values = (batch.column(name).to_pylist() for name in ("offset", "key", "value"))
    records = InputBatch(offsets, keys, values, times, times, None)
    try:
        return reader.batch(partitions[0], records)
    except SerializationError:
        for index, partition in enumerate(partitions):
            reader.batch(partition, slice_of(records, index, index + 1))
        raise


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return columns as Spark takes them from tasks: any part may be null, and all bytes are BINARY."""
    return pa.schema([pa.field(each.name, _plain_type(each.type)) for each in schema])


def _plain_type(dtype: pa.DataType) -> pa.DataType:
    if pa.types.is_fixed_size_binary(dtype):
        return pa.binary()
    if pa.types.is_list(dtype):
        return pa.list_(_plain_type(dtype.value_type))
    if pa.types.is_struct(dtype):
        return pa.struct([pa.field(each.name, _plain_type(each.type)) for each in dtype])
    if pa.types.is_map(dtype):
        return pa.map_(_plain_type(dtype.key_type), _plain_type(dtype.item_type))
    return dtype


def write_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return each batch of rows as one row with its bytes, for `mapInArrow`."""
    for batch in batches:
        if batch.num_rows:
            sink = pa.BufferOutputStream()
            with contextlib.closing(pa.ipc.new_stream(sink, batch.schema)) as writer:
                writer.write_batch(batch)
            yield pa.RecordBatch.from_arrays([pa.array([sink.getvalue().to_pybytes()], pa.binary())], ["rows"])
