"""The start of an application without Spark."""

import threading
from collections.abc import Callable
from typing import Any

from typing_extensions import Self

from streamrt.runtime.driver.life.lifecycle import RunControl
from streamrt.runtime.driver.observation.progress import Progress
from streamrt.slots.fork_client import ForkServer
from streamrt.slots.process_slots import ProcessSlots
from streamrt.slots.startup import Startup

__all__ = ["ProcessStart"]


class ProcessStart:
    """The processes of an application, which has them for as long as the block lasts.

    Args:
        slots: number of tasks that can run at the same time.
        server: the process from which those of tasks are forked.
        group: the consumer group, for log messages.
        progress: receives what the start waits for.
        control: is told when the start is over.
    """

    def __init__(self, slots: int, server: ForkServer, group: str, progress: Progress, control: RunControl) -> None:
        self.startup = Startup(group, progress=progress, on_over=control.works)
        self._slots = slots
        self._server = server

    def __enter__(self) -> Self:
        self._environment = ProcessSlots(self._slots, self._server)
        return self

    def __exit__(self, *error: Any) -> None:
        self._environment.close()

    def wait(self, stop: threading.Event, meanwhile: Callable[[], None] | None = None) -> ProcessSlots:
        """Return the environment: processes begin to import modules while the application goes on."""
        return self._environment

    def update_figures(self) -> None:
        """Do nothing: there is no JVM whose memory could be shown."""
