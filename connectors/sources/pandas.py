"""`PandasDataFrameSource`: the rows of a pandas DataFrame as records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamrt.connectors.argument_checks import checked_seconds
from streamrt.connectors.sources.base import Source
from streamrt.errors import ConfigurationError, SerializationError, SourceError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["PandasDataFrameSource"]


class PandasDataFrameSource(Source):
    """Produces the rows of a DataFrame, once, as JSON objects. Missing values become null.

    The source ends with the last row; the application continues. Each start begins at the first row.

    Args:
        df: the rows. They are pickled and sent to the process of the source, so mind their size.
        key_column: name of the column that holds the keys, as text or bytes. A row with a missing key has no key.
        timestamp_column: name of the column that holds the timestamps, as integers (milliseconds since the Unix
            epoch) or as pandas' datetimes (without a time zone they are taken as UTC). Without it, the time of
            producing is used.
        delay: seconds to wait after each row, to simulate a stream.
        shutdown_timeout: seconds that the source has to end when the application stops.
        keep_meta_as_values: whether the key and timestamp columns stay in the values.
        name: name of the source, unique in the application.

    Raises:
        ConfigurationError: if a column is missing, has a duplicate name, a name that is not text, or a wrong type.

    Example:
        >>> import pandas as pd
        >>> flights = pd.DataFrame({"tail": ["N1", "N2"], "delay": [5, 12]})
        >>> PandasDataFrameSource(flights, key_column="tail", name="flights").default_topic()
        Topic('flights')
    """

    def __init__(
        self,
        df: pd.DataFrame,
        key_column: str,
        timestamp_column: str | None = None,
        delay: float = 0,
        shutdown_timeout: float = 10,
        keep_meta_as_values: bool = True,
        name: str = "pandas-dataframe-source",
    ) -> None:
        super().__init__(name, shutdown_timeout)
        self._delay = checked_seconds("PandasDataFrameSource", "delay", delay, least=0)
        columns = list(df.columns)
        odd = [column for column in columns if not isinstance(column, str)]
        if odd:
            raise ConfigurationError(
                f"the DataFrame of source {name} has the column {odd[0]!r}: column names must be text, as in JSON; "
                "rename it with df.rename(columns=str)"
            )
        if len(set(columns)) < len(columns):
            twice = next(column for column in columns if columns.count(column) > 1)
            raise ConfigurationError(f"the DataFrame of source {name} has two columns {twice!r}: rename one of them")
        for what, column in (("key_column", key_column), ("timestamp_column", timestamp_column)):
            if column is not None and column not in columns:
                raise ConfigurationError(
                    f"{what} of source {name} is {column!r}, but the DataFrame has {', '.join(map(repr, columns))}"
                )
        kind = "i" if timestamp_column is None else df[timestamp_column].dtype.kind
        if kind not in "iuM":
            raise ConfigurationError(
                f"timestamp_column {timestamp_column!r} of source {name} is of type {df[timestamp_column].dtype}: it "
                "must hold integers (milliseconds since the Unix epoch) or datetimes; see pandas.to_datetime"
            )
        self._df = df
        self._key_column = key_column
        self._timestamp_column = timestamp_column
        self._keep_meta_as_values = keep_meta_as_values

    def run(self) -> None:
        """Produce the rows.

        Raises:
            SourceError: if a row cannot be produced; the message names the row.
        """
        columns = list(self._df.columns)
        for number, fields in enumerate(self._df.itertuples(index=False, name=None)):
            if not self.running:
                break
            self._produce_row(dict(zip(columns, fields, strict=True)), number)
            if self._delay > 0:
                self.sleep(self._delay)

    def _produce_row(self, row: dict[str, Any], number: int) -> None:
        value = {name: None if _is_missing(field) else field for name, field in row.items()}
        key = value[self._key_column]
        timestamp = None
        if self._timestamp_column is not None:
            timestamp = _to_milliseconds(value[self._timestamp_column])
            if timestamp is None:
                raise self._make_problem(number, f"column {self._timestamp_column!r} is empty: it has no timestamp")
            if self._keep_meta_as_values:
                # A datetime has no JSON form; the record's own timestamp has the same value.
                value[self._timestamp_column] = timestamp
        if not self._keep_meta_as_values:
            value.pop(self._key_column)
            value.pop(self._timestamp_column or self._key_column, None)
        try:
            message = self.serialize(key, value, timestamp_ms=timestamp)
        except SerializationError as error:
            raise self._make_problem(
                number, f"{error}; convert such columns first, for example with astype(str)"
            ) from error
        self.produce(message.value, message.key, message.headers, timestamp=message.timestamp)

    def _make_problem(self, number: int, reason: str) -> SourceError:
        return SourceError(f"row {number} of the DataFrame cannot be produced by the source {self.name}: {reason}")


def _is_missing(field: Any) -> bool:
    if field is None:
        return True
    try:
        # NaN and NaT differ from themselves.
        return bool(field != field)
    except TypeError:
        # Only pandas.NA raises when it is used as a boolean.
        return True
    except ValueError:
        # An array in a cell compares element by element.
        return False


def _to_milliseconds(field: Any) -> int | None:
    if field is None or isinstance(field, int):
        return field
    # pandas.Timestamp: its value is in nanoseconds, in UTC.
    return int(field.value // 1_000_000)
