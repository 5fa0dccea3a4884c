"""An event loop in a thread of the process: asynchronous functions run there, alongside the thread of the tasks."""

import asyncio
import atexit
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from contextvars import Context
from pathlib import Path
from typing import Any

__all__ = ["EventLoopThread"]

_CLOSE_S = 1.0
"""How long cancelled tasks may take to end."""

_shared: "EventLoopThread | None" = None
_users = 0
_lock = threading.Lock()


class EventLoopThread:
    """An event loop that runs in a daemon thread until `close`.

    Users of one process share a loop by `acquire` and `release`.

    Example:
        >>> loop = EventLoopThread.acquire()
        >>> loop.run(asyncio.sleep(0, "done"), timeout_s=5.0)
        ('done', None, False)
        >>> EventLoopThread.release()

    Attributes:
        abandoned: whether the loop was blocked, and given up.
    """

    def __init__(self) -> None:
        self.abandoned = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name="streamrt-async", daemon=True)
        self._thread.start()
        self.call_soon = self._loop.call_soon
        self.call_at = self._loop.call_at
        self.call_later = self._loop.call_later
        self.call_soon_threadsafe = self._loop.call_soon_threadsafe
        self.time = self._loop.time

    @classmethod
    def acquire(cls) -> "EventLoopThread":
        """Return the loop of this process; the first user starts it."""
        global _shared, _users
        with _lock:
            _users += 1
            if _shared is None:
                _shared = cls()
            return _shared

    @staticmethod
    def release() -> None:
        """Give the loop of this process up; after the last user it is closed."""
        global _shared, _users
        with _lock:
            _users = max(0, _users - 1)
            unused, _shared = (_shared, None) if _users == 0 else (None, _shared)
        if unused is not None:
            unused.close()

    def abandon(self) -> None:
        """Leave a blocked loop to itself: it stops when it is not blocked any more. Users get another one."""
        global _shared
        self.abandoned = True
        with _lock:
            if _shared is self:
                _shared = type(self)()
        self._loop.call_soon_threadsafe(self._begin_close)

    @staticmethod
    def current() -> "EventLoopThread":
        """Return the loop of this process for a user that has acquired it: another one if the former was abandoned."""
        global _shared
        with _lock:
            if _shared is None:
                _shared = EventLoopThread()
            return _shared

    def start(self, coroutine: Coroutine[Any, Any, None], context: Context) -> "asyncio.Task[None]":
        """Run a coroutine in the loop, in its thread.

        Args:
            coroutine: the coroutine; it must not raise.
            context: the context variables; the coroutine gets a copy.
        """
        # The argument `context` of create_task is newer than Python 3.10.
        return context.run(self._loop.create_task, coroutine)

    def run(self, coroutine: Coroutine[Any, Any, Any], timeout_s: float) -> tuple[Any, Exception | None, bool]:
        """Run a coroutine in the loop from another thread, until it ends.

        Args:
            coroutine: the coroutine.
            timeout_s: it is cancelled after so many seconds.

        Returns:
            The result, the error if there is one, and whether the coroutine was cancelled.
        """

        async def limited() -> tuple[Any, Exception | None, bool]:
            task = asyncio.ensure_future(coroutine)
            done, _ = await asyncio.wait([task], timeout=timeout_s)
            if not done:
                task.cancel()
                await asyncio.wait([task], timeout=_CLOSE_S)
                return None, None, True
            if task.cancelled():
                return None, RuntimeError("the call was cancelled by something in the function itself"), False
            error = task.exception()
            if error is not None and not isinstance(error, Exception):
                raise error
            return (None, error, False) if error is not None else (task.result(), None, False)

        return asyncio.run_coroutine_threadsafe(limited(), self._loop).result()

    def is_responsive(self, within_s: float) -> bool:
        """Return whether the loop does something else within a time, in seconds."""
        answered = threading.Event()
        self._loop.call_soon_threadsafe(answered.set)
        return answered.wait(within_s)

    def where(self) -> str:
        """Return file, line and name of the function that the loop is in; empty if it is in none of a user."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        own = str(Path(__file__).resolve().parent.parent)
        inner = ""
        while frame is not None:
            code = frame.f_code
            if code.co_filename.startswith(own):
                return inner
            if "asyncio" not in Path(code.co_filename).parts:
                inner = f"{Path(code.co_filename).name}:{frame.f_lineno} in {code.co_name}"
            frame = frame.f_back
        return ""

    def close(self) -> None:
        """Cancel what runs, wait a moment for its end, and stop the loop."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._begin_close)
            self._thread.join(2 * _CLOSE_S)

    def _begin_close(self) -> None:
        self._closing = self._loop.create_task(self._close_loop())

    async def _close_loop(self) -> None:
        running = asyncio.all_tasks(self._loop) - {asyncio.current_task(self._loop)}
        for task in running:
            task.cancel()
            # One that ignores this would be reported by asyncio when the process ends.
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        if running:
            await asyncio.wait(running, timeout=_CLOSE_S)
        await self._loop.shutdown_asyncgens()
        self._loop.stop()

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()


def _close_shared() -> None:
    global _shared, _users
    with _lock:
        unused, _shared, _users = _shared, None, 0
    if unused is not None:
        unused.close()


def _forget_loop() -> None:
    """Forget the loop in a forked process, which has no thread for it."""
    global _shared, _users, _lock
    _shared, _users, _lock = None, 0, threading.Lock()


def _at_fork(register: Callable[..., None] | None) -> None:
    if register is not None:
        register(after_in_child=_forget_loop)


atexit.register(_close_shared)
_at_fork(getattr(os, "register_at_fork", None))
