"""RocksDBStore: directories, owners, settings, and what happens when the disk or the process gives up."""

import contextlib
import os
import re
import resource
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from streamrt.errors import StateError, StoreCorruptedError, StoreLockedError, StoreVersionError
from streamrt.state import RocksDBOptions, RocksDBStore, Stamp, StoreIdentity
from streamrt.state.rocksdb import RocksDBStorePartition
from streamrt.state.rocksdb import store as rocksdb
from streamrt.state.rocksdb.directory import SEAL, _compute_checksum
from tests.support import forked_end, wait_until

IDENTITY = StoreIdentity("shop", "orders", 0, "totals", None, None, 1)
ROOT = Path(__file__).parents[2]
AT_ONCE = RocksDBOptions(open_max_retries=0)


def stamp(offset: int, *, changelog: bool = True) -> Stamp:
    return Stamp(IDENTITY, offset, offset if changelog else None, None, 0)


def store_in(folder: Path, options: RocksDBOptions = AT_ONCE) -> RocksDBStore:
    return RocksDBStore("totals", "orders", folder, options)


def write_and_close(folder: Path, offset: int = 1) -> Path:
    partition = store_in(folder).open(0)
    partition.write([(b"key", b"%d" % offset)], stamp(offset))
    partition.close()
    return partition.path


def test_where_files_lie(tmp_path: Path) -> None:
    store = RocksDBStore("Totals", "..", tmp_path / "state" / "app", AT_ONCE)
    partition = store.open(12)
    assert partition.path == tmp_path / "state" / "app" / "%2e." / "%54otals" / "12"
    partition.write([(b"a", b"1")], stamp(1))
    partition.close()
    for folder in (partition.path, *partition.path.parents[:3]):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700, folder
    assert stat.S_IMODE((partition.path / SEAL).stat().st_mode) == 0o600


@contextmanager
def owner(folder: Path, then: str = "sys.stdin.read()") -> Iterator[subprocess.Popen[bytes]]:
    """Another process that has the store open, until its input ends."""
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from streamrt.state import RocksDBStore\n"
        f"partition = RocksDBStore('totals', 'orders', Path({str(folder)!r})).open(0)\n"
        "print('open', flush=True)\n" + then
    )
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        assert process.stdout.readline() == b"open\n"
        yield process
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()


@pytest.mark.slow
def test_another_process_is_the_owner(tmp_path: Path) -> None:
    with owner(tmp_path):
        with pytest.raises(
            StoreLockedError, match=r"store 'totals' of orders\[0\].*in use by another process.*state_dir"
        ):
            store_in(tmp_path).open(0)
        with pytest.raises(StoreLockedError):
            store_in(tmp_path).destroy(0)
    store_in(tmp_path).open(0).close()


@pytest.mark.slow
def test_opening_waits_for_the_owner(tmp_path: Path) -> None:
    patient = store_in(tmp_path, RocksDBOptions(open_max_retries=500, open_retry_backoff=0.02))
    with owner(tmp_path, "import time; time.sleep(0.3); partition.close()"):
        patient.open(0).close()


@pytest.mark.slow
def test_an_owner_that_dies_lets_go(tmp_path: Path) -> None:
    with owner(tmp_path) as process:
        process.kill()
        process.wait()
        store_in(tmp_path).open(0).close()


@pytest.mark.slow
def test_a_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    partition = store_in(tmp_path).open(0)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:  # lives on while the parent closes
        os.close(write)
        os.read(read, 1)
        os._exit(0)
    os.close(read)
    try:
        partition.close()
        store_in(tmp_path).open(0).close()
    finally:
        os.close(write)
        os.waitpid(child, 0)


@pytest.mark.slow
@pytest.mark.parametrize("close", [False, True], ids=["free", "close"])
def test_a_child_leaves_the_store_to_its_parent(tmp_path: Path, close: bool) -> None:
    held = [store_in(tmp_path).open(0)]
    held[0].write([(b"key", b"1")], stamp(1, changelog=False))
    assert forked_end(held[0].close if close else held.clear) == 0
    with pytest.raises(StoreLockedError):
        store_in(tmp_path).open(0)
    held[0].write([(b"key", b"2")], stamp(2, changelog=False))
    held[0].close()
    with contextlib.closing(store_in(tmp_path).open(0)) as partition:
        assert partition.get(b"key") == b"2"


