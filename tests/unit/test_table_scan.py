"""Scans of tables: positions, columns, limits, records that are not rows, and results in every form."""

import contextlib
import logging
import os
import stat
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from streamrt import Offsets
from streamrt.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    InvalidOperationError,
    OffsetOutOfRangeError,
    ResultTooLargeError,
    SchemaError,
    SerializationError,
    StaleTokenError,
    TopicNotFoundError,
)
from streamrt.kafka import KafkaRequestError, TopicConfig
from streamrt.records import TopicPartition
from streamrt.schema import Schema
from streamrt.tables.access.positions import Start
from streamrt.tables.reading import ranges
from streamrt.tables.rows.rows import ChangeType
from streamrt.tables.table import Table
from streamrt.testing.memory_topics import MemoryLinks
from streamrt.topics import Topic
from tests.table_home import CompactedLinks, Home, ids, info_of, table, write


def seconds(number: float) -> datetime:
    """Return a time without a zone."""
    return datetime(1970, 1, 1) + timedelta(seconds=number)


@pytest.mark.rows("FL-050", "FL-060", "FL-061", "FL-062", "FL-063", "FL-089", "FL-159", "DK-019")
def test_a_log_table_in_every_form() -> None:
    events = table()
    write(events, ids(3))
    assert events.scan(["id", "score"]).to_arrow().to_pylist() == [
        {"id": 0, "score": 0.0},
        {"id": 1, "score": 0.5},
        {"id": 2, "score": 1.0},
    ]
    limited = events.scan([1, 0], start={0: 1}, limit=1).to_arrow()
    assert limited.schema.names == ["name", "id"]
    assert limited.to_pylist() == [{"name": "n1", "id": 1}]
    assert list(events.scan()) == list(events.scan(columns=None).rows()) == ids(3)
    records = list(events.scan(["name"]).records())
    assert [(each.offset, each.timestamp, each.key, each.partition) for each in records] == [
        (0, 1_000, b"key", 0),
        (1, 2_000, b"key", 0),
        (2, 3_000, b"key", 0),
    ]
    assert records[0].row == {"name": "n0"}
    assert {each.change_type for each in records} == {ChangeType.APPEND}
    assert events.scan().count() == 3


@pytest.mark.rows("FL-060", "FL-061", "DK-019")
@pytest.mark.parametrize("columns", [["nope"], [3], [-1], ["id", "id"], [], "id", {"id"}])
def test_columns_that_are_refused(columns: Any) -> None:
    with pytest.raises((SchemaError, ArgumentValueError, ArgumentTypeError)):
        table().scan(columns)


@pytest.mark.rows("FL-040", "FL-155", "FL-156", "FL-157", "FL-158")
def test_offsets_of_a_place() -> None:
    events = table(partitions=2)
    assert events.offsets("earliest").partition_map("events") == {0: 0, 1: 0}
    assert events.offsets("latest").partition_map("events") == {0: 0, 1: 0}
    write(events, ids(3))
    assert events.offsets().partition_map("events") == {0: 3, 1: 0}
    assert events.offsets(seconds(0)).partition_map("events") == {0: 0, 1: 0}
    assert events.offsets(seconds(2)).partition_map("events") == {0: 1, 1: 0}
    assert events.offsets(seconds(2.0001), [0]).partition_map("events") == {0: 2}
    assert events.offsets(seconds(9_999_999)).partition_map("events") == {0: 3, 1: 0}
    east = timezone(timedelta(hours=2))
    assert events.offsets(seconds(7202).replace(tzinfo=east), [0]).partition_map("events") == {0: 1}
    assert events.offsets(datetime.max.replace(tzinfo=timezone.utc)).partition_map("events") == {0: 3, 1: 0}
    assert events.offsets(datetime.min).partition_map("events") == {0: 0, 1: 0}
    assert events.offsets().ids["events"]


