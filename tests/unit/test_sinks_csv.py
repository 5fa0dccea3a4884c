"""`CSVSink`: the file, its lock and what is left of writers that died."""

import csv
import fcntl
import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamrt.connectors import CSVSink
from streamrt.errors import ConfigurationError, SinkError

HEADER = "key,value,timestamp,topic,partition,offset\r\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out.csv"


def started(path: Path, **options: Any) -> CSVSink:
    sink = CSVSink(path, **options)
    sink.start()
    return sink


def put(sink: CSVSink, value: Any, offset: int = 0, key: Any = "k", partition: int = 0) -> None:
    sink.add(value, key, 1_000, None, "orders", partition, offset)


def rows(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file, strict=True))[1:]


def test_the_file(path: Path) -> None:
    sink = started(path)
    assert path.read_bytes().decode() == HEADER
    put(sink, {"a": 1}, 5, b"key")
    put(sink, None, 6, None)
    sink.flush()
    assert rows(path) == [
        ["b'key'", '{"a": 1}', "1000", "orders", "0", "5"],
        ["None", "null", "1000", "orders", "0", "6"],
    ]
    assert path.read_bytes().decode().startswith(HEADER)


def test_serializers_and_dialect(path: Path) -> None:
    sink = started(path, dialect="unix", key_serializer=lambda key: f"<{key}>", value_serializer=repr)
    put(sink, {"a": 1})
    sink.flush()
    assert path.read_text().splitlines()[1] == '"<k>","{\'a\': 1}","1000","orders","0","0"'


def test_a_dialect_of_ones_own_travels(path: Path) -> None:
    csv.register_dialect("pipes", delimiter="|", quoting=csv.QUOTE_MINIMAL)
    try:
        sink = CSVSink(path, dialect="pipes")
        data = pickle.dumps(sink)
    finally:
        csv.unregister_dialect("pipes")
    again = pickle.loads(data)
    again.start()
    assert path.read_text().startswith("key|value|")


def test_another_sink_goes_on_in_the_same_file(path: Path) -> None:
    for offset in range(3):
        sink = started(path)
        put(sink, offset, offset)
        sink.flush()
    assert [row[1] for row in rows(path)] == ["0", "1", "2"]


