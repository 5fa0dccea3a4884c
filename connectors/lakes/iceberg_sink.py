"""A sink for tables of Apache Iceberg.

A commit of the table holds the rows of one commit of a task, and its positions as properties of the table: one for each
group, sink, topic and partition, so they outlive the snapshots. Commits are optimistic: the catalog refuses one if the table
has got another snapshot meanwhile. Each move of a position comes with a snapshot, so a commit is based on the positions that
were compared. After a refusal, the sink reads the table again, and compares again.
"""

import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from streamrt.connectors.argument_checks import checked_strings, checked_type
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.lakes.iceberg_config import BaseIcebergConfig
from streamrt.connectors.lakes.lake_rows import ArrowRows
from streamrt.connectors.libraries import require_library
from streamrt.connectors.retries import Retries
from streamrt.connectors.sinks.batch import SinkBatch
from streamrt.connectors.sinks.transactional import SinkCommit, SinkPosition, TransactionalSink
from streamrt.errors import ArgumentValueError, SinkBackpressureError, SinkError, SinkFencedError
from streamrt.forks import close_with
from streamrt.secret import Secret, names_secret

if TYPE_CHECKING:
    import pyarrow
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema

__all__ = ["DataCatalogSpec", "IcebergSink"]

DataCatalogSpec = Literal["aws_glue"]
"""Name of a kind of catalog."""

CatalogProperties = Mapping[str, str] | Callable[[], Mapping[str, str]]

# Other writers of the table may win several times in a row.
_RETRIES = Retries(attempts=8, first_wait_s=0.05)
# The task waits for an answer of Glue; the sink itself tries for longer.
_CATALOGS: dict[str | None, dict[str, str]] = {None: {}, "aws_glue": {"type": "glue", "glue.max-retries": "2"}}
_PASSING_TEXT = re.compile(
    r"NETWORK_CONNECTION|time(d)? ?out|SlowDown|INTERNAL_FAILURE|No space left|is locked|already exists", re.I
)
_PASSING_NAMES = {
    "CommitFailedException",
    "CommitStateUnknownException",
    "ConnectTimeoutError",
    "ConnectionClosedError",
    "EndpointConnectionError",
    # Another process creates the namespace or the table at the same moment; catalogs in SQL databases have the second one.
    "NamespaceAlreadyExistsError",
    "IntegrityError",
    "TableAlreadyExistsError",
    "ReadTimeoutError",
    "ServerError",
    "ServiceUnavailableError",
    "TooManyRequestsError",
    "WaitingForLockException",
}


class _PassingError(Exception):
    """A failure that may pass. Its text has no secrets."""


