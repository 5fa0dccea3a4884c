"""What the control server knows of its application."""

import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from streamrt.config import ApplicationConfig
from streamrt.kafka import ConnectionConfig
from streamrt.kafka.token import Offsets
from streamrt.runtime.driver.checkpoints import Checkpoint
from streamrt.runtime.driver.definition import ApplicationDefinition
from streamrt.runtime.driver.lag import LagSampler
from streamrt.runtime.driver.lifecycle import ApplicationStatus
from streamrt.runtime.driver.progress import Progress, ProgressSnapshot
from streamrt.runtime.driver.stats import ApplicationStats
from streamrt.runtime.driver.stored_state import StateAnswer, StoreListing
from streamrt.topology import Topology

__all__ = ["Controlled", "Inside", "installed_version"]


class Controlled(Protocol):
    """The public part of `Application` that the server uses."""

    @property
    def status(self) -> ApplicationStatus:
        """The state."""

    @property
    def desired_status(self) -> ApplicationStatus:
        """The wanted state."""

    @property
    def status_since(self) -> datetime:
        """When the state began."""

    @property
    def error(self) -> BaseException | None:
        """The error that has ended it."""

    @property
    def paused_topics(self) -> frozenset[str]:
        """The topics that are not read."""

    @property
    def config(self) -> ApplicationConfig:
        """The settings."""

    @property
    def topology(self) -> Topology:
        """The operators."""

    def describe(self) -> str:
        """Return the operators as text."""

    def progress(self) -> ProgressSnapshot:
        """Return the progress."""

    def stats(self, timeout: float = 5.0) -> ApplicationStats:
        """Return the numbers."""

    def wait_for(self, token: Offsets | str, timeout: float | None = 60.0) -> None:
        """Wait until everything up to a token is processed."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has ended."""

    def wait_for_idle(
        self, idle_interval: float = 5.0, timeout: float | None = 600.0, poll_interval: float = 0.2
    ) -> None:
        """Wait until everything is processed, and nothing comes."""

    def wait_for_completion(
        self, until: Offsets | str | None = None, stop: bool = False, timeout: float | None = None
    ) -> None:
        """Wait until the sources have ended, and everything is processed."""

    def pause(self, topic: str | None = None, timeout: float | None = 30.0) -> None:
        """Pause."""

    def resume(self, topic: str | None = None, timeout: float | None = 30.0) -> None:
        """Resume."""

    def pause_source(self, name: str) -> None:
        """Pause a source."""

    def resume_source(self, name: str) -> None:
        """Resume a source."""

    def stop(self, fail: bool = False, wait: bool = False, timeout: float | None = None) -> None:
        """Stop."""

    def restart(self, timeout: float | None = None) -> None:
        """Stop and start."""

    def checkpoint(self, wait: bool = True, timeout: float | None = 300.0) -> Checkpoint:
        """Commit."""

    def checkpoint_status(self, number: int) -> Checkpoint:
        """Return a checkpoint."""

    def state_stores(self) -> list[StoreListing]:
        """Return the stores."""

    def state_key_of_text(self, store: str, topic: str | None, text: str, form: str) -> Any:
        """Return a message key from text."""

    def query_state(
        self,
        store: str,
        key: Any,
        state_key: Any = ...,
        *,
        topic: str | None = None,
        partition: int | None = None,
        from_ms: int | None = None,
        to_ms: int | None = None,
        limit: int = ...,
        cursor: str | None = None,
        timeout: float = 10.0,
    ) -> StateAnswer:
        """Return the state of a message key."""

    def scan_state(
        self,
        store: str,
        partition: int = 0,
        *,
        topic: str | None = None,
        prefix: str | bytes | None = None,
        start: str | bytes | None = None,
        end: str | bytes | None = None,
        limit: int = 100,
        cursor: str | None = None,
        timeout: float = 10.0,
    ) -> StateAnswer:
        """Return the state of several message keys."""


@dataclass(frozen=True)
class Inside:
    """What the server shows of an application besides its public part.

    Attributes:
        definition: the application's topics, sources and operators.
        connection: the connection to Kafka.
        progress: returns the progress of the current or last run.
        lag: how far the group is behind, and which partitions make no progress.
    """

    definition: ApplicationDefinition
    connection: ConnectionConfig
    progress: Callable[[], Progress]
    lag: LagSampler


def installed_version() -> str:
    """Return the version of StreamRT; empty if it runs from a source tree that is not installed."""
    try:
        return importlib.metadata.version("streamrt")
    except importlib.metadata.PackageNotFoundError:
        return ""
