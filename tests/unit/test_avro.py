"""Avro: values, options and schemas; random schemas there and back; bytes and schemas that mean harm."""

import datetime
import json
import pickle
import random
import signal
import subprocess
import sys
import time
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamrt.errors import ConfigurationError, SerializationError
from streamrt.serializers import MessageField, SerializationContext, resolve_deserializer, resolve_serializer
from streamrt.serializers.avro import AvroDeserializer, AvroSerializer
from streamrt.serializers.avro.compiled_schema import MAX_TYPE_DEPTH, MAX_VALUE_DEPTH
from streamrt.serializers.registry import RegistrySchema, SchemaReference, SchemaRegistryClientConfig
from streamrt.topics import Topic
from tests.support import LONG

CTX = SerializationContext("orders", MessageField.VALUE)
# What fastavro says of a field without a type; Python 3.10 has no newer one.
MISSING = "KeyError:" if fastavro.__version__.startswith("1.12.") else "missing"
REGISTRY = SchemaRegistryClientConfig(url="http://localhost:1")


def record(*fields: Any, name: str = "Order", **more: Any) -> dict[str, Any]:
    pairs = [field if isinstance(field, dict) else {"name": field[0], "type": field[1]} for field in fields]
    return {"type": "record", "name": name, "fields": pairs, **more}


def write(schema: Any, value: Any, **options: Any) -> bytes:
    data = AvroSerializer(schema, **options)(value, CTX)
    assert data is not None
    return data


def read(schema: Any, data: bytes, *more: Any, **options: Any) -> Any:
    return AvroDeserializer(schema, *more, **options)(data, CTX)


def number(value: int) -> bytes:
    """Return a long as Avro writes it."""
    rest = (value << 1) ^ (value >> 63)
    parts = bytearray()
    while rest > 0x7F:
        parts.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*parts, rest])


# -- Values ----------------------------------------------------------------------------------------------------------

UTC = datetime.timezone.utc


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("null", None),
        ("boolean", True),
        ("int", -7),
        ('{"type": "long"}', 2**63 - 1),
        ('"double"', 1.5),
        ("bytes", b"\xff"),
        ("string", "\xe4"),
        (["null", "string"], "x"),
        ({"type": "array", "items": "int"}, [1, 2]),
        ({"type": "map", "values": ["null", "int"]}, {"a": None, "b": 1}),
        ({"type": "enum", "name": "Size", "symbols": ["S", "L"]}, "L"),
        ({"type": "fixed", "name": "Pair", "size": 2}, b"ab"),
        ({"type": "int", "logicalType": "date"}, datetime.date(2024, 2, 29)),
        ({"type": "int", "logicalType": "time-millis"}, datetime.time(1, 2, 3, 4000)),
        ({"type": "long", "logicalType": "timestamp-millis"}, datetime.datetime(2024, 1, 1, tzinfo=UTC)),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, datetime.datetime(2024, 1, 1, 0, 0, 0, 1)),
        ({"type": "string", "logicalType": "uuid"}, uuid.UUID(int=7)),
        ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}, Decimal("123.45")),
        (
            record(("id", "int"), ("at", {"type": "int", "logicalType": "date"})),
            {"id": 1, "at": datetime.date(2024, 1, 1)},
        ),
        (
            record(("id", "int"), ("next", ["null", "shop.Order"]), namespace="shop"),
            {"id": 1, "next": {"id": 2, "next": None}},
        ),
    ],
    ids=lambda part: str(part)[:40],
)
def test_values_come_back_as_they_were(schema: Any, value: Any) -> None:
    data = AvroSerializer(schema)(value, CTX)
    if value is None:
        assert data is None
    else:
        assert data is not None
        assert read(schema, data) == value


def test_none_is_a_tombstone() -> None:
    assert AvroSerializer(["null", "int"])(None, CTX) is None


def test_fields_must_fit_as_strictly_as_asked() -> None:
    schema = record(("id", "int"), {"name": "note", "type": "string", "default": "-"})
    assert read(schema, write(schema, {"id": 1, "more": 2})) == {"id": 1, "note": "-"}
    with pytest.raises(
        SerializationError, match=r"does not fit the Avro schema of Order: no value and no default for id"
    ):
        write(schema, {})
    with pytest.raises(SerializationError, match="more fields than the schema specifies: more"):
        write(schema, {"id": 1, "note": "", "more": 2}, strict=True)
    with pytest.raises(SerializationError, match="note is specified in the schema but missing"):
        write(schema, {"id": 1}, strict=True)
    assert write(schema, {"id": 1}, strict_allow_default=True) == b"\x02\x02-"
    with pytest.raises(SerializationError, match="id is specified"):
        write(schema, {}, strict_allow_default=True)


