"""Formats of files: what sinks write, sources read."""

import bz2
import datetime
import gzip
import io
import json
import lzma
import pickle
from collections.abc import Iterator
from typing import Any, BinaryIO

import pyarrow
import pyarrow.parquet
import pytest

from streamrt.connectors import SinkBatch
from streamrt.connectors.files import (
    BatchFormat,
    CSVBatchFormat,
    CSVFormat,
    FileFormatError,
    Format,
    JSONBatchFormat,
    JSONFormat,
    ParquetBatchFormat,
    ParquetFormat,
    resolve_batch_format,
    resolve_format,
)
from streamrt.connectors.files.formats import BATCH_COLUMNS, PositionBeyondEndError
from streamrt.connectors.files.streams import StorageError, range_stream, tagged
from streamrt.errors import ConfigurationError, SinkError

COMPRESS: dict[Any, Any] = {
    "gz": gzip.compress,
    "gzip": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    None: bytes,
}


def batch(*values: Any, key: Any = b"key") -> SinkBatch:
    made = SinkBatch("orders", 3)
    for number, value in enumerate(values):
        made.append(value, key, 1_000 + number, None, 40 + number)
    return made


def parquet(table: dict[str, list[Any]], **options: Any) -> bytes:
    data = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(table), data, **options)
    return data.getvalue()


class Words(Format):
    def deserialize(self, filestream: Any) -> Iterator[str]:
        for line in filestream:
            yield from line.decode().split()


FILES: list[tuple[Format, bytes, list[Any]]] = [
    (JSONFormat(), b'\xef\xbb\xbf{"n": 1}\n\n{"n": "gr\xc3\xb6\xc3\x9fer"}\r\n3', [{"n": 1}, {"n": "größer"}, 3]),
    (JSONFormat(loads=json.loads), b"[1]\nnull\n", [[1], None]),
    (CSVFormat(), b'\xef\xbb\xbfa,b\r\n1,"x\r\ny"\r\n\r\n2,\r\n', [{"a": "1", "b": "x\r\ny"}, {"a": "2", "b": ""}]),
    (CSVFormat(dialect="excel-tab"), b"a\tb\n1\t2\n", [{"a": "1", "b": "2"}]),
    (ParquetFormat(), parquet({"n": list(range(1_200))}, row_group_size=250), [{"n": n} for n in range(1_200)]),
    (Words(), b"one two\nthree", ["one", "two", "three"]),
]


@pytest.mark.rows("PF-B4", "PF-B10", "PF-B11")
@pytest.mark.parametrize("compression", COMPRESS)
@pytest.mark.parametrize(("plain", "data", "records"), FILES, ids=lambda item: type(item).__name__)
def test_reading_from_each_position(plain: Format, data: bytes, records: list[Any], compression: Any) -> None:
    file_format = pickle.loads(pickle.dumps(plain))
    file_format._compression = compression
    packed = COMPRESS[compression](data)
    assert list(file_format.read(io.BytesIO(packed))) == records
    found = list(file_format.read_from(io.BytesIO(packed), 0))
    assert [record for record, _ in found] == records
    step = 97 if len(found) > 100 else 1
    for number in range(0, len(found), step):
        position = found[number][1]
        assert list(file_format.read_from(io.BytesIO(packed), position)) == found[number + 1 :]
    with pytest.raises(PositionBeyondEndError):
        list(file_format.read_from(io.BytesIO(COMPRESS[compression](b"")), 5)) if not isinstance(
            plain, ParquetFormat
        ) else list(file_format.read_from(io.BytesIO(packed), 5_000))


@pytest.mark.parametrize(
    ("file_format", "data", "message"),
    [
        (JSONFormat(), b'{"a": 1}\n{"secret": sesame}\n', "the line at byte 9 is not a JSON document: unexpected"),
        (JSONFormat(), b"\xff\n", "the line at byte 0 is not a JSON document"),
        (JSONFormat(loads=lambda text: 1 / 0), b"sesame\n", "loads failed with ZeroDivisionError"),
        (JSONFormat("gzip"), b'{"sesame": 1}\n', "it cannot be decompressed: Not a gzipped file"),
        (JSONFormat("gzip"), gzip.compress(b"1\n2\n")[:-9], "it cannot be decompressed"),
        (JSONFormat("bz2"), b"sesame", "it cannot be decompressed: Invalid data stream"),
        (JSONFormat("xz"), b"sesame", "it cannot be decompressed: "),
        (CSVFormat(), b"a,b\n1,2\nsesame\n", "the row that ends at byte 15 has 1 fields, but the first row has 2"),
        (CSVFormat(), b"a,a\n1,2\n", "its first row names the column 'a' twice"),
        (CSVFormat(), b"a\n\xff\n", "the line at byte 2 is not UTF-8"),
        (CSVFormat(), b"_timestamp,_key,_value\nx,sesame,1\n", "the row that ends at byte 34 has no integer"),
        (ParquetFormat(), b"sesame", "it is not a Parquet file, or is damaged"),
        (ParquetFormat("gzip"), gzip.compress(b"sesame"), "it is not a Parquet file, or is damaged"),
    ],
)
def test_files_of_another_format(file_format: Format, data: bytes, message: str) -> None:
    with pytest.raises(FileFormatError, match=message) as caught:
        list(file_format.read(io.BytesIO(data)))
    assert "sesame" not in str(caught.value)
    assert "\n" not in str(caught.value)


