"""Start positions in newly assigned partitions."""

import contextlib
import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from streamrt.config import ApplicationConfig
from streamrt.errors import TopicConfigurationError, TransactionError
from streamrt.kafka import ConnectionConfig, KafkaRequestError, TopicAdmin
from streamrt.kafka.cluster.committed import CommittedOffset
from streamrt.kafka.cluster.topic_ids import confirmed_ids
from streamrt.kafka.reading.changelog_reader import ChangelogReader
from streamrt.records import TopicPartition
from streamrt.relations import find_request_topics
from streamrt.runtime.driver.starting.group_claim import refuse_claimed
from streamrt.runtime.driver.starting.group_layout import LayoutTopic
from streamrt.runtime.driver.starting.start_offsets import StartPlan, StartRules, plan_start
from streamrt.runtime.driver.starting.state_setup import check_changelogs
from streamrt.runtime.metadata import CommittedMetadata, claimed, sent_before
from streamrt.runtime.placement import ScopeInfo, StateSettings
from streamrt.runtime.skipped import refuse_skipped_stores
from streamrt.runtime.spec import TaskSpec
from streamrt.runtime.tasks.kafka_clients import KafkaTaskClients
from streamrt.runtime.topic_identity import refuse_late_offsets, refuse_recreated
from streamrt.state.changelog import Position, is_position
from streamrt.topology import SourceOperator, TaskId

logger = logging.getLogger("streamrt")

_SETTLE_S = 0.25
_HELD_S = 2.0


@dataclass(frozen=True)
class Start:
    """Start positions.

    Attributes:
        positions: offset of the first record to process, by partition.
        initial_offsets: offsets to commit before anything is processed: positions that the group does not know yet, and,
            with at-least-once, those of partitions with state, whose metadata claim them.
        metadata: metadata of these offsets.
        claims: at least once, the numbers of the claims of partitions with state.
        stateful: partitions whose commit metadata names a store; merged topics are named as in `Topology.scopes`.
        sent: the highest event time that tasks had sent into exchanges, by task and repartition topic.
        lost: number of offsets that were deleted before they were processed.
    """

    positions: Mapping[TopicPartition, int]
    initial_offsets: Mapping[TopicPartition, int]
    stateful: frozenset[TopicPartition]
    metadata: Mapping[TopicPartition, str | None] = field(default_factory=dict)
    claims: Mapping[TopicPartition, int] = field(default_factory=dict)
    sent: Mapping[TaskId, Mapping[str, int]] = field(default_factory=dict)
    lost: int = 0


