"""Targets of fuzzing: every deserializer, with the bytes that it should read and those that it should refuse."""

import base64
import gzip
import http.server
import json
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jsonschema
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.struct_pb2 import Value

from streamrt.errors import SerializationError
from streamrt.models import Headers
from streamrt.schema import Schema
from streamrt.serializers import (
    BytesDeserializer,
    Deserializer,
    DoubleDeserializer,
    IntegerDeserializer,
    JSONDeserializer,
    MessageField,
    ProtobufDeserializer,
    ProtobufSerializer,
    QuixDeserializer,
    SerializationContext,
    StringDeserializer,
)
from streamrt.serializers.avro import AvroDeserializer
from streamrt.serializers.csv import CSVDeserializer
from streamrt.serializers.registry import SchemaRegistryClientConfig
from streamrt.serializers.row_formats import RowFormat, row_format
from tests.fuzz import inputs
from tests.fuzz.inputs import Source
from tests.messages import message_class

HeaderSource = Callable[[random.Random], Headers | None]


def _no_headers(rng: random.Random) -> Headers | None:
    return None


@dataclass(frozen=True)
class Target:
    """A deserializer and its input.

    Attributes:
        name: what it is called in reports.
        deserializer: what is fuzzed.
        valid: bytes that it reads, to be damaged.
        sources: further sources of bytes.
        bombs: sources of bytes that cost much; they are used seldom.
        headers: gives the headers of a record.
        errors: what it may raise.
    """

    name: str
    deserializer: Deserializer
    valid: Sequence[bytes] = (b"",)
    sources: Sequence[Source] = ()
    bombs: Sequence[Source] = ()
    headers: HeaderSource = field(default=_no_headers)
    errors: tuple[type[Exception], ...] = (SerializationError,)

    def data(self, rng: random.Random) -> bytes:
        """Return the next input."""
        kind = rng.randrange(100)
        if kind < 3 and self.bombs:
            return rng.choice(self.bombs)(rng)
        if kind < 20:
            return inputs.noise(rng)
        if kind < 60 and self.sources:
            return rng.choice(self.sources)(rng)
        return inputs.damaged(rng, self.valid)


# Each value may contain itself; lists of tags must not be compared pair by pair.
SCHEMA = {
    "$ref": "#/$defs/thing",
    "$defs": {
        "thing": {
            "type": ["object", "array"],
            "required": ["id"],
            "properties": {
                "id": {"type": ["number", "string"], "multipleOf": 0.01, "maxLength": 100, "pattern": "^[a-z]*$"},
                "tags": {"type": "array", "uniqueItems": True},
                "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/thing"}]},
            },
            "items": {"$ref": "#/$defs/thing"},
        }
    },
}
_DOCUMENT = b'{"id":1.25,"tags":["a",1,null,[{}]],"next":{"id":"abc","next":null}}'
_EVENT = b'{"Id":"i","Value":"v","Tags":{"t":"x"},"Timestamp":17}'
_SERIES = (
    b'{"Timestamps":[10,20],"NumericValues":{"a":[1,null]},"StringValues":{"c":["x","y"]},'
    b'"BinaryValues":{"d":["Ynl0ZXM=",null]},"TagValues":{"t":["u",null]}}'
)

_RECORD: dict[str, Any] = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "buyer", "type": ["null", "string"]},
        {"name": "colour", "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}},
        {"name": "lines", "type": {"type": "array", "items": {"type": "map", "values": ["int", "bytes", "boolean"]}}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "digest", "type": {"type": "fixed", "name": "Digest", "size": 4}},
        {"name": "total", "type": "double"},
    ],
}
_CHAIN: dict[str, Any] = {
    "type": "record",
    "name": "Chain",
    "fields": [
        {"name": "next", "type": ["null", "Chain"]},
        {"name": "all", "type": {"type": "array", "items": "Chain"}},
    ],
}
_NOTHINGS: dict[str, Any] = {"type": "array", "items": "null"}
_EMPTIES: dict[str, Any] = {
    "type": "array",
    "items": {
        "type": "record",
        "name": "Empty",
        "fields": [{"name": "none", "type": {"type": "fixed", "name": "Zero", "size": 0}}],
    },
}
_ORDER_AVRO = (
    b"\x0e\x02\x02a\x02\x02\x02\x02k\x00\x02\x00\x00\xd0\x0f\x80\xa8\xd6\xb9\x07\x04\x04\xd2"
    b"Hf81d4fae-7dec-11d0-a765-00a0c91e6bf6abcd\0\0\0\0\0\0\xf8?"
)


