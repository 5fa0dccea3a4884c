"""Options of librdkafka that writers and readers of tables have: what reaches the client, and what is refused."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from streamrt.errors import ArgumentTypeError, ConfigurationError
from streamrt.kafka.connection import ConnectionConfig
from streamrt.tables.access.links import RecordFeed, RecordSender
from streamrt.tables.table import Table
from streamrt.testing.memory_topics import MemoryLinks
from tests.support import wait_until
from tests.table_home import Home, ids, table, write

WRITING = {
    "message.max.bytes": 10_000_000,
    "acks": "all",
    "message.send.max.retries": 2**31 - 1,
    "batch.size": 2_000_000,
    "linger.ms": 100,
}
FETCHING = {
    "fetch.max.bytes": 16_000_000,
    "fetch.min.bytes": 1,
    "fetch.wait.max.ms": 500,
    "max.partition.fetch.bytes": 1_000_000,
    "socket.connection.setup.timeout.ms": 120_000,
}


class RecordingLinks(MemoryLinks):
    """Topics in memory that note the options of their clients."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[dict[str, Any]] = []

    def feed(self, options: Mapping[str, Any] | None = None) -> RecordFeed:
        """Return a reader."""
        self.given.append(dict(options or {}))
        return super().feed(options)

    def sender(self, options: Mapping[str, Any] | None = None, transactional_id: str | None = None) -> RecordSender:
        """Return a writer."""
        self.given.append(dict(options or {}))
        return super().sender(options, transactional_id)


@pytest.fixture
def links() -> RecordingLinks:
    return RecordingLinks()


@pytest.fixture
def events(links: RecordingLinks) -> Table:
    events = table(partitions=2, home=Home(links))
    write(events, ids(2))
    links.given.clear()
    return events


@pytest.mark.rows("FL-003", "FL-004", "FL-005", "FL-006", "FL-007")
@pytest.mark.parametrize("writer_id", [None, "loader"])
def test_options_of_writers(links: RecordingLinks, events: Table, writer_id: str | None) -> None:
    with events.writer(id=writer_id, options=WRITING) as writer:
        assert WRITING in links.given
        writer.append({"id": 9, "name": "x" * 1_000_000})
        # Brokers have it at once, however long a batch waits for more rows.
        assert writer.flush().partition_map("events") == {0: 3}
        if writer_id is not None:
            writer.checkpoint("1")
    assert events.scan(["id"]).count() == 3


@pytest.mark.rows("FL-008")
@pytest.mark.parametrize("assigner", ["round-robin", "sticky"])
def test_partitions_of_rows_without_a_key(links: RecordingLinks, events: Table, assigner: str) -> None:
    with events.writer(options={"assigner": assigner, "sticky.partitioning.linger.ms": 5}) as writer:
        # The client knows nothing of the first, and decides by the second.
        assert links.given == [{"sticky.partitioning.linger.ms": 5}]
        numbers = [writer.append(row).wait(10).partition for row in ids(4)]
    if assigner == "round-robin":
        assert sorted(numbers) == [0, 0, 1, 1]


def read_by_scan(events: Table, options: Any) -> None:
    assert events.scan(options=options).count() == 2


def read_by_stream(events: Table, options: Any) -> None:
    with events.subscribe(start="earliest", options=options) as stream:
        assert len(stream.poll(10)) == 2


def read_by_listener(events: Table, options: Any) -> None:
    frames: list[int] = []
    with events.on_changes(lambda frame, _: frames.append(len(frame)), start="earliest", options=options):
        wait_until(lambda: sum(frames) == 2)


READERS = pytest.mark.parametrize("read", [read_by_scan, read_by_stream, read_by_listener])


@pytest.mark.rows("FL-013", "FL-014", "FL-015", "FL-016", "FL-017")
@READERS
def test_options_of_readers(links: RecordingLinks, events: Table, read: Callable[[Table, Any], None]) -> None:
    read(events, FETCHING)
    assert links.given
    for given in links.given:
        assert given.items() >= FETCHING.items()


