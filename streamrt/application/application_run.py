"""One run of an application, from the start to the last commit."""

import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from streamrt.config import ApplicationConfig, count_processes
from streamrt.connectors import SparkSink
from streamrt.errors import ConfigurationError, StaleTokenError
from streamrt.event_time.end_of_time import EndOfTime
from streamrt.kafka.checks import require_consumer_protocol
from streamrt.queries.routing import StateQueries
from streamrt.relations import find_row_topics
from streamrt.runs.resident_run import ResidentRunner
from streamrt.runs.runner_settings import EnvironmentStart, RunContext, RunSettings, StopConditions
from streamrt.runtime.driver.housekeeping.cleanup import StoreCleanup
from streamrt.runtime.driver.housekeeping.state_directory import StateDirectory, instance_id, part_of_state_dir
from streamrt.runtime.driver.life.exits import unless_stopped
from streamrt.runtime.driver.life.lifecycle import RunControl
from streamrt.runtime.driver.life.recreated_topics import RecreationWatch
from streamrt.runtime.driver.observation.display import Display
from streamrt.runtime.driver.observation.lag import LagSampler
from streamrt.runtime.driver.observation.progress import Progress
from streamrt.runtime.driver.starting.definition import ApplicationDefinition, Environment
from streamrt.runtime.driver.starting.group_layout import begin_layout
from streamrt.runtime.driver.starting.leftovers import refuse_leftovers
from streamrt.runtime.driver.starting.state_setup import complete_spec
from streamrt.runtime.report import Output
from streamrt.runtime.spec import TaskSpec
from streamrt.runtime.topic_identity import InputIdentity
from streamrt.slots.environment import SlotEnvironment
from streamrt.slots.fork_client import ForkServer
from streamrt.slots.process_start import ProcessStart
from streamrt.topology import Topology

logger = logging.getLogger("streamrt")

_IDS_S = 10.0
_LOST_SOURCE = "what the source had kept in it is gone, so after its next start it may produce records again"
_LOST_LAYOUT = "the layout of the group is gone; restart the application, which writes it again"


