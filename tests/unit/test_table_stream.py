"""Subscriptions to tables: positions that survive any break, polls in every form, seeks, pauses, new partitions."""

import contextlib
import random
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, cast

import pytest

from streamrt import Offsets
from streamrt.cli.table_rows import place_of
from streamrt.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    InvalidOperationError,
    OffsetOutOfRangeError,
    SchemaError,
    SerializationError,
    StaleTokenError,
    TopicNotFoundError,
)
from streamrt.kafka import TopicConfig
from streamrt.kafka.client import KafkaRequestError
from streamrt.records import TopicPartition
from streamrt.tables.decoding import RowReader
from streamrt.tables.links import RecordFeed, TableAdmin
from streamrt.tables.positions import Start, TopicPositions
from streamrt.tables.rows import ChangeType, ScanRecord, ScanRecords
from streamrt.tables.stream import TableStream
from streamrt.tables.table import Table
from streamrt.testing.memory_topics import MemoryLinks
from streamrt.topics import Topic
from tests.support import LONG, wait_until
from tests.table_home import NOW, CompactedLinks, Home, ids, table, write


def known_ids(records: Any) -> list[int]:
    """Return the ids of records."""
    return [record.row["id"] for record in records]


@pytest.mark.rows("DK-009", "DK-010", "DK-016", "DK-017", "DK-018", "FL-086", "FL-091")
def test_iterator_and_its_state() -> None:
    events = table()
    write(events, ids(4))
    with events.subscribe(start="earliest") as stream:
        assert stream.position == events.offsets("earliest")
        assert next(stream).row == ids(1)[0]
        for record in stream:
            if record.row["id"] == 1:
                break
        state = str(stream.position)
        assert stream.position.partition_map("events") == {0: 2}
    with events.subscribe(["id"], start=state) as again:
        assert next(again) == ScanRecord(2, 3_000, ChangeType.APPEND, {"id": 2}, b"key", 0)
        assert known_ids(again.poll(60)) == [3]
        assert not again.poll(0)
        assert again.position == events.offsets()


def test_latest_returns_what_comes_later() -> None:
    events = table()
    write(events, ids(2))
    with events.subscribe() as stream:
        assert not stream.poll(0.01)
        write(events, ids(2, 2))
        assert known_ids(stream.poll(60)) == [2, 3]


@pytest.mark.rows("FL-092", "FL-093", "FL-094", "FL-095", "FL-096", "FL-097", "FL-098", "FL-099", "FL-100")
def test_records_are_a_sequence_and_a_mapping() -> None:
    events = table(partitions=3)
    write(events, ids(3, 20), 2)
    write(events, ids(2, 0), 0)
    with events.subscribe(start="earliest") as stream:
        records = stream.poll(60)
    zero, two = TopicPartition("events", 0), TopicPartition("events", 2)
    assert known_ids(records) == [0, 1, 20, 21, 22]
    assert known_ids(records[1:4]) == [1, 20, 21]
    assert known_ids(records[::-2]) == [22, 20, 0]
    assert records[9:] == []
    assert (records[0].row["id"], records[-1].row["id"]) == (0, 22)
    with pytest.raises(IndexError):
        records[5]
    assert list(records.keys()) == records.partitions() == [zero, two]
    assert [known_ids(each) for each in records.values()] == [[0, 1], [20, 21, 22]]
    assert {partition: known_ids(each) for partition, each in records.items()} == {zero: [0, 1], two: [20, 21, 22]}
    assert known_ids(records[two]) == known_ids(records.of(2)) == known_ids(records.of(two)) == [20, 21, 22]
    assert records.of(1) == []
    with pytest.raises(KeyError):
        records[TopicPartition("events", 1)]
    parts: Any = (zero, ("events", 1))
    assert [part in records for part in parts] == [True, False]
    assert records[0] in records
    assert len(records) == 5
    assert not ScanRecords("events", {0: []})
    assert records == ScanRecords("events", {2: records.of(2), 0: records.of(0)})
    assert records != ScanRecords("events", {})
    assert repr(records) == "<ScanRecords events[0]: 2, events[2]: 3>"


