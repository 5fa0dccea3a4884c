"""Requests to the brokers by an admin client, each with a time limit and with StreamRT's errors."""

import logging
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import (
    TimeoutError as FutureTimeoutError,  # another class than TimeoutError before 3.11
)
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ClusterMetadata

from streamrt.common.backoff import Backoff
from streamrt.errors import KafkaBrokerUnavailableError
from streamrt.forks import ForkGuard
from streamrt.kafka.client import (
    build_client,
    client_options,
    error_in,
    is_retriable,
    log_error_to,
    request_error,
)
from streamrt.kafka.connection import ConnectionConfig, HoldsSecrets, as_connection

__all__ = ["ABSENT", "OFFSETS_TOPIC", "AdminRequests", "retry", "seconds_left"]

R = TypeVar("R")

RETRY_S = 0.1
"""Maximum seconds before a request is repeated."""

ABSENT = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError.TOPIC_EXCEPTION})
"""Errors of brokers for a topic that does not exist."""

_FIRST_RETRY_S = 0.01
OFFSETS_TOPIC = "__consumer_offsets"
"""The topic with the committed offsets of all groups, in every cluster."""
_REFUSED = frozenset({KafkaError._SSL, KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED})


class AdminRequests(HoldsSecrets):
    """An admin client that connects on first use, and the wait for its answers.

    Args:
        broker_address: `host:port`, or a `ConnectionConfig`.
        logger: logger for the lines of librdkafka.
        extra_config: options of librdkafka.

    Attributes:
        connection: the connection to the brokers.
        address: the addresses of the brokers.
    """

    def __init__(
        self, broker_address: str | ConnectionConfig, logger: logging.Logger, extra_config: Mapping[str, Any] | None
    ) -> None:
        self.connection = as_connection(broker_address)
        self.address = self.connection.bootstrap_servers
        self._last_error: KafkaError | None = None
        self._log_error = log_error_to(logger)
        self._options = client_options(
            broker_address,
            extra_config,
            logger,
            self._on_error,
            # With the default, 100 ms doubling to 10 s, a broker may go unnoticed for 10 s after it comes back.
            defaults={"reconnect.backoff.max.ms": 2000},
            fixed={},
        )
        self._inner: AdminClient | None = None
        self._fork_guard = ForkGuard()

    @property
    def client(self) -> AdminClient:
        """The admin client of this process."""
        if self._inner is None or not self._fork_guard.is_own:
            self._inner, self._fork_guard = build_client(AdminClient, self._options), ForkGuard()
        return self._inner

    @property
    def consumer_options(self) -> dict[str, Any]:
        """Options for consumers of the same cluster, whose callbacks do not refer to this object."""
        return {**self._options, "error_cb": self._log_error}

    def close(self) -> None:
        """Close the connections. In-flight requests may fail; a later request connects again."""
        self._inner = None

    def poll(self) -> None:
        """Call the callbacks that are due: an admin client calls those for logs and errors only here.

        Nothing happens if another thread has closed the connections: a request in flight must not connect again.
        """
        client = self._inner
        if client is not None:
            client.poll(0)

    def wait(self, future: "Future[R]", timeout: float) -> R:
        """Return the result of a request.

        Raises:
            KafkaException: if the request failed or took longer than `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        while True:
            try:
                return future.result(max(0.0, min(RETRY_S, deadline - time.monotonic())))
            except FutureTimeoutError:
                if time.monotonic() >= deadline:
                    raise KafkaException(
                        KafkaError(KafkaError._TIMED_OUT, f"no answer within {timeout:.3g} s")
                    ) from None
            finally:
                self.poll()

    def wait_for_result(self, future: "Future[R]", timeout: float) -> tuple[R | None, KafkaError | None]:
        """Return the result of a request, or its error."""
        try:
            return self.wait(future, timeout), None
        except KafkaException as error:
            return None, error_in(error)

    def wait_for_broker(self, timeout: float) -> None:
        """Wait until a broker answers, at most `timeout` seconds.

        Raises:
            KafkaBrokerUnavailableError: if no broker answered in time.
        """
        if timeout <= 0:
            return
        self._last_error = None
        deadline = time.monotonic() + timeout
        backoff = Backoff(RETRY_S, deadline)
        while True:
            _, error = self.wait_for_result(self._ask_cluster(deadline), deadline - time.monotonic())
            if error is None:
                return
            if not is_retriable(error):
                self._last_error = error
                break
            if not backoff.pause():
                break
        reason = self._last_error
        said = f" (the client reports: {reason.str()})" if reason is not None else ""
        refused = reason is not None and reason.code() in _REFUSED
        advice = "correct the security settings of broker_address" if refused else "start it or correct broker_address"
        raise KafkaBrokerUnavailableError(
            f"no Kafka broker answered at {self.address} within {timeout:g} s{said}; {advice}"
        )

    def cluster(self, timeout: float) -> ClusterMetadata:
        """Return the description of the cluster.

        Raises:
            KafkaRequestError: if the request was refused or not answered in time.
        """
        deadline = time.monotonic() + timeout

        def ask() -> ClusterMetadata:
            return self.wait(self._ask_cluster(deadline), seconds_left(deadline))

        return retry("the cluster could not be described", ask, deadline)

    def find_controller(self, timeout: float) -> float:
        """Look up the broker that creates and deletes topics; return the remaining seconds.

        librdkafka asks for it only once. If the answer names no broker, it waits for the whole time limit of the
        request.

        Raises:
            KafkaRequestError: if no broker answered in time.
        """
        deadline = time.monotonic() + timeout
        self.cluster(timeout)
        return seconds_left(deadline)

    def describe_topics(self, topic_names: Iterable[str], deadline: float) -> dict[str, Any]:
        """Return the descriptions of the existing topics.

        Raises:
            KafkaException: if brokers refuse or do not answer.
        """
        found: dict[str, Any] = {}
        futures = self.client.describe_topics(
            TopicCollection(list(dict.fromkeys(topic_names))), request_timeout=seconds_left(deadline)
        )
        for name, future in futures.items():
            description, error = self.wait_for_result(future, seconds_left(deadline))
            if error is None:
                found[name] = description
            elif error.code() not in ABSENT:
                raise KafkaException(error)
        return found

    def _ask_cluster(self, deadline: float) -> "Future[ClusterMetadata]":
        """Ask a broker about the cluster, with a blocking call in a separate thread.

        `describe_cluster` does not block. But with it, librdkafka 2.16 aborts the whole process if the answer names no
        broker, as that of a broker that has just started or is about to stop.
        """
        client, answer = self.client, Future[ClusterMetadata]()

        def ask() -> None:
            try:
                # Metadata of any topic includes the brokers, and the list of all topics may be long.
                answer.set_result(client.list_topics(OFFSETS_TOPIC, timeout=seconds_left(deadline)))
            except Exception as error:  # noqa: BLE001 - handed to the caller
                answer.set_exception(error)

        threading.Thread(target=ask, name="streamrt-kafka-cluster", daemon=True).start()
        return answer

    def _on_error(self, error: KafkaError) -> None:
        # "All brokers are down" follows the error with the reason; keep the reason.
        if error.code() != KafkaError._ALL_BROKERS_DOWN or self._last_error is None:
            self._last_error = error
        self._log_error(error)


def seconds_left(deadline: float) -> float:
    """Return the seconds until a deadline; at least 0.1, because librdkafka accepts no timeout of 0."""
    return max(0.1, deadline - time.monotonic())


def retry(what: str, ask: Callable[[], R], deadline: float) -> R:
    """Call `ask` until it succeeds, fails permanently, or the deadline passes.

    Args:
        what: description of the failure, for the error, such as "the topics could not be described".
        ask: function that sends the request and returns the answer.
        deadline: value of `time.monotonic()`.

    Raises:
        KafkaRequestError: if it did not succeed.
    """
    backoff = Backoff(_FIRST_RETRY_S, deadline, longest_s=RETRY_S)
    while True:
        try:
            return ask()
        except KafkaException as error:
            failure = request_error(what, error)
            # Its frames hold the answer, which holds the error: the cycle would keep the client until a garbage collection.
            traceback.clear_frames(error.__traceback__)
        if not failure.retriable or not backoff.pause():
            raise failure
