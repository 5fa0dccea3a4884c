"""Deletes processed records of repartition topics, and merged requests of maintained tables."""

import logging
import time
from collections.abc import Iterable, Mapping

from streamrt.kafka import KafkaRequestError, TopicAdmin
from streamrt.records import Positions, TopicPartition

__all__ = ["ProcessedPurge"]

logger = logging.getLogger("streamrt")

_PURGE_EVERY_S = 30.0


class ProcessedPurge:
    """Deletes processed records of topics that have no other readers, and are kept without a limit.

    Args:
        admin: deletes records.
        topics: names of the topics.
    """

    def __init__(self, admin: TopicAdmin, topics: Iterable[str]) -> None:
        self._admin = admin
        self._topics = frozenset(topics)
        self._committed = Positions()
        self._last = time.monotonic()

    def offer(self, committed: Mapping[TopicPartition, int]) -> None:
        """Note committed offsets, and from time to time delete the records below them."""
        if not self._topics:
            return
        self._committed.advance(
            {partition: at for partition, at in committed.items() if partition.topic in self._topics}
        )
        if time.monotonic() - self._last >= _PURGE_EVERY_S:
            self.run()

    def run(self) -> None:
        """Delete the records below the offsets noted so far."""
        self._last = time.monotonic()
        offsets, self._committed = self._committed, Positions()
        if not offsets:
            return
        try:
            self._admin.delete_records(offsets, timeout=5.0)
        except KafkaRequestError as error:
            # They are deleted together with later ones.
            logger.debug("processed records were not deleted: %s", error)
