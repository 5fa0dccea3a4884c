"""The sinks of OpenSearch, against a server, and of Elasticsearch, against a double of it."""

import contextlib
import datetime
import decimal
import functools
import importlib.util
import json
import logging
import pickle
import uuid
from collections.abc import Iterator
from typing import Any, ClassVar

import cloudpickle
import opensearchpy
import pytest

from streamrt import Application
from streamrt.connectors import BatchingSink, ElasticsearchSink, OpenSearchSink, SinkBackpressureError, SinkBatch
from streamrt.connectors.retries import Retries
from streamrt.errors import ConfigurationError, SinkError
from streamrt.secret import collect_secrets
from streamrt.testing import TopologyTestDriver
from streamrt.testing.connectors import BatchingSinkConformance, Written
from tests.connectors import sinks
from tests.connectors.proxy import Proxy, proxy
from tests.connectors.search_server import SearchFront, opensearch, search_front
from tests.support import LONG

pytestmark = pytest.mark.skipif(
    not LONG, reason="OpenSearch costs half a minute of processor time; make test-long runs it"
)


KINDS: Any = {"elasticsearch": ElasticsearchSink, "opensearch": OpenSearchSink}
each_kind = pytest.mark.parametrize("kind", KINDS)


class Search:
    """The server, ways to it that can be closed, and a client of the tests."""

    def __init__(self, port: int, front: SearchFront, way: Proxy) -> None:
        self.front, self.way = front, way
        self.client: Any = opensearchpy.OpenSearch([f"http://127.0.0.1:{port}"], timeout=60)
        self.url = f"http://127.0.0.1:{way.port}"

    def sink(self, kind: str, **settings: Any) -> Any:
        sink = KINDS[kind](self.url, "orders", **settings)
        sink._retries = Retries(sink._retries.attempts, first_wait_s=0.001, retry_after_s=3)
        return sink

    def documents(self) -> list[dict[str, Any]]:
        """Return what is in the index, in the order of writes."""
        if not self.client.indices.exists(index="orders"):
            return []
        self.client.indices.refresh(index="orders")
        found = self.client.search(index="orders", body={"size": 10_000, "sort": "_seq_no"})
        return [{"_id": hit["_id"], **hit["_source"]} for hit in found["hits"]["hits"]]


@pytest.fixture(scope="module")
def running() -> Iterator[Search]:
    with opensearch() as port, search_front(port) as front, proxy(front.port) as way:
        search = Search(port, front, way)
        with contextlib.closing(search.client):
            yield search


@pytest.fixture
def search(running: Search) -> Search:
    running.front.reset()
    running.client.indices.delete(index="orders", ignore_unavailable=True)
    return running


batch_of = functools.partial(sinks.batch_of, headers=[("h", b"\xff")])


class TestOpenSearchSink(BatchingSinkConformance):
    many = 2_000
    kind: ClassVar[str] = "opensearch"
    values: ClassVar[Any] = (
        {"n": 1},
        {"n": 2, "text": "größer 🚆"},
        {"n": 3, "list": [1, None]},
        {"text": "a\nb\u2028"},
        {},
    )

    @pytest.fixture(autouse=True)
    def destination(self, search: Search) -> None:
        self.search = search

    def make(self) -> BatchingSink:
        sink: BatchingSink = self.search.sink(self.kind, identity="record", add_topic_metadata=True)
        return sink

    def written(self) -> list[Written]:
        return [
            Written(
                {name: field for name, field in document.items() if not name.startswith("_")},
                topic=document["__topic"],
                partition=document["__partition"],
                offset=document["__offset"],
            )
            for document in self.search.documents()
        ]


class TestElasticsearchSink(TestOpenSearchSink):
    kind = "elasticsearch"


@pytest.mark.rows("PF-M16")
@each_kind
def test_documents_have_the_key_as_id(search: Search, kind: str) -> None:
    sink = search.sink(kind)
    keys = [b"ada", "ada", 7, "größer", '"}\n{"delete":{"_index":"orders"}}', None]
    for _ in range(2):
        sink.write(batch_of(*({"n": n} for n in range(6)), keys=keys))
    found = [(document["_id"], document["n"]) for document in search.documents()]
    # What has no key is another document each time.
    assert [n for _, n in found] == [5, 1, 2, 3, 4, 5]
    assert [name for name, n in found[1:5]] == ["ada", "7", "größer", '"}\n{"delete":{"_index":"orders"}}']