def _order() -> bytes:
    value = {
        "order_id": 7,
        "buyer": "ann",
        "colour": "BLUE",
        "data": "AP8=",
        "total": 1.5,
        "lines": [{"sku": "a", "n": -1}, {}],
        "price": {"cents": 5},
        "made_at": "1970-01-01T00:00:10.5Z",
        "extra": {"k": [1, "s", None, {"deep": True}]},
        "weights": {"a": 1.0},
        "parent": {"order_id": 8},
        "numbers": [-1, 2**31 - 1],
    }
    return ProtobufSerializer(message_class())(value, SerializationContext("t", MessageField.VALUE)) or b""


def _any(depth: int = 2) -> bytes:
    """Return a message in a message in a message; each is parsed by itself."""
    message = AnyMessage()
    message.Pack(Value(number_value=1))
    for _ in range(depth):
        outer = AnyMessage()
        outer.Pack(message)
        message = outer
    return message.SerializeToString()


def _deep_any(rng: random.Random) -> bytes:
    return _any(rng.choice((90, 101, 1_000)))


def _quix_headers(rng: random.Random, codecs: Sequence[bytes | None], kinds: Sequence[bytes | None]) -> Headers | None:
    if not rng.randrange(30):
        return None
    odd = not rng.randrange(15)
    kind = rng.choice((b"\xff", b"", None, b"Other")) if odd and rng.randrange(2) else rng.choice(kinds)
    codec = rng.choice((b"\xff", b"", None, b"PB", b"[GZIP]", b"[GZIP][GZIP]JT")) if odd else rng.choice(codecs)
    headers: Headers = [("__Q_ModelKey", kind), ("__Q_CodecId", codec)]
    if not rng.randrange(50):
        headers.append(("__Q_SplitMessageId", b"1"))
    return headers


_KINDS = (b"TimeseriesData", b"ParameterData", b"EventData", b"EventData[]", b"StreamEnd")


class _Rows(Deserializer):
    """Reads rows, some of them also as batches."""

    def __init__(self, made: RowFormat) -> None:
        self._made = made

    def __call__(self, value: bytes, ctx: SerializationContext) -> Any:
        if len(value) % 4 == 0:
            (row,) = self._made.decode_batch([value], ctx.topic).to_pylist()
            return row
        return self._made.decode(value, ctx.topic)


_ROWS = Schema(
    "id BIGINT NOT NULL, day DATE, at TIMESTAMP_LTZ, price DECIMAL(10, 2), mac BINARY(2), tags ARRAY<STRING>, "
    "lines ARRAY<STRUCT<n: TINYINT, t: TIME>>, counts MAP<STRING, DOUBLE>"
)
_FIELDS = "id BIGINT NOT NULL, day DATE, name STRING, code VARCHAR(3), share FLOAT, raw BINARY"


def _rows(name: str, *sources: Source, bombs: Sequence[Source]) -> Target:
    made = row_format(name, _ROWS)
    row = {"id": 7, "day": "2026-03-29", "at": "2026-03-29T08:00:00Z", "price": "9.50", "mac": b"ab"}
    lists = {"tags": ["a", ""], "lines": [{"n": -1, "t": "08:00:00.005"}], "counts": {"x": 0.5}}
    valid = [made.encode({**row, **lists}, "t"), made.encode({"id": 1, "tags": [], "lines": [], "counts": {}}, "t")]
    return Target(f"rows of {name}", _Rows(made), valid, sources, bombs)


