"""The metadata of committed offsets: which state belongs to them, and which transactional id may move them.

Kafka stores a text of at most 4,096 bytes (`offset.metadata.max.bytes`) with each committed offset. StreamRT writes
JSON, which for each partition names only its own stores:

```
{"streamrt":2,                            the format
 "stores":{"orders":{"default":"x1"}},    by scope and store, the id of the changelog topic, or null without changelog
 "digests":"ab12cd34...",                 instead of "stores" if these do not fit: 8 characters for each store
 "owner":"a",                             the input whose transactional id moves the offset, if it is another one
 "claim":1700000000000,                   with at-least-once, the number of the claim
 "topic":"x2",                            Kafka's id of the topic in which the offset is a position
 "version":"ab12",                        with exactly-once, the application version that claims the partition, if
                                          "stores" and "owner" are those of another version
 "partitions":4,                          partition count of the topic when the group committed for the first time
 "sent":{"repartition__...":17},          by repartition topic, the highest event time that was sent into it; [17], or
                                          [null], if open windows will send more
 "due":{"ab12":20}}                       by digest of its name, the event time of the first of these windows, if it fits
```

A partition whose number is "partitions" or higher was added later: all its records are new to the group, regardless of
`auto_offset_reset`. Each commit repeats the count of the first commit.

A request to commit names no id of a topic: one that is late counts in a topic that was created again under the name. Thus
"topic" tells whether the offset means a record of the topic that there is now.

False, empty and 0 values are omitted. Format 1, which had only `stores`, of all partitions, is still read. Any other
text, such as that of a tool, is ignored.
"""

import base64
import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from streamrt.common.untrusted import HIGHEST, LOWEST, json_object, read_field
from streamrt.errors import ConfigurationError
from streamrt.kafka.cluster.committed import CommittedOffset
from streamrt.records import TopicPartition
from streamrt.runtime.placement import StateSettings
from streamrt.runtime.sent import Sent
from streamrt.topology import TaskId, Topology

__all__ = ["CommitMetadata", "CommittedMetadata", "claimed", "first_counts", "without_store"]

_FORMAT = 2
_LIMIT = 4_096
SENT_ROOM = 600
"""Bytes that are reserved for `sent`."""
_CLAIM_ROOM = 400
"""Bytes that are reserved for the name of the owner, the number of the claim, the id of the topic, and their JSON syntax."""
_DIGEST = 4
_LATEST = 1 << 52
_NO_CHANGELOG = "." * _DIGEST
_HIGHEST_CLAIM = 1 << 47
"""Claims have 48 bits in epochs, and the next one is higher. A tool may commit any number, which then counts as none."""
_MOST_PARTITIONS = 1 << 31


