"""A lease among processes: one of them holds it, and another one takes it over when that one ends, freezes or is gone.

The lease is the only partition of a topic, in a consumer group of its own. The group hands it from one member to the
next, and never to two members that the brokers hear of. A member that the brokers no longer hear of holds it until it
hears from them. Work that must not go on alongside that of a successor also needs a transactional id, which is fenced, or
calls `confirm` before each step: there a process that was frozen asks the brokers whether it has missed its end.

```
             start                  assigned                       the work has ended
  [new] ------------> [waiting] ------------> [held] -- revoke --> [giving back] --+
                          ^                      |                                 |
                          +-------- lost --------+                                 |
                          +--------------------------------------------------------+
```
"""

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as ConfluentTopicPartition
from typing_extensions import Self

from streamrt.kafka.client import log_error_to, request_error
from streamrt.kafka.connection import ConnectionConfig
from streamrt.kafka.consumer import Consumer
from streamrt.kafka.group_protocol import MEMBER_DEFAULTS
from streamrt.kafka.membership.group_state import advice_for, is_fatal, is_hopeless, streamrt_error

__all__ = ["GroupLease"]

_LOGGER = logging.getLogger(__name__)
_POLL_S = 0.1
_ASK_AGAIN_S = 1.0
_LEAVE_S = 5.0
_NEW_TOPIC_S = 10.0
SESSION_TIMEOUT_S = 10.0


