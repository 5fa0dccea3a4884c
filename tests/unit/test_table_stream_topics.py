"""Subscriptions whose topic changes, is created again or is not known, and readers that fail meanwhile."""

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, cast

import pytest

from streamrt import Offsets
from streamrt.cli.tables.table_rows import place_of
from streamrt.errors import ArgumentValueError, InvalidOperationError, StaleTokenError, TopicNotFoundError
from streamrt.kafka import TopicConfig
from streamrt.kafka.client import KafkaRequestError
from streamrt.tables.access.links import RecordFeed, TableAdmin
from streamrt.tables.access.positions import Start, TopicPositions
from streamrt.tables.reading.stream import TableStream
from streamrt.tables.rows.decoding import RowReader
from streamrt.tables.table import Table
from streamrt.testing.memory_topics import MemoryLinks
from streamrt.topics import Topic
from tests.table_home import NOW, Home, ids, known_ids, poll_ids, table, write


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
    starts = positions.starts(start, positions.read_bounds(positions.chosen(None)))
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
        found += poll_ids(stream, lambda others: len(found) + len(others) >= 3)
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
        found = poll_ids(stream, lambda found: len(found) >= 5)
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


def test_rows_wait_until_brokers_say_that_the_topic_is_the_same(caplog: pytest.LogCaptureFixture) -> None:
    links = SilentLinks()
    events = table(home=Home(links, timeout=0.05))
    write(events, ids(3))
    with events.subscribe(start="earliest") as stream:
        links.error = KafkaRequestError("no answer", retriable=True)
        assert not stream.poll(0)
        assert stream.position == events_at_first(events)
        assert not stream.poll(0.2)
        assert "Rows of table demo.events wait: brokers have not said for 0.05 s" in caplog.text
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


def test_starting_broker_that_does_not_know_the_topic_yet_ends_no_scan() -> None:
    links = SilentLinks()
    events = table(home=Home(links))
    write(events, ids(2))
    rows = events.scan()
    links.is_starting = True
    threading.Timer(0.2, lambda: setattr(links, "is_starting", False)).start()
    assert rows.count() == 2
    rows = table(home=Home(links, timeout=0.05)).scan(limit=1)
    links.is_starting = True
    with pytest.raises(TopicNotFoundError):
        rows.count()
    links.error = KafkaRequestError("no answer", retriable=True)
    with pytest.raises(KafkaRequestError, match="no answer"):
        rows.count()


def test_starting_broker_that_does_not_know_the_topic_yet_ends_no_quiet_subscription() -> None:
    links = SilentLinks()
    events = table(home=Home(links))
    with attentive(events) as stream:
        links.is_starting = True
        assert not stream.poll(0.05)
        links.is_starting = False
        write(events, ids(1))
        assert known_ids(stream.poll(60)) == [0]


def events_at_first(events: Table) -> Offsets:
    """Return the first offsets without the id of the topic, which brokers do not tell."""
    return Offsets({("events", 0): 0}, {"events": events._home.links._topics["events"].id})  # type: ignore[attr-defined]
