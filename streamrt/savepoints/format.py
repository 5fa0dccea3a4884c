"""Savepoints: named copies of everything that a consumer group has committed, in one topic each.

```
savepoint__<group>--<name>     partition 0: the consumer group, which is written first, and the manifest, written last
                               partition 1 and up: copies of partitions, in the order that the manifest names
```

A topic without a manifest is a savepoint that is being made, or whose making ended in the middle. The consumer group is
there because names of groups and of savepoints may have a `--` themselves. Copies of changelogs
have the keys and the values of the changelog, without records of writers that had lost the partition; the last
position record (see `streamrt.state.changelog`) comes last. Copies of repartition topics have the records that were
not processed yet, complete.

The manifest is JSON with a version. Topics keep the names that they have in the group that was saved:

```
{"v":1,"name":...,"group":...,"created":<ms>,"guarantee":...,
 "inputs":{"orders":{"id":...,"partitions":2,"first":2,"at":{"0":42},"sent":{"0":{"<topic>":17}}}},
 "streams":[["orders"]],
 "stores":[{"scope":...,"topics":[...],"store":...,"changelog":...,"id":...,"partitions":2,"begin":1}],
 "sources":[{"changelog":...,"partitions":1,"begin":3}],
 "exchanges":[{"topic":...,"begin":4}],                 repartition topics; they are also among the inputs
 "names":{"<repartition topic>":{"reads":["orders"],"for":"customer","short":false}}}
```

`names` says what the names of repartition topics are made of, so that those of another group are known. Savepoints of earlier
versions do not have it.

`begin` is the number of the first partition of the savepoint with the copy; `first` is the number of partitions when the
group committed for the first time (see `streamrt.runtime.metadata`).
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, NamedTuple, cast, get_args

from streamrt.arguments import checked, type_name
from streamrt.common.texts import one_line
from streamrt.common.untrusted import (
    LOWEST,
    checked_numbers,
    json_object,
    malformed_as,
    read_field,
    read_field_or_none,
    whole_number,
)
from streamrt.config import ProcessingGuarantee
from streamrt.errors import ArgumentValueError, SavepointError
from streamrt.kafka import ConnectionConfig, TopicAdmin, TopicConfig
from streamrt.kafka.reading.stored import StoredReader
from streamrt.records import TopicPartition
from streamrt.runtime.sent import Sent
from streamrt.topics.topic import NAME

__all__ = ["SavedInput", "SavedLog", "SavedName", "SavedStore", "Savepoint", "all_savepoints", "find_savepoint"]

_VERSION = 1
_MANIFEST = b"manifest"
_GROUP = b"group"
_JOINED = "--"
_LONGEST_NAME = 249
_LATEST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999, behind which Python has no dates."""
_MOST_PARTITIONS = 1_000_000


@dataclass(frozen=True)
class SavedInput:
    """An input topic or a repartition topic of a savepoint.

    Attributes:
        id: Kafka's id of it.
        partitions: number of its partitions.
        first: number of partitions when the group committed for the first time; 0 if unknown.
        at: the committed offset by partition; partitions without one are left out.
        sent: the event times that had been sent, by partition and repartition topic.
    """

    id: str | None
    partitions: int
    first: int = 0
    at: Mapping[int, int] = field(default_factory=dict)
    sent: Mapping[int, Mapping[str, Sent]] = field(default_factory=dict)


@dataclass(frozen=True)
class SavedLog:
    """A topic whose records are in a savepoint.

    Attributes:
        topic: its name.
        partitions: number of its partitions.
        begin: the first partition of the savepoint with a copy of them.
    """

    topic: str
    partitions: int
    begin: int

    def copy_of(self, savepoint: str, partition: int) -> TopicPartition:
        """Return the partition of the savepoint's topic that holds the copy of a partition."""
        return TopicPartition(savepoint, self.begin + partition)


@dataclass(frozen=True)
class SavedStore:
    """A store of a savepoint.

    Attributes:
        scope: the topic of the store, or the sorted names of merged topics, joined by `--`.
        topics: these topics.
        store: its name.
        id: Kafka's id of its changelog.
        log: the changelog.
    """

    scope: str
    topics: tuple[str, ...]
    store: str
    id: str | None
    log: SavedLog


@dataclass(frozen=True)
class SavedName:
    """What the name of a repartition topic is made of.

    Attributes:
        reads: the topics that its records come from.
        operation: what they go there for.
        short: whether a digest stands for these topics.
    """

    reads: tuple[str, ...]
    operation: str
    short: bool = False


