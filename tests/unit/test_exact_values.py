"""Serializers write a value exactly, or refuse it with the path of its field, and without the value in the text."""

import datetime
import decimal
import json
import math
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from streamrt.errors import ConfigurationError, SerializationError
from streamrt.serializers import (
    AvroDeserializer,
    AvroSerializer,
    JSONDeserializer,
    JSONSerializer,
    MessageField,
    ProtobufSerializer,
    QuixDeserializer,
    QuixEventsSerializer,
    QuixTimeseriesSerializer,
    SerializationContext,
)
from streamrt.serializers.json import default_loads, loader_of

CONTEXT = SerializationContext("t", MessageField.VALUE)
UTC = datetime.timezone.utc
SECRET = "a-secret-that-must-not-be-shown"


def record(*fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": kind, **(rest[0] if rest else {})} for name, kind, *rest in fields],
    }


def logical(kind: str, logical_type: str, **options: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical_type, **options}


DECIMAL = logical("bytes", "decimal", precision=4, scale=2)
FIXED_DECIMAL = logical("fixed", "decimal", name="FD", size=4, precision=4, scale=2)
D = decimal.Decimal
AVRO: list[tuple[Any, Any, Any]] = [
    ("int", 2**31 - 1, 2**31 - 1),
    ("int", 2**31, "does not fit into the 32 bits of an Avro int"),
    ("int", 1.5, "a float with a fraction is not an Avro int"),
    ("int", True, "a value of type bool is not an Avro int"),
    ("int", "5", "a value of type str is not an Avro int"),
    ("int", math.nan, "a value of type float is not an Avro int"),
    ("long", 2**63 - 1, 2**63 - 1),
    ("long", 2**63, "does not fit into the 64 bits"),
    ("long", 1.0, 1),
    ("float", 1e300, "too large for an Avro float"),
    ("float", math.inf, math.inf),
    ("double", 2**60 + 1, "cannot hold the int exactly"),
    ("double", 2**60, 2.0**60),
    ("double", 2**2000, "a double can hold"),
    ("double", D("0.1"), "cannot hold the Decimal exactly"),
    ("double", "1.5", "a value of type str is not a number"),
    ("double", -0.0, -0.0),
    ("boolean", 1, "a value of type int is not a boolean"),
    ("boolean", SECRET, "a value of type str is not a boolean"),
    ("null", 1, "a value of type int is not null"),
    ("string", "\ud800", "character 0 of the text is a lone surrogate"),
    ("string", "a\0\u00e9", "a\0\u00e9"),
    ("string", b"x", "a value of type bytes is not text"),
    ("bytes", SECRET, "a value of type str is not bytes"),
    ("bytes", bytearray(b"\xff"), b"\xff"),
    ({"type": "fixed", "name": "F", "size": 2}, b"abc", "F has 2 bytes, the value has 3"),
    ({"type": "enum", "name": "E", "symbols": ["A"]}, SECRET, "the text is not a symbol of E"),
    ({"type": "array", "items": "int"}, {1: 2}, "a value of type dict is not a list"),
    ({"type": "array", "items": "int"}, [1, 2**40], r"field 'f\[1\]'"),
    ({"type": "map", "values": "int"}, {"a": 2**40}, r"field \"f\['a'\]\""),
    ({"type": "map", "values": "int"}, {1: 2}, "a value of type int is not text"),
    (DECIMAL, D("1.5"), D("1.50")),
    (DECIMAL, D("-99.99"), D("-99.99")),
    (DECIMAL, D("NaN"), r"a decimal\(4, 2\) is a finite number"),
    (DECIMAL, D("-Infinity"), "finite"),
    (DECIMAL, D("sNaN"), "finite"),
    (DECIMAL, 1, "a value of type int is not a decimal.*: convert it to a Decimal"),
    (DECIMAL, SECRET, "a value of type str is not a decimal"),
    (DECIMAL, 1.5, "a value of type float is not a decimal"),
    (DECIMAL, D("1.555"), "has 3 decimal places"),
    (DECIMAL, D("1E+5"), "too many digits"),
    (DECIMAL, D("100.00"), "too many digits"),
    (DECIMAL, D("0"), D("0.00")),
    (FIXED_DECIMAL, D("1E+5"), "too many digits"),
    (FIXED_DECIMAL, D("NaN"), "finite"),
    (FIXED_DECIMAL, D("-1.5"), D("-1.50")),
    (logical("int", "date"), datetime.datetime(2024, 1, 1, 5), r"take its date\(\)"),
    (logical("int", "date"), datetime.date(1, 1, 1), datetime.date(1, 1, 1)),
    (logical("int", "date"), "2024-01-01", datetime.date(2024, 1, 1)),
    (logical("int", "date"), SECRET, "the text is not a date"),
    (logical("long", "timestamp-millis"), datetime.datetime(2024, 1, 1), "without a time zone"),
    (logical("long", "timestamp-millis"), datetime.datetime(2024, 1, 1, 0, 0, 0, 1, UTC), "has no microseconds"),
    (logical("long", "timestamp-micros"), datetime.datetime(1960, 1, 1, 0, 0, 0, 1, UTC), ...),
    (logical("long", "local-timestamp-millis"), datetime.datetime(2024, 1, 1, tzinfo=UTC), "the zone would be lost"),
    (logical("long", "local-timestamp-micros"), datetime.datetime(2024, 1, 1, 0, 0, 0, 1), ...),
    (logical("int", "time-millis"), datetime.time(1, 2, 3, 4), "has no microseconds"),
    (logical("long", "time-micros"), datetime.time(1, tzinfo=UTC), "the zone would be lost"),
    (logical("string", "uuid"), SECRET, "the text is not a UUID"),
    (logical("string", "uuid"), uuid.UUID(int=1), ...),
    (["null", DECIMAL], D("NaN"), "finite"),
    (["null", DECIMAL], SECRET, "a value of type str is not null or bytes"),
    (["null", "long", "double"], 2**70 + 1, "does not fit into the 64 bits|cannot hold"),
    (["null", "double", "long"], 2**53 + 1, "put long first"),
    (["null", "int"], SECRET, "a value of type str is not null or int"),
    (["null", logical("long", "timestamp-millis")], datetime.datetime(2024, 1, 1, 0, 0, 0, 1, UTC), "no microseconds"),
    (["null", "string"], None, None),
]


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(("kind", "value", "result"), AVRO)
def test_b5_avro_values_are_exact_or_refused(kind: Any, value: Any, result: Any, nested: bool) -> None:
    schema, given, path = record(("f", kind)), {"f": value}, "f"
    if nested:
        schema, given, path = (
            record(("g", {"type": "array", "items": {**schema, "name": "S"}})),
            {"g": [given]},
            r"g\[0\].f",
        )
    write = AvroSerializer(schema)
    if (isinstance(result, str) and not isinstance(value, str | bytes)) or (
        isinstance(result, str) and result != value
    ):
        with pytest.raises(SerializationError, match=result if not nested else None) as caught:
            write(given, CONTEXT)
        assert SECRET not in str(caught.value)
        assert "g[0].f" in str(caught.value) if nested else "field" in str(caught.value)
        assert path
        return
    read = AvroDeserializer(schema)(write(given, CONTEXT) or b"", CONTEXT)
    found = read["g"][0]["f"] if nested else read["f"]
    wanted = value if result is ... else result
    assert (repr(found), type(found)) == (repr(wanted), type(wanted))


