"""The sink of MongoDB, against a double that speaks its protocol."""

import contextlib
import functools
import importlib.util
import logging
import pickle
from collections.abc import Iterator
from typing import Any

import cloudpickle
import pymongo
import pytest
from pymongo.errors import OperationFailure

from streamrt import Application
from streamrt.connectors import BatchingSink, MongoDBSink, SinkBackpressureError, SinkBatch
from streamrt.connectors.retries import Retries
from streamrt.errors import ConfigurationError, SinkError
from streamrt.secret import collect_secrets
from streamrt.testing import TopologyTestDriver
from streamrt.testing.connectors import BatchingSinkConformance, Written
from tests.connectors import sinks
from tests.connectors.mongo_server import mongo_double
from tests.connectors.proxy import Proxy, proxy


class Shop:
    """The double, a way to it that can be closed, and a client of the tests."""

    def __init__(self, port: int, way: Proxy) -> None:
        self.port = way.port
        self.way = way
        self.client: Any = pymongo.MongoClient("127.0.0.1", port)
        self.orders = self.client["shop"]["orders"]


@pytest.fixture(scope="module")
def running() -> Iterator[Shop]:
    with mongo_double() as port, proxy(port) as way:
        shop = Shop(port, way)
        with contextlib.closing(shop.client):
            yield shop


@pytest.fixture
def shop(running: Shop) -> Shop:
    running.orders.drop()
    return running


batch_of = functools.partial(sinks.batch_of, headers=[("h", b"\x01")])


class Impatient(MongoDBSink):
    _retries = Retries(attempts=2, first_wait_s=0.001, retry_after_s=3)


def sink_of(shop: Shop, **settings: Any) -> MongoDBSink:
    return Impatient("127.0.0.1", "shop", "orders", port=shop.port, authentication_timeout_ms=200, **settings)


class TestMongoDBSink(BatchingSinkConformance):
    many = 2_000

    @pytest.fixture(autouse=True)
    def destination(self, shop: Shop) -> None:
        self.shop = shop

    def make(self) -> BatchingSink:
        return sink_of(self.shop, identity="record", add_topic_metadata=True)

    def written(self) -> list[Written]:
        return [
            Written(
                {name: field for name, field in document.items() if not name.startswith("_")},
                topic=document["__topic"],
                partition=document["__partition"],
                offset=document["__offset"],
            )
            for document in self.shop.orders.find().sort("$natural", 1)
        ]


class TestMongoDBSinkThatReplaces(TestMongoDBSink):
    def make(self) -> BatchingSink:
        return sink_of(self.shop, identity="record", add_topic_metadata=True, update_method="ReplaceOne")


def test_documents_are_found_by_key(shop: Shop) -> None:
    sink = sink_of(shop)
    keys = [b"ada", "ada", b"\xff\x00", 7, "größer"]
    for _ in range(2):
        sink.write(batch_of(*({"n": n} for n in range(5)), keys=keys))
    found = {document["_id"]: document["n"] for document in shop.orders.find()}
    assert found == {"ada": 1, b"\xff\x00": 2, 7: 3, "größer": 4}


def test_columns_are_set_and_others_stay(shop: Shop) -> None:
    shop.orders.insert_one({"_id": "key-0", "old": 1, "n": 0})
    sink_of(shop).write(batch_of({"n": 5, "list": [1, {"a.b": None}]}))
    assert shop.orders.find_one() == {"_id": "key-0", "old": 1, "n": 5, "list": [1, {"a.b": None}]}
    sink_of(shop, update_method="ReplaceOne").write(batch_of({"n": 6}))
    assert shop.orders.find_one() == {"_id": "key-0", "n": 6}


def test_a_filter_of_the_program(shop: Shop) -> None:
    shop.orders.insert_many([{"_id": n, "sku": sku} for n, sku in enumerate(("piano", "piano", "flute"))])
    matching = {"document_matcher": lambda item: {"sku": item.value["sku"]}}
    sink_of(shop, **matching).write(batch_of({"sku": "piano", "price": 1}))
    assert shop.orders.count_documents({"price": 1}) == 1
    sink_of(shop, **matching, update_method="UpdateMany").write(batch_of({"sku": "piano", "price": 2}))
    assert shop.orders.count_documents({"price": 2}) == 2
    sink_of(shop, **matching, upsert=False).write(batch_of({"sku": "drum", "price": 3}))
    assert shop.orders.count_documents({"price": 3}) == 0
    sink_of(shop, **matching).write(batch_of({"sku": "drum", "price": 3}))
    assert shop.orders.count_documents({"price": 3}) == 1


