"""`BigQuerySink`: results as rows of a Google BigQuery table.

Rows are streamed (`tabledata.insertAll`). Each has an insert ID made of topic, partition, offset and number within the
offset, by which BigQuery recognizes a row that is written again within about a minute.
"""

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from streamrt.connectors.argument_checks import check_known, checked_flag, checked_seconds, checked_text
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.credentials import CredentialInput
from streamrt.connectors.failures import PassingError, RequestError
from streamrt.connectors.google.bigquery_rows import RefusedValueError, column_type, row_value
from streamrt.connectors.google.google_cloud import GoogleCredentials, translated
from streamrt.connectors.libraries import require_library
from streamrt.connectors.sinks.base import BatchingSink
from streamrt.connectors.sinks.batch import SinkBatch, SinkItem
from streamrt.connectors.sinks.common import bounded
from streamrt.connectors.sinks.serializing import numbered
from streamrt.errors import ArgumentValueError, SinkBackpressureError, SinkError

if TYPE_CHECKING:
    from google.cloud import bigquery

__all__ = ["BigQuerySink", "BigQuerySinkException"]

T = TypeVar("T")

_TIMESTAMP = "timestamp"
_KEY = "__key"
_OPTIONS = ("client_info", "client_options", "credentials")
_NAME = re.compile(r"[^/?#%\x00-\x1f]+")
# As the service recommends; a request has 10 MB at most.
_REQUEST_ROWS = 500
_REQUEST_BYTES = 5_000_000
_ROW_BYTES = 9_500_000
_ID_CHARACTERS = 128
_RETRY_AFTER_S = 5.0
# Until then, the part of the service that inserts may not know a table or a column that was just made.
_SETTLED_S = 600.0
_SCHEMA_ATTEMPTS = 5


class BigQuerySinkException(SinkError):  # noqa: N818 - the name is part of the public API
    """A `BigQuerySink` cannot reach its table, or cannot write a record."""


class _Row(NamedTuple):
    item: SinkItem
    insert_id: str
    columns: dict[str, Any]
    size: int