class GroupLease:
    """A lease that one process at a time holds. `acquire` waits for it; all methods may be called from any thread.

    Args:
        broker_address: `host:port`, or a `ConnectionConfig`.
        group: name of the consumer group; nothing else may use it.
        topic: name of a topic with one partition. None of its records is read.
        on_end: called when the lease is to be given back or was lost, in the lease's thread, with whether it was lost. It
            ends the work. A lease that is given back passes on when it returns, or when `max.poll.interval.ms` is over (5
            minutes); a lost one has passed on already, or will as soon as brokers are in reach.
        options: options of librdkafka for the membership. `session.timeout.ms` is the time until the lease of a process
            that is gone passes on: 10 s by default.
        logger: logger for events and the lines of librdkafka.

    Example:
        ```python
        with GroupLease("localhost:9092", "shop--leader", "leader", on_end=stop_leading) as lease:
            while not lease.acquire(timeout=1.0):
                print("another process leads")
        ```
    """

    def __init__(
        self,
        broker_address: str | ConnectionConfig,
        group: str,
        topic: str,
        *,
        on_end: Callable[[bool], object],
        options: Mapping[str, Any] | None = None,
        logger: logging.Logger = _LOGGER,
    ) -> None:
        self._group = group
        self._topic = topic
        self._on_end = on_end
        self._logger = logger
        self._log_error = log_error_to(logger)
        # Guards the three attributes that follow it.
        self._changed = threading.Condition()
        self._held = False
        self._error: Exception | None = None
        # Whether the last assignment did not end by giving it back.
        self._lost = False
        # When the lease's thread last ran, and whether it was frozen for so long that the brokers may not have heard of it.
        self._ran_at = math.inf
        self._in_doubt = False
        self._asked_at = -math.inf
        self._stopping = threading.Event()
        self._fatal: KafkaError | None = None
        # The error that the topic is unknown, which is also said of new topics, and when it is believed.
        self._unknown: tuple[KafkaError, float] | None = None
        settings = {**MEMBER_DEFAULTS, "session.timeout.ms": round(SESSION_TIMEOUT_S * 1000), **(options or {})}
        self._session_timeout_s = int(settings["session.timeout.ms"]) / 1000
        self._consumer = Consumer(
            broker_address,
            group,
            "latest",
            auto_commit_enable=False,
            logger=logger,
            error_callback=self._on_client_error,
            # A member that joins must not take the lease from its holder.
            extra_config={**settings, "partition.assignment.strategy": "cooperative-sticky"},
            # Only `confirm` commits.
            on_commit=self._on_commit,
        )
        self._thread = threading.Thread(target=self._hold_lease, name=f"streamrt-lease-{group}", daemon=True)

    @property
    def held(self) -> bool:
        """Whether this process holds the lease, as far as it has heard."""
        return self._held

    def start(self) -> None:
        """Begin to wait for the lease.

        Raises:
            ConfigurationError: if librdkafka refuses the options.
        """
        self._consumer.subscribe(
            [self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )
        self._thread.start()

    def acquire(self, timeout: float) -> bool:
        """Wait for the lease.

        Args:
            timeout: seconds to wait at most.

        Returns:
            Whether this process holds the lease.

        Raises:
            StreamRTError: if it can never hold it, for example because it may not use the group.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._held or self._error is not None, timeout)
            if self._error is not None:
                raise self._error
            return self._held

    def confirm(self) -> bool:
        """Return False once this process has lost the lease. As long as it is given back, no other process has it.

        That takes a fraction of a microsecond, unless this process did not run for longer than the session timeout. Then the
        lease's thread asks the brokers. If they do not answer, what the membership learns within the session timeout decides.
        """
        if time.monotonic() > self._ran_at + self._session_timeout_s:
            self._in_doubt = True
        if self._in_doubt:
            with self._changed:
                self._changed.wait_for(lambda: self._lost or not self._in_doubt, self._session_timeout_s)
                self._in_doubt = False
        return not self._lost

    def _request_lease(self) -> None:
        with contextlib.suppress(KafkaException):
            # The coordinator refuses this for a member that it does not know, or that has missed a rebalance.
            self._consumer.commit(offsets=[ConfluentTopicPartition(self._topic, 0, 0)])

    def _on_commit(self, error: KafkaError | None, partitions: list[ConfluentTopicPartition]) -> None:
        error = error or next((partition.error for partition in partitions if partition.error is not None), None)
        if error is not None:
            self._logger.debug("Group %s: the lease is not confirmed: %s", self._group, error)
            return
        if time.monotonic() > self._asked_at + self._session_timeout_s:
            # The process was frozen before it could read this answer.
            return
        with self._changed:
            self._in_doubt = False
            self._changed.notify_all()

    def close(self) -> None:
        """Give the lease back, and end. A lease that was not started, or is closed, may be closed."""
        self._stopping.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # The thread of the lease. Rebalance callbacks run inside poll() and close().

    def _hold_lease(self) -> None:
        try:
            while not self._stopping.is_set() and self._error is None:
                message = self._consumer.poll(_POLL_S)
                now = time.monotonic()
                if now > self._ran_at + self._session_timeout_s:
                    self._in_doubt = True
                self._ran_at = now
                if self._in_doubt and now > self._asked_at + _ASK_AGAIN_S:
                    self._asked_at = now
                    self._request_lease()
                error = self._fatal or (message.error() if message is not None else None)
                if error is not None:
                    self._handle_error(error)
                if self._unknown is not None and time.monotonic() >= self._unknown[1]:
                    self._store_failure(
                        request_error(f"topic {self._topic}, which decides on who runs", self._unknown[0])
                    )
        except Exception as error:  # noqa: BLE001 - the caller that waits is told
            self._store_failure(streamrt_error(error))
        # librdkafka waits for brokers that are away.
        closing = threading.Thread(target=self._close_consumer, name=f"{self._thread.name}-close", daemon=True)
        closing.start()
        closing.join(_LEAVE_S)
        self._set_state(held=False, lost=self._lost)

    def _close_consumer(self) -> None:
        with contextlib.suppress(KafkaException, RuntimeError):
            self._consumer.close()

    def _handle_error(self, error: KafkaError) -> None:
        if is_hopeless(error):
            advice = advice_for(error)
            what = f"the group {self._group}, which decides on who runs, refused" + (f" ({advice})" if advice else "")
            self._store_failure(request_error(what, error))
        elif error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
            self._unknown = self._unknown or (error, time.monotonic() + _NEW_TOPIC_S)
        elif error.code() == KafkaError._MAX_POLL_EXCEEDED:
            self._logger.warning("Group %s: the end of the work took longer than max.poll.interval.ms", self._group)
        else:
            self._log_error(error)

    def _on_client_error(self, error: KafkaError) -> None:
        if is_fatal(error):
            self._fatal = error
        self._log_error(error)

    def _on_assign(self, consumer: ConfluentConsumer, partitions: list[ConfluentTopicPartition]) -> None:
        self._unknown = None
        # Without this, librdkafka would fetch the records.
        consumer.incremental_assign(partitions)
        consumer.pause(partitions)
        if any(partition.partition == 0 for partition in partitions):
            self._set_state(held=True, lost=False)

    def _on_revoke(self, consumer: ConfluentConsumer, partitions: list[ConfluentTopicPartition]) -> None:
        self._end_lease(consumer, partitions, lost=False)

    def _on_lost(self, consumer: ConfluentConsumer, partitions: list[ConfluentTopicPartition]) -> None:
        if self._held:
            self._logger.warning("Group %s: the lease is lost, since the brokers have not heard of it", self._group)
        self._end_lease(consumer, partitions, lost=self._held)

    def _end_lease(self, consumer: ConfluentConsumer, partitions: list[ConfluentTopicPartition], *, lost: bool) -> None:
        held = self._held
        self._set_state(held=False, lost=lost)
        # The work may take its time to end, and this thread waits for it.
        self._ran_at = math.inf
        try:
            if held:
                self._on_end(lost)
        except Exception as error:  # noqa: BLE001 - the lease must pass on
            self._store_failure(streamrt_error(error))
        consumer.incremental_unassign(partitions)

    def _store_failure(self, error: Exception) -> None:
        held = self._held
        # This thread ends: it could answer no question.
        self._ran_at = math.inf
        with self._changed:
            self._error, self._held = error, False
            self._changed.notify_all()
        if held:
            self._on_end(False)

    def _set_state(self, *, held: bool, lost: bool) -> None:
        with self._changed:
            self._held, self._lost = held, lost
            self._changed.notify_all()
