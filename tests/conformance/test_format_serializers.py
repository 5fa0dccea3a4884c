"""JSON with a schema, Protobuf and Quix's formats, each against the suite that all serializers must pass."""

import gzip
import json
from typing import Any, ClassVar

import jsonschema
from google.protobuf.struct_pb2 import Value
from google.protobuf.timestamp_pb2 import Timestamp
from google.protobuf.wrappers_pb2 import DoubleValue
from hypothesis import strategies as st

from streamrt.serializers import (
    Deserializer,
    JSONDeserializer,
    JSONSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    QuixDeserializer,
    QuixEventsSerializer,
    QuixTimeseriesSerializer,
    Serializer,
)
from streamrt.testing.serializers import DeserializerConformance, SerializerConformance
from tests.messages import message_class

SURROGATES: Any = ("Cs",)
TEXT = st.text(st.characters(exclude_categories=SURROGATES), max_size=5)
INT64 = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)

SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": ["object", "null"],
    "required": ["id"],
    "properties": {"id": {"$ref": "#/$defs/id"}, "tags": {"type": "array", "uniqueItems": True}},
    "$defs": {"id": {"type": "integer", "minimum": 0}},
}
FOLLOWING = st.fixed_dictionaries({"id": st.integers(0, 2**63)}, optional={"tags": st.lists(TEXT, unique=True)})


class TestJSONSerializerWithASchema(SerializerConformance):
    accepted = (({"id": 1}, b'{"id":1}'), ({"id": 2, "tags": ["a"]}, b'{"id":2,"tags":["a"]}'))
    refused = (5, {}, {"id": -1}, {"id": 1, "tags": [1, 1.0]}, {"id": 1, "x": b""}, [])
    none = b"null"

    def make(self) -> Serializer:
        return JSONSerializer(schema=SCHEMA)


class TestJSONDeserializerWithASchema(DeserializerConformance):
    accepted = ((b'{"id":1}', {"id": 1}), (b"null", None), (b'{"id":1,"tags":[1,true]}', {"id": 1, "tags": [1, True]}))
    refused = (b"5", b"{}", b'{"id":"1"}', b"{", b"", b'{"id":1,"tags":[[{}],[{}]]}')
    values = FOLLOWING

    def make(self) -> Deserializer:
        return JSONDeserializer(schema=SCHEMA)

    def make_serializer(self) -> Serializer:
        return JSONSerializer(schema=SCHEMA)


class TestJSONSerializerWithAValidator(SerializerConformance):
    accepted = (({"id": 1}, b'{"id":1}'),)
    refused = (5, {}, {"id": -1})
    none = b"null"

    def make(self) -> Serializer:
        return JSONSerializer(validator=jsonschema.Draft7Validator({**SCHEMA, "type": ["object", "null"]}))


class TestJSONDeserializerWithAValidator(DeserializerConformance):
    accepted = ((b'{"id":1}', {"id": 1}),)
    refused = (b"5", b"{}")

    def make(self) -> Deserializer:
        return JSONDeserializer(validator=jsonschema.Draft202012Validator(SCHEMA))


ORDER = message_class()
EMPTY = {
    "orderId": "0",
    "buyer": "",
    "colour": "UNKNOWN",
    "data": "",
    "total": 0.0,
    "lines": [],
    "weights": {},
    "numbers": [],
}
LINES = st.lists(st.fixed_dictionaries({"sku": TEXT, "n": st.integers(-(2**31), 2**31 - 1)}), max_size=3)
ORDERS = st.builds(
    lambda parent, **fields: {**fields, **({"parent": {**EMPTY, "orderId": parent}} if parent else {})},
    orderId=INT64.map(str),
    buyer=TEXT,
    colour=st.one_of(st.sampled_from(["UNKNOWN", "RED", "BLUE"]), st.integers(3, 99)),
    data=st.just("AP8="),
    total=FLOATS,
    lines=LINES,
    weights=st.dictionaries(TEXT, FLOATS, max_size=3),
    numbers=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3),
    parent=st.one_of(st.none(), st.just("7")),
)


