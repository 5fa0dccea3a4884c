"""The offsets that a view has processed, at a moment at which its table has the rows of exactly these records."""

import time
from collections.abc import Collection, Mapping
from typing import NamedTuple

from streamrt.errors import ApplicationTimeoutError
from streamrt.kafka.completion_token import Offsets
from streamrt.records import TopicPartition
from streamrt.runtime.driver.life.completion import Completion, OffsetView
from streamrt.tables.table import Table
from streamrt.topology import Topology

__all__ = ["Processed", "find_processed"]

_SHORTEST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0


class Processed(NamedTuple):
    """What a view has processed.

    Attributes:
        inputs: the next offset of each input partition.
        output: the ends of the partitions of its table, where the rows of these inputs are.
    """

    inputs: Mapping[TopicPartition, int]
    output: Offsets


def find_processed(
    topology: Topology,
    inputs: Collection[str],
    output: Table,
    view: OffsetView,
    *,
    transactional: bool,
    timeout: float,
) -> Processed:
    """Wait for a moment at which nothing is between inputs and table, and return the offsets of this moment.

    ```
    committed offsets of the inputs --> repartition topics are processed --> end of the table --> the same committed offsets?
    ```

    With exactly-once, rows become readable in the transaction that commits the offsets. With at-least-once they are there
    before, so the inputs must also be processed to their ends, unless nothing works.

    Args:
        topology: the operators, resolved.
        inputs: topics that the view reads.
        output: its table.
        view: offsets of topics and group.
        transactional: whether the application processes exactly once.
        timeout: seconds to wait.

    Raises:
        ApplicationTimeoutError: if records were in flight all the time. It says which.
    """
    deadline, pause = time.monotonic() + timeout, _SHORTEST_PAUSE_S
    while True:
        reason, processed = _look(topology, inputs, output, view, transactional)
        if processed is not None:
            return processed
        if time.monotonic() >= deadline:
            raise ApplicationTimeoutError(
                f"{output.name}: {reason}, and it was so for {timeout:g} s: let the application finish what it has read "
                "(stop writing to its inputs, pause() them, or start it if it is stopped), and verify again"
            )
        time.sleep(min(pause, max(0.0, deadline - time.monotonic())))
        pause = min(2 * pause, _LONGEST_PAUSE_S)


def _look(
    topology: Topology, inputs: Collection[str], output: Table, view: OffsetView, transactional: bool
) -> tuple[str, Processed | None]:
    partitions = view.partitions(inputs)
    committed = _committed(view, partitions)
    completion = Completion(topology, committed, view)
    if not completion.advance():
        each, (at, wanted) = next(iter(sorted(completion.missing.items())))
        return f"{each} is processed to offset {at or 0} of {wanted}", None
    if not transactional:
        for each, (_, end) in sorted(view.bounds(partitions).items()):
            if committed[each] < end and view.has_records(each, committed[each], end):
                return (
                    f"{each} is committed to offset {committed[each]} of {end}, and rows of others may be written",
                    None,
                )
    written = output.offsets("latest")
    if _committed(view, partitions) != committed:
        return "its inputs were processed further while it was looked at", None
    return "", Processed(committed, written)


def _committed(view: OffsetView, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Return committed offsets; without one, nothing of a partition is processed."""
    found = view.committed(partitions)
    without = [each for each in partitions if found.get(each) is None]
    first = view.bounds(without) if without else {}
    return {each: first[each][0] if each in first else (found[each] or 0) for each in partitions}