def test_b5_missing_fields_and_extra_ones_are_named() -> None:
    inner = {**record(("x", "int")), "name": "S"}
    with pytest.raises(SerializationError, match=r"field 'f': no value and no default for x"):
        AvroSerializer(record(("f", inner)))({"f": {}}, CONTEXT)
    with pytest.raises(SerializationError, match="more fields than the schema specifies: y"):
        AvroSerializer(record(("x", "int")), strict=True)({"x": 1, "y": SECRET}, CONTEXT)
    with pytest.raises(SerializationError) as caught:
        AvroSerializer(record(("x", ["null", "int"])))({"x": ("long", SECRET)}, CONTEXT)
    assert SECRET not in str(caught.value)


INNER = {**record(("q", "int", {"default": 5}), ("b", "bytes", {"default": "\u00ff"})), "name": "In"}
DEFAULTS: list[tuple[Any, Any, Any]] = [
    ("bytes", "\u00ff\u0000", b"\xff\0"),
    ("bytes", "", b""),
    ({"type": "fixed", "name": "F", "size": 2}, "\u0001\u00fe", b"\x01\xfe"),
    (DECIMAL, "\u0001", D("0.01")),
    (DECIMAL, "\u00ff", D("-0.01")),
    (FIXED_DECIMAL, "\u0000\u0000\u0001\u0000", D("2.56")),
    (logical("int", "date"), 1, datetime.date(1970, 1, 2)),
    (logical("int", "time-millis"), 1, datetime.time(0, 0, 0, 1000)),
    (logical("long", "time-micros"), 1, datetime.time(0, 0, 0, 1)),
    (logical("long", "timestamp-millis"), 1, datetime.datetime(1970, 1, 1, 0, 0, 0, 1000, UTC)),
    (logical("long", "timestamp-micros"), 1, datetime.datetime(1970, 1, 1, 0, 0, 0, 1, UTC)),
    (logical("long", "local-timestamp-millis"), 1, datetime.datetime(1970, 1, 1, 0, 0, 0, 1000)),
    (logical("string", "uuid"), str(uuid.UUID(int=7)), uuid.UUID(int=7)),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
    ("double", 1, 1.0),
    ("boolean", True, True),
    ("null", None, None),
    (INNER, {}, {"q": 5, "b": b"\xff"}),
    (INNER, {"b": "a"}, {"q": 5, "b": b"a"}),
    ({"type": "array", "items": INNER}, [{}, {"q": 1}], [{"q": 5, "b": b"\xff"}, {"q": 1, "b": b"\xff"}]),
    ({"type": "map", "values": DECIMAL}, {"a": "\u0002"}, {"a": D("0.02")}),
    ({"type": "array", "items": "bytes"}, [], []),
    (["null", "bytes"], None, None),
    (["bytes", "null"], "\u00ff", b"\xff"),
    ([DECIMAL, "null"], "\u0001", D("0.01")),
    ([INNER, "null"], {}, {"q": 5, "b": b"\xff"}),
    ({"type": "array", "items": ["bytes", "null"]}, ["\u0001"], [b"\x01"]),
]


