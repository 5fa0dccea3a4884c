"""Common parts of sources with connections: reads in a thread, flushes by count and time, and waits between attempts.

A read of a library may block for as long as the other side is silent. It happens in a thread, so that `stop` ends the source
at once, also while the external system hangs.
"""

import logging
import random
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from streamrt.connectors.background import Interrupts, Reading, StoppedError, call_in_background
from streamrt.connectors.failures import PassingError
from streamrt.connectors.sources.base import Source

__all__ = ["FlushPace", "Waits", "call_while_running", "read_while_running"]

logger = logging.getLogger("streamrt.connectors")

T = TypeVar("T")


class FlushPace:
    """When a source flushes: after a number of records, and some time after the first record that is not flushed.

    Args:
        every: number of records.
        interval_s: seconds.
    """

    def __init__(self, every: int, interval_s: float) -> None:
        self._every = every
        self._interval_s = interval_s
        self._pending = 0
        self._since = 0.0

    def add(self) -> None:
        """Count a record."""
        if not self._pending:
            self._since = time.monotonic()
        self._pending += 1

    @property
    def due(self) -> bool:
        """Whether to flush now."""
        if not self._pending:
            return False
        return self._pending >= self._every or time.monotonic() - self._since >= self._interval_s

    def flushed(self) -> None:
        """Begin to count again."""
        self._pending = 0


class Waits:
    """Waits between attempts to connect: each is twice as long as the one before, with up to a quarter of randomness.

    Args:
        first_s: seconds of the first wait.
        longest_s: maximum of a wait.
    """

    def __init__(self, first_s: float = 0.5, longest_s: float = 30.0) -> None:
        self.first_s = first_s
        self._longest_s = longest_s
        self._attempts = 0

    def next_s(self) -> float:
        """Return the seconds of the next wait."""
        wait: float = min(self.first_s * 2 ** min(self._attempts, 30), max(self._longest_s, self.first_s))
        self._attempts += 1
        return wait * (1 + random.random() / 4)  # noqa: S311 - no secret

    def succeeded(self) -> None:
        """Begin with the first wait again."""
        self._attempts = 0


def call_while_running(source: Source, call: Callable[[Interrupts], T]) -> T | None:
    """Call a function in a thread, and wait for its result as long as the source runs.

    Args:
        source: the source.
        call: the function.

    Returns:
        Its result, or None if the source was stopped.

    Raises:
        Exception: the error of the function.
    """
    if not source.running:
        return None
    interrupts = Interrupts()
    try:
        return call_in_background(lambda: call(interrupts), lambda: source.running)
    except BaseException as error:
        # What it has opened is of no use any more.
        interrupts.fire()
        if isinstance(error, StoppedError):
            return None
        raise


def read_while_running(
    source: Source,
    connect: Callable[[Interrupts], Iterator[T]],
    produce: Callable[[T], object],
    flush: Callable[[], object],
    pace: FlushPace,
    waits: Waits,
) -> None:
    """Read from connections one after another until the source is stopped.

    Args:
        source: the source.
        connect: opens a connection and yields what comes; it raises `PassingError` when the connection is lost.
        produce: produces one item; its errors end the source.
        flush: flushes the source.
        pace: when to flush.
        waits: how long to wait before the next connection.

    Raises:
        Exception: an error of `connect` that does not pass, or one of `produce` or `flush`.
    """

    def stopped() -> bool:
        return not source.running

    while not stopped():
        reading = Reading(connect)
        reason = "the connection was closed"
        wait: float | None = None
        try:
            while not stopped() and not reading.ended:
                for item in reading.take():
                    produce(item)
                    waits.succeeded()
                    pace.add()
                    if pace.due:
                        flush()
                        pace.flushed()
                    if stopped():
                        break
                if pace.due:
                    flush()
                    pace.flushed()
        except PassingError as error:
            reason, wait = str(error), error.retry_after
        finally:
            reading.close()
        if not stopped():
            wait = waits.next_s() if wait is None else wait
            logger.warning("the source %s connects again in %.1f s: %s", source.name, wait, reason)
            source.sleep(wait)
            if pace.due:
                flush()
                pace.flushed()
