"""Odd batches and bytes: batches are written as single rows would be, and what cannot be read is never written."""

import datetime
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest

from streamrt import Application
from streamrt.errors import ConfigurationError, SchemaMismatchError, SerializationError
from streamrt.schema import Schema
from streamrt.schema.iso8601 import parse_date, parse_datetime, parse_time
from streamrt.serializers.row_formats import row_format
from streamrt.tables import HTTPSSE, AWSConnection, Catalog, MemoryCatalog, SQSQueue
from streamrt.tables.descriptions.connectors import Connector
from streamrt.testing.memory_topics import MemoryLinks

_FORMATS = ("json", "avro", "protobuf", "single")
_UTC = datetime.timezone.utc


def _batch(array: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([array], names=["c"])


def _times(number: int) -> pa.Array:
    return pa.array([0, number], pa.int32()).view(pa.time32("ms"))


@pytest.mark.parametrize("name", _FORMATS)
@pytest.mark.parametrize("number", [-1, 86_400_000, 90_000_000])
def test_times_that_no_day_has_are_refused(name: str, number: int) -> None:
    rows = row_format(name, Schema("c TIME"), {}, None)
    with pytest.raises(SerializationError, match=r"row 1: column 'c' .* has a value that Python cannot hold"):
        rows.encode_batch(_batch(_times(number)), "t")
    nested = row_format("json", Schema("c ARRAY<STRUCT<a: TIME>>"), {}, None)
    structs = pa.StructArray.from_arrays([_times(number)], ["a"])
    with pytest.raises(SerializationError, match="cannot hold"):
        nested.encode_batch(_batch(pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), structs)), "t")


def test_frames_with_such_times_are_refused_with_the_table() -> None:
    catalog = Catalog(store=MemoryCatalog(), links=MemoryLinks())
    table = catalog.create_table("hours", "at TIME, n BIGINT")
    # The second column makes it be read row by row.
    rows = pa.table({"at": _times(90_000_000), "n": pa.array(["1", "2"])})
    with (
        table.writer() as writer,
        pytest.raises(SchemaMismatchError, match=r"'at' .* cannot hold.*\(table 'default.hours'\)"),
    ):
        writer.append_arrow(rows)


@pytest.mark.parametrize("name", _FORMATS)
def test_keys_of_maps_that_are_there_twice_are_refused(name: str) -> None:
    rows = row_format(name, Schema("c MAP<STRING, INT>"), {}, None)
    twice = pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int32()))
    with pytest.raises(SerializationError, match="each key once"):
        rows.encode_batch(_batch(twice), "t")


def test_keys_of_json_maps_that_are_equal_are_refused() -> None:
    rows = row_format("json", Schema("c MAP<INT, INT>, d MAP<DOUBLE, INT>"), {}, None)
    for value in (b'{"c":{"0":1,"-0":2}}', b'{"d":{"1":1,"1.0":2}}'):
        with pytest.raises(SerializationError, match="each key once"):
            rows.decode(value, "t")


@pytest.mark.parametrize("name", _FORMATS)
def test_texts_of_arrow_that_are_not_utf8_are_refused(name: str) -> None:
    bad = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(np.array([0, 2], np.int32)), pa.py_buffer(b"\xff\xfe")]
    )
    with pytest.raises(SerializationError, match="row 0: column 'c'"):
        row_format(name, Schema("c STRING"), {}, None).encode_batch(_batch(bad), "t")


