"""`TopicWatch`: notices that a topic was created again, before its records are returned, or rows counted as written.

It also notices, some seconds later, that the table has another topic.
"""

import contextlib
import logging
import time
from collections.abc import Callable

from streamrt.errors import StaleTokenError, TopicNotFoundError
from streamrt.kafka.client import KafkaRequestError
from streamrt.tables.access.positions import TopicPositions

__all__ = ["TopicWatch"]

logger = logging.getLogger("streamrt.tables")

_ANSWER_S = 5.0
"""Longest wait for one answer: `close` cannot end it."""
_AGAIN_S = 0.1
_TABLE_S = 5.0
"""Seconds between two questions to the catalogue."""
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
        make_stale_error: returns the error for a topic that was created again; by default, that of `positions`.
    """

    def __init__(
        self,
        positions: TopicPositions,
        topic_id: str | None,
        make_stale_error: Callable[[], StaleTokenError] | None = None,
    ) -> None:
        self._positions = positions
        self.topic_id = topic_id
        self._make_stale_error = make_stale_error or positions.stale
        self._stale: Callable[[], StaleTokenError] | None = None
        self._table_asked_at = time.monotonic()
        self._unanswered_since: float | None = None
        # Since when brokers have said that the topic does not exist, without another outcome, and when they last did.
        self._absent_since: float | None = None
        self._absent_at = 0.0

    def require_same(self) -> None:
        """Refuse a topic that is known to be another one; brokers are not asked.

        Raises:
            StaleTokenError: if it is, or the table has another one.
        """
        if self._stale is not None:
            raise self._stale()

    def check_topic(self, patient: bool = False) -> None:
        """Ask for the id. That brokers do not answer means nothing.

        Args:
            patient: whether the topic may not exist for several seconds.

        Raises:
            StaleTokenError: if the topic was created again.
            TopicNotFoundError: if it does not exist.
        """
        try:
            self._compare_ids()
        except TopicNotFoundError:
            if not patient or self._is_absent():
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
            self._compare_ids()
        except TopicNotFoundError:
            if self._is_absent():
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
        return True

    def require_same_topic(self, timeout: float | None = None) -> None:
        """Ask whether the records that came before this call are of the topic, until brokers answer.

        Args:
            timeout: seconds to wait for the answer, with a tenth of a second at least; by default, those of the catalogue.

        Raises:
            StaleTokenError: if the topic was created again.
            TopicNotFoundError: if it does not exist, for several seconds.
            KafkaRequestError: if brokers do not say in time whether it is the same; in that case, call it again.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        self._ask_until(deadline, self._positions.timeout)

    def check_after_close(self) -> None:
        """Ask as `require_same_topic` does, for the last time. That brokers do not answer means nothing.

        Raises:
            StaleTokenError: if the topic was created again.
            TopicNotFoundError: if it does not exist, for several seconds.
        """
        with contextlib.suppress(KafkaRequestError):
            self._ask_until(None, _ANSWER_S)

    def _ask_until(self, deadline: float | None, answer_s: float) -> None:
        if time.monotonic() - self._absent_at > _ABSENT_S:
            # What brokers said before, and may have said otherwise meanwhile, does not count.
            self._absent_since = None
        while True:
            left = answer_s if deadline is None else max(_AGAIN_S, deadline - time.monotonic())
            try:
                return self._compare_ids(min(answer_s, left))
            except TopicNotFoundError as error:
                if self._is_absent():
                    raise
                if deadline is not None and time.monotonic() >= deadline:
                    raise KafkaRequestError(
                        f"brokers did not know topic {self._positions.topic!r} of table {self._positions.table!r} in "
                        "time, as after a start: call it again with a longer timeout",
                        retriable=True,
                    ) from error
                time.sleep(_AGAIN_S)

    def _is_absent(self) -> bool:
        """Note that brokers do not know the topic; return whether they have not for so long that it does not exist."""
        now = self._absent_at = time.monotonic()
        since = self._absent_since = self._absent_since or now
        if now - since <= min(_ABSENT_S, self._positions.timeout):
            return False
        self._absent_since = None
        return True

    def _is_unanswered_for(self, seconds: float) -> bool:
        """Return whether brokers have not answered for so long; then the count begins again."""
        now = time.monotonic()
        since = self._unanswered_since = self._unanswered_since or now
        if now - since <= seconds:
            return False
        self._unanswered_since = None
        return True

    def _compare_topics(self) -> None:
        """Ask the catalogue, once in a while, whether the table has another topic."""
        now = time.monotonic()
        if now - self._table_asked_at >= _TABLE_S:
            self._table_asked_at = now
            if self._positions.has_moved():
                self._stale = self._positions.moved

    def _compare_ids(self, timeout: float = _ANSWER_S) -> None:
        self._compare_topics()
        self.require_same()
        if self.topic_id is not None:
            try:
                answer_s = min(timeout, self._positions.timeout)
                is_other = self._positions.topic_id(answer_s) != self.topic_id
                # A broker whose metadata lag may have answered.
                is_other = is_other and self._positions.is_another(self.topic_id, answer_s)
            except TopicNotFoundError:
                raise
            except BaseException:
                self._absent_since = None
                raise
            self._unanswered_since = self._absent_since = None
            self._stale = self._make_stale_error if is_other else self._stale
            self.require_same()
