"""The serializers that come with StreamRT, each against the suite that all serializers must pass."""

import json
import math
from typing import Any, Literal

import pytest
from hypothesis import strategies as st

from streamrt.serializers import (
    AvroDeserializer,
    AvroSerializer,
    BytesDeserializer,
    BytesSerializer,
    Deserializer,
    DoubleDeserializer,
    DoubleSerializer,
    IntegerDeserializer,
    IntegerSerializer,
    JSONDeserializer,
    JSONSerializer,
    Serializer,
    StringDeserializer,
    StringSerializer,
)
from streamrt.serializers.csv import CSVDeserializer, CSVSerializer
from streamrt.testing.serializers import DeserializerConformance, SerializerConformance

INT_MAX, INT_MIN = 2**31 - 1, -(2**31)
SURROGATES: tuple[Literal["Cs"]] = ("Cs",)
TEXT = st.text(st.characters(exclude_categories=SURROGATES))
JSON: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**64 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        TEXT,
    ),
    lambda items: st.one_of(st.lists(items, max_size=4), st.dictionaries(TEXT, items, max_size=4)),
    max_leaves=8,
)


class TestBytesSerializer(SerializerConformance):
    accepted = (
        (b"", b""),
        (b"\x00\xff", b"\x00\xff"),
        (bytearray(b"a"), b"a"),
        (memoryview(b"abc")[::2], b"ac"),
        ("ä", b"\xc3\xa4"),
    )
    refused = (5, 1.5, [1], {}, "\ud800")

    def make(self) -> Serializer:
        return BytesSerializer()


class TestBytesDeserializer(DeserializerConformance):
    accepted = ((b"", b""), (b"\x00\xff", b"\x00\xff"))
    values = st.binary()

    def make(self) -> Deserializer:
        return BytesDeserializer()

    def make_serializer(self) -> Serializer:
        return BytesSerializer()


@pytest.mark.rows("PF-N1", "PF-N3")
class TestStringSerializer(SerializerConformance):
    accepted = (("", b""), ("ä€", "ä€".encode()), ("a\x00b", b"a\x00b"))
    refused = (b"bytes", 5, 1.5, True, ["a"], "\ud800")

    def make(self) -> Serializer:
        return StringSerializer()


@pytest.mark.rows("PF-N1", "PF-N3")
class TestStringDeserializer(DeserializerConformance):
    accepted = ((b"", ""), ("ä€".encode(), "ä€"))
    refused = (b"\xff", b"\xc3", b"\xed\xa0\x80")
    values = TEXT

    def make(self) -> Deserializer:
        return StringDeserializer()

    def make_serializer(self) -> Serializer:
        return StringSerializer()


class TestUTF16Serializer(SerializerConformance):
    accepted = (("a", b"a\0"),)
    refused = ("\ud800", 5)

    def make(self) -> Serializer:
        return StringSerializer("utf-16-le")


class TestUTF16Deserializer(DeserializerConformance):
    accepted = ((b"a\0", "a"), (b"", ""))
    refused = (b"a", b"\x00\xd8")
    values = TEXT

    def make(self) -> Deserializer:
        return StringDeserializer("utf-16-le")

    def make_serializer(self) -> Serializer:
        return StringSerializer("utf-16-le")


class TestIDNASerializer(SerializerConformance):
    """A codec whose errors are not UnicodeEncodeErrors."""

    accepted = (("bücher", b"xn--bcher-kva"),)
    refused = ("a..b",)

    def make(self) -> Serializer:
        return StringSerializer("idna")


class TestIDNADeserializer(DeserializerConformance):
    """A codec whose errors are not UnicodeDecodeErrors."""

    accepted = ((b"xn--bcher-kva", "bücher"),)
    refused = (b"\xff", b"xn--\xff")

    def make(self) -> Deserializer:
        return StringDeserializer("idna")


class TestIntegerSerializer(SerializerConformance):
    accepted = (
        (0, b"\0\0\0\0"),
        (1, b"\0\0\0\1"),
        (-1, b"\xff\xff\xff\xff"),
        (INT_MAX, b"\x7f\xff\xff\xff"),
        (INT_MIN, b"\x80\0\0\0"),
        (True, b"\0\0\0\1"),
    )
    refused = (INT_MAX + 1, INT_MIN - 1, 1.0, "1", b"1", [1])

    def make(self) -> Serializer:
        return IntegerSerializer()


class TestIntegerDeserializer(DeserializerConformance):
    accepted = ((b"\0\0\0\1", 1), (b"\xff\xff\xff\xff", -1))
    refused = (b"", b"\0", b"\0" * 5, b"\0" * 8)
    values = st.integers(INT_MIN, INT_MAX)

    def make(self) -> Deserializer:
        return IntegerDeserializer()

    def make_serializer(self) -> Serializer:
        return IntegerSerializer()


