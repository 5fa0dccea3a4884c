"""Formats of files that sinks write: each turns a batch of items into the bytes of a file."""

import abc
import contextlib
import csv
import gzip
import io
from collections.abc import Callable, Iterator
from typing import Any, Literal, Protocol, get_args

import orjson

from streamrt.connectors.dialects import dialect_settings
from streamrt.connectors.files.formats import BATCH_COLUMNS
from streamrt.errors import SinkError, argument_error

__all__ = [
    "Batch",
    "BatchFormat",
    "BatchFormatName",
    "BatchItem",
    "CSVBatchFormat",
    "JSONBatchFormat",
    "ParquetBatchFormat",
    "ParquetCompression",
    "resolve_batch_format",
]

BatchFormatName = Literal["json", "parquet", "csv"]
ParquetCompression = Literal["none", "snappy", "gzip", "brotli", "lz4", "zstd"]
_TIMESTAMP, _KEY, _VALUE = BATCH_COLUMNS


class BatchItem(Protocol):
    """What formats read of an item; `streamrt.connectors.SinkItem` is one."""

    @property
    def value(self) -> Any:
        """The value."""

    @property
    def key(self) -> Any:
        """The key of the record."""

    @property
    def timestamp(self) -> int:
        """Event time of the record in milliseconds since the Unix epoch."""

    @property
    def offset(self) -> int:
        """Offset of the input record."""


class Batch(Protocol):
    """What formats read of a batch; `streamrt.connectors.SinkBatch` is one."""

    @property
    def topic(self) -> str:
        """Topic of the input records."""

    @property
    def partition(self) -> int:
        """Partition of the input records."""

    def __iter__(self) -> Iterator[Any]:
        """Yield the items."""


class BatchFormat(abc.ABC):
    r"""Base class of file formats that a file sink writes.

    Example:
        >>> from streamrt.connectors import SinkBatch
        >>> class Lines(BatchFormat):
        ...     file_extension = ".txt"
        ...     supports_append = True
        ...     def serialize(self, batch):
        ...         return b"".join(f"{item.value}\n".encode() for item in batch)
        >>> batch = SinkBatch("words", 0)
        >>> batch.append("one", None, 0, None, 0)
        >>> Lines().serialize(batch)
        b'one\n'
    """

    @property
    @abc.abstractmethod
    def file_extension(self) -> str:
        """End of the names of files, with its dot."""

    @property
    @abc.abstractmethod
    def supports_append(self) -> bool:
        """Whether a file stays valid when the bytes of another batch are added at its end."""

    @abc.abstractmethod
    def serialize(self, batch: Batch) -> bytes:
        """Return the content of a file with the items of a batch. The same batch gives the same bytes.

        Args:
            batch: the items of one partition.

        Raises:
            SinkError: if an item has no form in this format; the message names its offset, not its value.
        """


class _KeyedFormat(BatchFormat):
    """What the formats of the project share: keys as text."""

    def __init__(self, file_extension: str, key_serializer: Callable[[Any], Any] | None) -> None:
        name = type(self).__name__
        if not isinstance(file_extension, str) or "/" in file_extension or "\0" in file_extension:
            raise argument_error(
                f"{name}(file_extension=...) must be the end of a file name, such as '.data'; got {file_extension!r}",
                of_type=isinstance(file_extension, str),
            )
        if key_serializer is not None and not callable(key_serializer):
            raise argument_error(
                f"{name}(key_serializer=...) must be a function, got {type(key_serializer).__name__}", of_type=False
            )
        self._file_extension = file_extension
        self._key_serializer = key_serializer

    @property
    def file_extension(self) -> str:
        """End of the names of files."""
        return self._file_extension

    def _key(self, item: BatchItem, batch: Batch) -> Any:
        try:
            key = item.key if self._key_serializer is None else self._key_serializer(item.key)
            if isinstance(key, bytes | bytearray):
                key = key.decode()
            if isinstance(key, str):
                key.encode()
        except UnicodeError:
            raise _problem(
                batch, item, "its key is not text in UTF-8; give the format a key_serializer, such as bytes.hex"
            ) from None
        except Exception as error:
            raise _problem(batch, item, f"key_serializer failed with {type(error).__name__}") from error
        return key


