"""Where a dataframe stands in the topology: how it grows, and how it is tried out."""

from __future__ import annotations

from typing import Any, NoReturn

from typing_extensions import Self

from streamrt.context import current_provider
from streamrt.dataframe.series import Sink
from streamrt.dataframe.trial import TrialContext, TrialStores
from streamrt.errors import InvalidOperationError
from streamrt.models import MessageContext
from streamrt.operators import Apply
from streamrt.operators.expression import METADATA, Call, Expression, Input, InState
from streamrt.state import DEFAULT_STORE, StoreSpec
from streamrt.topics import Topic, TopicManager
from streamrt.topology import Executor, Node, Operator, SourceOperator, TopologyBuilder, compose


class Frame:
    """A place in the topology, below which operators are added. `StreamingDataFrame` adds them.

    Args:
        builder: the topology that the dataframe is part of.
        node: the node below which the next operator comes.
        source: the node where the records of the dataframe come in.
        topic_manager: declares the topics that operators need.
        groups: names of the groupings that the records went through.
    """

    def __init__(
        self,
        builder: TopologyBuilder,
        node: Node,
        source: Node,
        topic_manager: TopicManager,
        groups: tuple[str, ...] = (),
    ) -> None:
        self._builder = builder
        self._node = node
        self._source = source
        self._topic_manager = topic_manager
        self._groups = groups
        self._trial = TrialStores()

    # -- Trying out ----------------------------------------------------------------------------------------------

    def compose(self, sink: Sink | None = None) -> dict[str, Executor]:
        """Turn the topology into one function per topic that takes value, key, timestamp and headers.

        The application does this by itself; use it to try a dataframe, or see `test()`. Records sent to topics are
        serialized and dropped.

        Args:
            sink: called with what leaves the last operator of each branch.

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
        """Pass one record through the dataframe, with all its branches, and return what comes out.

        Topics are taken to have one partition, so that a `group_by` replaces the key in memory. State is kept in memory: this
        dataframe object remembers it from one call to the next. Nothing is written to topics and sinks.

        Args:
            value: the record's value.
            key: its key.
            timestamp: its timestamp in milliseconds.
            headers: its headers.
            ctx: what `message_context()` returns meanwhile.
            topic: the input topic, where the application has several; by default this dataframe's.

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
        name = self._builder.build().origin(self.topics[0].name) if topic is None else topic.name
        if name not in executors:
            raise InvalidOperationError(
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
        """The topology that this dataframe is part of."""
        return self._builder

    @property
    def topics(self) -> tuple[Topic, ...]:
        """The topics that this dataframe reads."""
        operator = self._source.operator
        return (operator.topic,) if isinstance(operator, SourceOperator) else ()

    # -- How frames grow -----------------------------------------------------------------------------------------

    def _new(self, operator: Operator) -> Self:
        node = self._builder.add(self._node, operator)
        return type(self)(self._builder, node, self._source, self._topic_manager, self._groups)

    def _in_place(self, operator: Operator) -> Self:
        self._node = self._builder.add(self._node, operator)
        return self

    @property
    def _store_name(self) -> str:
        # On topics of one partition the frames before and after a group_by use the stores of the same topic: a grouping
        # has a store of its own, or equal keys of different groupings would share their state.
        return ".".join((DEFAULT_STORE, *self._groups))

    def _store(self) -> StoreSpec:
        kind = self._builder.store_kind(self._source)
        return StoreSpec(self._store_name) if kind is None else StoreSpec(self._store_name, kind)

    def _compose(self, context: TrialContext, sink: Sink | None) -> dict[str, Executor]:
        topology = self._builder.build()
        # As on topics of one partition, so that records go through a group_by without a topic.
        topology = topology.resolve(dict.fromkeys(topology.sources, 1))
        leaf = sink or _nothing
        executors: dict[str, Executor] = {}
        for name, source in topology.sources.items():
            context.source = name
            executors[name] = compose(topology, source, context, leaf)
        return executors

    def _absorb(self, frame: Frame) -> Expression:
        """Turn the operators between this frame and `frame` into one expression, and take them out of the graph."""
        path = self._builder.path(self._node, frame._node) if frame._builder is self._builder else None
        if not path:
            raise InvalidOperationError(
                "a dataframe used as a column or as a condition must be made from the frame that it is used in, "
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


def _as_expression(operator: Operator, argument: Expression) -> Expression:
    if isinstance(operator, Apply) and not operator.expand:
        metadata = METADATA if operator.metadata else ()
        state = () if operator.store is None else (InState(operator.store),)
        return Call(operator.function, (argument, *metadata, *state))
    raise InvalidOperationError(
        f"a dataframe used as a column or as a condition may consist of apply() without expand only, not of {operator.name}"
    )


def _nothing(value: Any, key: Any, timestamp: int, headers: Any) -> None:
    """Where outputs end that nobody wants."""
