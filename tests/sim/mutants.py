"""Deliberate mistakes in the protocol: a simulator that does not find them is worth nothing."""

import contextlib
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import streamrt.runtime.driver.life.completion as completion_module
import streamrt.runtime.tasks.commit as commit_module
import streamrt.runtime.tasks.fencing as fencing_module
import streamrt.runtime.tasks.merge as merge_module
import streamrt.runtime.tasks.stores.changelog_restore as restore_module
import streamrt.runtime.tasks.stores.foreign as foreign_module
import streamrt.runtime.tasks.stores.task_stores as stores_module
import tests.sim.driver as driver_module
from streamrt.kafka.membership.group_state import GroupAssignment
from streamrt.models import TopicPartition
from streamrt.runtime.driver.starting.start_offsets import StartPlan, StartRules, plan_start
from streamrt.runtime.link_messages import StartPositions
from streamrt.runtime.resident.loop import ResidentLoop
from streamrt.runtime.resident.membership import NO_ASSIGNMENT, Membership
from streamrt.runtime.resident.parking import Parked
from streamrt.runtime.resident.pausing import Pausing
from streamrt.runtime.resident.turns import Turns
from streamrt.runtime.tasks.chain.operator_chain import Limits
from streamrt.runtime.tasks.chain.sink_positions import SinkPositions
from streamrt.runtime.tasks.commit import ExactlyOnceCommit
from streamrt.runtime.tasks.cycle_commits import CycleCommits
from streamrt.runtime.tasks.stores.changelog_restore import RestorePlan
from streamrt.runtime.tasks.stores.foreign import EpochFilter
from streamrt.runtime.tasks.stores.task_stores import TaskStores
from streamrt.runtime.tasks.stream_task import StreamTask, TaskStatus
from streamrt.runtime.tasks.task_executor import TaskExecutor
from streamrt.runtime.tasks.work_cycle import WorkCycle
from streamrt.state.changelog import POSITION_KEY
from tests.sim.app import Setup, TransactionalSimSink
from tests.sim.broadcast_mutants import BROADCAST, BROADCAST_MUTANTS
from tests.sim.call_mutants import ASYNCHRONOUS, CALL_MUTANTS
from tests.sim.clients import SimClients, SimTransaction
from tests.sim.deployments import DeploymentSimulation
from tests.sim.join_mutants import JOIN_MUTANTS, JOINING
from tests.sim.meeting import KINDS
from tests.sim.process_mutants import EXPANDED, PROCESS_MUTANTS, PROCESSING
from tests.sim.recreated_mutants import RECREATED, RECREATED_MUTANTS
from tests.sim.recreating import RecreatedSimulation, ResidentRecreatedSimulation
from tests.sim.relating import KINDS as HOWS
from tests.sim.relating_mutants import MERGE_MUTANTS, MERGED_BY, MERGING, TABLE_MUTANTS, TABLES
from tests.sim.resident import ResidentSimulation
from tests.sim.simulation import Simulation, Violation, replaced
from tests.sim.snapshot_mutants import SNAPSHOT_MUTANTS, SNAPSHOTS, snapshot_world
from tests.sim.standby_mutants import STANDBY_MUTANTS, STANDBYS
from tests.sim.standbys import StandbySimulation
from tests.sim.tokens import ResidentTokenSimulation, SimOffsets, TokenSimulation
from tests.sim.window_mutants import WINDOW_MUTANTS, WINDOWS
from tests.sim.windowing import WindowSimulation

SINK = "transactional sink, "
"""In the names of mutants that are looked for in applications with such a sink."""
INCREMENTAL = "incremental, "
"""At the beginning of the names of those that are looked for in groups of the protocol `consumer`."""
PARKED = "parked tasks go on"
"""In the names of those that are looked for in applications without state."""
PAUSED = "paused tasks"
"""In the names of those that are looked for in applications that are paused."""

