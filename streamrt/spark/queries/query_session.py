"""`QuerySession`: a session of Spark for one query, with its tables as temporary views."""

import contextlib
import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.functions import coalesce, col, length, lit, max_by, struct, when
from pyspark.sql.functions import sum as total
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from streamrt.errors import SQLNotSupportedError
from streamrt.runtime.driver.life.exits import in_background
from streamrt.slots.worker_process import SharedText
from streamrt.spark.sessions.spark_session import SparkEnvironment
from streamrt.spark.workers.table_rows import RECORD_COLUMNS, DecodeRows, plain_schema, write_batches
from streamrt.sql.queries.query_sources import RowSource, TableRows
from streamrt.tables.reading.scan import TableScan

__all__ = ["POOL", "QuerySession"]

POOL = "streamrt-queries"
"""The scheduler pool of queries: where Spark schedules fairly, they take turns with micro-batches."""

_SETTINGS = {
    # The dialect.
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.caseSensitive": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    # Otherwise a text such as '${env:HOME}' becomes the variable, also within quotes.
    "spark.sql.variable.substitute": "false",
    "spark.sql.runSQLOnFiles": "false",
}
_RECORDS_PER_TASK = 100_000
"""Offsets that one task reads at most. The rows of a task are in the memory of Spark's driver at once."""
_DESCRIPTION = "StreamRT: a query of present rows"
R = TypeVar("R")


class QuerySession:
    """A session of Spark for one query. Close it.

    Args:
        environment: Spark.
        options: options of Java's client for Kafka, with secrets.
    """

    def __init__(self, environment: SparkEnvironment, options: Mapping[str, str]) -> None:
        self._environment = environment
        self._options = options
        self._session = environment.session.newSession()
        for name, value in _SETTINGS.items():
            self._session.conf.set(name, value)
        self._context = environment.session.sparkContext
        self._group = f"streamrt-query-{uuid.uuid4().hex}"
        self._scanned = self._context.accumulator(0)
        self._shared: list[SharedText] = []

    @property
    def scanned(self) -> int:
        """Bytes of records that tasks have read, of those that have ended."""
        scanned: int = self._scanned.value
        return scanned

    def create_view(self, name: str, source: RowSource, columns: list[str]) -> None:
        """Make a table a temporary view.

        Args:
            name: name of the view.
            source: the table; what is read of it is fixed.
            columns: its columns that the query names.
        """
        if isinstance(source, TableRows) and source.scan is not None:
            frame = self._read_records(source.scan, source.key_set)
        else:
            rows = pa.Table.from_batches(source.batches(lambda _: None), source.schema)
            frame = self._session.createDataFrame(rows.select(columns or source.schema.names[:1]))
        frame.createOrReplaceTempView(name)

    def run(self, sql: str, limit: int | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a query.

        Args:
            sql: the query, as `to_spark` has made it.
            limit: most rows.
        """
        for row in self._in_group(lambda: self._start(sql, limit)):
            yield from pa.ipc.open_stream(pa.py_buffer(row[0]))

    def explain(self, sql: str) -> str:
        """Return the plan of a query as text."""
        frame = self._session.sql(sql)
        utilities = self._context._jvm.PythonSQLUtils
        plan: str = utilities.explainString(frame._jdf.queryExecution(), "simple")
        return plan

    def interrupt(self) -> None:
        """End what runs now, and what would run later, from any thread."""
        with contextlib.suppress(Exception):  # without its JVM all of it is over
            self._context._jsc.sc().cancelJobGroupAndFutureJobs(self._group)

    def close(self) -> None:
        """End everything, and forget the secrets of decoders."""
        self.interrupt()
        for each in self._shared:
            with contextlib.suppress(Exception):
                each.destroy()

    def _start(self, sql: str, limit: int | None) -> Iterator[Any]:
        frame = self._session.sql(sql)
        if limit is not None:
            frame = frame.limit(limit)
        named = frame.toDF(*(f"c{number}" for number in range(len(frame.columns))))
        rows: Iterator[Any] = named.mapInArrow(write_batches, "rows binary").toLocalIterator(prefetchPartitions=True)
        return rows

    def _in_group(self, work: Callable[[], R]) -> R:
        """Call a function in a thread whose jobs can be cancelled; what it returns may run more of them."""

        def run() -> R:
            # Of this thread, and of those that Spark starts for it.
            self._context.setJobGroup(self._group, _DESCRIPTION, interruptOnCancel=True)
            self._context.setLocalProperty("spark.scheduler.pool", POOL)
            return work()

        return in_background("streamrt-query", run).result()

    def _read_records(self, scan: TableScan, keys: frozenset[bytes] | None) -> DataFrame:
        schema = _spark_schema(scan.arrow_schema)
        bounds = {number: range_ for number, range_ in scan.bounds.items() if range_[0] < range_[1]}
        if not bounds:
            return self._session.createDataFrame([], schema)
        topic = scan.start.topics[0]
        reader = self._session.read.format("kafka").options(
            **{f"kafka.{name}": value for name, value in self._options.items()},
            failOnDataLoss="true",
            maxRecordsPerPartition=str(_RECORDS_PER_TASK),
            assign=json.dumps({topic: list(bounds)}),
            startingOffsets=json.dumps({topic: {str(number): low for number, (low, _) in bounds.items()}}),
            endingOffsets=json.dumps({topic: {str(number): high for number, (_, high) in bounds.items()}}),
        )
        size = coalesce(length("key"), lit(0)) + coalesce(length("value"), lit(0))
        records = reader.load().withColumn("scanned", size.cast("bigint"))
        if scan.is_current:
            records = _keep_current(records, keys)
        decode = DecodeRows(
            scan.readers, scan.arrow_schema, scan.is_current, self._environment.share_text, self._scanned
        )
        self._shared.append(decode.secrets)
        return records.select(*RECORD_COLUMNS).mapInArrow(decode, schema)


def _keep_current(records: DataFrame, keys: frozenset[bytes] | None) -> DataFrame:
    """Return the last record of each key; those without a key are all kept, as `keep_current` does."""
    if keys is not None:
        records = records.where(col("key").isin([bytearray(each) for each in keys]))
    last = max_by(struct("value", "offset"), "offset").alias("last")
    grouped = records.groupBy("partition", "key", when(col("key").isNull(), col("offset")).alias("own"))
    return grouped.agg(last, total("scanned").alias("scanned")).select("key", "last.*", "partition", "scanned")


def _spark_schema(schema: pa.Schema) -> StructType:
    try:
        return from_arrow_schema(plain_schema(schema), prefer_timestamp_ntz=True)
    except PySparkException:
        words = ", ".join(f"{each.name} ({each.type})" for each in schema)
        raise SQLNotSupportedError(
            f'Spark cannot have one of the columns {words}: leave it out, or use engine="duckdb"'
        ) from None
