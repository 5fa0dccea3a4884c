"""The clients of a simulated process, with a step before and after each request: there faults happen."""

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from streamrt.errors import ProducerError, TransactionError
from streamrt.kafka import KafkaRequestError
from streamrt.kafka.client import OffsetMetadata
from streamrt.kafka.cluster.committed import CommittedOffset
from streamrt.kafka.writing.record_writer import WriterFailedError
from streamrt.records import Headers, TimestampType, TopicPartition
from streamrt.records.headers import EPOCH_HEADER
from streamrt.runtime.chunk import Chunk
from streamrt.runtime.tasks.task_clients import RecordWriter, TransactionalRecordWriter
from streamrt.topology import TaskId
from tests.sim.broker import Entry
from tests.sim.deriving import headers_of

if TYPE_CHECKING:
    from tests.sim.simulation import Process, Simulation


class Crash(BaseException):
    """Kills a process: unwinds what it runs, while none of its clients and stores does anything any more."""


class Batch(NamedTuple):
    keys: list[bytes]
    values: list[bytes | None]
    timestamps: list[int]
    next_offset: int
    epochs: list[bytes | None]


def chunk_of(place: TopicPartition, records: Iterable[Entry]) -> Chunk:
    """Return records as tasks take them."""
    records = list(records)
    return Chunk(
        place.topic,
        place.partition,
        [record.offset for record in records],
        [record.key for record in records],
        [record.value for record in records],
        [record.timestamp for record in records],
        [TimestampType.TIMESTAMP_CREATE_TIME] * len(records),
        headers_of(place.topic, records),
    )


def name_of(owner: TopicPartition) -> str:
    """Return the transactional id of an input partition."""
    return f"{owner.topic}.{owner.partition}"


def aborted(where: str) -> Exception:
    return TransactionError(f"injected at {where}")


def refused(where: str) -> Exception:
    return KafkaRequestError(f"injected at {where}", retriable=True)


_Buffered = tuple[bytes | None, bytes | None, int | None, str, bytes | None]


class SimWriter:
    """The writer of tasks that produce at least once: what it has taken may arrive, whatever happens to its process."""

    def __init__(self, sim: "Simulation", process: "Process") -> None:
        self._sim = sim
        self._process = process
        self._held: dict[TopicPartition, list[_Buffered]] = {}

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        timestamp: int | None,
        headers: Headers | None,
        partition: int = -1,
    ) -> None:
        self._sim.step(self._process, "produce")
        place = self._sim.broker.place(topic, key, partition)
        epoch = next((value for name, value in headers or () if name == EPOCH_HEADER), None)
        assert epoch is None or isinstance(epoch, bytes)
        self._held.setdefault(place, []).append((key, value, timestamp, self._process.attempt, epoch))
        if self._sim.rng.random() < 0.1:
            self.send_some()

    def flush(self) -> list[Exception]:
        self._sim.step(self._process, "flush")
        lost: list[Exception] = []
        if self._sim.trouble("flush", 0.2):
            self.send_some()
            lost = [ProducerError("injected") for held in self._held.values() for _ in held]
            self._held.clear()
            if self._sim.fatal.random() < 0.5:
                # This one also stands for the next one: it has nothing any more.
                raise WriterFailedError("injected fatal error", retriable=True)
        for place, held in self._held.items():
            for record in held:
                self._sim.broker.append(place, *record)
        self._held.clear()
        self._sim.step(self._process, "flushed")
        return lost

    @property
    def delivered(self) -> bool:
        return not any(self._held.values())

    def send_pending(self) -> None:
        """Deliver what is held."""
        self._sim.step(self._process, "send_pending")
        for place, held in self._held.items():
            for record in held:
                self._sim.broker.append(place, *record)
            held.clear()

    def send_some(self) -> None:
        """Deliver the first records of each partition; at the end of a process, what it had on the wire."""
        for place, held in self._held.items():
            count = self._sim.rng.randint(0, len(held))
            for record in held[:count]:
                self._sim.broker.append(place, *record)
            del held[:count]


