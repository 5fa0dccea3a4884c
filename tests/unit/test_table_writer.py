"""Writers of tables over topics in memory: what is checked, what comes back, and what is told of it."""

import contextlib
import copy
import datetime
import decimal
import gc
import json
import logging
import os
import pickle
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamrt import Offsets
from streamrt.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ConfigurationError,
    DeliveryTimeoutError,
    InvalidOperationError,
    ProducerError,
    SchemaError,
    SchemaMismatchError,
    SerializationError,
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
from streamrt.kafka.partitioner import partition_for
from streamrt.kafka.portion import Portion, produce_each
from streamrt.kafka.sender import Delivered
from streamrt.records import Headers
from streamrt.schema import Schema
from streamrt.tables.delivery import Deliveries, RecordPosition, WriteResult
from streamrt.tables.links import RecordSender
from streamrt.tables.row_encoder import RowEncoder
from streamrt.tables.table import Table
from streamrt.tables.writer import TableWriter
from streamrt.tables.writer_states import WRITERS_TOPIC
from streamrt.testing.memory_topics import MemoryLinks, _Partition
from streamrt.topics import Topic
from tests.support import LONG
from tests.table_home import Home, committed, create, table_info
from tests.unit.test_schema_rows import _columns as columns_with_values
from tests.unit.writer_histories import HISTORIES, TRIED, run_history

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
    kept.config = TopicConfig(count, 1)


def created_again(links: MemoryLinks, table: Table) -> Table:
    """Delete the topic of a table, and create it again."""
    links.admin().delete_topics([str(table.info.topic)])
    return create(links, table.info)


def rows_in(links: MemoryLinks, table: Table) -> list[dict[str, Any]]:
    return [stored.row for stored in committed(links, table)]


def state_of(writer: TableWriter) -> str | None:
    """Return the state; unlike of a property, type checkers expect it to change."""
    return writer.state


@pytest.mark.rows("FL-064", "FL-070", "FL-072", "FL-073", "FL-074", "FL-078", "DK-007", "DK-020", "DK-024", "DK-029")
def test_rows_of_each_form_are_written(links: MemoryLinks, events: Table) -> None:
    with events.writer() as writer:
        assert writer.schema == events.schema
        first = writer.append({"id": 1, "name": "Alice", "score": 95.5})
        writer.append([2, "Bob", 87.0])
        assert first.wait(timeout=10) == RecordPosition("demo.events", 0, 0, committed(links, events)[0].timestamp)
        frame = writer.append_pandas(pd.DataFrame({"id": [3], "name": ["Charlie"], "score": [91.0]}))
        writer.append((4, "Dee", None))
        token = writer.flush()
        assert first.done()
        assert frame.done()
        assert len(frame) == 1
    assert token.partition_map("demo.events") == {0: 4}
    assert token.ids == {"demo.events": links.admin().topic_ids(["demo.events"])["demo.events"]}
    assert first.token.partition_map("demo.events") == {0: 1}
    assert frame.token.partition_map("demo.events") == {0: 3}
    assert token.covers(frame.token)
    assert [row["name"] for row in rows_in(links, events)] == ["Alice", "Bob", "Charlie", "Dee"]


@pytest.mark.rows("DK-022", "DK-020", "FL-070")
@pytest.mark.parametrize(
    ("row", "why"),
    [
        ([4, "Dee"], r"2 values for 3 columns"),
        ({"id": "secret"}, r"column 'id' \(INT\) must be an integer"),
        ({"id": 1 << 40}, r"column 'id' \(INT\) must be an integer of 32 bits"),
        ({"id": 1, "nam": "secret"}, r"there is no column 'nam'; the columns are id, name, score"),
        ("secret", r"a row must be a mapping, a list or a tuple, not str"),
    ],
)
def test_row_that_does_not_fit_is_refused_at_once(links: MemoryLinks, events: Table, row: Any, why: str) -> None:
    with events.writer() as writer:
        with pytest.raises(SchemaMismatchError, match=rf"^{why} \(table 'demo.events'\)$") as error:
            writer.append(row)
        assert "secret" not in str(error.value)
        writer.append(LATEST)
    assert rows_in(links, events) == [LATEST]


