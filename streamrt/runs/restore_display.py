"""The progress of restores, for people."""

import logging
import sys
from collections.abc import Iterable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from streamrt.runtime.report import RestoredPart
from streamrt.topology import TaskId

__all__ = ["RestoreDisplay"]

logger = logging.getLogger("streamrt")


class RestoreDisplay:
    """Shows the progress of restores: bars with the remaining time on a terminal, log lines elsewhere."""

    def __init__(self) -> None:
        self._bars: Progress | None = None
        self._ids: dict[tuple[TaskId, str], TaskID] = {}
        self._offsets: dict[tuple[TaskId, str], int] = {}

    def update(self, parts: Iterable[tuple[tuple[TaskId, str], RestoredPart]]) -> None:
        """Show the progress of some stores."""
        for name, part in parts:
            # A later slice continues the earlier one, but counts from 0 again.
            before = self._offsets.get(name, 0)
            done, total = before + part.done, before + part.total
            self._offsets[name] = done
            if part.total == 0:
                continue
            task, store = name
            if not sys.stderr.isatty():
                share = 100 if part.finished else 100 * done // max(1, total)
                logger.info("restoring store %r of %s: %d %% of %d changelog offsets", store, task, share, total)
                continue
            bars = self._start_display()
            if name not in self._ids:
                self._ids[name] = bars.add_task(f"restoring {store!r} of {task}", total=total)
            bars.update(self._ids[name], completed=total if part.finished else done, total=total)

    def close(self) -> None:
        """Release the terminal."""
        if self._bars is not None:
            self._bars.stop()

    def _start_display(self) -> Progress:
        if self._bars is None:
            self._bars = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self._bars.start()
        return self._bars
