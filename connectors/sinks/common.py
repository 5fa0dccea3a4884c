"""What sinks share: settings of clients, names of records in errors, bounded chunks."""

import base64
import contextlib
import pickle
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, TypeVar

import cloudpickle

from streamrt.connectors.sinks.batch import SinkBatch, SinkItem
from streamrt.connectors.sinks.serializing import numbered
from streamrt.errors import ArgumentTypeError
from streamrt.secret import Secret

__all__ = [
    "ClientSettings",
    "Identity",
    "bounded",
    "close_with",
    "identified",
    "metadata",
    "origin",
    "text_key",
    "type_name",
]

T = TypeVar("T")

Identity = Literal["key", "record"]
"""What a document is: the state of a key, or one value of one record."""


class ClientSettings:
    """More settings of a client. They may contain credentials, so all of them are kept as secrets are.

    Args:
        connector: name of the connector.
        settings: the settings.

    Raises:
        ArgumentTypeError: if they cannot be sent to other processes.

    Example:
        >>> ClientSettings("RedisSink", {"username": "writer"}).reveal()
        {'username': 'writer'}
    """

    def __init__(self, connector: str, settings: Mapping[str, Any]) -> None:
        try:
            data = cloudpickle.dumps(dict(settings))
        except Exception as error:  # noqa: BLE001 - pickles fail in all ways
            names = ", ".join(settings)
            raise ArgumentTypeError(
                f"{connector} cannot send its settings {names} to other processes: {type_name(error)}"
            ) from None
        self._data = Secret(base64.b64encode(data).decode()) if settings else None

    def reveal(self) -> dict[str, Any]:
        """Return the settings."""
        if self._data is None:
            return {}
        settings: dict[str, Any] = pickle.loads(base64.b64decode(self._data.reveal()))
        return settings


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


def type_name(given: object) -> str:
    """Return the name of an object's type."""
    return type(given).__name__


def bounded(items: Iterable[T], size: Callable[[T], int], *, count: int, total: int) -> Iterator[list[T]]:
    """Split items into lists that are bounded twice. An item that is larger than the bound is alone.

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


def identified(batch: SinkBatch) -> Iterator[tuple[str, SinkItem]]:
    """Return each item with the identity of its record: topic, partition, offset, and its number within the offset.

    Records that repeat after a crash have the same identities again. Items that time produced have identities which
    differ from all others, but may come again with another one.

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


def close_with(owner: object, client: Any) -> Callable[[], object]:
    """Close a client when its owner goes, since clients that are left open complain.

    Args:
        owner: the sink.
        client: an object with a method `close`.

    Returns:
        A function that closes the client now; further calls do nothing.
    """
    return weakref.finalize(owner, _close, client)


def _close(client: Any) -> None:
    with contextlib.suppress(Exception):
        client.close()
