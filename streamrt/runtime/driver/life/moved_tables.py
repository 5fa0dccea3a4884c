"""Views that an application reads, and whose tables have another topic since they were swapped."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from streamrt.errors import StaleTokenError, StreamRTError
from streamrt.tables.descriptions.topics import TableTopic
from streamrt.topology import SourceOperator, Topology

if TYPE_CHECKING:
    # With pyarrow, which programs without tables do not wait for.
    from streamrt.tables.descriptions.info import TableInfo

__all__ = ["find_moved_table"]


def find_moved_table(topology: Topology, load: Callable[[str], TableInfo]) -> StaleTokenError | None:
    """Return the error of a view whose rows are in another topic than that which the application reads, or None.

    Args:
        topology: the operators.
        load: returns what the catalogue knows of a table by its name.
    """
    for node in topology.sources.values():
        topic = node.operator.topic if isinstance(node.operator, SourceOperator) else None
        if not isinstance(topic, TableTopic):
            continue
        try:
            info = load(topic.table)
        except StreamRTError:
            # Such as a table that was dropped, or brokers that do not answer.
            continue
        if info.is_view and info.topic != topic.name:
            return StaleTokenError(
                f"table {topic.table!r} has topic {info.topic!r} now, as after a swap of views, and this application reads "
                f"{topic.name!r}: start the program again; it then begins with the first row of the other topic"
            )
    return None
