"""New keys and partitions for records. `group_by` and `rebalance` are methods of `StreamingDataFrame`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar, cast, get_args

from streamrt.arguments import checked_choice
from streamrt.dataframe.branch import Branch, Frame
from streamrt.errors import ArgumentTypeError, ArgumentValueError, InvalidOperationError
from streamrt.operators import ColumnKey, ColumnsKey, Repartition
from streamrt.operators.functions import require_callable, require_name
from streamrt.operators.group_by import NullGroup
from streamrt.operators.partitioning import KeyPartitioner, Rebalance
from streamrt.serializers import (
    DESERIALIZERS,
    Deserializer,
    DeserializerType,
    JSONDeserializer,
    JSONSerializer,
    Serializer,
    SerializerType,
)

F = TypeVar("F", bound=Frame)

Nulls = Literal["skip", "group"]
"""How records or rows with a null key are grouped: not at all, or as a group of their own, as in SQL."""

_FORMATS: tuple[Literal["bytes", "str", "int", "double", "json"], ...] = ("bytes", "str", "int", "double", "json")
"""Names under which a deserializer and the serializer of the same bytes are known."""

_SINGLE_VALUES = ("bytes", "str", "int", "double")


def group_by(
    self: F,
    key: str | Sequence[str] | Callable[[Any], Any],
    name: str | None = None,
    value_deserializer: DeserializerType = "json",
    key_deserializer: DeserializerType = "json",
    value_serializer: SerializerType = "json",
    key_serializer: SerializerType = "json",
    partitioner: KeyPartitioner | None = None,
    *,
    nulls: Nulls = "skip",
) -> F:
    """Give records new keys, and bring records with the same key together in one partition.

    Records go through an internal topic, `repartition__<consumer group>--<topic>--<name>`. For merged frames,
    `<topic>` holds the names of all their topics. The operations that follow have separate state for each new key.
    An input of one partition needs no internal topic: the key is replaced in memory. Values, timestamps and headers
    stay the same; a key may be None.

    Args:
        key: name of the column that holds the new key; a list of names, whose values in this order are the new key, a
            list; or a function from the value to the key.
        name: part of the topic's name; by default the name of the column, or those of the columns, joined by `-`.
            Required for a function.
        value_deserializer: deserializer of values in the internal topic.
        key_deserializer: deserializer of its keys.
        value_serializer: serializer of values in the internal topic.
        key_serializer: serializer of its keys.
        partitioner: function of the new key and the number of partitions of the internal topic, which returns the
            partition, from 0. It must depend only on these two, and give the same for a key that was serialized and
            deserialized: the state of a key is where the partitioner says. By default, Kafka's hash of the serialized key.
        nulls: what becomes of records whose key is None. "skip": they have no key, so windows, aggregates and joins leave
            them out. "group": they form one group, as in SQL, whose key is `[None]`. Keys of several columns are groups also
            if some are None.

    Returns:
        A new frame.

    Raises:
        InvalidOperationError: if the key is neither a column, columns nor a function, a function has no name, keys of
            several columns, or of nulls, are to be written in another format than JSON, or this frame already has a
            `group_by` of the same name.
        ConfigurationError: if the resulting topic name is invalid, or a serializer is unknown.

    Example:
        ```python
        by_customer = sdf.group_by("customer")
        by_customer = by_customer.apply(count_orders, stateful=True)
        by_customer_and_shop = sdf.group_by(["customer", "shop"])
        by_day = sdf.group_by(lambda value: value["ordered_at"][:10], name="day")
        ```
    """
    make_key, name = make_grouping("group_by", key, name)
    make_key = add_null_group("group_by", make_key, nulls)
    if isinstance(make_key, ColumnsKey):
        _require_lists("a key of several columns", key_serializer, key_deserializer)
    elif isinstance(make_key, NullGroup):
        _require_lists("the key of nulls='group'", key_serializer, key_deserializer)
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
    operator = Repartition(topic, make_key, name, partitioner)
    return self._with(branch.exchange(operator, name, key_columns=columns_of(make_key)))


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


def make_grouping(
    method: str, key: str | Sequence[str] | Callable[[Any], Any], name: str | None
) -> tuple[Callable[[Any], Any], str]:
    """Return the function that makes the new key, and the grouping's name.

    Args:
        method: name of the dataframe's method, for errors.
        key: name of a column, names of columns, or a function.
        name: the name as given.

    Raises:
        InvalidOperationError: if the key is neither, or a function has no name.
    """
    require_name(method, name)
    if isinstance(key, str):
        if not key:
            raise ArgumentValueError(f"{method}() needs the name of a column, got an empty string")
        return ColumnKey(key), name or key
    if isinstance(key, list | tuple):
        columns = column_list(f"{method}()", key)
        return ColumnsKey(columns), name or "-".join(columns)
    require_callable(f"{method}() takes the name of a column, a list of names or a function of the value; it", key)
    if name is None:
        raise ArgumentValueError(
            f"{method}() with a function needs a name, which becomes part of the repartition topic's name: "
            f"{method}(func, name='...')"
        )
    return cast("Callable[[Any], Any]", key), name


def add_null_group(method: str, make_key: Callable[[Any], Any], nulls: Nulls) -> Callable[[Any], Any]:
    """Return the function that makes keys, with one for null if nulls are a group; a key of columns may have them anyway.

    Args:
        method: name of the dataframe's method, for errors.
        make_key: the function without it.
        nulls: the choice.

    Raises:
        ConfigurationError: if the choice is unknown.
    """
    checked_choice(f"{method}(nulls=...)", nulls, get_args(Nulls))
    return NullGroup(make_key) if nulls == "group" and not isinstance(make_key, ColumnsKey) else make_key


def bring_together(
    method: str, left: Branch, right: Branch, on: tuple[tuple[str, ...], tuple[str, ...]], name: str | None
) -> tuple[Branch, Branch]:
    """Return the positions of two frames at which their records with equal values in some columns have equal keys.

    A frame that is grouped by its columns stays as it is. The others go through an internal topic, as of `group_by`, which a
    frame has once for the same columns.

    Args:
        method: name of the dataframe's method, for errors.
        left: the position of the left frame.
        right: that of the right one.
        on: the columns of both.
        name: part of the names of the internal topics, in front of the columns; None for none.

    Raises:
        InvalidOperationError: if another `group_by` has such an internal topic.
    """
    grouped = [branch for branch, columns in zip((left, right), on, strict=True) if branch.key_columns == columns]
    # Keys of both sides must be serialized alike, or equal ones are in different partitions.
    formats = (grouped[0].topics[0].key_deserializer, grouped[0].topics[0].key_serializer) if grouped else None
    return (
        group_by_columns(method, left, on[0], name, formats),
        group_by_columns(method, right, on[1], name, formats),
    )


def group_by_columns(
    method: str,
    branch: Branch,
    columns: tuple[str, ...],
    name: str | None,
    formats: tuple[Deserializer, Serializer] | None = None,
) -> Branch:
    """Return the position of a frame at which its keys are the values of columns.

    Args:
        method: name of the dataframe's method, for errors.
        branch: the position of the frame.
        columns: the columns.
        name: part of the name of the internal topic, in front of the columns; None for none.
        formats: how keys are read from and written to the internal topic; None for JSON.

    Raises:
        InvalidOperationError: if another `group_by` has such an internal topic.
    """
    if branch.key_columns == columns:
        return branch
    make_key = ColumnKey(columns[0]) if len(columns) == 1 else ColumnsKey(columns)
    reader, writer = formats or (JSONDeserializer(), JSONSerializer())
    topology = branch.builder.build()
    for node in topology.nodes:
        former = node.operator
        if isinstance(former, Repartition) and node.parents == (branch.node.id,) and former.key == make_key:
            alike = type(former.topic.key_serializer) is type(writer)
            if alike and former.partitioner is None:
                return branch.behind(topology.sources[former.topic.name], former.group, key_columns=columns)
    group = "-".join(columns) if name is None else "-".join((name, *columns))
    topic = branch.topic_manager.repartition_topic(
        group, branch.stream_id, key_deserializer=reader, key_serializer=writer
    )
    if topic.name in topology.sources:
        raise InvalidOperationError(
            f"{method}() cannot group the records of {branch.stream_id!r} by {' and '.join(columns)} as {group!r}, as "
            f"another frame of them is grouped (defined at {topology.exchanges[topic.name].location}): give this one a "
            f"name, {method}(..., name='...')"
        )
    return branch.exchange(Repartition(topic, make_key, group), group, key_columns=columns)


def columns_of(make_key: Callable[[Any], Any]) -> tuple[str, ...] | None:
    """Return the columns whose values are a key; None if a function makes it."""
    if isinstance(make_key, NullGroup):
        make_key = make_key.key
    if isinstance(make_key, ColumnKey):
        return (make_key.column,)
    return make_key.columns if isinstance(make_key, ColumnsKey) else None


def column_list(call: str, columns: Sequence[Any]) -> tuple[str, ...]:
    """Return the names of columns as a tuple.

    Raises:
        InvalidOperationError: if there is none, one is not a string or empty, or one occurs twice.
    """
    for column in columns:
        if not isinstance(column, str):
            raise ArgumentTypeError(f"{call} takes names of columns, which are strings, got {column!r}")
    if not columns or "" in columns:
        raise ArgumentValueError(
            f"{call} needs the name of at least one column, and none that is empty, got {columns!r}"
        )
    if len(set(columns)) < len(columns):
        raise ArgumentValueError(f"{call} got a column twice: {', '.join(columns)}")
    return tuple(columns)


def _require_lists(what: str, serializer: SerializerType, deserializer: DeserializerType) -> None:
    """Refuse formats that cannot hold a list.

    Raises:
        InvalidOperationError: if one is that of a single value.
    """
    for argument, kind in (("key_serializer", serializer), ("key_deserializer", deserializer)):
        if kind in _SINGLE_VALUES:
            raise ArgumentValueError(
                f"group_by({argument}={kind!r}) cannot hold {what}, which is a list: leave the format at 'json', or give "
                "a function that makes one value"
            )