UNION = [
    record(("n", "int"), name="shop.A"),
    record(("n", "int"), name="shop.B"),
    {"type": "enum", "name": "shop.E", "symbols": ["X"]},
    "string",
]


def test_a_branch_of_a_union_can_be_named() -> None:
    assert write(UNION, ("shop.B", {"n": 1})) == b"\x02\x02"
    assert write(UNION, {"-type": "shop.B", "n": 1}) == b"\x02\x02"
    assert write(UNION, {"n": 1}) == b"\x00\x02"
    with pytest.raises(SerializationError):
        write(UNION, ("shop.B", {"n": 1}), disable_tuple_notation=True)


def test_the_branch_of_a_union_can_be_told() -> None:
    data, enum = b"\x02\x02", b"\x04\x00"
    assert read(UNION, data) == {"n": 1}
    assert read(UNION, data, return_record_name=True) == ("shop.B", {"n": 1})
    assert read(UNION, enum, return_record_name=True) == "X"
    assert read(UNION, enum, return_named_type=True) == ("shop.E", "X")
    single = ["null", UNION[0]]
    assert read(single, data, return_record_name=True) == ("shop.A", {"n": 1})
    assert read(single, data, return_record_name=True, return_record_name_override=True) == {"n": 1}
    assert read(single, data, return_named_type=True, return_named_type_override=True) == {"n": 1}


def test_another_schema_may_be_read_with() -> None:
    written = record(("id", "int"), ("old", {"type": "array", "items": "string"}))
    wanted = record(
        {"name": "number", "type": "long", "aliases": ["id"]}, {"name": "note", "type": "string", "default": "?"}
    )
    data = write(written, {"id": 5, "old": ["a"]})
    assert read(written, data, wanted) == {"number": 5, "note": "?"}
    with pytest.raises(SerializationError, match="do not fit"):
        read(written, data, record(("id", "string")))


def test_strings_that_are_no_utf_8() -> None:
    with pytest.raises(SerializationError, match="utf-8"):
        read("string", b"\x02\xff")
    assert read("string", b"\x02\xff", handle_unicode_errors="replace") == "\ufffd"
    with pytest.raises(ConfigurationError, match="handle_unicode_errors is 'maybe'"):
        AvroDeserializer("string", handle_unicode_errors="maybe")


def test_it_travels_without_what_it_has_compiled() -> None:
    schema = record(("id", "int"), ("next", ["null", "Order"]))
    writer, reader = AvroSerializer(schema, strict=True), AvroDeserializer(schema, schema)
    value = {"id": 1, "next": {"id": 2, "next": None}}
    data = writer(value, CTX)
    assert data is not None
    for _ in range(2):
        writer, reader = (pickle.loads(pickle.dumps(one)) for one in (writer, reader))
        assert writer(value, CTX) == data
        assert reader(data, CTX) == value
    with pytest.raises(SerializationError):
        writer({"id": 1}, CTX)


def test_topics_are_the_same_if_their_schemas_are() -> None:
    def topic(schema: Any, **options: Any) -> Topic:
        return Topic(
            "t",
            value_serializer=AvroSerializer(schema, **options, schema_registry_client_config=REGISTRY),
            value_deserializer=AvroDeserializer(schema, schema_registry_client_config=REGISTRY),
        )

    assert topic(LIST).differences(topic(dict(LIST))) == []
    assert topic(LIST, strict=True).differences(topic(LIST)) == ["value_serializer"]
    assert topic(LIST).differences(topic("int")) == ["value_deserializer", "value_serializer"]
    assert len({AvroSerializer("int"), AvroSerializer("int"), AvroDeserializer("int")}) == 2


def test_a_name_says_too_little() -> None:
    for resolve in (resolve_serializer, resolve_deserializer):
        with pytest.raises(ConfigurationError, match=r"'avro' needs more than its name: give Avro\w+\(schema\)"):
            resolve("avro")  # type: ignore[arg-type]


