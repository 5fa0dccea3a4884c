"""Sinks of files, on a local disk and on S3."""

import gzip
import io
import json
import os
import shutil
from pathlib import Path
from typing import Any, ClassVar

import pyarrow.parquet
import pytest

from streamrt import Application
from streamrt.connectors import LocalFileSink, PositionChange, SinkCommit, SinkPosition
from streamrt.connectors.file_sinks.file_sink import FileSink
from streamrt.connectors.file_sinks.local_file_sink import AppendNotSupported
from streamrt.connectors.files import BatchFormat, CSVBatchFormat, CSVFormat, JSONBatchFormat, ParquetBatchFormat
from streamrt.connectors.retries import Retries
from streamrt.errors import ConfigurationError, SinkBackpressureError, SinkError
from streamrt.testing import TopologyTestDriver
from streamrt.testing.connectors import Written
from tests.connectors.file_sinks import FileSinkConformance, visible
from tests.connectors.lake_values import commit_of
from tests.connectors.sql_tables import batch_of


class TestLocalFileSink(FileSinkConformance):
    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "out"

    def make(self) -> FileSink:
        return LocalFileSink(directory=self.path)

    def break_destination(self, sink: Any) -> None:
        sink._retries = Retries(attempts=1)
        shutil.rmtree(self.path)
        self.path.write_text("a file")

    def files(self) -> list[str]:
        return visible(self.path)

    def content(self, name: str) -> bytes:
        return (self.path / name).read_bytes()


class TestLocalFileSinkWithCSV(TestLocalFileSink):
    keys: ClassVar[Any] = (b"key", None, "two\r\nlines")

    def make(self) -> FileSink:
        return LocalFileSink(directory=self.path, format=CSVBatchFormat())

    def parsed(self, content: bytes) -> list[Any]:
        return list(CSVFormat().deserialize(io.BytesIO(content)))


class TestLocalFileSinkWithParquet(TestLocalFileSink):
    values = ({"n": 1, "text": None}, {"n": 2, "text": "größer 🚆"}, {"n": 3, "items": [1, None]})

    def make(self) -> FileSink:
        return LocalFileSink(directory=str(self.path), format="parquet")

    def written(self) -> list[Written]:
        found = []
        for _, record in self.records():
            key, timestamp = record.pop("_key"), record.pop("_timestamp")
            value = {name: field for name, field in record.items() if field is not None}
            if value["n"] == 1:
                value["text"] = None
            found.append(Written(value, key, timestamp))
        return found

    def parsed(self, content: bytes) -> list[Any]:
        rows: list[Any] = pyarrow.parquet.read_table(io.BytesIO(content)).to_pylist()
        return rows


def sink_of(path: Path, **settings: Any) -> LocalFileSink:
    sink = LocalFileSink(directory=path, **settings)
    sink.start()
    return sink


@pytest.mark.rows("PF-M3", "PF-M6")
def test_names_of_files_sort_by_offset_and_never_repeat(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, name="files")
    moves = [
        (None, SinkPosition(3, 1)),
        (SinkPosition(3, 1), SinkPosition(12, 2)),
        (SinkPosition(12, 2), SinkPosition(1, 3)),
    ]
    for start, move in zip((0, 3, 0), moves, strict=True):
        sink.write_transaction([batch_of({"n": start}, start=start)], commit_of((0, *move)))
    # Time has caused these values.
    sink.write_transaction([batch_of({"n": -1}, start=-7)], commit_of((0, SinkPosition(1, 3), SinkPosition(1, 4))))
    names = visible(tmp_path)
    digest = names[0].split("-")[-1]
    assert names == [
        f"orders/0/{offset:020d}-{version:010d}-{digest}" for offset, version in ((0, 1), (0, 3), (1, 4), (3, 2))
    ]


@pytest.mark.parametrize(
    "topic", ["../../evil", "..", ".", "", "a/b", "_streamrt", "x" * 400, "a\0b", "größer", "\ud800"]
)
def test_names_of_topics_and_groups_stay_inside_the_directory(tmp_path: Path, topic: str) -> None:
    sink = sink_of(tmp_path / "out", name=topic or None)
    batch = batch_of({"n": 1})
    batch._topic = topic
    sink.write_transaction([batch], SinkCommit(topic, {(topic, 0): PositionChange(None, SinkPosition(1, 1))}))
    assert dict(sink.positions(topic, [(topic, 0)])) == {(topic, 0): SinkPosition(1, 1)}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    (folder,) = (path for path in (tmp_path / "out").iterdir() if path.name != "_streamrt")
    assert len(list((folder / "0").iterdir())) == 1


def test_a_disk_that_is_full_pauses_the_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = sink_of(tmp_path, retries=Retries(attempts=2, first_wait_s=0.01, retry_after_s=7))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(SinkBackpressureError, match="No space left") as caught:
            sink.write_transaction([batch_of({"n": 1})], commit_of((0, None, SinkPosition(1, 1))))
    assert caught.value.retry_after == 7
    assert visible(tmp_path) == []
    sink.write_transaction([batch_of({"n": 1})], commit_of((0, None, SinkPosition(1, 1))))
    assert len(visible(tmp_path)) == 1
    assert [path for path in tmp_path.rglob("*") if path.name.endswith(".new")] == []


