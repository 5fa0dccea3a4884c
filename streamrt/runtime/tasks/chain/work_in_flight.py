"""What operators of a stream have begun with records and not passed on: asynchronous calls, and records that are held.

Calls run in the event loop of the process, alongside the task. A call keeps the place of its record. Its result continues in
the thread of the task, where the record is the current one again: errors, contexts and outputs name it.

Held records of an operator are passed on at the place of the last record before.
"""

import asyncio
import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Protocol

from streamrt.common.event_loop import EventLoopThread
from streamrt.common.logs import log_context
from streamrt.context import current_provider
from streamrt.records import Headers, MessageContext
from streamrt.topology import AsyncCalls, HeldRecords, Node, RecordHandler

if TYPE_CHECKING:
    from asyncio import TimerHandle

__all__ = ["Place", "Resumes", "WorkInFlight"]

logger = logging.getLogger("streamrt")

_CHECK_S = 1.0
_BLOCKED_S = 5.0
"""How long no call may end before it is asked whether the event loop still runs."""
_CLEAN_UP_S = 1.0
"""How long a cancelled call may go on until its record goes on without it."""
_OVERDUE_S = 10.0
"""How long after their time-out calls may go on, because something blocks the event loop, until it is given up."""


class Place(Protocol):
    """The place of a record or tick in its chunk; in functions, the provider of its context."""

    def message_context(self) -> MessageContext:
        """Return the context of the record."""

    def set_message_context(self, context: MessageContext | None) -> None:
        """Replace the context of the record for what is below the operator."""

    def log_fields(self) -> dict[str, Any]:
        """Return what log lines say about the record."""


class Resumes(Protocol):
    """The operators of a stream, as calls need them."""

    def place(self) -> Place:
        """Return the place of the current record."""

    def resume(self, place: Place, proceed: Callable[..., None], *arguments: Any) -> None:
        """Call a function while the record of a place is the current one; handle its error as one of this record."""


class WorkInFlight:
    """The asynchronous calls and the held records of all operators of a stream, for its active task.

    Args:
        chain: the operators.

    Attributes:
        serial: whether the results of each record must be passed on before the next record.
        has_calls: whether an operator makes asynchronous calls.
    """

    def __init__(self, chain: Resumes) -> None:
        self.serial = False
        self.has_calls = False
        self._chain = chain
        # In the order of the data: operators are composed from the end.
        self._nodes: deque[_NodeCalls | _NodeRecords] = deque()
        self._acquired = False

    def __bool__(self) -> bool:
        """Whether an operator may have work in flight."""
        return bool(self._nodes)

    @property
    def count(self) -> int:
        """The number of calls and records that have not been passed on."""
        return sum(map(len, self._nodes))

    def add(self, node: Node, calls: AsyncCalls) -> RecordHandler:
        """Return the function that begins the call of a record."""
        made = _NodeCalls(self._chain, node, calls, self._loop)
        self._nodes.appendleft(made)
        self.has_calls = True
        return made.submit

    def hold(self, held: HeldRecords, child: RecordHandler) -> Callable[[], None]:
        """Have held records passed on to `child`; return the function that does it at once."""
        made = _NodeRecords(self._chain, held, child)
        self._nodes.appendleft(made)
        return made.pass_on

    def drain(self, patience_s: float | None = None) -> bool:
        """Pass on the results of all calls, and all held records.

        Args:
            patience_s: how long to wait for calls, in seconds; None until each has a result or took too long.

        Returns:
            Whether nothing is in flight any more.
        """
        until = None if patience_s is None else time.monotonic() + max(0.0, patience_s)
        drained = True
        for node in self._nodes:
            drained = node.drain(until) and drained
        return drained

    def drop(self) -> None:
        """Cancel all calls, and forget all records; nothing of them is passed on."""
        for node in self._nodes:
            node.drop()

    def close(self) -> None:
        """Drop everything, and give the event loop up."""
        self.drop()
        if self._acquired:
            self._acquired = False
            EventLoopThread.release()

    def _loop(self) -> EventLoopThread:
        if self._acquired:
            return EventLoopThread.current()
        self._acquired = True
        return EventLoopThread.acquire()


