"""The definition of an application, from which runs and the test driver start."""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamrt.config import ApplicationConfig
from streamrt.kafka import ConnectionConfig, TopicAdmin
from streamrt.kafka.java import ConsumerOptions
from streamrt.runtime.driver.sources import SourceManager
from streamrt.runtime.driver.state_setup import ClusterAdministration, complete_spec, set_up_topics
from streamrt.runtime.spec import ErrorCallbacks, TaskSpec
from streamrt.state import RocksDBOptions
from streamrt.topics import TopicManager
from streamrt.topology import Topology, TopologyBuilder

MessageProcessedCallback = Callable[[str, int, int], None]
"""Function of topic, partition and offset of a processed record."""


@dataclass(frozen=True)
class ApplicationDefinition:
    """What an application processes, and how.

    Attributes:
        config: the settings.
        topics: declares, creates and validates topics.
        sources: the processes of the sources.
        builder: the builder of the topology.
        callbacks: the error callbacks.
        on_message_processed: called for each processed record.
        rocksdb_options: options of the state stores; None for the defaults.
    """

    config: ApplicationConfig
    topics: TopicManager
    sources: SourceManager
    builder: TopologyBuilder
    callbacks: ErrorCallbacks
    on_message_processed: MessageProcessedCallback | None
    rocksdb_options: RocksDBOptions | None

    @property
    def topology(self) -> Topology:
        """The operators defined so far."""
        return self.builder.build()

    def task_spec(self, *, count_outputs: bool = False, collect: bool = False, live_tables: bool = False) -> TaskSpec:
        """Return the description of the application for the processes that run tasks.

        Args:
            count_outputs: whether tasks count outputs.
            collect: whether tasks send outputs back.
            live_tables: whether tables are redrawn in place.
        """
        return TaskSpec(
            topology=self.topology,
            transactional=self.config.processing_guarantee == "exactly-once",
            callbacks=self.callbacks,
            live_tables=live_tables,
            count_outputs=count_outputs,
            collect=collect,
            processed_offsets=self.on_message_processed is not None,
            processing_timeout=self.config.processing_timeout,
            run_id=uuid.uuid4().hex,
        )

    def set_up_topics(self, admin: TopicAdmin) -> None:
        """Create missing topics and compare existing topics with their definitions.

        Args:
            admin: client for topics.

        Raises:
            KafkaBrokerUnavailableError: if no broker answers in time.
            TopicNotFoundError: if a topic is missing and may not be created.
            TopicCreationError: if a topic cannot be created.
        """
        admin.wait_for_broker(self.config.broker_availability_timeout)
        set_up_topics(self.topics, self.sources.changelog_topics(), create=self.config.auto_create_topics)

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
