"""The position of a dataframe in the topology: how to add operators, and how to test it without Kafka."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from typing_extensions import Self

from streamrt.context import current_provider
from streamrt.dataframe.trial import TrialContext, TrialStores
from streamrt.errors import ArgumentTypeError, ArgumentValueError, InvalidOperationError
from streamrt.models import MessageContext
from streamrt.operators import Apply
from streamrt.operators.expression import METADATA, Call, Expression, Input, InState
from streamrt.state.spec import StoreSpec
from streamrt.state.store import DEFAULT_STORE
from streamrt.topics import Topic, TopicManager
from streamrt.topology import (
    MergeOperator,
    Node,
    Operator,
    RecordHandler,
    SourceOperator,
    TopologyBuilder,
    compose_stream,
    stream_id,
)


class Frame:
    """A position in the topology. `StreamingDataFrame` adds operators below it.

    Args:
        builder: the builder of the topology.
        node: the parent of the next operator.
        sources: the source nodes of the dataframe's records.
        topic_manager: declares the topics that operators need.
        groups: names of the groupings upstream.
    """

    def __init__(
        self,
        builder: TopologyBuilder,
        node: Node,
        sources: Sequence[Node],
        topic_manager: TopicManager,
        groups: tuple[str, ...] = (),
    ) -> None:
        self._builder = builder
        self._node = node
        self._sources = tuple(sources)
        self._topic_manager = topic_manager
        self._groups = groups
        self._trial = TrialStores()

    # -- Tests without Kafka ---------------------------------------------------------------------------------------

    def compose(self, sink: RecordHandler | None = None) -> dict[str, RecordHandler]:
        """Turn the topology into one function of value, key, timestamp and headers per topic.

        The application does not need this call; use it, or `test()`, to try a dataframe. Records for topics are
        serialized and dropped.

        Args:
            sink: called with each output of the last operator of each branch.

        Example:
            ```python
            outputs = []
            process = sdf.compose(lambda value, key, timestamp, headers: outputs.append(value))["flights"]
            process({"dep_delay": 90}, b"UA", 0, None)
            ```
        """
        return self._compose(TrialContext(self._trial), sink)

    def test(
        self,
        value: Any,
        key: Any = b"key",
        timestamp: int = 0,
        headers: Any = None,
        ctx: MessageContext | None = None,
        topic: Topic | None = None,
    ) -> list[tuple[Any, Any, int, Any]]:
        """Pass one record through the dataframe, with all its branches, and return the outputs.

        Topics count as having one partition, so that a `group_by` replaces the key in memory. This dataframe object
        keeps state in memory from one call to the next. Nothing is written to topics and sinks.

        Args:
            value: the record's value.
            key: its key.
            timestamp: its timestamp in milliseconds.
            headers: its headers.
            ctx: result of `message_context()` during the call.
            topic: the input topic, if the application has several; by default this dataframe's topic, or the first
                topic of merged frames.

        Returns:
            Value, key, timestamp and headers of each output, in order.

        Raises:
            InvalidOperationError: if no dataframe reads `topic`.

        Example:
            ```python
            assert sdf.test({"dep_delay": 90})[0][0]["hours"] == 1.5
            ```
        """
        outputs: list[tuple[Any, Any, int, Any]] = []
        context = TrialContext(self._trial, key, timestamp, headers, ctx)
        executors = self._compose(context, lambda *output: outputs.append(output))
        name = self._builder.build().origin(_topic(self._sources[0]).name) if topic is None else topic.name
        if name not in executors:
            raise ArgumentValueError(
                f"no dataframe reads topic {name!r}: test() takes one of the input topics, {', '.join(executors)}"
            )
        token = current_provider.set(context)
        try:
            executors[name](value, key, timestamp, headers)
        finally:
            current_provider.reset(token)
        return outputs

    @property
    def builder(self) -> TopologyBuilder:
        """The builder of this dataframe's topology."""
        return self._builder

    @property
    def topics(self) -> tuple[Topic, ...]:
        """The topics that this dataframe reads, sorted by name; several if frames were merged."""
        return tuple(sorted(map(_topic, self._sources), key=lambda topic: topic.name))

    @property
    def stream_id(self) -> str:
        """The name of the topic that this dataframe reads, or the names of several topics, joined by `--`.

        The names of the dataframe's internal topics and directories contain it.
        """
        return stream_id(topic.name for topic in self.topics)

    # -- Adding operators ------------------------------------------------------------------------------------------

    def _new(self, operator: Operator) -> Self:
        node = self._builder.add(self._node, operator)
        return type(self)(self._builder, node, self._sources, self._topic_manager, self._groups)

    def _in_place(self, operator: Operator) -> Self:
        self._node = self._builder.add(self._node, operator)
        return self

    def _merge(self, others: Sequence[Any], operator: MergeOperator) -> Self:
        """Return a new frame below an operator whose inputs are this frame and others, in this order.

        Raises:
            InvalidOperationError: if one of the others is not a dataframe of the same application, or the name of the
                merged topics collides with another topic.
        """
        for other in others:
            if not isinstance(other, Frame):
                raise ArgumentTypeError(f"{operator.name}() needs another dataframe, got {type(other).__name__}")
            if other._builder is not self._builder:
                raise ArgumentValueError(
                    f"{operator.name}() got a dataframe of another application: make both with Application.dataframe() of "
                    "one application"
                )
        frames = (self, *others)
        node = self._builder.add_merge([frame._node for frame in frames], operator)
        sources = sorted({source.id: source for frame in frames for source in frame._sources}.values(), key=_id)
        groups = self._groups
        if any((frame._sources, frame._groups) != (self._sources, self._groups) for frame in others):
            # On topics of one partition, frames before and after the merge may share the stores of the same topics.
            paths = [".".join(frame._groups) for frame in frames]
            groups = ("--".join(paths),) if any(paths) else ()
        merged = type(self)(self._builder, node, sources, self._topic_manager, groups)
        self._topic_manager.merged_topics(*merged.topics, grouping=".".join(groups))
        return merged

    @property
    def _store_name(self) -> str:
        # On topics of one partition, frames before and after a group_by use the stores of the same topic. Each grouping
        # needs a separate store, or equal keys of different groupings would share their state.
        return ".".join((DEFAULT_STORE, *self._groups))

    def _store(self) -> StoreSpec:
        kind = self._builder.store_type_of(self._sources)
        return StoreSpec(self._store_name) if kind is None else StoreSpec(self._store_name, kind)

    def _compose(self, context: TrialContext, sink: RecordHandler | None) -> dict[str, RecordHandler]:
        topology = self._builder.build()
        # One partition per topic, so that records pass a group_by without a repartition topic.
        topology = topology.resolve(dict.fromkeys(topology.sources, 1))
        leaf = sink or _nothing
        executors: dict[str, RecordHandler] = {}
        for name in topology.streams:
            context.source = name
            executors.update(compose_stream(topology, name, context, leaf))
        return executors

    def _absorb(self, frame: Frame) -> Expression:
        """Turn the operators between this frame and `frame` into one expression, and remove them from the graph."""
        path = self._builder.path(self._node, frame._node) if frame._builder is self._builder else None
        if not path:
            raise ArgumentValueError(
                "a dataframe used as a column or as a condition must be derived from the frame in which it is used, "
                'such as sdf["x"] = sdf.apply(...)'
            )
        expression: Expression = Input()
        for node in path:
            expression = _as_expression(node.operator, expression)
        self._builder.remove(path)
        return expression

    def __bool__(self) -> NoReturn:
        raise InvalidOperationError(
            "a dataframe has no truth value while it is being built: combine conditions by & | ~ instead of 'and', "
            "'or', 'not', and filter by sdf[condition]"
        )

    def __iter__(self) -> NoReturn:
        raise InvalidOperationError("a dataframe cannot be iterated over: its records arrive when the application runs")

    def __repr__(self) -> str:
        names = ", ".join(topic.name for topic in self.topics)
        return f"{type(self).__name__}({names}, at {self._node.label})"


def _topic(source: Node) -> Topic:
    if not isinstance(source.operator, SourceOperator):
        raise TypeError(f"{source} is not a source")
    return source.operator.topic


def _id(node: Node) -> int:
    return node.id


def _as_expression(operator: Operator, argument: Expression) -> Expression:
    if isinstance(operator, Apply) and not operator.expand:
        metadata = METADATA if operator.metadata else ()
        state = () if operator.store is None else (InState(operator.store),)
        return Call(operator.function, (argument, *metadata, *state))
    raise ArgumentValueError(
        f"a dataframe used as a column or as a condition may contain only apply() without expand, not {operator.name}"
    )


def _nothing(value: Any, key: Any, timestamp: int, headers: Any) -> None:
    """Drop an output."""