@pytest.mark.rows("DK-022")
def test_columns_that_rows_leave_out(links: MemoryLinks) -> None:
    table = create(links, table_info("id INT NOT NULL, name STRING, stock BIGINT DEFAULT 5"))
    with table.writer() as writer:
        writer.append({"id": 1})
        writer.append_arrow(pa.table({"id": [2]}))
        with pytest.raises(SchemaMismatchError, match=r"column 'id' is missing, and it must not be null"):
            writer.append({"name": "x"})
        with pytest.raises(SchemaMismatchError, match=r"column 'id' is missing, and it must not be null"):
            writer.append_arrow(pa.table({"name": ["x"]}))
    assert rows_in(links, table) == [{"id": 1, "name": None, "stock": 5}, {"id": 2, "name": None, "stock": 5}]


class TestColumns:
    """`writer(columns=...)`: rows have some columns, in another order."""

    def test_others_get_their_default(self, links: MemoryLinks) -> None:
        table = create(links, table_info("id INT NOT NULL, name STRING, stock BIGINT DEFAULT 5"))
        with table.writer(columns=["name", 0]) as writer:
            writer.append(["a", 1])
            writer.append({"id": 2, "name": "b"})
            writer.append_arrow(pa.table({"id": [3]}))
            with pytest.raises(SchemaMismatchError, match=r"there is no column 'stock'; the columns are name, id"):
                writer.append({"id": 2, "stock": 7})
            with pytest.raises(SchemaMismatchError, match=r"there is no column 'stock'; the columns are name, id"):
                writer.append_arrow(pa.table({"id": [2], "stock": [7]}))
        assert [tuple(row.values()) for row in rows_in(links, table)] == [(1, "a", 5), (2, "b", 5), (3, None, 5)]

    def test_column_that_must_be_there(self, links: MemoryLinks) -> None:
        table = create(links, table_info("id INT NOT NULL, name STRING"))
        with pytest.raises(SchemaError, match=r"leaves out the column 'id' of table 'shop.orders'"):
            table.writer(columns=["name"])
        keyed = create(links, table_info("id INT NOT NULL, name STRING", "shop.keyed", key=["name"]))
        with pytest.raises(SchemaError, match=r"leaves out the column 'name' of table 'shop.keyed'"):
            keyed.writer(columns=["id"])
        with pytest.raises(SchemaError, match=r"there is no column 'x'"):
            table.writer(columns=["x"])
        with pytest.raises(ArgumentTypeError, match=r"must be a list of names or numbers"):
            table.writer(columns="name")


