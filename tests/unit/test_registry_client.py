"""The schema registry's client and wire format, against a double that answers as it is told."""

import pickle
import re
import socket
import sys
import traceback
import uuid
from pathlib import Path
from typing import Any

import pytest

from streamrt.errors import (
    ConfigurationError,
    SchemaRegistryError,
    SchemaRegistryUnavailableError,
    SerializationError,
)
from streamrt.extras import install_command
from streamrt.models import Headers
from streamrt.serializers import MessageField, SerializationContext
from streamrt.serializers.avro import AvroDeserializer, AvroSerializer
from streamrt.serializers.registry import (
    KEY_SCHEMA_ID_HEADER,
    VALUE_SCHEMA_ID_HEADER,
    RegistrySchema,
    SchemaReference,
    SchemaRegistry,
    SchemaRegistryClientConfig,
    SchemaRegistrySerializationConfig,
    open_registry,
    record_subject_name_strategy,
    topic_record_subject_name_strategy,
)
from tests.unit.registries import Answer, RegistryDouble, always

CTX = SerializationContext("orders", MessageField.VALUE)
ORDER = {"type": "record", "name": "Order", "namespace": "shop", "fields": [{"name": "id", "type": "int"}]}
GUID = uuid.UUID(int=12345)
SECRET = "sesame"


def config(**settings: Any) -> SchemaRegistryClientConfig:
    return SchemaRegistryClientConfig(**{"url": "http://registry:8081", **settings})


# -- Settings --------------------------------------------------------------------------------------------------------


def test_secrets_are_shown_nowhere() -> None:
    for settings in (
        {"url": f"https://shop:{SECRET}@registry:8081"},
        {"basic_auth_user_info": f"shop:{SECRET}"},
        {
            "bearer_auth_credentials_source": "STATIC_TOKEN",
            "bearer_auth_token": SECRET,
            "bearer_auth_logical_cluster": "lsrc-1",
        },
        {"ssl_certificate_location": "client.pem", "ssl_key_password": SECRET},
        {"proxy": f"http://me:{SECRET}@proxy:3128"},
    ):
        made = config(**settings)
        shown = f"{made!r} {made} {made.as_dict()} {AvroSerializer('int', schema_registry_client_config=made)!r}"
        assert SECRET not in shown
        assert "***" in str(made.as_dict())
        assert SECRET in str(made.as_dict(plaintext_secrets=True))


def test_credentials_of_the_url_are_moved() -> None:
    made = config(url="https://a%40b:c%3Ad@one:8081/,https://a%40b:c%3Ad@two:8081/path/")
    assert made.url == "https://one:8081,https://two:8081/path"
    assert made.as_dict(plaintext_secrets=True)["basic.auth.user.info"] == "a@b:c:d"
    assert made == pickle.loads(pickle.dumps(made))
    assert hash(made) == hash(pickle.loads(pickle.dumps(made)))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"url": ""}, "url"),
        ({"url": "registry:8081"}, "url must look like http://host:8081"),
        ({"url": "mock://x"}, "url must look like"),
        ({"url": "http://registry?x=1"}, "no query"),
        ({"url": f"http://{SECRET}@registry"}, "user:password"),
        ({"url": f"http://a:{SECRET}@one,http://b:{SECRET}@two"}, "must be the same"),
        ({"url": f"http://a:{SECRET}@one", "basic_auth_user_info": "a:b"}, "given twice"),
        ({"basic_auth_user_info": SECRET}, "user:password"),
        ({"basic_auth_user_info": "a:b", "basic_auth_user_info_location": "x"}, "not both"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": True}, "timeout: must not be True"),
        ({"max_retries": -1}, "max_retries"),
        ({"ssl_key_location": "x"}, "need ssl_certificate_location"),
        ({"bearer_auth_token": SECRET}, "bearer_auth_token needs bearer_auth_credentials_source"),
        ({"bearer_auth_credentials_source": "STATIC_TOKEN"}, "needs bearer_auth_token, bearer_auth_logical_cluster"),
        ({"password": SECRET}, "password: no such setting"),
    ],
    ids=lambda part: str(part)[:40],
)
def test_settings_that_cannot_be_used_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason) as caught:
        config(**settings)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_credentials_can_stay_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "registry.txt"
    made = config(basic_auth_user_info_location=str(file))
    serializer = AvroSerializer("int", schema_registry_client_config=made)
    with pytest.raises(SchemaRegistryError, match=r"registry.txt cannot be read: No such file"):
        serializer(1, CTX)
    file.write_text(SECRET)
    with pytest.raises(SchemaRegistryError, match=r"registry.txt must hold user:password") as caught:
        serializer(1, CTX)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    file.write_text(f"shop:{SECRET}\n")
    assert made.as_dict(plaintext_secrets=True)["basic.auth.user.info"] == f"shop:{SECRET}"
    assert made.as_dict()["basic.auth.user.info"] == "***"
    assert SECRET.encode() not in pickle.dumps(serializer)


