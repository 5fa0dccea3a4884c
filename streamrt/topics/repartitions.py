"""The repartition topics of an application: how they derive from their inputs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from streamrt.kafka import TopicConfig
from streamrt.topics.internal import repartition_config
from streamrt.topics.topic import Topic

__all__ = ["MergedTopics", "Repartition", "needed_topics"]


@dataclass(frozen=True)
class Repartition:
    """A repartition topic.

    Attributes:
        topic: the topic.
        input: the topic of its records, or several, joined by `--`.
        operation: name of the `group_by` or broadcast.
        like: for a broadcast, the topic that decides on the number of partitions; None for the input.
    """

    topic: Topic
    input: str
    operation: str
    like: str | None


@dataclass(frozen=True)
class MergedTopics:
    """Topics that are processed together.

    Attributes:
        topics: their names.
        grouping: names of the groupings in the names of stores behind the merge, joined by dots.
    """

    topics: tuple[str, ...]
    grouping: str


def needed_topics(
    repartitions: Mapping[str, Repartition], origin: Callable[[str], str], found: Mapping[str, TopicConfig | None]
) -> dict[str, TopicConfig]:
    """Return the settings of the repartition topics that are needed, as far as their inputs exist.

    Args:
        repartitions: all repartition topics, by name.
        origin: returns the input topic that decides on the number of partitions of a topic.
        found: settings of the existing topics, by name.
    """
    needed: dict[str, TopicConfig] = {}
    for name, each in repartitions.items():
        source, size = found.get(origin(each.input)), found.get(origin(name))
        if source is None or size is None or source.num_partitions == size.num_partitions == 1:
            continue
        # A repartition topic keeps its partitions if its input gets more.
        like = found.get(each.like or "") or size
        needed[name] = replace(repartition_config(source), num_partitions=like.num_partitions)
    return needed