VALUES: list[dict[str, Any]] = [
    {"n": 1, "text": "größer 🚆\r\n"},
    {"n": None, "list": [1, 2], "sub": {"x": 1.5}},
    {"n": 3, "text": '","'},
]


@pytest.mark.parametrize("key", [b"key", "schlüssel", None, "two\r\nlines"])
@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        (JSONBatchFormat(), JSONFormat()),
        (JSONBatchFormat(compress=True), JSONFormat("gzip")),
        (JSONBatchFormat(dumps=json.dumps), JSONFormat()),
        (CSVBatchFormat(), CSVFormat()),
        (CSVBatchFormat(dialect="unix"), CSVFormat(dialect="unix")),
    ],
)
def test_what_is_written_is_read(writer: BatchFormat, reader: Format, key: Any) -> None:
    data = writer.serialize(batch(*VALUES, None, [1], "text", key=key))
    assert data == writer.serialize(batch(*VALUES, None, [1], "text", key=key))
    text = key.decode() if isinstance(key, bytes) else key
    assert list(reader.read(io.BytesIO(data))) == [
        {"_timestamp": 1_000 + number, "_key": text, "_value": value}
        for number, value in enumerate([*VALUES, None, [1], "text"])
    ]


@pytest.mark.rows("PF-M8")
@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "brotli", "lz4", "zstd"])
def test_parquet_is_read_as_it_was_written(compression: Any) -> None:
    writer = ParquetBatchFormat(compression=compression)
    records = list(ParquetFormat().read(io.BytesIO(writer.serialize(batch(*VALUES)))))
    names = ("_timestamp", "_key", "n", "text", "list", "sub")
    assert [tuple(record) for record in records] == [names] * 3
    # Missing fields are null.
    assert [{name: field for name, field in record.items() if field is not None} for record in records] == [
        {"_timestamp": 1_000 + number, "_key": "key", **{k: v for k, v in value.items() if v is not None}}
        for number, value in enumerate(VALUES)
    ]
    records = list(ParquetFormat().read(io.BytesIO(writer.serialize(batch(1, 2, key=None)))))
    assert records == [{"_timestamp": 1_000 + n, "_key": None, "_value": n + 1} for n in range(2)]
    at = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
    (record,) = ParquetFormat().read(io.BytesIO(writer.serialize(batch({"at": at, "raw": b"\xff"}))))
    assert (record["at"], record["raw"]) == (at, b"\xff")


