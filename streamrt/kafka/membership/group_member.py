"""Membership in a consumer group, by a consumer that owns partitions and commits offsets, but reads no records.

`streamrt.kafka.membership.group_state` draws the life cycle of a member. Its thread works as follows:

- Only the member's thread uses the consumer. Commits of other threads wait in a queue: confluent-kafka 2.16 admits one
  thread at a time to a consumer, so a call during a running poll() is served late or never.
- Between polls, a commit is sent asynchronously, and a later poll() delivers its answer. librdkafka's synchronous
  commit takes no timeout; if a broker is away, it lasts for a whole session.
- `on_revoke` runs in a separate thread, while the member's thread stays inside poll() and continues to serve commits.
  Threads that drain for `on_revoke` can thus commit. Inside poll() no answers are delivered, so the synchronous commit
  is used.
- Partitions are given back only when no commit is in flight.

With `group.protocol=consumer` (KIP-848), callbacks get only the partitions that move. After each of them the member has a
new generation, and keeps the others; see `streamrt.kafka.group_protocol`.
"""

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ConfluentTopicPartition
from typing_extensions import Self

from streamrt.common.backoff import Backoff
from streamrt.errors import InvalidOperationError, KafkaBrokerUnavailableError
from streamrt.kafka.client import (
    KafkaRequestError,
    OffsetMetadata,
    commit_and_wait,
    error_in,
    is_retriable,
    log_error_to,
    offsets_of,
    partition_offsets,
    partitions_of,
    request_error,
)
from streamrt.kafka.cluster.topic_ids import DOUBTFUL
from streamrt.kafka.connection import ConnectionConfig, as_connection
from streamrt.kafka.consumer import Consumer
from streamrt.kafka.group_protocol import is_incremental, membership_options
from streamrt.kafka.membership.group_state import (
    CommitRequest,
    GroupAssignment,
    GroupFencedError,
    GroupPlace,
    GroupState,
    advice_for,
    is_fatal,
    is_fenced,
    is_hopeless,
    is_same_instance,
    is_unreleased,
    names_of,
    streamrt_error,
)
from streamrt.records import TopicPartition

__all__ = ["GroupMember"]

RevokeCallback = Callable[[frozenset[TopicPartition]], None]

_LOGGER = logging.getLogger(__name__)
# The member hears of the group's next generation with its next heartbeat, if it still owns the partitions.
_PASSING = frozenset({KafkaError.REBALANCE_IN_PROGRESS, KafkaError.STALE_MEMBER_EPOCH})
_RETRY_S = 0.1
_SERVE_S = 0.05
_PROBE_S = 1.0
_LEAVE_S = 5.0
_UNRELEASED_S = 60.0
_JOIN_AGAIN_S = 2.0
_LONG_WAIT_S = 60.0
"""Between two warnings of a member that has no assignment."""
# Some heartbeats, in which other members give back what this one is to have.
_EMPTY_S = 2.0
_EAGER_S = 0.1
_EAGER_POLL_S = 0.002
_JOIN_POLL_S = 0.01
# Between two polls of a member that commits nothing: it hears of a rebalance that much later, and takes less of a processor.
_IDLE_POLL_S = 0.25
_IDLE_AFTER_S = 1.0


