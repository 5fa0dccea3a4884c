"""Pauses of Python's garbage collector, while many objects are made that reference counting frees."""

import contextlib
import gc
from collections.abc import Iterator

__all__ = ["collection_paused"]


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