@pytest.mark.parametrize(("kind", "default", "value"), DEFAULTS)
def test_b2_b3_defaults_are_values_of_their_type(kind: Any, default: Any, value: Any) -> None:
    old, new = record(("x", "int")), record(("x", "int"), ("v", kind, {"default": default}))
    written = json.dumps(new)
    data = AvroSerializer(old)({"x": 1}, CONTEXT) or b""
    read = AvroDeserializer(old, reader_schema=new)
    found = read(data, CONTEXT)["v"]
    assert (found, type(found)) == (value, type(value))
    # Each value has a default of its own.
    for kept in (found, found[0] if isinstance(found, list) and found else None):
        if isinstance(kept, dict):
            kept["changed"] = True
        elif isinstance(kept, list):
            kept.append("changed")
    assert read(data, CONTEXT)["v"] == value
    data = AvroSerializer(new)({"x": 1}, CONTEXT) or b""
    assert AvroDeserializer(new)(data, CONTEXT) == {"x": 1, "v": value}
    # The schema that is registered is still JSON.
    assert json.dumps(new) == written


def test_b2_defaults_inside_of_unions_maps_and_arrays_of_the_reader() -> None:
    def holder(inner: Any) -> Any:
        return record(
            ("u", ["null", inner]), ("m", {"type": "map", "values": "In"}), ("a", {"type": "array", "items": "In"})
        )

    old = holder({"type": "record", "name": "In", "fields": [{"name": "q", "type": "int"}]})
    data = AvroSerializer(old)({"u": {"q": 1}, "m": {"k": {"q": 2}}, "a": [{"q": 3}]}, CONTEXT) or b""
    found = AvroDeserializer(old, reader_schema=holder(INNER))(data, CONTEXT)
    assert found == {
        "u": {"q": 1, "b": b"\xff"},
        "m": {"k": {"q": 2, "b": b"\xff"}},
        "a": [{"q": 3, "b": b"\xff"}],
    }


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ({"type": "fixed", "name": "F", "size": 2}, "abc"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "B"),
        ({"type": "array", "items": "int"}, ["a"]),
        (["null", "int"], "a"),
        ({**record(("q", "int")), "name": "In"}, {}),
        (logical("string", "uuid"), "no"),
    ],
)
def test_b2_a_default_that_does_not_fit_is_refused(kind: Any, default: Any) -> None:
    schema = record(("v", kind, {"default": default}))
    with pytest.raises(ConfigurationError, match=r"default of R\.v does not fit|must match (a )?schema"):
        AvroSerializer(schema)


