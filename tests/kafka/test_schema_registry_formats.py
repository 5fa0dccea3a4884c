"""JSON and Protobuf with a real registry, in both directions with confluent-kafka's own serializers."""

import base64
import json
import pickle
import uuid
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import attrs
import cloudpickle
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, topic_subject_name_strategy
from confluent_kafka.schema_registry.json_schema import JSONDeserializer as TheirJSONDeserializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer as TheirJSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer as TheirProtobufDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer as TheirProtobufSerializer
from confluent_kafka.serialization import MessageField as TheirField
from confluent_kafka.serialization import SerializationContext as TheirContext
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.struct_pb2 import Struct
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamrt.errors import SchemaRegistryError, SerializationError
from streamrt.serializers import (
    JSONDeserializer,
    JSONSerializer,
    MessageField,
    ProtobufDeserializer,
    ProtobufSerializer,
    SerializationContext,
)
from streamrt.serializers.registry import (
    RegistrySchema,
    SchemaReference,
    SchemaRegistryClientConfig,
    SchemaRegistrySerializationConfig,
    open_registry,
    record_subject_name_strategy,
)
from streamrt.testing.registry import EmbeddedSchemaRegistry
from tests.messages import message_class

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Reading",
    "type": "object",
    "required": ["id"],
    "properties": {"id": {"type": "integer"}, "name": {"type": "string"}},
}
ORDER = message_class()
# Their default asks the registry about associations, which Apicurio does not know.
THEIRS = {"subject.name.strategy": topic_subject_name_strategy}
FIELDS = [(MessageField.KEY, TheirField.KEY), (MessageField.VALUE, TheirField.VALUE)]
HERE = st.builds(
    lambda n, name: {"id": n, "name": name}, st.integers(-(2**63), 2**63 - 1), st.text('aä€ "\\', max_size=5)
)
few = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def config(schema_registry: EmbeddedSchemaRegistry) -> SchemaRegistryClientConfig:
    return SchemaRegistryClientConfig(url=schema_registry.url)


@pytest.fixture
def client(schema_registry: EmbeddedSchemaRegistry) -> Iterator[Any]:
    with SchemaRegistryClient({"url": schema_registry.url}) as client:
        yield client


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid.uuid4().hex[:10]}"


def plain(value: Any, ctx: Any) -> Any:
    return value


class Serialized(SchemaRegistryClient):  # type: ignore[misc]
    """A client that gets Protobuf schemas as their reader wants them: as descriptors in base64.

    Confluent's registry gives them so when asked for the serialized form; Apicurio gives raw bytes, or fails.
    """

    descriptors: ClassVar[dict[str, bytes]] = {
        file.name: file.serialized_pb
        for file in (
            *(ORDER.DESCRIPTOR.file, message_class("shop.Price").DESCRIPTOR.file),
            *(Timestamp.DESCRIPTOR.file, Struct.DESCRIPTOR.file),
        )
    }

    def __init__(self, url: str, file: str) -> None:
        super().__init__({"url": url})
        self.file = file

    def get_schema(self, schema_id: int, *args: Any, **options: Any) -> Any:
        found = super().get_schema(schema_id)
        return Schema(self.base64(self.file), found.schema_type, found.references)

    def get_version(self, subject_name: str, version: Any, *args: Any, **options: Any) -> Any:
        found = super().get_version(subject_name, version)
        schema = Schema(self.base64(subject_name), found.schema.schema_type, found.schema.references)
        return attrs.evolve(found, schema=schema)

    def base64(self, file: str) -> str:
        return base64.b64encode(self.descriptors[file]).decode()


# -- JSON ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("field", "their_field"), FIELDS)
@given(value=HERE)
@few
def test_json_goes_both_ways(
    config: Any, client: Any, field: MessageField, their_field: str, value: dict[str, Any]
) -> None:
    topic = f"json-both-ways-{field.value}"
    context, their_context = SerializationContext(topic, field), TheirContext(topic, their_field)
    ours = JSONSerializer(schema=SCHEMA, schema_registry_client_config=config)(value, context)
    theirs = TheirJSONSerializer(json.dumps(SCHEMA), client, plain, THEIRS)(value, their_context)
    assert ours is not None
    # One schema, one id.
    assert ours[:5] == theirs[:5]
    assert TheirJSONDeserializer(None, None, client, THEIRS)(ours, their_context) == value
    assert JSONDeserializer(schema_registry_client_config=config)(theirs, context) == value


