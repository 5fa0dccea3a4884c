"""Avro with a real schema registry, and confluent-kafka's own serializers at the other end."""

import http.client
import http.server
import json
import threading
from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest
from confluent_kafka.schema_registry import (
    Schema,
    SchemaRegistryClient,
    header_schema_id_serializer,
    topic_subject_name_strategy,
)
from confluent_kafka.schema_registry import SchemaReference as TheirReference
from confluent_kafka.schema_registry.avro import AvroDeserializer as TheirDeserializer
from confluent_kafka.schema_registry.avro import AvroSerializer as TheirSerializer
from confluent_kafka.serialization import MessageField as TheirField
from confluent_kafka.serialization import SerializationContext as TheirContext

from streamrt.errors import SchemaRegistryError, SchemaRegistryUnavailableError, SerializationError
from streamrt.models import Headers
from streamrt.serializers import MessageField, SerializationContext
from streamrt.serializers.avro import AvroDeserializer, AvroSerializer
from streamrt.serializers.registry import (
    VALUE_SCHEMA_ID_HEADER,
    RegistrySchema,
    SchemaReference,
    SchemaRegistryClientConfig,
    SchemaRegistrySerializationConfig,
    open_registry,
    record_subject_name_strategy,
)
from streamrt.testing.registry import EmbeddedSchemaRegistry
from tests.support import LONG, unique

pytestmark = pytest.mark.kafka

# Their default asks the registry about associations, which Apicurio does not know.
THEIRS = {"subject.name.strategy": topic_subject_name_strategy}


def order(*more: Any, name: str = "Order") -> dict[str, Any]:
    fields = [{"name": "id", "type": "int"}, {"name": "day", "type": {"type": "int", "logicalType": "date"}}, *more]
    return {"type": "record", "name": name, "namespace": "shop", "fields": fields}


VALUE = {"id": 7, "day": date(2024, 2, 29)}


class Proxy:
    """Passes requests on to the registry and keeps what they were; cut off, it closes connections instead."""

    def __init__(self, target: str) -> None:
        self.requests: list[str] = []
        self.cut = False
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def handle_any(self) -> None:
                proxy.requests.append(f"{self.command} {self.path.partition('?')[0].rpartition('/v7')[2]}")
                if proxy.cut:
                    self.close_connection = True
                    return
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                connection = http.client.HTTPConnection(target, timeout=30)
                left_out = ("host", "accept-encoding", "connection")
                sent = {name: value for name, value in self.headers.items() if name.lower() not in left_out}
                connection.request(self.command, self.path, body, sent)
                answer = connection.getresponse()
                data = answer.read()
                connection.close()
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.headers["Content-Type"] or "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = handle_any  # noqa: N815 - names that http.server looks for

            def log_message(self, *args: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/apis/ccompat/v7"


@pytest.fixture
def proxy(schema_registry: EmbeddedSchemaRegistry) -> Iterator[Proxy]:
    made = Proxy(schema_registry.address)
    threading.Thread(target=made.server.serve_forever, args=(0.01,), daemon=True).start()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def client(schema_registry: EmbeddedSchemaRegistry) -> SchemaRegistryClientConfig:
    return SchemaRegistryClientConfig(url=schema_registry.url)


@pytest.fixture
def theirs(schema_registry: EmbeddedSchemaRegistry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": schema_registry.url}) as made:
        yield made


def contexts(headers: Headers | None = None) -> tuple[SerializationContext, TheirContext]:
    topic = unique("orders")
    return (
        SerializationContext(topic, MessageField.VALUE, headers),
        TheirContext(topic, TheirField.VALUE, headers),
    )


def writer(schema: Any, client: SchemaRegistryClientConfig, **wishes: Any) -> AvroSerializer:
    return AvroSerializer(
        schema,
        schema_registry_client_config=client,
        schema_registry_serialization_config=SchemaRegistrySerializationConfig(**wishes),
    )


def reader(client: SchemaRegistryClientConfig, schema: Any = None) -> AvroDeserializer:
    return AvroDeserializer(schema, schema_registry_client_config=client)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (order(), VALUE),
        ("string", "x"),
        ("bytes", b"x\0"),
        ("long", -5),
        ({"type": "array", "items": "int"}, [1, 2]),
        (["null", order()], VALUE),
    ],
    ids=lambda part: str(part)[:30],
)
def test_values_go_both_ways(
    client: SchemaRegistryClientConfig, theirs: SchemaRegistryClient, schema: Any, value: Any
) -> None:
    ours, other = contexts()
    data = writer(schema, client)(value, ours)
    assert data == TheirSerializer(theirs, json.dumps(schema), conf=THEIRS)(value, other)
    assert TheirDeserializer(theirs, conf=THEIRS)(data, other) == value
    assert data is not None
    assert reader(client)(data, ours) == value