def test_rocksdb_locks_too(tmp_path: Path) -> None:
    """Such as a tool of RocksDB that looks into the files."""
    import rocksdict

    partition = store_in(tmp_path / "live").open(0)
    partition.write([(b"key", b"1")], stamp(1, changelog=False))
    shutil.copytree(tmp_path / "live", tmp_path / "killed")
    partition.close()
    tool = rocksdict.Rdict(str(tmp_path / "killed" / "orders" / "totals" / "0"), rocksdict.Options(raw_mode=True))
    try:
        with pytest.raises(StoreLockedError):
            store_in(tmp_path / "killed").open(0)
    finally:
        tool.close()


def test_stores_are_deleted_with_their_directory(tmp_path: Path) -> None:
    path = write_and_close(tmp_path)
    store_in(tmp_path).destroy(0)
    assert not path.exists()
    assert path.parent.exists()


def test_a_file_that_appears_while_a_store_is_deleted_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads of RocksDB may still write its log after a store was closed because of its damage."""
    path, rmdir = write_and_close(tmp_path), Path.rmdir
    late = iter([path / "LOG"])

    def after_another_file(directory: Path) -> None:
        if directory == path and (name := next(late, None)) is not None:
            name.touch()
        rmdir(directory)

    monkeypatch.setattr(Path, "rmdir", after_another_file)
    store_in(tmp_path).destroy(0)
    assert not path.exists()


@pytest.mark.parametrize("name", ["notes.txt", "totals.db", "000001.sst.bak"])
def test_other_files_are_never_deleted(tmp_path: Path, name: str) -> None:
    path = write_and_close(tmp_path)
    (path / name).write_text("mine")
    for act in (store_in(tmp_path).open, store_in(tmp_path).destroy):
        with pytest.raises(StateError, match=re.escape(repr(name))) as caught:
            act(0)
        assert not isinstance(caught.value, StoreCorruptedError)
    assert (path / name).read_text() == "mine"
    (path / name).unlink()
    partition = store_in(tmp_path).open(0)
    assert partition.get(b"key") == b"1"
    partition.close()


def test_directories_inside_are_not_ours(tmp_path: Path) -> None:
    path = write_and_close(tmp_path)
    (path / "000099.sst").mkdir()
    with pytest.raises(StateError, match=r"000099\.sst"):
        store_in(tmp_path).destroy(0)
    assert (path / SEAL).exists()


def test_a_foreign_directory(tmp_path: Path) -> None:
    path = tmp_path / "orders" / "totals" / "0"
    path.mkdir(parents=True)
    (path / "thesis.tex").write_text("mine")
    with pytest.raises(StateError, match=r"thesis\.tex"):
        store_in(tmp_path).open(0)
    with pytest.raises(StateError, match=r"thesis\.tex"):
        store_in(tmp_path).destroy(0)
    assert [file.name for file in path.iterdir()] == ["thesis.tex"]


def test_links_are_not_followed(tmp_path: Path) -> None:
    elsewhere = write_and_close(tmp_path / "elsewhere")
    link = tmp_path / "state" / "orders" / "totals" / "0"
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    for act in (store_in(tmp_path / "state").open, store_in(tmp_path / "state").destroy):
        with pytest.raises(StateError, match="which StreamRT does not follow"):
            act(0)
    link.unlink()
    link.parent.rmdir()
    link.parent.symlink_to(elsewhere.parent)
    with pytest.raises(StateError, match="which StreamRT does not follow"):
        store_in(tmp_path / "state").open(0)
    assert (elsewhere / SEAL).exists()


def test_a_link_in_place_of_a_file(tmp_path: Path) -> None:
    path = write_and_close(tmp_path)
    target = tmp_path / "target"
    (path / "LOG").replace(target)
    (path / "LOG").symlink_to(target)
    with pytest.raises(StateError, match="'LOG'"):
        store_in(tmp_path).destroy(0)
    assert target.exists()


def test_the_state_directory_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "state").symlink_to(tmp_path / "disk")
    write_and_close(tmp_path / "state")
    assert (tmp_path / "disk" / "orders" / "totals" / "0" / SEAL).exists()


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "orders").write_text("a file")
    with pytest.raises(StateError, match="cannot be used"):
        store_in(tmp_path).open(0)


def test_a_beginning_that_was_interrupted(tmp_path: Path) -> None:
    """Killed before RocksDB had made CURRENT: nothing was ever written, so nothing is damaged."""
    path = store_in(tmp_path).open(0)
    path.close()
    folder = path.path
    text = orjson.dumps({"v": 1, "state": "new"})
    (folder / SEAL).write_bytes(_compute_checksum(text) + b"\n" + text)
    (folder / "CURRENT").unlink()
    partition = store_in(tmp_path).open(0)
    assert partition.stamp is None
    partition.close()


def test_only_locked_and_left(tmp_path: Path) -> None:
    (tmp_path / "orders" / "totals" / "0").mkdir(parents=True)
    (tmp_path / "orders" / "totals" / "0" / "streamrt-store.tmp").write_bytes(b"half")
    partition = store_in(tmp_path).open(0)
    assert partition.stamp is None
    partition.close()


def test_a_newer_seal(tmp_path: Path) -> None:
    path = write_and_close(tmp_path)
    text = orjson.dumps({"v": 2, "state": "folded"})
    (path / SEAL).write_bytes(_compute_checksum(text) + b"\n" + text)
    with pytest.raises(StoreVersionError, match="newer version"):
        store_in(tmp_path).open(0)


def test_a_newer_stamp(tmp_path: Path) -> None:
    class NewerStamp(Stamp):
        def encode(self) -> bytes:
            return b'{"v":99}'

    partition = store_in(tmp_path).open(0)
    partition.write([], NewerStamp(IDENTITY, 1, 1, None, 0))
    partition.close()
    for _ in range(2):  # the refusal lets everything go
        with pytest.raises(StoreVersionError, match="newer version"):
            store_in(tmp_path).open(0)


def test_damage_names_the_store(tmp_path: Path) -> None:
    path = write_and_close(tmp_path)
    (path / "CURRENT").unlink()
    with pytest.raises(
        StoreCorruptedError, match=r"store 'totals' of orders\[0\] in .*/orders/totals/0 is damaged: .*CURRENT"
    ):
        store_in(tmp_path).open(0)
    # It stays damaged until it is destroyed.
    with pytest.raises(StoreCorruptedError):
        store_in(tmp_path).open(0)
    store_in(tmp_path).destroy(0)
    store_in(tmp_path).open(0).close()


def settings_of(path: Path) -> dict[str, str]:
    """Return the settings that RocksDB itself says that it has."""
    newest = max(path.glob("OPTIONS-*"))
    found = re.findall(r"^\s*(\w+)=(.*)$", newest.read_text(), re.MULTILINE)
    return {name: value.strip() for name, value in found}


@pytest.mark.parametrize("reopened", [False, True])
def test_settings_are_applied(tmp_path: Path, reopened: bool) -> None:
    options = RocksDBOptions(
        write_buffer_size=1_000_000,
        target_file_size_base=2_000_000,
        max_write_buffer_number=5,
        bloom_filter_bits_per_key=7,
        compression_type="zstd",
        use_fsync=False,
        max_open_files=321,
        db_log_dir=str(tmp_path / "logs"),
    )
    if reopened:
        write_and_close(tmp_path)
    partition = store_in(tmp_path, options).open(0)
    found = settings_of(partition.path)
    expected = {
        "write_buffer_size": "1000000",
        "target_file_size_base": "2000000",
        "max_write_buffer_number": "5",
        "compression": "kZSTD",
        "use_fsync": "false",
        "max_open_files": "321",
        "db_log_dir": str(tmp_path / "logs"),
        "compaction_style": "kCompactionStyleUniversal",
        "paranoid_checks": "true",
        "partition_filters": "true",
        "cache_index_and_filter_blocks": "true",
    }
    assert {name: found[name] for name in expected} == expected
    assert found["filter_policy"].startswith("bloomfilter")
    assert list((tmp_path / "logs").iterdir())
    partition.close()


def test_other_settings(tmp_path: Path) -> None:
    partition = store_in(tmp_path, RocksDBOptions(bloom_filter_bits_per_key=0, compression_type="none")).open(0)
    found = settings_of(partition.path)
    assert found["filter_policy"] == "nullptr"
    assert found["compression"] == "kNoCompression"
    assert found["use_fsync"] == "true"
    partition.close()


def test_settings_may_change(tmp_path: Path) -> None:
    write_and_close(tmp_path)
    for number, compression in enumerate(("none", "snappy", "zlib", "bz2", "lz4", "lz4hc", "zstd"), 2):
        options: Any = {"compression_type": compression, "bloom_filter_bits_per_key": number}
        partition = store_in(tmp_path, RocksDBOptions(**options)).open(0)
        assert partition.get(b"key") == b"%d" % (number - 1)
        partition.write([(b"key", b"%d" % number), (b"k" * 5_000, b"v" * 5_000)], stamp(number))
        partition.close()


def test_one_cache_for_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocksdb, "_memory", None)
    value = os.urandom(100_000)

    def opened(partition: int, **options: Any) -> RocksDBStorePartition:
        found = store_in(tmp_path, RocksDBOptions(**options)).open(partition)
        found.write([(b"%d" % number, value) for number in range(5)], stamp(1, changelog=False))
        return found

    first = opened(0, block_cache_size=300_000, write_buffer_budget=1_000_000)
    memory = rocksdb._memory
    assert memory is not None
    assert memory.buffers.get_buffer_size() == 1_000_000
    second = opened(1, block_cache_size=8_000_000, write_buffer_budget=5_000)
    assert rocksdb._memory is memory
    assert memory.buffers.get_buffer_size() == 1_000_000
    for partition in (first, second):
        assert partition.get_many([b"%d" % number for number in range(5)]) == [value] * 5
    assert 1_000_000 <= memory.cache.get_usage() <= 8_000_000
    first.close()
    second.close()


@pytest.mark.slow
def test_fault_13_the_largest_buffer_is_flushed_and_not_the_one_that_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rocksdb, "_memory", None)
    monkeypatch.setattr(rocksdb, "_open", rocksdb._OpenPartitions())
    store = store_in(tmp_path, RocksDBOptions(write_buffer_budget=4 * 1024 * 1024))
    partitions = [store.open(number) for number in range(10)]

    def files(number: int) -> int:
        return len(list(partitions[number].path.glob("*.sst")))

    # Someone has gathered much, and writes no more.
    partitions[0].write([(b"%d" % key, b"x" * 1_000) for key in range(1_500)], stamp(1))
    for offset in range(1, 100):
        for partition in partitions[1:]:
            partition.write([(b"%d" % offset, b"x" * 500)], stamp(offset))
    wait_until(lambda: files(0) == 1, what="the flush of the largest one")
    assert [files(number) for number in range(1, 10)] == [0] * 9
    # Many stores with little in them leave room in the budget, once the file is written.
    memory = rocksdb._memory
    assert memory is not None
    wait_until(lambda: memory.buffers.get_usage() < 2 * 1024 * 1024, what="what was flushed")
    for partition in partitions:
        partition.close()
    assert not rocksdb._open.all


def test_without_changelog_each_write_reaches_the_disk(tmp_path: Path) -> None:
    partition = store_in(tmp_path / "live").open(0)
    for offset, changelog in ((1, False), (2, True), (3, False), (4, True)):
        partition.write([(b"key", b"%d" % offset)], stamp(offset, changelog=changelog))
        shutil.copytree(tmp_path / "live", tmp_path / str(offset))
        copy = store_in(tmp_path / str(offset)).open(0)
        on_disk = offset if not changelog else offset - 1
        assert copy.get(b"key") == b"%d" % on_disk
        assert copy.stamp is not None
        assert copy.stamp.input_offset == on_disk
        copy.close()
    partition.flush()
    shutil.copytree(tmp_path / "live", tmp_path / "flushed")
    copy = store_in(tmp_path / "flushed").open(0)
    assert copy.get(b"key") == b"4"
    copy.close()
    partition.close()


@contextmanager
def full_disk(limit: int) -> Iterator[None]:
    """No file can become larger than so many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.slow