@each_kind
def test_ids_of_the_program(search: Search, kind: str) -> None:
    sink = search.sink(kind, document_id_setter=lambda item: f"{item.offset % 2}")
    sink.write(batch_of({"n": 1}, {"n": 2}, {"n": 3, "x": 1}))
    assert search.documents() == [{"_id": "1", "n": 2}, {"_id": "0", "n": 3, "x": 1}]
    search.sink(kind, document_id_setter=None).write(batch_of({"n": 4}))
    assert search.documents()[-1]["n"] == 4


@each_kind
def test_metadata(search: Search, kind: str) -> None:
    sink = search.sink(kind, add_message_metadata=True, add_topic_metadata=True)
    sink.write(batch_of({"n": 1}))
    assert search.documents() == [
        {
            "_id": "key-0",
            "n": 1,
            "__key": "key-0",
            "__timestamp": 1_000,
            "__headers": [{"name": "h", "value": "\\xff"}],
            "__topic": "orders",
            "__partition": 0,
            "__offset": 40,
        }
    ]


@each_kind
def test_values_that_json_lacks(search: Search, kind: str) -> None:
    number = uuid.uuid4()
    when = datetime.datetime(2024, 5, 6, 7, 8, 9, tzinfo=datetime.timezone.utc)
    search.sink(kind).write(batch_of({"when": when, "id": number, "price": decimal.Decimal("1.5"), "day": when.date()}))
    (found,) = search.documents()
    assert found == {
        "_id": "key-0",
        "when": "2024-05-06T07:08:09+00:00",
        "id": str(number),
        "price": 1.5,
        "day": "2024-05-06",
    }


@each_kind
def test_none_may_delete(search: Search, kind: str) -> None:
    sink = search.sink(kind, delete_on_none=True)
    sink.write(batch_of({"n": 1}, {"n": 2}))
    sink.write(batch_of(None, {"n": 3}, None))
    assert search.documents() == [{"_id": "key-1", "n": 3}]
    with pytest.raises(SinkError, match=r"orders\[0\] at offset 40: it has no id"):
        sink.write(batch_of(None, keys=[None]))


@each_kind
def test_the_index_is_made(search: Search, kind: str) -> None:
    for mapping in (
        {"properties": {"n": {"type": "keyword"}}},
        {"mappings": {"properties": {"n": {"type": "keyword"}}}},
    ):
        search.client.indices.delete(index="orders", ignore_unavailable=True)
        search.sink(kind, mapping=mapping).start()
        found = search.client.indices.get_mapping(index="orders")["orders"]["mappings"]["properties"]
        assert found == {"n": {"type": "keyword"}}
    # One that exists stays as it is, also if another task has just made it.
    search.sink(kind).start()
    sink = search.sink(kind)
    sink._create_index(sink._connect_client())
    search.client.indices.delete(index="orders")
    sink = search.sink(kind, mapping={"properties": {"n": {"type": "no such type"}}})
    with pytest.raises(SinkError, match=r"cannot use index orders of .*: it answers 400"):
        sink.start()


@each_kind
@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://ada:top-secret@no.such.host.invalid:1"])
def test_a_wrong_host(kind: str, url: str) -> None:
    sink = KINDS[kind](url, "orders")
    host = "no.such.host.invalid" if "invalid" in url else "127.0.0.1"
    with pytest.raises(
        SinkError, match=rf"^{type(sink).__name__} cannot reach index orders of \w+ at {host}:1: Conn"
    ) as caught:
        sink.start()
    assert "top-secret" not in str(caught.value) + repr(sink)


@each_kind
def test_a_wrong_password(search: Search, kind: str) -> None:
    search.front.login = ("ada", "right")
    for settings in ({}, {"username": "ada", "password": "top-secret"}):
        with pytest.raises(SinkError, match=r"cannot use index orders of .*: it refuses the credentials$") as caught:
            search.sink(kind, **settings).start()
        assert "top-secret" not in repr(caught.value)
    passwords = ["right", "outdated", "renewed"]
    sink = search.sink(kind, username="ada", password=lambda: passwords.pop(0))
    sink.start()
    search.front.login = ("ada", "renewed")
    sink.write(batch_of({"n": 1}))
    assert passwords == []
    search.front.reset()
    assert search.documents() == [{"_id": "key-0", "n": 1}]


