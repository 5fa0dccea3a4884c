"""`InfluxDB1Sink`: values as points of InfluxDB 1."""

import gzip
from collections.abc import Callable
from typing import Any, ClassVar

from streamrt.connectors.argument_checks import checked_count, checked_flag, checked_text
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.credentials import Credential, CredentialInput
from streamrt.connectors.failures import PassingError
from streamrt.connectors.http.http_settings import PASSING_STATUSES
from streamrt.connectors.libraries import require_library
from streamrt.connectors.retries import Retries
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
from streamrt.errors import ArgumentValueError, SinkError

__all__ = ["InfluxDB1Sink"]

_OWNER = "InfluxDB1Sink"
_COMPRESSION = 6
_PRECISIONS = {"s": "s", "ms": "ms", "us": "u", "ns": "n"}


class InfluxDB1Sink(LineSink):
    """Writes values, which must be dicts, as points of an InfluxDB 1 database. Needs the extra `influxdb1`.

    A point is identified by measurement, tags and time: InfluxDB replaces the fields of a point that it has. So each point
    is stored once, also if records are processed again, and two records with the same tags and time are one point.

    Args:
        host: host of the server.
        database: name of the database, which must exist.
        measurement: name of the measurement, or a function of the value that returns it.
        port: port of the server.
        username: name of the user.
        password: the password, or a function that returns it in the process that writes.
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
        request_timeout_ms: milliseconds for a request.
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails.
        ssl: whether to use TLS.
        verify_ssl: whether certificates are verified.
        retries: how requests are repeated when the server is busy or cannot be reached.

    Raises:
        ConfigurationError: if an argument cannot be used, or influxdb is not installed.

    Example:
        ```python
        sdf.sink(InfluxDB1Sink("influx", "sensors", "temperature", fields_keys=["celsius"], tags_keys=["room"]))
        ```
    """

    _owner: ClassVar[str] = _OWNER

    def __init__(
        self,
        host: str,
        database: str,
        measurement: MeasurementSetter,
        port: int = 8086,
        username: str | None = None,
        password: CredentialInput | None = None,
        fields_keys: FieldsSetter = (),
        tags_keys: TagsSetter = (),
        time_setter: TimeSetter | None = None,
        time_precision: TimePrecision = "ms",
        allow_missing_fields: bool = False,
        include_metadata_tags: bool = False,
        convert_ints_to_floats: bool = False,
        batch_size: int = 1000,
        request_timeout_ms: int = 10_000,
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
        *,
        ssl: bool = False,
        verify_ssl: bool = True,
        retries: Retries | None = None,
    ) -> None:
        require_library(_OWNER, "influxdb", "influxdb1")
        super().__init__(on_client_connect_success, on_client_connect_failure)
        self._host = checked_text(_OWNER, "host", host)
        if "/" in host or "@" in host:
            raise ArgumentValueError(f"{_OWNER}(host=...) must be the name of a host, not a URL")
        self._database = checked_text(_OWNER, "database", database)
        self._port = checked_count(_OWNER, "port", port, 1, 65_535)
        if username is not None:
            checked_text(_OWNER, "username", username)
        elif password is not None:
            raise ArgumentValueError(f"{_OWNER} got a password without a username")
        self._username = username
        self._password = Credential.optional(password, f"{_OWNER}(password=...)")
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
        self._timeout_ms = checked_count(_OWNER, "request_timeout_ms", request_timeout_ms)
        self._ssl = checked_flag(_OWNER, "ssl", ssl)
        self._verify = checked_flag(_OWNER, "verify_ssl", verify_ssl)
        self._retries = retries or Retries()

    def setup(self) -> None:
        """Check that the server accepts the user and has the database.

        Raises:
            SinkError: if not.
        """
        from influxdb import InfluxDBClient

        client = InfluxDBClient(
            self._host,
            self._port,
            username=self._username or "",
            password="" if self._password is None else self._password.reveal(),
            database=self._database,
            ssl=self._ssl,
            verify_ssl=self._verify,
            timeout=self._timeout_ms / 1000,
            # The sink repeats requests itself.
            retries=1,
        )
        self._keep_client(client)
        try:
            names = {row["name"] for row in self._send_request(client.get_list_database)}
        except (PassingError, RefusedWriteError) as error:
            raise SinkError(f"{_OWNER} cannot connect to {self._target}: {error}") from error
        if self._database not in names:
            raise SinkError(
                f"{_OWNER} cannot write to {self._target}: there is no such database, or no right to see it"
            )

    def _request_for(self, lines: str) -> Callable[[], object]:
        # The library compresses at the highest level, which takes longer than all the rest.
        content = gzip.compress(f"{lines}\n".encode(), _COMPRESSION)
        headers = {"Content-Type": "application/octet-stream", "Content-Encoding": "gzip"}
        client, parameters = self._client, {"db": self._database, "precision": _PRECISIONS[self._lines.precision]}
        assert client is not None  # noqa: S101 - setup made it
        return lambda: self._send_request(
            lambda: client.request("write", "POST", parameters, content, False, 204, headers)
        )

    def _send_request(self, request: Callable[[], Any]) -> Any:
        """Send a request; its errors are without the text of the server, which repeats values."""
        from influxdb.exceptions import InfluxDBClientError, InfluxDBServerError
        from requests.exceptions import RequestException

        try:
            return request()
        except InfluxDBClientError as error:
            if error.code in (401, 403):
                raise RefusedWriteError(error.code, f"it refuses the user with {error.code}") from None
            if error.code == 404:
                raise RefusedWriteError(404, "there is no such database (404)") from None
            if error.code in PASSING_STATUSES:
                raise PassingError(f"it answers {error.code}") from None
            raise RefusedWriteError(error.code or 400, f"it answers {error.code}", str(error.content)) from None
        except InfluxDBServerError:
            raise PassingError("it answers with an error of the server") from None
        except (RequestException, OSError) as error:
            raise PassingError(f"it does not answer: {type(error).__name__}") from None

    @property
    def _target(self) -> str:
        return f"database {self._database!r} at {self._host}:{self._port}"
