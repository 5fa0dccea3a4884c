"""Slots without Spark: processes of this machine, for resident tasks."""

import itertools
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

import cloudpickle

from streamrt.errors import RunnerError
from streamrt.kafka import ConnectionConfig
from streamrt.kafka.membership.removal import remove_static_members
from streamrt.slots.fork_client import ForkServer, ProcessJob
from streamrt.slots.resident_task import RunResident
from streamrt.slots.runtime_dir import make_runtime_dir, remove_runtime_dir
from streamrt.slots.worker_link import LinkListener, TaskLink
from streamrt.slots.worker_process import HeldText

__all__ = ["ProcessSlots"]

logger = logging.getLogger("streamrt")


class ProcessSlots:
    """Gives resident tasks processes of this machine.

    Args:
        slots: number of tasks that can run at the same time.
        server: the process from which theirs are forked; closed at the end.

    Raises:
        RunnerError: if the directory for their sockets cannot be made.
    """

    lack_of_slots = "their processes are slow to start"
    session = None
    is_local = True

    def __init__(self, slots: int, server: ForkServer) -> None:
        self.slots = slots
        self.name = f"processes[{slots}]"
        self._numbers = itertools.count()
        self._server = server
        try:
            self._directory = make_runtime_dir()
        except OSError as error:
            raise RunnerError(f"the directory for the sockets of tasks cannot be made: {error}") from error

    @property
    def find_directory(self) -> Callable[[], Path]:
        """Returns a directory that all processes share."""
        return partial(Path, str(self._directory))

    def share_text(self, text: str) -> HeldText:
        """Give a text with secrets to the processes, which get it through a pipe."""
        return HeldText(text)

    def open_listener(self, serve: Callable[[TaskLink], None]) -> LinkListener:
        """Listen for tasks at a Unix socket."""
        return LinkListener(serve, directory=self._directory)

    def start_job(self, description: str, work: RunResident, count: int) -> ProcessJob:
        """Run the tasks of the slots 0 to `count` - 1, each in a process.

        Raises:
            RunnerError: if Python cannot be started.
        """
        logger.debug("starting %s", description)
        if not self._server.alive:
            self._server.close()
            self._server = ForkServer()
        return self._server.run(next(self._numbers), count, cloudpickle.dumps(work))

    def leave_group(
        self, connection: ConnectionConfig, java_options: Mapping[str, str], group: str, instance_ids: Iterable[str]
    ) -> None:
        """Remove static members from a group; see `remove_static_members`."""
        remove_static_members(connection, group, [*instance_ids])

    def explain_error(self, error: Exception) -> str:
        """Return the sentence that says why work has failed."""
        return str(error)

    def close(self) -> None:
        """End the fork server, and the processes that are left."""
        try:
            self._server.close()
        finally:
            remove_runtime_dir(self._directory)
