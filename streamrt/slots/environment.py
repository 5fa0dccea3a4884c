"""The seam between resident tasks and the system that runs their processes: Spark, or this machine."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

from streamrt.connectors.sinks.spark import DataFrameFactory
from streamrt.kafka import ConnectionConfig
from streamrt.slots.resident_task import RunResident
from streamrt.slots.worker_link import LinkListener, TaskLink
from streamrt.slots.worker_process import SharedText

__all__ = ["SlotEnvironment", "SlotJob"]


class SlotJob(Protocol):
    """The work of all slots, until it is stopped or fails."""

    error: Exception | None
    """Why it failed; None while it runs and if it did not fail."""

    @property
    def done(self) -> bool:
        """Whether it is over."""

    def wait(self, timeout_s: float) -> bool:
        """Wait until it is over; return whether it is."""

    def cancel(self) -> None:
        """Kill its processes."""


class SlotEnvironment(Protocol):
    """Gives tasks their processes, and restarts those that die."""

    @property
    def name(self) -> str:
        """The environment in messages, such as "Spark"."""

    @property
    def slots(self) -> int:
        """Number of tasks that can run at the same time."""

    @property
    def lack_of_slots(self) -> str:
        """Why tasks may not begin, and what to do, for a warning."""

    @property
    def session(self) -> DataFrameFactory | None:
        """Makes Spark DataFrames; None where there are none."""

    @property
    def is_local(self) -> bool:
        """Whether all slots are on this machine."""

    @property
    def find_directory(self) -> Callable[[], Path]:
        """Returns, in a process of a slot, a directory that the processes of a machine share; it can be pickled."""

    def share_text(self, text: str) -> SharedText:
        """Give a text with secrets to the processes of all slots."""

    def open_listener(self, serve: Callable[[TaskLink], None]) -> LinkListener:
        """Listen for tasks; see `LinkListener`."""

    def start_job(self, description: str, work: RunResident, count: int) -> SlotJob:
        """Run the tasks of the slots 0 to `count` - 1."""

    def leave_group(
        self, connection: ConnectionConfig, java_options: Mapping[str, str], group: str, instance_ids: Iterable[str]
    ) -> None:
        """Remove static members from a group. A failure is only logged: the session timeout has the same effect later."""

    def explain_error(self, error: Exception) -> str:
        """Return the sentence that says why work has failed."""