_REAL_TAKE_INPUTS = fencing_module.take_inputs
_REAL_CLAIM = fencing_module._claim_inputs
_REAL_LEVELS = completion_module.levels_below
_REAL_BEGIN = ExactlyOnceCommit.begin
_REAL_PREPARE = TaskStores.prepare
_REAL_FLUSH = TaskStores.flush
_REAL_PLAN = restore_module.plan_restore
_REAL_COMMIT = Membership._commit_offsets
_REAL_SETTLE = ResidentLoop._commit_cycle
_REAL_REWIND = ResidentLoop._rewind_aborted
_REAL_OBEY = ResidentLoop._handle_message
_REAL_FOLLOW = ResidentLoop._follow_assignment
_REAL_ABORT = CycleCommits.abort
_REAL_START = plan_start
_REAL_TAKE = Turns.run
_REAL_READ = SinkPositions.read


def _begin_without_comparing(self: ExactlyOnceCommit, expected: Any, *, reuse: bool) -> dict[TopicPartition, int]:
    class Clients:
        """Says that the group is where the driver believes it to be."""

        def __getattr__(self, name: str) -> Any:
            return getattr(clients, name)

        def committed(self, place: Any) -> int:
            return int(expected[place])

    clients = self._clients
    self._clients = Clients()
    return _REAL_BEGIN(self, expected, reuse=reuse)


def _publish_stores_first(self: ExactlyOnceCommit, stores: TaskStores, end: Any, sent: Any) -> None:
    stores.flush(end)
    assert self._transaction is not None
    self._transaction.commit(end, self._metadata.encode_all(end))


def _store_nothing(self: StreamTask) -> None:
    self.start = dict(self.end)
    self._move_to(TaskStatus.COMMITTED)


def _fence_nothing(self: TransactionalSimSink) -> bool:
    return False


def _store_positions_later(self: TransactionalSimSink, positions: Mapping[tuple[str, str, str, int], Any]) -> None:
    assert self.step is not None
    assert self.database is not None
    self.step("between values and positions")
    self.database.positions.update(positions)


def _read_positions_in_vain(self: SinkPositions, start: Mapping[TopicPartition, int]) -> None:
    _REAL_READ(self, start)
    self.below.clear()


def _publish_one_input(self: ExactlyOnceCommit, stores: TaskStores, end: Any, sent: Any) -> None:
    assert self._transaction is not None
    first = next(iter(end))
    self._transaction.commit({first: end[first]}, self._metadata.encode_all([first]))


def _read_what_is_delivered(self: Any, delivered: Any) -> Any:
    yield from delivered


def _prepare_without_position(self: TaskStores, writer: Any, ends: Any) -> None:
    class Writer:
        """Leaves position records out."""

        def produce(self, topic: str, value: Any, key: Any, *rest: Any) -> None:
            if key != POSITION_KEY:
                writer.produce(topic, value, key, *rest)

    _REAL_PREPARE(self, Writer(), ends)  # type: ignore[arg-type]
    for store in self._open.values():
        store.changes -= 1


def _flush_with_an_offset_too_high(self: TaskStores, ends: Any) -> None:
    for store in self._open.values():
        store.changes += 1
    _REAL_FLUSH(self, ends)


def _plan_without_age(*args: Any, longest_absence_ms: int, **options: Any) -> RestorePlan:
    return _REAL_PLAN(*args, longest_absence_ms=1 << 62, **options)


def _settle_before_flush(self: CycleCommits) -> None:
    prepared, self._prepared = self._prepared, []
    for task in prepared:
        self._commit_task(task, task.publish)
    # The report goes to the driver before the outputs are durable.


def _proceed_with_a_spent_writer(self: StreamTask) -> bool:
    self.stores.renew()
    self._move_to(TaskStatus.RUNNING)
    return True


def _report_and_commit(self: ResidentLoop) -> None:
    class Outbox:
        """Has offsets committed before the driver has heard of the work."""

        def __getattr__(self, name: str) -> Any:
            return getattr(outbox, name)

        def report(self, report: Any, offsets: Any) -> None:
            if offsets:
                task._membership.commit(offsets)
            outbox.report(report, {})

    task, outbox = self, self._outbox
    self._outbox = Outbox()  # type: ignore[assignment]
    try:
        _REAL_SETTLE(self)
    finally:
        self._outbox = outbox


def _commit_is_believed(self: Membership, wanted: Any, metadata: Any) -> bool:
    _REAL_COMMIT(self, wanted, metadata)
    return True


