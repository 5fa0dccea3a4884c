"""Interfaces that the runtime gives to a source: a producer, and a store for its state."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Protocol

from streamrt.records import HeadersMapping, HeaderValue

__all__ = ["SourceProducer", "SourceState", "SourceStore"]


class SourceProducer(Protocol):
    """The producer of a source. The runtime passes a Kafka producer; a test may pass its own implementation."""

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        headers: Sequence[tuple[str, HeaderValue]] | HeadersMapping | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        poll_timeout: float = 30.0,
        buffer_error_max_tries: int = 10,
    ) -> None:
        """Accept one record for delivery; may return before the record is delivered.

        Raises:
            ProducerError: if this record is refused, or an earlier record was not delivered.
        """

    def flush(self, timeout: float | None = None) -> int:
        """Wait until all records are delivered; return how many are still in flight after `timeout` seconds.

        Raises:
            ProducerError: if a record finally failed.
        """


class SourceState(Protocol):
    """State of a source, by keys that are JSON values. See `streamrt.state.State`."""

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of a key, or `default`."""

    def get_bytes(self, key: Any, default: bytes | None = None) -> bytes | None:
        """Return the bytes of a key, or `default`."""

    def set(self, key: Any, value: Any, ttl: timedelta | None = None) -> None:
        """Store a JSON value."""

    def set_bytes(self, key: Any, value: bytes, ttl: timedelta | None = None) -> None:
        """Store bytes."""

    def delete(self, key: Any) -> None:
        """Delete a key."""

    def exists(self, key: Any) -> bool:
        """Return whether the key has a value."""


class SourceStore(Protocol):
    """Store for the state of a source."""

    def state(self) -> SourceState:
        """Return the state, including changes since the last commit."""

    def commit(self, timeout: float | None = None) -> None:
        """Make the changes since the last commit durable.

        Args:
            timeout: seconds to wait for the brokers.

        Raises:
            ProducerError: if the brokers did not accept them in time; the process must stop.
        """
