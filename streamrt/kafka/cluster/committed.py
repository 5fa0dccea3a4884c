"""Committed offsets of consumer groups, read by consumers that do not join the groups.

An admin client can also read them. But the admin client of librdkafka 2.16 ends the whole process, by SIGSEGV or
SIGABRT, if the group's coordinator goes away or moves during the request, as it does when a broker restarts.
"""

import contextlib
import threading
import time
import weakref
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as ConfluentTopicPartition

from streamrt.forks import ForkGuard, in_this_process
from streamrt.kafka.client import (
    ErrorCallback,
    OffsetMetadata,
    build_client,
    commit_and_wait,
    error_in,
    is_connection_error,
    is_retriable,
    request_error,
)
from streamrt.kafka.cluster.requests import retry, seconds_left
from streamrt.records import TopicPartition

__all__ = ["UNSTABLE_OFFSETS", "CommittedOffset", "GroupOffsets", "commit_offsets"]

UNSTABLE_OFFSETS: int = KafkaError.UNSTABLE_OFFSET_COMMIT
"""Code of the error for offsets that an open transaction is about to move."""

_OPEN_TRANSACTION = (
    "they are unstable, as a transaction that may move them is open; if it stays open for longer than its "
    "transaction.timeout.ms, find it with kafka-transactions.sh find-hanging, and abort it"
)
_KEPT = 4
"""Maximum number of idle clients. Each has threads and a connection to the group's coordinator."""
_IDLE_S = 60.0
"""Seconds for which idle clients are kept. While brokers are away, they reconnect and collect log lines and errors."""
_COORDINATOR_S = 3.0
_FIRST_S = 0.5
_OPTIONS = {
    "enable.auto.commit": False,
    # Delay before librdkafka asks again for an offset that a transaction is about to move; by default 100 ms up to 1 s.
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 100,
}


@dataclass(frozen=True)
class CommittedOffset:
    """The committed offset of a consumer group for a partition.

    Attributes:
        offset: the next offset to read; None if nothing is committed.
        metadata: the text stored with it; empty if there is none.
    """

    offset: int | None
    metadata: str = ""


@dataclass
class _Asker:
    """A client that reads the offsets of one group, stable ones or not."""

    group: str
    stable: bool
    client: ConfluentConsumer
    epoch: int
    content: threading.Event
    """Set while lost connections do not matter: the client has its answer, or will not be used again."""
    unanswered_s: float = 0.0
    """Seconds that it has waited since the last answer."""
    used_at: float = 0.0
    refused: KafkaError | None = None
    """Reason why the brokers refuse to name the group's coordinator; librdkafka reports it only once."""


