"""An application on paper: its topology, its topics, and what it guarantees, without a cluster."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, get_args

from streamrt.config import ApplicationConfig
from streamrt.connectors import TransactionalSink
from streamrt.operators.to_table import TableSinkOperator
from streamrt.runtime.driver.starting.definition import ApplicationDefinition
from streamrt.runtime.tasks.chain.sink_positions import causes_of_time
from streamrt.tables.descriptions.topics import TableTopic
from streamrt.topics.dead_letters import ErrorStage
from streamrt.topics.internal import changelog_topic_name
from streamrt.topics.settings import declared_config
from streamrt.topology import Topology
from streamrt.topology.describe import describe
from streamrt.topology.diagram import TopologyData
from streamrt.topology.graph import topic_of

__all__ = ["Outline", "TopicData"]


@dataclass(frozen=True)
class TopicData:
    """A topic of an application.

    Attributes:
        name: its name.
        role: "input", "output", "dead letters", "repartition", "changelog" or "source".
        settings: what is declared about it, or from which topic it gets its partitions; may be empty.
        table: name of the table whose rows it has, or None.
    """

    name: str
    role: str
    settings: str
    table: str | None = None


@dataclass(frozen=True)
class Outline:
    """The description of an application.

    Attributes:
        group: the consumer group.
        brokers: the addresses of the brokers.
        processing_mode: the processing mode.
        processing_guarantee: the processing guarantee.
        guarantees: what happens to records, state and outputs after failures, one sentence each.
        topics: its topics.
        topology: its operators and streams.
        text: the topology as text.
    """

    group: str
    brokers: str
    processing_mode: str
    processing_guarantee: str
    guarantees: tuple[str, ...]
    topics: tuple[TopicData, ...]
    topology: TopologyData
    text: str

    @classmethod
    def of(cls, definition: ApplicationDefinition, brokers: str) -> "Outline":
        """Describe an application.

        Args:
            definition: the application.
            brokers: the addresses of the brokers.

        Raises:
            InvalidOperationError: if stores or topics of the application collide.
        """
        config, topology = definition.config, definition.topology
        group, changelogs = config.consumer_group, config.use_changelog_topics
        return cls(
            group,
            brokers,
            config.processing_mode,
            config.processing_guarantee,
            tuple(_list_guarantees(definition, topology)),
            tuple(_topic_data(definition, topology)),
            TopologyData.of(topology, group, changelogs=changelogs),
            describe(topology, group, changelogs=changelogs),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the description for JSON."""
        found = asdict(self)
        del found["text"]
        return found


def _topic_data(definition: ApplicationDefinition, topology: Topology) -> Iterator[TopicData]:
    group = definition.config.consumer_group
    letters = set(definition.policies.topics.values())
    for name, topic in definition.topics.topics.items():
        role = "input" if name in topology.sources else "dead letters" if name in letters else "output"
        table = topic.table if isinstance(topic, TableTopic) else None
        yield TopicData(name, role, _format_settings(declared_config(topic.config)), table)
    for name in topology.exchanges:
        origin = topology.origin(name)
        inputs = dict.fromkeys((origin, topology.origin(topic_of(topology.source_of(topology.exchanges[name])))))
        condition = "that has 1 partition" if len(inputs) == 1 else f"{' and '.join(inputs)} have 1 partition"
        yield TopicData(name, "repartition", f"like {origin}; none if {condition}")
    if definition.config.use_changelog_topics:
        for scope, topics in topology.scopes.items():
            for store in topology.stores(scope):
                yield TopicData(changelog_topic_name(group, scope, store.name), "changelog", f"like {topics[0]}")
    for topic in definition.sources.changelog_topics():
        yield TopicData(topic.name, "source", _format_settings(topic.config))


def _format_settings(config: Any) -> str:
    if config is None:
        return ""
    given: dict[str, object] = {
        "partitions": config.num_partitions,
        "replicas": config.replication_factor,
        **config.extra_config,
    }
    return ", ".join(f"{name}={value}" for name, value in given.items() if value is not None)


def _list_guarantees(definition: ApplicationDefinition, topology: Topology) -> Iterator[str]:
    config = definition.config
    stateful = any(topology.stores(scope) for scope in topology.scopes)
    yield _format_record_limits(config, stateful=stateful)
    if stateful and config.use_changelog_topics:
        yield "state: restored from changelog topics, on any machine"
    elif stateful:
        yield "state: on the disk of one machine alone; a lost disk loses it (use_changelog_topics=False)"
    causes = causes_of_time(topology)
    operators = [node.operator for node in topology.nodes]
    tables = {id(each.sink): each.table for each in operators if isinstance(each, TableSinkOperator)}
    for sink in topology.sinks.values():
        if isinstance(sink, TransactionalSink) and sink.keeps_positions and id(sink) not in causes:
            yield f"sink {sink.name}: each value once, by the positions that are stored beside the values"
        else:
            name = sink.name if isinstance(sink, TransactionalSink) else type(sink).__name__
            name = f"of table {tables[id(sink)]}" if id(sink) in tables else name
            yield f"sink {name}: each value at least once; after a crash, values may come again"
    yield _format_error_handlers(definition)


def _format_record_limits(config: ApplicationConfig, *, stateful: bool) -> str:
    if config.processing_guarantee == "exactly-once":
        return (
            "records: exactly once; outputs, state and offsets are committed together; consumers of the outputs must read "
            "with isolation.level=read_committed"
        )
    twice = ", and state may count them twice" if stateful else ""
    return (
        f"records: at least once; after a crash, those of the last {config.commit_interval:g} s are processed again: outputs "
        f"may repeat{twice}"
    )


def _format_error_handlers(definition: ApplicationDefinition) -> str:
    policies = definition.policies
    named = [f"{stage} errors go to {topic}" for stage, topic in policies.topics.items()]
    named += [f"{stage} errors skip the record" for stage in sorted(policies.skipped)]
    if len(named) < len(get_args(ErrorStage)):
        named.append("any other error ends the application" if named else "any error ends the application")
    return f"errors: {'; '.join(named)}"