@pytest.mark.rows("FL-080", "FL-081")
@pytest.mark.parametrize(
    ("start", "until", "expected"),
    [
        ("earliest", "latest", [0, 1, 2, 3]),
        ({0: 2}, "latest", [2, 3]),
        ("earliest", {0: 3}, [0, 1, 2]),
        ({0: 1}, {0: 3}, [1, 2]),
        ({0: 3}, {0: 1}, []),
        ("latest", "latest", []),
        (Offsets({("events", 0): 1}), "latest", [1, 2, 3]),
        (str(Offsets({("events", 0): 1})), str(Offsets({("events", 0): 2})), [1]),
        (Offsets({}), Offsets({}), []),
        (Offsets({}), "latest", [0, 1, 2, 3]),
        (seconds(2), seconds(4), [1, 2]),
        (seconds(999), seconds(9999), []),
        ({0: 4}, "latest", []),
    ],
)
def test_starts_and_ends(start: Start, until: Start, expected: list[int]) -> None:
    events = table()
    write(events, ids(4))
    scan = events.scan(start=start, until=until)
    assert [row["id"] for row in scan.rows()] == expected
    assert scan.count() == len(expected)
    assert [row["id"] for row in scan.to_arrow().to_pylist()] == expected


@pytest.mark.rows("FL-080")
@pytest.mark.parametrize(
    ("start", "error"),
    [
        ({0: 1}, "offset 1 of events\\[0\\] is not among its offsets 2 to 4: records were deleted"),
        ({0: 5}, "offset 5 of events\\[0\\] is not among its offsets 2 to 4: no record has this position"),
        (Offsets({("events", 0): 0}), "offset 0 of events\\[0\\]"),
        ({1: 0}, "no partition 1: its partitions are 0 to 0"),
        ({"0": 0}, "no partition '0'"),
        ({0: -1}, "must be 0 or more"),
        ({0: True}, "must be an int, got bool"),
        ("soon", 'must be "earliest", "latest", a datetime, .* got \'soon\''),
        ('{"v":1}', "is not a token"),
        (7, "got int"),
        (Offsets({("orders", 0): 0}), "the token is of topic orders, and table 'demo.events' has topic 'events'"),
    ],
)
def test_starts_that_are_refused(start: Any, error: str) -> None:
    events = table()
    write(events, ids(4))
    events._home.links.admin().delete_records({TopicPartition("events", 0): 2})  # type: ignore[attr-defined]
    assert [row["id"] for row in events.scan().rows()] == [2, 3]
    for read in (events.scan, events.subscribe):
        with pytest.raises((OffsetOutOfRangeError, ArgumentValueError, ArgumentTypeError), match=error):
            read(start=start)


def test_ends_that_are_refused() -> None:
    events = table(partitions=2)
    with pytest.raises(OffsetOutOfRangeError, match="offset 1 of events\\[0\\]"):
        events.scan(until={0: 1})
    with pytest.raises(ArgumentValueError, match="no offset for partition 1"):
        events.scan(until={0: 0}, partitions=[0, 1])
    with pytest.raises(ArgumentValueError, match="no partition 2: its partitions are 0 to 1"):
        events.scan(partitions=[2])
    with pytest.raises(ArgumentValueError, match="limit must be 0 or more"):
        events.scan(limit=-1)
    with pytest.raises(ArgumentTypeError, match="limit must be a number"):
        events.scan(limit=1.5)  # type: ignore[arg-type]
    with pytest.raises(ArgumentValueError, match="on_error must be"):
        events.scan(on_error="ignore")  # type: ignore[arg-type]


def test_partitions_in_order_and_chosen() -> None:
    events = table(partitions=3)
    write(events, ids(2, 20), 2)
    write(events, ids(2, 0), 0)
    assert events.scan(["id"]).to_arrow()["id"].to_pylist() == [0, 1, 20, 21]
    assert events.scan(["id"], partitions=[2]).to_arrow()["id"].to_pylist() == [20, 21]
    assert events.scan(["id"], partitions=[1]).to_arrow().num_rows == 0
    assert events.scan(["id"], start={2: 1}).to_arrow()["id"].to_pylist() == [21]
    assert events.scan().bounds == {0: (0, 2), 1: (0, 0), 2: (0, 2)}


def test_token_without_a_partition_that_was_added() -> None:
    events = table(partitions=2)
    write(events, ids(2, 0), 0)
    write(events, ids(2, 10), 1)
    token = Offsets({("events", 0): 1})
    assert events.scan(["id"], start=token).to_arrow()["id"].to_pylist() == [1, 10, 11]
    assert events.scan(["id"], until=token).to_arrow()["id"].to_pylist() == [0]


def test_end_is_fixed_and_the_next_scan_begins_there() -> None:
    events = table()
    write(events, ids(2))
    scan = events.scan()
    write(events, ids(2, 2))
    assert [row["id"] for row in scan.rows()] == [row["id"] for row in scan.rows()] == [0, 1]
    assert [row["id"] for row in events.scan(start=str(scan.end)).rows()] == [2, 3]
    assert scan.start == events.offsets("earliest")
    assert repr(scan) == "<TableScan of 'events', offsets 0: 0 to 2>"


