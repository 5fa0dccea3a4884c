"""`InfluxDB3Sink`: values as points of InfluxDB 3."""

import logging
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from streamrt.connectors.argument_checks import checked_count, checked_flag, checked_text
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.credentials import Credential, CredentialInput
from streamrt.connectors.failures import PassingError
from streamrt.connectors.http.http_settings import PASSING_STATUSES, checked_url, retry_after
from streamrt.connectors.libraries import require_library
from streamrt.connectors.retries import Retries
from streamrt.connectors.sinks.batch import SinkBatch, SinkItem
from streamrt.connectors.time_series.line_protocol import (
    FieldsSetter,
    LineProtocol,
    MeasurementSetter,
    RefusedWriteError,
    TagsSetter,
    TimePrecision,
    TimeSetter,
)
from streamrt.connectors.time_series.line_sink import LineSink
from streamrt.errors import SinkBackpressureError, SinkError

__all__ = ["InfluxDB3Sink"]

logger = logging.getLogger("streamrt.connectors")

_OWNER = "InfluxDB3Sink"


class InfluxDB3Sink(LineSink):
    """Writes values, which must be dicts, as points of an InfluxDB 3 database. Needs the extra `influxdb3`.

    A point is identified by measurement, tags and time: InfluxDB replaces the fields of a point that it has. So each point
    is stored once, also if records are processed again, and two records with the same tags and time are one point.

    Args:
        token: the token, or a function that returns it in the process that writes.
        host: URL of the server.
        organization_id: id of the organization.
        database: name of the database.
        measurement: name of the measurement, or a function of the value that returns it.
        fields_keys: names of the columns that become fields, or a function of the value that returns them; without them,
            all columns that are not tags. Fields are str, float, int or bool; a column that is None is left out.
        tags_keys: names of the columns that become tags, or a function of the value that returns them. Tags become
            text; columns that are missing, None or empty are left out.
        time_setter: name of the column with the time, or a function of the value that returns it: an int in
            `time_precision`, a datetime, or a str with an ISO 8601 date. Without it, or if it returns None, the timestamp
            of the record is used.
        time_precision: unit of times: "ms", "ns", "us" or "s".
        allow_missing_fields: whether columns of `fields_keys` may be missing.
        include_metadata_tags: whether key, topic and partition become the tags `__key`, `__topic` and `__partition`.
        convert_ints_to_floats: whether ints become floats, since a field has one type.
        batch_size: maximum number of points in one request.
        enable_gzip: whether requests are compressed.
        request_timeout_ms: milliseconds for a request.
        debug: whether the client prints requests, with their values.
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails.
        raise_on_retention_violation: whether a point that is older than the retention period of the database ends the
            application; otherwise InfluxDB drops such points, and a warning is logged.
        verify_ssl: whether certificates are verified.
        retries: how requests are repeated when the server is busy or cannot be reached.

    Raises:
        ConfigurationError: if an argument cannot be used, or influxdb3-python is not installed.

    Example:
        ```python
        sdf.sink(
            InfluxDB3Sink(
                token=lambda: os.environ["INFLUXDB_TOKEN"],
                host="https://eu-central-1-1.aws.cloud2.influxdata.com",
                organization_id="shop",
                database="sensors",
                measurement="temperature",
                fields_keys=["celsius"],
                tags_keys=["room"],
            )
        )
        ```
    """

    _owner: ClassVar[str] = _OWNER

    def __init__(
        self,
        token: CredentialInput,
        host: str,
        organization_id: str,
        database: str,
        measurement: MeasurementSetter,
        fields_keys: FieldsSetter = (),
        tags_keys: TagsSetter = (),
        time_setter: TimeSetter | None = None,
        time_precision: TimePrecision = "ms",
        allow_missing_fields: bool = False,
        include_metadata_tags: bool = False,
        convert_ints_to_floats: bool = False,
        batch_size: int = 1000,
        enable_gzip: bool = True,
        request_timeout_ms: int = 10_000,
        debug: bool = False,
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
        raise_on_retention_violation: bool = False,
        verify_ssl: bool = True,
        *,
        retries: Retries | None = None,
    ) -> None:
        require_library(_OWNER, "influxdb_client_3", "influxdb3")
        super().__init__(on_client_connect_success, on_client_connect_failure)
        self._token = Credential(token, f"{_OWNER}(token=...)")
        self._host = checked_url(host, f"{_OWNER}(host=...)")
        self._organization = checked_text(_OWNER, "organization_id", organization_id)
        self._database = checked_text(_OWNER, "database", database)
        self._lines = LineProtocol(
            _OWNER,
            measurement,
            fields_keys,
            tags_keys,
            time_setter,
            time_precision,
            allow_missing_fields,
            include_metadata_tags,
            convert_ints_to_floats,
        )
        self._batch_size = checked_count(_OWNER, "batch_size", batch_size)
        self._gzip = checked_flag(_OWNER, "enable_gzip", enable_gzip)
        self._timeout_ms = checked_count(_OWNER, "request_timeout_ms", request_timeout_ms)
        self._debug = checked_flag(_OWNER, "debug", debug)
        self._raise_on_retention = checked_flag(_OWNER, "raise_on_retention_violation", raise_on_retention_violation)
        self._verify = checked_flag(_OWNER, "verify_ssl", verify_ssl)
        self._retries = retries or Retries()

    def setup(self) -> None:
        """Check that the server accepts the token and has the database.

        Raises:
            SinkError: if not.
        """
        from influxdb_client_3 import InfluxDBClient3, WriteOptions
        from influxdb_client_3.write_client.client.write_api import WriteType

        client = InfluxDBClient3(
            host=self._host,
            org=self._organization,
            database=self._database,
            token=self._token.reveal(),
            enable_gzip=self._gzip,
            verify_ssl=self._verify,
            debug=self._debug,
            write_timeout=self._timeout_ms,
            write_port_overwrite=self._port,
            write_client_options={"write_options": WriteOptions(write_type=WriteType.synchronous)},
        )
        self._keep_client(client)
        try:
            # A comment writes nothing. Servers that do not know comments refuse it, after they have checked the token.
            self._send_lines("# streamrt")
        except PassingError as error:
            raise SinkError(f"{_OWNER} cannot connect: {error}") from error
        except RefusedWriteError as error:
            if error.status in (401, 403, 404):
                raise SinkError(f"{_OWNER} cannot write to {self._target}: {error}") from error

    def _request_for(self, lines: str) -> Callable[[], object]:
        return lambda: self._send_lines(lines)

    def _write_items(self, items: Sequence[SinkItem], batch: SinkBatch) -> None:
        try:
            super()._write_items(items, batch)
        except RefusedWriteError as error:
            if error.status != 422 or "retention" not in error.text.lower() or self._raise_on_retention:
                raise
            logger.warning(
                "%s: %s dropped points of %s[%d] offsets %d to %d that are older than its retention period",
                _OWNER,
                self._target,
                batch.topic,
                batch.partition,
                items[0].offset,
                items[-1].offset,
            )

    def _send_lines(self, lines: str) -> None:
        from influxdb_client_3 import InfluxDBError
        from urllib3.exceptions import HTTPError

        assert self._client is not None  # noqa: S101 - setup made it
        try:
            self._client.write(lines, write_precision=self._lines.precision)
        except InfluxDBError as error:
            raise self._explain_error(error) from None
        except (HTTPError, OSError) as error:
            cause = getattr(error, "reason", None) or error
            raise PassingError(f"{self._target} does not answer: {type(cause).__name__}") from error

    def _explain_error(self, error: Any) -> Exception:
        """Return an error without the text of the server, which repeats values."""
        # Errors of TLS come as answers with status 0.
        status = getattr(error.response, "status", None) or getattr(error, "status", None) or 0
        if status in (401, 403):
            return RefusedWriteError(status, f"it refuses the token with {status}")
        if status == 404:
            return RefusedWriteError(status, "there is no such database (404)")
        if status in PASSING_STATUSES:
            wait = retry_after({"retry-after": error.retry_after or ""})
            if wait is not None:
                return SinkBackpressureError(wait, f"{_OWNER}: {self._target} answers {status}")
            return PassingError(f"{self._target} answers {status}")
        if not status:
            return PassingError(f"{self._target} cannot be reached by TLS")
        return RefusedWriteError(status, f"it answers {status}", str(error.message))

    @property
    def _port(self) -> int | None:
        # The client takes 443 for all URLs without a port.
        without_port = (
            self._host.startswith("http://") and ":" not in self._host[7:].partition("/")[0].rpartition("]")[2]
        )
        return 80 if without_port else None

    @property
    def _target(self) -> str:
        return f"database {self._database!r} at {self._host}"
