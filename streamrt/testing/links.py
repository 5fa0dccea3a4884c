"""Conformance suite for tables over links: those of StreamRT, to Kafka and in memory, and yours.

Subclass it in a test module, give the subclass a name that begins with `Test`, and define what it tests. pytest collects
the inherited tests.

Example:
    ```python
    class TestMemoryTables(TableConformance):
        def make(self) -> TableLinks:
            return MemoryLinks()
    ```
"""
# ruff: noqa: S101 - asserting is what a test suite does

import contextlib
import time
import uuid
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest

from streamrt.errors import (
    OffsetOutOfRangeError,
    SchemaMismatchError,
    SerializationError,
    StaleTokenError,
    TransactionError,
    WriterFencedError,
)
from streamrt.kafka.cluster.topic_config import TopicConfig
from streamrt.kafka.partitioner import partition_for
from streamrt.records import TopicPartition
from streamrt.tables.access.links import TableLinks
from streamrt.tables.catalogue.catalog import Catalog
from streamrt.tables.catalogue.catalog_store import MemoryCatalog
from streamrt.tables.reading.stream import TableStream
from streamrt.tables.table import Table
from streamrt.tables.writing.writer import TableWriter
from streamrt.topics import Topic

__all__ = ["TableConformance"]

_COLUMNS = "id BIGINT NOT NULL, name STRING"
_WAIT_S = 60.0


