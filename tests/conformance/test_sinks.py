"""All sinks of the project keep what the contract promises."""

import csv
import json
import pickle
from pathlib import Path
from typing import Any, ClassVar

import cloudpickle
import pytest

from streamrt.connectors import BatchingSink, CSVSink, DriverSink, ListSink, SinkBatch, SparkSink
from streamrt.testing.connectors import BatchingSinkConformance, Written


class TestCSVSink(BatchingSinkConformance):
    many = 2_000

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "out.csv"

    def make(self) -> CSVSink:
        return CSVSink(self.path)

    def break_destination(self, sink: BatchingSink) -> None:
        self.path.unlink(missing_ok=True)
        self.path.mkdir()

    def written(self) -> list[Written]:
        if not self.path.exists():
            return []
        with self.path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        return [
            Written(
                json.loads(row["value"]),
                row["key"],
                int(row["timestamp"]),
                row["topic"],
                int(row["partition"]),
                int(row["offset"]),
            )
            for row in rows
        ]


class TestCSVSinkWithTabs(TestCSVSink):
    def make(self) -> CSVSink:
        return CSVSink(self.path, dialect="excel-tab")

    def written(self) -> list[Written]:
        if not self.path.exists():
            return []
        with self.path.open(newline="", encoding="utf-8") as file:
            return [Written(json.loads(row["value"])) for row in csv.DictReader(file, dialect="excel-tab")]


class DriverSinkConformance(BatchingSinkConformance):
    """Sinks of the driver also take what tasks have gathered with a copy."""

    values: ClassVar[Any] = ({"n": 1}, {"n": 2, "text": "größer"}, {"n": 3, "list": [1, None]})

    def started(self) -> BatchingSink:
        sink = self.make()
        sink.start()
        return sink

    def test_a_copy_gathers_and_the_original_writes(self) -> None:
        sink, before = self.started(), self.written()
        assert isinstance(sink, DriverSink)
        copy: DriverSink = pickle.loads(cloudpickle.dumps(sink))
        self._add_values(copy, 0, 2)
        self._add_values(copy, 0, 2, partition=1)
        batches: list[SinkBatch] = pickle.loads(pickle.dumps(copy.take_batches()))
        assert copy.take_batches() == []
        assert self.written() == before
        sink.write_batches(batches)
        self._check_same(self.written()[len(before) :], [(0, 0), (0, 1), (1, 0), (1, 1)])

    def test_empty_batches_are_passed_over(self) -> None:
        sink, before = self.started(), self.written()
        assert isinstance(sink, DriverSink)
        sink.write_batches([SinkBatch("conformance", 0)])
        assert self.written() == before


class TestListSink(DriverSinkConformance):
    @pytest.fixture(autouse=True)
    def fresh(self) -> None:
        self.lists: list[ListSink] = []
        self.order: list[Any] = []

    def make(self) -> ListSink:
        sink = ListSink(metadata=True)
        self.lists.append(sink)
        return sink

    def written(self) -> list[Written]:
        # Two lists are two places; what came since the last look goes to the end.
        for sink in self.lists:
            self.order += sink
            sink.clear()
        return [
            Written(
                {name: column for name, column in item.items() if not name.startswith("_")},
                item["_key"],
                item["_timestamp"],
                item["_topic"],
                item["_partition"],
                item["_offset"],
            )
            for item in self.order
        ]

    def test_two_sinks_may_write_to_one_destination(self) -> None:
        """A list is a destination of its own."""


class _Frames:
    """Stands for a Spark session: a DataFrame is the list of its rows."""

    def createDataFrame(self, data: Any, schema: Any = None) -> Any:  # noqa: N802
        return data


class TestSparkSink(DriverSinkConformance):
    @pytest.fixture(autouse=True)
    def fresh(self) -> None:
        self.rows: list[Any] = []

    def make(self) -> SparkSink:
        sink = SparkSink(self.rows.extend)
        sink.use(_Frames())
        return sink

    def written(self) -> list[Written]:
        return [
            Written(
                json.loads(row["value"]), row["key"], row["timestamp"], row["topic"], row["partition"], row["offset"]
            )
            for row in self.rows
        ]