class _NodeRecords:
    """The held records of one operator.

    Args:
        chain: the operators of the stream.
        held: the records.
        child: takes them.
    """

    def __init__(self, chain: Resumes, held: HeldRecords, child: RecordHandler) -> None:
        self._chain = chain
        self._held = held
        self._child = child

    def __len__(self) -> int:
        return len(self._held)

    def pass_on(self) -> None:
        """Pass on all records, each as a unit of work of its own."""
        held, child, resume, place = self._held, self._child, self._chain.resume, self._chain.place()
        while held:
            record = held.take()
            if record is not None:
                resume(place, child, *record)

    def drain(self, until: float | None) -> bool:
        """Pass on all records; it waits for nothing."""
        if self._held:
            self.pass_on()
        return True

    def drop(self) -> None:
        """Forget all records."""
        self._held.clear()


class _Call:
    """A call, and the record that it is made for.

    Attributes:
        done: whether there is a result, or none is wanted any more.
        late: whether the call took too long.
    """

    __slots__ = ("context", "done", "error", "finished", "late", "place", "record", "result", "task", "until")

    def __init__(self, place: Place, record: tuple[Any, Any, int, Headers | None], finished: "deque[_Call]") -> None:
        self.place = place
        self.record = record
        self.context: Context | None = copy_context()
        self.finished = finished
        self.done = self.late = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.task: asyncio.Task[None] | None = None
        self.until = 0.0


