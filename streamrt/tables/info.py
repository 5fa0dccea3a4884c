"""What a catalogue knows of tables and databases."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from streamrt.schema import Schema

__all__ = ["DatabaseInfo", "TableInfo", "TableKind"]

TableKind = Literal["log", "primary-key", "external"]


@dataclass(frozen=True)
class DatabaseInfo:
    """A database: a name under which tables are.

    Attributes:
        name: name.
        comment: what it is for.
        properties: texts of the user's own.
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
        key: columns whose values are the key of a record.
        key_format: how they are bytes: "json", "str", "int" or "avro".
        config: settings of the topic, as they were given.
        comment: what a row means.
        properties: texts of the user's own.
        created_at: when it was created, in UTC.
        modified_at: when it was changed last, in UTC.
        version: number of the change, from 1 on.
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

    @property
    def database(self) -> str:
        """Name of the database."""
        return self.name.partition(".")[0]

    @property
    def table(self) -> str:
        """Name within the database."""
        return self.name.partition(".")[2]
