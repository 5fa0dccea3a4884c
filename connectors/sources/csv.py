"""`CSVSource`: the rows of a CSV file as records."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streamrt.common.csv_rows import rows_of
from streamrt.connectors.argument_checks import checked_seconds
from streamrt.connectors.files.csv_dialects import dialect_settings
from streamrt.connectors.sources.base import Source
from streamrt.errors import SourceError

__all__ = ["CSVSource"]


class CSVSource(Source):
    """Produces the rows of a CSV file, once, as JSON objects of strings. The first row holds the column names.

    The source ends with the file; the application continues. Each start begins at the first row.

    Args:
        path: the file, UTF-8. A relative path is relative to the directory in which the application was started.
        name: name of the source, unique in the application.
        key_extractor: returns the key of a row, as str or bytes; without it, records have no key.
        timestamp_extractor: returns the timestamp of a row, in milliseconds since the Unix epoch; without it, the
            time of producing is used.
        delay: seconds to wait after each row, to simulate a stream.
        shutdown_timeout: seconds that the source has to end when the application stops.
        dialect: name of a dialect of the module `csv`.

    Raises:
        ConfigurationError: if the delay is negative or the dialect is unknown.

    Example:
        ```python
        orders = CSVSource("orders.csv", name="orders", key_extractor=lambda row: row["customer"])
        sdf = app.dataframe(source=orders)
        ```
    """

    def __init__(
        self,
        path: str | Path,
        name: str,
        key_extractor: Callable[[dict[str, str]], str | bytes] | None = None,
        timestamp_extractor: Callable[[dict[str, str]], int] | None = None,
        delay: float = 0,
        shutdown_timeout: float = 10,
        dialect: str = "excel",
    ) -> None:
        super().__init__(name, shutdown_timeout)
        self._path = Path(path)
        self._key_extractor = key_extractor
        self._timestamp_extractor = timestamp_extractor
        self._delay = checked_seconds("CSVSource", "delay", delay, least=0)
        self._dialect = dialect_settings(dialect, f"the source {name}")

    def setup(self) -> None:
        """Check that the file exists.

        Raises:
            SourceError: if it does not exist.
        """
        if not self._path.is_file():
            raise SourceError(f"there is no file {self._path.absolute()} for the source {self.name}")

    def run(self) -> None:
        """Produce the rows.

        Raises:
            SourceError: if a row cannot be produced; the message names the row.
        """
        with self._path.open(encoding="utf-8-sig", newline="") as file:
            rows = rows_of(file, self._dialect)
            names: list[str] | None = None
            while self.running:
                try:
                    fields = next(rows, None)
                except (csv.Error, UnicodeDecodeError) as error:
                    raise self._make_problem(rows.line_num, f"it cannot be read: {error}") from error
                if fields is None:
                    break
                if names is None:
                    names = self._checked_names(fields, rows.line_num)
                elif fields:
                    self._produce_row(self._make_row(names, fields, rows.line_num), rows.line_num)
                    if self._delay > 0:
                        self.sleep(self._delay)

    def _checked_names(self, names: list[str], line: int) -> list[str]:
        if len(set(names)) < len(names):
            repeated = next(name for name in names if names.count(name) > 1)
            raise self._make_problem(line, f"it names the column {repeated!r} twice")
        return names

    def _make_row(self, names: list[str], fields: list[str], line: int) -> dict[str, str]:
        if len(fields) > len(names):
            raise self._make_problem(
                line, f"it has {len(fields) - len(names)} more fields than the first row has names"
            )
        if len(fields) < len(names):
            raise self._make_problem(line, f"it lacks the columns {', '.join(names[len(fields) :])}")
        return dict(zip(names, fields, strict=True))

    def _produce_row(self, row: dict[str, str], line: int) -> None:
        key = self._extract_field(self._key_extractor, "key_extractor", row, line, (str, bytes))
        timestamp = self._extract_field(self._timestamp_extractor, "timestamp_extractor", row, line, (int,))
        message = self.serialize(value=row)
        self.produce(message.value, key, message.headers, timestamp=timestamp)

    def _extract_field(
        self,
        function: Callable[[dict[str, str]], Any] | None,
        name: str,
        row: dict[str, str],
        line: int,
        kinds: tuple[type, ...],
    ) -> Any:
        if function is None:
            return None
        try:
            result = function(row)
        except Exception as error:
            raise self._make_problem(line, f"{name} failed with {type(error).__name__}: {error}") from error
        if not isinstance(result, kinds) or isinstance(result, bool):
            wanted = " or ".join(kind.__name__ for kind in kinds)
            raise self._make_problem(line, f"{name} returned a {type(result).__name__}, not {wanted}")
        return result

    def _make_problem(self, line: int, reason: str) -> SourceError:
        return SourceError(f"line {line} of {self._path} cannot be produced by the source {self.name}: {reason}")
