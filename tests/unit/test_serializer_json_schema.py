"""JSON Schema: what is checked when, what messages say, and that nothing is ever fetched."""

import http.server
import json
import pickle
import re
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import cloudpickle
import jsonschema
import pytest
import referencing
import referencing.jsonschema

from streamrt.errors import ConfigurationError, SerializationError
from streamrt.extras import install_command
from streamrt.serializers import JSONDeserializer, JSONSerializer, MessageField, SerializationContext
from streamrt.serializers.registry import (
    RegistrySchema,
    SchemaReference,
    SchemaRegistryClientConfig,
    SchemaRegistrySerializationConfig,
)

CONTEXT = SerializationContext("topic", MessageField.VALUE)
PERSON = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "additionalProperties": False,
}


class Canary(http.server.BaseHTTPRequestHandler):
    """Answers with a schema, and remembers who asked."""

    def do_GET(self) -> None:
        self.server.asked.append(self.path)  # type: ignore[attr-defined]
        body = b'{"type": "integer"}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def canary() -> Iterator[Any]:
    with http.server.HTTPServer(("127.0.0.1", 0), Canary) as server:
        server.asked = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.01))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def url(server: Any) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}/schema.json"


@pytest.mark.parametrize(
    "place",
    [
        lambda ref: {"$ref": ref},
        lambda ref: {"$ref": f"{ref}#/$defs/a"},
        lambda ref: {"properties": {"a": {"items": {"$ref": ref}}}},
        lambda ref: {"$defs": {"unused": {"anyOf": [{"$ref": ref}]}}},
        lambda ref: {"$id": ref, "properties": {"a": {"$ref": "other.json"}}},
        lambda ref: {"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"a": {"$ref": ref}}},
        lambda ref: {"$dynamicRef": ref},
    ],
)
def test_a_schema_that_refers_to_another_place_is_refused_and_nothing_is_fetched(canary: Any, place: Any) -> None:
    schema = place(url(canary))
    for kind in (JSONSerializer, JSONDeserializer):
        with pytest.raises(ConfigurationError, match=r"the JSON Schema refers to '(http|other).*never fetched"):
            kind(schema=schema)
    assert canary.asked == []


def test_a_reference_that_hides_from_the_check_is_not_fetched_either(canary: Any) -> None:
    # A `$dynamicRef` is looked up when a value gets there.
    schema = {"properties": {"a": {"$dynamicRef": url(canary)}}}
    with pytest.raises(SerializationError, match="the value cannot be validated"):
        JSONDeserializer(schema=schema)(b'{"a": 1}', CONTEXT)
    assert canary.asked == []


@pytest.mark.parametrize(
    "kind", [jsonschema.Draft202012Validator, jsonschema.Draft7Validator, jsonschema.Draft4Validator]
)
def test_a_validator_of_the_user_fetches_nothing_unless_it_was_told_to(canary: Any, kind: Any) -> None:
    read = JSONDeserializer(validator=kind({"$ref": url(canary)}))
    for deserializer in (read, pickle.loads(cloudpickle.dumps(read))):
        with pytest.raises(SerializationError, match="the validator refuses the value"):
            deserializer(b"1", CONTEXT)
    assert canary.asked == []


def test_a_validator_keeps_the_registry_that_it_was_made_with() -> None:
    resource = referencing.jsonschema.DRAFT202012.create_resource({"type": "integer"})
    registry = referencing.Registry().with_resource("http://example.invalid/int", resource)
    read = JSONDeserializer(
        validator=jsonschema.Draft202012Validator({"$ref": "http://example.invalid/int"}, registry=registry)
    )
    assert read(b"1", CONTEXT) == 1
    with pytest.raises(
        SerializationError, match="the value does not follow its JSON Schema at \\$: 'type' must be 'integer'"
    ):
        read(b'"1"', CONTEXT)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_validator_with_an_old_resolver_is_refused() -> None:
    resolver = jsonschema.RefResolver.from_schema({"type": "integer"})
    with pytest.raises(ConfigurationError, match="make it with registry= instead"):
        JSONDeserializer(validator=jsonschema.Draft7Validator({"type": "integer"}, resolver=resolver))


def test_local_references_work() -> None:
    schema = {
        "$id": "https://example.invalid/tree",
        "$ref": "#node",
        "$defs": {
            "node": {
                "$anchor": "node",
                "properties": {"children": {"items": {"$ref": "#/$defs/node"}}, "n": {"$ref": "int"}},
            },
            "int": {"$id": "int", "type": "integer"},
        },
    }
    read = JSONDeserializer(schema=schema)
    assert read(b'{"children": [{"n": 1}]}', CONTEXT) == {"children": [{"n": 1}]}
    with pytest.raises(SerializationError, match=r"at \$\.children\[0\]\.n: 'type' must be 'integer'"):
        read(b'{"children": [{"n": "1"}]}', CONTEXT)


def test_the_public_drafts_may_be_referred_to() -> None:
    read = JSONDeserializer(schema={"$ref": "https://json-schema.org/draft/2020-12/schema"})
    assert read(b'{"type": "object"}', CONTEXT) == {"type": "object"}
    with pytest.raises(SerializationError):
        read(b'{"type": 5}', CONTEXT)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "nonsense"}, r"is not valid at \$\.type: 'nonsense' is not valid"),
        ({"pattern": "("}, r"is not valid at \$\.pattern: '\(' is not a 'regex'"),
        ({"$ref": 5}, "is not valid at"),
        ({"$ref": "#/$defs/missing"}, "refers to .*missing', which is not in it"),
        ({"$ref": "#"}, "refers to itself without end"),
        ({"$schema": "https://example.invalid/draft-99"}, "has an unknown dialect"),
        ({"$schema": 5}, "is not valid at"),
        ({"a": object()}, "has no JSON form"),
        ({"a": float("nan")}, "has no JSON form"),
        (5, "is a mapping or a RegistrySchema, not a int"),
        ('{"type": "object"}', "is a mapping or a RegistrySchema, not a str"),
        (RegistrySchema("{"), "the text of the schema is not JSON"),
        (RegistrySchema("{}", (SchemaReference("a", "b", 1),)), "needs schema_registry_client_config"),
    ],
)
def test_a_wrong_schema_is_refused_when_the_serializer_is_made(schema: Any, message: str) -> None:
    for kind in (JSONSerializer, JSONDeserializer):
        with pytest.raises(ConfigurationError, match=message):
            kind(schema=schema)


