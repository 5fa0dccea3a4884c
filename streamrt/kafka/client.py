"""Common parts of all clients: options, log lines, and the conversion of partitions and errors to StreamRT's types."""

import functools
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as ConfluentTopicPartition

from streamrt.common.throttle import Throttle
from streamrt.errors import ConfigurationError, StreamRTError
from streamrt.forks import never_free_in_forks
from streamrt.kafka.connection import ConnectionConfig, as_connection
from streamrt.records import TopicPartition

__all__ = [
    "ClientLogger",
    "ErrorCallback",
    "KafkaRequestError",
    "OffsetMetadata",
    "build_client",
    "callback",
    "client_options",
    "commit_and_wait",
    "error_in",
    "is_connection_error",
    "is_retriable",
    "log_error_to",
    "offsets_of",
    "partition_offsets",
    "partitions_of",
    "request_error",
]

ErrorCallback = Callable[[KafkaError], None]
T = TypeVar("T")

_REPEAT_S = 30.0
"""Minimum seconds between two identical log lines of a client."""

_DEFAULTS = {
    # librdkafka's default of 10 s is too long a pause after brokers have come back.
    "reconnect.backoff.max.ms": 1_000,
}
_CONNECTION_FACILITIES = frozenset({"FAIL", "ERROR", "GETPID", "REQTMOUT", "REAUTH"})
_CONNECTION_ERRORS = frozenset(
    {KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._RESOLVE, KafkaError._TIMED_OUT}
)
_RETRIABLE = _CONNECTION_ERRORS | {
    # A broker that has just started may not know any broker, or all topics.
    KafkaError._PARTIAL,
    KafkaError._WAIT_COORD,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
}


class KafkaRequestError(StreamRTError):
    """A broker refused a request or did not answer it in time.

    Attributes:
        code: number of Kafka's error; negative for errors of the client itself.
        retriable: whether the same request may succeed later.
    """

    error_code = "E202"

    def __init__(self, message: str, code: int = KafkaError._FAIL, retriable: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.retriable = retriable

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.code, self.retriable)


