"""The life cycle of an application, and what its callers want of a run.

```
            start(paused=True)                       pause()
STOPPED --> STARTING --> RESTORING --> PAUSED <----------------> RUNNING
   ^           |            |            |        resume()          |
   |           +------------+------------+--------------------------+--> STOPPING --> FAILED (start() is allowed again)
   +---------------------------------------------------------------------'
```

Threads of callers change the request (`RunControl`); the thread of the run fulfils it and says so. A request has a number,
and counts as fulfilled when everything that was processed before is committed, and no task reads a paused topic.
"""

import enum
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timezone

from streamrt.errors import ApplicationStateError
from streamrt.secret import concealed, stand_in

__all__ = ["ApplicationStatus", "LifeCycle", "RunControl", "RunRequest", "require_active", "without_secrets"]

logger = logging.getLogger("streamrt")

_LOOK_S = 0.2


class ApplicationStatus(enum.Enum):
    """The state of an application in this process.

    Attributes:
        STOPPED: not running: never started, or stopped.
        STARTING: Spark starts, topics are checked, the consumer group forms.
        RESTORING: stores are restored from their changelogs before the first record.
        RUNNING: records are processed as they come.
        PAUSED: nothing is processed, and everything that was is committed. Partitions are kept.
        STOPPING: work is committed or dropped, and resources are released.
        FAILED: an error has ended it; `Application.error` has the error.
        UNREACHABLE: only of `streamrt.control.Client`: the application does not answer.
    """

    STOPPED = "stopped"
    STARTING = "starting"
    RESTORING = "restoring"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"
    FAILED = "failed"
    UNREACHABLE = "unreachable"

    @property
    def successors(self) -> "frozenset[ApplicationStatus]":
        """States that may follow this one."""
        return _SUCCESSORS[self]

    @property
    def is_active(self) -> bool:
        """Whether the application is being run."""
        return self not in (ApplicationStatus.STOPPED, ApplicationStatus.FAILED, ApplicationStatus.UNREACHABLE)


_S = ApplicationStatus
_SUCCESSORS = {
    _S.STOPPED: frozenset({_S.STARTING}),
    _S.STARTING: frozenset({_S.RESTORING, _S.RUNNING, _S.PAUSED, _S.STOPPING}),
    _S.RESTORING: frozenset({_S.RUNNING, _S.PAUSED, _S.STOPPING}),
    _S.RUNNING: frozenset({_S.PAUSED, _S.STOPPING}),
    _S.PAUSED: frozenset({_S.RUNNING, _S.STOPPING}),
    _S.STOPPING: frozenset({_S.STOPPED, _S.FAILED}),
    _S.FAILED: frozenset({_S.STARTING}),
    # No state of a run.
    _S.UNREACHABLE: frozenset(),
}


