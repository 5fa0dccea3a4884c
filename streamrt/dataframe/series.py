"""`StreamingSeries`: columns and computations on them."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any, NoReturn

from streamrt.context import current_provider
from streamrt.dataframe.branch import Frame
from streamrt.dataframe.trial import TrialContext, TrialStores
from streamrt.errors import ArgumentTypeError, ArgumentValueError, InvalidOperationError
from streamrt.operators.expression import (
    METADATA,
    Binary,
    Call,
    Column,
    Evaluator,
    Expression,
    Input,
    Literal,
    Unary,
)
from streamrt.operators.functions import require_callable
from streamrt.records import Headers, MessageContext
from streamrt.topology import RecordHandler


class StreamingSeries:
    """A column of a `StreamingDataFrame`, or a computation on columns.

    `sdf["column"]` makes a series, and operators combine series; nothing is computed until records arrive. `+ - * / //
    % **`, comparisons and unary minus work as in Python, also with a plain value on the left (`2 * sdf["x"]`). `&` and
    `|` are Python's `and` and `or`: they short-circuit and return one of their operands. `~` is `not`.

    None in arithmetic or in `<` raises TypeError when the record is processed; `==` works with all values. A missing
    column raises `MissingColumnError`, a KeyError that names the existing columns.

    Example:
        ```python
        sdf["total"] = sdf["price"] * sdf["quantity"]
        sdf = sdf[(sdf["total"] > 100) & ~sdf["cancelled"]]
        ```
    """

    def __init__(self, expression: Expression, frame: Frame) -> None:
        self._expression = expression
        self._frame = frame

    @classmethod
    def from_apply_callback(cls, func: Callable[[Any, Any, int, Any], Any], frame: Frame) -> StreamingSeries:
        """Make a series from a function of value, key, timestamp and headers.

        Args:
            func: function that computes the series' value.
            frame: the dataframe of the series.

        Raises:
            InvalidOperationError: if `func` is not callable, or `frame` is not a dataframe.

        Example:
            ```python
            sdf["age_ms"] = StreamingSeries.from_apply_callback(lambda value, key, timestamp, headers: now() - timestamp, sdf)
            ```
        """
        require_callable("StreamingSeries.from_apply_callback()", func)
        if not isinstance(frame, Frame):
            raise ArgumentTypeError(
                "StreamingSeries.from_apply_callback() needs the dataframe of the series, not its id, got "
                f"{type(frame).__name__}"
            )
        return cls(Call(func, (Input("value"), *METADATA)), frame)

    @property
    def expression(self) -> Expression:
        """The computation of the series, as data."""
        return self._expression

    @property
    def frame(self) -> Frame:
        """The dataframe of the series."""
        return self._frame

    def apply(self, func: Callable[[Any], Any]) -> StreamingSeries:
        """Pass the series' value through a function.

        Args:
            func: function from the value to the new value.

        Raises:
            InvalidOperationError: if `func` is not callable.

        Example:
            ```python
            sdf["name"] = sdf["name"].apply(str.title)
            ```
        """
        require_callable("StreamingSeries.apply()", func)
        return self._with(Call(func, (self._expression,)))

    def isin(self, other: Container[Any] | StreamingSeries) -> StreamingSeries:
        """Test whether the value is in a container, or in the container that another series holds.

        Example:
            ```python
            sdf = sdf[sdf["carrier"].isin({"UA", "AA"})]
            ```
        """
        return self._apply_binary("in", other)

    def contains(self, other: StreamingSeries | object) -> StreamingSeries:
        """Test whether the value, a container or a string, contains something.

        Example:
            ```python
            sdf["from_york"] = sdf["city"].contains("York")
            ```
        """
        return self._apply_binary("in", other, reflected=True)

    def is_(self, other: StreamingSeries | object) -> StreamingSeries:
        """Test whether the value is the same object as another (`is`)."""
        return self._apply_binary("is", other)

    def isnot(self, other: StreamingSeries | object) -> StreamingSeries:
        """Test whether the value is not the same object as another (`is not`)."""
        return self._apply_binary("is not", other)

    def isnull(self) -> StreamingSeries:
        """Test whether the value is None.

        Example:
            ```python
            sdf = sdf[sdf["dep_delay"].isnull()]
            ```
        """
        return self.is_(None)

    def notnull(self) -> StreamingSeries:
        """Test whether the value is not None."""
        return self.isnot(None)

    def abs(self) -> StreamingSeries:
        """Return the absolute value."""
        return self._with(Call(abs, (self._expression,)))

    def round(self, ndigits: int | None = None) -> StreamingSeries:
        """Round the value as Python's `round` does.

        Args:
            ndigits: number of digits after the decimal point; None rounds to an integer.

        Example:
            ```python
            sdf["celsius"] = sdf["celsius"].round(1)
            ```
        """
        if ndigits is not None and (not isinstance(ndigits, int) or isinstance(ndigits, bool)):
            raise ArgumentTypeError(f"round() needs a number of digits, got {ndigits!r}")
        digits = () if ndigits is None else (Literal(ndigits),)
        return self._with(Call(round, (self._expression, *digits)))

    def compose_returning(self) -> Callable[[Any, Any, int, Any], tuple[Any, Any, int, Any]]:
        """Return a function that maps value, key, timestamp and headers to the same four with the series' value."""
        evaluate = self._expression.compile()

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None) -> tuple[Any, Any, int, Any]:
            return evaluate(value, key, timestamp, headers), key, timestamp, headers

        return run

    def compose(self, sink: RecordHandler | None = None) -> RecordHandler:
        """Return a function that evaluates the series and passes the result to `sink`.

        Args:
            sink: function of the series' value, key, timestamp and headers.
        """
        evaluate: Evaluator = self._expression.compile()

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
            result = evaluate(value, key, timestamp, headers)
            if sink is not None:
                sink(result, key, timestamp, headers)

        return run

    def test(
        self,
        value: Any,
        key: Any = b"key",
        timestamp: int = 0,
        headers: Any = None,
        ctx: MessageContext | None = None,
    ) -> list[tuple[Any, Any, int, Any]]:
        """Evaluate the series for one record.

        Args:
            value: the record's value.
            key: its key.
            timestamp: its timestamp in milliseconds.
            headers: its headers.
            ctx: result of `message_context()` during the call.

        Returns:
            A list of one output, as from a dataframe's `test()`: the series' value, key, timestamp and headers.

        Example:
            ```python
            [(value, key, timestamp, headers)] = (sdf["a"] + 1).test({"a": 1})
            assert value == 2
            ```
        """
        token = current_provider.set(TrialContext(TrialStores(), key, timestamp, headers, ctx))
        try:
            return [self.compose_returning()(value, key, timestamp, headers)]
        finally:
            current_provider.reset(token)

    def _with(self, expression: Expression) -> StreamingSeries:
        return StreamingSeries(expression, self._frame)

    def _apply_binary(self, symbol: str, other: Any, *, reflected: bool = False) -> StreamingSeries:
        own, operand = self._expression, self._make_operand(other)
        return self._with(Binary(symbol, operand, own) if reflected else Binary(symbol, own, operand))

    def _make_operand(self, other: Any) -> Expression:
        if isinstance(other, Frame):
            raise ArgumentTypeError(
                "a dataframe cannot be combined with a series: make it a column first, such as sdf['x'] = sdf.apply(...)"
            )
        if not isinstance(other, StreamingSeries):
            return Literal(other)
        if other._frame is not self._frame:
            raise ArgumentValueError(
                "two series can be combined only if they come from the same dataframe: take both columns from the "
                "current frame, after the last assignment to its variable"
            )
        return other._expression

    def __getitem__(self, item: str | int) -> StreamingSeries:
        if not isinstance(item, str | int):
            raise ArgumentTypeError(f"an item of a series is named by str or int, got {type(item).__name__}")
        return self._with(Column(item, self._expression))

    def __add__(self, other: Any) -> StreamingSeries:
        return self._apply_binary("+", other)

    def __radd__(self, other: Any) -> StreamingSeries:
        return self._apply_binary("+", other, reflected=True)

    def __sub__(self, other: Any) -> StreamingSeries:
        return self._apply_binary("-", other)

    def __rsub__(self, other: Any) -> StreamingSeries:
        return self._apply_binary("-", other, reflected=True)

    def __mul__(self, other: Any) -> StreamingSeries:
        return self._apply_binary("*", other)

    def __rmul__(self, other: Any) -> StreamingSeries:
        return self._apply_binary("*", other, reflected=True)

    def __truediv__(self, other: Any) -> StreamingSeries:
        return self._apply_binary("/", other)

    def __rtruediv__(self, other: Any) -> StreamingSeries:
        return self._apply_binary("/", other, reflected=True)

    def __floordiv__(self, other: Any) -> StreamingSeries:
        return self._apply_binary("//", other)

    def __rfloordiv__(self, other: Any) -> StreamingSeries:
        return self._apply_binary("//", other, reflected=True)

    def __mod__(self, other: Any) -> StreamingSeries:
        return self._apply_binary("%", other)

    def __rmod__(self, other: Any) -> StreamingSeries:
        return self._apply_binary("%", other, reflected=True)

    def __pow__(self, other: Any) -> StreamingSeries:
        return self._apply_binary("**", other)

    def __rpow__(self, other: Any) -> StreamingSeries:
        return self._apply_binary("**", other, reflected=True)

    def __neg__(self) -> StreamingSeries:
        return self._with(Unary("-", self._expression))

    def __abs__(self) -> StreamingSeries:
        return self.abs()

    def __round__(self, ndigits: int | None = None) -> StreamingSeries:
        return self.round(ndigits)

    def __and__(self, other: Any) -> StreamingSeries:
        return self._apply_binary("and", other)

    def __rand__(self, other: Any) -> StreamingSeries:
        return self._apply_binary("and", other, reflected=True)

    def __or__(self, other: Any) -> StreamingSeries:
        return self._apply_binary("or", other)

    def __ror__(self, other: Any) -> StreamingSeries:
        return self._apply_binary("or", other, reflected=True)

    def __invert__(self) -> StreamingSeries:
        return self._with(Unary("not", self._expression))

    def __eq__(self, other: object) -> StreamingSeries:  # type: ignore[override]
        return self._apply_binary("==", other)

    def __ne__(self, other: object) -> StreamingSeries:  # type: ignore[override]
        return self._apply_binary("!=", other)

    def __lt__(self, other: Any) -> StreamingSeries:
        return self._apply_binary("<", other)

    def __le__(self, other: Any) -> StreamingSeries:
        return self._apply_binary("<=", other)

    def __gt__(self, other: Any) -> StreamingSeries:
        return self._apply_binary(">", other)

    def __ge__(self, other: Any) -> StreamingSeries:
        return self._apply_binary(">=", other)

    __hash__ = None  # type: ignore[assignment]  # == builds a series, so a series cannot be a dict key

    def __bool__(self) -> NoReturn:
        raise InvalidOperationError(
            "a series has no truth value while the dataframe is being built: combine conditions by & | ~ instead of "
            "'and', 'or', 'not', and filter by sdf[condition]"
        )

    def __iter__(self) -> NoReturn:
        raise InvalidOperationError("a series cannot be iterated over while the dataframe is being built")

    def __contains__(self, item: object) -> NoReturn:
        raise InvalidOperationError("use series.contains(item) or series.isin(container) instead of 'in'")

    def __repr__(self) -> str:
        return f"StreamingSeries({self._expression})"