def test_the_dialect_is_what_the_schema_says() -> None:
    old = {"$schema": "http://json-schema.org/draft-04/schema#", "maximum": 5, "exclusiveMaximum": True}
    with pytest.raises(SerializationError):
        JSONDeserializer(schema=old)(b"5", CONTEXT)
    with pytest.raises(ConfigurationError):
        JSONDeserializer(schema={**old, "$schema": "https://json-schema.org/draft/2020-12/schema"})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, r"at \$: 'name' is a required property"),
        ({"name": "secret", "agee": 5}, r"at \$: Additional properties are not allowed \('agee' was unexpected\)"),
        ({"name": "secret", "age": -1}, r"at \$\.age: 'minimum' must be 0"),
        ({"name": ["secret"]}, r"at \$\.name: 'type' must be 'string'"),
        ("secret", r"at \$: 'type' must be 'object'"),
    ],
)
def test_messages_name_the_place_and_the_rule_but_not_the_value(value: Any, message: str) -> None:
    calls: list[Any] = [
        lambda: JSONSerializer(schema=PERSON)(value, CONTEXT),
        lambda: JSONDeserializer(schema=PERSON)(json.dumps(value).encode(), CONTEXT),
        lambda: JSONSerializer(validator=jsonschema.Draft202012Validator(PERSON))(value, CONTEXT),
    ]
    for call in calls:
        with pytest.raises(
            SerializationError, match=f"^the value does not follow its JSON Schema {message}$"
        ) as caught:
            call()
        assert "secret" not in str(caught.value)


def test_a_schema_of_false_allows_nothing() -> None:
    with pytest.raises(SerializationError, match=r"at \$: no value is allowed"):
        JSONDeserializer(schema={"properties": {"a": False}})(b'{"a": 1}', CONTEXT)


def test_messages_are_short_whatever_the_value() -> None:
    name = "x" * 100_000
    with pytest.raises(SerializationError) as caught:
        JSONDeserializer(schema=PERSON)(json.dumps({"name": "a", name: 1}).encode(), CONTEXT)
    assert len(str(caught.value)) < 500


class Even:
    """A validator of the user."""

    def validate(self, value: Any) -> None:
        if value % 2:
            raise ValueError(f"{value} is odd")


def test_a_validator_may_be_any_object_that_raises() -> None:
    assert JSONSerializer(validator=Even())(2, CONTEXT) == b"2"
    for trouble in (3, "text"):
        with pytest.raises(SerializationError, match=r"the validator refuses the value: .+"):
            JSONSerializer(validator=Even())(trouble, CONTEXT)
    with pytest.raises(ConfigurationError, match="needs a method validate"):
        JSONDeserializer(validator=5)


def test_the_validator_counts_instead_of_the_schema() -> None:
    assert JSONDeserializer(schema=PERSON, validator=Even())(b"2", CONTEXT) == 2


