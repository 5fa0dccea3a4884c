"""Compares an application with what is deployed: the checks of a start, with a client that changes nothing.

```
application, cluster --> PlannedAdmin --> set_up_topics, complete_spec, refuse_leftovers, StartOffsets.find
                                             |               (the checks of a start; their refusals are findings)
                         committed offsets --> Deployed --> what becomes of inputs, stores and internal topics
```

No topic is created, no offset committed, no transaction ended, and no group joined.
"""

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from streamrt.application.application_run import runner_for
from streamrt.errors import KafkaBrokerUnavailableError, StreamRTError
from streamrt.kafka import KafkaRequestError, TopicConfig
from streamrt.kafka.cluster.committed import CommittedOffset
from streamrt.kafka.reading.changelog_reader import ChangelogReader
from streamrt.records import TopicPartition
from streamrt.runs.start_positions import StartOffsets
from streamrt.runtime.driver.starting.definition import ApplicationDefinition, Environment
from streamrt.runtime.driver.starting.group_layout import compare_layout
from streamrt.runtime.driver.starting.layout_changes import (
    Change,
    Deployed,
    Kind,
    guarantee_changes,
    input_changes,
    store_changes,
    topic_changes,
)
from streamrt.runtime.driver.starting.leftovers import refuse_leftovers
from streamrt.runtime.driver.starting.planned import PlannedAdmin
from streamrt.runtime.driver.starting.state_setup import complete_spec, set_up_topics
from streamrt.runtime.metadata import first_counts
from streamrt.runtime.spec import TaskSpec
from streamrt.state.changelog import Position, is_position
from streamrt.topics.internal import (
    changelog_config,
    changelog_prefix,
    changelog_topic_name,
    repartition_config,
    repartition_prefix,
)
from streamrt.topology import Topology
from streamrt.topology.graph import topic_of

__all__ = ["DeploymentPlan", "StartOffset", "plan_deployment"]


@dataclass(frozen=True)
class StartOffset:
    """Where the processing of an input partition would begin.

    Attributes:
        topic: the topic.
        partition: the partition.
        committed: the committed offset; None if there is none.
        start: the offset to begin at; None if the start would be refused.
        end: the offset after the last record that can be read.
    """

    topic: str
    partition: int
    committed: int | None
    start: int | None
    end: int

    @property
    def lag(self) -> int | None:
        """Number of offsets from the start to the end."""
        return None if self.start is None else max(0, self.end - self.start)


@dataclass(frozen=True)
class DeploymentPlan:
    """The changes that a start of an application would make.

    Attributes:
        group: the consumer group.
        brokers: the addresses of the brokers.
        changes: the findings.
        offsets: where each input partition would begin.
    """

    group: str
    brokers: str
    changes: tuple[Change, ...]
    offsets: tuple[StartOffset, ...] = ()

    def of_kind(self, kind: Kind) -> tuple[Change, ...]:
        """Return the findings of one kind."""
        return tuple(each for each in self.changes if each.kind is kind)

    def as_dict(self) -> dict[str, Any]:
        """Return the plan for JSON."""
        return {
            "group": self.group,
            "brokers": self.brokers,
            "counts": {kind.value: len(self.of_kind(kind)) for kind in Kind},
            "findings": [each.as_dict() for each in self.changes],
            "offsets": [
                {
                    "topic": each.topic,
                    "partition": each.partition,
                    "committed": each.committed,
                    "start": each.start,
                    "end": each.end,
                    "lag": each.lag,
                }
                for each in self.offsets
            ],
        }


def plan_deployment(
    definition: ApplicationDefinition, environment: Environment, timeout_s: float | None = None
) -> DeploymentPlan:
    """Compare an application with its consumer group, its topics and its state in the cluster. Nothing is changed.

    Args:
        definition: the application.
        environment: where it runs.
        timeout_s: seconds to wait for a broker; None for the `broker_availability_timeout` of the application.

    Raises:
        KafkaBrokerUnavailableError: if no broker answers in time.
        KafkaRequestError: if Kafka refuses a request that only reads, or does not answer it.
    """
    planned = _Planned(definition, environment)
    try:
        planned.admin.wait_for_broker(definition.config.broker_start_timeout if timeout_s is None else timeout_s)
        planned.find()
    finally:
        planned.admin.close()
    return DeploymentPlan(
        definition.config.consumer_group,
        environment.connection.bootstrap_servers,
        tuple(planned.changes),
        tuple(planned.offsets),
    )