def _rewind_without_seeking(self: ResidentLoop, cycle: WorkCycle) -> None:
    seek, self._feed.seek = self._feed.seek, lambda partition, offset: None  # type: ignore[method-assign]
    try:
        _REAL_REWIND(self, cycle)
    finally:
        self._feed.seek = seek  # type: ignore[method-assign]


def _rewind_and_keep_what_is_left(self: ResidentLoop, cycle: WorkCycle) -> None:
    aborted = {task.id for task in cycle._commits.aborted}
    left = {task: chunks for task, chunks in self._turns._queue.items() if task in aborted}
    _REAL_REWIND(self, cycle)
    self._turns._queue.update(left)


def _begin_whatever_it_answers(self: ResidentLoop, message: Any) -> None:
    if isinstance(message, StartPositions):
        message = replace(message, generation=self._membership.assignment.generation)
    _REAL_OBEY(self, message)


def _pause_nothing(self: Pausing) -> None:
    """Do as if nothing was to be paused."""


def _release_without_closing(self: TaskExecutor, task: StreamTask) -> None:
    self.clients.release(task.id)
    self._registry.tasks.pop(task.id, None)


def _keep_after_any_generation(self: GroupAssignment, generation: int) -> frozenset[TopicPartition]:
    return self.partitions


def _hold_since_any_generation(self: GroupAssignment, generation: int, partitions: Any) -> bool:
    return True


def _park_what_is_lost(self: ResidentLoop) -> bool:
    group = self._membership
    if group.lost:
        self._parked = Parked(group.assignment.generation, self._clock())
        group.assignment = NO_ASSIGNMENT
        self._answered = False
        cycle, self._cycle = self._cycle, None
        if cycle is not None:
            cycle.close()
        for task in self._open_tasks():
            task.suspend()
        group.accept_loss()
    return _REAL_FOLLOW(self)


def _park_in_any_case(self: ResidentLoop) -> None:
    """Keep what is processed, and not committed."""
    self._cycle = None
    for task in self._open_tasks():
        task.suspend()
    self._parked = Parked(self._membership.assignment.generation, self._clock())
    self._membership.assignment = NO_ASSIGNMENT
    self._answered = False


def _work_while_parked(self: ResidentLoop) -> bool:
    return _REAL_FOLLOW(self) or self._parked is not None


def _abort_and_go_on(self: CycleCommits, task: StreamTask) -> None:
    """Take the work back but for the state: the same stores, with all that was read and written, serve the next attempt."""
    stores = task.stores
    close, stores.close = stores.close, lambda: None  # type: ignore[method-assign]
    _REAL_ABORT(self, task)
    stores.close = close  # type: ignore[method-assign]
    task._move_to(TaskStatus.RESTORING)
    task._move_to(TaskStatus.RUNNING)


def _take_and_use_again(clients: Any, task: Any, inputs: Any, metadata: Any, *, reuse: bool) -> Any:
    """Go on with a producer after an error as well."""
    return _REAL_TAKE_INPUTS(clients, task, inputs, metadata, reuse=True)


def _take_one_id(clients: Any, task: Any, inputs: Any, metadata: Any, *, reuse: bool) -> Any:
    kept = clients.kept(task) if reuse else None
    return kept or clients.transactional(task, fencing_module.owner_of(inputs))


def _claim_nothing(clients: Any, task: Any, writers: Any, owner: Any, metadata: Any) -> None:
    class Silent:
        """Commits no claim."""

        def commit(self, offsets: Any, metadata: Any = None) -> None: ...

    _REAL_CLAIM(clients, task, dict.fromkeys(writers, Silent()), owner, metadata)  # type: ignore[arg-type]


def _named_by_nobody(place: Any, note: Any) -> set[Any]:
    return set()


def _claim_with_the_first_id(clients: Any, task: Any, writers: Any, owner: Any, metadata: Any) -> None:
    """Claim all inputs with the id of the first one, and leave those of the others as they are."""
    _REAL_CLAIM(clients, task, dict.fromkeys(writers, writers[owner]), owner, metadata)


