"""The definition of an application, from which runs and the test driver start."""

import difflib
import logging
import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from streamrt.config import ApplicationConfig
from streamrt.errors import ConfigurationError
from streamrt.kafka import ConnectionConfig, TopicAdmin
from streamrt.kafka.java_options import ConsumerOptions
from streamrt.kafka.wire import CLIENT_MAX_BYTES, client_max_bytes
from streamrt.runtime.driver.starting.group_claim import GroupClaim, claimed_group, refuse_claimed
from streamrt.runtime.driver.starting.state_setup import ClusterAdministration, complete_spec, set_up_topics
from streamrt.runtime.sources.manager import SourceManager
from streamrt.runtime.spec import ErrorCallbacks, TaskSpec
from streamrt.state import RocksDBOptions
from streamrt.state.snapshots import StateSnapshots
from streamrt.topics import ErrorPolicies, OnError, TopicManager
from streamrt.topology import Topology, TopologyBuilder
from streamrt.topology.describe import describe
from streamrt.tracing import Tracing

logger = logging.getLogger("streamrt")

SeenT = TypeVar("SeenT")

MessageProcessedCallback = Callable[[str, int, int], None]
"""Function of topic, partition and offset of a processed record."""


@dataclass(frozen=True)
class Environment:
    """Where an application runs: Kafka and Spark. It holds secrets and clients, so tasks never get it.

    Attributes:
        connection: connection to Kafka.
        consumer_options: options of the driver's consumer and of Spark's client.
        producer_options: the user's options for producers.
        admin: client for topics and offsets.
        spark_config: additional Spark settings.
        spark_session: a session to use instead of starting Spark.
    """

    connection: ConnectionConfig
    consumer_options: ConsumerOptions
    producer_options: Mapping[str, Any]
    admin: TopicAdmin
    spark_config: Mapping[str, Any]
    spark_session: Any


