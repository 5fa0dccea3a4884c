"""What all clients share: options, log lines, and partitions and errors in StreamRT's own terms."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as ConfluentTopicPartition

from streamrt.errors import ConfigurationError, StreamRTError
from streamrt.kafka.connection import ConnectionConfig, as_connection
from streamrt.models import TopicPartition

__all__ = [
    "ClientLogger",
    "ErrorCallback",
    "KafkaRequestError",
    "OffsetMetadata",
    "Throttle",
    "build_client",
    "callback",
    "client_options",
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

REPEAT_S = 30.0
"""A client says the same thing at most once in this time."""

_DEFAULTS = {
    # librdkafka's own 10 s are too long a break once brokers are back.
    "reconnect.backoff.max.ms": 1_000,
}
_CONNECTION_FACILITIES = frozenset({"FAIL", "ERROR", "GETPID", "REQTMOUT", "REAUTH"})
_CONNECTION_ERRORS = frozenset(
    {KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._RESOLVE, KafkaError._TIMED_OUT}
)
_RETRIABLE = _CONNECTION_ERRORS | {
    # A broker that has just started knows of no broker, or of not all topics.
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
        code: number of Kafka's error; negative for errors that the client itself found.
        retriable: whether the same request may succeed later.
    """

    def __init__(self, message: str, code: int = KafkaError._FAIL, retriable: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.retriable = retriable

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.code, self.retriable)


class Throttle:
    """Lets the same thing through once in an interval.

    Args:
        interval_s: seconds.
        clock: gives the current time in seconds.

    Example:
        >>> throttle = Throttle(30.0, clock=lambda: 0.0)
        >>> throttle.ready("broker away"), throttle.ready("broker away"), throttle.ready("other")
        (True, False, True)
    """

    _KEYS = 256

    def __init__(self, interval_s: float = REPEAT_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval_s = interval_s
        self._clock = clock
        self._last: dict[object, float] = {}

    def ready(self, key: object) -> bool:
        """Return whether `key` was not let through during the last interval."""
        now = self._clock()
        last = self._last.get(key)
        if last is not None and now - last < self._interval_s:
            return False
        if len(self._last) >= self._KEYS:
            self._last.clear()
        self._last[key] = now
        return True


class ClientLogger:
    """Passes the log lines of librdkafka on to a Python logger, each at the level that it deserves.

    librdkafka logs every failed attempt to connect as an error, several a second for each client, while it
    goes on trying by itself. Such lines go to DEBUG: that the cluster is away is told once, by the error
    callback. Anything else keeps its level, and a warning that repeats within 30 s goes to DEBUG.

    Args:
        logger: where the lines go.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._throttle = Throttle()

    def log(self, level: int, pattern: str, *args: object) -> None:
        """Log one line; confluent-kafka calls this with facility, client and text as arguments."""
        facility = args[0] if args else ""
        if level >= logging.WARNING:
            known = facility in _CONNECTION_FACILITIES
            if known or not self._throttle.ready((facility, args[-1] if args else pattern)):
                level = logging.DEBUG
        self._logger.log(level, pattern, *args)


def log_error_to(logger: logging.Logger) -> ErrorCallback:
    """Return an error callback that logs: a cluster that is away as one warning, the rest as errors.

    Args:
        logger: where the errors go.
    """
    throttle = Throttle()

    def on_error(error: KafkaError) -> None:
        away = is_connection_error(error)
        # That a connection failed, and that there is no other one, are the same news.
        if not throttle.ready("away" if away else error.code()):
            logger.debug("Kafka client: %s", error.str())
        elif away:
            # librdkafka's own words tell of "0/2 brokers" if the only one is not there.
            down = error.code() == KafkaError._ALL_BROKERS_DOWN
            logger.warning("Kafka client: %s; it goes on trying", "no broker can be reached" if down else error.str())
        else:
            logger.error("Kafka client: %s (%s)", error.str(), error.name())

    return on_error


def callback(call: Callable[..., T]) -> Callable[..., T]:
    """Return a callback for confluent-kafka whose exceptions can be caught by whoever called `poll`.

    confluent-kafka keeps what a callback raises as it finds it. Up to Python 3.11 an exception that C code has raised, as its
    own, is not complete then, and no `except` matches it: it ends the thread. One that was caught once is complete.

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

    `defaults` yield to `extra_config`, which yields to the connection and to `fixed`.

    Args:
        broker_address: `host:port` or a `ConnectionConfig`.
        extra_config: options of the user.
        logger: where librdkafka's lines go.
        error_callback: called with the errors of the client; None to log them.
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


def build_client(factory: Callable[[dict[str, Any]], T], options: dict[str, Any]) -> T:
    """Create a client.

    Args:
        factory: the client's class.
        options: its options.

    Raises:
        ConfigurationError: if librdkafka refuses the options.
    """
    try:
        return factory(options)
    except KafkaException as error:
        reason = error_in(error).str()
    except (TypeError, ValueError) as error:
        reason = str(error)
    # Raised outside the handlers: the arguments in confluent-kafka's traceback hold the secrets.
    raise ConfigurationError(f"the Kafka client cannot be created: {reason}")


def is_connection_error(error: KafkaError) -> bool:
    """Return whether the client could not reach the brokers; it goes on trying by itself."""
    return error.code() in _CONNECTION_ERRORS


def is_retriable(error: KafkaError) -> bool:
    """Return whether the same request may succeed later."""
    return bool(error.retriable()) or error.code() in _RETRIABLE


def request_error(what: str, error: KafkaError | KafkaException) -> KafkaRequestError:
    """Return the StreamRT error for one of confluent-kafka.

    Args:
        what: what failed, such as "the offsets of group 'g' could not be read".
        error: why.
    """
    cause = error_in(error) if isinstance(error, KafkaException) else error
    return KafkaRequestError(f"{what}: {cause.str()} ({cause.name()})", cause.code(), is_retriable(cause))


OffsetMetadata = str | Mapping[TopicPartition, str | None] | None
"""Text to store with committed offsets: one for all, or one for each partition."""


def partition_offsets(
    offsets: Mapping[TopicPartition, int], metadata: OffsetMetadata = None
) -> list[ConfluentTopicPartition]:
    """Return `offsets` as confluent-kafka wants them.

    Args:
        offsets: an offset for each partition.
        metadata: text to store with each offset when they are committed, or a text for each partition.

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


def offsets_of(entries: Iterable[ConfluentTopicPartition]) -> dict[TopicPartition, int]:
    """Return the offsets that confluent-kafka names."""
    return {TopicPartition(entry.topic, entry.partition): entry.offset for entry in entries}


def partitions_of(entries: Iterable[ConfluentTopicPartition]) -> frozenset[TopicPartition]:
    """Return the partitions that confluent-kafka names."""
    return frozenset(TopicPartition(entry.topic, entry.partition) for entry in entries)


def error_in(error: KafkaException) -> KafkaError:
    """Return the error that an exception carries."""
    cause = error.args[0] if error.args else None
    return cause if isinstance(cause, KafkaError) else KafkaError(KafkaError._FAIL, str(error))