class TestProtobufSerializer(SerializerConformance):
    accepted = (
        ({}, b""),
        ({"order_id": 1}, b"\x08\x01"),
        ({"orderId": "1", "buyer": "ä"}, b"\x08\x01\x12\x02\xc3\xa4"),
        ({"colour": "BLUE"}, b"\x18\x02"),
        ({"colour": 9}, b"\x18\x09"),
        ({"data": "AP8="}, b"\x22\x02\x00\xff"),
        ({"made_at": "1970-01-01T00:00:01Z"}, b"\x42\x02\x08\x01"),
        ({"lines": [{"sku": "a"}, {"n": 1}]}, b"\x32\x03\n\x01a\x32\x02\x10\x01"),
        (ORDER(order_id=1), b"\x08\x01"),
        ({"buyer": None}, b""),
    )
    refused: ClassVar[Any] = (
        *(5, "buyer", [], b"\x08\x01", {"nope": 1}, {1: 2}, {"order_id": "x"}, {"order_id": 2**63}, {"total": "?"}),
        *({"buyer": 5}, {"buyer": "\ud800"}, {"lines": {}}, {"colour": "GREEN"}, {"made_at": 5}, Timestamp(seconds=1)),
    )

    def make(self) -> Serializer:
        return ProtobufSerializer(ORDER, deterministic=True)


class TestProtobufDeserializer(DeserializerConformance):
    accepted = (
        (b"", EMPTY),
        (b"\x08\x01\x12\x02\xc3\xa4", {**EMPTY, "orderId": "1", "buyer": "ä"}),
        (b"\x18\x02", {**EMPTY, "colour": "BLUE"}),
        (b"\x18\x09", {**EMPTY, "colour": 9}),
        (b"\x42\x02\x08\x01", {**EMPTY, "madeAt": "1970-01-01T00:00:01Z"}),
        (b"\x9a\x06\x01x", EMPTY),
    )
    refused = (b"\xff", b"\x08", b"\x12\x01\xff", b"\x42\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f", b"\x5a\x01\x0b")
    values = ORDERS

    def make(self) -> Deserializer:
        return ProtobufDeserializer(ORDER)

    def make_serializer(self) -> Serializer:
        return ProtobufSerializer(ORDER)


class TestProtobufDeserializerOfMessages(DeserializerConformance):
    """A copy in another process has a class of its own, so that whole messages are not compared here."""

    accepted = ((b"\x08\x01", b"\x08\x01"), (b"", b""))
    refused = (b"\xff",)

    def make(self) -> Deserializer:
        return Rewritten(ProtobufDeserializer(ORDER, to_dict=False))


class Rewritten(Deserializer):
    """Reads messages, and gives their bytes."""

    def __init__(self, inner: Deserializer) -> None:
        self.inner = inner

    def __call__(self, value: bytes, ctx: Any) -> Any:
        return self.inner(value, ctx).SerializeToString()


class TestProtobufSerializerOfAGeneratedClass(SerializerConformance):
    accepted = (("1970-01-01T00:00:01Z", b"\x08\x01"), (Timestamp(seconds=1), b"\x08\x01"))
    refused = (5, {}, "yesterday", message_class()())

    def make(self) -> Serializer:
        return ProtobufSerializer(Timestamp)


class TestProtobufDeserializerOfADouble(DeserializerConformance):
    accepted = ((b"", 0.0), (b"\t\0\0\0\0\0\0\xf8?", 1.5), (b"\t\0\0\0\0\0\0\xf0\x7f", "Infinity"))
    refused = (b"\t", b"\xff")
    values = FLOATS

    def make(self) -> Deserializer:
        return ProtobufDeserializer(DoubleValue)

    def make_serializer(self) -> Serializer:
        return ProtobufSerializer(DoubleValue)


class TestProtobufDeserializerOfAnything(DeserializerConformance):
    """A type that contains itself."""

    accepted = ((b"\x32\x08\n\x06\x1a\x04text", ["text"]), (b"\x08\x00", None))
    refused = (b"\x32", b"\x11\x00\x00\x00\x00\x00\x00\xf0\x7f")
    values = st.recursive(
        st.one_of(st.booleans(), FLOATS, TEXT), lambda items: st.lists(items, max_size=3), max_leaves=5
    )

    def make(self) -> Deserializer:
        return ProtobufDeserializer(Value)

    def make_serializer(self) -> Serializer:
        return ProtobufSerializer(Value)


