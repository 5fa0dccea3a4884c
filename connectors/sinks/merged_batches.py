"""Batches of a task with several inputs: few of them, with the values of each key in their order.

A join or `concat` gives values that records of several topics have caused, in turns. A batch has values of one topic and
partition, so that offsets identify them. As many batches as turns would be slow to write, and one batch for each topic would
mix up the values of a key. Between the two, a batch ends where a key moves to another topic.
"""

from collections.abc import Hashable, Iterable
from itertools import groupby
from typing import Any

from streamrt.connectors.sinks.batch import SinkBatch

__all__ = ["join_batches", "join_partitions"]


def join_batches(batches: Iterable[SinkBatch]) -> list[SinkBatch]:
    """Return the values of one task in fewer batches.

    The values of a topic keep their order, and so do the values of a key, whatever their topics are; those without a key have
    none between topics. Values of one offset stay together, so that their number in a batch identifies them.

    Args:
        batches: the values, in order.

    Example:
        >>> a, b, again = SinkBatch("a", 0), SinkBatch("b", 0), SinkBatch("a", 0)
        >>> a.append(1, "ann", 0, None, 7)
        >>> b.append(2, "bob", 0, None, 3)
        >>> again.append(3, "ann", 0, None, 8)
        >>> [[item.value for item in batch] for batch in join_batches([a, b, again])]
        [[1, 3], [2]]
        >>> again.append(4, "bob", 0, None, 9)
        >>> [[item.value for item in batch] for batch in join_batches([a, b, again])]
        [[1, 3], [2], [4]]
    """
    given = list(batches)
    if len({(batch.topic, batch.partition) for batch in given}) < 2:
        return join_partitions(given)
    joined: list[SinkBatch] = []
    newest: dict[tuple[str, int], int] = {}
    of_offset: dict[tuple[str, int, int], int] = {}
    of_key: dict[Hashable, int] = {}
    for batch in given:
        partition = batch.topic, batch.partition
        for offset, group in groupby(batch, lambda item: item.offset):
            items, record = list(group), (batch.topic, batch.partition, offset)
            keys = {_hashable(item.key) for item in items if item.key is not None}
            number = of_offset.get(record)
            if number is None:
                number = newest.get(partition, -1)
                if number < max((of_key.get(key, 0) for key in keys), default=0):
                    number = newest[partition] = len(joined)
                    joined.append(SinkBatch(*partition))
                of_offset[record] = number
            joined[number].extend(items)
            for key in keys:
                of_key[key] = max(number, of_key.get(key, 0))
    return joined


def join_partitions(batches: Iterable[SinkBatch]) -> list[SinkBatch]:
    """Return one batch for each topic and partition, for sinks that keep no order between them.

    Args:
        batches: the values, in order.
    """
    partitions: dict[tuple[str, int], list[SinkBatch]] = {}
    for batch in batches:
        partitions.setdefault((batch.topic, batch.partition), []).append(batch)
    return [_join(of_one) for of_one in partitions.values()]


def _join(batches: list[SinkBatch]) -> SinkBatch:
    if len(batches) == 1:
        return batches[0]
    joined = SinkBatch(batches[0].topic, batches[0].partition)
    for batch in batches:
        joined.extend(batch)
    return joined


def _hashable(key: Any) -> Hashable:
    try:
        hash(key)
    except TypeError:
        return repr(key)
    return key  # type: ignore[no-any-return]
