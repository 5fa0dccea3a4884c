"""`LocalFileSource`, and `FileSource` with file systems of fsspec."""

import datetime
import gzip
import os
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import fsspec
import pytest

from streamrt.connectors import FileSource, LocalFileSource, SinkBatch, Source
from streamrt.connectors.files import JSONBatchFormat, ParquetBatchFormat
from streamrt.errors import ConfigurationError, SourceError
from streamrt.testing.connectors import StatefulSourceConformance
from tests.connectors.file_sources import lines, numbers
from tests.connectors.sources import Run
from tests.support import unique, wait_until


class TestConformance(StatefulSourceConformance):
    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        (tmp_path / "in.jsonl").write_bytes(lines(numbers(0, 3)))
        self.path = tmp_path

    def make(self) -> Any:
        return LocalFileSource(self.path, replay_speed=0)


class TestSlowReplay(TestConformance):
    def make(self) -> Any:
        (self.path / "in.jsonl").write_bytes(lines([{"_timestamp": 0, "n": 0}, {"_timestamp": 3_600_000, "n": 1}]))
        return LocalFileSource(self.path)


class TestMemory(StatefulSourceConformance):
    def make(self) -> Any:
        with fsspec.filesystem("memory").open("/conformance/in.jsonl", "wb") as file:
            file.write(lines(numbers(0, 3)))
        return FileSource("memory://conformance", replay_speed=0)


def write(path: Path, *values: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lines(values))


@pytest.mark.rows("PF-B6", "PF-B8")
def test_the_order_and_what_is_left_out(tmp_path: Path) -> None:
    for number, name in enumerate(("a/10.jsonl", "a/9.jsonl", "b.jsonl")):
        write(tmp_path / name, number)
    for name in ("_SUCCESS", ".crc", ".git/a", "_temporary/a"):
        write(tmp_path / name, "hidden")
    assert Run(LocalFileSource(tmp_path, replay_speed=0)).to_end().values == [0, 1, 2]
    assert Run(LocalFileSource(tmp_path / "_SUCCESS", replay_speed=0)).to_end().values == ["hidden"]


def test_keys_values_and_timestamps(tmp_path: Path) -> None:
    write(tmp_path / "a", {"_key": "a", "_timestamp": 5, "_value": {"n": 1}}, {"n": 2, "_timestamp": 6}, [3], None)
    records = Run(LocalFileSource(tmp_path, replay_speed=0)).to_end().records
    assert [(record.key, record.value, record.timestamp) for record in records] == [
        (b"a", b'{"n":1}', 5),
        (None, b'{"n":2}', 6),
        (None, b"[3]", None),
        (None, b"null", None),
    ]
    write(tmp_path / "a", {"id": "x", "at": "2026-01-01"}, {"id": "y", "at": "2026-01-02"})
    source = LocalFileSource(
        tmp_path,
        key_setter=lambda record: record["id"].encode(),
        value_setter=lambda record: record["id"],
        timestamp_setter=lambda record: datetime.datetime.fromisoformat(record["at"]),
        replay_speed=0,
    )
    records = Run(source).to_end().records
    assert [(record.key, record.value, record.timestamp) for record in records] == [
        (b"x", b'"x"', 1_767_225_600_000),
        (b"y", b'"y"', 1_767_312_000_000),
    ]


def test_files_of_sinks(tmp_path: Path) -> None:
    batch = SinkBatch("orders", 1)
    for n in range(5):
        batch.append({"n": n}, b"key", 1_000 + n, None, n)
    for writer, options in (
        (JSONBatchFormat(compress=True), {"compression": "gz"}),
        (ParquetBatchFormat(), {"file_format": "parquet"}),
    ):
        folder = tmp_path / unique("orders")
        (folder / "1").mkdir(parents=True)
        (folder / "1" / f"{0:019}{writer.file_extension}").write_bytes(writer.serialize(batch))
        source = LocalFileSource(folder, has_partition_folders=True, replay_speed=0, **options)  # type: ignore[arg-type]
        config = source.default_topic().config
        assert config is not None
        assert config.num_partitions == 2
        run = Run(source).to_end()
        assert run.values == numbers(0, 5)
        assert {(record.key, record.partition) for record in run.records} == {(b"key", None)}
        assert [record.timestamp for record in run.records] == list(range(1_000, 1_005))