@pytest.mark.rows("FL-174")
@pytest.mark.parametrize("limit", [0, 1, 2, 5, 9])
def test_limit(limit: int) -> None:
    events = table(partitions=2)
    write(events, ids(3), 0)
    write(events, ids(2, 3), 1)
    scan = events.scan(limit=limit)
    expected = min(limit, 5)
    assert len(list(scan.rows())) == scan.count() == scan.to_arrow().num_rows == expected
    assert sum(each.batch.num_rows for each in scan.batches()) == expected


def test_limit_counts_rows_and_not_skipped_records() -> None:
    events = table()
    write(events, [b"{", *ids(2), None, *ids(2, 2)])
    scan = events.scan(limit=3, on_error="skip")
    assert [row["id"] for row in scan.to_arrow().to_pylist()] == [row["id"] for row in scan.rows()] == [0, 1, 2]


@pytest.mark.parametrize("options", [{"columns": []}, {"partitions": []}, {"start": {}}, {"columns": ()}])
@pytest.mark.parametrize("method", ["scan", "subscribe", "on_changes"])
def test_empty_lists_are_refused(method: str, options: dict[str, Any]) -> None:
    given: dict[str, Any] = {"callback": print, **options} if method == "on_changes" else options
    with pytest.raises(ArgumentValueError, match=r"must name one (column|partition) or more"):
        getattr(table(), method)(**given)


def test_readers_need_not_see_the_settings_of_the_topic() -> None:
    class Links(MemoryLinks):
        def admin(self) -> Any:
            admin: Any = super().admin()
            admin.inspect_topics = lambda *_: pytest.fail("only those who may describe settings can do this")
            return admin

    events = table(home=Home(Links()))
    write(events, ids(2))
    assert events.scan().count() == 2
    with events.subscribe(start="earliest") as stream:
        stream._refresh_s = 0
        assert len(stream.poll(60)) == 2
    assert len(events.detect_schema().rows) == 2


@pytest.mark.rows("FL-086")
def test_aborted_and_open_transactions_are_not_seen() -> None:
    events = table()
    write(events, ids(2), transactional=True)
    write(events, ids(5, 100), abort=True)
    write(events, ids(1, 2), transactional=True)
    assert [row["id"] for row in events.scan().rows()] == [0, 1, 2]
    assert events.scan().to_arrow()["id"].to_pylist() == [0, 1, 2]
    batches = list(events.scan().batches())
    assert [(each.partition, each.first_offset, each.last_offset) for each in batches] == [(0, 0, 9)]
    links = events._home.links
    with contextlib.closing(links.sender(transactional_id="open")) as sender:
        sender.produce("events", b'{"id": 3}', None)
        write(events, ids(1, 4))
        assert events.scan().count() == 3
        assert events.offsets().partition_map("events") == {0: 11}
        sender.commit()
        assert [row["id"] for row in events.scan().rows()] == [0, 1, 2, 3, 4]


def test_scan_that_an_open_transaction_holds_up_says_so() -> None:
    events = table(home=Home(timeout=0.3))
    with contextlib.closing(events._home.links.sender(transactional_id="open")) as sender:
        sender.produce("events", b'{"id": 3}', None)
        with pytest.raises(KafkaRequestError, match=r"offset 0 of 1, and no further for 0\.3 s: a transaction"):
            events.scan(until={0: 1}).count()


def test_topic_of_markers_alone() -> None:
    events = table()
    write(events, ids(3), abort=True)
    assert events.scan().count() == 0
    assert events.scan().to_arrow().schema.names == ["id", "name", "score"]


@pytest.mark.rows("FL-105", "FL-106", "FL-107", "FL-108")
def test_compacted_gaps() -> None:
    events = table(home=Home(CompactedLinks([0, 3, 4, 9])))
    write(events, ids(10))
    kept = [1, 2, 5, 6, 7, 8]
    assert [row["id"] for row in events.scan().rows()] == kept
    (batch,) = events.scan(["id"]).batches()
    assert batch.batch.column(0).to_pylist() == kept
    assert (batch.partition, batch.first_offset, batch.last_offset) == (0, 1, 8)
    assert [row["id"] for row in events.scan(start={0: 3}, until={0: 4}).rows()] == []
    assert [row["id"] for row in events.scan(start={0: 3}, until={0: 6}).rows()] == [5]