@dataclass(frozen=True)
class CommittedMetadata:
    """The decoded metadata of one committed offset.

    Attributes:
        format: 1 or 2; 0 if StreamRT did not write it.
        stores: the ids of changelogs by scope and store; empty if there are digests.
        digests: the digests of stores, and those of the ids of their changelogs.
        owner: the input topic whose transactional id moves the offset; None for the partition's own.
        claim: number of the claim; 0 without one.
        sent: event times sent, by repartition topic or by a digest of its name; use `sent_into`.
        partitions: partition count of the topic when the group committed for the first time; 0 if unknown.
        topic: Kafka's id of the topic in which the offset is a position; None if unknown.
        due: event times of the first open windows that will send more, by digest of the repartition topic; use `sent_into`.

    Example:
        >>> found = CommittedMetadata.decode('{"streamrt":1,"stores":{"orders":{"default":"x1"}}}')
        >>> found.names("orders", "default"), found.contradicts("orders", "default", "x2")
        (True, True)
        >>> CommittedMetadata.decode("by hand").format
        0
    """

    format: int = 0
    stores: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)
    owner: str | None = None
    claim: int = 0
    sent: Mapping[str, Sent] = field(default_factory=dict)
    partitions: int = 0
    topic: str | None = None
    due: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def decode(cls, text: str | None) -> "CommittedMetadata":
        """Decode a text; invalid fields are ignored."""
        document = _read_document(text)
        if document is None:
            return cls()
        stores, digests = document.get("stores"), document.get("digests")
        owner, claim, sent = document.get("owner"), document.get("claim"), document.get("sent")
        partitions, topic, due = document.get("partitions"), document.get("topic"), document.get("due")
        return cls(
            document["streamrt"],
            {
                scope: {store: name for store, name in named.items() if name is None or isinstance(name, str)}
                for scope, named in (stores.items() if isinstance(stores, dict) else ())
                if isinstance(named, dict)
            },
            dict(_pair_digests(digests) if isinstance(digests, str) else ()),
            owner if isinstance(owner, str) else None,
            claim if type(claim) is int and 0 < claim <= _HIGHEST_CLAIM else 0,
            dict(_read_sent(sent)) if isinstance(sent, dict) else {},
            partitions if type(partitions) is int and 0 < partitions <= _MOST_PARTITIONS else 0,
            topic if isinstance(topic, str) else None,
            {name: at for name, at in due.items() if _is_time(at)} if isinstance(due, dict) else {},
        )

    def names(self, scope: str, store: str) -> bool:
        """Return whether records were processed with a store."""
        return store in self.stores.get(scope, {}) or _digest_names(scope, store) in self.digests

    def names_any(self, scope: str) -> bool:
        """Return whether records were processed with any store of a scope; with digests, of any scope."""
        return scope in self.stores or bool(self.digests)

    def contradicts(self, scope: str, store: str, changelog_id: str | None) -> bool:
        """Return whether a store had a changelog with another id; False if either id is unknown."""
        if changelog_id is None:
            return False
        former = self.stores.get(scope, {}).get(store)
        if former is not None:
            return former != changelog_id
        digest = self.digests.get(_digest_names(scope, store), _NO_CHANGELOG)
        return digest not in (_NO_CHANGELOG, _digest_names(changelog_id))

    def sent_into(self, topic: str) -> Sent | None:
        """Return the event time sent into a repartition topic; None if there is no entry for it."""
        digest = _digest_names(topic)
        found = self.sent.get(topic, self.sent.get(digest))
        return found if found is None or not found.pending else found._replace(deadline=self.due.get(digest))


