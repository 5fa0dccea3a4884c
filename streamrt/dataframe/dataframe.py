"""`StreamingDataFrame`: the graph of operators on one topic, seen from where the next operator will be added."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NoReturn, overload

from streamrt.context import current_provider
from streamrt.dataframe.series import Sink, StreamingSeries
from streamrt.dataframe.trial import TrialContext
from streamrt.errors import ConfigurationError, InvalidOperationError
from streamrt.models import MessageContext
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
    ToTopic,
    Update,
    Where,
)
from streamrt.operators.expression import METADATA, Call, Column, Expression, Input, has_columns
from streamrt.operators.expression import Literal as Constant
from streamrt.operators.functions import require_callable
from streamrt.topics import Topic
from streamrt.topology import Executor, Node, Operator, SourceOperator, TopologyBuilder, compose


class StreamingDataFrame:
    """Operations on the records of a topic, built like operations on a pandas dataframe.

    `Application.dataframe()` makes one. Methods add operators; nothing runs before `Application.run()`. Values are
    usually dicts, then `sdf["column"]` works on their items, but any value that the topic's deserializer yields will do.

    `apply`, `filter`, `sdf[condition]`, `sdf[["a", "b"]]`, `set_timestamp` and `set_headers` return a new frame: assign
    it. `update`, `to_topic`, `drop`, `fill`, `print`, `print_table` and `sdf["x"] = ...` change the frame in place and
    return it. Frames branch where two operations start from the same one; each branch works on its own copy of the value.

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

    def __init__(self, builder: TopologyBuilder, node: Node, source: Node) -> None:
        self._builder = builder
        self._node = node
        self._source = source

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
            stateful: pass a `State` as last argument; not available in this version.
            expand: pass on the items of the returned iterable one by one. Generators are pulled lazily.
            metadata: whether `func` takes key, timestamp and headers too.

        Returns:
            A new frame.

        Raises:
            InvalidOperationError: if `func` is not callable.

        Example:
            ```python
            words = sdf.apply(lambda value: value["text"].split(), expand=True)
            ```
        """
        require_callable("apply()", func)
        _refuse_state("apply", stateful)
        return self._new(Apply(func, expand=expand, metadata=metadata))

    def update(self, func: Callable[..., Any], *, stateful: bool = False, metadata: bool = False) -> StreamingDataFrame:
        """Call a function for its effect, such as changing the value in place; its result is ignored.

        Args:
            func: takes the value; with `metadata` value, key, timestamp (milliseconds) and headers.
            stateful: pass a `State` as last argument; not available in this version.
            metadata: whether `func` takes key, timestamp and headers too.

        Returns:
            This frame: assigning it is not needed.

        Raises:
            InvalidOperationError: if `func` is not callable.

        Example:
            ```python
            sdf.update(lambda value: value.setdefault("unit", "mm"))
            ```
        """
        require_callable("update()", func)
        _refuse_state("update", stateful)
        return self._in_place(Update(func, metadata=metadata))

    def filter(self, func: Callable[..., Any], *, stateful: bool = False, metadata: bool = False) -> StreamingDataFrame:
        """Keep the values for which a function returns something true.

        Args:
            func: takes the value; with `metadata` value, key, timestamp (milliseconds) and headers.
            stateful: pass a `State` as last argument; not available in this version.
            metadata: whether `func` takes key, timestamp and headers too.

        Returns:
            A new frame.

        Raises:
            InvalidOperationError: if `func` is not callable.

        Example:
            ```python
            late = sdf.filter(lambda value: (value["dep_delay"] or 0) > 60)
            ```
        """
        require_callable("filter()", func)
        _refuse_state("filter", stateful)
        return self._new(Filter(func, metadata=metadata))

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
        raise InvalidOperationError(
            "a dataframe is indexed by a column name, a list of column names or a condition made of its columns, "
            f"got {_kind(item)}"
        )

    def __setitem__(self, column: str, item: Any) -> None:
        if not isinstance(column, str):
            raise InvalidOperationError(f"a column is named by a string, got {_kind(column)}")
        expression: Expression
        if isinstance(item, StreamingSeries):
            if item.frame is not self:
                raise InvalidOperationError(
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
            raise InvalidOperationError(f"drop() takes errors='raise' or errors='ignore', got {errors!r}")
        return self._in_place(Update(Drop(_column_names("drop()", columns), errors == "ignore")))

    def fill(self, *columns: str, **mapping: Any) -> StreamingDataFrame:
        """Add missing columns, and replace None.

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
            raise InvalidOperationError("fill() needs at least one column")
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
        """Print each value to the standard output of the process that called `run()`.

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
            live_slowdown: seconds between two drawings of a live table.
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
            if not isinstance(number, int | float) or number <= 0:
                raise InvalidOperationError(f"print_table({name}=...) must be a positive number, got {number!r}")
        shown = None if columns is None else tuple(_column_names("print_table()", columns)) if columns else ()
        widths = tuple((column_widths or {}).items())
        return self._in_place(PrintTable(int(size), title, metadata, timeout, live, live_slowdown, shown, widths))

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
        return self._compose(TrialContext(None, 0, None, None), sink)

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
        context = TrialContext(key, timestamp, headers, ctx)
        executors = self._compose(context, lambda *output: outputs.append(output))
        name = self.topics[0].name if topic is None else topic.name
        if name not in executors:
            raise InvalidOperationError(f"no dataframe reads topic {name!r}")
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

    def _new(self, operator: Operator) -> StreamingDataFrame:
        return StreamingDataFrame(self._builder, self._builder.add(self._node, operator), self._source)

    def _in_place(self, operator: Operator) -> StreamingDataFrame:
        self._node = self._builder.add(self._node, operator)
        return self

    def _compose(self, context: TrialContext, sink: Sink | None) -> dict[str, Executor]:
        topology = self._builder.build()
        leaf = sink or _nothing
        return {name: compose(topology, node, context, leaf) for name, node in topology.sources.items()}

    def _absorb(self, frame: StreamingDataFrame) -> Expression:
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
        return f"StreamingDataFrame({names}, at {self._node.label})"


def _as_expression(operator: Operator, argument: Expression) -> Expression:
    if isinstance(operator, Apply) and not operator.expand:
        return Call(operator.function, (argument, *METADATA) if operator.metadata else (argument,))
    raise InvalidOperationError(
        f"a dataframe used as a column or as a condition may consist of apply() without expand only, not of {operator.name}"
    )


def _refuse_state(method: str, stateful: bool) -> None:
    if stateful:
        raise ConfigurationError(
            f"{method}(stateful=True) is not available in this version: state comes with the next one"
        )


def _column_names(method: str, names: Any) -> tuple[str, ...]:
    listed: Sequence[Any] = [names] if isinstance(names, str) else names
    if not isinstance(listed, list) or not listed or not all(isinstance(name, str) for name in listed):
        raise InvalidOperationError(f"{method} needs a column name or a list of column names, got {_kind(names)}")
    return tuple(listed)


def _kind(item: Any) -> str:
    return f"{item!r}" if isinstance(item, list) else type(item).__name__


def _nothing(value: Any, key: Any, timestamp: int, headers: Any) -> None:
    """Where outputs end that nobody wants."""
