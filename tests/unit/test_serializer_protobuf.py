"""Protobuf: dicts and messages, and classes that travel to other processes."""

import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import Timestamp
from google.protobuf.wrappers_pb2 import StringValue

from streamrt.errors import ConfigurationError, SerializationError
from streamrt.extras import install_command
from streamrt.serializers import MessageField, ProtobufDeserializer, ProtobufSerializer, SerializationContext
from streamrt.serializers.protobuf import _end_of_indexes, _index_bytes, _message_indexes
from streamrt.serializers.registry import SchemaRegistryClientConfig, SchemaRegistrySerializationConfig
from tests.messages import message_class
from tests.unit.apps import Stage

ROOT = Path(__file__).resolve().parents[2]
CONTEXT = SerializationContext("topic", MessageField.VALUE)
ORDER = message_class()
REGISTRY = SchemaRegistryClientConfig(url="http://registry.invalid")


def written(value: Any, **options: Any) -> Any:
    return ProtobufSerializer(ORDER, **options)(value, CONTEXT)


def read(data: bytes, **options: Any) -> Any:
    return ProtobufDeserializer(ORDER, **options)(data, CONTEXT)


DATA = written({"order_id": 5, "colour": "BLUE", "data": "AP8=", "total": "NaN", "lines": [{"sku": "a"}], "parent": {}})


def test_dicts_follow_the_json_mapping() -> None:
    value = read(DATA)
    assert (value["orderId"], value["colour"], value["data"], value["total"]) == ("5", "BLUE", "AP8=", "NaN")
    assert value["lines"] == [{"sku": "a", "n": 0}]
    assert (value["buyer"], value["numbers"], value["weights"]) == ("", [], {})
    assert "price" not in value
    assert value["parent"]["orderId"] == "0"


def test_the_names_of_the_proto_file_can_be_kept() -> None:
    value = read(DATA, preserving_proto_field_name=True)
    assert value["order_id"] == "5"
    assert "orderId" not in value


def test_enums_can_be_numbers() -> None:
    assert read(DATA, use_integers_for_enums=True)["colour"] == 2
    assert read(b"\x18\x09")["colour"] == 9


def test_messages_can_be_had_instead_of_dicts() -> None:
    message = read(DATA, to_dict=False)
    assert isinstance(message, ORDER)
    assert (message.order_id, message.data) == (5, b"\0\xff")
    assert written(message) == DATA


def test_unknown_fields_of_bytes_are_left_out_and_those_of_dicts_refused() -> None:
    assert read(b"\x9a\x06\x01x") == read(b"")
    with pytest.raises(SerializationError, match=r"the value is not a shop\.Order: .*no field named \"nope\""):
        written({"nope": 1})
    assert written({"nope": 1, "buyer": "a"}, ignore_unknown_fields=True) == b"\x12\x01a"


def test_deterministic_bytes_have_sorted_maps() -> None:
    weights = {f"{number:02}": 1.0 for number in range(50)}
    backwards = dict(reversed(weights.items()))
    assert written({"weights": weights}, deterministic=True) == written({"weights": backwards}, deterministic=True)


def test_none_is_a_tombstone() -> None:
    assert written(None) is None


@pytest.mark.parametrize("value", [Timestamp(seconds=1), message_class("shop.Price")(cents=1)])
def test_messages_of_another_type_are_refused(value: Any) -> None:
    with pytest.raises(SerializationError, match=r"the protobuf serializer of shop\.Order got a (google|shop\.Price)"):
        written(value)


def test_a_message_of_another_class_of_the_same_type_is_taken() -> None:
    pool = DescriptorPool()
    pool.AddSerializedFile(StringValue.DESCRIPTOR.file.serialized_pb)
    twin = GetMessageClass(pool.FindMessageTypeByName("google.protobuf.StringValue"))
    assert twin is not StringValue
    assert ProtobufSerializer(StringValue)(twin(value="a"), CONTEXT) == b"\n\x01a"


