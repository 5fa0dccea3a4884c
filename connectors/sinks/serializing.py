"""Common parts of sinks of messages: they serialize keys and values, and number the items of one offset."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from streamrt.connectors.argument_checks import checked_function
from streamrt.connectors.sinks.batch import SinkBatch, SinkItem
from streamrt.errors import SinkError

__all__ = ["ItemSerializer", "Serializers", "decode_key", "numbered"]

ItemSerializer = Callable[[Any], str | bytes]
"""Returns the form of a key or a value in the external system."""


def decode_key(key: Any) -> str:
    """Return a key as text. The default of sinks, for keys that are UTF-8.

    Args:
        key: bytes, or text, which is returned as it is.

    Raises:
        UnicodeDecodeError: if the bytes are not UTF-8.
        TypeError: if the key is something else.

    Example:
        >>> decode_key(b"ada")
        'ada'
    """
    if isinstance(key, str):
        return key
    if isinstance(key, bytes | bytearray | memoryview):
        return bytes(key).decode()
    raise TypeError(f"a key is a {type(key).__name__}")


def numbered(batch: SinkBatch) -> Iterator[tuple[SinkItem, int]]:
    """Return the items of a batch, each with its number within its offset. The two identify it in a partition.

    Args:
        batch: the batch.

    Example:
        >>> batch = SinkBatch("orders", 0)
        >>> for offset in (7, 7, 8):
        ...     batch.append("value", None, 0, None, offset)
        >>> [(item.offset, number) for item, number in numbered(batch)]
        [(7, 0), (7, 1), (8, 0)]
    """
    seen: Counter[int] = Counter()
    for item in batch:
        yield item, seen[item.offset]
        seen[item.offset] += 1


class Serializers:
    """The serializers of a sink, with errors that name the record and not its value.

    Args:
        sink: name of the class of the sink.
        key_serializer: returns a key as text.
        value_serializer: returns a value as text or bytes.

    Raises:
        ConfigurationError: if one is not callable.
    """

    def __init__(self, sink: str, key_serializer: ItemSerializer, value_serializer: ItemSerializer) -> None:
        self._sink = sink
        self._key = checked_function(sink, "key_serializer", key_serializer)
        self._value = checked_function(sink, "value_serializer", value_serializer)

    def key(self, item: SinkItem, batch: SinkBatch) -> str | None:
        """Return the key as text, or None if there is none.

        Args:
            item: the item.
            batch: its batch.

        Raises:
            SinkError: if the serializer fails.
        """
        if item.key is None:
            return None
        made = self._made(self._key, item.key, "key", item, batch)
        if isinstance(made, str):
            return made
        try:
            return made.decode()
        except UnicodeDecodeError:
            raise self.refused(item, batch, "key_serializer returned bytes that are not UTF-8") from None

    def value(self, item: SinkItem, batch: SinkBatch) -> bytes:
        """Return the value as bytes; text is encoded in UTF-8.

        Args:
            item: the item.
            batch: its batch.

        Raises:
            SinkError: if the serializer fails.
        """
        made = self._made(self._value, item.value, "value", item, batch)
        if isinstance(made, bytes):
            return made
        try:
            return made.encode()
        except UnicodeEncodeError:
            raise self.refused(item, batch, "value_serializer returned text that has no form in UTF-8") from None

    def refused(self, item: SinkItem, batch: SinkBatch, reason: str, *, of_value: bool = True) -> SinkError:
        """Return the error for an item that cannot be written.

        Args:
            item: the item.
            batch: its batch.
            reason: why, as a clause.
            of_value: whether its value is the reason. Otherwise others would also be refused, and `on_error` must not
                skip one after the other.
        """
        return SinkError(
            f"{self._sink} cannot write {batch.topic}[{batch.partition}] offset {item.offset}: {reason}",
            batch.record_of(item) if of_value else None,
        )

    def _made(self, serializer: ItemSerializer, given: Any, what: str, item: SinkItem, batch: SinkBatch) -> str | bytes:
        # Serializers are the user's: types are checked, not trusted.
        made: Any
        try:
            made = serializer(given)
        except Exception as error:  # noqa: BLE001 - the text of any error may hold the value
            reason = f"{what}_serializer failed with {type(error).__name__} on a {type(given).__name__}"
            raise self.refused(item, batch, reason) from None
        if not isinstance(made, str | bytes):
            reason = f"{what}_serializer returned a {type(made).__name__}, not str or bytes"
            raise self.refused(item, batch, reason)
        result: str | bytes = made
        return result