def test_records_without_keys_stay_in_their_partition(tmp_path: Path) -> None:
    write(tmp_path / "0" / "a", {"_key": "a"}, {"n": 1})
    write(tmp_path / "4" / "a", {"n": 2})
    source = LocalFileSource(tmp_path, has_partition_folders=True, replay_speed=0)
    assert [record.partition for record in Run(source).to_end().records] == [None, 0, 4]


def test_folders_that_are_no_partitions(tmp_path: Path) -> None:
    write(tmp_path / "a" / "a", 1)
    source = LocalFileSource(tmp_path, has_partition_folders=True, name="rows")
    with pytest.raises(SourceError, match="but none of its folders is named by a partition number"):
        source.default_topic()
    assert "cannot read a/a: with has_partition_folders=True" in str(Run(source).failure())
    with pytest.raises(SourceError, match="the source rows cannot read"):
        LocalFileSource(tmp_path / "absent", has_partition_folders=True, name="rows").default_topic()


@pytest.mark.rows("PF-B10", "PF-B11")
@pytest.mark.parametrize("compression", [None, "gzip"])
def test_a_crash_repeats_no_more_than_is_not_flushed(tmp_path: Path, compression: Any) -> None:
    data = [lines(numbers(0, 7_000)), lines(numbers(7_000, 14_000))]
    for number, text in enumerate(data):
        (tmp_path / f"{number}.jsonl").write_bytes(gzip.compress(text) if compression else text)

    class Dying(LocalFileSource):
        left = 12_345

        def process_record(self, record: Any) -> None:
            self.left -= 1
            if self.left < 0:
                os.fsencode(None)  # type: ignore[arg-type]
            super().process_record(record)

        def cleanup(self, failed: bool) -> None:
            """As little as a crash does."""

    run = Run(Dying(tmp_path, replay_speed=0, compression=compression)).start()
    wait_until(lambda: run.error)
    assert run.values == numbers(0, 12_345)
    flushed = run.producer.flushed
    assert flushed > 5_000
    again = Run(LocalFileSource(tmp_path, replay_speed=0, compression=compression), store=run.store).to_end()
    assert again.values == numbers(flushed, 14_000)


def test_files_that_change(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path / "b", 0, 1)
    run = Run(LocalFileSource(tmp_path, replay_speed=0)).to_end()

    def again() -> list[Any]:
        return Run(LocalFileSource(tmp_path, replay_speed=0), store=run.store).to_end().values

    assert again() == []
    write(tmp_path / "a", 2)
    assert again() == [2]
    write(tmp_path / "b", 0, 1, 3)
    assert again() == [3]
    write(tmp_path / "b", 4)
    assert again() == [4]
    assert "b was replaced since the source" in caplog.text


def test_a_file_that_is_deleted_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path / "a", 1)
    write(tmp_path / "c", 3)

    class Listed(LocalFileSource):
        def get_file_list(self, filepath: Path) -> Iterable[str | Path]:
            return [filepath / name for name in "abc"]

    assert Run(Listed(tmp_path, replay_speed=0, name="rows")).to_end().values == [1, 3]
    assert "b was deleted before the source rows had read it" in caplog.text


def test_replay_in_the_original_time(tmp_path: Path) -> None:
    write(tmp_path / "a" / "a", *({"_timestamp": at, "_value": at} for at in (5_000, 5_100, 5_050, 5_400)))
    write(tmp_path / "b" / "a", {"_timestamp": 0, "_value": 0})
    begun = time.monotonic()
    assert Run(LocalFileSource(tmp_path, replay_speed=0.5)).to_end().values == [5_000, 5_100, 5_050, 5_400, 0]
    assert 0.2 <= time.monotonic() - begun < 30


