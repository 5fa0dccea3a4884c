"""A Kafka cluster in one thread: logs, transactions, a consumer group and compaction, deterministic by its seed.

What differs between clusters in good and in bad moments is up to the random numbers: when the markers of a transaction
are written, when a request arrives that a client has given up, what compaction has been at.

A transaction::

    OPEN --end(commit)--> COMMITTED --markers, offsets--> finished
      |
      +--end(abort), init of its id, timeout--> ABORTED --markers--> finished

Between the decision and its markers a transaction pins the last stable offset and the group's offsets, as in Kafka.
"""

import random
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter

from confluent_kafka import KafkaError

from streamrt.errors import TransactionError
from streamrt.kafka import KafkaRequestError
from streamrt.kafka.client import OffsetMetadata
from streamrt.kafka.partitioner import partition_for
from streamrt.models import TopicPartition

TRANSACTION_TIMEOUT_MS = 60_000
LAYOUT = "layout__sim"
TOMBSTONES_KEPT_MS = 600_000
_OFFSET = attrgetter("offset")


def text_of(metadata: OffsetMetadata, place: TopicPartition) -> str | None:
    """Return what is stored with the offset of a partition."""
    return metadata.get(place) if isinstance(metadata, Mapping) else metadata


OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"


@dataclass(eq=False)
class Transaction:
    """One transaction, from its first request until its last marker is written."""

    name: str
    epoch: int
    begun: int
    status: str = OPEN
    first: dict[TopicPartition, int] = field(default_factory=dict)
    offsets: dict[TopicPartition, tuple[int, str | None]] = field(default_factory=dict)
    written: dict[TopicPartition, int] = field(default_factory=dict)
    """The order in which the group's coordinator heard of the offsets."""


@dataclass(eq=False)
class Entry:
    """Entry at one offset."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    transaction: Transaction | None = None
    marker: bool = False
    origin: str = ""
    """The attempt that produced it; for checks only."""
    cleaned_at: int | None = None
    epoch: bytes | None = None

    @property
    def visible(self) -> bool:
        """Whether readers of committed records see it, once the last stable offset has passed it."""
        return not self.marker and (self.transaction is None or self.transaction.status == COMMITTED)


class Log:
    """One partition."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.low = 0
        self.end = 0
        self.pinned: dict[Transaction, int] = {}
        self.lost: list[Entry] = []
        """Entries that were deleted before they were processed, as far as the application knows."""
        self._deleted: list[Entry] = []

    @property
    def stable(self) -> int:
        """The last stable offset."""
        return min(self.pinned.values(), default=self.end)

    @property
    def closed(self) -> int:
        """Where the active segment begins, which nothing compacts: a stale writer by itself closes none (decision 11)."""
        newest = max((entry.epoch for entry in self.entries if entry.epoch is not None), default=None)
        if newest is None:
            return self.stable
        return min(self.stable, 1 + max(entry.offset for entry in self.entries if entry.epoch == newest))

    def append(self, entry: Entry) -> None:
        """Write an entry at the end."""
        entry.offset = self.end
        self.entries.append(entry)
        self.end += 1

    def read(self, start: int, end: int) -> Iterator[Entry]:
        """Yield the committed records in a range, below the last stable offset."""
        first = bisect_left(self.entries, start, key=_OFFSET)
        last = bisect_left(self.entries, min(end, self.stable), first, key=_OFFSET)
        return (entry for entry in self.entries[first:last] if entry.visible)

    def history(self, end: int | None = None) -> list[Entry]:
        """Return all committed records below an offset, also processed ones that were deleted since; for checks."""
        records = [*self._deleted, *self.read(0, self.end)]
        return records if end is None else [entry for entry in records if entry.offset < end]

    def lose(self, start: int) -> None:
        """Take the deleted records from an offset on, which are not processed, out of the history."""
        self.lost += [entry for entry in self._deleted if entry.offset >= start]
        self._deleted = [entry for entry in self._deleted if entry.offset < start]

    def delete(self, before: int) -> None:
        """Delete the entries below an offset."""
        self.low = max(self.low, min(before, self.stable))
        self._deleted += [entry for entry in self.entries if entry.offset < self.low and entry.visible]
        self.entries = [entry for entry in self.entries if entry.offset >= self.low]


