"""Fuzzed parts of tables: text and documents that users, files and topics give, and what is declared to refuse them."""

import contextlib
import copy
import json
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import orjson

from streamrt import Offsets
from streamrt.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    CatalogError,
    ConfigurationError,
    InvalidOperationError,
    SchemaError,
    SerializationError,
    StateError,
    StoreVersionError,
    TokenVersionError,
    TopicConfigurationError,
    TopicCreationError,
)
from streamrt.kafka import TopicConfig
from streamrt.schema import Schema
from streamrt.secret import SecretRef
from streamrt.serializers import Deserializer, SerializationContext
from streamrt.tables import AWSConnection, Catalog, MemoryCatalog
from streamrt.tables.catalogue.records import read_application, read_connection, read_database, read_table
from streamrt.tables.writing.writer_states import WRITERS_TOPIC, WriterStates
from streamrt.testing.memory_topics import MemoryLinks
from streamrt.topics import Topic
from tests.fuzz import inputs
from tests.fuzz.inputs import Source
from tests.fuzz.targets import Target

_COLUMNS = (
    "id BIGINT NOT NULL, `a b` VARCHAR(20) DEFAULT 'it\\'s' COMMENT 'x', price DECIMAL(10, 2) DEFAULT 0, "
    "tags ARRAY<STRUCT<n: INT NOT NULL, more: MAP<STRING, ARRAY<DOUBLE>>>>, at TIMESTAMP_LTZ, PRIMARY KEY (id, `a b`)"
)
_STATEMENTS = (
    "CREATE TABLE IF NOT EXISTS shop.more (id BIGINT, name STRING COMMENT 'x') COMMENT 'y' WITH ('partitions' = '2')",
    "CREATE TABLE more (id BIGINT) WITH ('key' = 'id', 'config.retention.ms' = '1000', 'property.a' = 'b')",
    "ALTER TABLE shop.orders ADD COLUMNS (n BIGINT DEFAULT 5, m STRING)",
    "ALTER TABLE shop.orders ALTER COLUMN id TYPE BIGINT",
    "ALTER TABLE shop.orders DROP COLUMN name",
    "ALTER TABLE shop.orders COMMENT 'z'",
    "DROP TABLE IF EXISTS shop.orders",
    "CREATE DATABASE IF NOT EXISTS city COMMENT 'x'",
    "DROP DATABASE shop CASCADE",
    "CREATE OR REPLACE TABLE rides (id BIGINT) WITH ('connector' = 'http-sse', 'connector.url' = 'https://example.org')",
)
_WORDS = (
    *("id", "name", "`a b`", "shop", "orders", ".", ",", ":", "(", ")", "<", ">", ">>", ";", "=", "'", "''", '"', "`"),
    *("BIGINT", "INT", "STRING", "VARCHAR(3)", "VARCHAR(0)", "VARCHAR(99999999999999999999)", "DECIMAL(99, 2)", "DATE"),
    *("DECIMAL(5, 9)", "BINARY(3)", "ARRAY<", "STRUCT<", "MAP<STRING,", "INTERVAL", "NOT NULL", "NULL", "DEFAULT"),
    *("'x'", "-1", "1e999", "9" * 400, "X'0'", "X'00'", "CAST('1' AS INT)", "TIMESTAMP '2026-01-31 00:00:00'", "now()"),
    *("COMMENT 'c'", "PRIMARY KEY (id)", "UNIQUE", "CHECK (id > 1)", "GENERATED ALWAYS AS (1)", "--", "/*", "*/", "\0"),
    *("CREATE", "ALTER", "DROP", "TABLE", "DATABASE", "IF EXISTS", "ADD COLUMNS", "WITH ('format' = 'avro')", "AS"),
    *("SELECT * FROM t", "\ud800", "\U0001f600", "é", "\n", "${env:HOME}", "{{ x }}", "$1", "?", "@x", "{d '1'}"),
)
_JUNK: tuple[Any, ...] = (
    *(None, True, 0, -1, 2**63, 10**400, 1.5, "", "x", [], {}, [None], {"x": 1}, [[]], {"v": 2}, "9" * 400, [1, "a"]),
    *("record", "BIGINT", "ARRAY<INT>", "\U0001f600", ["null", "string"], {"type": "array", "items": "null"}),
)
_LINE = {"name": "n", "type": "double"}
_AVRO = {
    "type": "record",
    "name": "shop.Order",
    "doc": "x",
    "fields": [
        {"name": "id", "type": "long", "doc": "y"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}], "default": None},
        {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [_LINE]}}},
        {"name": "mac", "type": {"type": "fixed", "name": "Mac", "size": 6}},
        {"name": "counts", "type": {"type": "map", "values": "int"}, "default": {"a": 1}},
    ],
}
_JSON_SCHEMA = {
    "type": "object",
    "title": "x",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer", "minimum": 0},
        "at": {"type": ["string", "null"], "format": "date-time", "default": None},
        "lines": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "number"}}}},
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
    },
}


