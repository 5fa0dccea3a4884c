"""What the runner is told beside the configuration."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from streamrt.config import ApplicationConfig
from streamrt.kafka import ConnectionConfig, TopicAdmin
from streamrt.runtime import TaskSpec
from streamrt.runtime.display import Display
from streamrt.runtime.progress import Progress
from streamrt.spark.start import SparkStart


@dataclass(frozen=True)
class RunSettings:
    """What the runner needs beside the configuration.

    Attributes:
        connection: how to reach Kafka.
        member_options: options of the group member, in librdkafka's words.
        java_options: options of Spark's Kafka client, in Java's words.
        producer_options: the user's options for producers.
        group_instance_id: for static membership; None for a member that leaves when it stops.
        on_message_processed: called in this process with topic, partition and offset of each processed record.
        partitions: number of partitions of each topic.
        check: called often; raises what must end the application.
    """

    connection: ConnectionConfig
    member_options: Mapping[str, Any]
    java_options: Mapping[str, str]
    producer_options: Mapping[str, Any]
    group_instance_id: str | None
    on_message_processed: Callable[[str, int, int], None] | None
    partitions: Mapping[str, int] = field(default_factory=dict)
    check: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class StopConditions:
    """When `run` ends by itself.

    Attributes:
        count: after this many outputs; 0 for no limit.
        timeout_s: after this many seconds without a new record; 0 for no limit.
    """

    count: int = 0
    timeout_s: float = 0.0


@dataclass(frozen=True)
class Run:
    """One run of an application.

    Attributes:
        config: the application's configuration.
        settings: clients and Spark.
        spec: what tasks do.
        spark: starts, or is there.
        admin: answers questions about topics and offsets.
        conditions: when to stop.
        stop: set by whoever wants the application to stop.
        discard: set if what was not committed shall be processed again.
        progress: kept up to date for whoever watches.
        display: shows what `print` and `print_table` put out.
    """

    config: ApplicationConfig
    settings: RunSettings
    spec: TaskSpec
    spark: SparkStart
    admin: TopicAdmin
    conditions: StopConditions
    stop: threading.Event
    discard: threading.Event
    progress: Progress
    display: Display

    @property
    def topics(self) -> list[str]:
        """Names of the topics to read."""
        return list(self.spec.topology.sources)
