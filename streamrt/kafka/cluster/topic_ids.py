"""Compares Kafka's ids of topics, although brokers learn of new and deleted topics one after the other.

A broker whose metadata lag answers for a moment with the former id, or does not know the topic. So an answer that differs
from what is expected counts only if brokers repeat it. Requests go to any broker, so the answers are of several ones.
"""

import math
import time
from collections.abc import Callable, Mapping
from functools import partial

from confluent_kafka import KafkaError

__all__ = ["DOUBTFUL", "confirmed_ids", "is_absent", "repeated"]

DOUBTFUL = frozenset(
    {
        KafkaError.INCONSISTENT_TOPIC_ID,
        KafkaError.OFFSET_OUT_OF_RANGE,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._AUTO_OFFSET_RESET,
        KafkaError._NO_OFFSET,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
    }
)
"""Codes of errors after which a topic may be another one of the same name."""

ANSWERS = 4
"""Answers without the expected id, in a row, that confirm that the topic is another one or does not exist."""
PAUSE_S = 0.5
"""Seconds between two of them."""


def confirmed_ids(
    ask: Callable[..., Mapping[str, str | None]],
    expected: Mapping[str, str | None],
    pause: Callable[[float], object] | None = None,
    *,
    timeout: float | None = None,
) -> dict[str, str | None]:
    """Return the ids of topics; those that differ from the expected ones are confirmed, which takes 1.5 s.

    Args:
        ask: returns the ids of topics, as `TopicAdmin.topic_ids` does; topics that do not exist may be left out.
        expected: the id that each topic had; None if it is unknown, and the first answer counts.
        pause: waits some seconds between two requests; by default, `time.sleep`.
        timeout: seconds to wait for each answer, for an `ask` that takes them.

    Returns:
        For each topic its id, or None if it does not exist.

    Raises:
        KafkaRequestError: if brokers refuse or do not answer.

    Example:
        >>> answers = iter([{"orders": None}, {"orders": "old"}, {"orders": "new"}])
        >>> confirmed_ids(lambda topics: next(answers), {"orders": "new"}, pause=lambda seconds: None)
        {'orders': 'new'}
    """
    ask = ask if timeout is None else partial(ask, timeout=timeout)
    known = dict(ask(list(expected)))
    for _ in range(ANSWERS - 1):
        doubtful = [topic for topic, before in expected.items() if before is not None and known.get(topic) != before]
        if not doubtful:
            break
        (pause or time.sleep)(PAUSE_S)
        answers = ask(doubtful)
        # A broker that does not know the topic yet says nothing about the id that others have told.
        known |= {topic: answers.get(topic) or known.get(topic) for topic in doubtful}
    return {topic: known.get(topic) for topic in expected}


def is_absent(ask: Callable[..., Mapping[str, str | None]], topic: str, timeout: float) -> bool:
    """Return whether a topic does not exist, after brokers have repeated it.

    Args:
        ask: returns the ids of topics, as `TopicAdmin.topic_ids` does.
        topic: the topic.
        timeout: seconds to wait for each answer.
    """
    return not repeated(lambda: ask([topic], timeout=timeout).get(topic) is not None, math.inf)


def repeated(ask: Callable[[], bool], deadline: float) -> bool:
    """Return whether a broker says yes, such as that it knows a topic; that none does is confirmed, which takes 1.5 s.

    Args:
        ask: returns what one broker says.
        deadline: value of `time.monotonic()` after which it is not asked again.
    """
    for _ in range(ANSWERS - 1):
        if ask():
            return True
        if time.monotonic() + PAUSE_S >= deadline:
            return False
        time.sleep(PAUSE_S)
    return ask()
