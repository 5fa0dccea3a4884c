"""Records that an application writes to the topic of a maintained table, past its rules."""

from collections.abc import Callable
from typing import Any

import pytest

from streamrt import Application
from streamrt.app import definition_of
from streamrt.application.foreign_rows import describe_foreign_rows, find_plain_outputs
from streamrt.connectors import CollectionSource
from streamrt.tables import Catalog, MemoryCatalog
from streamrt.testing.memory_topics import MemoryLinks


@pytest.fixture
def catalog() -> Catalog:
    made = Catalog(store=MemoryCatalog(), links=MemoryLinks())
    made.create_table("people", "id BIGINT, name STRING, PRIMARY KEY (id)", maintained=True, topic="people")
    made.create_table("direct", "id BIGINT, PRIMARY KEY (id)", topic="direct")
    return made


def write_plainly(app: Application) -> None:
    app.dataframe(app.topic("in")).to_topic(app.topic("people")).to_topic(app.topic("direct"))


def choose_topics(app: Application) -> None:
    out = app.topic("people")
    app.topic("direct")
    app.dataframe(app.topic("in")).to_topic(lambda *_: out)


def produce_from_source(app: Application) -> None:
    app.dataframe(app.topic("in")).to_topic(app.topic("direct"))
    app.add_source(CollectionSource([{"id": 1}], "lines"), app.topic("people"))


@pytest.mark.parametrize("define", [write_plainly, choose_topics, produce_from_source], ids=lambda each: each.__name__)
def test_records_past_the_rules_of_a_table_are_told(catalog: Catalog, define: Callable[[Application], None]) -> None:
    app = Application("unused:9092", consumer_group="shop", catalog=catalog)
    define(app)
    outputs = find_plain_outputs(definition_of(app))
    assert outputs == {"people", "direct"}
    admin: Any = catalog.links.admin()
    (warning,) = describe_foreign_rows(outputs, admin, catalog.infos, 1.0)
    assert "topic 'people' past the rules of the maintained table 'default.people'" in warning
    assert 'to_table("default.people")' in warning
    assert "consumer group" not in warning
    catalog.claim_table("people", "owner")
    (warning,) = describe_foreign_rows(outputs, admin, catalog.infos, 1.0)
    assert "consumer group 'owner'" in warning


def test_rows_that_are_written_as_such_are_not_told(catalog: Catalog) -> None:
    app = Application("unused:9092", consumer_group="shop", catalog=catalog)
    app.dataframe(app.topic("in")).to_table("people").to_topic(app.topic("out"))
    outputs = find_plain_outputs(definition_of(app))
    assert outputs == {"out"}

    def refuse() -> list[Any]:
        raise AssertionError("the catalogue was read")

    admin: Any = catalog.links.admin()
    assert describe_foreign_rows(outputs, admin, refuse, 1.0) == []
    assert describe_foreign_rows([], admin, refuse, 1.0) == []
