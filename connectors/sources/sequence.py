"""Base of the sources of known values: each value once, across restarts."""

import abc
from collections.abc import Callable, Iterator
from typing import Any

from streamrt.connectors.argument_checks import checked_function
from streamrt.connectors.sources.reading import FlushPace
from streamrt.connectors.sources.stateful import StatefulSource
from streamrt.errors import SourceError

__all__ = ["SequenceSource"]

_FLUSH_EVERY = 10_000
_FLUSH_INTERVAL_S = 1.0


class SequenceSource(StatefulSource):
    """Produces values in their order, and ends. A restart goes on with the first value that was not produced.

    Args:
        name: name of the source, unique in the application. The position belongs to this name.
        key: function of a value that returns the record's key; without it, records have no key.
        timestamp: function of a value that returns the record's timestamp in milliseconds; without it, it is the time of
            producing.
        shutdown_timeout: seconds that the source has to end when the application stops.

    Raises:
        ConfigurationError: if an argument cannot be used.
    """

    def __init__(
        self,
        name: str,
        key: Callable[[Any], Any] | None,
        timestamp: Callable[[Any], int] | None,
        shutdown_timeout: float,
    ) -> None:
        super().__init__(name, shutdown_timeout)
        owner = type(self).__name__
        self._key = checked_function(owner, "key", key, optional=True)
        self._timestamp = checked_function(owner, "timestamp", timestamp, optional=True)

    @property
    @abc.abstractmethod
    def count(self) -> int:
        """Number of values."""

    @abc.abstractmethod
    def values(self, start: int) -> Iterator[Any]:
        """Yield the values from a position on.

        Args:
            start: the position, counted from 0.
        """

    def run(self) -> None:
        """Produce the values.

        Raises:
            SourceError: if there are fewer values than were produced before, or if a value cannot be produced; the
                message names its position.
        """
        position = self.state.get("position", 0)
        if position > self.count:
            raise SourceError(
                f"the source {self.name} has {self.count} values, and has produced {position} before: its values have "
                "changed; give the source another name, or bring the values back"
            )
        pace = FlushPace(_FLUSH_EVERY, _FLUSH_INTERVAL_S)
        for value in self.values(position):
            if not self.running:
                break
            self._produce_value(value, position)
            position += 1
            pace.add()
            if pace.due:
                self._keep_position(position)
                self.flush()
                pace.flushed()
        # The source flushes when it ends.
        self._keep_position(position)

    def _keep_position(self, position: int) -> None:
        self.state.set("position", position)

    def _produce_value(self, value: Any, position: int) -> None:
        try:
            key = None if self._key is None else self._key(value)
            timestamp = None if self._timestamp is None else self._timestamp(value)
            message = self.serialize(key, value, timestamp_ms=timestamp)
        except Exception as error:
            raise SourceError(
                f"value {position} of the source {self.name} cannot be produced: {type(error).__name__}: {error}"
            ) from error
        self.produce(message.value, message.key, message.headers, timestamp=message.timestamp)
