"""Holds commits back while it is open whether inputs are still the topics that were read.

Offsets are positions in one topic. A topic that is deleted and created again has the same name, other records and another
id, and Kafka's requests to commit name no id: an offset of the old topic would count in the new one. Errors about a topic
are the first sign. From then on nothing is committed for it until its id was compared; without such errors, a commit costs
no request.

An error may come too late, or not at all. Committed offsets therefore also name the id of their topic (see
`streamrt.runtime.metadata`), and each start compares it.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from streamrt.errors import StaleTokenError
from streamrt.kafka import KafkaRequestError
from streamrt.kafka.cluster.committed import CommittedOffset
from streamrt.kafka.cluster.topic_ids import confirmed_ids
from streamrt.records import TopicPartition
from streamrt.runtime.metadata import CommittedMetadata

__all__ = ["InputIdentity", "recreated", "refuse_late_offsets", "refuse_recreated"]

_RETRY_S = 0.5
DEFAULT_LIMIT_S = 120.0


def refuse_recreated(before: Mapping[str, str | None], now: Mapping[str, str | None]) -> None:
    """Raise if a topic is not the one that the group has read.

    Args:
        before: the id of each topic then; None if it is unknown.
        now: Kafka's ids of these topics now; None for one that does not exist.

    Raises:
        StaleTokenError: if one was deleted and created again.
    """
    for topic, topic_id in before.items():
        if None not in (topic_id, now[topic]) and topic_id != now[topic]:
            raise StaleTokenError(recreated(topic, topic_id, now[topic]))


def refuse_late_offsets(
    ask: Callable[..., Mapping[str, str | None]],
    committed: Mapping[TopicPartition, CommittedOffset],
    ids: Mapping[str, str | None],
    timeout: float,
) -> None:
    """Raise if a committed offset is a position in a former topic: its commit came when the new one was there.

    Args:
        ask: returns the ids of topics, as `TopicAdmin.topic_ids` does.
        committed: committed offsets with their metadata.
        ids: Kafka's ids of these topics now; one that differs from what an offset names is confirmed.
        timeout: seconds to wait for each answer.

    Raises:
        StaleTokenError: if there is one.
        KafkaRequestError: if brokers refuse or do not answer.
    """
    for partition, entry in committed.items():
        named = CommittedMetadata.decode(entry.metadata).topic
        if named not in (None, ids.get(partition.topic)):
            before = {partition.topic: named}
            refuse_recreated(before, confirmed_ids(ask, before, timeout=timeout))


def recreated(topic: str, before: str | None, now: str | None) -> str:
    """Return the error message for a topic that was deleted and created again.

    Args:
        topic: the topic.
        before: its former id.
        now: its id now.
    """
    return (
        f"topic {topic!r} was deleted and created again: its id was {before} and is {now}, so offsets and state of the "
        "consumer group mean records that do not exist any more; stop all instances, and let the application start over with "
        "`streamrt reset`, or with another consumer_group"
    )


@dataclass(frozen=True, eq=False)
class _Doubt:
    """Why a topic may be another one, and since when this is open."""

    reason: str
    since: float


class InputIdentity:
    """Says whether inputs are still the topics that the application reads. Any thread may use it.

    Args:
        ask: returns Kafka's ids of topics.
        ids: the ids at the start of the application; topics whose id is unknown are not compared.
        limit_s: seconds for which commits wait until ids can be compared; 0 for no limit.
        clock: returns seconds; only differences count.

    Example:
        >>> identity = InputIdentity(lambda topics: {"orders": "x1"}, {"orders": "x1"})
        >>> identity.doubt("the partition does not exist", ["orders"])
        >>> identity.in_doubt
        True
        >>> identity.require()
        >>> identity.in_doubt
        False
    """

    def __init__(
        self,
        ask: Callable[[list[str]], Mapping[str, str | None]],
        ids: Mapping[str, str | None],
        limit_s: float = DEFAULT_LIMIT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask = ask
        self._ids = {topic: each for topic, each in ids.items() if each is not None}
        self._limit_s = limit_s
        self._clock = clock
        # Guards the doubts, by topic. It is not held during a request.
        self._lock = threading.Lock()
        self._doubts: dict[str, _Doubt] = {}
        self._postponed: tuple[float, KafkaRequestError] | None = None

    @property
    def in_doubt(self) -> bool:
        """Whether ids must be compared before the next commit."""
        return bool(self._doubts)

    def doubt(self, reason: str, topics: Iterable[str] | None = None) -> None:
        """Note that topics may be other ones.

        Args:
            reason: the error, for the message if the ids cannot be compared.
            topics: their names; None for all. Names that are not inputs are ignored.
        """
        now = self._clock()
        with self._lock:
            for topic in self._ids if topics is None else topics:
                if topic in self._ids:
                    known = self._doubts.get(topic)
                    # Always a new object: an answer that is on its way does not end it.
                    self._doubts[topic] = _Doubt(reason, now) if known is None else _Doubt(known.reason, known.since)

    def take(self) -> dict[str, str]:
        """Return the topics in doubt with their reasons, and forget them: somebody else who commits compares their ids."""
        with self._lock:
            doubts, self._doubts = self._doubts, {}
        return {topic: each.reason for topic, each in doubts.items()}

    def require(self) -> None:
        """Compare the ids of the topics in doubt; call it before each commit of offsets.

        Raises:
            StaleTokenError: if a topic was deleted and created again.
            KafkaRequestError: if the ids cannot be compared now, so that nothing may be committed; not retriable when the
                limit is over, or if brokers refuse the request.
        """
        with self._lock:
            doubts = dict(self._doubts)
        if not doubts:
            return
        if self._postponed is not None and self._clock() < self._postponed[0]:
            raise self._postponed[1]
        before = {topic: self._ids[topic] for topic in doubts}
        try:
            now = confirmed_ids(self._ask, before)
        except KafkaRequestError as error:
            raise self._postpone_start(doubts, str(error), retriable=error.retriable) from error
        refuse_recreated(before, now)
        absent = [topic for topic in before if now[topic] is None]
        if absent:
            raise self._postpone_start(doubts, f"topic {absent[0]!r} does not exist any more", retriable=True)
        with self._lock:
            self._doubts = {topic: each for topic, each in self._doubts.items() if doubts.get(topic) is not each}
        self._postponed = None

    def _postpone_start(self, doubts: Mapping[str, _Doubt], why: str, *, retriable: bool) -> KafkaRequestError:
        topic, first = min(doubts.items(), key=lambda each: each[1].since)
        now = self._clock()
        error = KafkaRequestError(
            f"the offsets of {', '.join(sorted(doubts))} cannot be committed: it is open whether topic {topic!r} is still "
            f"the one that was read ({first.reason}), because {why}; let its user describe topics, and "
            "if the topic was deleted, create it and run `streamrt reset`",
            retriable=retriable and not 0 < self._limit_s <= now - first.since,
        )
        self._postponed = now + _RETRY_S, error
        return error
