"""Starts, pauses, stops and commits an application under test, and waits for it."""

from streamrt.application.run_state import RunState
from streamrt.errors import ApplicationTimeoutError
from streamrt.kafka.completion_token import Offsets
from streamrt.runtime.driver.life.checkpoints import Checkpoint
from streamrt.runtime.driver.life.completion import Completion, checked_token
from streamrt.runtime.driver.life.lifecycle import ApplicationStatus
from streamrt.runtime.driver.life.paused import moved_topics
from streamrt.runtime.driver.life.waits import why_late
from streamrt.testing.driver.record_processing import DriverExecution
from streamrt.topics import Topic
from streamrt.topology import Topology

__all__ = ["DriverOperations"]


class DriverOperations:
    """The life of an application under test. Each call has done its work when it returns.

    Args:
        declared: the operators of the application.
        state: its state.
        execution: processes its records.
    """

    def __init__(self, declared: Topology, state: RunState, execution: DriverExecution) -> None:
        self._declared = declared
        self._state = state
        self._execution = execution

    @property
    def desired_status(self) -> ApplicationStatus:
        """See `TopologyTestDriver.desired_status`."""
        # Unlike an application, one that has failed starts again with the next record.
        if self._state.status is ApplicationStatus.STOPPED:
            return ApplicationStatus.STOPPED
        return ApplicationStatus.PAUSED if self._state.control.all_paused else ApplicationStatus.RUNNING

    def start(self, paused: bool = False) -> None:
        """See `TopologyTestDriver.start`."""
        self._state.begin(paused=self._declared.sources if paused else ())
        self._execution.enter_running()
        self._execution.drain()

    def stop(self) -> None:
        """See `TopologyTestDriver.stop`."""
        if not self._state.status.is_active:
            return
        self._state.life.move(ApplicationStatus.STOPPING)
        try:
            self._execution.close_stores()
        except BaseException as error:
            self._state.life.end(error)
            raise
        self._state.life.end(None)

    def pause(self, topic: str | Topic | None = None) -> None:
        """See `TopologyTestDriver.pause`."""
        self._state.require_active("be paused")
        self._state.control.pause(moved_topics("pause", topic, self._declared, self._state.control.run_request))
        self._execution.apply_run_request()

    def resume(self, topic: str | Topic | None = None) -> None:
        """See `TopologyTestDriver.resume`."""
        self._state.require_active("be resumed")
        self._state.control.resume(moved_topics("resume", topic, self._declared, self._state.control.run_request))
        self._execution.apply_run_request()
        self._execution.drain()

    def checkpoint(self) -> Checkpoint:
        """See `TopologyTestDriver.checkpoint`."""
        self._state.require_active("checkpoint")
        number = self._state.checkpoints.request()
        self._state.control.mark_fulfilled(self._state.control.run_request)
        return self._state.checkpoints.status(number)

    def wait_for(self, token: Offsets | str) -> None:
        """See `TopologyTestDriver.wait_for`."""
        self._state.require_active("wait for a token")
        topology, view = self._execution.topology, self._execution.offsets
        completion = Completion(topology, checked_token(token, topology, view, "wait_for"), view)
        if not completion.advance():
            all_paused = self.desired_status is ApplicationStatus.PAUSED
            why = why_late(completion.missing, self._state.paused_topics, all_paused=all_paused)
            raise ApplicationTimeoutError("; ".join(["the application is behind", *why]))
