"""Runs a topology as resident tasks: one job that runs as long as the application.

Life cycle::

    starting Spark, or processes --> running a job --> ending it (stop, count, timeout, failure)
                                        ^    |
                                        +----+  (the job failed)

The tasks are members of the consumer group, read records and commit (`runtime.resident`). The driver reads nothing: it
starts the job, serves the tasks (`runs.coordinator`), and ends the job. The thread that calls `run` looks at them every
0.1 to 0.25 s.
"""

import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future

from streamrt.common.throttle import Throttle
from streamrt.kafka.group_protocol import is_incremental
from streamrt.runs.coordinator import ResidentCoordinator
from streamrt.runs.formation import Formation
from streamrt.runs.launch import discard_reference, make_reference
from streamrt.runs.runner_settings import RunContext
from streamrt.runs.services import DriverServices
from streamrt.runs.succession import surplus_ids
from streamrt.runtime.driver.life.exits import in_background
from streamrt.runtime.report import Output
from streamrt.slots.environment import SlotEnvironment, SlotJob
from streamrt.slots.resident_task import ResidentOptions, RunResident, member_of_slot, session_timeout_s
from streamrt.slots.worker_process import SpecReference

logger = logging.getLogger("streamrt")

_TICK_S = 0.1
_IDLE_TICK_S = 0.25
_STOP_S = 6.0
_CANCEL_S = 5.0
_EMPTY_S = 1.0
_WAITING_S = 30.0
_WAITING_AGAIN_S = 120.0
_PATIENCE = 3
"""Session timeouts after which tasks without a slot are ignored: dead members own nothing any more."""


