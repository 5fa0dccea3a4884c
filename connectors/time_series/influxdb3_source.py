"""`InfluxDB3Source`: rows of InfluxDB 3."""

import logging
import re
from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta, timezone
from typing import TYPE_CHECKING, Any

from streamrt.connectors.argument_checks import (
    checked_count,
    checked_flag,
    checked_function,
    checked_seconds,
    checked_text,
    checked_type,
)
from streamrt.connectors.background import Interrupts
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.credentials import Credential, CredentialInput
from streamrt.connectors.failures import PassingError
from streamrt.connectors.http.http_settings import checked_url
from streamrt.connectors.libraries import require_library
from streamrt.connectors.sources.reading import Waits, call_while_running
from streamrt.connectors.sources.stateful import StatefulSource
from streamrt.errors import ArgumentTypeError, ArgumentValueError, SourceError

if TYPE_CHECKING:
    from influxdb_client_3 import InfluxDBClient3

__all__ = ["InfluxDB3Source"]

logger = logging.getLogger("streamrt.connectors")

_OWNER = "InfluxDB3Source"
_QUERY = """SELECT * FROM {measurement_name} WHERE time >= '{start_time}' AND time < '{end_time}' ORDER BY time"""
_TABLES = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'iox' ORDER BY table_name"
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class InfluxDB3Source(StatefulSource):
    """Produces the rows of measurements, one interval of time after another. Needs the extra `influxdb3`.

    An interval is read when it is over. The source remembers how far it has read each measurement: after a restart it
    continues there, and after a crash the rows of one interval may be read again, unless the application has
    `processing_guarantee="exactly-once"`. Rows that are written to InfluxDB later than their interval is read are not
    produced: set `wait_for_late` to the longest delay of writes.

    Values are dicts of the columns. Times are text in ISO 8601; columns that are null are None.

    Args:
        host: URL of the server.
        token: the token, or a function that returns it in the process of the source.
        organization_id: id of the organization.
        database: name of the database.
        key_setter: returns the key of a row; by default the name of the measurement.
        timestamp_setter: returns the timestamp of a row in milliseconds; by default the time of producing is used.
        start_date: begin of the first interval; None for the start of the source. It must have a time zone.
        end_date: end of the last interval, after which the source ends; None for no end.
        measurements: name of the measurement, or several; None for all that the database has at the start.
        measurement_column_name: name of the column that is added, with the name of the measurement.
        sql_query: the query, with the placeholders `{measurement_name}` (quoted), `{start_time}` (included) and `{end_time}`
            (not included).
        time_delta: length of an interval: a number and a unit, s, m, h, d or w.
        delay: seconds to wait after each interval.
        max_retries: number of further attempts at a query that fails for a reason that may pass.
        name: name of the source, unique in the application; by default `influxdb3_` and the name of the database.
        shutdown_timeout: seconds that the source has to end when the application stops.
        on_client_connect_success: called without arguments after the first query.
        on_client_connect_failure: called with the exception when the first query fails.
        wait_for_late: seconds to wait after the end of an interval before it is read.
        query_timeout: seconds for a query.
        verify_ssl: whether certificates are verified.

    Raises:
        ConfigurationError: if an argument cannot be used, or influxdb3-python is not installed.

    Example:
        ```python
        rooms = InfluxDB3Source(
            host="https://eu-central-1-1.aws.cloud2.influxdata.com",
            token=lambda: os.environ["INFLUXDB_TOKEN"],
            organization_id="shop",
            database="sensors",
            start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
            measurements=["temperature", "humidity"],
            key_setter=lambda row: row["room"],
            time_delta="1m",
        )
        sdf = app.dataframe(source=rooms)
        ```
    """

    def __init__(
        self,
        host: str,
        token: CredentialInput,
        organization_id: str,
        database: str,
        key_setter: Callable[[Any], Any] | None = None,
        timestamp_setter: Callable[[Any], int] | None = None,
        start_date: datetime | None = None,
        end_date: datetime | None = None,
        measurements: str | list[str] | None = None,
        measurement_column_name: str = "_measurement_name",
        sql_query: str | None = None,
        time_delta: str = "5m",
        delay: float = 0,
        max_retries: int = 5,
        name: str | None = None,
        shutdown_timeout: float = 10,
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
        *,
        wait_for_late: float = 0,
        query_timeout: float = 300.0,
        verify_ssl: bool = True,
    ) -> None:
        require_library(_OWNER, "influxdb_client_3", "influxdb3")
        self._database = checked_text(_OWNER, "database", database)
        if name is None:
            name = "influxdb3_" + re.sub(r"[^a-zA-Z0-9._-]", "-", database)
        super().__init__(name, shutdown_timeout, on_client_connect_success, on_client_connect_failure)
        self._host = checked_url(host, f"{_OWNER}(host=...)")
        self._token = Credential(token, f"{_OWNER}(token=...)")
        self._organization = checked_text(_OWNER, "organization_id", organization_id)
        self._key_setter = checked_function(_OWNER, "key_setter", key_setter, optional=True)
        self._timestamp_setter = checked_function(_OWNER, "timestamp_setter", timestamp_setter, optional=True)
        self._start_date = _checked_date("start_date", start_date)
        self._end_date = _checked_date("end_date", end_date)
        if self._start_date is not None and self._end_date is not None and self._end_date <= self._start_date:
            raise ArgumentValueError(f"{_OWNER}(end_date=...) must be later than start_date")
        self._measurements = _checked_measurements(measurements)
        self._column = checked_text(_OWNER, "measurement_column_name", measurement_column_name)
        self._query = _checked_query(_QUERY if sql_query is None else sql_query)
        self._time_delta = _checked_interval(time_delta)
        self._delay = checked_seconds(_OWNER, "delay", delay, least=0)
        self._max_retries = checked_count(_OWNER, "max_retries", max_retries, 0)
        self._wait_for_late = timedelta(seconds=checked_seconds(_OWNER, "wait_for_late", wait_for_late, least=0))
        self._timeout = checked_seconds(_OWNER, "query_timeout", query_timeout)
        self._verify = checked_flag(_OWNER, "verify_ssl", verify_ssl)
        self._client: InfluxDBClient3 | None = None
        self._names: list[str] = []

    def setup(self) -> None:
        """Find the measurements, or check that the server answers.

        Raises:
            SourceError: if it does not, or there is no measurement.
        """
        from influxdb_client_3 import InfluxDBClient3

        self._client = InfluxDBClient3(
            host=self._host,
            org=self._organization,
            database=self._database,
            token=self._token.reveal(),
            verify_ssl=self._verify,
            query_timeout=int(self._timeout * 1000),
            query_port_overwrite=80 if re.fullmatch(r"http://(\[[^]]*\]|[^:/]+)(/.*)?", self._host) else None,
        )
        rows = self._request_rows("SELECT 1 AS one" if self._measurements else _TABLES)
        self._names = self._measurements or [row["table_name"] for row in rows or ()]
        if rows is not None and not self._names:
            raise SourceError(f"the source {self.name} found no measurement in {self._target}; give measurements=[...]")

    def run(self) -> None:
        """Produce rows until the source is stopped, or up to `end_date`.

        Raises:
            SourceError: if the server refuses a query, or a row cannot be produced.
        """
        begun = self._start_date or datetime.now(timezone.utc)
        while self.running:
            finished = [not self._produce_interval(name, begun) for name in self._names]
            if all(finished):
                return

    def cleanup(self, failed: bool) -> None:
        """Close the connection.

        Args:
            failed: whether the source failed.
        """
        if self._client is not None:
            self._client.close()
        super().cleanup(failed)

    def _produce_interval(self, measurement: str, begun: datetime) -> bool:
        """Produce the next interval of a measurement; return False if there is none."""
        stored = self.state.get(measurement)
        start = begun if stored is None else datetime.fromisoformat(stored)
        if self._end_date is not None and start >= self._end_date:
            return False
        end = start + self._time_delta
        if self._end_date is not None:
            end = min(end, self._end_date)
        missing = (end + self._wait_for_late - datetime.now(timezone.utc)).total_seconds()
        if stored is None:
            # The interval that was begun, should the source end before it is read.
            self.state.set(measurement, start.isoformat())
            self.flush()
        if missing > 0 and not self.sleep(missing):
            return True
        quoted = '"' + measurement.replace('"', '""') + '"'
        times = {"start_time": _format_iso(start), "end_time": _format_iso(end)}
        rows = self._request_rows(_fill_placeholders(self._query, {"measurement_name": quoted, **times}))
        if rows is None:
            return True
        for number, row in enumerate(rows, 1):
            self._produce_row(measurement, number, row)
            if not self.running:
                # The position stays, so that the whole interval is read again.
                return True
        self.state.set(measurement, end.isoformat())
        self.flush()
        self.sleep(self._delay)
        return True

    def _produce_row(self, measurement: str, number: int, row: dict[str, Any]) -> None:
        try:
            value = {name: _json_value(column) for name, column in row.items()}
            value[self._column] = measurement
            key = measurement if self._key_setter is None else self._key_setter(value)
            timestamp = None if self._timestamp_setter is None else self._timestamp_setter(value)
            message = self.serialize(key, value, None, timestamp)
        except Exception as error:
            raise SourceError(
                f"row {number} of an interval of measurement {measurement!r} in {self._target} cannot be produced by the "
                f"source {self.name}: {type(error).__name__}"
            ) from error
        self.produce(message.value, message.key, message.headers, timestamp=timestamp)

    def _request_rows(self, query: str) -> list[dict[str, Any]] | None:
        """Return the rows of a query, or None if the source was stopped."""
        waits = Waits()
        for attempt in range(self._max_retries + 1):
            try:
                return call_while_running(self, lambda interrupts: self._query_rows(query, interrupts))
            except PassingError as error:
                if attempt == self._max_retries:
                    raise SourceError(f"the source {self.name} cannot read {self._target}: {error}") from error
                wait = waits.next_s()
                logger.warning("the source %s asks again in %.1f s: %s", self.name, wait, error)
                self.sleep(wait)
        return None

    def _query_rows(self, query: str, interrupts: Interrupts) -> list[dict[str, Any]]:
        from influxdb_client_3.exceptions import InfluxDB3ClientQueryError
        from pyarrow import ArrowException
        from pyarrow.flight import (
            FlightInternalError,
            FlightTimedOutError,
            FlightUnauthenticatedError,
            FlightUnauthorizedError,
            FlightUnavailableError,
        )

        assert self._client is not None  # noqa: S101 - setup made it
        try:
            table = self._client.query(query, language="sql", mode="all")
        except (InfluxDB3ClientQueryError, ArrowException) as error:
            cause = error.__context__ if isinstance(error, InfluxDB3ClientQueryError) else error
            if isinstance(cause, FlightUnauthenticatedError | FlightUnauthorizedError):
                raise SourceError(f"the source {self.name} cannot read {self._target}: it refuses the token") from None
            if isinstance(cause, FlightUnavailableError | FlightTimedOutError | FlightInternalError):
                raise PassingError(f"it does not answer: {type(cause).__name__}") from None
            raise SourceError(
                f"the source {self.name} cannot read {self._target}: it refuses the query with {type(cause).__name__}: "
                f"{str(cause).splitlines()[0][:200]}"
            ) from None
        return list(_rows_of(table))

    @property
    def _target(self) -> str:
        return f"database {self._database!r} at {self._host}"


