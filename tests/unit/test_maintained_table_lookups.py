"""Lookups of maintained tables wait until requests are merged."""

import random
import threading
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from streamrt import Application, Catalog
from streamrt.app import definition_of
from streamrt.errors import ArgumentTypeError, ArgumentValueError, LookupTimeoutError, StaleTokenError
from streamrt.kafka import TopicConfig
from streamrt.kafka.partitioner import partition_for
from streamrt.records import TopicPartition
from streamrt.runtime.driver.observation.table_usage import TableUsage
from streamrt.tables import Aggregate, MemoryCatalog, Table, TableInfo
from streamrt.tables.access import merged_requests
from streamrt.testing import TopologyTestDriver
from streamrt.testing.memory_topics import MemoryLinks
from tests.unit.test_maintained_tables import NewTopic

COLUMNS = "id BIGINT, n BIGINT, PRIMARY KEY (id)"
SHORT = 0.05
REQUESTS = "default.people.requests"


@pytest.fixture
def links() -> MemoryLinks:
    return MemoryLinks()


@pytest.fixture
def catalog(links: MemoryLinks) -> Iterator[Catalog]:
    with Catalog(store=MemoryCatalog(), links=links) as made:
        yield made


@pytest.fixture
def people(catalog: Catalog) -> Table:
    return catalog.create_table("people", COLUMNS, maintained=True, num_partitions=2)


class _Maintainer:
    """Merges requests into rows as the application does, step by step: the last row of a key counts."""

    def __init__(self, links: MemoryLinks, group: str = "keeper") -> None:
        self.links = links
        self.group = group
        self.merged = {0: 0, 1: 0}
        self.senders = {
            number: links.sender(transactional_id=f"{group}-{number}-{random.random()}") for number in self.merged
        }

    def merge(self, number: int, most: int = 1_000) -> int:
        """Write rows of some requests in an open transaction; return the offset to commit."""
        log = self.links._topics[REQUESTS].partitions[number]
        end = min(log.high, self.merged[number] + most)
        for offset in range(self.merged[number], end):
            entry = log.entries[offset - log.low]
            self.senders[number].produce("default.people", entry.value, entry.key, partition=number)
        self.merged[number] = end
        return end

    def commit_offsets(self, number: int) -> None:
        self.links.set_committed(self.group, {TopicPartition(REQUESTS, number): self.merged[number]})

    def end_rows(self, number: int) -> None:
        self.senders[number].commit()

    def run_all(self) -> None:
        for number in self.merged:
            self.merge(number)
            self.commit_offsets(number)
            self.end_rows(number)


def test_without_an_application_requests_wait(people: Table, catalog: Catalog, links: MemoryLinks) -> None:
    token = people.upsert([{"id": 1, "n": 5}])
    assert people.get(1) is None
    with pytest.raises(
        LookupTimeoutError, match=r"wait to be merged, and no application maintains the table: start one"
    ) as info:
        people.get(1, after=token, timeout=SHORT)
    number = partition_for(b"1", 2)
    assert f"requests up to offset 1 of {REQUESTS}[{number}]" in str(info.value)
    catalog.claim_table("people", "keeper")
    with pytest.raises(
        LookupTimeoutError, match=r"application 'keeper' maintains the table, and has merged those below 0"
    ):
        people.get(1, after=str(token), timeout=SHORT)
    _Maintainer(links).run_all()
    assert people.get(1, after=str(token), timeout=5) == {"id": 1, "n": 5}
    assert people.get_many([1, 2], after=token) == [{"id": 1, "n": 5}, None]
    with people.replica() as replica:
        replica.wait_for(token)
        assert replica.get(1, after=token) == {"id": 1, "n": 5}


def test_rows_in_an_open_transaction_are_waited_for(people: Table, catalog: Catalog, links: MemoryLinks) -> None:
    catalog.claim_table("people", "keeper")
    keeper = _Maintainer(links)
    # The copy is open.
    assert people.get(1) is None
    token = people.upsert([{"id": 1, "n": 5}])
    number = partition_for(b"1", 2)
    keeper.merge(number)
    keeper.commit_offsets(number)
    # Offsets may be visible before the end of the transaction is in the partition of the rows.
    with pytest.raises(LookupTimeoutError, match="a transaction of a producer is open"):
        people.get(1, after=token, timeout=SHORT)
    keeper.end_rows(number)
    assert people.get(1, after=token) == {"id": 1, "n": 5}