class TestDoubleSerializer(SerializerConformance):
    accepted = (
        (0.0, b"\0" * 8),
        (1.5, b"\x3f\xf8\0\0\0\0\0\0"),
        (1, b"\x3f\xf0\0\0\0\0\0\0"),
        (True, b"\x3f\xf0\0\0\0\0\0\0"),
        (math.inf, b"\x7f\xf0\0\0\0\0\0\0"),
        (-math.inf, b"\xff\xf0\0\0\0\0\0\0"),
        (math.nan, b"\x7f\xf8\0\0\0\0\0\0"),
    )
    refused = ("1.5", b"1", [1.5], 10**400, 1j)

    def make(self) -> Serializer:
        return DoubleSerializer()


class TestDoubleDeserializer(DeserializerConformance):
    accepted = ((b"\x3f\xf8\0\0\0\0\0\0", 1.5), (b"\x7f\xf8\0\0\0\0\0\0", math.nan), (b"\x80" + b"\0" * 7, -0.0))
    refused = (b"", b"\0" * 4, b"\0" * 9)
    values = st.floats()

    def make(self) -> Deserializer:
        return DoubleDeserializer()

    def make_serializer(self) -> Serializer:
        return DoubleSerializer()


@pytest.mark.rows("PF-N1", "PF-N3")
class TestJSONSerializer(SerializerConformance):
    accepted = (
        ({}, b"{}"),
        ({"b": 1, "a": [1.0, None, True]}, b'{"b":1,"a":[1.0,null,true]}'),
        ("ä", '"ä"'.encode()),
    )
    refused = (b"bytes", {1}, {1: 2}, 2**64, "\ud800")
    none = b"null"

    def make(self) -> Serializer:
        return JSONSerializer()


@pytest.mark.rows("PF-N1", "PF-N3")
class TestJSONDeserializer(DeserializerConformance):
    accepted = (
        (b"{}", {}),
        (b' {"b": 1, "a": [1.0, null, true]} ', {"b": 1, "a": [1.0, None, True]}),
        (b"null", None),
        (b'"\\u00e4"', "ä"),
    )
    refused = (b"", b"{", b"NaN", b"{'a': 1}", b"\xff", b"[1,]", b"1 2")
    values = JSON

    def make(self) -> Deserializer:
        return JSONDeserializer()

    def make_serializer(self) -> Serializer:
        return JSONSerializer()


CSV_COLUMNS = "id BIGINT NOT NULL, name STRING, ok BOOLEAN, share DOUBLE, raw BINARY"
CSV_ROW = {"id": 7, "name": "Lyon, 2", "ok": True, "share": 0.5, "raw": b"\0\xff"}
CSV_NULLS = {"id": -8, "name": None, "ok": None, "share": None, "raw": None}


@pytest.mark.rows("PF-N3")
class TestCSVSerializer(SerializerConformance):
    accepted = (
        (CSV_ROW, b'7,"Lyon, 2",true,0.5,AP8='),
        (CSV_NULLS, b"-8,,,,"),
        ({"id": 1, "name": 'a "b"\r\n', "share": math.inf}, b'1,"a ""b""\r\n",,Infinity,'),
        ([1, "\xe4", False, 2, None], b"1,\xc3\xa4,false,2.0,"),
    )
    refused = (
        5,
        [],
        {},
        "a",
        {"id": None},
        {"id": 1.5},
        {"id": 2**63},
        {"id": 1, "name": ""},
        {"id": 1, "name": "\0"},
        {"id": 1, "name": "\ud800"},
        {"id": 1, "more": 1},
    )

    def make(self) -> Serializer:
        return CSVSerializer(CSV_COLUMNS)


@pytest.mark.rows("PF-N3")
class TestCSVDeserializer(DeserializerConformance):
    accepted = (
        (b'7,"Lyon, 2",true,0.5,AP8=', CSV_ROW),
        (b"-8,,,,\r\n", CSV_NULLS),
        (b'7,"Lyon, 2",TRUE,5e-1,"AP8="\n', CSV_ROW),
    )
    refused = (
        b"",
        b"7",
        b"7,a,true,0.5,AP8=,",
        b",,,,",
        b"seven,,,,",
        b"\xd9\xa7,,,,",
        b"7_0,,,,",
        b"9223372036854775808,,,,",
        b"7,,yes,,",
        b"7,,,1e999,",
        b"7,,,,A",
        b'7,"a,,,',
        b'7,"a"b,,,',
        b"7,a,,,\n8,b,,,",
        b"7,a\nb,,,",
        b"7,\xff,,,",
        b"7,\0,,,",
    )
    values = st.fixed_dictionaries(
        {
            "id": st.integers(-(2**63), 2**63 - 1),
            "name": st.none()
            | st.text(st.characters(exclude_categories=SURROGATES, exclude_characters="\0"), min_size=1),
            "ok": st.none() | st.booleans(),
            "share": st.none() | st.floats(),
            # A value without bytes has no text: it is null.
            "raw": st.none() | st.binary(min_size=1),
        }
    )

    def make(self) -> Deserializer:
        return CSVDeserializer(CSV_COLUMNS)

    def make_serializer(self) -> Serializer:
        return CSVSerializer(CSV_COLUMNS)


