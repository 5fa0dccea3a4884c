"""Writers of tables over topics in memory: rows and a state in one transaction, and who may go on with it."""

import contextlib
import itertools
import json
import logging
import threading
from typing import Any

import pytest
from hypothesis import given, settings

from streamrt import Offsets
from streamrt.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ProducerError,
    StaleTokenError,
    StateError,
    StoreVersionError,
    TopicConfigurationError,
    TopicNotFoundError,
    TransactionError,
    WriterFencedError,
)
from streamrt.kafka import TopicConfig
from streamrt.kafka.client import KafkaRequestError
from streamrt.records import TopicPartition
from streamrt.tables.access.links import RecordSender
from streamrt.tables.table import Table
from streamrt.tables.writing.writer import TableWriter
from streamrt.tables.writing.writer_states import WRITERS_TOPIC
from streamrt.testing.memory_topics import MemoryLinks
from streamrt.topics import Topic
from tests.table_home import Home, create, created_again, rows_in, table_info
from tests.unit.writer_histories import HISTORIES, TRIED, run_history

EVENTS = "id INT, name STRING, score DOUBLE"


@pytest.fixture
def links() -> MemoryLinks:
    return MemoryLinks()


@pytest.fixture
def events(links: MemoryLinks) -> Table:
    return create(links, table_info(EVENTS, "demo.events"))


def state_of(writer: TableWriter) -> str | None:
    """Return the state; unlike of a property, type checkers expect it to change."""
    return writer.state


