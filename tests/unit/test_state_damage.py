"""Damage: a store partition either says that it is damaged, or holds exactly what its stamp says."""

import contextlib
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamrt.errors import StoreCorruptedError
from streamrt.state import StorePartition
from streamrt.state.rocksdb import store as rocksdb
from tests.support import LONG
from tests.unit.state_history import KEYS, advance, changes_at, history, offset_of, stamp_at, store_in

OFFSETS = 120
POSITIONS = 14 if LONG else 3
MODELS = history(OFFSETS + 10)
ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


def run_writer(folder: Path, offsets: int) -> None:
    """Write from where the store stands up to an offset, and die."""
    command = [sys.executable, "-m", "tests.unit.state_history", str(folder), str(-offsets), "changelog"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, timeout=60)
    assert done.returncode == -signal.SIGKILL


def closed(folder: Path) -> None:
    """Written in several sessions, with a merge of files between them, and closed with three files.

    With more of them, RocksDB would merge them at the next opening; and when that fails, it waits for a second.
    """
    for upto in (10, 20, 30, 40, 50, 60):
        partition = store_in(folder).open(0)
        advance(partition, upto)
        if upto == 40:
            partition._db.compact_range(None, None)
        partition.close()


def killed(folder: Path) -> None:
    """As above, and killed in a later session, after its buffer was written once."""
    closed(folder)
    partition = store_in(folder).open(0)
    at = offset_of(partition)
    partition.close()
    run_writer(folder, at + 20)


def killed_at_first(folder: Path) -> None:
    """Killed in the session that made it, after two of its buffers were written."""
    run_writer(folder, 55)


STATES = {make.__name__: make for make in (closed, killed, killed_at_first)}