@pytest.mark.parametrize("given", [5, None, "shop.Order", Message, ORDER(), dict, ORDER.DESCRIPTOR])
def test_what_is_no_message_class_is_refused_at_once(given: Any) -> None:
    for kind in (ProtobufSerializer, ProtobufDeserializer):
        with pytest.raises(ConfigurationError, match="msg_type must be a class of Protobuf messages"):
            kind(given)


def test_without_its_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.protobuf.message", None)
    with pytest.raises(ConfigurationError, match=re.escape(f"run {install_command('protobuf')}")):
        ProtobufDeserializer(ORDER)


def test_a_message_that_lacks_what_is_required_is_refused() -> None:
    file = FileDescriptorProto(name="old.proto", syntax="proto2")
    field = file.message_type.add(name="Old").field.add(name="n", number=1)
    field.type, field.label = FieldDescriptorProto.TYPE_INT32, FieldDescriptorProto.LABEL_REQUIRED
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    old = GetMessageClass(pool.FindMessageTypeByName("Old"))
    assert ProtobufSerializer(old)({"n": 1}, CONTEXT) == b"\x08\x01"
    for value in (dict[str, Any](), old()):
        with pytest.raises(SerializationError, match=r"the value is not a Old: .*n"):
            ProtobufSerializer(old)(value, CONTEXT)


@pytest.mark.parametrize("data", [b"\x5a\x00", b"\x5a\x02\x5a\x00"])
def test_messages_within_themselves_are_read(data: bytes) -> None:
    assert "parent" in read(data)


def test_messages_that_are_too_deep_are_refused() -> None:
    data = b""
    for _ in range(150):
        length = len(data)
        data = b"\x5a" + (bytes([length]) if length < 128 else bytes([length & 127 | 128, length >> 7])) + data
    for options in ({}, {"to_dict": False}):
        with pytest.raises(SerializationError, match=r"the bytes are not a shop\.Order: .+"):
            read(data, **options)
    value: dict[str, Any] = {}
    for _ in range(150):
        value = {"parent": value}
    with pytest.raises(SerializationError, match=r"the value is not a shop\.Order: .+"):
        written(value)


# -- Classes in other processes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dump", [pickle.dumps, cloudpickle.dumps])
def test_a_generated_class_travels_by_name(dump: Any) -> None:
    data = dump(ProtobufDeserializer(DescriptorProto.ExtensionRange, to_dict=False))
    assert b"google.protobuf.descriptor_pb2" in data
    assert len(data) < 1_000
    assert isinstance(pickle.loads(data)(b"\x08\x01", CONTEXT), DescriptorProto.ExtensionRange)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["shop.Order", "shop.Order.Line", "shop.Price"])
