"""Values of a chunk, deserialized many at once, shortly before they are processed."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from streamrt.serializers.base import BatchDeserializer

__all__ = ["FEWEST_AHEAD", "load_ahead"]

FEWEST_AHEAD: Final = 256
"""To deserialize fewer values one by one takes less time."""

_BLOCK: Final = 2_048
_MOST_REFUSED: Final = 2


def load_ahead(values: Sequence[bytes | None], load: BatchDeserializer) -> Iterator[Any]:
    """Yield each value: a dict if it was deserialized, and otherwise as it is.

    If one value of a block cannot be deserialized with the others, all of them stay as they are. After two such blocks in
    a row, so do all that follow.

    Args:
        values: values of records.
        load: deserializes many of them.

    Example:
        >>> import orjson
        >>> values = [None, *[b'{"a":1}'] * FEWEST_AHEAD]
        >>> list(load_ahead(values, lambda values: map(orjson.loads, values)))[:2]
        [None, {'a': 1}]
        >>> list(load_ahead(values, lambda values: None))[:2]
        [None, b'{"a":1}']
    """
    refused = 0
    for start in range(0, len(values), _BLOCK):
        block = values[start : start + _BLOCK]
        given = [value for value in block if value is not None]
        loaded = load(given) if len(given) >= FEWEST_AHEAD and refused < _MOST_REFUSED else None
        refused = refused + 1 if loaded is None else 0
        if loaded is None:
            yield from block
        elif len(given) == len(block):
            yield from loaded
        else:
            rows = iter(loaded)
            yield from (None if value is None else next(rows) for value in block)