def test_json_is_validated_against_the_schema_that_it_was_written_with(config: Any, client: Any, topic: str) -> None:
    context = SerializationContext(topic, MessageField.VALUE)
    write = JSONSerializer(schema=SCHEMA, schema_registry_client_config=config)
    with pytest.raises(SerializationError, match="'id' is a required property"):
        write({"name": "a"}, context)
    unchecked = TheirJSONSerializer(json.dumps(SCHEMA), client, plain, conf={**THEIRS, "validate": False})
    data = unchecked({"name": "a"}, TheirContext(topic, TheirField.VALUE))
    with pytest.raises(SerializationError, match="'id' is a required property"):
        JSONDeserializer(schema_registry_client_config=config)(data, context)
    # A schema of one's own counts instead.
    assert JSONDeserializer(schema={}, schema_registry_client_config=config)(data, context) == {"name": "a"}


def test_json_with_the_latest_schema_of_the_registry(config: Any, topic: str) -> None:
    context = SerializationContext(topic, MessageField.VALUE)
    latest = SchemaRegistrySerializationConfig(use_latest_version=True, auto_register_schemas=False)
    write = JSONSerializer(schema_registry_client_config=config, schema_registry_serialization_config=latest)
    with pytest.raises(SchemaRegistryError, match=f"get the latest schema of the subject '{topic}-value'"):
        write({"id": 1}, context)
    found = open_registry(config).register(f"{topic}-value", RegistrySchema(json.dumps(SCHEMA)), "JSON")
    assert (write({"id": 1}, context) or b"")[:5] == b"\0" + (found.id or 0).to_bytes(4, "big")
    with pytest.raises(SerializationError, match="'type' must be 'integer'"):
        write({"id": "1"}, context)


def test_json_schemas_may_refer_to_others_of_the_registry(config: Any, client: Any, topic: str) -> None:
    registry = open_registry(config)
    draft = {"$schema": "http://json-schema.org/draft-07/schema#"}
    person = {**draft, "$id": "person.json", "type": "object", "required": ["name"]}
    known = registry.register(f"{topic}-person", RegistrySchema(json.dumps(person)), "JSON")
    version = known.version or registry.latest(f"{topic}-person").version or 0
    schema = RegistrySchema(
        json.dumps({**draft, "$id": "order.json", "type": "object", "properties": {"buyer": {"$ref": "person.json"}}}),
        (SchemaReference("person.json", f"{topic}-person", version),),
    )
    context = SerializationContext(topic, MessageField.VALUE)
    write = JSONSerializer(schema=schema, schema_registry_client_config=config)
    data = write({"buyer": {"name": "ann"}}, context) or b""
    with pytest.raises(SerializationError, match=r"at \$\.buyer: 'name' is a required property"):
        write({"buyer": {}}, context)
    read = JSONDeserializer(schema_registry_client_config=config)
    assert read(data, context) == {"buyer": {"name": "ann"}}
    with pytest.raises(SerializationError, match=r"at \$\.buyer: 'name' is a required property"):
        read(data[:5] + b'{"buyer": {}}', context)
    their_context = TheirContext(topic, TheirField.VALUE)
    assert TheirJSONDeserializer(None, None, client, THEIRS)(data, their_context) == {"buyer": {"name": "ann"}}


def test_a_json_schema_changes_as_the_registry_allows(config: Any, topic: str) -> None:
    context = SerializationContext(topic, MessageField.VALUE)
    open_registry(config).client.set_compatibility(subject_name=f"{topic}-value", level="BACKWARD")
    JSONSerializer(schema=SCHEMA, schema_registry_client_config=config)({"id": 1}, context)
    wrong = {**SCHEMA, "properties": {"id": {"type": "string"}}}
    with pytest.raises(SchemaRegistryError, match="compatible"):
        JSONSerializer(schema=wrong, schema_registry_client_config=config)({"id": "1"}, context)


def test_the_title_of_a_json_schema_names_its_subject(config: Any, topic: str) -> None:
    by_record = SchemaRegistrySerializationConfig(subject_name_strategy=record_subject_name_strategy)
    schema = {**SCHEMA, "title": f"Reading{uuid.uuid4().hex[:8]}"}
    write = JSONSerializer(
        schema=schema, schema_registry_client_config=config, schema_registry_serialization_config=by_record
    )
    write({"id": 1}, SerializationContext(topic, MessageField.VALUE))
    assert open_registry(config).latest(str(schema["title"])).type == "JSON"