def test_metadata_and_the_last_word(shop: Shop) -> None:
    sink = sink_of(
        shop,
        document_matcher=lambda item: {"_id": item.value["id"]},
        add_message_metadata=True,
        add_topic_metadata=True,
        value_selector=lambda document: {name: field for name, field in document.items() if name != "id"},
    )
    value = {"id": 3, "n": 1}
    sink.write(batch_of(value))
    assert shop.orders.find_one() == {
        "_id": 3,
        "n": 1,
        "__key": "key-0",
        "__timestamp": 1_000,
        "__headers": [["h", b"\x01"]],
        "__topic": "orders",
        "__partition": 0,
        "__offset": 40,
    }
    assert value == {"id": 3, "n": 1}


def test_none_may_delete(shop: Shop) -> None:
    sink = sink_of(shop, delete_on_none=True)
    sink.write(batch_of({"n": 1}, {"n": 2}))
    sink.write(batch_of(None, {"n": 3}))
    assert [document["_id"] for document in shop.orders.find()] == ["key-1"]


def test_keys_are_no_operators(shop: Shop) -> None:
    shop.orders.insert_one({"_id": "precious", "n": 1})
    sink = sink_of(shop, update_method="ReplaceOne", upsert=False)
    sink.write(batch_of({"n": 2}, keys=[{"$ne": None}]))
    assert list(shop.orders.find()) == [{"_id": "precious", "n": 1}]


@pytest.mark.parametrize("host", ["127.0.0.1", "no.such.host.invalid", "mongodb://ada:top-secret@127.0.0.1:1/?w=1"])
def test_a_wrong_host(host: str) -> None:
    sink = MongoDBSink(host, "shop", "orders", port=1, authentication_timeout_ms=50)
    name = "no.such.host.invalid" if "invalid" in host else "127.0.0.1"
    with pytest.raises(SinkError, match=rf"^MongoDBSink cannot reach shop.orders of MongoDB at {name}:1: ") as caught:
        sink.start()
    assert "Topology" not in str(caught.value)
    assert "top-secret" not in str(caught.value) + repr(sink)


