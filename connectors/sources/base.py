"""The contract of sources.

The life of a source:

```
process that calls run()      process of the source
------------------------      ---------------------
__init__ -> pickled  ------>  configure(topic, producer)
                              start() -> setup() -> run() -> cleanup(failed)
   stop is wanted    ------>  stop(), from another thread while run() goes on
```

A source that returns from `start` has finished, and the application continues. A source that raises stops the
application.
"""

import abc
import logging
import math
import threading
from collections.abc import Sequence
from typing import Any, Literal

from streamrt.arguments import refuse_async
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback, connect
from streamrt.connectors.sources.protocols import SourceProducer
from streamrt.errors import InvalidOperationError, ProducerError, argument_error
from streamrt.records import HeadersMapping, HeaderValue
from streamrt.topics import KafkaMessage, Topic

__all__ = [
    "BaseSource",
    "Instances",
    "Source",
    "source_topic",
]

logger = logging.getLogger("streamrt.connectors")

_FLUSH_TIMEOUT_S = 30.0

Instances = Literal["one", "each"]
"""In which of the running instances of an application a source runs."""


class BaseSource(abc.ABC):
    """Base class of all sources: brings external records into a topic. Most sources extend `Source` instead.

    A source runs in a separate process. It is pickled and sent there before it is started, so `__init__` keeps only
    settings; `setup` makes clients, connections and files. If a source has the attributes `name` (str) and
    `shutdown_timeout` (seconds), the runtime uses them to name and to stop it.

    Args:
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails. If it returns, the failure counts
            as handled. If it raises, or if there is none, the application stops.

    Example:
        ```python
        class Ticker(BaseSource):
            _running = True

            def start(self) -> None:
                while self._running:
                    message = self._producer_topic.serialize(value=time.time())
                    self._producer.produce(self._producer_topic.name, message.value)
                    time.sleep(1)

            def stop(self) -> None:
                self._running = False

            def default_topic(self) -> Topic:
                return Topic("ticks")
        ```
    """

    _producer: SourceProducer | None = None
    _producer_topic: Topic | None = None
    _on_client_connect_success: ClientConnectSuccessCallback | None = None
    _on_client_connect_failure: ClientConnectFailureCallback | None = None

    def __init__(
        self,
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
    ) -> None:
        refuse_async("on_client_connect_success=...", on_client_connect_success)
        refuse_async("on_client_connect_failure=...", on_client_connect_failure)
        self._on_client_connect_success = on_client_connect_success
        self._on_client_connect_failure = on_client_connect_failure

    @property
    def instances(self) -> Instances:
        """Where the source runs, unless the application decides: in "each" instance of the application, or in "one"."""
        return "each"

    def configure(self, topic: Topic, producer: SourceProducer, **kwargs: Any) -> None:
        """Set the topic and the producer. Called in the process of the source, before `start`.

        Args:
            topic: the topic to produce to.
            producer: the producer to use.
            **kwargs: arguments of later versions; pass them on to `super().configure`.
        """
        self._producer_topic = topic
        self._producer = producer

    def setup(self) -> None:  # noqa: B027 - a source without a client needs none
        """Connect to the external system. Called by `connect`.

        Raises:
            Exception: any error that explains why there is no connection.
        """

    def connect(self) -> None:
        """Call `setup`, then the callback for its outcome. `Source.start` calls this; other `start` methods may.

        Raises:
            Exception: the error of `setup`, or the one that `on_client_connect_failure` raised instead.
        """
        connect(self.setup, self._on_client_connect_success, self._on_client_connect_failure)

    @abc.abstractmethod
    def start(self) -> None:
        """Fetch and produce. The source has finished when this returns.

        Raises:
            Exception: any error stops the application, which raises a `SourceError` with its message.
        """

    @abc.abstractmethod
    def stop(self) -> None:
        """Make `start` return soon. Called in another thread than `start`, and possibly before it."""

    @abc.abstractmethod
    def default_topic(self) -> Topic:
        """Return the topic to produce to if the application gives none; the prefix `source__` is added to its name."""

    @property
    def producer(self) -> SourceProducer:
        """The producer of the source.

        Raises:
            InvalidOperationError: if the source is not configured.
        """
        if self._producer is None:
            raise self._not_configured()
        return self._producer

    @property
    def producer_topic(self) -> Topic:
        """The topic to produce to.

        Raises:
            InvalidOperationError: if the source is not configured.
        """
        if self._producer_topic is None:
            raise self._not_configured()
        return self._producer_topic

    def _not_configured(self) -> InvalidOperationError:
        return InvalidOperationError(
            f"the source {getattr(self, 'name', type(self).__name__)} has no topic and no producer yet: the "
            "application calls configure() in the process of the source, so use them in start(), setup() or run()"
        )


