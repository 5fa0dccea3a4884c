"""The end of a program: on signals, at a boundary or at once during the start; on errors, with one sentence."""

import _thread
import contextlib
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from pathlib import Path
from traceback import walk_tb
from types import FrameType, TracebackType
from typing import TypeVar

from streamrt.errors import StreamRTError

logger = logging.getLogger("streamrt")

R = TypeVar("R")

_LOOK_S = 0.05
_PACKAGE = __name__.partition(".")[0]


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
            self._wake()
            return
        try:
            # No lock of Python's own, which `threading.Thread` would take.
            _thread.start_new_thread(self._wake, ())
        except RuntimeError:
            # The interpreter ends, or there are too many threads.
            self._wake()

    def clear(self) -> None:
        """Take it back."""
        self._noted = False
        self._unwake()

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

    def _wake(self) -> None:
        super().set()
        if not self._noted:
            # It was taken back meanwhile.
            self._unwake()

    def _unwake(self) -> None:
        super().clear()
        if self._noted:
            # It was set again meanwhile, and who did so may have been faster.
            super().set()


class StopRequest(SignalSafeEvent):
    """The request of callers, or of a signal, to stop. A run also stops by itself, as after a failure.

    Args:
        run: the event that stops the current run; set together with this one.

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

    def set(self) -> None:
        """Request the stop."""
        super().set()
        self._run.set()

    def clear(self) -> None:
        """Take the request back, and let runs go on."""
        super().clear()
        self._run.clear()

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


def end_readably() -> None:
    """Make a script end with one sentence instead of a stack trace on an uncaught StreamRT error or an interrupt.

    With log level DEBUG, and in an interactive Python, the stack trace is shown. A `sys.excepthook` that the user has
    set is kept.
    """
    if sys.excepthook is sys.__excepthook__ and not hasattr(sys, "ps1"):
        sys.excepthook = _show


def _show(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    if not isinstance(error, StreamRTError | KeyboardInterrupt) or logger.isEnabledFor(logging.DEBUG):
        sys.__excepthook__(kind, error, traceback)
        return
    sentence = "interrupted" if isinstance(error, KeyboardInterrupt) else f"{kind.__name__}: {error}"
    print(f"streamrt: {sentence}{_location(traceback)}", file=sys.stderr)  # noqa: T201 - the process ends


def _location(traceback: TracebackType | None) -> str:
    """Return the line of the user's program with the failed call; an empty string for errors inside `run()`."""
    location = ""
    for frame, line in walk_tb(traceback):
        code = frame.f_code
        if frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
            return "" if code.co_name == "run" else location
        location = f" ({Path(code.co_filename).name}:{line})"
    return location
