"""Gives a stopped application with state more partitions: `streamrt repartition`.

The number of partitions determines where keys are, so the state of a key moves. The application must have processed
everything: a record that waits in its old partition would be processed without the state of its key. The steps:

1. With exactly-once, the transactional ids of all tasks are taken, so that no instance that stood still commits any more.
   A savepoint is made. Each key in it must be where the partitioner says, with the old number: this shows that the
   producers of the inputs use Kafka's partitioner, and that a partitioner of a `group_by` gives the same for keys that were
   stored.
2. The committed offsets get a mark that refuses a start (see `savepoint_restore`). From here on, the next call goes on.
3. Inputs and repartition topics get partitions. Records that have come since step 1 must be where their keys are now.
4. The changelogs are deleted, created with the new number, and filled from the savepoint: each entry goes to the partition
   that its key has now. Broadcast state goes to all partitions; step 1 has shown that all copies of it are equal.
5. The offsets are committed, with the ids of the new changelogs, in one request. The savepoint is deleted.

Before step 2, the application is as it was; a start after step 2 is refused until step 5. Local stores are made again
from the new changelogs, whose ids they do not have.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from streamrt.errors import SavepointError, StreamRTError, TopicConfigurationError
from streamrt.kafka import ConnectionConfig, KafkaRequestError, TopicAdmin
from streamrt.kafka.partitioner import partition_for
from streamrt.kafka.reading.stored import StoredRecord
from streamrt.records import TopicPartition
from streamrt.relations import find_request_topics
from streamrt.runtime.driver.starting.definition import ApplicationDefinition
from streamrt.runtime.driver.starting.key_partitions import partition_of_key, partitioner_of, topic_of_keys
from streamrt.runtime.metadata import CommittedMetadata
from streamrt.runtime.tasks.kafka_clients import KafkaTaskClients
from streamrt.runtime.tasks.stores.foreign import epoch_headers
from streamrt.savepoints.copying import Copies
from streamrt.savepoints.create import create_savepoint, refuse_members, resolved
from streamrt.savepoints.format import SavedStore, Savepoint, find_savepoint
from streamrt.savepoints.restore import TargetGroup
from streamrt.state import RocksDBOptions
from streamrt.state.access.broadcast import BROADCAST_RANGE
from streamrt.state.changelog import POSITION_KEY, Position, epoch_of
from streamrt.state.encoding import loads_of
from streamrt.state.layout import (
    ARRIVAL_KEY,
    BYTES_KEY,
    DATA_SPACE,
    HEAD_SPACE,
    ITEM_SPACE,
    JSON_KEY,
    LIST_SPACE,
    MAP_SPACE,
    NAME_SPACE,
    PANE_KEY,
    TIMER_SPACE,
    owner_of,
    split_pane,
    split_prefix,
)
from streamrt.topology import Topology

__all__ = ["KeyPlaces", "OtherGroup", "Repartitioned", "Repartitioning"]

logger = logging.getLogger("streamrt")

_KEYED = frozenset((DATA_SPACE, HEAD_SPACE, ITEM_SPACE, MAP_SPACE, LIST_SPACE, TIMER_SPACE))
_KNOWN_KEYS = 100_000
"""Number of keys whose partitions are kept."""


class OtherGroup(NamedTuple):
    """Another consumer group that reads a topic with new partitions.

    Attributes:
        group: its name.
        topics: the topics.
        stateful: whether it is an application of StreamRT whose state belongs to these topics.
        lag: number of their offsets that it has not processed.
    """

    group: str
    topics: tuple[str, ...]
    stateful: bool
    lag: int

    def __str__(self) -> str:
        read = f"consumer group {self.group!r} also reads {', '.join(self.topics)}"
        if not self.stateful:
            return f"{read}, without state in it"
        waits = f"; let it process the {self.lag} offsets that it is behind before that" if self.lag else ""
        return (
            f"{read}, with state: once the topic has more partitions, run `streamrt repartition` for this group before it "
            f"starts again{waits}"
        )


def other_groups(
    admin: TopicAdmin, group: str, places: Collection[TopicPartition], timeout: float
) -> tuple[OtherGroup, ...]:
    """Return the other consumer groups that have committed offsets of partitions; those that may not be read are left out.

    Args:
        admin: client for topics and offsets.
        group: the group that is left out.
        places: the partitions.
        timeout: seconds to wait for each response of the cluster.
    """
    ends = admin.offset_bounds(places, timeout=timeout) if places else {}
    found = []
    for other in admin.list_groups(timeout=timeout) if places else ():
        if other == group:
            continue
        with contextlib.suppress(KafkaRequestError):
            entries = admin.committed_now(other, places, timeout=timeout)
            known = {each: entry for each, entry in entries.items() if entry.offset is not None}
            if not known:
                continue
            notes = {each: CommittedMetadata.decode(entry.metadata) for each, entry in known.items()}
            lag = sum(max(0, ends[each][1] - (entry.offset or 0)) for each, entry in known.items())
            # The metadata of an offset name the stores that its topic feeds directly, and none behind a group_by.
            stateful = any(note.stores or note.digests for note in notes.values())
            found.append(OtherGroup(other, tuple(sorted({each.topic for each in known})), stateful, lag))
    return tuple(found)


@dataclass(frozen=True)
class Repartitioned:
    """The changes that were made, or would be made.

    Attributes:
        group: the consumer group.
        partitions: the new number of partitions.
        dry_run: whether nothing was changed.
        topics: the former number of partitions of each topic that gets more.
        stores: scope and name of the stores whose keys move.
        resumed: whether an earlier call has done a part of it.
        others: other consumer groups that read these topics.
    """

    group: str
    partitions: int
    dry_run: bool
    topics: Mapping[str, int]
    stores: tuple[tuple[str, str], ...]
    resumed: bool = False
    others: tuple["OtherGroup", ...] = ()

    def lines(self) -> Iterator[str]:
        """Yield one line for each item."""
        would = "would get" if self.dry_run else "has"
        for topic, former in self.topics.items():
            yield f"the topic {topic}: {would} {self.partitions} partitions instead of {former}"
        for scope, store in self.stores:
            move = "would move" if self.dry_run else "have moved"
            yield f"store {store!r} of {scope}: its keys {move} to their new partitions"
        yield from map(str, self.others)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "group": self.group,
            "partitions": self.partitions,
            "dry_run": self.dry_run,
            "topics": dict(self.topics),
            "stores": [{"topic": scope, "store": store} for scope, store in self.stores],
            "resumed": self.resumed,
            "others": [each._asdict() for each in self.others],
        }


class Repartitioning:
    """Gives a stopped application more partitions.

    Args:
        admin: client for topics and offsets.
        connection: connection to the brokers.
        definition: the application.
        partitions: the new number of partitions of all its inputs and repartition topics, except those that are only
            broadcast.

    Raises:
        InvalidOperationError: if an instance runs.
        TopicConfigurationError: if a topic has more partitions already, a `group_by` needs no topic so far, or the
            application maintains a table.
        SavepointError: if the application has no state, or this is done.
        KafkaRequestError: if Kafka does not respond.
    """

    def __init__(
        self, admin: TopicAdmin, connection: ConnectionConfig, definition: ApplicationDefinition, partitions: int
    ) -> None:
        self._admin, self._connection, self._definition = admin, connection, definition
        self._count = partitions
        config = definition.config
        self._group, self._timeout = config.consumer_group, config.request_timeout
        refuse_members(admin, self._group, self._timeout, "repartition it")
        self._topology, configs = resolved(admin, connection, definition)
        self._all_counts = {topic: configs[topic].num_partitions or 0 for topic in self._topology.sources}
        found = admin.inspect_topics(list(self._topology.sources), timeout=self._timeout)
        # Another application may have given an input partitions that this one has not read.
        self._actual = {topic: (each and each.num_partitions) or 0 for topic, each in found.items()}
        self._kept = broadcast_alone(self._topology)
        self._counts = {topic: count for topic, count in self._all_counts.items() if topic not in self._kept}
        self._refuse_shapes()
        self._name = f"repartition-{partitions}"
        self._pending = self._find_unfinished()
        if self._pending is None and all(count == partitions for count in self._counts.values()):
            raise SavepointError(f"all topics of consumer group {self._group!r} have {partitions} partitions already")

    def report(self, *, dry_run: bool) -> Repartitioned:
        """Return what is done, or would be done."""
        former = self._counts
        if self._pending is not None:
            former = {
                topic: each.partitions
                for topic, each in self._pending.savepoint.inputs.items()
                if topic not in self._kept
            }
        return Repartitioned(
            self._group,
            self._count,
            dry_run,
            {topic: count for topic, count in former.items() if count != self._count},
            tuple((scope, store.name) for scope in self._topology.scopes for store in self._topology.stores(scope)),
            self._pending is not None,
            other_groups(self._admin, self._group, self._input_partitions(), self._timeout),
        )

    @property
    def growing(self) -> tuple[str, ...]:
        """Names of the inputs that get more partitions; none if an earlier call has begun, which must be finished."""
        if self._pending is not None:
            return ()
        return tuple(
            topic
            for topic in self._counts
            if topic not in self._topology.exchanges and self._actual[topic] < self._count
        )

    def _input_partitions(self) -> list[TopicPartition]:
        """Return the partitions that other groups may read."""
        return [
            TopicPartition(topic, number)
            for topic in self._counts
            if topic not in self._topology.exchanges
            for number in range(self._actual[topic])
        ]

    def check(self) -> None:
        """Raise if records wait.

        Raises:
            SavepointError: if the application has not processed everything.
            KafkaRequestError: if Kafka does not respond.
        """
        if self._pending is None:
            places = [TopicPartition(topic, n) for topic, count in self._all_counts.items() for n in range(count)]
            committed = self._admin.committed_stable(self._group, places, timeout=self._timeout)
            offsets = {each: entry.offset or 0 for each, entry in committed.items()}
            grown = {topic for topic, count in self._all_counts.items() if self._actual[topic] > count}
            self._refuse_waiting({each: offset for each, offset in offsets.items() if each.topic not in grown})
            # It cannot process these any more, nor need it, if they are where their keys are with the new number.
            self._refuse_misplaced(
                {
                    topic: {n: offsets[TopicPartition(topic, n)] for n in range(self._all_counts[topic])}
                    for topic in grown
                }
            )

    def run(self, confirm: Callable[[], object] = lambda: None) -> None:
        """Do all of it, or what an earlier call has left.

        Args:
            confirm: called after each step; raises if another process may change the group.

        Raises:
            SavepointError: if records wait, or a key is not where the partitioner says.
            KafkaRequestError: if Kafka does not respond. Another call goes on.
        """
        for step in self.steps():
            logger.info("repartition of consumer group %r: %s", self._group, step)
            confirm()

    def steps(self) -> Iterator[str]:
        """Do one step after the other, as the module describes, and yield what was done."""
        pending = self._pending
        if pending is None:
            self._fence_instances()
            self.check()
            self._admin.delete_topics(self._left_topics(), self._timeout)
            saved = create_savepoint(self._admin, self._connection, self._definition, self._name)
            pending = TargetGroup(self._admin, self._connection, saved, saved.topic, self._timeout)
            self._verify_keys(saved)
            yield "the savepoint is made"
            pending.mark()
            yield "starts are refused"
        saved = pending.savepoint
        for topic in self._counts:
            if self._actual[topic] < self._count:
                self._admin.add_partitions(topic, self._count, timeout=self._timeout)
        self._refuse_misplaced({topic: each.at for topic, each in saved.inputs.items()})
        yield "the topics have their partitions"
        grown = replace(pending, savepoint=self._grow_savepoint(saved))
        grown.create_changelogs(self._definition.config.topic_create_timeout)
        yield "the changelogs are created"
        claim = time.time_ns() // 1_000_000 if saved.guarantee == "at-least-once" else 0
        with Copies(self._admin, self._connection, self._timeout) as copies:
            for store, target in zip(saved.stores, grown.savepoint.stores, strict=True):
                self._fill_store(copies, saved, store, grown, target, claim)
        yield "the changelogs are filled"
        grown.finish(claim)
        yield "the offsets are committed"
        self._admin.delete_topics([saved.topic], self._timeout)
        yield "the savepoint is deleted"

    def _fence_instances(self) -> None:
        """With exactly-once, let no instance that stood still commit any more."""
        if self._definition.config.processing_guarantee != "exactly-once":
            return
        clients = KafkaTaskClients(self._connection, self._group)
        try:
            for topic, count in self._all_counts.items():
                for number in range(count):
                    with clients.claiming(TopicPartition(topic, number), topic):
                        logger.debug("%s[%d]: earlier transactions are fenced", topic, number)
        finally:
            clients.close()

    # -- Checks ------------------------------------------------------------------------------------------------------

    def _refuse_shapes(self) -> None:
        declared = self._definition.topology
        requests = find_request_topics(declared)
        if requests:
            raise TopicConfigurationError(
                f"the application merges the requests in {', '.join(requests)}, and rows of a maintained table stay in their "
                "partitions: create a table with more of them, copy the rows, and let the writers use it"
            )
        needless = [topic for topic in declared.exchanges if topic not in self._topology.exchanges]
        if needless:
            raise TopicConfigurationError(
                f"the input of {declared.exchanges[needless[0]]} has 1 partition, so its state is beside that of the input, "
                "and would be behind a repartition topic then: start over with another consumer_group"
            )
        more = next((topic for topic in self._counts if self._actual[topic] > self._count), None)
        if more is not None:
            raise TopicConfigurationError(
                f"topic {more!r} has {self._actual[more]} partitions: Kafka cannot take any away, so give at least as many"
            )
        if not any(self._topology.stores(scope) for scope in self._topology.scopes):
            raise SavepointError(
                "the application has no state: add partitions to its topics with the tools of Kafka, at any time"
            )

    def _find_unfinished(self) -> TargetGroup | None:
        """Return what an earlier call has left after it had begun to refuse starts."""
        saved = find_savepoint(self._admin, self._connection, self._group, self._name, self._timeout)
        if saved is None:
            return None
        found = TargetGroup(self._admin, self._connection, saved, saved.topic, self._timeout)
        return found if found.begun() else None

    def _left_topics(self) -> list[str]:
        """Return the topic of a savepoint that an earlier call has left before it changed anything."""
        saved = find_savepoint(self._admin, self._connection, self._group, self._name, self._timeout)
        return [] if saved is None else [saved.topic]

    def _refuse_waiting(self, offsets: Mapping[TopicPartition, int]) -> None:
        bounds = self._admin.offset_bounds(list(offsets), timeout=self._timeout)
        clients = KafkaTaskClients(self._connection, self._group)
        try:
            for place, offset in offsets.items():
                high = bounds[place][1]
                if offset < high and clients.has_records(place, offset, high):
                    raise SavepointError(
                        f"{place} has records from offset {offset} to {high} that consumer group {self._group!r} has not "
                        "processed: end the producers of the topic, let the application process them, and stop it"
                    )
        finally:
            clients.close()

    def _refuse_misplaced(self, begin: Mapping[str, Mapping[int, int]]) -> None:
        """Raise if records have come that are not in the partitions that their keys have now.

        Args:
            begin: by topic and partition, the first offset that was not processed; of further partitions, all are looked at.
        """
        with Copies(self._admin, self._connection, self._timeout) as copies:
            for topic, offsets in begin.items():
                if topic in self._topology.exchanges or topic in self._kept:
                    continue
                for number in range(max(self._actual[topic], *offsets, 0)):
                    place = TopicPartition(topic, number)
                    for record in copies.read(place, offsets.get(number, 0)):
                        if record.key is None or partition_for(record.key, self._count) == number:
                            continue
                        raise SavepointError(
                            f"the record at offset {record.offset} of {place}, which was not processed, was written while "
                            f"the topic got partitions, and its key belongs to another one with {self._count} of them, or it "
                            "was written before that; end the producers of the topic, produce what is from this offset on in "
                            "this partition again, delete it there, and run the command again"
                        )

    def _verify_keys(self, saved: Savepoint) -> None:
        """Raise if a key is not where the partitioner says."""
        with Copies(self._admin, self._connection, self._timeout) as copies:
            for store in saved.stores:
                places = KeyPlaces(self._topology, store, self._definition.rocksdb_options)
                first: dict[bytes, bytes] = {}
                names: dict[bytes, bytes] = {}
                for number in range(store.log.partitions):
                    changes = copies.changes(store.log.copy_of(saved.topic, number))
                    broadcast: dict[bytes, bytes] = {}
                    for record in changes:
                        if _is_broadcast(record):
                            _apply_record(record, broadcast)
                            continue
                        if _is_name(record):
                            self._note_name(store, record, names)
                            continue
                        found = places.find(record.key, store.log.partitions)
                        if found not in (None, number):
                            raise SavepointError(
                                f"store {store.store!r} of {store.scope} has a key in partition {number} that belongs to "
                                f"partition {found}: what produces to this topic chooses partitions in another way than "
                                "Kafka's clients by default, so it is unknown where its keys would be; nothing was changed"
                            )
                    self._refuse_behind(store, number, saved, changes.position)
                    if number == 0:
                        first = broadcast
                    elif broadcast != first and store.log.partitions != self._count:
                        raise SavepointError(
                            f"store {store.store!r} of {store.scope} has other broadcast state in partition {number} than in "
                            "partition 0, so new partitions cannot get the same: broadcast records came in different orders, "
                            "or process_broadcast_element depends on more than the record and broadcast state; nothing was "
                            "changed: use another consumer group, which reads the broadcast records again"
                        )

    def _note_name(self, store: SavedStore, record: StoredRecord, names: dict[bytes, bytes]) -> None:
        """Raise if keys that may come together use a name for states of two types."""
        name, kind = record.key or b"", record.value or b""
        if names.setdefault(name, kind) != kind and store.log.partitions != self._count:
            raise SavepointError(
                f"store {store.store!r} of {store.scope} has states of two types under the name "
                f"{name[1:].decode(errors='replace')!r}, in different partitions, whose keys cannot come together; nothing "
                "was changed: let the function use one type again, or forget the store with 'streamrt state forget'"
            )

    def _refuse_behind(self, store: SavedStore, number: int, saved: Savepoint, position: Position | None) -> None:
        """Raise if state contains records that will be processed again."""
        at = sum(saved.inputs[topic].at.get(number, 0) for topic in store.topics)
        if position is not None and position.input_offset > at:
            raise SavepointError(
                f"store {store.store!r} of {store.scope}[{number}] contains records above the committed offset, since the "
                "application was not stopped cleanly: start it, let it process them, and stop it; nothing was changed"
            )

    # -- Work --------------------------------------------------------------------------------------------------------

    def _grow_savepoint(self, saved: Savepoint) -> Savepoint:
        """Return the savepoint as if the group had had more partitions, and an offset for each of them."""
        unknown = [
            TopicPartition(topic, number)
            for topic, each in saved.inputs.items()
            for number in range(each.partitions)
            if number not in each.at
        ]
        # They have no records.
        ends = {each: high for each, (_, high) in self._admin.offset_bounds(unknown, timeout=self._timeout).items()}
        inputs = {
            topic: each
            if topic in self._kept
            else replace(
                each,
                partitions=self._count,
                first=self._count if each.first else 0,
                at={
                    number: each.at.get(number, ends.get(TopicPartition(topic, number), 0))
                    for number in range(self._count)
                },
            )
            for topic, each in saved.inputs.items()
        }
        stores = tuple(replace(store, log=replace(store.log, partitions=self._count)) for store in saved.stores)
        return replace(saved, inputs=inputs, stores=stores)

    def _fill_store(
        self,
        copies: Copies,
        saved: Savepoint,
        store: SavedStore,
        grown: TargetGroup,
        target: SavedStore,
        claim: int,
    ) -> None:
        """Write the entries of a store to the changelog partitions of their keys."""
        places = KeyPlaces(self._topology, store, self._definition.rocksdb_options)
        headers = epoch_headers(epoch_of(claim, 0)) if claim else None
        positions: list[Position | None] = []
        arrival = b""
        common: dict[bytes, bytes] = {}
        stays = store.log.partitions == self._count
        for number in range(store.log.partitions):
            changes = copies.changes(store.log.copy_of(saved.topic, number))
            for record in changes:
                if not stays and (_is_broadcast(record) or _is_name(record)):
                    # All copies of broadcast state are equal. Each partition has the names that its keys use.
                    if number == 0 or _is_name(record):
                        _apply_record(record, common)
                    continue
                place = places.find(record.key, self._count) if not stays else number
                if record.key == ARRIVAL_KEY:
                    # All later arrivals must have higher numbers than those that come together here.
                    arrival = max(arrival, record.value or b"")
                else:
                    copies.write(TopicPartition(target.log.topic, place or 0), record, headers)
            positions.append(changes.position)
            copies.flush()
        for number in range(self._count):
            log = TopicPartition(target.log.topic, number)
            for key, value in common.items():
                copies.write_pair(log, key, value, headers)
            if arrival:
                copies.write_pair(log, ARRIVAL_KEY, arrival, headers)
            position = grown.position(target, number, *positions)
            if position is not None:
                copies.write_pair(log, POSITION_KEY, position.encode(), headers)
        copies.flush()


class KeyPlaces:
    """Finds the partitions of the entries of a store.

    Args:
        topology: the operators, resolved.
        store: the store.
        options: the encoding of keys.
    """

    def __init__(self, topology: Topology, store: SavedStore, options: RocksDBOptions | None) -> None:
        self._what = f"store {store.store!r} of {store.scope}"
        self._topic = topic_of_keys(topology, store.scope)
        self._partitioner = partitioner_of(topology, self._topic.name)
        self._loads = loads_of(RocksDBOptions() if options is None else options)
        users = (
            node.operator
            for node in topology.nodes
            if topology.scope(node) == store.scope and any(each.name == store.store for each in node.operator.stores())
        )
        self._user = next(users, None)
        self._known: dict[tuple[bytes, int], int] = {}

    def find(self, key: bytes | None, count: int) -> int | None:
        """Return the partition of an entry; None for one of the whole store.

        Args:
            key: the key of the entry in the store.
            count: number of partitions.

        Raises:
            SavepointError: if it cannot be known.
        """
        if key == ARRIVAL_KEY or (key and (key.startswith(BROADCAST_RANGE) or key[0] == NAME_SPACE)):
            return None
        if not key or key[0] not in _KEYED:
            raise SavepointError(f"{self._what} has entries that belong to no key, and cannot be distributed")
        prefix = owner_of(key)
        if prefix[0] == PANE_KEY:
            prefix = split_pane(prefix)[0]
        found = self._known.get((prefix, count))
        if found is None:
            if len(self._known) >= _KNOWN_KEYS:
                self._known.clear()
            found = self._known[prefix, count] = self._partition_of(prefix, count)
        return found

    def _partition_of(self, prefix: bytes, count: int) -> int:
        tag, data = split_prefix(prefix)
        if tag not in (BYTES_KEY, JSON_KEY):
            raise SavepointError(
                f"{self._what} has state of records without a key, which belongs to one partition and no other; nothing "
                "was changed"
            )
        try:
            key = data if tag == BYTES_KEY else self._loads(data)
            if self._user is not None:
                key = self._user.record_key(key)
            return partition_of_key(self._topic, self._partitioner, key, count)
        except (StreamRTError, TypeError, ValueError) as error:
            raise SavepointError(f"{self._what} has a key whose partition cannot be known: {error}") from None


def broadcast_alone(topology: Topology) -> frozenset[str]:
    """Return the topics whose records only go on as broadcast records, without state: their number of partitions is free.

    Args:
        topology: the operators, resolved.
    """
    found = set(topology.broadcasts)
    while True:
        more = {
            topic
            for topic, stream in topology.stream_of_topic.items()
            if topic not in found and not topology.task_stores(stream) and _all_within(topology, stream, found)
        }
        if not more:
            return frozenset(found - topology.broadcasts)
        found |= more


def _all_within(topology: Topology, stream: str, topics: Collection[str]) -> bool:
    """Return whether a stream sends records to repartition topics, and to no others than these."""
    sent = [topic for topic, node in topology.exchanges.items() if topology.stream_of(node) == stream]
    return bool(sent) and all(topic in topics for topic in sent)


def _is_broadcast(record: StoredRecord) -> bool:
    """Return whether a record of a changelog is an entry of broadcast state."""
    return record.key is not None and record.key.startswith(BROADCAST_RANGE)


def _is_name(record: StoredRecord) -> bool:
    """Return whether a record of a changelog is the type of the states of a name."""
    return record.key is not None and record.key[:1] == bytes((NAME_SPACE,))


def _apply_record(record: StoredRecord, entries: dict[bytes, bytes]) -> None:
    """Change entries as a record of a changelog says."""
    if record.key is None:
        return
    if record.value is None:
        entries.pop(record.key, None)
    else:
        entries[record.key] = record.value
