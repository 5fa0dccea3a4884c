"""`to_topic`: produces the current value to a topic and passes it on."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from streamrt.operators.functions import function_name
from streamrt.operators.partitioning import Partitioner, checked_partition, in_turn
from streamrt.records import Headers
from streamrt.topics import Topic
from streamrt.topology import Node, Operator, OperatorContext, RecordHandler

TopicSelector = Callable[[Any, Any, int, Any], Topic]


@dataclass(frozen=True)
class ToTopic(Operator):
    """Serializes the value at once, passes it to the producer, and passes the value on.

    Attributes:
        topic: the output topic, or a function of value, key, timestamp and headers that returns it.
        key: function from the value to the key of the output; None keeps the record's key.
        partition: function from the value, the key of the output and the number of partitions to the partition;
            "rebalance" for the partitions in turn; None for the partition of the key.
    """

    name: ClassVar[str] = "to_topic"
    in_place: ClassVar[bool] = True
    topic: Topic | TopicSelector
    key: Callable[[Any], Any] | None = None
    partition: Partitioner | Literal["rebalance"] | None = None

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        make_key = self.key
        if not isinstance(self.topic, Topic):
            return _produce_to_selected(self.topic, make_key, self.partition, child, node, context)
        send = _place_and_produce(self.topic, self.partition, node, context)

        def same_key(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            send(value, key, timestamp, headers)
            child(value, key, timestamp, headers)

        def new_key(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            # make_key is set if this variant is chosen.
            send(value, make_key(value), timestamp, headers)  # type: ignore[misc]
            child(value, key, timestamp, headers)

        return same_key if make_key is None else new_key

    def keeps_columns(self, columns: tuple[str, ...]) -> bool:  # noqa: D102
        return True

    def describe(self) -> str:  # noqa: D102
        return self.topic.name if isinstance(self.topic, Topic) else function_name(self.topic)


def _produce_to_selected(
    select: TopicSelector,
    make_key: Callable[[Any], Any] | None,
    partitioner: Partitioner | Literal["rebalance"] | None,
    child: RecordHandler,
    node: Node,
    context: OperatorContext,
) -> RecordHandler:
    senders: dict[str, RecordHandler] = {}

    def send(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
        # The topic depends on the record's key, not on the key of the output.
        topic = select(value, key, timestamp, headers)
        if not isinstance(topic, Topic):
            raise TypeError(f"the function given to to_topic must return a Topic, got {type(topic).__name__}")
        sender = senders.get(topic.name)
        if sender is None:
            sender = senders[topic.name] = _place_and_produce(topic, partitioner, node, context)
        sender(value, key if make_key is None else make_key(value), timestamp, headers)
        child(value, key, timestamp, headers)

    return send


def _place_and_produce(
    topic: Topic, partitioner: Partitioner | Literal["rebalance"] | None, node: Node, context: OperatorContext
) -> RecordHandler:
    """Return the function that produces a record to the partition that the partitioner chooses."""
    if partitioner is None:
        return context.sender(topic)
    send, count = context.partition_sender(topic)
    if partitioner == "rebalance":
        return in_turn(send, count, node)
    choose, name = partitioner, topic.name

    def place(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
        send(value, key, timestamp, headers, checked_partition(choose(value, key, count), count, choose, name))

    return place