def test_requests_without_an_effect_are_covered(people: Table, catalog: Catalog, links: MemoryLinks) -> None:
    catalog.claim_table("people", "keeper")
    token = people.upsert([{"id": 1, "n": 5}])
    links.set_committed("keeper", {TopicPartition(REQUESTS, partition_for(b"1", 2)): 1})
    assert people.get(1, after=token) is None


def test_requests_that_are_deleted_are_merged(people: Table, links: MemoryLinks) -> None:
    token = people.upsert([{"id": 1, "n": 5}])
    # The offsets of a group that is gone for long are gone as well.
    admin: Any = links.admin()
    admin.delete_records({TopicPartition(REQUESTS, partition_for(b"1", 2)): 1})
    assert people.get(1, after=token) is None


def test_any_former_owner_may_have_merged(people: Table, catalog: Catalog, links: MemoryLinks) -> None:
    catalog.claim_table("people", "former")
    token = people.upsert([{"id": 1, "n": 5}])
    _Maintainer(links, "former").run_all()
    assert catalog.release_table("people") == "former"
    assert people.get(1, after=token) == {"id": 1, "n": 5}
    catalog.claim_table("people", "keeper")
    with people.replica() as replica:
        assert replica.get(1, after=token) == {"id": 1, "n": 5}


@pytest.mark.parametrize(("known_s", "asked"), [(60.0, 1), (0.0, 5)])
def test_the_catalogue_is_not_asked_for_each_look(
    people: Table, catalog: Catalog, links: MemoryLinks, monkeypatch: pytest.MonkeyPatch, known_s: float, asked: int
) -> None:
    catalog.claim_table("people", "keeper")
    loads, load = [], catalog.load

    def note(name: str) -> TableInfo:
        loads.append(name)
        return load(name)

    monkeypatch.setattr(catalog, "load", note)
    monkeypatch.setattr(merged_requests, "_OWNER_KNOWN_S", known_s)
    keeper = _Maintainer(links)
    for number in range(5):
        token = people.upsert([{"id": 1, "n": number}])
        keeper.run_all()
        assert people.get(1, after=token) == {"id": 1, "n": number}
    assert loads == ["default.people"] * asked


def test_what_applications_say_that_they_use_does_not_matter(people: Table, catalog: Catalog) -> None:
    catalog.record_usage("another", maintains=["people"])
    token = people.upsert([{"id": 1, "n": 5}])
    with pytest.raises(LookupTimeoutError, match="no application maintains the table"):
        people.get(1, after=token, timeout=SHORT)


def test_tokens_of_rows_and_of_other_topics(people: Table, catalog: Catalog, links: MemoryLinks) -> None:
    catalog.claim_table("people", "keeper")
    token = people.upsert([{"id": 1, "n": 5}])
    _Maintainer(links).run_all()
    end = people.offsets("latest")
    assert people.get(1, after=end) == {"id": 1, "n": 5}
    assert people.get(1, after=token | end) == {"id": 1, "n": 5}
    direct = catalog.create_table("direct", COLUMNS)
    with pytest.raises(ArgumentValueError, match=r"the token is of topic default.direct"):
        people.get(1, after=direct.upsert([{"id": 1, "n": 5}]))
    with pytest.raises(
        ArgumentValueError, match=r"where rows are when such requests are merged: get\(after=...\), scan"
    ):
        people.scan(until=token)
    links.admin().delete_topics([REQUESTS])
    links.admin().create_topics([NewTopic(REQUESTS, TopicConfig(2, 1, {"retention.ms": "-1"}))])
    with pytest.raises(
        StaleTokenError, match=r"topic 'default.people.requests' of table 'default.people' was deleted and"
    ):
        people.get(1, after=token, timeout=2)


