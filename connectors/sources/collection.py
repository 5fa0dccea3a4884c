"""`CollectionSource`: the elements of a list as records."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from streamrt.connectors.sources.sequence import SequenceSource
from streamrt.errors import argument_error

__all__ = ["CollectionSource"]


class CollectionSource(SequenceSource):
    """Produces the elements of a collection in their order, each once, and ends; the application goes on.

    Args:
        elements: the elements, at least one. They are pickled and sent to the process of the source, so mind their size.
        name: name of the source, unique in the application. A restart under the same name goes on with the first element
            that was not produced; elements may be added at the end.
        key: function of an element that returns the record's key; without it, records have no key.
        timestamp: function of an element that returns the record's timestamp in milliseconds since the Unix epoch;
            without it, it is the time of producing.
        shutdown_timeout: seconds that the source has to end when the application stops.

    Raises:
        ConfigurationError: if there are no elements, or an argument cannot be used.

    Example:
        >>> orders = CollectionSource([{"id": "a", "at": 5}, {"id": "b", "at": 7}], "orders", key=lambda order: order["id"])
        >>> orders.count
        2
    """

    def __init__(
        self,
        elements: Iterable[Any],
        name: str = "collection",
        *,
        key: Callable[[Any], Any] | None = None,
        timestamp: Callable[[Any], int] | None = None,
        shutdown_timeout: float = 10,
    ) -> None:
        super().__init__(name, key, timestamp, shutdown_timeout)
        usable = isinstance(elements, Iterable) and not isinstance(elements, str | bytes)
        self._elements = list(elements) if usable else []
        if not self._elements:
            raise argument_error(
                f"CollectionSource(elements=...) of source {name} must be a collection of at least one element, got "
                f"{'an empty one' if usable else type(elements).__name__}",
                of_type=usable,
            )

    @property
    def count(self) -> int:
        """Number of elements."""
        return len(self._elements)

    def values(self, start: int) -> Iterator[Any]:
        """Yield the elements from a position on."""
        return islice(self._elements, start, None)