@dataclass
class _Coordinated:
    """State of a transactional id in the coordinator."""

    epoch: int = -1
    transaction: Transaction | None = None


class Broker:
    """The cluster.

    Args:
        rng: decides.
        topics: partition counts.
        fencing: False for the mutant in which a transactional id fences no one.
    """

    def __init__(self, rng: random.Random, topics: Mapping[str, int], *, fencing: bool = True) -> None:
        self._rng = rng
        self.topics = dict(topics)
        self.logs: dict[TopicPartition, Log] = {
            TopicPartition(name, number): Log() for name, count in topics.items() for number in range(count)
        }
        self.now = 1_000_000
        self.offsets: dict[TopicPartition, tuple[int, str | None]] = {}
        self.generation = 0
        self.ids: dict[str, str | None] = {name: f"id of {name}" for name in topics}
        """Kafka's ids of topics; None while a topic is deleted."""
        self._heard = 0
        self._written: dict[TopicPartition, int] = {}
        self._fencing = fencing
        self._ids: dict[str, _Coordinated] = {}
        self._deciding: list[Transaction] = []
        self._late: list[tuple[str, int]] = []
        self._late_records: list[tuple[str, int, TopicPartition, Entry]] = []
        self.arrivals: Callable[[TopicPartition, bytes | None], None] = lambda place, value: None
        """Hears of each record that is written."""

    # -- Records ---------------------------------------------------------------------------------------------------

    def place(self, topic: str, key: bytes | None, partition: int) -> TopicPartition:
        """Return where a record goes."""
        if partition < 0:
            count = self.topics[topic]
            partition = self._rng.randrange(count) if key is None else partition_for(key, count)
        return TopicPartition(topic, partition)

    def append(
        self,
        place: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        timestamp: int | None,
        origin: str = "",
        epoch: bytes | None = None,
    ) -> None:
        """Write a record without a transaction."""
        self.arrivals(place, value)
        self.logs[place].append(Entry(-1, key, value, timestamp or self.now, None, False, origin, epoch=epoch))

    def add_partition(self, topic: str) -> TopicPartition:
        """Add a partition to a topic."""
        place = TopicPartition(topic, self.topics[topic])
        self.topics[topic] += 1
        self.logs[place] = Log()
        return place

    def delete_topic(self, topic: str) -> None:
        """Delete a topic, and the offsets of the group in it."""
        self.ids[topic] = None
        for place in [place for place in self.logs if place.topic == topic]:
            for transaction in self.open_transactions():
                transaction.first.pop(place, None)
                # A coordinator may hear of the deletion late.
                if self._rng.random() < 0.5:
                    transaction.offsets.pop(place, None)
            self.logs[place] = Log()
            self.offsets.pop(place, None)
            self._written.pop(place, None)

    def append_marker(self, place: TopicPartition) -> None:
        """Write the marker of somebody else's transaction."""
        self.logs[place].append(Entry(-1, None, None, self.now, None, True))

    def delete_records(self, place: TopicPartition, before: int) -> None:
        """Delete the records below an offset."""
        self.logs[place].delete(before)

    def compact(self, place: TopicPartition) -> None:
        """Keep the last record of each key below some offset, and forget tombstones that were kept long enough."""
        log = self.logs[place]
        bound = self._rng.randint(log.low, max(log.low, log.closed))
        newest = {entry.key: entry.offset for entry in log.entries if entry.offset < bound and entry.visible}
        kept: list[Entry] = []
        for entry in log.entries:
            if entry.offset < bound:
                if not entry.marker and not entry.visible:
                    continue
                if entry.marker or entry.value is None:
                    if entry.cleaned_at is None:
                        entry.cleaned_at = self.now
                    elif self.now - entry.cleaned_at >= TOMBSTONES_KEPT_MS:
                        continue
                if not entry.marker and newest[entry.key] != entry.offset:
                    continue
            kept.append(entry)
        log.entries = kept

    # -- Transactions ----------------------------------------------------------------------------------------------

    def init(self, name: str) -> int:
        """Fence the earlier producers of a transactional id, and end their transaction; return the new epoch."""
        known = self._ids.setdefault(name, _Coordinated())
        if not self._fencing and known.epoch >= 0:
            return known.epoch
        if known.transaction is not None:
            self._decide(known.transaction, ABORTED)
            self._finish(known.transaction)
        known.epoch += 1
        return known.epoch

    def append_in_transaction(
        self,
        name: str,
        epoch: int,
        place: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        time: int | None,
        origin: str,
    ) -> None:
        """Write a record in the running transaction of an id, which begins with it if there is none.

        Raises:
            TransactionError: if the producer is fenced.
        """
        self.arrivals(place, value)
        transaction = self._running(name, epoch)
        log = self.logs[place]
        if place not in transaction.first:
            transaction.first[place] = log.pinned[transaction] = log.end
        log.append(Entry(-1, key, value, time or self.now, transaction, False, origin))

    def send_offsets(
        self, name: str, epoch: int, offsets: Mapping[TopicPartition, int], metadata: OffsetMetadata
    ) -> None:
        """Add offsets of the group to the running transaction."""
        transaction = self._running(name, epoch)
        if any(self.ids.get(place.topic, "") is None for place in offsets):
            raise TransactionError("the offsets of a topic that does not exist cannot be added")
        transaction.offsets.update({place: (at, text_of(metadata, place)) for place, at in offsets.items()})
        self._heard += 1
        transaction.written.update(dict.fromkeys(offsets, self._heard))

    def end(self, name: str, epoch: int, *, commit: bool) -> None:
        """Decide the running transaction.

        Raises:
            TransactionError: if the producer is fenced, or nothing is running.
        """
        known = self._ids[name]
        if known.epoch != epoch:
            raise TransactionError(f"{name} is fenced", fenced=True)
        transaction = known.transaction
        if transaction is None or transaction.status != OPEN:
            raise TransactionError(f"{name} has no transaction to end")
        self._decide(transaction, COMMITTED if commit else ABORTED)
        if self._rng.random() < 0.6:
            self._finish(transaction)

    def end_late(self, name: str, epoch: int) -> None:
        """Take a request to commit that arrives some time later."""
        self._late.append((name, epoch))

    def produce_late(self, name: str, epoch: int, place: TopicPartition, record: Entry) -> None:
        """Take a record of a transaction that arrives some time later, when its client has given it up."""
        self._late_records.append((name, epoch, place, record))

    def arrive_records(self) -> None:
        """Let late records arrive. A broker before KIP-890 adds them to whatever their producer has open at that time."""
        for request in list(self._late_records):
            name, epoch, place, record = request
            known = self._ids[name]
            if known.epoch != epoch:
                self._late_records.remove(request)
            elif known.transaction is not None and known.transaction.status == OPEN:
                self._late_records.remove(request)
                self.append_in_transaction(
                    name, epoch, place, record.key, record.value, record.timestamp, record.origin
                )

    def arrive(self) -> None:
        """Let a late request arrive. A broker before KIP-890 applies it to whatever its producer has open at that time."""
        for request in list(self._late):
            name, epoch = request
            known = self._ids[name]
            if known.epoch != epoch:
                self._late.remove(request)
            elif known.transaction is not None and known.transaction.status == OPEN:
                # Earlier it would have had no effect.
                self._late.remove(request)
                self._decide(known.transaction, COMMITTED)

    @property
    def expects(self) -> bool:
        """Whether late requests are on their way."""
        return bool(self._late)

    def write_markers(self) -> None:
        """Write some of the markers that are due."""
        if self._deciding:
            self._finish(self._rng.choice(self._deciding), whole=self._rng.random() < 0.5)

    def wait(self, milliseconds: int) -> None:
        """Let time pass; transactions that last too long are aborted."""
        self.now += milliseconds
        for known in self._ids.values():
            transaction = known.transaction
            if transaction is None:
                continue
            if transaction.status != OPEN:
                self._finish(transaction)
            elif self.now - transaction.begun > TRANSACTION_TIMEOUT_MS:
                self._decide(transaction, ABORTED)
                self._finish(transaction)
                known.epoch += 1

    def end_all(self) -> None:
        """Abort what is open, as when no process works for as long as transactions may last."""
        self.wait(TRANSACTION_TIMEOUT_MS + 1)

    def open_transactions(self) -> list[Transaction]:
        """Return what has not ended."""
        return [known.transaction for known in self._ids.values() if known.transaction is not None]

    def _running(self, name: str, epoch: int) -> Transaction:
        known = self._ids[name]
        if known.epoch != epoch:
            raise TransactionError(f"{name} is fenced", fenced=True)
        if known.transaction is not None and known.transaction.status != OPEN:
            # The client is told to come back until the markers of the former transaction are written.
            self._finish(known.transaction)
        if known.transaction is None:
            known.transaction = Transaction(name, epoch, self.now)
        return known.transaction

    def _decide(self, transaction: Transaction, status: str) -> None:
        if transaction.status == OPEN:
            transaction.status = status
            self._deciding.append(transaction)

    def _finish(self, transaction: Transaction, *, whole: bool = True) -> None:
        """Write the markers of a transaction that is decided, or one of them."""
        left = [place for place in transaction.first if transaction in self.logs[place].pinned]
        steps: list[TopicPartition | None] = [*left, *([None] if transaction.offsets else [])]
        for step in steps if whole else [self._rng.choice(steps)] if steps else []:
            if step is None:
                if transaction.status == COMMITTED:
                    for place, committed in transaction.offsets.items():
                        # A later commit without a transaction, such as the driver's of markers, is not undone.
                        if self._written.get(place, -1) < transaction.written[place]:
                            self.offsets[place], self._written[place] = committed, transaction.written[place]
                transaction.offsets = {}
            else:
                log = self.logs[step]
                del log.pinned[transaction]
                log.append(Entry(-1, None, None, self.now, transaction, True))
        if whole or len(steps) <= 1:
            self._deciding.remove(transaction)
            self._ids[transaction.name].transaction = None

    # -- The group -------------------------------------------------------------------------------------------------

    def committed(self, place: TopicPartition) -> tuple[int, str | None] | None:
        """Return the committed offset and its metadata, once no transaction is about to move it.

        Raises:
            KafkaRequestError: if an open transaction is.
        """
        for transaction in list(self._deciding):
            if place in transaction.offsets:
                self._finish(transaction)
        if any(place in transaction.offsets for transaction in self.open_transactions()):
            raise KafkaRequestError(f"the offset of {place} is about to be moved", retriable=True)
        return self.offsets.get(place)

    def commit(self, generation: int, offsets: Mapping[TopicPartition, int], metadata: OffsetMetadata) -> None:
        """Commit offsets as a member of the group.

        Raises:
            KafkaRequestError: if the member is of an older generation.
        """
        if generation != self.generation:
            raise KafkaRequestError(f"the generation {generation} is over")
        if any(self.ids.get(place.topic, "") is None for place in offsets):
            raise KafkaRequestError("the topic does not exist", KafkaError.UNKNOWN_TOPIC_OR_PART, retriable=True)
        self.offsets.update({place: (at, text_of(metadata, place)) for place, at in offsets.items()})
        self._heard += 1
        self._written.update(dict.fromkeys(offsets, self._heard))

    def wait_until_stable(self, place: TopicPartition, end: int) -> None:
        """Wait until readers of committed records can pass an offset; open transactions time out meanwhile."""
        for transaction in list(self.logs[place].pinned):
            if transaction.status != OPEN:
                self._finish(transaction)
        if self.logs[place].stable < end:
            self.wait(TRANSACTION_TIMEOUT_MS + 1)