class JSONBatchFormat(_KeyedFormat):
    r"""JSON lines with the fields `_timestamp`, `_key` and `_value`.

    Args:
        file_extension: end of the names of files; ".gz" is added to it if they are compressed.
        compress: whether to compress with gzip.
        dumps: function from an object to its JSON; orjson by default, which writes NaN as null.
        key_serializer: function from a key to a JSON value; by default bytes are decoded as UTF-8.

    Raises:
        ConfigurationError: if an argument cannot be used.

    Example:
        >>> from streamrt.connectors import SinkBatch
        >>> batch = SinkBatch("orders", 0)
        >>> batch.append({"n": 1}, b"a", 1_000, None, 41)
        >>> JSONBatchFormat().serialize(batch)
        b'{"_timestamp":1000,"_key":"a","_value":{"n":1}}\n'
    """

    def __init__(
        self,
        file_extension: str = ".jsonl",
        compress: bool = False,
        dumps: Callable[[Any], str | bytes] | None = None,
        *,
        key_serializer: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(file_extension, key_serializer)
        if not isinstance(compress, bool):
            raise argument_error(f"JSONBatchFormat(compress=...) must be a bool, got {compress!r}", of_type=False)
        if dumps is not None and not callable(dumps):
            raise argument_error(
                f"JSONBatchFormat(dumps=...) must be a function, got {type(dumps).__name__}", of_type=False
            )
        self._compress = compress
        self._dumps = dumps

    @property
    def file_extension(self) -> str:
        """End of the names of files."""
        return f"{self._file_extension}.gz" if self._compress else self._file_extension

    @property
    def supports_append(self) -> bool:
        """True: lines follow each other, and so do the parts of a compressed file."""
        return True

    def serialize(self, batch: Batch) -> bytes:  # noqa: D102
        lines = bytearray()
        for item in batch:
            record = {_TIMESTAMP: item.timestamp, _KEY: self._key(item, batch), _VALUE: item.value}
            lines += _json(record, self._dumps, batch, item)
            lines += b"\n"
        # Without the time in its header, a repeated batch gives the same file.
        return gzip.compress(bytes(lines), mtime=0) if self._compress else bytes(lines)


class ParquetBatchFormat(_KeyedFormat):
    """Parquet with the columns `_timestamp` and `_key`, and a column for each field of the values.

    Fields that a value lacks are null. A value that is not a dict becomes the column `_value`.

    Args:
        file_extension: end of the names of files.
        compression: compression inside the files: "none", "snappy", "gzip", "brotli", "lz4" or "zstd".
        key_serializer: function from a key to the column; by default bytes are decoded as UTF-8.

    Raises:
        ConfigurationError: if an argument cannot be used.

    Example:
        >>> ParquetBatchFormat(compression="zstd").file_extension
        '.parquet'
    """

    def __init__(
        self,
        file_extension: str = ".parquet",
        compression: ParquetCompression = "snappy",
        *,
        key_serializer: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(file_extension, key_serializer)
        if compression not in get_args(ParquetCompression):
            raise argument_error(
                f"ParquetBatchFormat(compression=...) must be one of {', '.join(get_args(ParquetCompression))}; got "
                f"{compression!r}",
                of_type=isinstance(compression, str),
            )
        self._compression = compression

    @property
    def supports_append(self) -> bool:
        """False: the index of a Parquet file is at its end."""
        return False

    def serialize(self, batch: Batch) -> bytes:  # noqa: D102
        import pyarrow
        import pyarrow.parquet

        items = list(batch)
        columns = {
            _TIMESTAMP: [item.timestamp for item in items],
            _KEY: self._keys(items, batch),
            **self._columns(items, batch),
        }
        arrays = {name: self._array(name, fields, items, batch) for name, fields in columns.items()}
        output = io.BytesIO()
        try:
            pyarrow.parquet.write_table(pyarrow.table(arrays), output, compression=self._compression)
        except pyarrow.ArrowException as error:
            raise SinkError(
                f"records of {batch.topic}[{batch.partition}] from offset {items[0].offset if items else 0} on cannot be "
                f"written as Parquet: {(str(error).splitlines() or [''])[0]}"
            ) from error
        return output.getvalue()

    def _keys(self, items: list[BatchItem], batch: Batch) -> list[Any]:
        keys = [item.key for item in items]
        if self._key_serializer is None and set(map(type, keys)) <= {bytes, type(None)}:
            # Nearly always; the other way finds the item that is not text.
            with contextlib.suppress(UnicodeError):
                return [None if key is None else key.decode() for key in keys]
        return [self._key(item, batch) for item in items]

    def _columns(self, items: list[BatchItem], batch: Batch) -> dict[str, list[Any]]:
        values = [item.value for item in items]
        if set(map(type, values)) == {dict} and len(set(map(len, values))) == 1:
            # Values with equal fields, which most batches have, take a third of the time.
            with contextlib.suppress(KeyError):
                return {name: [value[name] for value in values] for name in self._fields(items[0], batch)}
        columns: dict[str, list[Any]] = {}
        for number, item in enumerate(items):
            for name, field in self._fields(item, batch).items():
                column = columns.get(name)
                if column is None:
                    column = columns[name] = [None] * len(items)
                column[number] = field
        return columns

    def _fields(self, item: BatchItem, batch: Batch) -> dict[str, Any]:
        if not isinstance(item.value, dict):
            return {_VALUE: item.value}
        for name in item.value:
            if not isinstance(name, str):
                raise _problem(batch, item, f"Parquet needs text as names of columns, not {type(name).__name__}")
            if name in (_TIMESTAMP, _KEY):
                raise _problem(batch, item, f"its value has a field {name}, which is a column of the file already")
        return item.value

    def _array(self, name: str, fields: list[Any], items: list[BatchItem], batch: Batch) -> Any:
        import pyarrow

        def made(count: int) -> Any:
            # The errors of pyarrow quote values, so only their absence is of use.
            try:
                array = pyarrow.array(fields[:count], from_pandas=False)
            except (pyarrow.ArrowException, OverflowError, TypeError, ValueError):
                return None
            return None if _has_empty_struct(array.type) else array

        array = made(len(fields))
        if array is not None:
            return array
        low, high = 0, len(fields)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if made(middle) is not None else (low, middle)
        kind = type(fields[high - 1]).__name__
        raise _problem(
            batch,
            items[high - 1],
            f"column {name!r} cannot hold its {kind}: the type does not fit those before it, or has no form in Parquet",
        )


class CSVBatchFormat(_KeyedFormat):
    """CSV with the columns `_timestamp`, `_key` and `_value`; values are JSON. Each file begins with these names.

    A missing key and an empty one look the same, and are read as a missing one.

    Args:
        file_extension: end of the names of files.
        dialect: name of a dialect of the module `csv`.
        dumps: function from an object to its JSON; orjson by default.
        key_serializer: function from a key to its text; by default bytes are decoded as UTF-8.

    Raises:
        ConfigurationError: if an argument cannot be used.

    Example:
        >>> from streamrt.connectors import SinkBatch
        >>> batch = SinkBatch("orders", 0)
        >>> batch.append({"n": 1}, b"a", 1_000, None, 41)
        >>> print(CSVBatchFormat(dialect="unix").serialize(batch).decode(), end="")
        "_timestamp","_key","_value"
        "1000","a","{""n"":1}"
    """

    def __init__(
        self,
        file_extension: str = ".csv",
        dialect: str = "excel",
        dumps: Callable[[Any], str | bytes] | None = None,
        *,
        key_serializer: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(file_extension, key_serializer)
        if dumps is not None and not callable(dumps):
            raise argument_error(
                f"CSVBatchFormat(dumps=...) must be a function, got {type(dumps).__name__}", of_type=False
            )
        self._dialect = dialect_settings(dialect, "CSVBatchFormat")
        self._dumps = dumps

    @property
    def supports_append(self) -> bool:
        """False: the names of the columns would be repeated."""
        return False

    def serialize(self, batch: Batch) -> bytes:  # noqa: D102
        text = io.StringIO(newline="")
        rows = csv.writer(text, **self._dialect)
        rows.writerow(BATCH_COLUMNS)
        for item in batch:
            value = _json(item.value, self._dumps, batch, item).decode()
            try:
                rows.writerow((item.timestamp, self._key(item, batch), value))
            except csv.Error as error:
                raise _problem(batch, item, f"the dialect cannot hold its key or value ({error})") from error
        return text.getvalue().encode()


_FORMATS: dict[str, type[BatchFormat]] = {
    "json": JSONBatchFormat,
    "parquet": ParquetBatchFormat,
    "csv": CSVBatchFormat,
}


def resolve_batch_format(file_format: BatchFormatName | BatchFormat) -> BatchFormat:
    """Return the format of a name, or a format as it is.

    Args:
        file_format: name of a format, or a format.

    Raises:
        ConfigurationError: if it is neither.

    Example:
        >>> resolve_batch_format("json").file_extension
        '.jsonl'
    """
    if isinstance(file_format, BatchFormat):
        return file_format
    if not isinstance(file_format, str) or file_format not in _FORMATS:
        raise argument_error(
            f"format must be one of {', '.join(_FORMATS)}, or a BatchFormat; got {file_format!r}",
            of_type=isinstance(file_format, str),
        )
    return _FORMATS[file_format]()


def _json(item_value: Any, dumps: Callable[[Any], str | bytes] | None, batch: Batch, item: BatchItem) -> bytes:
    """Return JSON on one line."""
    reason = "dumps returned neither text nor bytes"
    try:
        data = orjson.dumps(item_value, option=orjson.OPT_PASSTHROUGH_DATETIME) if dumps is None else dumps(item_value)
        data = data.encode() if isinstance(data, str) else data
        if isinstance(data, bytes):
            if b"\n" not in data:
                return data
            reason = "dumps returned more than one line"
    except orjson.JSONEncodeError as error:
        reason = f"its value has no form in JSON ({error}); give the format a dumps function"
    except Exception as error:  # noqa: BLE001 - its text may quote the value
        reason = f"dumps failed with {type(error).__name__}"
    raise _problem(batch, item, reason)


def _has_empty_struct(kind: Any) -> bool:
    """Return whether a type of pyarrow has a struct without fields, which Parquet does not know."""
    import pyarrow

    if pyarrow.types.is_struct(kind) and kind.num_fields == 0:
        return True
    return any(_has_empty_struct(kind.field(number).type) for number in range(kind.num_fields))


def _problem(batch: Batch, item: BatchItem, reason: str) -> SinkError:
    return SinkError(
        f"the record of {batch.topic}[{batch.partition}] at offset {item.offset} cannot be written to a file: {reason}",
        (batch.topic, batch.partition, item.offset),
    )
