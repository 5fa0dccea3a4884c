"""The end of a program on signals: at a boundary, or at once during the start."""

import _thread
import contextlib
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from types import FrameType
from typing import TypeVar

logger = logging.getLogger("streamrt")

R = TypeVar("R")

_LOOK_S = 0.05


class StoppedError(Exception):
    """The application was stopped during its start. `run()` never raises this."""


class SignalSafeEvent(threading.Event):
    """An event that handlers of signals may set.

    A handler runs in the main thread, between any two instructions of it: also where that thread holds the lock of the event,
    at the beginning and the end of `wait`. `Event.set` would wait there for a lock that is never released. So the main thread
    only notes that the event is set, and another one wakes those who wait.

    Example:
        >>> event = SignalSafeEvent()
        >>> event.set()
        >>> event.is_set(), event.wait(60)
        (True, True)
    """

    def __init__(self) -> None:
        super().__init__()
        self._noted = False

    def is_set(self) -> bool:
        """Return whether the event is set."""
        return self._noted

    def set(self) -> None:
        """Set the event."""
        self._noted = True
        if threading.get_ident() != threading.main_thread().ident:
            self._wake_waiters()
            return
        try:
            # No lock of Python's own, which `threading.Thread` would take.
            _thread.start_new_thread(self._wake_waiters, ())
        except RuntimeError:
            # The interpreter ends, or there are too many threads.
            self._wake_waiters()

    def clear(self) -> None:
        """Take it back."""
        self._noted = False
        self._drain_wakeup()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the event is set, for a number of seconds, and return whether it is; None for no limit."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._noted:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            # Also over if a thread has just woken others for a `set` that was taken back meanwhile.
            super().wait(left)
        return True

    def _wake_waiters(self) -> None:
        super().set()
        if not self._noted:
            # It was taken back meanwhile.
            self._drain_wakeup()

    def _drain_wakeup(self) -> None:
        super().clear()
        if self._noted:
            # It was set again meanwhile, and who did so may have been faster.
            super().set()


class StopRequest(SignalSafeEvent):
    """The request of callers, or of a signal, to stop. A run also stops by itself, as after a failure.

    Requests have numbers, which `clear` does not take back: who stops a run in order to start the next one sees whether
    somebody else has asked for a stop meanwhile.

    Args:
        run: the event that stops the current run; set together with this one.

    Attributes:
        number: number of the last request.
        by_signal: whether a signal has requested the stop, so that the process is going to end.

    Example:
        >>> run = threading.Event()
        >>> request = StopRequest(run)
        >>> request.set()
        >>> run.is_set()
        True
    """

    def __init__(self, run: threading.Event) -> None:
        super().__init__()
        self._run = run
        self.number = 0
        self.by_signal = False

    def set(self) -> None:
        """Request the stop."""
        # If two threads do so at once, the number still differs from the former one.
        self.number += 1
        self.make_way()

    def make_way(self) -> None:
        """Stop the current run for the next one, which is not a request to stop."""
        super().set()
        self._run.set()

    def clear(self, but_after: int | None = None) -> None:
        """Take the request back, and let runs go on.

        Args:
            but_after: number of a request; if there was a later one, it stays. By default, none stays.
        """
        super().clear()
        self._run.clear()
        if but_after is not None and self.number != but_after:
            self.make_way()
        else:
            self.by_signal = False

    def renew(self) -> None:
        """Let the next run go on, unless a stop is requested."""
        self._run.clear()
        if self.is_set():
            self._run.set()


def unless_stopped(stop: threading.Event, work: Callable[[], R]) -> R:
    """Return the result of a function, unless the application is stopped first.

    The function runs in a separate thread. After a stop this thread continues, because requests to an unavailable
    broker cannot be interrupted. The function must have no effects that matter after a stop.

    Args:
        stop: set to stop the application.
        work: the function.

    Raises:
        StoppedError: if the application was stopped first.
    """
    answer = None if stop.is_set() else in_background("streamrt-start", work)
    while answer is not None and not stop.is_set():
        if wait([answer], _LOOK_S).done:
            return answer.result()
    raise StoppedError


def in_background(name: str, work: Callable[[], R]) -> "Future[R]":
    """Call a function in a daemon thread, and return its future result.

    Args:
        name: name of the thread.
        work: the function.
    """
    answer: Future[R] = Future()

    def run() -> None:
        try:
            answer.set_result(work())
        except BaseException as error:  # noqa: BLE001 - passed to the waiting thread
            answer.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return answer


@contextlib.contextmanager
def stop_on_signals(stop: threading.Event) -> Iterator[None]:
    """Stop at a boundary on SIGTERM and SIGINT; a second SIGINT interrupts at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    asked = False

    def request(number: int) -> None:
        logger.info("stopping on %s", signal.Signals(number).name)
        if isinstance(stop, StopRequest):
            stop.by_signal = True
        stop.set()

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if number == signal.SIGINT and (asked or stop.is_set()):
            raise KeyboardInterrupt
        asked = True
        # A signal interrupts the main thread anywhere, also where it holds the lock of the event, inside of `wait`: there,
        # `set` would wait for ever. This starts a thread without any lock of Python's own.
        _thread.start_new_thread(request, (number,))

    for number in previous:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
