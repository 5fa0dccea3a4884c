"""Rows of a schema in JSON: any row of any schema comes back, and other bytes are refused."""

import datetime
import pickle
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamrt import Application
from streamrt.errors import SerializationError
from streamrt.schema import Schema
from streamrt.serializers import MessageField, SerializationContext
from streamrt.serializers.row_formats import row_format
from streamrt.serializers.rows import RowDeserializer, RowSerializer
from streamrt.testing import TopologyTestDriver
from tests.support import LONG

CONTEXT = SerializationContext("orders", MessageField.VALUE)
UTC = datetime.timezone.utc

_texts = st.text(st.characters(codec="utf-8"), max_size=8)
_SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "BOOLEAN": st.booleans(),
    "TINYINT": st.integers(-128, 127),
    "BIGINT": st.integers(-(1 << 63), (1 << 63) - 1),
    "FLOAT": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "DOUBLE": st.floats(allow_nan=False, allow_infinity=False),
    "STRING": _texts,
    "VARCHAR(8)": _texts,
    "BINARY": st.binary(max_size=8),
    "BINARY(3)": st.binary(min_size=3, max_size=3),
    "DATE": st.dates(),
    "TIME": st.integers(0, 86_399_999).map(
        lambda ms: (datetime.datetime.min + datetime.timedelta(milliseconds=ms)).time()
    ),
    "TIMESTAMP": st.datetimes(),
    "TIMESTAMP_LTZ": st.datetimes(timezones=st.just(UTC)),
    "DECIMAL(9, 3)": st.decimals(-999_999, 999_999, places=3),
}
_KEYS = {
    word: values for word, values in _SCALARS.items() if word in ("BOOLEAN", "TINYINT", "BIGINT", "STRING", "DATE")
}


def _nested(inner: st.SearchStrategy[tuple[str, Any]]) -> st.SearchStrategy[tuple[str, Any]]:
    lists = inner.map(lambda each: (f"ARRAY<{each[0]}>", st.lists(each[1] | st.none(), max_size=3)))
    structs = st.lists(inner, min_size=1, max_size=3).map(
        lambda parts: (
            "STRUCT<" + ", ".join(f"f{n}: {word}" for n, (word, _) in enumerate(parts)) + ">",
            st.fixed_dictionaries({f"f{n}": values | st.none() for n, (_, values) in enumerate(parts)}),
        )
    )
    maps = st.tuples(st.sampled_from(sorted(_KEYS.items(), key=lambda item: item[0])), inner).map(
        lambda both: (
            f"MAP<{both[0][0]}, {both[1][0]}>",
            st.dictionaries(both[0][1], both[1][1] | st.none(), max_size=3),
        )
    )
    return lists | structs | maps


_words = st.sampled_from(sorted(_SCALARS.items(), key=lambda item: item[0]))
_inside = _words.filter(lambda each: not each[0].startswith("VARCHAR"))
_columns = st.lists(_words | st.recursive(_inside, _nested, max_leaves=3), min_size=1, max_size=4)


@settings(max_examples=2_000 if LONG else 80)
@given(st.data())
def test_any_row_of_any_schema_comes_back(data: st.DataObject) -> None:
    parts = data.draw(_columns)
    schema = Schema({f"c{number}": word for number, (word, _) in enumerate(parts)})
    row = {f"c{number}": data.draw(values | st.none()) for number, (_, values) in enumerate(parts)}
    serialize, deserialize = (pickle.loads(pickle.dumps(each(schema))) for each in (RowSerializer, RowDeserializer))
    assert deserialize(serialize(row, CONTEXT), CONTEXT) == row
    assert deserialize(serialize(list(row.values()), CONTEXT), CONTEXT) == row
    # Arrow also holds what rows hold.
    table = pa.Table.from_pylist([row], schema=schema.arrow)
    assert schema.check(table.to_pylist()[0]) == row


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not JSON"),
        (b"[1]", "a row must be a JSON object, not list"),
        (b'{"id": "1"}', r"column 'id' \(BIGINT\) must be an integer"),
        (b"{}", "column 'id' is missing"),
        (b'{"id": 1, "raw": "?"}', "bytes as base64 text"),
        (b'{"id": 1, "raw": 5}', "bytes as base64 text"),
        (b'{"id": 1, "counts": {"x": 1}}', r"column 'counts.keys\(\)' \(MAP<INT, INT>\) must be a number"),
    ],
)
def test_bytes_that_are_no_rows(data: bytes, reason: str) -> None:
    schema = Schema("id BIGINT NOT NULL, raw BINARY, counts MAP<INT, INT>")
    with pytest.raises(SerializationError, match=reason):
        RowDeserializer(schema)(data, CONTEXT)


@pytest.mark.parametrize("word", ["DOUBLE", "ARRAY<FLOAT>", "STRUCT<x: DOUBLE>", "MAP<STRING, DOUBLE>"])
def test_numbers_that_json_does_not_have_are_strings(word: str) -> None:
    value = {"D": float("nan"), "A": [float("inf")], "S": {"x": float("nan")}, "M": {"a": float("-inf")}}[word[0]]
    schema = Schema({"c": word})
    data = RowSerializer(schema)({"c": value}, CONTEXT)
    assert any(name in data for name in (b'"NaN"', b'"Infinity"', b'"-Infinity"'))
    assert repr(RowDeserializer(schema)(data, CONTEXT)["c"]) == repr(value)


def test_texts_hold_json_that_is_no_text() -> None:
    schema = Schema("id STRING, few VARCHAR(3), tags ARRAY<STRING>")
    read = RowDeserializer(schema)
    value = b'{"id": {"a": [1, null, "\\u00e9"]}, "few": 1.5, "tags": [true, "x", null, 2]}'
    row = {"id": '{"a":[1,null,"\u00e9"]}', "few": "1.5", "tags": ["true", "x", None, "2"]}
    assert read(value, CONTEXT) == row
    assert row_format("json", schema).decode_batch([value, b"{}"], "t").to_pylist() == [row, dict.fromkeys(row)]
    with pytest.raises(SerializationError, match=r"'few' \(VARCHAR\(3\)\) must be a text with 3 characters at most"):
        read(b'{"few": 12.25}', CONTEXT)
    with pytest.raises(SerializationError, match=r"'id' \(STRING\) must be a text"):
        RowSerializer(schema)({"id": 7}, CONTEXT)


def test_columns_of_newer_writers_are_left_out() -> None:
    schema = Schema("id INT, home STRUCT<street: STRING>")
    data = orjson.dumps({"id": 1, "new": 2, "home": {"street": "s", "new": 3}})
    assert RowDeserializer(schema)(data, CONTEXT) == {"id": 1, "home": {"street": "s"}}


def test_a_topic_of_rows() -> None:
    app = Application("unused:9092", consumer_group="rows")
    schema = Schema("id BIGINT NOT NULL, price DECIMAL(10, 2), at TIMESTAMP_LTZ")
    orders = app.topic("orders", value_deserializer=RowDeserializer(schema))
    totals = app.topic("totals", value_serializer=RowSerializer(schema))
    sdf = app.dataframe(orders)
    sdf["price"] = sdf["price"] * 2
    sdf.to_topic(totals)
    driver = TopologyTestDriver(app)
    driver.pipe_bytes(orders, b'{"id":1,"price":"9.50","at":"2026-03-29T10:00:00Z"}')
    (record,) = driver.read(totals)
    assert record.raw_value == b'{"id":1,"price":"19.00","at":"2026-03-29T10:00:00Z"}'
