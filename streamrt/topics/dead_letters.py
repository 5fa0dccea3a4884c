"""Dead letters: records that an application could not process, kept in a topic with the reason.

A dead letter has the key, value, timestamp and headers of the record that failed, as Kafka had them, and further headers
that say what happened to it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from streamrt.common.untrusted import whole_number
from streamrt.errors import ArgumentTypeError, ArgumentValueError, argument_error
from streamrt.kafka import TopicConfig
from streamrt.records import Headers
from streamrt.topics.internal import dead_letter_topic_name
from streamrt.topics.topic import NAME

__all__ = [
    "DeadLetter",
    "DeadLetters",
    "ErrorPolicies",
    "ErrorPolicy",
    "ErrorStage",
    "OnError",
    "attempts_of",
    "without_error_headers",
]

ErrorStage = Literal["deserialize", "process", "produce", "sink"]
"""Where a record can fail: when it is read, in an operator, when an output is sent to a topic, or in a sink."""

_STAGES: tuple[ErrorStage, ...] = get_args(ErrorStage)
_PREFIX = "streamrt.error."
_ATTEMPT = f"{_PREFIX}attempt"
_LONGEST_MESSAGE = 2_000
MOST_ATTEMPTS = 1_000_000
"""Attempts are counted up to here: a producer can write any number into the header."""


@dataclass(frozen=True)
class DeadLetters:
    """Write records that fail to a topic, and continue with the next ones.

    Args:
        topic: name of the topic; None for `dead-letters__<consumer group>`.
        config: partitions, replication factor and settings of the topic, if it must be created. By default it has one
            partition and no time limit: dead letters stay until somebody handles them.

    Example:
        ```python
        app = Application(broker_address="localhost:9092", consumer_group="shop", on_error=DeadLetters())
        ```
    """

    topic: str | None = None
    config: TopicConfig | None = None

    def __post_init__(self) -> None:
        if self.topic is not None and not (isinstance(self.topic, str) and NAME.fullmatch(self.topic)):
            raise argument_error(
                f"DeadLetters(topic=...) needs the name of a topic, not {self.topic!r}",
                of_type=isinstance(self.topic, str),
            )
        if self.config is not None and not isinstance(self.config, TopicConfig):
            raise ArgumentTypeError(f"DeadLetters(config=...) needs a TopicConfig, not {type(self.config).__name__}")

    def topic_name(self, group: str) -> str:
        """Return the name of the topic for the dead letters of a consumer group.

        Example:
            >>> DeadLetters().topic_name("shop")
            'dead-letters__shop'
        """
        return self.topic or dead_letter_topic_name(group)


ErrorPolicy = Literal["fail", "skip"] | DeadLetters
OnError = ErrorPolicy | Mapping[ErrorStage, ErrorPolicy]


@dataclass(frozen=True)
class ErrorPolicies:
    """The policies for a record that fails and that no callback skips, by stage. Other stages end the application.

    Attributes:
        topics: name of the topic for dead letters.
        skipped: the stages at which records are skipped.
    """

    topics: Mapping[ErrorStage, str] = field(default_factory=dict)
    skipped: frozenset[ErrorStage] = frozenset()

    @staticmethod
    def of(on_error: object, group: str) -> "tuple[ErrorPolicies, Mapping[str, TopicConfig | None]]":
        """Return the policies that a user has asked for, and the topics that they need, with their settings if given.

        Args:
            on_error: one policy for all stages, or policies by stage.
            group: the consumer group.

        Raises:
            ConfigurationError: if it is not a policy, or a stage is unknown.
        """
        wanted = on_error if isinstance(on_error, Mapping) else dict.fromkeys(_STAGES, on_error)
        topics: dict[ErrorStage, str] = {}
        declared: dict[str, TopicConfig | None] = {}
        for stage, policy in wanted.items():
            if stage not in _STAGES:
                raise ArgumentValueError(f"on_error: {stage!r} is not a stage; the stages are {', '.join(_STAGES)}")
            if isinstance(policy, DeadLetters):
                name = topics[stage] = policy.topic_name(group)
                declared[name] = declared.get(name) or policy.config
            elif policy not in ("fail", "skip"):
                raise ArgumentValueError(
                    f"on_error is {policy!r}: use 'fail', 'skip', DeadLetters(), or a dict of these by stage"
                )
        skipped = frozenset(stage for stage, policy in wanted.items() if policy == "skip")
        return ErrorPolicies(topics, skipped), declared


@dataclass(frozen=True)
class DeadLetter:
    """Why a record is a dead letter.

    Attributes:
        stage: where it failed.
        error_class: name of the error's class, with its module unless it is built in.
        message: the error's message.
        operator: the operator that failed, such as `apply-3 (price_of)`; empty if it was none.
        topic: the topic of the record.
        partition: its partition.
        offset: its offset.
        group: the consumer group.
        attempt: how often the record has failed, counted over replays; 1 at first.
    """

    stage: str
    error_class: str
    message: str
    operator: str
    topic: str
    partition: int
    offset: int
    group: str
    attempt: int = 1

    def headers(self, own: Headers | None) -> Headers:
        """Return the headers of the dead letter.

        Args:
            own: the headers of the record. If it was replayed, its attempts go on.
        """
        told = {
            "stage": self.stage,
            "class": self.error_class,
            "message": self.message[:_LONGEST_MESSAGE],
            "operator": self.operator,
            "topic": self.topic,
            "partition": str(self.partition),
            "offset": str(self.offset),
            "group": self.group,
            "attempt": str(min(attempts_of(own) + 1, MOST_ATTEMPTS)),
        }
        encoded = [(f"{_PREFIX}{name}", text.encode(errors="backslashreplace")) for name, text in told.items()]
        return [*without_error_headers(own), *encoded]

    @staticmethod
    def of(headers: Headers | None) -> "DeadLetter | None":
        """Return what the headers of a record say; None if it is not a dead letter.

        Example:
            >>> why = DeadLetter("process", "KeyError", "'price'", "apply-1 (total)", "orders", 3, 17, "shop")
            >>> DeadLetter.of(why.headers([("trace", b"1")])) == why
            True
            >>> DeadLetter.of([("trace", b"1")]) is None
            True
        """
        told = {name.removeprefix(_PREFIX): value for name, value in headers or () if name.startswith(_PREFIX)}
        text = {name: value.decode(errors="replace") for name, value in told.items() if isinstance(value, bytes)}
        try:
            return DeadLetter(
                text["stage"],
                text["class"],
                text["message"],
                text["operator"],
                text["topic"],
                whole_number(text["partition"]),
                whole_number(text["offset"]),
                text["group"],
                whole_number(text["attempt"]),
            )
        except (KeyError, ValueError):
            return None


def attempts_of(headers: Headers | None) -> int:
    """Return how often a record has failed before, by its headers; 0 if they say no number, as any producer can."""
    found = [value for name, value in headers or () if name == _ATTEMPT and isinstance(value, bytes)]
    try:
        return min(whole_number(found[-1]), MOST_ATTEMPTS) if found else 0
    except ValueError:
        return 0


def without_error_headers(headers: Headers | None, *, keep_attempt: bool = False) -> Headers:
    """Return the record's own headers.

    Args:
        headers: the headers of a dead letter.
        keep_attempt: whether to keep the number of attempts, for a record that is replayed.
    """
    return [
        (name, value)
        for name, value in headers or ()
        if not name.startswith(_PREFIX) or (keep_attempt and name == _ATTEMPT)
    ]