class TestFrames:
    """Rows in columns: of Arrow, pandas and polars."""

    SCHEMA = (
        "n BIGINT, f FLOAT, t VARCHAR(3), b BINARY, d DATE, clock TIME, at TIMESTAMP, utc TIMESTAMP_LTZ, "
        "price DECIMAL(10, 2), tags ARRAY<STRING>, ok BOOLEAN"
    )
    ROW: ClassVar[dict[str, Any]] = {
        "n": 7,
        "f": 0.5,
        "t": "abc",
        "b": b"\x00\x01",
        "d": datetime.date(2026, 3, 29),
        "clock": datetime.time(10, 0, 0, 5_000),
        "at": datetime.datetime(2026, 3, 29, 10, 0, 0, 123_456),
        "utc": datetime.datetime(2026, 3, 29, 10, tzinfo=datetime.timezone.utc),
        "price": decimal.Decimal("9.50"),
        "tags": ["a", None],
        "ok": True,
    }
    EMPTY: ClassVar[dict[str, Any]] = dict.fromkeys(ROW)

    @pytest.fixture
    def table(self, links: MemoryLinks) -> Table:
        return create(links, table_info(self.SCHEMA))

    def check(self, links: MemoryLinks, table: Table, frame: Any) -> None:
        """Write a frame with the row, and one without values."""
        token = table.append(frame)
        assert token.partition_map("shop.orders") == {0: 2}
        assert rows_in(links, table) == [self.ROW, self.EMPTY]

    @pytest.mark.rows("FL-071", "FL-072")
    @pytest.mark.parametrize("as_batch", [False, True])
    def test_arrow(self, links: MemoryLinks, table: Table, as_batch: bool) -> None:
        rows = pa.Table.from_pylist([self.ROW, self.EMPTY], schema=table.schema.arrow)
        self.check(links, table, rows.to_batches()[0] if as_batch else rows)

    @pytest.mark.rows("FL-073", "DK-023")
    def test_pandas(self, links: MemoryLinks, table: Table) -> None:
        self.check(links, table, pd.DataFrame([self.ROW, self.EMPTY]))

    def test_polars(self, links: MemoryLinks, table: Table) -> None:
        self.check(links, table, pl.DataFrame([self.ROW, self.EMPTY]))

    def test_types_that_mean_the_same(self, links: MemoryLinks, table: Table) -> None:
        other = {
            "n": pa.int32(),
            "f": pa.float64(),
            "t": pa.dictionary(pa.int8(), pa.large_string()),
            "b": pa.large_binary(),
            "d": pa.date64(),
            "clock": pa.time64("ns"),
            "at": pa.timestamp("ns"),
            "utc": pa.timestamp("ms", "Europe/Paris"),
            "price": pa.decimal256(20, 4),
            "tags": pa.large_list(pa.string()),
            "ok": pa.bool_(),
        }
        rows = pa.Table.from_pylist([self.ROW, self.EMPTY], schema=pa.schema(list(other.items())))
        self.check(links, table, rows.select(sorted(other)))

    def test_texts_are_taken_as_in_rows(self, links: MemoryLinks, table: Table) -> None:
        table.append(pa.table({"d": ["2026-03-29"], "price": ["9.5"], "n": pa.array([None], pa.null())}))
        assert rows_in(links, table) == [{**self.EMPTY, "d": self.ROW["d"], "price": self.ROW["price"]}]

    def test_maps_in_pandas_have_the_keys_that_they_have(self, links: MemoryLinks) -> None:
        schema = "m MAP<STRING, INT>, l ARRAY<MAP<STRING, ARRAY<DOUBLE>>>, s STRUCT<m: MAP<STRING, STRING>>"
        table = create(links, table_info(schema))
        rows: list[dict[str, Any]] = [
            {"m": {"a": 1}, "l": [{"x": [1.5, None]}, {}], "s": {"m": {"k": "v"}}},
            {"m": {}, "l": [{"y": []}], "s": {"m": {}}},
            {"m": None, "l": None, "s": None},
        ]
        table.append(pd.DataFrame(rows))
        assert rows_in(links, table) == rows
        # As Arrow makes frames: lists of pairs, and arrays.
        frame = table.scan().to_pandas()
        table.append(frame)
        assert rows_in(links, table) == rows * 2

    def test_integers_with_gaps_in_pandas(self, links: MemoryLinks, table: Table) -> None:
        table.append(pd.DataFrame({"n": [1, None, 3]}))
        assert [row["n"] for row in rows_in(links, table)] == [1, None, 3]

    @pytest.mark.parametrize(
        ("frame", "why"),
        [
            (pd.DataFrame({"n": [1, None, 1.5]}), r"row 2: column 'n' \(BIGINT\) must be an integer"),
            (pa.table({"n": [1.0, 2.0]}), r"row 0: column 'n' \(BIGINT\) must be an integer"),
            (pd.DataFrame({"n": [1, "secret"]}), r"row 1: column 'n' \(BIGINT\) must be an integer"),
            (
                pa.table({"n": pa.array([1, 1 << 63], pa.uint64())}),
                r"row 1: column 'n' \(BIGINT\) must be an integer of 64 bits",
            ),
            (
                pa.table({"t": ["abc", None, "secret"]}),
                r"row 2: column 't' \(VARCHAR\(3\)\) must be a text with 3 characters at most",
            ),
            (
                pa.table({"f": [1.0, 1e300]}),
                r"row 1: column 'f' \(FLOAT\) must be a number that a float of 32 bits can hold",
            ),
            (pa.table({"ok": [True, None], "x": [1, 2]}), r"there is no column 'x'; .*"),
            (pd.DataFrame({1: [1]}), r"column 0 has the name 1, which is no text"),
            (pa.table([[1], [2]], names=["n", "n"]), r"the column 'n' is there twice"),
            ([{"n": 1}, {"n": "secret"}], r"row 1: column 'n' \(BIGINT\) must be an integer"),
        ],
    )
    def test_nothing_is_written_if_a_row_does_not_fit(
        self, links: MemoryLinks, table: Table, frame: Any, why: str
    ) -> None:
        with table.writer() as writer:
            with pytest.raises(SchemaMismatchError, match=rf"^{why} \(table 'shop.orders'\)$") as error:
                writer.append_rows(frame)
            assert "secret" not in str(error.value)
            assert not writer.flush()
        assert rows_in(links, table) == []

    def test_null_where_none_may_be(self, links: MemoryLinks) -> None:
        table = create(links, table_info("id INT NOT NULL"))
        with pytest.raises(SchemaMismatchError, match=r"row 1: column 'id' \(INT\) must be not null"):
            table.append(pa.table({"id": pa.array([1, None], pa.int32())}))

    def test_format_that_cannot_carry_a_value(self, links: MemoryLinks, table: Table) -> None:
        with pytest.raises(SerializationError, match=r"row 1: column 'f' \(FLOAT\) must be finite"):
            table.append(pa.table({"f": pa.array([1.0, float("nan")], pa.float32())}))
        assert rows_in(links, table) == []

    @pytest.mark.parametrize(
        ("method", "given"),
        [("append_arrow", pd.DataFrame()), ("append_pandas", pa.table({})), ("append_polars", pd.DataFrame())],
    )
    def test_frames_of_another_library(self, table: Table, method: str, given: Any) -> None:
        with table.writer() as writer, pytest.raises(ArgumentTypeError, match=rf"{method}\(\) takes a"):
            getattr(writer, method)(given)

    def test_frames_without_rows(self, links: MemoryLinks, table: Table) -> None:
        frames: list[Any] = [pa.table({}), pd.DataFrame(), pd.DataFrame({"n": []}), []]
        for empty in frames:
            assert table.append(empty) == Offsets({})
        with table.writer() as writer:
            assert writer.append_arrow(pa.table({})).done()


