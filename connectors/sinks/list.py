"""`ListSink`: results as a Python list."""

import copy
from collections import UserList
from typing import Any

from typing_extensions import Self

from streamrt.connectors.sinks.base import DriverSink
from streamrt.connectors.sinks.batch import SinkBatch, SinkItem

__all__ = ["ListSink"]


class ListSink(DriverSink, UserList[Any]):
    """A sink that is a list: after `run()` it holds the values. For tests, notebooks and small results.

    Values arrive once for each micro-batch, those of each task in their order. They stay in memory until the
    program removes them, for example with `clear()`. A pickled sink does not contain the values.

    Args:
        *args: arguments of `list`: an iterable of initial values.
        metadata: whether to add metadata to each value. The items are then dicts: the columns of the value, and
            `_key`, `_timestamp` (ms), `_headers`, `_topic`, `_partition` and `_offset` of the input record. A value
            that is not a dict becomes the column `value`.

    Example:
        >>> sink = ListSink(metadata=True)
        >>> sink.add({"n": 1}, b"a", 1_000, None, "orders", 0, 41)
        >>> sink.flush()
        >>> sink[0]["n"], sink[0]["_key"], sink[0]["_offset"]
        (1, b'a', 41)
    """

    def __init__(self, *args: Any, metadata: bool = False) -> None:
        DriverSink.__init__(self)
        UserList.__init__(self, *args)
        self._metadata = metadata

    def write(self, batch: SinkBatch) -> None:
        """Append the values of a batch.

        Args:
            batch: the values of one partition.
        """
        if self._metadata:
            self.data.extend(_with_metadata(item, batch) for item in batch)
        else:
            self.data.extend(item.value for item in batch)

    def __getstate__(self) -> dict[str, Any]:
        # Tasks gather in a copy: they do not need the values that the list holds already.
        return {**self.__dict__, "data": []}

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        twin = copy.copy(self)
        twin.data = copy.deepcopy(self.data, memo)
        return twin


def _with_metadata(item: SinkItem, batch: SinkBatch) -> dict[str, Any]:
    columns = item.value if isinstance(item.value, dict) else {"value": item.value}
    return {
        "_key": item.key,
        "_timestamp": item.timestamp,
        "_headers": item.headers,
        "_topic": batch.topic,
        "_partition": batch.partition,
        "_offset": item.offset,
        **columns,
    }
