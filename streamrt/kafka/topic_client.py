"""Topics as Kafka's client describes and creates them."""

from typing import Any

from confluent_kafka import KafkaError
from confluent_kafka.admin import NewTopic

from streamrt.kafka.topic_config import PartitionReplicas, TopicConfig, TopicDefinition

__all__ = ["advise", "has_leaders", "new_topic", "replicas_of", "shape_of"]

_ADVICE = {
    KafkaError.INVALID_REPLICATION_FACTOR: "set a replication_factor that is not above the number of brokers",
    KafkaError.INVALID_PARTITIONS: "set num_partitions to 1 or more",
    KafkaError.INVALID_CONFIG: "correct extra_config",
    KafkaError.POLICY_VIOLATION: "ask the cluster's administrator which settings its policy allows",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "grant the user CREATE on the topic, or create it manually",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "grant the user CREATE on the cluster, or create it manually",
    KafkaError.TOPIC_EXCEPTION: "use letters, digits, '.', '_' and '-' in the name",
    KafkaError._TIMED_OUT: "check that the brokers are up, or raise the timeout",
}


def advise(error: KafkaError) -> str:
    """Return the text of an error of creating a topic, with what to do."""
    advice = _ADVICE.get(error.code())
    return f"{error.str()} ({error.name()})" + (f": {advice}" if advice else "")


def new_topic(topic: TopicDefinition) -> NewTopic:
    """Return a topic as the client creates it."""
    config = topic.config or TopicConfig(None, None)
    return NewTopic(
        topic.name,
        # -1 is Kafka's value for "the default of the cluster".
        num_partitions=-1 if config.num_partitions is None else config.num_partitions,
        replication_factor=-1 if config.replication_factor is None else config.replication_factor,
        config={key: str(value) for key, value in config.extra_config.items()},
    )


def shape_of(description: Any) -> tuple[int, int]:
    """Return the numbers of partitions and of replicas in the description of a topic."""
    partitions = description.partitions
    return len(partitions), len(partitions[0].replicas) if partitions else 0


def replicas_of(partition: Any) -> PartitionReplicas:
    """Return where the replicas of a partition are, from its description."""
    leader = partition.leader
    return PartitionReplicas(
        partition.id,
        leader.id if leader is not None and leader.id >= 0 else None,
        [node.id for node in partition.replicas],
        [node.id for node in partition.isr],
    )


def has_leaders(description: Any) -> bool:
    """Return whether all partitions in the description of a topic have leaders."""
    return bool(description.partitions) and all(
        partition.leader is not None and partition.leader.id >= 0 for partition in description.partitions
    )
