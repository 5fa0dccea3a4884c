"""Ctrl+C while a client of Kafka waits.

Before Python 3.12, the default handler of SIGINT raises KeyboardInterrupt without an object. If that happens in a callback
of the client, the client loses it, and its call fails with a SystemError, as it does after a fatal error.
"""

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

__all__ = ["keeping_interrupts"]


@contextlib.contextmanager
def keeping_interrupts() -> Iterator[None]:
    """Have KeyboardInterrupt arrive although it is raised in a callback of the client.

    Handlers of the program are left as they are, and so are threads other than the main one, which get no signals.
    """
    if (
        sys.version_info >= (3, 12)
        or threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield
        return
    signal.signal(signal.SIGINT, _raise_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _raise_interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