@pytest.mark.parametrize("limit", [None, 6])
@pytest.mark.parametrize("marked", [False, True])
def test_topic_that_is_created_again_during_a_scan(
    limit: int | None, marked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "RECORDS", 3)
    events = table()
    write(events, ids(7), transactional=marked)
    scan = events.scan(limit=limit)
    rows = scan.rows()
    found = [next(rows)["id"]]
    admin = events._home.links.admin()
    admin.delete_topics(["events"])
    admin.create_topics([Topic("events", config=TopicConfig(1, 1))])
    write(events, ids(9, 100), transactional=marked)
    with pytest.raises(StaleTokenError, match="was deleted and created again"):
        found.extend(row["id"] for row in rows)
    assert found[:3] == [0, 1, 2]
    assert len(found) < 7


def test_rows_that_take_long_are_no_silence_of_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "RECORDS", 1)
    events = table(home=Home(timeout=0.02))
    write(events, ids(3))
    found = []
    for row in events.scan().rows():
        found.append(row["id"])
        time.sleep(0.05)
    assert found == [0, 1, 2]


def test_topic_that_was_created_again() -> None:
    events = table()
    write(events, ids(2))
    token = str(events.offsets())
    before = events.scan()
    admin = events._home.links.admin()
    admin.delete_topics(["events"])
    with pytest.raises(TopicNotFoundError, match=r"topic 'events' of table 'demo\.events' does not exist"):
        events.scan()
    admin.create_topics([Topic("events", config=TopicConfig(1, 1))])
    write(events, ids(3))
    with pytest.raises(StaleTokenError, match="was deleted and created again"):
        events.scan(start=token)
    with pytest.raises(StaleTokenError, match="was deleted and created again"):
        list(before.rows())
    assert events.scan(start={0: 2}).count() == 1