def _claim_whoever_followed(clients: Any, task: Any, writers: Any, owner: Any, metadata: Any) -> None:
    class Tolerant:
        """Takes each text for one of its own version."""

        def describes(self, place: Any, text: Any) -> bool:
            return True

        def followed(self, place: Any, text: str) -> str:
            return text

    _REAL_CLAIM(clients, task, writers, owner, Tolerant())  # type: ignore[arg-type]


def _begin_without_init(self: Any, owner: Any, topic: str) -> Any:
    return contextlib.nullcontext(SimTransaction(self._sim, self._process, f"nobody's {owner}"))


def _take_all_records(self: EpochFilter, records: Any) -> Any:
    return zip(records.keys, records.values, strict=True)


def _defend_nothing(self: TaskStores, writer: Any) -> None:
    for store in self._open.values():
        if store.changelog is not None:
            store.changes = self._clients.bounds(store.changelog)[1] - store.changelog_end


def _write_again_nothing(*args: Any) -> int:
    clients, _, log = args[:3]
    return int(clients.bounds(log)[1])


def _nothing(*args: Any, **options: Any) -> None: ...


def _one_epoch(claim: int, attempt: int) -> bytes:
    return bytes(10)


def _go_on_at_the_end(
    place: TopicPartition, known: int | None, bounds: tuple[int, int], rules: StartRules
) -> StartPlan:
    plan = _REAL_START(place, known, bounds, rules)
    return replace(plan, position=bounds[1]) if plan.lost else plan


def _begin_added_ones_like_others(
    place: TopicPartition, known: int | None, bounds: tuple[int, int], rules: StartRules
) -> StartPlan:
    return _REAL_START(place, known, bounds, replace(rules, added=False))


def _slice_without_end(self: WorkCycle) -> Limits:
    return Limits(float("inf"), self.context.output_limit)


def _take_in_the_same_order(self: Turns, cycle: WorkCycle) -> None:
    _REAL_TAKE(self, cycle)
    self._queue = dict(sorted(self._queue.items()))


def _forget_the_second_level(topology: Any, topics: Any) -> list[list[str]]:
    return _REAL_LEVELS(topology, topics)[:2]


def _take_all_ends_at_once(topology: Any, topics: Any) -> list[list[str]]:
    first, *below = _REAL_LEVELS(topology, topics)
    return [first, [topic for level in below for topic in level]]


def _stable_bounds(self: SimOffsets, partitions: Any) -> dict[TopicPartition, tuple[int, int]]:
    ends = self.stable_ends(partitions)
    return {place: (self._sim.broker.logs[place].low, end) for place, end in ends.items()}


Patch = tuple[Any, str, Callable[..., Any]]

SINK_MUTANTS: dict[str, tuple[str, bool, tuple[Patch, ...]]] = {
    f"{prefix}{SINK}{what}": ("", transactional, ((where, name, replacement),))
    for prefix, transactional in (("", True), ("at least once, ", False), ("resident, ", True))
    for what, where, name, replacement in (
        ("positions are not compared", TransactionalSimSink, "fences", _fence_nothing),
        ("positions are stored after the values", TransactionalSimSink, "store", _store_positions_later),
        ("values that are there are written again", SinkPositions, "read", _read_positions_in_vain),
    )
}

_LOST_IS_PARKED: tuple[Patch, ...] = (
    (ResidentLoop, "_follow_assignment", _park_what_is_lost),
    (GroupAssignment, "kept", _keep_after_any_generation),
)

INCREMENTAL_MUTANTS: dict[str, tuple[str, bool, tuple[Patch, ...]]] = {
    f"{INCREMENTAL}{'' if transactional else 'at least once, '}{what}": ("", transactional, patches)
    for transactional, what, patches in (
        (False, "parked tasks go on with what others had", ((GroupAssignment, "kept", _keep_after_any_generation),)),
        (
            False,
            "offsets of what was given back are committed",
            ((GroupAssignment, "holds", _hold_since_any_generation),),
        ),
        (True, "what is not committed is parked", ((ResidentLoop, "_park_tasks", _park_in_any_case),)),
        (False, "what is not committed is parked", ((ResidentLoop, "_park_tasks", _park_in_any_case),)),
        (True, "what is lost is parked", _LOST_IS_PARKED),
        (False, "what is lost is parked", _LOST_IS_PARKED),
        (False, "parked tasks work", ((ResidentLoop, "_follow_assignment", _work_while_parked),)),
    )
}