def test_settings_do_not_change() -> None:
    made = config()
    with pytest.raises(ConfigurationError, match="url cannot be changed") as caught:
        made.url = SECRET
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"use_latest_version": True}, "use_latest_version needs auto_register_schemas=False"),
        ({"use_schema_id": 5}, "use_schema_id needs auto_register_schemas=False"),
        ({"use_schema_id": 5, "use_latest_version": True, "auto_register_schemas": False}, "not both"),
        ({"schema_id_location": "trailer"}, "schema_id_location"),
        ({"use_schema_id": 2**31}, "use_schema_id"),
        ({"subject_name_strategy": "topic"}, "subject_name_strategy"),
    ],
    ids=str,
)
def test_wishes_that_contradict_each_other_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        SchemaRegistrySerializationConfig(**settings)


def test_what_is_for_protobuf_alone_is_refused_elsewhere() -> None:
    for name in ("skip_known_types", "use_deprecated_format"):
        option: dict[str, Any] = {name: True}
        wishes = SchemaRegistrySerializationConfig(**option)
        with pytest.raises(ConfigurationError, match=f"{name} is only for Protobuf"):
            AvroSerializer(ORDER, schema_registry_client_config=config(), schema_registry_serialization_config=wishes)


def test_a_serialization_config_needs_a_client_config() -> None:
    with pytest.raises(ConfigurationError, match="needs schema_registry_client_config"):
        AvroSerializer(ORDER, schema_registry_serialization_config=SchemaRegistrySerializationConfig())


def test_certificates_that_cannot_be_read_are_told_when_the_registry_is_needed(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="settings of the schema registry http://registry:8081 cannot be used"):
        open_registry(config(ssl_ca_location=str(tmp_path / "missing.pem")))


# -- What the registry answers ---------------------------------------------------------------------------------------


def knows(method: str, path: str, body: Any) -> Answer:
    """Answer like a registry with one schema."""
    text = '{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"id","type":"int"}]}'
    if method == "POST":
        return 200, {"id": 7, "guid": str(GUID), "version": 1, "subject": path.split("/")[2]}
    if path in ("/schemas/ids/7", f"/schemas/guids/{GUID}"):
        return 200, {"schema": text}
    if path == "/schemas/ids/8":
        return 200, {"schema": '{"type": "object"}', "schemaType": "JSON"}
    if path == "/schemas/ids/9":
        return 200, {"schema": '{"type": "record"}'}
    if path.endswith("/versions/latest"):
        return 200, {"schema": text, "id": 7, "guid": str(GUID), "version": 1, "subject": path.split("/")[2]}
    return 404, {"error_code": 40403, "message": "Schema not found"}


def test_the_registry_is_asked_once_for_each_schema() -> None:
    with RegistryDouble(knows) as double:
        client = double.config()
        writer = AvroSerializer(ORDER, schema_registry_client_config=client)
        reader = AvroDeserializer(schema_registry_client_config=client)
        write, read = writer.bind("orders", MessageField.VALUE), reader.bind("orders", MessageField.VALUE)
        assert double.requests == []
        for number in range(50):
            data = write({"id": number}, None)
            assert data == writer({"id": number}, CTX)
            assert data is not None
            assert data[:5] == b"\0\0\0\0\7"
            assert read(data, None) == reader(data, CTX) == {"id": number}
        assert double.requests == ["POST /subjects/orders-value/versions", "GET /schemas/ids/7"]


def test_a_process_has_one_client_for_each_configuration() -> None:
    assert open_registry(config()) is open_registry(config())
    assert open_registry(config()) is not open_registry(config(timeout=3))


