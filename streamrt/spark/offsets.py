"""Start positions in newly assigned partitions."""

import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from streamrt.config import ApplicationConfig
from streamrt.errors import TopicConfigurationError, TransactionError
from streamrt.kafka import ConnectionConfig, KafkaRequestError, TopicAdmin
from streamrt.kafka.changelog import ChangelogReader
from streamrt.kafka.committed import CommittedOffset
from streamrt.records import TopicPartition
from streamrt.runtime.driver.start import StartPlan, StartRules, plan_start
from streamrt.runtime.driver.state_setup import check_changelogs
from streamrt.runtime.metadata import CommittedMetadata, claimed, sent_before
from streamrt.runtime.placement import ScopeInfo, StateSettings
from streamrt.runtime.skipped import refuse_skipped_stores
from streamrt.runtime.spec import TaskSpec
from streamrt.runtime.tasks.kafka_clients import KafkaTaskClients
from streamrt.state.changelog import Position, is_position
from streamrt.topology import TaskId

logger = logging.getLogger("streamrt")

_SETTLE_S = 0.25


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


class StartOffsets:
    """Finds the offsets at which tasks begin.

    Args:
        config: the application's configuration.
        connection: connection to Kafka.
        spec: the task specification.
        admin: requests topics and offsets.
        fence: ends the open transactions of the tasks of input partitions, and takes over the claims of other versions.
    """

    def __init__(
        self,
        config: ApplicationConfig,
        connection: ConnectionConfig,
        spec: TaskSpec,
        admin: TopicAdmin,
        fence: Callable[[Iterable[TopicPartition]], None],
    ) -> None:
        self._config = config
        self._connection = connection
        self._spec = spec
        self._admin = admin
        self._fence = fence

    def find(self, assigned: Iterable[TopicPartition]) -> Start:
        """Return the committed offsets; without one, the position of the state or that of `auto_offset_reset`.

        Raises:
            OffsetOutOfRangeError: if an offset is outside its partition and must not be reset.
            KafkaRequestError: if Kafka does not answer.
            ChangelogError: if a changelog was recreated since the last commit.
            TopicConfigurationError: if partitions were added to a topic whose state depends on their number.
        """
        places = sorted(assigned)
        self._refuse_added(places)
        committed, plans = self._plan(places)
        if self._spec.transactional and (doubtful := self._doubtful(committed, plans)):
            self._end_transactions(doubtful)
            committed, plans = self._plan(places)
        notes = {place: CommittedMetadata.decode(committed[place].metadata) for place in places}
        refuse_skipped_stores(
            self._spec.state,
            {place: at for place in places if (at := committed[place].offset) is not None},
            notes,
            self._last_position,
            self._has_records,
        )
        for place, plan in plans.items():
            # Not before the checks: a refusal changes nothing, so nothing is lost by it.
            if plan.notice:
                state = "; its state stays as it is" if self._has_state(place, notes[place]) else ""
                logger.error("%s%s", plan.notice, state)
        positions = {place: plan.position for place, plan in plans.items()}
        initial_offsets = {
            place: plan.position for place, plan in plans.items() if plan.moved or committed[place].offset is None
        }
        stateful = frozenset(
            TopicPartition(name, place.partition)
            for place, note in notes.items()
            for name in self._scopes(place.topic)
            if note.names_any(name)
        )
        claims = self._claims(notes)
        initial_offsets |= {place: positions[place] for place in claims}
        # The existing metadata names state and owner of the partition, which still hold: no record was processed since.
        former = {
            place: committed[place].metadata or self._spec.commit_metadata.first(place) for place in initial_offsets
        }
        metadata = {
            place: claimed(text, claim=claims[place], owner=notes[place].owner) if place in claims else text
            for place, text in former.items()
        }
        lost = sum(plan.lost for plan in plans.values())
        return Start(
            positions, initial_offsets, stateful, metadata, claims, sent_before(notes, self._spec.topology), lost
        )

    def _plan(
        self, places: list[TopicPartition]
    ) -> tuple[Mapping[TopicPartition, CommittedOffset], dict[TopicPartition, StartPlan]]:
        """Return the committed offsets and the start positions."""
        committed = self._committed(places)
        check_changelogs(self._spec.state, ((place, committed[place].metadata) for place in places))
        bounds = self._admin.offset_bounds(places, timeout=self._config.request_timeout)
        unknown = [place for place in places if committed[place].offset is None]
        if self._spec.transactional and self._held_back(unknown):
            # A task that died in its first transaction left it open.
            logger.info("an open transaction holds changelogs back; ending it")
            self._end_transactions(places)
        plans: dict[TopicPartition, StartPlan] = {}
        for place in places:
            offset, rules = committed[place].offset, self._rules(place, committed[place])
            known = self._position_of_state(place) if offset is None else offset
            plans[place] = plan_start(place, known, bounds[place], rules)
        return committed, plans

    def _doubtful(
        self, committed: Mapping[TopicPartition, CommittedOffset], plans: Mapping[TopicPartition, StartPlan]
    ) -> list[TopicPartition]:
        """Return the inputs whose offsets may still be moved by other tasks.

        A dead task may have left a transaction that would move the group back to an offset before the new one. A task
        of another version may continue at any time, and commit without the stores that are new here.
        """
        ours = self._spec.commit_metadata
        return [
            place
            for place, plan in plans.items()
            if committed[place].offset is not None
            and (plan.moved or not ours.describes(place, committed[place].metadata))
        ]

    def _rules(self, place: TopicPartition, committed: CommittedOffset) -> StartRules:
        config, first_counts = self._config, self._spec.commit_metadata.first_counts
        has_state = self._has_state(place, CommittedMetadata.decode(committed.metadata))
        return StartRules(
            config.consumer_group,
            config.auto_offset_reset,
            config.auto_recover_from_source_offset_out_of_range,
            internal=place.topic in self._spec.topology.exchanges,
            added=place.partition >= first_counts.get(place.topic, math.inf),
            exact_state=self._spec.transactional and has_state,
        )

    def _has_state(self, place: TopicPartition, note: CommittedMetadata) -> bool:
        return any(note.names_any(name) for name in self._scopes(place.topic))

    def _refuse_added(self, places: Iterable[TopicPartition]) -> None:
        """Refuse partitions that were added to stateful topics: the partition of a key depends on their number.

        Raises:
            TopicConfigurationError: if there are any.
        """
        sources = {} if self._spec.state is None else self._spec.state.sources
        counts = {topic: source.partitions for name, source in sources.items() for topic in source.topics or (name,)}
        added = next((place for place in places if place.partition >= counts.get(place.topic, math.inf)), None)
        if added is None:
            return
        found = self._admin.inspect_topics([added.topic], timeout=self._config.request_timeout)[added.topic]
        now = max(added.partition + 1, (found and found.num_partitions) or 0)
        raise TopicConfigurationError(
            f"topic {added.topic!r} has {now} partitions now, and had {counts[added.topic]} when its state was made: keys "
            f"are in other partitions than their state, so no record of the new ones was processed; copy the topic to one "
            f"with {counts[added.topic]}, or start over with another consumer_group"
        )

    def _claims(self, notes: Mapping[TopicPartition, CommittedMetadata]) -> dict[TopicPartition, int]:
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
        return {place: max(now, note.claim + 1) for place, note in notes.items() if place.topic in logged}

    def _scopes(self, topic: str) -> set[str]:
        """Return the names of the scopes with state from a topic."""
        return {name for name, topics in self._spec.topology.scopes.items() if topic in topics}

    def _committed(self, places: list[TopicPartition]) -> Mapping[TopicPartition, CommittedOffset]:
        group, timeout = self._config.consumer_group, self._config.request_timeout
        if not self._spec.transactional:
            return self._admin.committed_stable(group, places, timeout=timeout)
        try:
            return self._admin.committed_stable(group, places, timeout=_SETTLE_S)
        except KafkaRequestError as error:
            if not error.retriable:
                raise
            # A dead task may have left a transaction that is about to move an offset; its timeout is a minute.
            logger.info("an open transaction holds committed offsets back; ending it")
            self._end_transactions(places)
        return self._admin.committed_stable(group, places, timeout=timeout)

    def _end_transactions(self, places: Iterable[TopicPartition]) -> None:
        try:
            self._fence(places)
        except TransactionError as error:
            raise KafkaRequestError(str(error), retriable=True) from error

    def _has_records(self, place: TopicPartition, start: int, end: int) -> bool:
        with contextlib.closing(KafkaTaskClients(self._connection, self._config.consumer_group)) as clients:
            return clients.has_records(place, start, end)

    def _last_position(self, log: TopicPartition) -> Position | None:
        """Return the last position in a changelog partition."""
        timeout = self._config.request_timeout
        low, high = self._admin.bounds(log, timeout=timeout)
        if low >= high:
            return None
        with contextlib.closing(ChangelogReader(self._connection)) as reader:
            last = reader.last_position(log, is_position, low, high, timeout_s=timeout)
        return None if last is None or last[1] is None else Position.decode(last[1])

    def _held_back(self, places: Iterable[TopicPartition]) -> bool:
        """Return whether open transactions keep changelogs from being read to their ends."""
        logs = {log for place in places for _, log in self._changelogs(place)}
        timeout = self._config.request_timeout
        stable = self._admin.offset_bounds(logs, timeout, isolation_level="read_committed")
        bounds = self._admin.offset_bounds(logs, timeout)
        return any(stable[log][1] < bounds[log][1] for log in logs)

    def _changelogs(self, place: TopicPartition) -> list[tuple[ScopeInfo, TopicPartition]]:
        """Return the changelog partitions of an input partition's state, each with its source."""
        state = self._spec.state or StateSettings(group="", base_dir=self._config.state_dir)
        scopes = self._scopes(place.topic)
        sources = [source for name, source in state.sources.items() if name in scopes]
        return [
            (source, TopicPartition(changelog.topic, place.partition))
            for source in sources
            for changelog in source.stores.values()
            if changelog is not None
        ]

    def _position_of_state(self, place: TopicPartition) -> int | None:
        """Return the input offset of a partition's state, if it has any.

        The group forgets its offsets when it is empty for a week; changelogs do not.
        """
        found: list[int] = []
        for source, log in self._changelogs(place):
            position = self._last_position(log)
            if position is not None and position.topic_id in (None, source.topic_id):
                found.append((position.inputs or {}).get(place.topic, position.input_offset))
        if not found:
            return None
        logger.warning(
            "group %r has no committed offset for %s any more; continuing from offset %d, the position of its state",
            self._config.consumer_group,
            place,
            min(found),
        )
        return min(found)
