"""Files that are written, replaced and renamed while sources read them."""

import bz2
import contextlib
import gzip
import io
import itertools
import json
import lzma
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fastavro
import fsspec
import pyarrow
import pyarrow.parquet
import pytest

from streamrt.connectors import CSVSource, FileSource, LocalFileSource
from streamrt.connectors.file_sources.file_names import matcher
from streamrt.connectors.files import CSVFormat, JSONFormat
from streamrt.connectors.files.marks import Mark, Observed
from streamrt.errors import SourceError
from tests.connectors.sources import Run, crashed
from tests.support import unique, wait_until


class Place:
    """A directory and the state of its source, from start to start."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run: Run | None = None

    def source(self, **options: Any) -> Any:
        return LocalFileSource(self.path, **{"replay_speed": 0, "name": "rows", **options})

    def read(self, **options: Any) -> list[Any]:
        """Start the source again, and return what it produces."""
        self.run = Run(self.source(**options), store=None if self.run is None else self.run.store)
        return self.run.to_end().values

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def append(self, name: str, text: str | bytes) -> None:
        with (self.path / name).open("ab") as file:
            file.write(text.encode() if isinstance(text, str) else text)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


# -- Half records ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", range(1, 6))
def test_c3_a_half_number_is_not_a_record(place: Place, cut: int, caplog: pytest.LogCaptureFixture) -> None:
    place.write("a", "1\n20050\n"[: 2 + cut])
    assert place.read() == [1]
    assert "its last line has no line end: the rest is read at the next start" in caplog.text
    place.write("a", "1\n20050\n7\n")
    assert place.read() == [20050, 7]


@pytest.mark.parametrize("cut", range(1, 14))
def test_c3_a_half_row_of_csv_is_not_a_record(place: Place, cut: int) -> None:
    text = 'a,b\n1,2\n3,"x\ny"\n5,6\n'
    place.write("a.csv", text[: 8 + cut])
    first = place.read(file_format="csv")
    place.append("a.csv", text[8 + cut :])
    assert first + place.read(file_format="csv") == [
        {"a": "1", "b": "2"},
        {"a": "3", "b": "x\ny"},
        {"a": "5", "b": "6"},
    ]


def test_c3_objects_and_texts_are_complete_without_a_line_end(place: Place) -> None:
    place.write("a", '{"n": 1}\n{"n": 2}')
    place.write("b", '{"n": 3}\n{"n": "')
    place.write("c", '"text"')
    assert place.read() == [{"n": 1}, {"n": 2}, {"n": 3}, "text"]
    place.append("a", '\n{"n": 5}\n')
    place.append("b", '4"}')
    assert place.read() == [{"n": 5}, {"n": "4"}]


def test_c3_files_that_are_complete_when_they_appear(place: Place) -> None:
    place.write("a", "1\n20")
    assert place.read(unfinished="read") == [1, 20]
    place.write("b", "3\n4")
    assert place.read() == [3]
    # Another policy takes what was left.
    assert place.read(unfinished="read") == [4]
    place.write("c.csv", 'a\n1\n"2\n')
    with pytest.raises(SourceError, match="has a quote without an end"):
        Run(LocalFileSource(place.path / "c.csv", file_format="csv", unfinished="read", replay_speed=0)).to_end()


@pytest.mark.parametrize(
    ("extension", "compress"), [("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress), ("zst", None)]
)
def test_c11_the_extension_names_the_compression_and_half_files_wait(
    place: Place, extension: str, compress: Callable[[bytes], bytes] | None
) -> None:
    text = b"".join(b"%d\n" % number for number in range(5_000))
    packed = compress(text) if compress else pyarrow.compress(text, codec="zstd", asbytes=True)
    place.write(f"a.jsonl.{extension}", packed[: len(packed) // 2])
    place.write("b.jsonl", "5000\n")
    first = place.read()
    place.write(f"a.jsonl.{extension}", packed)
    assert first[:-1] + place.read() == list(range(5_000))
    # Another part, as `cat more.gz >> a.gz` adds it.
    place.append(
        f"a.jsonl.{extension}", compress(b"1\n") if compress else pyarrow.compress(b"1\n", codec="zstd", asbytes=True)
    )
    assert place.read() == [1]
    if extension == "gz":
        with pytest.raises(SourceError, match="is not a JSON document"):
            Run(place.source(compression="none")).to_end()


def test_c3_a_parquet_file_without_its_index_waits(place: Place) -> None:
    data = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"n": [1, 2]}), data)
    for size in (0, 3, 4, len(data.getvalue()) - 1):
        place.write("a.parquet", data.getvalue()[:size])
        assert place.read(file_format="parquet") == []
    place.write("a.parquet", data.getvalue())
    assert place.read(file_format="parquet") == [{"n": 1}, {"n": 2}]
    assert place.read(file_format="parquet") == []
    # Touched, then written again with more rows.
    os.utime(place.path / "a.parquet", (1, 1))
    assert place.read(file_format="parquet") == []
    pyarrow.parquet.write_table(pyarrow.table({"n": [1, 2, 3]}), place.path / "a.parquet")
    assert place.read(file_format="parquet") == [{"n": 1}, {"n": 2}, {"n": 3}]


def test_c11_avro_files_are_read_while_they_grow(place: Place) -> None:
    schema = {"type": "record", "name": "Row", "fields": [{"name": "n", "type": "int"}]}
    data = io.BytesIO()
    fastavro.writer(data, schema, [{"n": number} for number in range(40)], sync_interval=5)
    content = data.getvalue()
    found: list[Any] = []
    for size in (0, 10, len(content) // 2, len(content) - 3, len(content)):
        place.write("a.avro", content[:size])
        found += place.read(file_format="avro")
    assert [record["n"] for record in found] == list(range(40))
    # A reader may take the time in the header of gzip for lengths that the file does not have.
    for time in range(0, 2**32, 2**27):
        place.write("b.avro", gzip.compress(content, mtime=time))
        with pytest.raises(SourceError, match=r"cannot read b.avro: it is not an Avro file"):
            Run(LocalFileSource(place.path, file_format="avro", replay_speed=0)).to_end()
    (place.path / "b.avro").rename(place.path / "b.avro.gz")
    assert len(place.read(file_format="avro")) == 40


# -- Arrays ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", range(38))
def test_c11_each_element_of_an_array_is_a_record(place: Place, cut: int) -> None:
    text = '\ufeff [\n {"n": [1, "]"]} ,\n "größer", 12 , null]\n'.encode()
    array = JSONFormat(array=True)
    assert list(array.read(io.BytesIO(text))) == [{"n": [1, "]"]}, "größer", 12, None]
    found = list(array.read_from(io.BytesIO(text), 0))
    for number, (_, position) in enumerate(found, 1):
        assert list(array.read_from(io.BytesIO(text), position)) == found[number:]
    place.write("a.json", text[:cut])
    first = place.read(file_format=array)
    place.write("a.json", text)
    assert first + place.read(file_format=array) == [{"n": [1, "]"]}, "größer", 12, None]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"n": 1}', "it does not begin with"),
        ("[1] 2", "something follows the array at byte 4"),
        ("[1 2]", "neither a comma nor its end at byte 3"),
        ('[{"n": x}, 1, 2, 3, 4, 5, 6, 7]', "the element at byte 1 is not a JSON document"),
        ("[1", "its array has no end"),
        ("[", "its array has no end"),
        ("", "its array has no end"),
        ("[1,]", "its array has no end"),
    ],
)
def test_arrays_that_are_none(text: str, reason: str) -> None:
    with pytest.raises(SourceError, match=reason):
        list(JSONFormat(array=True).read(io.BytesIO(text.encode())))
    assert list(JSONFormat(array=True).read(io.BytesIO(b" [ ] "))) == []


# -- Files that were replaced, renamed or truncated ------------------------------------------------------------------


def test_c3_a_replaced_file_of_the_same_size_is_read(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    path = place.write("a", "1\n2\n3\n")
    assert place.read() == [1, 2, 3]
    status = path.stat()
    path.write_text("4\n5\n6\n")
    # A tool that copies files may set their times back.
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert place.read() == [4, 5, 6]
    assert "a was replaced since the source rows has read it" in caplog.text
    os.utime(path, (1, 1))
    path.chmod(0o600)
    assert place.read() == []


def test_c3_a_longer_replacement_is_read_from_its_beginning(place: Place) -> None:
    rows = [{"n": number} for number in range(3_000)]
    other = [{"n": -number} for number in range(3_500)]
    for name in ("a", "b.gz"):
        text = "".join(json.dumps(row) + "\n" for row in rows).encode()
        place.write(name, gzip.compress(text) if name.endswith("gz") else text)
    assert place.read() == rows * 2
    place.write("a", "".join(json.dumps(row) + "\n" for row in other))
    place.write("b.gz", gzip.compress("".join(json.dumps(row) + "\n" for row in other).encode()))
    assert place.read() == other * 2


def test_c3_a_change_within_a_file_that_was_read_at_once_is_found(place: Place) -> None:
    rows = [f"{number:07d}" * 200 for number in range(300)]
    place.write("a", "\n".join(f'"{row}"' for row in rows) + "\n")
    assert place.read() == rows
    rows[150] = "changed" * 200
    place.write("a", "\n".join(f'"{row}"' for row in rows) + "\n")
    assert place.read() == rows


@pytest.mark.parametrize("create", [True, False], ids=["create", "nocreate"])
@pytest.mark.parametrize("unread", ["", "3\n4\n"])
def test_c3_rotation_by_rename_repeats_and_loses_nothing(place: Place, create: bool, unread: str) -> None:
    path = place.write("app.log", "1\n2\n")
    assert place.read() == [1, 2]
    for count in range(1, 4):
        if path.exists():
            place.append("app.log", unread)
        for old in range(count, 0, -1):
            name = place.path / f"app.log.{old}"
            if name.exists():
                name.rename(place.path / f"app.log.{old + 1}")
        if path.exists():
            path.rename(place.path / "app.log.1")
            expected = [int(line) for line in unread.split()]
        else:
            expected = []
        if create:
            place.write("app.log", f"{count}00\n")
            expected.append(count * 100)
        assert place.read() == expected


@pytest.mark.parametrize("unread", ["", "3\n4\n"])
@pytest.mark.parametrize("after", ["", "5\n", "1\n2\n5\n6\n7\n"])
def test_c3_copytruncate_repeats_and_loses_nothing(place: Place, unread: str, after: str) -> None:
    path = place.write("app.log", "1\n2\n")
    assert place.read() == [1, 2]
    place.append("app.log", unread)
    shutil.copy(path, place.path / "app.log.1")
    os.truncate(path, 0)
    place.append("app.log", after)
    found = place.read()
    fresh = [int(line) for line in after.split()]
    if after.startswith("1"):
        # The same lines once more: the file looks as if it had grown, and its copy is new.
        assert found[-2:] == ([3, 4] if unread else [1, 2])
    else:
        assert found == [int(line) for line in unread.split()] + fresh
    assert place.read() == []


def test_c3_a_rotated_file_that_is_compressed_is_known(place: Place) -> None:
    place.write("app.log", "1\n2\n")
    assert place.read() == [1, 2]
    place.append("app.log", "3\n")
    place.write("app.log.1.gz", gzip.compress((place.path / "app.log").read_bytes()))
    place.write("app.log", "4\n")
    assert place.read() == [3, 4]


def test_c3_rotation_in_a_crash(place: Place) -> None:
    """A crash between two flushes repeats records of both files, and loses none."""
    place.write("app.log", "".join(f"{number}\n" for number in range(700)))
    run = Run(place.source(), copied=False)
    run.source.process_record = _dying(run.source, 600)
    with pytest.raises(RuntimeError):
        run.to_end()
    place.run = run
    crashed(run.store)
    (place.path / "app.log").rename(place.path / "app.log.1")
    place.write("app.log", "700\n")
    assert sorted(place.read()) == list(range(run.producer.flushed, 701))


class Interrupted(io.RawIOBase):
    """A file before each read of which something may happen."""

    def __init__(self, inner: Any, happen: Callable[[], None]) -> None:
        self._inner, self._happen = inner, happen

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._inner.seek(offset, whence))

    def tell(self) -> int:
        return int(self._inner.tell())

    def close(self) -> None:
        self._inner.close()

    def readinto(self, buffer: Any) -> int:
        self._happen()
        data = self._inner.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


CHANGES: dict[str, Callable[[Path, bytes], object]] = {
    "in place": lambda path, content: path.write_bytes(content),
    "another file": lambda path, content: (
        path.with_name(".new").write_bytes(content),
        path.with_name(".new").replace(path),
    ),
    "rotated": lambda path, content: (path.rename(path.with_name(f"old.{path.name}")), path.write_bytes(content)),
}


@pytest.mark.parametrize(
    ("extension", "change"),
    [("jsonl", "another file"), *itertools.product(["jsonl", "gz", "avro", "parquet"], ["in place", "rotated"])],
)
def test_c3_a_file_that_changes_after_it_was_recognized(tmp_path: Path, extension: str, change: str) -> None:
    """Whatever happens before any opening or reading of a file, all records of its successor are read."""
    before, grown, after = ([{"n": number} for number in range(*ends)] for ends in ((1, 3), (1, 4), (4, 7)))
    for moment in range(16):
        place = Place(tmp_path / str(moment))
        name = f"rows.{extension}"
        options: Any = {"file_format": extension if extension in ("avro", "parquet") else "json"}
        path = place.write(name, _file_of(before, extension))
        assert place.read(**options) == before
        if extension == "parquet":
            os.utime(path, (1, 1))
        else:
            path.write_bytes(_file_of(grown, extension))
        left = [moment]

        def happen(path: Path = path, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == -1:
                CHANGES[change](path, _file_of(after, extension))

        class Watched(LocalFileSource):
            def read_file(self, filepath: Any, happen: Callable[[], None] = happen) -> Any:
                happen()
                return Interrupted(super().read_file(filepath), happen)

        assert place.run is not None
        watched = Watched(place.path, replay_speed=0, name="rows", **options)
        first = Run(watched, store=place.run.store, copied=False).to_end().values
        found = first + place.read(**options)
        if left[0] >= 0:
            assert found == ([] if extension == "parquet" else grown[2:])
            break
        assert found[-3:] == after, moment
        assert found[:-3] in ([], grown[2:]), moment
        if change == "rotated" and extension != "parquet":
            assert found[:-3] == grown[2:], moment
    else:
        raise AssertionError("the file is read more often")


def _file_of(rows: list[dict[str, int]], extension: str) -> bytes:
    data = io.BytesIO()
    if extension == "parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), data)
    elif extension == "avro":
        schema = {"type": "record", "name": "Row", "fields": [{"name": "n", "type": "int"}]}
        fastavro.writer(data, schema, rows, sync_interval=1, sync_marker=bytes(16))
    else:
        data.write("".join(json.dumps(row) + "\n" for row in rows).encode())
    return gzip.compress(data.getvalue(), mtime=0) if extension == "gz" else data.getvalue()


def _dying(source: Any, count: int) -> Callable[[Any], None]:
    process, left = source.process_record, iter(range(count))

    def dying(record: Any) -> None:
        if next(left, None) is None:
            raise RuntimeError
        process(record)

    return dying


def test_c3_rotation_on_a_file_system_without_inodes() -> None:
    files = fsspec.filesystem("memory")
    folder = f"/{unique('logs')}"
    files.pipe(f"{folder}/app.log", b"1\n2\n")

    def source() -> FileSource:
        return FileSource(f"memory:/{folder}", replay_speed=0)

    run = Run(source()).to_end()
    files.mv(f"{folder}/app.log", f"{folder}/app.log.1")
    files.pipe(f"{folder}/app.log", b"3\n")
    assert Run(source(), store=run.store).to_end().values == [3]
    files.pipe(f"{folder}/app.log", b"4\n")
    assert Run(source(), store=run.store).to_end().values == [4]


def test_c3_symbolic_links_are_followed_once(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    place.write("in/a", "1\n")
    place.write("elsewhere/b", "2\n")
    source = place.path / "in"
    (source / "loop").symlink_to(source)
    (source / "sub").mkdir()
    (source / "sub" / "up").symlink_to("..")
    (source / "latest").symlink_to("a")
    (source / "linked").symlink_to(place.path / "elsewhere")
    (source / "dangling").symlink_to("nowhere")
    run = Run(LocalFileSource(source, replay_speed=0, name="rows")).to_end()
    assert run.values == [1, 2]
    assert "leaves out" in caplog.text


def test_positions_of_former_versions_are_read(place: Place) -> None:
    place.write("a", "1\n2\n3\n")
    place.write("b", "1\n2\n3\n")
    place.write("c", "1\n")
    place.run = Run(place.source())
    state = place.run.store.state()
    for name, entry in {"a": [2], "b": [4, 4], "c": [4, 4]}.items():
        state.set(name, entry)
    place.run.store.commit()
    assert place.read() == [2, 3, 3, 1]
    place.append("a", "4\n")
    assert place.read() == [4]


def test_marks_of_large_files_have_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamrt.connectors.files.marks._SPAN_BYTES", 1_000)
    monkeypatch.setattr("streamrt.connectors.files.marks._HEAD_BYTES", 100)
    content = bytes(range(256)) * 40
    observed = Observed(io.BytesIO(content), seekable=True)
    marks: list[Mark] = []
    while observed.read(300):
        mark = observed.mark()
        assert mark is not None
        assert mark.end - mark.start <= 1_600
        marks.append(mark)
    for mark in marks:
        assert mark.fits(io.BytesIO(content))
        for at in (0, mark.end - 1):
            changed = bytearray(content)
            changed[at] ^= 1
            assert not mark.fits(io.BytesIO(bytes(changed)))
        assert not mark.fits(io.BytesIO(content[: mark.end - 1]))
    small = Observed(io.BytesIO(content), seekable=True)
    small.look_at(40)
    small.seek(39)
    small.read(50)
    for end in (40, 60, 89):
        mark = small.mark(end)
        assert mark is not None
        assert mark.start == 0
        assert mark.fits(io.BytesIO(content[:end]))
    again = Observed(io.BytesIO(content), seekable=True)
    again.look_at(5_000)
    again.seek(4_999)
    again.read(2_000)
    mark = again.mark(6_000)
    assert mark is not None
    assert mark.fits(io.BytesIO(content[:6_000]))


# -- Patterns and watching -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "found", "others"),
    [
        ("*.csv", ["a.csv"], ["b/a.csv", "a.csv.gz"]),
        ("**/*.csv", ["a.csv", "b/a.csv", "b/c/a.csv"], ["a.json"]),
        ("**", ["a", "b/a"], []),
        ("b/**", ["b/a", "b/c/d"], ["a", "bb/a"]),
        ("day-[0-9][!a].log?", ["day-1b.log2"], ["day-1a.log2", "day-xb.log2", "day-1b.log"]),
        ("a+(1).[c]sv", ["a+(1).csv"], ["aa1xcsv"]),
        ("*/x", ["a/x"], ["x", "a/b/x"]),
    ],
)
def test_c11_patterns(pattern: str, found: list[str], others: list[str]) -> None:
    expression = matcher(pattern)
    assert [name for name in found if expression.fullmatch(name)] == found
    assert [name for name in others if expression.fullmatch(name)] == []


def test_c11_a_pattern_names_files(place: Place) -> None:
    for name, text in {
        "a.jsonl": "1\n",
        "b.txt": "sesame",
        "x/c.jsonl": "2\n",
        "x/y/d.jsonl": "3\n",
        "n[1].x": "4\n",
    }.items():
        place.write(name, text)
    assert Run(LocalFileSource(place.path / "*.jsonl", replay_speed=0)).to_end().values == [1]
    source = LocalFileSource(f"{place.path}/**/*.jsonl", replay_speed=0)
    assert source.name == place.path.name
    assert Run(source).to_end().values == [1, 2, 3]
    assert Run(LocalFileSource(place.path / "n[1].x", replay_speed=0, name="x")).to_end().values == [4]
    assert Run(FileSource(f"file://{place.path}/x/*.jsonl", replay_speed=0)).to_end().values == [2]


@contextlib.contextmanager
def watching(place: Place, **options: Any) -> Iterator[Run]:
    place.run = Run(
        place.source(monitor_continuously=0.02, **options), store=None if place.run is None else place.run.store
    )
    with place.run as run:
        yield run


@pytest.mark.rows("PF-B7")
def test_c11_new_files_and_records_are_found(place: Place) -> None:
    place.write("a", "1\n2")
    with watching(place) as run:
        assert run.wait_for(1) == [1]
        # Durable without further records.
        wait_until(lambda: run.producer.flushed == 1)
        place.append("a", "0\n3\n")
        place.write("sub/b", "4\n")
        assert sorted(run.wait_for(4)) == [1, 3, 4, 20]
        (place.path / "a").rename(place.path / "a.1")
        place.append("a.1", "5\n")
        place.write("a", "6\n")
        assert sorted(run.wait_for(6)) == [1, 3, 4, 5, 6, 20]
        (place.path / "sub/b").unlink()
        place.write("a", "7\n")
        assert run.wait_for(7)[-1] == 7
    with watching(place) as run:
        place.append("a", "8\n")
        assert run.wait_for(1) == [8]


def test_c3_a_change_within_a_tick_of_the_clock_is_found(place: Place) -> None:
    path = place.write("a", "1\n2\n")
    times = path.stat()
    with watching(place) as run:
        assert run.wait_for(2) == [1, 2]
        path.write_text("3\n4\n")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert run.wait_for(4) == [1, 2, 3, 4]


def test_c11_a_single_file_may_be_away_for_a_moment(place: Place) -> None:
    path = place.write("app.log", "1\n")
    source = LocalFileSource(path, replay_speed=0, monitor_continuously=0.02)
    with Run(source) as run:
        assert run.wait_for(1) == [1]
        path.rename(place.path / "app.log.1")
        wait_until(lambda: run.producer.flushed == 1)
        place.write("app.log", "2\n")
        assert run.wait_for(2) == [1, 2]


@pytest.mark.slow
def test_c11_a_log_that_rotates_quickly_is_read_once(place: Place) -> None:
    log = place.path / "app.log"
    with watching(place) as run:
        for number in range(400):
            with log.open("a") as file:
                file.write(f"{number}\n"[: 1 + number % 3])
                file.flush()
                file.write(f"{number}\n"[1 + number % 3 :])
            if number % 37 == 36:
                log.rename(place.path / f"app.log.{number}")
        run.wait_for(400)
        wait_until(lambda: run.producer.flushed == len(run.records))
    assert sorted(run.values) == list(range(400))


# -- Bad records -----------------------------------------------------------------------------------------------------


def test_c11_bad_lines_and_foreign_files_are_skipped(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    place.write("a.jsonl", b'{"n": 1}\nsesame\n{"n": 2}\n\xff\n{"n": 3}\n')
    place.write("b.txt", "sesame, open\n")
    place.write("c.jsonl.gz", b"sesame")
    place.write("d.jsonl", '{"n": 4}\n')
    assert place.read(on_error="skip") == [{"n": number} for number in (1, 2, 3, 4)]
    assert "has skipped 2 records of a.jsonl" in caplog.text
    assert "c.jsonl.gz: it cannot be decompressed: Not a gzipped file; it is skipped" in caplog.text
    assert "sesame" not in caplog.text.replace("b.txt", "")
    assert place.read(on_error="skip") == []


def test_c11_a_function_decides_on_bad_records(place: Place) -> None:
    seen: list[Any] = []
    place.write("a.csv", 'n,m\n1,2\n3\n4,5\nx,6\n"7,8\n')

    class Watched(LocalFileSource):
        pass

    def decide(error: Exception, record: Any, logger: Any) -> bool:
        seen.append((type(error).__name__, record.file, record.data))
        return len(seen) < 3

    source = Watched(
        place.path / "a.csv",
        key_setter=lambda row: str(int(row["n"])),
        file_format="csv",
        replay_speed=0,
        on_error=decide,
        unfinished="read",
    )
    run = Run(source, copied=False)
    with pytest.raises(SourceError, match="has a quote without an end"):
        run.to_end()
    assert run.values == [{"n": "1", "m": "2"}, {"n": "4", "m": "5"}]
    assert seen == [
        ("FileFormatError", "a.csv", b"3\n"),
        ("_RecordError", "a.csv", {"n": "x", "m": "6"}),
        ("FileFormatError", "a.csv", b'"7,8\n'),
    ]
    broken = LocalFileSource(place.path / "a.csv", file_format="csv", replay_speed=0, on_error=lambda *_: 1 / 0 > 0)
    with pytest.raises(SourceError, match=r"on_error of the source a.csv failed with ZeroDivisionError"):
        Run(broken).to_end()


def test_c8_parquet_values_that_python_does_not_have_are_named(place: Place) -> None:
    days = pyarrow.array([1, 5_000_000, 2], pyarrow.int32()).cast(pyarrow.date32())
    pyarrow.parquet.write_table(pyarrow.table({"n": [1, 2, 3], "day": days}), place.path / "a")
    plain = place.source(file_format="parquet", value_setter=lambda row: row["n"])
    with pytest.raises(SourceError, match=r"a: row 1 has a date32\[day\] in column 'day' that Python does not have"):
        Run(plain).to_end()
    source = place.source(file_format="parquet", on_error="skip", value_setter=lambda row: row["n"])
    assert Run(source).to_end().values == [1, 3]


def test_c8_two_columns_of_one_name_are_refused(place: Place) -> None:
    table = pyarrow.table([pyarrow.array([1]), pyarrow.array([2])], names=["n", "n"])
    pyarrow.parquet.write_table(table, place.path / "a")
    with pytest.raises(SourceError, match="two columns with the name 'n'"):
        Run(place.source(file_format="parquet")).to_end()


def test_c8_long_fields_of_csv(place: Place) -> None:
    text = "x" * 500_000
    place.write("a", f'n\n{text}\n"{text}"\n')
    assert place.read(file_format="csv") == [{"n": text}] * 2


def test_c8_csv_sources_lose_no_column(place: Place) -> None:
    path = place.write("a", f"n\n{'x' * 200_000}\n")
    assert Run(CSVSource(path, "rows")).to_end().values == [{"n": "x" * 200_000}]
    path.write_text("n,m,n\n1,2,3\n")
    with pytest.raises(SourceError, match=r"line 1 of .* names the column 'n' twice"):
        Run(CSVSource(path, "rows")).to_end()


def test_c3_csv_goes_on_behind_its_names(place: Place) -> None:
    place.write("a", "n,m")
    assert place.read(file_format="csv") == []
    place.append("a", "o\n1,2\n")
    assert place.read(file_format=CSVFormat()) == [{"n": "1", "mo": "2"}]


@pytest.mark.rows("PF-B11")
def test_lines_of_text(place: Place) -> None:
    place.write("a", "one\r\n\n größer \nthree")
    assert place.read(file_format="text") == ["one", " größer "]
    place.append("a", " and more\n")
    assert place.read(file_format="text") == ["three and more"]