def test_parquet_has_a_column_for_each_field_of_any_value() -> None:
    def rows(*values: Any) -> list[Any]:
        records = list(ParquetFormat().read(io.BytesIO(ParquetBatchFormat().serialize(batch(*values)))))
        return [{name: field for name, field in record.items() if name not in BATCH_COLUMNS[:2]} for record in records]

    assert rows({"a": 1, "b": 2}, {"b": 4, "a": 3}) == [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
    assert rows({"a": 1}, {"b": 2}) == [{"a": 1, "b": None}, {"a": None, "b": 2}]
    assert rows({"a": 1}, 2) == [{"a": 1, "_value": None}, {"a": None, "_value": 2}]
    assert rows({}, {}) == [{}, {}]
    assert rows() == []


def test_json_parts_may_follow_each_other() -> None:
    for writer, reader in ((JSONBatchFormat(), JSONFormat()), (JSONBatchFormat(compress=True), JSONFormat("gzip"))):
        assert writer.supports_append
        data = writer.serialize(batch(1)) + writer.serialize(batch(2))
        assert [record["_value"] for record in reader.read(io.BytesIO(data))] == [1, 2]
    assert not ParquetBatchFormat().supports_append
    assert not CSVBatchFormat().supports_append


def test_extensions() -> None:
    formats = (JSONBatchFormat(), JSONBatchFormat(".json", compress=True), CSVBatchFormat(), ParquetBatchFormat(".pq"))
    assert [one.file_extension for one in formats] == [".jsonl", ".json.gz", ".csv", ".pq"]


@pytest.mark.parametrize(
    ("writer", "items", "message"),
    [
        (
            JSONBatchFormat(),
            batch(1, {"sesame": object()}),
            r"orders\[3\] at offset 41 cannot .*: its value has no form",
        ),
        (
            JSONBatchFormat(),
            batch(1, key=b"\xff"),
            "offset 40 .* its key is not text in UTF-8; give .* a key_serializer",
        ),
        (JSONBatchFormat(dumps=lambda value: 1 / 0), batch("sesame"), "dumps failed with ZeroDivisionError"),  # type: ignore[arg-type,return-value]
        (JSONBatchFormat(dumps=lambda value: "a\nb"), batch("sesame"), "dumps returned more than one line"),
        (JSONBatchFormat(dumps=lambda value: None), batch("sesame"), "dumps returned neither text nor bytes"),  # type: ignore[arg-type,return-value]
        (JSONBatchFormat(key_serializer=lambda key: 1 / 0), batch("sesame"), "key_serializer failed with Zero"),
        (CSVBatchFormat(), batch(1, key="\ud800"), "its key is not text in UTF-8"),
        (
            ParquetBatchFormat(),
            batch({"n": 1}, {"n": 2}, {"n": "sesame"}),
            "offset 42 .* column 'n' cannot hold its str",
        ),
        (ParquetBatchFormat(), batch({"n": {}}), "offset 40 .* column 'n' cannot hold its dict"),
        (ParquetBatchFormat(), batch({"_key": "sesame"}), "its value has a field _key"),
        (ParquetBatchFormat(), batch({5: "sesame"}), "names of columns, not int"),
        (ParquetBatchFormat(), batch({"n": 1}, {5: "sesame"}), "offset 41 .* names of columns, not int"),
        (ParquetBatchFormat(), batch({"n": 1}, key=b"\xff"), "offset 40 .* its key is not text in UTF-8"),
        (ParquetBatchFormat(), batch({"n": 2**70}), "column 'n' cannot hold its int"),
    ],
)
def test_items_that_cannot_be_written(writer: BatchFormat, items: SinkBatch, message: str) -> None:
    with pytest.raises(SinkError, match=message) as caught:
        writer.serialize(items)
    assert "sesame" not in str(caught.value)


def test_keys_of_any_bytes_with_a_serializer() -> None:
    for writer, reader in (
        (JSONBatchFormat, JSONFormat),
        (CSVBatchFormat, CSVFormat),
        (ParquetBatchFormat, ParquetFormat),
    ):
        data = writer(key_serializer=bytes.hex).serialize(batch(1, key=b"\xff\x00"))
        assert [record["_key"] for record in reader().read(io.BytesIO(data))] == ["ff00"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: JSONFormat("zip"),  # type: ignore[arg-type]
        lambda: JSONFormat(loads="loads"),  # type: ignore[arg-type]
        lambda: CSVFormat(dialect="lotus"),
        lambda: resolve_format("xml", None),  # type: ignore[arg-type]
        lambda: resolve_format(5, None),  # type: ignore[arg-type]
        lambda: resolve_format(JSONFormat(), "gzip"),
        lambda: resolve_batch_format("xml"),  # type: ignore[arg-type]
        lambda: JSONBatchFormat("a/b"),
        lambda: JSONBatchFormat(compress="zip"),  # type: ignore[arg-type]
        lambda: JSONBatchFormat(dumps=5),  # type: ignore[arg-type]
        lambda: JSONBatchFormat(key_serializer=5),  # type: ignore[arg-type]
        lambda: ParquetBatchFormat(compression="xz"),  # type: ignore[arg-type]
        lambda: CSVBatchFormat(dumps=5),  # type: ignore[arg-type]
    ],
)
def test_wrong_arguments(make: Any) -> None:
    with pytest.raises(ConfigurationError):
        make()


def test_formats_by_name() -> None:
    assert isinstance(resolve_format("parquet", None), ParquetFormat)
    assert resolve_format("json", "xz").compression == "xz"
    given = JSONFormat("gzip")
    assert resolve_format(given, "gzip") is given
    assert isinstance(resolve_batch_format("csv"), CSVBatchFormat)
    made = JSONBatchFormat()
    assert resolve_batch_format(made) is made


def test_a_stream_that_cannot_be_sought() -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def seek(self, *arguments: Any) -> int:
            raise OSError("a pipe")

    data = parquet({"n": [1, 2, 3]})
    assert list(ParquetFormat().read_from(tagged(Pipe(data)), 1)) == [({"n": 2}, 2), ({"n": 3}, 3)]
    assert list(JSONFormat().read_from(tagged(Pipe(b"1\n2\n3\n")), 2)) == [(2, 4), (3, 6)]


def test_errors_of_streams_are_told_from_those_of_formats() -> None:
    def broken(data: bytes) -> BinaryIO:
        def fetch(start: int, count: int) -> bytes:
            if start:
                raise OSError("the network is gone")
            return data

        return tagged(range_stream(fetch, len(data) + 8))

    for file_format in (JSONFormat(), CSVFormat(), Words(), ParquetFormat()):
        with pytest.raises(StorageError):
            list(file_format.read(broken(b"1\n2\n")))
    with pytest.raises(StorageError):
        list(JSONFormat("gzip").read(broken(gzip.compress(b"1\n2\n")[:-9])))