@dataclass(frozen=True)
class Savepoint:
    """The committed state of a consumer group at one moment.

    Attributes:
        name: its name.
        group: the consumer group.
        created_ms: when it was made, in milliseconds since the Unix epoch.
        guarantee: the processing guarantee of the application.
        inputs: input topics and repartition topics, by name.
        streams: the topics of each stream.
        stores: the stores.
        sources: the changelogs of sources.
        exchanges: the repartition topics, with the records that were not processed yet.
        names: what the names of repartition topics are made of, also of those that were not needed.
    """

    name: str
    group: str
    created_ms: int
    guarantee: ProcessingGuarantee
    inputs: Mapping[str, SavedInput]
    streams: tuple[tuple[str, ...], ...]
    stores: tuple[SavedStore, ...] = ()
    sources: tuple[SavedLog, ...] = ()
    exchanges: tuple[SavedLog, ...] = ()
    names: Mapping[str, SavedName] = field(default_factory=dict)

    @property
    def topic(self) -> str:
        """The name of its topic."""
        return savepoint_topic(self.group, self.name)

    @property
    def created(self) -> datetime:
        """When it was made, in UTC."""
        return datetime.fromtimestamp(self.created_ms / 1_000, timezone.utc)

    @property
    def partitions(self) -> int:
        """Number of partitions of its topic."""
        logs = [*(store.log for store in self.stores), *self.sources, *self.exchanges]
        return 1 + sum(log.partitions for log in logs)

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """The committed offsets, of repartition topics as well."""
        return {
            TopicPartition(topic, number): offset
            for topic, each in self.inputs.items()
            for number, offset in sorted(each.at.items())
        }

    def lines(self) -> Iterator[str]:
        """Yield a description, one line for each item."""
        internal = {log.topic for log in self.exchanges}
        for topic, each in self.inputs.items():
            if topic not in internal:
                yield f"{topic}: {_format_offsets(each.at)}"
        for store in self.stores:
            yield f"store {store.store!r} of {store.scope}: {store.log.partitions} partitions"
        for log in self.sources:
            yield f"state of a source: {log.topic}"
        for log in self.exchanges:
            yield f"records that wait in {log.topic}"

    def as_dict(self) -> dict[str, Any]:
        """Return a description as JSON has it."""
        internal = {log.topic for log in self.exchanges}
        return {
            "name": self.name,
            "group": self.group,
            "created": self.created.isoformat(),
            "guarantee": self.guarantee,
            "topic": self.topic,
            "offsets": {
                topic: {str(number): offset for number, offset in each.at.items()}
                for topic, each in self.inputs.items()
                if topic not in internal
            },
            "stores": [{"topic": store.scope, "store": store.store} for store in self.stores],
        }

    def encode(self) -> bytes:
        """Return the manifest."""
        document = {
            "v": _VERSION,
            "name": self.name,
            "group": self.group,
            "created": self.created_ms,
            "guarantee": self.guarantee,
            "inputs": {topic: _input_document(each) for topic, each in self.inputs.items()},
            "streams": [list(topics) for topics in self.streams],
            "stores": [
                {
                    "scope": store.scope,
                    "topics": list(store.topics),
                    "store": store.store,
                    "changelog": store.log.topic,
                    "id": store.id,
                    "partitions": store.log.partitions,
                    "begin": store.log.begin,
                }
                for store in self.stores
            ],
            "sources": [
                {"changelog": log.topic, "partitions": log.partitions, "begin": log.begin} for log in self.sources
            ],
            "exchanges": [{"topic": log.topic, "begin": log.begin} for log in self.exchanges],
            "names": {
                topic: {"reads": list(each.reads), "for": each.operation, "short": each.short}
                for topic, each in self.names.items()
            },
        }
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes, topic: str) -> "Savepoint":
        """Read a manifest.

        Args:
            data: the manifest.
            topic: the topic that it is in, for errors.

        Raises:
            SavepointError: if it is not a manifest, or a newer version of StreamRT wrote it.
        """
        with malformed_as(lambda wrong: _make_damaged_error(topic, data, wrong)):
            document = json_object(data)
            version = read_field(document, "v", int)
        if version > _VERSION:
            raise SavepointError(
                f"the savepoint in {topic} has format {version}, and this StreamRT supports formats up to {_VERSION}: "
                "upgrade StreamRT"
            )
        with malformed_as(lambda wrong: _make_damaged_error(topic, data, wrong)):
            inputs = {name: _input_of(each) for name, each in read_field(document, "inputs", dict).items()}
            return cls(
                read_field(document, "name", str),
                read_field(document, "group", str),
                read_field(document, "created", int, most=_LATEST_MS),
                _guarantee_of(read_field(document, "guarantee", str)),
                inputs,
                tuple(_check_strings(topics) for topics in read_field(document, "streams", list)),
                tuple(
                    SavedStore(
                        read_field(each, "scope", str),
                        _check_strings(read_field(each, "topics", list)),
                        read_field(each, "store", str),
                        read_field_or_none(each, "id", str),
                        _log_of(each, "changelog"),
                    )
                    for each in read_field(document, "stores", list)
                ),
                tuple(_log_of(each, "changelog") for each in read_field(document, "sources", list)),
                tuple(
                    _log_of({**each, "partitions": inputs[read_field(each, "topic", str)].partitions}, "topic")
                    for each in read_field(document, "exchanges", list)
                ),
                _names_of(read_field_or_none(document, "names", dict) or {}),
            )