@pytest.mark.rows("FL-165", "FL-167")
def test_tables_of_the_test_driver(catalog: Catalog) -> None:
    catalog.create_table("totals", "id BIGINT, n BIGINT, name STRING, PRIMARY KEY (id)", merge=Aggregate(n="sum"))
    app = Application("unused:9092", consumer_group="keeper", catalog=catalog)
    app.maintain("totals")
    assert TableUsage.of(definition_of(app)) == TableUsage((), (), ("default.totals",))
    with TopologyTestDriver(app) as driver:
        totals = driver.table("totals")
        with totals.writer(columns=["id", "n"]) as writer:
            writer.upsert([1, 5])
            token = writer.upsert([1, 7]).token
            assert totals.get(1, after=token) == {"id": 1, "n": 12, "name": None}
        assert list(totals.scan(["n"], after=str(token))) == [{"n": 12}]
        token = totals.upsert([[1, None, "Ann"]]) | totals.delete([1])
        assert totals.snapshot(["name"], after=token).arrow.to_pylist() == [{"name": "Ann"}]
        assert totals.get(1, after=token) == {"id": 1, "n": 12, "name": "Ann"}


def test_scans_wait_for_rows(people: Table, catalog: Catalog, links: MemoryLinks) -> None:
    catalog.claim_table("people", "keeper")
    keeper = _Maintainer(links)
    token = people.upsert([{"id": 1, "n": 5}])
    number = partition_for(b"1", 2)
    assert list(people.scan()) == []
    with pytest.raises(LookupTimeoutError, match=r"^scan\(after=...\) of table .* wait to be merged"):
        people.scan(after=token, timeout=SHORT)
    keeper.merge(number)
    keeper.commit_offsets(number)
    with pytest.raises(LookupTimeoutError, match=r"^snapshot\(after=...\) .* a transaction of a producer is open at"):
        people.snapshot(after=token, timeout=SHORT)
    assert list(people.scan(partitions=[1 - number], after=token)) == []
    keeper.end_rows(number)
    assert list(people.scan(after=str(token))) == [{"id": 1, "n": 5}]
    assert people.snapshot(["n"], after=token).arrow.to_pylist() == [{"n": 5}]


def test_scans_of_direct_tables_wait_for_open_transactions(catalog: Catalog, links: MemoryLinks) -> None:
    log = catalog.create_table("log", "n BIGINT", num_partitions=1)
    other = links.sender(transactional_id="other")
    other.produce("default.log", b'{"n": 1}', None, partition=0)
    token = log.append([{"n": 2}])
    assert list(log.scan()) == []
    with pytest.raises(LookupTimeoutError, match=r"below offset 2 of default.log\[0\], and a transaction .* offset 0"):
        log.scan(after=token, timeout=SHORT)
    other.commit()
    assert [row["n"] for row in log.scan(after=token, changes=True)] == [1, 2]
    with pytest.raises(ArgumentValueError, match="leave the other one out"):
        log.scan(after=token, until=token)
    with pytest.raises(ArgumentTypeError, match="a token is Offsets"):
        log.scan(after=7)  # type: ignore[arg-type]
    with pytest.raises(ArgumentValueError, match="the token is of topic"):
        log.scan(after=catalog.create_table("people", COLUMNS).upsert([{"id": 1}]))


@pytest.mark.parametrize("seed", range(2))
def test_answers_are_never_older_than_their_token(
    people: Table, catalog: Catalog, links: MemoryLinks, seed: int
) -> None:
    chance = random.Random(seed)
    catalog.claim_table("people", "keeper")
    keeper = _Maintainer(links)
    finished = threading.Event()

    def maintain() -> None:
        while not finished.is_set():
            number = chance.randrange(2)
            keeper.merge(number, chance.randrange(1, 4))
            # In either order, as brokers may make them visible.
            steps = [keeper.commit_offsets, keeper.end_rows]
            chance.shuffle(steps)
            for step in steps:
                finished.wait(chance.random() / 500)
                step(number)

    thread = threading.Thread(target=maintain)
    thread.start()
    try:
        with people.writer() as writer:
            for turn in range(40):
                key = turn % 3
                token = writer.upsert({"id": key, "n": turn}).token
                if turn % 4 == 0:
                    rows = people.scan(after=token, timeout=20).to_arrow().to_pylist()
                    assert {"id": key, "n": turn} in rows
                elif turn % 2:
                    assert people.get(key, after=token, timeout=20) == {"id": key, "n": turn}
    finally:
        finished.set()
        thread.join()
    assert orjson.loads(str(people.offsets("latest")))["topics"]
