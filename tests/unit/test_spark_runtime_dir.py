"""Directories of processes: private, and gone when the process is, however it ended."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streamrt.slots.runtime_dir import make_runtime_dir, remove_runtime_dir

LIVE = """
import os, sys
from pathlib import Path
from streamrt.slots.runtime_dir import make_runtime_dir
made = make_runtime_dir(Path(sys.argv[1]))
(made / "clients.json").write_text("secret")
print(made, flush=True)
sys.stdin.read()
"""


def test_a_directory_is_private_and_removed_by_whoever_made_it(tmp_path: Path) -> None:
    made = make_runtime_dir(tmp_path)
    assert list(tmp_path.iterdir()) == [made]
    assert made.name.startswith("streamrt-")
    assert made.stat().st_mode & 0o777 == 0o700
    descriptors = len(list(Path("/dev/fd").iterdir()))
    remove_runtime_dir(made)
    assert list(tmp_path.iterdir()) == []
    assert len(list(Path("/dev/fd").iterdir())) == descriptors - 1


@pytest.mark.slow
def test_what_a_killed_process_has_left_is_removed_by_the_next_one_and_nothing_else(tmp_path: Path) -> None:
    foreign = tmp_path / "streamrt-foreign"
    foreign.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", LIVE, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        theirs = Path(process.stdout.readline().strip())
        own = make_runtime_dir(tmp_path)
        assert (theirs / "clients.json").read_text() == "secret", "it lives"
        process.kill()
        process.wait()
    second = make_runtime_dir(tmp_path)
    assert set(tmp_path.iterdir()) == {foreign, own, second}
    for each in (own, second):
        remove_runtime_dir(each)


def test_s7_what_was_being_made_or_removed_when_its_process_was_killed(tmp_path: Path) -> None:
    old, new, foreign = tmp_path / ".streamrt-abcdefgh", tmp_path / "streamrt-12345678", tmp_path / "streamrt-mine"
    for each in (old, new, foreign, tmp_path / "streamrt-abc_efgh"):
        each.mkdir()
        (each / "local").write_text("secret")
    for each in (old, foreign, tmp_path / "streamrt-abc_efgh"):
        os.utime(each, (1, 1))
    (tmp_path / "streamrt-linked__").symlink_to(foreign)
    made = make_runtime_dir(tmp_path)
    # A new one may get its owner yet, and others are not ours.
    assert {each.name for each in tmp_path.iterdir()} == {made.name, new.name, foreign.name, "streamrt-linked__"}
    assert (foreign / "local").exists()
    remove_runtime_dir(made)
