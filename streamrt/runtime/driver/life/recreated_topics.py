"""Notices that a topic is deleted and created again while an application runs.

Positions are offsets of one topic. A new topic of the same name has other records at them, and clients go on with it as if
nothing had happened. A thread therefore compares Kafka's ids of all topics of the application every few seconds; start
offsets are compared each time that they are found (see `streamrt.runs.start_positions`). An answer that differs counts only
if brokers repeat it (see `streamrt.kafka.cluster.topic_ids`).
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Protocol

from streamrt.errors import StaleTokenError, StreamRTError
from streamrt.kafka.cluster.topic_ids import confirmed_ids
from streamrt.runtime.driver.life.exits import StoppedError
from streamrt.runtime.topic_identity import InputIdentity, recreated

__all__ = ["RecreationWatch", "TopicIds"]

logger = logging.getLogger("streamrt")

_EVERY_S = 2.0
_TABLES_EVERY = 3
"""Looks at topics for each look at the catalogue."""
_TIMEOUT_S = 10.0
_CLOSE_S = 1.0
"""Longest wait for the thread at the end: brokers may not answer."""


class TopicIds(Protocol):
    """Requests to Kafka. Implemented by `TopicAdmin`."""

    def topic_ids(self, topic_names: Collection[str], timeout: float) -> Mapping[str, str | None]:
        """Return the ids of topics; None for a topic that does not exist."""


class RecreationWatch:
    """Compares the ids of topics with those at the start.

    Args:
        admin: asks for the ids.
        positions: the topics whose positions the application keeps: a new one ends it.
        outputs: names of other topics that it writes to: a new one is logged.
        kept: names of topics in which it keeps something else, each with what a new one means: this is logged.
        identity: holds commits back from the first answer that differs, before it is confirmed; None for nothing.
        find_moved: returns the error of a table that has another topic now, which ends the application; None for nothing.
        every_s: seconds between two requests.

    Example:
        >>> watch = RecreationWatch(admin, {"orders": "x1"}, ["results"])  # doctest: +SKIP
        >>> with watch.watching():  # doctest: +SKIP
        ...     watch.check()
    """

    def __init__(
        self,
        admin: TopicIds,
        positions: Mapping[str, str | None],
        outputs: Collection[str] = (),
        every_s: float = _EVERY_S,
        *,
        kept: Mapping[str, str] | None = None,
        identity: InputIdentity | None = None,
        find_moved: Callable[[], StaleTokenError | None] | None = None,
    ) -> None:
        self._admin = admin
        self._identity = identity
        self._find_moved = find_moved
        self._every_s = every_s
        self._positions = {topic: each for topic, each in positions.items() if each is not None}
        # What a new topic of this name means, and the last known id of each.
        self._losses = {
            topic: (f"the output topic {topic!r}", "earlier results are not in it")
            for topic in outputs
            if topic not in positions
        } | {topic: (f"topic {topic!r}", loss) for topic, loss in (kept or {}).items()}
        self._others: dict[str, str | None] = dict.fromkeys(self._losses)
        self._closing = threading.Event()
        self._error: StaleTokenError | None = None
        self._missing: frozenset[str] = frozenset()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Ask inside this context, in a daemon thread."""
        thread = threading.Thread(target=self._watch_until_closed, name="streamrt-topics", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._closing.set()
            # It would open a connection again that the end of the run has closed.
            thread.join(_CLOSE_S)

    @property
    def failed(self) -> bool:
        """Whether a topic is another one, so that nothing may be committed any more."""
        return self._error is not None

    def check(self) -> None:
        """Raise if a topic is another one.

        Raises:
            StaleTokenError: names the topic and both ids.
        """
        if self._error is not None:
            raise self._error

    def compare_ids(self) -> None:
        """Ask for the ids, and confirm those that differ."""
        before: dict[str, str | None] = {**self._positions, **self._others}
        try:
            found = confirmed_ids(self._request_topic_ids, before, self._wait_for)
        except (StreamRTError, StoppedError) as error:
            logger.debug("the ids of topics could not be read: %s", error)
            return
        missing = frozenset(topic for topic, known in before.items() if known is not None and found[topic] is None)
        for topic in sorted(missing - self._missing):
            logger.error("topic %r was deleted while the application runs", topic)
        self._missing = missing
        for topic, known in self._positions.items():
            if found[topic] not in (None, known) and self._error is None:
                self._error = StaleTokenError(recreated(topic, known, found[topic]))
        for topic, former in self._others.items():
            now = found[topic]
            if None not in (former, now) and now != former:
                name, loss = self._losses[topic]
                logger.warning(
                    "%s was deleted and created again while the application runs (its id was %s and is %s): %s",
                    name,
                    former,
                    now,
                    loss,
                )
            self._others[topic] = now or former

    def _request_topic_ids(self, topics: Collection[str]) -> Mapping[str, str | None]:
        found = self._admin.topic_ids(topics, _TIMEOUT_S)
        others = [topic for topic in topics if found.get(topic) != self._positions.get(topic)]
        if self._identity is not None and others:
            self._identity.doubt("a broker answers with another id, or does not know it", others)
        return found

    def _wait_for(self, seconds: float) -> None:
        if self._closing.wait(seconds):
            raise StoppedError("the application stops")

    def _watch_until_closed(self) -> None:
        looks = 0
        while not self._closing.wait(self._every_s) and self._error is None:
            self.compare_ids()
            looks += 1
            if self._find_moved is not None and looks % _TABLES_EVERY == 0:
                self._error = self._error or self._find_moved()