TOKEN_MUTANTS: dict[str, tuple[str, bool, tuple[Patch, ...]]] = {
    f"{prefix}{what}": ("", transactional, ((where, name, replacement),))
    for prefix, transactional in (
        ("tokens, ", True),
        ("tokens, at least once, ", False),
        ("resident tokens, ", True),
        ("resident tokens, at least once, ", False),
    )
    for what, where, name, replacement in (
        ("the second level is forgotten", completion_module, "levels_below", _forget_the_second_level),
        ("all ends are taken at once", completion_module, "levels_below", _take_all_ends_at_once),
        ("the end of a level is the last stable offset", SimOffsets, "bounds", _stable_bounds),
    )
    # At least once, records are not in transactions.
    if transactional or where is completion_module
}

MUTANTS: Mapping[str, tuple[str, bool, tuple[Patch, ...]]] = {
    "the committed offset is not compared": (
        "",
        True,
        ((ExactlyOnceCommit, "begin", _begin_without_comparing),),
    ),
    "stores are written before the transaction is committed": (
        "",
        True,
        ((ExactlyOnceCommit, "publish", _publish_stores_first), (StreamTask, "store", _store_nothing)),
    ),
    "restores end at the last stable offset": ("bounds", True, ()),
    "a transactional id fences nobody": ("fencing", True, ()),
    "a producer is used again after trouble": ("usable", True, ()),
    "late, a producer is used again after trouble": (
        "usable",
        True,
        ((commit_module, "take_inputs", _take_and_use_again),),
    ),
    "resident late, a producer is used again after trouble": (
        "usable",
        True,
        ((commit_module, "take_inputs", _take_and_use_again),),
    ),
    "no position is produced": ("", True, ((TaskStores, "prepare", _prepare_without_position),)),
    "the stamp's changelog offset is one too high": (
        "",
        True,
        ((TaskStores, "flush", _flush_with_an_offset_too_high),),
    ),
    "a merge does not read ahead": ("", True, ((merge_module._Feed, "_read_chunks", _read_what_is_delivered),)),
    "only one input's offset is committed": ("", True, ((ExactlyOnceCommit, "publish", _publish_one_input),)),
    "stores of any age are replayed": ("", True, ((stores_module, "plan_restore", _plan_without_age),)),
    "at least once, progress is reported before the flush": (
        "",
        False,
        ((CycleCommits, "settle_prepared", _settle_before_flush),),
    ),
    "resident, a task goes on with a producer that is spent": (
        "",
        True,
        ((StreamTask, "proceed", _proceed_with_a_spent_writer),),
    ),
    "resident, the committed offset is not compared": (
        "",
        True,
        ((ExactlyOnceCommit, "begin", _begin_without_comparing),),
    ),
    "resident, stores are written before the transaction is committed": (
        "",
        True,
        ((ExactlyOnceCommit, "publish", _publish_stores_first), (StreamTask, "store", _store_nothing)),
    ),
    "resident, a transactional id fences nobody": ("fencing", True, ()),
    "resident, a commit of the member that failed counts": (
        "",
        True,
        ((Membership, "_commit_offsets", _commit_is_believed),),
    ),
    "resident, positions are not taken back": ("", True, ((ResidentLoop, "_rewind_aborted", _rewind_without_seeking),)),
    "resident, records of a task that was aborted are processed": (
        "",
        True,
        ((ResidentLoop, "_rewind_aborted", _rewind_and_keep_what_is_left),),
    ),
    "resident, state that was given up is used": ("", True, ((CycleCommits, "abort", _abort_and_go_on),)),
    "resident, an answer of any assignment is heard": (
        "",
        True,
        ((ResidentLoop, "_handle_message", _begin_whatever_it_answers),),
    ),
    "resident, paused tasks go on": ("", True, ((Pausing, "apply", _pause_nothing),)),
    "resident, at least once, paused tasks go on": ("", False, ((Pausing, "apply", _pause_nothing),)),
    "resident, stores stay open when partitions go": ("", True, ((TaskExecutor, "release", _release_without_closing),)),
    "resident, at least once, parked tasks go on after any generation": (
        "",
        False,
        ((GroupAssignment, "kept", _keep_after_any_generation),),
    ),
    "resident, what is lost is parked": ("", True, _LOST_IS_PARKED),
    "resident, at least once, what is lost is parked": ("", False, _LOST_IS_PARKED),
    "resident, what is not committed is parked": ("", True, ((ResidentLoop, "_park_tasks", _park_in_any_case),)),
    "resident, at least once, what is not committed is parked": (
        "",
        False,
        ((ResidentLoop, "_park_tasks", _park_in_any_case),),
    ),
    "resident, at least once, parked tasks work": (
        "",
        False,
        ((ResidentLoop, "_follow_assignment", _work_while_parked),),
    ),
    "resident, at least once, offsets are committed before the report is taken": (
        "",
        False,
        ((ResidentLoop, "_commit_cycle", _report_and_commit),),
    ),
    "resident, at least once, progress is reported before the flush": (
        "",
        False,
        ((CycleCommits, "settle_prepared", _settle_before_flush),),
    ),
    "resident, transactions are left open when an offset is moved behind deleted records": ("gap", True, ()),
    "partitions that were added begin at their ends": (
        "",
        True,
        ((driver_module, "plan_start", _begin_added_ones_like_others),),
    ),
    "resident, slow functions work without an end": ("", True, ((WorkCycle, "_begin_slice", _slice_without_end),)),
    "resident, tasks do not take turns": ("", True, ((Turns, "run", _take_in_the_same_order),)),
    "records behind deleted ones are skipped": ("", True, ((driver_module, "plan_start", _go_on_at_the_end),)),
    "at least once, no position is produced": ("", False, ((TaskStores, "prepare", _prepare_without_position),)),
    "at least once, the stamp's changelog offset is one too high": (
        "",
        False,
        ((TaskStores, "flush", _flush_with_an_offset_too_high),),
    ),
    "deployed, only the id of the first input is taken": ("", True, ((commit_module, "take_inputs", _take_one_id),)),
    "deployed, inputs are not claimed": ("", True, ((fencing_module, "_claim_inputs", _claim_nothing),)),
    "deployed, whoever claims an input is not fenced": (
        "",
        True,
        ((fencing_module, "_find_owners", _named_by_nobody),),
    ),
    "deployed, inputs are claimed with another id than their own": (
        "",
        True,
        ((fencing_module, "_claim_inputs", _claim_with_the_first_id), (SimClients, "claiming", _begin_without_init)),
    ),
    "deployed, a version does not claim what another one had": ("claims", True, ()),
    "deployed, a former version goes on after it was followed": (
        "",
        True,
        ((fencing_module, "_claim_inputs", _claim_whoever_followed),),
    ),
    "deployed, stores that were passed by are used": (
        "",
        True,
        ((driver_module, "refuse_skipped_stores", _nothing),),
    ),
    "at least once, records of former owners count": ("", False, ((EpochFilter, "filter", _take_all_records),)),
    "at least once, what others write over stays": ("", False, ((TaskStores, "match_changelogs", _defend_nothing),)),
    "at least once, keys of others are not written again": (
        "",
        False,
        ((foreign_module, "write_again", _write_again_nothing),),
    ),
    "at least once, a former owner writes its values again": (
        "",
        False,
        ((foreign_module, "refuse_later_owner", _nothing), (stores_module, "refuse_later_owner", _nothing)),
    ),
    "at least once, all owners have one epoch": ("", False, ((stores_module, "epoch_of", _one_epoch),)),
    **INCREMENTAL_MUTANTS,
    **SINK_MUTANTS,
    **TOKEN_MUTANTS,
    **PROCESS_MUTANTS,
    **CALL_MUTANTS,
    **BROADCAST_MUTANTS,
    **SNAPSHOT_MUTANTS,
    **WINDOW_MUTANTS,
    **JOIN_MUTANTS,
    **TABLE_MUTANTS,
    **MERGE_MUTANTS,
    **RECREATED_MUTANTS,
    **STANDBY_MUTANTS,
}
"""By what is wrong: the mistake of the simulated clients, the guarantee, and what is replaced in the code."""