class LifeCycle:
    """The state of an application; safe to use from any thread.

    Example:
        >>> life = LifeCycle()
        >>> life.begin()
        >>> life.move(ApplicationStatus.RUNNING)
        >>> life.status, life.error
        (<ApplicationStatus.RUNNING: 'running'>, None)
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._status = ApplicationStatus.STOPPED
        self._since = datetime.now(timezone.utc)
        self._started: datetime | None = None
        self._ready_at: float | None = None
        self._restarting = False
        self._error: BaseException | None = None

    @property
    def status(self) -> ApplicationStatus:
        """The current state."""
        return self._status

    @property
    def since(self) -> datetime:
        """When the current state began, in UTC."""
        return self._since

    @property
    def started(self) -> datetime | None:
        """When the current or last run began, in UTC; None before the first one."""
        return self._started

    @property
    def steady_s(self) -> float:
        """Seconds since the start of the current run was over; 0 if it is not."""
        return 0.0 if self._ready_at is None else time.monotonic() - self._ready_at

    @property
    def restarting(self) -> bool:
        """Whether it has failed and will be started again."""
        return self._restarting

    @property
    def error(self) -> BaseException | None:
        """The error of the last run that failed; None once the application starts again."""
        return self._error

    def begin(self, *, again: bool = False) -> None:
        """Enter STARTING.

        Args:
            again: whether this is the restart that `end` was told of.

        Raises:
            ApplicationStateError: if the application is already running, or will be restarted.
        """
        with self._changed:
            if self._restarting and not again:
                raise ApplicationStateError(
                    "the application has failed and will be restarted: stop() it before you start it"
                )
            if self._status.is_active:
                hint = ": resume() continues it" if self._status is ApplicationStatus.PAUSED else ""
                raise ApplicationStateError(f"the application is already running; it is {self._status.value}{hint}")
            self._error = None
            self._restarting = False
            self._ready_at = None
            self._enter_status(ApplicationStatus.STARTING)
            self._started = self._since

    def move(self, status: ApplicationStatus) -> None:
        """Enter a state, unless it is the current one.

        Raises:
            ApplicationStateError: if this state cannot follow the current one.
        """
        with self._changed:
            if status is self._status:
                return
            if status not in self._status.successors:
                raise ApplicationStateError(f"the application is {self._status.value} and cannot become {status.value}")
            self._enter_status(status)

    def end(self, error: BaseException | None = None, *, restarts: bool = False) -> None:
        """Enter STOPPED, or FAILED with an error.

        Args:
            error: what has ended it.
            restarts: whether it will be started again.
        """
        with self._changed:
            if self._status is not ApplicationStatus.STOPPING:
                self._enter_status(ApplicationStatus.STOPPING)
            self._error = None if error is None else without_secrets(error)
            self._restarting = restarts
            self._enter_status(ApplicationStatus.STOPPED if error is None else ApplicationStatus.FAILED)

    def give_up(self) -> None:
        """Stay FAILED: the restart that `end` was told of does not come."""
        with self._changed:
            self._restarting = False
            self._changed.notify_all()

    def wait(self, statuses: Collection[ApplicationStatus], timeout: float | None = None) -> bool:
        """Wait until the application is in one of these states.

        Args:
            statuses: the states.
            timeout: seconds; None for no limit.

        Returns:
            Whether it is.
        """
        with self._changed:
            return self._changed.wait_for(lambda: self._status in statuses, timeout)

    def _enter_status(self, status: ApplicationStatus) -> None:
        self._status, self._since = status, datetime.now(timezone.utc)
        if self._ready_at is None and status in (ApplicationStatus.RUNNING, ApplicationStatus.PAUSED):
            self._ready_at = time.monotonic()
        logger.debug("the application is %s", status.value)
        self._changed.notify_all()


def require_active(status: ApplicationStatus, what: str) -> None:
    """Raise if an application does not run.

    Args:
        status: its state.
        what: what it was to do, for the error.

    Raises:
        ApplicationStateError: if it does not run.
    """
    if not status.is_active or status is ApplicationStatus.STOPPING:
        raise ApplicationStateError(f"the application is {status.value} and cannot {what}: start() it first")


def without_secrets(error: BaseException) -> BaseException:
    """Return an error that ends a run, with masked secrets: it reaches the log, `Application.error` and the control server.

    Args:
        error: the error; its messages are changed in place.

    Returns:
        The error, or another one of its nearest class of StreamRT if it shows secrets that cannot be masked in place.
    """
    return concealed(error) or stand_in(error)


@dataclass(frozen=True)
class RunRequest:
    """The request of an application's callers for a run.

    Attributes:
        number: number of the request; each change adds 1. A request with a higher number includes a commit.
        paused: names of the topics that must not be read.
    """

    number: int = 0
    paused: frozenset[str] = frozenset()


class RunControl:
    """The request of an application's callers, and how far the run has fulfilled it; safe to use from any thread.

    Args:
        life: the life cycle, which follows the run_request.
        topics: returns the names of all topics that the application reads, repartition topics included.

    Example:
        >>> life = LifeCycle()
        >>> life.begin()
        >>> control = RunControl(life, lambda: ["orders"])
        >>> number = control.pause(["orders"])
        >>> control.mark_fulfilled(control.run_request)
        >>> control.wait(number, timeout=1), life.status
        (True, <ApplicationStatus.PAUSED: 'paused'>)
    """

    def __init__(self, life: LifeCycle, topics: Callable[[], Iterable[str]]) -> None:
        self._life = life
        self._topics = topics
        self._changed = threading.Condition()
        self._run_request = RunRequest()
        self._fulfilled = 0
        self._failed: dict[int, str] = {}
        self._works = False

    @property
    def run_request(self) -> RunRequest:
        """The current run_request."""
        return self._run_request

    @property
    def pending(self) -> bool:
        """Whether the run has not yet fulfilled the current run_request."""
        return self._fulfilled < self._run_request.number

    @property
    def all_paused(self) -> bool:
        """Whether no topic is to be read."""
        topics = frozenset(self._topics())
        return bool(topics) and self._run_request.paused >= topics

    # -- For callers -------------------------------------------------------------------------------------------------

    def pause(self, topics: Iterable[str]) -> int:
        """RunRequest that topics are not read; return the number of the run_request."""
        with self._changed:
            return self._change_paused(self._run_request.paused.union(topics))

    def resume(self, topics: Iterable[str]) -> int:
        """RunRequest that topics are read again; return the number of the run_request."""
        with self._changed:
            return self._change_paused(self._run_request.paused.difference(topics))

    def commit(self) -> int:
        """RunRequest that everything processed is committed; return the number of the run_request."""
        with self._changed:
            return self._change_paused(self._run_request.paused)

    def wait(self, number: int, timeout: float | None, goes_on: Callable[[], bool] = lambda: False) -> bool:
        """Wait until a request is fulfilled, or the run is over.

        Args:
            number: number of the run_request.
            timeout: seconds; None for no limit.
            goes_on: returns whether another run follows, which fulfils it.

        Returns:
            Whether the request was fulfilled.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while self._fulfilled < number and (self._life.status.is_active or goes_on()):
                left = _LOOK_S if deadline is None else min(_LOOK_S, deadline - time.monotonic())
                if left <= 0:
                    break
                self._changed.wait(left)
            return self._fulfilled >= number

    def is_fulfilled(self, number: int) -> bool:
        """Return whether a request is fulfilled."""
        return self._fulfilled >= number

    def reset(self, paused: Iterable[str] = ()) -> None:
        """Begin a run.

        Args:
            paused: the topics that are paused from the start on.
        """
        with self._changed:
            self._works = False
            self._change_paused(frozenset(paused))

    def again(self) -> None:
        """Begin a run after a failure: what was paused is paused again."""
        with self._changed:
            self._works = False
            self._change_paused(self._run_request.paused)

    # -- For the run -------------------------------------------------------------------------------------------------

    def restores(self) -> None:
        """Note that stores are restored before the first record."""
        if self._life.status is ApplicationStatus.STARTING:
            self._life.move(ApplicationStatus.RESTORING)

    def works(self) -> None:
        """Note that the start is over."""
        with self._changed:
            self._works = True
            self._update_status()

    def mark_fulfilled(self, run_request: RunRequest) -> None:
        """Note that a request is fulfilled: what was processed is committed, and no task reads a paused topic."""
        with self._changed:
            if run_request.number > self._fulfilled:
                self._fulfilled = run_request.number
                self._update_status()
                self._changed.notify_all()

    def _change_paused(self, paused: frozenset[str]) -> int:
        self._run_request = RunRequest(self._run_request.number + 1, paused)
        if not self.all_paused:
            # Without waiting for the run: records may be processed from now on.
            self._update_status()
        return self._run_request.number

    def _update_status(self) -> None:
        """Set the state of the application to what the run does."""
        if not self._life.status.is_active or self._life.status is ApplicationStatus.STOPPING:
            return
        if self.all_paused:
            if self._fulfilled >= self._run_request.number:
                self._works = True
                self._life.move(ApplicationStatus.PAUSED)
        elif self._works:
            self._life.move(ApplicationStatus.RUNNING)
