"""Lets an application start over: without state, and at chosen offsets of its input topics.

The steps come in an order in which the application is safe after each of them, if the process ends there:

1. The changelogs of stores are deleted. The metadata of the committed offsets still name the stores, so a start is
   refused now, as if state had been lost. An application without stores goes on as before.
2. The state on this machine is deleted. Alone it would be made again from the changelogs; without changelogs, a start is
   refused as well.
3. The offsets are committed, without metadata, in one request: those of inputs as wanted, those of repartition topics at
   their ends. With this step the application has started over: there is no state, and no record waits between its parts.
4. The repartition topics are deleted, which hold nothing any more. Kafka forgets their committed offsets with them.

With the offsets first, a start would count records again into the old state. With the repartition topics before the
offsets, a start would miss the records in them. A reset that did not end is run again, and finds what is left.
"""

import logging
import shutil
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

from streamrt.common.backoff import Backoff
from streamrt.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    InvalidOperationError,
    OffsetOutOfRangeError,
    StaleTokenError,
)
from streamrt.kafka import KafkaRequestError, TopicAdmin
from streamrt.kafka.token import Offsets
from streamrt.records import TopicPartition
from streamrt.runtime.driver.definition import ApplicationDefinition
from streamrt.runtime.driver.directory import group_directory, locked_parts
from streamrt.runtime.metadata import CommittedMetadata
from streamrt.topics import changelog_topic_name
from streamrt.topics.internal import repartition_prefix
from streamrt.topology import Topology

__all__ = ["Reset", "ResetReport", "ResetTo"]

logger = logging.getLogger("streamrt")

ResetTo = Literal["earliest", "latest"] | datetime | Offsets
"""Where an application begins after a reset; a time without a zone is in UTC."""

_JOINED = "--"
_GONE_S = 0.1


