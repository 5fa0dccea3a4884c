"""The state directory: whose it is, and which part a copy of the application has."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from streamrt.errors import InvalidOperationError, StateError, StoreVersionError
from streamrt.runtime.driver.housekeeping.state_directory import (
    StateDirectory,
    clear,
    group_directory,
    instance_id,
    part_of_state_dir,
)
from streamrt.state import RocksDBStore
from streamrt.state.identity import Stamp, StoreIdentity

STAMP = Stamp(StoreIdentity("shop", "orders", 0, "default", None, None, 1), 1, None, None, 0)

GROUP, CLUSTER = "shop", "cluster-1"


def take(root: Path) -> StateDirectory:
    return StateDirectory.acquire(root, GROUP, CLUSTER)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.rows("PF-L13")
def test_instances_have_parts_of_their_own(tmp_path: Path) -> None:
    parts = [take(tmp_path) for _ in range(3)]
    assert [part.number for part in parts] == [0, 1, 2]
    assert [part.path for part in parts] == [tmp_path / GROUP / str(number) for number in range(3)]
    parts[1].release()
    again = take(tmp_path)
    assert again.number == 1
    for part in (parts[0], parts[2], again):
        part.release()


def test_a_process_that_died_has_no_part_any_more(tmp_path: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path\n"
        "from streamrt.runtime.driver.housekeeping.state_directory import StateDirectory\n"
        f"part = StateDirectory.acquire(Path(sys.argv[1]), {GROUP!r}, {CLUSTER!r})\n"
        "print(part.number, flush=True); sys.stdin.read(); os._exit(9)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "0\n"
        part = take(tmp_path)
        assert part.number == 1
        part.release()
        other.stdin.close()
        other.wait(60)
    part = take(tmp_path)
    assert part.number == 0
    part.release()


def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    part = take(tmp_path)
    root = tmp_path / GROUP
    assert mode(root) == 0o700
    assert {path.name: mode(path) for path in root.iterdir()} == {"0.lock": 0o600, "owner.json": 0o600}
    part.release()


def test_all_directories_are_closed_to_others(tmp_path: Path) -> None:
    """Those that are made, and those that a former version has left open."""
    state_dir = tmp_path / "new" / "state"
    part = take(state_dir)
    store = RocksDBStore("default", "orders", part.path)
    store.open(0).close()
    made = [tmp_path / "new", state_dir, *(path for path in state_dir.rglob("*") if path.is_dir())]
    assert [path.name for path in made[2:]] == [GROUP, "0", "orders", "default", "0"]
    assert {mode(path) for path in made} == {0o700}
    part.release()
    for path in made:
        path.chmod(0o755)
    part = take(state_dir)
    store.open(0).close()
    assert {mode(path) for path in made[1:]} == {0o700}
    # What lies above is not ours.
    assert mode(tmp_path / "new") == 0o755
    part.release()


def test_a_state_directory_with_other_things_stays_open(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    tmp_path.chmod(0o755)
    part = take(tmp_path)
    assert mode(tmp_path) == 0o755
    assert mode(tmp_path / GROUP) == 0o700
    part.release()


def test_a_link_to_a_state_directory_is_followed_and_closes_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real").chmod(0o755)
    (tmp_path / "link").symlink_to("real")
    part = take(tmp_path / "link")
    assert mode(tmp_path / "real") == 0o755
    assert mode(tmp_path / "real" / GROUP) == 0o700
    part.release()


def test_groups_cannot_leave_the_directory(tmp_path: Path) -> None:
    for group in ("..", ".", "../x", "/etc", "a/b", "a\x00b", "ü", "CON.", "x" * 60):
        directory = group_directory(tmp_path, group)
        assert directory.parent == tmp_path
        assert directory.name not in (".", "..")
    assert len({group_directory(tmp_path, group) for group in ("a.b", "a%2Eb", "a_b", "a b")}) == 4


@pytest.mark.parametrize(
    ("group", "cluster"), [("other", CLUSTER), (GROUP, "cluster-2")], ids=["application", "cluster"]
)
def test_the_directory_of_somebody_else_is_refused(tmp_path: Path, group: str, cluster: str) -> None:
    former = take(tmp_path)
    former.path.mkdir()
    former.release()
    owner = tmp_path / GROUP / "owner.json"
    owner.write_text(json.dumps({"format": 1, "group": group, "cluster": cluster}))
    with pytest.raises(StateError, match="belongs to the application"):
        take(tmp_path)
    # The lock was given back, so that the right owner is not kept out.
    StateDirectory.acquire(tmp_path / "elsewhere", GROUP, CLUSTER).release()
    owner.unlink()
    part = take(tmp_path)
    assert part.number == 0
    part.release()


def test_a_directory_without_state_changes_its_owner(tmp_path: Path) -> None:
    running = take(tmp_path)
    with pytest.raises(StateError, match="belongs to the application"):
        StateDirectory.acquire(tmp_path, GROUP, "cluster-2")
    running.release()
    StateDirectory.acquire(tmp_path, GROUP, "cluster-2").release()
    assert json.loads((tmp_path / GROUP / "owner.json").read_text())["cluster"] == "cluster-2"


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    take(tmp_path).release()
    (tmp_path / GROUP / "owner.json").write_text(json.dumps({"format": 2, "group": GROUP, "cluster": CLUSTER}))
    with pytest.raises(StoreVersionError, match="format 2"):
        take(tmp_path)


@pytest.mark.parametrize(
    "content",
    [b"", b'{"format": 1, "gro', b"\x00" * 60, b"\xff\xfe\x80", b"[]", b"null", b"{}", b'{"format": 1e999}', b'"x"'],
    ids=repr,
)
def test_a_torn_owner_is_written_again(tmp_path: Path, content: bytes) -> None:
    take(tmp_path).release()
    owner = tmp_path / GROUP / "owner.json"
    owner.write_bytes(content)
    take(tmp_path).release()
    assert json.loads(owner.read_text()) == {"format": 1, "group": GROUP, "cluster": CLUSTER}
    assert mode(owner) == 0o600


# -- Clearing --------------------------------------------------------------------------------------------------------


def test_clear_deletes_the_state_of_all_instances(tmp_path: Path) -> None:
    parts = [take(tmp_path), take(tmp_path)]
    for part in parts:
        (part.path / "store").mkdir(parents=True)
        (part.path / "store" / "data").write_text("x")
        part.release()
    other = StateDirectory.acquire(tmp_path, "other", CLUSTER)
    other.path.mkdir()
    clear(tmp_path, GROUP)
    assert not any(part.path.exists() for part in parts)
    assert not (tmp_path / GROUP / "owner.json").exists()
    assert other.path.exists()
    other.release()
    clear(tmp_path, GROUP)
    clear(tmp_path, "unknown")


def test_clear_refuses_while_an_instance_runs(tmp_path: Path) -> None:
    idle, running = take(tmp_path), take(tmp_path)
    for part in (idle, running):
        part.path.mkdir()
    idle.release()
    with pytest.raises(InvalidOperationError, match="in use by a running instance"):
        clear(tmp_path, GROUP)
    assert idle.path.exists()
    assert running.path.exists()
    running.release()
    clear(tmp_path, GROUP)
    assert not running.path.exists()


def test_clear_deletes_a_part_whose_lock_is_gone(tmp_path: Path) -> None:
    part = take(tmp_path)
    part.path.mkdir()
    part.release()
    (tmp_path / GROUP / "0.lock").unlink()
    clear(tmp_path, GROUP)
    assert not part.path.exists()


def test_clear_follows_no_links(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("x")
    take(tmp_path / "state").release()
    (tmp_path / "state" / GROUP / "7").symlink_to(precious)
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / GROUP).symlink_to(precious)
    clear(tmp_path / "state", GROUP)
    clear(tmp_path / "linked", GROUP)
    assert (precious / "file").exists()


# -- For as long as the application runs -------------------------------------------------------------------------------


def test_a_part_is_kept_while_the_context_lasts(tmp_path: Path) -> None:
    with part_of_state_dir(tmp_path, GROUP, CLUSTER, needed=True) as part:
        assert part is not None
        with part_of_state_dir(tmp_path, GROUP, CLUSTER, needed=True) as second:
            assert second is not None
            assert (part.number, second.number) == (0, 1)
            ids = {instance_id(tmp_path, GROUP, one) for one in (part, second)}
            assert len(ids) == 2
            assert None not in ids
    with part_of_state_dir(tmp_path, GROUP, CLUSTER, needed=True) as again:
        assert again is not None
        assert instance_id(tmp_path, GROUP, again) in ids
    assert instance_id(tmp_path, GROUP, None) is None


def test_a_directory_that_cannot_be_used_is_an_error_only_if_it_is_needed(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with part_of_state_dir(blocked, GROUP, CLUSTER, needed=False) as part:
        assert part is None
    with (
        pytest.raises(StateError, match="set state_dir to a local directory"),
        part_of_state_dir(blocked, GROUP, CLUSTER, needed=True),
    ):
        pass


def test_s7_nobody_else_may_read_the_files_of_a_store(tmp_path: Path) -> None:
    """Whatever the umask is: copies of the files keep their modes."""
    former = os.umask(0o022)
    try:
        for _ in range(2):
            partition = RocksDBStore("default", "orders", tmp_path / "state").open(0)
            assert modes(partition.path) == {0o600}
            partition.write([(b"\x01a", b"\x00one")], STAMP)
            partition.close()
            assert modes(partition.path) == {0o600}
    finally:
        os.umask(former)


def modes(directory: Path) -> set[int]:
    return {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir() if path.is_file()}
