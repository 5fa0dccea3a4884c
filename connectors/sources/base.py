"""The contract of sources.

The life of a source:

```
process that calls run()      process of the source
------------------------      ---------------------
__init__ -> pickled  ------>  configure(topic, producer)
                              start() -> setup() -> run() -> cleanup(failed)
   stop is wanted    ------>  stop(), from another thread while run() goes on
```

A source that returns from `start` has ended well, and the application goes on. One that raises ends the application.
"""

import abc
import logging
import math
import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Protocol

from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback, connect
from streamrt.errors import InvalidOperationError, ProducerError, argument_error
from streamrt.models import HeadersMapping, HeaderValue
from streamrt.topics import KafkaMessage, Topic

__all__ = [
    "BaseSource",
    "Source",
    "SourceProducer",
    "SourceState",
    "SourceStore",
    "StatefulSource",
    "source_topic",
]

logger = logging.getLogger("streamrt.connectors")

_FLUSH_TIMEOUT_S = 30.0


class SourceProducer(Protocol):
    """What a source produces with. The runtime gives it a Kafka producer, tests may give it a list with methods."""

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        headers: Sequence[tuple[str, HeaderValue]] | HeadersMapping | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        poll_timeout: float = 30.0,
        buffer_error_max_tries: int = 10,
    ) -> None:
        """Take one record for delivery; may return before it is delivered.

        Raises:
            ProducerError: if the record is refused, or a record before it was not delivered.
        """

    def flush(self, timeout: float | None = None) -> int:
        """Wait until each record is delivered; return how many are still on their way after `timeout` seconds.

        Raises:
            ProducerError: if a record was not delivered for good.
        """


