"""Objects of a catalogue as JSON documents.

A document of a table, under the key `table/<database>.<table>`:

```
{"v":1,"version":3,"id":"...","created_at":ms,"modified_at":ms,"kind":"log",
 "connector":{"name":"kafka","options":{"topic":"shop.orders"}},"connection":null,"num_partitions":4,
 "format":{"name":"json","options":{}},"key":["customer"],"key_format":"json","schema":{"version":2,"columns":[{"name","type","nullable","comment","default"}],"primary_key":[],"time"},
 "history":[{"version":1,"columns":...}],"readable_from":1,"config":{},"comment":...,"properties":{}}
```

`version` counts the changes of the object. Databases (`database/<name>`), connections (`connection/<name>`) and usages
(`usage/<application>`) also have such documents. A higher `v` is refused, and never misread. `histories` says where the
schemas are that make a document too long, and `documents` what becomes of fields that this version does not know.

A maintained table has `"v":3` and the field `maintenance`, so that no version that does not know it writes rows past the
rules:

```
"maintenance":{"merge":...,"deletes":"allow" | "ignore" | "refuse","changelog":false,"ttl_ms":null}
```

`merge` is `"last"`, `"first"`, `{"versioned":"at"}`, `{"sequence_groups":{"at":["x"]}}` or `{"aggregate":{"total":"sum"}}`.

`"maintained_by":"group"` is the consumer group that merges the requests, or, in a table without rules, the one whose
materialized view it is.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any, TypeVar, cast

import orjson
import pyarrow as pa

from streamrt.common.untrusted import HIGHEST
from streamrt.errors import CatalogError, StreamRTError
from streamrt.kafka.cluster.counts import MOST
from streamrt.schema import Schema
from streamrt.tables.descriptions.connections import Connection, connection_of
from streamrt.tables.descriptions.info import DatabaseInfo, TableInfo, TableKind
from streamrt.tables.descriptions.maintenance import make_rules_document, read_rules_document
from streamrt.tables.descriptions.schema_documents import schema_document, schema_of
from streamrt.tables.descriptions.usages import ApplicationInfo

__all__ = [
    "MAINTAINED_VERSION",
    "VERSION",
    "connection_record",
    "database_record",
    "history_of",
    "read_application",
    "read_connection",
    "read_database",
    "read_document",
    "read_table",
    "table_record",
    "usage_record",
]

VERSION = 1
"""Version of documents; `histories` has a later one for tables."""
MAINTAINED_VERSION = 3
"""`v` of the document of a maintained table, whether its history is in further records or not."""

_KINDS = ("log", "primary-key", "external")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
T = TypeVar("T")


def table_record(info: TableInfo) -> bytes:
    """Return the document of a table."""
    document = {
        **_make_head(info),
        "id": info.id,
        "kind": info.kind,
        "connector": {"name": info.connector, "options": dict(info.options)},
        "connection": info.connection,
        "num_partitions": info.num_partitions,
        "format": {"name": info.format, "options": dict(info.format_options)},
        "key": list(info.key),
        "key_format": info.key_format,
        "schema": None if info.schema is None else {"version": info.schema_version, **schema_document(info.schema)},
        "history": [
            {"version": number, **schema_document(schema)} for number, schema in sorted(info.schema_history.items())
        ],
        "readable_from": info.readable_from,
        "config": dict(info.config),
        "comment": info.comment,
        "properties": dict(info.properties),
    }
    if info.maintenance is not None:
        document |= {"v": MAINTAINED_VERSION, "maintenance": make_rules_document(info.maintenance)}
    if info.maintained_by is not None:
        document["maintained_by"] = info.maintained_by
    return orjson.dumps(document)


def read_table(name: str, value: bytes) -> TableInfo:
    """Return the table of a document; its topic has variables as they were given.

    Raises:
        CatalogError: if it is not such a document, or a newer version of StreamRT wrote it.
    """
    return read_document("table", name, value, _read_table, (VERSION, MAINTAINED_VERSION))


def database_record(info: DatabaseInfo) -> bytes:
    """Return the document of a database."""
    return orjson.dumps({**_make_head(info), "comment": info.comment, "properties": dict(info.properties)})


def read_database(name: str, value: bytes) -> DatabaseInfo:
    """Return the database of a document; see `read_table`."""
    return read_document("database", name, value, _read_database)


def connection_record(connection: Connection) -> bytes:
    """Return the document of a connection."""
    return orjson.dumps({"v": VERSION, "kind": connection.word, "options": connection.options()})


def read_connection(name: str, value: bytes) -> Connection:
    """Return the connection of a document; see `read_table`."""
    return read_document("connection", name, value, lambda _, found: connection_of(found["kind"], found["options"]))


def usage_record(application: ApplicationInfo) -> bytes:
    """Return the document of what an application uses."""
    document = {
        "v": VERSION,
        "application": application.name,
        "reads": list(application.reads),
        "writes": list(application.writes),
        "started_at": _to_ms(application.started_at),
    }
    if application.maintains:
        document["maintains"] = list(application.maintains)
    return orjson.dumps(document)


def read_application(name: str, value: bytes) -> ApplicationInfo:
    """Return the application of a document; see `read_table`."""
    return read_document("usage", name, value, _read_application)


def read_document(
    kind: str,
    name: str,
    value: bytes,
    build: Callable[[str, dict[str, Any]], T],
    versions: tuple[int, ...] = (VERSION,),
) -> T:
    """Return what a function makes of a document.

    Args:
        kind: kind of the object, for errors.
        name: name of the object.
        value: the document.
        build: makes the object of the name and the document.
        versions: the versions that it may have.

    Raises:
        CatalogError: if it is not such a document, or a newer version of StreamRT wrote it.
    """
    what = f"the record of {kind} {name!r} in the catalogue"
    try:
        document = orjson.loads(value)
        version = document["v"]
        if type(version) is int and version > versions[-1]:
            raise CatalogError(
                f"{what} was written by a newer version of StreamRT (format {version}, this one knows {versions[-1]}): "
                "upgrade StreamRT"
            )
        if version not in versions or type(version) is not int:
            raise ValueError
        return build(name, document)
    except CatalogError:
        raise
    except StreamRTError as error:
        raise CatalogError(f"{what} cannot be used: {error}") from None
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, pa.ArrowException):
        raise CatalogError(f"{what} is damaged: delete it, or import the table again") from None


def _read_table(name: str, document: dict[str, Any]) -> TableInfo:
    connector = _check_mapping(document["connector"])
    row_format = _check_mapping(document["format"])
    schema = document["schema"]
    kind = document["kind"]
    if kind not in _KINDS:
        raise ValueError
    options = _check_mapping(connector["options"])
    topic = options.get("topic") if kind != "external" else None
    is_maintained = document["v"] == MAINTAINED_VERSION
    if is_maintained != ("maintenance" in document) or (is_maintained and (kind != "primary-key" or schema is None)):
        raise ValueError
    return TableInfo(
        name=_check_name(name),
        kind=cast("TableKind", kind),
        id=_check_text(document["id"]),
        connector=_check_text(connector["name"]),
        topic=None if topic is None else _check_text(topic),
        num_partitions=None
        if document["num_partitions"] is None
        else _checked_number(document["num_partitions"], MOST, 1),
        format=_check_text(row_format["name"]),
        schema=None if schema is None else schema_of(_check_mapping(_without_version(schema))),
        created_at=_read_moment(document["created_at"]),
        modified_at=_read_moment(document["modified_at"]),
        options=options,
        connection=_optional_text(document.get("connection")),
        format_options=_check_mapping(row_format["options"]),
        schema_version=0 if schema is None else _checked_number(schema["version"]),
        schema_history=history_of(document["history"]),
        key=tuple(_check_text(column) for column in _check_list(document["key"])),
        key_format=_check_text(document["key_format"]),
        config=_check_strings(document["config"]),
        comment=_optional_text(document["comment"]),
        properties=_check_strings(document["properties"]),
        version=_checked_number(document["version"]),
        readable_from=_checked_number(document["readable_from"]),
        maintenance=read_rules_document(_check_mapping(document["maintenance"])) if is_maintained else None,
        maintained_by=_optional_text(document.get("maintained_by")),
    )


def history_of(schemas: list[dict[str, Any]]) -> dict[int, Schema]:
    """Return schemas by their number.

    Raises:
        SchemaError, TypeError, KeyError, ValueError, AttributeError: if they are not schemas with numbers.
    """
    return {_checked_number(each["version"]): schema_of(_without_version(each)) for each in schemas}


def _read_database(name: str, document: dict[str, Any]) -> DatabaseInfo:
    return DatabaseInfo(
        name=name,
        comment=_optional_text(document["comment"]),
        properties=_check_strings(document["properties"]),
        created_at=_read_moment(document["created_at"]),
        modified_at=_read_moment(document["modified_at"]),
        version=_checked_number(document["version"]),
    )


def _read_application(name: str, document: dict[str, Any]) -> ApplicationInfo:
    if document["application"] != name:
        raise ValueError
    return ApplicationInfo(
        name=name,
        reads=tuple(_check_text(table) for table in _check_list(document["reads"])),
        writes=tuple(_check_text(table) for table in _check_list(document["writes"])),
        started_at=_read_moment(document["started_at"]),
        maintains=tuple(_check_text(table) for table in _check_list(document.get("maintains", []))),
    )


def _make_head(info: DatabaseInfo | TableInfo) -> dict[str, Any]:
    return {
        "v": VERSION,
        "version": info.version,
        "created_at": _to_ms(info.created_at),
        "modified_at": _to_ms(info.modified_at),
    }


def _to_ms(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def _read_moment(value: Any) -> datetime:
    return _EPOCH + timedelta(milliseconds=_checked_number(value))


def _check_name(name: str) -> str:
    database, dot, table = name.partition(".")
    if not dot or not database or not table:
        raise ValueError
    return name


def _checked_number(value: Any, most: int = HIGHEST, least: int = 0) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError
    return value


def _check_text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError
    return value


def _optional_text(value: Any) -> str | None:
    if not isinstance(value, str | None):
        raise TypeError
    return value


def _check_mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TypeError
    return value


def _check_list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError
    return value


def _check_strings(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise TypeError
    return value


def _without_version(schema: Any) -> dict[str, Any]:
    return {key: value for key, value in _check_mapping(schema).items() if key != "version"}