@dataclass(frozen=True)
class CommitMetadata:
    """Composes the metadata of an application's committed offsets.

    Attributes:
        stores: the ids of changelogs by scope and store.
        members: the topics of each scope of merged topics.
        owners: for merged topics, the topic whose transactional id moves the offsets, if it is another one.
        first_counts: partition count of each input topic when the group committed for the first time.
        topic_ids: Kafka's ids of the input topics, as far as they are known.

    Example:
        >>> metadata = CommitMetadata({"orders": {"default": "x1"}})
        >>> metadata.encode(TopicPartition("orders", 0))
        '{"streamrt":2,"stores":{"orders":{"default":"x1"}}}'
        >>> metadata.encode(TopicPartition("other", 0)) is None
        True
    """

    stores: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    members: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    owners: Mapping[str, str] = field(default_factory=dict)
    first_counts: Mapping[str, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str | None] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        state: StateSettings | None,
        streams: Mapping[str, Collection[str]],
        sends: Mapping[str, Collection[str]] | None = None,
        first_counts: Mapping[str, int] | None = None,
        topic_ids: Mapping[str, str | None] | None = None,
    ) -> "CommitMetadata":
        """Return the `CommitMetadata` of an application.

        Args:
            state: its stores.
            streams: the topics of each stream.
            sends: the exchanges that watermarks pass and that each stream sends into.
            first_counts: partition count of each input topic when the group committed for the first time.
            topic_ids: Kafka's ids of the input topics, as far as they are known.

        Raises:
            ConfigurationError: if a topic has more stores, or feeds more exchanges, than the metadata can hold.
        """
        sources = {} if state is None else state.sources
        made = cls(
            {
                scope: {store: None if log is None else log.id for store, log in sorted(source.stores.items())}
                for scope, source in sorted(sources.items())
            },
            {scope: source.topics for scope, source in sources.items() if source.topics},
            {topic: min(topics) for topics in streams.values() for topic in topics if topic != min(topics)},
            first_counts or {},
            topic_ids or {},
        )
        for topic in {topic for topics in streams.values() for topic in topics}:
            made._state_of(topic)
        for exchanges in (sends or {}).values():
            _fit_sent(dict.fromkeys(exchanges, Sent(_LATEST, pending=True)))
        return made

    def encode(
        self,
        partition: TopicPartition,
        *,
        claim: int = 0,
        sent: Mapping[str, Sent] | None = None,
    ) -> str | None:
        """Return the metadata for an offset of an input partition; None if it would be empty.

        Args:
            partition: the input partition.
            claim: number of the claim under which its records were processed.
            sent: event times sent, by repartition topic.

        Raises:
            ConfigurationError: if it is too large.
        """
        document: dict[str, Any] = {"streamrt": _FORMAT, **self._state_of(partition.topic)}
        if partition.topic in self.owners:
            document["owner"] = self.owners[partition.topic]
        if claim:
            document["claim"] = claim
        if partition.topic in self.first_counts:
            document["partitions"] = self.first_counts[partition.topic]
        document |= self._topic_identity(partition.topic)
        if sent:
            document |= _fit_sent(sent)
        return _dump_document(document) if len(document) > 1 else None

    def describes(self, partition: TopicPartition, text: str | None) -> bool:
        """Return whether the metadata of an input is from an application version with the same stores and streams.

        Example:
            >>> metadata = CommitMetadata({"orders": {"default": "x1"}}, first_counts={"orders": 4})
            >>> partition = TopicPartition("orders", 0)
            >>> metadata.describes(partition, metadata.encode(partition))
            True
            >>> metadata.describes(partition, metadata.first(partition))
            True
            >>> metadata.describes(partition, CommitMetadata().encode(partition))
            False
        """
        return self._version(partition.topic) == _version(_read_document(text) or {})

    def first(self, partition: TopicPartition) -> str:
        """Return the metadata for the first offset of an input partition, which has no state.

        Example:
            >>> CommitMetadata(first_counts={"orders": 4}).first(TopicPartition("orders", 0))
            '{"streamrt":2,"partitions":4}'
        """
        count = self.first_counts.get(partition.topic)
        known = {} if count is None else {"partitions": count}
        known |= self._topic_identity(partition.topic)
        return self.followed(partition, _dump_document({"streamrt": _FORMAT, **known})) if known else ""

    def followed(self, partition: TopicPartition, text: str) -> str:
        """Return the metadata for an offset that this version claims; data about the state of former versions stays."""
        if self.describes(partition, text):
            return text
        return claimed(text, owner=CommittedMetadata.decode(text).owner, version=self._version(partition.topic))

    def _topic_identity(self, topic: str) -> dict[str, Any]:
        topic_id = self.topic_ids.get(topic)
        return {} if topic_id is None else {"topic": topic_id}

    def _version(self, topic: str) -> str:
        return _version({**self._state_of(topic), "owner": self.owners.get(topic)})

    def encode_all(
        self,
        partitions: Iterable[TopicPartition],
        claims: Mapping[TopicPartition, int] | None = None,
        sent: Mapping[TopicPartition, Mapping[str, Sent]] | None = None,
    ) -> dict[TopicPartition, str | None]:
        """Return the metadata for offsets of input partitions.

        Args:
            partitions: the input partitions.
            claims: numbers of claims, by input partition.
            sent: event times sent, by repartition topic.
        """
        claims, sent = claims or {}, sent or {}
        return {
            partition: self.encode(partition, claim=claims.get(partition, 0), sent=sent.get(partition))
            for partition in partitions
        }

    def _state_of(self, topic: str) -> dict[str, Any]:
        stores = {
            scope: dict(each) for scope, each in self.stores.items() if topic in self.members.get(scope, (scope,))
        }
        if not any(stores.values()):
            return {}
        if len(_dump_document({"stores": stores}).encode()) <= _LIMIT - SENT_ROOM - _CLAIM_ROOM:
            return {"stores": stores}
        digests = "".join(
            _digest_names(scope, store) + (_NO_CHANGELOG if name is None else _digest_names(name))
            for scope, each in stores.items()
            for store, name in each.items()
        )
        if len(digests) > _LIMIT - SENT_ROOM - _CLAIM_ROOM:
            raise ConfigurationError(
                f"topic {topic!r} has {len(digests) // (2 * _DIGEST)} stores, but the metadata of a committed offset can "
                f"name only {(_LIMIT - SENT_ROOM - _CLAIM_ROOM) // (2 * _DIGEST)}; split the application"
            )
        return {"digests": digests}


