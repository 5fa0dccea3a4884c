"""Formats of files that sinks write: each turns a batch of items into the bytes of a file."""

import abc
import contextlib
import csv
import gzip
import io
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, Protocol, get_args

import orjson

from streamrt.connectors.argument_checks import checked_choice, checked_function, checked_type
from streamrt.connectors.files.arrow_types import column_type, joined_tables
from streamrt.connectors.files.csv_dialects import dialect_settings
from streamrt.connectors.files.formats import BATCH_COLUMNS
from streamrt.errors import SinkError, argument_error

__all__ = [
    "Batch",
    "BatchFormat",
    "BatchFormatName",
    "BatchItem",
    "CSVBatchFormat",
    "JSONBatchFormat",
    "KeyedFormat",
    "ParquetBatchFormat",
    "ParquetCompression",
    "problem",
    "resolve_batch_format",
]

BatchFormatName = Literal["json", "csv", "parquet"]
ParquetCompression = Literal["none", "snappy", "gzip", "brotli", "lz4", "zstd"]
_TIMESTAMP, _KEY, _VALUE = BATCH_COLUMNS


class BatchItem(Protocol):
    """An item as formats read it; `streamrt.connectors.SinkItem` is one."""

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
    """A batch as formats read it; `streamrt.connectors.SinkBatch` is one."""

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

    @property
    def can_merge(self) -> bool:
        """Whether `merge` puts contents together."""
        return self.supports_append or type(self).merge is not BatchFormat.merge

    def merge(self, contents: Sequence[bytes]) -> list[bytes]:
        """Return contents of several batches as that of one file, or of several if one cannot hold all.

        Args:
            contents: results of `serialize`, in their order.
        """
        return [b"".join(contents)]

    def split(self, batch: Batch) -> list[list[Any]]:
        """Return the items of a batch in parts, one for each file: those that one file cannot hold together are apart.

        Args:
            batch: the items of one partition.
        """
        return [list(batch)]


class KeyedFormat(BatchFormat):
    """Base of the formats of the project: keys as text.

    Args:
        file_extension: end of the names of files.
        key_serializer: function from a key to what is written of it.
    """

    def __init__(self, file_extension: str, key_serializer: Callable[[Any], Any] | None) -> None:
        name = type(self).__name__
        wanted = "the end of a file name, such as '.data'"
        self._file_extension = checked_type(
            name, "file_extension", file_extension, str, wanted, lambda end: "/" not in end and "\0" not in end
        )
        self._key_serializer = checked_function(name, "key_serializer", key_serializer, optional=True)

    @property
    def file_extension(self) -> str:
        """End of the names of files."""
        return self._file_extension

    def _item_key(self, item: BatchItem, batch: Batch) -> Any:
        try:
            key = item.key if self._key_serializer is None else self._key_serializer(item.key)
            if isinstance(key, bytes | bytearray):
                key = key.decode()
            if isinstance(key, str):
                key.encode()
        except UnicodeError:
            raise problem(
                batch, item, "its key is not text in UTF-8; give the format a key_serializer, such as bytes.hex"
            ) from None
        except Exception as error:
            raise problem(batch, item, f"key_serializer failed with {type(error).__name__}") from error
        return key