def test_a_file_in_place_of_the_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkError, match="file cannot be created"):
        sink_of(tmp_path / "file")


def test_a_damaged_position_stops_the_application(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, name="files")
    sink.write_transaction([batch_of({"n": 1})], commit_of((0, None, SinkPosition(1, 1))))
    (path,) = (tmp_path / "_streamrt").rglob("0")
    for content in (
        b"",
        b"{}\n",
        path.read_bytes() + b"more",
        path.read_bytes().replace(b'"format": 1', b'"format": 3'),
    ):
        path.write_bytes(content)
        with pytest.raises(SinkError, match=r"damaged|newer version"):
            sink.positions("shop", [("orders", 0)])


def test_appended_files_grow_and_lose_what_a_crash_has_left(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, append=True)
    sink.write(batch_of({"n": 1}))
    (name,) = visible(tmp_path)
    complete = (tmp_path / name).read_bytes()
    with (tmp_path / name).open("ab") as file:
        file.write(complete[:10])
    # Another process, and another batch.
    sink_of(tmp_path, append=True).write(batch_of({"n": 2}, start=1))
    assert visible(tmp_path) == [name]
    assert [json.loads(line)["_value"] for line in (tmp_path / name).read_text().splitlines()] == [{"n": 1}, {"n": 2}]
    assert sink.positions("shop", [("orders", 0)]) == {}
    sink.write(batch_of({"n": 3}, partition=1))
    assert len(visible(tmp_path)) == 2


def test_compressed_files_can_be_appended_to(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, append=True, format=JSONBatchFormat(compress=True))
    for number in range(2):
        sink.write(batch_of({"n": number}, start=number))
    (name,) = visible(tmp_path)
    assert len(gzip.decompress((tmp_path / name).read_bytes()).splitlines()) == 2


def test_without_positions_a_repeated_commit_replaces_its_file(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, exactly_once=False)
    commit = commit_of((0, None, SinkPosition(1, 1)))
    for _ in range(2):
        sink.write_transaction([batch_of({"n": 1})], commit)
    assert len(visible(tmp_path)) == 1
    # Values that time has caused have no offset.
    for _ in range(2):
        sink.write_transaction([batch_of({"n": 1}, start=-3)], commit)
    assert len(visible(tmp_path)) == 3
    assert sink.positions("shop", [("orders", 0)]) == {}


class Lines(BatchFormat):
    """A text in each line."""

    file_extension = ".txt"
    supports_append = True

    def serialize(self, batch: Any) -> bytes:
        return b"".join(f"{item.value}\n".encode() for item in batch)


@pytest.mark.rows("PF-N4")
def test_a_format_of_a_program(tmp_path: Path) -> None:
    app = Application("unused:9092", consumer_group="shop", processing_guarantee="exactly-once")
    words = app.topic("words", value_deserializer="str", value_serializer="str")
    app.dataframe(words).sink(LocalFileSink(directory=tmp_path, format=Lines()))
    with TopologyTestDriver(app) as driver:
        driver.pipe_all(words, ["one", "größer"])
    assert [(tmp_path / name).read_text("utf-8") for name in visible(tmp_path)] == ["one\ngrößer\n"]


@pytest.mark.rows("PF-M6", "PF-M8")
def test_an_application_writes_each_value_once(tmp_path: Path) -> None:
    app = Application("unused:9092", consumer_group="shop", processing_guarantee="exactly-once")
    app.dataframe(app.topic("orders")).sink(LocalFileSink(directory=tmp_path, format="parquet"))
    with TopologyTestDriver(app) as driver:
        for number in range(3):
            driver.pipe("orders", {"n": number}, key=b"a key", timestamp=number)
    found = [row for name in visible(tmp_path) for row in pyarrow.parquet.read_table(tmp_path / name).to_pylist()]
    assert found == [{"_timestamp": number, "_key": "a key", "n": number} for number in range(3)]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"directory": 3}, "must be a path"),
        ({"format": "xml"}, "must be one of"),
        ({"append": 1}, "must be a bool"),
        ({"append": True, "exactly_once": True}, "at least once"),
        ({"exactly_once": "yes"}, "must be a bool"),
        ({"append": True, "format": "parquet"}, "cannot append to files of ParquetBatchFormat"),
        ({"append": True, "format": "csv"}, "cannot append"),
        ({"name": ""}, "non-empty"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises((ConfigurationError, TypeError), match=reason):
        LocalFileSink(**settings)


def test_formats_that_cannot_be_appended_to_have_an_error_of_quix_streams() -> None:
    with pytest.raises(AppendNotSupported):
        LocalFileSink(append=True, format=ParquetBatchFormat())