# -- JSON ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("18446744073709551616", ""),
        ("-9223372036854775809", ""),
        ('{"a":{"b":[1,18446744073709551616]}}', " of field 'a.b[1]'"),
        ('[{"x y":-99999999999999999999999}]', " of field '[0].x y'"),
        ("1" * 300, ""),
    ],
)
def test_b4_integers_beyond_64_bits_are_refused(text: str, field: str) -> None:
    reads: list[Callable[[], Any]] = [
        lambda: JSONDeserializer()(text.encode(), CONTEXT),
        lambda: default_loads(text),
    ]
    for read in reads:
        with pytest.raises(SerializationError) as caught:
            read()
        assert f"the integer{field} does not fit into 64 bits" in str(caught.value)
        assert text not in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [
        2**64 - 1,
        -(2**63),
        {"a": "1" * 50},
        {"1" * 50: 1},
        0.1234567890123456789,
        [1e308, -0.0, 5e-324],
        {"a": [9007199254740993, "18446744073709551616"]},
        12345678901234567890.5,
    ],
)
def test_b4_what_json_holds_is_read_as_it_was(value: Any) -> None:
    data = JSONSerializer()(value, CONTEXT) or b""
    found = JSONDeserializer()(data, CONTEXT)
    assert (found, repr(found)) == (value, repr(value))


# -- Protobuf --------------------------------------------------------------------------------------------------------


