"""Errors of tables: their classes, their sentences, and whether the same call may succeed later."""

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from streamrt import errors
from streamrt.errors import StreamRTError
from streamrt.kafka import KafkaError, KafkaRequestError
from streamrt.kafka.client import request_error
from streamrt.tables import Catalog, MemoryCatalog
from streamrt.testing.memory_topics import MemoryLinks
from tests.table_home import ids, write


@pytest.fixture
def links() -> MemoryLinks:
    return MemoryLinks()


@pytest.fixture
def catalog(links: MemoryLinks) -> Catalog:
    catalog = Catalog(store=MemoryCatalog(), links=links)
    catalog.create_database("shop")
    catalog.create_table("shop.orders", "id BIGINT NOT NULL, name STRING, score DOUBLE", topic="orders")
    write(catalog.table("shop.orders"), ids(2))
    return catalog


class Refusing:
    """An administration whose requests brokers refuse."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Any:
        def refuse(*_: object, **__: object) -> Any:
            raise self._error

        return refuse


def stale(catalog: Catalog) -> object:
    table = catalog.table("shop.orders")
    token = table.offsets()
    catalog.links.admin().delete_topics(["orders"])
    catalog.drop_table("shop.orders")
    return catalog.create_table("shop.orders", "id BIGINT", topic="orders").scan(start=token)


def gone(catalog: Catalog) -> object:
    catalog.links.admin().delete_topics(["orders"])
    return catalog.table("shop.orders").scan()


def no_row(catalog: Catalog) -> object:
    write(catalog.table("shop.orders"), [b"secret"])
    return list(catalog.table("shop.orders").scan().rows())


PROVOKED: dict[str, tuple[Callable[[Catalog], object], str]] = {
    "TableNotFoundError": (
        lambda catalog: catalog.table("shop.none"),
        "there is no table 'shop.none' in the catalogue",
    ),
    "TableExistsError": (
        lambda catalog: catalog.create_table("shop.orders"),
        "table 'shop.orders' exists already: choose another name",
    ),
    "DatabaseNotFoundError": (lambda catalog: catalog.database("none"), "there is no database 'none' in the catalogue"),
    "DatabaseExistsError": (lambda catalog: catalog.create_database("shop"), "database 'shop' exists already"),
    "DatabaseNotEmptyError": (
        lambda catalog: catalog.drop_database("shop"),
        "database 'shop' has 1 tables, such as 'shop.orders': drop them first",
    ),
    "CatalogConflictError": (
        lambda catalog: catalog.alter_table("shop.orders", comment="x", expect=9),
        "table 'shop.orders' has version 1 and not 9: read it again, and repeat the change",
    ),
    "SchemaError": (lambda catalog: catalog.table("shop.orders").scan(["none"]), "there is no column 'none'"),
    "SchemaMismatchError": (
        lambda catalog: catalog.table("shop.orders").append([{"id": "secret"}]),
        "row 0: column 'id' (BIGINT) must be an integer (table 'shop.orders')",
    ),
    "SchemaEvolutionError": (
        lambda catalog: catalog.alter_table("shop.orders", add="n INT NOT NULL"),
        "the schema of table 'shop.orders' cannot change like this",
    ),
    "SerializationError": (no_row, "orders[0] at offset 2"),
    "InvalidOperationError": (
        lambda catalog: catalog.table("shop.orders").get(1),
        "get() needs a table with a primary key, and",
    ),
    "OffsetOutOfRangeError": (
        lambda catalog: catalog.table("shop.orders").scan(start={0: 9}),
        "offset 9 of orders[0] is not among its offsets 0 to 2",
    ),
    "StaleTokenError": (stale, "topic 'orders' of table 'shop.orders' was deleted and created again"),
    "TopicNotFoundError": (gone, "topic 'orders' of table 'shop.orders' does not exist"),
    "ConfigurationError": (
        lambda catalog: catalog.create_table("shop.more", "id INT", format="csv"),
        "there is no format 'csv' of rows; there are json, avro",
    ),
}
RETRIABLE = {"CatalogConflictError"}


@pytest.mark.rows("FL-151", "FL-152", "FL-153", "FL-154")
@pytest.mark.parametrize("name", PROVOKED)
def test_an_error_has_a_class_and_a_sentence(catalog: Catalog, name: str) -> None:
    call, sentence = PROVOKED[name]
    with pytest.raises(StreamRTError) as raised:
        call(catalog)
    error = raised.value
    # The class is what the code is elsewhere.
    assert type(error) is getattr(errors, name)
    text = str(error)
    assert sentence in text
    assert "\n" not in text
    assert "secret" not in text
    assert error.retriable is (name in RETRIABLE)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.retriable) == (type(error), text, error.retriable)


@pytest.mark.rows("FL-152", "FL-154")
@pytest.mark.parametrize(
    ("code", "retriable"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, False),
        (KafkaError.INVALID_CONFIG, False),
        (KafkaError.REQUEST_TIMED_OUT, True),
        (KafkaError.NOT_LEADER_FOR_PARTITION, True),
    ],
)
@pytest.mark.parametrize("call", ["scan", "writer", "create"])
def test_requests_that_brokers_refuse_have_their_code(
    catalog: Catalog, links: MemoryLinks, code: int, retriable: bool, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = catalog.table("shop.orders")
    refusal = request_error("the topic could not be looked at", KafkaError(code))
    monkeypatch.setattr(links, "admin", lambda: Refusing(refusal))
    calls: dict[str, Callable[[], Any]] = {
        "scan": table.scan,
        "writer": table.writer,
        "create": lambda: catalog.create_table("shop.more", "id INT"),
    }
    with pytest.raises(KafkaRequestError) as raised:
        calls[call]()
    assert (raised.value.code, raised.value.retriable) == (code, retriable)
    assert KafkaError(code).name() in str(raised.value)
