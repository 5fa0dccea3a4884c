"""Records per second of each serializer and deserializer, beside those of the underlying library in the same run.

One value of about 100 bytes (55 in Avro and Protobuf) is written and read repeatedly, in one process and without Kafka.
Both sides run in turn, and the best of several rounds counts. Time is processor time, so other programs on the machine
have little effect. Avro, JSON Schema and Protobuf are also measured with a real schema registry.

    python -m bench.serializers
"""

import argparse
import json
import platform
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import fastavro
import jsonschema
import orjson
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

from bench import common
from streamrt.serializers import (
    BytesDeserializer,
    BytesSerializer,
    Deserializer,
    DoubleDeserializer,
    DoubleSerializer,
    IntegerDeserializer,
    IntegerSerializer,
    JSONDeserializer,
    JSONSerializer,
    MessageField,
    ProtobufDeserializer,
    ProtobufSerializer,
    QuixDeserializer,
    QuixTimeseriesSerializer,
    Serializer,
    StringDeserializer,
    StringSerializer,
)
from streamrt.serializers.avro import AvroDeserializer, AvroSerializer
from streamrt.serializers.registry import SchemaRegistryClientConfig
from streamrt.testing.registry import EmbeddedSchemaRegistry

ORDER = {"id": "order-000123", "pieces": 12345, "price": 9.75, "note": "leave it at the door, please", "paid": True}
ROW = {"Timestamp": 1_700_000_000_000_000_000, "speed": 12.5, "gear": 3, "driver": "ann", "Tags": {"car": "red"}}
AVRO = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "pieces", "type": "long"},
        {"name": "price", "type": "double"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "paid", "type": "boolean"},
    ],
}
AVRO_TREE = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "id", "type": "string"}, {"name": "next", "type": ["null", "Node"]}],
}
TREE = {"id": "a", "next": {"id": "b", "next": {"id": "c", "next": None}}}
JSON_SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Order",
    "type": "object",
    "properties": {
        "id": {"type": "string", "maxLength": 20},
        "pieces": {"type": "integer", "minimum": 0},
        "price": {"type": "number"},
        "note": {"type": ["null", "string"]},
        "paid": {"type": "boolean"},
    },
    "required": ["id", "pieces"],
}


@dataclass(frozen=True)
class Case:
    """A format: how StreamRT writes and reads it, and how the underlying library does."""

    name: str
    value: Any
    serializer: Serializer
    deserializer: Deserializer
    raw_write: Callable[[Any], bytes] | None = None
    raw_read: Callable[[bytes], Any] | None = None


def protobuf_class() -> Any:
    """Return a message class with the fields of an order."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="bench/order.proto", package="bench", syntax="proto3")
    message = file.message_type.add(name="Order")
    for number, (name, kind) in enumerate(
        (
            ("id", kinds.TYPE_STRING),
            ("pieces", kinds.TYPE_INT64),
            ("price", kinds.TYPE_DOUBLE),
            ("note", kinds.TYPE_STRING),
            ("paid", kinds.TYPE_BOOL),
        ),
        1,
    ):
        message.field.add(name=name, number=number, type=kind, label=kinds.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("bench.Order"))


def fastavro_pair(schema: dict[str, Any]) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    """Return functions that write and read with fastavro alone."""
    parsed = fastavro.parse_schema(schema)

    def write(value: Any) -> bytes:
        out = BytesIO()
        fastavro.schemaless_writer(out, parsed, value)
        return out.getvalue()

    return write, lambda data: fastavro.schemaless_reader(BytesIO(data), parsed, None)


def cases(registry: str | None) -> list[Case]:
    """Return all formats; those with a registry only if one is given."""
    long, double = struct.Struct(">i"), struct.Struct(">d")
    validator = jsonschema.Draft202012Validator(JSON_SCHEMA)
    avro_write, avro_read = fastavro_pair(AVRO)
    order = protobuf_class()

    def validated_write(value: Any) -> bytes:
        validator.validate(value)
        return orjson.dumps(value)

    def validated_read(data: bytes) -> Any:
        value = orjson.loads(data)
        validator.validate(value)
        return value

    def protobuf_write(value: Any) -> bytes:
        return bytes(json_format.ParseDict(value, order()).SerializeToString())

    def protobuf_read(data: bytes) -> Any:
        return json_format.MessageToDict(order.FromString(data), always_print_fields_with_no_presence=True)

    found = [
        Case("bytes", b"x" * 100, BytesSerializer(), BytesDeserializer(), bytes, bytes),
        Case("str", "x" * 100, StringSerializer(), StringDeserializer(), str.encode, bytes.decode),
        Case("int", 12345, IntegerSerializer(), IntegerDeserializer(), long.pack, lambda data: long.unpack(data)[0]),
        Case("double", 1.5, DoubleSerializer(), DoubleDeserializer(), double.pack, lambda data: double.unpack(data)[0]),
        Case("json", ORDER, JSONSerializer(), JSONDeserializer(), orjson.dumps, orjson.loads),
        Case(
            "json, schema",
            ORDER,
            JSONSerializer(schema=JSON_SCHEMA),
            JSONDeserializer(schema=JSON_SCHEMA),
            validated_write,
            validated_read,
        ),
        Case("avro", ORDER, AvroSerializer(AVRO), AvroDeserializer(AVRO), avro_write, avro_read),
        Case(
            "avro, schema in itself",
            TREE,
            AvroSerializer(AVRO_TREE),
            AvroDeserializer(AVRO_TREE),
            *fastavro_pair(AVRO_TREE),
        ),
        Case(
            "protobuf",
            ORDER,
            ProtobufSerializer(order),
            ProtobufDeserializer(order),
            protobuf_write,
            protobuf_read,
        ),
        Case("quix", ROW, QuixTimeseriesSerializer(), QuixDeserializer(), orjson.dumps, orjson.loads),
    ]
    if registry is not None:
        client = SchemaRegistryClientConfig(url=registry)
        settings: dict[str, Any] = {"schema_registry_client_config": client}
        found += [
            Case(
                "avro, registry",
                ORDER,
                AvroSerializer(AVRO, **settings),
                AvroDeserializer(**settings),
                *confluent_pair(registry),
            ),
            Case(
                "json, registry",
                ORDER,
                JSONSerializer(schema=JSON_SCHEMA, **settings),
                JSONDeserializer(**settings),
                validated_write,
                None,
            ),
            Case(
                "protobuf, registry",
                ORDER,
                ProtobufSerializer(order, **settings),
                ProtobufDeserializer(order, **settings),
                protobuf_write,
                None,
            ),
        ]
    return found


def confluent_pair(url: str) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    """Return functions that write and read with confluent-kafka's serializers."""
    from confluent_kafka.schema_registry import SchemaRegistryClient, topic_subject_name_strategy
    from confluent_kafka.schema_registry.avro import AvroDeserializer as TheirDeserializer
    from confluent_kafka.schema_registry.avro import AvroSerializer as TheirSerializer
    from confluent_kafka.serialization import MessageField as TheirField
    from confluent_kafka.serialization import SerializationContext

    client = SchemaRegistryClient({"url": url})
    options = {"subject.name.strategy": topic_subject_name_strategy}
    writer = TheirSerializer(client, json.dumps(AVRO), conf=options)
    reader = TheirDeserializer(client, conf=options)

    def write(value: Any) -> bytes:
        return bytes(writer(value, SerializationContext("bench", TheirField.VALUE)))

    return write, lambda data: reader(data, SerializationContext("bench", TheirField.VALUE))