class SourceState(Protocol):
    """What a source remembers, by keys that are JSON values. See `streamrt.state.State`."""

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of a key, or `default`."""

    def get_bytes(self, key: Any, default: bytes | None = None) -> bytes | None:
        """Return the bytes of a key, or `default`."""

    def set(self, key: Any, value: Any, ttl: timedelta | None = None) -> None:
        """Remember a JSON value."""

    def set_bytes(self, key: Any, value: bytes, ttl: timedelta | None = None) -> None:
        """Remember bytes."""

    def delete(self, key: Any) -> None:
        """Forget a key."""

    def exists(self, key: Any) -> bool:
        """Return whether there is a value."""


class SourceStore(Protocol):
    """Where the state of a source is kept."""

    def state(self) -> SourceState:
        """Return the state, changes since the last commit included."""

    def commit(self, timeout: float | None = None) -> None:
        """Make the changes since the last commit durable.

        Args:
            timeout: seconds to wait for the brokers.

        Raises:
            ProducerError: if the brokers did not take them in time; the process must not go on.
        """


class BaseSource(abc.ABC):
    """Brings records from outside into a topic: the base class of all sources. `Source` is the convenient one.

    A source runs in a process of its own. It gets there by pickling, before it is started, so `__init__` keeps settings
    only: clients, connections and files are made in `setup`. A source that has attributes `name` (str) and
    `shutdown_timeout` (seconds) is called and stopped by these.

    Args:
        on_client_connect_success: called without arguments when `setup` has succeeded.
        on_client_connect_failure: called with the exception when `setup` has failed. If it returns, the failure counts
            as dealt with; if it raises, or if there is none, the application ends.

    Example:
        ```python
        class Ticker(BaseSource):
            def start(self) -> None:
                self._running = True
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
        self._on_client_connect_success = on_client_connect_success
        self._on_client_connect_failure = on_client_connect_failure

    def configure(self, topic: Topic, producer: SourceProducer, **kwargs: Any) -> None:
        """Receive the topic and the producer, in the process of the source, before `start`.

        Args:
            topic: the topic to produce to.
            producer: what to produce with.
            **kwargs: what later versions may hand over; pass it on to `super().configure`.
        """
        self._producer_topic = topic
        self._producer = producer

    def setup(self) -> None:  # noqa: B027 - a source without a client needs none
        """Connect to the system outside. Called by `connect`.

        Raises:
            Exception: whatever says why there is no connection.
        """

    def connect(self) -> None:
        """Call `setup`, then the callback that fits the outcome. `Source.start` does it; other `start` methods may.

        Raises:
            Exception: what `setup` raised, or what `on_client_connect_failure` made of it.
        """
        connect(self.setup, self._on_client_connect_success, self._on_client_connect_failure)

    @abc.abstractmethod
    def start(self) -> None:
        """Fetch and produce. The source has ended when this returns.

        Raises:
            Exception: it ends the application, as a `SourceError` that tells the message.
        """

    @abc.abstractmethod
    def stop(self) -> None:
        """Make `start` return soon. Called in another thread than `start`, and perhaps before it."""

    @abc.abstractmethod
    def default_topic(self) -> Topic:
        """Return the topic to produce to if the application gives none; `source__` is put before its name."""

    @property
    def producer(self) -> SourceProducer:
        """What to produce with.

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
    """A source with a loop: subclasses define `run`, and ask `running` now and then.

    Args:
        name: what the source is called; unique in the application. The topic is `source__<name>` by default.
        shutdown_timeout: seconds that `run` and `cleanup` have to end after `stop`; then the process is killed.
        on_client_connect_success: called without arguments when `setup` has succeeded.
        on_client_connect_failure: called with the exception when `setup` has failed.

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

    # Made by `configure`, in the process of the source: an event cannot be pickled.
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
                f"a source is called {name!r}: give it a name, as a str", of_type=isinstance(name, str)
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
        """Whether to go on: True from `configure` to `stop`."""
        return self.__stopped is not None and not self.__stopped.is_set()

    def start(self) -> None:
        """Connect, call `run`, and call `cleanup` whatever happened.

        Raises:
            Exception: what `setup`, `run` or `cleanup` raised; the first one of them.
        """
        if self.__stopped is None:
            raise self._not_configured()
        failed = True
        try:
            self.connect()
            # A stop may come before the start.
            if self.running:
                self.run()
            failed = False
        finally:
            # A failure of cleanup after a failure of run is a consequence, and would hide the reason.
            self._clean_up_after_failure() if failed else self.cleanup(failed=False)

    def _clean_up_after_failure(self) -> None:
        try:
            self.cleanup(failed=True)
        except Exception as error:  # noqa: BLE001 - the first error is on its way
            logger.warning("the source %s failed, and its cleanup, too: %s", self.name, error)

    def default_topic(self) -> Topic:
        """Return a topic of the source's name, with JSON values and text keys; `source__` is put before its name.

        Raises:
            ConfigurationError: if the name makes no name of a topic.
        """
        return Topic(self.name, key_deserializer="str", key_serializer="str")

    @abc.abstractmethod
    def run(self) -> None:
        """Fetch and produce, while `running`.

        Raises:
            Exception: it ends the application, as a `SourceError` that tells the message.
        """

    def cleanup(self, failed: bool) -> None:
        """Let go of what `setup` and `run` have opened. Called once when `run` has ended or `setup` has failed.

        By default it flushes, unless the source has failed.

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
        """Wait, but not longer than until `stop`.

        Args:
            seconds: how long.

        Returns:
            Whether to go on: the same as `running`.
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
            partition: the partition; by default the key decides.
            timestamp: milliseconds since the Unix epoch; by default now.
            poll_timeout: seconds of one try to get room when the client's buffer is full.
            buffer_error_max_tries: how many such tries there are.

        Raises:
            ProducerError: if the record is refused, or a record before it was not delivered.
        """
        self.producer.produce(
            self.producer_topic.name, value, key, headers, partition, timestamp, poll_timeout, buffer_error_max_tries
        )

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all records are delivered.

        Args:
            timeout: seconds; None for 30, -1 for as long as it takes.

        Raises:
            ProducerError: if a record was not delivered, or not in time.
        """
        waited = _FLUSH_TIMEOUT_S if timeout is None else timeout
        remaining = self.producer.flush(waited)
        if remaining:
            raise ProducerError(
                f"{remaining} records for topic {self.producer_topic.name!r} were not delivered within {waited:g} s: "
                "the brokers do not answer in time; see their logs, or give flush() a longer timeout"
            )


class StatefulSource(Source):
    """A source that remembers, such as how far it has read; its state survives a crash.

    The state lies in a changelog topic. `flush` first waits until all records are delivered, then makes the changes of
    the state durable. A crash before, in between or after therefore repeats records and loses none: the state says
    "done" only of records that are in Kafka. `flush` is up to the subclass, at reasonable intervals; it is also called
    when `run` returns.

    Args:
        name: what the source is called; unique in the application. State belongs to this name.
        shutdown_timeout: seconds that `run` and `cleanup` have to end after `stop`; then the process is killed.
        on_client_connect_success: called without arguments when `setup` has succeeded.
        on_client_connect_failure: called with the exception when `setup` has failed.

    Example:
        ```python
        class Lines(StatefulSource):
            def run(self) -> None:
                with open("lines.txt") as lines:
                    lines.seek(self.state.get("position", 0))
                    while self.running and (line := lines.readline()):
                        self.produce(self.serialize(value=line.rstrip()).value)
                        self.state.set("position", lines.tell())
                        self.flush()
        ```
    """

    _store: SourceStore | None = None

    def configure(
        self, topic: Topic, producer: SourceProducer, *, store_partition: SourceStore | None = None, **kwargs: Any
    ) -> None:
        """Receive the topic, the producer and the store, in the process of the source, before `start`.

        Args:
            topic: the topic to produce to.
            producer: what to produce with.
            store_partition: where the state is kept.
            **kwargs: what later versions may hand over; pass it on to `super().configure`.
        """
        super().configure(topic, producer, **kwargs)
        self._store = store_partition

    @property
    def store_partitions_count(self) -> int:
        """How many store partitions there are: the number of partitions of the changelog topic."""
        return 1

    @property
    def assigned_store_partition(self) -> int:
        """The store partition that this instance uses."""
        return 0

    @property
    def store_name(self) -> str:
        """Name of the store, from which the name of the changelog topic is made."""
        return f"source-{self.name}"

    @property
    def state(self) -> SourceState:
        """The state. Ask for it again after each `flush`: an object obtained before cannot be used any more.

        Raises:
            InvalidOperationError: if the source is not configured.
        """
        return self._configured_store.state()

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all records are delivered, then make the changes of the state durable.

        Args:
            timeout: seconds, for each of the two; None for 30, -1 for as long as it takes.

        Raises:
            ProducerError: if a record was not delivered, or the changelog was not written, in time.
        """
        super().flush(timeout)
        self._configured_store.commit(_FLUSH_TIMEOUT_S if timeout is None else timeout)

    @property
    def _configured_store(self) -> SourceStore:
        if self._store is None:
            raise InvalidOperationError(
                f"the source {self.name} has no state yet: the application restores it in the process of the source, "
                "so use it in setup() or run()"
            )
        return self._store


def source_topic(source: BaseSource) -> Topic:
    """Return the topic that a source produces to if the application gives none.

    Args:
        source: the source.

    Raises:
        ConfigurationError: if the name makes no name of a topic.

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
    )
