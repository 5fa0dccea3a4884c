"""New tables: the description from the arguments of `create_table`, and the topic."""

import logging
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from streamrt.errors import (
    ConfigurationError,
    SchemaError,
    TopicConfigurationError,
    TopicNotFoundError,
)
from streamrt.kafka import TopicConfig
from streamrt.kafka.cluster.counts import check_count
from streamrt.kafka.partitioner import partition_for
from streamrt.records import TopicPartition
from streamrt.schema import Schema
from streamrt.schema.types import can_be_key
from streamrt.serializers.row_formats import ROW_FORMATS, RowFormat, key_format, row_format
from streamrt.serializers.rows.one_column_formats import RAW_SCHEMA, RawRowFormat
from streamrt.tables.access.links import TableLinks
from streamrt.tables.catalogue.objects import now
from streamrt.tables.descriptions.connectors import Connector, KafkaTopic, SinkTable, SourceTable, table_connector
from streamrt.tables.descriptions.endpoint_classes import endpoint_class
from streamrt.tables.descriptions.info import TableInfo
from streamrt.tables.descriptions.maintenance import Maintenance, name_changelog_topic
from streamrt.tables.descriptions.naming import check_text, check_texts
from streamrt.tables.descriptions.rule_checks import check_rules
from streamrt.tables.descriptions.variables import resolve
from streamrt.tables.writing.further_topics import TopicDraft, change_further_topics, prepare_further_topics
from streamrt.topics.settings import config_differences
from streamrt.topics.topic import NAME

__all__ = [
    "TableArguments",
    "change_topic",
    "new_table",
    "prepare_topic",
    "resolved_topic",
    "with_format_options",
]

logger = logging.getLogger("streamrt.tables")

_RESERVED = "_streamrt_"
_SAMPLE = 100
_SAMPLE_S = 5.0
_DELETE_RETENTION = "delete.retention.ms"
_SHORTEST_MS = 60_000
_LONGEST_TOPIC = 249


@dataclass(frozen=True)
class TableArguments:
    """The arguments of `Catalog.create_table` that say what a table is; see there."""

    schema: Any = None
    topic: str | None = None
    connector: Connector | None = None
    connection: str | None = None
    format: Any = "json"
    format_options: Mapping[str, Any] | None = None
    key: Sequence[str] | None = None
    key_format: str = "json"
    time: str | None = None
    num_partitions: int | None = None
    replication_factor: int | None = None
    config: Mapping[str, str] | None = None
    comment: str | None = None
    properties: Mapping[str, str] | None = None
    maintenance: Maintenance | None = None


def new_table(name: str, given: TableArguments, registry: Any) -> TableInfo:
    """Return the description of a new table.

    Args:
        name: `<database>.<table>`.
        given: the arguments.
        registry: connection to a schema registry, or None.

    Raises:
        ConfigurationError: if arguments do not go together.
        SchemaError: if the schema cannot be used, or the format cannot carry it.
    """
    _check_types(given)
    word, format_options = _choose_format(given.format, given.format_options)
    schema = _read_schema(given.schema, given.time)
    if word == RawRowFormat.name:
        schema = _raw_schema(name, schema, format_options)
    connector = given.connector
    if connector is None:
        connector = KafkaTopic(name if given.topic is None else given.topic)
    elif not isinstance(connector, Connector):
        raise ConfigurationError(f"create_table(connector=...) must be a Connector, got {type(connector).__name__}")
    elif given.topic is not None:
        raise ConfigurationError("create_table() has a topic and a connector: give one of them")
    is_kafka = isinstance(connector, KafkaTopic)
    options = connector.options()
    connection = _choose_connection(given.connection, options.pop("connection", None), is_kafka)
    if not is_kafka:
        _check_external(schema, given)
    if isinstance(connector, SourceTable):
        endpoint_class(name, "source", connector.source)
    elif isinstance(connector, SinkTable):
        endpoint_class(name, "sink", connector.sink)
    if isinstance(connector, SinkTable) and (word, format_options, given.key_format) != ("json", {}, "json"):
        raise ConfigurationError(
            f"table {name!r} is written by {connector.sink}, which gets rows and no bytes: leave out the formats"
        )
    primary_key = () if schema is None else schema.primary_key
    if given.maintenance is not None:
        _check_maintenance(name, schema, is_kafka, given.maintenance)
    moment = now()
    info = TableInfo(
        name=name,
        kind="external" if not is_kafka else "primary-key" if primary_key else "log",
        id=str(uuid.uuid4()),
        connector=connector.word,
        topic=options["topic"] if is_kafka else None,
        num_partitions=given.num_partitions if is_kafka else None,
        format=word,
        schema=schema,
        created_at=moment,
        modified_at=moment,
        options=options,
        connection=connection,
        format_options=format_options,
        schema_version=0 if schema is None else 1,
        key=_choose_key(schema, given.key, primary_key),
        key_format=given.key_format,
        config=_topic_config(given.config, bool(primary_key)),
        comment=given.comment,
        properties=check_texts("create_table(properties=...)", given.properties),
        maintenance=given.maintenance,
    )
    table_connector(info)
    return with_format_options(info, registry)


