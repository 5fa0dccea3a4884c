"""Locks on files and directories."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from streamrt.common.file_lock import FileLock


def test_a_second_owner_waits_or_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "owner"
    first = FileLock.acquire(path)
    assert FileLock.try_acquire(path) is None
    acquired = threading.Event()

    def wait() -> None:
        with FileLock.acquire(path):
            acquired.set()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    assert not acquired.wait(0.05)
    first.close()
    assert acquired.wait(60)
    thread.join(10)
    last = FileLock.try_acquire(path)
    assert last is not None
    last.close()


def test_files_are_private_and_descriptors_are_not_inherited(tmp_path: Path) -> None:
    with FileLock.acquire(tmp_path / "private") as lock, FileLock.acquire(tmp_path / "open", mode=0o644) as other:
        assert os.fstat(lock.fileno()).st_mode & 0o777 == 0o600
        assert os.fstat(other.fileno()).st_mode & 0o777 == 0o644 & ~_umask()
        assert not os.get_inheritable(lock.fileno())
    with pytest.raises(ValueError, match="closed"):
        lock.fileno()
    lock.close()
    lock.release()


def test_directories_can_be_locked_and_links_be_refused(tmp_path: Path) -> None:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    (tmp_path / "link").symlink_to(tmp_path)
    with FileLock.acquire(tmp_path, flags):
        assert FileLock.try_acquire(tmp_path, flags) is None
    with pytest.raises(OSError, match="link"):
        FileLock.try_acquire(tmp_path / "link", flags)


def test_release_does_not_wait_for_a_process_that_inherited_the_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "owner"
    for release in (False, True):
        lock = FileLock.acquire(path)
        with subprocess.Popen(
            [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[lock.fileno()]
        ) as child:
            if release:
                lock.release()
            else:
                lock.close()
            found = FileLock.try_acquire(path)
            assert (found is not None) == release
            if found is not None:
                found.close()
            child.kill()


def test_a_killed_process_has_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "owner"
    program = (
        "import pathlib, sys; from streamrt.common.file_lock import FileLock;"
        "lock = FileLock.acquire(pathlib.Path(sys.argv[1])); print('locked', flush=True); input()"
    )
    command = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_with_path()) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"locked\n"
        assert FileLock.try_acquire(path) is None
        owner.send_signal(signal.SIGKILL)
    with FileLock.acquire(path):
        pass


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _with_path() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
