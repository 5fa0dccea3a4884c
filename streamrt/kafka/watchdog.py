"""Calls into librdkafka that must end in time, although librdkafka does not always see to it.

Requests to a coordinator take a timeout, but after a restart of the broker `rd_kafka_send_offsets_to_transaction` of
librdkafka 2.16 was seen to wait for ever: its reply got lost with the connection. Such a call is left in its thread, and
its client is never used, and never freed, again.
"""

import queue
import threading
from collections.abc import Callable
from typing import Any

__all__ = ["StuckCallError", "call_within"]


class StuckCallError(Exception):
    """A call did not return; its client must not be touched any more."""


def call_within(call: Callable[[float], object], timeout_s: float, grace_s: float) -> None:
    """Call a function with a timeout, and do not wait much longer than that.

    Args:
        call: takes the seconds that it may take.
        timeout_s: those seconds.
        grace_s: how much longer to wait.

    Raises:
        StuckCallError: if the function did not return.
        Exception: what it raised.

    Example:
        >>> call_within(lambda timeout_s: None, 1.0, 1.0)
    """
    outcome: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    def run() -> None:
        try:
            call(timeout_s)
        except BaseException as error:  # noqa: BLE001 - handed to the caller
            outcome.put(error)
        else:
            outcome.put(None)

    threading.Thread(target=run, name="streamrt-kafka-call", daemon=True).start()
    try:
        error: Any = outcome.get(timeout=timeout_s + grace_s)
    except queue.Empty:
        raise StuckCallError(f"the client did not return within {timeout_s + grace_s:.3g} s") from None
    if error is not None:
        raise error