def with_format_options(info: TableInfo, registry: Any) -> TableInfo:
    """Return a table with all options of its format, which another process or a later schema needs.

    Raises:
        ConfigurationError: if there is no such format or option.
        SchemaError: if it cannot carry a column.
    """
    if info.schema is not None:
        if info.format == RawRowFormat.name and info.schema.types != RAW_SCHEMA.types:
            raise SchemaError(
                f"table {info.name!r} has the format 'raw', whose rows have one column, 'value' (BINARY): leave out the "
                "schema"
            )
        made = row_format(info.format, info.schema, info.format_options, registry)
        if info.key:
            key_format(info.key_format, info.schema, info.key)
        return replace(info, format_options=made.options)
    if info.format not in ROW_FORMATS:
        raise ConfigurationError(f"there is no format {info.format!r} of rows; there are {', '.join(ROW_FORMATS)}")
    return info


def resolved_topic(info: TableInfo) -> str | None:
    """Return the topic of a table, with the values of variables.

    Raises:
        ConfigurationError: if a variable is not set, or the name cannot be one of a topic.
    """
    given = info.options.get("topic") if info.kind != "external" else None
    if given is None:
        return None
    name = resolve(f"the topic of table {info.name!r}", given)
    if not NAME.fullmatch(name) or name in (".", "..") or name.startswith(_RESERVED):
        raise ConfigurationError(
            f"{name!r}, the topic of table {info.name!r}, cannot be the name of a topic: use letters, digits, '.', '_' and "
            f"'-', and not {_RESERVED!r} at the beginning"
        )
    if info.maintenance is not None and len(name_changelog_topic(name)) > _LONGEST_TOPIC:
        raise ConfigurationError(
            f"topic {name[:60]!r}... of table {info.name!r} has {len(name)} characters, which leaves no room for the names "
            "of the topics with its requests and changes: use a shorter one"
        )
    return name


def prepare_topic(links: TableLinks, info: TableInfo, replication_factor: int | None, timeout: float) -> TableInfo:
    """Create the topics of a table, or check those that exist; return the table with the number of its partitions.

    Raises:
        TopicConfigurationError: if a topic that exists cannot hold the table.
        TopicCreationError: if a topic could not be created.
    """
    topic = resolved_topic(info)
    if topic is None:
        return info
    admin = links.admin()
    wanted = TopicConfig(info.num_partitions, replication_factor, dict(info.config))
    found = admin.inspect_topics([topic], timeout)[topic]
    if found is None:
        admin.create_topics([TopicDraft(topic, wanted)], timeout, timeout)
        found = admin.inspect_topics([topic], timeout)[topic] or wanted
        # Another program may have created it in another way at the same moment.
        _require_keeps_keys(info, topic, found.extra_config)
    else:
        _adopt_topic(links, info, topic, wanted, found)
    prepared = replace(info, topic=topic, num_partitions=found.num_partitions)
    prepare_further_topics(admin, prepared, found, timeout)
    return prepared