def first_counts(committed: Mapping[TopicPartition, CommittedOffset], counts: Mapping[str, int]) -> dict[str, int]:
    """Return the partition counts of topics when the group committed for the first time.

    Each commit repeats the count of the first one, so any remaining commit is sufficient. Commits of former versions or
    of tools have no count: then the partitions with offsets determine it.

    Args:
        committed: the committed offsets of all partitions of the topics.
        counts: the current partition counts of the topics.

    Example:
        >>> first_counts({TopicPartition("orders", 0): CommittedOffset(7)}, {"orders": 4, "customers": 3})
        {'orders': 1, 'customers': 3}
    """
    told: dict[str, int] = {}
    begun: dict[str, int] = {}
    for (topic, partition), entry in committed.items():
        if entry.offset is None:
            continue
        begun[topic] = max(partition + 1, begun.get(topic, 0))
        count = CommittedMetadata.decode(entry.metadata).partitions
        if count:
            told[topic] = min(count, told.get(topic, count))
    return {topic: told.get(topic, begun.get(topic, count)) for topic, count in counts.items()}


def sent_before(notes: Mapping[TopicPartition, CommittedMetadata], topology: Topology) -> dict[TaskId, dict[str, int]]:
    """Return the highest event times that tasks had sent when they committed, by task and repartition topic.

    Args:
        notes: the decoded metadata of input partitions.
        topology: the operators, resolved.
    """
    found: dict[TaskId, dict[str, int]] = {}
    for partition, note in notes.items():
        task = topology.task(partition)
        for topic in topology.sends(task.stream):
            sent = note.sent_into(topic)
            if sent is not None and sent.time is not None:
                known = found.setdefault(task, {})
                known[topic] = max(sent.time, known.get(topic, sent.time))
    return found


def claimed(text: str | None, *, owner: str | None = None, claim: int = 0, version: str | None = None) -> str:
    """Return the metadata of an offset with another claim; its data about state stays.

    Args:
        text: the current metadata.
        owner: the input topic whose transactional id moves the offset; None for the partition's own.
        claim: number of the claim; 0 for none.
        version: the application version that claims the offset, if it is new.

    Example:
        >>> claimed('{"streamrt":1,"stores":{"orders":{"default":"x1"}}}', claim=7)
        '{"streamrt":2,"stores":{"orders":{"default":"x1"}},"claim":7}'
    """
    document = _read_document(text) or {}
    fields = {name: value for name, value in document.items() if name not in ("streamrt", "owner", "claim")}
    if owner is not None:
        fields["owner"] = owner
    if claim:
        fields["claim"] = claim
    if version is not None:
        fields["version"] = version
    claimed_text = _dump_document({"streamrt": _FORMAT, **fields})
    if len(claimed_text.encode()) > _LIMIT and "stores" in fields:
        # Format 1 names the stores of all topics, and may fill the whole text.
        stores = CommittedMetadata.decode(text).stores
        fields["digests"] = "".join(
            _digest_names(scope, store) + (_NO_CHANGELOG if name is None else _digest_names(name))
            for scope, each in stores.items()
            for store, name in each.items()
        )
        del fields["stores"]
        claimed_text = _dump_document({"streamrt": _FORMAT, **fields})
    return claimed_text


