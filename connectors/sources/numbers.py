"""`NumberSequenceSource`: consecutive integers as records."""

from collections.abc import Callable, Iterator
from typing import Any

from streamrt.connectors.argument_checks import checked_type
from streamrt.connectors.sources.sequence import SequenceSource

__all__ = ["NumberSequenceSource"]


class NumberSequenceSource(SequenceSource):
    """Produces the integers from a first one to a last one, each once, and ends; the application goes on.

    Args:
        start: the first number.
        end: the last number, inclusive; if it is less than `start`, there are no numbers.
        name: name of the source, unique in the application. A restart under the same name goes on with the first number
            that was not produced.
        key: function of a number that returns the record's key; without it, records have no key.
        timestamp: function of a number that returns the record's timestamp in milliseconds since the Unix epoch; without
            it, it is the time of producing.
        shutdown_timeout: seconds that the source has to end when the application stops.

    Raises:
        ConfigurationError: if an argument cannot be used.

    Example:
        >>> numbers = NumberSequenceSource(1, 1_000_000, "numbers")
        >>> numbers.count
        1000000
    """

    def __init__(
        self,
        start: int,
        end: int,
        name: str = "numbers",
        *,
        key: Callable[[int], Any] | None = None,
        timestamp: Callable[[int], int] | None = None,
        shutdown_timeout: float = 10,
    ) -> None:
        super().__init__(name, key, timestamp, shutdown_timeout)
        for what, number in (("start", start), ("end", end)):
            checked_type("NumberSequenceSource", what, number, int, "an int")
        self._numbers = range(start, end + 1)

    @property
    def count(self) -> int:
        """Number of numbers."""
        return len(self._numbers)

    def values(self, start: int) -> Iterator[int]:
        """Yield the numbers from a position on."""
        return iter(self._numbers[start:])