class SimTransaction:
    """A transactional producer: READY -> OPEN -> READY, and SPENT after any trouble."""

    def __init__(self, sim: "Simulation", process: "Process", name: str) -> None:
        self._sim = sim
        self._process = process
        self._name = name
        self._epoch = sim.broker.init(name)
        self._open = False
        self._failed = False
        self._spent = False
        self._gave_up = False
        self._held: dict[TopicPartition, list[_Buffered]] = {}

    @property
    def usable(self) -> bool:
        doubtful = self._spent or self._gave_up
        return not (doubtful or self._failed) or (self._sim.mutant == "usable" and not self._failed)

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        timestamp: int | None,
        headers: Headers | None,
        partition: int = -1,
    ) -> None:
        self._sim.step(self._process, "produce in transaction", aborted)
        self._open = True
        place = self._sim.broker.place(topic, key, partition)
        self._held.setdefault(place, []).append((key, value, timestamp, self._process.attempt, None))
        if self._sim.rng.random() < 0.15:
            self._send(whole=False)

    def flush(self) -> list[Exception]:
        return []

    def commit(self, offsets: Mapping[TopicPartition, int], metadata: OffsetMetadata = None) -> None:
        sim, process, broker = self._sim, self._process, self._sim.broker
        self._open = True
        try:
            sim.step(process, "flush transaction", aborted)
            if sim.late_requests and not sim.calm and sim.late.random() < 0.2:
                self._give_up_a_record()
            sim.broker.arrive_records()
            self._send(whole=True)
            sim.step(process, "send offsets", aborted)
            sim.check_committer(process.name, offsets)
            broker.send_offsets(self._name, self._epoch, offsets, metadata)
            sim.step(process, "end transaction", aborted)
            if sim.trouble("end transaction", 0.3):
                self._end_in_doubt()
            else:
                broker.end(self._name, self._epoch, commit=True)
        except TransactionError:
            self._failed = self._failed or not self._gave_up
            raise
        self._open = False
        sim.step(process, "transaction ended")

    def _give_up_a_record(self) -> None:
        """Time out for a record whose request is still on its way; the transaction can only be aborted."""
        broker = self._sim.broker
        for place, held in self._held.items():
            for key, value, timestamp, origin, _ in held[:1]:
                late = Entry(-1, key, value, timestamp or broker.now, origin=origin)
                broker.produce_late(self._name, self._epoch, place, late)
                self._gave_up = True
                raise TransactionError("a record was not delivered in time")

    def _end_in_doubt(self) -> None:
        """Ask for the commit while the connection is bad."""
        broker, outcome = self._sim.broker, self._sim.rng.randrange(4)
        self._spent = True
        if outcome == 0:
            # Done, and no one heard of it.
            broker.end(self._name, self._epoch, commit=True)
            raise TransactionError("the outcome is not known: it is committed")
        if outcome == 1:
            # The client has sent it twice, and the second request is still on its way.
            broker.end(self._name, self._epoch, commit=True)
            broker.end_late(self._name, self._epoch)
            return
        if outcome == 2:
            broker.end_late(self._name, self._epoch)
        raise TransactionError("the outcome is not known: it is open")

    def abort(self) -> None:
        self._held.clear()
        if self._process.dead or not self._open:
            return
        self._sim.step(self._process, "abort")
        self._open = False
        if self._sim.trouble("abort", 0.3):
            self._spent = True
            return
        try:
            self._sim.broker.end(self._name, self._epoch, commit=False)
        except TransactionError:
            self._spent = True

    def die(self) -> None:
        """Let a part of what was taken arrive; the transaction stays open."""
        try:
            self._send(whole=False)
        except TransactionError:
            self._held.clear()

    def _send(self, *, whole: bool) -> None:
        for place, held in self._held.items():
            count = len(held) if whole else self._sim.rng.randint(0, len(held))
            for key, value, timestamp, origin, _ in held[:count]:
                try:
                    self._sim.broker.append_in_transaction(
                        self._name, self._epoch, place, key, value, timestamp, origin
                    )
                except TransactionError:
                    self._failed = True
                    raise
            del held[:count]


