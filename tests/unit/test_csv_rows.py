"""Rows of CSV in topics: each value comes back, or is refused with its column."""

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamrt import Application, Schema
from streamrt.errors import ConfigurationError, SchemaError, SerializationError
from streamrt.serializers import MessageField, SerializationContext, resolve_deserializer, resolve_serializer
from streamrt.serializers.csv import CSVDeserializer, CSVSerializer
from streamrt.testing import TopologyTestDriver
from streamrt.testing.row_formats import ROW_VALUES
from tests.support import LONG

CONTEXT = SerializationContext("t", MessageField.VALUE)
SECRET = "a-secret-that-must-not-be-shown"

_SINGLE = sorted(word for word in ROW_VALUES if "<" not in word)
_NASTY = st.text(st.sampled_from(",;|\"'\\\r\n\t N\0a\u2028\x85\ufeff"), max_size=6)
_OPTIONS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "delimiter": st.sampled_from([",", ";", "\t", "|", " ", "\u20ac"]),
        "quote": st.sampled_from(['"', "'", None]),
        "escape": st.sampled_from(["\\", None, "^"]),
        "null": st.sampled_from(["", r"\N", "null", "0", ",", '"', "\r\n", " "]),
    }
)


@pytest.mark.slow
@settings(max_examples=4_000 if LONG else 60, deadline=None)
@given(st.data())
def test_d6_a_row_of_csv_comes_back_or_is_refused(data: st.DataObject) -> None:
    words = data.draw(st.lists(st.tuples(st.sampled_from(_SINGLE), st.booleans()), min_size=1, max_size=4))
    described = [{"name": f"c{n}", "type": word, "nullable": nullable} for n, (word, nullable) in enumerate(words)]
    values = {**ROW_VALUES, "STRING": ROW_VALUES["STRING"] | _NASTY}
    row = {
        f"c{n}": data.draw(values[word] | st.none() if nullable else values[word])
        for n, (word, nullable) in enumerate(words)
    }
    schema, options = Schema(described), data.draw(_OPTIONS)
    write, read = CSVSerializer(schema, **options), CSVDeserializer(schema, **options)
    line = None
    with contextlib.suppress(SerializationError):
        line = write(row, CONTEXT)
    if line is None:
        # It is refused for a reason: null as a value, NUL, or what only quotes or an escape can carry.
        texts = {"" if value == b"" else str(value) for value in row.values() if value is not None}
        special = options["quote"] is None and options["escape"] is None
        assert special or options["null"] in texts or any("\0" in text for text in texts)
        return
    assert read(line, CONTEXT) == row
    assert read(line + b"\r\n", CONTEXT) == row


def test_d6_texts_of_any_length_come_back() -> None:
    row = {"text": "a,\n" * 100_000}
    data = CSVSerializer("text STRING")(row, CONTEXT)
    assert data is not None
    assert CSVDeserializer("text STRING")(data, CONTEXT) == row


def test_d6_null_and_the_empty_text() -> None:
    columns = "id INT NOT NULL, note STRING, kind STRING NOT NULL"
    with pytest.raises(SerializationError, match=r"column 'note' \(STRING\) must be other than ''.*set null="):
        CSVSerializer(columns)({"id": 1, "note": "", "kind": ""}, CONTEXT)
    row: dict[str, Any] = {"id": 1, "note": "", "kind": ""}
    data = CSVSerializer(columns, null=r"\N")(row, CONTEXT)
    assert data == b"1,,"
    assert CSVDeserializer(columns, null=r"\N")(data, CONTEXT) == row
    assert CSVDeserializer(columns)(b"1,,", CONTEXT) == {**row, "note": None}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"1", r"1 fields for 2 columns"),
        (f"{SECRET},".encode(), r"column 'id' \(INT\) must be an integer"),
        (f'1,"{SECRET}'.encode(), r"not CSV: unexpected end of data"),
        (f"1,{SECRET}\n2,".encode(), r"not CSV: new-line character .*; a record holds one row"),
        (f"1,{SECRET}".encode() + b"\xff", r"not UTF-8: invalid start byte at byte 33"),
        (f"1,{SECRET}\0".encode(), r"not CSV: it has a NUL character"),
    ],
)
def test_d6_errors_say_what_and_where_and_no_value(data: bytes, message: str) -> None:
    with pytest.raises(SerializationError, match=message) as caught:
        CSVDeserializer("id INT NOT NULL, name STRING")(data, CONTEXT)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


def test_d6_special_characters_without_quotes_need_an_escape() -> None:
    with pytest.raises(SerializationError, match=r"column 'name' \(STRING\) must be a text without special characters"):
        CSVSerializer("id INT, name STRING", quote=None)([1, f"{SECRET},"], CONTEXT)
    data = CSVSerializer("id INT, name STRING", quote=None, escape="\\")([1, "a,b\\"], CONTEXT)
    assert data == rb"1,a\,b\\"
    assert CSVDeserializer("id INT, name STRING", quote=None, escape="\\")(data, CONTEXT)["name"] == "a,b\\"


@pytest.mark.parametrize(
    "options",
    [
        {"delimiter": ""},
        {"delimiter": "::"},
        {"delimiter": "\n"},
        {"delimiter": None},
        {"delimiter": 1},
        {"delimiter": '"'},
        {"quote": "\ud800"},
        {"quote": "\\", "escape": "\\"},
        {"escape": "ab"},
        {"null": None},
        {"null": "\0"},
    ],
)
def test_d6_options_that_cannot_be_used(options: dict[str, Any]) -> None:
    for each in (CSVSerializer, CSVDeserializer):
        with pytest.raises(ConfigurationError, match="CSV"):
            each("id INT", **options)


def test_d6_columns_that_are_no_fields() -> None:
    for word in ("ARRAY<INT>", "STRUCT<a: INT>", "MAP<STRING, INT>"):
        with pytest.raises(SchemaError, match=r"column 'c' \(.*\) cannot be a field of CSV"):
            CSVSerializer({"c": word})
    for resolve in (resolve_serializer, resolve_deserializer):
        with pytest.raises(
            ConfigurationError, match=r"'csv' needs more than its name: give CSV.*\(schema\) of streamrt"
        ):
            resolve("csv")  # type: ignore[arg-type]


def test_d6_csv_from_topic_to_topic_and_a_policy_for_bad_rows() -> None:
    app = Application(broker_address="localhost:9092", consumer_group="csv", on_error="skip")
    orders = Schema("id BIGINT NOT NULL, price DECIMAL(10, 2)")
    source = app.topic("orders", value_deserializer=CSVDeserializer(orders, delimiter=";"))
    target = app.topic("doubled", value_serializer=CSVSerializer(orders), value_deserializer=CSVDeserializer(orders))
    sdf = app.dataframe(source)
    sdf["price"] = sdf["price"] * 2
    sdf.to_topic(target)

    driver = TopologyTestDriver(app)
    for data in (b"1;9.50", b"one;9.50", b"2;1e-3", b"3;0.01"):
        driver.pipe_bytes(source, data)
    assert [each.raw_value for each in driver.read(target)] == [b"1,19.00", b"3,0.02"]
