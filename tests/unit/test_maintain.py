"""`app.maintain`: requests become rows, changes and, with a ttl, deletions."""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import orjson
import pytest

from streamrt import Application
from streamrt.app import definition_of
from streamrt.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ConsumerError,
    InvalidOperationError,
    OffsetOutOfRangeError,
    ProcessingError,
    ProducerError,
    SchemaError,
)
from streamrt.records import TopicPartition
from streamrt.relations import find_request_topics
from streamrt.runtime.driver.starting.start_offsets import StartRules, plan_start
from streamrt.tables import Aggregate, Catalog, MemoryCatalog, SequenceGroups, Versioned
from streamrt.tables.descriptions.requests import make_request_headers
from streamrt.testing import TopologyTestDriver
from streamrt.topics import DeadLetters

GUARANTEES = pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
pytestmark = pytest.mark.usefixtures("processing_mode")

COLUMNS = "k BIGINT, v1 DOUBLE, v2 STRING, PRIMARY KEY (k)"


class Maintained:
    """An application that maintains a table, and its writers."""

    def __init__(
        self,
        columns: str = COLUMNS,
        *,
        guarantee: Any = "at-least-once",
        partitions: int = 1,
        settings: Mapping[str, Any] | None = None,
        **rules: Any,
    ) -> None:
        self.catalog = Catalog(store=MemoryCatalog())
        self.catalog.create_database("shop")
        self.table = self.catalog.create_table(
            "shop.rows", columns, num_partitions=partitions, **{"maintained": True, **rules}
        )
        self.app = self.make_app(guarantee, **(settings or {}))
        self.rows = self.app.maintain("shop.rows")

    def make_app(self, guarantee: Any = "at-least-once", **settings: Any) -> Application:
        return Application(
            "unused:9092", consumer_group="shop", catalog=self.catalog, processing_guarantee=guarantee, **settings
        )

    def start(self) -> None:
        self.rows.to_stream("rows").to_topic(self.app.topic("changes", key_serializer="json"))
        self.driver = TopologyTestDriver(self.app)

    @property
    def changes(self) -> list[str]:
        """The changes since the last call."""
        return [describe_change(record.value) for record in self.driver.read("changes")]

    def send(self, row: Any, op: str = "u", *, at: int | None = None, key: int = 1, version: int = 1) -> None:
        """Send a request of some columns, or a delete of the row of a key."""
        value = None if row is None else orjson.dumps(row)
        key = key if row is None else row["k"]
        headers = make_request_headers("d" if op == "d" else "u", version)
        self.driver.pipe_bytes("shop.rows.requests", value, key=orjson.dumps(key), headers=headers, timestamp=at)

    def written(self) -> list[Any]:
        """Return what was written to the table since the last call."""
        return [
            None if record.value is None else tuple(record.value.values()) for record in self.driver.read("shop.rows")
        ]


def describe_change(value: Any) -> str:
    row = {name: each for name, each in value.items() if name != "_at"}
    return f"{row.pop('_change_type')}{tuple(row.values())}"


def maintain(columns: str = COLUMNS, **settings: Any) -> Maintained:
    made = Maintained(columns, **settings)
    made.start()
    return made


@pytest.mark.rows("FL-164", "FL-165", "FL-166")
@GUARANTEES
def test_partial_updates_and_deletes(guarantee: Any) -> None:
    table = maintain(guarantee=guarantee, changelog=True)
    for row in ({"k": 1, "v1": 2.0}, {"k": 2, "v1": 3.0}, {"k": 1, "v2": "t1"}, {"k": 2, "v2": "t2"}):
        table.send(row)
    table.send({"k": 1, "v1": None}, "d")
    table.send({"k": 1, "v2": None}, "d")
    table.send(None, "d", key=99)
    assert table.written() == [(1, 2.0, None), (2, 3.0, None), (1, 2.0, "t1"), (2, 3.0, "t2"), (1, None, "t1"), None]
    changes = table.changes
    assert changes == [
        "+I(1, 2.0, None)",
        "+I(2, 3.0, None)",
        "-U(1, 2.0, None)",
        "+U(1, 2.0, 't1')",
        "-U(2, 3.0, None)",
        "+U(2, 3.0, 't2')",
        "-U(1, 2.0, 't1')",
        "+U(1, None, 't1')",
        "-D(1, None, 't1')",
    ]
    log = table.driver.read("shop.rows.changelog")
    assert [describe_change(record.value) for record in log] == changes


