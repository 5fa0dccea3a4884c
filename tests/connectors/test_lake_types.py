"""Types of columns do not depend on where commits end."""

import atexit
import datetime
import decimal
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import deltalake
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamrt.connectors import DeltaSink, IcebergSink, LocalFileSink, SinkBatch
from streamrt.connectors.lakes.lake_rows import ArrowRows
from streamrt.errors import SinkError

ROOM = tempfile.mkdtemp()
atexit.register(shutil.rmtree, ROOM, ignore_errors=True)
UTC = datetime.timezone.utc
DAY = datetime.date(2026, 1, 2)
TIME = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

NASTY = [
    {"d": DAY, "n": 1},
    {"d": TIME},
    {"n": 2.5},
    {"n": 2**53 + 1},
    {"n": True},
    {"x": []},
    {"x": [1]},
    {"x": [1, 2.5]},
    {"x": [1.5, 2]},
    {"s": {}},
    {"s": {"a": []}},
    {"s": {"a": [DAY], "b": None}},
    {"s": {"a": [DAY, TIME]}},
    {"s": {"b": 1}},
    {"m": decimal.Decimal("1.5")},
    {"m": decimal.Decimal("1.25")},
    {"m": 3},
    {"m": decimal.Decimal("NaN")},
    {"t": TIME.replace(tzinfo=None)},
    {"t": datetime.datetime(1, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=5)))},
    {"t": DAY},
    {"t": "2026-01-02"},
    {"b": b"\xff"},
    {"b": "text"},
    {},
]


def batches_of(records: Sequence[tuple[int, Any]]) -> list[SinkBatch]:
    batch = SinkBatch("orders", 0)
    for offset, value in records:
        batch.append(value, b"key", 1_000, None, offset)
    return [batch]


class Table:
    """A table in memory that takes what `ArrowRows` makes, as Delta and Iceberg do."""

    def __init__(self) -> None:
        self.rows = ArrowRows("table", metadata=True, extend=True)
        self.schema: Any = None
        self.data: list[dict[str, Any]] = []

    def write(self, batches: list[SinkBatch]) -> None:
        existing = self.rows.first_schema(batches) if self.schema is None else self.schema
        made = self.rows.table(batches, existing)
        fields = {field.name: field for field in existing}
        fields.update({field.name: field for field in made.schema})
        self.schema = pyarrow.schema(list(fields.values()))
        self.data += made.to_pylist()

    def content(self) -> list[Any]:
        # All rows with all columns and fields.
        rows: list[Any] = pyarrow.Table.from_pylist(self.data, self.schema).to_pylist() if self.data else []
        return rows


def written(table: Any, records: Sequence[tuple[int, Any]], ends: Sequence[int]) -> list[int]:
    """Write records in commits that end at some places; return the offsets that were refused and skipped."""
    refused: list[int] = []
    for start, end in zip((0, *ends), (*ends, len(records)), strict=True):
        left = list(records[start:end])
        while left:
            try:
                table.write(batches_of(left))
            except SinkError as error:
                offset = error.record[2] if error.record else -1
                refused.append(offset)
                left = [item for item in left if item[0] != offset]
            else:
                break
    return refused


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(range(len(NASTY))), min_size=2, max_size=8), st.data())
def test_c5_all_splits_into_commits_give_the_same_table(numbers: list[int], data: Any) -> None:
    records = [(offset, NASTY[number]) for offset, number in enumerate(numbers)]
    alone, split = Table(), Table()
    refused = written(alone, records, range(1, len(records)))
    ends = sorted(data.draw(st.sets(st.integers(1, len(records) - 1))))
    assert sorted(written(split, records, ends)) == refused
    assert split.content() == alone.content()
    assert sorted(map(str, split.schema or ())) == sorted(map(str, alone.schema or ()))


def test_c5_a_date_is_not_the_type_of_a_time_and_an_integer_not_that_of_a_fraction() -> None:
    for one, other in (({"d": DAY}, {"d": TIME}), ({"d": TIME}, {"d": DAY}), ({"n": 1}, {"n": 2.5})):
        for ends in ([], [1]):
            table = Table()
            assert written(table, [(0, one), (1, other)], ends) == [1]
            assert [row[next(iter(one))] for row in table.content()] == list(one.values())
    table = Table()
    assert written(table, [(0, {"n": 2.5}), (1, {"n": 1}), (2, {"n": 2**53 + 1})], []) == [2]