def change_topic(links: TableLinks, info: TableInfo, settings: Mapping[str, str | None], timeout: float) -> None:
    """Change settings of the topic of a table.

    Raises:
        TopicConfigurationError: if the topic could not hold the table any more.
        TopicNotFoundError: if it does not exist.
        KafkaRequestError: if the brokers refuse.
    """
    topic = resolved_topic(info)
    if topic is None:
        return
    if info.kind == "primary-key":
        policy = settings.get("cleanup.policy", "compact")
        if policy != "compact":
            raise TopicConfigurationError(
                f"the primary-key table {info.name!r} needs cleanup.policy=compact: with {policy}, it would lose rows"
            )
        _require_deletions_kept(f"the topic of table {info.name!r}", settings.get(_DELETE_RETENTION))
    if links.admin().inspect_topics([topic], timeout)[topic] is None:
        raise TopicNotFoundError(f"topic {topic!r} of table {info.name!r} does not exist: create it, or drop the table")
    links.admin().change_settings(topic, settings, timeout)
    change_further_topics(links.admin(), replace(info, topic=topic), settings, timeout)


def _adopt_topic(links: TableLinks, info: TableInfo, topic: str, wanted: TopicConfig, found: TopicConfig) -> None:
    _require_keeps_keys(info, topic, found.extra_config)
    differences = config_differences(wanted, found)
    if differences:
        logger.warning(
            "Topic %s of table %s exists already, and differs from its declaration: %s. The topic is used as it is.",
            topic,
            info.name,
            "; ".join(differences),
        )
    count = found.num_partitions or 1
    if info.key and count > 1:
        misplaced, seen = _count_misplaced(links, topic, count)
        if misplaced:
            logger.warning(
                "%d of %d records of topic %s lie in other partitions than their keys say (murmur2): another partitioner "
                "wrote them, so equal keys of table %s may be in several partitions.",
                misplaced,
                seen,
                topic,
                info.name,
            )


def _require_keeps_keys(info: TableInfo, topic: str, config: Mapping[str, str]) -> None:
    """Refuse a topic that would lose rows of a table with a primary key, or their deletions."""
    if info.kind != "primary-key":
        return
    policy = config.get("cleanup.policy", "delete")
    if policy != "compact":
        raise TopicConfigurationError(
            f"topic {topic} has cleanup.policy={policy}, and would lose rows of the primary-key table {info.name!r}: set "
            "cleanup.policy=compact, or choose another topic"
        )
    _require_deletions_kept(f"topic {topic}", config.get(_DELETE_RETENTION))


def _require_deletions_kept(where: str, setting: str | None) -> None:
    if setting is not None and setting.isdecimal() and int(setting) < _SHORTEST_MS:
        raise TopicConfigurationError(
            f"{where} has {_DELETE_RETENTION}={setting}, so brokers would drop deletions before readers have seen them, and "
            f"deleted rows would stay there: set at least {_SHORTEST_MS} (one minute); the default is a day"
        )


def _count_misplaced(links: TableLinks, topic: str, count: int) -> tuple[int, int]:
    """Return how many of the first records with a key are not where their keys belong, and how many were looked at."""
    partitions = [TopicPartition(topic, number) for number in range(count)]
    bounds = links.admin().offset_bounds(partitions, isolation_level="read_committed")
    starts = {each: low for each, (low, end) in bounds.items() if low < end}
    misplaced = seen = 0
    deadline = time.monotonic() + _SAMPLE_S
    feed = links.feed()
    try:
        feed.add(starts)
        feed.resume(starts)
        while starts and seen < _SAMPLE and time.monotonic() < deadline and len(feed.ends()) < len(starts):
            for partition, batch in feed.poll(0.1, _SAMPLE - seen):
                for key in batch.keys:
                    if key is not None:
                        seen += 1
                        misplaced += partition_for(key, count) != partition.partition
    finally:
        feed.close()
    return misplaced, seen


def _check_types(given: TableArguments) -> None:
    """Refuse arguments of other types, which could be kept and not be read again."""
    for name in ("num_partitions", "replication_factor"):
        check_count(f"create_table({name}=...)", getattr(given, name))
    for name in ("key_format", "time", "comment"):
        check_text(f"create_table({name}=...)", getattr(given, name))


