"""Writers of tables over topics in memory: keys, partitions, times and sizes of records, and the end of a writer."""

import copy
import datetime
import json
import os
import pickle
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from streamrt.errors import (
    ConfigurationError,
    InvalidOperationError,
    ProducerError,
    SchemaMismatchError,
    SerializationError,
    StaleTokenError,
)
from streamrt.kafka import TopicConfig
from streamrt.kafka.partitioner import partition_for
from streamrt.schema import Schema
from streamrt.tables.table import Table
from streamrt.tables.writing.delivery import WriteResult
from streamrt.testing.memory_topics import MemoryLinks, _Partition
from tests.table_home import committed, create, created_again, rows_in, table_info

EVENTS = "id INT, name STRING, score DOUBLE"
LATEST = {"id": 3, "name": "Cy", "score": 91.0}


@pytest.fixture
def links() -> MemoryLinks:
    return MemoryLinks()


@pytest.fixture
def events(links: MemoryLinks) -> Table:
    return create(links, table_info(EVENTS, "demo.events"))


def add_partitions(links: MemoryLinks, topic: str, count: int) -> None:
    kept = links._topics[topic]
    kept.partitions.extend(_Partition() for _ in range(count - len(kept.partitions)))
    kept.config = TopicConfig(count, 1, kept.config.extra_config)


class TestRecords:
    """Keys, partitions and timestamps."""

    def test_key_decides_on_the_partition(self, links: MemoryLinks) -> None:
        table = create(links, table_info(EVENTS, partitions=4, key=["name"]))
        names = [f"name {number}" for number in range(12)]
        with table.writer() as writer:
            for name in names[:6]:
                writer.append({"name": name})
            writer.append_arrow(pa.table({"name": names[6:]}))
            with pytest.raises(SerializationError, match=r"column 'name' is in the key and must not be null"):
                writer.append({"id": 1})
            with pytest.raises(SerializationError, match=r"row 1: column 'name' is in the key and must not be null"):
                writer.append_arrow(pa.table({"name": ["a", None]}))
            token = writer.flush()
        found = {stored.row["name"]: stored for stored in committed(links, table)}
        assert sorted(found) == sorted(names)
        for name, stored in found.items():
            assert stored.key == json.dumps(name).encode()
            assert stored.partition == partition_for(stored.key, 4)
        assert token.partition_map("shop.orders") == Counter(stored.partition for stored in found.values())

    def test_rows_go_around(self, links: MemoryLinks) -> None:
        table = create(links, table_info(EVENTS, partitions=3))
        with table.writer(options={"assigner": "round-robin"}) as writer:
            for number in range(7):
                writer.append({"id": number})
        assert Counter(stored.partition for stored in committed(links, table)) == {0: 3, 1: 2, 2: 2}

    def test_rows_go_to_partitions_that_are_added_later(
        self, links: MemoryLinks, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        table = create(links, table_info(EVENTS, partitions=2))
        monkeypatch.setattr("streamrt.tables.writing.row_sender.REFRESH_S", 0.0)
        with table.writer(options={"assigner": "round-robin"}) as writer:
            writer.append_rows([{"id": 1}] * 4)
            add_partitions(links, "shop.orders", 5)
            writer.append_rows([{"id": 2}] * 5)
            for _ in range(5):
                writer.append({"id": 3})
            token = writer.flush()
            links.admin().delete_topics(["shop.orders"])
            with pytest.raises(ProducerError, match=r"0 of the 1 rows of this call were sent"):
                writer.append_rows([{"id": 4}])
        assert token.partition_map("shop.orders") == {0: 4, 1: 4, 2: 2, 3: 2, 4: 2}

    @pytest.mark.parametrize(
        ("word", "value", "expected"),
        [
            ("TIMESTAMP", datetime.datetime(1970, 1, 1, 0, 0, 1, 999), 1_000),
            ("TIMESTAMP_LTZ", "1970-01-01T01:00:02+01:00", 2_000),
            ("DATE", "1970-01-03", 172_800_000),
            ("BIGINT", 5, 5),
            # The client takes 0 for the time of the moment.
            ("BIGINT", 0, 1),
        ],
    )
    def test_event_time(self, links: MemoryLinks, word: str, value: Any, expected: int) -> None:
        table = create(links, table_info(Schema(f"at {word}", time="at")))
        before = datetime.datetime.now().timestamp() * 1_000
        with table.writer() as writer:
            writer.append([value])
            writer.append([None])
            checked = [table.schema.check([value]), {"at": None}]
            writer.append_arrow(pa.Table.from_pylist(checked, schema=table.schema.arrow))
        times = [stored.timestamp for stored in committed(links, table)]
        assert [times[0], times[2]] == [expected, expected]
        assert min(times[1], times[3]) >= before - 1

    def test_event_time_before_that_of_kafka(self, links: MemoryLinks) -> None:
        table = create(links, table_info(Schema("at TIMESTAMP", time="at")))
        early = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999)
        why = r"column 'at' \(TIMESTAMP\) must be 1970 or later, because it is the timestamp of the record"
        with pytest.raises(SchemaMismatchError, match=f"^row 0: {why}"):
            table.append([[early]])
        with pytest.raises(SchemaMismatchError, match=f"^row 0: {why}"):
            table.append(pa.table({"at": [early]}))

    @pytest.mark.parametrize(
        ("options", "why"),
        [
            ({"assigner": "random"}, "assigner must be one of sticky, round-robin, got 'random'"),
            ({"transactional.id": "x"}, "transactional.id is not supported: give the writer an id instead"),
            ({"partitioner": "random"}, "partitioner is not supported"),
            ({"acks": 0}, "acks=0 is not supported"),
        ],
    )
    def test_options_that_cannot_be_used(self, events: Table, options: dict[str, Any], why: str) -> None:
        with pytest.raises(ConfigurationError, match=why):
            events.writer(options=options)

    def test_assigner_of_a_table_with_a_key(self, links: MemoryLinks) -> None:
        table = create(links, table_info(EVENTS, key=["name"]))
        with pytest.raises(ConfigurationError, match=r"assigner is for tables without a key"):
            table.writer(options={"assigner": "sticky"})

    def test_row_that_is_too_large(self, links: MemoryLinks, events: Table) -> None:
        small = {"message.max.bytes": 1_000}
        with events.writer(options=small) as writer:
            with pytest.raises(ProducerError, match=r"larger than message.max.bytes=1000") as error:
                writer.append({"name": "x" * 1_000})
            assert error.value.refused
            for rows in ([{"name": "a"}, {"name": "x" * 1_000}], pa.table({"name": ["a", "x" * 1_000]})):
                with pytest.raises(ProducerError, match=r"^row 1: a row of 1,0.. bytes for table 'demo.events'"):
                    writer.append_rows(rows)
        assert rows_in(links, events) == []


