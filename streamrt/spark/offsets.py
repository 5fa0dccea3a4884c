"""Where to begin in newly assigned partitions."""

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from streamrt.config import ApplicationConfig
from streamrt.errors import OffsetOutOfRangeError
from streamrt.kafka import ChangelogReader, CommittedOffset, ConnectionConfig, KafkaRequestError, TopicAdmin
from streamrt.models import TopicPartition
from streamrt.runtime import StateSettings, TaskSpec
from streamrt.runtime.metadata import stores_in
from streamrt.runtime.state_setup import check_changelogs
from streamrt.state import Position, is_position

logger = logging.getLogger("streamrt")

_SETTLE_S = 0.25


@dataclass(frozen=True)
class Start:
    """Where to begin.

    Attributes:
        positions: offset of the first record to process, by partition.
        fresh: those of them that the group does not know yet.
        stateful: partitions whose committed offsets tell that they have state; those of several topics that have some in
            common are named as in `Topology.scopes`.
    """

    positions: Mapping[TopicPartition, int]
    fresh: Mapping[TopicPartition, int]
    stateful: frozenset[TopicPartition]


class StartOffsets:
    """Finds the offsets at which tasks begin.

    Args:
        config: the application's configuration.
        connection: how to reach Kafka.
        spec: what tasks do.
        admin: answers questions about topics and offsets.
        fence: ends the open transactions of the tasks of input partitions.
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
        self._internal = spec.topology.exchanges

    def find(self, assigned: Iterable[TopicPartition]) -> Start:
        """Return where to begin: at the committed offsets; where there are none, where the state is or as configured.

        Raises:
            OffsetOutOfRangeError: if an offset is outside of its partition and may not be chosen anew.
            KafkaRequestError: if Kafka does not answer.
            ChangelogError: if a changelog was made anew since the last commit.
        """
        places = sorted(assigned)
        committed = self._committed(places)
        check_changelogs(self._spec.state, ((place, committed[place].metadata) for place in places))
        watermarks = self._admin.watermarks(places, timeout=self._config.request_timeout)
        positions: dict[TopicPartition, int] = {}
        fresh: dict[TopicPartition, int] = {}
        for place in places:
            low, high = watermarks[place]
            offset = committed[place].offset
            if offset is None:
                offset = self._position_of_state(place)
                positions[place] = fresh[place] = self._reset(place, low, high) if offset is None else offset
            elif low <= offset <= high:
                positions[place] = offset
            else:
                positions[place] = fresh[place] = self._out_of_range(place, offset, low, high)
        stateful = frozenset(
            TopicPartition(name, place.partition)
            for place in places
            for name in self._scopes(place.topic) & stores_in(committed[place].metadata).keys()
        )
        return Start(positions, fresh, stateful)

    def _scopes(self, topic: str) -> set[str]:
        """Return the names of what has state that is made from a topic."""
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
            # A task that died may have left a transaction which is about to move an offset; its time-out is a minute.
            logger.info("an open transaction holds committed offsets back; ending it")
            self._fence(places)
        return self._admin.committed_stable(group, places, timeout=timeout)

    def _position_of_state(self, place: TopicPartition) -> int | None:
        """Return the offset that the state of a partition stands for, if it has any.

        The group forgets its offsets when it is empty for a week; changelogs do not.
        """
        state = self._spec.state or StateSettings(group="", base_dir=self._config.state_dir)
        found: list[int] = []
        scopes = self._scopes(place.topic)
        sources = [source for name, source in state.sources.items() if name in scopes]
        for source, changelog in ((each, changelog) for each in sources for changelog in each.stores.values()):
            if changelog is None:
                continue
            log = TopicPartition(changelog.topic, place.partition)
            timeout = self._config.request_timeout
            low, high = self._admin.bounds(log, timeout=timeout)
            with contextlib.closing(ChangelogReader(self._connection)) as reader:
                last = reader.last_position(log, is_position, low, high, timeout_s=timeout)
            position = None if last is None or last[1] is None else Position.decode(last[1])
            if position is not None and position.topic_id in (None, source.topic_id):
                found.append((position.inputs or {}).get(place.topic, position.input_offset))
        if not found:
            return None
        logger.warning(
            "group %r has no committed offset for %s any more; going on from offset %d, where its state is",
            self._config.consumer_group,
            place,
            min(found),
        )
        return min(found)

    def _reset(self, place: TopicPartition, low: int, high: int) -> int:
        if place.topic in self._internal:
            # What lies there was put there by this application, and nobody has processed it.
            return low
        if self._config.auto_offset_reset == "error":
            raise OffsetOutOfRangeError(
                f"consumer group {self._config.consumer_group!r} has no committed offset for {place}, and "
                "auto_offset_reset='error' forbids to choose one: commit an offset, or set 'earliest' or 'latest'"
            )
        return low if self._config.auto_offset_reset == "earliest" else high

    def _out_of_range(self, place: TopicPartition, offset: int, low: int, high: int) -> int:
        what = f"the committed offset {offset} of {place} is outside of the topic, which has {low} to {high}"
        if place.topic in self._internal:
            raise OffsetOutOfRangeError(
                f"{what}: records of this internal topic were deleted before they were processed; process the input again "
                "with another consumer_group, or set the group's offset if the loss does not matter"
            )
        if not self._config.auto_recover_from_source_offset_out_of_range:
            raise OffsetOutOfRangeError(
                f"{what}: records were deleted before they were processed, or the topic was made anew; set the group's "
                "offset, or allow auto_recover_from_source_offset_out_of_range"
            )
        start = self._reset(place, low, high)
        lost = f"; {low - offset} records were deleted before they were processed" if offset < low else ""
        logger.error("%s%s; going on from offset %d", what, lost, start)
        return start