class _Reads(Deserializer):
    """Hands bytes to a function."""

    def __init__(self, read: Callable[[bytes], Any]) -> None:
        self._read = read

    def __call__(self, value: bytes, ctx: SerializationContext) -> Any:
        return self._read(value)


def _words(rng: random.Random) -> bytes:
    """Return words of SQL in any order."""
    space = rng.choice((" ", " ", ""))
    return space.join(rng.choice(_WORDS) for _ in range(rng.randrange(30))).encode("utf-8", "surrogatepass")


def _sentence(valid: Sequence[bytes]) -> Source:
    """Return a source of sentences with words that do not belong there."""

    def make(rng: random.Random) -> bytes:
        words = rng.choice(valid).decode().split(" ")
        for _ in range(rng.choice((1, 1, 2, 4))):
            place = rng.randrange(len(words) + 1)
            words[place : place + rng.randrange(2)] = [rng.choice((*_WORDS, *words))]
        return " ".join(words).encode("utf-8", "surrogatepass")

    return make


def _sql_bomb(prefix: bytes) -> Source:
    """Return a source of SQL that is deep, long, or without an end."""

    def make(rng: random.Random) -> bytes:
        n = rng.choice((100, 1_000, 20_000))
        deep, long = min(n, 1_000), min(n, 2_000)
        return prefix + rng.choice(
            (
                b"(" * n,
                b"a ARRAY<" * deep,
                b"a " + b"ARRAY<" * deep + b"INT" + b">" * deep,
                b"a " + b"STRUCT<a: " * deep + b"INT" + b">" * deep,
                b"a INT DEFAULT " + b"-" * n + b"1",
                b"a INT DEFAULT " + b"(" * deep + b"1" + b")" * deep,
                b"'" * n,
                b"/*" * n,
                b"`" * (n + 1),
                b"a" * n + b" INT",
                b", ".join(b"c%d INT" % number for number in range(long)),
                b"a INT, " * long,
                b"a INT DEFAULT " + b"9" * n,
                b"a INT COMMENT '" + b"x" * 90_000 + b"'",
                b"a INT " + b"NOT NULL " * long,
                b"a INT DEFAULT " + b"1 + " * deep + b"1",
                b"x" * 200_000,
            )
        )

    return make


def _documents(*valid: Any) -> Source:
    """Return a source of documents of which parts are replaced, missing, or more than there should be."""

    def make(rng: random.Random) -> bytes:
        document = json.loads(json.dumps(rng.choice(valid)))
        for _ in range(rng.choice((1, 1, 2, 5))):
            document = _changed(rng, document)
        return json.dumps(document).encode()

    return make