class Source(BaseSource):
    """A source with a loop: subclasses define `run` and check `running` regularly.

    Args:
        name: name of the source, unique in the application. The topic is `source__<name>` by default.
        shutdown_timeout: seconds that `run` and `cleanup` have to end after `stop`; then the process is killed.
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails.

    Raises:
        ConfigurationError: if the name is empty or the timeout is negative.

    Example:
        ```python
        class Dice(Source):
            def run(self) -> None:
                while self.running:
                    message = self.serialize(key="dice", value={"eyes": random.randint(1, 6)})
                    self.produce(message.value, message.key)
                    self.sleep(0.5)


        app = Application("localhost:9092")
        app.dataframe(source=Dice("dice")).print()
        app.run()
        ```
    """

    # Made in `configure`, in the process of the source, because an event cannot be pickled.
    __stopped: threading.Event | None = None

    def __init__(
        self,
        name: str,
        shutdown_timeout: float = 10,
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
    ) -> None:
        super().__init__(on_client_connect_success, on_client_connect_failure)
        if not isinstance(name, str) or not name:
            raise argument_error(
                f"the name of a source is {name!r}: give a non-empty str", of_type=isinstance(name, str)
            )
        number = isinstance(shutdown_timeout, int | float) and not isinstance(shutdown_timeout, bool)
        if not number or not 0 <= shutdown_timeout < math.inf:
            raise argument_error(
                f"shutdown_timeout of source {name} is {shutdown_timeout!r}: give seconds, 0 or more", of_type=number
            )
        self.name = name
        self.shutdown_timeout = shutdown_timeout

    def configure(self, topic: Topic, producer: SourceProducer, **kwargs: Any) -> None:  # noqa: D102
        super().configure(topic, producer, **kwargs)
        self.__stopped = threading.Event()

    @property
    def running(self) -> bool:
        """Whether to continue: True from `configure` to `stop`."""
        return self.__stopped is not None and not self.__stopped.is_set()

    def start(self) -> None:
        """Connect, call `run`, and always call `cleanup`.

        Raises:
            Exception: the first error of `setup`, `run` or `cleanup`.
        """
        if self.__stopped is None:
            raise self._not_configured()
        failed = True
        try:
            self.connect()
            # stop() may have been called before start().
            if self.running:
                self.run()
            failed = False
        finally:
            # A failure of cleanup after a failure of run is only a consequence, and would hide the cause.
            self._clean_up_after_failure() if failed else self.cleanup(failed=False)

    def _clean_up_after_failure(self) -> None:
        try:
            self.cleanup(failed=True)
        except Exception as error:  # noqa: BLE001 - the first error propagates
            logger.warning("the source %s failed, and its cleanup failed, too: %s", self.name, error)

    def default_topic(self) -> Topic:
        """Return a topic with the name of the source, JSON values and text keys; the prefix `source__` is added later.

        Raises:
            ConfigurationError: if the name is not valid in a topic name.
        """
        return Topic(self.name, key_deserializer="str", key_serializer="str")

    @abc.abstractmethod
    def run(self) -> None:
        """Fetch and produce while `running` is True.

        Raises:
            Exception: any error stops the application, which raises a `SourceError` with its message.
        """

    def cleanup(self, failed: bool) -> None:
        """Release the resources of `setup` and `run`. Called once when `run` has ended or `setup` has failed.

        By default it flushes, unless the source failed.

        Args:
            failed: whether `run` or `setup` raised.

        Raises:
            ProducerError: if records were not delivered.
        """
        if not failed:
            self.flush()

    def stop(self) -> None:
        """Make `running` False and end `sleep`."""
        if self.__stopped is not None:
            self.__stopped.set()

    def sleep(self, seconds: float) -> bool:
        """Wait, but no longer than until `stop`.

        Args:
            seconds: the longest wait.

        Returns:
            Whether to continue: the same as `running`.
        """
        if self.__stopped is None:
            raise self._not_configured()
        if seconds > 0:
            self.__stopped.wait(seconds)
        return self.running

    def serialize(
        self,
        key: object = None,
        value: object = None,
        headers: Sequence[tuple[str, HeaderValue]] | HeadersMapping | None = None,
        timestamp_ms: int | None = None,
    ) -> KafkaMessage:
        """Serialize a record with the serializers of the topic.

        Args:
            key: the key.
            value: the value.
            headers: pairs of name and value, or a mapping.
            timestamp_ms: milliseconds since the Unix epoch.

        Raises:
            SerializationError: if key or value cannot be serialized.
        """
        return self.producer_topic.serialize(key, value, headers, timestamp_ms)

    def produce(
        self,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        headers: Sequence[tuple[str, HeaderValue]] | HeadersMapping | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        poll_timeout: float = 30.0,
        buffer_error_max_tries: int = 10,
    ) -> None:
        """Produce a record to the topic of the source. It is delivered in the background, by `flush` at the latest.

        Args:
            value: the serialized value, or None for a tombstone.
            key: the serialized key.
            headers: pairs of name and value, or a mapping.
            partition: the partition; by default it is chosen by the key.
            timestamp: milliseconds since the Unix epoch; by default now.
            poll_timeout: seconds that one attempt waits for space in the client's buffer.
            buffer_error_max_tries: number of such attempts.

        Raises:
            ProducerError: if this record is refused, or an earlier record was not delivered.
        """
        self.producer.produce(
            self.producer_topic.name, value, key, headers, partition, timestamp, poll_timeout, buffer_error_max_tries
        )

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all records are delivered.

        Args:
            timeout: seconds; None means 30, -1 means no limit.

        Raises:
            ProducerError: if a record was not delivered, or not in time.
        """
        waited = _FLUSH_TIMEOUT_S if timeout is None else timeout
        remaining = self.producer.flush(waited)
        if remaining:
            raise ProducerError(
                f"{remaining} records for topic {self.producer_topic.name!r} were not delivered within {waited:g} s: "
                "the brokers do not answer in time; see their logs, or call flush() with a longer timeout"
            )


def source_topic(source: BaseSource) -> Topic:
    """Return the topic that a source produces to if the application gives none.

    Args:
        source: the source.

    Raises:
        ConfigurationError: if the name is not valid in a topic name.

    Example:
        >>> from streamrt.connectors import CSVSource
        >>> source_topic(CSVSource("orders.csv", name="orders"))
        Topic('source__orders')
    """
    default = source.default_topic()
    return Topic(
        f"source__{default.name}",
        default.config,
        value_deserializer=default.value_deserializer,
        key_deserializer=default.key_deserializer,
        value_serializer=default.value_serializer,
        key_serializer=default.key_serializer,
        timestamp_extractor=default.timestamp_extractor,
        auto_offset_reset=default.auto_offset_reset,
        watermark_strategy=default.watermark_strategy,
    )