def test_own_functions_go_with_a_schema() -> None:
    write = JSONSerializer(dumps=lambda value: json.dumps(value, indent=1), schema=PERSON)
    assert write({"name": "a"}, CONTEXT) == b'{\n "name": "a"\n}'
    read = JSONDeserializer(loads=json.loads, schema=PERSON)
    assert read(b'{"name": "a"}', CONTEXT) == {"name": "a"}
    with pytest.raises(SerializationError, match="the bytes are not JSON"):
        read(b"[" * 100_000, CONTEXT)


@pytest.mark.parametrize(
    ("items", "unique"),
    [
        ("[]", True),
        ('[1, true, 0, false, null, "1", ""]', True),
        ("[1, 1.0]", False),
        ('[{"a": 1, "b": [2]}, {"b": [2.0], "a": 1}]', False),
        ("[[1], [true]]", True),
        ("[[], {}]", True),
        ('[{"a": 0}, {"a": false}]', True),
        ("5", True),
    ],
)
def test_unique_items_are_compared_as_json(items: str, unique: bool) -> None:
    read = JSONDeserializer(schema={"uniqueItems": True})
    if unique:
        read(items.encode(), CONTEXT)
    else:
        with pytest.raises(SerializationError, match="'uniqueItems' must be True"):
            read(items.encode(), CONTEXT)
    assert jsonschema.Draft202012Validator({"uniqueItems": True}).is_valid(json.loads(items)) == unique


@pytest.mark.slow
def test_large_lists_of_objects_are_compared_in_no_time() -> None:
    data = json.dumps([{"a": number} for number in range(60_000)]).encode()
    begun = time.process_time()
    assert len(JSONDeserializer(schema={"uniqueItems": True})(data, CONTEXT)) == 60_000
    # Each with each would take many minutes.
    assert time.process_time() - begun < 60


def test_deep_values_are_refused() -> None:
    schema = {"properties": {"a": {"$ref": "#"}}}
    deep = b'{"a":' * 900 + b"1" + b"}" * 900
    # Long dataframes raise it.
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(1_000)
    try:
        with pytest.raises(SerializationError, match="nested too deeply"):
            JSONDeserializer(schema=schema)(deep, CONTEXT)
    finally:
        sys.setrecursionlimit(limit)


def test_a_changed_schema_changes_nothing_later() -> None:
    schema: dict[str, Any] = {"type": "integer"}
    read = JSONDeserializer(schema=schema)
    schema["type"] = "string"
    again = pickle.loads(cloudpickle.dumps(read))
    assert (read(b"1", CONTEXT), again(b"1", CONTEXT)) == (1, 1)


def test_registry_arguments_that_do_not_go_together_are_refused() -> None:
    registry = SchemaRegistryClientConfig(url="http://registry.invalid")
    settings = SchemaRegistrySerializationConfig()
    with pytest.raises(ConfigurationError, match="needs schema_registry_client_config"):
        JSONSerializer(schema=PERSON, schema_registry_serialization_config=settings)
    with pytest.raises(ConfigurationError, match="needs a schema, unless it takes one of the registry"):
        JSONSerializer(schema_registry_client_config=registry)
    latest = SchemaRegistrySerializationConfig(use_latest_version=True, auto_register_schemas=False)
    JSONSerializer(schema_registry_client_config=registry, schema_registry_serialization_config=latest)
    with pytest.raises(ConfigurationError, match="is only for Protobuf"):
        JSONSerializer(
            schema=PERSON,
            schema_registry_client_config=registry,
            schema_registry_serialization_config=SchemaRegistrySerializationConfig(skip_known_types=True),
        )
    with pytest.raises(ConfigurationError, match="give a SchemaRegistryClientConfig"):
        JSONDeserializer(schema_registry_client_config={"url": "x"})  # type: ignore[arg-type]


def test_whether_headers_are_written_depends_on_the_place_of_the_id() -> None:
    registry = SchemaRegistryClientConfig(url="http://registry.invalid")
    for place in ("prefix", "header"):
        settings = SchemaRegistrySerializationConfig(schema_id_location=place)
        write = JSONSerializer(
            schema=PERSON, schema_registry_client_config=registry, schema_registry_serialization_config=settings
        )
        assert write.writes_headers == (place == "header")
    assert not JSONSerializer(schema=PERSON).writes_headers


@pytest.mark.parametrize("package", ["jsonschema.validators", "referencing.exceptions"])
def test_without_its_packages_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigurationError, match=re.escape(f"run {install_command('json-schema')}")):
        JSONDeserializer(schema={**PERSON, "title": f"made without {package}"})
    assert JSONDeserializer()(b"1", CONTEXT) == 1
