"""Connections of the control server: those that send no request make room for those that do.

uvicorn closes idle connections only after their first answer, and refuses every request while there are too many
connections. So anyone who can reach the port could keep probes from their answers, and supervisors would end the process.
Here a connection has some seconds for each request, and some for taking an answer, and if there are too many, the one is
closed that has waited longest of the peer with the most of them. A new connection is always accepted.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["MOST_CONNECTIONS", "ControlProtocol"]

MOST_CONNECTIONS = 256
"""How many connections there are at once."""
_REQUEST_S = 10.0
"""Seconds for a request, from its connection or from the answer before it on."""
_ANSWER_S = 30.0
"""Seconds for which the other side may take nothing of an answer."""


class ControlProtocol(H11Protocol):
    """HTTP with limits for how long, and for how many, connections do nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Routes find it in the state of a request.
        self.app_state = {**self.app_state, "connection": self}
        self.began_at = 0.0
        self._is_stalled = False
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def peer(self) -> str:
        """The address of the other side, without its port."""
        return self.client[0] if self.client else ""

    @property
    def is_waiting(self) -> bool:
        """Whether it is the turn of the other side: it has to send a request, or to take an answer."""
        return self.cycle is None or self.cycle.response_complete or self._is_stalled

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn does
        """Take a connection, and close another one if there are too many."""
        super().connection_made(transport)
        self.began_at = self.loop.time()
        self._limit_time(_REQUEST_S)
        if len(self.connections) > MOST_CONNECTIONS:
            _to_close(self, (each for each in self.connections if isinstance(each, ControlProtocol))).abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection."""
        self._limit_time(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read a request, or a part of one: parts do not prolong its time."""
        super().data_received(data)
        if not self.is_waiting:
            self._limit_time(None)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        if self.is_waiting:
            self._limit_time(_REQUEST_S)

    def pause_writing(self) -> None:
        """Wait until the other side has taken a part of an answer."""
        super().pause_writing()
        self._is_stalled = True
        self._limit_time(_ANSWER_S)

    def resume_writing(self) -> None:
        """Go on with an answer."""
        super().resume_writing()
        self._is_stalled = False
        self._limit_time(_REQUEST_S if self.is_waiting else None)

    def abort(self) -> None:
        """Close the connection at once."""
        # It is one of the connections until the loop gets to it, and must not be chosen twice.
        self.connections.discard(self)
        self.transport.abort()

    def end(self) -> None:
        """Close the connection once what was written is taken, so that an answer ends without its last chunk."""
        self.transport.close()

    def _limit_time(self, seconds: float | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self.abort)


def _to_close(new: ControlProtocol, connections: Iterable[ControlProtocol]) -> ControlProtocol:
    """Return the connection to close for a new one; this one if all others are being answered."""
    waiting = [each for each in connections if each.is_waiting and each is not new]
    if not waiting:
        return new
    of_peer = Counter(each.peer for each in waiting)
    return min(waiting, key=lambda each: (-of_peer[each.peer], each.began_at))