def _avro(name: str, schema: Any, *valid: bytes, **options: Any) -> Target:
    return Target(
        f"avro {name}",
        AvroDeserializer(schema, **options),
        valid or (b"\0",),
        [inputs.avro_numbers],
        [inputs.avro_bomb],
    )


def targets(registry_url: str) -> list[Target]:
    """Return what is fuzzed.

    Args:
        registry_url: address of a registry with the schemas of `REGISTERED`.
    """
    order, document = _order(), [_DOCUMENT, b"[]", b'{"id":1}']
    json_input: Any = {"valid": document, "sources": [inputs.json_text], "bombs": [inputs.json_bomb]}
    proto_input: Any = {"valid": [order], "sources": [inputs.protobuf_fields], "bombs": [inputs.protobuf_bomb]}
    quix: Any = {
        "valid": [_SERIES, _EVENT],
        "sources": [inputs.quix_text],
        "bombs": [inputs.quix_bomb, inputs.json_bomb],
    }
    zipped = inputs.compressed(inputs.quix_text)
    registry: Any = {"schema_registry_client_config": SchemaRegistryClientConfig(url=registry_url, max_retries=0)}
    by_id = partial(_prefixes, list(REGISTERED))
    return [
        _rows("json", inputs.json_text, bombs=[inputs.json_bomb]),
        _rows("avro", inputs.avro_numbers, bombs=[inputs.avro_bomb]),
        _rows("protobuf", inputs.protobuf_fields, bombs=[inputs.protobuf_bomb]),
        Target("bytes", BytesDeserializer(), [b"abc"]),
        Target("string", StringDeserializer(), ["aä€\U0001f600".encode()]),
        Target("utf-16", StringDeserializer("utf-16"), ["aä€\U0001f600".encode("utf-16")]),
        Target("int", IntegerDeserializer(), [b"\0\0\0\1"]),
        Target("double", DoubleDeserializer(), [b"\x3f\xf8" + b"\0" * 6]),
        Target("csv", CSVDeserializer(_FIELDS, escape="\\"), [b'7,2026-03-29,"a ""b""",\\\\,0.5,', b"8,,,,1e9,AP8="]),
        Target("json", JSONDeserializer(), **json_input),
        Target("json of the standard library", JSONDeserializer(json.loads), **json_input),
        Target("json with a schema", JSONDeserializer(schema=SCHEMA), **json_input),
        Target(
            "json with a validator",
            JSONDeserializer(validator=jsonschema.Draft7Validator({"type": ["object", "array"]})),
            **json_input,
        ),
        Target("protobuf", ProtobufDeserializer(message_class()), **proto_input),
        Target(
            "protobuf numbers",
            ProtobufDeserializer(message_class(), use_integers_for_enums=True, preserving_proto_field_name=True),
            **proto_input,
        ),
        Target("protobuf messages", ProtobufDeserializer(message_class(), to_dict=False), **proto_input),
        Target(
            "protobuf values",
            ProtobufDeserializer(Value),
            [b"\x32\x0b\n\t\x11\0\0\0\0\0\0\xf0\x3f"],
            [inputs.protobuf_fields],
            [inputs.protobuf_bomb],
        ),
        Target("protobuf any", ProtobufDeserializer(AnyMessage), [_any()], [inputs.protobuf_fields], [_deep_any]),
        Target(
            "quix legacy",
            QuixDeserializer(),
            [
                b'{"C":"JT","K":"ParameterData","V":' + _SERIES + b',"S":34,"E":200}',
                b'{"C":"JT","K":"EventData","V":' + _EVENT + b"}",
            ],
            [inputs.quix_text],
            [inputs.json_bomb],
        ),
        Target("quix", QuixDeserializer(), **quix, headers=partial(_quix_headers, codecs=(b"JT", b"J"), kinds=_KINDS)),
        Target(
            "quix compressed",
            QuixDeserializer(max_inflated_bytes=2**20),
            [gzip.compress(_SERIES, mtime=0)],
            [zipped],
            [zipped],
            headers=partial(_quix_headers, codecs=(b"[GZIP]JT",), kinds=_KINDS),
        ),
        _avro("records", _RECORD, _ORDER_AVRO),
        _avro("records renamed", _RECORD, _ORDER_AVRO, return_named_type=True, handle_unicode_errors="replace"),
        _avro("chains", _CHAIN, b"\x02\x00\x00\x00", b"\x00\x02\x00\x00\x00"),
        _avro("nothings", _NOTHINGS, b"\x06\x00"),
        _avro("empties", _EMPTIES, b"\x06\x00"),
        _avro("decimals", {"type": "bytes", "logicalType": "decimal", "precision": 2000, "scale": 5}, b"\x04\x04\xd2"),
        Target(
            "json of a registry",
            JSONDeserializer(**registry),
            [_id(1) + _DOCUMENT],
            [inputs.behind(by_id(), inputs.json_text)],
            [inputs.behind(by_id(), inputs.json_bomb)],
            headers=_registry_headers,
        ),
        Target(
            "protobuf of a registry",
            ProtobufDeserializer(message_class(), **registry),
            [_id(2) + b"\x02\x02" + order],
            [inputs.behind(by_id(b"\0"), inputs.protobuf_fields), inputs.behind(by_id(), inputs.avro_numbers)],
            [inputs.behind(by_id(), inputs.avro_bomb)],
            headers=_registry_headers,
        ),
        Target(
            "avro of a registry",
            AvroDeserializer(**registry),
            [_id(3) + _ORDER_AVRO],
            [inputs.behind(by_id(), inputs.avro_numbers)],
            [inputs.behind(by_id(), inputs.avro_bomb)],
            headers=_registry_headers,
        ),
    ]


