"""Records that `streamrt produce` writes with a schema, and that `streamrt consume` shows again."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from streamrt.cli.records.record_values import ReadFormat, WriteFormat
from streamrt.cli.records.schema_writing import encoders
from streamrt.cli.records.schemas import decoders
from streamrt.errors import ConfigurationError, SchemaRegistryError, SerializationError
from tests.unit.registries import KeepingRegistry

STRING, AVRO, JSON_SCHEMA, PROTOBUF = (
    WriteFormat.string,
    WriteFormat.avro,
    WriteFormat.json_schema,
    WriteFormat.protobuf,
)
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        {"name": "photo", "type": ["null", "bytes"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "wish", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "size", "type": ["null", {"type": "enum", "name": "Size", "symbols": ["S", "M"]}, "string"]},
        {"name": "parts", "type": {"type": "array", "items": ["long", "Size", {"type": "map", "values": "double"}]}},
        {"name": "next", "type": ["null", "Order"], "default": None},
    ],
}
VALUE: dict[str, Any] = {
    "id": 21,
    "price": "12.50",
    "photo": "cafe",
    "at": "2026-11-23T12:30:11.000250+00:00",
    "day": "2026-11-23",
    "wish": "12345678-1234-5678-1234-567812345678",
    "size": "M",
    "parts": [1, "S", {"a": 0.5}],
    "next": None,
}


@pytest.fixture
def registry() -> Iterator[KeepingRegistry]:
    with KeepingRegistry() as made:
        yield made


def shown(data: bytes | None, read_format: ReadFormat, registry: KeepingRegistry, message: str | None = None) -> Any:
    assert data is not None
    show, _ = decoders("orders", read_format, ReadFormat.auto, registry.url, None, message)
    return json.loads(show(data, [])[0])


def test_avro_of_a_file_is_registered(registry: KeepingRegistry, tmp_path: Path) -> None:
    path = tmp_path / "order.avsc"
    path.write_text(json.dumps(ORDER))
    write, _ = encoders("orders", AVRO, STRING, registry.url, None, path)
    assert registry.subjects == {}
    data = write(json.dumps({**VALUE, "next": {**VALUE, "price": 7, "photo": None, "size": "big"}}).encode())
    assert list(registry.subjects) == ["orders-value"]
    again = shown(data, ReadFormat.avro, registry)
    assert again == {**VALUE, "next": {**VALUE, "price": "7.00", "photo": None, "size": "big"}}
    # What is shown can be written again.
    assert write(json.dumps(again).encode()) == data
    assert write(b"null") is None


def test_the_latest_schema_of_the_subject_is_taken(registry: KeepingRegistry) -> None:
    registry.keep("orders-value", ORDER, "AVRO")
    registry.keep("orders-key", '"string"', "AVRO")
    write, write_key = encoders("orders", AVRO, AVRO, registry.url, None)
    # With zone, without zone, and as the number that Avro has; a field with a default may be missing.
    for at in ("2026-11-23T12:30:11.00025Z", "2026-11-23T12:30:11.000250", 1_795_437_011_000_250):
        value = {**VALUE, "at": at}
        del value["next"]
        assert shown(write(json.dumps(value).encode()), ReadFormat.avro, registry) == VALUE
    assert write_key(b'"ann"') == b"\x00\x00\x00\x00\x02\x06ann"
    with pytest.raises(SerializationError, match="a text has quotation marks"):
        write_key(b"ann")
    assert not any(request.startswith("POST") for request in registry.requests)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"price": "cheap"}, "'cheap' is not a decimal number"),
        ({"at": "soon"}, "'soon' is not a time in ISO 8601"),
        ({"wish": "none"}, "'none' is not a UUID"),
        ({"id": "x"}, "does not fit the Avro schema of shop.Order"),
        ({"parts": ["L"]}, "does not fit the Avro schema"),
        ({"colour": "red"}, "does not fit the Avro schema"),
    ],
)
def test_values_that_do_not_fit(registry: KeepingRegistry, change: dict[str, Any], why: str) -> None:
    registry.keep("orders-value", ORDER, "AVRO")
    write, _ = encoders("orders", AVRO, STRING, registry.url, None)
    with pytest.raises(SerializationError, match=why):
        write(json.dumps({**VALUE, **change}).encode())


def test_json_with_a_schema(registry: KeepingRegistry, tmp_path: Path) -> None:
    path = tmp_path / "order.json"
    path.write_text('{"type": "object", "required": ["id"]}')
    for schema in (path, None):
        write, key = encoders("orders", JSON_SCHEMA, WriteFormat.json, registry.url, None, schema)
        assert write(b'{"id": 1}') == b'\x00\x00\x00\x00\x01{"id":1}'
        with pytest.raises(SerializationError, match="id"):
            write(b"{}")
        assert key(b"1") == b"1"


def test_messages_of_a_class(registry: KeepingRegistry) -> None:
    message = "google.protobuf.wrappers_pb2:StringValue"
    plain, _ = encoders("orders", PROTOBUF, STRING, None, None, None, None, message)
    assert plain(b'"a"') == b"\n\x01a"
    write, _ = encoders("orders", PROTOBUF, STRING, registry.url, None, None, None, message)
    data = write(b'"a"')
    assert data is not None
    assert data.startswith(b"\x00\x00\x00\x00\x01")
    assert data.endswith(b"\n\x01a")
    assert shown(data, ReadFormat.protobuf, registry, message) == "a"


def test_what_is_missing_is_one_sentence(registry: KeepingRegistry, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="the format avro needs a schema registry: pass --registry URL"):
        encoders("orders", AVRO, STRING, None, None)
    with pytest.raises(ConfigurationError, match="needs the class of the messages"):
        encoders("orders", PROTOBUF, STRING, None, None)
    with pytest.raises(SchemaRegistryError, match="'orders-value'"):
        encoders("orders", AVRO, STRING, registry.url, None)
    registry.keep("orders-value", "{}", "JSON")
    with pytest.raises(ConfigurationError, match="is of type JSON, and not AVRO"):
        encoders("orders", AVRO, STRING, registry.url, None)
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        encoders("orders", AVRO, STRING, registry.url, None, tmp_path / "none.avsc")
    (tmp_path / "wrong.avsc").write_text('{"type": "record"}')
    with pytest.raises(ConfigurationError, match=r"wrong\.avsc cannot be used"):
        encoders("orders", AVRO, STRING, registry.url, None, tmp_path / "wrong.avsc")


def test_options_without_effect_are_refused(tmp_path: Path) -> None:
    with pytest.raises(typer.BadParameter, match="avro, json-schema and protobuf alone"):
        encoders("orders", STRING, STRING, "http://registry", None)
    with pytest.raises(typer.BadParameter, match="protobuf alone"):
        encoders("orders", AVRO, STRING, "http://registry", None, None, None, "orders_pb2:Order")
    with pytest.raises(typer.BadParameter, match="it has no effect"):
        encoders("orders", STRING, STRING, None, None, tmp_path / "a.avsc")
    with pytest.raises(typer.BadParameter, match="protobuf takes its schema from --message"):
        encoders("orders", STRING, PROTOBUF, None, None, None, tmp_path / "a.avsc", "orders_pb2:Order")
