"""`TDengineSink`: values as rows of TDengine supertables."""

import base64
import gzip
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlencode

from streamrt.connectors.argument_checks import checked_count, checked_flag, checked_seconds, checked_text, checked_type
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.credentials import Credential, CredentialInput
from streamrt.connectors.failures import PassingError
from streamrt.connectors.http.http_settings import HTTPSettings, checked_url, may_pass, origin, request, retry_after
from streamrt.connectors.libraries import require_library
from streamrt.connectors.retries import Retries
from streamrt.connectors.time_series.line_protocol import (
    FieldsSetter,
    LineProtocol,
    RefusedWriteError,
    TagsSetter,
    TimePrecision,
    TimeSetter,
)
from streamrt.connectors.time_series.line_sink import LineSink
from streamrt.errors import ArgumentValueError, SinkBackpressureError, SinkError

if TYPE_CHECKING:
    import httpx

__all__ = ["TDengineSink"]

_OWNER = "TDengineSink"
# The tag of a line that names the subtable.
_SUBTABLE = "__subtable"
_PRECISIONS = {"s": "s", "ms": "ms", "us": "u", "ns": "ns"}
# The code of TDengine for a wrong user, password or token.
_AUTHENTICATION_FAILURE = 0x357
_NO_DATABASE = 0x388
# The first byte of codes for statements (0x26) and lines (0x30) that have an error.
_REFUSING_CODES = frozenset({0x26, 0x30})
_LONGEST_WAIT_S = 10.0

SupertableSetter = str | Callable[[dict[str, Any]], str]
SubtableNameSetter = str | Callable[[dict[str, Any]], str]