@pytest.mark.parametrize("changelog", [True, False])
def test_a_full_disk(tmp_path: Path, changelog: bool) -> None:
    partition = store_in(tmp_path).open(0)
    partition.write([(b"key", b"1")], stamp(1, changelog=False))
    large = [(b"%d" % number, os.urandom(10_000)) for number in range(50)]
    message = r"store 'totals' of orders\[0\] in .* cannot be written: .*[Ff]ile too large"
    with full_disk(100_000):
        if changelog:
            # It fits into the buffer, so the disk is met when the store is closed.
            partition.write(large, stamp(2))
            with pytest.raises(StateError, match=message) as caught:
                partition.close()
        else:
            with pytest.raises(StateError, match=message) as caught:
                partition.write(large, stamp(2, changelog=False))
    assert not isinstance(caught.value, StoreCorruptedError)
    # It refuses further use, also when there is room again, and lets the directory go.
    with pytest.raises(StateError, match="until it is reopened"):
        partition.get(b"key")
    with pytest.raises(StateError, match="until it is reopened"):
        partition.write([], stamp(3))
    partition.close()
    partition = store_in(tmp_path).open(0)
    assert partition.stamp == stamp(1, changelog=False)
    assert partition.get(b"key") == b"1"
    assert partition.get(b"7") is None
    partition.write(large, stamp(2))
    partition.close()


