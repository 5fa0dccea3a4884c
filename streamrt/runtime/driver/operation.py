"""What callers can do with an application while it runs: `Application` derives from `OperatedApplication`."""

import abc
import logging
import threading
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, TypeVar

from streamrt.config import require_amounts
from streamrt.errors import (
    ApplicationStateError,
    ApplicationTimeoutError,
    StreamRTError,
)
from streamrt.kafka.token import Offsets
from streamrt.runtime.driver.checkpoints import Checkpoint, Checkpoints
from streamrt.runtime.driver.definition import ApplicationDefinition, Environment
from streamrt.runtime.driver.exits import SignalSafeEvent, StoppedError, StopRequest, stop_on_signals
from streamrt.runtime.driver.lifecycle import ApplicationStatus, LifeCycle, RunControl, require_active, without_secrets
from streamrt.runtime.driver.paused import moved_topics, unread_topics
from streamrt.runtime.driver.progress import Progress
from streamrt.runtime.driver.restart import Failures, RestartPolicy, require_policy
from streamrt.runtime.driver.until import Until, require_until
from streamrt.topics import Topic
from streamrt.topology import Topology

__all__ = ["OperatedApplication"]

logger = logging.getLogger("streamrt")

_LOOK_S = 0.2

R = TypeVar("R")


