"""Windows as objects, for assigners, triggers and window functions."""

from dataclasses import dataclass
from typing import Final

__all__ = ["END_OF_TIME", "Window"]

END_OF_TIME: Final = 1 << 63
"""The end of a window that never ends."""


@dataclass(frozen=True, order=True)
class Window:
    """An interval of time, `[start, end)`, in milliseconds since the Unix epoch.

    Attributes:
        start: the first millisecond.
        end: the first millisecond after it.

    Example:
        >>> window = Window(5_000, 10_000)
        >>> window.max_timestamp
        9999
        >>> window.intersects(Window(10_000, 12_000)), window.cover(Window(7_000, 12_000))
        (True, Window(start=5000, end=12000))
    """

    start: int
    end: int

    @property
    def max_timestamp(self) -> int:
        """The last millisecond of the window."""
        return self.end - 1

    def intersects(self, other: "Window") -> bool:
        """Return whether the windows overlap or touch: sessions that touch are one."""
        return self.start <= other.end and self.end >= other.start

    def cover(self, other: "Window") -> "Window":
        """Return the smallest window with both windows."""
        return Window(min(self.start, other.start), max(self.end, other.end))

    @staticmethod
    def start_of(timestamp: int, size: int, offset: int = 0) -> int:
        """Return the start of the window of a timestamp, where windows of a size follow each other.

        Args:
            timestamp: the timestamp in milliseconds.
            size: length of the windows.
            offset: distance of their starts from multiples of the length.

        Example:
            >>> Window.start_of(12, 10), Window.start_of(12, 10, 5), Window.start_of(2, 10, 5)
            (10, 5, -5)
        """
        return timestamp - (timestamp - offset) % size