def spaced(value: Any) -> str:
    """Write JSON as the standard library does, unescaped."""
    return json.dumps(value, ensure_ascii=False)


def parsed(data: bytes) -> Any:
    """Read JSON as the standard library does."""
    return json.loads(data)


class TestJSONSerializerWithAFunction(SerializerConformance):
    accepted = (([1, {"a": "ä"}], '[1, {"a": "ä"}]'.encode()),)
    refused = (b"bytes", {1}, "\ud800")
    none = b"null"

    def make(self) -> Serializer:
        return JSONSerializer(dumps=spaced)


class TestJSONDeserializerWithAFunction(DeserializerConformance):
    accepted = ((b'[1, {"a": 2}]', [1, {"a": 2}]),)
    refused = (b"", b"{", b"\xff")
    values = JSON

    def make(self) -> Deserializer:
        return JSONDeserializer(loads=parsed)

    def make_serializer(self) -> Serializer:
        return JSONSerializer(dumps=spaced)


class Split(Deserializer):
    """A record per line, as user code may write it."""

    @property
    def split_values(self) -> bool:
        return True

    def __call__(self, value: bytes, ctx: Any) -> Any:
        return (line for line in value.splitlines())


class TestSplittingDeserializer(DeserializerConformance):
    accepted = ((b"a\nb", [b"a", b"b"]), (b"", []))

    def make(self) -> Deserializer:
        return Split()


AVRO = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "pieces", "type": {"type": "array", "items": "long"}},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
AVRO_VALUES: tuple[tuple[dict[str, Any], bytes], ...] = (
    ({"id": "a", "pieces": [], "note": None}, b"\x02a\x00\x00"),
    ({"id": "", "pieces": [1, -1], "note": "\xe4"}, b"\x00\x04\x02\x01\x00\x02\x04\xc3\xa4"),
)
AVRO_LIST = {"type": "record", "name": "List", "fields": [{"name": "next", "type": ["null", "List"]}]}


@pytest.mark.rows("PF-N1", "PF-N3")
class TestAvroSerializer(SerializerConformance):
    accepted = (*AVRO_VALUES, ({"id": "a", "pieces": (), "more": 1}, b"\x02a\x00\x00"))
    refused = (
        5,
        "",
        [],
        {},
        {"id": 5, "pieces": []},
        {"id": "", "pieces": [2**63]},
        {"id": "", "pieces": [], "note": 1},
    )

    def make(self) -> Serializer:
        return AvroSerializer(AVRO)


@pytest.mark.rows("PF-N1", "PF-N3")
class TestAvroDeserializer(DeserializerConformance):
    accepted = tuple((data, value) for value, data in AVRO_VALUES)
    refused = (b"", b"\x02a\x00", b"\x02a\x00\x00\x00", b"\x02\xff\x00\x00", b"\x02a\x00\x06", b"\xff" * 20)
    values = st.fixed_dictionaries(
        {
            "id": TEXT,
            "pieces": st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5),
            "note": st.one_of(st.none(), TEXT),
        }
    )

    def make(self) -> Deserializer:
        return AvroDeserializer(AVRO)

    def make_serializer(self) -> Serializer:
        return AvroSerializer(AVRO)


class TestAvroSerializerWithASchemaThatContainsItself(SerializerConformance):
    accepted = (({"next": None}, b"\x00"), ({"next": {"next": None}}, b"\x02\x00"))
    refused = (5, {"next": 5}, {"next": {"next": 5}})

    def make(self) -> Serializer:
        return AvroSerializer(AVRO_LIST, strict=True)


class TestAvroDeserializerWithASchemaThatContainsItself(DeserializerConformance):
    accepted = ((b"\x00", {"next": None}), (b"\x02\x00", {"next": {"next": None}}))
    refused = (b"", b"\x02", b"\x04", b"\x02" * 1000 + b"\x00")

    def make(self) -> Deserializer:
        return AvroDeserializer(AVRO_LIST)

    def make_serializer(self) -> Serializer:
        return AvroSerializer(AVRO_LIST)
