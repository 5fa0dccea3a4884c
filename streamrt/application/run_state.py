"""State that the calls of an application share with its run."""

import threading
from collections.abc import Callable, Collection, Iterable
from datetime import datetime

from streamrt.errors import ApplicationStateError
from streamrt.kafka.completion_token import Offsets
from streamrt.records import TopicPartition
from streamrt.runtime.driver.life.checkpoints import Checkpoints
from streamrt.runtime.driver.life.exits import SignalSafeEvent, StopRequest
from streamrt.runtime.driver.life.lifecycle import ApplicationStatus, LifeCycle, RunControl, require_active
from streamrt.runtime.driver.life.paused import unread_topics
from streamrt.runtime.driver.life.restart import RestartPolicy
from streamrt.runtime.driver.life.until import Until
from streamrt.runtime.driver.observation.progress import Progress
from streamrt.topology import Topology

__all__ = ["RunState"]


class RunState:
    """The state of an application in this process: its life cycle, what callers want of its run, and what the run reports.

    Args:
        topology: returns the operators of the application.
        committed: returns the committed offsets of partitions: those of this instance.

    Attributes:
        stop: ends the current run, which also sets it itself.
        stop_request: the stop that callers or signals have requested.
        discard: set if uncommitted work must be processed again.
        progress: what the current or last run reports.
        life: the life cycle.
        control: what callers want of the run.
        checkpoints: the commits that callers have requested.
        restarting: held from the stop to the start of a restart, which waits outlast.
        restarts: how often the current run has failed and begun again.
        until: "end" if the run ends by itself.
        policy: whether and how it is started again after a failure.
    """

    def __init__(
        self,
        topology: Callable[[], Topology],
        committed: Callable[[Collection[TopicPartition]], Offsets],
    ) -> None:
        self._topology = topology
        self.stop = SignalSafeEvent()
        self.stop_request = StopRequest(self.stop)
        self.discard = SignalSafeEvent()
        self.progress = Progress()
        self.life = LifeCycle()
        self.control = RunControl(self.life, lambda: topology().sources)
        self.checkpoints = Checkpoints(self.life, self.control, lambda: committed(self.progress.snapshot().positions))
        self.restarting = threading.Lock()
        self.restarts = 0
        self.until: Until | None = None
        self.policy: RestartPolicy | None = None

    @property
    def status(self) -> ApplicationStatus:
        """The state of the application."""
        status = self.life.status
        return ApplicationStatus.STOPPING if status.is_active and self.stop.is_set() else status

    @property
    def status_since(self) -> datetime:
        """When the current state began, in UTC."""
        return self.life.since

    @property
    def desired_status(self) -> ApplicationStatus:
        """The state that callers have asked for last: RUNNING, PAUSED or STOPPED."""
        if not self.is_used or self.stop_request.is_set():
            return ApplicationStatus.STOPPED
        return ApplicationStatus.PAUSED if self.control.all_paused else ApplicationStatus.RUNNING

    @property
    def paused_topics(self) -> frozenset[str]:
        """The input topics that are not read."""
        return unread_topics(self._topology(), self.control.run_request)

    @property
    def is_used(self) -> bool:
        """Whether the application runs, or will be restarted after a failure."""
        return self.life.status.is_active or self.life.restarting

    def require_active(self, what: str) -> None:
        """Raise if the application does not run.

        Args:
            what: what it was to do.

        Raises:
            ApplicationStateError: if it does not run, and is not being restarted.
        """
        # The run that a restart begins fulfils what callers want meanwhile.
        if not self.restarting.locked():
            require_active(self.status, what)

    def require_queried(self) -> None:
        """Raise if the application has no state to query.

        Raises:
            ApplicationStateError: if it does not run.
        """
        status = self.status
        if not status.is_active or status is ApplicationStatus.STOPPING:
            raise ApplicationStateError(
                f"the application is {status.value}, and has no state to query: start() it first"
            )

    def require_offline(self, what: str) -> None:
        """Raise if the application runs in this process.

        Args:
            what: what was to be done with it.

        Raises:
            ApplicationStateError: if it runs, or will be restarted.
        """
        if self.is_used:
            raise ApplicationStateError(f"the application is {self.status.value} and cannot be {what}: stop() it first")

    def begin(
        self,
        *,
        paused: Iterable[str] = (),
        until: Until | None = None,
        policy: RestartPolicy | None = None,
        follows: bool = False,
    ) -> None:
        """Enter STARTING.

        Args:
            paused: the topics that are paused from the start on.
            until: whether the run ends by itself.
            policy: whether and how it is started again after a failure.
            follows: whether it fulfils what callers wanted of the last run: pauses and checkpoints.

        Raises:
            ApplicationStateError: if the application is already running, or will be restarted.
        """
        # Before the state changes, so that no caller's request takes the start for over.
        if follows:
            self.control.again()
        self.life.begin()
        self.restarts, self.until, self.policy = 0, until, policy
        if not follows:
            self.checkpoints.forget()
            self.control.reset(paused)

    def begin_again(self) -> None:
        """Enter STARTING after a failure."""
        self.restarts += 1
        self.stop_request.renew()
        self.discard.clear()
        self.checkpoints.forget()
        # Before the state changes, so that no caller's request takes the start for over.
        self.control.again()
        self.life.begin(again=True)

    def forget_stop(self, but_after: int | None = None) -> None:
        """Take back what was requested of the last run.

        Args:
            but_after: number of a request to stop; if there was a later one, it stays. By default, none stays.
        """
        self.stop_request.clear(but_after)
        self.discard.clear()

    def end(self, error: BaseException | None) -> None:
        """Enter STOPPED, or FAILED with an error."""
        self.forget_stop()
        if self.life.status.is_active:
            self.life.end(error)
