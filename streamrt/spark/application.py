"""One run of an application on Spark, from the start to the last commit."""

import logging
import threading
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from streamrt.runtime.driver.cleanup import StoreCleanup
from streamrt.runtime.driver.definition import ApplicationDefinition, Environment
from streamrt.runtime.driver.directory import StateDirectory, instance_id, part_of_state_dir
from streamrt.runtime.driver.display import Display
from streamrt.runtime.driver.end_of_time import EndOfTime
from streamrt.runtime.driver.exits import unless_stopped
from streamrt.runtime.driver.lag import LagSampler
from streamrt.runtime.driver.leftovers import refuse_leftovers
from streamrt.runtime.driver.lifecycle import RunControl
from streamrt.runtime.driver.progress import Progress
from streamrt.runtime.driver.state_queries import StateQueries
from streamrt.runtime.driver.state_setup import complete_spec
from streamrt.runtime.report import Output
from streamrt.runtime.spec import TaskSpec
from streamrt.spark.memory import JvmMemoryWatch
from streamrt.spark.modes import runner_for
from streamrt.spark.settings import RunContext, RunSettings, StopConditions
from streamrt.spark.start import SparkStart

logger = logging.getLogger("streamrt")


@dataclass(frozen=True)
class ApplicationRun:
    """One run of an application.

    Attributes:
        definition: the application.
        environment: where it runs.
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
    """

    definition: ApplicationDefinition
    environment: Environment
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

    def run(self) -> list[Output]:
        """Start Spark and process records until a condition is met; return the collected outputs.

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
        stateful = any(map(described.topology.stores, described.topology.scopes))
        # Java boots in parallel with the requests to Kafka and the creation of topics.
        spark_settings = (environment.spark_config, environment.spark_session)
        with SparkStart(config, environment.connection, *spark_settings, self.progress, self.control) as spark:
            unless_stopped(self.stop, lambda: definition.set_up_topics(admin))
            cluster = unless_stopped(self.stop, lambda: admin.cluster_id(timeout=config.request_timeout))
            with part_of_state_dir(self._state_dir, group, cluster, needed=stateful) as part:
                spec = self._complete(described, part)
                ways = (self.stop, self.discard, self.progress, self.control, display, self.queries)
                declared = definition.topology
                jvm = JvmMemoryWatch(self.progress.meters, lambda: spark.environment)
                settings = self._settings(part, jvm)
                run = RunContext(config, settings, spec, spark, admin, self.conditions, *ways, declared, self.end)
                try:
                    cleanup = StoreCleanup(part, config.state_cleanup_delay, self.progress)
                    with definition.sources.running(), cleanup, self.lag.watching():
                        outputs = runner_type(run).run()
                finally:
                    admin.close()
        logger.info("stopped after %d records", self.progress.records)
        return outputs

    @property
    def _state_dir(self) -> Path:
        return self.definition.config.state_dir.absolute()

    def _complete(self, described: TaskSpec, part: StateDirectory | None) -> TaskSpec:
        """Return the complete description of the tasks, after the checks of state."""
        definition, admin, config = self.definition, self.environment.admin, self.definition.config
        base_dir = self._state_dir if part is None else part.path
        complete = (described, definition.topics, admin, base_dir, definition.rocksdb_options, config)
        spec = unless_stopped(self.stop, lambda: complete_spec(*complete))
        leftovers = (spec.topology, config.consumer_group, admin, self.environment.connection, config.request_timeout)
        unless_stopped(self.stop, lambda: refuse_leftovers(*leftovers))
        return spec

    def _settings(self, part: StateDirectory | None, jvm: JvmMemoryWatch) -> RunSettings:
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
            check=partial(self._check, jvm),
            announced=self.announced,
        )

    def _check(self, jvm: JvmMemoryWatch) -> None:
        """Raise if a source has failed, or if a partition makes no progress and that is to end the application."""
        self.definition.sources.check()
        self.lag.check()
        self.end.check()
        jvm.look()
