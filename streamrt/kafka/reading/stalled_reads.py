"""Finds partitions that a client has stopped reading, without an error, though brokers have more of their records."""

import logging
import time
from collections.abc import Callable, Collection, Mapping

from streamrt.kafka.client import KafkaRequestError
from streamrt.records import TopicPartition

__all__ = ["StalledReads"]

logger = logging.getLogger("streamrt.kafka")

LOOK_S = 20.0
"""Seconds between two looks at partitions that stand still: each asks brokers for their ends."""
_CONFIRM_S = 5.0
"""Seconds in which a client may still deliver what has just been written."""
_AWAY_S = 60.0
"""Seconds to the next look after one without an answer, which may have lasted for some seconds."""
_LONGEST_S = 600.0


class StalledReads:
    """Compares positions that stand still with the ends of their partitions.

    After a restart of a broker, librdkafka 2.16 sometimes reads nothing any more and reports nothing (its issue 5153). A new
    client reads on. It may also be that one large answer is under way: then a new client would begin it again, so the time
    doubles until a partition moves.

    Args:
        ask: returns the ends of partitions, up to which they can be read.
        clock: returns seconds; only differences count.
    """

    def __init__(
        self,
        ask: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, int]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask = ask
        self._clock = clock
        self._interval_s = LOOK_S
        self._next_at = clock() + LOOK_S
        self._seen: dict[TopicPartition, int] = {}
        self._behind: dict[TopicPartition, int] = {}

    def is_due(self) -> bool:
        """Return whether it is time for the next look."""
        return self._clock() >= self._next_at

    def find_stalled(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Look once; return the partitions that have stood still in front of records since the last look but one.

        Args:
            positions: the next offset of each partition that is read; all that the client has delivered is behind it.
        """
        still = {partition: at for partition, at in positions.items() if self._seen.get(partition) == at}
        try:
            ends = self._ask(still) if still else {}
        except KafkaRequestError as error:
            logger.debug("the ends of partitions that stand still are unknown: %s", error)
            self._seen, self._behind, self._next_at = dict(positions), {}, self._clock() + _AWAY_S
            return {}
        behind = {partition: at for partition, at in still.items() if ends.get(partition, at) > at}
        stalled = {partition: at for partition, at in behind.items() if self._behind.get(partition) == at}
        if stalled:
            self._interval_s = min(2 * self._interval_s, _LONGEST_S)
            # A new client has the whole time.
            behind = {}
        elif not behind:
            self._interval_s = LOOK_S
        self._seen, self._behind = dict(positions), behind
        self._next_at = self._clock() + (_CONFIRM_S if behind else self._interval_s)
        return stalled