@pytest.mark.rows("FL-159", "FL-160", "FL-161", "FL-162", "FL-163", "FL-103")
def test_change_types() -> None:
    assert [(each.value, each.short) for each in ChangeType] == [(0, "+A"), (1, "+I"), (2, "-U"), (3, "+U"), (4, "-D")]


@pytest.mark.rows("FL-087", "FL-088", "FL-101", "FL-102", "FL-104", "FL-105", "FL-106", "FL-107", "FL-108")
def test_polls_of_arrow() -> None:
    events = table(partitions=2, home=Home(CompactedLinks([1])))
    with events.subscribe(["score", "id"], start="earliest", metadata=True, max_records=3) as stream:
        empty = stream.poll_arrow(0)
        assert empty.num_rows == 0
        assert empty.schema.names == ["score", "id", "_change_type", "_offset", "_timestamp", "_partition"]
        assert stream.poll_batches(0) == []
        write(events, ids(3, 10), 1)
        write(events, ids(3), 0)
        (first, second) = stream.poll_batches(60)
        assert (first.partition, first.first_offset, first.last_offset) == (0, 0, 2)
        assert first.batch.column("id").to_pylist() == [0, 2]
        assert (second.partition, second.batch.column("_offset").to_pylist()) == (1, [0])
        rest = stream.poll_arrow(60)
        assert rest.select(["id", "_offset", "_partition"]).to_pylist() == [{"id": 12, "_offset": 2, "_partition": 1}]


@pytest.mark.rows("FL-012")
def test_most_rows_of_a_poll() -> None:
    events = table()
    write(events, ids(10))
    with events.subscribe(start="earliest", max_records=4) as stream:
        assert known_ids(stream.poll(60)) == [0, 1, 2, 3]
        assert known_ids(stream.poll(60, max_records=1)) == [4]
        assert stream.poll_arrow(60, max_records=3)["id"].to_pylist() == [5, 6, 7]
        assert stream.position.partition_map("events") == {0: 8}
    for wrong in (0, True, 1.5):
        with pytest.raises((ArgumentValueError, ArgumentTypeError), match="max_records must be"):
            events.subscribe(max_records=wrong)  # type: ignore[arg-type]
    with pytest.raises(ArgumentValueError, match="changes must be"):
        events.subscribe(changes="some")  # type: ignore[arg-type]


@pytest.mark.rows("FL-080", "FL-081", "FL-084")
def test_seek_pause_and_resume() -> None:
    events = table(partitions=2)
    write(events, ids(4), 0)
    write(events, ids(4, 10), 1)
    with events.subscribe(start="earliest", max_records=2) as stream:
        stream.poll(60)
        stream.pause([0])
        taken: list[int] = []
        while len(taken) < 4 and (records := stream.poll(60)):
            taken += known_ids(records.of(1))
            assert not records.of(0)
        assert taken[-1] == 13
        before = stream.position.partition_map("events")[0]
        stream.resume()
        assert known_ids(stream.poll(60))[0] == before
        stream.seek({1: 2})
        assert stream.position.partition_map("events")[1] == 2
        found = []
        while 13 not in found:
            found += known_ids(stream.poll(60))
        assert [each for each in found if each >= 10] == [12, 13]
        stream.seek("earliest")
        assert stream.position == events.offsets("earliest")
        stream.seek(events.offsets())
        assert not stream.poll(0)
        for use in (stream.pause, stream.resume):
            with pytest.raises(ArgumentValueError, match="partition 7 of topic 'events' is not read here"):
                use([7])
        with pytest.raises(ArgumentValueError, match="partition 7 of topic 'events' is not read here"):
            stream.seek({7: 0})
        with pytest.raises(OffsetOutOfRangeError):
            stream.seek({1: 99})
        with pytest.raises(ArgumentValueError, match="timeout"):
            stream.poll(-1)


