"""A forked process never frees, closes or uses an object that it inherits."""

import subprocess
import sys
import weakref
from pathlib import Path

import pytest

from streamrt.errors import InvalidOperationError
from streamrt.forks import ForkGuard, in_this_process, never_free_in_forks
from tests.support import forked_end

EXIT_HANDLERS = """
import ctypes, os, signal, sys
from streamrt.forks import never_free_in_forks

libc = ctypes.CDLL(None)
libc.on_exit(libc.pause, None)
held = never_free_in_forks(frozenset({1}))
child = os.fork()
if not child:
    signal.alarm(60)
    print("written by Python,")
    libc.printf(b"and by C\\n")
    sys.exit(7)
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
"""In it, a library has an exit handler that never returns in a process without its threads."""


class Freed:
    """Touches a file when it is freed."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __del__(self) -> None:
        self._path.touch()


def test_objects_are_freed_by_their_own_process(tmp_path: Path) -> None:
    ended = tmp_path / "ended"
    held = [never_free_in_forks(Freed(ended))]
    assert forked_end(held.clear) == 0
    assert not ended.exists()
    held.clear()
    assert ended.exists()


def test_finalizers_run_in_their_own_process(tmp_path: Path) -> None:
    ended, owner = tmp_path / "ended", Freed(tmp_path / "freed")
    finalizer = weakref.finalize(owner, in_this_process(ended.touch))
    assert forked_end(finalizer) == 0
    assert not ended.exists()
    finalizer()
    assert ended.exists()


def test_a_guard_refuses_other_processes() -> None:
    guard = ForkGuard()

    def use() -> None:
        assert not guard.is_own
        with pytest.raises(
            InvalidOperationError, match=r"the socket was made in process \d+, and this one .* was forked"
        ):
            guard.require_own("the socket")

    guard.require_own("the socket")
    assert guard.is_own
    assert forked_end(use) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="other C libraries have no on_exit")
def test_exit_handlers_of_the_parent_do_not_run_in_forked_processes() -> None:
    ended = subprocess.run([sys.executable, "-c", EXIT_HANDLERS], capture_output=True, text=True, timeout=300)
    assert (ended.returncode, ended.stdout, ended.stderr) == (7, "written by Python,\nand by C\n", "")