@pytest.mark.parametrize("field", list(MessageField))
def test_the_id_can_go_into_a_header(field: MessageField) -> None:
    name = KEY_SCHEMA_ID_HEADER if field is MessageField.KEY else VALUE_SCHEMA_ID_HEADER
    with RegistryDouble(knows) as double:
        wishes = SchemaRegistrySerializationConfig(schema_id_location="header")
        writer = AvroSerializer(
            ORDER, schema_registry_client_config=double.config(), schema_registry_serialization_config=wishes
        )
        assert writer.writes_headers
        reader = AvroDeserializer(schema_registry_client_config=double.config())
        headers: Headers = [("a", b"1"), (name, b"old")]
        data = writer({"id": 3}, SerializationContext("orders", field, headers))
        assert data == b"\x06"
        assert headers == [("a", b"1"), (name, b"\1" + GUID.bytes)]
        assert reader(data, SerializationContext("orders", field, headers)) == {"id": 3}
        # Registries without global ids: the number in its place.
        assert reader(data, SerializationContext("orders", field, [(name, b"\0\0\0\0\7")])) == {"id": 3}
        assert reader(b"\1" + GUID.bytes + data, SerializationContext("orders", field, [("b", b"")])) == {"id": 3}
        with pytest.raises(SerializationError, match="no list of headers"):
            writer({"id": 3}, SerializationContext("orders", field))
        for wrong in (b"", b"\0\0", b"\2abcd", b"\0\0\0\0\7\7"):
            with pytest.raises(SerializationError, match=f"the header {name} contains no schema id"):
                reader(data, SerializationContext("orders", field, [(name, wrong)]))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "0 bytes are too few"),
        (b"\0\0\0\0", "4 bytes are too few"),
        (b"\1\0\0\0\7\x06", "6 bytes are too few"),
        (b"\5\0\0\0\7\x06", "the first byte is 5"),
        (b"{}", "the first byte is 123"),
        (b"\0\0\0\0\6\x06", "no schema with id 6"),
        (b"\0\xff\xff\xff\xff\x06", "4294967295 is not a valid schema id"),
        (b"\1" + b"x" * 16, "no schema with global id 78787878-"),
        (b"\0\0\0\0\x08\x06", "schema 8 is of type JSON, but AVRO is expected"),
        (b"\0\0\0\0\x09\x06", "schema 9 cannot be used"),
        (b"\0\0\0\0\7", "too early"),
        (b"\0\0\0\0\7\x06\x06", "1 remain after the value"),
    ],
    ids=str,
)
def test_bad_bytes_are_the_records_fault(data: bytes, reason: str) -> None:
    with RegistryDouble(knows) as double:
        read = AvroDeserializer(schema_registry_client_config=double.config()).bind("orders", MessageField.VALUE)
        for _ in range(3):
            with pytest.raises(SerializationError, match=reason):
                read(data, None)
        # Not even bad bytes make a request for each record.
        assert len(double.requests) <= 1
        assert read(b"\0\0\0\0\7\x06", None) == {"id": 3}


def test_subjects_follow_the_strategy() -> None:
    with RegistryDouble(knows) as double:
        for strategy in (record_subject_name_strategy, topic_record_subject_name_strategy, lambda ctx, name: "mine/1"):
            wishes = SchemaRegistrySerializationConfig(subject_name_strategy=strategy, normalize_schemas=True)
            AvroSerializer(
                ORDER, schema_registry_client_config=double.config(), schema_registry_serialization_config=wishes
            )({"id": 1}, CTX)
        assert double.requests == [
            "POST /subjects/shop.Order/versions",
            "POST /subjects/orders-shop.Order/versions",
            "POST /subjects/mine%2F1/versions",
        ]
        wishes = SchemaRegistrySerializationConfig(subject_name_strategy=record_subject_name_strategy)
        union = AvroSerializer(
            ["null", "int"], schema_registry_client_config=double.config(), schema_registry_serialization_config=wishes
        )
        with pytest.raises(SchemaRegistryError, match="no name to use"):
            union(1, CTX)
        wishes = SchemaRegistrySerializationConfig(subject_name_strategy=lambda ctx, name: {"a": "b"}[str(name)])
        broken = AvroSerializer(
            "int", schema_registry_client_config=double.config(), schema_registry_serialization_config=wishes
        )
        with pytest.raises(SchemaRegistryError, match="strategy failed for the value of topic 'orders': KeyError"):
            broken(1, CTX)


