"""The parts of the driver that both runners have, and what both do at the begin and the end of a run."""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from streamrt.errors import RunnerError, SinkBackpressureError, SinkError
from streamrt.event_time.event_time import EventTime
from streamrt.event_time.merge_cuts import MergeCuts
from streamrt.kafka import KafkaRequestError
from streamrt.kafka.cluster.groups import ListedMember
from streamrt.kafka.group_protocol import is_incremental
from streamrt.records import TopicPartition
from streamrt.relations import find_request_topics
from streamrt.runs.launch import client_settings, fence, look_for_strangers, remove_members
from streamrt.runs.processed_purge import ProcessedPurge
from streamrt.runs.report_handler import ReportHandler
from streamrt.runs.runner_settings import RunContext
from streamrt.runs.standby_watch import must_watch, watch_instances
from streamrt.runs.start_positions import StartOffsets
from streamrt.runs.succession import has_successor
from streamrt.runs.time_requests import TimeRequests
from streamrt.slots.environment import SlotEnvironment
from streamrt.slots.resident_task import session_timeout_s

__all__ = ["DriverServices"]

logger = logging.getLogger("streamrt")

_RESTARTS = 3


class DriverServices:
    """The services of the driver during one run.

    Args:
        run: the application and its environment.

    Attributes:
        clients: settings of the tasks' Kafka clients.
        closing: set when the run ends; ends the search for other applications in the group.
        event_time: the event time of all tasks.
        offsets: finds the offsets at which tasks begin.
        purge: deletes processed records of repartition topics, and merged requests.
        results: handles the reports of tasks.
        time_requests: asks Kafka for what event time needs.
        merge_cuts: asks Kafka for what merges behind exchanges wait for.
    """

    def __init__(self, run: RunContext[SlotEnvironment]) -> None:
        topology = run.spec.topology
        self._context = run
        self.clients = client_settings(run.config, run.settings)
        self.closing = threading.Event()
        self._environment: SlotEnvironment | None = None
        self._warned = False
        self.event_time = EventTime(topology, run.settings.partitions, run.end)
        self.offsets = StartOffsets(run.config, run.settings.connection, run.spec, run.admin, self.fence, notes=True)
        self.purge = ProcessedPurge(run.admin, (*topology.exchanges, *find_request_topics(topology)))
        self.results = ReportHandler(
            topology, run.conditions, run.stop, run.progress, run.display, run.settings.on_message_processed
        )
        self.time_requests = TimeRequests(run.admin, run.config.consumer_group, topology)
        self.merge_cuts = MergeCuts(
            run.admin,
            run.config.consumer_group,
            topology,
            run.settings.partitions,
            run.config.commit_interval,
            transactional=run.spec.transactional,
        )

    def begin(self, environment: SlotEnvironment) -> None:
        """Start the sinks, and search the group for other applications until the run ends.

        Raises:
            SinkError: if a sink cannot be started.
        """
        run = self._context
        self.results.start(environment.session)
        self._environment = environment
        logger.info("%s is ready with %d slots", environment.name, environment.slots)
        look_for_strangers(run.config.consumer_group, run.topics, run.admin, self.closing)

    def others_are_there(self) -> bool:
        """Return whether the group has members; True if that is unknown."""
        run = self._context
        try:
            return run.admin.group_is_active(run.config.consumer_group, timeout=run.config.request_timeout)
        except KafkaRequestError:
            return True

    def list_members(self) -> tuple[ListedMember, ...]:
        """Return the members of the group; none if they are unknown."""
        run = self._context
        try:
            return run.admin.group_members(run.config.consumer_group, run.config.request_timeout)
        except KafkaRequestError as error:
            logger.debug("the members of group %s could not be listed: %s", run.config.consumer_group, error)
            return ()

    def watch_instances(
        self, follow: Callable[[Mapping[int, frozenset[TopicPartition]]], None], over: threading.Event
    ) -> None:
        """Watch the other instances: for copies of what the slots would take over, and for those that die.

        Args:
            follow: called with the partitions for each slot, if the application wants copies.
            over: set when there are no slots any more.
        """
        run = self._context
        topology, instance, announced = run.spec.topology, run.settings.group_instance_id, run.settings.announced
        standbys = bool(run.config.standby_replicas)
        if not must_watch(standbys=standbys, stateful=topology.is_stateful, announced=announced):
            return
        if instance is None or run.config.group_protocol != "classic":
            return
        if not announced and not self._warned:
            self._warned = True
            logger.warning(
                "standby_replicas=1 without a control server: when an instance dies, others take over after its session of "
                "%g s; set control, such as control='0.0.0.0:7070', so that they notice within two seconds",
                session_timeout_s(run.settings.member_options, static=True),
            )
        topics = {topic: run.settings.partitions.get(topic, 1) for topic in run.topics}
        members = partial(
            run.admin.group_members, run.config.consumer_group, run.config.request_timeout, is_classic=True
        )
        arguments = (members, topics, instance, follow if standbys else None, self.leave, over.wait)
        threading.Thread(target=watch_instances, args=arguments, name="streamrt-instances", daemon=True).start()

    def leave_at_end(self, instance_ids: Sequence[str]) -> None:
        """Remove the static members of this instance from the group, unless a successor takes their ids over at once."""
        if not has_successor() or is_incremental(self._context.settings.member_options):
            self.leave(instance_ids)

    def leave(self, instance_ids: Sequence[str]) -> None:
        """Remove static members from the group, if processes could be started, so that no instance waits for them."""
        if instance_ids and self._environment is not None:
            remove_members(self._environment, self._context.config, self._context.settings, instance_ids)

    def fence(self, partitions: Iterable[TopicPartition]) -> None:
        """End the transactions that dead tasks left open, and take over the claims of other versions.

        Raises:
            TransactionError: if Kafka does not allow it.
            KafkaRequestError: if the group's offsets cannot be read.
        """
        fence(self.clients, self._context.spec.commit_metadata, partitions)

    def wait_for_broker(self) -> None:
        """Wait until a broker is available.

        Raises:
            KafkaBrokerUnavailableError: if none becomes available in time.
        """
        self._context.admin.wait_for_broker(self._context.config.broker_outage_timeout)

    def allow_restart(self, what: str, error: Exception, restarts: int) -> None:
        """Log that work which was given up is started again.

        Args:
            what: the work, such as "query".
            error: why it was given up.
            restarts: number of earlier restarts without progress.

        Raises:
            RunnerError: if there were too many.
        """
        assert self._environment is not None  # noqa: S101 - it has given the work its processes
        name, cause = self._environment.name, self._environment.explain_error(error)
        if restarts >= _RESTARTS:
            raise RunnerError(f"{name} gave the {what} up {restarts} times without progress: {cause}") from error
        logger.warning("%s gave the %s up (%s); restarting from the committed offsets", name, what, cause)
        self._context.progress.meters.restarted(what)

    def is_stopped_pause(self, error: BaseException) -> bool:
        """Return whether an error is not a failure: the application was stopped while a sink paused.

        The records of the sink are not committed.
        """
        paused = isinstance(error, SinkError) and isinstance(error.__cause__, SinkBackpressureError)
        return paused and self._context.stop.is_set()

    def warn_of_running_tasks(self) -> None:
        """Log that tasks are interrupted in the middle of their work."""
        logger.warning("the running tasks did not reach a boundary in time; uncommitted records will be reprocessed")
