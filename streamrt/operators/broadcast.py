"""`broadcast`: brings each record to all partitions."""

from dataclasses import dataclass, replace
from typing import ClassVar

from streamrt.records import Headers
from streamrt.topics import Topic
from streamrt.topology import ExchangeOperator, Node, OperatorContext, RecordHandler


@dataclass(frozen=True)
class Broadcast(ExchangeOperator):
    """Produces each record to all partitions of a repartition topic. This ends the sub-topology.

    Key, value, timestamp and headers stay the same. All copies are in the transaction of the record.

    Attributes:
        topic: the repartition topic, the source of the next sub-topology.
        group: name of the broadcast.
        like: the topic that the repartition topic has as many partitions as.
        partitions: number of partitions, set by `Topology.resolve`.

    Example:
        >>> Broadcast(Topic("repartition__shop--rules--broadcast"), "broadcast", "orders").sized(3, "orders").partitions
        3
    """

    name: ClassVar[str] = "broadcast"
    copies: ClassVar[bool] = True
    topic: Topic
    group: str
    like: str
    partitions: int = 0

    @property
    def sized_by(self) -> str:  # noqa: D102
        return self.like

    def sized(self, partitions: int, like: str) -> "Broadcast":  # noqa: D102
        return replace(self, partitions=partitions, like=like)

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        if self.partitions < 1:
            raise RuntimeError(f"{node} does not know the number of partitions: resolve() the topology first")
        send = context.sender(self.topic, self.partitions)

        def run(value: object, key: object, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            send(value, key, timestamp, headers)

        return run

    def describe(self) -> str:  # noqa: D102
        return self.group
