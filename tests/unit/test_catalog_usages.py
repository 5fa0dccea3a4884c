"""Applications that use tables of a catalogue: what blocks a drop, and the lineage."""

import datetime
import logging
from collections.abc import Collection
from typing import Any

import pytest

from streamrt import Catalog
from streamrt.errors import ArgumentValueError, CatalogError, InvalidOperationError
from streamrt.kafka.cluster.topic_config import Broker
from streamrt.tables import Usage
from streamrt.tables.catalogue import catalog_usages
from streamrt.tables.catalogue.objects import now
from streamrt.tables.descriptions.usages import STALE_AFTER
from streamrt.testing.memory_topics import MemoryLinks
from tests.table_home import COLUMNS


@pytest.fixture
def links() -> MemoryLinks:
    return MemoryLinks()


@pytest.fixture
def catalog(links: MemoryLinks) -> Catalog:
    made = Catalog(links=links)
    made.create_database("shop", comment="what we sell", properties={"owner": "ann"})
    return made


class _Cluster:
    """The administration of a cluster with brokers and one group that runs."""

    def __init__(self, links: MemoryLinks, running: Collection[str]) -> None:
        self._admin = links.admin()
        self._running = running

    def brokers(self, timeout: float = 30) -> list[Broker]:
        return [Broker(1, "localhost", 9092, True)]

    def group_is_active(self, group: str, timeout: float = 30) -> bool:
        return group in self._running

    def wait_for_broker(self, timeout: float) -> None:
        return None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._admin, name)


def test_an_application_that_is_gone_for_months_blocks_no_drop(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    catalog.create_table("shop.orders", COLUMNS)
    catalog.create_table("shop.late", COLUMNS)
    long_ago = now() - STALE_AFTER
    monkeypatch.setattr(catalog_usages, "now", lambda: long_ago + datetime.timedelta(minutes=1))
    catalog.record_usage("late", writes=["shop.late"])
    monkeypatch.setattr(catalog_usages, "now", lambda: long_ago)
    catalog.record_usage("old", reads=["shop.orders"])
    monkeypatch.undo()
    with caplog.at_level(logging.WARNING, "streamrt.tables"):
        catalog.drop_table("shop.orders")
    assert "Table shop.orders is dropped although application old reads it" in caplog.text
    with pytest.raises(CatalogError, match=r"application 'late' writes table 'shop.late', .* forget_usage\(\)"):
        catalog.drop_table("shop.late")
    catalog.forget_usage("late")
    catalog.drop_table("shop.late")
    with pytest.raises(ArgumentValueError, match="needs the name of an application"):
        catalog.forget_usage("")


@pytest.mark.rows("DK-041", "DK-045", "FL-046", "FL-047", "FE-131")
def test_usages_lineage_and_the_drop_of_what_is_in_use(
    catalog: Catalog, links: MemoryLinks, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = catalog.create_table("shop.orders", COLUMNS)
    catalog.create_table("shop.late", COLUMNS)
    with pytest.raises(InvalidOperationError, match="in no cluster with brokers"):
        catalog.brokers()
    catalog.record_usage("a/late flights", reads=["shop.orders"], writes=["shop.late"])
    catalog.record_usage("a/late flights", reads=["shop.orders", "shop.orders"], writes=["shop.late", "gone"])
    since = catalog.applications()[0].started_at
    assert orders.usages() == [Usage("reads", "shop.orders", "a/late flights", since)]
    assert [usage.kind for usage in catalog.usages("shop.late")] == ["writes"]
    lineage = catalog.lineage()
    assert [(start.name, end.name) for start, end in lineage.edges] == [
        ("shop.orders", "a/late flights"),
        ("a/late flights", "default.gone"),
        ("a/late flights", "shop.late"),
    ]
    assert [node.name for node in lineage.nodes if not node.exists] == ["default.gone"]
    with pytest.raises(CatalogError, match=r"may be running, which .* cannot see: pass force=True"):
        catalog.drop_table("shop.orders")
    running = ["a/late flights"]
    cluster = _Cluster(links, running)
    monkeypatch.setattr(links, "admin", lambda: cluster)
    assert [broker.port for broker in catalog.brokers()] == [9092]
    with pytest.raises(CatalogError, match=r"the running application 'a/late flights' reads table 'shop.orders'"):
        catalog.drop_table("shop.orders")
    catalog.drop_table("shop.late", force=True)
    running.clear()
    catalog.drop_table("shop.orders")
    catalog.forget_usage("a/late flights")
    catalog.forget_usage("a/late flights")
    assert catalog.applications() == []


def test_labels_of_the_lineage_are_no_markup(catalog: Catalog) -> None:
    catalog.record_usage('"]; click x "javascript:alert(1)"\n<b>', reads=["shop.orders"])
    drawn = catalog.lineage().as_mermaid().splitlines()
    assert len(drawn) == 4
    assert drawn[2].count('"') == 2
    assert "<" not in drawn[2]