# -- Protobuf --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["shop.Price", "shop.Order", "shop.Order.Line"])
@pytest.mark.parametrize(("field", "their_field"), FIELDS)
def test_protobuf_goes_both_ways(
    config: Any, client: Any, topic: str, field: MessageField, their_field: str, name: str
) -> None:
    kind = message_class(name)
    context, their_context = SerializationContext(topic, field), TheirContext(topic, their_field)
    values: dict[str, dict[str, Any]] = {
        "shop.Price": {"cents": "5"},
        "shop.Order": {"orderId": "7", "extra": {"a": [1.0, "x"]}, "madeAt": "2026-01-01T00:00:00Z"},
        "shop.Order.Line": {"sku": "ä", "n": -1},
    }
    value = values[name]
    ours = ProtobufSerializer(kind, schema_registry_client_config=config)(value, context) or b""
    message = ProtobufDeserializer(kind, to_dict=False, schema_registry_client_config=config)(ours, context)
    theirs = TheirProtobufSerializer(kind, client, {**THEIRS, "use.deprecated.format": False})(message, their_context)
    # Schemas are registered as text here and as descriptors there, so that ids differ.
    assert ours[5:] == theirs[5:]
    back = ProtobufDeserializer(kind, schema_registry_client_config=config)(theirs, context)
    assert {part: back[part] for part in value} == value
    with Serialized(config.url, kind.DESCRIPTOR.file.name) as serialized:
        read = TheirProtobufDeserializer(kind, {**THEIRS, "use.deprecated.format": False}, serialized)
        assert read(ours, their_context) == message


@pytest.mark.parametrize("name", ["shop.Price", "shop.Order.Line"])
def test_protobuf_with_indexes_in_the_deprecated_form(config: Any, topic: str, name: str) -> None:
    context = SerializationContext(topic, MessageField.VALUE)
    settings = SchemaRegistrySerializationConfig(use_deprecated_format=True)
    options: Any = {"schema_registry_client_config": config, "schema_registry_serialization_config": settings}
    data = ProtobufSerializer(message_class(name), **options)({}, context) or b""
    assert data[5:] == {"shop.Price": b"\0", "shop.Order.Line": b"\2\1\1"}[name]
    read = ProtobufDeserializer(message_class(name), to_dict=False, **options)
    assert read(data, context) == ProtobufDeserializer(message_class(name), to_dict=False)(b"", context)


def test_protobuf_without_the_known_types(config: Any, topic: str) -> None:
    context = SerializationContext(topic, MessageField.VALUE)
    settings = SchemaRegistrySerializationConfig(skip_known_types=True)
    options: Any = {"schema_registry_client_config": config, "schema_registry_serialization_config": settings}
    data = ProtobufSerializer(ORDER, **options)({"orderId": 1}, context) or b""
    found = open_registry(config).by_id(int.from_bytes(data[1:5], "big"))
    assert [reference.name for reference in found.schema.references] == ["shop/base.proto"]
    assert found.schema.text.startswith('syntax = "proto3";\npackage shop;\nimport "shop/base.proto";')


def test_a_protobuf_schema_changes_as_the_registry_allows(config: Any, topic: str) -> None:
    context = SerializationContext(topic, MessageField.VALUE)
    open_registry(config).client.set_compatibility(subject_name=f"{topic}-value", level="BACKWARD")

    def write(kind: int) -> bytes | None:
        file = FileDescriptorProto(name="reading.proto", syntax="proto3")
        file.message_type.add(name="Reading").field.add(name="n", number=1, label=1, type=kind)
        pool = DescriptorPool()
        pool.AddSerializedFile(file.SerializeToString())
        reading = GetMessageClass(pool.FindMessageTypeByName("Reading"))
        return ProtobufSerializer(reading, schema_registry_client_config=config)({"n": 1}, context)

    assert (write(Field.TYPE_INT64) or b"")[5:] == b"\0\x08\x01"
    with pytest.raises(SchemaRegistryError, match="compatible"):
        write(Field.TYPE_STRING)


