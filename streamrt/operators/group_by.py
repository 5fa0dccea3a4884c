"""`group_by`: gives records new keys, and brings records with the same key together in one partition."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from streamrt.operators.columns import column_of
from streamrt.operators.partitioning import KeyPartitioner, checked_partition
from streamrt.records import Headers
from streamrt.topics import Topic
from streamrt.topology import ExchangeOperator, Node, OperatorContext, RecordHandler


@dataclass(frozen=True)
class ColumnKey:
    """Takes the key from a column. A function for `Repartition`.

    Example:
        >>> ColumnKey("customer")({"customer": "ann", "total": 3})
        'ann'
    """

    column: str

    def __call__(self, value: Any) -> Any:
        """Return the value of the column."""
        return column_of(value, self.column)


@dataclass(frozen=True)
class ColumnsKey:
    """Makes the key a list of the values of several columns, in their order. A function for `Repartition`.

    Example:
        >>> ColumnsKey(("auction", "bidder"))({"bidder": "ann", "auction": 7, "price": 3})
        [7, 'ann']
    """

    columns: tuple[str, ...]

    def __call__(self, value: Any) -> list[Any]:
        """Return the values of the columns."""
        return [column_of(value, column) for column in self.columns]


@dataclass(frozen=True)
class NullGroup:
    """Makes None a key like others, as SQL's NULL forms a group: a list of None. A function for `Repartition`.

    A record whose key is None has no key in Kafka, and may be in any partition. The list is in one of them, and what works by
    key takes it for a key. Joins compare it with nothing, as all lists with a None in them.

    Attributes:
        key: function from the value to the key.

    Example:
        >>> group = NullGroup(ColumnKey("country"))
        >>> group({"country": "FR"}), group({"country": None})
        ('FR', [None])
    """

    key: Callable[[Any], Any]

    def __call__(self, value: Any) -> Any:
        """Return the key."""
        key = self.key(value)
        return [None] if key is None else key


@dataclass(frozen=True)
class Repartition(ExchangeOperator):
    """Produces each record with a new key to a repartition topic. This ends the sub-topology.

    Value, timestamp and headers stay the same. The key may be None.

    Attributes:
        topic: the repartition topic, the source of the next sub-topology.
        key: function from the value to the new key.
        group: name of the grouping.
        partitioner: function from the new key and the number of partitions to the partition; None for Kafka's.

    Example:
        >>> Repartition(Topic("repartition__shop--orders--customer"), ColumnKey("customer"), "customer").describe()
        'customer'
    """

    name: ClassVar[str] = "group_by"
    topic: Topic
    key: Callable[[Any], Any]
    group: str
    partitioner: KeyPartitioner | None = None

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        make_key = self.key
        if self.partitioner is not None:
            choose, topic = self.partitioner, self.topic.name
            send_to, count = context.partition_sender(self.topic)

            def place(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
                new = make_key(value)
                send_to(value, new, timestamp, headers, checked_partition(choose(new, count), count, choose, topic))

            return place
        send = context.sender(self.topic)

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            send(value, make_key(value), timestamp, headers)

        if not isinstance(make_key, ColumnKey):
            return run
        column = make_key.column

        def run_column(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            # Saves two calls for each record.
            try:
                new = value[column]
            except (KeyError, TypeError, IndexError):
                new = make_key(value)
            send(value, new, timestamp, headers)

        return run_column

    def describe(self) -> str:  # noqa: D102
        return self.group