TIMESERIES: Any = [("__Q_ModelKey", b"TimeseriesData"), ("__Q_CodecId", b"JT")]
COMPRESSED: Any = [("__Q_ModelKey", b"TimeseriesData"), ("__Q_CodecId", b"[GZIP]JT")]
EVENTS: Any = [("__Q_ModelKey", b"EventData[]"), ("__Q_CodecId", b"JT")]

PARAMETERS = st.dictionaries(
    TEXT.filter(lambda name: name not in ("Timestamp", "Tags")),
    st.one_of(TEXT, INT64, FLOATS, st.binary(max_size=5)),
    min_size=1,
    max_size=4,
)
ROWS = st.builds(
    lambda parameters, tags, timestamp: {**parameters, "Tags": tags, "Timestamp": timestamp},
    PARAMETERS,
    st.dictionaries(TEXT, TEXT, max_size=2),
    INT64,
)


class OneRow(Deserializer):
    """Reads what stands for one record as that record, for round trips."""

    def __init__(self) -> None:
        self.quix = QuixDeserializer()

    def __call__(self, value: bytes, ctx: Any) -> Any:
        rows = self.quix(value, ctx)
        return rows[0] if len(rows) == 1 else rows


class TestQuixTimeseriesSerializer(SerializerConformance):
    accepted = (
        (
            {"Timestamp": 123, "a": 1, "b": 1.5, "c": "text", "d": b"bytes", "e": None, "Tags": {"t": "x"}},
            (
                b'{"C":"JT","K":"ParameterData","V":{"BinaryValues":{"d":["Ynl0ZXM="]},"StringValues":{"c":["text"]},'
                b'"NumericValues":{"a":[1],"b":[1.5]},"Timestamps":[123],"TagValues":{"t":["x"]}},"S":34,"E":178}'
            ),
        ),
        (
            {},
            (
                b'{"C":"JT","K":"ParameterData","V":{"BinaryValues":{},"StringValues":{},"NumericValues":{},"Timestamps":[],'
                b'"TagValues":{}},"S":34,"E":121}'
            ),
        ),
    )
    refused: ClassVar[Any] = (
        *(5, "text", [], {"a": 1}, {"a": True, "Timestamp": 1}, {"a": [1], "Timestamp": 1}, {1: 1, "Timestamp": 1}),
        *({"a": 1, "Timestamp": "x"}, {"a": 1, "Timestamp": None}, {"a": 2**64, "Timestamp": 1}),
        *({"a": 1, "Timestamp": 1, "Tags": [1]}, {"a": 1, "Timestamp": 1, "Tags": {"t": b""}}),
    )

    def make(self) -> Serializer:
        return QuixTimeseriesSerializer()


class TestQuixEventsSerializer(SerializerConformance):
    accepted = (
        (
            {"Id": "i", "Value": "v", "Tags": {"t": "x"}, "Timestamp": 17, "other": object},
            b'{"C":"JT","K":"EventData","V":{"Id":"i","Value":"v","Tags":{"t":"x"},"Timestamp":17},"S":30,"E":84}',
        ),
        (
            {"Timestamp": 1, "Tags": None},
            b'{"C":"JT","K":"EventData","V":{"Id":"","Value":"","Tags":{},"Timestamp":1},"S":30,"E":74}',
        ),
    )
    refused = (5, {}, {"Id": 5, "Timestamp": 1}, {"Value": None, "Timestamp": 1}, {"Tags": 5, "Timestamp": 1})

    def make(self) -> Serializer:
        return QuixEventsSerializer()


class TestQuixDeserializerOfTheLegacyFormat(DeserializerConformance):
    accepted = (
        (
            b'{"C":"JT","K":"ParameterData","V":{"NumericValues":{"a":[1]},"Timestamps":[123]},"S":34,"E":79}',
            [{"a": 1, "Tags": {}, "Timestamp": 123}],
        ),
        (
            b'{"C":"J","K":"EventData","V":{"Id":"i","Value":"v","Timestamp":17}}',
            [{"Timestamp": 17, "Id": "i", "Value": "v", "Tags": {}}],
        ),
    )
    refused = (
        b"",
        b"{}",
        b'{"C":"JT","K":"Other","V":{}}',
        b'{"C":"JT","K":"EventData","V":[]}',
        b'{"C":5,"K":"x","V":1}',
    )

    def make(self) -> Deserializer:
        return QuixDeserializer()