def _make_damaged_error(topic: str, data: bytes, wrong: str) -> SavepointError:
    return SavepointError(
        f"the manifest of the savepoint in {topic} is damaged ({one_line(wrong)}): {data[:40]!r}; delete the savepoint, or "
        "the topic"
    )


def savepoint_topic(group: str, name: str) -> str:
    """Return the name of the topic of a savepoint.

    Raises:
        ArgumentValueError: if the name cannot be part of the name of a topic.

    Example:
        >>> savepoint_topic("shop", "before-2.0")
        'savepoint__shop--before-2.0'
    """
    checked("the name of a savepoint", name, str, "a str", show=type_name)
    full = f"savepoint__{group}{_JOINED}{name}"
    if not NAME.fullmatch(full) or not name:
        raise ArgumentValueError(
            f"{name!r} cannot be the name of a savepoint: use letters, digits, '.', '_' and '-', and at most "
            f"{_LONGEST_NAME - len(full) + len(name)} of them"
        )
    return full


def find_savepoint(
    admin: TopicAdmin, connection: ConnectionConfig, group: str, name: str, timeout: float
) -> Savepoint | None:
    """Return a savepoint; None if there is none that is complete.

    Raises:
        SavepointError: if it cannot be read.
        KafkaRequestError: if Kafka does not respond.
    """
    found = _read_topic(admin, connection, savepoint_topic(group, name), timeout).whole()
    return found.savepoint if found.group == group else None


def refuse_taken(admin: TopicAdmin, connection: ConnectionConfig, group: str, name: str, timeout: float) -> None:
    """Raise if there is a savepoint in the topic for a new one.

    Raises:
        SavepointError: if there is a complete one, or one of another group.
        KafkaRequestError: if Kafka does not respond.
    """
    topic = savepoint_topic(group, name)
    found = _read_topic(admin, connection, topic, timeout).whole()
    if found.group not in (None, group):
        raise SavepointError(
            f"the topic {topic} has a savepoint of consumer group {found.group!r}: choose another name than {name!r}"
        )
    if found.savepoint is not None:
        raise SavepointError(
            f"consumer group {group!r} has a savepoint {name!r}: choose another name, or delete it with `streamrt savepoint "
            f"delete {name} --group {group}`"
        )


def all_savepoints(
    admin: TopicAdmin, connection: ConnectionConfig, group: str, timeout: float
) -> Iterator[tuple[str, Savepoint | SavepointError | None]]:
    """Yield the names of the savepoints of a group, and the savepoints; None for one that is not complete.

    For one that cannot be read, an error says why: it must not hide the others.

    Raises:
        KafkaRequestError: if Kafka does not respond.
    """
    prefix = f"savepoint__{group}{_JOINED}"
    for topic in admin.topic_names(prefix, timeout=timeout):
        found = _read_topic(admin, connection, topic, timeout)
        name = topic.removeprefix(prefix)
        # The name of another group may begin with this one's. Without a group, which earlier versions did not write, the
        # longest group that it may belong to has it: no topic is in two lists.
        if found.group == group or (found.group is None and _JOINED not in name):
            yield name, found.error or found.savepoint


class _Found(NamedTuple):
    """The contents of the topic of a savepoint: the group and the savepoint, as far as they were written."""

    group: str | None = None
    savepoint: Savepoint | None = None
    error: SavepointError | None = None

    def whole(self) -> "_Found":
        """Return this, if what was written can be read.

        Raises:
            SavepointError: if it cannot.
        """
        if self.error is not None:
            raise self.error
        return self


