"""`TopicWatch`: notices that a topic was created again, before its records are returned, or rows counted as written."""

import logging
import time

from streamrt.errors import StaleTokenError, TopicNotFoundError
from streamrt.kafka.client import KafkaRequestError
from streamrt.tables.positions import TopicPositions

__all__ = ["TopicWatch", "WriterWatch"]

logger = logging.getLogger("streamrt.tables")

_ANSWER_S = 5.0
"""Longest wait for one answer: `close` cannot end it."""
_AGAIN_S = 0.1
_ABSENT_S = 5.0
"""Seconds for which brokers may say that the topic does not exist: one that starts may not know its topics yet."""


class TopicWatch:
    """Compares the id of a topic with the one that it had when reading began.

    The client reads on at its offsets when a topic is created again, and does not say so. But a topic that was deleted never
    comes back with its id. So if brokers, asked after records came, answer with the same id, these records are of the same
    topic.

    Args:
        positions: ask for the id.
        topic_id: the id that the topic had; None if it is unknown, and every topic counts as the same.
    """

    def __init__(self, positions: TopicPositions, topic_id: str | None) -> None:
        self._positions = positions
        self.topic_id = topic_id
        self._stale = False
        self._unanswered_since: float | None = None

    def require_same(self) -> None:
        """Refuse a topic that is known to be another one; brokers are not asked.

        Raises:
            StaleTokenError: if it is.
        """
        if self._stale:
            raise self.stale()

    def stale(self) -> StaleTokenError:
        """Return the error for a topic that was created again."""
        return self._positions.stale()

    def look(self, patient: bool = False) -> None:
        """Ask for the id. That brokers do not answer means nothing.

        Args:
            patient: whether the topic may not exist for several seconds.

        Raises:
            StaleTokenError: if the topic was created again.
            TopicNotFoundError: if it does not exist.
        """
        try:
            self._compare()
            self._unanswered_since = None
        except TopicNotFoundError:
            if not patient or self._is_unanswered_for(min(_ABSENT_S, self._positions.timeout)):
                raise
        except KafkaRequestError:
            pass

    def confirm(self) -> bool:
        """Ask whether the records that came before this call are of the topic; return False if brokers do not know yet.

        Raises:
            StaleTokenError: if the topic was created again.
            TopicNotFoundError: if it does not exist, for several seconds.
            KafkaRequestError: if brokers refuse to answer.
        """
        try:
            self._compare()
        except TopicNotFoundError:
            if self._is_unanswered_for(min(_ABSENT_S, self._positions.timeout)):
                raise
            return False
        except KafkaRequestError as error:
            if not error.retriable:
                raise
            if self._is_unanswered_for(self._positions.timeout):
                logger.warning(
                    "Rows of table %s wait: brokers have not said for %g s whether its topic is still the same: %s",
                    self._positions.table,
                    self._positions.timeout,
                    error,
                )
            return False
        self._unanswered_since = None
        return True

    def insist(self) -> None:
        """Ask whether the records that came before this call are of the topic, until brokers answer.

        Raises:
            StaleTokenError: if the topic was created again.
            TopicNotFoundError: if it does not exist, for several seconds.
            KafkaRequestError: if brokers do not answer for as long as the catalogue waits for answers.
        """
        while True:
            try:
                self._compare(self._positions.timeout)
            except TopicNotFoundError:
                if self._is_unanswered_for(min(_ABSENT_S, self._positions.timeout)):
                    raise
                time.sleep(_AGAIN_S)
            else:
                self._unanswered_since = None
                return

    def _is_unanswered_for(self, seconds: float) -> bool:
        """Return whether brokers have not told the id for so long; then it is counted anew."""
        now = time.monotonic()
        since = self._unanswered_since = self._unanswered_since or now
        if now - since <= seconds:
            return False
        self._unanswered_since = None
        return True

    def _compare(self, timeout: float = _ANSWER_S) -> None:
        self.require_same()
        if self.topic_id is not None:
            found = self._positions.topic_id(min(timeout, self._positions.timeout))
            self._stale = found != self.topic_id
            self.require_same()


class WriterWatch(TopicWatch):
    """A `TopicWatch` of a writer: asked after rows were delivered, brokers answer with the id of the topic that they are in.

    Args:
        positions: ask for the id.
        topic_id: the id that the topic had when the writer was opened; None if it is unknown.
        has_id: whether the writer has an id, and so transactions.
    """

    def __init__(self, positions: TopicPositions, topic_id: str | None, has_id: bool) -> None:
        super().__init__(positions, topic_id)
        self._has_id = has_id

    def stale(self) -> StaleTokenError:
        """Return the error for a topic that was created again."""
        what = (
            "its transaction is aborted, and all rows before are gone: make a new writer with this id, which has no state, "
            "and begin from the start"
            if self._has_id
            else "rows from before are gone, and later ones are in the new topic: make another writer, and write what is lost"
        )
        return StaleTokenError(
            f"topic {self._positions.topic!r} of table {self._positions.table!r} was deleted and created again while a "
            f"writer was open; {what}"
        )