class TestShortForm:
    """`Table.append`."""

    def test_rows(self, links: MemoryLinks, events: Table) -> None:
        assert events.append([{"id": 1}, [2, "b", None]]).partition_map("demo.events") == {0: 2}
        events.append({"id": 3})
        events.append({"id": number} for number in range(2))
        assert [row["id"] for row in rows_in(links, events)] == [1, 2, 3, 0, 1]

    def test_what_is_no_list_of_rows(self, events: Table) -> None:
        with pytest.raises(ArgumentTypeError, match=r"rows are a list of rows, or a table of Arrow, not str"):
            events.append("id")
        with pytest.raises(SchemaMismatchError, match=r"row 0: a row must be a mapping, a list or a tuple, not int"):
            events.append([4, "Dee"])


class TestChanges:
    """`writer.write`, and what log tables refuse."""

    def test_inserts(self, links: MemoryLinks, events: Table) -> None:
        with events.writer() as writer:
            result = writer.write([{"insert": {"id": 1}}, {"insert": [2, "b", 1.0]}])
            assert result.wait(10).partition_map("demo.events") == {0: 2}
            assert result.token == result.wait()
        assert [row["id"] for row in rows_in(links, events)] == [1, 2]

    @pytest.mark.parametrize(
        ("change", "kind", "why"),
        [
            ({"delete": {"id": 1}}, InvalidOperationError, "change 1 is 'delete', and 'demo.events' is a log table"),
            ({"update": {"id": 1}}, InvalidOperationError, "change 1 is 'update', and 'demo.events' is a log table"),
            ({"replace": {"id": 1}}, ArgumentValueError, "change 1 must be an insert, got 'replace'"),
            ({"insert": {"id": 1}, "delete": {"id": 1}}, ArgumentTypeError, "change 1 must be a mapping with one key"),
            ({"id": 1, "name": "a"}, ArgumentTypeError, "change 1 must be a mapping with one key"),
            ({"insert": {"id": "x"}}, SchemaMismatchError, "row 1: column 'id'"),
        ],
    )
    def test_what_is_refused(
        self, links: MemoryLinks, events: Table, change: Any, kind: type[Exception], why: str
    ) -> None:
        with events.writer() as writer, pytest.raises(kind, match=why):
            writer.write([{"insert": {"id": 1}}, change])
        with (
            events.writer() as writer,
            pytest.raises(ArgumentTypeError, match=r"takes a list of changes, or a frame, not dict"),
        ):
            writer.write(change)
        assert rows_in(links, events) == []

    @pytest.mark.parametrize("form", ["table", "batch", "pandas", "polars"])
    def test_frames(self, links: MemoryLinks, events: Table, form: str) -> None:
        rows = pa.table({"_change_type": ["+A", "+I"], "id": [1, 2], "name": ["a", None], "insert_delete": [1, 1]})
        make: dict[str, Callable[[], Any]] = {
            "table": lambda: rows,
            "batch": lambda: rows.to_batches()[0],
            "pandas": rows.to_pandas,
            "polars": lambda: pl.DataFrame(rows),
        }
        with events.writer() as writer:
            assert writer.write(make[form]()).wait(10).partition_map("demo.events") == {0: 2}
        assert [(row["id"], row["name"]) for row in rows_in(links, events)] == [(1, "a"), (2, None)]

    def test_frames_of_scans(self, links: MemoryLinks, events: Table) -> None:
        copy = create(links, table_info(EVENTS, "demo.copy"))
        events.append([[1, "a", 0.5], [2, None, None]])
        with copy.writer() as writer:
            writer.write(events.scan(changes=True).to_arrow())
            writer.write(events.scan(["id"], changes=True).to_pandas())
        assert [row["id"] for row in rows_in(links, copy)] == [1, 2, 1, 2]

    @pytest.mark.parametrize(
        ("changes", "kind", "why"),
        [
            (
                ["+A", "-U"],
                InvalidOperationError,
                r"row 1 is '-U', and 'demo.events' is a log table, .* alone: \+A, \+I$",
            ),
            (["+U", "+A"], InvalidOperationError, r"row 0 is '\+U'"),
            (["+A", "-D"], InvalidOperationError, r"row 1 is '-D'"),
            (
                ["+A", "secret"],
                ArgumentValueError,
                r"row 1: column '_change_type' must be one of \+A, \+I, -U, \+U, -D$",
            ),
            (["+A", None], ArgumentValueError, r"row 1: column '_change_type'"),
            (None, ArgumentValueError, r"frames with one column '_change_type', such as .* append_rows\(\) takes"),
        ],
    )
    @pytest.mark.parametrize("as_pandas", [False, True])
    def test_frames_that_are_refused(
        self,
        links: MemoryLinks,
        events: Table,
        changes: list[str] | None,
        kind: type[Exception],
        why: str,
        as_pandas: bool,
    ) -> None:
        frame = pa.table({"id": [1, 2]})
        if changes is not None:
            frame = frame.append_column("_change_type", pa.array(changes, pa.string()))
        with events.writer() as writer, pytest.raises(kind, match=why):
            writer.write(frame.to_pandas() if as_pandas else frame)
        assert rows_in(links, events) == []

    def test_column_of_the_name_in_the_table(self, links: MemoryLinks) -> None:
        table = create(links, table_info("_change_type STRING", "demo.changes"))
        with (
            table.writer() as writer,
            pytest.raises(InvalidOperationError, match=r"has a column '_change_type', so write"),
        ):
            writer.write(pa.table({"_change_type": ["+A"]}))

    @pytest.mark.rows("FL-075", "FL-076")
    def test_log_tables_have_no_keys(self, events: Table) -> None:
        with events.writer() as writer:
            with pytest.raises(InvalidOperationError, match=r"a log table has no deletes"):
                writer.delete(1)
            with pytest.raises(InvalidOperationError, match=r"a log table has no upserts"):
                writer.upsert({"id": 1})