def simulation_of(name: str, seed: int) -> Simulation:
    """Return the world in which a mutant is to be found."""
    mistake, transactional, _ = MUTANTS[name]
    kinds: dict[str, type[Simulation]] = {
        "resident": ResidentSimulation,
        "resident late": ResidentSimulation,
        "incremental": ResidentSimulation,
        "deployed": DeploymentSimulation,
        f"resident {PROCESSING}": ResidentSimulation,
        f"resident {ASYNCHRONOUS}": ResidentSimulation,
        f"resident {BROADCAST}": ResidentSimulation,
        f"resident {JOINING}": ResidentSimulation,
        f"resident {TABLES}": ResidentSimulation,
        f"resident {MERGING}": ResidentSimulation,
        "tokens": TokenSimulation,
        "resident tokens": ResidentTokenSimulation,
    }
    if RECREATED in name.partition(",")[0]:
        world = ResidentRecreatedSimulation if name.startswith("resident") else RecreatedSimulation
        return world(seed, transactional=transactional)
    if SNAPSHOTS in name.partition(",")[0]:
        return snapshot_world(name)(seed, mutant=mistake, transactional=transactional, sinks=False)
    if name.startswith(STANDBYS):
        return StandbySimulation(seed, mutant=mistake, transactional=transactional, sinks=False)
    if name.startswith(WINDOWS):
        return WindowSimulation(seed, mutant=mistake, transactional=transactional)
    kind = kinds.get(name.partition(",")[0], Simulation)
    if BROADCAST in name.partition(",")[0]:
        return kind(seed, Setup(transactional, True, False, False, broadcasting=True), mutant=mistake)
    if TABLES in name.partition(",")[0]:
        setup = Setup(transactional, True, False, False, relating=HOWS[seed % len(HOWS)])
        return kind(seed, setup, mutant=mistake)
    if MERGING in name.partition(",")[0]:
        maintained = MERGED_BY[name.rpartition(", ")[2]]
        return kind(seed, Setup(transactional, True, False, False, deriving=maintained), mutant=mistake)
    if JOINING in name:
        setup = Setup(transactional, True, False, False, joining=KINDS[seed % len(KINDS)])
        return kind(seed, setup, mutant=mistake)
    if ASYNCHRONOUS in name:
        return kind(seed, Setup(transactional, True, False, False, asynchronous=True), mutant=mistake)
    if PROCESSING in name:
        setup = Setup(transactional, True, False, False, processing=True, expanding=EXPANDED in name)
        return kind(seed, setup, mutant=mistake)
    if kind is ResidentSimulation and SINK not in name:
        wishes = PAUSED in name
        incremental = name.startswith(INCREMENTAL)
        mixed = False if incremental else None
        # Tasks with state see in their changelogs what others have had; only offsets show what a task without state does.
        stateless = Setup(transactional, False, False, False) if PARKED in name else None
        return ResidentSimulation(
            seed,
            stateless,
            None,
            mistake,
            transactional,
            sinks=False,
            mixed=mixed,
            wishes=wishes,
            incremental=incremental,
            late_requests=name.startswith("resident late"),
        )
    # No mutant of micro-batches needs pauses.
    options: dict[str, Any] = {"pauses": False} if kind is Simulation else {}
    if name.startswith("late, "):
        options["late_requests"] = True
    if SINK not in name:
        return kind(seed, mutant=mistake, transactional=transactional, sinks=False, **options)
    own = random.Random(f"sink of a mutant {seed}")
    setup = Setup(transactional, own.random() < 0.5, False, False, own.random() < 0.5, TransactionalSimSink)
    return kind(seed, setup, mutant=mistake, **options)


def seeds_needed(name: str, most: int, first: int = 0) -> int | None:
    """Return how many seeds it takes until a mutant is found; None if it is not."""
    with contextlib.ExitStack() as stack:
        for patch in MUTANTS[name][2]:
            stack.enter_context(replaced(*patch))
        for count, seed in enumerate(range(first, first + most), 1):
            try:
                simulation_of(name, seed).run_to_end()
            except Violation:
                return count
    return None
