"""Serializers by name, and the fine print of JSON. What holds for all of them is in the conformance suites."""

import datetime
import enum
import math
import uuid
from collections import OrderedDict, namedtuple
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, cast, get_args

import jsonschema
import pytest

from streamrt.errors import (
    ConfigurationError,
    ConsumerError,
    IgnoreMessage,
    SerializationError,
    ValueDeserializationError,
)
from streamrt.serializers import (
    DESERIALIZERS,
    SERIALIZERS,
    BytesDeserializer,
    BytesSerializer,
    Deserializer,
    DoubleSerializer,
    IntegerDeserializer,
    IntegerSerializer,
    JSONDeserializer,
    JSONSerializer,
    MessageField,
    ProtobufDeserializer,
    ProtobufSerializer,
    QuixDeserializer,
    QuixEventsSerializer,
    SerializationContext,
    Serializer,
    StringDeserializer,
    StringSerializer,
    resolve_deserializer,
    resolve_serializer,
)
from streamrt.serializers.base import DeserializerName, SerializerName
from streamrt.topics import Topic
from tests.messages import message_class
from tests.unit.apps import Stage

CONTEXT = SerializationContext("topic", MessageField.VALUE)


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


@dataclass
class Point:
    x: int
    y: float


Pair = namedtuple("Pair", ["left", "right"])

UNICODE = {"ä": "€", "quote": '"', "control": "\x01\n"}


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (None, "null"),
        (True, "true"),
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        (1e16, "1e+16"),
        (0.1, "0.1"),
        (math.nan, "null"),
        (math.inf, "null"),
        ({"a": -math.inf}, '{"a":null}'),
        (2**53 + 1, "9007199254740993"),
        (2**64 - 1, "18446744073709551615"),
        (-(2**63), "-9223372036854775808"),
        ((1, (2, 3)), "[1,[2,3]]"),
        (uuid.UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (Colour.RED, '"red"'),
        ([Level.HIGH], "[3]"),
        (Point(1, 2.5), '{"x":1,"y":2.5}'),
        ({"b": 1, "a": 2}, '{"b":1,"a":2}'),
        (OrderedDict(z=1, a=2), '{"z":1,"a":2}'),
        (UNICODE, '{"ä":"€","quote":"\\"","control":"\\u0001\\n"}'),
        ([], "[]"),
        ("", '""'),
    ],
)
def test_json_is_compact_unescaped_and_in_order(value: Any, data: str) -> None:
    assert JSONSerializer()(value, CONTEXT) == data.encode()


@pytest.mark.parametrize(
    "value",
    [
        b"bytes",
        {1, 2},
        {1: "int key"},
        {None: 1},
        2**64,
        -(2**63) - 1,
        datetime.datetime(2026, 1, 1),
        datetime.date(2026, 1, 1),
        datetime.time(1),
        datetime.timedelta(1),
        Decimal("1.5"),
        1j,
        object(),
        Pair(1, 2),
        "\ud800",
        {"nested": [{"deep": b""}]},
        iter(()),
    ],
    ids=repr,
)
def test_json_refuses_what_it_cannot_write_faithfully(value: Any) -> None:
    with pytest.raises(SerializationError, match=r"the value has no JSON form: .+"):
        JSONSerializer()(value, CONTEXT)


def test_json_refuses_a_value_that_contains_itself() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(SerializationError, match="the value has no JSON form"):
        JSONSerializer()(value, CONTEXT)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"1e16", 1e16),
        (b"1.0", 1.0),
        (b"18446744073709551615", 2**64 - 1),
        (b"1844674407370955161.6", 1844674407370955161.6),
        (b'["18446744073709551616"]', ["18446744073709551616"]),
        (b'{"a":1,"a":2}', {"a": 2}),
        (b"  [1]\n", [1]),
    ],
)
def test_json_is_read_as_orjson_reads_it(data: bytes, value: Any) -> None:
    result = JSONDeserializer()(data, CONTEXT)
    assert (result, type(result)) == (value, type(value))