class TestTables:
    """Tables that cannot be written."""

    def test_primary_key(self, links: MemoryLinks) -> None:
        info = table_info("id INT, PRIMARY KEY (id)", kind="primary-key")
        with pytest.raises(InvalidOperationError, match=r"writing to tables with a primary key is not there yet"):
            create(links, info).writer()

    def test_external(self, links: MemoryLinks) -> None:
        table = Table(table_info(EVENTS, kind="external"), Home(links))
        with pytest.raises(InvalidOperationError, match=r"table 'shop.orders' is external \(sqs\)"):
            table.writer()

    @pytest.mark.rows("DK-008")
    def test_no_schema(self, links: MemoryLinks) -> None:
        with pytest.raises(SchemaError, match=r"has no schema"):
            create(links, table_info(None)).writer()

    def test_no_topic(self, links: MemoryLinks) -> None:
        with pytest.raises(TopicNotFoundError, match=r"topic 'shop.orders' of table 'shop.orders' does not exist"):
            Table(table_info(EVENTS), Home(links)).writer()


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
        monkeypatch.setattr("streamrt.tables.writer.REFRESH_S", 0.0)
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
    """What is left when a writer is closed."""

    @pytest.mark.rows("DK-028")
    def test_writer_refuses_when_it_is_closed(self, links: MemoryLinks, events: Table) -> None:
        with events.writer() as writer:
            result = writer.append(LATEST)
        writer.close()
        assert result.wait().offset == 0
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
            results[0].wait()

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


