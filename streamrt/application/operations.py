"""Starts, pauses, stops and commits an application, from any thread."""

import logging
import threading
import time
from collections.abc import Callable, Iterable

from streamrt.application.execution import Execution
from streamrt.application.run_state import RunState
from streamrt.config import require_amounts
from streamrt.errors import ApplicationStateError, ApplicationTimeoutError, StreamRTError, reference_of
from streamrt.runtime.driver.life.checkpoints import Checkpoint
from streamrt.runtime.driver.life.exits import stop_on_signals
from streamrt.runtime.driver.life.lifecycle import ApplicationStatus, without_secrets
from streamrt.runtime.driver.life.paused import moved_topics
from streamrt.runtime.driver.life.restart import RestartPolicy, require_policy
from streamrt.runtime.driver.life.until import Until, require_until
from streamrt.runtime.driver.starting.definition import ApplicationDefinition
from streamrt.topics import Topic

__all__ = ["Operations"]

logger = logging.getLogger("streamrt")

_LOOK_S = 0.2
_SHORT_S = 0.02


class Operations:
    """The life of an application in this process: start, pause, resume, checkpoint and stop, from any thread.

    Args:
        definition: the application.
        state: its state.
        execution: runs it.
        listen: opens its control server, if it has one, as long as the process lives.
    """

    def __init__(
        self, definition: ApplicationDefinition, state: RunState, execution: Execution, listen: Callable[[], None]
    ) -> None:
        self._definition = definition
        self._state = state
        self._execution = execution
        self._listen = listen
        self._thread: threading.Thread | None = None
        self._raised: BaseException | None = None

    # -- Start and end -------------------------------------------------------------------------------------------

    def start(
        self,
        paused: bool = False,
        timeout: float | None = None,
        restart: RestartPolicy | None = None,
        until: Until | None = None,
    ) -> None:
        """See `Application.start`."""
        if timeout is not None:
            require_amounts("start", timeout=timeout)
        require_policy("start", restart)
        require_until("start", until)
        self._execution.require_runnable()
        if not self._state.is_used:
            # A stop while nothing runs is not meant for this start.
            self._state.forget_stop()
            self._listen()
        self._state.begin(paused=self._definition.topology.sources if paused else (), until=until, policy=restart)
        self._start_thread(timeout)

    def _start_thread(self, timeout: float | None) -> None:
        """Run the application in a thread, after `RunState.begin`, and wait for the end of the start."""
        self._raised = None
        self._thread = threading.Thread(target=self._run_in_thread, name="streamrt-application")
        active = (ApplicationStatus.RUNNING, ApplicationStatus.PAUSED)
        deadline = None if timeout is None else time.monotonic() + timeout
        with stop_on_signals(self._state.stop_request):
            self._thread.start()
            while self._thread.is_alive():
                left = _LOOK_S if deadline is None else min(_LOOK_S, deadline - time.monotonic())
                if left <= 0:
                    raise ApplicationTimeoutError(
                        f"the application is still {self._state.status.value} after {timeout:g} s: the start goes on; "
                        "wait longer, or stop() it"
                    )
                if self._state.life.wait(active, left):
                    return
        self._raise_failure()

    def _run_in_thread(self) -> None:
        try:
            self._execution.run()
        except BaseException as raised:  # noqa: BLE001 - raised by wait() and start()
            self._raised = error = without_secrets(raised)
            logger.error("the application has ended: %s: %s%s", type(error).__name__, error, reference_of(error, "; "))

    def wait(self, timeout: float | None = None) -> bool:
        """See `Application.wait`."""
        if timeout is not None:
            require_amounts("wait", timeout=timeout)
        thread = self._thread
        if thread is None:
            return True
        deadline = None if timeout is None else time.monotonic() + timeout
        with stop_on_signals(self._state.stop_request):
            while thread.is_alive() or self._state.restarting.locked():
                left = _LOOK_S if deadline is None else min(_LOOK_S, deadline - time.monotonic())
                if left <= 0:
                    return False
                if thread.is_alive():
                    thread.join(left)
                else:
                    self._state.life.wait([ApplicationStatus.RUNNING, ApplicationStatus.PAUSED], left)
                thread = self._thread or thread
        self._raise_failure()
        return True

    def stop(self, fail: bool = False, wait: bool = False, timeout: float | None = None) -> None:
        """See `Application.stop`."""
        if timeout is not None:
            require_amounts("stop", timeout=timeout)
        if fail:
            self._state.discard.set()
        self._state.stop_request.set()
        deadline = None if timeout is None else time.monotonic() + timeout
        if wait:
            self._await_stop(timeout)
            # A restart between its two halves begins a run that is stopped already.
            while self._state.restarting.locked() and (deadline is None or time.monotonic() < deadline):
                time.sleep(_SHORT_S)

    def _await_stop(self, timeout: float | None) -> None:
        if not self._state.life.wait((ApplicationStatus.STOPPED, ApplicationStatus.FAILED), timeout):
            raise ApplicationTimeoutError(f"the application has not stopped within {timeout:g} s; it is still stopping")
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def restart(self, timeout: float | None = None) -> None:
        """See `Application.restart`."""
        if timeout is not None:
            require_amounts("restart", timeout=timeout)
        # Before a restart that is under way: a stop that comes meanwhile is later than this call.
        last_stop = self._state.stop_request.number
        with self._state.restarting, stop_on_signals(self._state.stop_request):
            follows = self._state.is_used
            if follows and self._state.stop_request.by_signal:
                raise ApplicationStateError("a signal stops the application, so it is not restarted")
            if follows and self._state.stop_request.number == last_stop:
                self._state.stop_request.make_way()
                self._await_stop(timeout)
            if self._state.stop_request.number != last_stop:
                raise ApplicationStateError("the application was stopped before it was restarted")
            self._execution.require_runnable()
            # A stop that comes between the last look and the start stays, and ends the run that begins.
            self._state.forget_stop(but_after=last_stop)
            self._listen()
            self._state.begin(until=self._state.until, policy=self._state.policy, follows=follows)
            self._start_thread(timeout)

    # -- Pause ---------------------------------------------------------------------------------------------------

    def pause(self, topic: str | Topic | None = None, timeout: float | None = 30.0) -> None:
        """See `Application.pause`."""
        self._wait_for(self._state.control.pause, self._topic_names("pause", topic), "paused", timeout)

    def resume(self, topic: str | Topic | None = None, timeout: float | None = 30.0) -> None:
        """See `Application.resume`."""
        self._wait_for(self._state.control.resume, self._topic_names("resume", topic), "resumed", timeout)

    def pause_source(self, name: str) -> None:
        """See `Application.pause_source`."""
        self._definition.sources.pause(name)

    def resume_source(self, name: str) -> None:
        """See `Application.resume_source`."""
        self._definition.sources.resume(name)

    # -- Checkpoints ---------------------------------------------------------------------------------------------

    def checkpoint(self, wait: bool = True, timeout: float | None = 300.0) -> Checkpoint:
        """See `Application.checkpoint`."""
        self._state.require_active("checkpoint")
        number = self._state.checkpoints.request()
        if (
            wait
            and not self._state.checkpoints.wait(number, timeout, self._state.restarting.locked)
            and self._state.life.status.is_active
        ):
            raise ApplicationTimeoutError(f"checkpoint {number} is not done after {timeout:g} s: it goes on")
        return self._state.checkpoints.status(number)

    def checkpoint_status(self, number: int) -> Checkpoint:
        """See `Application.checkpoint_status`."""
        return self._state.checkpoints.status(number)

    # -- Helpers -------------------------------------------------------------------------------------------------

    def _topic_names(self, what: str, topic: str | Topic | None) -> Iterable[str]:
        """Return the names of the topics to pause or to resume."""
        return moved_topics(what, topic, self._definition.topology, self._state.control.run_request)

    def _wait_for(
        self, change: Callable[[Iterable[str]], int], topics: Iterable[str], done: str, timeout: float | None
    ) -> None:
        if timeout is not None:
            require_amounts("timeout", timeout=timeout)
        self._state.require_active("be " + done)
        number = change(topics)
        if self._state.control.wait(number, timeout, self._state.restarting.locked):
            return
        if self._state.life.status.is_active:
            raise ApplicationTimeoutError(
                f"the application is not {done} after {timeout:g} s: a task is still at work; it will be {done} later"
            )
        if self._state.life.error is not None:
            raise self._state.life.error
        raise ApplicationStateError(f"the application was stopped before it was {done}")

    def _raise_failure(self) -> None:
        if self._raised is not None:
            if isinstance(self._raised, StreamRTError):
                # A second raise would add the frames of this one to its stack trace.
                raise self._raised.with_traceback(None)
            raise self._raised