@pytest.mark.parametrize(
    "data", [b"", b" ", b"{", b"NaN", b"Infinity", b"{a:1}", b"01", b"\xff", b"\xef\xbb\xbf1", b"[" * 2_000]
)
def test_json_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(SerializationError, match=r"the bytes are not JSON: .+"):
        JSONDeserializer()(data, CONTEXT)


def test_functions_given_to_the_json_serializers_are_used() -> None:
    assert JSONSerializer(dumps=lambda value: "text")(1, CONTEXT) == b"text"
    assert JSONSerializer(dumps=lambda value: b"bytes").bind("t", MessageField.KEY)(1, None) == b"bytes"
    assert JSONDeserializer(loads=lambda data: data.decode()).bind("t", MessageField.KEY)(b"x", None) == "x"


def test_a_function_that_reads_json_may_ignore_a_record() -> None:
    def ignore(data: bytes) -> Any:
        raise IgnoreMessage("as asked")

    with pytest.raises(IgnoreMessage):
        JSONDeserializer(loads=ignore)(b"1", CONTEXT)


@pytest.mark.parametrize(
    ("serializer", "value", "message"),
    [
        (BytesSerializer(), 5, "the bytes serializer got a int"),
        (StringSerializer(), b"x", "the string serializer got a bytes"),
        (IntegerSerializer(), 1.5, "the int serializer got a float"),
        (IntegerSerializer(), 2**31, "2147483648 does not fit into 4 signed bytes"),
        (DoubleSerializer(), "x", "the double serializer got a str"),
    ],
)
def test_messages_name_the_serializer_and_the_type(serializer: Serializer, value: Any, message: str) -> None:
    with pytest.raises(SerializationError) as caught:
        serializer(value, CONTEXT)
    assert str(caught.value) == message


def test_text_in_another_encoding_is_refused_with_its_name() -> None:
    with pytest.raises(SerializationError, match=r"the bytes are not utf_8 text: .*0xff in position 0"):
        StringDeserializer().bind("t", MessageField.VALUE)(b"\xff", None)
    assert StringDeserializer("latin-1").bind("t", MessageField.VALUE)(b"\xff", None) == "ÿ"
    assert StringSerializer("latin-1")("ÿ", CONTEXT) == b"\xff"
    with pytest.raises(SerializationError, match="the string cannot be encoded"):
        StringSerializer("latin-1")("€", CONTEXT)


@pytest.mark.parametrize("codec", ["nonsense", "base64", "rot13", "", 5, None])
@pytest.mark.parametrize("kind", [StringSerializer, StringDeserializer])
def test_an_unknown_encoding_is_refused_when_the_serializer_is_made(kind: Any, codec: Any) -> None:
    with pytest.raises(ConfigurationError, match="is not a text encoding of Python"):
        kind(codec)


# -- By name ---------------------------------------------------------------------------------------------------------


BOTH_WAYS = ("bytes", "str", "string", "int", "integer", "double", "float", "json")
WRITTEN = (*BOTH_WAYS, "quix_timeseries", "quix_events")
READ = (*BOTH_WAYS, "quix")


def test_serializers_are_found_by_name() -> None:
    assert {name: type(resolve_serializer(cast("Any", name))) for name in WRITTEN} == SERIALIZERS
    assert {name: type(resolve_deserializer(cast("Any", name))) for name in READ} == DESERIALIZERS


def test_the_types_of_names_list_all_names() -> None:
    assert sorted(get_args(SerializerName)) == sorted(WRITTEN)
    assert sorted(get_args(DeserializerName)) == sorted(READ)


@pytest.mark.parametrize("name", ["avro", "protobuf"])
def test_names_that_do_not_say_enough_are_refused_with_what_to_give(name: Any) -> None:
    for resolve, kind in ((resolve_serializer, "Serializer"), (resolve_deserializer, "Deserializer")):
        with pytest.raises(ConfigurationError, match=f"needs more than its name: give {name.capitalize()}{kind}"):
            resolve(name)


