"""Files of sinks that grow over several commits, and their folders."""

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from streamrt import Application
from streamrt.connectors import LocalFileSink, LocalFileSource, PositionChange, SinkBatch, SinkCommit, SinkPosition
from streamrt.connectors.file_sinks.file_commits import FileCommits, OpenFile
from streamrt.connectors.file_sinks.file_stores import LocalStore
from streamrt.connectors.file_sinks.rolling import DateFolders, FieldFolders, Rolling, planned
from streamrt.connectors.files import (
    AvroBatchFormat,
    BatchFormat,
    CSVBatchFormat,
    JSONBatchFormat,
    ParquetBatchFormat,
)
from streamrt.errors import ConfigurationError, SinkError
from streamrt.testing import TopologyTestDriver
from tests.connectors.file_sinks import visible
from tests.connectors.sources import Run
from tests.connectors.test_file_commits import CrashedError, CrashingStore
from tests.support import wait_until

PLACE = ("orders", 0)
SLOW = Rolling(max_age=3_600)


@pytest.fixture(autouse=True)
def no_closer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are closed by tests, unless their age is short."""
    monkeypatch.setattr("streamrt.connectors.file_sinks.file_closer._LONGEST_LOOK_S", 3_600.0)


class Task:
    """Writes to a sink as a task does: positions first, then commits from there."""

    def __init__(self, path: Path, store: Any = None, **options: Any) -> None:
        self.sink = LocalFileSink(path, **{"rolling": SLOW, "name": "files", **options})
        self.sink.start()
        if store is not None:
            self.sink._store = store
            self.sink._commits = FileCommits(store, self.sink._format.merge)
        self.position = self.sink.positions("shop", [PLACE]).get(PLACE)

    def write(self, values: Sequence[Any], start: int | None = None) -> None:
        """Commit values from consecutive offsets."""
        start = (0 if self.position is None else self.position.offset) if start is None else start
        batch = SinkBatch(*PLACE)
        for offset, value in enumerate(values, start):
            batch.append(value, b"key", 1_000 * offset, None, offset)
        after = SinkPosition(start + len(values), 1 if self.position is None else self.position.version + 1)
        self.sink.write_transaction([batch], SinkCommit("shop", {PLACE: PositionChange(self.position, after)}))
        self.position = after


def values_of(path: Path) -> list[Any]:
    """Return the values of all files that readers see, in the order of their names."""
    run = Run(LocalFileSource(path, replay_speed=0, name="reader")).to_end()
    return run.values


def numbers(start: int, end: int) -> list[dict[str, int]]:
    return [{"n": number} for number in range(start, end)]


def hidden(path: Path) -> list[str]:
    return [file.name for file in path.glob("_streamrt/parts/*")]


@pytest.mark.rows("PF-M4")
def test_c11_files_close_at_a_number_of_records(tmp_path: Path) -> None:
    task = Task(tmp_path, rolling=Rolling(max_records=5, max_age=3_600))
    for start, end in ((0, 3), (3, 4), (4, 9), (9, 22), (22, 23)):
        task.write(numbers(start, end))
    assert [len((tmp_path / name).read_text().splitlines()) for name in visible(tmp_path)] == [5, 5, 5, 5]
    assert values_of(tmp_path) == numbers(0, 20)
    assert len(hidden(tmp_path)) == 2
    task.sink.close()
    assert values_of(tmp_path) == numbers(0, 23)
    assert hidden(tmp_path) == []


@pytest.mark.rows("PF-M4")
def test_c11_files_close_at_a_size_and_with_time(tmp_path: Path) -> None:
    task = Task(tmp_path / "size", rolling=Rolling(max_bytes=200, max_age=3_600))
    for number in range(20):
        task.write(numbers(number, number + 1))
    assert len(visible(tmp_path / "size")) == 4
    assert all(200 <= (tmp_path / "size" / name).stat().st_size < 300 for name in visible(tmp_path / "size"))
    for limits in ({"max_age": 0.05}, {"max_age": 3_600, "max_idle": 0.05}):
        path = tmp_path / "-".join(limits)
        task = Task(path, rolling=Rolling(**limits))  # type: ignore[arg-type]
        task.write(numbers(0, 2))
        # No further values come.
        wait_until(lambda: visible(path))  # noqa: B023
        task.write(numbers(2, 4))
        wait_until(lambda: len(visible(path)) == 2)  # noqa: B023
        assert values_of(path) == numbers(0, 4)


def test_a_later_process_closes_what_another_has_left(tmp_path: Path) -> None:
    Task(tmp_path).write(numbers(0, 2))
    assert visible(tmp_path) == []
    # It continues the file, or has no rolling any more.
    Task(tmp_path).write(numbers(2, 4))
    assert visible(tmp_path) == []
    task = Task(tmp_path, rolling=None)
    task.write(numbers(4, 6))
    assert [len((tmp_path / name).read_text().splitlines()) for name in visible(tmp_path)] == [4, 2]
    Task(tmp_path).write(numbers(6, 7))
    Task(tmp_path, rolling=Rolling(max_age=0.02))
    wait_until(lambda: values_of(tmp_path) == numbers(0, 7))


@pytest.mark.parametrize("survived", range(26))
def test_a_crash_at_any_step_loses_and_repeats_nothing(tmp_path: Path, survived: int) -> None:
    commits = [(0, 2), (2, 5), (5, 6), (6, 9)]
    rolling = Rolling(max_records=4, max_age=3_600)
    try:
        task = Task(tmp_path, CrashingStore(tmp_path, survived), rolling=rolling)
        for start, end in commits:
            task.write(numbers(start, end))
        FileCommits(task.sink._store).close_files(task.sink._commits._settled, lambda file: True)
    except CrashedError:
        pass
    task = Task(tmp_path, rolling=rolling)
    reached = 0 if task.position is None else task.position.offset
    for start, end in commits:
        if end > reached:
            assert reached <= start
            task.write(numbers(start, end))
    task.sink._watch_files([task.sink._position_name("shop", PLACE)])
    task.sink.close()
    assert values_of(tmp_path) == numbers(0, 9)
    assert hidden(tmp_path) == []


@pytest.mark.parametrize("survived", range(10))
def test_a_closer_that_was_suspended_at_any_step_changes_nothing(tmp_path: Path, survived: int) -> None:
    task = Task(tmp_path)
    task.write(numbers(0, 2))
    task.write(numbers(2, 3))
    name = task.sink._position_name("shop", PLACE)

    class SuspendedStore(CrashingStore):
        def _change(self, change: Any) -> Any:
            self.left -= 1
            if self.left == -1:
                task.write(numbers(3, 5))
                FileCommits(LocalStore(tmp_path)).close_files([name], lambda file: True)
                task.write(numbers(5, 6))
            return change()

    FileCommits(SuspendedStore(tmp_path, survived)).close_files([name], lambda file: True)
    task.sink.close()
    written = 6 if len(values_of(tmp_path)) > 3 else 3
    assert values_of(tmp_path) == numbers(0, written)
    assert hidden(tmp_path) == []


@pytest.mark.parametrize(
    "file_format",
    [
        JSONBatchFormat(),
        JSONBatchFormat(compress="gzip"),
        JSONBatchFormat(compress="zstd"),
        CSVBatchFormat(),
        ParquetBatchFormat(compression="zstd"),
        AvroBatchFormat({"type": "record", "name": "Row", "fields": [{"name": "n", "type": "long"}]}),
    ],
    ids=lambda one: f"{type(one).__name__}{one.file_extension}",
)
def test_c11_files_of_each_format_are_put_together(tmp_path: Path, file_format: BatchFormat) -> None:
    task = Task(tmp_path, format=file_format)
    for start in (0, 2, 4):
        task.write(numbers(start, start + 2))
    task.sink.close()
    (name,) = visible(tmp_path)
    assert name.endswith(file_format.file_extension)
    names: dict[str, Any] = {".csv": "csv", ".parquet": "parquet", ".avro": "avro"}
    read = names.get(file_format.file_extension, "json")
    run = Run(LocalFileSource(tmp_path, file_format=read, replay_speed=0, name="reader")).to_end()
    assert run.values == numbers(0, 6)
    assert {(record.key, record.timestamp) for record in run.records} == {(b"key", 1_000 * n) for n in range(6)}


def test_parquet_files_with_other_types_are_apart(tmp_path: Path) -> None:
    task = Task(tmp_path, format="parquet")
    for values in ([{"n": 1}], [{"n": 2.5, "m": None}], [{"n": 3, "m": 1}], [{"n": "text"}], [{"n": "more"}]):
        task.write(values)
    task.sink.close()
    tables = [pyarrow.parquet.read_table(tmp_path / name) for name in visible(tmp_path)]
    assert [[row["n"] for row in table.to_pylist()] for table in tables] == [[1.0, 2.5, 3.0], ["text", "more"]]


@pytest.mark.rows("PF-M3")
def test_c11_folders_by_date_and_by_field(tmp_path: Path) -> None:
    day = 86_400_000
    batch = SinkBatch(*PLACE)
    values = [{"country": "de"}, {"country": "a/b"}, {}, {"country": "de"}, {"country": ".."}]
    for offset, value in enumerate(values):
        batch.append(value, None, day * (offset // 3), None, offset)
    for number, (folders, expected) in enumerate(
        (
            (DateFolders("%Y/%m-%d"), ["1970/01-01", "1970/01-02"]),
            (DateFolders(timezone="America/New_York"), ["date=1969-12-31", "date=1970-01-01"]),
            (
                FieldFolders("country"),
                ["country=..", "country=__HIVE_DEFAULT_PARTITION__", "country=a%2Fb", "country=de"],
            ),
            (lambda item: f"../_x/{item.offset // 9}", ["%2E.=", "%2E.="]),
        )
    ):
        path = tmp_path / str(number)
        sink = LocalFileSink(path, folders=folders)  # type: ignore[arg-type]
        sink.start()
        sink.write(batch)
        found = visible(path)
        assert {name.split("/")[0] for name in found} == {"orders"}
        assert all(Path(name).name.startswith("0-0000000000") for name in found)
        if number < 3:
            assert sorted({str(Path(name).parent)[len("orders/") :] for name in found}) == expected
        assert sorted(map(str, values_of(path))) == sorted(map(str, values))


def test_folders_that_cannot_be_made_name_the_record(tmp_path: Path) -> None:
    for folders, reason in (
        (lambda item: item.value["x"], "failed with KeyError"),
        (lambda item: 5, "no relative path"),
    ):
        sink = LocalFileSink(tmp_path, folders=folders)  # type: ignore[arg-type]
        sink.start()
        batch = SinkBatch(*PLACE)
        batch.append({"n": 1}, None, 0, None, 41)
        with pytest.raises(SinkError, match=reason) as caught:
            sink.write(batch)
        assert caught.value.record == ("orders", 0, 41)


def test_open_files_have_a_bound() -> None:
    opened = [OpenFile(f"{number}-", f"{number}-a", ("p",), 1, 1, number, number) for number in range(250)]
    plan = planned(Rolling(max_age=10**6), opened, [], 300, lambda *_: "", lambda _: b"", str)
    assert [file.began_ms for file in plan.closing] == list(range(50))
    assert len(plan.opened) == 200


def test_c11_an_application_with_rolling_files(tmp_path: Path) -> None:
    app = Application("unused:9092", consumer_group="shop", processing_guarantee="exactly-once")
    sink = LocalFileSink(tmp_path, folders=FieldFolders("kind"), rolling=Rolling(max_age=3_600))
    app.dataframe(app.topic("orders")).sink(sink)
    with TopologyTestDriver(app) as driver:
        for number in range(30):
            driver.pipe("orders", {"n": number, "kind": "odd" if number % 2 else "even"}, key=b"a")
    assert [str(Path(name).parent) for name in visible(tmp_path)] == ["orders/kind=even", "orders/kind=odd"]
    assert sorted(value["n"] for value in values_of(tmp_path)) == list(range(30))


def test_c13_a_path_is_the_directory(tmp_path: Path) -> None:
    for sink in (LocalFileSink(tmp_path / "a"), LocalFileSink(str(tmp_path / "a"), format="csv")):
        assert sink.destination == str(tmp_path / "a")
    with pytest.raises(TypeError, match=r"pass LocalFileSink\(directory="):
        LocalFileSink(tmp_path, "parquet")


class Unmergeable(BatchFormat):
    file_extension = ".bin"
    supports_append = False

    def serialize(self, batch: Any) -> bytes:
        return b""


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: LocalFileSink(rolling=5), "must be a Rolling"),  # type: ignore[arg-type]
        (lambda: LocalFileSink(rolling=Rolling(), exactly_once=False), "needs exactly_once=True"),
        (lambda: LocalFileSink(append=True, rolling=Rolling()), "needs exactly_once=True"),
        (lambda: LocalFileSink(append=True, folders=DateFolders()), "leave out folders"),
        (lambda: LocalFileSink(rolling=Rolling(), format=Unmergeable()), "needs a format with merge"),
        (lambda: LocalFileSink(folders="country"), "folders"),  # type: ignore[arg-type]
        (lambda: Rolling(max_bytes=0), "max_bytes"),
        (lambda: Rolling(max_records=True), "max_records"),
        (lambda: Rolling(max_age=float("inf")), "max_age"),
        (lambda: DateFolders(timezone="Mars/Olympus"), "is not a time zone"),
        (lambda: FieldFolders(), "names of fields"),
    ],
)
def test_arguments_that_cannot_be_used(make: Any, reason: str) -> None:
    with pytest.raises((ConfigurationError, TypeError), match=reason):
        make()


def test_c11_avro_files_hold_values_of_their_schema() -> None:
    schema = {"type": "record", "name": "Row", "fields": [{"name": "n", "type": "long"}]}
    file_format = AvroBatchFormat(json.dumps(schema), codec="deflate")
    batch = SinkBatch(*PLACE)
    for offset, value in enumerate(({"n": 1}, {"n": "sesame"})):
        batch.append(value, b"key", offset, None, offset)
    with pytest.raises(SinkError, match=r"orders\[0\] at offset 1 cannot .* does not fit the schema") as caught:
        file_format.serialize(batch)
    assert caught.value.record == ("orders", 0, 1)
    assert "sesame" not in str(caught.value)
    with pytest.raises(ConfigurationError, match="is not an Avro schema"):
        AvroBatchFormat({"type": "record"})
    assert gzip.decompress(JSONBatchFormat(compress=True).merge([gzip.compress(b"a"), gzip.compress(b"b")])[0]) == b"ab"


MERGE = """
import os
import pyarrow, pyarrow.parquet
from streamrt.connectors.files.batch_formats import ParquetBatchFormat

written = pyarrow.BufferOutputStream()
pyarrow.parquet.write_table(pyarrow.table({"a": [1], "b": ["x"]}), written)
before = len(os.listdir("/proc/self/task"))
(merged,) = ParquetBatchFormat().merge([written.getvalue().to_pybytes()] * 2)
assert len(os.listdir("/proc/self/task")) == before
assert pyarrow.parquet.read_table(pyarrow.BufferReader(merged)).to_pylist() == [{"a": 1, "b": "x"}] * 2
os._exit(0)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="the threads of a process are not listed here")
def test_files_are_merged_without_threads_of_arrow() -> None:
    """They may hold the contents a little longer. Releasing one while Python exits aborted 6 of 250 processes."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", MERGE], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