class OperatedApplication(abc.ABC):
    """The life cycle of an application: start, pause, resume, checkpoint and stop, from any thread.

    All of it concerns this process. Other instances of the application in the same consumer group have their own states.
    """

    _definition: ApplicationDefinition
    _environment: Environment

    def __init__(self) -> None:
        # The run ends itself by the first one, too; only callers and signals set the second one.
        self._stop = SignalSafeEvent()
        self._stop_request = StopRequest(self._stop)
        self._discard = SignalSafeEvent()
        self._progress = Progress()
        self._life = LifeCycle()
        self._control = RunControl(self._life, lambda: self.topology.sources)
        self._thread: threading.Thread | None = None
        self._raised: BaseException | None = None
        # Held from the stop to the start of a restart, which `wait` outlasts.
        self._restarting = threading.Lock()
        self._restarts = 0
        self._until: Until | None = None
        self._checkpoints = Checkpoints(self._life, self._control, self._committed)

    @property
    @abc.abstractmethod
    def topology(self) -> Topology:
        """The operators defined so far, as data."""

    @abc.abstractmethod
    def _require_runnable(self) -> None:
        """Raise if there is nothing to run."""

    @abc.abstractmethod
    def _open_control(self) -> None:
        """Listen at the control address of the application, if it has one, as long as the process lives."""

    @abc.abstractmethod
    def _execute(self, *, restart: RestartPolicy | None = None) -> Any:
        """Process records until the application is stopped; called after `_begin_run`."""

    # -- States --------------------------------------------------------------------------------------------------

    @property
    def status(self) -> ApplicationStatus:
        """The state of the application in this process."""
        status = self._life.status
        return ApplicationStatus.STOPPING if status.is_active and self._stop.is_set() else status

    @property
    def status_since(self) -> datetime:
        """When the current state began, in UTC."""
        return self._life.since

    @property
    def desired_status(self) -> ApplicationStatus:
        """The state that callers have asked for last: RUNNING, PAUSED or STOPPED."""
        if not (self._life.status.is_active or self._life.restarting) or self._stop_request.is_set():
            return ApplicationStatus.STOPPED
        return ApplicationStatus.PAUSED if self._control.all_paused else ApplicationStatus.RUNNING

    @property
    def error(self) -> BaseException | None:
        """The error that has ended the last run, also before a restart; None if it was stopped, or it runs again."""
        return self._life.error

    @property
    def paused_topics(self) -> frozenset[str]:
        """The input topics that are not read, those included that are read together with one that was paused."""
        return unread_topics(self.topology, self._control.wish)

    # -- Start and end -------------------------------------------------------------------------------------------

    def start(
        self,
        paused: bool = False,
        timeout: float | None = None,
        restart: RestartPolicy | None = None,
        until: Until | None = None,
    ) -> None:
        """Run the application in another thread; return when it processes records, or is paused.

        In the main thread, signals that come meanwhile stop it, as in `run()`; it is stopped then when this returns.

        Args:
            paused: start paused: partitions are assigned, and nothing is processed before `resume()`.
            timeout: seconds to wait for the start; None waits as long as it takes. The start goes on after a timeout.
            restart: whether and how it is started again after a failure; None ends it with the failure.
            until: "end" lets it end by itself, as `run(until="end")` does; `wait()` returns then.

        Raises:
            ApplicationStateError: if it is already running, or will be restarted.
            ApplicationTimeoutError: after the timeout.
            StreamRTError: the error that ended the start.

        Example:
            ```python
            app.start()
            app.checkpoint()
            app.stop(wait=True)
            ```
        """
        if timeout is not None:
            require_amounts("start", timeout=timeout)
        require_policy("start", restart)
        require_until("start", until)
        self._require_runnable()
        if not self._life.status.is_active and not self._life.restarting:
            # A stop while nothing runs is not meant for this start.
            self._stop_request.clear()
            self._discard.clear()
            self._open_control()
        self._begin_run(paused=paused, until=until)
        self._raised = None
        self._thread = threading.Thread(target=self._run_in_thread, args=[restart], name="streamrt-application")
        active = (ApplicationStatus.RUNNING, ApplicationStatus.PAUSED)
        deadline = None if timeout is None else time.monotonic() + timeout
        with stop_on_signals(self._stop_request):
            self._thread.start()
            while self._thread.is_alive():
                left = _LOOK_S if deadline is None else min(_LOOK_S, deadline - time.monotonic())
                if left <= 0:
                    raise ApplicationTimeoutError(
                        f"the application is still {self.status.value} after {timeout:g} s: the start goes on; "
                        "wait longer, or stop() it"
                    )
                if self._life.wait(active, left):
                    return
        self._raise_failure()

    def _run_in_thread(self, restart: RestartPolicy | None) -> None:
        try:
            self._execute(restart=restart)
        except BaseException as raised:  # noqa: BLE001 - raised by wait() and start()
            self._raised = error = without_secrets(raised)
            logger.error("the application has ended: %s: %s", type(error).__name__, error)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the application that `start()` has begun has ended. In the main thread, signals stop it as in `run()`.

        A restart by another thread, or by the control server, is no end.

        Args:
            timeout: seconds; None for no limit.

        Returns:
            Whether it has ended.

        Raises:
            StreamRTError: the error that ended it.
        """
        if timeout is not None:
            require_amounts("wait", timeout=timeout)
        thread = self._thread
        if thread is None:
            return True
        deadline = None if timeout is None else time.monotonic() + timeout
        with stop_on_signals(self._stop_request):
            while thread.is_alive() or self._restarting.locked():
                left = _LOOK_S if deadline is None else min(_LOOK_S, deadline - time.monotonic())
                if left <= 0:
                    return False
                if thread.is_alive():
                    thread.join(left)
                else:
                    self._life.wait([ApplicationStatus.RUNNING, ApplicationStatus.PAUSED], left)
                thread = self._thread or thread
        self._raise_failure()
        return True

    def stop(self, fail: bool = False, wait: bool = False, timeout: float | None = None) -> None:
        """Stop the application at the next boundary, with outputs durable and offsets committed.

        A stop before `run()` ends that run at once. Without `wait`, it returns at once, and handlers of signals may call it.

        Args:
            fail: do not commit; the next run processes all records since the last commit again.
            wait: wait until it has ended, and raise no error that ended it.
            timeout: seconds to wait; None for no limit.

        Raises:
            ApplicationTimeoutError: if it has not ended in time. It is still being stopped.
        """
        if timeout is not None:
            require_amounts("stop", timeout=timeout)
        if fail:
            self._discard.set()
        self._stop_request.set()
        ended = (ApplicationStatus.STOPPED, ApplicationStatus.FAILED)
        if wait and not self._life.wait(ended, timeout):
            raise ApplicationTimeoutError(f"the application has not stopped within {timeout:g} s; it is still stopping")
        if wait and self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def restart(self, timeout: float | None = None) -> None:
        """Stop the application, with a commit, and start it in another thread, paused if it was paused.

        Args:
            timeout: seconds for each of the two; None for no limit.

        Raises:
            ApplicationTimeoutError: if it has not stopped or started in time.
            StreamRTError: the error that ended the start.
        """
        with self._restarting:
            paused = self.desired_status is ApplicationStatus.PAUSED
            if self._life.status.is_active or self._life.restarting:
                self.stop(wait=True, timeout=timeout)
            self.start(paused, timeout, until=self._until)

    # -- Pause ---------------------------------------------------------------------------------------------------

    def pause(self, topic: str | Topic | None = None, timeout: float | None = 30.0) -> None:
        """Stop reading, and return when everything that was read is processed or put back, and committed.

        Partitions are kept, other members of the group take nothing over, and watermarks wait. Sources go on: see
        `pause_source`. A topic that is merged with others, by `concat` or a join, pauses with them, because its order with
        them would be lost.

        Args:
            topic: an input topic; None for all, and for everything below `group_by`.
            timeout: seconds to wait; None for no limit. After a timeout, the pause still comes.

        Raises:
            ApplicationStateError: if the application is not running.
            ApplicationTimeoutError: after the timeout.
            StreamRTError: the error that ended the application meanwhile.

        Example:
            ```python
            app.pause("orders")
            app.resume("orders")
            ```
        """
        self._wait_for(self._control.pause, self._topics("pause", topic), "paused", timeout)

    def resume(self, topic: str | Topic | None = None, timeout: float | None = 30.0) -> None:
        """Read again after a pause. Without a pause, nothing happens.

        Args:
            topic: an input topic; None for all.
            timeout: seconds to wait; None for no limit.

        Raises:
            ApplicationStateError: if the application is not running.
            ApplicationTimeoutError: after the timeout.
            StreamRTError: the error that ended the application meanwhile.
        """
        self._wait_for(self._control.resume, self._topics("resume", topic), "resumed", timeout)

    def pause_source(self, name: str) -> None:
        """Stop a source after it has flushed. If it runs in one instance, another instance may take it over.

        Args:
            name: name of the source.

        Raises:
            ArgumentValueError: if there is no such source.
        """
        self._definition.sources.pause(name)

    def resume_source(self, name: str) -> None:
        """Start a source again that was paused: one with state goes on where it was, others begin as at a start.

        Args:
            name: name of the source.

        Raises:
            ArgumentValueError: if there is no such source.
            SourceError: if it cannot be started.
        """
        self._definition.sources.resume(name)

    # -- Checkpoints ---------------------------------------------------------------------------------------------

    def checkpoint(self, wait: bool = True, timeout: float | None = 300.0) -> Checkpoint:
        """Commit everything that was processed, now instead of at the next interval.

        Kafka has the truth about an application: outputs, state and offsets that are committed. So nothing else is to be
        saved.

        Args:
            wait: wait for the commit.
            timeout: seconds to wait; None for no limit.

        Returns:
            The checkpoint. A second call before the first one is done returns the same checkpoint.

        Raises:
            ApplicationStateError: if the application is not running.
            ApplicationTimeoutError: after the timeout.
        """
        self._require_active("checkpoint")
        number = self._checkpoints.request()
        if wait and not self._checkpoints.wait(number, timeout) and self._life.status.is_active:
            raise ApplicationTimeoutError(f"checkpoint {number} is not done after {timeout:g} s: it goes on")
        return self._checkpoints.status(number)

    def checkpoint_status(self, number: int) -> Checkpoint:
        """Return what is known about a checkpoint of the current or last run.

        Args:
            number: its number.
        """
        return self._checkpoints.status(number)

    def _committed(self) -> Offsets:
        positions = self._progress.snapshot().positions
        config, admin = self._definition.config, self._environment.admin
        found = admin.committed(config.consumer_group, list(positions), timeout=config.request_timeout)
        known = {partition: offset for partition, offset in found.items() if offset is not None}
        ids = admin.topic_ids({partition.topic for partition in known}, timeout=config.request_timeout)
        return Offsets(known, {topic: each for topic, each in ids.items() if each is not None})

    # -- For run() -----------------------------------------------------------------------------------------------

    def _begin_run(self, *, paused: bool = False, until: Until | None = None) -> None:
        """Enter STARTING.

        Args:
            paused: whether the run begins paused.
            until: whether the run ends by itself.

        Raises:
            ApplicationStateError: if the application is already running, or will be restarted.
        """
        self._life.begin()
        self._restarts, self._until = 0, until
        self._checkpoints.forget()
        self._control.reset(paused=paused)

    def _attempts(self, policy: RestartPolicy | None, attempt: Callable[[], R]) -> R | None:
        """Run the application, and run it again after failures; called after `_begin_run`.

        Args:
            policy: whether to run it again.
            attempt: runs it once.

        Returns:
            The result of the last attempt; None if the application was stopped before it processed records.
        """
        failures = Failures(policy)
        with stop_on_signals(self._stop_request):
            while True:
                try:
                    result = attempt()
                except StoppedError:
                    logger.info("stopped before any record was processed")
                    self._end_run(None)
                    return None
                except BaseException as raised:
                    error = without_secrets(raised)
                    self._note_source_errors()
                    delay = None if self._stop_request.is_set() else failures.delay_after(raised, self._life.steady_s)
                    if delay is None or not self._restart_after(error, delay):
                        self._end_run(error)
                        if error is raised:
                            raise
                    else:
                        continue
                else:
                    self._end_run(None)
                    return result
                # Outside of the handler, because the context would be the error with the secret.
                raise error

    def _note_source_errors(self) -> None:
        """Remember why sources have failed: the next attempt starts them again."""
        for name, source in self._definition.sources.stats().items():
            if source.error:
                self._progress.meters.recent.note_error(("source", name), source.error)

    def _restart_after(self, error: BaseException, delay: float) -> bool:
        """Enter FAILED, and STARTING after a delay; return False if the application is stopped meanwhile."""
        self._life.end(error, restarts=True)
        # A stop stays set for the caller, which ends the run.
        if self._stop_request.wait(delay):
            logger.info("stopped before the restart")
            self._life.give_up()
            return False
        self._restarts += 1
        self._stop_request.renew()
        self._discard.clear()
        self._checkpoints.forget()
        # Before the state changes, so that no caller's wish takes the start for over.
        self._control.again()
        self._life.begin(again=True)
        return True

    def _end_run(self, error: BaseException | None) -> None:
        self._stop_request.clear()
        self._discard.clear()
        if self._life.status.is_active:
            self._life.end(error)

    # -- Helpers -------------------------------------------------------------------------------------------------

    def _topics(self, what: str, topic: str | Topic | None) -> Iterable[str]:
        """Return the names of the topics to pause or to resume."""
        return moved_topics(what, topic, self.topology, self._control.wish)

    def _wait_for(self, change: Any, topics: Iterable[str], done: str, timeout: float | None) -> None:
        if timeout is not None:
            require_amounts("timeout", timeout=timeout)
        self._require_active("be " + done)
        number = change(topics)
        if self._control.wait(number, timeout):
            return
        if self._life.status.is_active:
            raise ApplicationTimeoutError(
                f"the application is not {done} after {timeout:g} s: a task is still at work; it will be {done} later"
            )
        if self._life.error is not None:
            raise self._life.error
        raise ApplicationStateError(f"the application was stopped before it was {done}")

    def _require_active(self, what: str) -> None:
        require_active(self.status, what)

    def _raise_failure(self) -> None:
        if self._raised is not None:
            if isinstance(self._raised, StreamRTError):
                # A second raise would add the frames of this one to its stack trace.
                raise self._raised.with_traceback(None)
            raise self._raised