class JSONBatchFormat(KeyedFormat):
    r"""JSON lines with the fields `_timestamp`, `_key` and `_value`.

    Args:
        file_extension: end of the names of files; ".gz" or ".zst" is added to it if they are compressed.
        compress: "gzip" or "zstd"; True means "gzip".
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
        compress: bool | Literal["gzip", "zstd"] = False,
        dumps: Callable[[Any], str | bytes] | None = None,
        *,
        key_serializer: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(file_extension, key_serializer)
        if compress not in (True, False, "gzip", "zstd"):
            raise argument_error(
                f'JSONBatchFormat(compress=...) must be a bool, "gzip" or "zstd", got {compress!r}',
                of_type=isinstance(compress, bool | str),
            )
        self._compress = compress
        self._dumps = checked_function("JSONBatchFormat", "dumps", dumps, optional=True)

    @property
    def file_extension(self) -> str:
        """End of the names of files."""
        return self._file_extension + {False: "", "zstd": ".zst"}.get(self._compress, ".gz")

    @property
    def supports_append(self) -> bool:
        """True: lines follow each other, and so do the parts of a compressed file."""
        return True

    def serialize(self, batch: Batch) -> bytes:  # noqa: D102
        lines = bytearray()
        for item in batch:
            record = {_TIMESTAMP: item.timestamp, _KEY: self._item_key(item, batch), _VALUE: item.value}
            lines += _dump_json(record, self._dumps, batch, item)
            lines += b"\n"
        if self._compress == "zstd":
            import pyarrow

            data: bytes = pyarrow.compress(bytes(lines), codec="zstd", asbytes=True)
            return data
        # Without the time in its header, a repeated batch gives the same file.
        return gzip.compress(bytes(lines), mtime=0) if self._compress else bytes(lines)


class ParquetBatchFormat(KeyedFormat):
    """Parquet with the columns `_timestamp` and `_key`, and a column for each field of the values.

    Fields that a value lacks are null. A value that is not a dict becomes the column `_value`. Integers in a column with
    floats are floats, if they are exact. Values of other types begin another file.

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
        self._compression = checked_choice(
            "ParquetBatchFormat", "compression", compression, get_args(ParquetCompression)
        )

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
            _KEY: self._item_keys(items, batch),
            **self._make_columns(items, batch),
        }
        arrays = {name: self._make_array(name, fields, items, batch) for name, fields in columns.items()}
        output = io.BytesIO()
        try:
            pyarrow.parquet.write_table(pyarrow.table(arrays), output, compression=self._compression)
        except pyarrow.ArrowException as error:
            raise SinkError(
                f"records of {batch.topic}[{batch.partition}] from offset {items[0].offset if items else 0} on cannot be "
                f"written as Parquet: {(str(error).splitlines() or [''])[0]}"
            ) from error
        return output.getvalue()

    def merge(self, contents: Sequence[bytes]) -> list[bytes]:
        """Return one file for each run of contents whose columns have the same types."""
        import pyarrow
        import pyarrow.parquet

        merged: list[Any] = []
        for content in contents:
            # Threads of Arrow may hold the content a little longer, and releasing it while Python exits aborts the process.
            table = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(content)).read(use_threads=False)
            joined = joined_tables(merged[-1], table) if merged else None
            if joined is None:
                merged.append(table)
            else:
                merged[-1] = joined
        files = []
        for table in merged:
            output = io.BytesIO()
            pyarrow.parquet.write_table(table, output, compression=self._compression)
            files.append(output.getvalue())
        return files

    def _item_keys(self, items: list[BatchItem], batch: Batch) -> list[Any]:
        keys = [item.key for item in items]
        if self._key_serializer is None and set(map(type, keys)) <= {bytes, type(None)}:
            # Nearly always; the other way finds the item that is not text.
            with contextlib.suppress(UnicodeError):
                return [None if key is None else key.decode() for key in keys]
        return [self._item_key(item, batch) for item in items]

    def _make_columns(self, items: list[BatchItem], batch: Batch) -> dict[str, list[Any]]:
        values = [item.value for item in items]
        if set(map(type, values)) == {dict} and len(set(map(len, values))) == 1:
            # Values with equal fields, which most batches have, take a third of the time.
            with contextlib.suppress(KeyError):
                return {name: [value[name] for value in values] for name in self._item_fields(items[0], batch)}
        columns: dict[str, list[Any]] = {}
        for number, item in enumerate(items):
            for name, field in self._item_fields(item, batch).items():
                column = columns.get(name)
                if column is None:
                    column = columns[name] = [None] * len(items)
                column[number] = field
        return columns

    def _item_fields(self, item: BatchItem, batch: Batch) -> dict[str, Any]:
        if not isinstance(item.value, dict):
            return {_VALUE: item.value}
        for name in item.value:
            if not isinstance(name, str):
                raise problem(batch, item, f"Parquet needs text as names of columns, not {type(name).__name__}")
            if name in (_TIMESTAMP, _KEY):
                raise problem(batch, item, f"its value has a field {name}, which is a column of the file already")
        return item.value

    def _make_array(self, name: str, fields: list[Any], items: list[BatchItem], batch: Batch) -> Any:
        import pyarrow

        kind, odd = (pyarrow.int64(), None) if name == _TIMESTAMP else column_type(fields)

        def made(count: int) -> Any:
            # The errors of pyarrow quote values, so only their absence is of use.
            try:
                array = pyarrow.array(fields[:count], kind, from_pandas=False)
            except (pyarrow.ArrowException, OverflowError, TypeError, ValueError):
                return None
            return None if _has_empty_struct(array.type) else array

        array = made(len(fields)) if odd is None else None
        if array is not None:
            return array
        low, high = 0, len(fields)
        while odd is None and high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if made(middle) is not None else (low, middle)
        place = high - 1 if odd is None else odd
        raise problem(
            batch,
            items[place],
            f"column {name!r} cannot hold its {type(fields[place]).__name__}: the type does not fit those before it, or has "
            "no form in Parquet",
        )

    def split(self, batch: Batch) -> list[list[BatchItem]]:
        """Return the items of a batch in parts, each of which has one type for each column.

        Args:
            batch: the items of one partition.
        """
        left = list(batch)
        parts = []
        while left:
            numbers = (column_type(fields)[1] for fields in self._make_columns(left, batch).values())
            end = min((number for number in numbers if number is not None), default=len(left))
            parts.append(left[:end])
            left = left[end:]
        return parts