# -- Settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (5, "it is a int"),
        ('{"type": ', "it is not JSON"),
        ("strin", "UnknownType: strin"),
        ({"type": "record", "name": "R"}, None),
        ({"type": "record", "name": "R", "fields": [{"name": "a"}]}, f"{MISSING} 'type'"),
        ({"type": ["null"]}, "TypeError"),
        ({"type": "array"}, "KeyError"),
        (record(("a", "Missing")), "UnknownType: Missing"),
        ({"type": "fixed", "name": "F", "size": -1}, "the size of F is -1"),
        ({"type": "fixed", "name": "F", "size": True}, "the size of F is True"),
        (record({"name": "a", "type": "int", "default": "x"}), "Default value"),
        (RegistrySchema('"int"', (SchemaReference("A", "a", 1),)), "needs schema_registry_client_config"),
    ],
    ids=lambda part: str(part)[:30],
)
def test_schemas_that_are_none_are_refused_at_once(schema: Any, reason: str | None) -> None:
    if reason is None:
        AvroSerializer(schema)  # a record without fields
        return
    with pytest.raises(ConfigurationError, match=reason):
        AvroSerializer(schema)
    with pytest.raises(ConfigurationError, match=reason):
        AvroDeserializer(schema)


def test_a_default_that_is_no_json_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="JSON serializable"):
        AvroSerializer(record({"name": "a", "type": ["null", "int"], "default": None, "doc": b"x"}))


def test_what_does_not_go_together_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="needs a schema or schema_registry_client_config"):
        AvroDeserializer()
    with pytest.raises(ConfigurationError, match="use_latest_version or use_schema_id"):
        AvroSerializer(None)
    with pytest.raises(ConfigurationError, match="either schema or reader_schema"):
        AvroDeserializer("int", "int", schema_registry_client_config=REGISTRY)
    with pytest.raises(ConfigurationError, match="is a dict: give a SchemaRegistryClientConfig"):
        AvroSerializer("int", schema_registry_client_config={"url": "x"})  # type: ignore[arg-type]


# -- Random schemas and values -------------------------------------------------------------------------------------------

NAMES = st.sampled_from("abcdefgh")
LEAVES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("null", st.none()),
    ("boolean", st.booleans()),
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", st.integers(-(2**63), 2**63 - 1)),
    ("float", st.floats(width=32, allow_nan=False)),
    ("double", st.floats(allow_nan=False)),
    ("bytes", st.binary(max_size=5)),
    ("string", st.text(st.characters(codec="utf-8"), max_size=5)),
    ({"type": "int", "logicalType": "date"}, st.dates()),
    ({"type": "string", "logicalType": "uuid"}, st.uuids()),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
        st.decimals(-9999, 9999, places=2, allow_nan=False),
    ),
]
# A list, because fastavro tells the branches of a union apart by the Python type.
UNIONS = ("boolean", "string", "bytes", "double")


@st.composite
def schemas_and_values(draw: st.DrawFn, place: str = "n") -> tuple[Any, st.SearchStrategy[Any]]:
    kind = draw(st.integers(0, 9)) if len(place) < 4 else 0
    if kind < 4:
        leaf: tuple[Any, st.SearchStrategy[Any]] = draw(st.sampled_from(LEAVES))
        return leaf
    if kind == 4:
        items, values = draw(schemas_and_values(place + "i"))
        return {"type": "array", "items": items}, st.lists(values, max_size=3)
    if kind == 5:
        items, values = draw(schemas_and_values(place + "i"))
        return {"type": "map", "values": items}, st.dictionaries(st.text("xyz", max_size=2), values, max_size=3)
    if kind == 6:
        names = draw(st.sets(st.sampled_from(UNIONS), min_size=1))
        branches = [leaf for leaf in LEAVES if str(leaf[0]) in names]
        return ["null", *(schema for schema, _ in branches)], st.one_of(st.none(), *(values for _, values in branches))
    name = place
    if kind == 7:
        symbols = sorted(draw(st.sets(NAMES, min_size=1)))
        return {"type": "enum", "name": name, "symbols": symbols}, st.sampled_from(symbols)
    if kind == 8:
        size = draw(st.integers(0, 4))
        return {"type": "fixed", "name": name, "size": size}, st.binary(min_size=size, max_size=size)
    fields = {field: draw(schemas_and_values(place + field)) for field in sorted(draw(st.sets(NAMES, max_size=4)))}
    schema = record(*((field, part[0]) for field, part in fields.items()), name=name, namespace=draw(NAMES))
    return schema, st.fixed_dictionaries({field: part[1] for field, part in fields.items()})


