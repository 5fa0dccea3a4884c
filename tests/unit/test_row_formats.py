"""Formats of rows: which there are, what they refuse when they are made, and how they read in batches."""

import contextlib
import json
import pickle
from collections.abc import Sequence
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamrt.errors import ConfigurationError, SchemaError, SerializationError
from streamrt.schema import Schema
from streamrt.serializers import DoubleSerializer, StringDeserializer
from streamrt.serializers.row_formats import KEY_FORMATS, ROW_FORMATS, key_format, raw_format, row_format
from streamrt.serializers.rows.json_columns import json_column
from streamrt.testing.row_formats import ROW_EXAMPLES
from tests.support import LONG

_ORDERS = Schema("id BIGINT NOT NULL, name STRING, price DECIMAL(10, 2), at TIMESTAMP_LTZ")


def test_formats_are_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match="no format 'xml' of rows; there are json, avro"):
        row_format("xml", _ORDERS)
    with pytest.raises(ConfigurationError, match="no format 'xml' of keys; there are json, str, int, avro"):
        key_format("xml", _ORDERS, ["id"])
    for name in ROW_FORMATS:
        schema = Schema("value STRING")
        with pytest.raises(ConfigurationError, match=f"format '{name}' has no option 'what'"):
            row_format(name, schema, {"what": 1})
        if name != "raw":
            with pytest.raises(SchemaError, match="needs a schema"):
                row_format(name, None)
        made = row_format(name, schema)
        again = row_format(name, schema, made.options)
        assert (again.name, dict(again.options)) == (name, dict(made.options))
        assert again.decode(made.encode({"value": b"a" if name == "raw" else "a"}, "t"), "t")