def test_keys_have_a_subject_of_their_own(client: SchemaRegistryClientConfig) -> None:
    topic = unique("orders")
    write, read = writer("string", client), reader(client)
    for field in MessageField:
        ctx = SerializationContext(topic, field)
        data = write("k", ctx)
        assert data is not None
        assert read(data, ctx) == "k"
        assert open_registry(client).latest(f"{topic}-{field.value}").version == 1


def test_a_schema_evolves_and_old_values_stay_readable(client: SchemaRegistryClientConfig) -> None:
    ctx, _ = contexts()
    subject = f"{ctx.topic}-value"
    old = writer(order(), client)(VALUE, ctx)
    open_registry(client).client.set_compatibility(subject, "BACKWARD")
    note = {"name": "note", "type": "string", "default": "-"}
    new = writer(order(note), client)({**VALUE, "note": "x"}, ctx)
    assert old is not None
    assert new is not None
    assert old[:5] != new[:5]
    assert open_registry(client).latest(subject).version == 2
    as_written, as_new, as_old = reader(client), reader(client, order(note)), reader(client, order())
    assert [as_written(data, ctx) for data in (old, new)] == [VALUE, {**VALUE, "note": "x"}]
    assert [as_new(data, ctx) for data in (old, new)] == [{**VALUE, "note": "-"}, {**VALUE, "note": "x"}]
    assert [as_old(data, ctx) for data in (old, new)] == [VALUE, VALUE]


def test_an_incompatible_change_is_refused(client: SchemaRegistryClientConfig) -> None:
    ctx, _ = contexts()
    writer(order(), client)(VALUE, ctx)
    open_registry(client).client.set_compatibility(f"{ctx.topic}-value", "BACKWARD")
    changed = writer(order({"name": "must", "type": "string"}), client)
    with pytest.raises(
        SchemaRegistryError, match=rf"subject '{ctx.topic}-value', because it is not compatible"
    ) as caught:
        changed({**VALUE, "must": "x"}, ctx)
    assert not isinstance(caught.value, SchemaRegistryUnavailableError)


def test_nothing_is_registered_without_leave(client: SchemaRegistryClientConfig) -> None:
    ctx, _ = contexts()
    careful = writer(order(), client, auto_register_schemas=False)
    with pytest.raises(SchemaRegistryError, match="register a schema there first"):
        careful(VALUE, ctx)
    writer("int", client)(1, ctx)
    with pytest.raises(SchemaRegistryError, match="register it first, or set auto_register_schemas"):
        careful(VALUE, ctx)
    open_registry(client).register(f"{ctx.topic}-value", RegistrySchema(json.dumps(order())), "AVRO")
    assert careful(VALUE, ctx)


def test_the_latest_schema_of_the_subject_is_used(client: SchemaRegistryClientConfig) -> None:
    ctx, _ = contexts()
    registered = open_registry(client).register(
        f"{ctx.topic}-value",
        RegistrySchema(json.dumps(order({"name": "note", "type": "string", "default": "-"}))),
        "AVRO",
    )
    for wish in ({"use_latest_version": True}, {"use_schema_id": registered.id}):
        data = writer(order(), client, auto_register_schemas=False, **wish)(VALUE, ctx)
        assert data is not None
        assert reader(client)(data, ctx) == {**VALUE, "note": "-"}


def test_the_id_can_travel_in_a_header(client: SchemaRegistryClientConfig, theirs: SchemaRegistryClient) -> None:
    headers: Headers = []
    ours, other = contexts(headers)
    # confluent-kafka takes nothing below six bytes, wherever the id is.
    schema, value = order({"name": "note", "type": "string"}), {**VALUE, "note": "long enough"}
    data = writer(schema, client, schema_id_location="header")(value, ours)
    assert data == AvroSerializer(schema)(value, ours)
    assert [name for name, _ in headers] == [VALUE_SCHEMA_ID_HEADER]
    # This registry has no global ids, so that the number is in the header; confluent-kafka reads both.
    assert TheirDeserializer(theirs, conf=THEIRS)(data, other) == value
    assert data is not None
    assert reader(client)(data, ours) == value


def test_confluents_header_needs_global_ids(theirs: SchemaRegistryClient) -> None:
    """Shows why ids may be in our headers: if this fails, the registry has learned of global ids, and we may test them."""
    _, other = contexts([])
    settings = {**THEIRS, "schema.id.serializer": header_schema_id_serializer}
    with pytest.raises(Exception, match="GUID is not set"):
        TheirSerializer(theirs, json.dumps(order()), conf=settings)(VALUE, other)


