"""When Python's garbage collector works: reference counting frees most objects, and many of the others live long."""

import contextlib
import gc
from collections.abc import Iterator

__all__ = ["collect_on_request", "collection_paused"]

_THRESHOLD = (100_000, 50, 1_000)
_requested = False


def collect_on_request() -> None:
    """Let processes of tasks collect garbage on request: Spark's worker after each task, resident tasks in `Upkeep`.

    State and asynchronous calls make many objects that live long and are in no cycles. To scan them all repeatedly takes
    half of the time. The objects that exist already, such as modules, are scanned never again.

    Example:
        ```python
        collect_on_request()
        assert gc.get_threshold()[0] == 100_000
        ```
    """
    global _requested
    if _requested:
        # Objects that were frozen for another application may have become garbage. The first one spares the scan, which would
        # copy all memory that a forked process shares.
        gc.unfreeze()
        gc.collect()
    _requested = True
    gc.freeze()
    gc.set_threshold(*_THRESHOLD)


@contextlib.contextmanager
def collection_paused() -> Iterator[None]:
    """Let no garbage be collected in this block.

    Thousands of new objects let the collector look at all objects of the process, again and again. Where it is off already,
    it stays off.

    Example:
        >>> with collection_paused():
        ...     gc.isenabled()
        False
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