@pytest.mark.parametrize(
    ("name", "schema", "options", "reason"),
    [
        ("single", "a INT, b INT", {}, "carries one column, and the schema has 2: a, b"),
        (
            "string",
            "a INT",
            {},
            r"column 'a' \(INT\) cannot be written by the serializer 'string', which carries STRING",
        ),
        (
            "single",
            "a BIGINT",
            {"serializer": "int"},
            "which carries TINYINT, SMALLINT, INT; 'json' carries every type",
        ),
        ("avro", "m MAP<DATE, INT>", {}, "column 'm' .* cannot be written in Avro"),
        ("raw", "a INT", {}, "rows have one column, 'value'"),
    ],
)
def test_columns_that_a_format_does_not_carry(name: str, schema: str, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        row_format(name, Schema(schema), options)


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("single", {"serializer": "long"}, "must be one of string, bytes, int, double, json"),
        ("avro", {"wire": "confluent"}, "no registry is known"),
        ("avro", {"wire": "what"}, "'plain' or 'confluent'"),
        ("avro", {"name": 5}, "'name' of the format 'avro' is a int"),
        ("raw", {"deserializer": "what"}, "unknown deserializer 'what'"),
        ("raw", {"deserializer": "quix"}, "several rows of a value"),
    ],
)
def test_options_that_a_format_does_not_have(name: str, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        row_format(name, Schema("value STRING"), options)


def test_rows_with_defaults_and_without_columns() -> None:
    columns: list[dict[str, Any]] = [
        {"name": "day", "type": "DATE", "default": "2026-03-29"},
        {"name": "raw", "type": "BINARY", "nullable": False, "default": b"x"},
        {"name": "n", "type": "INT", "default": 5},
        {"name": "text", "type": "STRING"},
    ]
    made = row_format("json", Schema(columns))
    values = [
        b"{}",
        b'{"day": null, "n": null}',
        b'{"day": "2026-03-30", "raw": "eQ==", "n": 6, "text": "t", "more": 1}',
    ]
    rows = [made.decode(value, "t") for value in values]
    assert made.decode_batch(values, "t").to_pylist() == rows
    assert made.decode_batch(values, "t", ["n", "day"]).to_pylist() == [{"n": r["n"], "day": r["day"]} for r in rows]


def test_what_is_not_asked_for_is_not_checked() -> None:
    made = row_format("json", Schema("id INT NOT NULL, n INT"))
    assert made.decode_batch([b'{"id": "?", "n": 1}'], "t", ["n"]).to_pylist() == [{"n": 1}]
    with pytest.raises(SerializationError, match=r"^row 1: column 'id'"):
        made.decode_batch([b'{"id": 1}', b'{"id": "?", "n": 1}'], "t")


_TEXTS = [
    "2026-03-29", "0000-01-01", "2026-02-30", "2026-3-29", "20260329", "2026-W13-1", "2026-03-29T08:00",
    "2026-03-29 08:00:00", "2026-03-29T08:00:00", "2026-03-29T08:00:00Z", "2026-03-29T08:00:00.5",
    "2026-03-29T08:00:00.123Z", "2026-03-29T08:00:00.123456Z", "2026-03-29T08:00:00.1234567Z", "2026-03-29T24:00:00",
    "2026-03-29T23:59:60", "2026-03-29T08:00:00+02:00", "0000-01-01T00:00:00", "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999Z", "08:00", "08:00:00", "24:00:00", "08:00:00.123456", "08:00:00.123000", "08:00:00.123",
    "1", "-0", "1.5", "1.555", "+1", " 1", "1e2", "1_0", ".5", "5.", "\u0661", "12345678.00", "123456789.00", "",
    "NaN", "Infinity", "-Infinity", "+Infinity", "nan",
    "-", "x" * 9, "\u00e4" * 8, "eQ==", "e", "\ud7ff", "\0",
]  # fmt: skip
_JSON: list[Any] = [
    *_TEXTS, 0, 1, -129, 1.0, 1.5, 1e300, 2**63, 2**64, True, False, None, [], [1], [None], ["a"], {}, {"a": 1},
    {"1": "a"}, {"x": 1.0, "y": None}, {"x": 1, "z": 2}, [{"a": 1, "b": ["x"]}], [{"a": "?"}], [[1]],
]  # fmt: skip
_RAW = [
    b"", b" ", b"null", b"1", b"[]", b"{", b'{"c": 1, "c": 2}', b'{"c": 1}{"c": 2}', b'{"c": 1},', b'{\n"c"\n:\n1}',
    b"\xff", b'{"c": NaN}', b'{"c": "\\ud800"}', b'{"c": "\xff"}', b'\xef\xbb\xbf{"c": 1}', b'{"c": 01}', b'{"c": -0}',
    b'{"c": -0.0}', b'{"c": 1E2}', b'{"\\u0063": 1}', b"{" * 2_000, b'{"c":' + b"[" * 2_000, b'{"c": 1}\0', b'{"d": 1}',
]  # fmt: skip


@pytest.mark.parametrize("word", ROW_EXAMPLES)
def test_batches_of_json_read_as_single_rows_are(word: str) -> None:
    for nullable in (True, False):
        made = row_format("json", Schema([{"name": "c", "type": word, "nullable": nullable}]))
        usual = made.encode({"c": ROW_EXAMPLES[word]}, "t")
        for value in (*_RAW, *(json.dumps({"c": each}).encode() for each in _JSON)):
            agree(made, [usual, value])


@settings(max_examples=5_000 if LONG else 100)
@given(
    word=st.sampled_from(sorted(ROW_EXAMPLES)),
    objects=st.lists(
        st.recursive(
            st.sampled_from(_JSON)
            | st.floats(allow_nan=False, allow_infinity=False)
            | st.integers(-(2**63), 2**64 - 1),
            lambda inner: (
                st.lists(inner, max_size=2)
                | st.dictionaries(st.sampled_from(["a", "b", "x", "y", "at", "1"]), inner, max_size=3)
            ),
            max_leaves=4,
        ),
        max_size=3,
    ),
)
def test_batches_of_any_json_read_as_single_rows_are(word: str, objects: list[Any]) -> None:
    agree(row_format("json", Schema({"c": word})), [json.dumps({"c": each}).encode() for each in objects])


def agree(made: Any, values: Sequence[bytes]) -> None:
    rows: list[dict[str, Any]] = []
    try:
        rows.extend(made.decode(value, "t") for value in values)
    except SerializationError as error:
        fault = f"row {len(rows)}: {error}"
    else:
        batch = made.decode_batch(values, "t")
        batch.validate(full=True)
        read = [made.schema.check(row) for row in batch.to_pylist()]
        assert repr(read) == repr(rows)
        return
    with pytest.raises(SerializationError) as caught:
        made.decode_batch(values, "t")
    assert str(caught.value) == fault


@pytest.mark.parametrize(
    "word", [word for word in ROW_EXAMPLES if "BINARY" not in word and word != "MAP<BIGINT, STRING>"]
)
def test_columns_of_usual_rows_are_made_at_once(word: str) -> None:
    schema = Schema({"c": word})
    values = [
        orjson.loads(row_format("json", schema).encode({"c": each}, "t"))["c"] for each in (ROW_EXAMPLES[word], None)
    ]
    assert json_column(schema.fields[0].dtype)(values) is not None


def test_batches_of_other_types_are_checked_as_rows_are() -> None:
    made = row_format("json", Schema("id BIGINT NOT NULL, name VARCHAR(3), x DOUBLE, l ARRAY<INT>, at TIMESTAMP"))
    narrow = pa.table({"l": [[1], None], "id": pa.array([1, 2], pa.int8()), "name": pa.array(["a", None], pa.large_string()),
                       "x": [1.0, None]}).to_batches()[0]  # fmt: skip
    assert made.encode_batch(narrow, "t") == [made.encode(row, "t") for row in narrow.to_pylist()]
    faults: dict[str, Any] = {
        "row 1: column 'id' .* must be not null": {"id": [1, None]},
        "row 0: column 'id' .* must be an integer$": {"id": ["1", "2"]},
        "row 1: column 'name' .* 3 characters at most": {"id": [1, 2], "name": ["abc", "abcd"]},
        "row 0: there is no column 'y'": {"id": [1, 2], "y": [1, 2]},
        "row 0: column 'id' is missing": {"x": [1.0, 2.0]},
        "row 1: column 'at' .* has a value that Python cannot hold": {
            "id": [1, 2], "at": pa.array([0, 2**62], pa.timestamp("us"))
        },
    }  # fmt: skip
    for reason, columns in faults.items():
        with pytest.raises(SerializationError, match=reason):
            made.encode_batch(pa.table(columns).to_batches()[0], "t")
    assert made.encode_batch(pa.table({"id": [1]}).to_batches()[0], "t") == [made.encode({"id": 1}, "t")]


def test_json_names_numbers_that_it_does_not_have() -> None:
    made = row_format("json", Schema("x DOUBLE, f FLOAT, l ARRAY<DOUBLE>, m MAP<DOUBLE, DOUBLE>, s STRUCT<a: DOUBLE>"))
    nan, inf = float("nan"), float("inf")
    rows: list[dict[str, Any]] = [
        {"x": nan, "f": inf, "l": [-inf, 0.5, None], "m": {-inf: nan, 1.5: inf}, "s": {"a": -inf}},
        {"x": -0.0, "f": nan, "l": None, "m": {}, "s": None},
    ]
    values = made.encode_batch(pa.RecordBatch.from_pylist(rows, schema=made.schema.arrow), "t")
    assert values == [made.encode(row, "t") for row in rows]
    assert values[0] == (
        b'{"x":"NaN","f":"Infinity","l":["-Infinity",0.5,null],"m":{"-Infinity":"NaN","1.5":"Infinity"},'
        b'"s":{"a":"-Infinity"}}'
    )
    for read in (
        made.decode_batch(values, "t").to_pylist(maps_as_pydicts="strict"),
        [made.decode(v, "t") for v in values],
    ):
        assert repr(read) == repr(rows)


def test_names_of_columns_are_never_code() -> None:
    names = ["it's", 'a "quote"', "back\\slash", "brace}: {", "v0", "é\u2028", "#"]
    schema = Schema(dict.fromkeys(names, "BIGINT"))
    rows = [dict(zip(names, range(number, number + 7), strict=True)) for number in range(3)]
    form = row_format("json", schema)
    batch = pa.RecordBatch.from_pylist(rows, schema=schema.arrow)
    assert form.encode_batch(batch, "t") == [form.encode(row, "t") for row in rows]


def test_raw_values_have_no_schema() -> None:
    made = row_format("raw", None)
    assert made.decode(b"a", "t") == {"value": b"a"}
    assert made.decode_batch([b"a", b"b"], "t").to_pylist() == [{"value": b"a"}, {"value": b"b"}]
    assert made.encode_batch(made.decode_batch([b"a"], "t"), "t") == [b"a"]
    numbers = raw_format("json", "json")
    assert numbers.decode(numbers.encode([[1]], "t"), "t") == {"value": [1]}
    with pytest.raises(SerializationError, match="give the table a schema"):
        numbers.decode_batch([b"1"], "t")
    with pytest.raises(SerializationError, match="one column, 'value'"):
        numbers.encode({"other": 1}, "t")
    with pytest.raises(SerializationError, match="must not be null"):
        made.encode([None], "t")
    objects = pickle.loads(pickle.dumps(raw_format(DoubleSerializer(), StringDeserializer("utf-16"))))
    assert objects.decode("ä".encode("utf-16"), "t") == {"value": "ä"}
    with pytest.raises(ConfigurationError, match="cannot keep serializers that are objects"):
        dict(objects.options)


_KEYS = Schema(
    "id BIGINT, n INT, ok BOOLEAN, text STRING, day DATE, t TIME, at TIMESTAMP, seen TIMESTAMP_LTZ, price DECIMAL(9, 3), "
    "b BINARY, x DOUBLE, l ARRAY<INT>"
)
_KEY_ROW = _KEYS.check({
    "id": 7, "n": -1, "ok": True, "text": "ä\"", "day": "2026-03-29", "t": "08:00:00.500", "at": "2026-03-29T08:00:00.000001",
    "seen": "2026-03-29T08:00:00Z", "price": "1.5", "b": b"\0", "x": 1.5, "l": [1],
})  # fmt: skip


@pytest.mark.parametrize(
    ("name", "columns", "key"),
    [
        ("json", "id", b"7"),
        ("json", "text", '"ä\\""'.encode()),
        ("json", "id text ok", '[7,"ä\\"",true]'.encode()),
        ("json", "day t at", b'["2026-03-29","08:00:00.500000","2026-03-29T08:00:00.000001"]'),
        ("json", "seen price b", b'["2026-03-29T08:00:00Z","1.500","AA=="]'),
        ("str", "text", 'ä"'.encode()),
        ("str", "id", b"7"),
        ("str", "seen", b"2026-03-29T08:00:00Z"),
        ("str", "price", b"1.500"),
        ("int", "n", b"\xff\xff\xff\xff"),
        ("int", "id", b"\0\0\0\0\0\0\0\7"),
        ("avro", "id", b"\x0e"),
        ("avro", "n text", b"\x01\x06" + 'ä"'.encode()),
        ("avro", "day price b ok", None),
    ],
)
def test_keys(name: str, columns: str, key: bytes | None) -> None:
    made = pickle.loads(pickle.dumps(key_format(name, _KEYS, columns.split())))
    written = made.encode(_KEY_ROW)
    assert key in (written, None)
    assert made.decode(written) == {column: _KEY_ROW[column] for column in columns.split()}
    batch = pa.RecordBatch.from_pylist([_KEY_ROW, _KEY_ROW], schema=_KEYS.arrow)
    assert made.encode_batch(batch) == [written, written]
    first = columns.split()[0]
    with pytest.raises(SerializationError, match=f"column '{first}' is in the key and must not be null"):
        made.encode({**_KEY_ROW, first: None})
    with pytest.raises(SerializationError, match=f"^row 1: column '{first}'"):
        made.encode_batch(pa.RecordBatch.from_pylist([_KEY_ROW, {**_KEY_ROW, first: None}], schema=_KEYS.arrow))


@settings(max_examples=2_000 if LONG else 100)
@given(st.sampled_from(KEY_FORMATS), st.sampled_from(["id", "n", "text"]), st.binary(max_size=12))
def test_hostile_keys(name: str, column: str, key: bytes) -> None:
    if name == "int" and column == "text":
        return
    with contextlib.suppress(SerializationError):
        row = key_format(name, _KEYS, [column]).decode(key)
        assert _KEYS.project([column]).check(row) == row


@pytest.mark.parametrize(
    ("name", "columns", "reason"),
    [
        ("json", [], "a key needs a column"),
        ("json", ["nowhere"], "no column 'nowhere'"),
        ("json", ["x"], r"column 'x' \(DOUBLE\) cannot be in a key"),
        ("avro", ["l"], "cannot be in a key"),
        ("str", ["id", "n"], "the key format 'str' carries one column, and the key has id, n"),
        ("str", ["b"], "cannot be a key as text"),
        ("int", ["text"], "cannot be a key as a number"),
    ],
)
def test_columns_that_are_no_keys(name: str, columns: list[str], reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        key_format(name, _KEYS, columns)


@pytest.mark.parametrize(
    ("name", "column", "key", "reason"),
    [
        ("json", "id", b"x", "not JSON"),
        ("json", "id", b'"7"', "does not fit: column 'id'"),
        ("json", "id", b"null", "must not be null"),
        ("str", "id", b"07", "another form"),
        ("str", "id", b"x", "not the text of a value of type BIGINT"),
        ("str", "text", b"\xff", "not the text of a value of type STRING"),
        ("int", "id", b"\0\0\0\0", "4 bytes, and must have 8"),
        ("avro", "id", b"", "end too early"),
    ],
)
def test_bytes_that_are_no_keys(name: str, column: str, key: bytes, reason: str) -> None:
    with pytest.raises(SerializationError, match=reason):
        key_format(name, _KEYS, [column]).decode(key)