FULL = (
    r"store 'totals' of orders\[0\] in .*/0 cannot be (written|opened), because its disk is full \(.*\): free space there, "
    "or move the state directory to a larger disk; then restart the application"
)


@pytest.mark.parametrize(
    "text", ["IO error: No space left on device: While appending", "IO error: Disk quota exceeded"]
)
def test_a_full_disk_is_told_with_what_to_do(tmp_path: Path, text: str) -> None:
    class FullDisk:
        def flush(self, wait: bool) -> None:
            raise Exception(text)

        def close(self) -> None:
            pass

    partition = store_in(tmp_path).open(0)
    partition.write([(b"key", b"1")], stamp(1))
    database, partition._db = partition._db, FullDisk()
    with pytest.raises(StateError, match=FULL) as caught:
        partition.close()
    assert not isinstance(caught.value, StoreCorruptedError)
    with pytest.raises(StateError, match=FULL):
        partition.get(b"key")
    database.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A directory on a disk of 2 MiB."""
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(path)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("no disk can be mounted here; test_a_full_disk_is_told_with_what_to_do needs none")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


def test_a_disk_that_becomes_full_leaves_the_store_at_its_last_stamp(small_disk: Path) -> None:
    write_and_close(small_disk)
    filler = small_disk / "filler"
    partition = store_in(small_disk).open(0)
    partition.write([(b"%d" % number, os.urandom(10_000)) for number in range(400)], stamp(9))
    with pytest.raises(StateError, match=FULL):
        partition.close()
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"\0" * 1_024):
            pass
    with pytest.raises(StateError, match=FULL) as caught:
        store_in(small_disk).open(0)
    assert not isinstance(caught.value, StoreCorruptedError)
    filler.unlink()
    partition = store_in(small_disk).open(0)
    assert partition.stamp == stamp(1)
    assert partition.get(b"7") is None
    partition.close()


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("nothing is forbidden to root")
    path = write_and_close(tmp_path)
    path.chmod(0o500)
    with pytest.raises(StateError, match="cannot be used"):
        store_in(tmp_path).open(0)
    path.chmod(0o700)


def test_sizes(tmp_path: Path) -> None:
    partition = store_in(tmp_path).open(0)
    partition.write([(b"%d" % number, os.urandom(1_000)) for number in range(1_000)], stamp(1, changelog=False))
    assert 900_000 < partition.approximate_size() < 5_000_000
    partition.close()


def test_its_name(tmp_path: Path) -> None:
    assert repr(store_in(tmp_path)) == "RocksDBStore('totals', topic='orders')"


def test_a_directory_for_logs_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="db_log_dir"):
        store_in(tmp_path, RocksDBOptions(db_log_dir=str(tmp_path / "file"))).open(0)
    store_in(tmp_path).open(0).close()


def test_data_without_a_stamp(tmp_path: Path) -> None:
    partition = store_in(tmp_path).open(0)
    partition._db[b"key"] = b"1"
    partition.close()
    for _ in range(2):
        with pytest.raises(StoreCorruptedError, match="without a stamp"):
            store_in(tmp_path).open(0)
