"""Transactions of file sinks, with crashes, failures and suspended processes at each of their steps."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from streamrt.connectors import PositionChange, SinkPosition
from streamrt.connectors.failures import PassingError
from streamrt.connectors.file_sinks.file_commits import FileCommits, OpenFile, OtherPositionError, Plan
from streamrt.connectors.file_sinks.file_stores import LocalStore
from tests.connectors.file_sinks import visible


class CrashedError(BaseException):
    """Stands for the death of the process."""


class CrashingStore(LocalStore):
    """A store whose process dies before its nth change, or after it, and whose answer is then lost."""

    def __init__(self, root: Path, survived: int, *, lost_answer: bool = False, error: Any = CrashedError) -> None:
        super().__init__(root)
        self.left, self._lost_answer, self._error = survived, lost_answer, error

    def remove(self, name: str) -> None:
        self._change(lambda: LocalStore.remove(self, name))

    def put(self, name: str, content: bytes) -> None:
        self._change(lambda: LocalStore.put(self, name, content))

    def publish(self, name: str, files: Any, content: bytes, token: Any) -> Any:
        # As in object stores, the parts are separate.
        for file, data in files:
            self.put(file, data)
        return self._change(lambda: LocalStore.publish(self, name, (), content, token))

    def _change(self, change: Any) -> Any:
        self.left -= 1
        if self.left < 0 and not self._lost_answer:
            raise self._error
        result = change()
        if self.left < 0:
            self.left = 1_000
            raise self._error
        return result


PLACES = ("_p/0", "_p/1", "_p/2")
FILES = (("t/0/a", b"values of 0"), ("t/2/b", b"values of 2"))
BEFORE = {name: SinkPosition(5, 1) for name in PLACES}
AFTER = {name: SinkPosition(9, 2, "id", "replay") for name in PLACES}
CHANGES = {name: PositionChange(BEFORE[name], AFTER[name]) for name in PLACES}
FIRST = {name: PositionChange(None, BEFORE[name]) for name in PLACES}
# Two objects pending, the decision, two objects settled, two files, the end.
STEPS = 8


def planned(files: Sequence[tuple[str, bytes]]) -> Callable[[tuple[OpenFile, ...]], Plan]:
    return lambda opened: Plan(tuple(files), (), opened)


def positions_of(commits: FileCommits) -> dict[str, Any]:
    return {name: commits.position(name) for name in PLACES}


@pytest.mark.parametrize("survived", range(STEPS + 1))
def test_a_crash_at_any_step_leaves_all_of_a_transaction_or_nothing(tmp_path: Path, survived: int) -> None:
    FileCommits(LocalStore(tmp_path)).write(
        "first", {name: PositionChange(None, BEFORE[name]) for name in PLACES}, planned(())
    )
    store = CrashingStore(tmp_path, survived)
    try:
        FileCommits(store).write("second", CHANGES, planned(FILES))
    except CrashedError:
        assert survived < STEPS
    else:
        assert survived == STEPS
    # A reader of any position completes or abandons it.
    commits = FileCommits(LocalStore(tmp_path))
    decided = commits.position(PLACES[survived % 3]) == AFTER[PLACES[0]]
    assert decided == (survived >= 3)
    assert positions_of(commits) == (AFTER if decided else BEFORE)
    assert visible(tmp_path) == ([name for name, _ in FILES] if decided else [])
    for name, content in FILES if decided else ():
        assert (tmp_path / name).read_bytes() == content
    # Someone who has removed the files does not find them again.
    for name, _ in FILES if decided else ():
        (tmp_path / name).unlink()
    assert positions_of(FileCommits(LocalStore(tmp_path))) == (AFTER if decided else BEFORE)
    assert visible(tmp_path) == []


@pytest.mark.parametrize("survived", range(STEPS))
@pytest.mark.parametrize("lost_answer", [False, True])
def test_a_transaction_can_be_repeated_after_a_failure(tmp_path: Path, survived: int, lost_answer: bool) -> None:
    commits = FileCommits(CrashingStore(tmp_path, survived, lost_answer=lost_answer, error=PassingError("broken")))
    changes = {name: PositionChange(None, AFTER[name]) for name in PLACES}
    with pytest.raises(PassingError):
        commits.write("first", changes, planned(FILES))
    commits._store.left = 1_000  # type: ignore[attr-defined]
    commits.write("first", changes, planned(FILES))
    assert positions_of(FileCommits(LocalStore(tmp_path))) == AFTER
    assert visible(tmp_path) == [name for name, _ in FILES]


@pytest.mark.parametrize("survived", range(STEPS))
def test_a_process_that_was_suspended_at_any_step_moves_nothing_back(tmp_path: Path, survived: int) -> None:
    FileCommits(LocalStore(tmp_path)).write(
        "first", {name: PositionChange(None, BEFORE[name]) for name in PLACES}, planned(())
    )

    class SuspendedStore(CrashingStore):
        def _change(self, change: Any) -> Any:
            self.left -= 1
            if self.left == -1:
                # The successor finishes what there is, and goes on.
                successor = FileCommits(LocalStore(tmp_path))
                found = positions_of(successor)
                for name in PLACES:
                    later = SinkPosition(20, found[name].version + 1)
                    successor.write(f"successor {name}", {name: PositionChange(found[name], later)}, planned(()))
            return change()

    zombie = FileCommits(SuspendedStore(tmp_path, survived))
    with pytest.raises(OtherPositionError):
        zombie.write("second", CHANGES, planned(FILES))
    versions = {position.version for position in positions_of(FileCommits(LocalStore(tmp_path))).values()}
    assert versions == ({3} if survived >= 3 else {2})
    assert visible(tmp_path) == ([name for name, _ in FILES] if survived >= 3 else [])