class ResidentRunner:
    """Runs one application until it is stopped, fails, or a stop condition holds.

    Args:
        run: the application and its environment.
    """

    def __init__(self, run: RunContext[SlotEnvironment]) -> None:
        self._config = run.config
        self._settings = run.settings
        self._spec = run.spec
        self._topics = run.topics
        self._conditions = run.conditions
        self._stop = run.stop
        self._discard = run.discard
        self._services = DriverServices(run)
        self._results = self._services.results
        self._progress = run.progress
        self._control = run.control
        self._queries = run.queries
        self._query_target = run.query_target
        self._start = run.start
        self._startup = run.start.startup
        self._lock = threading.Lock()
        self._error: BaseException | None = None
        self._members = 0

    def run(self) -> list[Output]:
        """Run until the end; return the collected outputs.

        Raises:
            ProcessingError: if an operator failed and no callback skipped the record; likewise `ConsumerError` and
                `ProducerError`.
            RunnerError: if the job failed finally.
        """
        others = in_background("streamrt-group", self._services.others_are_there)
        try:
            environment = self._start.wait(self._stop, self._settings.check)
            if environment is not None:
                self._run_jobs(environment, others)
        finally:
            self._services.closing.set()
            self._leave_group()
            self._results.close()
            self._services.purge.run()
        if self._error is not None:
            raise self._error
        self._results.raise_failure()
        return self._results.collected

    def _run_jobs(self, environment: SlotEnvironment, others: "Future[bool]") -> None:
        self._services.begin(environment)
        if not self._passes_ids_on:
            # With `group_protocol="consumer"`, the ids of a killed run, in either mode, stay with its members until their
            # sessions are over.
            self._release_ids([*range(self._count_tasks(environment))])
        elif not others.done() or others.result():
            count = (self._count_tasks(environment),)
            threading.Thread(
                target=self._remove_former_members, args=count, name="streamrt-former-members", daemon=True
            ).start()
        restarts = 0
        while not self._stop.is_set():
            trouble, moved = self._run_job(environment)
            if trouble is None:
                return
            restarts = 0 if moved else restarts + 1
            self._plan_restart(trouble, restarts)
            if not self._passes_ids_on:
                self._release_ids([*range(self._members)])

    def _count_tasks(self, environment: SlotEnvironment) -> int:
        """Return the number of tasks; more than the partitions of the widest topic would be idle."""
        if self._conditions.count:
            # Makes the limit exact.
            return 1
        return max(1, min(environment.slots, max(self._settings.partitions.get(name, 1) for name in self._topics)))

    def _run_job(self, environment: SlotEnvironment) -> tuple[Exception | None, bool]:
        """Run a job until it must end or has ended.

        Returns:
            The error of the job, if it failed, and whether the task that failed had finished any work.
        """
        count = self._count_tasks(environment)
        self._members = max(self._members, count)
        timeout_s = session_timeout_s(
            self._settings.member_options, static=self._settings.group_instance_id is not None
        )
        slots = ResidentCoordinator(
            Formation(count, _PATIENCE * timeout_s),
            self._spec.topology,
            self._results,
            self._services.offsets,
            self._services.wait_for_broker,
            self._services.purge,
            self._services.event_time,
            self._services.time_requests,
            self._services.merge_cuts,
            self._store_failure,
            transactional=self._spec.transactional,
            restarted=self._release_id_of,
        )
        # Each job has a separate address and key: tasks of a previous job cannot connect.
        listener = environment.open_listener(slots.serve)
        reference: SpecReference | None = None
        over = threading.Event()
        try:
            self._services.watch_instances(slots.follow, over)
            reference = make_reference(
                environment,
                self._config,
                self._settings,
                self._spec,
                member_options=self._settings.member_options,
                link=listener.address,
            )
            work = RunResident(reference, self._task_options())
            job = environment.start_job(f"resident tasks of {self._config.consumer_group}", work, count)
            try:
                try:
                    with self._queries.serving(self._query_target(slots.read)):
                        self._watch_job(job, slots, environment)
                finally:
                    self._end_job(job, slots)
            except BaseException:
                # A second Ctrl+C does not wait for the end; the job must not outlive the application.
                job.cancel()
                raise
        finally:
            over.set()
            listener.close()
            slots.close()
            if reference is not None:
                discard_reference(reference)
        if self._stop.is_set():
            return None, False
        return job.error or RuntimeError("a task ended without an error"), slots.moved()

    def _task_options(self) -> ResidentOptions:
        config = self._config
        return ResidentOptions(
            tuple(self._topics),
            self._settings.group_instance_id,
            config.consumer_poll_timeout,
            config.broker_outage_timeout,
            config.commit_interval,
            config.commit_every,
            config.transaction_interval,
            self._settings.announced,
        )

    def _watch_job(self, job: SlotJob, slots: ResidentCoordinator, environment: SlotEnvironment) -> None:
        """Poll until the job is over or must end."""
        begun = time.monotonic()
        warnings = Throttle(_WAITING_AGAIN_S)
        waited = False
        while not self._stop.wait(self._tick_s) and not job.done:
            self._settings.check()
            if self._settings.identity.in_doubt:
                slots.doubt(self._settings.identity.take())
            self._results.tick()
            slots.tick()
            self._apply_run_request(slots)
            self._tell_of_start(slots)
            if self._conditions.timeout_s and not waited and slots.quiet and self._results.waited_enough():
                # The timeout does not hurry commits: pending ones take the time that they need.
                waited = True
                slots.stop(discard=False)
            if slots.gone():
                # Its connection broke, although its process has not been seen to fail.
                job.cancel()
                job.wait(_CANCEL_S)
                return
            waited_s = time.monotonic() - begun
            if slots.joined < slots.count and waited_s >= _WAITING_S and warnings.admit():
                logger.warning(
                    "only %d of %d tasks of %s have begun after %.0f s: %s",
                    slots.joined,
                    slots.count,
                    self._config.consumer_group,
                    waited_s,
                    environment.lack_of_slots,
                )
        if waited and job.done and job.error is None:
            self._stop.set()

    @property
    def _tick_s(self) -> float:
        """Seconds between two looks: fewer while somebody waits for what the driver does in them."""
        waited_for = self._control.pending or self._conditions.timeout_s or self._services.event_time.wanted
        return _TICK_S if waited_for or not self._startup.over else _IDLE_TICK_S

    def _apply_run_request(self, slots: ResidentCoordinator) -> None:
        """Have the tasks fulfil the request of the application's callers; a start that is paused has to be over."""
        run_request = self._control.run_request
        if slots.apply_run_request(run_request) and (
            self._startup.over or not self._control.all_paused or slots.opened
        ):
            self._control.mark_fulfilled(run_request)

    def _tell_of_start(self, slots: ResidentCoordinator) -> None:
        if self._startup.over:
            return
        self._startup.has_partitions(not slots.idle)
        if slots.restoring:
            self._control.restores()
        if self._progress.records or (slots.working and slots.quiet) or (self._control.all_paused and slots.opened):
            self._startup.finish()
        elif slots.working:
            self._startup.waits_for("tasks to open their stores and to process the first records")
        elif slots.joined < slots.count:
            self._startup.waits_for(f"Python workers to start ({slots.joined} of {slots.count} have started)")
        else:
            self._startup.waits_for(f"partitions of the consumer group {self._config.consumer_group}")

    def _end_job(self, job: SlotJob, slots: ResidentCoordinator) -> None:
        """Let the tasks end at a boundary if there is time, and end the job in any case."""
        begun = time.monotonic()
        if not job.done:
            slots.stop(self._discard.is_set())
        while not job.wait(_TICK_S):
            waited_s = time.monotonic() - begun
            if waited_s >= _STOP_S or (waited_s >= _EMPTY_S and slots.empty()):
                break
        if not job.done:
            if not slots.empty():
                self._services.warn_of_running_tasks()
            job.cancel()
            job.wait(_CANCEL_S)
        # Their last messages are on the way.
        slots.empty(max(_TICK_S, begun + _STOP_S - time.monotonic()))
        logger.debug("stopping the job took %.2f s", time.monotonic() - begun)

    def _plan_restart(self, trouble: Exception, restarts: int) -> None:
        """Decide whether to start another job; otherwise raise."""
        self._services.wait_for_broker()
        self._services.allow_restart("tasks", trouble, restarts)

    def _store_failure(self, error: BaseException) -> None:
        """Store the error that must end the application; called by the threads that serve tasks."""
        with self._lock:
            if self._services.is_stopped_pause(error):
                return
            self._error = self._error or error
        self._stop.set()

    @property
    def _passes_ids_on(self) -> bool:
        """Whether a static id passes to the member that claims it."""
        return not is_incremental(self._settings.member_options)

    def _release_id_of(self, slot: int) -> None:
        if not self._passes_ids_on:
            self._release_ids([slot])

    def _release_ids(self, slots: Sequence[int]) -> None:
        """Remove static members that this instance had from the group, so that their successors need not wait for them."""
        own = self._settings.group_instance_id
        if own is not None and self._services.others_are_there():
            self._services.leave([own, *(member_of_slot(own, slot) for slot in slots)])

    def _remove_former_members(self, slots: int) -> None:
        """Remove members that a former run of this instance has left, and that would keep partitions for a whole session."""
        own = self._settings.group_instance_id
        if own is not None:
            self._services.leave(surplus_ids(self._services.list_members(), own, slots))

    def _leave_group(self) -> None:
        own = self._settings.group_instance_id
        if own is not None:
            self._services.leave_at_end([member_of_slot(own, slot) for slot in range(self._members)])