class Unreliable:
    """A sender whose records are delivered when a test says so.

    Args:
        inner: what delivers them.
    """

    def __init__(self, inner: RecordSender) -> None:
        self.inner = inner
        self.usable = True
        self.held: list[Callable[[], None]] = []
        self.told: Delivered | None = None

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        timestamp: int | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        on_delivery: Delivered | None = None,
    ) -> None:
        self.told = on_delivery
        self.held.append(lambda: self.inner.produce(topic, value, key, timestamp, headers, partition, on_delivery))

    def produce_all(self, topic: str, portion: Portion) -> None:
        produce_each(self.produce, topic, portion)

    def partitions(self, topic: str, timeout: float) -> int | None:
        return self.inner.partitions(topic, timeout)

    def lose(self) -> None:
        """Lose the record that came last."""
        self.held.clear()
        assert self.told is not None
        self.told(ProducerError("the topic is gone"), -1, -1, -1)

    def poll(self, timeout: float = 0.0) -> None:
        self.inner.poll(timeout)

    def flush(self, timeout: float) -> int:
        self.inner.flush(timeout)
        return len(self.held)

    def deliver(self) -> None:
        held, self.held = self.held, []
        for each in held:
            each()

    def commit(self) -> None:
        self.inner.commit()

    def abort(self) -> None:
        self.inner.abort()

    def close(self) -> None:
        self.inner.close()


