"""Calls to external systems that must not delay the end of a source, because the system may hang.

They run in other threads, which are interrupted, or abandoned.
"""

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

__all__ = ["Interrupts", "Reading", "StoppedError", "call_in_background", "iterate_in_background"]

T = TypeVar("T")

_LOOK_S = 0.1
_JOIN_S = 0.5


class StoppedError(Exception):
    """The source was stopped before the result was there."""


class Interrupts:
    """Functions that end blocked calls of another thread, such as shutting down a socket."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._functions: list[Callable[[], object]] = []
        self._fired = False

    def add(self, function: Callable[[], object]) -> None:
        """Call a function when the reading is closed; at once if it is closed already."""
        with self._lock:
            self._functions.append(function)
            fired = self._fired
        if fired:
            self._call_safely(function)

    def fire(self) -> None:
        """Call the functions."""
        with self._lock:
            self._fired = True
            functions = list(self._functions)
        for function in functions:
            self._call_safely(function)

    @staticmethod
    def _call_safely(function: Callable[[], object]) -> None:
        # The connection may be closed already; nothing of it matters any more.
        with contextlib.suppress(Exception):
            function()


class Reading(Generic[T]):
    """Items that a thread reads from a blocking iterator.

    Args:
        read: returns the iterator; the thread calls it.
        limit: number of items that may wait to be taken; then the thread does not read further.
    """

    def __init__(self, read: Callable[[Interrupts], Iterator[T]], limit: int = 1_000) -> None:
        self._read = read
        self._limit = limit
        self._interrupts = Interrupts()
        self._changed = threading.Condition()
        self._waiting: deque[T] = deque()
        self._closed = self._ended = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._read_until_ended, name="streamrt-source-reading", daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        """Whether all items were taken, and no more will come."""
        with self._changed:
            return self._ended and not self._waiting and self._error is None

    def take(self, timeout_s: float = 2 * _LOOK_S) -> list[T]:
        """Return the items that wait, in order.

        Args:
            timeout_s: seconds to wait for the first one.

        Raises:
            Exception: the error of the iterator, after its last item was taken.
        """
        with self._changed:
            if not self._waiting and not self._ended:
                self._changed.wait(timeout_s)
            items = list(self._waiting)
            self._waiting.clear()
            self._changed.notify_all()
            error, ended = self._error, self._ended
            if not items and ended and error is not None:
                self._error = None
                raise error
        return items

    def close(self, *, interrupt: bool = True) -> None:
        """End the thread, or abandon it: in that case, it ends with its next item.

        Args:
            interrupt: whether to interrupt a blocked call, and to wait a moment for the end of the thread.
        """
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if interrupt:
            self._interrupts.fire()
            self._thread.join(_JOIN_S)

    def _read_until_ended(self) -> None:
        error: BaseException | None = None
        try:
            items = self._read(self._interrupts)
            try:
                for item in items:
                    if not self._put_item(item):
                        break
            finally:
                close = getattr(items, "close", None)
                if close is not None:
                    close()
        except BaseException as raised:  # noqa: BLE001 - `take` raises it
            error = raised
        with self._changed:
            self._error = None if self._closed else error
            self._ended = True
            self._changed.notify_all()

    def _put_item(self, item: T) -> bool:
        with self._changed:
            while len(self._waiting) >= self._limit and not self._closed:
                self._changed.wait()
            if self._closed:
                return False
            self._waiting.append(item)
            self._changed.notify_all()
            return True


def call_in_background(call: Callable[[], T], running: Callable[[], bool]) -> T:
    """Call a function in another thread, and wait for its result while the source runs.

    Args:
        call: the function.
        running: returns whether to go on waiting.

    Returns:
        The result of the function.

    Raises:
        StoppedError: if the source was stopped first; the thread is abandoned, and ends when the call returns.
        Exception: the error of the function.

    Example:
        >>> call_in_background(lambda: 5, lambda: True)
        5
    """
    results: list[T] = []
    errors: list[BaseException] = []
    done = threading.Event()

    def target() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001 - raised in the thread of the source
            errors.append(error)
        finally:
            done.set()

    threading.Thread(target=target, name="streamrt-request", daemon=True).start()
    while not done.wait(_LOOK_S):
        if not running():
            raise StoppedError
    if errors:
        raise _without_traceback(errors[0])
    return results[0]


def iterate_in_background(
    iterate: Callable[[], Iterator[T]], running: Callable[[], bool], ahead: int = 1
) -> Iterator[T]:
    """Iterate in another thread, a few items ahead.

    Args:
        iterate: returns the iterator.
        running: returns whether to continue.
        ahead: number of items that may wait.

    Yields:
        The items. The iteration ends early when the source is stopped; the thread is abandoned, or ends with its next item.

    Raises:
        Exception: the error of the iterator.

    Example:
        >>> list(iterate_in_background(lambda: iter("abc"), lambda: True))
        ['a', 'b', 'c']
    """
    reading = Reading(lambda _: iterate(), ahead)
    try:
        while running() and not reading.ended:
            for item in reading.take():
                yield item
                if not running():
                    return
    finally:
        reading.close(interrupt=False)


def _without_traceback(error: BaseException) -> Any:
    # The frames of the other thread refer to this list of errors, and would keep both alive.
    return error.with_traceback(None)
