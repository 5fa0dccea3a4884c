"""The commits that callers request of a run."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from streamrt.kafka.completion_token import Offsets
from streamrt.runtime.driver.life.lifecycle import LifeCycle, RunControl

__all__ = ["Checkpoint", "CheckpointStatus", "Checkpoints"]

_KEPT = 100

CheckpointStatus = Literal["in progress", "success", "failure", "unknown"]


@dataclass(frozen=True)
class Checkpoint:
    """A commit that a caller has requested.

    Attributes:
        number: number of the checkpoint, counted from 1 in each run; 0 if it is unknown.
        status: "in progress"; "success": everything that was processed before is committed; "failure": the run ended
            before; "unknown": there was no such checkpoint, or it was long ago.
        offsets: after a success, the committed offset of each partition of this instance: the next one to process. It is a
            token for `wait_for`, and for `reset`.
        error: the reason of a failure.
    """

    number: int
    status: CheckpointStatus
    offsets: Offsets = field(default_factory=lambda: Offsets({}))
    error: str = ""


class Checkpoints:
    """The checkpoints of the current or last run; safe to use from any thread.

    Args:
        life: the life cycle of the application.
        control: carries wishes to the run.
        committed: returns the committed offsets of this instance.
    """

    def __init__(self, life: LifeCycle, control: RunControl, committed: Callable[[], Offsets]) -> None:
        self._life = life
        self._control = control
        self._committed = committed
        self._lock = threading.Lock()
        # The number of each one's run_request.
        self._run_requests: dict[int, int] = {}
        self._succeeded: dict[int, Checkpoint] = {}

    def forget(self) -> None:
        """Begin to count from 1 again."""
        with self._lock:
            self._run_requests.clear()
            self._succeeded.clear()

    def request(self) -> int:
        """Request a commit; return the number of the checkpoint, which is the last one if that is not done."""
        with self._lock:
            number = max(self._run_requests, default=0)
            if not number or number in self._succeeded or self._control.is_fulfilled(self._run_requests[number]):
                number += 1
                self._run_requests[number] = self._control.commit()
                for old in [each for each in self._run_requests if each <= number - _KEPT]:
                    del self._run_requests[old]
                    self._succeeded.pop(old, None)
            return number

    def wait(self, number: int, timeout: float | None, goes_on: Callable[[], bool]) -> bool:
        """Wait until a checkpoint is done, or the run is over; return whether it was done.

        Args:
            number: its number.
            timeout: seconds; None for no limit.
            goes_on: returns whether another run follows, which makes it.
        """
        with self._lock:
            run_request = self._run_requests.get(number)
        return run_request is not None and self._control.wait(run_request, timeout, goes_on)

    def status(self, number: int) -> Checkpoint:
        """Return what is known about a checkpoint.

        Args:
            number: its number.
        """
        with self._lock:
            run_request = self._run_requests.get(number)
            if run_request is None:
                return Checkpoint(number, "unknown")
            done = self._succeeded.get(number)
            if done is not None:
                return done
            if not self._control.is_fulfilled(run_request):
                if self._life.status.is_active:
                    return Checkpoint(number, "in progress")
                return Checkpoint(number, "failure", error=str(self._life.error or "the application was stopped"))
            done = self._succeeded[number] = Checkpoint(number, "success", self._committed())
            return done