# -- A registry ------------------------------------------------------------------------------------------------------

REGISTERED: dict[int, dict[str, str]] = {
    1: {"schema": json.dumps(SCHEMA), "schemaType": "JSON"},
    2: {
        "schema": base64.b64encode(message_class().DESCRIPTOR.file.serialized_pb).decode(),
        "schemaType": "PROTOBUF",
    },
    3: {"schema": json.dumps(_RECORD)},
    4: {"schema": json.dumps(_CHAIN)},
    5: {"schema": json.dumps(_NOTHINGS)},
    6: {"schema": '{"$ref": "http://127.0.0.1:9/canary.json"}', "schemaType": "JSON"},
    7: {"schema": "{", "schemaType": "JSON"},
    8: {"schema": '{"type": "nonsense"}'},
    9: {"schema": "x", "schemaType": "OTHER"},
}


def _id(number: int) -> bytes:
    return b"\0" + number.to_bytes(4, "big")


def _prefixes(numbers: Sequence[int], behind: bytes = b"") -> list[bytes]:
    return [_id(number) + behind for number in numbers] + [_id(4711)]


def _registry_headers(rng: random.Random) -> Headers | None:
    if rng.randrange(10):
        return None
    return [
        (
            "__value_schema_id",
            rng.choice((_id(1), _id(2), _id(3) + b"\0", b"\0", b"", None, b"\1" + b"a" * 16, b"\2abcd")),
        )
    ]


class _Registry(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # An answer in one piece: in two, the second waits for the acknowledgement of the first.
    wbufsize = -1

    def do_GET(self) -> None:
        number = self.path.partition("?")[0].rpartition("/")[2]
        found = REGISTERED.get(int(number)) if number.isdecimal() and "/ids/" in self.path else None
        body = json.dumps(found or {"error_code": 40403, "message": "Schema not found"}).encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


def start_registry() -> tuple[str, int]:
    """Start a registry with the schemas of `REGISTERED`; return its address. It ends with the process."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Registry)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return "127.0.0.1", server.server_address[1]
