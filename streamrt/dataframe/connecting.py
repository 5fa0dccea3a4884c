"""Connected dataframes. The public functions are methods of `StreamingDataFrame`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Generic, TypeVar

from streamrt.dataframe.branch import Branch, Frame
from streamrt.dataframe.processing import TimerClock, check_function, run_with
from streamrt.errors import ArgumentTypeError, ArgumentValueError, InvalidOperationError
from streamrt.operators import Broadcast
from streamrt.operators.functions import require_name
from streamrt.process import BroadcastProcessFunction, CoProcessFunction
from streamrt.process.operator import BroadcastProcess, CoProcess
from streamrt.serializers import (
    BytesDeserializer,
    DeserializerType,
    DoubleDeserializer,
    IntegerDeserializer,
    SerializerType,
    StringDeserializer,
)
from streamrt.topics import Topic
from streamrt.topology import Node, WhenAllIdle
from streamrt.topology.graph import topic_of

__all__ = ["BroadcastFrame", "ConnectedFrames", "broadcast", "connect"]

_KEY_FORMATS: Mapping[type, str] = {
    BytesDeserializer: "bytes",
    DoubleDeserializer: "double",
    IntegerDeserializer: "int",
    StringDeserializer: "str",
}

F = TypeVar("F", bound=Frame)


def connect(self: F, other: Frame | BroadcastFrame) -> ConnectedFrames[F]:  # noqa: D417 - a method
    """Connect this dataframe with another one, for a function that processes the records of both.

    Partition N of all topics of both is processed by one task, in the order of timestamps, as with `concat`. So equal keys
    must be in partitions of the same number: topics must have equal numbers of partitions. `group_by` on both sides gives
    them common keys. The records of a broadcast frame reach all partitions.

    Args:
        other: a dataframe of the same application: of another topic, a branch of this one, or this one itself; or the result
            of its `broadcast()`.

    Returns:
        Both frames; call `process` on it.

    Raises:
        InvalidOperationError: if `other` is not a dataframe of the same application.

    Example:
        ```python
        matched = rides.connect(fares).process(MatchFares())
        ```
    """
    if not isinstance(other, Frame | BroadcastFrame):
        raise ArgumentTypeError(f"connect() needs another dataframe, got {type(other).__name__}")
    if other._branch.builder is not self._branch.builder:
        raise ArgumentValueError(
            "connect() got a dataframe of another application: make both with Application.dataframe() of one application"
        )
    return ConnectedFrames(self, other)


def broadcast(  # noqa: D417 - a method
    self: Frame,
    name: str | None = None,
    value_deserializer: DeserializerType = "json",
    key_deserializer: DeserializerType | None = None,
    value_serializer: SerializerType = "json",
    key_serializer: SerializerType | None = None,
) -> BroadcastFrame:
    """Bring the records of this dataframe to all partitions of another one, which it is connected with.

    Records go through an internal topic, `repartition__<consumer group>--<topic>--<name>`, with as many partitions as the
    other dataframe. Each record is produced once for each partition. If both have one partition, no topic is needed.

    Args:
        name: part of the topic's name, "broadcast" by default. Required for a second broadcast of the same topics.
        value_deserializer: deserializer of values in the internal topic.
        key_deserializer: deserializer of its keys; by default like that of the topic.
        value_serializer: serializer of values in the internal topic.
        key_serializer: serializer of its keys.

    Returns:
        What `connect` takes. It has no operations.

    Raises:
        ConfigurationError: if the name is invalid.

    Example:
        ```python
        rules = app.dataframe(app.topic("rules", auto_offset_reset="earliest"))
        matches = orders.connect(rules.broadcast()).process(Rules())
        ```
    """
    require_name("broadcast", name)
    form = _key_format(self._branch.topics)
    return BroadcastFrame(
        self._branch,
        name or "broadcast",
        {
            "value_deserializer": value_deserializer,
            "key_deserializer": key_deserializer or form,
            "value_serializer": value_serializer,
            "key_serializer": key_serializer or form,
        },
    )


class BroadcastFrame:
    """A dataframe whose records reach all partitions of another one. `StreamingDataFrame.broadcast` makes it.

    It can only be connected, and with one dataframe or with frames that also have its topic: its internal topic has as many
    partitions as these.
    """

    def __init__(self, branch: Branch, name: str, serializers: Mapping[str, Any]) -> None:
        self._branch = branch
        self._name = name
        self._serializers = serializers
        self._arrived: tuple[Node, Branch] | None = None

    def _broadcast_to(self, other: Branch) -> Branch:
        """Return the position of the records in the partitions of another frame.

        Raises:
            InvalidOperationError: if a broadcast of this name goes to frames of other topics.
        """
        if self._arrived is not None:
            source, arrived = self._arrived
            # Topics that one function with state reads have equal numbers of partitions.
            if source in other.sources:
                return arrived
            raise InvalidOperationError(
                f"the broadcast {self._name!r} of {self._branch.stream_id} is connected with a frame of {topic_of(source)}, "
                f"and cannot reach {other.stream_id}, too: call broadcast(name='...') again with another name"
            )
        # A topic that is not itself a broadcast comes first, because sources of broadcasts are added after it.
        source = other.sources[0]
        like = topic_of(source)
        branch = self._branch
        topic = branch.topic_manager.repartition_topic(self._name, branch.stream_id, **self._serializers, like=like)
        arrived = branch.exchange(Broadcast(topic, self._name, like), self._name)
        self._arrived = source, arrived
        return arrived

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._branch.stream_id}, {self._name!r})"


class ConnectedFrames(Generic[F]):
    """Two dataframes whose records one function processes. `StreamingDataFrame.connect` makes it."""

    def __init__(self, first: F, second: Frame | BroadcastFrame) -> None:
        self._first = first
        self._second = second

    def process(
        self,
        function: CoProcessFunction | BroadcastProcessFunction,
        *,
        name: str | None = None,
        clock: TimerClock | None = None,
        grace_ms: int | timedelta = 0,
        idle_timeout_ms: int | timedelta | None = None,
        when_all_idle: WhenAllIdle | None = None,
    ) -> F:
        """Process the records of both frames by a function with common state, timers and side outputs.

        Both sides share one store, with the state of each record key.

        Args:
            function: an object of a class derived from `CoProcessFunction`; for a broadcast frame, one derived from
                `BroadcastProcessFunction`.
            name: name of its store, `process_<name>`; by default the name of the class. Required for a second function of
                the same class.
            clock: event time of timers, as for `StreamingDataFrame.process`. Records of both sides count, and the generator
                of a `WatermarkStrategy` is called with the values of both.
            grace_ms: time that timers of event time wait for late records, in milliseconds or as a timedelta.
            idle_timeout_ms: as for `StreamingDataFrame.process`.
            when_all_idle: as for `StreamingDataFrame.process`.

        Returns:
            A new frame.

        Raises:
            ConfigurationError: if an argument is invalid.
            InvalidOperationError: if `function` is not a function of two frames, or another one has the same store.

        Example:
            ```python
            matched = rides.connect(fares).process(MatchFares(), clock="partition")
            ```
        """
        branch, second = self._first._branch, self._second
        wanted = BroadcastProcessFunction if isinstance(second, BroadcastFrame) else CoProcessFunction
        check_function("connect(...).process", wanted, function)
        other = second._broadcast_to(branch) if isinstance(second, BroadcastFrame) else second._branch
        fields = run_with(branch.meeting((other,)), function, name, clock, grace_ms, idle_timeout_ms, when_all_idle)
        operator = BroadcastProcess if isinstance(second, BroadcastFrame) else CoProcess
        return self._first._with(branch.merge((other,), operator(*fields)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._first!r}, {self._second!r})"


def _key_format(topics: Sequence[Topic]) -> str:
    """Return the name of the serializer for the keys that topics have after their deserializers."""
    forms = {_KEY_FORMATS.get(type(topic.key_deserializer), "json") for topic in topics}
    return forms.pop() if len(forms) == 1 else "json"