def rates(calls: Sequence[Callable[[], Any] | None], seconds: float, rounds: int) -> list[float | None]:
    """Return calls per second of each function, the best of several rounds in turn."""
    best = [0.0] * len(calls)
    for _ in range(rounds):
        for place, call in enumerate(calls):
            if call is None:
                continue
            # Enough calls to make the cost of reading the clock negligible.
            done, chunk, begun = 0, 2000, time.process_time()
            while (spent := time.process_time() - begun) < seconds:
                for _ in range(chunk):
                    call()
                done += chunk
            best[place] = max(best[place], done / spent)
    return [rate or None for rate in best]


def ratio(ours: float | None, raw: float | None) -> str:
    """Return the speed of StreamRT relative to the underlying library."""
    return "" if ours is None or raw is None else f"{ours / raw:.2f}"


def measure(case: Case, seconds: float, rounds: int) -> list[object]:
    """Measure one format."""
    # A separate topic, so that the registry has a subject for each format.
    topic = case.name.replace(", ", "-").replace(" ", "-")
    write = case.serializer.bind(topic, MessageField.VALUE)
    read = case.deserializer.bind(topic, MessageField.VALUE)
    data = write(case.value, None)
    if data is None:
        raise ValueError(f"{case.name} writes no bytes")
    written: bytes = data
    split = case.deserializer.split_values

    def ours() -> Any:
        return list(read(written, None)) if split else read(written, None)

    raw_write, raw_read = case.raw_write, case.raw_read
    # The library reads its own bytes where those of StreamRT are framed.
    raw_data = written if raw_write is None else raw_write(case.value)
    found = rates(
        [
            lambda: write(case.value, None),
            None if raw_write is None else lambda: raw_write(case.value),
            ours,
            None if raw_read is None else lambda: raw_read(raw_data),
        ],
        seconds,
        rounds,
    )
    return [case.name, len(written), found[0], ratio(found[0], found[1]), found[2], ratio(found[2], found[3])]


def main() -> None:
    """Run the benchmark and print the figures."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=0.3, help="how long each measurement takes")
    options.add_argument("--rounds", type=int, default=3, help="rounds, of which the best counts")
    options.add_argument("--no-registry", action="store_true", help="leave out what needs a schema registry")
    chosen = options.parse_args()
    with ExitStack() as stack:
        registry = None if chosen.no_registry else stack.enter_context(EmbeddedSchemaRegistry()).url
        rows = [measure(case, chosen.seconds, chosen.rounds) for case in cases(registry)]
    common.show(
        f"one value, one process, Python {platform.python_version()}",
        ["format", "bytes", "written/s", "of raw", "read/s", "of raw"],
        rows,
    )
    common.console.print(
        "raw: the library alone (bytes, str, int: Python itself; json, quix: orjson; with a schema: jsonschema and orjson; "
        "avro: fastavro; protobuf: its own JSON form; avro with a registry: confluent-kafka's serializers)"
    )


if __name__ == "__main__":
    main()
