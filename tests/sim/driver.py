"""The driver of the simulator: hands offset ranges to processes and commits, as `streamrt.spark` does."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from streamrt.event_time.merge_phases import MergePhase, MergePhases
from streamrt.kafka import KafkaRequestError
from streamrt.kafka.client import OffsetMetadata
from streamrt.kafka.cluster.committed import CommittedOffset
from streamrt.kafka.cluster.topic_ids import DOUBTFUL, confirmed_ids
from streamrt.models import TopicPartition
from streamrt.runs.start_positions import Start
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.chunk import Chunk
from streamrt.runtime.driver.life.unfinished import Unfinished
from streamrt.runtime.driver.starting.start_offsets import StartRules, plan_start
from streamrt.runtime.layout_record import POSITIONS_PARTITION, decode_position, position_key
from streamrt.runtime.metadata import CommittedMetadata, claimed, first_counts, sent_before
from streamrt.runtime.report import Report
from streamrt.runtime.skipped import refuse_skipped_stores
from streamrt.runtime.tasks.faults import InjectedFaultError
from streamrt.runtime.topic_identity import InputIdentity, refuse_recreated
from streamrt.state.changelog import POSITION_KEY, Position
from streamrt.topology import TaskId
from tests.sim.broker import LAYOUT, Log
from tests.sim.clients import Crash, chunk_of, name_of
from tests.sim.cuts import merge_cuts

if TYPE_CHECKING:
    from tests.sim.simulation import Simulation

_ATTEMPTS = 3
_RULES = StartRules("sim", "latest", recover=True)
_SLICES = 200
_TICKS = 2_000
SLICE_S = 0.2
"""How long tasks work before they look around, where functions are slow."""


@dataclass
class Attempt:
    """One Spark task, which may be run by several processes: one after the other, or at once."""

    chunks: list[Chunk]
    context: BatchContext
    paused: frozenset[str] = frozenset()
    """The topics that the driver does not read."""
    twin: Report | None = None


class Wrong(BaseException):
    """An outcome that must never be. Passes through the code under test, which catches exceptions."""


def find_start(sim: "Simulation", places: Iterable[TopicPartition]) -> Start:
    """Return where to begin, as `StartOffsets` does."""
    positions: dict[TopicPartition, int] = {}
    initial_offsets: dict[TopicPartition, int] = {}
    stateful = []
    metadata: dict[TopicPartition, str | None] = {}
    claims: dict[TopicPartition, int] = {}
    notes: dict[TopicPartition, CommittedMetadata] = {}
    committed: dict[TopicPartition, int] = {}
    sim.before_start()
    counts = _first_counts(sim)
    ids = sim.spec.topic_ids
    refuse_recreated(ids, confirmed_ids(partial(sim.ids_for, who="start"), ids))
    for place in places:
        try:
            found = sim.broker.committed(place)
        except KafkaRequestError:
            # It ends the transactions that dead tasks have left.
            fence(sim, place)
            found = sim.broker.committed(place)
        log = sim.broker.logs[place]
        if found is not None and found[0] < log.low and sim.mutant != "gap":
            # The same, so that none of them moves the group back.
            fence(sim, place)
            found = sim.broker.committed(place) or found
        if sim.setup.transactional and found is not None:
            found = _claim(sim, place, found)
        text = None if found is None else found[1]
        note = notes[place] = CommittedMetadata.decode(text)
        refuse_recreated({place.topic: note.topic}, ids if ids else {place.topic: None})
        if found is not None:
            committed[place] = found[0]
        added = place.partition >= counts.get(place.topic, math.inf)
        known = _remembered(sim, place, added=added) if found is None else found[0]
        plan = plan_start(place, known, (log.low, log.end), replace(_RULES, added=added))
        positions[place] = plan.position
        if known is None:
            # What was deleted before anybody heard of the partition.
            log.lose(0)
        if plan.lost and known is not None:
            sim.note(plan.notice)
            log.lose(known)
        if plan.moved or found is None:
            initial_offsets[place] = plan.position
        if found is not None:
            stateful += [
                TopicPartition(scope, place.partition)
                for scope, topics in sim.spec.topology.scopes.items()
                if place.topic in topics and note.names_any(scope)
            ]
        metadata[place] = text or sim.spec.commit_metadata.first(place)
        if not sim.setup.transactional and any(place.topic in sim.setup.scopes[topic] for topic, _ in sim.changelogs):
            claims[place] = max(sim.broker.now, note.claim + 1)
            initial_offsets[place] = positions[place]
            metadata[place] = claimed(metadata[place], claim=claims[place], owner=note.owner)
    refuse_skipped_stores(
        sim.spec.state,
        committed,
        notes,
        lambda log: _last_position(sim.broker.logs[log]),
        lambda place, start, end: any(sim.broker.logs[place].read(start, end)),
    )
    _note(sim, positions)
    return Start(
        positions,
        initial_offsets,
        frozenset(stateful),
        {place: metadata[place] for place in initial_offsets},
        claims,
        sent_before(notes, sim.spec.topology),
    )


def _first_counts(sim: "Simulation") -> Mapping[str, int]:
    """Return how many partitions the inputs had when the group began, as its offsets tell."""
    told = sim.spec.commit_metadata.first_counts
    if not any(place.topic in told and place in sim.broker.offsets for place in sim.inputs):
        return told
    offsets = {place: sim.broker.offsets.get(place, (None, None)) for place in sim.inputs if place.topic in told}
    found = first_counts(
        {place: CommittedOffset(*at) for place, at in offsets.items()},
        {topic: sim.broker.topics[topic] for topic in told},
    )
    if any(found[place.topic] != told[place.topic] for place, (at, _) in offsets.items() if at is not None):
        raise Wrong(f"the group says that it began with {found} partitions, and these were {told}")
    return told


def fence(sim: "Simulation", place: TopicPartition) -> None:
    """End the transactions of the tasks of an input partition, as `fence_owners` does."""
    sim.broker.init(name_of(place))
    found = sim.broker.offsets.get(place)
    owner = None if found is None else CommittedMetadata.decode(found[1]).owner
    if owner is not None:
        sim.broker.init(name_of(TopicPartition(owner, place.partition)))


def _claim(sim: "Simulation", place: TopicPartition, found: tuple[int, str | None]) -> tuple[int, str | None]:
    """Claim an input partition that another version had; then return what is committed."""
    metadata = sim.spec.commit_metadata
    if metadata.describes(place, found[1]) or sim.mutant == "claims":
        return found
    fence(sim, place)
    at, text = sim.broker.committed(place) or found
    sim.broker.offsets[place] = at, metadata.followed(place, text or "")
    return sim.broker.offsets[place]


def _remembered(sim: "Simulation", place: TopicPartition, *, added: bool) -> int | None:
    """Return the position of a partition without a committed offset, as changelogs and the layout tell."""
    positions = sim.spec.positions
    if positions is not None and place.topic in positions.ids and sim.mutant != "forgotten":
        log = sim.broker.logs[TopicPartition(LAYOUT, POSITIONS_PARTITION)]
        values = [entry.value for entry in log.read(0, log.end) if entry.key == position_key(place)]
        if values:
            return decode_position(values[-1] or b"", LAYOUT)[1]
    return None if added else _position_of_state(sim, place)


def _note(sim: "Simulation", positions: Mapping[TopicPartition, int]) -> None:
    """Keep where inputs begin."""
    if sim.spec.positions is not None:
        for key, value in sim.spec.positions.records(positions):
            sim.broker.append(TopicPartition(LAYOUT, POSITIONS_PARTITION), key, value, None)


def _position_of_state(sim: "Simulation", place: TopicPartition) -> int:
    found = []
    for (topic, _), changelog in sim.changelogs.items():
        log = sim.broker.logs.get(TopicPartition(changelog, place.partition))
        if place.topic in sim.setup.scopes[topic] and log is not None:
            position = _last_position(log)
            own = sim.spec.state.sources[topic].topic_id if sim.spec.state is not None else None
            if position is not None and position.topic_id in (None, own):
                found.append((position.inputs or {}).get(place.topic, position.input_offset))
    return min(found, default=0)


def _last_position(log: Log) -> Position | None:
    values = [entry.value for entry in log.read(0, log.end) if entry.key == POSITION_KEY]
    return Position.decode(values[-1] or b"") if values else None


class Driver:
    """One run of the application; a later one takes the group over, and this one is then a zombie.

    Args:
        sim: the world.
    """

    def __init__(self, sim: "Simulation") -> None:
        self.sim = sim
        sim.broker.generation += 1
        self.generation = sim.broker.generation
        self.inputs = list(sim.inputs)
        self.tasks = list(sim.tasks)
        self.positions: dict[TopicPartition, int] = {}
        self.workers: dict[TaskId, str] = {}
        self._pending: dict[TopicPartition, int] = {}
        self._purge: dict[TopicPartition, int] = {}
        self._stateful: frozenset[TopicPartition] = frozenset()
        self._claims: Mapping[TopicPartition, int] = {}
        self._known = len(sim.inputs)
        self.identity = InputIdentity(partial(sim.ids_for, who=str(self)), sim.spec.topic_ids, clock=sim.seconds)
        self.paused = sim.paused
        self._unfinished = Unfinished(sim.spec.topology)
        self._phases = MergePhases(sim.spec.topology, merge_cuts(sim))
        # Up to where the last micro-batch has read, and the ends that there were.
        self._plan: tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]] = ({}, {})

    def __str__(self) -> str:
        return f"driver {self.generation}"

    @property
    def replaced(self) -> bool:
        """Whether another driver has taken over."""
        return self.sim.driver is not self

    # -- A query's beginning -----------------------------------------------------------------------------------------

    def start(self) -> bool:
        """Begin at the committed offsets, and restore the stores; return False if that must be tried again."""
        self._pending.clear()
        # A query compares only its own micro-batches.
        self._plan = ({}, {})
        self._follow()
        start = find_start(self.sim, self.inputs)
        self.positions, self._stateful, self._claims = dict(start.positions), start.stateful, start.claims
        if start.initial_offsets and not self._commit(dict(start.initial_offsets), start.metadata):
            return False
        self._phases.assign(self.inputs)
        self._enter_phase()
        return self._restore()

    def _enter_phase(self) -> None:
        """Leave out what is not read yet because of merges behind exchanges."""
        self._phases.advance(self.positions)
        left_out = self._phases.left_out(self.inputs)
        self.tasks = [task for task in self.tasks if left_out.isdisjoint(self.sim.spec.topology.inputs(task))]
        self._unfinished.assign(self.tasks)
        self.inputs = [place for place in self.inputs if place not in left_out]

    def _follow(self) -> None:
        """Take the partitions that there are, without those of tasks that read a paused topic."""
        topology, self.paused = self.sim.spec.topology, self.sim.paused
        self.tasks = [
            task for task in self.sim.tasks if self.paused.isdisjoint(each.topic for each in topology.inputs(task))
        ]
        self.inputs = [place for place in self.sim.inputs if topology.task(place) in self.tasks]
        self._known = len(self.sim.inputs)

    @property
    def _is_behind(self) -> bool:
        """Whether the group has partitions that this driver has not heard of."""
        return self._known < len(self.sim.inputs)

    def _restore(self) -> bool:
        left = list(self.tasks)
        for _ in range(_SLICES):
            if not left:
                return True
            task = left[0]
            # A restore goes on in slices of time; without any, it ends after one batch of the changelog.
            seconds = float("inf") if self.sim.rng.random() < 0.7 else -1.0
            context = self._context(seconds, None)
            process = self.sim.process(task)
            try:
                with self.sim.running(process, None):
                    report = process.tasks.restore([task], context)
            except Crash:
                return False
            except InjectedFaultError:
                self.sim.kill(process)
                return False
            if self.replaced:
                return False
            self.sim.checks.failure(report)
            self.workers.update(report.workers)
            if report.failure is not None or report.interrupted or report.locked:
                return False
            if report.complete:
                left.pop(0)
        raise Wrong(f"the restore of {left[0]} does not end")

    # -- Batches -----------------------------------------------------------------------------------------------------

    def batch(self) -> bool:
        """Run one micro-batch; return whether the query can go on."""
        sim, rng = self.sim, self.sim.rng
        logs = sim.broker.logs
        if any(not logs[place].low <= self.positions[place] <= logs[place].end for place in self.inputs):
            # Spark gives a query up that was to read what is deleted.
            self.identity.doubt("the query ended")
            sim.doubted(str(self))
            self.commit()
            return False
        if self.identity.in_doubt:
            self.identity.require()
        sim.check_batch(str(self))
        if self._is_behind and (sim.calm or sim.growth.random() < 0.3):
            # A rebalance ends the query.
            self.commit()
            return False
        if self.paused != sim.paused:
            # So does a wish of callers.
            self.commit()
            return False
        if self._phases.phase is not MergePhase.ALL and self._phases.advance(self.positions):
            self.commit()
            return False
        if not self._finish_work():
            self.commit()
            return False
        latest = {place: sim.broker.logs[place].stable for place in self.inputs}
        if self._phases.see_plan(*self._plan):
            self._phases.restart()
            self.commit()
            return False
        tasks: list[list[Chunk]] = []
        for task in self.tasks:
            chunks = [chunk for place in sim.spec.topology.inputs(task) for chunk in self._chunks(place)]
            if len(sim.spec.topology.inputs(task)) > 1:
                # A shuffle brings them together.
                rng.shuffle(chunks)
            if chunks and (sim.calm or rng.random() < 0.8):
                if tasks and rng.random() < 0.2:
                    tasks[-1] += chunks
                else:
                    tasks.append(chunks)
        rng.shuffle(tasks)
        merged = Report()
        for chunks in tasks:
            report = self._run(chunks)
            if self.replaced or report is None:
                # Spark gives the batch up: no one hears of the tasks that succeeded.
                self.commit()
                return False
            merged.merge(report)
        sim.driver_step(self, "batch")
        if self.replaced:
            return False
        self._note(merged)
        if not self._finish_work():
            self.commit()
            return False
        self._plan = {place: self.positions[place] for place in latest}, latest
        return merged.failure is None and not merged.interrupted and not merged.locked

    def _finish_work(self) -> bool:
        """Tick tasks until none has work left over, as between two batches; return whether the query can go on."""
        for _ in range(_TICKS if self.sim.setup.leaves_work else 0):
            if not self._unfinished.tasks:
                return True
            task = self.sim.rng.choice(sorted(self._unfinished.tasks))
            process = self.sim.process(task)
            self.sim.note(f"{process.name} goes on with the work of {task}")
            try:
                with self.sim.running(process, None):
                    report = process.tasks.tick([task], replace(self.context(), attempt=self.sim.counts.attempts))
            except Crash:
                return False
            except InjectedFaultError:
                self.sim.kill(process)
                return False
            if self.replaced:
                return False
            self.sim.checks.failure(report)
            self._note(report)
            if report.failure is not None or report.interrupted or report.locked:
                return False
        if self.sim.setup.leaves_work:
            raise Wrong("what is due never ends")
        return True

    def idle(self) -> None:
        """Move the group past what is not a record at the ends of partitions."""
        for place in self.inputs:
            log = self.sim.broker.logs[place]
            at = self.positions.get(place, 0)
            if log.low <= at < log.stable and not any(log.read(at, log.stable)):
                if not self.sim.setup.transactional:
                    self._pending[place] = self.positions[place] = log.stable
                elif self._commit({place: log.stable}, (self.sim.broker.committed(place) or (0, None))[1]):
                    self.positions[place] = log.stable

    def commit(self) -> None:
        """Commit what is processed at least once."""
        metadata = self.sim.spec.commit_metadata.encode_all(self._pending, self._claims)
        if self._pending and self._commit(self._pending, metadata):
            self._purge.update(self._pending)
            self._pending.clear()

    def purge(self) -> None:
        """Delete the records of repartition topics that are processed."""
        for place, offset in self._purge.items():
            if place.topic != "in":
                self.sim.broker.delete_records(place, offset)
        self._purge.clear()

    def _commit(self, offsets: dict[TopicPartition, int], metadata: OffsetMetadata) -> bool:
        former = {place: at for place, (at, _) in self.sim.broker.offsets.items()}
        try:
            self.sim.driver_step(self, "commit")
            self.identity.require()
            self.sim.check_committer(str(self), offsets)
            self.sim.broker.commit(self.generation, offsets, metadata)
        except KafkaRequestError as error:
            if error.code in DOUBTFUL:
                self.identity.doubt(str(error))
                self.sim.doubted(str(self))
            return False
        if not self.sim.setup.transactional:
            self.sim.checks.durable(offsets)
            self.sim.credit(offsets, former)
        return True

    def _chunks(self, place: TopicPartition) -> list[Chunk]:
        rng = self.sim.rng
        records = list(self.sim.broker.logs[place].read(self.positions[place], 1 << 62))
        # Of several inputs, a batch may have records of one only.
        least = 0 if self.sim.setup.has_several_inputs and not self.sim.calm else 1
        records = records[: rng.randint(least, self.sim.largest)]
        if len(records) > 2 and rng.random() < 0.3:
            cut = rng.randrange(1, len(records))
            return [chunk_of(place, records[:cut]), chunk_of(place, records[cut:])]
        return [chunk_of(place, records)] if records else []

    def _run(self, chunks: list[Chunk]) -> Report | None:
        rng = self.sim.rng
        seconds = float("inf") if self.sim.calm or rng.random() < 0.85 else -1.0
        if self.sim.slow_ms:
            seconds = SLICE_S
        if self.sim.setup.timed:
            # No one ticks here, so timers fire in one portion.
            seconds = float("inf")
        outputs = None if self.sim.calm or rng.random() < 0.85 else rng.randint(1, 3)
        context = self._context(seconds, outputs)
        attempt = Attempt(chunks, context, self.paused)
        for _ in range(_ATTEMPTS):
            report = self.sim.run(attempt)
            if self.replaced:
                return None
            # Spark takes the first success, and kills the others.
            report = attempt.twin or report
            if report is not None:
                return report
        return None

    def context(self) -> BatchContext:
        """Return what tasks are told that have all the time they want."""
        return self._context(float("inf"), None)

    def _context(self, seconds: float, outputs: int | None) -> BatchContext:
        return BatchContext(
            dict(self.positions), seconds, outputs, dict(self.workers), self._stateful, claims=self._claims
        )

    def _note(self, report: Report) -> None:
        self._unfinished.report(report)
        for place, done in report.ranges.items():
            self.positions[place] = max(done.end, self.positions[place])
        for task in (*report.interrupted, *report.locked):
            self.workers.pop(task, None)
        self.workers.update(report.workers)
        ends = {place: done.end for place, done in report.ranges.items()}
        if self.sim.setup.transactional:
            self._purge.update(ends)
            if self.sim.rng.random() < 0.2:
                self.purge()
        else:
            self._pending.update(ends)
            if self.sim.rng.random() < 0.4:
                self.commit()
