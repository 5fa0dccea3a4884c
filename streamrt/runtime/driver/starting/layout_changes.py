"""Changes that a start of this version would make to what is deployed. Pure decisions, no cluster access.

The committed offsets of a group say which stores their records were processed with, and under which guarantee: see
`streamrt.runtime.metadata`. The rest is compared with the topics of the cluster.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from streamrt.config import ProcessingGuarantee
from streamrt.kafka import TopicConfig
from streamrt.kafka.cluster.committed import CommittedOffset
from streamrt.records import TopicPartition
from streamrt.runtime.metadata import CommittedMetadata
from streamrt.topics.settings import config_differences

__all__ = ["Change", "Deployed", "Kind", "guarantee_changes", "input_changes", "store_changes", "topic_changes"]

StoreName = tuple[str, str]
"""Scope and name of a store."""

_KEPT = ("max.message.bytes", "message.timestamp.type", "min.insync.replicas", "retention.bytes")
"""Options that internal topics get when they are created, and that the checks of a start do not compare."""


class Kind(str, Enum):
    """The meaning of a finding for a start."""

    OK = "ok"
    CHANGE = "change"
    WARNING = "warning"
    LOSES_STATE = "loses state"
    REFUSED = "refused"


@dataclass(frozen=True)
class Change:
    """One finding.

    Attributes:
        kind: what it means for a start.
        subject: what it is about, such as "topic orders".
        detail: what was found, or what would happen.
        remedy: what to do; empty if nothing.
    """

    kind: Kind
    subject: str
    detail: str
    remedy: str = ""

    def as_dict(self) -> dict[str, str | None]:
        """Return the finding for JSON."""
        return {
            "kind": self.kind.value,
            "subject": self.subject,
            "detail": self.detail,
            "remedy": self.remedy or None,
        }


@dataclass(frozen=True)
class Deployed:
    """The facts that the committed offsets of a group tell about the version that committed them.

    Attributes:
        offsets: the committed offsets.
        notes: their decoded metadata.

    Example:
        >>> partition = TopicPartition("orders", 0)
        >>> text = '{"streamrt":2,"stores":{"orders":{"default":"x1"}},"claim":7}'
        >>> deployed = Deployed.of({partition: CommittedOffset(12, text)})
        >>> deployed.stores, deployed.guarantee
        ({('orders', 'default'): True}, 'at-least-once')
    """

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    notes: Mapping[TopicPartition, CommittedMetadata] = field(default_factory=dict)

    @classmethod
    def of(cls, committed: Mapping[TopicPartition, CommittedOffset]) -> "Deployed":
        """Return what committed offsets tell.

        Args:
            committed: the committed offsets; entries without an offset are ignored.
        """
        known = {each: entry for each, entry in committed.items() if entry.offset is not None}
        return cls(
            {each: entry.offset for each, entry in known.items() if entry.offset is not None},
            {each: CommittedMetadata.decode(entry.metadata) for each, entry in known.items()},
        )

    @property
    def topics(self) -> frozenset[str]:
        """The topics of which the group has committed an offset."""
        return frozenset(each.topic for each in self.offsets)

    @property
    def stores(self) -> dict[StoreName, bool]:
        """The named stores, each with whether it has a changelog."""
        return {
            (scope, store): changelog is not None
            for note in self.notes.values()
            for scope, stores in note.stores.items()
            for store, changelog in stores.items()
        }

    @property
    def guarantee(self) -> ProcessingGuarantee | None:
        """The guarantee of the last commits, which only state with a changelog records; None without such state."""
        marked = [note for note in self.notes.values() if any(any(each.values()) for each in note.stores.values())]
        if not marked:
            return None
        return "at-least-once" if any(note.claim for note in marked) else "exactly-once"

    def has(self, scope: str, store: str) -> bool:
        """Return whether records were processed with a store."""
        return any(note.names(scope, store) for note in self.notes.values())

    def unnamed(self, known: Collection[StoreName]) -> int:
        """Return how many stores exist only as digests that none of the known stores has."""
        shortened = [note for note in self.notes.values() if note.digests]
        return max((len(note.digests) - sum(note.names(*name) for name in known) for note in shortened), default=0)


def store_changes(
    deployed: Deployed, stores: Mapping[StoreName, Collection[str]], *, changelogs: bool
) -> Iterator[Change]:
    """Yield what becomes of each store.

    Args:
        deployed: what the group has committed.
        stores: the topics of each store of this version.
        changelogs: whether this version keeps changelogs.

    Example:
        >>> text = '{"streamrt":2,"stores":{"orders":{"a":"x1"}}}'
        >>> deployed = Deployed.of({TopicPartition("orders", 0): CommittedOffset(12, text)})
        >>> found = store_changes(deployed, {("orders", "b"): ["orders"]}, changelogs=True)
        >>> [(each.kind.value, each.subject) for each in found]
        [('loses state', "store 'a' of orders"), ('change', "store 'b' of orders")]
    """
    before = deployed.stores
    new = [name for name in stores if not deployed.has(*name)]
    for scope, store in sorted(before.keys() - stores.keys()):
        yield _describe_missing_store(scope, store, new)
    unnamed = deployed.unnamed(stores)
    if unnamed > 0:
        yield Change(
            Kind.LOSES_STATE,
            "stores",
            f"this version does not have {unnamed} of the stores that the last commits refer to by digests",
            "keep names and windows of all stores, or start with another consumer_group",
        )
    for scope, store in sorted(stores):
        subject = f"store {store!r} of {scope}"
        if (scope, store) in new:
            begun = not deployed.topics.isdisjoint(stores[scope, store])
            detail = "is new: it begins empty at the committed offsets, without earlier records" if begun else "is new"
            yield Change(Kind.CHANGE, subject, detail)
        elif before.get((scope, store)) and not changelogs:
            yield Change(
                Kind.LOSES_STATE,
                subject,
                "has a changelog that use_changelog_topics=False no longer uses: its state is on the disks of the machines "
                "that run it now, and nowhere else",
                "keep use_changelog_topics=True",
            )
        else:
            yield Change(Kind.OK, subject, "continues")


def _describe_missing_store(scope: str, store: str, new: Collection[StoreName]) -> Change:
    subject = f"store {store!r} of {scope}"
    beside = sorted(name for other, name in new if other == scope)
    elsewhere = sorted(other for other, name in new if name == store)
    if elsewhere:
        detail = f"belongs to {elsewhere[0]} now, and begins empty there: its topics or a group_by have changed"
        return Change(Kind.LOSES_STATE, subject, detail, f"read and group {scope} as before")
    if beside:
        listed = ", ".join(map(repr, beside))
        detail = f"is gone; if it was renamed to {listed}, the new one begins empty"
        made_of = f"keep the name {store!r}, or what it is made of: its grouping, its windows"
        return Change(Kind.LOSES_STATE, subject, detail, made_of)
    return Change(
        Kind.LOSES_STATE,
        subject,
        "is gone: from the first commit on it misses records, so a later version cannot continue with it",
        "keep its operator if its state is needed",
    )


def guarantee_changes(deployed: Deployed, guarantee: ProcessingGuarantee) -> Iterator[Change]:
    """Yield the change of the guarantee, if the committed offsets tell the former one.

    Args:
        deployed: what the group has committed.
        guarantee: that of this version.
    """
    before = deployed.guarantee
    if before is None:
        return
    if before == guarantee:
        yield Change(Kind.OK, "guarantee", f"{guarantee}, as before")
    elif guarantee == "exactly-once":
        yield Change(
            Kind.CHANGE,
            "guarantee",
            "from at-least-once to exactly-once: state keeps records that it has counted twice before",
            "let consumers of the outputs read with isolation.level=read_committed",
        )
    else:
        yield Change(
            Kind.CHANGE,
            "guarantee",
            "from exactly-once to at-least-once: after a crash, outputs may repeat, and state may count records twice",
        )


def input_changes(
    deployed: Deployed, inputs: Mapping[str, int], first_counts: Mapping[str, int], created: Collection[str]
) -> Iterator[Change]:
    """Yield which inputs were added, removed, or got more partitions.

    Args:
        deployed: what the group has committed; without offsets of internal topics.
        inputs: partition count of each input topic.
        first_counts: partition counts when the group committed for the first time.
        created: the topics that would be created.
    """
    for topic, count in sorted(inputs.items()):
        subject = f"input {topic}"
        first = first_counts.get(topic, count)
        if topic in created:
            yield Change(Kind.CHANGE, subject, f"does not exist, and will be created with {_format_count(count)}")
        elif topic not in deployed.topics:
            added = "is added" if deployed.topics else "is read for the first time"
            yield Change(Kind.CHANGE, subject, f"{added}: {_format_count(count)}")
        elif first < count:
            yield Change(
                Kind.CHANGE,
                subject,
                f"has {_format_count(count)}, and had {first} when the group began: the new ones are read from their "
                "first record",
            )
        else:
            yield Change(Kind.OK, subject, f"{_format_count(count)}, as before")
    for topic in sorted(deployed.topics - inputs.keys()):
        offsets = [offset for each, offset in sorted(deployed.offsets.items()) if each.topic == topic]
        listed = ", ".join(map(str, offsets))
        yield Change(
            Kind.CHANGE,
            f"input {topic}",
            f"is removed: its records from offset {listed} on (by partition) are not processed",
        )


def topic_changes(
    wanted: Mapping[str, TopicConfig], actual: Mapping[str, TopicConfig | None], created: Mapping[str, TopicConfig]
) -> Iterator[Change]:
    """Yield which internal topics and outputs are created, and which internal ones have other options than StreamRT sets.

    Args:
        wanted: settings that StreamRT would give each internal topic now; without options for other topics.
        actual: settings in the cluster; None for missing topics.
        created: settings of the topics that would be created.
    """
    for topic, config in sorted(wanted.items()):
        subject = f"topic {topic}"
        if topic in created:
            options = "".join(f", {name}={value}" for name, value in sorted(created[topic].extra_config.items()))
            count = _format_count(created[topic].num_partitions or 1)
            yield Change(Kind.CHANGE, subject, f"will be created: {count}{options}")
            continue
        found = actual.get(topic)
        if found is None:
            # A start would refuse this, or has no use for the topic.
            continue
        kept = {name: config.extra_config[name] for name in _KEPT if name in config.extra_config}
        differences = config_differences(TopicConfig(None, None, kept), found)
        if differences:
            yield Change(
                Kind.WARNING,
                subject,
                f"{'; '.join(differences)}: a start does not change existing topics",
                f"set {', '.join(f'{name}={value}' for name, value in sorted(kept.items()))}",
            )
        else:
            yield Change(Kind.OK, subject, "exists")


def _format_count(count: int) -> str:
    return f"{count} partition{'' if count == 1 else 's'}"
