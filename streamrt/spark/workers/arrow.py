"""Spark tasks of a micro-batch: Arrow batches to chunks of records, reports to Arrow batches."""

import base64
from collections.abc import Iterable, Iterator

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from streamrt.records import Headers
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.chunk import Chunk
from streamrt.slots.worker_process import SpecReference, WorkerProcess
from streamrt.spark.workers.executor import work_of_worker

INPUT_COLUMNS = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    # As an array of structs this column would cost more than all others together, even if no record has headers.
    "CASE WHEN headers IS NULL THEN NULL ELSE to_json(headers) END AS headers",
)
"""The columns that tasks read, as SQL expressions over Spark's Kafka source."""

REPORT_SCHEMA = "report binary"


class RunTasks:
    """The function for `mapInArrow`: records in, one report out.

    Args:
        reference: reference to the task specification.
        context: positions of the group.
    """

    def __init__(self, reference: SpecReference, context: BatchContext) -> None:
        self._reference = reference
        self._context = context

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Process all records of one Spark task."""
        reports = work_of_worker(
            self._reference, self._context, lambda tasks, context: tasks.run(chunks(batches), context)
        )
        for report in reports:
            yield pa.RecordBatch.from_arrays([pa.array([report], pa.binary())], ["report"])


class WarmUp:
    """Prepares a worker, for `run_on_numbers`: composes operators, makes clients, and imports Arrow."""

    def __init__(self, reference: SpecReference) -> None:
        self._reference = reference

    def __call__(self, numbers: Iterable[int]) -> Iterator[bytes]:
        """Yield nothing."""
        WorkerProcess.current(self._reference).tasks.warm_up()
        yield from ()


def chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[Chunk]:
    """Split batches into chunks of one partition each.

    The topic and the partition are read from the columns, because the number of a Spark task does not identify them.
    """
    for batch in batches:
        if batch.num_rows == 0:
            continue
        for start, length in _find_runs(batch):
            yield _make_chunk(batch.slice(start, length))


def _find_runs(batch: pa.RecordBatch) -> Iterator[tuple[int, int]]:
    """Yield start and length of each run of rows with equal topic and partition."""
    topics = pc.run_end_encode(batch.column("topic")).run_ends.to_pylist()
    partitions = pc.run_end_encode(batch.column("partition")).run_ends.to_pylist()
    start = 0
    for end in sorted({*topics, *partitions}):
        yield start, end - start
        start = end


def _make_chunk(rows: pa.RecordBatch) -> Chunk:
    kinds = rows.column("timestampType")
    return Chunk(
        topic=rows.column("topic")[0].as_py(),
        partition=rows.column("partition")[0].as_py(),
        offsets=rows.column("offset").to_pylist(),
        keys=rows.column("key").to_pylist(),
        values=rows.column("value").to_pylist(),
        timestamps=pc.divide(rows.column("timestamp").cast(pa.int64()), 1000).to_pylist(),
        # Spark counts from -1 (no timestamp), librdkafka from 0.
        timestamp_types=pc.add(kinds, 1).to_pylist(),
        headers=_read_headers(rows.column("headers")),
    )


def _read_headers(column: pa.Array) -> list[Headers | None] | None:
    if column.null_count == len(column):
        return None
    return [None if text is None else _parse_headers(text) for text in column.to_pylist()]


def _parse_headers(text: str) -> Headers:
    """Parse headers from JSON; Spark writes bytes as base64 and leaves nulls out."""
    return [
        (header.get("key", ""), None if "value" not in header else base64.b64decode(header["value"]))
        for header in orjson.loads(text)
    ]
