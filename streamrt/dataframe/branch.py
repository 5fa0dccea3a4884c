"""The position of a dataframe in the topology, where its next operator is added."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from typing_extensions import Self

from streamrt.common.texts import shorten_name
from streamrt.errors import ArgumentValueError, InvalidOperationError
from streamrt.operators import Apply
from streamrt.operators.expression import METADATA, Call, Expression, Input, StatefulCall
from streamrt.relations import ExactDeserializer, ExactSerializer
from streamrt.serializers import DeserializerType, SerializerType
from streamrt.state import RocksDBStore
from streamrt.state.base import Transaction
from streamrt.state.spec import StoreSpec
from streamrt.state.store import DEFAULT_STORE, MAX_STORE_NAME
from streamrt.state.transactions.keyed import StoreTransaction
from streamrt.topics import Topic, TopicManager
from streamrt.topology import (
    ExchangeOperator,
    MergeOperator,
    Node,
    Operator,
    SourceOperator,
    TopologyBuilder,
    stream_id,
)

if TYPE_CHECKING:
    from streamrt.tables import Table


_SHORT_PATH = 60


@dataclass(frozen=True, eq=False)
class Branch:
    """A position in the topology. Methods add operators below it, and return the position below these.

    Attributes:
        builder: the builder of the topology.
        node: the parent of the next operator.
        sources: the source nodes of the records, sorted by id.
        topic_manager: declares the topics that operators need.
        groups: names of the groupings upstream.
        keyed: whether all records of a key are in one partition; not below a `rebalance`.
        tables: returns a table of the application's catalogue by its name.
        updates: whether the values are changes of rows, as below a table.
        bag: whether these rows have no key, and may be equal.
        key_columns: the columns whose value is the key of the records, or the list of whose values is it, if there are
            several; None if it is not known.
        moved: whether keys are in other partitions than those in which they would be written.
        sides: the position whose side outputs are those of this one; None for this one.
    """

    builder: TopologyBuilder
    node: Node
    sources: tuple[Node, ...]
    topic_manager: TopicManager
    groups: tuple[str, ...] = ()
    keyed: bool = True
    tables: Callable[[str], Table] | None = None
    updates: bool = False
    bag: bool = False
    key_columns: tuple[str, ...] | None = None
    moved: bool = False
    sides: Branch | None = None

    @property
    def topics(self) -> tuple[Topic, ...]:
        """The topics of the sources, sorted by name."""
        return tuple(sorted(map(_source_topic, self.sources), key=lambda topic: topic.name))

    @property
    def stream_id(self) -> str:
        """The names of the topics, joined by `--`."""
        return stream_id(topic.name for topic in self.topics)

    @property
    def store_name(self) -> str:
        """The name of the store that stateful operators share."""
        # On topics of one partition, frames before and after a group_by use the stores of the same topic. Each grouping
        # needs a separate store, or equal keys of different groupings would share their state.
        return name_store(DEFAULT_STORE, *self.groups)

    def store(self, name: str, transaction: type[Transaction] = StoreTransaction) -> StoreSpec:
        """Return a store of the type that is registered for the sources.

        Raises:
            InvalidOperationError: if the records of a key are in several partitions.
        """
        if not self.keyed:
            raise InvalidOperationError(
                "below rebalance() the records of a key are in several partitions, so operations with state, windows and "
                "joins would see only some of them: call group_by() first"
            )
        return StoreSpec(name, self.builder.store_type_of(self.sources) or RocksDBStore, transaction)

    def own_store(self, name: str, what: str, cure: str) -> str:
        """Return the name of a store that only one operator of the frame may use.

        Args:
            name: name of the store, without that of the groupings upstream.
            what: the operator, for the error, such as "a window".
            cure: a call that gives the operator another name.

        Raises:
            InvalidOperationError: if another operator uses it.
        """
        store = name_store(name, *self.groups)
        topology = self.builder.build(removed=True)
        for node in topology.nodes:
            used = any(other.name == store for other in node.operator.stores())
            if used and topology.scope(node) == self.stream_id:
                raise InvalidOperationError(
                    f"this dataframe already has {what} with its state in the store {store!r}, defined at "
                    f"{node.location}: use the frame that it returned, or give one of the two a name, such as {cure}"
                )
        return store

    def add(self, operator: Operator) -> Branch:
        """Add an operator."""
        columns = self.key_columns
        if columns is not None and not operator.keeps_columns(columns):
            columns = None
        sides = self.sides if operator.in_place else None
        return replace(self, node=self.builder.add(self.node, operator), key_columns=columns, sides=sides)

    def with_sides_of(self, other: Branch) -> Branch:
        """Return this position, with the side outputs of another one, which is in front of an exchange."""
        return replace(self, sides=other)

    def of_tables(self) -> Branch:
        """Return this position, at which values are changes of rows by key."""
        return replace(self, updates=True, bag=False)

    def of_bags(self) -> Branch:
        """Return this position, at which values are changes of rows without a key."""
        return replace(self, updates=True, bag=True, moved=False)

    def require_keys(self, call: str) -> None:
        """Refuse rows without a key.

        Args:
            call: the call that needs keys.

        Raises:
            InvalidOperationError: if rows have none.
        """
        if self.bag:
            raise InvalidOperationError(
                f"{call} works by key, and the rows of a table have none, as it comes from a join by columns: join it by "
                "columns as well, on=(left, right), or call its keyed_by() before"
            )

    def of_streams(self) -> Branch:
        """Return this position, at which values are not changes of rows."""
        return replace(self, updates=False, bag=False)

    def rekeyed(self, name: str) -> Branch:
        """Return this position, at which an operator has given records other keys without sending them.

        Args:
            name: its name, which becomes part of the names of stores.
        """
        return replace(self, groups=(*self.groups, name), moved=True, key_columns=None)

    def side_output(self, tag: str) -> Branch:
        """Return the position below a side output of the nearest operator that has made a new frame.

        Raises:
            ArgumentValueError: if the operator has no side output of this name.
        """
        if self.sides is not None:
            return self.sides.side_output(tag)
        return replace(self, node=self.builder.add_side_output(self.node, tag), key_columns=None)

    def exact_topic(
        self,
        operation: str,
        *,
        key_deserializer: DeserializerType = "json",
        key_serializer: SerializerType = "json",
        like: str | None = None,
        short: bool = False,
    ) -> Topic:
        """Declare a repartition topic below here whose values, such as rows, are read back as they were.

        Args:
            operation: what records go there for, part of its name.
            key_deserializer: name of a deserializer, or an object.
            key_serializer: name of a serializer, or an object.
            like: the topic that decides on the number of partitions; None if the broker does.
            short: whether its name has a digest in place of names of other internal topics.
        """
        return self.topic_manager.repartition_topic(
            operation,
            self.stream_id,
            value_deserializer=ExactDeserializer(),
            key_deserializer=key_deserializer,
            value_serializer=ExactSerializer(),
            key_serializer=key_serializer,
            like=like,
            short=short,
        )

    def exchange(
        self,
        operator: ExchangeOperator,
        name: str,
        *,
        keyed: bool = True,
        key_columns: tuple[str, ...] | None = None,
    ) -> Branch:
        """Add an exchange, and return the position below the source that it feeds.

        Args:
            operator: the operator.
            name: its name, which becomes part of the names of stores.
            keyed: whether it brings the records of a key together.
            key_columns: the columns whose values are the new key, if it is known.

        Raises:
            InvalidOperationError: if the topic in between already has a source.
        """
        source = self.builder.add_exchange(self.node, operator)
        return self.behind(source, name, keyed=keyed, key_columns=key_columns)

    def behind(
        self, source: Node, name: str, *, keyed: bool = True, key_columns: tuple[str, ...] | None = None
    ) -> Branch:
        """Return the position below the source that an exchange of this branch feeds; the arguments are as for `exchange`."""
        groups = (*self.groups, name)
        return replace(
            self,
            node=source,
            sources=(source,),
            groups=groups,
            keyed=keyed,
            key_columns=key_columns,
            moved=False,
            bag=False,
            sides=None,
        )

    def with_sources_of(self, others: Sequence[Branch]) -> Branch:
        """Return this position with the sources of other branches of the topology added."""
        sources = {source.id: source for branch in (self, *others) for source in branch.sources}
        keyed = self.keyed and all(each.keyed for each in others)
        return replace(self, sources=tuple(sources[number] for number in sorted(sources)), keyed=keyed)

    def meeting(self, others: Sequence[Branch]) -> Branch:
        """Return this position with the sources and the groupings that it would have below a merge with other branches."""
        branches = (self, *others)
        groups = self.groups
        if any((branch.sources, branch.groups) != (self.sources, self.groups) for branch in others):
            # On topics of one partition, frames before and after the merge may share the stores of the same topics.
            paths = [".".join(branch.groups) for branch in branches]
            # Each join by a foreign key doubles the path.
            groups = (shorten_name("--".join(paths), MAX_STORE_NAME),) if any(paths) else ()
        return replace(self.with_sources_of(others), groups=groups)

    def merge(self, others: Sequence[Branch], operator: MergeOperator, groups: tuple[str, ...] | None = None) -> Branch:
        """Add an operator whose inputs are this branch and others of the topology, in this order.

        Args:
            others: the other branches.
            operator: the operator.
            groups: names of groupings for the stores below; None for those of `meeting`.

        Raises:
            InvalidOperationError: if the name of the merged topics collides with another topic, or the operator is not for
                these inputs: some merge streams, and some tables.
        """
        for branch in (self, *others):
            if branch.updates is not operator.updates:
                raise ArgumentValueError(
                    f"{operator.name}() joins two tables, and one of these is a stream: make it one by as_table()"
                    if operator.updates
                    else f"{operator.name}() needs streams, and one of these is a table: call its to_stream()"
                )
            if operator.by_key:
                branch.require_keys(f"{operator.name}()")
            if operator.by_key and branch.moved:
                raise InvalidOperationError(
                    f"{operator.name}() would look for keys in other partitions than those in which top() has made them: "
                    "group the result by its columns before"
                )
        node = self.builder.add_merge([branch.node for branch in (self, *others)], operator)
        merged = replace(self.meeting(others), node=node, key_columns=None, sides=None)
        if groups is not None:
            merged = replace(merged, groups=groups)
        self.topic_manager.merged_topics(*merged.topics, grouping=".".join(merged.groups))
        return merged

    def absorb(self, other: Branch) -> Expression:
        """Turn the operators from here to another branch into one expression, and remove them from the topology.

        Raises:
            InvalidOperationError: if the branch does not start here, or has operators other than `apply()`.
        """
        path = self.builder.path(self.node, other.node) if other.builder is self.builder else None
        if not path:
            raise ArgumentValueError(
                "a dataframe used as a column or as a condition must be derived from the frame in which it is used, "
                'such as sdf["x"] = sdf.apply(...)'
            )
        expression: Expression = Input()
        for node in path:
            expression = _as_expression(node.operator, expression)
        self.builder.remove(path)
        return expression


def name_store(name: str, *groups: str) -> str:
    """Return the name of a store behind groupings, with a digest of these if it were too long.

    Args:
        name: its name in front of them.
        *groups: the names of the groupings.

    Example:
        >>> name_store("default", "customer", "day")
        'default.customer.day'
    """
    full = ".".join((name, *groups))
    return full if len(full) <= MAX_STORE_NAME else f"{name}.{shorten_name('.'.join(groups), _SHORT_PATH)}"


@runtime_checkable
class Frame(Protocol):
    """A `StreamingDataFrame`, for modules that it imports itself."""

    _branch: Branch

    def _with(self, branch: Branch) -> Self:
        """Return a new frame at a position."""

    def _in_place(self, operator: Operator) -> Self:
        """Add an operator, and return this frame, which then is below it."""


def branch_of(frame: Frame) -> Branch:
    """Return the position of a dataframe, for other packages."""
    return frame._branch


def _source_topic(source: Node) -> Topic:
    if not isinstance(source.operator, SourceOperator):
        raise TypeError(f"{source} is not a source")
    return source.operator.topic


def _as_expression(operator: Operator, argument: Expression) -> Expression:
    if isinstance(operator, Apply) and not operator.expand:
        if operator.store is not None:
            return StatefulCall(operator.function, argument, operator.metadata, operator.store)
        return Call(operator.function, (argument, *(METADATA if operator.metadata else ())))
    raise ArgumentValueError(
        f"a dataframe used as a column or as a condition may contain only apply() without expand, not {operator.name}"
    )