def message_class() -> Any:
    pytest.importorskip("google.protobuf")
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    pool = descriptor_pool.DescriptorPool()
    file = descriptor_pb2.FileDescriptorProto(name="exact.proto", package="exact", syntax="proto3")
    message = file.message_type.add(name="M")
    entry = message.nested_type.add(name="NamesEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=kinds.TYPE_INT32, label=1)
    entry.field.add(name="value", number=2, type=kinds.TYPE_BYTES, label=1)
    message.field.add(name="data", number=1, type=kinds.TYPE_BYTES, label=1)
    message.field.add(name="plain_int", number=2, type=kinds.TYPE_INT64, label=1)
    message.field.add(name="more", number=3, type=kinds.TYPE_BYTES, label=3)
    message.field.add(name="inner", number=4, type=kinds.TYPE_MESSAGE, label=1, type_name=".exact.M")
    message.field.add(name="names", number=5, type=kinds.TYPE_MESSAGE, label=3, type_name=".exact.M.NamesEntry")
    message.field.add(name="number", number=6, type=kinds.TYPE_DOUBLE, label=1)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("exact.M"))


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (b"\xff\0", b"\xff\0"),
        (b"abcd", b"abcd"),
        (bytearray(b"x"), b"x"),
        (memoryview(b"y"), b"y"),
        ("YWJj", b"abc"),
        ("_-8=", b"\xff\xef"),
        ("/+8", b"\xff\xef"),
        ("", b""),
    ],
)
def test_b1_protobuf_takes_bytes_and_base64(value: Any, data: bytes) -> None:
    kind = message_class()
    given = {"data": value, "more": [value], "inner": {"data": value}, "names": {1: value}}
    found = kind.FromString(ProtobufSerializer(kind)(given, CONTEXT))
    assert (found.data, list(found.more), found.inner.data, found.names[1]) == (data, [data], data, data)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"data": SECRET + "!"}, "field 'data': the text is not base64"),
        ({"data": "\u00e9\u00e9"}, "field 'data': the text is not base64"),
        ({"data": "YWI"}, None),
        ({"inner": {"plain_int": SECRET}}, "field 'inner.plain_int' does not fit its type"),
        ({"data": "YWK"}, "field 'data': the text is not base64"),
        ({"data": 5}, "field 'data': a value of type int is neither bytes nor base64 text"),
        ({"inner": {"more": [b"x", "?"]}}, r"field 'inner.more\[1\]': the text is not base64"),
        ({"names": {1: b"a", "1": b"b"}}, "field 'names': two keys of the map are '1'"),
        ({"more": b"abc"}, "field 'more': a value of type bytes is not a list"),
        ({"plain_int": 1, "plainInt": 2}, "'plain_int' and 'plainInt' are names of the same field"),
        ({"inner": {"plainInt": 1, "plain_int": 1}}, "field 'inner': 'plainInt' and 'plain_int' are names"),
        ({"number": 2**60 + 1}, "field 'number': a double cannot hold the integer exactly"),
        ({"plain_int": 2**63}, "plain"),
        ({"plain_int": SECRET}, "plain"),
        ({"unknown": SECRET}, "no field named"),
    ],
)
def test_b1_b7_protobuf_refuses_what_it_would_change(value: Any, reason: str | None) -> None:
    kind = message_class()
    if reason is None:
        assert kind.FromString(ProtobufSerializer(kind)(value, CONTEXT)).data == b"ab"
        return
    with pytest.raises(SerializationError, match=reason) as caught:
        ProtobufSerializer(kind)(value, CONTEXT)
    assert SECRET not in str(caught.value)


def test_b1_numbers_of_a_struct_are_exact() -> None:
    struct_pb2 = pytest.importorskip("google.protobuf.struct_pb2")
    write = ProtobufSerializer(struct_pb2.Struct)
    assert struct_pb2.Struct.FromString(write({"a": [2**53]}, CONTEXT))["a"][0] == 2**53
    with pytest.raises(SerializationError, match=r"field 'a\[0\]': a double cannot hold the integer exactly"):
        write({"a": [2**53 + 1]}, CONTEXT)


@pytest.mark.parametrize("long", [b"12345678901234567890123", b"-9223372036854775809", b"18446744073709551616"])
def test_values_that_are_looked_at_together_have_no_integers_beyond_64_bits(long: bytes) -> None:
    load = JSONDeserializer().bind("orders", MessageField.VALUE)
    short = [b'{"id": %d}' % number for number in range(20)]
    together = loader_of(load, [*short, None, b""])
    assert together is not load
    assert [together(value, None) for value in short] == [{"id": number} for number in range(20)]
    with pytest.raises(SerializationError, match="not JSON"):
        together(b"", None)
    # The digits of two values are not those of one.
    assert loader_of(load, [b"1234567890"] * 20) is not load
    with pytest.raises(SerializationError, match="field 'id' does not fit into 64 bits"):
        loader_of(load, [*short, b'{"id": %b}' % long])(b'{"id": %b}' % long, None)


def test_integers_of_64_bits_beside_large_floats_stay_exact() -> None:
    for text in (
        b"[9223372036854775807, 1e300, -1E30]",
        b'{"a": [{"b": 18446744073709551615}], "c": -9223372036854775808}',
    ):
        assert default_loads(text) == json.loads(text)


# -- JSON Schema, and the formats of the Quix platform -----------------------------------------------------------------