@pytest.mark.parametrize("wish", [{"use_latest_version": True}, {"use_schema_id": 7}], ids=str)
def test_the_registrys_schema_can_be_used(wish: dict[str, Any]) -> None:
    with RegistryDouble(knows) as double:
        wishes = SchemaRegistrySerializationConfig(auto_register_schemas=False, **wish)
        own = {**ORDER, "fields": [*ORDER["fields"], {"name": "more", "type": "int"}]}
        for schema in (own, None):
            writer = AvroSerializer(
                schema, schema_registry_client_config=double.config(), schema_registry_serialization_config=wishes
            )
            assert writer({"id": 3}, CTX) == b"\0\0\0\0\7\x06"
        assert all(request.startswith("GET ") for request in double.requests)


def test_a_schema_that_must_be_there_is_looked_up() -> None:
    wishes = SchemaRegistrySerializationConfig(auto_register_schemas=False)
    with RegistryDouble(knows) as double:
        writer = AvroSerializer(
            ORDER, schema_registry_client_config=double.config(), schema_registry_serialization_config=wishes
        )
        assert writer({"id": 3}, CTX) == b"\0\0\0\0\7\x06"
        assert double.requests == ["POST /subjects/orders-value"]


@pytest.mark.parametrize(
    ("status", "document", "reason"),
    [
        (401, {"error_code": 401, "message": "Unauthorized"}, "does not let this application .*HTTP 401.*basic_auth"),
        (403, b"<html>", "does not let this application .*HTTP 403"),
        (404, b"", "HTTP 404.*; check the path of the url"),
        (404, {"error_code": 40401, "message": "Subject not found"}, "Subject not found; register a schema there"),
        (409, {"error_code": 409, "message": "incompatible"}, "not compatible with those before it: HTTP 409, incomp"),
        (422, {"error_code": 42201, "message": "Invalid schema"}, "refused to register .*Invalid schema"),
        (301, b"", "HTTP 301"),
        (200, b"<html>", "could not register .*JSONDecodeError"),
        (200, [1], "could not register"),
        (200, {"id": "x"}, "returned the id 'x', which cannot be used"),
        (200, {"id": 2**40}, "returned the id 1099511627776"),
        (200, {}, "returned no id"),
    ],
    ids=str,
)
def test_what_the_registry_refuses_is_told_in_one_sentence(status: int, document: Any, reason: str) -> None:
    with RegistryDouble(always(status, document)) as double:
        client = double.config(basic_auth_user_info=f"shop:{SECRET}")
        writer = AvroSerializer(ORDER, schema_registry_client_config=client)
        with pytest.raises(SchemaRegistryError, match=reason) as caught:
            writer({"id": 1}, CTX)
        error = caught.value
        assert not isinstance(error, SerializationError | SchemaRegistryUnavailableError)
        assert double.url in str(error)
        assert "\n" not in str(error)
        assert SECRET not in "".join(traceback.format_exception(error))
        assert len(double.requests) == 1
        assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_troubles_that_pass_are_tried_again_and_then_told(status: int) -> None:
    with RegistryDouble(always(status, {"error_code": status * 100 + 1, "message": "busy"})) as double:
        read = AvroDeserializer(schema_registry_client_config=double.config(max_retries=2)).bind(
            "orders", MessageField.VALUE
        )
        with pytest.raises(
            SchemaRegistryUnavailableError, match=f"could not get the schema with id 7: HTTP {status}, busy"
        ):
            read(b"\0\0\0\0\7\x06", None)
        assert len(double.requests) == 3


def test_a_registry_that_comes_back_is_used() -> None:
    waiting = [503, 503]

    def answers(method: str, path: str, body: Any) -> Answer:
        return (waiting.pop(), {}) if waiting else knows(method, path, body)

    with RegistryDouble(answers) as double:
        reader = AvroDeserializer(schema_registry_client_config=double.config(max_retries=1))
        with pytest.raises(SchemaRegistryUnavailableError):
            reader(b"\0\0\0\0\7\x06", CTX)
        assert reader(b"\0\0\0\0\7\x06", CTX) == {"id": 3}


