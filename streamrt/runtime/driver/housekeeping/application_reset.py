"""Lets an application start over: without state, and at chosen offsets of its input topics.

The steps come in an order in which the application is safe after each of them, if the process ends there:

1. The changelogs of stores, and the layout of the group, are deleted. The metadata of the committed offsets still name
   the stores, so a start is refused now, as if state had been lost. An application without stores goes on as before.
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
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

from streamrt.arguments import checked, type_name
from streamrt.common.backoff import Backoff
from streamrt.errors import (
    ArgumentValueError,
    InvalidOperationError,
    OffsetOutOfRangeError,
    StaleTokenError,
)
from streamrt.kafka import KafkaRequestError, TopicAdmin
from streamrt.kafka.cluster.topic_ids import confirmed_ids
from streamrt.kafka.completion_token import Offsets
from streamrt.records import TopicPartition
from streamrt.relations import find_request_topics
from streamrt.runtime.driver.housekeeping.state_directory import group_directory, locked_parts
from streamrt.runtime.driver.starting.definition import ApplicationDefinition
from streamrt.runtime.metadata import CommittedMetadata
from streamrt.topics import changelog_topic_name
from streamrt.topics.internal import changelog_prefix, layout_topic_name, repartition_prefix
from streamrt.topology import Topology

__all__ = ["Reset", "ResetReport", "ResetTo"]

logger = logging.getLogger("streamrt")

ResetTo = Literal["earliest", "latest"] | datetime | Offsets
"""Where an application begins after a reset; a time without a zone is in UTC."""

_GONE_S = 0.1


@dataclass(frozen=True)
class ResetReport:
    """The changes that a reset has made, or would make.

    Attributes:
        group: the consumer group.
        dry_run: whether nothing was changed.
        offsets: the offsets of the input topics from which the application begins.
        changelogs: the deleted changelog topics.
        repartition_topics: the deleted repartition topics.
        directories: the deleted directories on this machine.
        kept: internal topics that look like those of the application and were not deleted: they may belong to a former
            version, or to a group whose name begins with that of this one.
        layout: the deleted topic with the layout of the group; empty if there is none.
    """

    group: str
    dry_run: bool
    offsets: Offsets
    changelogs: tuple[str, ...] = ()
    repartition_topics: tuple[str, ...] = ()
    directories: tuple[Path, ...] = ()
    kept: tuple[str, ...] = ()
    layout: str = ""

    def lines(self) -> Iterator[str]:
        """Yield one line for each item."""
        verb = "would be deleted" if self.dry_run else "deleted"
        for topic in (*self.changelogs, *self.repartition_topics, *filter(None, [self.layout])):
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
            "layout": self.layout or None,
        }


@dataclass(frozen=True)
class Reset:
    """The plan of a reset: what it deletes, and where the application then begins.

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
        inputs = topology.outer_topics
        found = _existing_partitions(admin, [*inputs, *internal], timeout)
        # Waits for transactions that would move an offset after the reset.
        committed = admin.committed_stable(group, found, timeout=timeout) if found else {}
        notes = {
            each: CommittedMetadata.decode(entry.metadata)
            for each, entry in committed.items()
            if entry.offset is not None
        }
        theirs = {each.topic for each in notes}
        repartition = [topic for topic in internal if topic in topology.exchanges or topic in theirs]
        logs = {*_changelog_names(topology, group), *_named_changelogs(notes.values(), group)}
        existing = admin.topic_names(changelog_prefix(group), timeout=timeout)
        layout = layout_topic_name(group)
        has_layout = admin.topic_ids([layout], timeout=timeout)[layout] is not None
        of_sources = {topic.name for topic in definition.sources.changelog_topics()}
        with locked_parts(state_dir, group) as parts:
            directories = tuple(parts)
        requests = find_request_topics(topology)
        mine = [each for each in found if each.topic in inputs and each.topic not in requests]
        merged = {each: committed[each].offset for each in found if each.topic in requests}
        ends = admin.offset_bounds([each for each in found if each.topic in repartition], timeout=timeout)
        report = ResetReport(
            group,
            dry_run=False,
            offsets=_start_offsets(admin, to, mine, merged, topology, timeout),
            changelogs=tuple(topic for topic in existing if topic in logs),
            repartition_topics=tuple(repartition),
            directories=directories,
            kept=tuple(
                topic for topic in (*existing, *internal) if topic not in {*logs, *repartition, *of_sources, *inputs}
            ),
            layout=layout if has_layout else "",
        )
        return cls(admin, state_dir, timeout, report, {each: end for each, (_, end) in ends.items()})

    def report(self, *, dry_run: bool) -> ResetReport:
        """Return what was done, or would be done.

        Args:
            dry_run: whether it was not done.
        """
        made = self.result
        lists = (made.changelogs, made.repartition_topics, made.directories, made.kept, made.layout)
        return ResetReport(made.group, dry_run, made.offsets, *lists)

    def run(self, confirm: Callable[[], object] = lambda: None) -> None:
        """Do all of it.

        Args:
            confirm: called after each step; raises if another process may change the group.

        Raises:
            InvalidOperationError: if an instance on this machine runs.
            KafkaRequestError: if Kafka does not respond, or refuses a request. A second call continues.
        """
        for step in self.steps():
            logger.info("reset of consumer group %r: %s", self.result.group, step)
            confirm()

    def steps(self) -> Iterator[str]:
        """Do one step after the other, in the order that the module describes, and yield what was done."""
        group = self.result.group
        # No instance can start on this machine until all is done.
        with locked_parts(self.state_dir, group) as parts:
            # The positions in the layout are of the life that ends.
            self.admin.delete_topics([*self.result.changelogs, *filter(None, [self.result.layout])], self.timeout)
            yield "the changelogs are deleted"
            for part in parts:
                shutil.rmtree(part)
            (group_directory(self.state_dir, group) / "owner.json").unlink(missing_ok=True)
            yield "the state on this machine is deleted"
            # Kafka refuses this if an instance has joined the group meanwhile.
            self.admin.set_committed(group, {**self.result.offsets, **self.ends})
            yield "the offsets are set"
            self.admin.delete_topics(self.result.repartition_topics, self.timeout)
            self._await_forgotten()
            yield "the repartition topics are deleted"

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
    checked(
        "reset(to=...)", to, str | datetime | Offsets, "'earliest', 'latest', a datetime, or Offsets", show=type_name
    )