@pytest.fixture(scope="module", params=STATES)
def template(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    # Buffers are written in the background: on a busy machine, the writer may be killed before.
    for _ in range(20):
        STATES[request.param](folder)
        if sum(path.suffix == ".sst" for path in files_of(folder)) >= 2:
            return folder
        shutil.rmtree(folder)
    raise AssertionError("the writer was always killed before its buffers were written")


def files_of(folder: Path) -> list[Path]:
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


def verdict(folder: Path) -> str:
    """Open the store, and tell what came of it."""
    # As in a new process: else blocks that undamaged copies have left in the cache would be read instead of the files.
    rocksdb._memory = None
    store = store_in(folder)
    try:
        partition = store.open(0)
    except StoreCorruptedError:
        store.destroy(0)
        return "corrupted"
    try:
        at = offset_of(partition)
        model = MODELS[at]
        keys = [b"\x01key-%04d" % number for number in range(KEYS)]
        assert dict(partition.scan(b"", None)) == model, f"at {at}"
        assert partition.get_many(keys) == [model.get(key) for key in keys]
        # And it goes on from there, over merges of files and another opening.
        advance(partition, at + 5)
        partition.close()
        partition = store.open(0)
        assert dict(partition.scan(b"", None)) == MODELS[at + 5]
    except StoreCorruptedError:
        partition.close()
        store.destroy(0)
        return "corrupted when read"
    partition.close()
    return f"at {at}"


def positions(size: int, count: int, rng: random.Random) -> list[int]:
    if size <= count:
        return list(range(size))
    places = [0, size // 2, size - 1, 1, size - 2, *(rng.randrange(size) for _ in range(count - 5))]
    return sorted(set(places[:count]))


def damages(path: Path, rng: random.Random) -> Iterator[tuple[str, Callable[[Path], object]]]:
    """Every kind of damage of one file."""
    data = path.read_bytes()

    def rewritten(changed: bytes) -> Callable[[Path], object]:
        return lambda target: target.write_bytes(changed)

    yield "deleted", Path.unlink
    yield "emptied", rewritten(b"")
    for at in positions(len(data), POSITIONS, rng):
        flipped = bytearray(data)
        flipped[at] ^= 1 << rng.randrange(8)
        yield f"flipped at {at}", rewritten(bytes(flipped))
        yield f"cut at {at}", rewritten(data[:at])
        blanked = bytearray(data)
        blanked[at : at + 64] = bytes(len(blanked[at : at + 64]))
        yield f"blanked at {at}", rewritten(bytes(blanked))
    yield "longer", rewritten(data + b"\x00\x01\x02")


def test_damage_of_any_file(template: Path, tmp_path: Path) -> None:
    rng = random.Random(7)
    verdicts: dict[str, dict[str, int]] = {}
    undamaged = verdict(shutil.copytree(template, tmp_path / "undamaged"))
    for name in files_of(template):
        kind = name.name.split("-")[0] if "." not in name.name else name.suffix
        for damage, act in damages(template / name, rng):
            folder = tmp_path / "copy"
            shutil.copytree(template, folder)
            act(folder / name)
            try:
                result = verdict(folder)
            except Exception as error:
                raise AssertionError(f"{template.name}: {name.name} {damage}") from error
            counts = verdicts.setdefault(kind, {})
            counts[result] = counts.get(result, 0) + 1
            shutil.rmtree(folder)
    print(template.name, dict(sorted(verdicts.items())))
    assert sum(sum(counts.values()) for counts in verdicts.values()) > 14 * POSITIONS
    # What only developers of RocksDB read, or what it makes again, is not damage.
    for kind in ("LOG", "LOCK", "IDENTITY", "OPTIONS"):
        assert not any(result.startswith("corrupted") for result in verdicts.get(kind, {})), kind
    if template.name.startswith("closed"):
        # Nothing is lost without being noticed after a clean end.
        assert all(
            result == undamaged or result.startswith("corrupted") for counts in verdicts.values() for result in counts
        )


def test_the_templates_hold_what_they_should(template: Path) -> None:
    names = [path.name for path in files_of(template)]
    assert sum(name.endswith(".sst") for name in names) >= 2
    assert "CURRENT" in names


def test_stale_copies(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    copies = []
    for upto in range(10, OFFSETS, 10):
        partition = store_in(folder).open(0)
        advance(partition, upto)
        with contextlib.suppress(shutil.Error):  # a file was merged and deleted meanwhile
            copies.append((upto, shutil.copytree(folder, tmp_path / f"running-{upto}")))
        partition.close()
        copies.append((upto, shutil.copytree(folder, tmp_path / f"closed-{upto}")))
    for upto, copy in copies:
        result = verdict(copy)
        if copy.name.startswith("closed"):
            assert result == f"at {upto}", copy.name
        elif not result.startswith("corrupted"):
            # What was in the write buffer is missing, and nothing else.
            assert int(result[3:]) <= upto


def test_files_of_an_older_copy(tmp_path: Path) -> None:
    """A backup that was restored in part: each single file of an older state, in a newer one."""
    old, new = tmp_path / "old", tmp_path / "new"
    for folder, upto in ((old, 50), (new, 50), (new, OFFSETS)):
        partition = store_in(folder).open(0)
        advance(partition, upto)
        partition.close()
    for name in files_of(old):
        folder = tmp_path / "mixed"
        shutil.copytree(new, folder)
        shutil.copy(old / name, folder / name)
        try:
            result = verdict(folder)
        except Exception as error:
            raise AssertionError(name.name) from error
        assert result in (f"at {OFFSETS}", "corrupted"), name.name
        shutil.rmtree(folder)


def write_for_long(partition: StorePartition) -> None:
    for offset in range(30, 2_000):
        partition.write(list(changes_at(offset).items()), stamp_at(offset + 1))
        assert len(list(partition.scan(b"", None))) > 0


def test_damage_shows_at_a_later_write(tmp_path: Path) -> None:
    """A file that is damaged while the store is open, and merged later."""
    partition = store_in(tmp_path).open(0)
    advance(partition, 30)
    partition.close()
    for path in tmp_path.rglob("*.sst"):
        data = bytearray(path.read_bytes())
        data[len(data) // 3] ^= 0xFF
        path.write_bytes(bytes(data))
    partition = store_in(tmp_path).open(0)
    with pytest.raises(StoreCorruptedError, match="totals"):
        write_for_long(partition)
    # What was damaged refuses to be used, and lets the directory go.
    with pytest.raises(Exception, match="until it is reopened"):
        partition.get(b"a")
    store_in(tmp_path).destroy(0)
    partition.close()