def test_a_registry_that_is_away_is_told_without_credentials() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://shop:{SECRET}@127.0.0.1:{taken.getsockname()[1]}"
        client = SchemaRegistryClientConfig(url=url, max_retries=2, retries_wait_ms=1)
        with pytest.raises(
            SchemaRegistryUnavailableError, match="did not answer a request to get the schema"
        ) as caught:
            AvroDeserializer(schema_registry_client_config=client)(b"\0\0\0\0\7\x06", CTX)
        assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_a_registry_that_hangs_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        client = SchemaRegistryClientConfig(url=url, timeout=0.05, max_retries=1, retries_wait_ms=1)
        with pytest.raises(SchemaRegistryUnavailableError, match="timed out"):
            SchemaRegistry(client).latest("orders-value")


def test_credentials_are_sent() -> None:
    with RegistryDouble(knows) as double:
        SchemaRegistry(double.config(basic_auth_user_info="shop:sesame")).by_id(7)
        token = {"bearer_auth_credentials_source": "STATIC_TOKEN", "bearer_auth_token": "t0ken"}
        SchemaRegistry(double.config(**token, bearer_auth_logical_cluster="lsrc-1")).by_id(7)
        assert double.authorizations == ["Basic c2hvcDpzZXNhbWU=", "Bearer t0ken"]


# -- Schemas that mean harm --------------------------------------------------------------------------------------------


def rules(**parts: Any) -> dict[str, Any]:
    rule = {"name": "encrypt", "kind": "TRANSFORM", "mode": "WRITEREAD", "type": "ENCRYPT", **parts}
    return {"schema": '"int"', "ruleSet": {"domainRules": [rule]}}


def test_rules_of_a_data_contract_are_not_passed_over() -> None:
    with RegistryDouble(always(200, rules())) as double:
        reader = AvroDeserializer(schema_registry_client_config=double.config())
        with pytest.raises(SchemaRegistryError, match=r"has data contract rules \(encrypt\), which StreamRT does"):
            reader(b"\0\0\0\0\1\x06", CTX)


@pytest.mark.parametrize("harmless", [rules(disabled=True), rules(mode="WRITE"), rules(mode="UPGRADE")], ids=range(3))
def test_rules_that_are_not_for_readers_do_not_matter(harmless: dict[str, Any]) -> None:
    with RegistryDouble(always(200, harmless)) as double:
        assert AvroDeserializer(schema_registry_client_config=double.config())(b"\0\0\0\0\1\x06", CTX) == 3


def test_references_are_followed_once_and_not_for_ever() -> None:
    def answers(method: str, path: str, body: Any) -> Answer:
        # Each version refers to itself and to the next one, without end.
        version = int(path.rsplit("/", 1)[1])
        references = [{"name": f"R{one}", "subject": "s", "version": one} for one in (version, version + 1)]
        return 200, {"schema": '"int"', "id": version, "version": version, "subject": "s", "references": references}

    with RegistryDouble(answers) as double:
        schema = RegistrySchema('"int"', (SchemaReference("R1", "s", 1),))
        with pytest.raises(SchemaRegistryError, match="refers to more than 200 others"):
            SchemaRegistry(double.config()).references(schema)
        assert len(double.requests) <= 201


def test_a_schema_that_is_too_large_is_refused() -> None:
    with (
        RegistryDouble(always(200, {"schema": "x" * 4_000_001})) as double,
        pytest.raises(SchemaRegistryError, match="a schema of 4000001 characters"),
    ):
        SchemaRegistry(double.config()).by_id(1)


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({}, "returned no schema"),
        ({"schema": 5}, "returned no schema"),
        ({"schema": '"int"', "references": [{"name": "A"}]}, "returned the reference"),
        ({"schema": '"int"', "references": 5}, "could not get the schema"),
        ({"schema": '"int"', "ruleSet": {"domainRules": [{"mode": "SIDEWAYS"}]}}, "could not get the schema"),
    ],
    ids=str,
)
def test_answers_that_are_no_schemas_are_refused(document: Any, reason: str) -> None:
    with (
        RegistryDouble(always(200, document)) as double,
        pytest.raises(SchemaRegistryError, match=reason),
    ):
        AvroDeserializer(schema_registry_client_config=double.config())(b"\0\0\0\0\1\x06", CTX)


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(ConfigurationError, match=re.escape(f"run {install_command('avro')}")):
        AvroSerializer("int")
    monkeypatch.setattr("streamrt.serializers.registry.client._api", None)
    monkeypatch.setitem(sys.modules, "confluent_kafka.schema_registry", None)
    with pytest.raises(ConfigurationError, match=re.escape(f"run {install_command('schema-registry')}")):
        SchemaRegistry(config())