def test_a_wrong_password(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    # The double has no users, and says so.
    with pytest.raises(SinkError, match=r"cannot use shop.orders of MongoDB at .*: it answers CommandNotFound \(59\)"):
        sink_of(shop, username="ada", password="top-secret").start()

    def refuse(*arguments: Any, **settings: Any) -> None:
        raise OperationFailure("bad auth of ada with top-secret", 18)

    monkeypatch.setattr(pymongo.database.Database, "command", refuse)
    with pytest.raises(SinkError, match=r"it refuses the credentials$") as caught:
        sink_of(shop).start()
    assert "top-secret" not in repr(caught.value)


@pytest.mark.slow
def test_a_server_that_goes_away(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    sink = sink_of(shop, identity="record")
    sink.start()
    values = [{"n": n, "text": "x" * 100} for n in range(3_000)]
    shop.way.close_after(200_000)
    try:
        with (
            caplog.at_level(logging.INFO, "streamrt"),
            pytest.raises(
                SinkBackpressureError, match=r"write of orders\[0\] to shop.orders .* failed, also when it was repeated"
            ) as caught,
        ):
            sink.write(batch_of(*values))
        assert caught.value.retry_after == 3
        assert "Topology" not in caplog.text + str(caught.value)
        assert 0 < shop.orders.count_documents({}) < 3_000
    finally:
        shop.way.open()
    sink.write(batch_of(*values))
    assert [document["n"] for document in shop.orders.find().sort("n")] == list(range(3_000))


@pytest.mark.parametrize(
    ("settings", "value", "key", "words"),
    [
        ({}, ["secret-value"], "k", "its value has the type list"),
        ({}, None, "k", "its value has the type NoneType"),
        ({}, {"tags": {"secret-value"}}, "k", "write field 'tags' of orders[0] at offset 41"),
        ({}, {"n": 2**70}, "k", "BSON cannot express it (OverflowError)"),
        ({}, {"text": "secret-value\ud800"}, "k", "write field 'text' of"),
        ({}, {"inner": {5: "secret-value"}}, "k", "write field 'inner' of"),
        ({}, {"text": "secret-value" * (1 << 21)}, "k", "and MongoDB takes 16 MiB at most"),
        ({}, {"n": 1}, None, "it has no key; give a document_matcher"),
        ({}, {"n": 1}, {"secret-value"}, "BSON cannot express its filter"),
        ({}, {"a.b": "secret-value"}, "k", "write field 'a.b' of"),
        ({}, {"$inc": "secret-value"}, "k", "write field '$inc' of"),
        ({"update_method": "ReplaceOne"}, {"$inc": "secret-value"}, "k", "ReplaceOne cannot take this name"),
        ({}, {"u": "secret-value"}, "k", "it answers DuplicateKey (11000)"),
        ({"document_matcher": lambda item: item.value["id"]}, {"n": 1}, "k", "document_matcher raised KeyError"),
        ({"document_matcher": lambda item: None}, {"n": 1}, "k", "document_matcher returned NoneType"),
        ({"value_selector": lambda value: value["id"]}, {"n": 1}, "k", "value_selector raised KeyError"),
        ({"value_selector": lambda value: None}, {"n": 1}, "k", "value_selector returned NoneType"),
    ],
)
def test_what_cannot_be_written(shop: Shop, settings: Any, value: Any, key: Any, words: str) -> None:
    shop.orders.create_index("u", unique=True, sparse=True)
    shop.orders.insert_one({"_id": 1, "u": "secret-value"})
    sink = sink_of(shop, **settings)
    batch = SinkBatch("orders", 0)
    if "document_matcher" not in settings and "value_selector" not in settings:
        batch.append({"n": 0}, "good", 0, None, 40)
    batch.append(value, key, 0, None, 41)
    with pytest.raises(SinkError) as caught:
        sink.write(batch)
    assert words in str(caught.value)
    assert "orders[0] at offset 41" in str(caught.value)
    assert "secret-value" not in str(caught.value)
    assert caught.value.__cause__ is None or isinstance(caught.value.__cause__, KeyError)
    sink_of(shop).write(batch_of({"n": 1}))
    assert shop.orders.find_one({"_id": "key-0"}) == {"_id": "key-0", "n": 1}


def test_secrets_stay_hidden(shop: Shop) -> None:
    sink = MongoDBSink(
        f"mongodb://127.0.0.1:{shop.port}/",
        "shop",
        "orders",
        "ada",
        "top-secret",
        tlsCertificateKeyFilePassword="of-a-key",
    )
    linked = MongoDBSink("mongodb://ada:top-secret@db.example.com,db2.example.com/?tls=true", "shop", "orders")
    with collect_secrets() as collected:
        data = cloudpickle.dumps((sink, linked))
    for text in (data, repr((sink, linked)).encode(), repr((vars(sink), vars(linked))).encode()):
        assert b"top-secret" not in text
        assert b"of-a-key" not in text
    assert "top-secret" in collected.values()
    assert repr(linked) == "MongoDBSink(shop.orders of MongoDB at db.example.com,db2.example.com)"
    again = pickle.loads(cloudpickle.dumps(sink_of(shop)))
    again.start()
    again.write(batch_of({"n": 1}))
    assert shop.orders.count_documents({}) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"host": ""}, "host"),
        ({"host": None}, "host"),
        ({"host": "mongodb://ada:secret-value@"}, "host"),
        ({"port": 0}, "port"),
        ({"db": ""}, "db"),
        ({"db": "a b"}, "MongoDB cannot take them"),
        ({"collection": "$cmd"}, "MongoDB cannot take them"),
        ({"username": "ada"}, "username and password"),
        ({"password": "secret-value"}, "username and password"),
        ({"username": "ada", "password": 5}, "password"),
        ({"document_matcher": {"_id": 1}}, "document_matcher"),
        ({"update_method": "InsertOne"}, "UpdateOne, UpdateMany, ReplaceOne"),
        ({"upsert": 1}, "upsert"),
        ({"add_message_metadata": "yes"}, "add_message_metadata"),
        ({"add_topic_metadata": None}, "add_topic_metadata"),
        ({"authentication_timeout_ms": 0}, "authentication_timeout_ms"),
        ({"value_selector": 5}, "value_selector"),
        ({"identity": "offset"}, "key, record"),
        ({"identity": "record", "document_matcher": lambda item: {}}, "either a document_matcher or"),
        ({"delete_on_none": 1}, "delete_on_none"),
        ({"no_such_setting": "secret-value"}, "unsupported settings among host, no_such_setting"),
        ({"maxPoolSize": "secret-value"}, "unsupported settings among host, maxPoolSize"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words.replace("$", r"\$")) as caught:
        MongoDBSink(**{"host": "localhost", "db": "shop", "collection": "orders", **arguments})
    assert "secret-value" not in str(caught.value)


def test_a_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"MongoDBSink needs the package pymongo: run pip .*\[mongodb\]"):
        MongoDBSink("localhost", "shop", "orders")


def test_at_the_end_of_a_dataframe(shop: Shop) -> None:
    app = Application(broker_address="unused:9092", consumer_group="shop")
    orders = app.topic("orders", key_serializer="str")
    app.dataframe(orders).sink(sink_of(shop))
    with TopologyTestDriver(app) as driver:
        driver.pipe(orders, {"sku": "piano"}, key="ada")
        assert shop.orders.find_one() == {"_id": "ada", "sku": "piano"}
