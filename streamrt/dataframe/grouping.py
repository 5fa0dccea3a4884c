"""New keys for records. `group_by` is a method of `StreamingDataFrame`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from streamrt.dataframe.branch import Frame
from streamrt.errors import ArgumentValueError
from streamrt.operators import ColumnKey, Repartition
from streamrt.operators.functions import require_callable, require_name
from streamrt.serializers import DeserializerType, SerializerType

F = TypeVar("F", bound=Frame)


def group_by(
    self: F,
    key: str | Callable[[Any], Any],
    name: str | None = None,
    value_deserializer: DeserializerType = "json",
    key_deserializer: DeserializerType = "json",
    value_serializer: SerializerType = "json",
    key_serializer: SerializerType = "json",
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
    make_key, name = _grouping(key, name)
    branch = self._branch
    topic = branch.topic_manager.repartition_topic(
        name,
        branch.stream_id,
        value_deserializer=value_deserializer,
        key_deserializer=key_deserializer,
        value_serializer=value_serializer,
        key_serializer=key_serializer,
    )
    return self._with(branch.exchange(Repartition(topic, make_key, name), name))


def _grouping(key: str | Callable[[Any], Any], name: str | None) -> tuple[Callable[[Any], Any], str]:
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