class GroupMember:
    """A member of a consumer group that owns partitions and commits their offsets, but reads no records.

    Args:
        broker_address: `host:port`, or a `ConnectionConfig`.
        group: name of the group.
        topics: names of the topics to share with the other members.
        member_options: options of librdkafka for the membership, such as `session.timeout.ms` or `group.protocol`.
        group_instance_id: id of a static member; None for a dynamic one. A process that starts with the id of a dead
            process takes over its partitions at once; with `group.protocol=consumer` when the session of the dead one is
            over. After a close, the partitions are kept until the session times out.
        poll_timeout: seconds between two polls, at most 0.05; a rebalance is noticed after this time, and after 0.25 s by a
            member that has committed nothing for a second.
        on_revoke: function of the partitions, called in a separate thread before they are given back. It may block up
            to `max.poll.interval.ms`, and may call `commit`. It is not called for an empty assignment.
        on_lost: function of the partitions, called in the member's thread after they were lost and can no longer be
            committed. When it returns, the member joins again unless it was closed: a static member that was frozen may
            have a successor.
        broker_availability_timeout: seconds without any broker after which the member fails; 0 for never.
        logger: logger for events and the lines of librdkafka.

    Example:
        >>> member = GroupMember(
        ...     "localhost:9092", "shop", ["orders"], on_revoke=lambda partitions: None
        ... )
        >>> member.state, member.generation
        (<GroupState.NEW: 'new'>, 0)
        >>> member.close()
    """

    def __init__(
        self,
        broker_address: str | ConnectionConfig,
        group: str,
        topics: Iterable[str],
        *,
        member_options: Mapping[str, Any] | None = None,
        group_instance_id: str | None = None,
        poll_timeout: float = 1.0,
        on_revoke: RevokeCallback,
        on_lost: RevokeCallback | None = None,
        broker_availability_timeout: float = 120.0,
        logger: logging.Logger = _LOGGER,
    ) -> None:
        self._address = as_connection(broker_address).bootstrap_servers
        self._group = group
        self._topics = list(topics)
        # Commits wait for the end of a poll.
        self._poll_timeout = min(poll_timeout, _SERVE_S)
        # None wakes the member's thread.
        self._requests: queue.SimpleQueue[CommitRequest | None] = queue.SimpleQueue()
        self._on_revoke = on_revoke
        self._on_lost = on_lost
        self._patience_s = broker_availability_timeout
        self._logger = logger
        self._log_error = log_error_to(logger)
        self._incremental = is_incremental(member_options or {})
        # Tasks that join topics need the same partition number of each; this assignor provides it.
        options = membership_options(member_options or {}, "range")
        if group_instance_id is not None:
            options["group.instance.id"] = group_instance_id

        def connect() -> Consumer:
            return Consumer(
                broker_address,
                group,
                "latest",
                auto_commit_enable=False,
                logger=logger,
                error_callback=self._on_client_error,
                on_commit=self._on_committed,
                extra_config=options,
            )

        self._connect = connect
        self._consumer = connect()
        self._thread = threading.Thread(target=self._run_member, name=f"streamrt-group-{group}", daemon=True)
        self._teller: threading.Thread | None = None
        self._stopping = threading.Event()
        self._joins_again = threading.Event()
        # Guards the following attributes. It is never held while a callback or a request runs.
        self._changed = threading.Condition()
        self._state = GroupState.NEW
        self._assigned: frozenset[TopicPartition] = frozenset()
        self._generation = 0
        self._unbroken = False
        self._held: dict[TopicPartition, int] = {}
        self._commits = 0
        self._error: Exception | None = None
        # Used only in the member's thread.
        self._fatal: KafkaError | None = None
        self._timed_out = False
        self._unreleased_since: float | None = None
        self._joined_at: float | None = None
        self._place: GroupPlace | None = None
        self._sent: CommitRequest | None = None
        self._sent_at = 0.0
        self._waits_since: float | None = None
        self._warns_at = 0.0
        self._away_since: float | None = None
        self._lost: frozenset[TopicPartition] | None = None

    @property
    def state(self) -> GroupState:
        """Life-cycle state of the member."""
        return self._state

    @property
    def generation(self) -> int:
        """Number of the current or last assignment; each new assignment adds 1."""
        return self._generation

    @property
    def error(self) -> Exception | None:
        """The error that made the member fail, or None."""
        return self._error

    @property
    def away(self) -> bool:
        """Whether no broker answers at the moment."""
        return self._away_since is not None

    @property
    def waits_for_id(self) -> bool:
        """Whether another member, which may be dead, has the static id of this one; with `group.protocol=consumer`."""
        return self._unreleased_since is not None

    def start(self) -> None:
        """Join the group.

        Raises:
            ConfigurationError: if librdkafka refuses the options.
            InvalidOperationError: if the member was started before.
        """
        self._move_to(GroupState.JOINING)
        try:
            self._subscribe_topics()
        except BaseException:
            self._move_to(GroupState.CLOSED)
            raise
        self._thread.start()

    def join_again(self) -> None:
        """Have the group divide its partitions among all of its members now, for any thread.

        A member hears of others that have joined with its next heartbeat. One that is told of them need not wait for that.
        """
        self._joins_again.set()
        self._requests.put(None)

    def assignment(self, timeout: float) -> frozenset[TopicPartition] | None:
        """Return the partitions of `current_assignment`, or None.

        Args:
            timeout: seconds to wait for an assignment.

        Raises:
            StreamRTError: the error that made the member fail.
        """
        current = self.current_assignment(timeout)
        return None if current is None else current.partitions

    def current_assignment(self, timeout: float) -> GroupAssignment | None:
        """Return the partitions that the member owns, with their generation.

        Args:
            timeout: seconds to wait for an assignment.

        Returns:
            The assignment, without partitions if the group has more members than partitions; or None after the timeout or
            once the member is closed.

        Raises:
            StreamRTError: the error that made the member fail.
        """
        done = (GroupState.ASSIGNED, GroupState.FAILED, GroupState.CLOSED)
        with self._changed:
            self._changed.wait_for(lambda: self._state in done, timeout)
            if self._error is not None:
                raise self._error
            if self._state is not GroupState.ASSIGNED:
                return None
            member = None if self._place is None else self._place.member
            return GroupAssignment(self._generation, self._assigned, self._unbroken, member, dict(self._held))

    def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        generation: int | None = None,
        timeout: float = 30.0,
        metadata: OffsetMetadata = None,
    ) -> None:
        """Commit offsets of partitions that the member owns, and wait for the group's answer.

        It may be called from any thread, including from inside `on_revoke`. Transient errors are retried, except those after
        which a topic may be another one of the same name (`DOUBTFUL` in `streamrt.kafka.cluster.topic_ids`).

        Args:
            offsets: the next offset to read of each partition.
            generation: the generation in which the records were processed; refused if it is not the current
                one.
            timeout: seconds to wait for the group's answer. While partitions are given back, the loss of a broker can
                extend it to `session.timeout.ms`.
            metadata: text to store with each offset, or one for each partition; brokers allow 4096 bytes by default.

        Raises:
            GroupFencedError: if the member no longer owns a partition. Its new owner starts at the last committed
                offset and processes the records since then again.
            KafkaRequestError: if the offsets could not be committed for another reason.
        """
        if not offsets:
            return
        with self._changed:
            generation = self._generation if generation is None else generation
            self._check_owned(offsets, generation)
            self._commits += 1
        try:
            self._commit_until(offsets, generation, time.monotonic() + timeout, metadata)
        finally:
            with self._changed:
                self._commits -= 1
                self._changed.notify_all()

    def close(self, timeout: float | None = None) -> None:
        """Give the partitions back, which calls `on_revoke`, and end. A second call does nothing.

        A dynamic member leaves the group; a static one stays in it until its session times out.

        Args:
            timeout: seconds to wait for the end; None for no limit.
        """
        self._stopping.set()
        self._requests.put(None)
        if self._thread.is_alive():
            # Inside a callback, only set the flag, because the member's thread waits for the callback.
            if threading.current_thread() not in (self._thread, self._teller):
                self._thread.join(timeout)
        elif self._state is GroupState.NEW:
            self._move_to(GroupState.CLOSED)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # The member's thread. Rebalance callbacks and the error callback run inside poll() and close().

    def _run_member(self) -> None:
        try:
            while not self._stopping.is_set() and self._state is not GroupState.FAILED:
                self._rejoin_group()
                self._send_next()
                self._handle_polled(self._consumer.poll(self._pause_fetching()))
                self._see_empty_assignment()
                self._warn_of_long_wait()
                self._go_on()
                self._expire_commits()
                self._probe_brokers()
        except Exception as error:  # noqa: BLE001 - the runner must be notified of any error
            self._store_failure(streamrt_error(error))
        self._leave_group()
        self._drop_partitions(GroupState.CLOSED)

    def _subscribe_topics(self) -> None:
        self._consumer.subscribe(self._topics, on_assign=self._on_assign, on_revoke=self._revoke, on_lost=self._lose)

    def _rejoin_group(self) -> None:
        """Join again if that was requested; with the protocol `classic`, a member that joins is part of what it waits for."""
        if not self._joins_again.is_set():
            return
        self._joins_again.clear()
        joining = self._incremental and self._state is GroupState.JOINING
        if self._fatal is None and (joining or self._state is GroupState.ASSIGNED):
            # Sends a request to the group at once, and keeps the membership.
            self._subscribe_topics()

    def _see_empty_assignment(self) -> None:
        """With the protocol `consumer`, notice that the group has no partitions for this member: no callback says so."""
        waits = self._state is GroupState.JOINING and self._lost is None and not self._stopping.is_set()
        place = (
            GroupPlace.of_metadata(bytes(self._consumer.consumer_group_metadata()))
            if self._incremental and waits
            else None
        )
        if place is None or place.generation <= 0:
            self._joined_at = None
            return
        now = time.monotonic()
        self._joined_at = self._joined_at or now
        if now - self._joined_at >= _EMPTY_S:
            self._place = place
            self._begin_generation(frozenset(), frozenset())

    def _warn_of_long_wait(self) -> None:
        now = time.monotonic()
        if self._state is not GroupState.JOINING:
            self._waits_since = None
        elif self._waits_since is None:
            self._waits_since, self._warns_at = now, now + _LONG_WAIT_S
        elif now >= self._warns_at:
            self._warns_at = now + _LONG_WAIT_S
            self._logger.warning(
                "Group %s: no partitions were assigned to this member for %.0f s; another member may still work on those "
                "that it has to give back",
                self._group,
                now - self._waits_since,
            )

    def _begin_generation(self, added: frozenset[TopicPartition], revoked: frozenset[TopicPartition]) -> None:
        """Begin a generation, with the protocol `consumer`: what the member has but for what moves."""
        with self._changed:
            self._generation += 1
            kept = {each: since for each, since in self._held.items() if each not in revoked}
            self._held = {**kept, **dict.fromkeys(added, self._generation)}
            self._assigned = frozenset(self._held)
            self._enter_state(GroupState.ASSIGNED)

    def _go_on(self) -> None:
        """Report a loss, and join again unless closed in the meantime."""
        lost, self._lost = self._lost, None
        if lost:
            self._tell_lost(lost)
        if lost is not None and self._error is None and not self._stopping.is_set():
            try:
                self._subscribe_topics()
            except KafkaException as error:
                if error_in(error).code() != KafkaError._FATAL:
                    raise
                # The client was refused since the last poll; the next one has the reason, and may replace it.
                self._lost = frozenset()

    def _leave_group(self) -> None:
        """Close the consumer, which gives the partitions back; do not wait for an unavailable broker."""
        closed = threading.Event()

        def close() -> None:
            try:
                self._consumer.close()
            except Exception as error:  # noqa: BLE001 - no caller is left to handle it
                self._logger.warning("Group %s: the member could not leave the group cleanly: %s", self._group, error)
            closed.set()

        threading.Thread(target=close, name=f"{self._thread.name}-close", daemon=True).start()
        deadline: float | None = None
        while not closed.wait(_SERVE_S):
            if self._state.owns and self._assigned:
                # No time limit for on_revoke.
                continue
            deadline = deadline or time.monotonic() + _LEAVE_S
            if time.monotonic() >= deadline:
                self._logger.warning("Group %s: no broker confirmed that the member left the group", self._group)
                return

    def _send_next(self) -> None:
        """Send the next requested commit; if there is none, wait for the time between two polls."""
        if self._sent is not None or self._state is GroupState.JOINING:
            return
        # Wait here and not in poll(), which a commit could not wake.
        now = time.monotonic()
        idle = now - self._sent_at >= _IDLE_AFTER_S and self._state is GroupState.ASSIGNED
        request = self._next_request(_IDLE_POLL_S if idle else self._poll_timeout)
        if request is None:
            return
        self._sent, self._sent_at = request, time.monotonic()
        request.sent_at = self._sent_at
        try:
            self._consumer.commit(offsets=partition_offsets(request.offsets, request.metadata), asynchronous=True)
        except KafkaException as error:
            self._finish_sent(error_in(error))

    def _pause_fetching(self) -> float:
        if self._sent is None:
            # There is nothing to commit before there are partitions, so poll() can wait for them.
            return _JOIN_POLL_S if self._state is GroupState.JOINING else 0.0
        return _EAGER_POLL_S if time.monotonic() - self._sent.sent_at < _EAGER_S else self._poll_timeout

    def _on_committed(self, error: KafkaError | None, entries: list[ConfluentTopicPartition]) -> None:
        """Handle the answer to a commit; called by poll()."""
        # The answer to an abandoned commit may arrive while the next one is in flight.
        if self._sent is None or self._sent.offsets != offsets_of(entries):
            return
        self._finish_sent(error or next((entry.error for entry in entries if entry.error is not None), None))

    def _finish_sent(self, error: KafkaError | None) -> None:
        if self._sent is not None:
            self._sent.finish(error)
        self._sent = None

    def _expire_commits(self) -> None:
        if self._sent is not None and time.monotonic() >= self._sent.deadline:
            self._finish_sent(KafkaError(KafkaError._TIMED_OUT, "no answer in time"))

    def _handle_polled(self, message: Message | None) -> None:
        """Handle the result of poll(): nothing, an error, or a record fetched before its partition was paused."""
        error = self._fatal or (message.error() if message is not None else None)
        if error is None:
            return
        if self._waits_for_release(error) or self._rejoins_after_timeout(error):
            return
        if is_hopeless(error):
            advice = advice_for(error)
            what = f"the membership in group {self._group} ended" + (f" ({advice})" if advice else "")
            self._store_failure(request_error(what, error))
        elif error.code() == KafkaError._MAX_POLL_EXCEEDED:
            self._logger.warning("Group %s: revoking partitions took longer than max.poll.interval.ms", self._group)
        else:
            self._log_error(error)

    def _waits_for_release(self, error: KafkaError) -> bool:
        """With the protocol `consumer`, join again while a dead member has the static id; return whether that is so."""
        if not self._incremental or self._state is not GroupState.JOINING or not is_unreleased(error):
            return False
        now = time.monotonic()
        if self._unreleased_since is None:
            self._unreleased_since = now
            self._logger.warning(
                "Group %s: a member that is gone, or that lives, has the group_instance_id of this one; waiting until its "
                "session is over, %.0f s at most",
                self._group,
                _UNRELEASED_S,
            )
        if now - self._unreleased_since > _UNRELEASED_S:
            return False
        self._replace_consumer()
        self._stopping.wait(_JOIN_AGAIN_S)
        if not self._stopping.is_set():
            self._subscribe_topics()
        return True

    def _rejoins_after_timeout(self, error: KafkaError) -> bool:
        """Handle a static member that fenced itself as a loss; return whether that is so.

        When its session times out, librdkafka forgets the member id, and sends heartbeats without it until `_lose` has
        run. Brokers answer those of a static member that another one has its id.
        """
        if self._incremental or not self._timed_out or not is_same_instance(error):
            return False
        if self._state is not GroupState.JOINING:
            self._note_lost()
        self._replace_consumer()
        # The new client joins even where the loss has been reported already, and the old one was joining.
        self._lost = self._lost or frozenset()
        return True

    def _replace_consumer(self) -> None:
        """Connect again: librdkafka makes no further attempt with a client that was refused."""
        with contextlib.suppress(KafkaException, RuntimeError):
            self._consumer.close()
        self._fatal, self._timed_out, self._consumer = None, False, self._connect()

    def _on_client_error(self, error: KafkaError) -> None:
        if is_fatal(error):
            self._fatal = error
            self._timed_out = self._timed_out or GroupPlace.of(self._consumer) is None
            if is_unreleased(error) or (self._timed_out and is_same_instance(error)):
                return
        elif error.code() == KafkaError._ALL_BROKERS_DOWN and self._away_since is None:
            self._away_since = time.monotonic()
        self._log_error(error)

    def _probe_brokers(self) -> None:
        """Check whether brokers are back: librdkafka reports only that they went away."""
        if self._away_since is None:
            return
        try:
            self._consumer.list_topics(self._topics[0], timeout=_PROBE_S)
        except KafkaException as error:
            away_s = time.monotonic() - self._away_since
            if 0 < self._patience_s <= away_s:
                self._store_failure(
                    KafkaBrokerUnavailableError(
                        f"no Kafka broker answered at {self._address} for {away_s:.0f} s "
                        f"({error_in(error).str()}); the membership in group {self._group} ended"
                    )
                )
        else:
            self._away_since = None
            self._logger.info("Group %s: a Kafka broker answers again", self._group)

    def _on_assign(self, consumer: ConfluentConsumer, partitions: list[ConfluentTopicPartition]) -> None:
        if self._state is GroupState.FAILED:
            return
        if self._incremental:
            self._on_added(consumer, partitions)
            return
        consumer.assign(partitions)
        consumer.pause(partitions)
        # After a loss, a commit of the previous generation may still be in flight.
        self._await_commits()
        former, self._place = self._place, GroupPlace.of(consumer)
        with self._changed:
            self._assigned = partitions_of(partitions)
            self._unbroken = self._place is not None and self._place.follows(former)
            self._generation += 1
            self._enter_state(GroupState.ASSIGNED)
        self._logger.info(
            "Group %s, generation %d: assigned %s", self._group, self._generation, names_of(self._assigned)
        )

    def _on_added(self, consumer: ConfluentConsumer, partitions: list[ConfluentTopicPartition]) -> None:
        consumer.incremental_assign(partitions)
        if not partitions and self._state is GroupState.ASSIGNED:
            # Said after each revocation.
            return
        consumer.pause(partitions)
        self._place = GroupPlace.of(consumer)
        self._unreleased_since = None
        added = partitions_of(partitions)
        self._begin_generation(added, frozenset())
        self._logger.info("Group %s, generation %d: added %s", self._group, self._generation, names_of(added))

    def _revoke(self, consumer: ConfluentConsumer, partitions: list[ConfluentTopicPartition]) -> None:
        with self._changed:
            if not self._state.owns:
                # Nothing to give back: the member has failed, or lost the partitions before.
                return
            self._enter_state(GroupState.REVOKING)
            revoked = partitions_of(partitions) if self._incremental else self._assigned
        if self._sent is not None:
            # Its answer would arrive only after the partitions are given back.
            sent, self._sent = self._sent, None
            self._commit_now(sent)
        self._logger.info("Group %s, generation %d: revoking %s", self._group, self._generation, names_of(revoked))
        failures: list[Exception] = []

        def tell() -> None:
            try:
                self._on_revoke(revoked)
            except Exception as error:  # noqa: BLE001 - the partitions must be given back after any error
                failures.append(error)

        if revoked:
            # This thread continues to serve commits of on_revoke, and of the threads that it waits for.
            self._teller = threading.Thread(target=tell, name=f"{self._thread.name}-revoke", daemon=True)
            self._teller.start()
            while self._teller.is_alive():
                self._serve_commit(_SERVE_S)
        self._await_commits()
        if self._incremental:
            # Before the member has a new generation: another one gets the partitions when the brokers hear of this.
            self._begin_generation(frozenset(), revoked)
            consumer.incremental_unassign(partitions)
        else:
            with self._changed:
                self._assigned = frozenset()
                self._enter_state(GroupState.JOINING)
            consumer.unassign()
        for failure in failures:
            self._store_failure(failure)

    def _lose(self, consumer: ConfluentConsumer, partitions: list[ConfluentTopicPartition]) -> None:
        if self._fatal is not None:
            # librdkafka drops the assignment when it is fenced; report the cause, not the loss.
            self._handle_polled(None)
            return
        self._note_lost()
        self._timed_out = GroupPlace.of(consumer) is None
        # Without this, librdkafka would join again on return, even if the member is closed, and a static member would
        # fence its successor. Until then it would send heartbeats without a member id, and a static member would fence
        # itself.
        with contextlib.suppress(KafkaException):
            consumer.unsubscribe()
        if self._incremental:
            consumer.incremental_unassign(partitions)
        else:
            consumer.unassign()

    def _note_lost(self) -> None:
        """Drop the partitions, for `_go_on` to report."""
        self._lost, self._place = self._drop_partitions(GroupState.JOINING), None
        if self._lost:
            self._logger.warning(
                "Group %s, generation %d: lost %s", self._group, self._generation, names_of(self._lost)
            )

    def _store_failure(self, error: Exception) -> None:
        with self._changed:
            if self._error is not None:
                return
            self._error = error
        self._logger.error("Group %s: %s", self._group, error)
        lost = self._drop_partitions(GroupState.FAILED)
        if lost:
            self._tell_lost(lost)

    def _drop_partitions(self, state: GroupState) -> frozenset[TopicPartition]:
        """Enter `state` without partitions; return those that the member owned."""
        with self._changed:
            lost, self._assigned = self._assigned, frozenset()
            self._held = {}
            if self._state is not state:
                self._enter_state(state)
            # Refuse queued commits: on_lost may wait for the threads that wait for them.
            while not self._requests.empty():
                if (request := self._requests.get_nowait()) is not None:
                    request.refuse()
            if self._sent is not None:
                self._sent.refuse()
                self._sent = None
            return lost

    def _tell_lost(self, lost: frozenset[TopicPartition]) -> None:
        try:
            if self._on_lost is not None:
                self._on_lost(lost)
        except Exception as error:  # noqa: BLE001
            self._store_failure(error)

    # Commits; in any thread.

    def _check_owned(self, offsets: Iterable[TopicPartition], generation: int) -> None:
        foreign = [partition for partition in offsets if partition not in self._assigned]
        if not self._owns_since(offsets, generation):
            where = names_of(foreign or offsets)
            raise GroupFencedError(
                f"group {self._group} has reassigned {where} (this member is {self._state.value}, in "
                f"generation {self._generation}; the offsets are of generation {generation}); the offsets were not "
                "committed"
            )

    def _owns_since(self, partitions: Iterable[TopicPartition], generation: int) -> bool:
        """Return whether the member owns the partitions, without a break since a generation."""
        if not self._state.owns or not self._assigned.issuperset(partitions):
            return False
        if not self._incremental:
            return generation == self._generation
        return all(self._held[partition] <= generation for partition in partitions)

    def _commit_until(
        self, offsets: Mapping[TopicPartition, int], generation: int, deadline: float, metadata: OffsetMetadata
    ) -> None:
        backoff = Backoff(_RETRY_S, deadline)
        while True:
            error = self._request_commit(offsets, generation, deadline, metadata)
            if error is None:
                return
            what = f"the offsets of {names_of(offsets)} were not committed to group {self._group}"
            if is_fenced(error):
                raise GroupFencedError(f"{what}: {error.str()} ({error.name()}); another member may own them")
            # A topic of the same name may follow one that is deleted: the caller finds out before the next attempt.
            doubtful = error.code() in DOUBTFUL
            passing = doubtful or is_retriable(error) or error.code() in _PASSING
            if doubtful or not passing or not backoff.pause():
                # A rebalance that lasts is not a reason to give up: the same commit may succeed after it.
                raise KafkaRequestError(f"{what}: {error.str()} ({error.name()})", error.code(), passing)
            with self._changed:
                self._check_owned(offsets, generation)

    def _request_commit(
        self, offsets: Mapping[TopicPartition, int], generation: int, deadline: float, metadata: OffsetMetadata
    ) -> KafkaError | None:
        """Make the member's thread commit once, and wait for the result."""
        request = CommitRequest(offsets, generation, deadline, metadata)
        with self._changed:
            if not self._owns_since(offsets, generation):
                request.refuse()
            else:
                self._requests.put(request)
        while not request.done.wait(_RETRY_S):
            if not self._thread.is_alive() and not request.done.is_set():
                return KafkaError(KafkaError._STATE, "the member is closed")
        return request.error

    # Commits; in the member's thread.

    def _next_request(self, timeout: float) -> CommitRequest | None:
        try:
            request = self._requests.get(timeout=timeout)
        except queue.Empty:
            return None
        if request is None:
            return None
        if not self._owns_since(request.offsets, request.generation):
            request.refuse()
            return None
        return request

    def _serve_commit(self, timeout: float) -> None:
        """Execute the next requested commit, inside a callback."""
        if (request := self._next_request(timeout)) is not None:
            self._commit_now(request)

    def _commit_now(self, request: CommitRequest) -> None:
        # Without a broker, the call would block until the session times out.
        self._probe_brokers()
        if self._away_since is not None:
            request.finish(KafkaError(KafkaError._ALL_BROKERS_DOWN, "no broker answers"))
            return
        request.finish(commit_and_wait(self._consumer.commit, request.offsets, request.metadata))

    def _await_commits(self) -> None:
        """Wait until no commit is in flight, inside a callback."""
        while self._commits:
            self._serve_commit(_SERVE_S)

    # The state.

    def _move_to(self, state: GroupState) -> None:
        with self._changed:
            self._enter_state(state)

    def _enter_state(self, state: GroupState) -> None:
        """Enter a state; the caller holds the lock."""
        if state not in self._state.successors:
            raise InvalidOperationError(
                f"the member of group {self._group} is {self._state.value} and cannot become {state.value}"
            )
        self._state = state
        self._changed.notify_all()