class TestEnd:
    """State that is left when a writer is closed."""

    @pytest.mark.rows("DK-028")
    def test_writer_refuses_when_it_is_closed(self, links: MemoryLinks, events: Table) -> None:
        with events.writer() as writer:
            result = writer.append(LATEST)
        writer.close()
        assert result.wait(60).offset == 0
        for call in (lambda: writer.append(LATEST), writer.flush, lambda: writer.append_rows([])):
            with pytest.raises(InvalidOperationError, match=r"the writer of table 'demo.events' is closed"):
                call()
        assert "closed" in repr(writer)

    @pytest.mark.rows("DK-027")
    def test_failed_writer_drops_what_was_not_delivered(self, events: Table) -> None:
        def fail() -> None:
            with events.writer() as writer:
                results.append(writer.append(LATEST))
                raise ValueError("the source")

        results: list[WriteResult] = []
        with pytest.raises(ValueError, match=r"the source"):
            fail()
        assert results[0].done()
        with pytest.raises(ProducerError, match=r"was not delivered before its writer was closed"):
            results[0].wait(60)

    def test_writers_are_not_pickled_or_copied(self, events: Table) -> None:
        with events.writer() as writer:
            for call in (pickle.dumps, copy.copy, copy.deepcopy):
                with pytest.raises(TypeError, match=r"the writer of table 'demo.events' cannot be pickled or copied"):
                    call(writer)

    def test_process_that_was_forked(self, links: MemoryLinks, events: Table, monkeypatch: pytest.MonkeyPatch) -> None:
        writer = events.writer()
        result = writer.append(LATEST)
        with monkeypatch.context() as patch:
            own = os.getpid()
            patch.setattr(os, "getpid", lambda: own + 1)
            for call in (lambda: writer.append(LATEST), writer.flush, result.wait):
                with pytest.raises(InvalidOperationError, match=rf"made in process {own}, and this one .* was forked"):
                    call()
            events_elsewhere = events.writer()
            events_elsewhere.append(LATEST)
            events_elsewhere.close()
        writer.flush()
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: own + 1)
            # Neither waits nor drops: the rows are those of the other process.
            writer.close()
        assert len(rows_in(links, events)) == 2

    def test_topic_that_is_created_again(self, links: MemoryLinks, events: Table) -> None:
        writer = events.writer()
        writer.append({"id": 1})
        token = writer.flush()
        again = created_again(links, events)
        writer.append({"id": 2})
        for call in (writer.flush, lambda: writer.append({"id": 3})):
            with pytest.raises(
                StaleTokenError,
                match=r"created again while a writer was open; rows from before are gone, and later ones",
            ):
                call()
        writer.close()
        with again.writer() as writer:
            writer.append({"id": 3})
            assert writer.flush().ids != token.ids

    def test_topic_that_is_created_again_before_the_end(self, links: MemoryLinks, events: Table) -> None:
        writer = events.writer()
        writer.append({"id": 1})
        created_again(links, events)
        with pytest.raises(StaleTokenError, match=r"created again while a writer was open"):
            writer.close()
        writer.close()
        idle = Table(events.info, events.home).writer()
        created_again(links, events)
        idle.close()

    def test_states_are_those_of_writers_with_an_id(self, events: Table) -> None:
        with events.writer() as writer:
            with pytest.raises(InvalidOperationError, match=r"a writer without an id has no state"):
                _ = writer.state
            with pytest.raises(InvalidOperationError, match=r"a writer without an id has no checkpoint"):
                writer.checkpoint("1")