class SimClients:
    """Implements `TaskClients` over the simulated cluster."""

    def __init__(self, sim: "Simulation", process: "Process") -> None:
        self._sim = sim
        self._process = process
        self._writer = SimWriter(sim, process)
        self._transactional: dict[TaskId, SimTransaction] = {}
        self._prepared: dict[TaskId, SimTransaction] = {}
        self._claiming: list[SimTransaction] = []

    @property
    def worker(self) -> str:
        return self._process.name

    def writer(self) -> RecordWriter:
        return self._writer

    def kept(self, task: TaskId) -> TransactionalRecordWriter | None:
        writer = self._transactional.get(task)
        return writer if writer is not None and writer.usable else None

    def prepare_writers(self, owners: Mapping[TaskId, TopicPartition]) -> None:
        for task, owner in owners.items():
            if task not in self._prepared:
                # What fails is tried again by `transactional`.
                with contextlib.suppress(TransactionError):
                    self._prepared[task] = self._begin(owner)

    def transactional(self, task: TaskId, owner: TopicPartition) -> TransactionalRecordWriter:
        prepared = self._prepared.pop(task, None)
        self.release(task)
        writer = self._transactional[task] = prepared or self._begin(owner)
        self._sim.step(self._process, "initiated", aborted)
        return writer

    @contextlib.contextmanager
    def claiming(self, owner: TopicPartition, topic: str) -> Iterator[TransactionalRecordWriter]:
        writer = self._begin(owner)
        self._claiming.append(writer)
        try:
            self._sim.step(self._process, "fenced another", aborted)
            yield writer
        finally:
            if not self._process.dead:
                self._claiming.remove(writer)
                writer.abort()

    def _begin(self, owner: TopicPartition) -> "SimTransaction":
        self._sim.step(self._process, "init", aborted)
        return SimTransaction(self._sim, self._process, name_of(owner))

    @property
    def delivered(self) -> bool:
        return self._writer.delivered

    def send_pending(self) -> None:
        self._writer.send_pending()

    def release(self, task: TaskId) -> None:
        if self._process.dead:
            return
        writer = self._transactional.get(task)
        if writer is not None:
            writer.abort()
            del self._transactional[task]
        self._prepared.pop(task, None)

    def committed(self, place: TopicPartition) -> int | None:
        self._sim.step(self._process, "committed", refused)
        found = self._sim.broker.committed(place)
        self._sim.step(self._process, "committed read", refused)
        return None if found is None else found[0]

    def noted(self, places: Iterable[TopicPartition], *, stable: bool) -> dict[TopicPartition, CommittedOffset]:
        self._sim.step(self._process, "noted", refused)
        broker = self._sim.broker
        found = {place: broker.committed(place) if stable else broker.offsets.get(place) for place in places}
        self._sim.step(self._process, "noted read", refused)
        return {
            place: CommittedOffset(None) if each is None else CommittedOffset(each[0], each[1] or "")
            for place, each in found.items()
        }

    def bounds(self, place: TopicPartition) -> tuple[int, int]:
        self._sim.step(self._process, "bounds", refused)
        log = self._sim.broker.logs[place]
        found = log.low, log.stable if self._sim.mutant == "bounds" else log.end
        self._sim.step(self._process, "bounds read", refused)
        return found

    def ends(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {place: self.bounds(place)[1] for place in places}

    def changelog(self, place: TopicPartition, start: int, end: int) -> Iterator[Batch]:
        broker, rng = self._sim.broker, self._sim.rng
        at = start
        while at < end:
            self._sim.step(self._process, "changelog", refused)
            broker.wait_until_stable(place, end)
            found = list(broker.logs[place].read(at, end))
            taken = found[: rng.randint(1, 8)]
            if len(taken) < len(found):
                at = taken[-1].offset + 1
            elif taken and rng.random() < 0.5:
                # Whether what follows is markers only is not known yet.
                at = taken[-1].offset + 1
            else:
                at = end
            yield Batch(
                [entry.key or b"" for entry in taken],
                [entry.value for entry in taken],
                [entry.timestamp for entry in taken],
                at,
                [entry.epoch for entry in taken],
            )

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str | None]:
        self._sim.step(self._process, "topic ids", refused)
        return self._sim.ids_for(topics, self._process.name)

    def log_end(self, place: TopicPartition) -> int:
        self._sim.step(self._process, "log end", refused)
        return self._sim.broker.logs[place].stable

    def read(self, place: TopicPartition, start: int, end: int) -> Iterator[Chunk]:
        while start < end:
            self._sim.step(self._process, "read ahead", refused)
            found = list(self._sim.broker.logs[place].read(start, end))[: self._sim.rng.randint(1, 5)]
            if not found:
                return
            yield chunk_of(place, found)
            start = found[-1].offset + 1

    def has_records(self, place: TopicPartition, start: int, end: int) -> bool:
        # What was deleted tells nothing: markers may have been there, and no one can process it any more.
        low, _ = self.bounds(place)
        return any(batch.keys for batch in self.changelog(place, max(start, low), end))

    def now(self) -> int:
        return self._sim.broker.now

    def die(self) -> None:
        """End with the process."""
        self._writer.send_some()
        for writer in (*self._transactional.values(), *self._claiming):
            writer.die()
