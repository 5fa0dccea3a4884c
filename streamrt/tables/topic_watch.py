"""`TopicWatch`: notices that a topic was created again, before records of the new one are returned."""

import contextlib
import time

from streamrt.errors import TopicNotFoundError
from streamrt.kafka.client import KafkaRequestError
from streamrt.tables.positions import TopicPositions

__all__ = ["TopicWatch"]

_ANSWER_S = 5.0
"""Longest wait for one answer: `close` cannot end it."""
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
            raise self._positions.stale()

    def look(self) -> None:
        """Ask for the id. That brokers do not answer means nothing.

        Raises:
            StaleTokenError: if the topic was created again.
            TopicNotFoundError: if it does not exist.
        """
        with contextlib.suppress(KafkaRequestError):
            self._compare()

    def confirm(self) -> bool:
        """Ask whether the records that came before this call are of the topic; return False if brokers do not know yet.

        Raises:
            StaleTokenError: if the topic was created again.
            TopicNotFoundError: if it does not exist, for several seconds.
            KafkaRequestError: if brokers refuse to answer, or have not for as long as the catalogue waits for answers.
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
                raise KafkaRequestError(
                    f"records came, but brokers did not say for {self._positions.timeout:g} s whether their topic is still "
                    f"the same, so they were not returned: {error}; read again when brokers answer",
                    error.code,
                    retriable=True,
                ) from error
            return False
        self._unanswered_since = None
        return True

    def _is_unanswered_for(self, seconds: float) -> bool:
        """Return whether brokers have not told the id for so long; then it is counted anew."""
        now = time.monotonic()
        since = self._unanswered_since = self._unanswered_since or now
        if now - since <= seconds:
            return False
        self._unanswered_since = None
        return True

    def _compare(self) -> None:
        self.require_same()
        if self.topic_id is not None:
            found = self._positions.topic_id(min(_ANSWER_S, self._positions.timeout))
            self._stale = found != self.topic_id
            self.require_same()