def _existing_partitions(admin: TopicAdmin, topics: Collection[str], timeout: float) -> list[TopicPartition]:
    """Return the partitions of the topics that exist."""
    return [
        TopicPartition(topic, number)
        for topic, config in admin.inspect_topics(topics, timeout=timeout).items()
        for number in range(0 if config is None else config.num_partitions or 0)
    ]


def _changelog_names(topology: Topology, group: str) -> Iterator[str]:
    """Yield the names of the changelogs that the application uses, for any number of partitions of its inputs."""
    inputs = topology.outer_topics
    for form in (topology, topology.resolve(dict.fromkeys(inputs, 1))):
        for scope in form.scopes:
            yield from (changelog_topic_name(group, scope, store.name) for store in form.stores(scope))


def _named_changelogs(notes: Collection[CommittedMetadata], group: str) -> Iterator[str]:
    """Yield the names of the changelogs of stores, also of former versions, that committed offsets name."""
    for note in notes:
        for scope, stores in note.stores.items():
            yield from (changelog_topic_name(group, scope, store) for store in stores)


def _start_offsets(
    admin: TopicAdmin,
    to: ResetTo,
    partitions: Collection[TopicPartition],
    merged: Mapping[TopicPartition, int | None],
    topology: Topology,
    timeout: float,
) -> Offsets:
    """Return the offsets of the input partitions.

    Requests to maintained tables keep theirs, `merged`: they are in the rows of the tables, which become the state.
    """
    topics = sorted({partition.topic for partition in (*partitions, *merged)})
    noted = to.ids if isinstance(to, Offsets) else {}
    found = confirmed_ids(admin.topic_ids, {topic: noted.get(topic) for topic in topics}, timeout=timeout)
    ids = {topic: known for topic, known in found.items() if known is not None}
    bounds = admin.offset_bounds([*partitions, *merged], timeout=timeout)
    lows = {each: bounds.pop(each)[0] for each in merged}
    kept = {each: lows[each] if offset is None else offset for each, offset in merged.items()}
    if isinstance(to, datetime):
        at = to if to.tzinfo is not None else to.replace(tzinfo=timezone.utc)
        return Offsets({**admin.offsets_at(partitions, round(at.timestamp() * 1_000), timeout=timeout), **kept}, ids)
    if not isinstance(to, Offsets):
        found_at = {each: low if to == "earliest" else high for each, (low, high) in bounds.items()}
        return Offsets({**found_at, **kept}, ids)
    for topic in to.topics:
        if any(each.topic == topic for each in merged):
            raise ArgumentValueError(
                f"reset() got offsets of {topic}, requests to a table that it maintains: it continues behind "
                "those that are merged, so leave them out"
            )
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
    return Offsets({**{each: to[each] for each in bounds}, **kept}, ids)