class _NodeCalls:
    """The calls of one operator.

    `_starting`, `_finished` and the flags of calls are what the two threads share; each has one writer for each step.

    Args:
        chain: the operators of the stream.
        node: the operator.
        calls: how it makes calls.
        loop: returns the event loop.
    """

    def __init__(self, chain: Resumes, node: Node, calls: AsyncCalls, loop: Callable[[], EventLoopThread]) -> None:
        self._chain = chain
        self._node = node
        self._calls = calls
        self._get_loop = loop
        # Of the thread of the task.
        self.open: OrderedDict[_Call, None] = OrderedDict()
        self._loop: EventLoopThread | None = None
        self._warned = False
        # Of both.
        self._starting: deque[_Call] = deque()
        self._start_wanted = False
        self._finished: deque[_Call] = deque()
        self._ended = threading.Event()
        # Of the event loop.
        self._running: OrderedDict[_Call, None] = OrderedDict()
        self._timer: TimerHandle | None = None
        self._notifying = False

    # -- In the thread of the task -------------------------------------------------------------------------------------

    def submit(self, value: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
        """Begin the call of a record; wait if too many are in flight."""
        if self._is_ready():
            self._pass_on()
        while len(self.open) >= self._calls.capacity:
            self._wait_for_result(None)
            self._pass_on()
        call = _Call(self._chain.place(), (value, key, timestamp, headers), self._finished)
        self.open[call] = None
        self._starting.append(call)
        if not self._start_wanted:
            self._start_wanted = True
            loop = self._loop
            if loop is None:
                loop = self._loop = self._get_loop()
            if loop.abandoned:
                self._give_up(loop)
            else:
                loop.call_soon_threadsafe(self._start_calls, loop)

    def __len__(self) -> int:
        return len(self.open)

    def drain(self, until: float | None) -> bool:
        """Pass on results until no call is in flight, or until a time of `time.monotonic()`; return whether none is."""
        self._pass_on()
        while self.open and self._wait_for_result(until):
            self._pass_on()
        return not self.open

    def drop(self) -> None:
        """Cancel all calls."""
        if not self.open:
            return
        dropped = list(self.open)
        for call in dropped:
            call.done = True
        self.open.clear()
        # Calls that end now have the former queue.
        self._finished = deque()
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._cancel_calls, dropped)

    def _is_ready(self) -> bool:
        if self._calls.ordered:
            return bool(self.open) and next(iter(self.open)).done
        return bool(self._finished)

    def _pass_on(self) -> None:
        """Pass on the results that are there."""
        if self._calls.ordered:
            while self.open and next(iter(self.open)).done:
                self._resume_call(self.open.popitem(last=False)[0])
            return
        while self._finished:
            call = self._finished.popleft()
            del self.open[call]
            self._resume_call(call)

    def _resume_call(self, call: _Call) -> None:
        result, error = call.result, call.error
        # The error refers to the frame that refers to the call.
        call.result = call.error = None
        self._chain.resume(call.place, self._calls.finish, result, error, call.late, *call.record)

    def _wait_for_result(self, until: float | None) -> bool:
        """Wait until a result can be passed on; return False at `until`."""
        begun = time.monotonic()
        while not self._is_ready():
            self._ended.clear()
            # Set before it was cleared, perhaps.
            if self._is_ready():
                break
            now = time.monotonic()
            pause = _CHECK_S if until is None else min(_CHECK_S, until - now)
            if pause <= 0:
                return False
            if not self._ended.wait(pause):
                self._check_blocking(time.monotonic() - begun)
        return True

    def _check_blocking(self, waited_s: float) -> None:
        """Look for what blocks the event loop."""
        loop = self._loop
        if loop is None or (waited_s < _BLOCKED_S and not loop.abandoned):
            return
        if loop.abandoned or waited_s >= self._calls.timeout_s + _OVERDUE_S:
            self._give_up(loop)
        elif not self._warned and not loop.is_responsive(_CHECK_S):
            self._warned = True
            logger.warning(
                "%s: a function blocks the event loop, and with it all asynchronous calls of the process%s; let it await, or "
                "call what blocks by asyncio.to_thread()",
                self._node,
                _format_place(loop.where()),
            )

    def _give_up(self, loop: EventLoopThread) -> None:
        """Treat all calls without a result as too late, and use another event loop from now on."""
        if not loop.abandoned:
            logger.error(
                "%s: the event loop is blocked%s; another one takes its place", self._node, _format_place(loop.where())
            )
            loop.abandon()
        # Nothing that the former loop may still do has an effect on these.
        former, self.open = self.open, OrderedDict()
        self._finished, self._starting, self._start_wanted = deque(), deque(), False
        self._running, self._timer, self._notifying, self._loop = OrderedDict(), None, False, None
        for call in former:
            made = _Call(call.place, call.record, self._finished)
            made.result, made.error, made.late = call.result, call.error, call.late or not call.done
            call.done = made.done = True
            self.open[made] = None
            if not self._calls.ordered:
                self._finished.append(made)

    # -- In the event loop ---------------------------------------------------------------------------------------------

    def _start_calls(self, loop: EventLoopThread) -> None:
        """Start the calls that were begun since the last time."""
        if loop is not self._loop:
            return
        # Cleared first: a call that is added from now on wants another start, at worst for nothing.
        self._start_wanted = False
        starting, until = self._starting, loop.time() + self._calls.timeout_s
        while starting:
            call = starting.popleft()
            context, call.context = call.context, None
            if not call.done and context is not None:
                call.until = until
                self._running[call] = None
                call.task = loop.start(self._perform_call(call), context)
        if self._timer is None and self._running:
            self._timer = loop.call_at(next(iter(self._running)).until, self._expire_calls, loop)

    async def _perform_call(self, call: _Call) -> None:
        current_provider.set(call.place)
        result: Any = None
        failure: BaseException | None = None
        try:
            with log_context(call.place.log_fields):
                result = await self._calls.start(*call.record)
        except asyncio.CancelledError:
            failure = RuntimeError("the call was cancelled by something in the function itself")
        except BaseException as error:  # noqa: BLE001 - the task decides; SystemExit would end the event loop
            failure = error
        self._running.pop(call, None)
        if not call.done:
            call.result, call.error = result, failure
            # A result that came although the call was cancelled is one.
            call.late = call.late and failure is not None
            self._end_call(call)

    def _end_call(self, call: _Call) -> None:
        if call.done:
            return
        call.done = True
        if not self._calls.ordered:
            call.finished.append(call)
        if not self._notifying:
            # Once for all calls that end in one round of the loop.
            self._notifying = True
            if self._loop is not None:
                self._loop.call_soon(self._notify_waiter)

    def _notify_waiter(self) -> None:
        self._notifying = False
        self._ended.set()

    def _expire_calls(self, loop: EventLoopThread) -> None:
        """Cancel the calls that took too long. All have the same time, so the first to start are the first."""
        if loop is not self._loop:
            return
        self._timer = None
        now = loop.time()
        for call in list(self._running):
            if call.until > now:
                self._timer = loop.call_at(call.until, self._expire_calls, loop)
                return
            if not call.late and call.task is not None:
                call.late = True
                call.task.cancel()
                loop.call_later(_CLEAN_UP_S, self._end_call, call)

    def _cancel_calls(self, dropped: list[_Call]) -> None:
        for call in dropped:
            if call.task is not None:
                call.task.cancel()


def _format_place(where: str) -> str:
    return f" (it is at {where})" if where else ""