class HeldStart:
    """A start that is used again while all its partitions wait, so that Kafka is not asked ten times a second.

    Nobody else commits for the partitions meanwhile, but retention may delete records, so it does not stay for long.

    Args:
        clock: returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._held: tuple[int, frozenset[TopicPartition], float, Start] | None = None

    def hold(self, generation: int, partitions: frozenset[TopicPartition], start: Start) -> None:
        """Keep a start, unless it is kept already.

        Args:
            generation: the generation of the group.
            partitions: the partitions for which it was found.
            start: the start.
        """
        if self.get(generation, partitions) is not start:
            self._held = (generation, partitions, self._clock() + _HELD_S, start)

    def get(self, generation: int, partitions: frozenset[TopicPartition]) -> Start | None:
        """Return the start of these partitions; None if there is none that is new enough."""
        if self._held is None or self._held[:2] != (generation, partitions) or self._clock() >= self._held[2]:
            return None
        return self._held[3]

    def drop(self) -> None:
        """Forget it: something will be processed."""
        self._held = None


class StartOffsets:
    """Finds the offsets at which tasks begin.

    Args:
        config: the application's configuration.
        connection: connection to Kafka.
        spec: the task specification.
        admin: requests topics and offsets.
        fence: ends the open transactions of the tasks of input partitions, and takes over the claims of other versions.
        notes: whether the positions at which inputs begin are written to the layout of the group.
    """

    def __init__(
        self,
        config: ApplicationConfig,
        connection: ConnectionConfig,
        spec: TaskSpec,
        admin: TopicAdmin,
        fence: Callable[[Iterable[TopicPartition]], None],
        *,
        notes: bool = False,
    ) -> None:
        self._config = config
        self._notes = notes
        self._connection = connection
        self._spec = spec
        self._admin = admin
        self._fence = fence
        self._is_unclaimed = False

    def find(self, assigned: Iterable[TopicPartition]) -> Start:
        """Return the committed offsets; without one, the position of the state or that of `auto_offset_reset`.

        Raises:
            OffsetOutOfRangeError: if an offset is outside its partition and must not be reset.
            KafkaRequestError: if Kafka does not answer.
            ChangelogError: if a changelog was recreated since the last commit.
            TopicConfigurationError: if partitions were added to a topic whose state depends on their number.
            StaleTokenError: if a topic was deleted and created again since the application has started.
            InvalidOperationError: if a process resets, restores or repartitions the consumer group.
        """
        partitions = sorted(assigned)
        if self._notes and not self._is_unclaimed:
            # This instance is a member now, so who takes the claim later finds it.
            refuse_claimed(self._admin, self._config.consumer_group)
            self._is_unclaimed = True
        self._refuse_recreated(partitions)
        self._refuse_added(partitions)
        committed, plans = self._plan_starts(partitions)
        if self._spec.transactional and (doubtful := self._find_doubtful(committed, plans)):
            self._end_transactions(doubtful)
            committed, plans = self._plan_starts(partitions)
        notes = {partition: CommittedMetadata.decode(committed[partition].metadata) for partition in partitions}
        refuse_skipped_stores(
            self._spec.state,
            {partition: at for partition in partitions if (at := committed[partition].offset) is not None},
            notes,
            self._last_position,
            self._has_records,
        )
        for partition, plan in plans.items():
            # Not before the checks: a refusal changes nothing, so nothing is lost by it.
            if plan.notice:
                state = "; its state stays as it is" if self._has_state(partition, notes[partition]) else ""
                logger.error("%s%s", plan.notice, state)
        positions = {partition: plan.position for partition, plan in plans.items()}
        initial_offsets = {
            partition: plan.position
            for partition, plan in plans.items()
            if plan.moved or committed[partition].offset is None
        }
        stateful = frozenset(
            TopicPartition(name, partition.partition)
            for partition, note in notes.items()
            for name in self._scope_names(partition.topic)
            if note.names_any(name)
        )
        claims = self._claim_numbers(notes)
        initial_offsets |= {partition: positions[partition] for partition in claims}
        # The existing metadata names state and owner of the partition, which still hold: no record was processed since.
        former = {
            partition: committed[partition].metadata or self._spec.commit_metadata.first(partition)
            for partition in initial_offsets
        }
        metadata = {
            partition: claimed(text, claim=claims[partition], owner=notes[partition].owner)
            if partition in claims
            else text
            for partition, text in former.items()
        }
        lost = sum(plan.lost for plan in plans.values())
        self._note_starts(positions, initial_offsets)
        return Start(
            positions, initial_offsets, stateful, metadata, claims, sent_before(notes, self._spec.topology), lost
        )

    def _plan_starts(
        self, partitions: list[TopicPartition]
    ) -> tuple[Mapping[TopicPartition, CommittedOffset], dict[TopicPartition, StartPlan]]:
        """Return the committed offsets and the start positions."""
        committed = self._request_committed(partitions)
        refuse_late_offsets(self._admin.topic_ids, committed, self._spec.topic_ids, self._config.request_timeout)
        check_changelogs(self._spec.state, ((partition, committed[partition].metadata) for partition in partitions))
        bounds = self._admin.offset_bounds(partitions, timeout=self._config.request_timeout)
        missing = [partition for partition in partitions if committed[partition].offset is None]
        remembered = self._remembered_positions(missing)
        unknown = [partition for partition in missing if partition not in remembered]
        forgotten = bool(unknown) and self._is_forgotten()
        plans: dict[TopicPartition, StartPlan] = {}
        for partition in partitions:
            offset, rules = (
                committed[partition].offset,
                self._make_rules(partition, committed[partition], forgotten=forgotten),
            )
            known = remembered.get(partition) if offset is None else offset
            plans[partition] = plan_start(partition, known, bounds[partition], rules)
        return committed, plans

    def _find_doubtful(
        self, committed: Mapping[TopicPartition, CommittedOffset], plans: Mapping[TopicPartition, StartPlan]
    ) -> list[TopicPartition]:
        """Return the inputs whose offsets may still be moved by other tasks.

        A dead task may have left a transaction that would move the group back to an offset before the new one. A task
        of another version may continue at any time, and commit without the stores that are new here.
        """
        ours = self._spec.commit_metadata
        return [
            partition
            for partition, plan in plans.items()
            if committed[partition].offset is not None
            and (plan.moved or not ours.describes(partition, committed[partition].metadata))
        ]

    def _make_rules(
        self, partition: TopicPartition, committed: CommittedOffset, *, forgotten: bool = False
    ) -> StartRules:
        config, first_counts = self._config, self._spec.commit_metadata.first_counts
        former = {} if self._spec.layout is None else self._spec.layout.inputs
        first = math.inf if partition.topic not in former else former[partition.topic].partitions
        has_state = self._has_state(partition, CommittedMetadata.decode(committed.metadata))
        source = self._spec.topology.sources[partition.topic].operator
        own = source.topic.auto_offset_reset if isinstance(source, SourceOperator) else None
        return StartRules(
            config.consumer_group,
            # A source begins to write before partitions are assigned, and a table has all its rows: none may be skipped.
            own or ("earliest" if partition.topic in self._spec.from_first else config.auto_offset_reset),
            config.auto_recover_from_source_offset_out_of_range,
            internal=partition.topic in self._spec.topology.exchanges,
            merges=partition.topic in find_request_topics(self._spec.topology),
            added=partition.partition >= min(first, first_counts.get(partition.topic, math.inf)),
            forgotten=forgotten,
            counted=bool(self._changelogs_of(partition)),
            exact_state=self._spec.transactional and has_state,
        )

    def _has_state(self, partition: TopicPartition, note: CommittedMetadata) -> bool:
        return any(note.names_any(name) for name in self._scope_names(partition.topic))

    def _refuse_added(self, partitions: Iterable[TopicPartition]) -> None:
        """Refuse partitions that were added to stateful topics: the partition of a key depends on their number.

        Raises:
            TopicConfigurationError: if there are any.
        """
        sources = {} if self._spec.state is None else self._spec.state.sources
        counts = {topic: source.partitions for name, source in sources.items() for topic in source.topics or (name,)}
        added = next(
            (partition for partition in partitions if partition.partition >= counts.get(partition.topic, math.inf)),
            None,
        )
        if added is None:
            return
        found = self._admin.inspect_topics([added.topic], timeout=self._config.request_timeout)[added.topic]
        now = max(added.partition + 1, (found and found.num_partitions) or 0)
        raise TopicConfigurationError(
            f"topic {added.topic!r} has {now} partitions now, and had {counts[added.topic]} when its state was made: keys "
            "are in other partitions than their state, so no record of the new ones was processed; stop all instances, and "
            "move the state with `streamrt repartition`, or start over with another consumer_group"
        )

    def _claim_numbers(self, notes: Mapping[TopicPartition, CommittedMetadata]) -> dict[TopicPartition, int]:
        """Return the claim numbers of further changelog records: higher than all earlier ones."""
        state = self._spec.state
        if self._spec.transactional or state is None:
            return {}
        logged = {
            topic
            for name, source in state.sources.items()
            if any(source.stores.values())
            for topic in source.topics or (name,)
        }
        # Tools that set offsets drop earlier numbers, which were no higher than the clock.
        now = time.time_ns() // 1_000_000
        return {partition: max(now, note.claim + 1) for partition, note in notes.items() if partition.topic in logged}

    def _scope_names(self, topic: str) -> set[str]:
        """Return the names of the scopes with state from a topic."""
        return {name for name, topics in self._spec.topology.scopes.items() if topic in topics}

    def _request_committed(self, partitions: list[TopicPartition]) -> Mapping[TopicPartition, CommittedOffset]:
        group, timeout = self._config.consumer_group, self._config.request_timeout
        if not self._spec.transactional:
            return self._admin.committed_stable(group, partitions, timeout=timeout)
        try:
            return self._admin.committed_stable(group, partitions, timeout=_SETTLE_S)
        except KafkaRequestError as error:
            if not error.retriable:
                raise
            # A dead task may have left a transaction that is about to move an offset; its timeout is a minute.
            logger.info("an open transaction holds committed offsets back; ending it")
            self._end_transactions(partitions)
        return self._admin.committed_stable(group, partitions, timeout=timeout)

    def _end_transactions(self, partitions: Iterable[TopicPartition]) -> None:
        try:
            self._fence(partitions)
        except TransactionError as error:
            raise KafkaRequestError(str(error), retriable=True) from error

    def _has_records(self, partition: TopicPartition, start: int, end: int) -> bool:
        with contextlib.closing(KafkaTaskClients(self._connection, self._config.consumer_group)) as clients:
            return clients.has_records(partition, start, end)

    def _last_position(self, log: TopicPartition) -> Position | None:
        """Return the last position in a changelog partition."""
        timeout = self._config.request_timeout
        low, high = self._admin.bounds(log, timeout=timeout)
        if low >= high:
            return None
        if self._spec.transactional:
            # The records of a dead task may come at any time, so this looks at what is read, and not before.
            _, stable = self._admin.offset_bounds([log], timeout, isolation_level="read_committed")[log]
            if stable < high:
                logger.info("an open transaction holds the changelog %s back; ending it", log)
                self._end_transactions(self._inputs_of_log(log))
        with contextlib.closing(ChangelogReader(self._connection)) as reader:
            last = reader.last_position(log, is_position, low, high, timeout_s=timeout)
        return None if last is None or last[1] is None else Position.decode(last[1])

    def _inputs_of_log(self, log: TopicPartition) -> list[TopicPartition]:
        """Return the input partitions whose task writes into a changelog partition."""
        topics = {topic for scope in self._spec.topology.scopes.values() for topic in scope}
        inputs = (TopicPartition(topic, log.partition) for topic in sorted(topics))
        return [place for place in inputs if log in (mine for _, mine in self._changelogs_of(place))]

    def _changelogs_of(self, partition: TopicPartition) -> list[tuple[ScopeInfo, TopicPartition]]:
        """Return the changelog partitions of an input partition's state, each with its source."""
        state = self._spec.state or StateSettings(group="", base_dir=self._config.state_dir)
        scopes = self._scope_names(partition.topic)
        sources = [source for name, source in state.sources.items() if name in scopes]
        return [
            (source, TopicPartition(changelog.topic, partition.partition))
            for source in sources
            for changelog in source.stores.values()
            if changelog is not None
        ]

    def _remembered_positions(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the positions of partitions without a committed offset, as changelogs and the layout tell.

        The group forgets its offsets when it is empty for a week; these topics do not.
        """
        found = {each: at for each in partitions if (at := self._position_of_state(each)) is not None}
        if len(found) < len(partitions) and self._spec.layout is not None:
            if self._spec.transactional:
                # Positions may be in transactions that dead tasks have left.
                self._end_transactions(partitions)
            known = self._layout_topic.positions(self._spec.topic_ids)
            found = {**{each: known[each] for each in partitions if each in known}, **found}
        for partition, position in found.items():
            logger.warning(
                "group %r has no committed offset for %s any more; continuing from offset %d, the position that was kept "
                "with its state",
                self._config.consumer_group,
                partition,
                position,
            )
        return found

    def _is_forgotten(self) -> bool:
        """Return whether an earlier version of StreamRT has left state, of which the group has no offset any more.

        With a layout, a partition without a position is new: the position of each input is written before it is read.
        """
        state = self._spec.state
        if state is None or self._spec.layout is not None:
            return False
        timeout, counts = self._config.request_timeout, self._spec.partition_counts
        inputs = [
            TopicPartition(topic, n) for topic in self._spec.topology.sources for n in range(counts.get(topic, 0))
        ]
        if any(each.offset is not None for each in self._request_committed(inputs).values()):
            return False
        logs = [
            TopicPartition(log.topic, number)
            for source in state.sources.values()
            for log in source.stores.values()
            if log is not None
            for number in range(source.partitions)
        ]
        return any(low < high for low, high in self._admin.offset_bounds(logs, timeout=timeout).values())

    def _note_starts(self, positions: Mapping[TopicPartition, int], initial: Collection[TopicPartition]) -> None:
        """Keep where inputs begin, before anything is processed: a restart after a long pause also begins there."""
        if not self._notes or self._spec.positions is None:
            return
        ids, free = self._spec.topic_ids, self._spec.positions.ids
        noted = {each: at for each, at in positions.items() if each.topic in free or each in initial}
        self._layout_topic.note(noted, ids)

    @property
    def _layout_topic(self) -> LayoutTopic:
        return LayoutTopic(self._admin, self._connection, self._config.consumer_group, self._config.request_timeout)

    def _refuse_recreated(self, partitions: Iterable[TopicPartition]) -> None:
        """Raise if a topic is another one than at the start of the application."""
        before = {
            topic: topic_id
            for topic in {each.topic for each in partitions}
            if (topic_id := self._spec.topic_ids.get(topic)) is not None
        }
        if before:
            timeout = self._config.request_timeout
            refuse_recreated(before, confirmed_ids(self._admin.topic_ids, before, timeout=timeout))

    def _position_of_state(self, partition: TopicPartition) -> int | None:
        """Return the input offset of a partition's state, if it has any."""
        found: list[int] = []
        for source, log in self._changelogs_of(partition):
            position = self._last_position(log)
            if position is not None and position.topic_id in (None, source.topic_id):
                found.append((position.inputs or {}).get(partition.topic, position.input_offset))
        return min(found, default=None)
