"""Ctrl+C that interrupts nothing but waiting."""

import signal
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Generic, TypeVar

__all__ = ["UntilInterrupted"]

Item = TypeVar("Item")


class UntilInterrupted(Generic[Item]):
    """Items, up to Ctrl+C. It ends them, and interrupts nothing that is done with an item.

    Pressed again, it interrupts everything. Only for the main thread. Where it is ignored, as in programs that a script has
    started in the background, it stays ignored.

    Args:
        items: the items.

    Attributes:
        interrupted: whether Ctrl+C was pressed.
    """

    def __init__(self, items: Iterable[Item]) -> None:
        self._items = iter(items)
        self._waiting = False
        self.interrupted = False

    def __iter__(self) -> Iterator[Item]:
        before = signal.getsignal(signal.SIGINT)
        if before is signal.SIG_IGN:
            yield from self._items
            return
        signal.signal(signal.SIGINT, self._handle_signal)
        try:
            while True:
                try:
                    try:
                        self._waiting = True
                        if self.interrupted:
                            return
                        item = next(self._items)
                    finally:
                        self._waiting = False
                # Python may handle Ctrl+C only after the call that it interrupts.
                except (KeyboardInterrupt, StopIteration):
                    return
                yield item
        finally:
            signal.signal(signal.SIGINT, before)

    def _handle_signal(self, number: int, frame: FrameType | None) -> None:
        again, self.interrupted = self.interrupted, True
        if self._waiting or again:
            raise KeyboardInterrupt