class TestOutcomes:
    """What is told of rows that are late, or lost."""

    @pytest.fixture
    def sender(self, links: MemoryLinks, monkeypatch: pytest.MonkeyPatch) -> Unreliable:
        sender = Unreliable(links.sender())
        monkeypatch.setattr(links, "sender", lambda *_: sender)
        return sender

    def test_rows_that_are_on_their_way(self, links: MemoryLinks, events: Table, sender: Unreliable) -> None:
        with events.writer() as writer:
            result = writer.append(LATEST)
            batch = writer.append_rows([LATEST, LATEST])
            assert not result.done()
            assert not batch.done()
            with pytest.raises(
                DeliveryTimeoutError, match=r"1 row of table 'demo.events' was not delivered within 0.01 s"
            ):
                result.wait(timeout=0.01)
            with pytest.raises(DeliveryTimeoutError, match=r"2 rows of table 'demo.events' were not delivered"):
                batch.wait(timeout=0.01)
            with pytest.raises(DeliveryTimeoutError, match=r"3 rows of table 'demo.events' were not delivered"):
                writer.flush(timeout=0.01)
            sender.deliver()
            assert result.wait(10).offset == 0
            assert batch.wait(10).partition_map("demo.events") == {0: 3}
            assert writer.flush().partition_map("demo.events") == {0: 3}

    def test_rows_that_are_lost(self, events: Table, sender: Unreliable) -> None:
        writer = events.writer()
        writer.append(LATEST)
        sender.deliver()
        lost = writer.append(LATEST)
        sender.lose()
        batch = writer.append_rows([LATEST])
        sender.lose()
        why = (
            r"2 rows of table 'demo.events' were not delivered \(of the rows of this writer, counted from 0: 1, 2\): 2 "
            "because the topic is gone"
        )
        with pytest.raises(ProducerError, match=f"^{why}$"):
            writer.flush()
        with pytest.raises(ProducerError, match=r"the topic is gone"):
            lost.wait()
        with pytest.raises(ProducerError, match=r"the topic is gone"):
            batch.wait()
        # They were told, and the writer goes on.
        assert writer.flush().partition_map("demo.events") == {0: 1}
        writer.append(LATEST)
        sender.lose()
        with pytest.raises(ProducerError, match=r"1 row of table 'demo.events' was not delivered .*: 3\)"):
            writer.close()
        writer.close()

    def test_rows_that_are_late_when_the_writer_is_closed(self, events: Table, sender: Unreliable) -> None:
        home = Home(events._home.links)
        home.timeout = 0.01
        writer = Table(events.info, home).writer()
        writer.append(LATEST)
        sender.deliver()
        late: list[Any] = [writer.append(LATEST), writer.append_rows([LATEST] * 2)]
        with pytest.raises(DeliveryTimeoutError) as error:
            writer.close()
        assert str(error.value) == (
            "3 rows of table 'demo.events' were not delivered within 0.01 s, and the writer is closed now: brokers may have "
            "some of them; look in the table which are there, and write the others again; flush(timeout=...) before the "
            "end waits longer, and a writer with an id writes each row once"
        )
        for each in late:
            with pytest.raises(ProducerError, match=r"was not delivered before its writer was closed"):
                each.wait(0)
        writer.close()

    def test_reports_that_an_interrupt_has_hit(self, events: Table, sender: Unreliable) -> None:
        with events.writer() as writer:
            writer.append(LATEST)
            writer.append_rows([LATEST] * 2)
            # The client has none of them any more, and has told nothing of them.
            sender.held.clear()
            with pytest.raises(
                ProducerError, match=r"not known whether 3 rows .* were delivered, because an interrupt"
            ):
                writer.flush(timeout=10)
            writer.append(LATEST)
            sender.deliver()
            assert writer.flush().partition_map("demo.events") == {0: 1}

    def test_writer_that_is_never_closed(
        self, links: MemoryLinks, events: Table, sender: Unreliable, caplog: pytest.LogCaptureFixture
    ) -> None:
        def leave(**options: Any) -> None:
            writer = events.writer(**options)
            writer.append_rows([LATEST] * 3)

        with caplog.at_level(logging.WARNING):
            leave()
            gc.collect()
        assert "A writer of table 'demo.events' was never closed" in caplog.text
        assert "are dropped (3)" in caplog.text

    def test_row_whose_append_was_interrupted_counts_for_no_other(
        self, events: Table, sender: Unreliable, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        writer = events.writer()
        produce = sender.produce

        def interrupted(*given: Any, **options: Any) -> None:
            produce(*given, **options)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(sender, "produce", interrupted)
            with pytest.raises(KeyboardInterrupt):
                writer.append(LATEST)
        sender.deliver()
        sender.poll()
        writer.append(LATEST)
        with pytest.raises(DeliveryTimeoutError, match=r"1 row of table"):
            writer.flush(timeout=0.01)
        sender.deliver()
        assert writer.flush().partition_map("demo.events") == {0: 2}
        writer.close()

    def test_producer_that_is_broken(self, events: Table, sender: Unreliable) -> None:
        writer = events.writer()
        writer.append(LATEST)
        sender.usable = False
        with pytest.raises(ProducerError, match=r"had a fatal error and may have lost 1 rows"):
            writer.flush()
        writer.close(failed=True)

    def test_threads_that_write_and_wait(self, links: MemoryLinks, events: Table) -> None:
        positions: list[int] = []
        with events.writer() as writer:

            def work() -> None:
                for number in range(50):
                    positions.append(writer.append({"id": number}).wait(60).offset)

            threads = [threading.Thread(target=work) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert sorted(positions) == list(range(200))
        assert Counter(row["id"] for row in rows_in(links, events)) == dict.fromkeys(range(50), 4)


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
            lost.wait()
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
        why = r"was not read within 0.2\d* s: _streamrt_writers\[0\] has offsets up to 60, and no record came after offset"
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
        monkeypatch.setattr(type(writer._sender), "usable", False)
        writer.checkpoint("1")
        monkeypatch.undo()
        former = writer._sender
        writer.append({"id": 2})
        assert writer._sender is not former
        writer.checkpoint("2")
        writer.append({"id": 3})
        monkeypatch.setattr(type(writer._sender), "usable", False)
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
            patch.setattr(type(writer._sender), "commit", interrupt)
            with pytest.raises(KeyboardInterrupt):
                writer.checkpoint("1")
        with pytest.raises(TransactionError, match=r"was interrupted, so its outcome is unknown"):
            writer.append({"id": 2})
        assert rows_in(links, events) == []


@settings(max_examples=400 if LONG else 40)
@given(st.data())
def test_any_row_of_any_schema_comes_back(data: st.DataObject) -> None:
    parts = data.draw(columns_with_values)
    schema = Schema({f"c{number}": word for number, (word, _) in enumerate(parts)})
    values = st.fixed_dictionaries({f"c{number}": each | st.none() for number, (_, each) in enumerate(parts)})
    rows = data.draw(st.lists(values, max_size=3))
    links = MemoryLinks()
    expected = [schema.check(row) for row in rows]
    for number, given_rows in enumerate((rows, pa.Table.from_pylist(expected, schema=schema.arrow))):
        table = create(links, table_info(schema, f"shop.rows{number}"))
        table.append(given_rows)
        assert rows_in(links, table) == expected


@settings(max_examples=400 if LONG else 40)
@given(st.data())
def test_many_rows_are_taken_or_refused_as_single_ones(data: st.DataObject) -> None:
    parts = data.draw(columns_with_values)
    schema = Schema({f"c{number}": word for number, (word, _) in enumerate(parts)})
    odd = st.none() | st.integers(-(2**70), 2**70) | st.booleans() | st.floats() | st.text(max_size=3) | st.binary()
    cells = {f"c{number}": each | odd for number, (_, each) in enumerate(parts)}
    rows: list[Any] = data.draw(st.lists(st.fixed_dictionaries({}, optional=cells), min_size=1, max_size=3)) * 16
    if data.draw(st.booleans()):
        rows = [[row.get(name) for name in schema.names] for row in rows]
    info = table_info(schema)
    encoder = RowEncoder("t", "t", schema, Home(MemoryLinks()).row_format(info), None, None, 1_000_000)

    def outcome(encode: Callable[[Any], Any]) -> Any:
        try:
            return [json.loads(value) for value in encode(rows).values]
        except (SchemaMismatchError, SerializationError) as error:
            return str(error)

    assert outcome(encoder.rows) == outcome(encoder._one_by_one)


def test_many_rows_of_usual_types_are_checked_together(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = Schema("i INT NOT NULL, f DOUBLE, s VARCHAR(3), at TIMESTAMP, price DECIMAL(5, 2), n BIGINT DEFAULT 4")
    encoder = RowEncoder("t", "t", schema, Home(MemoryLinks()).row_format(table_info(schema)), None, None, 1_000_000)
    moment = datetime.datetime(2026, 3, 29, 10)
    rows = [{"i": n, "f": n / 2, "s": "abc", "at": moment, "price": decimal.Decimal("1.5")} for n in range(20)]
    expected = [json.loads(value) for value in encoder._one_by_one(rows).values]
    with monkeypatch.context() as patch:
        patch.setattr(encoder, "_one_by_one", None)
        assert [json.loads(value) for value in encoder.rows(rows).values] == expected
    rows[17]["s"] = "abcd"
    with pytest.raises(SchemaMismatchError, match=r"^row 17: column 's' \(VARCHAR\(3\)\) must be a text with 3 char"):
        encoder.rows(rows)


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
            writer.append({"id": next(stream).row["id"]})
            number += 1
            if number == breaks_after:
                raise InterruptedError
            if number % 2 == 0:
                writer.checkpoint(str(stream.position))
        writer.checkpoint(str(stream.position))


@settings(max_examples=TRIED)
@given(HISTORIES)
def test_rows_and_state_agree_whatever_happens(actions: list[tuple[str, int]]) -> None:
    run_history(actions)


def test_position_of_a_row_does_not_wait_for_a_closed_writer() -> None:
    deliveries = Deliveries("shop.orders", "shop.orders", None, lambda timeout: None, 1.0)
    result = WriteResult(deliveries)
    deliveries.accept(result)
    deliveries.close()
    assert result.done()
    with pytest.raises(ProducerError):
        result.wait()
    assert deliveries.token() == Offsets({})