@GUARANTEES
def test_what_changes_nothing_writes_nothing(guarantee: Any) -> None:
    table = maintain(guarantee=guarantee)
    table.send({"k": 1, "v1": 2.0})
    table.send({"k": 1})
    table.send({"k": 1, "v1": 2})
    table.send(None, "d", key=7)
    assert table.written() == [(1, 2.0, None)]
    assert table.changes == ["+I(1, 2.0, None)"]


def test_requests_that_cannot_be_merged_are_bad_records() -> None:
    table = Maintained("k BIGINT, v1 BIGINT NOT NULL, PRIMARY KEY (k)", deletes="refuse")
    table.app = table.make_app(on_error={"process": DeadLetters("letters")})
    table.rows = table.app.maintain("shop.rows")
    table.start()
    table.send({"k": 1})
    table.send({"k": 1, "v1": 5})
    table.send(None, "d")
    assert table.written() == [(1, 5)]
    letters = [dict(letter.headers or ()) for letter in table.driver.read("letters")]
    texts = [str(letter) for letter in letters]
    assert "column 'v1' must not be null, and a new row needs a value for it" in texts[0]
    assert "the table refuses deletes" in texts[1]
    assert "shop.rows.requests" in texts[0]

    stopped = maintain("k BIGINT, v1 BIGINT, PRIMARY KEY (k)", merge=Aggregate(v1="sum"))
    stopped.send({"k": 1, "v1": 2**62})
    with pytest.raises(ProcessingError, match=r"shop.rows.requests\[0\] at offset 1: .*the sum of column 'v1'"):
        stopped.send({"k": 1, "v1": 2**62})


@pytest.mark.parametrize(
    ("value", "headers", "text"),
    [
        (b'{"k":1}', None, "the header streamrt-op of a request must be u or d"),
        (b'{"k":1}', [("streamrt-op", b"x")], "the header streamrt-op of a request must be u or d"),
        (b'{"k":1}', [("streamrt-op", b"u")], "the header streamrt-schema of a request must be the number of a schema"),
        (b'{"k":1}', [("streamrt-op", b"u"), ("streamrt-schema", b"2")], "start it again"),
        (b'{"v1":1}', [("streamrt-op", b"u"), ("streamrt-schema", b"1")], "column 'k' of the primary key is missing"),
        (b'{"k":1,"x":1}', [("streamrt-op", b"u"), ("streamrt-schema", b"1")], "there is no column 'x'"),
        (b'{"k":1,"v1":"a"}', [("streamrt-op", b"u"), ("streamrt-schema", b"1")], "column 'v1' (DOUBLE) must be"),
        (b'{"k":2}', [("streamrt-op", b"u"), ("streamrt-schema", b"1")], "the key of the record is not that of its"),
        (b"[1]", [("streamrt-op", b"u"), ("streamrt-schema", b"1")], "a request must be a JSON object"),
        (None, None, "the header streamrt-op of a request must be u or d"),
    ],
)
def test_records_that_are_no_requests(value: Any, headers: Any, text: str) -> None:
    table = maintain()
    with pytest.raises((ProcessingError, ConsumerError), match=re.escape(text)):
        table.driver.pipe_bytes("shop.rows.requests", value, key=b"1", headers=headers)


@pytest.mark.rows("FL-167")
def test_rules_of_merging() -> None:
    first = maintain(merge="first")
    first.send({"k": 1, "v1": 1})
    first.send({"k": 1, "v1": 2})
    first.send(None, "d")
    assert first.written() == [(1, 1.0, None)]
    versioned = maintain("k BIGINT, v1 BIGINT, v2 STRING, PRIMARY KEY (k)", merge=Versioned("v1"))
    for version in (5, 4, None, 5, 6):
        versioned.send({"k": 1, "v1": version, "v2": str(version)})
    assert versioned.written() == [(1, 5, "5"), (1, 6, "6")]


def test_the_time_of_a_row_is_that_of_its_column() -> None:
    catalog = Catalog(store=MemoryCatalog())
    catalog.create_table("rows", "k BIGINT, at TIMESTAMP, v STRING, PRIMARY KEY (k)", time="at", maintained=True)
    app = Application("unused:9092", consumer_group="shop", catalog=catalog)
    app.maintain("rows")
    driver = TopologyTestDriver(app)
    headers = make_request_headers("u", 1)
    for value in (b'{"k":1,"at":"1970-01-01T00:00:07"}', b'{"k":1,"v":"x"}'):
        driver.pipe_bytes("default.rows.requests", value, key=b"1", timestamp=99, headers=headers)
    assert [(record.timestamp, record.value["v"]) for record in driver.read("default.rows")] == [
        (7000, None),
        (7000, "x"),
    ]