def test_what_is_produced_is_flushed_before_a_long_wait(tmp_path: Path) -> None:
    write(tmp_path / "a", {"_timestamp": 0, "_value": 1}, {"_timestamp": 10**9, "_value": 2})
    run = Run(LocalFileSource(tmp_path)).start()
    wait_until(lambda: run.producer.flushed == 1)
    assert run.stop() < 8
    assert Run(LocalFileSource(tmp_path, replay_speed=0), store=run.store).to_end().values == [2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "the source rows cannot read a: the line at byte 4 is not a JSON document"),
        (
            {"key_setter": lambda record: record["x"]},
            "the record that ends at position 4 of a .*: key_setter failed with",
        ),
        ({"timestamp_setter": lambda record: "now"}, "timestamp_setter returned a str, not an integer"),
        ({"timestamp_setter": lambda record: True}, "timestamp_setter returned a bool, not an integer"),
        ({"key_setter": lambda record: 5}, "the record that ends at position 4 of a cannot be produced"),
        ({"value_setter": lambda record: object()}, "the record that ends at position 4 of a cannot be produced"),
        ({"file_format": "parquet"}, "cannot read a: it is not a Parquet file"),
        ({"compression": "gzip"}, "cannot read a: it cannot be decompressed"),
    ],
)
def test_records_that_cannot_be_produced(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    (tmp_path / "a").write_bytes(b"[1]\nsesame\n")
    run = Run(LocalFileSource(tmp_path, name="rows", **{"replay_speed": 0, **options}))
    with pytest.raises(SourceError, match=message) as caught:
        run.to_end()
    assert "sesame" not in str(caught.value)
    # What comes before it is produced.
    assert run.values in ([], [[1]])
    assert options or run.values == [[1]]


def test_nothing_there(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(SourceError, match=r"there is no file and no directory .*absent for the source absent"):
        Run(LocalFileSource(tmp_path / "absent")).to_end()
    assert Run(LocalFileSource(tmp_path, name="rows")).to_end().records == []
    assert "the source rows has found no files" in caplog.text


def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    class Locked(LocalFileSource):
        def read_file(self, filepath: Any) -> BinaryIO:
            raise PermissionError(13, "Permission denied")

    write(tmp_path / "a", 1)
    message = str(Run(Locked(tmp_path, name="rows")).failure())
    assert message == "the source rows cannot read a: PermissionError: [Errno 13] Permission denied"


def test_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "in" / "a", 1)
    monkeypatch.chdir(tmp_path)
    source = LocalFileSource("in", replay_speed=0)
    monkeypatch.chdir("/")
    assert source.name == "in"
    assert Run(source).to_end().values == [1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"filepath": 5}, "filepath"),
        ({"file_format": "xml"}, "file_format must be one of json, csv, text, parquet, avro"),
        ({"compression": "zip"}, "compression"),
        ({"monitor_continuously": 0}, "monitor_continuously"),
        ({"monitor_continuously": True}, "monitor_continuously"),
        ({"unfinished": "drop"}, "unfinished"),
        ({"on_error": "ignore"}, "on_error"),
        ({"replay_speed": -1}, "replay_speed"),
        ({"replay_speed": float("nan")}, "replay_speed"),
        ({"replay_speed": True}, "replay_speed"),
        ({"has_partition_folders": "yes"}, "has_partition_folders"),
        ({"key_setter": "id"}, "key_setter"),
        ({"value_setter": 5}, "value_setter"),
        ({"timestamp_setter": 5}, "timestamp_setter"),
        ({"name": ""}, "name"),
        ({"shutdown_timeout": -1}, "shutdown_timeout"),
    ],
)
def test_wrong_arguments(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        LocalFileSource(**{"filepath": "in", **options})


class TestFsspec:
    def test_a_file_system_as_an_object(self, tmp_path: Path) -> None:
        write(tmp_path / "in" / "a", 1)
        files = fsspec.filesystem("dir", path=str(tmp_path), target_protocol="file")
        assert Run(FileSource("in", filesystem=files, replay_speed=0)).to_end().values == [1]

    def test_partition_folders(self) -> None:
        files = fsspec.filesystem("memory")
        files.pipe("/parted/1/a", lines([1]))
        source = FileSource("memory://parted", has_partition_folders=True)
        config = source.default_topic().config
        assert config is not None
        assert config.num_partitions == 2
        assert [record.partition for record in Run(source).to_end().records] == [1]

    def test_secrets_are_in_no_pickle_and_no_error(self, tmp_path: Path) -> None:
        import cloudpickle

        source = FileSource("github://path", storage_options={"token": "sesame"}, name="rows")
        assert b"sesame" not in cloudpickle.dumps(source)
        with pytest.raises(ConfigurationError, match="must not contain a password") as caught:
            FileSource("sftp://me:sesame@host/path")
        assert "sesame" not in str(caught.value)
        message = str(Run(FileSource("nothing://path", storage_options={"token": "sesame"}, name="rows")).failure())
        assert message.startswith("the source rows cannot read nothing://path: ValueError: Protocol not known: nothing")
        with pytest.raises(ConfigurationError, match="both filesystem and storage_options"):
            FileSource("in", filesystem=fsspec.filesystem("memory"), storage_options={})

    def test_a_missing_library(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(ConfigurationError, match="FileSource needs the package fsspec: run pip install"):
            FileSource("in")
        LocalFileSource("in")


class Shelf(FileSource):
    """Files from elsewhere, as a program would define them."""

    def __init__(self, failures: int = 0) -> None:
        super().__init__("shelf", replay_speed=0)
        self.failures = failures

    def get_file_list(self, filepath: Path) -> Iterator[str | Path]:
        self.fail()
        yield filepath / "a"
        self.fail()
        yield filepath / "b"

    def read_file(self, filepath: Any) -> BinaryIO:
        import io

        self.fail()
        return io.BytesIO(lines([str(filepath)]))

    def fail(self) -> None:
        self.failures -= 1
        if self.failures >= 0 and self.failures % 2:
            raise ConnectionResetError("the network is gone")


def test_a_class_of_a_program() -> None:
    run = Run(Shelf()).to_end()
    assert run.values == ["shelf/a", "shelf/b"]
    assert Run(Shelf(), store=run.store).to_end().values == []


def test_files_of_one_name_in_several_places() -> None:
    class Shelves(Shelf):
        def get_file_list(self, filepath: Path) -> Iterator[str | Path]:
            yield from ("one/a", "two/a", filepath / "a")

    assert Run(Shelves()).to_end().values == ["one/a", "two/a", "shelf/a"]


@pytest.mark.slow
def test_failures_are_tried_again(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("streamrt.connectors.file_sources.file_reading._FIRST_WAIT_S", 0.01)
    assert Run(Shelf(failures=6)).to_end().values == ["shelf/a", "shelf/b"]
    assert "ConnectionResetError: the network is gone; it is tried again in 0.0 s" in caplog.text
    monkeypatch.setattr("streamrt.connectors.file_sources.file_reading._GIVE_UP_S", 0.0)

    class Gone(Shelf):
        def fail(self) -> None:
            raise ConnectionResetError("the network is gone")

    assert "cannot read shelf" in str(Run(Gone()).failure())


def test_stop_while_a_file_system_hangs() -> None:
    class Hanging(Shelf):
        def read_file(self, filepath: Any) -> BinaryIO:
            threading.Event().wait(30)
            raise AssertionError

    source: Source = Hanging()
    run = Run(source).start()
    assert run.stop() < 8
