"""The cuts that resident tasks have requested."""

import threading
from typing import Protocol

from streamrt.event_time.merge_cuts import MergeCuts
from streamrt.runtime.link_messages import CutDone, CutRequest

__all__ = ["CutRequests"]


class Requester(Protocol):
    """The connection of a task."""

    def send(self, message: CutDone) -> None:
        """Send the answer."""


class CutRequests:
    """Begins cuts for requests, and answers them. A cut serves only requests from before it.

    Args:
        cuts: makes the cuts.
    """

    def __init__(self, cuts: MergeCuts) -> None:
        self._cuts = cuts
        self._lock = threading.Lock()
        self._new: list[tuple[Requester, CutRequest]] = []
        # By stream: of cuts that have not begun, and of those that are under way.
        self._waiting: dict[str, list[tuple[Requester, int]]] = {}
        self._served: dict[str, list[tuple[Requester, int]]] = {}

    def add(self, requester: Requester, request: CutRequest) -> None:
        """Add a request; for any thread."""
        with self._lock:
            self._new.append((requester, request))

    @property
    def open(self) -> bool:
        """Whether there are requests without an answer."""
        return bool(self._new or self._waiting or self._served)

    def carry_on(self, *, working: bool) -> bool:
        """Carry the cuts on as far as possible; return whether another one can begin now.

        Args:
            working: whether all tasks of this process can work.
        """
        with self._lock:
            new, self._new = self._new, []
        for requester, request in new:
            self._waiting.setdefault(request.stream, []).append((requester, request.number))
        for stream in [stream for stream in self._waiting if self._cuts.begin(stream)]:
            self._served[stream] = self._waiting.pop(stream)
        done = self._cuts.step(working=working)
        for stream, ends in done.items():
            for requester, number in self._served.pop(stream, ()):
                requester.send(CutDone(number, stream, ends))
        return not self._waiting.keys().isdisjoint(done)
