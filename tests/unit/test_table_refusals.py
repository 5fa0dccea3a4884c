"""Methods that other systems have and StreamRT has not yet: each is there, and says why, and what to use instead."""

from collections.abc import Callable
from typing import Any

import pytest

from streamrt import Application
from streamrt.errors import InvalidOperationError
from streamrt.tables import HTTPSSE, Catalog, MemoryCatalog
from streamrt.tables.table import Table
from streamrt.testing.memory_topics import MemoryLinks

METHODS: dict[str, tuple[Callable[[Table], object], str]] = {
    "get": (lambda table: table.get(1, timeout=1), "create a table with PRIMARY KEY"),
    "get_many": (lambda table: table.get_many([1]), "create a table with PRIMARY KEY"),
    "prefix": (lambda table: table.prefix({"id": 1}, limit=1), "create a table with PRIMARY KEY"),
    "replica": (lambda table: table.replica(), "subscribe() follows the rows"),
    "snapshot": (lambda table: table.snapshot(["id"]), "scan() reads the rows up to a position"),
}
TABLES = {
    "log": "needs a table with a primary key, and 'default.log' is a log table",
    "remote": "needs a table with a primary key, and the rows of table 'default.remote' are in another system (http-sse)",
}


@pytest.fixture
def catalog() -> Catalog:
    catalog = Catalog(store=MemoryCatalog(), links=MemoryLinks())
    catalog.create_table("log", "id BIGINT")
    catalog.create_table("keyed", "id BIGINT, PRIMARY KEY (id)")
    catalog.create_table("remote", "id BIGINT", connector=HTTPSSE("https://rides.example/stream"))
    return catalog


@pytest.mark.rows("FL-053", "FL-068", "FL-069", "FL-079")
@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("method", METHODS)
def test_what_needs_a_primary_key(catalog: Catalog, method: str, kind: str) -> None:
    call, advice = METHODS[method]
    with pytest.raises(InvalidOperationError) as error:
        call(catalog.table(kind))
    text = str(error.value)
    assert text.startswith(f"{method}() {TABLES[kind]}: ")
    assert advice in text


@pytest.mark.parametrize(
    ("call", "why"),
    [
        pytest.param(
            lambda catalog, _: catalog.table("log").lake_snapshot(),
            "lake_snapshot() of table 'default.log' is not there yet, because no table is in a lake: sinks of an application",
            marks=pytest.mark.rows("FL-045"),
        ),
        (
            lambda catalog, _: catalog.view("big"),
            "view('big') is not there yet, because a catalogue has tables alone: let an application write the result",
        ),
        (
            lambda catalog, app: app.maintain(catalog.table("keyed")),
            "maintain() needs a maintained table, and rows of default.keyed are written directly: create it with maintained",
        ),
    ],
)
def test_what_needs_more_than_tables(catalog: Catalog, call: Callable[[Catalog, Any], object], why: str) -> None:
    app = Application("localhost:1", consumer_group="none", catalog=catalog)
    with pytest.raises(InvalidOperationError) as error:
        call(catalog, app)
    assert str(error.value).startswith(why)