class IcebergSink(TransactionalSink):
    """Appends dicts to a table of Apache Iceberg, each value once.

    The fields of a value are columns. The table is created if it does not exist, with the columns of the first values; later
    columns are added when they occur. Each commit of a task is a snapshot of the table: long commit intervals make larger
    files, and fewer snapshots. Needs the extra `iceberg`.

    Args:
        table_name: name of the table, with its namespace: "shop.orders".
        config: where the table is; None if `catalog_properties` tell.
        data_catalog_spec: the kind of catalog: "aws_glue"; None if `catalog_properties` tell.
        schema: schema of the table to create, of pyiceberg or of pyarrow; by default that of the first values.
        partition_spec: partition specification of the table to create; it needs a `schema` of pyiceberg. By default, the
            table is not partitioned.
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails.
        catalog_properties: more properties of the catalog, as pyiceberg has them, such as `type`, `uri` and `warehouse`, or
            a function that returns them in the process that writes.
        catalog_name: name of the catalog; catalogs in SQL databases find tables by it.
        table_properties: properties of the table to create.
        schema_auto_update: whether columns that the table lacks are added. Otherwise their values are refused.
        include_metadata: whether the columns `_timestamp` (the event time) and `_key` (the key of the record as text) are
            added.
        name: name of the sink, unique in the application; by default `table_name`.
        retries: how requests are repeated.

    Raises:
        ConfigurationError: if an argument cannot be used, or pyiceberg is not installed.

    Example:
        ```python
        config = AWSIcebergConfig("s3://lake/orders", aws_region="eu-central-1")
        sdf.sink(IcebergSink("shop.orders", config, data_catalog_spec="aws_glue"))
        ```
    """

    def __init__(
        self,
        table_name: str,
        config: BaseIcebergConfig | None = None,
        data_catalog_spec: DataCatalogSpec | None = None,
        schema: "Schema | pyarrow.Schema | None" = None,
        partition_spec: "PartitionSpec | None" = None,
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
        *,
        catalog_properties: CatalogProperties | None = None,
        catalog_name: str = "default",
        table_properties: Mapping[str, str] | None = None,
        schema_auto_update: bool = True,
        include_metadata: bool = True,
        name: str | None = None,
        retries: Retries | None = None,
    ) -> None:
        require_library("IcebergSink", "pyiceberg", "iceberg")
        super().__init__(name, on_client_connect_success, on_client_connect_failure)
        wanted = "a name with its namespace, such as 'shop.orders'"
        checked_type("IcebergSink", "table_name", table_name, str, wanted, re.compile(r"[^.\0]+(\.[^.\0]+)+").fullmatch)
        checked_type("IcebergSink", "config", config, BaseIcebergConfig, "an AWSIcebergConfig", optional=True)
        if data_catalog_spec not in _CATALOGS:
            raise ArgumentValueError(
                f"IcebergSink(data_catalog_spec=...) must be 'aws_glue', got {data_catalog_spec!r}: describe other catalogs "
                "with catalog_properties"
            )
        if data_catalog_spec is None and catalog_properties is None:
            raise ArgumentValueError("IcebergSink needs a data_catalog_spec or catalog_properties")
        if partition_spec is not None and (schema is None or not hasattr(schema, "highest_field_id")):
            raise ArgumentValueError(
                "IcebergSink(partition_spec=...) needs a schema of pyiceberg, since it names fields by their ids"
            )
        self._catalog_name = checked_type("IcebergSink", "catalog_name", catalog_name, str, "a non-empty string", bool)
        self._table_name = table_name
        self._location = None if config is None else config.location
        self._schema = schema
        self._partition_spec = partition_spec
        self._table_properties = checked_strings("IcebergSink", "table_properties", table_properties or {})
        fixed = {**_CATALOGS[data_catalog_spec], **({} if config is None else config.auth)}
        self._make_properties = catalog_properties if callable(catalog_properties) else None
        if not callable(catalog_properties):
            fixed.update(checked_strings("IcebergSink", "catalog_properties", catalog_properties or {}))
        self._properties = Secret(json.dumps(fixed))
        self._extend = schema_auto_update
        self._rows = ArrowRows(
            f"table {table_name!r}", metadata=include_metadata, extend=schema_auto_update, times=True
        )
        self._retries = retries or _RETRIES
        self._catalog: Any = None
        self._close_catalog: Callable[[], object] | None = None
        self._hidden: tuple[str, ...] = ()

    @property
    def destination(self) -> str:  # noqa: D102
        return self._table_name

    def setup(self) -> None:
        """Connect to the catalog, and look for the table.

        Raises:
            SinkError: if the catalog cannot be reached.
        """
        try:
            self._load_table()
        except _PassingError as error:
            raise SinkError(f"IcebergSink cannot reach the catalog of table {self._table_name!r}: {error}") from None

    def close(self) -> None:
        """Close the connections to the catalog; `start` opens others."""
        close, self._catalog, self._close_catalog = self._close_catalog, None, None
        if close is not None:
            close()

    def positions(self, group: str, partitions: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], SinkPosition]:  # noqa: D102
        def read() -> dict[tuple[str, int], SinkPosition]:
            table = self._load_table()
            found = {partition: self._position(table, group, partition) for partition in partitions}
            return {partition: position for partition, position in found.items() if position is not None}

        found: dict[tuple[str, int], SinkPosition] = self._request_library(read, "reading positions from")
        return found

    def write_transaction(self, batches: Sequence[SinkBatch], commit: SinkCommit) -> None:  # noqa: D102
        self._request_library(lambda: self._append_batches(batches, commit), "writing to")

    def _append_batches(self, batches: Sequence[SinkBatch], commit: SinkCommit) -> None:
        table = self._load_table()
        if table is None:
            table = self._create_table(batches)
        for partition, (before, _) in commit.positions.items():
            stored = self._position(table, commit.group, partition)
            if (None if stored is None else stored.version) != (None if before is None else before.version):
                raise self._make_fenced_error(*partition)
        existing = table.schema().as_arrow()
        rows = self._rows.table(batches, existing)
        properties = dict(
            self._position_property(commit.group, partition, after)
            for partition, (_, after) in commit.positions.items()
        )
        self._call_library(lambda: _commit_rows(table, rows, properties, update=_needs_update(existing, rows.schema)))

    # -- Positions -----------------------------------------------------------------------------------------------------

    def _partition_identity(self, group: str, partition: tuple[str, int]) -> list[Any]:
        return [group, self.name, partition[0], partition[1]]

    def _property_name(self, group: str, partition: tuple[str, int]) -> str:
        # Catalogs limit the lengths of names, and names of groups have no limit. So it is a hash, and the value is readable.
        digest = hashlib.sha256(json.dumps(self._partition_identity(group, partition)).encode()).hexdigest()
        return f"streamrt.position.{digest[:32]}"

    def _position_property(self, group: str, partition: tuple[str, int], position: SinkPosition) -> tuple[str, str]:
        text = json.dumps({"of": self._partition_identity(group, partition), **position._asdict()})
        return self._property_name(group, partition), text

    def _position(self, table: Any, group: str, partition: tuple[str, int]) -> SinkPosition | None:
        text = None if table is None else table.properties.get(self._property_name(group, partition))
        if text is None:
            return None
        fields = json.loads(text)
        return SinkPosition(*(fields[name] for name in SinkPosition._fields))

    # -- The table -----------------------------------------------------------------------------------------------------

    def _load_table(self) -> Any:
        """Return the table as it is now; None if it does not exist."""
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        def load() -> Any:
            if self._catalog is None:
                properties: dict[str, str] = json.loads(self._properties.reveal())
                if self._make_properties is not None:
                    properties.update(checked_strings("IcebergSink", "catalog_properties", self._make_properties()))
                secret = (text for name, text in properties.items() if _is_hidden(name) and len(text) > 3)
                self._hidden = tuple(sorted(secret, key=len, reverse=True))
                self._catalog = load_catalog(self._catalog_name, **_typed_properties(properties))
                self._close_catalog = close_with(self, self._catalog)
            try:
                return self._catalog.load_table(self._table_name)
            except (NoSuchNamespaceError, NoSuchTableError):
                return None

        return self._call_library(load)

    def _create_table(self, batches: Sequence[SinkBatch]) -> Any:
        from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC

        schema = self._schema
        if schema is None:
            schema = self._rows.first_schema(batches)
            if not len(schema):
                raise SinkError(f"table {self._table_name!r} cannot be created without a column: no value has one")

        def create() -> None:
            namespace = self._table_name.rpartition(".")[0]
            if not self._catalog.namespace_exists(namespace):
                self._catalog.create_namespace(namespace)
            if not self._catalog.table_exists(self._table_name):
                self._catalog.create_table(
                    self._table_name,
                    schema,
                    location=self._location,
                    partition_spec=self._partition_spec or UNPARTITIONED_PARTITION_SPEC,
                    properties=self._table_properties,
                )

        self._call_library(create)
        table = self._load_table()
        if table is None:
            raise _PassingError("the table was created and is not there")
        return table

    # -- Errors --------------------------------------------------------------------------------------------------------

    def _request_library(self, request: Callable[[], Any], what: str) -> Any:
        try:
            return self._retries.write(
                request,
                passing=(_PassingError,),
                words=str,
                what=f"the sink {self.name}: {what} table {self._table_name!r}",
            )
        except SinkBackpressureError as error:
            raise SinkBackpressureError(error.retry_after, error.reason) from None

    def _call_library(self, call: Callable[[], Any]) -> Any:
        """Call the library. Its errors may quote statements, values and credentials."""
        import requests

        try:
            return call()
        except (_PassingError, SinkError, SinkFencedError):
            raise
        except Exception as error:  # noqa: BLE001 - each catalog has errors of its library
            text = self._mask_error(error)
            names = {kind.__name__ for kind in type(error).__mro__}
            network = isinstance(error, requests.ConnectionError | requests.Timeout)
            if network or names & _PASSING_NAMES or _PASSING_TEXT.search(text):
                raise _PassingError(text) from None
        raise SinkError(f"table {self._table_name!r} cannot be written or read: {text}") from None

    def _mask_error(self, error: Exception) -> str:
        text = re.split(r"\[SQL:|\[parameters:", str(error))[0]
        for hidden in self._hidden:
            text = text.replace(hidden, "***")
        text = re.sub(r"//[^/@\s]+@", "//***@", text)
        return f"{type(error).__name__}: {' '.join(text.split())[:400]}"