def test_a_class_made_at_run_time_travels_with_its_descriptors(name: str, tmp_path: Path) -> None:
    kind = message_class(name)
    data = cloudpickle.dumps(
        (ProtobufSerializer(kind), ProtobufDeserializer(kind), ProtobufDeserializer(kind, to_dict=False))
    )
    (tmp_path / "pickle").write_bytes(data)
    program = (
        "import pickle, sys; from streamrt.serializers import *; c = SerializationContext('t', MessageField.VALUE); "
        "w, r, m = pickle.load(open(sys.argv[1], 'rb')); v = r(b'', c); assert w(v, c) == b'', v; "
        "assert w(m(b'', c), c) == b''; print(type(m(b'', c)).DESCRIPTOR.full_name)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "pickle")],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == (f"{name}\n", "")


def test_copies_in_one_process_share_their_class() -> None:
    first, second = (pickle.loads(pickle.dumps(ProtobufDeserializer(ORDER, to_dict=False))) for _ in range(2))
    assert type(first(b"", CONTEXT)) is type(second(b"", CONTEXT))
    # The serializer that stayed here takes what a copy made.
    assert written(first(DATA, CONTEXT)) == DATA


@pytest.mark.usefixtures("processing_mode")
def test_records_go_through_a_dataframe() -> None:
    # As key and as value; the driver sends the application through a pickle.
    stage = Stage(
        {"value_deserializer": ProtobufDeserializer(ORDER), "value_serializer": ProtobufSerializer(ORDER)},
        {
            "key_serializer": ProtobufSerializer(message_class("shop.Price")),
            "key_deserializer": ProtobufDeserializer(message_class("shop.Price")),
            "value_serializer": ProtobufSerializer(ORDER),
            "value_deserializer": ProtobufDeserializer(ORDER, to_dict=False),
        },
    )
    stage.sdf["colour"] = "RED"
    stage.sdf.to_topic(stage.out, key=lambda value: {"cents": value["orderId"]})
    driver = stage.drive()
    driver.pipe("in", {"order_id": 7})
    (record,) = driver.read("out")
    assert (record.raw_key, record.key) == (b"\x08\x07", {"cents": "7"})
    assert (record.value.order_id, record.value.colour) == (7, 1)


# -- The framing of schema registries --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "indexes", "data", "deprecated"),
    [
        ("shop.Price", [0], b"\0", b"\0"),
        ("shop.Other", [0], b"\0", b"\0"),
        ("shop.Order", [1], b"\x02\x02", b"\x01\x01"),
        ("shop.Order.Nothing", [1, 0], b"\x04\x02\x00", b"\x02\x01\x00"),
        ("shop.Order.Line", [1, 1], b"\x04\x02\x02", b"\x02\x01\x01"),
    ],
)
def test_message_indexes_say_where_a_type_is_in_its_file(
    name: str, indexes: list[int], data: bytes, deprecated: bytes
) -> None:
    assert _message_indexes(message_class(name).DESCRIPTOR) == indexes
    assert (_index_bytes(indexes, False), _index_bytes(indexes, True)) == (data, deprecated)
    assert _end_of_indexes(data + b"rest", False) == len(data)
    assert _end_of_indexes(deprecated + b"rest", True) == len(deprecated)


def test_large_indexes_take_several_bytes() -> None:
    for indexes in ([300], [0, 70, 8_000]):
        for deprecated in (False, True):
            data = _index_bytes(indexes, deprecated)
            assert _end_of_indexes(data + b"\x08\x01", deprecated) == len(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x02",
        b"\x01",
        b"\x02\x01",
        b"\x80" * 11,
        b"\xff" * 9 + b"\x01",
        b"\xd0\x01" + b"\0" * 104,
        b"\x04\x02\x80",
    ],
)
def test_damaged_indexes_are_refused(data: bytes) -> None:
    with pytest.raises(SerializationError, match=r"message ind"):
        _end_of_indexes(data, False)


def test_registry_arguments_that_do_not_go_together_are_refused() -> None:
    settings = SchemaRegistrySerializationConfig(use_deprecated_format=True)
    for kind in (ProtobufSerializer, ProtobufDeserializer):
        with pytest.raises(ConfigurationError, match="needs schema_registry_client_config"):
            kind(ORDER, schema_registry_serialization_config=settings)
        kind(ORDER, schema_registry_client_config=REGISTRY, schema_registry_serialization_config=settings)
    with pytest.raises(ConfigurationError, match="normalize_schemas is only for serializers"):
        ProtobufDeserializer(
            ORDER,
            schema_registry_client_config=REGISTRY,
            schema_registry_serialization_config=SchemaRegistrySerializationConfig(normalize_schemas=True),
        )


def test_whether_headers_are_written_depends_on_the_place_of_the_id() -> None:
    settings = SchemaRegistrySerializationConfig(schema_id_location="header")
    given: Any = {"schema_registry_client_config": REGISTRY, "schema_registry_serialization_config": settings}
    assert ProtobufSerializer(ORDER, **given).writes_headers
    assert not ProtobufSerializer(ORDER).writes_headers
