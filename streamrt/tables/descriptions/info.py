"""Descriptions of tables and databases in a catalogue."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Literal

from streamrt.errors import InvalidOperationError, SchemaError
from streamrt.schema import Schema
from streamrt.secret import SecretRef
from streamrt.tables.descriptions.maintenance import (
    Maintenance,
    make_rules_document,
    name_changelog_topic,
    name_requests_topic,
)
from streamrt.tables.descriptions.schema_documents import schema_document
from streamrt.tables.descriptions.variables import unstored_options

__all__ = [
    "DatabaseInfo",
    "TableInfo",
    "TableKind",
    "require_keys_in_place",
    "require_writable",
    "required_schema",
]

TableKind = Literal["log", "primary-key", "external"]


@dataclass(frozen=True)
class DatabaseInfo:
    """A database: a name under which tables are.

    Attributes:
        name: name.
        comment: what it is for.
        properties: strings of the user's own.
        created_at: when it was created, in UTC.
        modified_at: when it was changed last, in UTC.
        version: number of the change, from 1 on.
    """

    name: str
    comment: str | None
    properties: Mapping[str, str]
    created_at: datetime
    modified_at: datetime
    version: int = 1

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as strings, numbers and mappings, as JSON has them."""
        return _to_document(self)


@dataclass(frozen=True)
class TableInfo:
    """A table, as a catalogue keeps it.

    Attributes:
        name: `<database>.<table>`.
        kind: "log" (rows are only appended), "primary-key", or "external" (rows are in another system).
        id: differs after a drop and a new creation.
        connector: "kafka", or the word of another connector, such as "http-sse" or "sqs".
        options: settings of the connector, such as `url`; references to secrets, and no secrets. Variables such as
            `${env:NAME}` are as they were given.
        connection: name of the catalogue's connection, or None.
        topic: topic of Kafka that holds the rows, variables resolved; None if there is none.
        num_partitions: number of its partitions, or None if there is no topic.
        format: word of the format, such as "json".
        format_options: settings of the format.
        schema: the columns, or None if none were given.
        schema_version: number of the schema, from 1 on; 0 without a schema.
        schema_history: earlier schemas by their number.
        readable_from: number of the first schema whose rows fit the schema of today; a forced change begins again here.
        key: columns whose values are the key of a record.
        key_format: how they are bytes: "json", "str", "int" or "avro".
        config: settings of the topic, as they were given.
        comment: what a row means.
        properties: strings of the user's own.
        created_at: when it was created, in UTC.
        modified_at: when it was changed last, in UTC.
        version: number of the change, from 1 on.
        maintenance: the rules of a maintained table, whose writers send requests; None for a direct one.
        maintained_by: the consumer group that merges the requests, or whose materialized view the table is; None until an
            application has begun to.
        created_partitions: number of partitions when the table was created, if its topic has another number now.
    """

    name: str
    kind: TableKind
    id: str
    connector: str
    topic: str | None
    num_partitions: int | None
    format: str
    schema: Schema | None
    created_at: datetime
    modified_at: datetime
    options: Mapping[str, Any] = field(default_factory=dict)
    connection: str | None = None
    format_options: Mapping[str, Any] = field(default_factory=dict)
    schema_version: int = 1
    schema_history: Mapping[int, Schema] = field(default_factory=dict)
    key: tuple[str, ...] = ()
    key_format: str = "json"
    config: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    version: int = 1
    readable_from: int = 1
    maintenance: Maintenance | None = None
    maintained_by: str | None = None
    # Not part of what the catalogue keeps.
    created_partitions: int | None = field(default=None, compare=False, repr=False)

    @property
    def requests_topic(self) -> str | None:
        """Topic to which writers of a maintained table send requests; None for other tables."""
        return None if self.maintenance is None or self.topic is None else name_requests_topic(self.topic)

    @property
    def is_view(self) -> bool:
        """Whether the rows are those of a materialized view, which its application writes and no one else."""
        return self.maintenance is None and self.maintained_by is not None

    @property
    def changelog_topic(self) -> str | None:
        """Topic with the changes of a maintained table that has `changelog=True`; None for other tables."""
        has_one = self.maintenance is not None and self.maintenance.changelog and self.topic is not None
        return name_changelog_topic(str(self.topic)) if has_one else None

    @property
    def database(self) -> str:
        """Name of the database."""
        return self.name.partition(".")[0]

    @property
    def table(self) -> str:
        """Name within the database."""
        return self.name.partition(".")[2]

    def location(self, sensitive: bool = False) -> dict[str, Any]:
        """Return where the rows are: connector, connection and its settings, variables as given.

        Args:
            sensitive: whether references to secrets are replaced by the secrets, as far as this process has them.

        Raises:
            ConfigurationError: if this process does not have a secret.
        """
        options = unstored_options(self.options)
        shown = {name: _secret_of(value, sensitive) for name, value in options.items()}
        found = {"table": self.name, "connector": self.connector, "connection": self.connection, **shown}
        return found if self.topic is None else {**found, "topic": self.topic}

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as strings, numbers and mappings, as JSON has them; references to secrets, and no secrets."""
        return {**_to_document(self), "database": self.database, "table": self.table}


def require_keys_in_place(info: TableInfo, partitions: int | None) -> None:
    """Raise if a table has a primary key, and its topic has not the number of partitions that the table was created with.

    Args:
        info: the table.
        partitions: number of partitions that the topic has now.

    Raises:
        InvalidOperationError: if so.
    """
    created = info.num_partitions if info.created_partitions is None else info.created_partitions
    if info.kind == "primary-key" and created is not None and partitions is not None and created != partitions:
        raise InvalidOperationError(
            f"table {info.name!r} was created with {created} partitions, and its topic {info.topic} has {partitions} now: "
            "keys have moved, and a key would get a second row in another partition. Copy the rows into a new table "
            "(`streamrt table copy`); or, if there is none or all are written again, create this one again with "
            "if_exists='replace'"
        )


def require_writable(info: TableInfo, group: str | None = None) -> None:
    """Raise if the rows of a table are those of a materialized view.

    Args:
        info: the table.
        group: the consumer group of the application that is to write; None for a writer without one.

    Raises:
        InvalidOperationError: if so, and the view is of another group.
    """
    if info.is_view and info.maintained_by != group:
        raise InvalidOperationError(
            f"the rows of table {info.name!r} are those of a materialized view of consumer group {info.maintained_by!r}, "
            "and only its application writes them: write to the tables of its query; or, if this application is gone, "
            f"`streamrt table release {info.name}`"
        )


def required_schema(info: TableInfo) -> Schema:
    """Return the schema of a table.

    Raises:
        SchemaError: if it has none.
    """
    if info.schema is None:
        raise SchemaError(f"table {info.name!r} has no schema: set one by set_schema(), or see detect_schema()")
    return info.schema


def _secret_of(value: Any, sensitive: bool) -> Any:
    if isinstance(value, Mapping):
        return {name: _secret_of(each, sensitive) for name, each in value.items()}
    if isinstance(value, list):
        return [_secret_of(each, sensitive) for each in value]
    if not isinstance(value, SecretRef):
        return value
    return value.resolve().reveal() if sensitive else str(value)


def _to_document(info: Any) -> dict[str, Any]:
    return {each.name: _plain_value(getattr(info, each.name)) for each in fields(info) if each.compare}


def _plain_value(value: Any) -> Any:
    if isinstance(value, Schema):
        return schema_document(value)
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, Maintenance):
        return make_rules_document(value)
    if isinstance(value, Mapping):
        return {str(name): _plain_value(each) for name, each in value.items()}
    return list(value) if isinstance(value, tuple) else value