@dataclass(frozen=True)
class ApplicationRun:
    """One run of an application.

    Attributes:
        definition: the application.
        environment: where it runs.
        fork_server: the process from which those of tasks are forked; None on Spark.
        conditions: when to stop.
        collect: whether to return outputs.
        stop: set to stop the application.
        discard: set if uncommitted work must be processed again.
        progress: updated for observers.
        control: what callers want of the run.
        lag: says whether a partition makes no progress.
        queries: answers queries of state.
        announced: what group members say about the control server of this instance; empty for nothing.
        end: what operators have to finish at the end of a bounded run.
        find_moved: returns the error of a table that has another topic now.
    """

    definition: ApplicationDefinition
    environment: Environment
    fork_server: ForkServer | None
    conditions: StopConditions
    collect: bool
    stop: threading.Event
    discard: threading.Event
    progress: Progress
    control: RunControl
    lag: LagSampler
    queries: StateQueries
    announced: str = ""
    end: EndOfTime = field(default_factory=EndOfTime)
    find_moved: Callable[[], StaleTokenError | None] | None = None

    def run(self) -> list[Output]:
        """Start Spark, or processes, and process records until a condition is met; return the collected outputs.

        Raises:
            StoppedError: if the application is stopped before it processes records.
            StreamRTError: one of its subclasses, if the application cannot start or continue.
        """
        definition, environment = self.definition, self.environment
        config, admin = definition.config, environment.admin
        runner_type = runner_for(config, definition.topology)
        display = Display(definition.topology)
        described = definition.task_spec(
            count_outputs=self.conditions.count > 0, collect=self.collect, live_tables=display.live
        )
        described.dumps()
        group, brokers = config.consumer_group, environment.connection.bootstrap_servers
        logger.info("starting: consumer group %r at %s", group, brokers)
        stateful = described.topology.is_stateful
        # Java boots, or processes import their modules, in parallel with the requests to Kafka and the creation of topics.
        with self._open_start() as start:
            if config.group_protocol == "consumer":
                connection = environment.connection
                unless_stopped(self.stop, lambda: require_consumer_protocol(connection, config.request_timeout))
            unless_stopped(self.stop, lambda: definition.set_up_topics(admin))
            cluster = unless_stopped(self.stop, lambda: admin.cluster_id(timeout=config.request_timeout))
            with part_of_state_dir(self._state_dir, group, cluster, needed=stateful) as part:
                spec = self._complete_spec(described, part)
                ways = (self.stop, self.discard, self.progress, self.control, display, self.queries)
                declared = definition.topology
                identity = InputIdentity(
                    partial(admin.topic_ids, timeout=_IDS_S), spec.topic_ids, config.broker_outage_timeout
                )
                watch = self._recreation_watch(spec, identity)
                settings = self._make_settings(part, start, watch, identity)
                run = RunContext(config, settings, spec, start, admin, self.conditions, *ways, declared, self.end)
                try:
                    cleanup = StoreCleanup(part, config.state_cleanup_delay, self.progress)
                    with definition.sources.running(), cleanup, self.lag.watching(), watch.watching():
                        outputs = runner_type(run).run()
                finally:
                    admin.close()
        logger.info("stopped after %d records", self.progress.records)
        return outputs

    def _open_start(self) -> "AbstractContextManager[EnvironmentStart[Any]]":
        """Begin to start what gives tasks their processes."""
        config, environment = self.definition.config, self.environment
        processes = count_processes(config.spark_master)
        if processes is not None and self.fork_server is not None:
            return ProcessStart(processes, self.fork_server, config.consumer_group, self.progress, self.control)
        # Imported here so that applications without Spark do not wait for pyspark.
        from streamrt.spark.sessions.parallel_start import SparkStart

        settings = (environment.spark_config, environment.spark_session)
        return SparkStart(config, environment.connection, *settings, self.progress, self.control)

    @property
    def _state_dir(self) -> Path:
        return self.definition.config.state_dir.absolute()

    def _complete_spec(self, described: TaskSpec, part: StateDirectory | None) -> TaskSpec:
        """Return the complete description of the tasks, after the checks of state."""
        definition, admin, config = self.definition, self.environment.admin, self.definition.config
        base_dir = self._state_dir if part is None else part.path
        complete = (described, definition.topics, admin, base_dir, definition.rocksdb_options, config)
        spec = unless_stopped(self.stop, lambda: complete_spec(*complete))
        leftovers = (spec.topology, config.consumer_group, admin, self.environment.connection, config.request_timeout)
        unless_stopped(self.stop, lambda: refuse_leftovers(*leftovers))
        layout = (spec, definition.topics, admin, self.environment.connection, config)
        return unless_stopped(self.stop, lambda: begin_layout(*layout))

    def _recreation_watch(self, spec: TaskSpec, identity: InputIdentity) -> RecreationWatch:
        """Return what notices that a topic is deleted and created again."""
        sources = () if spec.state is None else spec.state.sources.values()
        changelogs = {log.topic: log.id for source in sources for log in source.stores.values() if log is not None}
        kept = {topic.name: _LOST_SOURCE for topic in self.definition.sources.changelog_topics()}
        if spec.positions is not None:
            kept[spec.positions.topic] = _LOST_LAYOUT
        # A new topic has none of the rows that are state.
        rows = find_row_topics(spec.topology)
        held = self.environment.admin.topic_ids(rows, self.definition.config.request_timeout) if rows else {}
        return RecreationWatch(
            self.environment.admin,
            {**held, **spec.topic_ids, **changelogs},
            self.definition.topics.topics,
            kept=kept,
            identity=identity,
            find_moved=self.find_moved,
        )

    def _make_settings(
        self,
        part: StateDirectory | None,
        start: EnvironmentStart[SlotEnvironment],
        watch: RecreationWatch,
        identity: InputIdentity,
    ) -> RunSettings:
        definition, environment = self.definition, self.environment
        options = environment.consumer_options
        configured = options.member.get("group.instance.id")
        own = (
            instance_id(self._state_dir, definition.config.consumer_group, part)
            if configured is None
            else str(configured)
        )
        return RunSettings(
            connection=environment.connection,
            member_options=options.member,
            java_options=options.java,
            producer_options=environment.producer_options,
            group_instance_id=own,
            on_message_processed=definition.on_message_processed,
            partitions=definition.topics.partition_counts(),
            check=partial(self._check_health, start, watch),
            identity=identity,
            announced=self.announced,
        )

    def _check_health(self, start: EnvironmentStart[SlotEnvironment], watch: RecreationWatch) -> None:
        """Raise if a source has failed, a topic is another one, or the lack of progress is to end the application."""
        if watch.failed:
            # What was processed since belongs to another topic than the committed offsets.
            self.discard.set()
        watch.check()
        self.definition.sources.check()
        self.lag.check()
        self.end.check()
        start.update_figures()


class Runner(Protocol):
    """Runs an application once."""

    def run(self) -> list[Output]:
        """Run until the end; return the collected outputs."""


def runner_for(config: ApplicationConfig, topology: Topology) -> Callable[[RunContext[Any]], Runner]:
    """Return the runner for an application.

    Args:
        config: the application's configuration.
        topology: the operators.

    Raises:
        ConfigurationError: if the application uses features that its processing mode does not have.
    """
    if config.processing_mode == "micro-batch":
        for stream in topology.streams:
            for store, strategy in topology.watermarks(stream).items():
                if strategy.alignment is not None:
                    raise ConfigurationError(
                        f"WatermarkStrategy(alignment=...) of store {store!r} needs processing_mode='resident': in "
                        "micro-batches, Spark decides how far each partition is read"
                    )
        from streamrt.spark.runner import SparkRunner

        return SparkRunner
    for node, sink in topology.sinks.items():
        if isinstance(sink, SparkSink):
            raise ConfigurationError(
                f"the sink {type(sink).__name__} (node {node}) writes each micro-batch as a Spark DataFrame, and there are "
                "none with processing_mode='resident': use processing_mode='micro-batch', or another sink"
            )
    return ResidentRunner