def _read_topic(admin: TopicAdmin, connection: ConnectionConfig, topic: str, timeout: float) -> _Found:
    if admin.topic_ids([topic], timeout=timeout)[topic] is None:
        return _Found()
    first = TopicPartition(topic, 0)
    low, high = admin.bounds(first, timeout=timeout)
    reader = StoredReader(connection)
    found = _Found()
    try:
        for record in reader.read(first, low, high, timeout_s=timeout):
            if record.value is None:
                continue
            if record.key == _MANIFEST:
                try:
                    savepoint = Savepoint.decode(record.value, topic)
                except SavepointError as error:
                    return found._replace(error=error)
                return _Found(savepoint.group, savepoint)
            if record.key == _GROUP:
                found = _Found(record.value.decode(errors="replace"))
    finally:
        reader.close()
    return found


def group_record(group: str) -> tuple[bytes, bytes]:
    """Return key and value of the record that is written first."""
    return _GROUP, group.encode()


def manifest_record(savepoint: Savepoint) -> tuple[bytes, bytes]:
    """Return key and value of the record that is written last."""
    return _MANIFEST, savepoint.encode()


def topic_settings(config: TopicConfig, partitions: int, options: Mapping[str, str]) -> TopicConfig:
    """Return settings for a topic that has copies of records: with any timestamps, and as large as before.

    Args:
        config: settings of a topic whose records fit.
        partitions: number of partitions.
        options: further options.
    """
    carried = ("max.message.bytes", "min.insync.replicas")
    limits = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
    settings = {"message.timestamp.type": "CreateTime", "retention.ms": "-1", "retention.bytes": "-1", **options}
    settings.update((name, config.extra_config[name]) for name in carried if name in config.extra_config)
    # Older brokers do not know them.
    settings.update((name, str(2**63 - 1)) for name in limits if name in config.extra_config)
    return TopicConfig(partitions, config.replication_factor, settings)


def _input_document(each: SavedInput) -> dict[str, Any]:
    document: dict[str, Any] = {"id": each.id, "partitions": each.partitions, "first": each.first}
    document["at"] = {str(number): offset for number, offset in sorted(each.at.items())}
    sent = {
        str(number): {topic: [told.time] if told.pending else told.time for topic, told in times.items()}
        for number, times in sorted(each.sent.items())
        if times
    }
    return {**document, "sent": sent} if sent else document


def _input_of(document: object) -> SavedInput:
    sent = read_field_or_none(document, "sent", dict) or {}
    return SavedInput(
        read_field_or_none(document, "id", str),
        read_field(document, "partitions", int, most=_MOST_PARTITIONS),
        read_field(document, "first", int, most=_MOST_PARTITIONS),
        checked_numbers(read_field(document, "at", dict), _MOST_PARTITIONS),
        {whole_number(number, most=_MOST_PARTITIONS): _sent_of(read_field(sent, number, dict)) for number in sent},
    )


def _sent_of(times: Mapping[str, Any]) -> dict[str, Sent]:
    return {
        topic: Sent(read_field_or_none({"time": told[0]}, "time", int, LOWEST), pending=True)
        if isinstance(told, list)
        else Sent(read_field(times, topic, int, LOWEST))
        for topic, told in times.items()
    }


def _log_of(document: object, name: str) -> SavedLog:
    return SavedLog(
        read_field(document, name, str),
        read_field(document, "partitions", int, most=_MOST_PARTITIONS),
        read_field(document, "begin", int, most=_MOST_PARTITIONS),
    )


def _names_of(document: Mapping[str, object]) -> dict[str, SavedName]:
    names: dict[str, SavedName] = {}
    for topic, each in document.items():
        reads = _check_strings(read_field(each, "reads", list))
        later = [other for other in reads if other in document and other not in names]
        if later:
            raise ValueError(f"{topic!r} is before {later[0]!r}, of which its name is made")
        names[topic] = SavedName(reads, read_field(each, "for", str), bool(read_field(each, "short", bool)))
    return names


def _check_strings(items: object) -> tuple[str, ...]:
    if not isinstance(items, list):
        raise ValueError(f"a list of topics is {type(items).__name__}")
    return tuple(read_field(items, number, str) for number in range(len(items)))


def _guarantee_of(text: str) -> ProcessingGuarantee:
    for known in get_args(ProcessingGuarantee):
        if text == known:
            return cast("ProcessingGuarantee", text)
    raise ValueError(f"{text!r} is not a processing guarantee")


def _format_offsets(at: Mapping[int, int]) -> str:
    listed = ", ".join(f"{number}: {offset}" for number, offset in sorted(at.items()))
    return f"offset {listed} (by partition)" if listed else "no committed offset"