@dataclass
class _Planned:
    """The findings so far, and what they come from."""

    definition: ApplicationDefinition
    environment: Environment
    changes: list[Change] = field(default_factory=list)
    offsets: list[StartOffset] = field(default_factory=list)

    def __post_init__(self) -> None:
        config = self.definition.config
        self.admin = PlannedAdmin(self.environment.connection)
        self.group, self.timeout = config.consumer_group, config.request_timeout
        self.topics = self.definition.topics.on_cluster(self.admin, create=config.auto_create_topics)
        self.committed: Mapping[TopicPartition, CommittedOffset] = {}

    def find(self) -> None:
        definition, config = self.definition, self.definition.config
        with self._check_step("application"):
            runner_for(config, definition.topology)
            definition.sources.refuse_unsendable()
        spec: TaskSpec | None = None
        with self._check_step("application"):
            spec = definition.task_spec()
            spec.dumps()
        with self._check_step("topics"):
            set_up_topics(self.topics, definition.sources.changelog_topics(), create=config.auto_create_topics)
        topology, counts = self._resolve_topology()
        complete: TaskSpec | None = None
        if spec is not None and not self._refused:
            with self._check_step("state"):
                base_dir = config.state_dir.absolute()
                described = (spec, self.topics, self.admin, base_dir, definition.rocksdb_options, config)
                complete = complete_spec(*described)
                complete = compare_layout(complete, self.admin, self.environment.connection, config)
                topology = complete.topology
        deployed = self._find_deployed()
        self._describe_group(deployed)
        self._compare_versions(deployed, topology, counts)
        self._report_leftovers(topology, deployed)
        self._check_positions(complete, deployed)
        self._find_offsets(complete, topology, counts, deployed)

    # -- Parts -----------------------------------------------------------------------------------------------------

    def _resolve_topology(self) -> tuple[Topology, dict[str, int]]:
        """Return the topology for the partition counts of the cluster, and these; an unknown count is 1."""
        topology = self.definition.topology
        found = self.admin.inspect_topics(list(topology.sources), timeout=self.timeout)
        counts = {name: (config and config.num_partitions) or 1 for name, config in found.items()}
        return topology.resolve(counts).separate(counts), counts

    def _find_deployed(self) -> Deployed:
        # All topics: an admin client of librdkafka 2.16 can crash when it reads all offsets of a group.
        found = self.admin.list_topics(timeout=self.timeout)
        every = [
            TopicPartition(name, number)
            for name, topic in found.items()
            if not name.startswith("__")
            for number in topic.partitions
        ]
        self.committed = self.admin.committed_now(self.group, every, timeout=self.timeout) if every else {}
        return Deployed.of(self.committed)

    def _describe_group(self, deployed: Deployed) -> None:
        listed = self.admin.list_groups(timeout=self.timeout).get(self.group)
        subject = f"group {self.group}"
        if listed is None and deployed.offsets:
            # Kafka lists only the groups that the user may describe.
            return
        if listed is None:
            self._add_finding(
                Kind.CHANGE, subject, "has never committed: this is the first start, or the group has another name"
            )
        elif listed.is_active:
            self._add_finding(Kind.OK, subject, "has members: instances run, and offsets move while they do")
        else:
            self._add_finding(Kind.OK, subject, "has no members: no instance runs")

    def _compare_versions(self, deployed: Deployed, topology: Topology, counts: Mapping[str, int]) -> None:
        config = self.definition.config
        internal = repartition_prefix(self.group)
        inputs = {name: counts[name] for name in topology.sources if name not in topology.exchanges}
        of_inputs = Deployed(
            {each: offset for each, offset in deployed.offsets.items() if not each.topic.startswith(internal)}
        )
        begun = first_counts(self.committed, inputs)
        self.changes += input_changes(of_inputs, inputs, begun, self.admin.created)
        stores = {
            (scope, store.name): topology.scopes[scope] for scope in topology.scopes for store in topology.stores(scope)
        }
        self.changes += store_changes(deployed, stores, changelogs=config.use_changelog_topics)
        self.changes += guarantee_changes(deployed, config.processing_guarantee)
        wanted = self._wanted_configs(topology)
        actual = self.admin.inspect_topics(list(wanted), timeout=self.timeout)
        self.changes += topic_changes(wanted, actual, self.admin.created)

    def _wanted_configs(self, topology: Topology) -> dict[str, TopicConfig]:
        """Return the settings that internal topics would get now, and no options of outputs."""
        unknown = TopicConfig(None, None)
        found = self.admin.inspect_topics(list(topology.sources), timeout=self.timeout)

        def settings(topic: str) -> TopicConfig:
            return found.get(topology.origin(topic)) or unknown

        wanted = {name: unknown for name in self.topics.topics if name not in topology.sources}
        for name, exchange in topology.exchanges.items():
            source = settings(topic_of(topology.source_of(exchange)))
            wanted[name] = replace(repartition_config(source), num_partitions=settings(name).num_partitions)
        if self.definition.config.use_changelog_topics:
            for scope, topics in topology.scopes.items():
                for store in topology.stores(scope):
                    name = changelog_topic_name(self.group, scope, store.name)
                    wanted[name] = changelog_config(settings(topics[0]))
        return wanted | {topic.name: unknown for topic in self.definition.sources.changelog_topics()}

    def _report_leftovers(self, topology: Topology, deployed: Deployed) -> None:
        """Report internal topics that this version does not use, and refuse those with unprocessed records."""
        with self._check_step("repartition topics"):
            refuse_leftovers(topology, self.group, self.admin, self.environment.connection, self.timeout)
        gone = {changelog_topic_name(self.group, *name) for name in deployed.stores}
        used = {*topology.sources, *self._wanted_configs(topology), *gone}
        for prefix in (changelog_prefix(self.group), repartition_prefix(self.group)):
            for topic in self.admin.topic_names(prefix, timeout=self.timeout):
                if topic not in used:
                    self._add_finding(
                        Kind.WARNING,
                        f"topic {topic}",
                        "is not used by this version; a former one may have made it, or a group whose name begins with "
                        f"{self.group}--",
                        "delete it when no version needs it",
                    )

    def _check_positions(self, spec: TaskSpec | None, deployed: Deployed) -> None:
        """Find state whose input was deleted and created again, or that is ahead of its offset, as tasks would."""
        state = None if spec is None else spec.state
        if state is None or spec is None:
            return
        with contextlib.closing(ChangelogReader(self.environment.connection)) as reader:
            for scope, source in state.sources.items():
                topics = source.topics or (scope,)
                for store, log in source.stores.items():
                    if log is None or log.topic in self.admin.created:
                        continue
                    for number in range(source.partitions):
                        position = self._last_position(reader, TopicPartition(log.topic, number))
                        if position is not None:
                            self._compare_position(scope, store, number, topics, source.topic_id, position, deployed)

    def _compare_position(
        self,
        scope: str,
        store: str,
        number: int,
        topics: Iterable[str],
        topic_id: str | None,
        position: Position,
        deployed: Deployed,
    ) -> None:
        subject = f"store {store!r} of {TopicPartition(scope, number)}"
        remedy = "set the group's offset to that of the state, or start with another consumer_group"
        if topic_id is not None and position.topic_id not in (None, topic_id):
            detail = (
                "was made from a topic that was deleted and created again since: its offsets stand for other records"
            )
            self._add_finding(Kind.REFUSED, subject, detail, remedy)
            return
        if self.definition.config.processing_guarantee != "exactly-once":
            return
        for topic in topics:
            at = (position.inputs or {}).get(topic, position.input_offset)
            partition = TopicPartition(topic, number)
            committed = deployed.offsets.get(partition)
            if committed is not None and at > committed:
                # A running instance may have committed since. It commits position and offset together.
                committed = self.admin.committed_stable(self.group, [partition], timeout=self.timeout)[partition].offset
            if committed is not None and at > committed:
                detail = (
                    f"contains the records of {topic} up to offset {at}, but the group is at {committed}: its offset was set "
                    "back, and records would count twice"
                )
                self._add_finding(Kind.REFUSED, subject, detail, remedy)

    def _last_position(self, reader: ChangelogReader, log: TopicPartition) -> Position | None:
        low, high = self.admin.bounds(log, timeout=self.timeout)
        last = reader.last_position(log, is_position, low, high, timeout_s=self.timeout) if low < high else None
        return None if last is None or last[1] is None else Position.decode(last[1])

    def _find_offsets(
        self, spec: TaskSpec | None, topology: Topology, counts: Mapping[str, int], deployed: Deployed
    ) -> None:
        """Find where each input partition would begin, with the rules of a start."""
        existing = [name for name in topology.sources if name not in self.admin.created]
        known = {name: config for name, config in self.admin.inspect_topics(existing, self.timeout).items() if config}
        partitions = [TopicPartition(name, number) for name in sorted(known) for number in range(counts[name])]
        positions: Mapping[TopicPartition, int] = {}
        if spec is not None and partitions:
            with self._check_step("offsets"):
                finder = StartOffsets(
                    self.definition.config, self.environment.connection, spec, self.admin, fence=lambda _: None
                )
                positions = finder.find(partitions).positions
        ends = (
            self.admin.offset_bounds(partitions, self.timeout, isolation_level="read_committed") if partitions else {}
        )
        self.offsets = [
            StartOffset(*each, deployed.offsets.get(each), positions.get(each), ends[each][1]) for each in partitions
        ]
        self._summarize_offsets()

    def _summarize_offsets(self) -> None:
        for topic in dict.fromkeys(each.topic for each in self.offsets):
            mine = [each for each in self.offsets if each.topic == topic]
            lags = [each.lag for each in mine if each.lag is not None]
            if not lags:
                continue
            lag = f"{sum(lags)} offset{'' if sum(lags) == 1 else 's'} behind the end"
            moved = [each for each in mine if each.start != each.committed]
            if not moved:
                self._add_finding(Kind.OK, f"offsets of {topic}", f"continues at the committed offsets, {lag}")
                continue
            listed = ", ".join(f"{each.partition}: {each.start}" for each in moved)
            self._add_finding(Kind.CHANGE, f"offsets of {topic}", f"begins at {listed} (partition: offset), {lag}")

    # -- Helpers ---------------------------------------------------------------------------------------------------

    @property
    def _refused(self) -> bool:
        return any(each.kind is Kind.REFUSED for each in self.changes)

    def _add_finding(self, kind: Kind, subject: str, detail: str, remedy: str = "") -> None:
        self.changes.append(Change(kind, subject, detail, remedy))

    @contextlib.contextmanager
    def _check_step(self, subject: str) -> Iterator[None]:
        """Run checks of a start: a refusal and warnings become findings."""
        with _collect_warnings() as said:
            try:
                yield
            except (KafkaRequestError, KafkaBrokerUnavailableError):
                # The plan has failed, which says nothing about a start.
                raise
            except StreamRTError as error:
                self._add_finding(Kind.REFUSED, subject, str(error))
        self.changes += [Change(Kind.WARNING, subject, text) for text in said]


class _Collector(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


@contextlib.contextmanager
def _collect_warnings() -> Iterator[list[str]]:
    """Collect the warnings that StreamRT logs, instead of writing them."""
    logger = logging.getLogger("streamrt")
    before = logger.handlers[:], logger.propagate, logger.level
    collector = _Collector()
    logger.handlers, logger.propagate = [collector], False
    logger.setLevel(min(logging.WARNING, logger.level or logging.WARNING))
    try:
        yield collector.said
    finally:
        logger.handlers, logger.propagate = before[0], before[1]
        logger.setLevel(before[2])
