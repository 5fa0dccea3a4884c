"""A sink of ClickHouse: values become rows of a table."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from streamrt.arguments import type_name
from streamrt.connectors.argument_checks import check_flags, check_texts, checked_count
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.credentials import ClientSettings, Credential, CredentialInput
from streamrt.connectors.failures import PassingError
from streamrt.connectors.libraries import require_library
from streamrt.connectors.sinks.batch import SinkBatch, SinkItem
from streamrt.connectors.sinks.client_sink import ClientSink
from streamrt.connectors.sinks.common import (
    bounded,
    identified,
    metadata,
    send_in_parts,
    text_key,
)
from streamrt.connectors.sql.clickhouse_types import plain, problem
from streamrt.errors import ArgumentValueError, SinkError
from streamrt.forks import close_with

__all__ = ["ClickHouseSink"]

_BYTES = 16 << 20
# Codes of ClickHouse's ErrorCodes.cpp: of servers that are busy, full, read-only for a while, or without their keeper.
_PASSING = frozenset({
    159, 160, 173, 202, 203, 209, 210, 225, 236, 241, 242, 243, 252, 279, 285, 286, 319, 394, 425, 439, 999,
})  # fmt: skip
_CREDENTIALS = frozenset({192, 193, 194, 516})
# Values that cannot be read or converted, nulls, constraints, throwIf() of views.
_ABOUT_ROWS = frozenset({6, 26, 27, 32, 38, 41, 53, 69, 70, 72, 117, 131, 349, 376, 395, 407, 469, 691})
_FIXED = frozenset({"autogenerate_session_id", "dsn", "host", "interface", "kwargs", "self", "show_clickhouse_errors"})
_CODE = re.compile(r"\bcode:? (\d+)", re.IGNORECASE)
_STATUS = re.compile(r"(?:HTTP status|response code) (\d{3})")
_NAME = re.compile(r"\(([A-Z][A-Z0-9_]{2,})\)\s*(?:\(version[^)]*\)+\s*)?(?:\(for url|$)")
_ROW = re.compile(r"\(at row (\d+)\)")
_KEY = re.compile(r"\(while reading the value of key ([^)]{1,200})\)")


class _UnnamedRowError(SinkError):
    """The server refuses a row, and does not say which one."""


class _Row(NamedTuple):
    """One row in JSON."""

    item: SinkItem
    line: bytes


class ClickHouseSink(ClientSink):
    """Inserts values, which must be dicts, as rows of a table of ClickHouse, through its HTTP interface.

    Columns of the value are columns of the table; those that the value lacks get their defaults. A batch is inserted in
    blocks. Each block has an `insert_deduplication_token`, made of its records and its content, so that a block that is sent
    again is stored once in replicated tables, and in others with `non_replicated_deduplication_window`. After a crash, the
    records since the last commit may be written again in other blocks: to store each of them once, add the metadata of the
    topic and order a `ReplacingMergeTree` by it. Needs the extra `clickhouse`.

    Args:
        host: host of the server.
        table: name of the table, which must exist.
        port: port of the HTTP interface.
        database: name of the database.
        username: name of the user.
        password: the password, or a function that returns it. The process that connects calls the function. A string
            reaches tasks by a broadcast of Spark.
        chunk_size: maximum number of rows in a block, which has about 16 MB at most.
        null_as_default: None in a column that cannot be null stands for its default; otherwise it is refused.
        ignore_unknown_columns: leave out columns that the table lacks; otherwise they are refused.
        add_message_metadata: fill the columns `__key`, `__timestamp` (milliseconds) and `__headers` (JSON).
        add_topic_metadata: fill the columns `__topic`, `__partition`, `__offset` and `__number`, the number of the value
            within its offset.
        secure: use HTTPS.
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails.
        kwargs: more settings of `clickhouse_connect.get_client`, such as `settings`, `ca_cert` and `send_receive_timeout`.

    Raises:
        ConfigurationError: if an argument cannot be used, or clickhouse-connect is not installed.

    Example:
        ```python
        sink = ClickHouseSink("clickhouse", "orders", password=lambda: os.environ["CLICKHOUSE_PASSWORD"])
        sdf.sink(sink)
        ```
    """

    _owner = "ClickHouseSink"
    _verb, _preposition = "insert", "into"
    _password: Credential
    _columns: Mapping[str, str] | None = None

    def __init__(
        self,
        host: str,
        table: str,
        port: int = 8123,
        database: str = "default",
        username: str = "default",
        password: CredentialInput = "",
        *,
        chunk_size: int = 100_000,
        null_as_default: bool = False,
        ignore_unknown_columns: bool = False,
        add_message_metadata: bool = False,
        add_topic_metadata: bool = False,
        secure: bool = False,
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(on_client_connect_success, on_client_connect_failure)
        require_library("ClickHouseSink", "clickhouse_connect", "clickhouse")
        check_texts("ClickHouseSink", host=host, table=table, database=database, username=username)
        checked_count("ClickHouseSink", "port", port, 1, 65_535)
        checked_count("ClickHouseSink", "chunk_size", chunk_size)
        check_flags("ClickHouseSink", null_as_default=null_as_default, ignore_unknown_columns=ignore_unknown_columns)
        check_flags("ClickHouseSink", add_message_metadata=add_message_metadata, add_topic_metadata=add_topic_metadata)
        check_flags("ClickHouseSink", secure=secure)
        _check_settings(kwargs)
        self._host, self._port, self._secure = host, port, secure
        self._database, self._username = database, username
        self._table = f"{_quote_name(database)}.{_quote_name(table)}"
        self._target = f"table {database}.{table} of ClickHouse at {host}:{port}"
        self._password = Credential(password, "ClickHouseSink(password=...)")
        self._chunk_size = chunk_size
        self._null_as_default, self._ignore_unknown = null_as_default, ignore_unknown_columns
        self._message_metadata, self._topic_metadata = add_message_metadata, add_topic_metadata
        self._settings = ClientSettings("ClickHouseSink", kwargs)

    def setup(self) -> None:
        """Connect to the server, and read the columns of the table.

        Raises:
            SinkError: if the server cannot be reached, or refuses the credentials, or the table does not exist.
        """
        super().setup()

    def write(self, batch: SinkBatch) -> None:
        """Insert the values of a batch.

        Args:
            batch: the values of one partition.

        Raises:
            SinkBackpressureError: if the server is away or busy.
            SinkError: if a value cannot be inserted.
        """
        what = self._writing(batch)
        # The columns are needed to make rows, and may have changed since.
        columns = self._retries.write(self._fresh_columns, passing=(PassingError,), what=what)
        rows = [self._make_row(batch, identity, item, columns) for identity, item in identified(batch)]
        for chunk in bounded(rows, lambda row: len(row.line), count=self._chunk_size, total=_BYTES):

            def send(part: Sequence[_Row]) -> None:
                self._retries.write(lambda: self._send_chunk(batch, part), passing=(PassingError,), what=what)

            send_in_parts(chunk, send, lambda error: isinstance(error, _UnnamedRowError))

    def _make_row(self, batch: SinkBatch, identity: str, item: SinkItem, columns: Mapping[str, str]) -> _Row:
        added = metadata(batch, item, message=self._message_metadata, topic=self._topic_metadata)
        row = {**self._columns_of(batch, item), **added}
        if self._topic_metadata:
            row["__number"] = int(identity.rpartition("/")[2])
        if self._message_metadata and item.headers is not None:
            row["__headers"] = json.dumps([[name, plain(text_key(value))] for name, value in item.headers])
        made: dict[str, Any] = {}
        for name, value in row.items():
            declared = columns.get(name)
            if declared is None:
                if self._ignore_unknown:
                    continue
                raise self._make_refusal(batch, item, name, "the table has no such column")
            if value is None and self._null_as_default:
                continue
            made[name] = plain(value)
            wrong = problem(declared, made[name])
            if wrong:
                raise self._make_refusal(batch, item, name, wrong)
        return _Row(item, self._encode_line(batch, item, made))

    def _encode_line(self, batch: SinkBatch, item: SinkItem, row: dict[str, Any]) -> bytes:
        try:
            # Bytes that are not text are carried by surrogates.
            return json.dumps(row, ensure_ascii=False).encode(errors="surrogateescape") + b"\n"
        except (TypeError, ValueError, RecursionError) as error:
            if len(row) == 1:
                name = next(iter(row))
                raise self._make_refusal(batch, item, name, f"JSON cannot express it ({type_name(error)})") from None
        for name, value in row.items():
            self._encode_line(batch, item, {name: value})
        raise self._make_rejection(batch, item, "JSON cannot express it", doing="insert")

    def _make_refusal(self, batch: SinkBatch, item: SinkItem, name: object, reason: str) -> SinkError:
        return self._make_rejection(batch, item, reason, part=f"column {name!r} of ")

    def _send_chunk(self, batch: SinkBatch, chunk: Sequence[_Row]) -> None:
        block = b"".join(row.line for row in chunk)
        content = hashlib.sha256(block).hexdigest()[:32]
        first, last = chunk[0].item.offset, chunk[-1].item.offset
        settings = {
            "insert_deduplication_token": f"{batch.topic}/{batch.partition}/{first}-{last}/{content}",
            "date_time_input_format": "best_effort",
        }
        client = self._connect_client()
        try:
            client.raw_insert(self._table, insert_block=block, settings=settings, fmt="JSONEachRow")
        except self._errors as error:
            translated = self._translate_error(error)
            if isinstance(translated, PassingError):
                self._disconnect()
                raise translated from None
            # What the server says quotes the value, before the number of the row, which begins at 1.
            rows, keys = _ROW.findall(str(error)), _KEY.findall(str(error))
            named = bool(rows) and 1 <= int(rows[-1]) <= len(chunk)
            if not named and _error_code(error) not in _ABOUT_ROWS:
                raise translated from None
            if not named and len(chunk) > 1:
                raise _UnnamedRowError(str(translated)) from None
            item = chunk[int(rows[-1]) - 1 if named else 0].item
            column = f"column {keys[-1]!r} of " if keys else ""
            raise self._make_rejection(batch, item, _error_answer(error), part=column) from None

    def _fresh_columns(self) -> Mapping[str, str]:
        self._connect_client()
        assert self._columns is not None  # noqa: S101 - it is set together with the client
        return self._columns

    def _connect_client(self) -> Any:
        if self._client is None:
            import clickhouse_connect

            settings = {"connect_timeout": 10, "send_receive_timeout": 60, **self._settings.reveal()}
            try:
                client = clickhouse_connect.get_client(
                    host=self._host,
                    port=self._port,
                    username=self._username,
                    password=self._password.reveal(),
                    database=self._database,
                    secure=self._secure,
                    # Sessions would exclude each other.
                    autogenerate_session_id=False,
                    # The code of an error decides what follows.
                    show_clickhouse_errors=True,
                    **settings,
                )
                close = close_with(self, client)
                described = client.query(f"DESCRIBE TABLE {self._table}").result_rows
            except self._errors as error:
                raise self._translate_error(error) from None
            # Such columns are computed.
            columns = {row[0]: row[1] for row in described if row[2] not in ("ALIAS", "MATERIALIZED")}
            self._client, self._close, self._columns = client, close, columns
        return self._client

    @property
    def _errors(self) -> tuple[type[Exception], ...]:
        from clickhouse_connect.driver.exceptions import Error

        return (Error, OSError)

    def _translate_error(self, error: Exception) -> Exception:
        """Return an error that shows no values."""
        code = _error_code(error)
        if code in _CREDENTIALS:
            return self._refused_credentials()
        if code is None:
            status = _STATUS.search(str(error))
            if status is None or status[1] in ("429", "502", "503", "504"):
                return PassingError(f"HTTP status {status[1]}" if status else f"no answer ({_error_cause(error)})")
            return self._make_unusable_error(f"it answers with HTTP status {status[1]}")
        answer = _error_answer(error)
        return PassingError(answer) if code in _PASSING else self._make_unusable_error(answer)


def _check_settings(kwargs: Mapping[str, Any]) -> None:
    import inspect

    import clickhouse_connect
    from clickhouse_connect.driver.httpclient import HttpClient

    functions = (clickhouse_connect.get_client, HttpClient.__init__)
    known = {name for function in functions for name in inspect.signature(function).parameters}
    unknown = kwargs.keys() - (known - _FIXED)
    if unknown:
        raise ArgumentValueError(
            f"ClickHouseSink got unsupported settings {', '.join(sorted(unknown))}: it takes those of "
            "clickhouse_connect.get_client"
        )


def _quote_name(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace("`", "\\`")
    return f"`{escaped}`"


def _error_code(error: Exception) -> int | None:
    found = _CODE.search(str(error))
    return int(found[1]) if found else None


def _error_answer(error: Exception) -> str:
    name = _NAME.search(str(error))
    return f"it answers {name[1] if name else 'an error'} ({_error_code(error)})"


def _error_cause(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return type_name(error)