@pytest.mark.slow
@pytest.mark.parametrize("lake", ["delta", "iceberg"])
def test_c5_real_tables_do_not_depend_on_commits(tmp_path: Path, lake: str) -> None:
    found = []
    records = list(enumerate(NASTY))
    for number, ends in enumerate(([], [1, 6, 10, 19])):
        path = tmp_path / str(number)
        path.mkdir()
        if lake == "delta":
            sink: Any = DeltaSink(path / "t")
        else:
            properties = {"type": "sql", "uri": f"sqlite:///{path}/catalog.db", "warehouse": f"file://{path}/w"}
            sink = IcebergSink("shop.t", catalog_properties=properties)
        sink.start()

        class Writer:
            def write(self, batches: list[SinkBatch], sink: Any = sink) -> None:
                sink.write(batches[0])

        refused = written(Writer(), records, ends)
        is_delta = lake == "delta"
        content = (
            deltalake.DeltaTable(path / "t").to_pyarrow_table() if is_delta else sink._load_table().scan().to_arrow()
        )
        names = sorted(content.column_names)
        # Numbers of rows, since files come in any order.
        found.append(
            (sorted(refused), names, sorted(str([row[name] for name in names]) for row in content.to_pylist()))
        )
    assert found[0] == found[1]
    assert found[0][0] == [1, 2, 4, 7, 8, 12, 15, 17, 19, 20, 21, 23]


@pytest.mark.parametrize("timestamp", [2**63, 9_223_372_036_854_776, 253_402_300_800_000, -62_135_596_800_001])
def test_c6_event_times_without_a_year_are_refused_with_their_record(timestamp: int) -> None:
    batch = batches_of([(40, {"n": 1})])[0]
    batch.append({"n": 2}, b"key", timestamp, None, 41)
    with pytest.raises(SinkError, match=r"orders\[0\] at offset 41 is not in the years 1 to 9999") as caught:
        Table().write([batch])
    assert caught.value.record == ("orders", 0, 41)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.lists(st.sampled_from(range(len(NASTY))), min_size=1, max_size=8), st.data())
def test_c5_parquet_files_have_the_same_records_however_they_are_split(numbers: list[int], data: Any) -> None:
    # An empty dict has no form in Parquet, unless its column has fields.
    records = [(offset, NASTY[number]) for offset, number in enumerate(numbers) if NASTY[number] != {"s": {}}]

    class Folder:
        def __init__(self) -> None:
            self.path = Path(tempfile.mkdtemp(dir=ROOM))
            self.sink = LocalFileSink(directory=self.path, format="parquet", exactly_once=False)
            self.sink.start()

        def write(self, batches: list[SinkBatch]) -> None:
            self.sink.write(batches[0])

        def content(self) -> list[Any]:
            found = [
                row
                for path in sorted(self.path.rglob("*.parquet"))
                for row in pyarrow.parquet.read_table(path).to_pylist()
            ]
            return [_without_nulls(row) for row in found]

    alone, split = Folder(), Folder()
    refused = written(alone, records, range(1, len(records)))
    ends = sorted(data.draw(st.sets(st.integers(1, max(1, len(records) - 1))))) if len(records) > 1 else []
    assert sorted(map(str, written(split, records, ends))) == sorted(map(str, refused))
    assert split.content() == alone.content()


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value


def test_c5_numbers_share_a_file_and_times_have_their_own(tmp_path: Path) -> None:
    sink = LocalFileSink(directory=tmp_path, format="parquet", exactly_once=False)
    sink.start()
    values = [{"n": 1}, {"n": 2.5}, {"n": 3}, {"d": DAY}, {"d": TIME}, {"n": 2**53 + 1}]
    sink.write(batches_of(list(enumerate(values)))[0])
    tables = [pyarrow.parquet.read_table(path) for path in sorted(tmp_path.rglob("*.parquet"))]
    assert [table.num_rows for table in tables] == [4, 2]
    assert [row.get("d") for table in tables for row in table.to_pylist()] == [None, None, None, DAY, TIME, None]
    assert tables[1].to_pylist()[1]["n"] == 2**53 + 1