class ClientLogger:
    """Forward the log lines of librdkafka to a Python logger, at appropriate levels.

    librdkafka logs each failed connection attempt as an error, several per second and client, and retries
    automatically. Such lines go to DEBUG, because the error callback reports once that the cluster is unavailable.
    Other lines keep their level; a warning that repeats within 30 s goes to DEBUG.

    Args:
        logger: logger for the lines.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._throttle = Throttle(_REPEAT_S)

    def log(self, level: int, pattern: str, *args: object) -> None:
        """Log one line; confluent-kafka passes facility, client and text as arguments."""
        facility = args[0] if args else ""
        if level >= logging.WARNING:
            known = facility in _CONNECTION_FACILITIES
            if known or not self._throttle.admit((facility, args[-1] if args else pattern)):
                level = logging.DEBUG
        self._logger.log(level, pattern, *args)


def log_error_to(logger: logging.Logger) -> ErrorCallback:
    """Return an error callback that logs an unavailable cluster as one warning, and other errors as errors.

    Args:
        logger: logger for the errors.
    """
    throttle = Throttle(_REPEAT_S)

    def on_error(error: KafkaError) -> None:
        away = is_connection_error(error)
        # A failed connection and the lack of any other are one piece of information.
        if not throttle.admit("away" if away else error.code()):
            logger.debug("Kafka client: %s", error.str())
        elif away:
            # librdkafka's text says "0/2 brokers" even if there is only one broker.
            down = error.code() == KafkaError._ALL_BROKERS_DOWN
            logger.warning("Kafka client: %s; it keeps trying", "no broker can be reached" if down else error.str())
        else:
            logger.error("Kafka client: %s (%s)", error.str(), error.name())

    return on_error


def callback(call: Callable[..., T]) -> Callable[..., T]:
    """Wrap a callback for confluent-kafka so that the caller of `poll` can catch its exceptions.

    confluent-kafka stores the exception of a callback unchanged. Up to Python 3.11, an exception that C code raised is
    incomplete at this point. No `except` matches it, so it ends the thread. Catching it once completes it.

    Args:
        call: the callback.
    """

    def catch(*args: object) -> T:
        try:
            return call(*args)
        except BaseException:
            raise

    return catch


def client_options(
    broker_address: str | ConnectionConfig,
    extra_config: Mapping[str, Any] | None,
    logger: logging.Logger,
    error_callback: ErrorCallback | None,
    *,
    defaults: Mapping[str, Any],
    fixed: Mapping[str, Any],
) -> dict[str, Any]:
    """Return a client's options.

    `extra_config` overrides `defaults`; the connection and `fixed` override both.

    Args:
        broker_address: `host:port` or a `ConnectionConfig`.
        extra_config: options of the user.
        logger: logger for librdkafka's lines.
        error_callback: function of the client's errors; None to log them.
        defaults: options that the user may change.
        fixed: options that the user may not change.
    """
    return {
        **_DEFAULTS,
        **defaults,
        **(extra_config or {}),
        **as_connection(broker_address).as_librdkafka_dict(),
        **fixed,
        "error_cb": callback(error_callback or log_error_to(logger)),
        "logger": ClientLogger(logger),
    }


def build_client(kind: Callable[[dict[str, Any]], T], options: dict[str, Any]) -> T:
    """Create a client. Processes that are forked from this one never free it.

    Args:
        kind: the client's class.
        options: its options.

    Raises:
        ConfigurationError: if librdkafka refuses the options.
    """
    try:
        client: T = _make_referable(kind)(options)
        return never_free_in_forks(client)
    except KafkaException as error:
        reason = error_in(error).str()
    except (TypeError, ValueError) as error:
        reason = str(error)
    # Raised outside the handlers: the arguments in confluent-kafka's traceback hold the secrets.
    raise ConfigurationError(f"the Kafka client cannot be created: {reason}")


@functools.cache
def _make_referable(kind: Any) -> Any:
    """Return a class of the same clients that can have weak references."""
    return kind if kind.__weakrefoffset__ else type(kind.__name__, (kind,), {"__slots__": ("__weakref__",)})


def is_connection_error(error: KafkaError) -> bool:
    """Return whether the client could not reach the brokers; it retries automatically."""
    return error.code() in _CONNECTION_ERRORS


def is_retriable(error: KafkaError) -> bool:
    """Return whether the same request may succeed later."""
    return bool(error.retriable()) or error.code() in _RETRIABLE


def request_error(what: str, error: KafkaError | KafkaException) -> KafkaRequestError:
    """Convert an error of confluent-kafka to a StreamRT error.

    Args:
        what: description of the failure, such as "the offsets of group 'g' could not be read".
        error: the cause.
    """
    cause = error_in(error) if isinstance(error, KafkaException) else error
    return KafkaRequestError(f"{what}: {cause.str()} ({cause.name()})", cause.code(), is_retriable(cause))


OffsetMetadata = str | Mapping[TopicPartition, str | None] | None
"""Text to store with committed offsets: one for all, or one for each partition."""


def partition_offsets(
    offsets: Mapping[TopicPartition, int], metadata: OffsetMetadata = None
) -> list[ConfluentTopicPartition]:
    """Convert offsets to confluent-kafka's type.

    Args:
        offsets: an offset for each partition.
        metadata: text to commit with all offsets, or one for each partition.

    Example:
        >>> [entry] = partition_offsets({TopicPartition("orders", 1): 5})
        >>> entry.topic, entry.partition, entry.offset
        ('orders', 1, 5)
    """
    return [
        ConfluentTopicPartition(
            partition.topic,
            partition.partition,
            offset,
            (metadata.get(partition) if isinstance(metadata, Mapping) else metadata) or "",
        )
        for partition, offset in offsets.items()
    ]


def commit_and_wait(
    commit: Callable[..., Any], offsets: Mapping[TopicPartition, int], metadata: OffsetMetadata
) -> KafkaError | None:
    """Commit offsets and wait for the result; return the error, or None.

    Args:
        commit: the method of a consumer.
        offsets: the next offset to read of each partition.
        metadata: text to store with each offset, or one for each partition.
    """
    try:
        entries = commit(offsets=partition_offsets(offsets, metadata), asynchronous=False) or []
    except KafkaException as error:
        return error_in(error)
    return next((entry.error for entry in entries if entry.error is not None), None)


def offsets_of(entries: Iterable[ConfluentTopicPartition]) -> dict[TopicPartition, int]:
    """Convert confluent-kafka's entries to offsets by partition."""
    return {TopicPartition(entry.topic, entry.partition): entry.offset for entry in entries}


def partitions_of(entries: Iterable[ConfluentTopicPartition]) -> frozenset[TopicPartition]:
    """Convert confluent-kafka's entries to partitions."""
    return frozenset(TopicPartition(entry.topic, entry.partition) for entry in entries)


def error_in(error: KafkaException) -> KafkaError:
    """Return the error inside an exception."""
    cause = error.args[0] if error.args else None
    return cause if isinstance(cause, KafkaError) else KafkaError(KafkaError._FAIL, str(error))
