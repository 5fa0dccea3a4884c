"""`to_table` into a table with a primary key: rows are upserted and deleted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamrt.errors import ArgumentValueError
from streamrt.operators.to_table import ToTable
from streamrt.records import Headers
from streamrt.relations.change import drop_unchanged
from streamrt.relations.change_counts import WriteCounts
from streamrt.tables.descriptions.topics import TableTopic
from streamrt.topology import Node, OperatorContext, RecordHandler

if TYPE_CHECKING:
    # With pyarrow, which programs without tables do not wait for.
    from streamrt.tables.descriptions.keys import RowKey

__all__ = ["UpsertChanges", "UpsertRows", "topic_and_key"]


@dataclass(frozen=True)
class UpsertRows(ToTable):
    """Upserts each value, as a row, and passes it on. None deletes the row whose primary key is the record's key."""

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        topic, make_key = topic_and_key(self.topic)
        send, count = context.sender(topic), WriteCounts(node, context).add

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            count(value)
            send(value, key if value is None else make_key(value), timestamp, headers)
            child(value, key, timestamp, headers)

        return run


@dataclass(frozen=True)
class UpsertChanges(ToTable):
    """Writes the changes of a table into another one, and passes them on.

    The primary key comes from the columns of the rows. It must be the same for all rows of a key.
    """

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        topic, make_key = topic_and_key(self.topic)
        send, table, count = context.sender(topic), self.table, WriteCounts(node, context).add

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            before, after = value
            # A former row without a valid key is not in the table: it was refused, and skipped.
            former = None if before is None else make_key(before)
            if after is None:
                if former is not None:
                    count(None)
                    send(None, former, timestamp, headers)
                return
            row_key = make_key(after)
            if former is not None and row_key != former:
                raise ArgumentValueError(
                    f"to_table() into {table}: the primary key of a row changed, or became null, while the row has the same "
                    f"key here. The columns {', '.join(make_key.columns)} must come from the key: group_by() them first"
                )
            count(after)
            send(after, row_key, timestamp, headers)

        write = drop_unchanged(run, context)

        def run_and_pass_on(value: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
            write(value, key, timestamp, headers)
            child(value, key, timestamp, headers)

        return run_and_pass_on


def topic_and_key(topic: object) -> tuple[TableTopic, RowKey]:
    """Return the topic of a table, and the function that returns the primary key of a row.

    Args:
        topic: the topic.

    Raises:
        TypeError: if it is not that of a table with a primary key.
    """
    if not isinstance(topic, TableTopic) or topic.row_key is None:
        raise TypeError(f"{topic} has no primary key")
    return topic, topic.row_key