class CSVBatchFormat(KeyedFormat):
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
        self._dumps = checked_function("CSVBatchFormat", "dumps", dumps, optional=True)
        self._dialect = dialect_settings(dialect, "CSVBatchFormat")

    @property
    def supports_append(self) -> bool:
        """False: the names of the columns would be repeated."""
        return False

    def serialize(self, batch: Batch) -> bytes:  # noqa: D102
        text = io.StringIO(newline="")
        rows = csv.writer(text, **self._dialect)
        rows.writerow(BATCH_COLUMNS)
        for item in batch:
            value = _dump_json(item.value, self._dumps, batch, item).decode()
            try:
                rows.writerow((item.timestamp, self._item_key(item, batch), value))
            except csv.Error as error:
                raise problem(batch, item, f"the dialect cannot hold its key or value ({error})") from error
        return text.getvalue().encode()

    def merge(self, contents: Sequence[bytes]) -> list[bytes]:
        """Return the rows of all contents behind one row with the names of the columns."""
        text = io.StringIO(newline="")
        csv.writer(text, **self._dialect).writerow(BATCH_COLUMNS)
        names = text.getvalue().encode()
        return [names + b"".join(content.removeprefix(names) for content in contents)]


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


def _dump_json(item_value: Any, dumps: Callable[[Any], str | bytes] | None, batch: Batch, item: BatchItem) -> bytes:
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
    raise problem(batch, item, reason)


def _has_empty_struct(kind: Any) -> bool:
    """Return whether a type of pyarrow has a struct without fields, which Parquet does not know."""
    import pyarrow

    if pyarrow.types.is_struct(kind) and kind.num_fields == 0:
        return True
    return any(_has_empty_struct(kind.field(number).type) for number in range(kind.num_fields))


def problem(batch: Batch, item: BatchItem, reason: str) -> SinkError:
    """Return the error for an item that has no form in a format.

    Args:
        batch: its batch.
        item: the item.
        reason: why, without its value.
    """
    return SinkError(
        f"the record of {batch.topic}[{batch.partition}] at offset {item.offset} cannot be written to a file: {reason}",
        (batch.topic, batch.partition, item.offset),
    )
