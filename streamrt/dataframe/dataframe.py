"""`StreamingDataFrame`: the graph of operators on one topic, seen from where the next operator will be added."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, overload

from streamrt.connectors import BaseSink
from streamrt.dataframe.joins import JoiningFrame
from streamrt.dataframe.series import StreamingSeries
from streamrt.dataframe.windows import WindowedFrame
from streamrt.errors import ArgumentTypeError, ArgumentValueError, argument_error
from streamrt.operators import (
    Apply,
    Assign,
    ColumnKey,
    Drop,
    Fill,
    Filter,
    Print,
    PrintTable,
    Project,
    Repartition,
    SetHeaders,
    SetTimestamp,
    SinkOperator,
    ToTopic,
    Update,
    Where,
)
from streamrt.operators.expression import Call, Column, Expression, Input, has_columns
from streamrt.operators.expression import Literal as Constant
from streamrt.operators.functions import require_callable, require_parameters
from streamrt.serializers import DeserializerType, SerializerType
from streamrt.state import Store, StoreSpec
from streamrt.topics import Topic


class StreamingDataFrame(WindowedFrame, JoiningFrame):
    """Operations on the records of a topic, built like operations on a pandas dataframe.

    `Application.dataframe()` makes one. Methods add operators; nothing runs before `Application.run()`. Values are
    usually dicts, then `sdf["column"]` works on their items, but any value that the topic's deserializer yields will do.

    `apply`, `filter`, `sdf[condition]`, `sdf[["a", "b"]]`, `set_timestamp`, `set_headers`, `group_by`, `concat`, `join_asof`,
    `join_interval` and windows return a new frame: assign it. `update`, `to_topic`, `drop`, `fill`, `print`, `print_table`,
    `join_lookup` and `sdf["x"] = ...` change the frame in place and return it. `sink` ends a branch. Frames branch where two
    operations start from the same one; each branch works on its own copy of the value.

    Example:
        ```python
        app = Application(broker_address="localhost:9092", consumer_group="delays")
        sdf = app.dataframe(app.topic("flights"))
        sdf = sdf[sdf["dep_delay"].notnull() & (sdf["dep_delay"] > 60)]
        sdf["hours"] = (sdf["dep_delay"] / 60).round(1)
        sdf.to_topic(app.topic("late-flights"), key=lambda value: value["carrier"])
        app.run()
        ```
    """

    # -- Operations on values ------------------------------------------------------------------------------------

    def apply(
        self,
        func: Callable[..., Any],
        *,
        stateful: bool = False,
        expand: bool = False,
        metadata: bool = False,
    ) -> StreamingDataFrame:
        """Replace each value by what a function returns.

        A returned None is passed on as the value None; to drop values use `filter`.

        Args:
            func: takes the value; with `metadata` value, key, timestamp (milliseconds) and headers.
            stateful: pass the `State` of the record's key as last argument, after the metadata if there is any.
            expand: pass on the items of the returned iterable one by one. Generators are pulled lazily.
            metadata: whether `func` takes key, timestamp and headers too.

        Returns:
            A new frame.

        Raises:
            InvalidOperationError: if `func` is not callable, or not with these arguments.

        Example:
            ```python
            words = sdf.apply(lambda value: value["text"].split(), expand=True)
            ```
        """
        require_parameters("apply()", func, metadata=metadata, stateful=stateful)
        return self._new(Apply(func, expand, metadata, self._store() if stateful else None))

    def update(self, func: Callable[..., Any], *, stateful: bool = False, metadata: bool = False) -> StreamingDataFrame:
        """Call a function for its effect, such as changing the value in place; its result is ignored.

        Args:
            func: takes the value; with `metadata` value, key, timestamp (milliseconds) and headers.
            stateful: pass the `State` of the record's key as last argument, after the metadata if there is any.
            metadata: whether `func` takes key, timestamp and headers too.

        Returns:
            This frame: assigning it is not needed.

        Raises:
            InvalidOperationError: if `func` is not callable, or not with these arguments.

        Example:
            ```python
            sdf.update(lambda value: value.setdefault("unit", "mm"))
            ```
        """
        require_parameters("update()", func, metadata=metadata, stateful=stateful)
        return self._in_place(Update(func, metadata, self._store() if stateful else None))

    def filter(self, func: Callable[..., Any], *, stateful: bool = False, metadata: bool = False) -> StreamingDataFrame:
        """Keep the values for which a function returns something true.

        Args:
            func: takes the value; with `metadata` value, key, timestamp (milliseconds) and headers.
            stateful: pass the `State` of the record's key as last argument, after the metadata if there is any.
            metadata: whether `func` takes key, timestamp and headers too.

        Returns:
            A new frame.

        Raises:
            InvalidOperationError: if `func` is not callable, or not with these arguments.

        Example:
            ```python
            late = sdf.filter(lambda value: (value["dep_delay"] or 0) > 60)
            ```
        """
        require_parameters("filter()", func, metadata=metadata, stateful=stateful)
        return self._new(Filter(func, metadata, self._store() if stateful else None))

    # -- Columns -------------------------------------------------------------------------------------------------

    @overload
    def __getitem__(self, item: str) -> StreamingSeries: ...

    @overload
    def __getitem__(self, item: list[str] | StreamingSeries | StreamingDataFrame) -> StreamingDataFrame: ...

    def __getitem__(
        self, item: str | list[str] | StreamingSeries | StreamingDataFrame
    ) -> StreamingSeries | StreamingDataFrame:
        if isinstance(item, str):
            return StreamingSeries(Column(item), self)
        if isinstance(item, StreamingSeries):
            return self._new(Where(item.expression))
        if isinstance(item, StreamingDataFrame):
            return self._new(Where(self._absorb(item)))
        if isinstance(item, list) and item and all(isinstance(name, str) for name in item):
            return self._new(Apply(Project(tuple(item))))
        raise argument_error(
            "a dataframe is indexed by a column name, a list of column names or a condition made of its columns, "
            f"got {_kind(item)}",
            of_type=item == [],
        )

    def __setitem__(self, column: str, item: Any) -> None:
        if not isinstance(column, str):
            raise ArgumentTypeError(f"a column is named by a string, got {_kind(column)}")
        expression: Expression
        if isinstance(item, StreamingSeries):
            if item.frame is not self:
                raise ArgumentValueError(
                    f"column {column!r} can be set from columns of the same dataframe only: take the series from the "
                    "frame as it is now, after the last assignment to its variable"
                )
            expression = item.expression
        elif isinstance(item, StreamingDataFrame):
            expression = self._absorb(item)
        else:
            expression = Constant(item)
        self._in_place(Assign(column, expression))

    def contains(self, keys: str | list[str]) -> StreamingSeries:
        """Tell whether the value has a column, or all of several.

        Args:
            keys: name of the column, or a list of names.

        Example:
            ```python
            sdf = sdf[sdf.contains(["lat", "lon"])]
            ```
        """
        columns = _column_names("contains()", keys)
        return StreamingSeries(Call(has_columns, (Input(), *(Constant(name) for name in columns))), self)

    def drop(self, columns: str | list[str], errors: Literal["ignore", "raise"] = "raise") -> StreamingDataFrame:
        """Delete columns.

        Args:
            columns: name of the column, or a list of names.
            errors: "raise" raises `MissingColumnError` where a column is missing, "ignore" does not mind.

        Returns:
            This frame: assigning it is not needed.

        Example:
            ```python
            sdf.drop(["tailnum", "flight"], errors="ignore")
            ```
        """
        if errors not in ("ignore", "raise"):
            raise argument_error(
                f"drop() takes errors='raise' or errors='ignore', got {errors!r}", of_type=isinstance(errors, str)
            )
        return self._in_place(Update(Drop(_column_names("drop()", columns), errors == "ignore")))

    def fill(self, *columns: str, **mapping: Any) -> StreamingDataFrame:
        """Add missing columns, and replace None. Values that are no dicts, such as those of tombstones, stay as they are.

        Args:
            columns: columns that become None where they are missing.
            mapping: columns with what they get where they are missing or None.

        Returns:
            This frame: assigning it is not needed.

        Example:
            ```python
            sdf.fill("tailnum", dep_delay=0)
            ```
        """
        if not columns and not mapping:
            raise ArgumentValueError("fill() needs at least one column")
        names = _column_names("fill()", list(columns)) if columns else ()
        return self._in_place(Update(Fill((*((name, None) for name in names), *mapping.items()))))

    # -- Output --------------------------------------------------------------------------------------------------

    def to_topic(
        self,
        topic: Topic | Callable[[Any, Any, int, Any], Topic],
        key: Callable[[Any], Any] | None = None,
    ) -> StreamingDataFrame:
        """Produce the current value to a topic.

        The value is serialized at once: later changes do not touch what was produced. Timestamp and headers go along.

        Args:
            topic: the topic, or a function of value, key, timestamp and headers that returns it. Declare all topics
                with `Application.topic()` before `run()`.
            key: function from the value to the key of the output, which may be None; by default the record keeps its key.

        Returns:
            This frame: assigning it is not needed.

        Raises:
            InvalidOperationError: if `topic` is neither a Topic nor callable.

        Example:
            ```python
            sdf.to_topic(late, key=lambda value: value["carrier"])
            sdf.to_topic(lambda value, key, timestamp, headers: late if value["dep_delay"] > 0 else on_time)
            ```
        """
        if not isinstance(topic, Topic):
            require_callable("to_topic() takes a Topic or a function that returns one; it", topic)
        if key is not None:
            require_callable("to_topic(key=...)", key)
        return self._in_place(ToTopic(topic, key))

    def set_timestamp(self, func: Callable[[Any, Any, int, Any], int]) -> StreamingDataFrame:
        """Replace the timestamp of each record.

        Args:
            func: takes value, key, timestamp and headers; returns milliseconds since the Unix epoch, not negative. Note
                that a produced record with timestamp 0 gets the wall clock: librdkafka reads 0 as "now".

        Returns:
            A new frame.

        Example:
            ```python
            sdf = sdf.set_timestamp(lambda value, key, timestamp, headers: value["measured_at_ms"])
            ```
        """
        require_callable("set_timestamp()", func)
        return self._new(SetTimestamp(func))

    def set_headers(self, func: Callable[[Any, Any, int, Any], Iterable[tuple[str, Any]] | None]) -> StreamingDataFrame:
        """Replace the headers of each record.

        Args:
            func: takes value, key, timestamp and headers; returns a collection of (name, value) pairs, whose values are
                bytes, str or None. None or an empty collection leaves the record without headers.

        Returns:
            A new frame.

        Example:
            ```python
            sdf = sdf.set_headers(lambda value, key, timestamp, headers: [*(headers or []), ("origin", b"jfk")])
            ```
        """
        require_callable("set_headers()", func)
        return self._new(SetHeaders(func))

    def print(self, pretty: bool = True, metadata: bool = False) -> StreamingDataFrame:
        """Print each value, as `{'value': ...}`, to the standard output of the process that called `run()`.

        Args:
            pretty: spread large values over several lines.
            metadata: print key, timestamp and headers too.

        Returns:
            This frame: assigning it is not needed.

        Example:
            ```python
            sdf.print(metadata=True)
            ```
        """
        return self._in_place(Print(pretty, metadata))

    def print_table(
        self,
        size: int = 5,
        title: str | None = None,
        metadata: bool = True,
        timeout: float = 5.0,
        live: bool = True,
        live_slowdown: float = 0.5,
        columns: list[str] | None = None,
        column_widths: dict[str, int] | None = None,
    ) -> StreamingDataFrame:
        """Show the latest values as a table.

        On a terminal the table is redrawn in place; elsewhere a table is printed whenever it is full or `timeout` is over.

        Args:
            size: rows of the table.
            title: its title.
            metadata: show the columns `_key` and `_timestamp` too.
            timeout: seconds to wait for a full table where the output is not a terminal.
            live: redraw in place if possible.
            live_slowdown: seconds between two drawings of a live table; 0 draws as often as is useful, 20 times a second.
            columns: the columns to show; None shows all, an empty list only the metadata.
            column_widths: widths in characters by column.

        Returns:
            This frame: assigning it is not needed.

        Example:
            ```python
            sdf.print_table(size=10, title="Late flights", columns=["carrier", "dep_delay"])
            ```
        """
        for name, number in (("size", size), ("timeout", timeout), ("live_slowdown", live_slowdown)):
            may_be_zero = name == "live_slowdown"
            if not isinstance(number, int | float) or number < 0 or (number == 0 and not may_be_zero):
                wanted = "a number that is not negative" if may_be_zero else "a positive number"
                raise argument_error(
                    f"print_table({name}=...) must be {wanted}, got {number!r}",
                    of_type=isinstance(number, int | float),
                )
        shown = None if columns is None else tuple(_column_names("print_table()", columns)) if columns else ()
        widths = tuple((column_widths or {}).items())
        return self._in_place(PrintTable(int(size), title, metadata, timeout, live, live_slowdown, shown, widths))

    def sink(self, sink: BaseSink) -> None:
        """Hand each value, with key, timestamp and headers, over to a system outside Kafka.

        This ends a branch: nothing can be added below a sink. What is added to this frame afterwards is another branch.
        The sink is flushed before offsets are committed, so values arrive at least once.

        Args:
            sink: the sink. One object may be used in several places.

        Raises:
            InvalidOperationError: if `sink` is no `BaseSink`.

        Example:
            ```python
            sdf.sink(CSVSink("late-flights.csv"))
            ```
        """
        if not isinstance(sink, BaseSink):
            raise ArgumentTypeError(
                f"sink() needs an object of a class derived from BaseSink, such as ListSink(), got {_kind(sink)}"
            )
        self._builder.add(self._node, SinkOperator(sink))

    # -- State and keys ------------------------------------------------------------------------------------------

    def register_store(self, store_type: type[Store] | None = None) -> None:
        """Choose how the state of this dataframe is kept, before the first stateful operation.

        The stateful operations of a dataframe and of its branches share one store. After `group_by` there is another
        one, of the same type unless it is registered again.

        Args:
            store_type: `RocksDBStore` (on local disk; the default), `MemoryStore`, or another subclass of `Store`.

        Raises:
            ConfigurationError: if `store_type` is no such class.
            InvalidOperationError: if the store has another type already.

        Example:
            ```python
            sdf.register_store(MemoryStore)
            ```
        """
        store = self._store() if store_type is None else StoreSpec(self._store_name, store_type)
        self._builder.register_store(self._sources, store)

    def group_by(
        self,
        key: str | Callable[[Any], Any],
        name: str | None = None,
        value_deserializer: DeserializerType = "json",
        key_deserializer: DeserializerType = "json",
        value_serializer: SerializerType = "json",
        key_serializer: SerializerType = "json",
    ) -> StreamingDataFrame:
        """Give records other keys, and bring those with the same key together in one partition.

        Records go through an internal topic, `repartition__<consumer group>--<topic>--<name>`, and what follows has its
        own state for each new key. Where frames were merged, the names of all their topics are in this name. An input of
        one partition needs no such topic: the key is replaced in memory. Values,
        timestamps and headers stay; a key may be None.

        Args:
            key: name of the column that holds the new key, or a function that takes the value and returns it.
            name: makes the topic's name; by default that of the column. A function needs one.
            value_deserializer: how values are read from the internal topic.
            key_deserializer: how keys are read from it.
            value_serializer: how values are written to it.
            key_serializer: how keys are written to it.

        Returns:
            A new frame.

        Raises:
            InvalidOperationError: if the key is neither a column nor a function, a function has no name, or this frame
                has a `group_by` of the same name already.
            ConfigurationError: if no topic can have the resulting name, or a serializer is unknown.

        Example:
            ```python
            by_customer = sdf.group_by("customer")
            by_customer = by_customer.apply(count_orders, stateful=True)
            by_day = sdf.group_by(lambda value: value["ordered_at"][:10], name="day")
            ```
        """
        make_key, name = _grouping(key, name)
        topic = self._topic_manager.repartition_topic(
            name,
            self.stream_id,
            value_deserializer=value_deserializer,
            key_deserializer=key_deserializer,
            value_serializer=value_serializer,
            key_serializer=key_serializer,
        )
        source = self._builder.add_exchange(self._node, Repartition(topic, make_key, name))
        return StreamingDataFrame(self._builder, source, (source,), self._topic_manager, (*self._groups, name))


def _grouping(key: str | Callable[[Any], Any], name: str | None) -> tuple[Callable[[Any], Any], str]:
    """Return the function that makes the new key, and the name of the grouping."""
    if name is not None and (not isinstance(name, str) or not name):
        raise argument_error(
            f"group_by(name=...) must be a string that is not empty, got {name!r}", of_type=isinstance(name, str)
        )
    if isinstance(key, str):
        if not key:
            raise ArgumentValueError("group_by() needs the name of a column, got an empty string")
        return ColumnKey(key), name or key
    require_callable("group_by() takes the name of a column or a function of the value; it", key)
    if name is None:
        raise ArgumentValueError(
            "group_by() with a function needs a name, which becomes a part of the repartition topic's name: "
            "group_by(func, name='...')"
        )
    return key, name


def _column_names(method: str, names: Any) -> tuple[str, ...]:
    listed: Sequence[Any] = [names] if isinstance(names, str) else names
    if not isinstance(listed, list) or not listed or not all(isinstance(name, str) for name in listed):
        raise argument_error(
            f"{method} needs a column name or a list of column names, got {_kind(names)}", of_type=names == []
        )
    return tuple(listed)


def _kind(item: Any) -> str:
    return f"{item!r}" if isinstance(item, list) else type(item).__name__
