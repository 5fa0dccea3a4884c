"""The loop of sources whose system keeps each message until it is acknowledged, such as a queue.

A message that is received is leased: the system delivers it again if it is not acknowledged in time. The source produces
it, flushes, and then acknowledges it. Meanwhile a thread extends the leases, however long Kafka takes:

```
receive -> produce -> flush -> acknowledge
   `---- leases are extended ----'
```
"""

import abc
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from streamrt.connectors.argument_checks import checked_count, checked_seconds
from streamrt.connectors.background import StoppedError, call_in_background
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.failures import PassingError, RequestError
from streamrt.connectors.sources.base import Source
from streamrt.errors import SourceError
from streamrt.topics import Topic

__all__ = ["AcknowledgingSource", "Delivery"]

logger = logging.getLogger("streamrt.connectors")

T = TypeVar("T")

_RETRY_EVERY_S = 1.0
# After `stop`, for acknowledging what was flushed.
_LAST_REQUESTS_S = 1.0


class Delivery(NamedTuple):
    """One delivery of a message.

    Attributes:
        message_id: ID of the message, the same in each delivery of it.
        handle: what acknowledges this delivery.
        value: the value of the record.
        key: its key.
        headers: its headers.
        timestamp: milliseconds since the Unix epoch.
    """

    message_id: str
    handle: str
    value: bytes
    key: str | bytes | None
    headers: list[tuple[str, bytes]]
    timestamp: int