def test_the_path_is_that_of_the_program(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    data = pickle.dumps(CSVSink("out.csv"))
    monkeypatch.chdir("/")
    pickle.loads(data).start()
    assert path.exists()


def test_a_file_that_is_moved_away_is_made_anew(path: Path) -> None:
    sink = started(path)
    put(sink, 1)
    sink.flush()
    path.rename(path.with_name("old.csv"))
    put(sink, 2)
    sink.flush()
    assert [row[1] for row in rows(path)] == ["2"]
    assert [row[1] for row in rows(path.with_name("old.csv"))] == ["1"]


def test_a_file_that_is_emptied_gets_its_header_back(path: Path) -> None:
    sink = started(path)
    put(sink, 1)
    sink.flush()
    os.truncate(path, 0)
    put(sink, 2)
    sink.flush()
    assert [row[1] for row in rows(path)] == ["2"]


class TestRefusals:
    def test_no_directory(self, tmp_path: Path) -> None:
        with pytest.raises(SinkError, match=r"there is no directory .*missing; create it first"):
            started(tmp_path / "missing" / "out.csv")

    def test_a_directory(self, tmp_path: Path) -> None:
        with pytest.raises(SinkError, match="Is a directory"):
            started(tmp_path)

    def test_no_regular_file(self) -> None:
        with pytest.raises(SinkError, match="not a regular file"):
            started(Path("/dev/null"))

    @pytest.mark.parametrize("text", ["name,age\r\nada,36\r\n", "key,value\n", HEADER.replace("\r", "")])
    def test_a_file_of_somebody_else_is_not_touched(self, path: Path, text: str) -> None:
        path.write_bytes(text.encode())
        with pytest.raises(SinkError, match="its first line is not the header"):
            started(path)
        assert path.read_bytes().decode() == text

    def test_a_file_that_ends_inside_of_a_quoted_field(self, path: Path) -> None:
        text = f'{HEADER}k,"{{\r\n'
        path.write_bytes(text.encode())
        with pytest.raises(SinkError, match="ends inside a quoted field"):
            started(path)
        assert path.read_bytes().decode() == text

    def test_values_that_have_no_text(self, path: Path) -> None:
        sink = started(path)
        put(sink, {1, 2}, 7)
        with pytest.raises(SinkError, match=r"orders\[0\] offset 7 cannot be written to .*set is not JSON"):
            sink.flush()

    def test_text_without_utf8(self, path: Path) -> None:
        sink = started(path)
        put(sink, 1, 6, "text")
        put(sink, 1, 7, "\ud800")
        with pytest.raises(SinkError, match="the records 6 to 7 of orders") as caught:
            sink.flush()
        assert caught.value.record == ("orders", 0, 7)
        assert rows(path) == []

    def test_dialects(self, path: Path) -> None:
        with pytest.raises(ConfigurationError, match="known are excel"):
            CSVSink(path, dialect="lotus")
        csv.register_dialect("mac", lineterminator="\r")
        try:
            with pytest.raises(ConfigurationError, match="line feed"):
                CSVSink(path, dialect="mac")
        finally:
            csv.unregister_dialect("mac")


class TestRepair:
    """A writer that died has left the beginning of its batch."""

    @pytest.mark.parametrize(
        "torn", ["k", "k,1,1000,orders,0,9", 'k,"{""a"": 1', 'k,"{""a"": 1}",1000', "k,1,1000,orders,0,9\r"]
    )
    def test_a_torn_line_is_cut_off(self, path: Path, torn: str) -> None:
        sink = started(path)
        put(sink, {"a": 1})
        sink.flush()
        whole = path.read_bytes()
        with path.open("ab") as file:
            file.write(torn.encode())
        other = started(path)
        assert path.read_bytes() == whole
        with path.open("ab") as file:
            file.write(torn.encode())
        put(other, {"b": 2}, 1)
        other.flush()
        assert [row[1] for row in rows(path)] == ['{"a": 1}', '{"b": 2}']

    @pytest.mark.parametrize("length", range(len(HEADER)))
    def test_a_torn_header_is_written_again(self, path: Path, length: int) -> None:
        path.write_bytes(HEADER.encode()[:length])
        started(path)
        assert path.read_bytes().decode() == HEADER

    @given(
        keys=st.lists(st.text(st.sampled_from('a",\n\r'), max_size=4), min_size=1, max_size=4),
        where=st.floats(0, 1, exclude_max=True),
    )
    @settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_no_row_is_lost_or_halved_wherever_the_file_is_torn(
        self, tmp_path: Path, keys: list[str], where: float
    ) -> None:
        path = tmp_path / "torn.csv"
        path.unlink(missing_ok=True)
        sink = started(path)
        put(sink, "first", 0, 'x"\n')
        sink.flush()
        before = path.stat().st_size
        for offset, key in enumerate(keys):
            put(sink, offset, offset + 1, key)
        sink.flush()
        all_rows = rows(path)
        after = path.stat().st_size
        os.truncate(path, before + int((after - before) * where))
        try:
            other = started(path)
        except SinkError:
            # Only where a line end inside of a field cannot be told from the end of a row without guessing.
            assert any("\n" in key for key in keys)
            return
        kept = rows(path)
        assert kept == all_rows[: len(kept)]
        assert kept
        put(other, "last", 9)
        other.flush()
        assert [row[1] for row in rows(path)][-1] == '"last"'

    def test_a_full_disk_leaves_the_file_as_it_was(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        sink = started(path)
        whole = path.read_bytes()
        put(sink, 1)
        write = os.write
        calls = []

        def full(descriptor: int, data: Any) -> int:
            # The system takes a part, then refuses.
            calls.append(len(data))
            if len(calls) == 1:
                return write(descriptor, data[:5])
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "write", full)
        with pytest.raises(SinkError, match="No space left on device"):
            sink.flush()
        monkeypatch.undo()
        assert path.read_bytes() == whole
        sink.on_paused()
        put(sink, 1)
        sink.flush()
        assert len(rows(path)) == 1


def test_a_writer_waits_for_the_other(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = started(path)
    put(sink, 1)
    asks = threading.Event()
    lock = fcntl.flock

    def told(descriptor: int, operation: int) -> None:
        asks.set()
        lock(descriptor, operation)

    with path.open() as other, ThreadPoolExecutor(1) as pool:
        lock(other.fileno(), fcntl.LOCK_EX)
        monkeypatch.setattr(fcntl, "flock", told)
        flush = pool.submit(sink.flush)
        assert asks.wait(60)
        with pytest.raises(FutureTimeout):
            flush.result(0.05)
        assert rows(path) == []
        lock(other.fileno(), fcntl.LOCK_UN)
        flush.result(10)
    assert len(rows(path)) == 1


def test_many_writers(path: Path) -> None:
    def write(partition: int) -> None:
        sink = started(path)
        for offset in range(20):
            put(sink, {"text": "x\n" * 50}, offset, partition=partition)
            sink.flush()

    # flock counts for each opening of a file, so threads exclude each other as processes do.
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    found = [(int(row[4]), int(row[5])) for row in rows(path)]
    for partition in range(4):
        assert [offset for number, offset in found if number == partition] == list(range(20))