@pytest.mark.slow
@given(data=st.data())
@settings(max_examples=5000 if LONG else 60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_random_values_of_random_schemas_come_back(data: st.DataObject) -> None:
    schema, values = data.draw(schemas_and_values())
    value = data.draw(values)
    if value is None:
        return
    written = AvroSerializer(json.dumps(schema))(value, CTX)
    assert written is not None
    reader = AvroDeserializer(schema)
    assert reader(written, CTX) == value
    assert AvroDeserializer(schema, schema)(written, CTX) == value
    for damaged in (written + b"\0", written[:-1]):
        try:
            reader(damaged, CTX)
        except SerializationError:
            continue
        assert damaged == written[:-1], "a byte too much was not noticed"


# -- Harmful bytes ---------------------------------------------------------------------------------------------------

LIST = record(("next", ["null", "Order"]))
MANY = number(25_000_000)


@pytest.mark.parametrize(
    ("schema", "data", "reason"),
    [
        (LIST, b"\x02" * 5000 + b"\0", "nested deeper than"),
        (LIST, b"\x02" * 2_000_000 + b"\0", "nested deeper than"),
        ({"type": "array", "items": "null"}, MANY + b"\0", "25000000 items in 5 bytes"),
        ({"type": "array", "items": record(name="Empty")}, MANY + b"\0", "25000000 items"),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, MANY + b"\0", "25000000 items"),
        ({"type": "array", "items": "null"}, number(-(2**63)) + b"\0\0", "9223372036854775808 items"),
        ({"type": "array", "items": "null"}, number(900) + number(900) * 2, "items|too many values"),
        ({"type": "array", "items": "int"}, number(2**62) + b"\0", "too early"),
        ({"type": "array", "items": "int"}, number(-1) + b"\0", "too early"),
        ({"type": "map", "values": "null"}, number(2**40) + b"\0", "too early"),
        ("string", number(2**62) + b"ab", "too early"),
        ("string", number(-2) + b"ab", "too early"),
        ("long", b"\xff" * 1000, "too early"),
        ("long", b"", "too early"),
        ("int", b"\2\2", "1 remain after the value"),
        (["null", "int"], b"\x12", "list index out of range"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x08", "index out of range"),
        ({"type": "int", "logicalType": "date"}, number(2**31 - 1), "maximum|range"),
        ({"type": "long", "logicalType": "timestamp-micros"}, number(2**63 - 1), "large|range"),
        ({"type": "string", "logicalType": "uuid"}, b"\2a", "UUID"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            number(1_000_000) + b"\x7f" * 1_000_000,
            "a decimal of 1000000 bytes",
        ),
        (
            {"type": "array", "items": record(*((f"f{one}", "null") for one in range(900)), ("b", "boolean"))},
            number(10_000) + b"\1" * 10_000 + b"\0",
            "too many values for",
        ),
    ],
    ids=range(22),
)
def test_harmful_bytes_are_refused(schema: Any, data: bytes, reason: str) -> None:
    begun = time.process_time()
    with pytest.raises(SerializationError, match=reason):
        read(schema, data)
    assert time.process_time() - begun < 10


def test_what_a_reader_skips_is_checked_too() -> None:
    written = record(("skipped", {"type": "array", "items": "null"}), ("id", "int"))
    with pytest.raises(SerializationError, match="items"):
        read(written, number(2**62) + b"\0\2", record(("id", "int")))


def test_deep_and_wide_values_within_reason_are_read() -> None:
    value: Any = None
    for _ in range(MAX_VALUE_DEPTH // 2 - 1):
        value = {"next": value}
    assert read(LIST, write(LIST, value)) == value
    nulls = [None] * 500
    assert read({"type": "array", "items": "null"}, write({"type": "array", "items": "null"}, nulls)) == nulls
    tree = record(("children", {"type": "array", "items": "Order"}), ("name", ["null", "string"]))
    leaf: dict[str, Any] = {"children": [], "name": None}
    wide = {"children": [{"children": [leaf] * 30, "name": "x"}] * 30, "name": None}
    assert read(tree, write(tree, wide)) == wide


def test_values_that_contain_themselves_are_refused() -> None:
    loop: dict[str, Any] = {}
    loop["next"] = loop
    with pytest.raises(SerializationError, match="nested deeper"):
        write(LIST, loop)


def chain(length: int, width: int = 1) -> Any:
    """Return records in records, each of which has the next one `width` times."""
    schema: Any = "null"
    for level in range(length):
        first = schema if isinstance(schema, str) else schema["name"]
        fields = [("f0", schema), *((f"f{one}", first) for one in range(1, width))]
        schema = record(*fields, name=f"R{level}")
    return schema


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (chain(MAX_TYPE_DEPTH + 1), "nested deeper than"),
        (chain(30, width=2), "parts that take no bytes"),
        ('{"type":"array","items":' * 100_000 + '"int"' + "}" * 100_000, "it is not JSON|nested too deeply"),
        ("[" * 900 + '"int"' + "]" * 900, "it is not JSON|nested too deeply"),
        (
            [
                record(("n", f"C{one + 1}") if one < 4999 else ("n", "int"), name=f"C{one}")
                for one in reversed(range(5000))
            ],
            "nested deeper than",
        ),
        (json.dumps(["int"] * 410_000), "too large"),
        (
            {"type": "fixed", "name": "D", "size": 10**6, "logicalType": "decimal", "precision": 5},
            "decimals of 1000000",
        ),
    ],
    ids=range(7),
)
def test_harmful_schemas_are_refused(schema: Any, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        AvroDeserializer(schema)


FUZZ = """
import random, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
resource.setrlimit(resource.RLIMIT_CPU, (600, 600))
from streamrt.errors import SerializationError
from streamrt.serializers import MessageField, SerializationContext
from streamrt.serializers.avro import AvroDeserializer, AvroSerializer
from tests.unit.test_avro import FUZZED

seed, count = int(sys.argv[1]), int(sys.argv[2])
dice = random.Random(seed)
ctx = SerializationContext("t", MessageField.VALUE)
read = [
    (AvroDeserializer(schema).bind("t", MessageField.VALUE), AvroSerializer(schema)(value, ctx))
    for schema, value in FUZZED
]
refused = 0
for turn in range(count):
    decode, data = read[turn % len(read)]
    kind = dice.randrange(5)
    if kind == 0:
        data = dice.randbytes(dice.randrange(40))
    elif kind == 1:
        data = data[:dice.randrange(len(data) + 1)]
    elif kind == 2:
        damaged = bytearray(data)
        for _ in range(dice.randrange(1, 4)):
            damaged[dice.randrange(len(damaged))] ^= 1 << dice.randrange(8)
        data = bytes(damaged)
    elif kind == 3:
        data = bytes(dice.choice(b"\\x00\\x01\\x02\\x03\\x7f\\x80\\xfe\\xff") for _ in range(dice.randrange(60)))
    else:
        place = dice.randrange(len(data))
        data = data[:place] + dice.randbytes(dice.randrange(12)) + data[place:]
    try:
        decode(data, None)
    except SerializationError:
        refused += 1
print(refused)
"""
"""Reads damaged values in a process of its own: a crash must not take the tests along."""

FUZZED: list[tuple[Any, Any]] = [
    (LIST, {"next": {"next": None}}),
    (
        record(
            ("id", "string"),
            ("pieces", {"type": "array", "items": record(("n", "long"), ("price", "double"), name="Piece")}),
            ("tags", {"type": "map", "values": ["null", "string", "Order"]}),
            ("day", {"type": "int", "logicalType": "date"}),
            ("total", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
            ("size", {"type": "enum", "name": "Size", "symbols": ["S", "L"]}),
            ("hash", {"type": "fixed", "name": "Hash", "size": 3}),
        ),
        {
            "id": "one",
            "pieces": [{"n": 1, "price": 2.5}] * 3,
            "tags": {"a": None, "b": "x"},
            "day": datetime.date(2024, 1, 1),
            "total": Decimal("1.25"),
            "size": "L",
            "hash": b"abc",
        },
    ),
    ({"type": "array", "items": ["null", {"type": "map", "values": "bytes"}]}, [None, {"a": b"xyz"}]),
    ({"type": "array", "items": {"type": "array", "items": "null"}}, [[None, None], []]),
    (
        record(
            ("at", {"type": "long", "logicalType": "timestamp-millis"}),
            ("u", {"type": "string", "logicalType": "uuid"}),
        ),
        {"at": datetime.datetime(2024, 1, 1, tzinfo=UTC), "u": uuid.UUID(int=1)},
    ),
]


@pytest.mark.slow
def test_damaged_values_never_crash_the_process() -> None:
    count, seed = (1_000_000 if LONG else 10_000), random.randrange(2**32)
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", FUZZ, str(seed), str(count)],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    signalled = signal.Signals(-done.returncode).name if done.returncode < 0 else ""
    assert done.returncode == 0, f"seed {seed}: {signalled} {done.stderr[-2000:]}"
    assert int(done.stdout) > count / 3