def test_a_block_of_avro_with_the_lowest_number_of_items_is_no_empty_list() -> None:
    rows = row_format("avro", Schema("c ARRAY<INT> NOT NULL"), {}, None)
    with pytest.raises(SerializationError, match="end too early"):
        rows.decode_batch([b"\xff" * 9 + b"\x01\x00"], "t")


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-03-29", (2026, 3, 29)),
        ("2026-03-29T10", (2026, 3, 29, 10)),
        ("2026-03-29 10:05", (2026, 3, 29, 10, 5)),
        ("20260329T100500", (2026, 3, 29, 10, 5)),
        ("2026-03-29T10:05:01,5", (2026, 3, 29, 10, 5, 1, 500_000)),
        ("2026-03-29T10:05:01.123456000", (2026, 3, 29, 10, 5, 1, 123_456)),
    ],
)
def test_times_as_texts_are_those_of_every_python(text: str, moment: tuple[int, ...]) -> None:
    plain = datetime.datetime(*moment)  # type: ignore[arg-type]
    assert parse_datetime(text) == plain
    if "T" in text or " " in text:
        assert parse_datetime(f"{text}Z") == plain.replace(tzinfo=_UTC)
        for zone in ("+0530", "+05:30", "+05:30:00"):
            assert parse_datetime(text + zone).utcoffset() == datetime.timedelta(hours=5, minutes=30)
        assert parse_datetime(f"{text}-03").utcoffset() == -datetime.timedelta(hours=3)
        assert parse_time(text[max(text.find("T"), text.find(" ")) + 1 :]) == plain.time()
    assert parse_date(text[: 8 if text[4] != "-" else 10]) == plain.date()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-03-29T",
        "2026-3-29",
        "2026-0329",
        "2026-02-30",
        "2026-03-29T24:00",
        "2026-03-29T10:00:60",
        "2026-03-29T1000:00",
        "2026-03-29T10:00:00.",
        "2026-03-29T10:00+24:00",
        "2026-03-29T10:00+01:60",
        "2026-03-29Z",
        "2026-03-29T10:00\n",
        "\u0662026-03-29",
        "2026-03-29T10:00:00.1234567",
    ],
)
def test_texts_that_are_no_times(text: str) -> None:
    rows = row_format("json", Schema("c TIMESTAMP"), {}, None)
    with pytest.raises(SerializationError, match="must be a time"):
        rows.decode(orjson.dumps({"c": text}), "t")
    with pytest.raises(SerializationError, match="must be a time"):
        rows.encode({"c": text}, "t")


def test_digits_after_milliseconds_are_not_dropped() -> None:
    rows = row_format("json", Schema("c TIME"), {}, None)
    decoded: list[Any] = [rows.decode(b'{"c":"10:00:00.1230"}', "t")["c"]]
    assert decoded == [datetime.time(10, 0, 0, 123_000)]
    for text in ("10:00:00.1234", "10:00:00.1230001"):
        with pytest.raises(SerializationError, match="must be a time of day"):
            rows.decode(f'{{"c":"{text}"}}'.encode(), "t")


@pytest.mark.parametrize(
    ("form", "options", "is_text"),
    [
        ("json", {}, True),
        ("string", {}, True),
        ("single", {"serializer": "json"}, True),
        ("single", {"serializer": "string"}, True),
        ("avro", {}, False),
        ("protobuf", {}, False),
        ("single", {"serializer": "bytes"}, False),
        ("raw", {}, False),
    ],
)
@pytest.mark.parametrize("connector", [HTTPSSE("https://rides.example/stream"), SQSQueue("jobs", connection="aws")])
def test_events_and_messages_are_texts(form: str, options: dict[str, Any], is_text: bool, connector: Connector) -> None:
    catalog = Catalog(store=MemoryCatalog())
    catalog.add_connection("aws", AWSConnection(region="eu-west-1"))
    word = "BINARY" if options.get("serializer") == "bytes" else "STRING"
    columns = None if form == "raw" else f"c {word}"
    catalog.create_table("default.lines", columns, format=form, format_options=options, connector=connector)
    app = Application("unused:9092", consumer_group="lines", catalog=catalog)
    if is_text:
        app.dataframe("default.lines")
        return
    with pytest.raises(ConfigurationError, match=f"has the format '{form}', whose bytes are not text"):
        app.dataframe("default.lines")
