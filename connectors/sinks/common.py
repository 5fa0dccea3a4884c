"""Helpers of sinks: where a record is from, identities of documents, bounded chunks."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, TypeVar

from streamrt.connectors.sinks.batch import SinkBatch, SinkItem
from streamrt.connectors.sinks.serializing import numbered

__all__ = [
    "Identity",
    "bounded",
    "identified",
    "metadata",
    "origin",
    "send_in_parts",
    "text_key",
]

T = TypeVar("T")

Identity = Literal["key", "record"]
"""Meaning of a document: the state of a key, or one value of one record."""


def origin(batch: SinkBatch, item: SinkItem) -> str:
    """Return the origin of an item in words.

    Args:
        batch: its batch.
        item: the item.

    Example:
        >>> batch = SinkBatch("orders", 0)
        >>> origin(batch, SinkItem({}, None, 0, None, 41))
        'orders[0] at offset 41'
    """
    return f"{batch.topic}[{batch.partition}] at offset {item.offset}"


def bounded(items: Iterable[T], size: Callable[[T], int], *, count: int, total: int) -> Iterator[list[T]]:
    """Split items into lists that are bounded twice. An item that is larger than the bound gets a list of its own.

    Args:
        items: the items.
        size: returns the size of an item.
        count: maximum number of items in a list.
        total: maximum of the sum of their sizes.

    Example:
        >>> list(bounded(["a", "bb", "c", "d", "eeee"], len, count=2, total=3))
        [['a', 'bb'], ['c', 'd'], ['eeee']]
    """
    chunk: list[T] = []
    filled = 0
    for item in items:
        extent = size(item)
        if chunk and (len(chunk) == count or filled + extent > total):
            yield chunk
            chunk, filled = [], 0
        chunk.append(item)
        filled += extent
    if chunk:
        yield chunk


def send_in_parts(
    items: Sequence[T], send: Callable[[Sequence[T]], object], is_about_items: Callable[[Exception], bool]
) -> None:
    """Send items in one request; if it is refused as a whole, in halves, up to the first item that is refused on its own.

    Args:
        items: the items.
        send: sends some of them.
        is_about_items: whether an error may be about one of the items. Others propagate at once.

    Raises:
        Exception: the error about the first item that is refused on its own.

    Example:
        >>> def send(numbers):
        ...     if 3 in numbers:
        ...         raise ValueError(f"refused {numbers}")
        >>> send_in_parts([1, 2, 3, 4], send, lambda error: isinstance(error, ValueError))
        Traceback (most recent call last):
        ...
        ValueError: refused [3]
    """
    try:
        send(items)
        return
    except Exception as error:
        if len(items) < 2 or not is_about_items(error):
            raise
    half = len(items) // 2
    send_in_parts(items[:half], send, is_about_items)
    send_in_parts(items[half:], send, is_about_items)


def identified(batch: SinkBatch) -> Iterator[tuple[str, SinkItem]]:
    """Return each item with the identity of its record: topic, partition, offset, and its number within the offset.

    Records that repeat after a crash have the same identities again. Items that time produced have identities which
    differ from all others, but may be written again with another one.

    Args:
        batch: the batch.

    Example:
        >>> batch = SinkBatch("orders", 0)
        >>> for value in "ab":
        ...     batch.append(value, None, 0, None, 41)
        >>> [(identity, item.value) for identity, item in identified(batch)]
        [('orders/0/41/0', 'a'), ('orders/0/41/1', 'b')]
    """
    for item, number in numbered(batch):
        yield f"{batch.topic}/{batch.partition}/{item.offset}/{number}", item


def text_key(key: Any) -> Any:
    """Return a key as text if it is bytes of UTF-8, and as it is otherwise."""
    if isinstance(key, bytes):
        try:
            return key.decode()
        except UnicodeDecodeError:
            return key
    return key


def metadata(batch: SinkBatch, item: SinkItem, *, message: bool, topic: bool) -> dict[str, Any]:
    """Return the metadata of an item as columns.

    Args:
        batch: its batch.
        item: the item.
        message: whether to return `__key`, `__timestamp` and `__headers`.
        topic: whether to return `__topic`, `__partition` and `__offset`.
    """
    columns: dict[str, Any] = {}
    if message:
        columns |= {"__key": text_key(item.key), "__timestamp": item.timestamp, "__headers": item.headers}
    if topic:
        columns |= {"__topic": batch.topic, "__partition": batch.partition, "__offset": item.offset}
    return columns