def without_store(text: str, scope: str, store: str) -> str:
    """Return the metadata of an offset without a store, as if no records had been processed with the store.

    Example:
        >>> without_store('{"streamrt":2,"stores":{"orders":{"a":"x1","b":"x2"}}}', "orders", "a")
        '{"streamrt":2,"stores":{"orders":{"b":"x2"}}}'
    """
    document = _read_document(text)
    if document is None:
        return text
    stores = document.get("stores")
    if isinstance(stores, dict) and isinstance(stores.get(scope), dict):
        stores[scope].pop(store, None)
        if not stores[scope]:
            del stores[scope]
    digests = document.get("digests")
    if isinstance(digests, str):
        kept = ((name, former) for name, former in _pair_digests(digests) if name != _digest_names(scope, store))
        document["digests"] = "".join(name + former for name, former in kept)
    return _dump_document(document)


def _read_document(text: str | None) -> dict[str, Any] | None:
    """Return the fields of a text that StreamRT wrote; None for any other text."""
    try:
        document = json_object(text or "")
        read_field(document, "streamrt", int)
    except ValueError:
        return None
    return document


def _pair_digests(digests: str) -> Iterable[tuple[str, str]]:
    size = 2 * _DIGEST
    whole = range(0, len(digests) - size + 1, size)
    return ((digests[at : at + _DIGEST], digests[at + _DIGEST : at + size]) for at in whole)


def _version(document: Mapping[str, Any]) -> str:
    """Return the application version that composed a text."""
    told = document.get("version")
    if isinstance(told, str):
        return told
    state = {name: document[name] for name in ("stores", "digests", "owner") if document.get(name)}
    return _digest_names(json.dumps(state, sort_keys=True))


def _digest_names(*names: str) -> str:
    """Return four characters that encode 24 bits of a hash of the names."""
    whole = hashlib.sha256("\0".join(names).encode("utf-8", "surrogatepass")).digest()
    return base64.urlsafe_b64encode(whole[:3]).decode()


def _read_sent(document: Mapping[str, Any]) -> Iterable[tuple[str, Sent]]:
    for name, told in document.items():
        pending = isinstance(told, list) and len(told) == 1
        time = told[0] if pending else told
        if _is_time(time) or (pending and time is None):
            yield name, Sent(time, pending)


def _fit_sent(sent: Mapping[str, Sent]) -> dict[str, Any]:
    """Return the fields of event times sent: by topic name, or by digest of the name if the names do not fit.

    When open windows are due is left out if it does not fit either.
    """
    named = {topic: [each.time] if each.pending else each.time for topic, each in sorted(sent.items())}
    short = {_digest_names(topic): told for topic, told in named.items()}
    due = {_digest_names(topic): each.deadline for topic, each in sorted(sent.items()) if each.deadline is not None}
    for more in ({"due": due}, {}) if due else ({},):
        for told in (named, short):
            document = {"sent": told, **more}
            if len(_dump_document(document).encode()) - len('"sent":,') <= SENT_ROOM:
                return document
    raise ConfigurationError(
        f"a partition feeds {len(sent)} repartition topics, more than the metadata of a committed offset can name: "
        "split the application"
    )


def _is_time(value: Any) -> bool:
    return type(value) is int and LOWEST <= value <= HIGHEST


def _dump_document(document: Mapping[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"))