def test_objects_are_taken_as_they_are() -> None:
    serializer, deserializer = StringSerializer("latin-1"), IntegerDeserializer()
    assert resolve_serializer(serializer) is serializer
    assert resolve_deserializer(deserializer) is deserializer


@pytest.mark.parametrize("given", ["JSON", "", None, 5, JSONSerializer, lambda value: value])
def test_unknown_serializers_are_refused_with_the_names_that_there_are(given: Any) -> None:
    for resolve, kind in ((resolve_serializer, "serializer"), (resolve_deserializer, "deserializer")):
        with pytest.raises(ConfigurationError, match=f"unknown {kind} .*bytes, .*integer, json, .*str, string"):
            resolve(given)


EQUAL: list[Any] = [
    *(lambda name=name: resolve_serializer(name) for name in WRITTEN),
    *(lambda name=name: resolve_deserializer(name) for name in READ),
    lambda: JSONDeserializer(schema={"type": "integer"}),
    lambda: JSONDeserializer(validator=jsonschema.Draft7Validator({"type": "integer"})),
    lambda: ProtobufSerializer(message_class(), deterministic=True),
    lambda: ProtobufDeserializer(message_class()),
    lambda: QuixDeserializer(max_records=5),
    lambda: QuixEventsSerializer(as_legacy=False),
]


@pytest.mark.parametrize("make", EQUAL)
def test_two_definitions_of_a_topic_agree_whatever_was_serialized_so_far(make: Any) -> None:
    one, other = make(), make()
    name = "value_serializer" if isinstance(one, Serializer) else "value_deserializer"
    first, second = Topic("t", **{name: one}), Topic("t", **{name: other})
    with suppress(SerializationError, IgnoreMessage):
        _ = one(1 if isinstance(one, Serializer) else b"1", CONTEXT)
    assert first.differences(second) == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (JSONDeserializer(schema={}), JSONDeserializer()),
        (JSONDeserializer(schema={}), JSONDeserializer(schema={"type": "integer"})),
        (ProtobufDeserializer(message_class()), ProtobufDeserializer(message_class("shop.Price"))),
        (ProtobufDeserializer(message_class()), ProtobufDeserializer(message_class(), to_dict=False)),
        (QuixDeserializer(), QuixDeserializer(max_records=5)),
    ],
)
def test_serializers_with_other_settings_do_not_agree(one: Any, other: Any) -> None:
    assert Topic("t", value_deserializer=one).differences(Topic("t", value_deserializer=other))


def test_a_deserializer_is_no_serializer() -> None:
    with pytest.raises(ConfigurationError):
        resolve_serializer(cast("Any", BytesDeserializer()))
    with pytest.raises(ConfigurationError):
        resolve_deserializer(cast("Any", BytesSerializer()))


# -- The contract ----------------------------------------------------------------------------------------------------


class Curious(Serializer):
    """Writes what it was told."""

    def __call__(self, value: Any, ctx: SerializationContext) -> bytes:
        return f"{value} {ctx.topic} {ctx.field.value} {ctx.headers}".encode()


class CuriousReader(Deserializer):
    """Reads what it was told."""

    def __call__(self, value: bytes, ctx: SerializationContext) -> str:
        return f"{value!r} {ctx.topic} {ctx.field.value} {ctx.headers}"


def test_a_serializer_hears_topic_field_and_headers() -> None:
    assert Curious().bind("t", MessageField.KEY)(1, [("h", b"")]) == b"1 t key [('h', b'')]"
    assert CuriousReader().bind("t", MessageField.VALUE)(b"1", None) == "b'1' t value None"
    assert (Curious().extra_headers, CuriousReader().split_values) == ({}, False)