class BigQuerySink(BatchingSink):
    """Writes values to a Google BigQuery table, each as one row.

    Values must be dicts, whose names are columns. The column `timestamp` is the timestamp of the record, `__key` its key.
    Missing columns are added with types that the first values have; existing ones are not changed. Values are written at
    least once; BigQuery drops repeats that come within about a minute. Needs the extra `bigquery`.

    Args:
        project_id: ID of the project.
        location: location of the dataset, such as `EU`.
        dataset_id: ID of the dataset.
        table_name: name of the table.
        service_account_json: the key of a service account in JSON, or a function that returns it; by default, the
            credentials that the machine has.
        schema_auto_update: whether to create a missing dataset, a missing table and missing columns.
        ddl_timeout: seconds that a request which creates or changes something may take.
        insert_timeout: seconds that a request which inserts rows may take.
        retry_timeout: seconds for which a request is repeated while its failure may pass; then the partition is paused.
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails.
        kwargs: more arguments of `bigquery.Client`: `client_info`, `client_options` and `credentials`.

    Raises:
        ConfigurationError: if an argument cannot be used, or the library is not installed.

    Example:
        ```python
        sdf.sink(BigQuerySink("my-project", "EU", "shop", "orders"))
        ```
    """

    def __init__(
        self,
        project_id: str,
        location: str,
        dataset_id: str,
        table_name: str,
        service_account_json: CredentialInput | None = None,
        schema_auto_update: bool = True,
        ddl_timeout: float = 10.0,
        insert_timeout: float = 10.0,
        retry_timeout: float = 30.0,
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(on_client_connect_success, on_client_connect_failure)
        require_library("BigQuerySink", "google.cloud.bigquery", "bigquery")
        names = {"project_id": project_id, "location": location, "dataset_id": dataset_id, "table_name": table_name}
        for parameter, name in names.items():
            if not _NAME.fullmatch(checked_text("BigQuerySink", parameter, name)):
                raise ArgumentValueError(f"BigQuerySink({parameter}={name!r}) contains characters that are not allowed")
        checked_flag("BigQuerySink", "schema_auto_update", schema_auto_update)
        check_known("BigQuerySink", kwargs, _OPTIONS, "bigquery.Client")
        self._project = project_id
        self._location = location
        self._dataset = f"{project_id}.{dataset_id}"
        self._table = f"{project_id}.{dataset_id}.{table_name}"
        self._credentials = GoogleCredentials("BigQuerySink", service_account_json)
        self._updates_schema = schema_auto_update
        self._ddl_timeout = checked_seconds("BigQuerySink", "ddl_timeout", ddl_timeout)
        self._insert_timeout = checked_seconds("BigQuerySink", "insert_timeout", insert_timeout)
        self._retry_timeout = checked_seconds("BigQuerySink", "retry_timeout", retry_timeout)
        self._options = kwargs
        self._client: Any = None
        # Types of columns by name; BigQuery does not distinguish the case of names.
        self._types: dict[str, str] = {}
        self._changed_at: float | None = None

    def __repr__(self) -> str:
        return f"BigQuerySink({self._table!r})"

    def setup(self) -> None:
        """Find the table; create it if it does not exist, unless `schema_auto_update` is False.

        Raises:
            BigQuerySinkException: if it cannot be reached.
        """
        try:
            self._read_schema()
        except RequestError as error:
            raise self._make_failure(error, "use") from None

    def write(self, batch: SinkBatch) -> None:
        """Write one batch.

        Args:
            batch: the values of one partition.

        Raises:
            SinkBackpressureError: if the service is busy or does not answer.
            BigQuerySinkException: if a record cannot be written.
        """
        records = f"{batch.topic}[{batch.partition}] offsets {batch.first_offset} to {batch.last_offset}"
        try:
            if not self._types:
                self._read_schema()
            self._add_columns(batch)
            for rows in self._split_requests(batch):
                self._insert_rows(rows, batch)
        except RequestError as error:
            if isinstance(error, PassingError):
                reason = f"writing {records} to the BigQuery table {self._table} failed: {error}"
                raise SinkBackpressureError(_RETRY_AFTER_S, reason) from None
            raise self._make_failure(error, f"write {records} to") from None

    def _add_columns(self, batch: SinkBatch) -> None:
        """Add the columns that the table lacks for a batch."""
        missing: dict[str, tuple[str, str]] = {}
        for item in batch:
            for name, value in self._make_columns(item, batch).items():
                lowered = name.lower()
                if value is None or lowered in self._types or lowered in missing:
                    continue
                if not self._updates_schema:
                    raise self._make_refusal(item, batch, f"the table has no column {name!r}")
                try:
                    missing[lowered] = (name, column_type(value))
                except RefusedValueError as error:
                    raise self._make_refusal(item, batch, f"column {name!r}: {error}") from None
        if missing:
            self._change_schema(missing)

    def _change_schema(self, missing: Mapping[str, tuple[str, str]]) -> None:
        from google.cloud import bigquery

        for attempt in range(1, _SCHEMA_ATTEMPTS + 1):
            table = self._read_schema()
            added = [
                bigquery.SchemaField(name, kind, mode="NULLABLE")
                for lowered, (name, kind) in missing.items()
                if lowered not in self._types
            ]
            if not added:
                return
            table.schema = [*table.schema, *added]
            try:
                changed = self._update_table(table)
            except RequestError as error:
                # Another task has changed the table since it was read.
                if error.code == "PreconditionFailed" and attempt < _SCHEMA_ATTEMPTS:
                    continue
                if isinstance(error, PassingError):
                    raise
                columns = ", ".join(repr(name) for name, _ in missing.values())
                raise RequestError(f"the columns {columns} cannot be added: {error}") from None
            self._note_schema(changed)
            self._changed_at = time.monotonic()
            return

    def _split_requests(self, batch: SinkBatch) -> Iterator[list[_Row]]:
        rows = (self._make_row(item, number, batch) for item, number in numbered(batch))
        return bounded(rows, lambda row: row.size, count=_REQUEST_ROWS, total=_REQUEST_BYTES)

    def _make_row(self, item: SinkItem, number: int, batch: SinkBatch) -> _Row:
        columns: dict[str, Any] = {}
        for name, value in self._make_columns(item, batch).items():
            if value is None:
                continue
            try:
                columns[name] = row_value(value, self._types[name.lower()])
            except (RefusedValueError, RecursionError) as error:
                reason = str(error) if isinstance(error, RefusedValueError) else "it is nested too deeply"
                raise self._make_refusal(item, batch, f"column {name!r}: {reason}") from None
        moment = datetime.fromtimestamp(item.timestamp / 1000, timezone.utc)
        columns[_TIMESTAMP] = moment.isoformat(timespec="milliseconds")
        size = len(json.dumps(columns)) + 200
        if size > _ROW_BYTES:
            raise self._make_refusal(
                item, batch, f"the row has about {size} bytes, and a row of BigQuery at most 10 MB"
            )
        insert_id = f"{batch.topic}/{batch.partition}/{item.offset}/{number}"
        if len(insert_id) > _ID_CHARACTERS:
            insert_id = hashlib.sha256(insert_id.encode()).hexdigest()
        return _Row(item, insert_id, columns, size)

    def _make_columns(self, item: SinkItem, batch: SinkBatch) -> dict[str, Any]:
        """Return the values of an item by column, without that of the timestamp."""
        if not isinstance(item.value, Mapping):
            kind = type(item.value).__name__
            raise self._make_refusal(
                item, batch, f"the value is a {kind}, not a dict: convert it with sdf.apply() before"
            )
        for name in item.value:
            if not isinstance(name, str) or not name:
                raise self._make_refusal(item, batch, "a name in the value is not text, or empty")
            if name.lower() in (_TIMESTAMP, _KEY):
                raise self._make_refusal(
                    item, batch, f"the column {name!r} is made by the sink: give this one another name"
                )
        columns = {**item.value, _KEY: item.key}
        if len({name.lower() for name in columns}) < len(columns):
            raise self._make_refusal(item, batch, "two names in the value differ in their case only")
        return columns

    def _insert_rows(self, rows: list[_Row], batch: SinkBatch) -> None:
        def insert(client: Any) -> Any:
            return client.insert_rows_json(
                self._table,
                [row.columns for row in rows],
                row_ids=[row.insert_id for row in rows],
                retry=self._make_retry(),
                timeout=self._insert_timeout,
            )

        try:
            problems = self._call_service(insert)
        except RequestError as error:
            if error.code == "NotFound" and self._is_settling:
                raise PassingError("the new table is not known everywhere yet") from None
            raise
        for problem in problems:
            # The others were not inserted because of this one.
            causes = [error for error in problem["errors"] if error.get("reason") != "stopped"]
            if not causes:
                continue
            cause = causes[0]
            if "no such field" in str(cause.get("message")).lower() and self._is_settling:
                raise PassingError("a new column is not known everywhere yet")
            column = f" in column {cause['location']!r}" if cause.get("location") else ""
            reason = f"the BigQuery table {self._table} answers {cause.get('reason')}{column}"
            of_value = cause.get("reason") == "invalid"
            raise self._make_refusal(rows[problem["index"]].item, batch, reason, of_value=of_value)

    def _read_schema(self) -> Any:
        """Read the schema; create the table if it does not exist."""
        try:
            table = self._call_service(lambda client: client.get_table(self._table, **self._ddl_options()))
        except RequestError as error:
            if error.code != "NotFound":
                raise
            if not self._updates_schema:
                raise RequestError("there is no such table") from None
            table = self._create_table()
        self._note_schema(table)
        return table

    def _create_table(self) -> Any:
        from google.cloud import bigquery

        options = self._ddl_options()
        try:
            self._call_service(lambda client: client.get_dataset(self._dataset, **options))
        except RequestError as error:
            if error.code != "NotFound":
                raise
            dataset = bigquery.Dataset(self._dataset)
            dataset.location = self._location
            self._call_service(lambda client: client.create_dataset(dataset, exists_ok=True, **options))
        table = bigquery.Table(self._table, [bigquery.SchemaField(_TIMESTAMP, "TIMESTAMP", mode="REQUIRED")])
        self._changed_at = time.monotonic()
        return self._call_service(lambda client: client.create_table(table, exists_ok=True, **options))

    def _update_table(self, table: "bigquery.Table") -> Any:
        # Refused if the table is no longer the one that was read.
        return self._call_service(lambda client: client.update_table(table, ["schema"], **self._ddl_options()))

    def _note_schema(self, table: "bigquery.Table") -> None:
        self._types = {field.name.lower(): field.field_type for field in table.schema}

    @property
    def _is_settling(self) -> bool:
        return self._changed_at is not None and time.monotonic() - self._changed_at < _SETTLED_S

    def _ddl_options(self) -> dict[str, Any]:
        return {"retry": self._make_retry(), "timeout": self._ddl_timeout}

    def _make_retry(self) -> Any:
        from google.cloud import bigquery

        return bigquery.DEFAULT_RETRY.with_timeout(self._retry_timeout).with_delay(initial=0.1, maximum=5.0)

    def _call_service(self, request: Callable[[Any], T]) -> T:
        from google.cloud import bigquery

        with translated():
            if self._client is None:
                options = {"credentials": self._credentials.make(), **self._options}
                self._client = bigquery.Client(self._project, location=self._location, **options)
            return request(self._client)

    def _make_failure(self, error: RequestError, doing: str) -> BigQuerySinkException:
        return BigQuerySinkException(f"BigQuerySink cannot {doing} the BigQuery table {self._table}: {error}")

    def _make_refusal(
        self, item: SinkItem, batch: SinkBatch, reason: str, *, of_value: bool = True
    ) -> BigQuerySinkException:
        """Return the error for an item; only one whose value is the reason may be skipped."""
        record = f"{batch.topic}[{batch.partition}] offset {item.offset}"
        message = f"BigQuerySink cannot write {record} to {self._table}: {reason}"
        return BigQuerySinkException(message, batch.record_of(item) if of_value else None)
