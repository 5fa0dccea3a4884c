"""New keys and partitions for records. `group_by` and `rebalance` are methods of `StreamingDataFrame`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

from streamrt.dataframe.branch import Branch, Frame
from streamrt.errors import ArgumentValueError
from streamrt.operators import ColumnKey, Repartition
from streamrt.operators.functions import require_callable, require_name
from streamrt.operators.partitioning import KeyPartitioner, Rebalance
from streamrt.serializers import DESERIALIZERS, DeserializerType, SerializerType

F = TypeVar("F", bound=Frame)

_FORMATS: tuple[Literal["bytes", "str", "int", "double", "json"], ...] = ("bytes", "str", "int", "double", "json")
"""Names under which a deserializer and the serializer of the same bytes are known."""


def group_by(
    self: F,
    key: str | Callable[[Any], Any],
    name: str | None = None,
    value_deserializer: DeserializerType = "json",
    key_deserializer: DeserializerType = "json",
    value_serializer: SerializerType = "json",
    key_serializer: SerializerType = "json",
    partitioner: KeyPartitioner | None = None,
) -> F:
    """Give records new keys, and bring records with the same key together in one partition.

    Records go through an internal topic, `repartition__<consumer group>--<topic>--<name>`. For merged frames,
    `<topic>` holds the names of all their topics. The operations that follow have separate state for each new key.
    An input of one partition needs no internal topic: the key is replaced in memory. Values, timestamps and headers
    stay the same; a key may be None.

    Args:
        key: name of the column that holds the new key, or a function from the value to the key.
        name: part of the topic's name; by default the name of the column. Required for a function.
        value_deserializer: deserializer of values in the internal topic.
        key_deserializer: deserializer of its keys.
        value_serializer: serializer of values in the internal topic.
        key_serializer: serializer of its keys.
        partitioner: function of the new key and the number of partitions of the internal topic, which returns the
            partition, from 0. It must depend only on these two, and give the same for a key that was serialized and
            deserialized: the state of a key is where the partitioner says. By default, Kafka's hash of the serialized key.

    Returns:
        A new frame.

    Raises:
        InvalidOperationError: if the key is neither a column nor a function, a function has no name, or this frame
            already has a `group_by` of the same name.
        ConfigurationError: if the resulting topic name is invalid, or a serializer is unknown.

    Example:
        ```python
        by_customer = sdf.group_by("customer")
        by_customer = by_customer.apply(count_orders, stateful=True)
        by_day = sdf.group_by(lambda value: value["ordered_at"][:10], name="day")
        ```
    """
    make_key, name = _make_grouping(key, name)
    if partitioner is not None:
        require_callable("group_by(partitioner=...)", partitioner)
    branch = self._branch
    topic = branch.topic_manager.repartition_topic(
        name,
        branch.stream_id,
        value_deserializer=value_deserializer,
        key_deserializer=key_deserializer,
        value_serializer=value_serializer,
        key_serializer=key_serializer,
    )
    return self._with(branch.exchange(Repartition(topic, make_key, name, partitioner), name))


def rebalance(
    self: F,
    name: str | None = None,
    value_deserializer: DeserializerType = "json",
    key_deserializer: DeserializerType | None = None,
    value_serializer: SerializerType = "json",
    key_serializer: SerializerType | None = None,
) -> F:
    """Distribute records evenly over tasks, whatever their keys are.

    Records go through an internal topic, `repartition__<consumer group>--<topic>--<name>`, whose partitions get them in turn.
    The records of a key are then in all partitions, in no common order. So operations with state, windows and joins are
    refused below, until a `group_by`. An input of one partition stays as it is.

    Args:
        name: part of the topic's name; by default "rebalance".
        value_deserializer: deserializer of values in the internal topic.
        key_deserializer: deserializer of its keys; by default that of the frame's topic.
        value_serializer: serializer of values in the internal topic.
        key_serializer: serializer of its keys; by default the one that belongs to the key deserializer of the frame's topic.

    Returns:
        A new frame.

    Raises:
        InvalidOperationError: if this frame already has a `rebalance` of the same name.
        ConfigurationError: if the resulting topic name is invalid, or a serializer is unknown.
        ArgumentValueError: if the frame's keys are not bytes, text, numbers or JSON, and no serializers are given for them.

    Example:
        ```python
        sdf = sdf.rebalance().apply(slow_model)
        ```
    """
    require_name("rebalance", name)
    chosen = name or "rebalance"
    branch = self._branch
    reader, writer = _key_format(branch, key_deserializer, key_serializer)
    topic = branch.topic_manager.repartition_topic(
        chosen,
        branch.stream_id,
        value_deserializer=value_deserializer,
        key_deserializer=reader,
        value_serializer=value_serializer,
        key_serializer=writer,
    )
    return self._with(branch.exchange(Rebalance(topic, chosen), chosen, keyed=False))


def _key_format(
    branch: Branch, reader: DeserializerType | None, writer: SerializerType | None
) -> tuple[DeserializerType, SerializerType]:
    """Return deserializer and serializer of the keys of a frame, as given or as those of its topics."""
    if reader is not None and writer is not None:
        return reader, writer
    names = {
        next((name for name in _FORMATS if type(each.key_deserializer) is DESERIALIZERS[name]), None)
        for each in branch.topics
    }
    name = names.pop() if len(names) == 1 else None
    if name is None:
        raise ArgumentValueError(
            "rebalance() cannot know how to serialize the keys of this frame: give key_serializer=... and "
            "key_deserializer=..."
        )
    return (name if reader is None else reader), (name if writer is None else writer)


def _make_grouping(key: str | Callable[[Any], Any], name: str | None) -> tuple[Callable[[Any], Any], str]:
    """Return the function that makes the new key, and the grouping's name."""
    require_name("group_by", name)
    if isinstance(key, str):
        if not key:
            raise ArgumentValueError("group_by() needs the name of a column, got an empty string")
        return ColumnKey(key), name or key
    require_callable("group_by() takes the name of a column or a function of the value; it", key)
    if name is None:
        raise ArgumentValueError(
            "group_by() with a function needs a name, which becomes part of the repartition topic's name: "
            "group_by(func, name='...')"
        )
    return key, name