def test_options_of_scans_are_merged_over_the_defaults(links: RecordingLinks, events: Table) -> None:
    read_by_scan(events, None)
    read_by_scan(events, {"fetch.wait.max.ms": 7})
    defaults, changed = links.given
    assert defaults["fetch.wait.max.ms"] != 7
    assert changed == {**defaults, "fetch.wait.max.ms": 7}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("group.id", "readers of tables join no group"),
        ("session.timeout.ms", "readers of tables join no group"),
        ("group.remote.assignor", "readers of tables join no group"),
        ("auto.offset.reset", "start= says where to begin"),
        ("enable.auto.commit", "readers of tables commit nothing: keep their position"),
        ("auto.commit.interval.ms", "readers of tables commit nothing"),
        ("enable.auto.offset.store", "readers of tables commit nothing"),
        ("isolation.level", "tables are read up to the last committed row"),
        ("enable.partition.eof", "readers need to know where partitions end"),
        ("bootstrap.servers", "the catalogue has the connection"),
        ("sasl.password", "the catalogue has the connection"),
        ("ssl.key.pem", "the catalogue has the connection"),
        ("logger", "the log of StreamRT has what the client says"),
        ("plugin.library.paths", "clients of tables run no code but their own"),
        ("stats_cb", "clients of tables run no code but their own"),
    ],
)
@READERS
def test_options_that_readers_refuse(
    links: RecordingLinks, events: Table, read: Callable[[Table, Any], None], name: str, why: str
) -> None:
    methods: dict[Any, str] = {read_by_scan: "scan", read_by_stream: "subscribe", read_by_listener: "on_changes"}
    method = methods[read]
    with pytest.raises(ConfigurationError) as error:
        read(events, {name: "hidden"})
    assert str(error.value).startswith(f"{method}(options=...): {name} is not supported: {why}")
    assert "hidden" not in str(error.value)
    assert not links.given


def test_options_of_the_connection_are_the_catalogues(links: RecordingLinks, events: Table) -> None:
    connection = [
        "oauth_cb" if field == "oauth_cb" else field.replace("_", ".") for field in ConnectionConfig.model_fields
    ]
    # Names of librdkafka that no field has, or another one.
    others = ["metadata.broker.list", "sasl.mechanisms", "https.ca.location", "https.ca.pem", "enable.ssl.anything"]
    assert "enable.ssl.certificate.verification" in connection
    for name in (*connection, *others):
        with pytest.raises(ConfigurationError, match="is not supported: the catalogue has the connection"):
            events.scan(options={name: False})
        with pytest.raises(ConfigurationError, match="is not supported: the catalogue has the connection"):
            events.writer(options={name: False})
    assert not links.given


@pytest.mark.parametrize(
    "name",
    [
        "background_event_cb",
        "closesocket_cb",
        "connect_cb",
        "consume_cb",
        "oauthbearer_token_refresh_cb",
        "offset_commit_cb",
        "open_cb",
        "rebalance_cb",
        "resolve_cb",
        "socket_cb",
        "ssl.certificate.verify_cb",
        "throttle_cb",
    ],
)
def test_callbacks_are_refused(links: RecordingLinks, events: Table, name: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"{name} is not supported: "):
        events.scan(options={name: print})
    with pytest.raises(ConfigurationError, match=rf"{name} is not supported: "):
        events.writer(options={name: print})
    assert not links.given


@READERS
@pytest.mark.parametrize("options", [["fetch.min.bytes"], {1: 2}, "fetch.min.bytes=1"])
def test_options_that_are_no_mapping(events: Table, read: Callable[[Table, Any], None], options: Any) -> None:
    with pytest.raises(ArgumentTypeError, match=r"\(options=...\) must be a mapping from names of librdkafka"):
        read(events, options)