@pytest.mark.parametrize(
    ("bad", "reason"),
    [(b'{"id": "x"}', "id"), (b"{", "JSON"), (None, "no value"), (b"[1]", ""), (b'{"name": "a"}', "id")],
)
def test_records_that_are_no_rows(bad: bytes | None, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    events = table()
    write(events, [*ids(2), bad, *ids(1, 2), bad])
    for read in (lambda: list(events.scan().rows()), lambda: events.scan().to_arrow()):
        with pytest.raises(SerializationError, match=rf"events\[0\] at offset 2 is not a row.*{reason}"):
            read()
    scan = events.scan(on_error="skip")
    with caplog.at_level(logging.WARNING, "streamrt.tables"):
        assert [row["id"] for row in scan.rows()] == [0, 1, 2]
    assert scan.skipped == 2
    assert len(caplog.records) == 1
    assert scan.to_arrow()["id"].to_pylist() == [0, 1, 2]
    assert scan.skipped == 2


def test_metadata_and_change_types() -> None:
    events = table(partitions=2)
    write(events, ids(1, 7), 1)
    assert events.scan(["id"], metadata=True).to_arrow().to_pylist() == [
        {
            "id": 7,
            "_change_type": "+A",
            "_offset": 0,
            "_timestamp": datetime(1970, 1, 1, 0, 0, 1, tzinfo=timezone.utc),
            "_partition": 1,
        }
    ]
    assert events.scan(["id"], changes=True).to_arrow().to_pylist() == [{"id": 7, "_change_type": "+A"}]
    clashing = table(schema=Schema("_offset BIGINT"), topic="clash")
    assert clashing.scan(changes=True).arrow_schema.names == ["_offset", "_change_type"]
    with pytest.raises(SchemaError, match="the column '_offset' is in the schema"):
        clashing.scan(metadata=True)


@pytest.mark.rows("FL-090")
def test_frames() -> None:
    pandas = pytest.importorskip("pandas")
    events = table(schema=Schema("id INT NOT NULL, n BIGINT, ok BOOLEAN, name STRING, at TIMESTAMP"))
    write(events, [{"id": 1, "n": 2**60 + 1, "ok": True, "at": "2026-01-02T03:04:05"}, {"id": 2, "name": "b"}])
    frame = events.scan().to_pandas()
    assert {name: str(dtype) for name, dtype in frame.dtypes.items() if name != "name"} == {
        "id": "int32",
        "n": "Int64",
        "ok": "boolean",
        "at": "datetime64[us]",
    }
    assert frame["n"].tolist() == [2**60 + 1, pandas.NA]
    assert events.scan(limit=0).to_pandas().dtypes["n"] == "Int64"
    polars = pytest.importorskip("polars")
    assert events.scan(["id", "n"]).to_polars().rows() == [(1, 2**60 + 1), (2, None)]
    assert events.scan(limit=0).to_polars().schema["n"] == polars.Int64


def test_result_that_is_too_large() -> None:
    events = table()
    write(events, ids(1_000))
    with pytest.raises(ResultTooLargeError, match=r"more than 1,000 bytes in memory: .* max_bytes="):
        events.scan().to_arrow(max_bytes=1_000)
    with pytest.raises(ResultTooLargeError):
        events.scan().to_pandas(max_bytes=1_000)
    assert events.scan().to_arrow(max_bytes=100_000).num_rows == 1_000


def test_parquet_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    events = table()
    write(events, ids(3))
    target = tmp_path / "events.parquet"
    assert events.scan().to_parquet(target) == 3
    assert parquet.read_table(target).to_pylist() == ids(3)
    write(events, [b"{"])
    with pytest.raises(SerializationError):
        events.scan().to_parquet(target)
    assert parquet.read_table(target).num_rows == 3
    assert list(tmp_path.iterdir()) == [target]
    assert events.scan(limit=0).to_parquet(target) == 0
    assert parquet.read_schema(target).names == ["id", "name", "score"]


def test_parquet_is_on_disk_before_it_replaces_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = table()
    write(events, ids(3))
    target, link = tmp_path / "events.parquet", tmp_path / "latest.parquet"
    link.symlink_to(target)
    seen: list[tuple[int, bool]] = []
    fsync = os.fsync

    def noted(opened: int) -> None:
        fsync(opened)
        status = os.fstat(opened)
        seen.append((status.st_size if stat.S_ISREG(status.st_mode) else 0, target.exists()))

    monkeypatch.setattr(os, "fsync", noted)
    assert events.scan().to_parquet(link) == 3
    assert seen == [(target.stat().st_size, False), (0, True)]
    assert link.is_symlink()
    assert sorted(tmp_path.iterdir()) == [target, link]
    for wrong in (tmp_path, Path(os.devnull), tmp_path / "nowhere" / "file"):
        with pytest.raises(OSError, match="Errno"):
            events.scan().to_parquet(wrong)
    assert sorted(tmp_path.iterdir()) == [target, link]


def test_reading_ends_with_the_loop() -> None:
    closed: list[bool] = []

    class Links(MemoryLinks):
        def feed(self, options: Any = None) -> Any:
            feed: Any = super().feed(options)
            close = feed.close

            def noted() -> None:
                closed.append(True)
                close()

            feed.close = noted
            return feed

    events = table(home=Home(Links()))
    write(events, ids(3))
    for _ in events.scan().rows():
        break
    assert closed == [True]
    with pytest.raises(ResultTooLargeError) as raised:
        events.scan().to_arrow(max_bytes=1)
    assert closed == [True, True], raised.traceback
    next(events.scan().batches())
    assert closed == [True] * 3


def test_arrow_and_python_agree() -> None:
    events = table(
        schema=Schema("a BIGINT, b DECIMAL(10, 2), c DATE, d TIMESTAMP, e ARRAY<INT>, f STRUCT<x: INT>, g BINARY")
    )
    rows: list[dict[str, Any]] = [
        {"a": 1, "b": "12.30", "c": "2026-01-02", "d": "2026-01-02T03:04:05.000006", "e": [1, None], "f": {"x": 1}},
        {"g": "AP8="},
        {},
    ]
    write(events, rows)
    assert events.scan().to_arrow().to_pylist() == list(events.scan().rows())
    assert events.scan(["g", "b"]).to_arrow().to_pylist() == list(events.scan(["g", "b"]).rows())
    assert events.scan().to_arrow().schema == events.schema.arrow == pa.schema(list(events.scan().arrow_schema))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"kind": "external", "connector": "sqs", "topic": None}, "in another system \\(sqs\\)"),
    ],
)
def test_tables_that_are_not_read_here(changes: dict[str, Any], error: str) -> None:
    other = Table(info_of(**{"topic": "events", **changes}), Home())
    for read in (other.scan, other.subscribe, lambda: other.on_changes(print)):
        with pytest.raises(InvalidOperationError, match=error):
            read()


def test_table_without_a_schema() -> None:
    events = table(schema=None)
    with pytest.raises(SchemaError, match="has no schema"):
        events.scan()
    assert events.offsets().partition_map("events") == {0: 0}