def test_chosen_partitions() -> None:
    events = table(partitions=3)
    for number in range(3):
        write(events, ids(1, number), number)
    with events.subscribe(start={1: 0}) as stream:
        assert stream.partitions == [1]
        assert known_ids(stream.poll(60)) == [1]
        assert not stream.poll(0.05)
    with events.subscribe(start="earliest", partitions=[2, 0]) as stream:
        assert known_ids(stream.poll(60)) == [0, 2]


def test_close_ends_a_wait_and_a_loop() -> None:
    events = table()
    write(events, ids(1))
    stream = events.subscribe(start="earliest")
    seen: list[int] = []
    polled: list[ScanRecords] = []

    def read() -> None:
        for record in stream:
            seen.append(record.row["id"])

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    wait_until(lambda: seen == [0], 60)
    stream.close()
    thread.join(60)
    assert not thread.is_alive()
    assert stream.closed
    assert stream.position.partition_map("events") == {0: 1}
    for use in (stream.poll, stream.poll_arrow, stream.pause, stream.resume, lambda: stream.seek("latest")):
        with pytest.raises(InvalidOperationError, match="is closed"):
            use()
    assert list(stream) == []
    stream.close()
    other = events.subscribe()
    thread = threading.Thread(daemon=True, target=lambda: polled.append(other.poll(None)))
    thread.start()
    other.close()
    thread.join(60)
    assert not any(polled)


def test_records_that_are_no_rows_raise_in_their_turn() -> None:
    events = table()
    write(events, [*ids(2), b"{", *ids(2, 2)])
    with events.subscribe(start="earliest") as stream:
        assert known_ids(stream.poll(60)) == [0, 1]
        for _ in range(2):
            with pytest.raises(SerializationError, match="events\\[0\\] at offset 2"):
                stream.poll(60)
        with pytest.raises(SerializationError):
            next(stream)
        assert stream.position.partition_map("events") == {0: 2}
        stream.seek({0: 3})
        assert known_ids(stream.poll(60)) == [2, 3]
        stream.seek("earliest")
        assert stream.poll_arrow(60)["id"].to_pylist() == [0, 1]
        with pytest.raises(SerializationError, match="events\\[0\\] at offset 2"):
            stream.poll_arrow(60)
    with events.subscribe(start="earliest", on_error="skip") as stream:
        assert known_ids(stream.poll(60)) == [0, 1, 2, 3]
        assert stream.skipped == 1
        stream.seek("earliest")
        assert stream.poll_arrow(60)["id"].to_pylist() == [0, 1, 2, 3]
        stream.seek({0: 2})
        assert next(stream).row["id"] == 2


def test_interrupt_loses_no_record() -> None:
    events = table(partitions=2)
    write(events, ids(3), 0)
    write(events, ids(3, 10), 1)
    with events.subscribe(start={0: 2, 1: 0}, max_records=2) as stream:
        poll = stream._feed.poll

        def interrupted(timeout_s: float, records: int) -> Any:
            poll(timeout_s, records)
            raise KeyboardInterrupt

        stream._feed.poll = interrupted  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            next(stream)
        stream._feed.poll = poll  # type: ignore[method-assign]
        found: list[int] = []
        while len(found) < 4:
            found += known_ids(stream.poll(60))
        assert sorted(found) == [2, 10, 11, 12]


