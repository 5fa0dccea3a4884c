"""`SparkSink`: results as Spark DataFrames, for every format that Spark can write."""

import base64
import inspect
from collections.abc import Callable
from typing import Any, Protocol

import orjson

from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.sinks.base import DriverSink
from streamrt.connectors.sinks.batch import SinkBatch, SinkItem
from streamrt.errors import ArgumentTypeError, ConfigurationError, InvalidOperationError, SinkError, argument_error
from streamrt.records import Headers

__all__ = ["DataFrameFactory", "SparkSink"]

_PLAIN_SCHEMA = "key BINARY, value STRING, topic STRING, partition INT, offset BIGINT, timestamp BIGINT, headers STRING"
_METADATA_SCHEMA = "_key BINARY, _timestamp BIGINT, _headers STRING, _topic STRING, _partition INT, _offset BIGINT"


class DataFrameFactory(Protocol):
    """Makes DataFrames: a `pyspark.sql.SparkSession`."""

    def createDataFrame(self, data: Any, schema: Any = ...) -> Any:  # noqa: N802 - Spark's name
        """Return a DataFrame of the rows."""


class SparkSink(DriverSink):
    """Passes each micro-batch to a function as a Spark DataFrame: Parquet, Iceberg, JDBC and others that Spark writes.

    The function is called in the process that called `run()`, before offsets are committed, so each DataFrame is
    written at least once. It passes through the memory of that process.

    Without `schema` the columns are `key BINARY`, `value STRING` (as JSON), `topic STRING`, `partition INT`,
    `offset BIGINT`, `timestamp BIGINT` (ms) and `headers STRING`. With `schema` they are the columns of the values.

    Headers are a JSON list of pairs of name and value, or null if there are none. A header whose bytes are not UTF-8
    is `{"base64": "..."}`. Keys that are neither bytes nor text become JSON.

    Args:
        write: called with a DataFrame for each micro-batch that has results. If it has a second required parameter, this
            gets the offsets that the micro-batch has values of: a dict of topic and partition to the first offset, and the
            offset after the last. A system that stores the latter with the values can leave out what it already has.
        schema: columns of the values in Spark's DDL, such as `"sku STRING, price DOUBLE"`. Values must then be dicts;
            columns that a value lacks are null, columns that the schema lacks are left out.
        metadata: with `schema`: also add the columns `_key BINARY`, `_timestamp BIGINT` (ms), `_headers STRING`,
            `_topic STRING`, `_partition INT` and `_offset BIGINT` of the input records.
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails.

    Raises:
        ConfigurationError: if `write` is not a function, or `metadata` is given without `schema`.

    Example:
        ```python
        def save(frame: DataFrame) -> None:
            frame.write.mode("append").parquet("prices")


        sdf.sink(SparkSink(save, schema="sku STRING, price DOUBLE", metadata=True))
        ```
    """

    def __init__(
        self,
        write: Callable[..., object],
        schema: str | None = None,
        metadata: bool = False,
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
    ) -> None:
        super().__init__(on_client_connect_success, on_client_connect_failure)
        if not callable(write):
            raise ArgumentTypeError(f"SparkSink got write={write!r}: give a function that accepts a DataFrame")
        if schema is not None and (not isinstance(schema, str) or not schema.strip()):
            raise argument_error(
                f"the schema of a SparkSink is {schema!r}: give DDL such as 'sku STRING, n INT'",
                of_type=isinstance(schema, str),
            )
        if metadata and schema is None:
            raise ConfigurationError(
                "SparkSink(metadata=True) needs a schema: without one, the metadata columns are always there"
            )
        self._function: Callable[..., object] | None = write
        self._tells_offsets = _requires_two(write)
        self._schema = schema
        self._metadata = metadata
        self._session: DataFrameFactory | None = None

    def use(self, session: DataFrameFactory) -> None:
        """Set the factory of DataFrames. The Spark runner calls this before `start`.

        Args:
            session: the Spark session of the application.
        """
        self._session = session

    def write(self, batch: SinkBatch) -> None:
        """Pass one batch to the function.

        Args:
            batch: the values of one partition.

        Raises:
            Exception: see `write_batches`.
        """
        self.write_batches([batch])

    def write_batches(self, batches: list[SinkBatch]) -> None:
        """Pass all batches of a micro-batch to the function, as one DataFrame.

        Args:
            batches: the batches, in the order of the values of each task.

        Raises:
            InvalidOperationError: if there is no Spark session.
            SinkError: if a value does not fit the schema, or has no JSON form.
            Exception: the error of the function.
        """
        rows, schema = self.rows(batches)
        if not rows:
            return
        if self._session is None or self._function is None:
            raise InvalidOperationError(
                "SparkSink has no Spark session to make DataFrames: run the application with Spark, "
                "or call use(session) first"
            )
        frame = self._session.createDataFrame(rows, schema)
        self._function(frame, _offset_ranges(batches)) if self._tells_offsets else self._function(frame)

    def rows(self, batches: list[SinkBatch]) -> tuple[list[dict[str, Any]], str]:
        """Return the rows of a DataFrame and its schema in Spark's DDL.

        Args:
            batches: the batches of a micro-batch.

        Raises:
            SinkError: if a value is not a dict and there is a schema, or has no JSON form and there is none.

        Example:
            >>> batch = SinkBatch("orders", 0)
            >>> batch.append({"sku": "a", "n": 1}, b"k", 5, None, 41)
            >>> SparkSink(print, schema="sku STRING").rows([batch])
            ([{'sku': 'a', 'n': 1}], 'sku STRING')
        """
        if self._schema is None:
            return [_plain_row(item, batch) for batch in batches for item in batch], _PLAIN_SCHEMA
        rows = [self._make_row(item, batch) for batch in batches for item in batch]
        return rows, f"{self._schema}, {_METADATA_SCHEMA}" if self._metadata else self._schema

    def _make_row(self, item: SinkItem, batch: SinkBatch) -> dict[str, Any]:
        if not isinstance(item.value, dict):
            raise SinkError(
                f"a SparkSink with a schema got a {type(item.value).__name__} from {_format_place(item, batch)}: give it "
                "dicts, or leave the schema out to get values as JSON"
            )
        if not self._metadata:
            return item.value
        return {
            **item.value,
            "_key": _key_bytes(item, batch),
            "_timestamp": item.timestamp,
            "_headers": _headers_json(item.headers),
            "_topic": batch.topic,
            "_partition": batch.partition,
            "_offset": item.offset,
        }

    def __getstate__(self) -> dict[str, Any]:
        # Tasks only gather; the function may refer to objects that cannot be pickled, such as the Spark session.
        return {**self.__dict__, "_function": None, "_session": None}


