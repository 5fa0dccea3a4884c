"""How a program ends: by signals at a boundary, and by errors with one sentence."""

import contextlib
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from streamrt.errors import StreamRTError

logger = logging.getLogger("streamrt")


@contextlib.contextmanager
def stop_on_signals(stop: threading.Event) -> Iterator[None]:
    """Stop at a boundary on SIGTERM and SIGINT; a second SIGINT interrupts at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        logger.info("stopping on %s", signal.Signals(number).name)
        stop.set()

    for number in previous:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def readable_exit() -> Iterator[None]:
    """Let a script that does not catch our errors end with one sentence instead of a stack trace."""
    try:
        yield
    except StreamRTError as error:
        if sys.excepthook is sys.__excepthook__:
            sys.excepthook = _excepthook(error)
        raise


def _excepthook(expected: StreamRTError) -> Callable[..., Any]:
    def hook(kind: type[BaseException], error: BaseException, traceback: Any) -> None:
        if error is expected:
            print(f"streamrt: {type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201 - the process ends
        else:
            sys.__excepthook__(kind, error, traceback)

    return hook