@dataclass(frozen=True)
class ApplicationDefinition:
    """The definition of what an application processes, and how.

    Attributes:
        config: the settings.
        topics: declares, creates and validates topics.
        sources: the processes of the sources.
        builder: the builder of the topology.
        callbacks: the error callbacks.
        policies: what happens to records that fail and that no callback skips.
        on_message_processed: called for each processed record.
        rocksdb_options: options of the state stores; None for the defaults.
        tracing: what is traced; None for nothing.
        snapshots: where snapshots of state go; None for nowhere.
        max_record_bytes: size of the largest record that producers accept, in bytes.
        tables: names of the topics that are read as tables.
    """

    config: ApplicationConfig
    topics: TopicManager
    sources: SourceManager
    builder: TopologyBuilder
    callbacks: ErrorCallbacks
    policies: ErrorPolicies
    on_message_processed: MessageProcessedCallback | None
    rocksdb_options: RocksDBOptions | None
    tracing: Tracing | None = None
    snapshots: StateSnapshots | None = None
    max_record_bytes: int = CLIENT_MAX_BYTES
    tables: set[str] = field(default_factory=set)

    @staticmethod
    def create(
        config: ApplicationConfig,
        environment: Environment,
        topics: TopicManager | None,
        callbacks: ErrorCallbacks,
        on_error: OnError,
        on_message_processed: MessageProcessedCallback | None,
        rocksdb_options: RocksDBOptions | None,
        tracing: Tracing | None = None,
        snapshots: StateSnapshots | None = None,
    ) -> "ApplicationDefinition":
        """Return the definition of an application without operators.

        Args:
            config: the settings.
            environment: Kafka and Spark.
            topics: declares, creates and validates topics; None for the default one.
            callbacks: the error callbacks.
            on_error: what happens to records that fail and that no callback skips.
            on_message_processed: called for each processed record.
            rocksdb_options: options of the state stores; None for the defaults.
            tracing: what is traced; None for nothing.
            snapshots: where snapshots of state go; None for nowhere.

        Raises:
            ConfigurationError: if `on_error` cannot be used.
        """
        topics = topics or TopicManager(
            environment.admin,
            config.consumer_group,
            timeout=config.request_timeout,
            create_timeout=config.topic_create_timeout,
            auto_create_topics=config.auto_create_topics,
        )
        policies, kept = ErrorPolicies.of(on_error, config.consumer_group)
        for name, given in kept.items():
            # Dead letters wait for somebody to handle them, however long that takes.
            settings = given or topics.topic_config(extra_config={"retention.ms": -1})
            topics.topic(name, "bytes", "bytes", "bytes", "bytes", settings)
        sources = SourceManager(
            environment.connection,
            config.consumer_group,
            environment.producer_options,
            config.use_changelog_topics,
            config.loglevel,
            config.log_format,
            exactly_once=config.processing_guarantee == "exactly-once",
        )
        return ApplicationDefinition(
            config,
            topics,
            sources,
            TopologyBuilder(),
            callbacks,
            policies,
            on_message_processed,
            rocksdb_options,
            tracing,
            snapshots,
            client_max_bytes(environment.producer_options),
        )

    @property
    def topology(self) -> Topology:
        """The operators defined so far."""
        return self.builder.build()

    def describe(self) -> str:
        """Return the topology as text; see `Application.describe`."""
        return describe(self.topology, self.config.consumer_group, changelogs=self.config.use_changelog_topics)

    def task_spec(self, *, count_outputs: bool = False, collect: bool = False, live_tables: bool = False) -> TaskSpec:
        """Return the description of the application for the processes that run tasks.

        Args:
            count_outputs: whether tasks count outputs.
            collect: whether tasks send outputs back.
            live_tables: whether tables are redrawn in place.

        Raises:
            ConfigurationError: if the application reads the topic of its own dead letters.
        """
        topology = self.topology
        for location in self.builder.unemitted_windows:
            logger.warning(
                "the window defined at %s computes nothing: it has no final(), current() or trigger()", location
            )
        read_again = sorted(topology.sources.keys() & set(self.policies.topics.values()))
        if read_again:
            raise ConfigurationError(
                f"the application reads {read_again[0]}, the topic of its own dead letters: a record that fails again would "
                "come back without end; read it in another application, or send the records to their topics with "
                "`streamrt dlq replay`"
            )
        return TaskSpec(
            topology=topology,
            transactional=self.config.processing_guarantee == "exactly-once",
            callbacks=self.callbacks,
            policies=self.policies,
            live_tables=live_tables,
            count_outputs=count_outputs,
            collect=collect,
            processed_offsets=self.on_message_processed is not None,
            processing_timeout=self.config.processing_timeout,
            tracing=self.tracing,
            snapshots=self.snapshots,
            group=self.config.consumer_group,
            run_id=uuid.uuid4().hex,
            max_record_bytes=self.max_record_bytes,
            from_first=frozenset(each.topic.name for each in self.sources.processes).union(self.tables),
        )

    def set_up_topics(self, admin: TopicAdmin) -> None:
        """Create missing topics and compare existing topics with their definitions.

        Args:
            admin: client for topics.

        Raises:
            KafkaBrokerUnavailableError: if no broker answers in time.
            InvalidOperationError: if a process resets, restores or repartitions the consumer group.
            TopicNotFoundError: if a topic is missing and may not be created.
            TopicCreationError: if a topic cannot be created.
        """
        admin.wait_for_broker(self.config.broker_start_timeout)
        refuse_claimed(admin, self.config.consumer_group)
        missing = self._missing_inputs(admin) if self.config.auto_create_topics else []
        # Not those that this start creates: they are meant as they are.
        known = admin.list_topics(self.config.request_timeout).keys() if missing else ()
        set_up_topics(self.topics, self.sources.changelog_topics(), create=self.config.auto_create_topics)
        for name in missing:
            likely = difflib.get_close_matches(name, known, 1)
            logger.log(
                logging.WARNING if likely else logging.INFO,
                "the input topic %s did not exist and was created%s; nothing is read before somebody writes to it",
                name,
                f" (did you mean {likely[0]}?)" if likely else "",
            )

    def claim_group(
        self, environment: Environment, read: Callable[[], SeenT]
    ) -> AbstractContextManager[tuple[SeenT, GroupClaim]]:
        """Claim the consumer group of the application, to change what it has: see `claimed_group`.

        Args:
            environment: where the application runs.
            read: looks at what there is, before the claim and with it.

        Raises:
            InvalidOperationError: if another process has the claim.
            KafkaRequestError: if the brokers refuse or do not answer.
        """
        config, inputs = self.config, self.topology.outer_topics
        return claimed_group(
            environment.admin, environment.connection, config.consumer_group, inputs, read, config.request_timeout
        )

    def _missing_inputs(self, admin: TopicAdmin) -> list[str]:
        """Return the input topics that do not exist, except those that this application writes."""
        topology = self.topology
        written = {each.topic.name for each in self.sources.processes} | topology.exchanges.keys()
        inputs = topology.sources.keys() - written
        return sorted(name for name, config in admin.inspect_topics(sorted(inputs)).items() if config is None)

    def rehearse_start(self, spec: TaskSpec, cluster: ClusterAdministration, base_dir: Path) -> TaskSpec:
        """Run the startup checks on another cluster, and return the description that tasks would get there.

        Args:
            spec: the description of the tasks, from `task_spec`.
            cluster: the other cluster; missing topics are created in it.
            base_dir: directory for store partitions.

        Raises:
            StreamRTError: one of its subclasses, if the application could not start.
        """
        spec.dumps()
        self.sources.refuse_unsendable()
        topics = self.topics.on_cluster(cluster)
        set_up_topics(topics, self.sources.changelog_topics(), create=True)
        return complete_spec(spec, topics, cluster, base_dir, self.rocksdb_options, self.config)