def _changed(rng: random.Random, document: Any) -> Any:
    if not isinstance(document, dict | list) or not document or not rng.randrange(6):
        return copy.deepcopy(rng.choice(_JUNK))
    key = rng.choice(list(document) if isinstance(document, dict) else range(len(document)))
    action = rng.randrange(6)
    if action == 0:
        del document[key]
    elif action == 1 and isinstance(document, dict):
        name = rng.choice(("x", "v", "type", "name", "items", "default", "é"))
        document[name] = copy.deepcopy(rng.choice(_JUNK))
    elif action == 2 and isinstance(document, list):
        document.append(copy.deepcopy(document[key]))
    else:
        document[key] = _changed(rng, document[key])
    return document


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _loaded(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        raise SerializationError("not JSON") from None


# -- What is read ----------------------------------------------------------------------------------------------------


def _catalog(store: MemoryCatalog | None = None) -> Catalog:
    catalog = Catalog(store=store or MemoryCatalog(), links=MemoryLinks())
    catalog.create_database("shop", properties={"a": "b"})
    catalog.create_table("shop.orders", "id INT, name STRING DEFAULT 'x'", config={"retention.ms": "1000"})
    return catalog


def _kept() -> tuple[Any, dict[str, Any]]:
    """Return an exported catalogue, and its records by key."""
    store = MemoryCatalog()
    catalog = _catalog(store)
    catalog.add_connection("aws", AWSConnection("eu-west-1", "a", SecretRef.env("TEST_SECRET")))
    catalog.alter_table("shop.orders", add="n BIGINT COMMENT 'PII'")
    catalog.record_usage("late", reads=["shop.orders"])
    records = {key: json.loads(stored.value) for key, stored in store.list("").items()}
    return json.loads(json.dumps(catalog.export())), records


def _execute(data: bytes) -> Any:
    return _catalog().execute(_text(data)) and True


def _import(data: bytes) -> Any:
    document = _loaded(data)
    with contextlib.closing(Catalog(store=MemoryCatalog(), links=MemoryLinks())) as catalog:
        imported = catalog.import_objects(document)
        # What was taken can be read again.
        catalog.export()
        for info in catalog.infos():
            catalog.table(info.name)
        return imported


def _state(data: bytes) -> Any:
    links = MemoryLinks()
    # Some inputs are larger than brokers take by default.
    links.admin().create_topics([Topic(WRITERS_TOPIC, TopicConfig(1, 1, {"max.message.bytes": "100000000"}))])
    with contextlib.closing(links.sender({"message.max.bytes": 100_000_000})) as sender:
        sender.produce(WRITERS_TOPIC, data, b"shop.orders/loader")
    return WriterStates(links, "shop.orders", "loader", "shop.orders", "id", 5.0).read()


def table_targets() -> list[Target]:
    """Return what is fuzzed of tables."""
    exported, records = _kept()
    columns = [_COLUMNS.encode(), b"id INT"]
    statements = [each.encode() for each in _STATEMENTS]
    token = str(Offsets({("orders", 0): 42, ("orders", 1): 7, ("rides", 0): 1}, ids={"orders": "kT3"}))
    states = WriterStates(MemoryLinks(), "shop.orders", "loader", "shop.orders", "id", 1.0)
    saved = states.record("page-7", Offsets.parse(token))[1]
    bombs = [inputs.json_bomb]

    def documents(name: str, read: Callable[[bytes], Any], errors: Sequence[type[Exception]], *valid: Any) -> Target:
        sources = [_documents(*valid), _documents(*valid), inputs.json_text]
        return Target(
            name, _Reads(read), [json.dumps(each).encode() for each in valid], sources, bombs, errors=tuple(errors)
        )

    refused = (
        CatalogError,
        ConfigurationError,
        InvalidOperationError,
        SchemaError,
        TopicConfigurationError,
        TopicCreationError,
    )
    reads = {
        "database/shop": read_database,
        "connection/aws": read_connection,
        "table/shop.orders": read_table,
        "usage/late": read_application,
    }
    return [
        Target(
            "texts of schemas",
            _Reads(lambda data: Schema(_text(data))),
            columns,
            [_words, _sentence(columns)],
            [_sql_bomb(b"")],
            errors=(SchemaError,),
        ),
        Target(
            "statements",
            _Reads(_execute),
            statements,
            [_words, _sentence(statements)],
            [_sql_bomb(b"CREATE TABLE t ("), _sql_bomb(b"ALTER TABLE shop.orders ADD COLUMNS (")],
            errors=refused,
        ),
        documents(
            "tokens",
            lambda data: Offsets.parse(_text(data)),
            (ArgumentTypeError, ArgumentValueError, TokenVersionError),
            json.loads(token),
        ),
        documents("schemas of avro", lambda data: Schema.of_avro(_text(data)), (SchemaError,), _AVRO),
        documents("schemas of json", lambda data: Schema.of_json_schema(_text(data)), (SchemaError,), _JSON_SCHEMA),
        Target(
            "references to secrets",
            _Reads(lambda data: SecretRef.parse(_text(data))),
            [b"env:NAME", b"file:/run/secrets/x"],
            errors=(ConfigurationError,),
        ),
        documents("exported catalogues", _import, (*refused, SerializationError), exported),
        *(
            documents(
                f"records of {key.partition('/')[0]}",
                partial(read, key.partition("/")[2]),
                (CatalogError,),
                records[key],
            )
            for key, read in reads.items()
        ),
        documents("states of writers", _state, (StateError, StoreVersionError), json.loads(saved)),
    ]
