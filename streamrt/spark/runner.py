"""Runs a topology on Spark: membership in the consumer group, one query per assignment, commits, stop.

Life cycle::

    waiting for partitions --> running a query --> draining --> waiting for partitions
            |                        |                 ^   (partitions revoked: commit, give back)
            |                        +-- failed -------+
            +--> stopping <----------+   (stop, count, timeout, failure)

The thread that calls `run` is the only one that starts and stops queries. Spark's thread runs the micro-batches. The
group member's thread gets revocations, and waits until the revoked partitions are drained.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import replace

from streamrt.errors import RunnerError, SinkError, StaleTokenError, StreamRTError, TransactionError
from streamrt.event_time.merge_phases import MergePhase, MergePhases
from streamrt.kafka import KafkaRequestError
from streamrt.kafka.membership.group_member import GroupMember
from streamrt.kafka.membership.group_state import GroupFencedError
from streamrt.records import TopicPartition
from streamrt.runs.driver_reads import BatchReads, Owned
from streamrt.runs.launch import discard_reference, make_reference
from streamrt.runs.runner_settings import RunContext
from streamrt.runs.services import DriverServices
from streamrt.runs.start_positions import HeldStart, Start
from streamrt.runs.whole_tasks import WholeTasks
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.driver.life.exits import in_background, unless_stopped
from streamrt.runtime.driver.life.lifecycle import RunRequest
from streamrt.runtime.driver.life.unfinished import Unfinished
from streamrt.runtime.report import Output, Report
from streamrt.runtime.sent import sent_times
from streamrt.runtime.tasks.chain.task_sinks import finish_sinks
from streamrt.runtime.tasks.stores.locks import StoreLocks
from streamrt.runtime.tasks.stores.store_catalog import StoreCatalog
from streamrt.runtime.tasks.stores.task_stores import TaskStores
from streamrt.slots.resident_task import member_of_slot
from streamrt.slots.worker_process import SpecReference
from streamrt.spark.commits import Commits
from streamrt.spark.query import MicroBatchQuery, QuerySettings, run_reads
from streamrt.spark.restore_job import SLICE_S, restore
from streamrt.spark.sessions.job import run_on_numbers
from streamrt.spark.sessions.spark_session import SparkEnvironment, ends_with_process, local_slots
from streamrt.spark.spark_errors import spark_cause
from streamrt.spark.workers.arrow import WarmUp
from streamrt.state.rocksdb import load_rocksdb
from streamrt.topology import TaskId

logger = logging.getLogger("streamrt")

_MAX_RECORDS_PER_PARTITION = 100_000
_MAX_MERGED_RECORDS_PER_PARTITION = 20_000
"""Merged tasks hold all delivered records in memory, and read further records themselves."""
_LONGEST_SLICE_S = 4.0
_SHORTEST_SLICE_S = 0.5
_STOP_S = 6.0
_LEAVE_S = 1.0
"""How long a member without work waits for a broker when it leaves the group."""
_DISCARD_S = 1.0
"""How long an end waits until workers have released everything of the run; workers that are starting are ignored."""
_REVOKE_S = 30.0
_TICK_S = 0.1
_RESTORED_BY_TASKS = 50_000
_ATTEMPTS = 8
_LONGEST_PAUSE_S = 5.0


class SparkRunner:
    """Runs one application until it is stopped, fails, or a stop condition holds.

    Args:
        run: the application and its environment.
    """

    def __init__(self, run: RunContext[SparkEnvironment]) -> None:
        self._config = config = run.config
        self._settings = run.settings
        self._spec = spec = run.spec
        self._topics = run.topics
        self._conditions = run.conditions
        self._stop = run.stop
        self._discard = run.discard
        self._services = services = DriverServices(run)
        self._results = services.results
        self._event_time = services.event_time
        self._progress = run.progress
        self._control = run.control
        self._revoking = threading.Event()
        self._drained = threading.Event()
        self._left = threading.Event()
        self._start = run.start
        self._startup = run.start.startup
        self._prepared = False
        self._generation = 0
        self._workers: dict[TaskId, str] = {}
        self._restored: set[TaskId] = set()
        self._initialized: set[TaskId] = set()
        self._stalled: dict[TaskId, float] = {}
        self._locks = StoreLocks(None if spec.state is None else spec.state.options)
        self._whole_tasks = WholeTasks(spec.topology)
        self._unfinished = Unfinished(spec.topology)
        self._phases = MergePhases(spec.topology, services.merge_cuts)
        self._held = HeldStart()
        self._identity = run.settings.identity
        self._commits = Commits(
            config, spec, run.progress, services.purge, self._revoking, run.admin, run.settings.identity
        )
        self._max_records: int | None = None
        self._member: GroupMember | None = None
        self._others: Future[bool] | None = None
        self._queries = run.queries
        self._reads = BatchReads(self._owned_partitions, spec.topology.inputs)
        self._query_target = run.query_target(self._reads.ask)
        # What the last query had processed, while the partitions stay.
        self._processed: BatchContext | None = None
        self._warming: threading.Thread | None = None

    def run(self) -> list[Output]:
        """Run until the end; return the collected outputs.

        Raises:
            ProcessingError: if an operator failed and no callback skipped the record; likewise `ConsumerError` and
                `ProducerError`.
            RunnerError: if Spark failed finally.
        """
        # The JVM boots while the group forms.
        self._others = in_background("streamrt-group", self._services.others_are_there)
        self._member = GroupMember(
            self._settings.connection,
            self._config.consumer_group,
            self._topics,
            member_options={**self._member_options(), **self._settings.member_options},
            group_instance_id=self._settings.group_instance_id,
            poll_timeout=self._config.consumer_poll_timeout,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
            broker_availability_timeout=self._config.broker_outage_timeout,
            logger=logger,
        )
        self._member.start()
        try:
            environment = self._start.wait(self._stop, self._prepare_work)
            if environment is not None:
                with self._queries.serving(self._query_target):
                    self._run_assignments(environment)
        finally:
            self._services.closing.set()
            self._reads.refuse("the application is stopping")
            self._drained.set()
            self._member.close(_LEAVE_S if self._warming is None else None)
            self._leave_group(self._services.leave_at_end)
            self._left.set()
            if self._warming is not None:
                self._warming.join(_DISCARD_S)
            self._results.close()
            self._services.purge.run()
            # Spark ends the processes of tasks without a word to their sinks.
            partitions = self._settings.partitions
            inputs = [(topic, number) for topic, count in partitions.items() for number in range(count)]
            finish_sinks(self._spec.topology, self._config.consumer_group, inputs)
        self._results.raise_failure()
        return self._results.collected

    # -- Assignments ---------------------------------------------------------------------------------------------

    def _run_assignments(self, environment: SparkEnvironment) -> None:
        reference = make_reference(environment, self._config, self._settings, self._spec)
        # Python workers take seconds to start; they start while Spark plans the query.
        arguments = (environment, reference, self._left)
        self._warming = threading.Thread(target=_warm_up, args=arguments, name="streamrt-warm-up", daemon=True)
        self._warming.start()
        self._services.begin(environment)
        if self._group_member().waits_for_id:
            # A killed run of this instance has it until its session is over.
            self._leave_group(self._services.leave)
        self._remove_former_slots(environment.slots)
        restarts = 0
        while not self._stop.is_set():
            self._finish_revoke()
            run_request = self._control.run_request
            assigned = self._await_assignment()
            if assigned is None:
                self._startup.waits_for(f"partitions of the consumer group {self._config.consumer_group}")
                if self._startup.over or not self._control.all_paused:
                    self._control.mark_fulfilled(run_request)
                continue
            waiting = self._waiting_partitions()
            able = self._whole_tasks.of(assigned) - waiting
            ready = able - self._paused_partitions(assigned, run_request)
            # What is paused from the start on is initialized like the rest, and then waits.
            new = frozenset() if ready else self._uninitialized_partitions(able)
            if not ready and not new:
                self._read_while_idle(environment, reference)
                self._wait_paused(run_request)
                continue
            start = self._held.get(self._generation, ready) or self._find_start(ready or new)
            if start is None:
                continue
            if start.lost:
                # Spark gives a query up each time retention overtakes it. The next begins after the deleted records.
                restarts = 0
            if not new:
                whole = start
                start = self._in_phase(whole, assigned)
                if not start.positions:
                    # All that this instance has are merges that wait for other instances.
                    self._held.hold(self._generation, ready, whole)
                    self._wait_paused(run_request)
                    continue
            self._held.drop()
            self._commits.start(self._group_member(), self._generation, start)
            self._progress.assigned(dict(start.positions))
            self._progress.meters.assigned(map(self._spec.topology.task, assigned))
            # Tasks that wait for a sink, or for other inputs, hold event time back and cannot be ticked.
            self._event_time.assign(map(self._spec.topology.task, assigned))
            self._event_time.ready(map(self._spec.topology.task, () if new else start.positions))
            self._event_time.begin(start.positions)
            self._event_time.report({}, sent_times(start.sent))
            self._unfinished.assign(map(self._spec.topology.task, start.positions))
            records = self._progress.records
            trouble: Exception | str | None = self._restore_state(environment, reference, start, whole=bool(new))
            if trouble is None and not new and self._waiting_partitions().isdisjoint(start.positions):
                trouble = self._run_query(environment, reference, start, run_request, waiting)
            if trouble is None:
                if new and self._processed is None:
                    self._processed = self._make_context(start)
                # Attempts at locked stores are counted until all are open.
                restarts = restarts if self._locks.waiting else 0
                continue
            restarts = 0 if self._progress.records > records else restarts + 1
            self._plan_retry(trouble, restarts)

    def _prepare_work(self) -> None:
        """Do once, after the first assignment, the work that does not need Spark while it boots."""
        self._check_member()
        current = None if self._prepared else self._group_member().current_assignment(timeout=0)
        if current is None:
            return
        self._prepared = True
        if self._spec.transactional and current.partitions:
            # A dead instance may have left transactions, which hold back committed offsets and readers of the outputs.
            try:
                unless_stopped(self._stop, lambda: self._services.fence(current.partitions))
            except (TransactionError, KafkaRequestError) as error:
                logger.debug("open transactions were not ended in advance: %s", error)
        if self._spec.state is not None:
            load_rocksdb()

    def _await_assignment(self) -> frozenset[TopicPartition] | None:
        current = self._group_member().current_assignment(timeout=_TICK_S)
        if current is None:
            return None
        self._startup.has_partitions(bool(current.partitions))
        if not current.partitions and self._results.waited_enough():
            self._stop.set()
        if self._generation != current.generation:
            # Other instances may have processed all other partitions in the meantime.
            kept = current.kept(self._generation)
            self._generation = current.generation
            self._results.rebalanced()
            self._unfinished.forget()
            self._processed = None
            self._phases.restart()
            inputs = self._spec.topology.inputs
            self._restored = {task for task in self._restored if kept.issuperset(inputs(task))}
            self._initialized = {task for task in self._initialized if kept.issuperset(inputs(task))}
            self._workers = {task: worker for task, worker in self._workers.items() if kept.issuperset(inputs(task))}
            self._event_time.assign(())
        return current.partitions or None

    def _find_start(self, assigned: frozenset[TopicPartition]) -> Start | None:
        """Return start positions, and commit those that the group does not know yet; None if Kafka has to be asked again."""
        try:
            start = self._services.offsets.find(assigned)
            if start.initial_offsets:
                # From now on a restart begins here, also if "latest" records arrive before the first commit.
                self._group_member().commit(start.initial_offsets, metadata=start.metadata)
        except (GroupFencedError, KafkaRequestError) as away:
            if isinstance(away, KafkaRequestError) and not away.retriable:
                raise
            logger.warning("%s; retrying", away)
            self._services.wait_for_broker()
            return None
        return start

    def _in_phase(self, start: Start, assigned: frozenset[TopicPartition]) -> Start:
        """Return a start without the partitions that are not read yet, because of merges behind exchanges."""
        self._phases.assign(assigned)
        self._phases.advance(start.positions)
        left_out = self._phases.left_out(start.positions)
        return replace(start, positions={each: at for each, at in start.positions.items() if each not in left_out})

    def _uninitialized_partitions(self, partitions: frozenset[TopicPartition]) -> frozenset[TopicPartition]:
        """Return the partitions of tasks without start positions, or whose stores are not restored."""
        return frozenset(each for each in partitions if self._spec.topology.task(each) not in self._initialized)

    def _wait_paused(self, run_request: RunRequest) -> None:
        """Wait a moment while all tasks are paused, or wait for a sink or a lock."""
        starting = not self._startup.over and self._locks.waiting
        if not starting and self._commits.commit():
            self._control.mark_fulfilled(run_request)
        if self._control.all_paused:
            self._check_member()
            if not starting:
                self._startup.finish()
        self._stop.wait(_TICK_S)

    def _waiting_partitions(self) -> frozenset[TopicPartition]:
        """Return the waiting partitions: a sink paused them, or their stores are locked by another process."""
        now = time.monotonic()
        self._stalled = {task: until for task, until in self._stalled.items() if until > now}
        return frozenset(partition for task in self._stalled for partition in self._spec.topology.inputs(task))

    def _paused_partitions(
        self, assigned: frozenset[TopicPartition], run_request: RunRequest
    ) -> frozenset[TopicPartition]:
        """Return the partitions of tasks that read a paused topic. A task that merges topics reads all or none."""
        topology = self._spec.topology
        return frozenset(
            partition
            for partition in assigned
            if any(each.topic in run_request.paused for each in topology.inputs(topology.task(partition)))
        )

    def _restore_state(
        self, environment: SparkEnvironment, reference: SpecReference, start: Start, *, whole: bool
    ) -> str | None:
        """Restore the stores of tasks that are new here; return the reason for a retry, or None.

        On a cluster the machine that will run a task is not known in advance: tasks restore their stores there.

        Args:
            environment: the Spark environment.
            reference: the specification, as workers load it.
            start: the start positions.
            whole: whether everything is restored now; otherwise tasks restore little state when they begin.
        """
        topology = self._spec.topology
        tasks = {topology.task(partition) for partition in start.positions}
        new = {task for task in tasks if topology.task_stores(task.stream)} - self._restored
        self._initialized |= tasks - new
        if not new or local_slots(environment.session.sparkContext.master) is None:
            self._initialized |= new
            return None
        if not whole and self._pending_restore(new, start) <= _RESTORED_BY_TASKS:
            # A job would cost more: the tasks restore when they begin.
            self._restored |= new
            self._initialized |= new
            return None
        self._control.restores()
        context = self._make_context(start)

        def go_on() -> bool:
            self._check_member()
            return not self._stop.is_set() and not self._revoking.is_set()

        try:
            report = restore(environment, reference, new, context, go_on, self._progress.meters.restored)
        except Exception as failed:
            raise RunnerError(f"Spark could not restore the state: {spark_cause(failed)}") from failed
        self._workers.update(report.workers)
        if report.failure is not None:
            self._results.fail(report.failure)
        self._restored |= report.restored
        self._initialized |= report.restored
        return self._wait_for_locks(report, report.restored)

    def _make_context(self, start: Start) -> BatchContext:
        return BatchContext(start.positions, SLICE_S, None, dict(self._workers), start.stateful, claims=start.claims)

    def _wait_for_locks(self, report: Report, opened: Iterable[TaskId]) -> str | None:
        """Let tasks with locked stores wait; return the reason for an immediate retry, if tasks were interrupted."""
        self._locks.opened(opened)
        now = time.monotonic()
        for task, pause in self._locks.waits(report).items():
            logger.warning("%s; retrying in %.1f s, without %s until then", report.locked[task], pause, task)
            self._stalled[task] = now + pause
        return "; ".join(sorted(set(report.interrupted.values()))) or None

    def _pending_restore(self, tasks: Iterable[TaskId], start: Start) -> int:
        """Return roughly how many changelog offsets must be replayed before the stores of these tasks can be used.

        The count ends when it is high enough for a job, when the application stops, or when partitions are revoked: to
        open hundreds of stores takes seconds.
        """
        if self._spec.state is None:
            return 0
        clients = self._services.clients.open()
        catalog = StoreCatalog(self._spec.state)
        pending = 0
        try:
            for task in tasks:
                if pending > _RESTORED_BY_TASKS or self._stop.is_set() or self._revoking.is_set():
                    break
                stores = TaskStores(
                    catalog,
                    self._spec.topology.task_stores(task.stream),
                    task,
                    clients,
                    transactional=self._spec.transactional,
                )
                pending += stores.pending(start.positions)
            return pending
        finally:
            clients.close()

    def _run_query(
        self,
        environment: SparkEnvironment,
        reference: SpecReference,
        start: Start,
        run_request: RunRequest,
        waiting: frozenset[TopicPartition],
    ) -> Exception | str | None:
        """Run a query until it must end.

        Args:
            environment: the Spark environment.
            reference: the specification, as workers load it.
            start: the start positions.
            run_request: what callers want.
            waiting: the partitions that were left out because they waited when the positions were asked for.

        Returns:
            Spark's error or the reason of a task's interruption, if any.
        """
        if self._stop.is_set() or self._revoking.is_set():
            return None
        settings = self._query_settings(len(start.positions))
        query = MicroBatchQuery(
            environment,
            reference,
            settings,
            start,
            self._spec.topology,
            self._workers,
            self._event_time,
            self._services.time_requests,
            self._unfinished,
            self._on_report,
            self._results.outputs_left,
            self._reads,
            self._identity.require,
            self._commits.reading,
            self._phases.see_plan if self._phases.needed else None,
        )
        partitions = ", ".join(f"{partition} from offset {at}" for partition, at in sorted(start.positions.items()))
        logger.info("processing %s", partitions)
        try:
            query.start()
        except Exception as failed:
            raise RunnerError(f"Spark could not start the query: {spark_cause(failed)}") from failed
        error: Exception | None = None
        try:
            while not self._stop.is_set() and not self._revoking.is_set():
                self._stop.wait(_TICK_S)
                if query.resize is not None or query.stalled or query.interrupted or query.locked or query.behind:
                    break
                if self._phases.phase is not MergePhase.ALL and self._phases.advance(
                    query.reached, working=query.works
                ):
                    break
                error = query.failure()
                if error is not None:
                    break
                if not waiting <= self._waiting_partitions():
                    # A partition that waited is due, perhaps since before this query began: the next one also reads it.
                    break
                if not self._startup.over:
                    self._startup.waits_for("Spark to plan its query and to start its Python workers")
                    if self._progress.records or query.caught_up():
                        self._startup.finish()
                self._check_member()
                if self._group_member().generation != self._generation:
                    # With the protocol `consumer`, partitions are added without a revocation: the next query reads them.
                    break
                self._commits.tick(query)
                if self._control.run_request.paused != run_request.paused:
                    break
                self._apply_run_request(query)
                query.tick()
                self._results.watermarked(self._event_time.latest)
                query.read_state()
                self._results.tick()
                complete = self._phases.phase is MergePhase.ALL
                if self._conditions.timeout_s and complete and query.caught_up() and self._results.waited_enough():
                    self._stop.set()
        finally:
            begun = time.monotonic()
            last = self._stop.is_set() and ends_with_process()
            clean = query.stop(_REVOKE_S if self._revoking.is_set() else _STOP_S, last=last)
            if not clean:
                self._services.warn_of_running_tasks()
            self._processed = query.processed if clean else None
            logger.debug("stopping the query took %.2f s", time.monotonic() - begun)
            if error is not None:
                # Spark says in its words only that a partition is gone, or that offsets are not what they were.
                self._identity.doubt(f"Spark gave the query up: {spark_cause(error)}")
            if not self._discard.is_set():
                self._commits.commit()
        now = time.monotonic()
        for task, pause in query.stalled.items():
            # The tasks work, and wait for a sink.
            self._startup.finish()
            logger.warning("%s", pause.of(task))
            self._stalled[task] = now + pause.seconds
        if query.behind:
            self._phases.restart()
        if query.resize is not None:
            logger.info("micro-batches are now limited to %d records (was %d)", query.resize, settings.max_records)
            self._max_records = query.resize
        interrupted = self._wait_for_locks(Report(locked=query.locked), query.opened) or query.interrupted
        if interrupted:
            self._restored.clear()
            self._initialized.clear()
        return error or interrupted

    def _member_options(self) -> dict[str, str]:
        """Return the client id of the group member, which tells other instances the control address of this one."""
        announced, given = self._settings.announced, self._settings.connection.client_id
        return {"client.id": f"streamrt{announced}"} if announced and not given else {}

    def _owned_partitions(self) -> Owned | None:
        """Return what the group has assigned to this process; called by any thread."""
        try:
            current = self._group_member().current_assignment(timeout=0)
        except StreamRTError:
            return None
        if current is None or self._revoking.is_set():
            return None
        return Owned(current.partitions, current.member, current.generation)

    def _read_while_idle(self, environment: SparkEnvironment, reference: SpecReference) -> None:
        """Answer reads of state while nothing is processed, such as during a pause."""
        context = self._processed
        if self._reads.pending and context is not None:
            self._reads.serve(context.positions, lambda reads: run_reads(environment, reference, reads, context))

    def _apply_run_request(self, query: MicroBatchQuery) -> None:
        """Commit everything that was processed, if callers want it and no tasks are running."""
        run_request = self._control.run_request
        if self._control.pending:

            def commit() -> None:
                if self._commits.commit():
                    self._control.mark_fulfilled(run_request)

            query.between_batches(commit)

    def _plan_retry(self, trouble: Exception | str, restarts: int) -> None:
        """Decide whether to retry failed work; otherwise raise."""
        self._unfinished.forget()
        self._phases.restart()
        self._services.wait_for_broker()
        if isinstance(trouble, str):
            if restarts >= _ATTEMPTS:
                raise RunnerError(f"the tasks were interrupted {restarts} times without progress: {trouble}")
            logger.warning("the tasks were interrupted (%s); restarting from the committed offsets", trouble)
            self._stop.wait(min(_LONGEST_PAUSE_S, _TICK_S * 2**restarts))
            return
        if isinstance(trouble, StaleTokenError):
            raise trouble
        if isinstance(trouble, SinkError):
            if self._services.is_stopped_pause(trouble):
                return
            raise trouble
        self._services.allow_restart("query", trouble, restarts)

    # -- Reports, called by Spark's thread -----------------------------------------------------------------------

    def _on_report(self, report: Report) -> None:
        # Sinks come before any commit of offsets; the tasks' copies of these sinks are already empty.
        self._results.write(report)
        self._results.see(report)
        self._commits.report(report)
        self._results.tell(report)

    # -- Rebalances, called by the member's thread -----------------------------------------------------------------

    def _on_revoke(self, partitions: frozenset[TopicPartition]) -> None:
        if self._services.closing.is_set():
            return
        self._drained.clear()
        self._revoking.set()
        if not self._drained.wait(_REVOKE_S + _STOP_S):
            logger.warning("the running tasks did not finish in time; another member will reprocess their records")

    def _on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        logger.warning(
            "the group session timed out: %s may have been reassigned; uncommitted records will be reprocessed",
            ", ".join(map(str, sorted(partitions))),
        )
        self._revoking.set()

    def _finish_revoke(self) -> None:
        """Let the member's thread continue: no query is running, and all possible commits are made."""
        self._revoking.clear()
        self._drained.set()

    # -- Helpers ---------------------------------------------------------------------------------------------------

    def _group_member(self) -> GroupMember:
        if self._member is None:
            raise RuntimeError("the runner joins the consumer group before anything else")
        return self._member

    def _check_member(self) -> None:
        error = self._group_member().error
        if error is not None:
            raise error
        self._settings.check()

    def _remove_former_slots(self, slots: int) -> None:
        """If this instance was killed in resident mode, its members would keep partitions until their sessions time out."""
        own, others = self._settings.group_instance_id, self._others
        if own is not None and others is not None and (not others.done() or others.result()):
            ids = [member_of_slot(own, slot) for slot in range(slots)]
            name = "streamrt-former-members"
            threading.Thread(target=self._services.leave, args=(ids,), name=name, daemon=True).start()

    def _leave_group(self, leave: Callable[[list[str]], None]) -> None:
        instance_id = self._settings.group_instance_id
        if instance_id is not None:
            leave([instance_id])

    def _query_settings(self, partitions: int) -> QuerySettings:
        every = self._config.commit_every
        largest = partitions * (
            _MAX_MERGED_RECORDS_PER_PARTITION if self._spec.topology.merged else _MAX_RECORDS_PER_PARTITION
        )
        if every > 0:
            largest = min(largest, every)
        options = {
            "includeHeaders": "true",
            "failOnDataLoss": "true",
            "groupIdPrefix": self._config.consumer_group,
            # Spark's source waits this long for more data than it has; at low rates that is all latency.
            "kafka.fetch.max.wait.ms": "5",
            **{f"kafka.{name}": value for name, value in self._settings.java_options.items()},
        }
        return QuerySettings(
            kafka_options=options,
            max_records=min(self._max_records or largest, largest),
            slice_s=min(_LONGEST_SLICE_S, max(_SHORTEST_SLICE_S, self._config.commit_interval)),
            count=self._conditions.count > 0,
            largest=largest,
        )


def _warm_up(environment: SparkEnvironment, reference: SpecReference, over: threading.Event) -> None:
    """Prepare workers, and remove their data when the run is over, but never while they start."""
    try:
        run_on_numbers(environment.session.sparkContext, WarmUp(reference), environment.slots, environment.slots)
    except Exception as error:  # noqa: BLE001 - the first micro-batch starts the workers and reports the error
        logger.debug("the Python workers could not be started in advance: %s", error)
    over.wait()
    discard_reference(reference)