class TableConformance:
    """The contract of `TableLinks`, and of tables over them: writers, scans and subscriptions."""

    def make(self) -> TableLinks:
        """Return links to a cluster, or to what stands for one; the suite gives topics unique names.

        It calls `close()` of the links after a test, if they have it.
        """
        raise NotImplementedError

    @pytest.fixture(name="links")
    def _links(self) -> Iterator[TableLinks]:
        links = self.make()
        try:
            yield links
        finally:
            getattr(links, "close", lambda: None)()

    # -- Links -------------------------------------------------------------------------------------------------------

    def test_outcome_of_each_record(self, links: TableLinks) -> None:
        """Records have offsets in the order in which they were written, and their times find them."""
        partition = _create_topic(links)
        told: list[Any] = []
        with contextlib.closing(links.sender()) as sender:
            for number in range(3):
                sender.produce(
                    partition.topic, b"%d" % number, None, 1_000 + number, None, 0, lambda *args: told.append(args)
                )
            assert sender.flush(_WAIT_S) == 0
        assert told == [(None, 0, 0, 1_000), (None, 0, 1, 1_001), (None, 0, 2, 1_002)]
        assert _read_values(links, partition) == [b"0", b"1", b"2"]
        assert links.admin().offsets_at([partition], 1_001)[partition] == 1
        assert links.admin().offsets_at([partition], 5_000)[partition] == 3

    def test_readers_see_what_is_committed(self, links: TableLinks) -> None:
        """An open transaction holds back the end, and an aborted one is not seen."""
        partition = _create_topic(links)
        with contextlib.closing(links.sender(transactional_id=f"{partition.topic}-id")) as sender:
            sender.produce(partition.topic, b"kept", None)
            sender.commit()
            sender.produce(partition.topic, b"dropped", None)
            assert sender.flush(_WAIT_S) == 0
            assert links.admin().offset_bounds([partition], isolation_level="read_committed")[partition] == (0, 2)
            sender.abort()
        assert _read_values(links, partition) == [b"kept"]

    def test_second_sender_with_the_id_fences_the_first(self, links: TableLinks) -> None:
        """The first is told by the answer to a request."""
        partition = _create_topic(links)
        with contextlib.closing(links.sender(transactional_id=f"{partition.topic}-id")) as first:
            first.produce(partition.topic, b"1", None)
            with contextlib.closing(links.sender(transactional_id=f"{partition.topic}-id")) as second:
                second.produce(partition.topic, b"2", None)
                second.commit()
                # Only the answer to a request tells it.
                assert [first.usable] == [True]
                with pytest.raises(TransactionError) as error:
                    first.commit()
                assert error.value.fenced
                assert [first.usable, second.usable] == [False, True]
        assert _read_values(links, partition) == [b"2"]

    def test_topic_that_was_created_again_has_another_id(self, links: TableLinks) -> None:
        """So tokens of the former one are noticed."""
        name = _create_topic(links).topic
        first = links.admin().topic_ids([name])[name]
        assert [each.partition for each in links.admin().partition_replicas(name)] == [0]
        assert links.admin().partition_replicas(f"{name}-of-nobody") == []
        links.admin().delete_topics([name])
        deadline = time.monotonic() + _WAIT_S
        while links.admin().inspect_topics([name])[name] is not None and time.monotonic() < deadline:
            time.sleep(0.05)
        _create_topic(links, name)
        assert links.admin().topic_ids([name])[name] not in (None, first)

    # -- Writers -----------------------------------------------------------------------------------------------------

    def test_rows_of_each_form_are_written(self, links: TableLinks) -> None:
        """The token of a flush is the end of the rows, with the id of the topic."""
        table = _make_table(links)
        with table.writer() as writer:
            position = writer.append({"id": 1, "name": "ann"}).wait(_WAIT_S)
            writer.append([2, None])
            frame = writer.append_arrow(pa.table({"name": ["cy", "di"], "id": [3, 4]}))
            with pytest.raises(SchemaMismatchError):
                writer.append({"id": None})
            token = writer.flush(_WAIT_S)
        assert (position.partition, position.offset) == (0, 0)
        assert token.partition_map(table.name) == {0: 4}
        assert token.ids == links.admin().topic_ids([table.name])
        assert token.covers(frame.token)
        assert [tuple(row.values()) for row in table.scan().rows()] == [(1, "ann"), (2, None), (3, "cy"), (4, "di")]

    def test_equal_keys_are_in_the_partition_that_kafka_s_clients_choose(self, links: TableLinks) -> None:
        """It is that of murmur2."""
        table = _make_table(links, key=["name"], num_partitions=3)
        table.append([{"id": number, "name": f"n{number % 5}"} for number in range(20)])
        found = list(table.scan().records())
        assert len(found) == 20
        for record in found:
            assert record.key == b'"%s"' % record.row["name"].encode()
            assert record.partition == partition_for(record.key, 3)

    def test_checkpoints_commit_rows_and_state_together(self, links: TableLinks) -> None:
        """Everything after the last one is dropped, and seen by no reader."""
        table = _make_table(links)
        with table.writer(id="loader") as writer:
            assert writer.state is None
            writer.append({"id": 1})
            writer.flush(_WAIT_S)
            assert table.scan().count() == 0
            writer.checkpoint("one")
            assert _scan_ids(links, table) == [1]
            writer.append({"id": 2})
            writer.flush(_WAIT_S)
        with table.writer(id="loader") as writer:
            assert writer.state == "one"
            writer.append({"id": 3})
            token = writer.checkpoint("two")
        assert _scan_ids(links, table) == [1, 3]
        assert table.offsets("latest").covers(token)

    def test_second_writer_with_the_id_fences_the_first(self, links: TableLinks) -> None:
        """Its rows since the last checkpoint are dropped."""
        table = _make_table(links)
        first = table.writer(id="loader")
        first.append({"id": 1})
        with table.writer(id="loader") as second:
            second.append({"id": 2})
            second.checkpoint("of the second")
        with pytest.raises(WriterFencedError):
            _make_checkpoint(first)
        first.close()
        assert _scan_ids(links, table) == [2]

    def test_a10_writers_of_other_catalogues_are_others(self, links: TableLinks) -> None:
        """Tables of one name, whose rows are in different topics, have separate writers of one id."""
        name = f"rows_{uuid.uuid4().hex}"
        tables = [_make_table(links, name, topic=f"{name}-{number}") for number in range(2)]
        for state in ("one", "two"):
            for table in tables:
                with table.writer(id="loader") as writer:
                    assert writer.state == (None if state == "one" else "one")
                    writer.append({"id": 1})
                    writer.checkpoint(state)
        assert [_scan_ids(links, table) for table in tables] == [[1, 1], [1, 1]]

    # -- Scans -------------------------------------------------------------------------------------------------------

    def test_scans_between_positions(self, links: TableLinks) -> None:
        """The end is fixed when the scan is made, and another one begins there."""
        table = _make_table(links)
        before = datetime.now(timezone.utc) - timedelta(hours=1)
        table.append([{"id": number} for number in range(5)])
        scan = table.scan(["id"])
        table.append([{"id": 5}])
        assert scan.to_arrow().to_pydict() == {"id": [0, 1, 2, 3, 4]}
        assert list(table.scan(["id"], start=scan.end).rows()) == [{"id": 5}]
        assert [row["id"] for row in table.scan(start={0: 1}, until={0: 3}).rows()] == [1, 2]
        assert [row["id"] for row in table.scan(start=before, limit=2).rows()] == [0, 1]
        assert table.scan(start=before + timedelta(hours=2)).count() == 0
        assert [table.offsets(each).partition_map(table.name) for each in ("earliest", "latest")] == [{0: 0}, {0: 6}]
        with pytest.raises(OffsetOutOfRangeError):
            table.scan(start={0: 99}).count()

    def test_records_that_are_no_rows(self, links: TableLinks) -> None:
        """They raise an error with their place, or are skipped and counted."""
        table = _make_table(links)
        table.append([{"id": 1}])
        with contextlib.closing(links.sender()) as sender:
            sender.produce(table.name, b"no row", None)
            assert sender.flush(_WAIT_S) == 0
        table.append([{"id": 2}])
        with pytest.raises(SerializationError, match="offset 1"):
            list(table.scan().rows())
        scan = table.scan(on_error="skip")
        assert [row["id"] for row in scan.rows()] == [1, 2]
        assert scan.skipped == 1

    def test_token_of_a_topic_that_was_created_again(self, links: TableLinks) -> None:
        """Its offsets mean nothing in the new one."""
        table = _make_table(links)
        token = table.append([{"id": 1}])
        links.admin().delete_topics([table.name])
        deadline = time.monotonic() + _WAIT_S
        while links.admin().inspect_topics([table.name])[table.name] is not None and time.monotonic() < deadline:
            time.sleep(0.05)
        _create_topic(links, table.name)
        with pytest.raises(StaleTokenError):
            table.scan(start=token).count()

    # -- Subscriptions -----------------------------------------------------------------------------------------------

    def test_a_position_continues_where_rows_were_returned(self, links: TableLinks) -> None:
        """Also in the middle of what the client has read ahead, and as a text."""
        table = _make_table(links, num_partitions=2)
        with table.writer(options={"assigner": "round-robin"}) as writer:
            writer.append_rows([{"id": number} for number in range(10)])
        found: list[int] = []
        state: str = "earliest"
        for _ in range(10):
            with table.subscribe(start=state) as stream:
                found.append(_next_row(stream)["id"])
                state = str(stream.position)
        assert sorted(found) == list(range(10))
        with table.subscribe(start=state) as stream:
            assert not stream.poll(timeout=0.2)

    def test_committed_rows_come_as_they_are_written(self, links: TableLinks) -> None:
        """Those of open and aborted transactions do not."""
        table = _make_table(links)
        with table.subscribe(start="latest") as stream:
            table.append([{"id": 1}])
            assert _next_row(stream)["id"] == 1
            with table.writer(id="loader") as writer:
                writer.append({"id": 2})
                writer.flush(_WAIT_S)
                assert not stream.poll(timeout=0.2)
            table.append([{"id": 3}])
            assert _next_row(stream)["id"] == 3

    def test_seek_pause_and_resume(self, links: TableLinks) -> None:
        """They change what comes next."""
        table = _make_table(links)
        table.append([{"id": number} for number in range(4)])
        with table.subscribe(["id"], start="earliest") as stream:
            assert _next_row(stream) == {"id": 0}
            stream.seek({0: 2})
            assert _next_row(stream) == {"id": 2}
            stream.pause([0])
            assert not stream.poll(timeout=0.2)
            stream.resume([0])
            assert _next_row(stream) == {"id": 3}
            stream.seek("earliest")
            batch = stream.poll_arrow(timeout=_WAIT_S)
            assert batch.column("id")[0].as_py() == 0