class GroupOffsets:
    """Read the committed offsets of consumer groups.

    Clients are created on first use and kept: one for each group, and more if several threads read at once, so that no
    thread waits for another. They never subscribe, so they are not group members and send no heartbeats. They are closed
    after a minute without use, together with this object, or at the latest when Python exits.

    Args:
        options: connection options, named as in librdkafka. Their callbacks must not refer to the owner of this object,
            because they would keep it alive until Python exits.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = {**options, **_OPTIONS}
        self._epoch = 0
        self._begin_without_clients()

    def _begin_without_clients(self) -> None:
        """Forget the clients of the parent process, if there is one."""
        self._fork_guard = ForkGuard()
        self._lock = threading.Lock()
        self._idle: list[_Asker] = []  # the most recently used client is last
        self._timer: threading.Timer | None = None
        weakref.finalize(self, in_this_process(_close_all), self._idle)

    def read(
        self, group: str, partitions: Collection[TopicPartition], require_stable: bool, deadline: float
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offsets of a group.

        Args:
            group: name of the group.
            partitions: the partitions to look up.
            require_stable: whether to wait while a transaction is about to move an offset.
            deadline: value of `time.monotonic()`.

        Raises:
            KafkaRequestError: if the offsets could not be read in time.
        """
        if not partitions:
            return {}
        if not self._fork_guard.is_own:
            self._begin_without_clients()
        wait_s = _FIRST_S / 2
        held = False

        def ask() -> dict[TopicPartition, CommittedOffset]:
            nonlocal wait_s, held
            wait_s = min(2 * wait_s, _COORDINATOR_S)
            left_s = seconds_left(deadline)
            if not require_stable:
                return self._request_committed(group, partitions, False, min(wait_s, left_s))
            try:
                # Leave time to find the reason for a missing answer.
                return self._request_committed(group, partitions, True, min(wait_s, left_s if held else left_s / 2))
            except KafkaException as error:
                if error_in(error).code() != KafkaError._TIMED_OUT:
                    raise
            # librdkafka does not distinguish an offset that is about to move from an unavailable coordinator. If the
            # coordinator returns the previous offsets, it is available; a client may have to connect first.
            self._request_committed(group, partitions, False, min(wait_s, max(_FIRST_S, seconds_left(deadline))))
            held = True
            raise KafkaException(KafkaError(UNSTABLE_OFFSETS, _OPEN_TRANSACTION))

        return retry(f"the offsets of group {group} could not be read", ask, deadline)

    def close(self) -> None:
        """Close the idle clients; busy ones are closed after their request. A later request connects again."""
        if not self._fork_guard.is_own:
            return
        with self._lock:
            self._epoch += 1
            idle = self._idle.copy()
            self._idle.clear()
            timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        _close_all(idle)

    def close_unused(self, before: float) -> None:
        """Close the clients without recent use, and check again later if others remain.

        Args:
            before: value of `time.monotonic()`; clients that were last used then or earlier are closed.
        """
        with self._lock:
            unused = [asker for asker in self._idle if asker.used_at <= before]
            # In place, because the finalizer holds this list.
            self._idle[:] = [asker for asker in self._idle if asker.used_at > before]
            self._timer = None
            self._look_later()
        _close_all(unused)

    def _look_later(self) -> None:
        """Start the timer if it is needed and not running; the caller holds the lock."""
        if not self._idle or self._timer is not None:
            return
        this = weakref.ref(self)  # the timer must not keep this object alive

        def look() -> None:
            owner = this()
            if owner is not None:
                owner.close_unused(time.monotonic() - _IDLE_S)

        timer = threading.Timer(_IDLE_S, look)
        timer.name = "streamrt-unused-clients"
        timer.daemon = True
        with contextlib.suppress(RuntimeError):  # Python is exiting and starts no more threads
            timer.start()
            self._timer = timer

    def _request_committed(
        self, group: str, partitions: Collection[TopicPartition], stable: bool, timeout_s: float
    ) -> dict[TopicPartition, CommittedOffset]:
        found = dict.fromkeys(partitions, CommittedOffset(None))
        wanted = [ConfluentTopicPartition(partition.topic, partition.partition) for partition in found]
        asker = self._acquire_asker(group, stable)
        try:
            entries = _call_committed(asker, wanted, timeout_s)
        finally:
            self._give_back(asker)
        for entry in entries:
            if entry.error is not None:
                raise KafkaException(entry.error)
            if entry.offset >= 0:
                partition = TopicPartition(entry.topic, entry.partition)
                found[partition] = CommittedOffset(entry.offset, entry.metadata or "")
        return found

    def _acquire_asker(self, group: str, stable: bool) -> _Asker:
        with self._lock:
            for index in reversed(range(len(self._idle))):
                if (self._idle[index].group, self._idle[index].stable) == (group, stable):
                    return self._idle.pop(index)
            epoch = self._epoch
        content = threading.Event()
        options = {
            **self._options,
            "group.id": group,
            "isolation.level": "read_committed" if stable else "read_uncommitted",
        }
        if "error_cb" in options:
            options["error_cb"] = _log_unless(content, options["error_cb"])
        return _Asker(group, stable, build_client(ConfluentConsumer, options), epoch, content)

    def _give_back(self, asker: _Asker) -> None:
        asker.used_at = time.monotonic()
        # After a restart of its only broker, a client may wait for the group's coordinator forever.
        useless = asker.refused is not None or asker.unanswered_s >= _COORDINATOR_S
        with self._lock:
            spare = [asker]
            if not useless and asker.epoch == self._epoch:
                self._idle.append(asker)
                spare = [self._idle.pop(0)] if len(self._idle) > _KEPT else []
                self._look_later()
        _close_all(spare)


def commit_offsets(
    options: Mapping[str, Any], group: str, offsets: Mapping[TopicPartition, int], metadata: OffsetMetadata
) -> None:
    """Commit offsets of a group that has no members.

    Args:
        options: connection options, named as in librdkafka.
        group: name of the group.
        offsets: the next offset to read of each partition.
        metadata: text to store with each offset, or one for each partition.

    Raises:
        KafkaRequestError: if the offsets are refused.
    """
    client = build_client(ConfluentConsumer, {**options, "group.id": group, "enable.auto.commit": False})
    try:
        error = commit_and_wait(client.commit, offsets, metadata)
    finally:
        client.close()
    if error is not None:
        raise request_error(f"the offsets of group {group} could not be set", error)


def _call_committed(
    asker: _Asker, wanted: list[ConfluentTopicPartition], timeout_s: float
) -> list[ConfluentTopicPartition]:
    """Return the answer of the group's coordinator.

    Raises:
        KafkaException: if the coordinator refused, or did not answer in time.
    """
    started = time.monotonic()
    try:
        entries: list[ConfluentTopicPartition] = asker.client.committed(wanted, timeout_s)
    except KafkaException as error:
        _serve_callbacks(asker)
        code = error_in(error).code()
        if code != KafkaError._TIMED_OUT:
            # Drop confluent-kafka's text: the caller describes the failed request.
            raise KafkaException(KafkaError(code)) from None
        asker.unanswered_s += time.monotonic() - started
        reason = asker.refused or KafkaError(code, "the group's coordinator did not answer in time")
        raise KafkaException(reason) from None
    # Errors that it has collected since the previous request are outdated.
    asker.content.set()
    _serve_callbacks(asker)
    asker.content.clear()
    asker.unanswered_s = 0.0
    return entries


def _serve_callbacks(asker: _Asker) -> None:
    """Make a client call its log and error callbacks, which only `poll` does, and note refusals."""
    while (event := asker.client.poll(0)) is not None:
        error = event.error()
        if error is not None and not is_retriable(error):
            asker.refused = KafkaError(error.code())


def _log_unless(content: threading.Event, log_error: ErrorCallback) -> ErrorCallback:
    """Return an error callback that ignores connection errors while an event is set."""

    def on_error(error: KafkaError) -> None:
        if not (content.is_set() and is_connection_error(error)):
            log_error(error)

    return on_error


def _close_all(askers: list[_Asker]) -> None:
    while askers:
        asker = askers.pop()
        asker.content.set()
        asker.client.close()
