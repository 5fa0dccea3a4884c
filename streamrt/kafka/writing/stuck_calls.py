"""Time limits for calls into librdkafka that do not always respect their timeout.

Requests to a coordinator take a timeout. After a restart of the broker, however, `rd_kafka_send_offsets_to_transaction`
of librdkafka 2.16 can wait forever, because its reply is lost with the connection. Such a call is left in its thread,
and its client is neither used nor freed again.
"""

import queue
import threading
from collections.abc import Callable
from typing import Any

__all__ = ["StuckCallError", "call_within"]


class StuckCallError(Exception):
    """A call did not return; its client must not be used any more."""


def call_within(call: Callable[[float], object], timeout_s: float, grace_s: float) -> None:
    """Call a function with a timeout, and wait only a little longer than that.

    Args:
        call: function of its timeout in seconds.
        timeout_s: the timeout in seconds.
        grace_s: additional seconds to wait.

    Raises:
        StuckCallError: if the function did not return in time.
        Exception: the exception of the function.

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