def _read_schema(given: Any, event_time: str | None) -> Schema | None:
    if given is None:
        if event_time is not None:
            raise SchemaError(f"create_table(time={event_time!r}) needs a schema with this column")
        return None
    if not isinstance(given, Schema):
        return Schema(given, time=event_time)
    if event_time is None or event_time == given.time:
        return given
    return Schema(given.columns, primary_key=given.primary_key, time=event_time, comment=given.comment)


def _raw_schema(name: str, schema: Schema | None, options: Mapping[str, Any]) -> Schema:
    """Return the schema of a table whose values are bytes, which needs none."""
    others = sorted({options.get(each, "bytes") for each in ("serializer", "deserializer")} - {"bytes"}, key=str)
    if others:
        raise ConfigurationError(
            f"table {name!r} cannot have the format 'raw' with the serializer {others[0]!r}: a raw table has bytes; "
            "the format 'single' has serializers for one typed column, and 'json' for several"
        )
    return RAW_SCHEMA if schema is None else schema


def _choose_connection(given: str | None, of_connector: str | None, is_kafka: bool) -> str | None:
    if given is not None and is_kafka:
        raise ConfigurationError(
            "create_table(connection=...) is not there yet for topics: they are in the catalogue's own cluster"
        )
    if given is not None and of_connector not in (None, given):
        raise ConfigurationError(f"create_table() has the connections {given!r} and {of_connector!r}: give one of them")
    return given if given is not None else of_connector


def _check_maintenance(table: str, schema: Schema | None, is_kafka: bool, rules: Maintenance) -> None:
    """Refuse rules of a table whose rows nothing could merge by them."""
    if not is_kafka or schema is None or not schema.primary_key:
        kind = "is in another system" if not is_kafka else "has no schema" if schema is None else "has no primary key"
        raise ConfigurationError(
            f"table {table!r} {kind}, and only a table with a primary key on Kafka is maintained: leave out maintained=, "
            "merge=, deletes=, changelog= and ttl=, or give the schema a PRIMARY KEY"
        )
    check_rules(table, rules, schema)


def _check_external(schema: Schema | None, given: TableArguments) -> None:
    if schema is not None and schema.primary_key:
        raise ConfigurationError("a table in another system cannot have a primary key")
    for name in ("num_partitions", "replication_factor", "config"):
        if getattr(given, name):
            raise ConfigurationError(f"create_table({name}=...) concerns topics, and this table is in another system")


def _choose_format(given: Any, options: Mapping[str, Any] | None) -> tuple[str, Mapping[str, Any]]:
    if isinstance(given, RowFormat):
        if options:
            raise ConfigurationError("create_table(format_options=...) is for formats that are given by name")
        return given.name, dict(given.options)
    if not isinstance(given, str) or not given:
        raise ConfigurationError(f"create_table(format=...) must be a name or a RowFormat, got {type(given).__name__}")
    return given, dict(options or {})


def _choose_key(schema: Schema | None, key: Sequence[str] | None, primary_key: tuple[str, ...]) -> tuple[str, ...]:
    if isinstance(key, str):
        raise ConfigurationError(f"create_table(key=...) must be a list of names, such as [{key!r}]")
    if primary_key:
        if key is not None and tuple(key) != primary_key:
            raise ConfigurationError(
                f"the key of a table with a primary key is the primary key ({', '.join(primary_key)}), because clients of "
                "Kafka find the partition of a row by its whole key: leave out key="
            )
        return primary_key
    if not key:
        return ()
    if schema is None:
        raise SchemaError("create_table(key=...) needs a schema with these columns")
    for column in schema.project(list(key)).fields:
        if not can_be_key(column.dtype):
            raise SchemaError(
                f"column {column.name!r} ({column.word}) cannot be in the key: equal keys of such a type may have different "
                "bytes"
            )
    return tuple(key)


def _topic_config(given: Mapping[str, str] | None, is_compacted: bool) -> dict[str, str]:
    config = check_texts("create_table(config=...)", given)
    if is_compacted:
        policy = config.setdefault("cleanup.policy", "compact")
        if policy != "compact":
            raise TopicConfigurationError(
                f"cleanup.policy={policy} would delete rows of a table with a primary key: leave it out, or set compact"
            )
        _require_deletions_kept("create_table(config=...)", config.get(_DELETE_RETENTION))
    return config
