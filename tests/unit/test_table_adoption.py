"""Rows that a table has before it is maintained become the state of the application; and one group maintains a table."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from streamrt.errors import (
    ArgumentValueError,
    InvalidOperationError,
    RunnerError,
    StaleTokenError,
    TableNotFoundError,
)
from streamrt.kafka import KafkaRequestError, TopicConfig
from streamrt.kafka.cluster import topic_ids
from streamrt.records import TopicPartition
from streamrt.relations import Maintain
from streamrt.relations.adoption import RowAdoption
from streamrt.tables import HTTPSSE, Catalog, MemoryCatalog
from streamrt.testing import TopologyTestDriver
from streamrt.testing.driver import record_processing
from streamrt.testing.memory_topics import MemoryLinks
from streamrt.topics import Topic
from streamrt.topology import Topology
from tests.unit.test_maintain import Maintained

pytestmark = pytest.mark.usefixtures("processing_mode")
ROWS = 2_500
TTL = pytest.mark.parametrize("rules", [{}, {"ttl": timedelta(seconds=100)}], ids=["", "ttl"])


class Former:
    """A table that had rows before, in topics in memory."""

    timeout = 1.0

    def __init__(self) -> None:
        self.links = MemoryLinks()
        self.links.admin().create_topics([Topic("shop.rows", TopicConfig(1, 1))])
        self._sender = self.links.sender()

    def write(self, key: bytes | None, value: bytes | None, timestamp: int) -> None:
        self._sender.produce("shop.rows", value, key, timestamp, partition=0)

    def upsert(self, number: int, v2: str, timestamp: int = 1_000) -> None:
        row = {"k": number, "v1": float(number), "v2": v2}
        self.write(orjson.dumps(number), orjson.dumps(row), timestamp)


@pytest.fixture
def maintain(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Maintained]:
    def start(former: Former, **settings: Any) -> Maintained:
        def bind(topology: Topology, _: object) -> Topology:
            task_links: dict[str, Any] = {"task_links": former}
            nodes = (
                replace(node, operator=replace(node.operator, **task_links))
                if isinstance(node.operator, Maintain)
                else node
                for node in topology.nodes
            )
            return replace(topology, nodes=tuple(nodes))

        monkeypatch.setattr(record_processing, "bind_lookups", bind)
        made = Maintained(**settings)
        made.start()
        return made

    return start


@TTL
def test_requests_find_the_rows_that_a_table_has(maintain: Callable[..., Maintained], rules: dict[str, Any]) -> None:
    former = Former()
    for number in range(ROWS):
        former.upsert(number, "old")
    former.upsert(7, "new")
    former.write(b"8", None, 1_000)
    former.write(None, b"{}", 1_000)
    former.write(b"9", b"no row", 1_000)
    table = maintain(former, **rules)
    for number in (7, 8, 9, ROWS - 1):
        table.send({"k": number, "v1": 0.5}, at=2_000)
    # A record that is not a row counts as none.
    assert table.written() == [(7, 0.5, "new"), (8, 0.5, None), (9, 0.5, None), (ROWS - 1, 0.5, "old")]
    assert len(table.changes) >= ROWS
    # Once.
    former.upsert(10, "later")
    table.send({"k": 10, "v1": 0.5}, at=2_000)
    assert table.written() == [(10, 0.5, "old")]


def test_rows_that_a_table_has_expire(maintain: Callable[..., Maintained]) -> None:
    former = Former()
    former.upsert(1, "old", 1_000)
    former.upsert(2, "old", 50_000)
    table = maintain(former, ttl=timedelta(seconds=100))
    table.send({"k": 3}, at=101_000)
    assert table.written() == [(3, None, None), None]
    table.send({"k": 2, "v1": 0.5}, at=101_001)
    assert table.written() == [(2, 0.5, "old")]


@pytest.fixture
def ids(monkeypatch: pytest.MonkeyPatch) -> dict[str, str | None]:
    """The ids of topics, which a test changes. Answers are repeated at once."""
    found: dict[str, str | None] = {"shop.rows": "a"}
    monkeypatch.setattr(topic_ids, "PAUSE_S", 0.0)
    return found


def have_ids(former: Former, ids: dict[str, str | None], monkeypatch: pytest.MonkeyPatch) -> None:
    admin = former.links.admin()
    known = SimpleNamespace(offset_bounds=admin.offset_bounds, topic_ids=lambda *_, timeout=0.0: dict(ids))
    monkeypatch.setattr(former.links, "admin", lambda: known)


RECREATED = r"topic 'shop.rows' of table 'shop.rows' was deleted and created again.*streamrt reset"


@pytest.mark.parametrize("rows", [0, 1], ids=["later", "while it is read"])
def test_a_topic_that_is_another_one_is_noticed(
    maintain: Callable[..., Maintained], monkeypatch: pytest.MonkeyPatch, ids: dict[str, str | None], rows: int
) -> None:
    former = Former()
    for number in range(rows):
        former.upsert(number, "old")
    have_ids(former, ids, monkeypatch)
    begin = RowAdoption._begin

    def begin_and_change(self: RowAdoption, partition: TopicPartition) -> Any:
        place = begin(self, partition)
        ids["shop.rows"] = "b"
        return place

    monkeypatch.setattr(RowAdoption, "_begin", begin_and_change)

    def run() -> None:
        # This is not an error of a request, so callbacks skip nothing.
        table = maintain(former, settings={"on_processing_error": lambda *_: True})
        table.send({"k": 1, "v1": 0.5})
        table.driver.advance(1_000)

    with pytest.raises(StaleTokenError, match=RECREATED):
        run()


def test_no_callback_skips_rows_that_cannot_be_read(
    maintain: Callable[..., Maintained], monkeypatch: pytest.MonkeyPatch
) -> None:
    former = Former()
    former.upsert(1, "old")
    answers = former.links.admin

    def refuse() -> None:
        raise KafkaRequestError("no broker answers", retriable=True)

    monkeypatch.setattr(former.links, "admin", refuse)
    table = maintain(former, settings={"on_processing_error": lambda *_: True})
    with pytest.raises(RunnerError, match=r"the rows that table 'shop\.rows' has already could not be read: no broker"):
        table.send({"k": 1, "v1": 0.5})
    assert table.written() == []
    monkeypatch.setattr(former.links, "admin", answers)
    table.send({"k": 1, "v1": 0.5})
    assert table.written()[-1] == (1, 0.5, "old")


def test_one_group_maintains_a_table() -> None:
    catalog = Catalog(store=MemoryCatalog())
    catalog.create_table("people", "id BIGINT, name STRING, PRIMARY KEY (id)", maintained=True)
    assert catalog.release_table("people") is None
    catalog.claim_table("people", "first")
    catalog.claim_table("people", "first")
    version = catalog.table("people").info.version
    with pytest.raises(InvalidOperationError, match=r"maintained by consumer group 'first', and 'second' cannot"):
        catalog.claim_table("people", "second")
    catalog.alter_table("people", comment="all of them")
    catalog.create_table("people", "id BIGINT, name STRING, PRIMARY KEY (id)", maintained=True, if_exists="replace")
    assert catalog.table("people").info.maintained_by == "first"
    assert catalog.table("people").info.as_dict()["maintained_by"] == "first"
    assert catalog.release_table("people") == "first"
    catalog.claim_table("people", "second")
    assert version == 1
    catalog.create_table("jobs", "id STRING", connector=HTTPSSE("https://rides.example/stream"))
    with pytest.raises(InvalidOperationError, match=r"'default.jobs' are in another system"):
        catalog.claim_table("jobs", "first")
    with pytest.raises(InvalidOperationError, match=r"'default.jobs' are in another system"):
        catalog.release_table("jobs")
    with pytest.raises(TableNotFoundError):
        catalog.claim_table("nothing", "first")
    with pytest.raises(ArgumentValueError, match="needs the name of a consumer group"):
        catalog.claim_table("people", "")


def test_the_driver_begins_without_rows() -> None:
    table = Maintained()
    table.start()
    assert isinstance(table.driver, TopologyTestDriver)
    table.send({"k": 1, "v1": 0.5})
    assert table.written() == [(1, 0.5, None)]