class TDengineSink(LineSink):
    """Writes values, which must be dicts, as rows of TDengine, over the REST API of taosAdapter. Needs the extra `http`.

    TDengine creates supertables, subtables and columns that are missing. The time is the key of a row in its subtable:
    TDengine replaces a row that it has. So each row is stored once, also if records are processed again, and two records
    with the same subtable and time are one row.

    Args:
        host: URL of taosAdapter or of TDengine Cloud, such as "http://localhost:6041".
        database: name of the database, which must exist.
        supertable: name of the supertable, or a function of the value that returns it.
        subtable: name of the subtable, or a function of the value that returns it.
        fields_keys: names of the columns that become columns, or a function of the value that returns them; without
            them, all columns that are not tags. They are str, float, int or bool; a column that is None is left out.
        tags_keys: names of the columns that become tags, or a function of the value that returns them. Tags become
            text; columns that are missing, None or empty are left out.
        time_setter: name of the column with the time, or a function of the value that returns it: an int in
            `time_precision`, a datetime, or a str with an ISO 8601 date. Without it, or if it returns None, the timestamp
            of the record is used.
        time_precision: unit of times: "ms", "ns", "us" or "s".
        allow_missing_fields: whether columns of `fields_keys` may be missing.
        include_metadata_tags: whether key, topic and partition become the tags `__key`, `__topic` and `__partition`.
        convert_ints_to_floats: whether ints become floats, since a column has one type.
        batch_size: maximum number of rows in one request.
        enable_gzip: whether requests are compressed.
        request_timeout_ms: milliseconds for connecting, and for each read and write.
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails.
        verify_ssl: whether certificates are verified.
        username: name of the user.
        password: the password, or a function that returns it in the process that writes.
        token: a token of TDengine Cloud instead of username and password, or a function that returns it.
        max_retries: number of further attempts when the server is busy or cannot be reached; then the partition is
            paused.
        retry_backoff_factor: seconds before the second attempt; each further wait is twice as long, at most 10 seconds.

    Raises:
        ConfigurationError: if an argument cannot be used, or httpx is not installed.

    Example:
        ```python
        sdf.sink(
            TDengineSink(
                host="http://localhost:6041",
                database="power",
                supertable="meters",
                subtable=lambda value: f"meter_{value['meter']}",
                fields_keys=["current", "voltage"],
                tags_keys=["location"],
                username="root",
                password=lambda: os.environ["TDENGINE_PASSWORD"],
            )
        )
        ```
    """

    _owner: ClassVar[str] = _OWNER

    def __init__(
        self,
        host: str,
        database: str,
        supertable: SupertableSetter,
        subtable: SubtableNameSetter,
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
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
        verify_ssl: bool = True,
        username: str = "",
        password: CredentialInput = "",
        token: CredentialInput = "",
        max_retries: int = 5,
        retry_backoff_factor: float = 1.0,
    ) -> None:
        require_library(_OWNER, "httpx", "http")
        super().__init__(on_client_connect_success, on_client_connect_failure)
        self._url = checked_url(host, f"{_OWNER}(host=...)").rstrip("/")
        self._database = checked_text(_OWNER, "database", database)
        if not callable(subtable):
            checked_text(_OWNER, "subtable", subtable)
        self._lines = LineProtocol(
            _OWNER,
            supertable,
            fields_keys,
            tags_keys,
            time_setter,
            time_precision,
            allow_missing_fields,
            include_metadata_tags,
            convert_ints_to_floats,
            table_parameter="supertable",
            more_tags={_SUBTABLE: subtable},
        )
        self._batch_size = checked_count(_OWNER, "batch_size", batch_size)
        self._gzip = checked_flag(_OWNER, "enable_gzip", enable_gzip)
        timeout_s = checked_count(_OWNER, "request_timeout_ms", request_timeout_ms) / 1000
        self._settings = HTTPSettings(_OWNER, None, None, timeout_s, checked_flag(_OWNER, "verify_ssl", verify_ssl))
        checked_type(_OWNER, "username", username, str, "a str")
        if bool(token) == bool(username):
            raise ArgumentValueError(f"{_OWNER} needs either a token, or username and password")
        if token and password:
            raise ArgumentValueError(f"{_OWNER} got both a token and a password: pass one of them")
        self._username = username
        self._secret = (
            Credential(token, f"{_OWNER}(token=...)") if token else Credential(password, f"{_OWNER}(password=...)")
        )
        self._retries = Retries(
            attempts=checked_count(_OWNER, "max_retries", max_retries, 0) + 1,
            first_wait_s=checked_seconds(_OWNER, "retry_backoff_factor", retry_backoff_factor, least=0),
            longest_wait_s=_LONGEST_WAIT_S,
        )

    def setup(self) -> None:
        """Check that the server accepts the user and has the database.

        Raises:
            SinkError: if not.
        """
        self._keep_client(self._settings.transport(self._url))
        try:
            answer = self._send_request("/rest/sql", {}, b"SELECT name FROM information_schema.ins_databases", {})
        except (PassingError, RefusedWriteError) as error:
            raise SinkError(f"{_OWNER} cannot connect to {self._target}: {error}") from error
        if self._database not in {row[0] for row in answer.get("data") or ()}:
            raise SinkError(f"{_OWNER} cannot write to {self._target}: there is no such database")

    def _request_for(self, lines: str) -> Callable[[], object]:
        content = lines.encode()
        headers = {"Content-Type": "text/plain; charset=utf-8"}
        if self._gzip:
            content, headers["Content-Encoding"] = gzip.compress(content, 6), "gzip"
        parameters = {
            "db": self._database,
            "precision": _PRECISIONS[self._lines.precision],
            "table_name_key": _SUBTABLE,
        }
        return lambda: self._send_request("/influxdb/v1/write", parameters, content, headers)

    def _send_request(
        self, path: str, parameters: dict[str, str], content: bytes, headers: dict[str, str]
    ) -> dict[str, Any]:
        """Send a request, and return the answer; errors are without the text of the server, which repeats values."""
        made = {**self._settings.headers(), **headers}
        if self._username:
            pair = f"{self._username}:{self._secret.reveal()}".encode()
            made["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        else:
            parameters = {**parameters, "token": self._secret.reveal()}
        url = f"{self._url}{path}" + (f"?{urlencode(parameters)}" if parameters else "")
        assert self._client is not None  # noqa: S101 - setup made it
        response = request(self._client, "POST", url, headers=made, timeout=self._settings.timeout, content=content)
        answer = _read_answer(response)
        # taosAdapter answers 200 to requests that failed, unless it is set up otherwise.
        if response.is_success and not answer.get("code"):
            return answer
        raise self._make_problem(response, answer)

    def _make_problem(self, response: "httpx.Response", answer: dict[str, Any]) -> Exception:
        status = response.status_code
        if status in (401, 403) or answer.get("code") == _AUTHENTICATION_FAILURE:
            return RefusedWriteError(401, "it refuses the user or the token")
        # taosAdapter also answers 500 to rows that TDengine refuses; the code of TDengine makes the difference.
        found = re.search(r"0x([0-9a-fA-F]+)", response.text)
        code = answer["code"] if isinstance(answer.get("code"), int) else int(found.group(1), 16) if found else 0
        code &= 0xFFFF
        if code == _NO_DATABASE:
            return RefusedWriteError(404, "there is no such database")
        told = f" with code 0x{code:04x}" if code else ""
        if may_pass(response) and code >> 8 not in _REFUSING_CODES:
            wait = retry_after(response.headers)
            if wait is not None:
                return SinkBackpressureError(wait, f"{_OWNER}: {self._target} answers {status}")
            return PassingError(f"{self._target} answers {status}{told}")
        return RefusedWriteError(400, f"it answers {status}{told}", response.text)

    @property
    def _target(self) -> str:
        return f"database {self._database!r} at {origin(self._url)}"


def _read_answer(response: "httpx.Response") -> dict[str, Any]:
    try:
        answer = json.loads(response.content) if response.content else {}
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}