@pytest.mark.rows("FL-179")
def test_rows_expire_by_event_time() -> None:
    table = maintain(ttl=timedelta(hours=1))
    hour = 3_600_000
    table.send({"k": 1, "v1": 1}, at=0)
    table.send({"k": 2, "v1": 2}, at=hour // 2)
    table.send({"k": 2}, at=hour - 1)
    assert table.written() == [(1, 1.0, None), (2, 2.0, None)]
    table.send({"k": 3}, at=hour)
    # The request of k=2 counted, although it changed nothing.
    assert table.written() == [(3, None, None), None]
    table.send({"k": 2, "v2": "x"}, at=2 * hour - 2)
    assert table.written() == [(2, 2.0, "x")]
    # It is gone before its own request is merged, so nothing of it is left.
    table.send({"k": 2, "v2": "y"}, at=9 * hour)
    assert table.written() == [None, (2, None, "y"), None]
    assert [change for change in table.changes if change.startswith("-D")] == [
        "-D(1, 1.0, None)",
        "-D(2, 2.0, 'x')",
        "-D(3, None, None)",
    ]


def test_rows_expire_by_the_clock_in_quiet_partitions() -> None:
    table = maintain(ttl=timedelta(hours=1), changelog=True)
    hour = 3_600_000
    table.send({"k": 1, "v1": 1}, at=table.driver.now)
    table.send({"k": 2, "v1": 1}, at=table.driver.now)
    table.written()
    for _ in range(15):
        table.driver.advance(hour // 16)
    assert table.written() == []
    for _ in range(3):
        table.driver.advance(hour // 16)
    assert table.written() == [None, None]
    assert [describe_change(record.value) for record in table.driver.read("shop.rows.changelog")][2:] == [
        "-D(1, 1.0, None)",
        "-D(2, 1.0, None)",
    ]
    # Nothing is left to wait for.
    table.driver.advance(100 * hour)
    table.send({"k": 1, "v1": 3}, at=table.driver.now)
    assert table.written() == [(1, 3.0, None)]


def test_the_end_of_a_bounded_run_deletes_nothing() -> None:
    table = maintain(ttl=timedelta(hours=1))
    table.send({"k": 1, "v1": 1}, at=0)
    table.driver.end()
    assert table.written() == [(1, 1.0, None)]


def test_rows_that_are_written_to_maintained_tables_are_requests() -> None:
    table = Maintained()
    whole = table.app.dataframe(table.app.topic("whole"))
    whole.to_table("shop.rows")
    table.app.dataframe(table.app.topic("part")).to_table("shop.rows", columns=["v2"])
    table.app.dataframe(table.app.topic("gone", key_deserializer="json", key_serializer="json")).to_table("shop.rows")
    table.start()
    driver = table.driver
    driver.pipe("whole", {"k": 1, "v1": 2}, headers=[("h", b"1")])
    driver.pipe("part", {"k": 1, "v2": "x", "more": True})
    assert table.written() == [(1, 2.0, None), (1, 2.0, "x")]
    driver.pipe("whole", {"k": 1, "v1": 3})
    driver.pipe("gone", key=1)
    assert table.written() == [(1, 3.0, None), None]
    with pytest.raises(ProducerError, match=r"column 'v1' \(DOUBLE\) must be a number"):
        driver.pipe("whole", {"k": 1, "v1": "x"})


def test_rows_of_tables_and_captured_changes_are_requests() -> None:
    table = Maintained()
    rows = table.app.dataframe(table.app.topic("rows", key_deserializer="json", key_serializer="json")).as_table()
    rows.to_table("shop.rows")
    table.start()
    table.driver.pipe("rows", {"k": 1, "v1": 2}, key=1)
    table.driver.pipe("rows", key=1)
    assert table.written() == [(1, 2.0, None), None]

    table = Maintained()
    feed = table.app.dataframe(table.app.topic("feed"))
    feed.to_table("shop.rows", sequence_by="at", apply_as_deletes=feed["gone"] == True, columns=["v1"])  # noqa: E712
    table.start()
    table.send({"k": 1, "v2": "of another writer"})
    table.driver.pipe("feed", {"k": 1, "v1": 5, "at": 2, "gone": False})
    table.driver.pipe("feed", {"k": 1, "v1": 4, "at": 1, "gone": False})
    assert table.written() == [(1, None, "of another writer"), (1, 5.0, "of another writer")]


def test_what_maintained_tables_do_not_take() -> None:
    catalog = Catalog(store=MemoryCatalog())
    catalog.create_table("direct", COLUMNS)
    catalog.create_table("sums", "k BIGINT, v1 DOUBLE, PRIMARY KEY (k)", merge=Aggregate(v1="sum"))
    catalog.create_table("kept", COLUMNS, deletes="refuse")
    app = Application("unused:9092", consumer_group="shop", catalog=catalog)
    with pytest.raises(InvalidOperationError, match="direct are written directly: create it with"):
        app.maintain("direct")
    with pytest.raises(ArgumentTypeError, match="needs a maintained table"):
        app.maintain(7)  # type: ignore[arg-type]
    app.maintain("sums")
    with pytest.raises(InvalidOperationError, match=r"maintain\('sums'\) was called before"):
        app.maintain("sums")
    stream = app.dataframe(app.topic("in"))
    for table, text in (("sums", "adds up what it gets"), ("kept", "refuses deletes")):
        with pytest.raises(InvalidOperationError, match=text):
            stream.as_table(table).to_table(table)
        with pytest.raises(InvalidOperationError, match=text):
            stream.to_table(table, sequence_by="at")
    with pytest.raises(ArgumentValueError, match=r"columns=\.\.\.\) needs sequence_by"):
        stream.to_table("direct", columns=["v1"])
    with pytest.raises(SchemaError, match="there is no column 'x'"):
        stream.to_table("kept", columns=["x"])
    with pytest.raises(ArgumentValueError, match="needs sequence_by"):
        stream.to_table("kept", ignore_null_updates=True)


def test_sequence_groups() -> None:
    columns = "k BIGINT, s BIGINT, a STRING, t BIGINT, b STRING, PRIMARY KEY (k)"
    table = maintain(columns, merge=SequenceGroups({"s": ["a"], "t": ["b"]}))
    for row in ({"s": 2, "a": "a2"}, {"t": 5, "b": "b5", "s": 1, "a": "a1"}, {"s": 1, "a": "a1"}):
        table.send({"k": 1, **row})
    assert table.written() == [(1, 2, "a2", None, None), (1, 2, "a2", 5, "b5")]


@pytest.mark.rows("FL-165", "FL-166")
@GUARANTEES
def test_the_example_of_fluss_by_the_writers_of_the_table(guarantee: Any) -> None:
    catalog = Catalog(store=MemoryCatalog())
    catalog.create_database("app")
    catalog.create_table("app.t", "k INT, v1 DOUBLE, v2 STRING, PRIMARY KEY (k)", changelog=True, num_partitions=2)
    app = Application("unused:9092", consumer_group="shop", catalog=catalog, processing_guarantee=guarantee)
    app.maintain("app.t")
    driver = TopologyTestDriver(app)
    table = driver.table("app.t")
    with table.writer(columns=["k", "v1"]) as writer:
        writer.upsert({"k": 1, "v1": 2.0})
        writer.upsert([2, 3.0])
    with table.writer(columns=[0, 2]) as writer:
        writer.upsert([1, "t1"])
        writer.upsert([2, "t2"])
        token = writer.flush()
    assert table.get_many([1, 2], after=token) == [{"k": 1, "v1": 2.0, "v2": "t1"}, {"k": 2, "v1": 3.0, "v2": "t2"}]
    with table.writer(columns=["k", "v1"]) as writer:
        writer.delete(1)
    assert table.get(1, fresh=True) == {"k": 1, "v1": None, "v2": "t1"}
    with table.writer(columns=["k", "v2"]) as writer:
        writer.delete(1)
    assert table.get_many([1, 2, 99], after=table.delete([99])) == [None, {"k": 2, "v1": 3.0, "v2": "t2"}, None]
    changes = driver.table("app.t$changelog").scan().to_arrow().to_pylist()
    assert [describe_change(change) for change in changes if change["k"] == 1] == [
        "+I(1, 2.0, None)",
        "-U(1, 2.0, None)",
        "+U(1, 2.0, 't1')",
        "-U(1, 2.0, 't1')",
        "+U(1, None, 't1')",
        "-D(1, None, 't1')",
    ]
    assert [describe_change(change) for change in changes if change["k"] == 2] == [
        "+I(2, 3.0, None)",
        "-U(2, 3.0, None)",
        "+U(2, 3.0, 't2')",
    ]
    assert len(changes) == 9


def test_state_that_lacks_merged_requests_is_refused() -> None:
    table = Maintained()
    partition = TopicPartition("shop.rows.requests", 0)
    with pytest.raises(OffsetOutOfRangeError, match=r"(?s)deleted when they are merged.*streamrt reset"):
        plan_start(partition, 7, (10, 20), StartRules("shop", "earliest", recover=True, merges=True))
    assert find_request_topics(definition_of(table.app).topology) == ("shop.rows.requests",)