def _create_topic(links: TableLinks, name: str | None = None) -> TopicPartition:
    """Create a topic with one partition, and return the partition."""
    name = name or f"conformance-{uuid.uuid4().hex}"
    links.admin().create_topics([Topic(name, config=TopicConfig(1, 1))])
    return TopicPartition(name, 0)


def _read_values(links: TableLinks, partition: TopicPartition) -> list[bytes | None]:
    """Return the committed values of a partition."""
    _await_markers(links, partition)
    end = links.admin().offset_bounds([partition], isolation_level="read_committed")[partition][1]
    found: list[bytes | None] = []
    with contextlib.closing(links.feed()) as feed:
        feed.add({partition: 0})
        feed.resume([partition])
        deadline = time.monotonic() + _WAIT_S
        while feed.ends().get(partition, -1) < end and time.monotonic() < deadline:
            for _, batch in feed.poll(0.1, 100):
                found += batch.values
    return found


def _await_markers(links: TableLinks, partition: TopicPartition) -> None:
    """Wait until no transaction is open: brokers may answer a commit before readers see its records."""
    admin, deadline = links.admin(), time.monotonic() + _WAIT_S
    while admin.offset_bounds([partition], isolation_level="read_committed") != admin.offset_bounds([partition]):
        assert time.monotonic() < deadline, "a transaction stays open"
        time.sleep(0.02)


def _scan_ids(links: TableLinks, table: Table) -> list[int]:
    """Return the ids of the committed rows of a table."""
    _await_markers(links, TopicPartition(str(table.info.topic), 0))
    return [row["id"] for row in table.scan().rows()]


def _next_row(stream: TableStream) -> Mapping[str, Any]:
    """Return the next row, which is to come soon."""
    found = stream.poll(timeout=_WAIT_S, max_records=1)
    assert found, f"no row came within {_WAIT_S:g} s"
    return found[0].row


def _make_table(links: TableLinks, name: str | None = None, **settings: Any) -> Table:
    catalog = Catalog(store=MemoryCatalog(), links=links, timeout=_WAIT_S)
    return catalog.create_table(name or f"rows_{uuid.uuid4().hex}", _COLUMNS, **{"num_partitions": 1, **settings})


def _make_checkpoint(writer: TableWriter) -> None:
    """Either of the two may notice first that another writer has the id."""
    writer.append({"id": 9})
    writer.checkpoint("of the first")