def _commit_rows(table: Any, rows: "pyarrow.Table", properties: Mapping[str, str], *, update: bool) -> None:
    """Append rows and set properties in one commit that is based on the table as it was loaded."""
    # Newer versions of the library repeat a refused commit on top of the others, with the properties as they are here. That
    # would move positions that have moved. The setting stays in this process.
    settings = {**table.metadata.properties, "commit.retry.num-retries": "0"}
    table.metadata = table.metadata.model_copy(update={"properties": settings})
    with table.transaction() as transaction:
        if update:
            with transaction.update_schema() as schema:
                schema.union_by_name(rows.schema)
        transaction.append(rows)
        if properties:
            transaction.set_properties(dict(properties))


def _needs_update(existing: "pyarrow.Schema", rows: "pyarrow.Schema") -> bool:
    """Return whether rows have columns, or fields in them, that a table lacks."""
    for field in rows:
        index = existing.get_field_index(field.name)
        if index < 0 or existing.field(index).type != field.type:
            return True
    return False


def _typed_properties(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return properties as the library takes them: it does not convert this one."""
    name = "glue.max-retries"
    return {**properties, name: int(properties[name])} if name in properties else dict(properties)


def _is_hidden(name: str) -> bool:
    """Return whether messages never show a property: those that hold secrets, and ids of access keys."""
    return names_secret(name) or "access-key" in name.lower()