def test_an_api_key(search: Search) -> None:
    search.front.key = "a-key"
    search.sink("elasticsearch", api_key="a-key").start()
    keys = ["old", "a-key"]
    sink = search.sink("elasticsearch", api_key=lambda: keys.pop(0))
    sink.write(batch_of({"n": 1}))
    with pytest.raises(SinkError, match="it refuses the credentials") as caught:
        search.sink("elasticsearch", api_key="another-key").start()
    assert "another-key" not in repr(caught.value)


def test_another_product(search: Search) -> None:
    search.front.product = False
    with pytest.raises(SinkError, match="it is another product; for OpenSearch, use OpenSearchSink"):
        search.sink("elasticsearch").start()


@pytest.mark.slow
@each_kind
def test_a_server_that_goes_away(search: Search, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    sink = search.sink(kind, identity="record")
    sink.start()
    values = [{"n": n, "text": "x" * 100} for n in range(1_500)]
    search.way.close_after(200_000)
    try:
        with (
            caplog.at_level(logging.INFO, "streamrt"),
            pytest.raises(
                SinkBackpressureError,
                match=r"write of orders\[0\] to index orders .* failed, also when it was repeated",
            ) as caught,
        ):
            sink.write(batch_of(*values))
        assert caught.value.retry_after == 3
        assert 0 < len(search.documents()) < 1_500
    finally:
        search.way.open()
    sink.write(batch_of(*values))
    assert sorted(document["n"] for document in search.documents()) == list(range(1_500))


@each_kind
def test_a_busy_server_passes(search: Search, kind: str) -> None:
    sink = search.sink(kind, batch_size=3)
    busy = json.dumps({"error": {"type": "es_rejected_execution_exception", "reason": "no"}, "status": 429}).encode()
    search.front.answers = [(429, busy), (503, b"no"), None]
    sink.write(batch_of({"n": 1}))
    assert search.documents() == [{"_id": "key-0", "n": 1}]
    search.front.answers = [(429, busy)] * 4
    with pytest.raises(SinkBackpressureError, match=r"failed, also when it was repeated: PassingError: it answers 429"):
        sink.write(batch_of({"n": 2}))
    sink = search.sink(kind, max_bulk_retries=0)
    search.front.answers = [(429, busy)]
    with pytest.raises(SinkBackpressureError, match="failed, also when it was repeated"):
        sink.write(batch_of({"n": 2}))


@each_kind
def test_only_documents_that_failed_are_repeated(search: Search, kind: str) -> None:
    """Later states of the same document follow again, the others do not."""

    def result(status: int) -> dict[str, Any]:
        error = {"error": {"type": "es_rejected_execution_exception", "reason": "busy"}} if status == 429 else {}
        return {"index": {"_index": "orders", "status": status, **error}}

    partial = {"errors": True, "items": [result(status) for status in (201, 429, 201, 201)]}
    search.front.answers = [(200, json.dumps(partial).encode())]
    sink = search.sink(kind)
    sink.write(batch_of(*({"n": n} for n in range(4)), keys=["a", "b", "c", "b"]))
    # The front has only said that it wrote the others.
    assert search.documents() == [{"_id": "b", "n": 3}]


@each_kind
@pytest.mark.parametrize(
    ("settings", "value", "key", "words"),
    [
        ({}, ["secret-value"], "k", "its value has the type list"),
        ({}, None, "k", "its value has the type NoneType"),
        ({}, {"tags": {"secret-value"}}, "k", "write field 'tags' of orders[0] at offset 41"),
        ({}, {"n": float("nan")}, "k", "write field 'n' of"),
        ({}, {"text": "secret-value\ud800"}, "k", "write field 'text' of"),
        ({}, {"n": "secret-value"}, "k", "write field 'n' of orders[0] at offset 41 to index orders"),
        ({}, {"inner": "secret-value"}, "k", "write field 'inner' of"),
        ({}, {"n": 1}, "k" * 513, "must have 1 to 512 bytes"),
        ({}, {"n": 1}, "", "must have 1 to 512 bytes"),
        ({}, {"n": 1}, "k\ud800", "contains half of a surrogate pair"),
        ({}, {"n": 1}, b"\xff", "has the type bytes, not str"),
        ({"document_id_setter": lambda item: item.value["id"]}, {"n": 1}, "k", "document_id_setter raised KeyError"),
        ({"document_id_setter": lambda item: item.value.get("id", 5)}, {"n": 1}, "k", "has the type int, not str"),
    ],
)
def test_what_cannot_be_written(search: Search, kind: str, settings: Any, value: Any, key: Any, words: str) -> None:
    mapping = {"properties": {"n": {"type": "long"}, "inner": {"properties": {"x": {"type": "long"}}}}}
    sink = search.sink(kind, mapping=mapping, **settings)
    sink.start()
    batch = SinkBatch("orders", 0)
    batch.append({"n": 0, "id": "good"}, "good", 0, None, 40)
    batch.append(value, key, 0, None, 41)
    with pytest.raises(SinkError) as caught:
        sink.write(batch)
    # So that `on_error` can skip it.
    assert caught.value.record == ("orders", 0, 41)
    assert words in str(caught.value)
    assert "secret-value" not in str(caught.value)
    search.sink(kind).write(batch_of({"n": 1}))
    assert "key-0" in [document["_id"] for document in search.documents()]


@each_kind
def test_refused_documents_may_be_left_out(search: Search, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    sink = search.sink(kind, mapping={"properties": {"n": {"type": "long"}}}, ignore_bulk_upload_errors=True)
    sink.start()
    sink.write(batch_of({"n": 1}, {"n": "secret-value"}, {"n": 3}))
    assert [document["n"] for document in search.documents()] == [1, 3]
    assert "cannot write field 'n' of orders[0] at offset 41" in caplog.text
    assert "secret-value" not in caplog.text


@each_kind
def test_secrets_stay_hidden(search: Search, kind: str) -> None:
    sink = search.sink(kind, username="ada", password="top-secret", headers={"X-Token": "of-a-header"})
    linked = KINDS[kind]("https://ada:top-secret@db.example.com/path", "orders")
    with collect_secrets() as collected:
        data = cloudpickle.dumps((sink, linked))
    for text in (data, repr((sink, linked)).encode(), repr((vars(sink), vars(linked))).encode()):
        assert b"top-secret" not in text
        assert b"of-a-header" not in text
    assert "top-secret" in collected.values()
    assert repr(linked).endswith("at db.example.com)")
    search.front.login = ("ada", "top-secret")
    again, _ = pickle.loads(data)
    again.start()
    again.write(batch_of({"n": 1}))
    assert len(search.documents()) == 1


@each_kind
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"url": ""}, "url"),
        ({"url": "localhost:9200"}, "url"),
        ({"url": "http://ada:secret-value@:x"}, "url"),
        ({"index": ""}, "index"),
        ({"index": "Orders"}, "cannot take as a name"),
        ({"index": "a,b*"}, "cannot take as a name"),
        ({"mapping": "dynamic"}, "mapping"),
        ({"document_id_setter": "key"}, "document_id_setter"),
        ({"batch_size": 0}, "batch_size"),
        ({"max_bulk_retries": -1}, "max_bulk_retries"),
        ({"ignore_bulk_upload_errors": None}, "ignore_bulk_upload_errors"),
        ({"add_message_metadata": 1}, "add_message_metadata"),
        ({"add_topic_metadata": 1}, "add_topic_metadata"),
        ({"username": "ada"}, "username and password"),
        ({"username": "ada", "password": 5}, "password"),
        ({"identity": "offset"}, "key, record"),
        ({"identity": "record", "document_id_setter": None}, "either a document_id_setter or"),
        ({"delete_on_none": "yes"}, "delete_on_none"),
        ({"no_such_setting": "secret-value"}, "unsupported settings among url, no_such_setting"),
    ],
)
def test_arguments_are_checked(kind: str, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as caught:
        KINDS[kind](**{"url": "http://localhost:9200", "index": "orders", **arguments})
    assert "secret-value" not in str(caught.value)


def test_an_api_key_and_a_password() -> None:
    with pytest.raises(ConfigurationError, match="either an api_key or"):
        ElasticsearchSink("http://localhost:9200", "orders", username="ada", password="pw", api_key="key")


@each_kind
def test_a_missing_library(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=rf"Sink needs the package \w+: run pip install .*\[{kind}\]"):
        KINDS[kind]("http://localhost:9200", "orders")


@each_kind
def test_at_the_end_of_a_dataframe(search: Search, kind: str) -> None:
    app = Application(broker_address="unused:9092", consumer_group="shop")
    orders = app.topic("orders", key_serializer="str")
    app.dataframe(orders).sink(search.sink(kind))
    with TopologyTestDriver(app) as driver:
        driver.pipe(orders, {"sku": "piano"}, key="ada")
    assert search.documents() == [{"_id": "ada", "sku": "piano"}]
