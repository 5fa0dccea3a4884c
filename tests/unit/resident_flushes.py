"""A process that dies with its stores open: `python -m tests.unit.resident_flushes DIRECTORY HOW`; see `main`."""

import os
import sys
from pathlib import Path

from tests.support import wait_until
from tests.unit.resident_world import FIRST, FIRST_TASK, World, counting


def main(folder: Path, how: str) -> None:
    """Commit, let what is due be flushed, commit once more, and die without closing anything.

    Args:
        folder: directory of the stores.
        how: "by time": five minutes pass after the first commit; "after a pause": the last commit comes after hours without
            any; "never": nothing is due.
    """
    hours_ms = 12 * 3_600_000
    world = World(counting, partitions=1, disk=folder, longest_absence_ms=hours_ms)
    world.clients._now = lambda: int(world.clock.seconds * 1_000) + hours_ms
    world.begin(FIRST)

    def listed() -> int:
        """Return the size of the list of files: RocksDB adds one to it when it is complete, and knows no others."""
        return sum(path.stat().st_size for path in folder.rglob("MANIFEST-*"))

    def commit(value: int, *, flushed: bool = False) -> None:
        before = listed()
        world.put(FIRST, value)
        world.commit()
        if flushed:
            wait_until(lambda: listed() > before, what=f"the file of commit {value}")

    def pass_time(seconds: int) -> None:
        before = listed()
        world.clock.seconds += seconds
        world.steps(2)
        wait_until(lambda: listed() > before, what="what was due")

    # A store that is open, without anything in it yet.
    world.until(lambda: world.is_open(FIRST_TASK))
    # The first commit of a store that is new is flushed at once.
    commit(1, flushed=True)
    commit(2)
    if how == "by time":
        pass_time(301)
        commit(3)
    elif how == "after a pause":
        pass_time(4 * 3_600)
        world.clock.seconds += 4 * 3_600
        commit(3, flushed=True)
        commit(4)
    print(world.clients.offsets[FIRST], flush=True)
    os._exit(9)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
