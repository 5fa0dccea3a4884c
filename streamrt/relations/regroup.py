"""`group_by` of a table: brings the changes of a group together."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from streamrt.records import Headers
from streamrt.relations.change import drop_unchanged, is_same_key
from streamrt.topics import Topic
from streamrt.topology import ExchangeOperator, Node, OperatorContext, RecordHandler

__all__ = ["Regroup"]


@dataclass(frozen=True)
class Regroup(ExchangeOperator):
    """Sends each change to the partition of its group, as a list of the former and the present row.

    A row that changes its group leaves the one, and joins the other: two records. One whose key is None is in no group.

    Attributes:
        topic: the repartition topic, the source of the next sub-topology.
        key: function from a row to the key of its group.
        group: name of the grouping.
        like: a topic that has as many partitions; None for that of the input.
    """

    name: ClassVar[str] = "group_by"
    topic: Topic
    key: Callable[[Any], Any]
    group: str
    like: str | None = None

    @property
    def sized_by(self) -> str | None:  # noqa: D102
        return self.like

    def sized(self, partitions: int, like: str) -> ExchangeOperator:  # noqa: D102
        return self if self.like is None else replace(self, like=like)

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        make_key, send = self.key, context.sender(self.topic)

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            before, after = value
            former = None if before is None else make_key(before)
            present = None if after is None else make_key(after)
            if former is not None and present is not None and is_same_key(former, present):
                send([before, after], present, timestamp, headers)
                return
            if former is not None:
                send([before, None], former, timestamp, headers)
            if present is not None:
                send([None, after], present, timestamp, headers)

        return drop_unchanged(run, context)

    def multiplies_records(self) -> bool:
        """A change may concern two groups."""
        return True

    def describe(self) -> str:  # noqa: D102
        return self.group