def test_several_types_in_one_topic(client: SchemaRegistryClientConfig) -> None:
    ctx, _ = contexts()
    one, two = unique("One").replace("-", "_"), unique("Two").replace("-", "_")
    read = reader(client)
    for name in (one, two):
        data = writer(order(name=name), client, subject_name_strategy=record_subject_name_strategy)(VALUE, ctx)
        assert data is not None
        assert read(data, ctx) == VALUE
        assert open_registry(client).latest(f"shop.{name}").version == 1


def test_schemas_refer_to_others(client: SchemaRegistryClientConfig, theirs: SchemaRegistryClient) -> None:
    ours, other = contexts()
    registry = open_registry(client)
    country, customer = unique("country"), unique("customer")
    registry.register(
        country,
        RegistrySchema('{"type": "enum", "name": "Country", "namespace": "geo", "symbols": ["AT", "NL"]}'),
        "AVRO",
    )
    to_country = SchemaReference("geo.Country", country, 1)
    person = {
        "type": "record",
        "name": "Customer",
        "namespace": "shop",
        "fields": [{"name": "of", "type": "geo.Country"}],
    }
    registry.register(customer, RegistrySchema(json.dumps(person), (to_country,)), "AVRO")
    references = (SchemaReference("shop.Customer", customer, 1), to_country)
    buyer = order({"name": "buyer", "type": "shop.Customer"}, {"name": "to", "type": ["null", "geo.Country"]})
    value = {**VALUE, "buyer": {"of": "NL"}, "to": "AT"}
    schema = RegistrySchema(json.dumps(buyer), references)
    data = writer(schema, client)(value, ours)
    assert data is not None
    assert reader(client)(data, ours) == value
    assert reader(client, schema)(data, ours) == value
    assert TheirDeserializer(theirs, conf=THEIRS)(data, other) == value
    their_references = [TheirReference(one.name, one.subject, one.version) for one in references]
    their_schema = Schema(json.dumps(buyer), "AVRO", their_references)
    assert TheirSerializer(theirs, their_schema, conf=THEIRS)(value, other) == data


def test_the_registry_is_asked_once_for_each_schema(proxy: Proxy) -> None:
    client = SchemaRegistryClientConfig(url=proxy.url)
    ctx, _ = contexts()
    schemas = [order(), order({"name": "note", "type": "string", "default": "-"})]
    written = [writer(schema, client).bind(ctx.topic, ctx.field) for schema in schemas]
    read = reader(client).bind(ctx.topic, ctx.field)
    for _ in range(100):
        for write in written:
            data = write(VALUE, None)
            assert data is not None
            assert read(data, None)["id"] == 7
    posts = [request for request in proxy.requests if request.startswith("POST")]
    gets = [request for request in proxy.requests if request.startswith("GET")]
    assert posts == [f"POST /subjects/{ctx.topic}-value/versions"] * 2
    assert len(gets) == len(set(gets)) == 2


def test_unknown_ids_are_bad_input(client: SchemaRegistryClientConfig) -> None:
    ctx, _ = contexts()
    for data in (b"\0\x7f\xff\xff\xff\2", b"\0\xff\xff\xff\xff\2", b"\1" + b"x" * 16):
        with pytest.raises(SerializationError, match=r"no schema with|not a valid schema id"):
            reader(client)(data, ctx)


@pytest.mark.slow
def test_a_registry_that_dies_is_no_bad_input_and_what_is_known_stays_known(proxy: Proxy) -> None:
    client = SchemaRegistryClientConfig(url=proxy.url, max_retries=2, retries_wait_ms=10)
    ctx, _ = contexts()
    data = writer(order(), client)(VALUE, ctx)
    assert data is not None
    known = reader(client)
    assert known(data, ctx) == VALUE
    proxy.cut = True
    before = len(proxy.requests)
    assert known(data, ctx) == VALUE
    assert len(proxy.requests) == before
    # A configuration of its own has a client of its own, which knows nothing yet.
    fresh = reader(SchemaRegistryClientConfig(url=proxy.url, max_retries=2, retries_wait_ms=11))
    with pytest.raises(SchemaRegistryUnavailableError, match="did not answer a request to get the schema"):
        fresh(data, ctx)
    assert len(proxy.requests) == before + 3
    proxy.cut = False
    assert fresh(data, ctx) == VALUE


@pytest.mark.slow
@pytest.mark.skipif(not LONG, reason="starts another registry twice: make test-long")
def test_a_registry_can_be_killed_and_started_again() -> None:
    with EmbeddedSchemaRegistry() as registry:
        url = registry.url
        assert registry.is_alive()
        registry.kill()
        client = SchemaRegistryClientConfig(url=url, max_retries=1, retries_wait_ms=1)
        ctx, _ = contexts()
        write = writer(order(), client)
        with pytest.raises(SchemaRegistryUnavailableError):
            write(VALUE, ctx)
        registry.start()
        assert registry.url == url
        assert write(VALUE, ctx) is not None
    assert not registry.is_alive()
