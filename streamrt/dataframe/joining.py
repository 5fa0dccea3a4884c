"""Joins with dataframes and with data outside Kafka. The public functions are methods of `StreamingDataFrame`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, TypeVar

from streamrt.arguments import checked, checked_choice, type_name
from streamrt.dataframe.branch import Branch, Frame, name_store
from streamrt.dataframe.streaming_table import StreamingTable
from streamrt.dataframe.versions import choose_grace
from streamrt.errors import ArgumentTypeError, ArgumentValueError, argument_error
from streamrt.joins import AsOfHow, BaseField, BaseLookup, IntervalHow, LookupBuffer, OnMerge, TableLookup
from streamrt.joins.asof import AsOfJoin
from streamrt.joins.interval import IntervalJoin
from streamrt.joins.lookup import BufferedLookupJoin, LookupJoin
from streamrt.joins.lookups.table import USE_TABLE
from streamrt.joins.merging import merge_of
from streamrt.joins.sides import Sides
from streamrt.operators import Concat
from streamrt.operators.functions import require_callable, require_name
from streamrt.state.spec import StoreSpec
from streamrt.state.transactions.timed import TimedTransaction
from streamrt.topics.durations import milliseconds
from streamrt.topology import MergeOperator

_GRACE = timedelta(days=7)

F = TypeVar("F", bound=Frame)


def concat(self: F, other: Frame) -> F:
    """Combine the records of this dataframe and of another one, in the order of their timestamps.

    One task processes partition N of all topics of both. The operations that follow have separate state, which the
    records of both share. Records with equal timestamps are ordered by topic name, unless a `join_asof` of these
    topics needs its right side first. The order holds among records that are in the topics; the task does not wait
    for records to arrive.

    If the operations that follow use state or `group_by`, the topics must have equal numbers of partitions.
    Otherwise the numbers may differ; each topic then has separate tasks, and there is no order between topics.

    Args:
        other: a dataframe of the same application, such as one of another topic or another branch of this one. A branch
            that starts at the same frame as this one delivers each record a second time.

    Returns:
        A new frame.

    Raises:
        InvalidOperationError: if `other` is not a dataframe of the same application.

    Example:
        ```python
        orders = app.dataframe(app.topic("orders"))
        refunds = app.dataframe(app.topic("refunds"))
        balance = orders.concat(refunds).apply(add_up, stateful=True)
        ```
    """
    return _merge_frames(self, other, Concat())


def join_asof(
    self: F,
    right: Frame | StreamingTable[Any],
    how: AsOfHow = "inner",
    on_merge: OnMerge = "raise",
    grace_ms: int | timedelta | None = None,
    name: str | None = None,
) -> F:
    """Merge each record with the record of another dataframe that was valid at its time.

    That is the right record of the same key with the highest timestamp not after the left record's. Of several with
    this timestamp, it is the last one that arrived. The result has key, timestamp and headers of the left record.
    Right records produce no output, and a left record does not wait for right records to arrive. A right record
    with the value None means that no record is valid from its timestamp on.

    Topics of both sides must have equal numbers of partitions; their records are processed in the order of
    timestamps. A store keeps the last right record of each key until the next one arrives, and earlier ones for
    `grace_ms` of stream time, the highest timestamp in a partition so far. If a record is further behind, a left
    one finds nothing, and a right one is dropped with a warning. Records without a key match nothing. A right
    record with the value None frees the space of a key that is no longer needed.

    Of `app.table()` and `as_table()`, and filters and functions on them, each record of the table is a right record, and a
    row is found as it was at the time of the left record. Of the results of joins and aggregates, each change is one.

    Args:
        right: the other dataframe, of the same application, or a table. It may be a branch of the same topic.
        how: "inner" drops left records without a right one, "left" passes them on by themselves.
        on_merge: rule that merges two values. "raise" fails if both have a column; "keep-left" and "keep-right"
            choose one side; None counts as a value without columns. Or a function of left and right value; a
            missing right value is None, and the function may change the values.
        grace_ms: how long right records with a successor are kept, in milliseconds or as a timedelta; by default 7 days, or
            `keep` of the table.
        name: name of the store; required if the same topics are joined more than once.

    Returns:
        A new frame.

    Raises:
        InvalidOperationError: if an argument cannot be used, or the same topics are joined again without a name.

    Example:
        ```python
        limits = app.dataframe(app.topic("limits"))
        readings = app.dataframe(app.topic("readings"))
        readings.join_asof(limits, how="left").to_topic(app.topic("checked"))
        ```
    """
    method = "join_asof"
    require_one_of(method, "how", how, ("inner", "left"))
    merge = merge_of(method, on_merge)
    versions = right._versions if isinstance(right, StreamingTable) else None
    grace = choose_grace(method, versions, grace_ms, _GRACE)
    records = right._rows_at_times() if isinstance(right, StreamingTable) else right
    other = require_frame(method, self, records)._branch
    store = join_store(method, name, self._branch, other)
    return _merge_frames(self, records, AsOfJoin(how, merge, grace, store))


def join_interval(
    self: F,
    right: Frame,
    how: IntervalHow = "inner",
    on_merge: OnMerge = "raise",
    grace_ms: int | timedelta = _GRACE,
    name: str | None = None,
    backward_ms: int | timedelta = 0,
    forward_ms: int | timedelta = 0,
) -> F:
    """Merge each record with all records of another dataframe in an interval around its time.

    A left record at time t matches the right records of its key from t - `backward_ms` to t + `forward_ms`, both
    included. The second record of a pair, from either side, passes the pair on, once: with the key, the later
    timestamp of both, and without headers. The pairs of one record come in the order of the others' timestamps.

    A record without a match on arrival is passed on by itself, at once, if `how` says so. A later record may still
    match it; then the pair is also passed on.

    Topics of both sides must have equal numbers of partitions; their records are processed in the order of
    timestamps. A store keeps records of both sides for `grace_ms` of stream time, the highest timestamp in a
    partition so far. Records further behind are dropped with a warning. Records without a key match nothing.

    Args:
        right: the other dataframe, of the same application. It may be a branch of the same topic, or this dataframe: then
            each record also matches itself if the interval contains its own time.
        how: records that are passed on by themselves: "inner" none, "left" and "right" those of one side, "outer" all.
        on_merge: rule that merges two values. "raise" fails if both have a column; "keep-left" and "keep-right"
            choose one side; None counts as a value without columns. Or a function of left and right value; a
            missing value is None, and the function may change the values.
        grace_ms: how long records are kept, in milliseconds or as a timedelta.
        name: name of the store; required if the same topics are joined more than once.
        backward_ms: maximum distance of a right record before a left one, in milliseconds or as a timedelta; at
            most `grace_ms`.
        forward_ms: maximum distance of a right record after a left one; at most `grace_ms`.

    Returns:
        A new frame.

    Raises:
        InvalidOperationError: if an argument cannot be used, or the same topics are joined again without a name.

    Example:
        ```python
        clicks = app.dataframe(app.topic("clicks"))
        orders = app.dataframe(app.topic("orders"))
        orders.join_interval(clicks, on_merge="keep-left", backward_ms=timedelta(minutes=10))
        ```
    """
    method = "join_interval"
    require_one_of(method, "how", how, ("inner", "left", "right", "outer"))
    merge = merge_of(method, on_merge)
    grace = milliseconds(f"{method}(grace_ms=...)", grace_ms)
    backward = milliseconds(f"{method}(backward_ms=...)", backward_ms)
    forward = milliseconds(f"{method}(forward_ms=...)", forward_ms)
    for side, reach in (("backward_ms", backward), ("forward_ms", forward)):
        if reach > grace:
            raise ArgumentValueError(
                f"{method}({side}=...) is {reach} ms, but records are kept for grace_ms={grace} only, so pairs would be "
                "missed: set grace_ms to at least that"
            )
    other = require_frame(method, self, right)._branch
    store = join_store(method, name, self._branch, other)
    return _merge_frames(self, right, IntervalJoin(Sides(how, merge, backward, forward), grace, store))


def join_lookup(
    self: F,
    lookup: BaseLookup[Any],
    fields: Mapping[str, BaseField],
    on: str | Callable[[Any, Any], Any] | None = None,
    buffer: LookupBuffer | None = None,
) -> F:
    """Set columns from data outside Kafka, such as a database.

    Args:
        lookup: `SQLiteLookup`, `PostgresLookup`, `app.table(table, everywhere=True)`, or an object of a class derived from
            `BaseLookup`.
        fields: the field to look up for each column.
        on: the value to look up: the name of a column, or a function of value and key. By default it is the
            record's key, which is bytes unless the topic has another key deserializer.
        buffer: holds records back whose lookup finds nothing yet. By default they continue with the defaults of
            their fields.

    Returns:
        This frame: assigning it is not needed.

    Raises:
        InvalidOperationError: if an argument cannot be used.

    Example:
        ```python
        airlines = SQLiteLookup("airlines.sqlite")
        sdf.join_lookup(airlines, {"airline": SQLiteLookupField("carriers", ["name"], on="code")}, on="carrier")
        ```
    """
    if not isinstance(lookup, BaseLookup):
        raise ArgumentTypeError(
            "join_lookup() needs a lookup, such as SQLiteLookup('airlines.sqlite') or an object of a class derived from "
            f"BaseLookup, got {type(lookup).__name__}"
        )
    if not isinstance(fields, Mapping) or not fields:
        raise argument_error(
            "join_lookup(fields=...) must be a dict of at least one column and its field",
            of_type=isinstance(fields, Mapping),
        )
    for column, field in fields.items():
        if not isinstance(column, str) or not isinstance(field, BaseField):
            raise ArgumentTypeError(
                "join_lookup(fields=...) must be a dict of column names and fields, which are objects of classes derived "
                f"from BaseField; got {column!r}: {type(field).__name__}"
            )
    if isinstance(lookup, TableLookup):
        lookup.require_fields(fields)
    if on is not None and not isinstance(on, str):
        require_callable("join_lookup(on=...) takes the name of a column or a function of value and key; it", on)
    pairs = tuple(fields.items())
    if buffer is None:
        return self._in_place(LookupJoin(lookup, pairs, on))
    checked("join_lookup(buffer=...)", buffer, LookupBuffer, "a LookupBuffer", show=type_name)
    branch = self._branch
    name = name_store(buffer.store_name, *branch.groups)
    store = _new_store(name, (branch,), "give one of the buffers another store_name")
    return self._in_place(BufferedLookupJoin(lookup, pairs, on, buffer, store))


def _merge_frames(frame: F, other: Any, operator: MergeOperator) -> F:
    """Return a new frame below an operator whose inputs are the two frames.

    Raises:
        InvalidOperationError: if `other` is not a dataframe of the same application, or the name of the merged topics
            collides with another topic.
    """
    branch = require_frame(operator.name, frame, other)._branch
    return frame._with(frame._branch.merge((branch,), operator))


def require_frame(method: str, frame: Frame, other: Any) -> Frame:
    """Return the other frame of a join, which must be one of the same application.

    Raises:
        InvalidOperationError: if it is not.
    """
    if isinstance(other, TableLookup):
        raise ArgumentTypeError(f"{method}() got a lookup: {USE_TABLE}")
    if not isinstance(other, Frame):
        raise ArgumentTypeError(f"{method}() needs another dataframe, got {type(other).__name__}")
    if other._branch.builder is not frame._branch.builder:
        raise ArgumentValueError(
            f"{method}() got a dataframe of another application: make both with Application.dataframe() of "
            "one application"
        )
    return other


def join_store(method: str, name: str | None, left: Branch, right: Branch) -> StoreSpec:
    """Return the store of a join.

    Raises:
        InvalidOperationError: if another join has it.
    """
    require_name(method, name)
    # On topics of one partition, frames before and after a group_by use the stores of the same topic.
    groups = [".".join(branch.groups) for branch in (left, right)]
    store = name_store(name or method, *(("--".join(groups),) if any(groups) else ()))
    return _new_store(store, (left, right), f"give one of the joins a name, {method}(..., name='...')")


def _new_store(name: str, branches: tuple[Branch, ...], advice: str) -> StoreSpec:
    """Return a store in the scope of all branches, for one operation only."""
    first, *others = branches
    merged = first.with_sources_of(others)
    topology, scope = merged.builder.build(), merged.stream_id
    known = topology.stores(scope) if scope in topology.scopes else ()
    if any(store.name == name for store in known):
        raise ArgumentValueError(f"store {name!r} of topic {scope!r} is in use by another operation: {advice}")
    return merged.store(name, TimedTransaction)


def require_one_of(method: str, argument: str, value: Any, known: tuple[str, ...]) -> None:
    """Refuse a value that is not one of some.

    Raises:
        InvalidOperationError: if it is another one.
    """
    checked_choice(f"{method}({argument}=...)", value, known, f"one of {', '.join(map(repr, known))}")
