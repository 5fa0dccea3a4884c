"""The description of a table after `alter_table`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from streamrt.errors import CatalogConflictError, ConfigurationError, SchemaError, SchemaEvolutionError
from streamrt.kafka.cluster.counts import check_count
from streamrt.schema import Schema, evolution_faults
from streamrt.schema.ddl import parse_type
from streamrt.serializers.rows.breaking_changes import format_faults
from streamrt.tables.catalogue.objects import now
from streamrt.tables.descriptions.connectors import table_connector
from streamrt.tables.descriptions.info import TableInfo
from streamrt.tables.descriptions.naming import check_changes, check_text
from streamrt.tables.descriptions.rule_checks import check_rules

__all__ = ["TableChanges", "altered"]


@dataclass(frozen=True)
class TableChanges:
    """The arguments of `Catalog.alter_table`; see there."""

    add: Any = None
    drop: Sequence[str] = ()
    widen: Mapping[str, str] | None = None
    schema: Any = None
    topic: str | None = None
    url: str | None = None
    connection: str | None = None
    comment: str | None = None
    properties: Mapping[str, str | None] | None = None
    config: Mapping[str, str | None] | None = None
    expect: int | None = None
    force: bool = False

    def check(self) -> None:
        """Raise unless numbers, strings and mappings are what they must be."""
        check_count("alter_table(expect=...)", self.expect)
        for word, text in (("topic", self.topic), ("url", self.url), ("comment", self.comment)):
            check_text(f"alter_table({word}=...)", text)
        for word, changes in (("properties", self.properties), ("config", self.config)):
            check_changes(f"alter_table({word}=...)", changes)


def altered(info: TableInfo, changes: TableChanges) -> TableInfo:
    """Return a table after a change.

    Raises:
        CatalogConflictError: if it has another version than expected.
        SchemaEvolutionError: if rows that exist would not fit, with all reasons.
        SchemaError: if the change names a column that is not there, or adds one that is.
        ConfigurationError: if the connector has no such setting, or arguments do not go together.
    """
    if changes.expect is not None and info.version != changes.expect:
        raise CatalogConflictError(
            f"table {info.name!r} has version {info.version} and not {changes.expect}: read it again, and repeat the change"
        )
    options = {word: value for word, value in (("topic", changes.topic), ("url", changes.url)) if value is not None}
    schema = _changed_schema(info, changes)
    made = info
    if schema is not None and schema != info.schema:
        made = _with_schema(info, schema, changes.force)
        _require_rules(made, schema)
    if options or changes.connection is not None:
        made = _relocate_table(made, options, changes.connection)
    if changes.comment is not None:
        made = replace(made, comment=changes.comment or None)
    if changes.properties:
        made = replace(made, properties=_merge_changes(made.properties, changes.properties))
    if changes.config:
        if info.kind == "external":
            raise ConfigurationError(f"table {info.name!r} has no topic of its own, whose config could change")
        made = replace(made, config=_merge_changes(made.config, changes.config))
    if made == info:
        return info
    return replace(made, version=info.version + 1, modified_at=now())


def _changed_schema(info: TableInfo, changes: TableChanges) -> Schema | None:
    """Return the schema that a change asks for, or None if it does not concern the schema."""
    add, drop, widen, schema = changes.add, changes.drop, changes.widen, changes.schema
    if schema is not None:
        if add or drop or widen:
            raise ConfigurationError("alter_table() has a schema, and changes of columns: give one of them")
        return _with_time(schema, info.schema)
    if not (add or drop or widen):
        return None
    old = info.schema
    if old is None:
        if drop or widen:
            raise ConfigurationError(f"table {info.name!r} has no schema whose columns could change: give schema=")
        return Schema(add)
    if isinstance(drop, str):
        raise ConfigurationError(f"alter_table(drop=...) must be a list of names, such as [{drop!r}]")
    for names in (list(drop), list(widen or ())):
        if names:
            # Refuses columns that are not there.
            old.project(names)
    columns = [column for column in old.columns if column["name"] not in drop]
    for column in columns:
        if widen and column["name"] in widen:
            dtype, length = parse_type(widen[column["name"]], f"column {column['name']!r}")
            column.update(type=dtype, length=length)
    added = [] if not add else Schema(add).columns
    keys = [name for name in old.primary_key if name not in drop]
    event_time = None if old.time in drop else old.time
    return Schema([*columns, *added], primary_key=keys, time=event_time, comment=old.comment)


def _merge_changes(old: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in {**old, **changes}.items() if value is not None}


def _with_schema(info: TableInfo, schema: Schema, force: bool) -> TableInfo:
    number = info.schema_version + 1
    if info.schema is None:
        return replace(info, schema=schema, schema_version=number, readable_from=number)
    is_keyed = info.kind == "primary-key"
    if bool(schema.primary_key) != is_keyed:
        raise SchemaEvolutionError(
            f"table {info.name!r} {'needs its' if is_keyed else 'has no'} primary key, and a change cannot "
            f"{'remove' if is_keyed else 'add'} one: create another table"
        )
    # Rows of all schemas since then are in the topic.
    readable = {version: older for version, older in info.schema_history.items() if version >= info.readable_from} | {
        info.schema_version: info.schema
    }
    faults = [
        fault
        for older in readable.values()
        for fault in (
            *_find_faults(schema, older, info.key),
            *format_faults(info.format, info.format_options or {}, schema, older),
        )
    ]
    faults = list(dict.fromkeys(faults))
    in_key = [name for name in info.key if name not in schema.names]
    if in_key:
        raise SchemaEvolutionError(f"column {in_key[0]!r} is in the key of table {info.name!r}, and cannot be dropped")
    if faults and not force:
        raise SchemaEvolutionError(
            f"the schema of table {info.name!r} cannot change like this: {'; '.join(faults)}; force=True does it, if no row "
            "needs to be read"
        )
    return replace(
        info,
        schema=schema,
        schema_version=number,
        schema_history={**info.schema_history, info.schema_version: info.schema},
        readable_from=number if faults else info.readable_from,
    )


def _require_rules(info: TableInfo, schema: Schema) -> None:
    """Refuse a schema that the rules of a maintained table do not fit any more."""
    if info.maintenance is not None:
        try:
            check_rules(info.name, info.maintenance, schema)
        except SchemaError as error:
            raise SchemaEvolutionError(f"the rules of a maintained table stay as they are: {error}") from None


def _find_faults(newer: Schema, older: Schema, key: Sequence[str]) -> list[str]:
    faults = evolution_faults(newer, older)
    before, after = ({each.name: each for each in schema.fields} for schema in (older, newer))
    for name in key:
        if name in before and name in after and before[name].dtype != after[name].dtype:
            faults.append(f"column {name!r} of the key changes its type: equal keys would have different bytes")
    return faults


def _relocate_table(info: TableInfo, options: Mapping[str, Any], connection: str | None) -> TableInfo:
    wanted = {**info.options, **options}
    if info.maintenance is not None:
        raise ConfigurationError(
            f"table {info.name!r} is maintained, and its rows, requests and the application that merges them belong "
            "together: create another table on the other topic"
        )
    if info.is_view:
        raise ConfigurationError(
            f"table {info.name!r} has the rows that the materialized view of consumer group {info.maintained_by!r} writes to "
            "its topic: ALTER MATERIALIZED VIEW ... SWAP WITH gives it those of another view"
        )
    if info.kind != "external" and connection is not None:
        raise ConfigurationError(
            f"table {info.name!r} has no connection, because topics are in the cluster of the catalogue: each table of "
            "another cluster has a Catalog there"
        )
    if info.kind != "external" and set(options) != {"topic"}:
        raise ConfigurationError(f"table {info.name!r} is a topic: alter_table(topic=...) is what it has")
    made = replace(info, options=wanted, connection=info.connection if connection is None else connection)
    # Checks the options.
    built = table_connector(made).options()
    built.pop("connection", None)
    return replace(made, options=built, topic=built.get("topic") if info.kind != "external" else None)


def _with_time(schema: Any, old: Schema | None) -> Schema:
    if isinstance(schema, Schema):
        return schema
    made = Schema(schema)
    if old is None:
        return made
    # Lists of columns name neither; what was said before holds, as far as its columns are there.
    keys = made.primary_key or (old.primary_key if set(old.primary_key) <= set(made.names) else ())
    event_time = old.time if old.time in made.names else None
    return Schema(made.columns, primary_key=keys, time=event_time, comment=old.comment)
