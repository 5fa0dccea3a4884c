"""How `streamrt consume` shows values that need a schema."""

import json
from pathlib import Path

import pytest
import typer
from google.protobuf.struct_pb2 import Struct

from streamrt.cli.records.record_values import ReadFormat
from streamrt.cli.records.schemas import decoders
from streamrt.errors import ConfigurationError, SerializationError
from tests.unit.registries import Answer, RegistryDouble

MESSAGE = "google.protobuf.struct_pb2:Struct"
PROTOBUF, AUTO = ReadFormat.protobuf, ReadFormat.auto


def message() -> bytes:
    made = Struct()
    made["celsius"] = 31.5
    return made.SerializeToString()


def test_messages_are_shown_as_json() -> None:
    value, key = decoders("topic", PROTOBUF, AUTO, None, None, MESSAGE)
    shown, form = value(message(), [])
    assert (json.loads(shown), form) == ({"celsius": 31.5}, "json")
    assert key(b"ann", []) == ("ann", "string")
    with pytest.raises(SerializationError, match=r"are not a google\.protobuf\.Struct"):
        value(b"\xff\xff", [])


def test_messages_with_the_id_of_a_registry() -> None:
    def answers(method: str, path: str, body: object) -> Answer:
        assert path == "/schemas/ids/7"
        return 200, {"schema": 'syntax = "proto3"; message M {}', "schemaType": "PROTOBUF"}

    with RegistryDouble(answers) as registry:
        value, _ = decoders("topic", PROTOBUF, AUTO, registry.url, None, MESSAGE)
        # Magic byte, schema id, and the path to the first message of the schema.
        assert json.loads(value(b"\x00\x00\x00\x00\x07\x00" + message(), [])[0]) == {"celsius": 31.5}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (None, "needs the class of the messages, which no registry has"),
        ("orders_pb2", "names no message class"),
        ("no_such_module_pb2:Order", "module 'no_such_module_pb2' was not found"),
        ("google.protobuf.struct_pb2:Order", "is nothing, and not a class of Protobuf messages"),
        ("json:dumps", "a value of type function, and not a class of Protobuf messages"),
    ],
)
def test_what_is_no_class_of_messages_is_one_sentence(name: str | None, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        decoders("topic", PROTOBUF, AUTO, None, None, name)


def test_a_nested_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nested_pb2.py").write_text(
        "from google.protobuf.struct_pb2 import Struct\nclass Outer:\n    Inner = Struct\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    value, _ = decoders("topic", PROTOBUF, AUTO, None, None, "nested_pb2:Outer.Inner")
    assert json.loads(value(message(), [])[0]) == {"celsius": 31.5}


def test_options_without_their_format_are_refused() -> None:
    with pytest.raises(typer.BadParameter, match="protobuf alone"):
        decoders("topic", AUTO, AUTO, None, None, MESSAGE)
    with pytest.raises(typer.BadParameter, match="avro, json-schema and protobuf alone"):
        decoders("topic", AUTO, AUTO, "http://registry", None)