def test_protobuf_needs_its_imports_where_nothing_is_registered(config: Any, topic: str) -> None:
    context = SerializationContext(topic, MessageField.VALUE)
    own = f"{topic}-import"
    settings = SchemaRegistrySerializationConfig(
        auto_register_schemas=False, reference_subject_name_strategy=Prefixed(own)
    )
    write = ProtobufSerializer(
        ORDER, schema_registry_client_config=config, schema_registry_serialization_config=settings
    )
    with pytest.raises(SchemaRegistryError, match=f"find the schema under the subject '{own}"):
        write({}, context)
    registering = SchemaRegistrySerializationConfig(reference_subject_name_strategy=Prefixed(own))
    first = ProtobufSerializer(
        ORDER, schema_registry_client_config=config, schema_registry_serialization_config=registering
    )({}, context)
    assert write({}, context) == first


class Prefixed:
    """A strategy for the subjects of imports."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def __call__(self, ctx: SerializationContext, reference: SchemaReference) -> str:
        return f"{self.prefix}-{reference.name}"


def test_generated_classes_of_the_known_types(config: Any, topic: str) -> None:
    context = SerializationContext(topic, MessageField.VALUE)
    data = ProtobufSerializer(Timestamp, schema_registry_client_config=config)(Timestamp(seconds=5), context) or b""
    read = ProtobufDeserializer(Timestamp, schema_registry_client_config=config)
    assert read(data, context) == "1970-01-01T00:00:05Z"


# -- Both ------------------------------------------------------------------------------------------------------------

Make = Callable[..., Any]
FORMATS: list[Any] = [
    pytest.param(lambda **o: JSONSerializer(schema=SCHEMA, **o), JSONDeserializer, {"id": 1}, id="json"),
    pytest.param(
        lambda **o: ProtobufSerializer(message_class("shop.Price"), **o),
        lambda **o: ProtobufDeserializer(message_class("shop.Price"), **o),
        {"cents": "1"},
        id="protobuf",
    ),
]


@pytest.mark.parametrize(("make_writer", "make_reader", "value"), FORMATS)
def test_serializers_travel_and_write_tombstones(
    config: Any, topic: str, make_writer: Make, make_reader: Make, value: Any
) -> None:
    context = SerializationContext(topic, MessageField.VALUE)
    write, read = make_writer(schema_registry_client_config=config), make_reader(schema_registry_client_config=config)
    data = write(value, context)
    far_write, far_read = pickle.loads(cloudpickle.dumps((write, read)))
    assert far_write(value, context) == data
    assert read(data, context) == far_read(data, context) == value
    assert (write(None, context), far_write.bind(topic, MessageField.KEY)(None, None)) == (None, None)


@pytest.mark.parametrize(("make_writer", "make_reader", "value"), FORMATS)
def test_the_id_of_the_schema_may_be_in_a_header(
    config: Any, topic: str, make_writer: Make, make_reader: Make, value: Any
) -> None:
    settings = SchemaRegistrySerializationConfig(schema_id_location="header")
    write = make_writer(schema_registry_client_config=config, schema_registry_serialization_config=settings)
    headers: list[Any] = [("own", b"x")]
    data = write.bind(topic, MessageField.VALUE)(value, headers)
    assert [name for name, _ in headers] == ["own", "__value_schema_id"]
    read = make_reader(schema_registry_client_config=config).bind(topic, MessageField.VALUE)
    assert read(data, headers) == value
    with pytest.raises(SerializationError):
        read(data, None)


@pytest.mark.parametrize(("make_writer", "make_reader", "value"), FORMATS)
@pytest.mark.parametrize(
    "damage", [b"", b"\0", b"\0\0\0\0", b"\2\0\0\0\1{}", b"{}", b"\0\x7f\xff\xff\xff{}", b"\1" * 9]
)
def test_bad_frames_are_refused(
    config: Any, topic: str, make_writer: Make, make_reader: Make, value: Any, damage: bytes
) -> None:
    with pytest.raises(SerializationError):
        make_reader(schema_registry_client_config=config)(damage, SerializationContext(topic, MessageField.VALUE))


def test_a_schema_of_another_format_is_refused(config: Any, topic: str) -> None:
    context = SerializationContext(topic, MessageField.VALUE)
    data = JSONSerializer(schema=SCHEMA, schema_registry_client_config=config)({"id": 1}, context) or b""
    with pytest.raises(SerializationError, match="is of type JSON, but PROTOBUF is expected"):
        ProtobufDeserializer(ORDER, schema_registry_client_config=config)(data, context)
