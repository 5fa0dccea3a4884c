"""A forked process never frees, closes or uses an object that it inherits."""

import weakref
from pathlib import Path

import pytest

from streamrt.errors import InvalidOperationError
from streamrt.forks import ForkGuard, in_this_process, never_free_in_forks
from tests.support import forked_end


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
