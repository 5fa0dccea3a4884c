"""`PolarsDataFrameSource`: the rows of a polars DataFrame as records."""

import math
from typing import TYPE_CHECKING, Any

from streamrt.connectors.argument_checks import checked_seconds
from streamrt.connectors.libraries import require_library
from streamrt.connectors.sources.base import Source
from streamrt.errors import ArgumentTypeError, ArgumentValueError, SerializationError, SourceError

if TYPE_CHECKING:
    import polars as pl

__all__ = ["PolarsDataFrameSource"]

_SLICE_ROWS = 1_000


class PolarsDataFrameSource(Source):
    """Produces the rows of a polars DataFrame, once, as JSON objects. NaN and missing values become null.

    The source ends with the last row; the application continues. Each start begins at the first row. Needs the extra
    `polars`.

    Args:
        df: the rows. They are pickled and sent to the process of the source, so mind their size.
        key_column: name of the column that holds the keys, as text or bytes. A row with a missing key has no key.
        timestamp_column: name of the column that holds the timestamps, as integers (milliseconds since the Unix
            epoch) or as datetimes (without a time zone they are taken as UTC). Without it, the time of producing is used.
        delay: seconds to wait after each row, to simulate a stream.
        shutdown_timeout: seconds that the source has to end when the application stops.
        keep_meta_as_values: whether the key and timestamp columns stay in the values.
        name: name of the source, unique in the application.

    Raises:
        ConfigurationError: if a column is missing or has a wrong type, or polars is not installed.

    Example:
        >>> import polars as pl
        >>> flights = pl.DataFrame({"tail": ["N1", "N2"], "delay": [5, 12]})
        >>> PolarsDataFrameSource(flights, key_column="tail", name="flights").default_topic()
        Topic('flights')
    """

    def __init__(
        self,
        df: "pl.DataFrame",
        key_column: str,
        timestamp_column: str | None = None,
        delay: float = 0,
        shutdown_timeout: float = 10,
        keep_meta_as_values: bool = True,
        name: str = "polars-dataframe-source",
    ) -> None:
        super().__init__(name, shutdown_timeout)
        require_library("PolarsDataFrameSource", "polars", "polars")
        import polars as pl

        self._delay = checked_seconds("PolarsDataFrameSource", "delay", delay, least=0)
        if not isinstance(df, pl.DataFrame):
            raise ArgumentTypeError(
                f"the source {name} needs a polars DataFrame, got {type(df).__name__}; a LazyFrame has collect()"
            )
        for what, column in (("key_column", key_column), ("timestamp_column", timestamp_column)):
            if column is not None and column not in df.columns:
                raise ArgumentValueError(
                    f"{what} of source {name} is {column!r}, but the DataFrame has {', '.join(map(repr, df.columns))}"
                )
        if timestamp_column is not None:
            kind = df.schema[timestamp_column]
            if not (kind.is_integer() or isinstance(kind, pl.Datetime)):
                raise ArgumentValueError(
                    f"timestamp_column {timestamp_column!r} of source {name} is of type {kind}: it must hold integers "
                    "(milliseconds since the Unix epoch) or datetimes; see polars.Expr.str.to_datetime"
                )
            if not kind.is_integer():
                # A datetime has no JSON form; the record's own timestamp has the same value.
                df = df.with_columns(pl.col(timestamp_column).dt.timestamp("ms"))
        self._df = df
        self._key_column = key_column
        self._timestamp_column = timestamp_column
        self._keep_meta_as_values = keep_meta_as_values

    def run(self) -> None:
        """Produce the rows.

        Raises:
            SourceError: if a row cannot be produced; the message names the row.
        """
        for number, row in enumerate(self._df.iter_rows(named=True, buffer_size=_SLICE_ROWS)):
            if not self.running:
                break
            self._produce_row(row, number)
            if self._delay > 0:
                self.sleep(self._delay)

    def _produce_row(self, row: dict[str, Any], number: int) -> None:
        value = {name: None if isinstance(field, float) and math.isnan(field) else field for name, field in row.items()}
        key, timestamp = value[self._key_column], None
        if self._timestamp_column is not None:
            timestamp = value[self._timestamp_column]
            if timestamp is None:
                raise self._make_problem(number, f"column {self._timestamp_column!r} is empty: it has no timestamp")
        if not self._keep_meta_as_values:
            value.pop(self._key_column)
            value.pop(self._timestamp_column or self._key_column, None)
        raw = isinstance(key, bytes)
        try:
            message = self.serialize(None if raw else key, value, timestamp_ms=timestamp)
        except SerializationError as error:
            raise self._make_problem(
                number, f"{error}; cast such columns first, for example to polars.String"
            ) from error
        self.produce(message.value, key if raw else message.key, message.headers, timestamp=message.timestamp)

    def _make_problem(self, number: int, reason: str) -> SourceError:
        return SourceError(f"row {number} of the DataFrame cannot be produced by the source {self.name}: {reason}")