@dataclass(frozen=True)
class ResetReport:
    """What a reset has done, or would do.

    Attributes:
        group: the consumer group.
        dry_run: whether nothing was changed.
        offsets: the offsets of the input topics from which the application begins.
        changelogs: the deleted changelog topics.
        repartition_topics: the deleted repartition topics.
        directories: the deleted directories on this machine.
        kept: internal topics that look like those of the application and were not deleted: they may belong to a former
            version, or to a group whose name begins with that of this one.
    """

    group: str
    dry_run: bool
    offsets: Offsets
    changelogs: tuple[str, ...] = ()
    repartition_topics: tuple[str, ...] = ()
    directories: tuple[Path, ...] = ()
    kept: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """Yield one line for each item."""
        verb = "would be deleted" if self.dry_run else "deleted"
        for topic in (*self.changelogs, *self.repartition_topics):
            yield f"the topic {topic}: {verb}"
        for path in self.directories:
            yield f"the directory {path}: {verb}"
        for topic in self.offsets.topics:
            listed = ", ".join(f"{number}: {offset}" for number, offset in self.offsets.partition_map(topic).items())
            yield f"{topic}: {'would begin' if self.dry_run else 'begins'} at offset {listed} (by partition)"
        for topic in self.kept:
            yield f"the topic {topic}: kept; delete it if it belongs to a former version of this application"

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON has it."""
        return {
            "group": self.group,
            "dry_run": self.dry_run,
            "offsets": {topic: self.offsets.partition_map(topic) for topic in self.offsets.topics},
            "changelogs": list(self.changelogs),
            "repartition_topics": list(self.repartition_topics),
            "directories": [str(path) for path in self.directories],
            "kept": list(self.kept),
        }


@dataclass(frozen=True)
class Reset:
    """What a reset deletes, and where the application begins then.

    Attributes:
        admin: client for topics and offsets.
        state_dir: the state directory.
        timeout: seconds to wait for each response of the cluster.
        result: what it will have done.
        ends: the ends of the repartition topics.
    """

    admin: TopicAdmin
    state_dir: Path
    timeout: float
    result: ResetReport
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)

    @classmethod
    def find(cls, admin: TopicAdmin, definition: ApplicationDefinition, to: ResetTo) -> "Reset":
        """Look at what an application has. Nothing is changed.

        Args:
            admin: client for topics and offsets.
            definition: the application.
            to: where it begins.

        Raises:
            InvalidOperationError: if the consumer group has members, or an instance on this machine runs.
            ArgumentValueError: if offsets of input partitions are missing, or are of other topics.
            OffsetOutOfRangeError: if an offset is not in its partition.
            StaleTokenError: if a topic was deleted since the offsets were made.
            KafkaRequestError: if Kafka does not respond.
        """
        config, topology = definition.config, definition.topology
        group, timeout, state_dir = config.consumer_group, config.request_timeout, config.state_dir.absolute()
        _require_start(to)
        if admin.group_is_active(group, timeout=timeout):
            raise InvalidOperationError(
                f"consumer group {group!r} has members: stop all instances of the application before you reset it; killed "
                "instances count until their sessions time out"
            )
        internal = admin.topic_names(repartition_prefix(group), timeout=timeout)
        inputs = [topic for topic in topology.sources if topic not in topology.exchanges]
        found = _partitions(admin, [*inputs, *internal], timeout)
        # Waits for transactions that would move an offset after the reset.
        committed = admin.committed_stable(group, found, timeout=timeout) if found else {}
        notes = {
            each: CommittedMetadata.decode(entry.metadata)
            for each, entry in committed.items()
            if entry.offset is not None
        }
        theirs = {each.topic for each in notes}
        repartition = [topic for topic in internal if topic in topology.exchanges or topic in theirs]
        logs = {*_changelogs(topology, group), *_named_changelogs(notes.values(), group)}
        existing = admin.topic_names(f"changelog__{group}{_JOINED}", timeout=timeout)
        of_sources = {topic.name for topic in definition.sources.changelog_topics()}
        with locked_parts(state_dir, group) as parts:
            directories = tuple(parts)
        mine = [each for each in found if each.topic in inputs]
        ends = admin.offset_bounds([each for each in found if each.topic in repartition], timeout=timeout)
        report = ResetReport(
            group,
            dry_run=False,
            offsets=_start_offsets(admin, to, mine, topology, timeout),
            changelogs=tuple(topic for topic in existing if topic in logs),
            repartition_topics=tuple(repartition),
            directories=directories,
            kept=tuple(
                topic for topic in (*existing, *internal) if topic not in {*logs, *repartition, *of_sources, *inputs}
            ),
        )
        return cls(admin, state_dir, timeout, report, {each: end for each, (_, end) in ends.items()})

    def report(self, *, dry_run: bool) -> ResetReport:
        """Return what was done, or would be done.

        Args:
            dry_run: whether it was not done.
        """
        made = self.result
        lists = (made.changelogs, made.repartition_topics, made.directories, made.kept)
        return ResetReport(made.group, dry_run, made.offsets, *lists)

    def run(self) -> None:
        """Do all of it.

        Raises:
            InvalidOperationError: if an instance on this machine runs.
            KafkaRequestError: if Kafka does not respond, or refuses a request. A second call continues.
        """
        for step in self.steps():
            logger.info("reset of consumer group %r: %s", self.result.group, step)

    def steps(self) -> Iterator[str]:
        """Do one step after the other, in the order that the module describes, and yield what was done."""
        group = self.result.group
        # No instance can start on this machine until all is done.
        with locked_parts(self.state_dir, group) as parts:
            self._delete(self.result.changelogs)
            yield "the changelogs are deleted"
            for part in parts:
                shutil.rmtree(part)
            (group_directory(self.state_dir, group) / "owner.json").unlink(missing_ok=True)
            yield "the state on this machine is deleted"
            # Kafka refuses this if an instance has joined the group meanwhile.
            self.admin.set_committed(group, {**self.result.offsets, **self.ends})
            yield "the offsets are set"
            self._delete(self.result.repartition_topics)
            self._await_forgotten()
            yield "the repartition topics are deleted"

    def _delete(self, topics: Collection[str]) -> None:
        """Delete topics, and wait until they are gone: the next start creates some of them again."""
        self.admin.delete_topics(topics, timeout=self.timeout)
        backoff = Backoff(_GONE_S, time.monotonic() + self.timeout)
        left = list(topics)
        while left:
            ids = self.admin.topic_ids(left, timeout=self.timeout)
            left = [topic for topic in left if ids[topic] is not None]
            if left and not backoff.pause():
                raise KafkaRequestError(
                    f"{', '.join(left)} was deleted, and still exists after {self.timeout:g} s: run the reset again",
                    retriable=True,
                )

    def _await_forgotten(self) -> None:
        """Wait until Kafka has forgotten the offsets of the deleted topics: new topics of these names begin at 0."""
        backoff = Backoff(_GONE_S, time.monotonic() + self.timeout)
        while True:
            found = self.admin.committed_now(self.result.group, list(self.ends), timeout=self.timeout)
            left = sorted(partition for partition, entry in found.items() if entry.offset is not None)
            if not left:
                return
            if not backoff.pause():
                raise KafkaRequestError(
                    f"{left[0].topic} was deleted, and consumer group {self.result.group!r} still has a committed offset for "
                    f"{left[0]} after {self.timeout:g} s: delete this offset with the tools of Kafka before the next start"
                )


def _require_start(to: object) -> None:
    if isinstance(to, str) and to not in ("earliest", "latest"):
        raise ArgumentValueError(f"reset(to={to!r}): give 'earliest', 'latest', a datetime, or Offsets")
    if not isinstance(to, str | datetime | Offsets):
        raise ArgumentTypeError(
            f"reset(to=...) must be 'earliest', 'latest', a datetime, or Offsets, got {type(to).__name__}"
        )


def _partitions(admin: TopicAdmin, topics: Collection[str], timeout: float) -> list[TopicPartition]:
    """Return the partitions of the topics that exist."""
    return [
        TopicPartition(topic, number)
        for topic, config in admin.inspect_topics(topics, timeout=timeout).items()
        for number in range(0 if config is None else config.num_partitions or 0)
    ]


def _changelogs(topology: Topology, group: str) -> Iterator[str]:
    """Yield the names of the changelogs that the application uses, for any number of partitions of its inputs."""
    inputs = [topic for topic in topology.sources if topic not in topology.exchanges]
    for form in (topology, topology.resolve(dict.fromkeys(inputs, 1))):
        for scope in form.scopes:
            yield from (changelog_topic_name(group, scope, store.name) for store in form.stores(scope))


def _named_changelogs(notes: Collection[CommittedMetadata], group: str) -> Iterator[str]:
    """Yield the names of the changelogs of stores, also of former versions, that committed offsets name."""
    for note in notes:
        for scope, stores in note.stores.items():
            yield from (changelog_topic_name(group, scope, store) for store in stores)


def _start_offsets(
    admin: TopicAdmin, to: ResetTo, partitions: Collection[TopicPartition], topology: Topology, timeout: float
) -> Offsets:
    """Return the offsets of the input partitions."""
    topics = sorted({partition.topic for partition in partitions})
    ids = {topic: known for topic, known in admin.topic_ids(topics, timeout=timeout).items() if known is not None}
    bounds = admin.offset_bounds(partitions, timeout=timeout)
    if isinstance(to, datetime):
        at = to if to.tzinfo is not None else to.replace(tzinfo=timezone.utc)
        return Offsets(admin.offsets_at(partitions, round(at.timestamp() * 1_000), timeout=timeout), ids)
    if not isinstance(to, Offsets):
        return Offsets({each: low if to == "earliest" else high for each, (low, high) in bounds.items()}, ids)
    for topic in to.topics:
        if topic not in topology.sources:
            raise ArgumentValueError(f"reset() got offsets of {topic}, which the application does not read")
        if topic in ids and to.ids.get(topic, ids[topic]) != ids[topic]:
            raise StaleTokenError(
                f"topic {topic!r} was deleted and created again since the offsets were made, so they mean no records that "
                "exist: reset to 'earliest', 'latest' or a time"
            )
    for each, (low, high) in sorted(bounds.items()):
        if each not in to:
            raise ArgumentValueError(
                f"reset() got no offset of {each}: give one for each partition of the input topics"
            )
        if not low <= to[each] <= high:
            raise OffsetOutOfRangeError(f"reset() got offset {to[each]} of {each}, which has offsets {low} to {high}")
    return Offsets({each: to[each] for each in bounds}, ids)