SCHEMA = {
    "type": "object",
    "properties": {
        "n": {"type": "number"},
        "i": {"type": "integer"},
        "s": {"type": "string"},
        "many": {"type": "array", "items": {"type": "number"}},
    },
}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"n": math.nan}, r"at \$\.n: 'type' must be 'number'"),
        ({"n": -math.inf}, r"at \$\.n"),
        ({"many": [1, math.inf]}, r"at \$\.many\[1\]"),
        ({"n": True}, r"at \$\.n"),
        ({"i": 1.5}, r"at \$\.i"),
        ({"n": D("0.1")}, "not JSON serializable: decimal.Decimal"),
        ({"n": 2**64}, "64-bit range"),
        ({"s": b"x"}, r"at \$\.s"),
        ({"s": "\ud800"}, "surrogates not allowed"),
        ({"s": uuid.UUID(int=1)}, r"at \$\.s"),
        ({"s": datetime.datetime(2024, 1, 1)}, r"at \$\.s"),
        ({"many": (1, 2)}, r"at \$\.many"),
        ({"n": 1, 1: 2}, "Dict key must be str"),
        ({"n": 2**64 - 1, "i": -(2**63), "s": "a\0\u00e9", "many": [1e308, -0.0, 5e-324]}, None),
    ],
)
def test_b1_json_with_a_schema_is_what_the_schema_says(value: Any, reason: str | None) -> None:
    pytest.importorskip("jsonschema")
    write = JSONSerializer(schema=SCHEMA)
    if reason is None:
        assert JSONDeserializer(schema=SCHEMA)(write(value, CONTEXT) or b"", CONTEXT) == value
        return
    with pytest.raises(SerializationError, match=reason):
        write(value, CONTEXT)


@pytest.mark.parametrize("as_legacy", [False, True])
@pytest.mark.parametrize(
    ("value", "result"),
    [
        (2**64 - 1, 2**64 - 1),
        (-(2**63), -(2**63)),
        (2**64, "64-bit range"),
        (1e308, 1e308),
        (-0.0, -0.0),
        ("a\0\u00e9", "a\0\u00e9"),
        ("\ud800", "surrogates not allowed"),
        (b"\xff\0", b"\xff\0"),
        (bytearray(b"x"), b"x"),
        (True, "is a bool"),
        (D("0.1"), "is a Decimal"),
        (datetime.datetime(2024, 1, 1), "is a datetime"),
        (uuid.UUID(int=1), "is a UUID"),
        ([1], "is a list"),
        # Documented: JSON has no such numbers.
        (math.nan, None),
        (math.inf, None),
    ],
)
def test_b1_parameters_of_time_series_are_exact_or_refused(value: Any, result: Any, as_legacy: bool) -> None:
    write = QuixTimeseriesSerializer(as_legacy=as_legacy)
    given = {"Timestamp": 10, "x": value}
    if isinstance(result, str) and result != value:
        with pytest.raises(SerializationError, match=result):
            write(given, CONTEXT)
        return
    headers: list[Any] = [(name, str(text).encode()) for name, text in write.extra_headers.items()]
    context = SerializationContext("t", MessageField.VALUE, headers)
    (row,) = QuixDeserializer()(write(given, CONTEXT) or b"", context)
    assert repr(row) == repr({"x": result, "Tags": {}, "Timestamp": 10})


@pytest.mark.parametrize("name", ["Id", "Value"])
@pytest.mark.parametrize("value", [5, None, b"x", True, 1.5, D(1)])
def test_b1_texts_of_events_are_texts(name: str, value: Any) -> None:
    with pytest.raises(SerializationError, match=f"{name} of a Quix event must be a str"):
        QuixEventsSerializer()({"Timestamp": 10, name: value}, CONTEXT)


@pytest.mark.parametrize(
    ("tag", "reason"), [(b"x", "not JSON serializable"), (2**64, "64-bit range"), ("\ud800", "surrogates not allowed")]
)
def test_b1_tags_are_exact_or_refused(tag: Any, reason: str) -> None:
    for write in (QuixEventsSerializer(), QuixTimeseriesSerializer()):
        with pytest.raises(SerializationError, match=reason):
            write({"Timestamp": 10, "Id": "", "Tags": {"t": tag}}, CONTEXT)
