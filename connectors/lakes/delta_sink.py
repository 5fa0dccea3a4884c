"""A sink for tables of Delta Lake.

A commit of the table holds the rows of one commit of a task, and its positions as application transactions (the action
`txn` of the Delta protocol): pairs of an id and a 64-bit integer, which checkpoints keep for ever. A position is several of
them:

```
streamrt/<group>/<sink>/<topic>/<partition>           number of transactions that have moved it
streamrt/<group>/<sink>/<topic>/<partition>/offset    offset of the next record
streamrt/<group>/<sink>/<topic>/<partition>/text      length of a text: JSON of the topic's id and the replay text
streamrt/<group>/<sink>/<topic>/<partition>/text/0    its first 7 bytes, as an integer; further ones follow
```

Commits are optimistic: each is written after the version of the table in which the positions were compared. If other
commits have come in between, the library compares their application ids with those of this commit, and refuses it if they
share one.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from streamrt.connectors.argument_checks import checked_strings, checked_type
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.lakes.lake_rows import ArrowRows
from streamrt.connectors.libraries import require_library
from streamrt.connectors.retries import Retries
from streamrt.connectors.sinks.batch import SinkBatch
from streamrt.connectors.sinks.transactional import SinkCommit, SinkPosition, TransactionalSink
from streamrt.errors import ArgumentTypeError, ArgumentValueError, SinkBackpressureError, SinkError, SinkFencedError
from streamrt.secret import Secret

if TYPE_CHECKING:
    import pyarrow

__all__ = ["DeltaSink"]

StorageOptions = Mapping[str, str] | Callable[[], Mapping[str, str]] | None

# Other writers of the table may win several times in a row.
_RETRIES = Retries(attempts=8, first_wait_s=0.05)
# The task waits meanwhile; the sink itself tries for longer.
_LIMITS = {"connect_timeout": "5s", "timeout": "30s", "max_retries": "2", "retry_timeout": "20s"}
_PIECE_BYTES = 7
_PASSING = re.compile(
    r"Generic \w+ error|HTTP error|error sending request|tim(ed|e) ?out|No space left|Input/output", re.I
)
_LASTING = re.compile(
    r"\b(400|401|403)\b|Forbidden|Unauthorized|AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|NoSuchBucket"
    r"|ContainerNotFound|Permission denied|Read-only file system",
    re.I,
)


class _PassingError(Exception):
    """A failure that may pass. Its text has no secrets."""


class DeltaSink(TransactionalSink):
    """Appends dicts to a table of Delta Lake, each value once.

    The fields of a value are columns. The table is created if it does not exist, with the columns of the first values; later
    columns are added when they occur. Each commit of a task is a commit of the table, with one file at least: long commit
    intervals make larger files. Needs the extra `delta`.

    Args:
        table_uri: path of the table, or a URL such as "s3://bucket/orders".
        schema: schema of the table to create, as a `pyarrow.Schema`; by default that of the first values.
        schema_mode: "merge" to add columns that the table lacks; None to refuse their values.
        partition_by: columns by which a table that the sink creates is partitioned.
        configuration: properties of a table that the sink creates, such as `delta.logRetentionDuration`.
        storage_options: options of the object store, such as `AWS_REGION`, or a function that returns them in the process
            that writes.
        include_metadata: whether the columns `_timestamp` (the event time) and `_key` (the key of the record as text) are
            added.
        name: name of the sink, unique in the application; by default `table_uri`.
        retries: how requests are repeated.
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails.

    Raises:
        ConfigurationError: if an argument cannot be used, or deltalake is not installed.

    Example:
        ```python
        sink = DeltaSink("s3://lake/orders", partition_by=["country"], storage_options={"AWS_REGION": "eu-central-1"})
        sdf.sink(sink)
        ```
    """

    def __init__(
        self,
        table_uri: str | Path,
        *,
        schema: "pyarrow.Schema | None" = None,
        schema_mode: Literal["merge"] | None = "merge",
        partition_by: str | Sequence[str] = (),
        configuration: Mapping[str, str] | None = None,
        storage_options: StorageOptions = None,
        include_metadata: bool = True,
        name: str | None = None,
        retries: Retries | None = None,
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
    ) -> None:
        require_library("DeltaSink", "deltalake", "delta")
        super().__init__(name, on_client_connect_success, on_client_connect_failure)
        checked_type("DeltaSink", "table_uri", table_uri, str | Path, "a path or a URL", str)
        if re.match(r"\w+://[^/]*:[^/]*@|.*[?]", str(table_uri)):
            raise ArgumentValueError(
                "DeltaSink(table_uri=...) must not contain credentials or a query: pass storage_options"
            )
        if schema_mode not in ("merge", None):
            raise ArgumentValueError(f"DeltaSink(schema_mode=...) must be 'merge' or None, got {schema_mode!r}")
        columns = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
        if not all(isinstance(column, str) and column for column in columns):
            raise ArgumentTypeError("DeltaSink(partition_by=...) must be names of columns")
        if schema is not None and not hasattr(schema, "get_field_index"):
            raise ArgumentTypeError(f"DeltaSink(schema=...) must be a pyarrow.Schema, got {type(schema).__name__}")
        self._uri = str(table_uri)
        self._schema = schema
        self._partition_by = columns
        self._configuration = checked_strings("DeltaSink", "configuration", configuration or {})
        self._make_options = storage_options if callable(storage_options) else None
        self._options = Secret(
            json.dumps(
                {}
                if callable(storage_options)
                else checked_strings("DeltaSink", "storage_options", storage_options or {})
            )
        )
        self._rows = ArrowRows(
            f"table {self._uri!r}", metadata=include_metadata, extend=schema_mode == "merge", ignores_case=True
        )
        self._retries = retries or _RETRIES
        self._table: Any = None
        self._hidden: tuple[str, ...] = ()

    @property
    def destination(self) -> str:  # noqa: D102
        return self._uri

    def setup(self) -> None:
        """Look for the table.

        Raises:
            SinkError: if its place cannot be reached.
        """
        if "://" not in self._uri and Path(self._uri).exists() and not Path(self._uri).is_dir():
            raise SinkError(f"DeltaSink cannot write to {self._uri!r}: it is not a directory")
        try:
            self._open_table()
        except _PassingError as error:
            raise SinkError(f"DeltaSink cannot reach table {self._uri!r}: {error}") from None

    def positions(self, group: str, partitions: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], SinkPosition]:  # noqa: D102
        def read() -> dict[tuple[str, int], SinkPosition]:
            table = self._open_table()
            found = {}
            for partition in partitions if table is not None else ():
                position = self._call_library(partial(_position, table, self._app_id(group, partition)))
                if position is not None:
                    found[partition] = position
            return found

        found: dict[tuple[str, int], SinkPosition] = self._request_library(read, "reading positions from")
        return found

    def write_transaction(self, batches: Sequence[SinkBatch], commit: SinkCommit) -> None:  # noqa: D102
        self._request_library(lambda: self._append_batches(batches, commit), "writing to")

    def _append_batches(self, batches: Sequence[SinkBatch], commit: SinkCommit) -> None:
        from deltalake import CommitProperties, Transaction, write_deltalake

        table = self._open_table()
        if table is None:
            table = self._create_table(batches)
        self._check_table(table, commit)
        rows = self._rows.table(batches, self._call_library(lambda: _schema(table)))
        transactions = [
            Transaction(app_id, number)
            for partition, (before, after) in commit.positions.items()
            for app_id, number in _position_numbers(self._app_id(commit.group, partition), before, after)
        ]
        self._call_library(
            lambda: write_deltalake(
                table,
                rows,
                mode="append",
                # New columns were refused above if none may come. Without this, a lacking column is refused as well.
                schema_mode="merge",
                commit_properties=CommitProperties(app_transactions=transactions),
            )
        )

    def _check_table(self, table: Any, commit: SinkCommit) -> None:
        for partition, (before, _) in commit.positions.items():
            app_id = self._app_id(commit.group, partition)
            version = self._call_library(partial(table.transaction_version, app_id))
            if version != (None if before is None else before.version):
                raise self._make_fenced_error(*partition)

    def _app_id(self, group: str, partition: tuple[str, int]) -> str:
        parts = (group, self.name, partition[0], str(partition[1]))
        return "/".join(("streamrt", *(quote(part, safe="") for part in parts)))

    # -- The table -----------------------------------------------------------------------------------------------------

    def _open_table(self) -> Any:
        """Return the table in its newest version; None if it does not exist."""
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        def open_table() -> Any:
            if self._table is not None:
                self._table.update_incremental()
                return self._table
            try:
                return DeltaTable(self._uri, storage_options=self._storage_options())
            except TableNotFoundError:
                return None

        self._table = self._call_library(open_table)
        return self._table

    def _create_table(self, batches: Sequence[SinkBatch]) -> Any:
        import pyarrow
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        schema = self._schema
        if schema is None:
            schema = self._rows.first_schema(batches, self._partition_by)
        elif self._rows.metadata:
            lacking = [field for field in self._rows.metadata_fields() if schema.get_field_index(field.name) < 0]
            schema = pyarrow.schema([*lacking, *schema])
        if not len(schema):
            raise SinkError(f"table {self._uri!r} cannot be created without a column: no value has one")

        def create() -> None:
            try:
                DeltaTable.create(
                    self._uri,
                    schema=schema,
                    mode="ignore",
                    partition_by=list(self._partition_by) or None,
                    configuration=self._configuration or None,
                    storage_options=self._storage_options(),
                )
            except DeltaError:
                # Another process may have created it at the same moment.
                if not DeltaTable.is_deltatable(self._uri, self._storage_options()):
                    raise

        self._call_library(create)
        table = self._open_table()
        if table is None:
            raise _PassingError("the table was created and is not there")
        return table

    def _storage_options(self) -> dict[str, str] | None:
        options: dict[str, str] = json.loads(self._options.reveal())
        if self._make_options is not None:
            options = checked_strings("DeltaSink", "storage_options", self._make_options())
        self._hidden = tuple(sorted((text for text in options.values() if len(text) > 3), key=len, reverse=True))
        if "://" in self._uri and not self._uri.startswith("file:"):
            return {**_LIMITS, **options}
        return options or None

    # -- Errors --------------------------------------------------------------------------------------------------------

    def _request_library(self, request: Callable[[], Any], what: str) -> Any:
        try:
            return self._retries.write(
                request, passing=(_PassingError,), words=str, what=f"the sink {self.name}: {what} table {self._uri!r}"
            )
        except SinkBackpressureError as error:
            raise SinkBackpressureError(error.retry_after, error.reason) from None

    def _call_library(self, call: Callable[[], Any]) -> Any:
        """Call the library. Its errors may quote values, credentials and answers of several lines."""
        from deltalake.exceptions import CommitFailedError

        try:
            return call()
        except (_PassingError, SinkError, SinkFencedError):
            raise
        except Exception as error:  # noqa: BLE001 - the library also raises the class Exception
            self._table = None
            text = self._mask_text(str(error))
            passes = isinstance(error, CommitFailedError) or _PASSING.search(text)
            if passes and not _LASTING.search(text):
                raise _PassingError(text) from None
        raise SinkError(f"table {self._uri!r} cannot be written or read: {text}") from None

    def _mask_text(self, text: str) -> str:
        plain = re.sub(r"\x1b\[\d*m|↳", "", text)
        plain = re.sub(r"\?[^\s]*", "", plain)
        for hidden in self._hidden:
            plain = plain.replace(hidden, "***")
        return re.sub(r"\s+", " ", plain).strip()[:500]


def _schema(table: Any) -> "pyarrow.Schema":
    import pyarrow

    return pyarrow.schema(table.schema().to_arrow())


def _position_text(position: SinkPosition) -> bytes:
    """Return what a position has besides numbers."""
    return json.dumps([position.topic_id, position.replay]).encode()


def _position_numbers(app_id: str, before: SinkPosition | None, after: SinkPosition) -> list[tuple[str, int]]:
    """Return the application ids and integers that a commit stores for a position."""
    numbers = [(app_id, after.version), (f"{app_id}/offset", after.offset)]
    text = _position_text(after)
    if before is None or _position_text(before) != text:
        numbers.append((f"{app_id}/text", len(text)))
        for number, start in enumerate(range(0, len(text), _PIECE_BYTES)):
            numbers.append((f"{app_id}/text/{number}", int.from_bytes(text[start : start + _PIECE_BYTES], "big")))
    return numbers


def _position(table: Any, app_id: str) -> SinkPosition | None:
    version = table.transaction_version(app_id)
    if version is None:
        return None
    length = table.transaction_version(f"{app_id}/text")
    text = b"".join(
        table.transaction_version(f"{app_id}/text/{number}").to_bytes(min(_PIECE_BYTES, length - start), "big")
        for number, start in enumerate(range(0, length, _PIECE_BYTES))
    )
    topic_id, replay = json.loads(text)
    return SinkPosition(table.transaction_version(f"{app_id}/offset"), version, topic_id, replay)
