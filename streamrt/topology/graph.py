"""The topology: its nodes, and their grouping into streams and scopes."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import permutations
from typing import TYPE_CHECKING, NamedTuple

from streamrt.errors import InvalidOperationError
from streamrt.records import TopicPartition
from streamrt.topics import WatermarkStrategy
from streamrt.topology.node import (
    ExchangeOperator,
    InMemoryExchange,
    MergeOperator,
    Node,
    OutletOperator,
    SourceOperator,
)
from streamrt.topology.task_id import TaskId

if TYPE_CHECKING:
    from streamrt.connectors import BaseSink
    from streamrt.state.spec import StoreSpec


class TaskStore(NamedTuple):
    """A store of a task.

    Attributes:
        scope: name of the topic of the store, or the sorted names of several topics, joined by `--`.
        spec: description of the store.
    """

    scope: str
    spec: "StoreSpec"


@dataclass(frozen=True)
class Topology:
    """An immutable graph of nodes, ordered so that parents come before their children.

    A *stream* is the part that one task runs: sources that merges connect, and all nodes below them down to a
    `group_by`. Its id is the name of its topic, or the sorted names of its topics, joined by `--`. One task processes
    partition N of all of its topics. A *scope* is the set of topics from which the records of a node come; it is named
    in the same way. Stores belong to scopes: a merge does not change the stores that a frame already has.

    Attributes:
        nodes: the nodes.
        registered: explicitly registered stores, each with the ids of the sources of its scope.
        apart: ids of sources that are separate streams although merges connect them; see `separate`.
        queries: the queries that operators were made of, each with its name and a digest of its plan.
    """

    nodes: tuple[Node, ...]
    registered: tuple[tuple[tuple[int, ...], "StoreSpec"], ...] = ()
    apart: frozenset[int] = frozenset()
    queries: tuple[tuple[str, str], ...] = ()

    @cached_property
    def sources(self) -> dict[str, Node]:
        """The source nodes by topic name."""
        return {node.operator.topic.name: node for node in self.nodes if isinstance(node.operator, SourceOperator)}

    @cached_property
    def children(self) -> dict[int, tuple[Node, ...]]:
        """The children of each node that has children, in the order of their declaration."""
        result: dict[int, dict[int, Node]] = {}
        for node in self.nodes:
            for parent in node.parents:
                result.setdefault(parent, {})[node.id] = node
        return {parent: tuple(nodes.values()) for parent, nodes in result.items()}

    @cached_property
    def streams(self) -> dict[str, dict[str, Node]]:
        """The sources of each stream by topic name, sorted by this name, by id of the stream.

        Raises:
            InvalidOperationError: if the id of a stream is the name of a topic outside the stream.
        """
        groups: dict[int, set[int]] = {source.id: {source.id} for source in self.sources.values()}
        for roots in filter(self.apart.isdisjoint, self._source_ids.values()):
            joined = set().union(*(groups[root] for root in roots))
            for root in joined:
                groups[root] = joined
        found: dict[str, dict[str, Node]] = {}
        for group in {min(group): group for group in groups.values()}.values():
            named = {topic_of(self._by_id[root]): self._by_id[root] for root in group}
            found[self._join_names(named)] = {topic: named[topic] for topic in sorted(named)}
        return found

    @cached_property
    def stream_of_topic(self) -> dict[str, str]:
        """The id of the stream of each source, by topic name."""
        return {topic: stream for stream, sources in self.streams.items() for topic in sources}

    @cached_property
    def merged(self) -> bool:
        """Whether any stream has several topics."""
        return len(self.streams) < len(self.sources)

    @cached_property
    def exchanges(self) -> dict[str, Node]:
        """The exchange nodes, by the name of the repartition topic between the node and the source that it feeds."""
        return {node.operator.topic.name: node for node in self.nodes if isinstance(node.operator, ExchangeOperator)}

    @cached_property
    def outer_topics(self) -> tuple[str, ...]:
        """The input topics that no exchange of the application feeds."""
        return tuple(topic for topic in self.sources if topic not in self.exchanges)

    @cached_property
    def sinks(self) -> dict[int, "BaseSink"]:
        """The sinks by the id of the first node that writes to them; an object used in two places is one sink."""
        result: dict[int, BaseSink] = {}
        for node in self.nodes:
            if isinstance(node.operator, OutletOperator):
                sink = node.operator.sink
                if not any(known is sink for known in result.values()):
                    result[node.id] = sink
        return result

    def members(self, stream: str) -> tuple[Node, ...]:
        """Return all nodes of a stream, parents first."""
        roots = {source.id for source in self.streams[stream].values()}
        return tuple(node for node in self.nodes if not roots.isdisjoint(self._source_ids[node.id]))

    def roots(self, node: Node) -> tuple[Node, ...]:
        """Return the sources of a node's records, in the order of their definition."""
        return tuple(self._by_id[root] for root in self._source_ids[node.id])

    def source_of(self, node: Node) -> Node:
        """Return the source of a node's records; of several, the one defined first."""
        return self.roots(node)[0]

    def stream_of(self, node: Node) -> str:
        """Return the id of the stream of a node."""
        return self.stream_of_topic[topic_of(self.source_of(node))]

    def task(self, partition: TopicPartition) -> TaskId:
        """Return the task that an input partition belongs to."""
        return TaskId(self.stream_of_topic[partition.topic], partition.partition)

    def inputs(self, task: TaskId) -> tuple[TopicPartition, ...]:
        """Return the input partitions of a task, sorted by topic name."""
        return tuple(TopicPartition(topic, task.partition) for topic in self.streams[task.stream])

    def merge_order(self, stream: str) -> tuple[str, ...]:
        """Return the topics of a stream in the order of their records with equal timestamps.

        A topic comes before another one if a merge requires it (`MergeOperator.ranks`), directly or through further
        topics. If merges contradict each other, or none requires an order, topics are sorted by name.
        """
        return self._merge_orders[stream]

    @cached_property
    def _merge_orders(self) -> dict[str, tuple[str, ...]]:
        # The topics that must come after each topic.
        after: dict[str, set[str]] = {topic: set() for topic in self.sources}
        for node in self.nodes:
            if isinstance(node.operator, MergeOperator):
                inputs = zip(node.operator.ranks(len(node.parents)), node.parents, strict=True)
                for (rank, parent), (other_rank, other) in permutations(inputs, 2):
                    if rank < other_rank:
                        later = {topic_of(self._by_id[root]) for root in self._source_ids[other]}
                        for root in self._source_ids[parent]:
                            after[topic_of(self._by_id[root])] |= later
        for between in after:
            for topics in after.values():
                if between in topics:
                    topics |= after[between]
        found: dict[str, tuple[str, ...]] = {}
        for stream, sources in self.streams.items():
            order: list[str] = []
            while len(order) < len(sources):
                left = [topic for topic in sources if topic not in order]
                # Topics that must come before each other contradict: ignore both requirements.
                order.append(
                    next(
                        topic
                        for topic in left
                        if all(topic not in after[other] or other in after[topic] for other in left)
                    )
                )
            found[stream] = tuple(order)
        return found

    @cached_property
    def early_exchanges(self) -> frozenset[str]:
        """The repartition topics whose records a merge may take before their time: only the right sides of as-of joins."""
        early: set[str] = set()
        others: set[str] = set()
        for node in self.nodes:
            if isinstance(node.operator, MergeOperator):
                ranks = node.operator.ranks(len(node.parents))
                for rank, parent in zip(ranks, node.parents, strict=True):
                    first = node.operator.takes_early and rank < max(ranks)
                    (early if first else others).update(
                        topic_of(self._by_id[root]) for root in self._source_ids[parent]
                    )
        return frozenset(early - others) & self.exchanges.keys()

    # -- Stores ----------------------------------------------------------------------------------------------------

    def scope(self, node: Node) -> str:
        """Return the name of the scope of a node."""
        return stream_id(topic_of(root) for root in self.roots(node))

    @cached_property
    def scopes(self) -> dict[str, tuple[str, ...]]:
        """The sorted topic names of each scope that has nodes, by the name of the scope."""
        found = (sorted(topic_of(root) for root in self.roots(node)) for node in self.nodes)
        return {self._join_names(topics): tuple(topics) for topics in found}

    def _join_names(self, topics: Collection[str]) -> str:
        name = stream_id(topics)
        if len(topics) > 1 and name in self.sources:
            raise InvalidOperationError(
                f"topic name {name} collides with the internal name of the merged topics {' and '.join(sorted(topics))}"
                ": rename one of them"
            )
        return name

    def stores(self, scope: str | Node) -> tuple["StoreSpec", ...]:
        """Return the stores of a scope: those that its operators use, and registered ones.

        Args:
            scope: a node in the scope, or the name of the scope, which is that of a topic unless frames were merged.

        Raises:
            InvalidOperationError: if two stores of the same name have different types or different transactions.
        """
        name = scope if isinstance(scope, str) else self.scope(scope)
        topics = self.scopes[name]
        roots = tuple(sorted(self.sources[topic].id for topic in topics))
        found: dict[str, StoreSpec] = {}
        registered = [store for owners, store in self.registered if owners == roots]
        used = [store for node in self.nodes if self._source_ids[node.id] == roots for store in node.operator.stores()]
        for store in (*registered, *used):
            other = found.setdefault(store.name, store)
            if other.store_type is not store.store_type:
                raise InvalidOperationError(
                    f"store {store.name!r} of topic {name!r} cannot be both a {other.store_type.__name__} and a "
                    f"{store.store_type.__name__}: call register_store() with the same type on all frames that share "
                    "the store"
                )
            if other.transaction is not store.transaction:
                raise InvalidOperationError(
                    f"store {store.name!r} of topic {name!r} is used by operators that keep different data in it "
                    f"({other.transaction.__name__} and {store.transaction.__name__}): give one of them another name"
                )
        return tuple(found.values())

    @property
    def is_stateful(self) -> bool:
        """Whether there are stores."""
        return any(map(self.stores, self.scopes))

    def task_stores(self, stream: str) -> dict[str, TaskStore]:
        """Return the stores of the tasks of a stream, by their names in the task.

        These are the names of the stores, except if one task has stores with the same name for different scopes.
        """
        return self._task_stores[stream]

    def task_names(self, node: Node) -> dict[str, str]:
        """Return the names in the task of the stores of a node's scope, by store name."""
        scope = self.scope(node)
        stores = self.task_stores(self.stream_of(node))
        return {store.spec.name: name for name, store in stores.items() if store.scope == scope}

    # -- Time ------------------------------------------------------------------------------------------------------

    def watermarks(self, stream: str) -> dict[str, WatermarkStrategy]:
        """Return the watermark strategies of a stream, by the names in the task of the stores that need a watermark."""
        found: dict[str, WatermarkStrategy] = {}
        for node in self.members(stream):
            wanted = node.operator.watermarks()
            names = self.task_names(node) if wanted else {}
            found.update((names[store], strategy) for store, strategy in wanted)
        return found

    def wall_clock_stores(self, stream: str) -> frozenset[str]:
        """Return the names in the task of the stores of a stream with wall clock deadlines."""
        return frozenset(
            self.task_names(node)[store] for node in self.members(stream) for store in node.operator.wall_clock_stores()
        )

    @cached_property
    def timed_exchanges(self) -> dict[str, frozenset[WatermarkStrategy]]:
        """The watermark strategies needed behind exchanges, by repartition topic; other exchanges are left out."""
        wanted = {stream: set(self.watermarks(stream).values()) for stream in self.streams}
        fed = {topic: (self.stream_of(node), self.stream_of_topic[topic]) for topic, node in self.exchanges.items()}
        for _ in self.exchanges:
            # A watermark needed behind the second of two exchanges must also pass the first one.
            for before, behind in fed.values():
                wanted[before] |= wanted[behind] if before != behind else set()
        return {topic: frozenset(wanted[behind]) for topic, (_, behind) in fed.items() if wanted[behind]}

    def sends(self, stream: str) -> Mapping[str, frozenset[str]]:
        """Return the exchanges of a stream that watermarks pass.

        Returns:
            The result of `stores_before`, by repartition topic.
        """
        return self._sent_topics[stream]

    @cached_property
    def _sent_topics(self) -> dict[str, dict[str, frozenset[str]]]:
        found: dict[str, dict[str, frozenset[str]]] = {stream: {} for stream in self.streams}
        for topic in self.timed_exchanges:
            found[self.stream_of(self.exchanges[topic])][topic] = self.stores_before(topic)
        return found

    def holds_back_ms(self, exchange: str) -> int | None:
        """Return the maximum distance of records sent into an exchange behind the watermark of their task.

        Args:
            exchange: name of the repartition topic.

        Returns:
            Milliseconds, or None if unbounded.
        """
        found: dict[int, int | None] = {}
        for node in self.nodes:
            own, above = _holds_back_ms(node), [found[parent] for parent in node.parents]
            known = [each for each in above if each is not None]
            found[node.id] = None if own is None or len(known) < len(above) else own + max(known, default=0)
        return found[self.exchanges[exchange].id]

    def stores_before(self, exchange: str) -> frozenset[str]:
        """Return the names in the task of the stores that need a watermark and may send records into an exchange."""
        return frozenset(self.holds_before(exchange))

    def holds_before(self, exchange: str) -> Mapping[str, int | None]:
        """Return how far what stores send into an exchange may be behind their deadlines, for those that need a watermark.

        Args:
            exchange: name of the repartition topic.

        Returns:
            Milliseconds, or None if unbounded, by name of the store in the task.
        """
        found: dict[str, int | None] = {}
        # By node: how far behind its input what it sends into the exchange may be.
        holds: dict[int, int | None] = {self.exchanges[exchange].id: 0}
        # A node has a higher id than its parents.
        for node in sorted(self.nodes, key=lambda each: -each.id):
            if node.id not in holds:
                continue
            own, below = node.operator.holds_back_ms, holds[node.id]
            hold = None if own is None or below is None else own + below
            wanted = node.operator.watermarks()
            names = self.task_names(node) if wanted else {}
            for store, _ in wanted:
                found[names[store]] = _longest(found.get(names[store], 0), hold)
            for parent in node.parents:
                holds[parent] = _longest(holds.get(parent, 0), hold)
        return found

    def resumes(self, stream: str) -> bool:
        """Return whether a stream has operators that may leave work, which ticks continue, or that begin with it."""
        return self.begins(stream) or any(node.operator.resumes() for node in self.members(stream))

    def begins(self, stream: str) -> bool:
        """Return whether a stream has operators with results before its first record."""
        return any(node.operator.begins() for node in self.members(stream))

    @cached_property
    def multiplied(self) -> frozenset[int]:
        """The ids of the nodes that may get several records of one, up to the last operator that separates its results."""
        found: set[int] = set()
        for node in self.nodes:
            parents = [self._by_id[parent] for parent in node.parents]
            roots = [root for parent in node.parents for root in self._source_ids[parent]]
            if len(set(roots)) < len(roots) or any(
                parent.operator.multiplies_records() or (parent.id in found and not parent.operator.separates)
                for parent in parents
            ):
                found.add(node.id)
        return frozenset(found)

    def below(self, node_id: int) -> frozenset[int]:
        """Return the ids of all nodes below a node."""
        found: set[int] = set()
        waiting = [node_id]
        while waiting:
            children = {child.id for child in self.children.get(waiting.pop(), ())} - found
            found |= children
            waiting += children
        return frozenset(found)

    @cached_property
    def _task_stores(self) -> dict[str, dict[str, TaskStore]]:
        result: dict[str, dict[str, TaskStore]] = {}
        for scope, topics in sorted(self.scopes.items(), key=lambda item: (-len(item[1]), item[0])):
            stores = result.setdefault(self.stream_of_topic[topics[0]], {})
            for store in self.stores(scope):
                names = (store.name, *(f"{store.name}--{number}" for number in range(2, len(stores) + 3)))
                stores[next(name for name in names if name not in stores)] = TaskStore(scope, store)
        return result

    # -- Exchanges -------------------------------------------------------------------------------------------------

    def origin(self, topic: str) -> str:
        """Return the input topic that decides on the number of partitions of a source's topic.

        For an input it is the topic itself, and behind a `group_by` the input of the records. Of several input topics,
        which have equal numbers of partitions, it is the one defined first. For a broadcast it is the input of the frame that
        the broadcast frame is connected with.

        Args:
            topic: name of the source's topic.
        """
        while topic in self.exchanges:
            exchange = self.exchanges[topic]
            operator = exchange.operator
            sized_by = operator.sized_by if isinstance(operator, ExchangeOperator) else None
            topic = sized_by or topic_of(self.source_of(exchange))
        return topic

    @cached_property
    def broadcasts(self) -> frozenset[str]:
        """The names of the repartition topics of which each partition has all records."""
        operators = (node.operator for node in self.exchanges.values())
        return frozenset(each.topic.name for each in operators if isinstance(each, ExchangeOperator) and each.copies)

    @property
    def has_sized_exchanges(self) -> bool:
        """Whether another topic than its input decides on the number of partitions of a repartition topic."""
        operators = (node.operator for node in self.exchanges.values())
        return any(isinstance(each, ExchangeOperator) and each.sized_by is not None for each in operators)

    @cached_property
    def feeding_topics(self) -> dict[str, tuple[str, ...]]:
        """The topics whose records become those of a repartition topic, by its name."""
        return {topic: tuple(map(topic_of, self.roots(node))) for topic, node in self.exchanges.items()}

    @cached_property
    def awaited_exchanges(self) -> dict[str, tuple[str, ...]]:
        """The repartition topics that a merge must wait for, by stream; other streams are left out.

        A merge takes a record only after all older ones that are on their way to it. It cannot wait for its own task, so
        it does not wait for an exchange whose records depend on records that it merges itself.
        """
        before: dict[str, set[str]] = {stream: set() for stream in self.streams}
        for topic, feeding in self.feeding_topics.items():
            before[self.stream_of_topic[topic]] |= {self.stream_of_topic[each] for each in feeding}
        for between in before:
            for streams in before.values():
                if between in streams:
                    streams |= before[between]
        awaited: dict[str, tuple[str, ...]] = {}
        for stream, sources in self.streams.items():
            topics = []
            for topic in sources:
                in_front = {self.stream_of_topic[each] for each in self.feeding_topics.get(topic, ())}
                if in_front and not any(stream == each or stream in before[each] for each in in_front):
                    topics.append(topic)
            if topics and len(sources) > 1:
                awaited[stream] = tuple(topics)
        return awaited

    def topics_before(self, stream: str) -> frozenset[str]:
        """Return the topics whose records may still become records of the awaited exchanges of a stream."""
        found: set[str] = set()
        waiting = list(self.awaited_exchanges.get(stream, ()))
        while waiting:
            feeding = set(self.feeding_topics.get(waiting.pop(), ())) - found
            found |= feeding
            waiting += feeding
        return frozenset(found)

    def resolved_scope(self, scope: str, resolved: "Topology") -> str:
        """Return the name that a scope has in the resolved topology.

        Args:
            scope: name of a scope of this topology.
            resolved: the result of `resolve`, where groupings in memory have no topics.
        """
        found: set[str] = set()
        for topic in self.scopes[scope]:
            if topic in resolved.sources:
                found.add(topic)
            else:
                found |= set(resolved.scopes[self.resolved_scope(self.scope(self.exchanges[topic]), resolved)])
        return stream_id(found)

    def resolve(self, partitions: Mapping[str, int]) -> "Topology":
        """Return the topology for the given partition counts.

        An input of one partition already has the records of all keys in one task. A `group_by` then needs no topic: its
        records pass in memory (`InMemoryExchange`), and the nodes below run in the same task. So does a broadcast if both
        inputs have one partition. Nodes keep their ids.

        Args:
            partitions: number of partitions by topic; of repartition topics only if they are known.

        Raises:
            InvalidOperationError: if a store name is used with different types.
        """
        needless = {
            name: node
            for name, node in self.exchanges.items()
            if partitions[self.origin(name)] == 1 and partitions[self.origin(topic_of(self.source_of(node)))] == 1
        }
        # The children of a removed source become children of the node that would have fed it.
        adopters = {self.sources[name].id: node.id for name, node in needless.items()}
        nodes: list[Node] = []
        for node in self.nodes:
            if node.id in adopters:
                continue
            operator = node.operator
            if isinstance(operator, ExchangeOperator):
                name = operator.topic.name
                if name in needless:
                    operator = InMemoryExchange(operator)
                else:
                    like = operator.sized_by or ""
                    like = self.origin(like) if like in needless else like
                    operator = operator.sized(partitions.get(name) or partitions[self.origin(name)], like)
            parents = tuple(adopters.get(parent, parent) for parent in node.parents)
            nodes.append(replace(node, parents=parents, operator=operator))
        resolved = Topology(tuple(nodes))
        registered = dict.fromkeys(
            (
                tuple(sorted({root for owner in owners for root in resolved._source_ids[adopters.get(owner, owner)]})),
                store,
            )
            for owners, store in self.registered
        )
        resolved = Topology(tuple(nodes), tuple(registered), queries=self.queries)
        for stream in resolved.streams:
            resolved.task_stores(stream)
        return resolved

    def separate(self, partitions: Mapping[str, int]) -> "Topology":
        """Return the topology in which merged topics with different numbers of partitions are separate streams.

        This applies if no node behind the merges needs the records of several topics in one task: no state and no
        `group_by`. The merged records then lose only the time order between the topics.

        Args:
            partitions: number of partitions by the topic of a source.
        """
        apart: set[int] = set()
        for stream, sources in self.streams.items():
            if len({partitions.get(topic) for topic in sources}) > 1 and not self._must_meet(stream):
                apart |= {source.id for source in sources.values()}
        return replace(self, apart=frozenset(apart)) if apart else self

    def _must_meet(self, stream: str) -> bool:
        shared = [node for node in self.members(stream) if len(self._source_ids[node.id]) > 1]
        return any(self.stores(node) or node.operator.regroups for node in shared)

    @cached_property
    def _by_id(self) -> dict[int, Node]:
        return {node.id: node for node in self.nodes}

    @cached_property
    def _source_ids(self) -> dict[int, tuple[int, ...]]:
        """The ids of the sources above each node, sorted."""
        found: dict[int, tuple[int, ...]] = {}
        for node in self.nodes:
            above = {root for parent in node.parents for root in found[parent]}
            found[node.id] = tuple(sorted(above)) or (node.id,)
        return found


def _holds_back_ms(node: Node) -> int | None:
    """Return the maximum distance of the results of a node behind the watermark in front of it, in milliseconds."""
    own = node.operator.holds_back_ms
    lags = (strategy.out_of_orderness_ms for _, strategy in node.operator.watermarks())
    return None if own is None else own + max(lags, default=0)


def _longest(first: int | None, second: int | None) -> int | None:
    """Return the longer one of two times; None is without end."""
    return None if first is None or second is None else max(first, second)


def stream_id(topics: Iterable[str]) -> str:
    """Return the common name of some topics.

    Example:
        >>> stream_id(["readings", "limits"])
        'limits--readings'
    """
    return "--".join(sorted(topics))


def topic_of(source: Node) -> str:
    """Return the name of the topic that a source reads."""
    if not isinstance(source.operator, SourceOperator):
        raise TypeError(f"{source} is not a source")
    return source.operator.topic.name