def _rows_of(table: Any) -> Iterator[dict[str, Any]]:
    for batch in table.to_batches(max_chunksize=1_000):
        yield from batch.to_pylist()


def _json_value(column: Any) -> Any:
    if isinstance(column, date | time):
        # Arrow returns timestamps of nanoseconds as timestamps of pandas, which are datetimes.
        return column.isoformat()
    if isinstance(column, bytes):
        return column.decode()
    return column


def _format_iso(moment: datetime) -> str:
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _fill_placeholders(query: str, values: dict[str, str]) -> str:
    """Replace the placeholders, and nothing else: other braces of a query stay."""
    return re.sub(r"\{(measurement_name|start_time|end_time)\}", lambda match: values[match.group(1)], query)


def _checked_date(parameter: str, date: datetime | None) -> datetime | None:
    checked_type(_OWNER, parameter, date, datetime, "a datetime", optional=True)
    if date is not None and date.tzinfo is None:
        raise ArgumentValueError(f"{_OWNER}({parameter}=...) must have a time zone, such as timezone.utc")
    return date


def _checked_measurements(measurements: str | list[str] | None) -> list[str]:
    names = [measurements] if isinstance(measurements, str) else measurements
    if names is None:
        return []
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) and name for name in names):
        raise ArgumentTypeError(f"{_OWNER}(measurements=...) must be a name, or a list of names that is not empty")
    return list(names)


def _checked_query(query: str) -> str:
    checked_text(_OWNER, "sql_query", query)
    missing = [name for name in ("{start_time}", "{end_time}") if name not in query]
    if missing:
        raise ArgumentValueError(
            f"{_OWNER}(sql_query=...) lacks {' and '.join(missing)}: each interval would be the same"
        )
    return query


def _checked_interval(text: str) -> timedelta:
    found = re.fullmatch(r"(\d+)([smhdw])", checked_text(_OWNER, "time_delta", text))
    if found is None or int(found.group(1)) == 0:
        raise ArgumentValueError(f"{_OWNER}(time_delta=...) must be a number and a unit, s, m, h, d or w, got {text!r}")
    return timedelta(**{_UNITS[found.group(2)]: int(found.group(1))})