@pytest.mark.parametrize("method", ["poll", "poll_batches", "__next__"])
def test_interrupt_between_rows_that_are_not_returned_loses_none(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    events = table(partitions=2)
    write(events, ids(3), 0)
    write(events, ids(3, 10), 1)
    with events.subscribe(start="earliest", max_records=10) as stream:
        name = "batch" if method == "poll_batches" else "record"
        decode = getattr(RowReader, name)
        decoded: list[Any] = []

        def interrupted(self: RowReader, *given: Any) -> Any:
            decoded.append(decode(self, *given))
            if len(decoded) == 2 or method == "__next__":
                raise KeyboardInterrupt
            return decoded[-1]

        with monkeypatch.context() as patch:
            patch.setattr(RowReader, name, interrupted)
            with pytest.raises(KeyboardInterrupt):
                getattr(stream, method)()
        assert stream.position == events.offsets("earliest")
        found: list[int] = []
        while len(found) < 6:
            found += known_ids(stream.poll(60))
        assert sorted(found) == [0, 1, 2, 10, 11, 12]


def test_position_passes_markers_of_transactions() -> None:
    events = table()
    write(events, ids(1), transactional=True)
    write(events, ids(3, 10), abort=True)
    with events.subscribe(start="earliest") as stream:
        assert known_ids(stream.poll(60)) == [0]
        assert stream.position.partition_map("events") == {0: 1}
        wait_until(lambda: not stream.poll(0.01) and stream.position.covers(events.offsets()), 60)


def test_records_that_were_deleted_before_they_were_read() -> None:
    events = table()
    write(events, ids(3))
    with events.subscribe(start="earliest", max_records=1) as stream:
        assert known_ids(stream.poll(60)) == [0]
        # What was fetched is there.
        assert known_ids(stream.poll(60)) == [1]
        assert known_ids(stream.poll(60)) == [2]
        write(events, ids(3))
        events._home.links.admin().delete_records({TopicPartition("events", 0): 5})  # type: ignore[attr-defined]
        with pytest.raises(OffsetOutOfRangeError):
            stream.poll(60)


def grown(events: Table, partitions: int) -> None:
    """Add partitions to the topic."""
    links: Any = events._home.links
    topic = links._topics["events"]
    more = MemoryLinks()
    more.admin().create_topics([Topic("events", config=TopicConfig(partitions, 1))])
    topic.partitions += more._topics["events"].partitions[len(topic.partitions) :]
    topic.config = TopicConfig(partitions, 1)


@contextlib.contextmanager
def attentive(events: Table, follows_new: bool = True, start: Start = "latest") -> Iterator[TableStream]:
    """Yield a stream that looks for new partitions at each poll."""
    home = events._home
    positions = TopicPositions(home.links.admin(), "events", "demo.events", 60)
    starts = positions.starts(start, positions.look(positions.chosen(None)))
    reader = RowReader(home.row_format(events.info), "events")
    with TableStream(
        home.links, positions, starts, reader, max_records=10, follows_new=follows_new, refresh_s=0
    ) as stream:
        yield stream


def test_partitions_that_are_added() -> None:
    events = table()
    with attentive(events) as stream:
        assert not stream.poll(0)
        grown(events, 3)
        write(events, ids(2, 20), 2)
        assert known_ids(stream.poll(60)) == [20, 21]
        assert stream.partitions == [0, 1, 2]
        assert stream.position.partition_map("events") == {0: 0, 1: 0, 2: 2}
    with attentive(events, follows_new=False) as stream:
        grown(events, 4)
        stream.poll(0)
        assert stream.partitions == [0, 1, 2]


def test_offsets_of_the_command_line_follow_partitions_that_are_added() -> None:
    events = table()
    write(events, ids(12))
    for text, expected in (("-3", [9, 10, 11]), ("9", [9, 10, 11]), ("-99", list(range(12)))):
        with events.subscribe(start=place_of(events, text, None, "--from")) as stream:
            assert known_ids(stream.poll(60)) == expected
    chosen = events.subscribe(start=place_of(events, "-3", [0], "--from"), partitions=[0])
    stream = events.subscribe(start=place_of(events, "-1", None, "--from"))
    with chosen, stream:
        chosen._refresh_s = stream._refresh_s = 0
        assert known_ids(stream.poll(60)) == [11]
        grown(events, 2)
        write(events, ids(2, 20), 1)
        assert known_ids(stream.poll(60)) == [20, 21]
        assert known_ids(chosen.poll(60)) == [9, 10, 11]
        assert (stream.partitions, chosen.partitions) == ([0, 1], [0])


class FailingLinks(MemoryLinks):
    """Topics in memory, with readers that fail once after the call of a method that is named in `failing`."""

    def __init__(self) -> None:
        super().__init__()
        self.failing: dict[str, BaseException] = {}
        self.closed = 0

    def feed(self, options: Mapping[str, Any] | None = None) -> RecordFeed:
        """Return a reader."""
        feed: Any = super().feed(options)
        close = feed.close

        def counted() -> None:
            self.closed += 1
            close()

        feed.close = counted
        for name in ("add", "resume", "seek", "pause"):
            setattr(feed, name, self._failing(name, getattr(feed, name)))
        return cast("RecordFeed", feed)

    def _failing(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*given: Any) -> None:
            call(*given)
            if name in self.failing:
                raise self.failing.pop(name)

        return called


@pytest.mark.parametrize("error", [KafkaRequestError("no"), InvalidOperationError("no"), KeyboardInterrupt()])
@pytest.mark.parametrize("method", ["add", "resume"])
def test_partitions_are_added_whole_or_not_at_all(method: str, error: BaseException) -> None:
    links = FailingLinks()
    events = table(home=Home(links))
    write(events, ids(1))
    with attentive(events, start="earliest") as stream:
        grown(events, 2)
        write(events, ids(2, 20), 1)
        links.failing[method] = error
        found: list[int] = []
        with contextlib.suppress(KeyboardInterrupt, InvalidOperationError):
            found += known_ids(stream.poll(0))
        assert not links.failing
        while len(found) < 3:
            found += known_ids(stream.poll(60))
        assert sorted(found) == [0, 20, 21]
        assert stream.partitions == [0, 1]
        assert stream.position == events.offsets()
        assert links.closed == 1


@pytest.mark.parametrize("error", [KafkaRequestError("no"), KeyboardInterrupt()])
@pytest.mark.parametrize("action", ["seek", "pause", "resume"])
def test_position_is_kept_when_a_change_of_it_fails(action: str, error: BaseException) -> None:
    links = FailingLinks()
    events = table(partitions=2, home=Home(links))
    write(events, ids(3), 0)
    write(events, ids(3, 10), 1)
    with events.subscribe(start="earliest", max_records=1) as stream:
        assert known_ids(stream.poll(60)) == [0]
        if action == "resume":
            stream.pause()
        before = stream.position
        links.failing[action] = error
        with pytest.raises(type(error)):
            stream.seek("latest") if action == "seek" else getattr(stream, action)()
        assert stream.position == before
        if action == "resume":
            assert not stream.poll(0)
            stream.resume()
        found: list[int] = []
        while len(found) < 5:
            found += known_ids(stream.poll(60))
        assert sorted(found) == [1, 2, 10, 11, 12]


def recreate(events: Table, rows: int, partitions: int = 1) -> None:
    """Delete the topic, create it again, and write rows with ids from 100 on."""
    admin = events._home.links.admin()
    admin.delete_topics(["events"])
    admin.create_topics([Topic("events", config=TopicConfig(partitions, 1))])
    write(events, ids(rows, 100))


READS: dict[str, Any] = {
    "poll": lambda stream: stream.poll(0),
    "poll_arrow": lambda stream: stream.poll_arrow(0),
    "poll_batches": lambda stream: stream.poll_batches(0),
    "next": next,
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("rows", [0, 1, 2, 5])
def test_no_record_of_a_topic_that_was_created_again_is_returned(read: str, rows: int) -> None:
    events = table()
    write(events, ids(2))
    with events.subscribe(start="earliest") as stream:
        assert known_ids(stream.poll(60)) == [0, 1]
        state = str(stream.position)
        recreate(events, rows)
        if rows in (0, 1):
            # The position is above the end.
            with pytest.raises(StaleTokenError, match="created again"):
                stream.poll(0)
        elif rows == 2:
            # Nothing tells that it is another one: the position is its end.
            assert not stream.poll(0)
            write(events, ids(1, 102))
        for _ in range(3):
            with pytest.raises(StaleTokenError, match="created again"):
                READS[read](stream)
        assert str(stream.position) == state
        with pytest.raises(StaleTokenError, match="created again"):
            events.subscribe(start=state)


def test_topic_that_is_created_again_between_a_fetch_and_its_rows() -> None:
    events = table()
    write(events, ids(2))
    with events.subscribe(start="earliest", max_records=1) as stream:
        assert known_ids(stream.poll(60)) == [0]
        recreate(events, 3)
        # It was of the former topic when brokers were asked.
        assert known_ids(stream.poll(60)) == [1]
        with pytest.raises(StaleTokenError):
            stream.poll(0)


@pytest.mark.parametrize("start", ["earliest", "latest", "token", "time"])
def test_seek_begins_with_the_topic_that_was_created_again(start: Any) -> None:
    events = table(partitions=2)
    write(events, ids(2), 0)
    with events.subscribe(start="earliest") as stream:
        stream.poll(60)
        former = stream.position
        stream.pause([1])
        recreate(events, 3, partitions=3)
        with pytest.raises(StaleTokenError):
            stream.poll(0)
        others: tuple[Any, ...] = (former, {0: 0})
        for refused in others:
            with pytest.raises(StaleTokenError, match="created again"):
                stream.seek(refused)
        with pytest.raises(StaleTokenError):
            stream.poll(0)
        places: dict[str, Any] = {"token": events.offsets("earliest"), "time": NOW.replace(year=1970, month=1, day=1)}
        stream.seek(places.get(start, start))
        assert stream.partitions == [0, 1, 2]
        assert str(stream.position) == str(events.offsets("latest" if start == "latest" else "earliest"))
        assert known_ids(stream.poll(0 if start == "latest" else 60)) == ([] if start == "latest" else [100, 101, 102])
        write(events, ids(1, 200), 1)
        write(events, ids(1, 300), 2)
        assert known_ids(stream.poll(60)) == [300]
        stream.resume()
        assert known_ids(stream.poll(60)) == [200]
        assert stream.position == events.offsets()


def test_seek_of_chosen_partitions_in_a_topic_that_was_created_again() -> None:
    events = table(partitions=2)
    with events.subscribe(start="earliest", partitions=[1]) as stream:
        recreate(events, 3)
        with pytest.raises(ArgumentValueError, match="has no partition 1: its partitions are 0 to 0"):
            stream.seek("earliest")
        recreate(events, 3, partitions=2)
        stream.seek("earliest")
        assert stream.partitions == [1]
        events._home.links.admin().delete_topics(["events"])
        with pytest.raises(TopicNotFoundError, match="does not exist"):
            stream.seek("latest")


class SilentLinks(MemoryLinks):
    """Topics in memory whose brokers do not tell the id of a topic, by an error or as if they did not know it."""

    error: KafkaRequestError | None = None
    is_starting = False

    def admin(self) -> TableAdmin:
        """Return the administration."""
        admin: Any = super().admin()
        topic_ids = admin.topic_ids

        def asked(names: Collection[str], timeout: float = 30) -> dict[str, str | None]:
            if self.error is not None:
                raise self.error
            return {name: None if self.is_starting else known for name, known in topic_ids(names, timeout).items()}

        admin.topic_ids = asked
        return cast("TableAdmin", admin)


def test_rows_wait_until_brokers_say_that_the_topic_is_the_same() -> None:
    links = SilentLinks()
    events = table(home=Home(links, timeout=0.05))
    write(events, ids(3))
    with events.subscribe(start="earliest") as stream:
        links.error = KafkaRequestError("no answer", retriable=True)
        assert not stream.poll(0)
        assert stream.position == events_at_first(events)
        with pytest.raises(
            KafkaRequestError, match=r"brokers did not say for 0.05 s whether their topic .*: no answer"
        ):
            stream.poll(60)
        links.error = KafkaRequestError("not allowed")
        with pytest.raises(KafkaRequestError, match="not allowed"):
            stream.poll(60)
        links.error = None
        links.is_starting = True
        assert not stream.poll(0)
        with pytest.raises(TopicNotFoundError, match="does not exist"):
            stream.poll(60)
        assert not stream.poll(0)
        links.is_starting = False
        assert known_ids(stream.poll(60)) == [0, 1, 2]


def events_at_first(events: Table) -> Offsets:
    """Return the first offsets without the id of the topic, which brokers do not tell."""
    return Offsets({("events", 0): 0}, {"events": events._home.links._topics["events"].id})  # type: ignore[attr-defined]


@pytest.mark.rows("DK-018", "FL-086", "FL-091")
@pytest.mark.parametrize("seed", range(300 if LONG else 12))
def test_each_record_once_whatever_is_done(seed: int) -> None:
    chance = random.Random(seed)
    partitions = chance.choice([1, 3])
    events = table(partitions, home=Home(CompactedLinks(chance.sample(range(40), chance.randint(0, 8)))))
    links: Any = events._home.links
    written: dict[int, list[int]] = {number: [] for number in range(partitions)}
    number = 0

    def produce() -> None:
        nonlocal number
        partition, count = chance.randrange(partitions), chance.randint(0, 6)
        aborted = chance.random() < 0.3
        write(events, ids(count, number), partition, abort=aborted, transactional=chance.random() < 0.5)
        if not aborted:
            written[partition] += range(number, number + count)
        number += count

    for _ in range(4):
        produce()
    got: dict[int, list[int]] = {each: [] for each in written}
    stream = events.subscribe(start="earliest", max_records=chance.randint(1, 7))
    for _ in range(40):
        action = chance.choice(["next", "poll", "arrow", "again", "seek", "pause", "resume", "produce"])
        ready = not stream.position.covers(events.offsets())
        if action == "next" and ready and not stream._paused:
            # Aborted records may be all that is left, so that there is nothing to wait for.
            records = list(stream.poll(0, max_records=1))
        elif action == "poll":
            records = list(stream.poll(0))
        elif action == "arrow":
            for batch in stream.poll_batches(0):
                got[batch.partition] += batch.batch.column("id").to_pylist()
            records = []
        else:
            records = []
            if action == "again":
                state = str(stream.position)
                stream.close()
                stream = events.subscribe(start=state, max_records=chance.randint(1, 7))
            elif action == "seek":
                stream.seek(Offsets.parse(str(stream.position)))
            elif action in ("pause", "resume"):
                getattr(stream, action)(chance.sample(range(partitions), chance.randint(0, partitions)))
            elif action == "produce":
                produce()
        for record in records:
            got[record.partition].append(record.row["id"])
    stream.resume()
    deadline = time.monotonic() + 60
    while not stream.position.covers(events.offsets()) and time.monotonic() < deadline:
        for record in stream.poll(0):
            got[record.partition].append(record.row["id"])
    stream.close()
    expected = {each: [row["id"] for row in events.scan(partitions=[each]).rows()] for each in written}
    assert got == expected
    offsets_gone = links.gone
    assert all(set(expected[each]) <= set(written[each]) for each in written)
    if not offsets_gone:
        assert expected == written


# -- Listeners ---------------------------------------------------------------------------------------------------


def test_listener_gets_frames() -> None:
    events = table(partitions=2)
    write(events, ids(5), 1)
    frames: list[tuple[int, list[dict[str, Any]]]] = []
    with events.on_changes(
        lambda frame, number: frames.append((number, cast("Any", frame.to_dict("records")))),
        columns=["id"],
        start="earliest",
        max_rows=2,
        max_delay=60,
    ) as listener:
        wait_until(lambda: len(frames) == 2, 60)
        states = [listener.running]
        write(events, ids(1, 5), 0)
        wait_until(lambda: len(frames) == 3, 60)
        wait_until(lambda: listener.position == events.offsets(), 60)
    assert [(number, [row["id"] for row in rows]) for number, rows in frames] == [(0, [0, 1]), (1, [2, 3]), (2, [4, 5])]
    assert frames[0][1][0] == {"id": 0, "_change_type": "+A", "insert_delete": 1}
    assert [*states, listener.running] == [True, False]
    assert listener.error is None


def test_listener_does_not_wait_for_a_full_frame() -> None:
    events = table()
    write(events, ids(3))
    frames: list[int] = []
    with events.on_changes(lambda frame, number: frames.append(len(frame)), start="earliest", max_delay=0.01):
        wait_until(lambda: frames, 60)
    assert frames == [3]


def test_exception_ends_the_listener_and_is_kept() -> None:
    events = table()
    write(events, ids(4))
    calls: list[int] = []

    def fail(frame: Any, number: int) -> None:
        calls.append(number)
        if number == 1:
            raise RuntimeError("no more")

    listener = events.on_changes(fail, start="earliest", max_rows=2)
    wait_until(lambda: listener.error is not None, 60)
    assert str(listener.error) == "no more"
    assert listener.position.partition_map("events") == {0: 2}
    wait_until(lambda: not listener.running, 60)
    listener.stop()
    assert calls == [0, 1]


@pytest.mark.parametrize("raised", [SystemExit("enough"), KeyboardInterrupt(), GeneratorExit()])
def test_exit_ends_the_listener_and_is_reported(raised: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    events = table()
    write(events, ids(4))
    called = threading.Event()

    def leave(frame: Any, number: int) -> None:
        called.set()
        raise raised

    listener = events.on_changes(leave, start="earliest", max_rows=2)
    assert called.wait(60)
    wait_until(lambda: not listener.running, 60)
    assert listener.error is raised
    assert listener.position == events.offsets("earliest")
    listener.stop()
    assert f"ends with frame 0: {type(raised).__name__}" in caplog.text


def test_listener_that_stops_itself_and_bad_records() -> None:
    events = table()
    write(events, [*ids(2), b"{"])
    frames: list[int] = []
    listener = events.on_changes(lambda frame, _: frames.append(len(frame)), start="earliest")
    wait_until(lambda: listener.error is not None, 60)
    assert frames == [2]
    assert isinstance(listener.error, SerializationError)
    assert listener.position.partition_map("events") == {0: 2}
    stopped: list[bool] = []

    has_begun = threading.Event()

    def stop_at_once(frame: Any, number: int) -> None:
        has_begun.wait(60)
        own.stop()
        stopped.append(True)

    own = events.on_changes(stop_at_once, start={0: 1}, max_rows=1)
    has_begun.set()
    wait_until(lambda: not own.running and stopped, 60)
    assert own.error is None


@pytest.mark.parametrize(
    ("options", "error"),
    [({"max_rows": 0}, "max_rows"), ({"max_delay": -1}, "max_delay"), ({"callback": 1}, "needs a function")],
)
def test_arguments_of_listeners(options: dict[str, Any], error: str) -> None:
    with pytest.raises((ArgumentValueError, ArgumentTypeError), match=error):
        table().on_changes(**{"callback": print, **options})


def test_listener_with_a_column_of_its_own_name() -> None:
    from streamrt.schema import Schema

    with pytest.raises(SchemaError, match="insert_delete"):
        table(schema=Schema("insert_delete INT")).on_changes(print)
