"""`StreamingDataFrame`: operations on the records of a topic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NoReturn, overload

from typing_extensions import Self

from streamrt.arguments import checked
from streamrt.connectors import BaseSink
from streamrt.context import current_provider
from streamrt.dataframe import (
    aggregating,
    assigning,
    asynchronous,
    connecting,
    duplicates,
    grouping,
    joining,
    output,
    over,
    processing,
    reducing,
    stream_join,
    table_output,
    top,
    windowing,
)
from streamrt.dataframe.branch import Branch
from streamrt.dataframe.series import StreamingSeries
from streamrt.dataframe.trial import TrialContext, TrialStores, compose_all
from streamrt.errors import ArgumentTypeError, ArgumentValueError, InvalidOperationError, argument_error
from streamrt.operators import (
    Apply,
    Assign,
    Drop,
    Fill,
    Filter,
    Print,
    PrintTable,
    Project,
    SetHeaders,
    SetTimestamp,
    SinkOperator,
    Update,
    Where,
)
from streamrt.operators.expression import Call, Column, Expression, Input, has_columns
from streamrt.operators.expression import Literal as Constant
from streamrt.operators.functions import require_callable, require_parameters
from streamrt.records import MessageContext
from streamrt.state import Store
from streamrt.state.spec import StoreSpec
from streamrt.topics import Topic
from streamrt.topology import Operator, RecordHandler
from streamrt.topology.graph import topic_of


class StreamingDataFrame:
    """Operations on the records of a topic, in the style of a pandas dataframe.

    `Application.dataframe()` makes one. Methods add operators; nothing runs before `Application.run()`. Values are
    usually dicts, and `sdf["column"]` works on their items. Any other value that the topic's deserializer returns is
    also allowed.

    `apply`, `apply_async`, `filter`, `sdf[condition]`, `sdf[["a", "b"]]`, `set_timestamp`, `set_headers`, `group_by`,
    `rebalance`, `reduce`, `process`, `side_output`, `concat`, `join`, `join_asof`, `join_interval`, `drop_duplicates`,
    `over` and windows return a new frame: assign it. `update`, `to_topic`, `to_table`, `drop`, `fill`, `print`,
    `print_table`, `join_lookup` and `sdf["x"] = ...` change the frame in place and return it. `sink` ends a branch. Two
    operations on the same frame make two branches; each branch works on its own copy of the value.

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

    def __init__(self, branch: Branch) -> None:
        self._branch = branch
        self._trial = TrialStores()

    @property
    def topics(self) -> tuple[Topic, ...]:
        """The topics that this dataframe reads, sorted by name; several if frames were merged."""
        return self._branch.topics

    @property
    def stream_id(self) -> str:
        """The name of the topic that this dataframe reads, or the names of several topics, joined by `--`.

        The names of the dataframe's internal topics and directories contain it.
        """
        return self._branch.stream_id

    # -- Operations on values ------------------------------------------------------------------------------------

    def apply(
        self,
        func: Callable[..., Any],
        *,
        stateful: bool = False,
        expand: bool = False,
        metadata: bool = False,
    ) -> StreamingDataFrame:
        """Replace each value by the result of a function.

        A result of None becomes the value None; to drop values, use `filter`.

        Args:
            func: function of the value; with `metadata`, of value, key, timestamp (milliseconds) and headers.
            stateful: pass the `State` of the record's key as last argument, after any metadata.
            expand: pass on the items of the returned iterable one by one. Generators are pulled lazily.
            metadata: whether `func` takes key, timestamp and headers too.

        Returns:
            A new frame.

        Raises:
            InvalidOperationError: if `func` is not callable with these arguments.

        Example:
            ```python
            words = sdf.apply(lambda value: value["text"].split(), expand=True)
            ```
        """
        require_parameters("apply()", func, metadata=metadata, stateful=stateful)
        return self._add_operator(Apply(func, expand, metadata, self._make_store() if stateful else None))

    def update(self, func: Callable[..., Any], *, stateful: bool = False, metadata: bool = False) -> StreamingDataFrame:
        """Call a function for its side effect, such as a change of the value in place. Its result is ignored.

        Args:
            func: function of the value; with `metadata`, of value, key, timestamp (milliseconds) and headers.
            stateful: pass the `State` of the record's key as last argument, after any metadata.
            metadata: whether `func` takes key, timestamp and headers too.

        Returns:
            This frame; no assignment is needed.

        Raises:
            InvalidOperationError: if `func` is not callable with these arguments.

        Example:
            ```python
            sdf.update(lambda value: value.setdefault("unit", "mm"))
            ```
        """
        require_parameters("update()", func, metadata=metadata, stateful=stateful)
        return self._in_place(Update(func, metadata, self._make_store() if stateful else None))

    def filter(self, func: Callable[..., Any], *, stateful: bool = False, metadata: bool = False) -> StreamingDataFrame:
        """Keep the values for which a function returns a true value.

        Args:
            func: function of the value; with `metadata`, of value, key, timestamp (milliseconds) and headers.
            stateful: pass the `State` of the record's key as last argument, after any metadata.
            metadata: whether `func` takes key, timestamp and headers too.

        Returns:
            A new frame.

        Raises:
            InvalidOperationError: if `func` is not callable with these arguments.

        Example:
            ```python
            late = sdf.filter(lambda value: (value["dep_delay"] or 0) > 60)
            ```
        """
        require_parameters("filter()", func, metadata=metadata, stateful=stateful)
        return self._add_operator(Filter(func, metadata, self._make_store() if stateful else None))

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
            return self._add_operator(Where(item.expression))
        if isinstance(item, StreamingDataFrame):
            return self._add_operator(Where(self._branch.absorb(item._branch)))
        if isinstance(item, list) and item and all(isinstance(name, str) for name in item):
            return self._add_operator(Apply(Project(tuple(item))))
        raise argument_error(
            "a dataframe is indexed by a column name, a list of column names or a condition on its columns, "
            f"got {_kind_of(item)}",
            of_type=item == [],
        )

    def __setitem__(self, column: str, item: Any) -> None:
        if not isinstance(column, str):
            raise ArgumentTypeError(f"a column is named by a string, got {_kind_of(column)}")
        expression: Expression
        if isinstance(item, StreamingSeries):
            if item.frame is not self:
                raise ArgumentValueError(
                    f"column {column!r} can only be set from columns of the same dataframe: take the series from the "
                    "current frame, after the last assignment to its variable"
                )
            expression = item.expression
        elif isinstance(item, StreamingDataFrame):
            expression = self._branch.absorb(item._branch)
        else:
            expression = Constant(item)
        self._in_place(Assign(column, expression))

    def contains(self, keys: str | list[str]) -> StreamingSeries:
        """Return a series that is true where the value has a column, or all of several columns.

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
            errors: "raise" raises `MissingColumnError` if a column is missing; "ignore" skips missing columns.

        Returns:
            This frame; no assignment is needed.

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
        """Add missing columns and replace None. Values that are not dicts, such as those of tombstones, stay unchanged.

        Args:
            columns: columns that are set to None where they are missing.
            mapping: columns and the values that replace a missing column or None.

        Returns:
            This frame; no assignment is needed.

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

    to_topic = output.to_topic
    to_table = table_output.to_table

    def set_timestamp(self, func: Callable[[Any, Any, int, Any], int]) -> StreamingDataFrame:
        """Replace the timestamp of each record.

        Args:
            func: function of value, key, timestamp and headers that returns milliseconds since the Unix epoch, not
                negative. A record with timestamp 0 is written with 1, because librdkafka reads 0 as "now".

        Returns:
            A new frame.

        Example:
            ```python
            sdf = sdf.set_timestamp(lambda value, key, timestamp, headers: value["measured_at_ms"])
            ```
        """
        require_callable("set_timestamp()", func)
        return self._add_operator(SetTimestamp(func))

    def set_headers(self, func: Callable[[Any, Any, int, Any], Iterable[tuple[str, Any]] | None]) -> StreamingDataFrame:
        """Replace the headers of each record.

        Args:
            func: function of value, key, timestamp and headers that returns a collection of (name, value) pairs with
                values of type bytes, str or None. None or an empty collection removes all headers.

        Returns:
            A new frame.

        Example:
            ```python
            sdf = sdf.set_headers(lambda value, key, timestamp, headers: [*(headers or []), ("origin", b"jfk")])
            ```
        """
        require_callable("set_headers()", func)
        return self._add_operator(SetHeaders(func))

    def print(self, pretty: bool = True, metadata: bool = False) -> StreamingDataFrame:
        """Print each value, as `{'value': ...}`, to the standard output of the process that called `run()`.

        Args:
            pretty: print large values on several lines.
            metadata: print key, timestamp and headers too.

        Returns:
            This frame; no assignment is needed.

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

        On a terminal, the table is redrawn in place. Elsewhere, a table is printed when it is full or after `timeout`.

        Args:
            size: number of rows.
            title: title of the table.
            metadata: show the columns `_key` and `_timestamp` too.
            timeout: seconds to wait for a full table if the output is not a terminal.
            live: redraw in place if possible.
            live_slowdown: seconds between two drawings of a live table; 0 draws 20 times a second.
            columns: the columns to show; None shows all, an empty list only the metadata.
            column_widths: width of columns in characters, by column name.

        Returns:
            This frame; no assignment is needed.

        Example:
            ```python
            sdf.print_table(size=10, title="Late flights", columns=["carrier", "dep_delay"])
            ```
        """
        for name, number in (("size", size), ("timeout", timeout), ("live_slowdown", live_slowdown)):
            may_be_zero = name == "live_slowdown"
            if not isinstance(number, int | float) or number < 0 or (number == 0 and not may_be_zero):
                wanted = "a non-negative number" if may_be_zero else "a positive number"
                raise argument_error(
                    f"print_table({name}=...) must be {wanted}, got {number!r}",
                    of_type=isinstance(number, int | float),
                )
        checked("print_table(column_widths=...)", column_widths, Mapping, "a dict", optional=True, show=_kind_of)
        shown = None if columns is None else tuple(_column_names("print_table()", columns)) if columns else ()
        widths = tuple((column_widths or {}).items())
        return self._in_place(PrintTable(int(size), title, metadata, timeout, live, live_slowdown, shown, widths))

    def sink(self, sink: BaseSink) -> None:
        """Write each value, with key, timestamp and headers, to a system outside Kafka.

        A sink ends a branch: no operator can follow it. Later operations on this frame make another branch. The sink is
        flushed before offsets are committed, so delivery is at least once.

        Args:
            sink: the sink. One object may be used in several places.

        Raises:
            InvalidOperationError: if `sink` is not a `BaseSink`.

        Example:
            ```python
            sdf.sink(CSVSink("late-flights.csv"))
            ```
        """
        if not isinstance(sink, BaseSink):
            raise ArgumentTypeError(
                f"sink() needs an object of a class derived from BaseSink, such as ListSink(), got {_kind_of(sink)}"
            )
        self._branch.add(SinkOperator(sink))

    # -- State and keys ------------------------------------------------------------------------------------------

    def register_store(self, store_type: type[Store] | None = None) -> None:
        """Choose the store for the state of this dataframe, before the first stateful operation.

        The stateful operations of a dataframe and of its branches share one store. After `group_by`, they share another
        store, of the same type unless you register one again.

        Args:
            store_type: `RocksDBStore` (on local disk; the default), `MemoryStore`, or another subclass of `Store`.

        Raises:
            ConfigurationError: if `store_type` is not such a class.
            InvalidOperationError: if the store already has another type.

        Example:
            ```python
            sdf.register_store(MemoryStore)
            ```
        """
        store = self._make_store() if store_type is None else StoreSpec(self._branch.store_name, store_type)
        self._branch.builder.register_store(self._branch.sources, store)

    apply_async = asynchronous.apply_async
    group_by = grouping.group_by
    rebalance = grouping.rebalance
    process = processing.process
    reduce = reducing.reduce

    # -- Tables: see `streamrt.dataframe.aggregating` ------------------------------------------------------------------

    agg = aggregating.agg
    agg_all = aggregating.agg_all
    as_table = aggregating.as_table
    to_rows = aggregating.to_rows

    # -- Windows: see `streamrt.dataframe.windowing` -----------------------------------------------------------------

    tumbling_window = windowing.tumbling_window
    hopping_window = windowing.hopping_window
    sliding_window = windowing.sliding_window
    session_window = windowing.session_window
    tumbling_count_window = windowing.tumbling_count_window
    hopping_count_window = windowing.hopping_count_window
    sliding_count_window = windowing.sliding_count_window
    window = assigning.window
    global_window = assigning.global_window

    # -- Other dataframes, and data outside Kafka: see `streamrt.dataframe.joining` ----------------------------------

    broadcast = connecting.broadcast
    connect = connecting.connect
    concat = joining.concat
    join_asof = joining.join_asof
    join_interval = joining.join_interval
    join = stream_join.join
    drop_duplicates = duplicates.drop_duplicates
    over = over.over
    top = top.top
    join_lookup = joining.join_lookup

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
        return compose_all(self._branch.builder.build(), TrialContext(self._trial), sink)

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
        checked("test(topic=...)", topic, Topic, "a Topic", optional=True, show=_kind_of)
        outputs: list[tuple[Any, Any, int, Any]] = []
        context = TrialContext(self._trial, key, timestamp, headers, ctx)
        topology = self._branch.builder.build()
        executors = compose_all(topology, context, lambda *output: outputs.append(output))
        name = topology.origin(topic_of(self._branch.sources[0])) if topic is None else topic.name
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

    def side_output(self, tag: str) -> StreamingDataFrame:
        """Return what the operator of this frame puts out in addition to its results.

        Windows over event time have one side output, "late": a record that is in none of its windows goes there once, with
        its value, key, timestamp and headers, and nothing is logged about it. `on_late` still hears of each window.
        Changes in place, such as `sdf["x"] = ...`, do not apply to side outputs. Those that no frame reads are dropped.

        Args:
            tag: name of the side output.

        Returns:
            A new frame.

        Raises:
            ArgumentValueError: if the operator that made this frame has no side output of this name.

        Example:
            ```python
            per_minute = sdf.tumbling_window(60_000, grace_ms=5_000).count().final()
            per_minute.side_output("late").to_topic(app.topic("late-clicks"))
            per_minute.to_topic(app.topic("clicks-per-minute"))
            ```
        """
        return self._with(self._branch.side_output(tag))

    # -- Adding operators --------------------------------------------------------------------------------------------

    def _with(self, branch: Branch) -> Self:
        return type(self)(branch)

    def _add_operator(self, operator: Operator) -> Self:
        return self._with(self._branch.add(operator))

    def _in_place(self, operator: Operator) -> Self:
        self._branch = self._branch.add(operator)
        return self

    def _make_store(self) -> StoreSpec:
        return self._branch.store(self._branch.store_name)

    def __bool__(self) -> NoReturn:
        raise InvalidOperationError(
            "a dataframe has no truth value while it is being built: combine conditions by & | ~ instead of 'and', "
            "'or', 'not', and filter by sdf[condition]"
        )

    def __iter__(self) -> NoReturn:
        raise InvalidOperationError("a dataframe cannot be iterated over: its records arrive when the application runs")

    def __repr__(self) -> str:
        names = ", ".join(topic.name for topic in self.topics)
        return f"{type(self).__name__}({names}, at {self._branch.node.label})"


def _column_names(method: str, names: Any) -> tuple[str, ...]:
    listed: Sequence[Any] = [names] if isinstance(names, str) else names
    if not isinstance(listed, list) or not listed or not all(isinstance(name, str) for name in listed):
        raise argument_error(
            f"{method} needs a column name or a list of column names, got {_kind_of(names)}", of_type=names == []
        )
    return tuple(listed)


def _kind_of(item: Any) -> str:
    return f"{item!r}" if isinstance(item, list) else type(item).__name__