@pytest.mark.usefixtures("processing_mode")
def test_users_serializers_work_in_a_dataframe() -> None:
    stage = Stage(
        {"value_deserializer": CuriousReader(), "value_serializer": "str"},
        {"key_serializer": Curious(), "value_deserializer": "str", "value_serializer": "str"},
    )
    stage.sdf.to_topic(stage.out)
    driver = stage.drive()
    driver.pipe("in", "v", key="k", headers=[("h", b"")])
    (record,) = driver.read("out")
    assert record.raw_key == b"b'k' out key [('h', b'')]"
    assert record.value == "b'v' in value [('h', b'')]"


@pytest.mark.usefixtures("processing_mode")
@pytest.mark.parametrize("name", ["bytes", "str", "int", "double", "json"])
def test_a_value_of_none_is_a_tombstone_except_in_json(name: str) -> None:
    stage = Stage(out={"value_serializer": name, "value_deserializer": name})
    stage.sdf.to_topic(stage.out)
    driver = stage.drive()
    driver.pipe("in", None)
    (record,) = driver.read("out")
    assert record.value is None
    assert record.raw_value == (b"null" if name == "json" else None)


@pytest.mark.usefixtures("processing_mode")
@pytest.mark.parametrize(
    ("deserializer", "data", "message"),
    [
        ("json", b"{", "the bytes are not JSON"),
        (JSONDeserializer(schema={"type": "integer"}), b"{}", "the value does not follow its JSON Schema at \\$"),
        (ProtobufDeserializer(message_class()), b"\xff", r"the bytes are not a shop\.Order"),
        ("quix", b"{}", "the header __Q_ModelKey contains no Quix model key"),
    ],
)
def test_errors_say_where_the_record_is_and_what_is_wrong(deserializer: Any, data: bytes, message: str) -> None:
    stage = Stage({"value_deserializer": deserializer, "key_deserializer": "bytes"})
    with pytest.raises(
        ConsumerError, match=rf"the value of in\[0\] at offset 0 cannot be deserialized: {message}"
    ) as caught:
        stage.drive().pipe_bytes("in", data)
    assert isinstance(caught.value.__cause__, ValueDeserializationError)
    assert isinstance(caught.value.__cause__.__cause__, SerializationError)


@pytest.mark.usefixtures("processing_mode")
@pytest.mark.parametrize(
    ("deserializer", "data"),
    [
        (JSONDeserializer(schema={"type": "integer"}), b"{}"),
        (ProtobufDeserializer(message_class()), b"\xff"),
        (IntegerDeserializer(), b"\xff"),
    ],
)
def test_keys_have_errors_of_their_own(deserializer: Any, data: bytes) -> None:
    stage = Stage({"key_deserializer": deserializer})
    with pytest.raises(ConsumerError, match=r"the key of in\[0\] at offset 0 cannot be deserialized"):
        stage.drive().pipe_bytes("in", b"1", key=data)


@pytest.mark.parametrize(
    ("kind", "value", "data"),
    [
        (StringSerializer, "a", b"a!"),
        (JSONSerializer, 5, b"5!"),
        (IntegerSerializer, 5, b"\0\0\0\5!"),
        (BytesSerializer, b"a", b"a!"),
        (StringDeserializer, b"a", "a!"),
        (JSONDeserializer, b'"a"', "a!"),
    ],
)
def test_a_class_made_from_a_serializer_of_ours_is_called_as_it_says(kind: Any, value: Any, data: Any) -> None:
    """Ours are bound in a faster way, which knows nothing of the call of a class below."""

    class Loud(kind):  # type: ignore[misc]
        def __call__(self, value: Any, ctx: SerializationContext) -> Any:
            result = super().__call__(value, ctx)
            return result + (b"!" if isinstance(result, bytes) else "!")

    class Same(Loud):
        pass

    for made in (Loud(), Same()):
        assert made(value, SerializationContext("orders", MessageField.VALUE)) == data
        assert made.bind("orders", MessageField.VALUE)(value, None) == data