def _requires_two(function: Callable[..., object]) -> bool:
    """Return whether a function can be called with two arguments, and not with one."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return False
    return _accepts_count(signature, 2) and not _accepts_count(signature, 1)


def _accepts_count(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def _offset_ranges(batches: list[SinkBatch]) -> dict[tuple[str, int], tuple[int, int]]:
    """Return the first offset and the one after the last, by topic and partition. Results of time have none."""
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for batch in batches:
        offsets = [item.offset for item in batch if item.offset >= 0]
        if offsets:
            partition = batch.topic, batch.partition
            first, end = found.get(partition, (offsets[0], 0))
            found[partition] = min(first, *offsets), max(end, max(offsets) + 1)
    return found


def _plain_row(item: SinkItem, batch: SinkBatch) -> dict[str, Any]:
    return {
        "key": _key_bytes(item, batch),
        "value": _dump_json(item.value, "value", item, batch).decode(),
        "topic": batch.topic,
        "partition": batch.partition,
        "offset": item.offset,
        "timestamp": item.timestamp,
        "headers": _headers_json(item.headers),
    }


def _key_bytes(item: SinkItem, batch: SinkBatch) -> bytes | None:
    key = item.key
    if key is None or isinstance(key, bytes):
        return key
    return key.encode() if isinstance(key, str) else _dump_json(key, "key", item, batch)


def _headers_json(headers: Headers | None) -> str | None:
    if not headers:
        return None
    return orjson.dumps([[name, _header_value(value)] for name, value in headers]).decode()


def _header_value(value: str | bytes | None) -> Any:
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _dump_json(value: Any, part: str, item: SinkItem, batch: SinkBatch) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError as error:
        raise SinkError(
            f"the {part} of {_format_place(item, batch)} has no JSON form for a SparkSink: {error}; convert it "
            "with apply() before the sink, or give the sink a schema"
        ) from error


def _format_place(item: SinkItem, batch: SinkBatch) -> str:
    return f"{batch.topic}[{batch.partition}] offset {item.offset}"