class AcknowledgingSource(Source):
    """A source that acknowledges messages after `flush`. Subclasses define the requests; each may raise `RequestError`.

    Args:
        name: name of the source.
        place: what it reads, for sentences.
        lease_s: seconds after which the system delivers a message again.
        wait_s: maximum number of seconds that a request waits for messages.
        commit_every: number of records after which the source commits.
        commit_interval: seconds after which it commits.
        shutdown_timeout: seconds that the source has to end when the application stops.
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails.
    """

    def __init__(
        self,
        name: str,
        place: str,
        *,
        lease_s: int,
        wait_s: float,
        commit_every: int,
        commit_interval: float,
        shutdown_timeout: float,
        on_client_connect_success: ClientConnectSuccessCallback | None,
        on_client_connect_failure: ClientConnectFailureCallback | None,
    ) -> None:
        super().__init__(name, shutdown_timeout, on_client_connect_success, on_client_connect_failure)
        self._place = place
        self._lease_s = lease_s
        self._wait_s = wait_s
        self._commit_every = checked_count(type(self).__name__, "commit_every", commit_every)
        self._commit_interval = checked_seconds(type(self).__name__, "commit_interval", commit_interval)
        # Handles by message: of produced messages, and of those that are flushed and not yet acknowledged.
        self._produced: dict[str, str] = {}
        self._flushed: dict[str, str] = {}
        self._failing: set[str] = set()
        # Made in `run`, because an event cannot be pickled.
        self._leases_ended: threading.Event | None = None

    @abc.abstractmethod
    def check(self) -> None:
        """Look whether the system can be reached, and whether what the source reads exists."""

    @abc.abstractmethod
    def receive(self, limit: int, wait_s: float) -> Sequence[Delivery]:
        """Receive messages; return none if there are none within the given time.

        Args:
            limit: maximum number of messages.
            wait_s: seconds to wait for the first message; 0 while others wait for their acknowledgement.
        """

    @abc.abstractmethod
    def acknowledge(self, handles: Sequence[str]) -> None:
        """Acknowledge messages. Those whose lease has run out are passed over: they are delivered again.

        Args:
            handles: their handles.
        """

    @abc.abstractmethod
    def extend(self, handles: Sequence[str], lease_s: int) -> None:
        """Extend the leases of messages. Called in another thread as well.

        Args:
            handles: their handles.
            lease_s: seconds from now; 0 to have the messages delivered again at once.
        """

    def default_topic(self) -> Topic:
        """Return a topic with the name of the source, values of bytes and text keys.

        Raises:
            ConfigurationError: if the name is not valid in a topic name.
        """
        return Topic(self.name, value_deserializer="bytes", value_serializer="bytes", key_deserializer="str")

    def setup(self) -> None:
        """Check that the system can be reached, and that what the source reads exists.

        Raises:
            SourceError: if not.
        """
        with self._explain_errors(), contextlib.suppress(StoppedError):
            self._call_service(self.check)

    def run(self) -> None:
        """Receive, produce, flush and acknowledge.

        Raises:
            SourceError: if the system refuses to go on.
        """
        with self._explain_errors(), contextlib.suppress(StoppedError):
            self._extend_leases()
            commit_at = 0.0
            while self.running:
                if not self._produced:
                    commit_at = time.monotonic() + self._commit_interval
                received = self._receive_deliveries()
                for delivery in received:
                    self._take_delivery(delivery)
                if self._produced and (
                    not received or len(self._produced) >= self._commit_every or time.monotonic() >= commit_at
                ):
                    self.flush()
                if self._flushed:
                    self._pass_over_failures(self._acknowledge_handles, "acknowledge messages of")

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all records are delivered; after that, their messages may be acknowledged.

        Args:
            timeout: see `Source.flush`.

        Raises:
            ProducerError: if a record was not delivered, or not in time.
        """
        super().flush(timeout)
        self._flushed.update(self._produced)
        self._produced = {}

    def cleanup(self, failed: bool) -> None:
        """Flush and acknowledge; a source that failed gives its messages back instead. Then close the connection.

        Args:
            failed: whether `run` or `setup` raised.

        Raises:
            ProducerError: if records were not delivered.
        """

        def last(request: Callable[[], None]) -> None:
            # Without it, the messages are delivered again, only later.
            deadline = time.monotonic() + _LAST_REQUESTS_S
            with contextlib.suppress(RequestError, StoppedError):
                call_in_background(request, lambda: time.monotonic() < deadline)

        try:
            super().cleanup(failed)
            if self._produced:
                last(lambda: self.extend(list(self._produced.values()), 0))
            if self._flushed:
                last(lambda: self.acknowledge(list(self._flushed.values())))
        finally:
            if self._leases_ended is not None:
                self._leases_ended.set()
            self.close()

    def close(self) -> None:
        """Close the connection."""

    def _receive_deliveries(self) -> Sequence[Delivery]:
        limit = self._commit_every - len(self._produced)
        # An ordered queue holds back what follows messages that are not acknowledged, so they must not wait.
        wait_s = 0.0 if self._produced else self._wait_s
        return self._pass_over_failures(lambda: self._call_service(lambda: self.receive(limit, wait_s)), "read") or ()

    def _take_delivery(self, delivery: Delivery) -> None:
        # A message whose lease has run out is delivered again, and only its new handle acknowledges it.
        for known in (self._produced, self._flushed):
            if delivery.message_id in known:
                known[delivery.message_id] = delivery.handle
                return
        self.produce(delivery.value, delivery.key, delivery.headers, timestamp=delivery.timestamp)
        self._produced[delivery.message_id] = delivery.handle

    def _acknowledge_handles(self) -> None:
        handles = list(self._flushed.values())
        self._call_service(lambda: self.acknowledge(handles))
        self._flushed = {}

    def _call_service(self, call: Callable[[], T]) -> T:
        return call_in_background(call, lambda: self.running)

    def _pass_over_failures(self, call: Callable[[], T], doing: str) -> T | None:
        """Call a function; log a failure that may pass, once for each outage, and wait."""
        try:
            result = call()
        except RequestError as error:
            if not isinstance(error, PassingError):
                raise
            level = logging.DEBUG if doing in self._failing else logging.WARNING
            text = "the source %s cannot %s %s now: %s; it tries again"
            logger.log(level, text, self.name, doing, self._place, error)
            self._failing.add(doing)
            self.sleep(_RETRY_EVERY_S)
            return None
        self._failing.discard(doing)
        return result

    def _extend_leases(self) -> None:
        """Extend leases in a thread until `cleanup` is done."""
        ended = self._leases_ended = threading.Event()

        def extend() -> None:
            while not ended.wait(self._lease_s / 3):
                # Lists are made in one step of the interpreter, whatever the source does.
                handles = list(self._produced.values()) + list(self._flushed.values())
                try:
                    if handles:
                        self.extend(handles, self._lease_s)
                except RequestError as error:
                    # The messages are delivered again if this goes on.
                    logger.debug("the source %s cannot extend leases of %s: %s", self.name, self._place, error)

        threading.Thread(target=extend, name="streamrt-leases", daemon=True).start()

    @contextlib.contextmanager
    def _explain_errors(self) -> Iterator[None]:
        try:
            yield
        except RequestError as error:
            raise self._make_problem(error) from None

    def _make_problem(self, error: RequestError) -> SourceError:
        return SourceError(f"the source {self.name} cannot read {self._place}: {error}")