@pytest.mark.rows("DK-025", "DK-026")
class TestCheckpoints:
    """Writers with an id: rows and state are committed together."""

    def test_rows_are_visible_with_their_state(self, links: MemoryLinks, events: Table) -> None:
        with events.writer(id="copier") as writer:
            assert state_of(writer) is None
            result = writer.append({"id": 1})
            assert result.wait(10).offset == 0
            assert writer.flush().partition_map("demo.events") == {0: 1}
            assert rows_in(links, events) == []
            assert writer.checkpoint("page 1").partition_map("demo.events") == {0: 1}
            assert [row["id"] for row in rows_in(links, events)] == [1]
            assert state_of(writer) == "page 1"
            writer.append({"id": 2})
        with events.writer(id="copier") as writer, events.writer(id="other") as other:
            assert (writer.state, other.state) == ("page 1", None)
            writer.append_rows([{"id": 2}, {"id": 3}])
            token = writer.checkpoint("page 2")
        assert [row["id"] for row in rows_in(links, events)] == [1, 2, 3]
        # Row, marker, the row that was dropped, marker, two rows.
        assert token.partition_map("demo.events") == {0: 6}
        assert events.writer(id="copier").state == "page 2"

    def test_rows_after_the_last_checkpoint_are_dropped(
        self, links: MemoryLinks, events: Table, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.WARNING), events.writer(id="copier") as writer:
            writer.append({"id": 1})
        assert "closed with rows after its last checkpoint (1)" in caplog.text
        caplog.clear()
        writer = events.writer(id="copier")
        writer.append({"id": 1})
        writer.close(failed=True)
        assert not caplog.records
        assert rows_in(links, events) == []
        assert events.writer(id="copier").state is None

    def test_checkpoint_without_rows(self, links: MemoryLinks, events: Table) -> None:
        with events.writer(id="copier") as writer:
            assert writer.checkpoint("") == Offsets({})
            writer.checkpoint("1")
        assert events.writer(id="copier").state == "1"

    def test_second_writer_with_the_id_fences_the_first(self, links: MemoryLinks, events: Table) -> None:
        first = events.writer(id="copier")
        first.append({"id": 1})
        first.checkpoint("1")
        lost = first.append({"id": 2})
        second = events.writer(id="copier")
        assert second.state == "1"
        for call in (
            lambda: first.append({"id": 3}),
            first.flush,
            lambda: first.checkpoint("2"),
        ):
            with pytest.raises(
                WriterFencedError, match=r"another writer 'copier' of table 'demo.events' has taken over"
            ):
                call()
        with pytest.raises(ProducerError):
            lost.wait(60)
        second.append({"id": 4})
        second.checkpoint("2")
        first.close()
        second.close()
        assert [row["id"] for row in rows_in(links, events)] == [1, 4]
        assert events.writer(id="copier").state == "2"

    def test_idle_writer_does_not_take_the_id_back(self, events: Table) -> None:
        first = events.writer(id="copier")
        first.checkpoint("1")
        second = events.writer(id="copier")
        with pytest.raises(WriterFencedError):
            first.append({"id": 1})
        second.append({"id": 1})
        second.checkpoint("2")

    def test_state_that_is_no_text_changes_nothing(self, links: MemoryLinks, events: Table) -> None:
        with events.writer(id="copier") as writer:
            writer.append({"id": 1})
            with pytest.raises(ArgumentTypeError, match=r"checkpoint\(state\) must be a text, got int"):
                writer.checkpoint(1)  # type: ignore[arg-type]
            with pytest.raises(ArgumentValueError, match=r"at most 900,000 bytes"):
                writer.checkpoint("x" * 900_000)
            with pytest.raises(ArgumentValueError, match=r"UTF-8"):
                writer.checkpoint("\ud800")
            writer.checkpoint("1")
        assert [row["id"] for row in rows_in(links, events)] == [1]

    @pytest.mark.parametrize("writer_id", ["", "x" * 201, "a\nb"])
    def test_ids(self, events: Table, writer_id: str) -> None:
        with pytest.raises(ArgumentValueError, match=r"writer\(id=...\) must have 1 to 200 printable characters"):
            events.writer(id=writer_id)
        with pytest.raises(ArgumentTypeError, match=r"writer\(id=...\) must be a text"):
            events.writer(id=1)  # type: ignore[arg-type]

    def test_state_is_dropped_with_its_rows(
        self, links: MemoryLinks, events: Table, caplog: pytest.LogCaptureFixture
    ) -> None:
        with events.writer(id="copier") as writer:
            writer.append({"id": 1})
            writer.checkpoint("1")
        links.admin().delete_topics(["demo.events"])
        again = create(links, events.info)
        with caplog.at_level(logging.WARNING), again.writer(id="copier") as writer:
            assert writer.state is None
        assert "deleted and created again" in caplog.text

    def test_topic_that_is_created_again_under_a_writer(self, links: MemoryLinks, events: Table) -> None:
        writer = events.writer(id="copier")
        writer.append({"id": 1})
        writer.checkpoint("1")
        again = created_again(links, events)
        writer.append({"id": 2})
        for _ in range(2):
            with pytest.raises(
                StaleTokenError,
                match=r"topic 'demo.events' of table 'demo.events' was deleted and created again while a writer was open; "
                r"its transaction is aborted, .* make a new writer with this id, which has no state",
            ):
                writer.checkpoint("2")
        with pytest.raises(StaleTokenError):
            writer.append({"id": 3})
        writer.close()
        assert rows_in(links, again) == []
        with again.writer(id="copier") as writer:
            assert writer.state is None
            writer.append_rows([{"id": 1}, {"id": 2}])
            writer.checkpoint("2")
        assert [row["id"] for row in rows_in(links, again)] == [1, 2]

    def test_topic_that_is_deleted_under_a_writer(self, links: MemoryLinks, events: Table) -> None:
        writer = Table(events.info, Home(links, timeout=0.01)).writer(id="copier")
        links.admin().delete_topics(["demo.events"])
        with pytest.raises(TopicNotFoundError, match=r"topic 'demo.events' of table 'demo.events' does not exist"):
            writer.checkpoint("1")
        with pytest.raises(TopicNotFoundError):
            writer.append({"id": 1})

    def test_topic_of_states_that_forgets(self, links: MemoryLinks, events: Table) -> None:
        settings_of = TopicConfig(1, 1, {"cleanup.policy": "delete"})
        links.admin().create_topics([Topic(WRITERS_TOPIC, config=settings_of)])
        with pytest.raises(TopicConfigurationError, match=r"set it to compact"):
            events.writer(id="copier")

    @pytest.mark.parametrize(
        ("value", "kind", "why"),
        [
            (b'{"v":2}', StoreVersionError, "upgrade StreamRT"),
            (b'{"v":1,"state":"1","token":"{\\"v\\":9}"}', StoreVersionError, "newer token"),
            (b'{"v":1}', StateError, "another program wrote to the topic"),
            (b"\xff", StateError, "another program wrote to the topic"),
            pytest.param(b"[" * 100_000, StateError, "another program wrote to the topic", id="deep"),
        ],
    )
    def test_state_of_another_version(
        self, links: MemoryLinks, events: Table, value: bytes, kind: type[Exception], why: str
    ) -> None:
        with events.writer(id="copier") as writer:
            writer.checkpoint("1")
        links.sender().produce(WRITERS_TOPIC, value, b"demo.events/copier", partition=0)
        with pytest.raises(kind, match=why):
            events.writer(id="copier")
        # A tombstone ends it.
        links.sender().produce(WRITERS_TOPIC, None, b"demo.events/copier", partition=0)
        with events.writer(id="copier") as writer:
            assert writer.state is None

    def test_transaction_of_another_writer_hides_the_state(self, links: MemoryLinks, events: Table) -> None:
        with events.writer(id="copier") as writer:
            writer.checkpoint("1")
        other = links.sender(transactional_id="other")
        other.produce(WRITERS_TOPIC, b"{}", b"demo.events/other", partition=0)
        home = Home(links)
        home.timeout = 0.05
        with pytest.raises(Exception, match=r"a transaction of another writer is open"):
            Table(events.info, home).writer(id="copier")
        other.commit()
        assert Table(events.info, home).writer(id="copier").state == "1"

    def test_states_that_come_too_slowly(
        self, links: MemoryLinks, events: Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with events.writer(id="copier") as writer:
            for number in range(30):
                writer.checkpoint(str(number))
        home = Home(links)
        home.timeout = 0.05
        poll = type(links.feed()).poll

        def slowly(feed: Any, timeout_s: float, records: int) -> Any:
            threading.Event().wait(0.02)
            return poll(feed, timeout_s, 1)

        monkeypatch.setattr(type(links.feed()), "poll", slowly)
        # A record in less than the timeout, and so many of them that it takes several times as long.
        why = r"was not read within [\d.]+ s: _streamrt_writers\[0\] has offsets up to 60, and no record came after offset"
        with pytest.raises(KafkaRequestError, match=why):
            Table(events.info, home).writer(id="copier")
        monkeypatch.undo()
        assert Table(events.info, home).writer(id="copier").state == "29"

    def test_sender_that_has_committed_and_can_no_more(
        self, links: MemoryLinks, events: Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        writer = events.writer(id="copier")
        writer.append({"id": 1})
        # As after a connection that was lost during the commit.
        monkeypatch.setattr(type(writer._rows.sender), "usable", False)
        writer.checkpoint("1")
        monkeypatch.undo()
        former = writer._rows.sender
        writer.append({"id": 2})
        assert writer._rows.sender is not former
        writer.checkpoint("2")
        writer.append({"id": 3})
        monkeypatch.setattr(type(writer._rows.sender), "usable", False)
        writer.checkpoint("3")
        monkeypatch.undo()
        with events.writer(id="copier") as second:
            second.checkpoint("of the second")
            with pytest.raises(WriterFencedError):
                writer.append({"id": 4})
            second.append({"id": 5})
            second.checkpoint("5")
        assert [row["id"] for row in rows_in(links, events)] == [1, 2, 3, 5]

    def test_transaction_that_was_open_too_long(self, events: Table, monkeypatch: pytest.MonkeyPatch) -> None:
        writer = events.writer(id="copier", options={"transaction.timeout.ms": 1})
        writer.append({"id": 1})
        events.writer(id="copier")
        # Not before it has been open for a millisecond.
        threading.Event().wait(0.002)
        with pytest.raises(TransactionError, match=r"transaction.timeout.ms=1: checkpoint more often") as error:
            writer.append({"id": 2})
        assert not isinstance(error.value, WriterFencedError)
        writer.close()

    def test_interrupted_checkpoint(self, links: MemoryLinks, events: Table, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupt(sender: RecordSender) -> None:
            raise KeyboardInterrupt

        writer = events.writer(id="copier")
        writer.append({"id": 1})
        with monkeypatch.context() as patch:
            patch.setattr(type(writer._rows.sender), "commit", interrupt)
            with pytest.raises(KeyboardInterrupt):
                writer.checkpoint("1")
        with pytest.raises(TransactionError, match=r"was interrupted, so its outcome is unknown"):
            writer.append({"id": 2})
        assert rows_in(links, events) == []


@pytest.mark.rows("DK-018", "DK-025", "DK-026")
def test_copy_that_breaks_off_anywhere_copies_each_row_once(links: MemoryLinks) -> None:
    source, copy = (create(links, table_info(EVENTS, name, partitions=2)) for name in ("shop.source", "shop.copy"))
    with source.writer(options={"assigner": "round-robin"}) as writer:
        writer.append_rows([{"id": number} for number in range(25)])
    for after in (1, 3, 7, 8, 25):
        with contextlib.suppress(InterruptedError):
            copy_rows(source, copy, after)
    assert sorted(row["id"] for row in rows_in(links, copy)) == list(range(25))


def copy_rows(source: Table, copy: Table, breaks_after: int) -> None:
    """Copy rows, and break off after so many; each second row is in a checkpoint."""
    with copy.writer(id="copier") as writer, source.subscribe(start=writer.state or "earliest") as stream:
        number = 0
        while not stream.position.covers(source.offsets()):
            [row] = stream.poll(60, max_records=1)
            writer.append({"id": row.row["id"]})
            number += 1
            if number == breaks_after:
                raise InterruptedError
            if number % 2 == 0:
                writer.checkpoint(str(stream.position))
        writer.checkpoint(str(stream.position))


@pytest.mark.rows("FE-072", "FE-073")
@settings(max_examples=TRIED)
@given(HISTORIES)
def test_rows_and_state_agree_whatever_happens(actions: list[tuple[str, int]]) -> None:
    run_history(actions)


class TestCatalogues:
    """Tables of one name and writers of one id, whose rows are in different topics of a cluster."""

    @pytest.mark.parametrize("turns", sorted(set(itertools.permutations("aabb"))))
    def test_a10_two_catalogues_of_a_cluster_have_their_own_writers(
        self, links: MemoryLinks, turns: tuple[str, ...]
    ) -> None:
        homes = {name: Home(links) for name in "ab"}
        tables = {
            name: Table(create(links, table_info("id INT", "shop.orders", topic=f"orders-{name}")).info, homes[name])
            for name in "ab"
        }
        open_writers: dict[str, TableWriter] = {}
        for name in turns:
            # Its second turn: the writer before it ends, unless it has done so, and the next one goes on with its state.
            first = open_writers.pop(name, None)
            if first is not None:
                first.checkpoint("3")
                first.close()
            writer = open_writers[name] = tables[name].writer(id="loader")
            start = int(writer.state or 0)
            writer.append_rows([{"id": number} for number in range(start, start + 3)])
        for writer in open_writers.values():
            writer.checkpoint("6")
            writer.close()
        for table in tables.values():
            assert [row["id"] for row in rows_in(links, table)] == list(range(6))
            assert table.writer(id="loader").state == "6"

    def test_a10_states_of_former_versions_are_kept(self, links: MemoryLinks) -> None:
        """These had the name of the table in the key; another table of this name does not find them."""
        table, other = (create(links, table_info("id INT", "shop.orders", topic=name)) for name in ("mine", "theirs"))
        with table.writer(id="loader") as writer:
            writer.append({"id": 1})
            writer.checkpoint("1")
        (record,) = [value for key, value in self.states(links).items() if key == b"mine/loader"]
        former = b"shop.orders/loader"
        links.sender().produce(WRITERS_TOPIC, None, b"mine/loader", partition=0)
        assert table.writer(id="loader").state is None
        links.admin().delete_topics([WRITERS_TOPIC])
        links.admin().create_topics([Topic(WRITERS_TOPIC, config=TopicConfig(1, 1))])
        links.sender().produce(WRITERS_TOPIC, record, former, partition=0)
        running = links.sender(transactional_id="streamrt-writer.shop~2eorders.loader.0")
        running.produce("mine", b'{"id": 2}', None)
        assert other.writer(id="loader").state is None
        with table.writer(id="loader") as writer:
            assert writer.state == "1"
            # A writer of a former version is also fenced.
            with pytest.raises(TransactionError):
                running.commit()
            writer.append({"id": 3})
            writer.checkpoint("2")
        assert set(self.states(links)) == {b"mine/loader"}
        assert json.loads(self.states(links)[b"mine/loader"])["state"] == "2"
        assert [row["id"] for row in rows_in(links, table)] == [1, 3]

    @staticmethod
    def states(links: MemoryLinks) -> dict[bytes, bytes]:
        partition = TopicPartition(WRITERS_TOPIC, 0)
        end = links.admin().offset_bounds([partition])[partition][1]
        found: dict[bytes, bytes | None] = {}
        with contextlib.closing(links.feed()) as feed:
            feed.add({partition: 0})
            feed.resume([partition])
            while feed.ends().get(partition, -1) < end:
                for _, batch in feed.poll(0.1, 100):
                    found.update({key or b"": value for key, value in zip(batch.keys, batch.values, strict=True)})
        return {key: value for key, value in found.items() if value is not None}