class TestQuixDeserializerOfTimeseries(DeserializerConformance):
    accepted = (
        (
            (
                b'{"Timestamps":[10,20],"NumericValues":{"a":[1,null]},"StringValues":{"c":["x","y"]},'
                b'"BinaryValues":{"d":["Ynl0ZXM=",null]},"TagValues":{"t":["u",null]}}'
            ),
            [
                {"a": 1, "c": "x", "d": b"bytes", "Tags": {"t": "u"}, "Timestamp": 10},
                {"a": None, "c": "y", "d": None, "Tags": {"t": None}, "Timestamp": 20},
            ],
        ),
        (b'{"Timestamps":[]}', []),
        (b'{"Timestamps":[1]}', [{"Tags": {}, "Timestamp": 1}]),
    )
    refused = (
        *(b"", b"{}", b"[]", b"5", b'{"Timestamps":5}', b'{"Timestamps":{"0":1}}', b'{"Timestamps":"12"}'),
        b'{"Timestamps":[1,2],"NumericValues":{"a":[1]}}',
        b'{"Timestamps":[1],"NumericValues":[]}',
        b'{"Timestamps":[1],"NumericValues":{"a":"x"}}',
        b'{"Timestamps":[1],"NumericValues":{"a":null}}',
        b'{"Timestamps":[1],"NumericValues":{"Timestamp":[1]}}',
        b'{"Timestamps":[1],"BinaryValues":{"a":["!"]}}',
        b'{"Timestamps":[1],"BinaryValues":{"a":[5]}}',
        b'{"Timestamps":[1],"TagValues":null}',
    )
    headers = TIMESERIES

    def make(self) -> Deserializer:
        return QuixDeserializer()


class TestQuixDeserializerOfWhatIsCompressed(DeserializerConformance):
    accepted = ((gzip.compress(b'{"Timestamps":[1]}', mtime=0), [{"Tags": {}, "Timestamp": 1}]),)
    refused = (b"", b'{"Timestamps":[1]}', gzip.compress(b""), gzip.compress(b"{}")[:-1], gzip.compress(b"{}") + b"x")
    headers = COMPRESSED

    def make(self) -> Deserializer:
        return QuixDeserializer()


class TestQuixDeserializerOfEvents(DeserializerConformance):
    accepted = (
        (b"[]", []),
        (
            b'[{"Id":"i","Value":"v","Timestamp":17,"Tags":{"t":"x"},"other":1}]',
            [{"Timestamp": 17, "Id": "i", "Value": "v", "Tags": {"t": "x"}}],
        ),
    )
    refused = (b"{}", b"[5]", b'[{"Id":"i","Value":"v"}]')
    headers = EVENTS

    def make(self) -> Deserializer:
        return QuixDeserializer()


class TestQuixTimeseriesBothWays(DeserializerConformance):
    accepted = ((json.dumps({"Timestamps": [1]}).encode(), {"Tags": {}, "Timestamp": 1}),)
    values = ROWS
    headers = TIMESERIES

    def make(self) -> Deserializer:
        return OneRow()

    def make_serializer(self) -> Serializer:
        return QuixTimeseriesSerializer(as_legacy=False)

    def test_what_was_read_can_be_written_and_read_again(self) -> None:
        """Without parameters no timestamp is written."""


class TestQuixLegacyBothWays(DeserializerConformance):
    accepted = (
        (
            b'{"C":"JT","K":"EventData","V":{"Id":"i","Value":"v","Timestamp":17}}',
            {"Timestamp": 17, "Id": "i", "Value": "v", "Tags": {}},
        ),
    )
    values = st.fixed_dictionaries(
        {"Timestamp": INT64, "Id": TEXT, "Value": TEXT, "Tags": st.dictionaries(TEXT, TEXT, max_size=2)}
    )

    def make(self) -> Deserializer:
        return OneRow()

    def make_serializer(self) -> Serializer:
        return QuixEventsSerializer()
