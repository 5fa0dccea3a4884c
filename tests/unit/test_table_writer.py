"""Writers of tables over topics in memory: rows and frames, what is checked of them, and what comes back."""

import datetime
import decimal
import json
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
    InvalidOperationError,
    SchemaError,
    SchemaMismatchError,
    SerializationError,
    TopicNotFoundError,
)
from streamrt.schema import Schema
from streamrt.tables.rows.row_encoder import RowEncoder
from streamrt.tables.table import Table
from streamrt.tables.writing.delivery import RecordPosition
from streamrt.testing.memory_topics import MemoryLinks
from tests.support import LONG
from tests.table_home import Home, committed, create, rows_in, table_info
from tests.unit.test_schema_rows import _columns as columns_with_values

EVENTS = "id INT, name STRING, score DOUBLE"
LATEST = {"id": 3, "name": "Cy", "score": 91.0}


@pytest.fixture
def links() -> MemoryLinks:
    return MemoryLinks()


@pytest.fixture
def events(links: MemoryLinks) -> Table:
    return create(links, table_info(EVENTS, "demo.events"))


@pytest.mark.rows(
    "FL-064",
    "FL-070",
    "FL-072",
    "FL-073",
    "FL-074",
    "FL-078",
    "DK-007",
    "DK-020",
    "DK-024",
    "DK-029",
    "FE-060",
    "FE-062",
)
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


@pytest.mark.rows("DK-022", "DK-020", "FL-070", "FE-062")
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
            "t": pa.large_string(),
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
        # As a schema for `from_pylist`, older versions of Arrow have no dictionary of such strings.
        rows = rows.set_column(rows.schema.get_field_index("t"), "t", rows["t"].dictionary_encode())
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
            (pd.DataFrame({1: [1]}), r"column 0 has the name 1, which is not a string"),
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

    def test_numbers_that_json_does_not_have(self, links: MemoryLinks, table: Table) -> None:
        table.append(pa.table({"f": pa.array([1.0, float("nan")], pa.float32())}))
        assert [row["f"] for row in rows_in(links, table)] == [1.0, pytest.approx(float("nan"), nan_ok=True)]

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
            assert result.token == result.wait(60)
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


class TestTables:
    """Tables that cannot be written."""

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
            return [json.loads(value or b"") for value in encode(rows).values]
        except (SchemaMismatchError, SerializationError) as error:
            return str(error)

    assert outcome(encoder.rows) == outcome(encoder._one_by_one)


def test_many_rows_of_usual_types_are_checked_together(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = Schema("i INT NOT NULL, f DOUBLE, s VARCHAR(3), at TIMESTAMP, price DECIMAL(5, 2), n BIGINT DEFAULT 4")
    encoder = RowEncoder("t", "t", schema, Home(MemoryLinks()).row_format(table_info(schema)), None, None, 1_000_000)
    moment = datetime.datetime(2026, 3, 29, 10)
    rows = [{"i": n, "f": n / 2, "s": "abc", "at": moment, "price": decimal.Decimal("1.5")} for n in range(20)]
    expected = [json.loads(value or b"") for value in encoder._one_by_one(rows).values]
    with monkeypatch.context() as patch:
        patch.setattr(encoder, "_one_by_one", None)
        assert [json.loads(value or b"") for value in encoder.rows(rows).values] == expected
    rows[17]["s"] = "abcd"
    with pytest.raises(SchemaMismatchError, match=r"^row 17: column 's' \(VARCHAR\(3\)\) must be a text with 3 char"):
        encoder.rows(rows)
