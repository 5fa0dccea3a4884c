"""What the runner is told beside the configuration."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from streamrt.kafka import ConnectionConfig


@dataclass(frozen=True)
class RunSettings:
    """What the runner needs beside the configuration.

    Attributes:
        connection: how to reach Kafka.
        member_options: options of the group member, in librdkafka's words.
        java_options: options of Spark's Kafka client, in Java's words.
        producer_options: the user's options for producers.
        group_instance_id: for static membership; None for a member that leaves when it stops.
        spark_config: additional Spark settings.
        spark_session: a session to use.
        on_message_processed: called in this process with topic, partition and offset of each processed record.
        partitions: number of partitions of each topic.
        check: called often; raises what must end the application.
    """

    connection: ConnectionConfig
    member_options: Mapping[str, Any]
    java_options: Mapping[str, str]
    producer_options: Mapping[str, Any]
    group_instance_id: str | None
    spark_config: Mapping[str, Any]
    spark_session: Any
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
