"""Closes open files of a file sink that are old enough, if no commit does."""

import logging
import threading
import time
from collections.abc import Callable

from streamrt.connectors.failures import PassingError
from streamrt.connectors.file_sinks.file_commits import FileCommits, OpenFile
from streamrt.connectors.file_sinks.rolling import Rolling

__all__ = ["FileCloser"]

logger = logging.getLogger("streamrt.connectors")

_LONGEST_LOOK_S = 10.0


class FileCloser:
    """A thread that closes files. Commits of the task go on meanwhile: the second of the two tries again.

    Args:
        commits: transactions of the thread.
        rolling: the limits; None closes all files.
        sink: name of the sink.
    """

    def __init__(self, commits: FileCommits, rolling: Rolling | None, sink: str) -> None:
        self._commits = commits
        self._rolling = rolling
        self._sink = sink
        self._names: set[str] = set()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        limits = [limit for limit in (rolling.max_age, rolling.max_idle) if limit] if rolling else [1.0]
        self._look_s = min(_LONGEST_LOOK_S, *(limit / 4 for limit in limits))

    def watch(self, name: str) -> None:
        """Look at the open files of an object from now on, until there are none.

        Args:
            name: name of the object of a position.
        """
        with self._lock:
            self._names.add(name)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._close_until_ended, name="streamrt-file-closer", daemon=True
                )
                self._thread.start()

    def close(self) -> None:
        """End the thread, and close all files. Errors are logged: the next process closes what is left."""
        self._stopped.set()
        thread = self._thread
        if thread is not None:
            thread.join()
        self._close_files(lambda file: True)

    def _close_until_ended(self) -> None:
        while not self._stopped.wait(self._look_s):
            with self._lock:
                looked = set(self._names)
            closed = looked - self._close_files(self._is_due)
            with self._lock:
                # A commit may have opened files since; in that case, its name is watched again.
                self._names -= closed
                if not self._names:
                    self._thread = None
                    return

    def _is_due(self, file: OpenFile) -> bool:
        return self._rolling is None or self._rolling.is_due(file, time.time_ns() // 1_000_000)

    def _close_files(self, is_due: Callable[[OpenFile], bool]) -> set[str]:
        """Close files; return the names of objects that have open ones."""
        with self._lock:
            names = set(self._names)
        try:
            return self._commits.close_files(sorted(names), is_due)
        except PassingError as error:
            logger.info("the sink %s closes files later: %s", self._sink, error)
        except Exception as error:  # noqa: BLE001 - the next commit of the task also meets it
            logger.warning("the sink %s cannot close its files: %s", self._sink, error)
        return names
