"""The producer of exactly-once tasks: records and input offsets become visible together, or never.

The life of a writer::

          init()          first record            commit(), abort()
    NEW ---------> READY --------------> OPEN -------------------------> READY
     |               |                   |  |                              ^
     |               |                   |  |                              | never
     |               |                   |  '-- error --> FAILED           |
     |               |                   |                  | abort()      |
     |               |   in doubt, or    v                  v              |
     '---------------+-- close() -----> SPENT <-------------'--------------'

- A transaction begins with the first record, or with a commit that has only offsets.
- FAILED: the transaction cannot be committed any more; only `abort` remains.
- SPENT: a new writer is necessary. This applies after *any* error or lost connection, even if the transaction was
  committed in the end. When a connection is lost, librdkafka automatically repeats the requests on it, and brokers that
  do not know the client by KIP-890 cannot distinguish a late request from one of the *next* transaction, such as its end.
  A new producer has a new epoch, which invalidates late requests of its predecessor.
- librdkafka calls its error callback only where a broker cannot be reached again. That a connection ended, with requests
  on it, is just a line of its log; see `_TransactionLogger`.
- This module never resolves an unknown outcome. To retry, create a new writer. Its `init` waits until the previous
  transaction has ended; then compare the committed offset.
- Fenced: a transaction that exceeds its timeout gets the same error as one whose id another producer has taken.
  `TransactionError.fenced` therefore means "possibly fenced".
"""

import contextlib
import enum
import functools
import hashlib
import logging
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import Producer as ConfluentProducer

from streamrt.common.backoff import Backoff
from streamrt.config import DEFAULT_TRANSACTION_TIMEOUT_S
from streamrt.errors import ConfigurationError, InvalidOperationError, ProducerError, TransactionError
from streamrt.kafka.client import (
    ClientLogger,
    OffsetMetadata,
    build_client,
    client_options,
    error_in,
    is_retriable,
    partition_offsets,
)
from streamrt.kafka.connection import ConnectionConfig
from streamrt.kafka.producer import DeliveryCallback
from streamrt.kafka.wire import client_timestamp
from streamrt.kafka.writing.client_interrupts import keeping_interrupts
from streamrt.kafka.writing.portion import Portion, known_partitions
from streamrt.kafka.writing.record_writer import (
    DEFAULTS,
    FLUSH_PIECE_S,
    lost_record,
    raised_in_callback,
    refused_record,
)
from streamrt.kafka.writing.stuck_calls import StuckCallError, call_within
from streamrt.records import Headers, TopicPartition
from streamrt.records.timestamps import LATEST_TIMESTAMP_MS

__all__ = ["TRANSACTIONAL_ID_PREFIX", "KafkaTransactionalWriter", "WriterState", "transactional_id"]

logger = logging.getLogger("streamrt.kafka")

TRANSACTION_DEFAULTS: Mapping[str, Any] = {
    **DEFAULTS,
    # librdkafka waits for half of it before it connects to a second broker, because the first one is only a bootstrap
    # address. With its default of 100 ms, a new producer takes 56 ms to start, instead of 17 ms.
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 2_000,
    # Brokers ask for a retry while they write the markers of the previous transaction.
    "retry.backoff.ms": 20,
}
_POLL_EVERY = 2_000
_FULL_QUEUE_WAIT_S = 0.1
_FLUSH_S = 1.0
# A retry with another client is faster than a client that lost its coordinator: see `streamrt.kafka.writing.stuck_calls`.
_COMMIT_S = 15.0
_DELIVERY_S = 60.0
_CALL_S = 4.0
# For a client whose connection was lost: a call that hangs is likelier than an answer that takes that long.
_DOUBTFUL_CALL_S = 1.0
_GRACE_S = 1.0
_STUCK = KafkaError(KafkaError._TIMED_OUT, "the client does not respond")
# Clients that hang in a call: see `streamrt.kafka.writing.stuck_calls`.
_abandoned: list[ConfluentProducer] = []
_LEAST_S = 0.1
_RETRY_S = 0.05
_ABORT_S = 10.0
_CLOSE_S = 1.0
_CONTRADICTIONS: Mapping[str, Callable[[Any], bool]] = {
    "transactional.id": lambda value: value not in (None, ""),
    "enable.idempotence": lambda value: str(value).lower() in ("false", "0"),
}
# Errors of a single record: the transaction can continue without it.
_REFUSED = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError._INVALID_ARG,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
    }
)
_FENCED = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
    }
)
_RAISED = frozenset({"TXNERR", "FATAL", "ADDPARTS", "ADDOFFSETS", "TXNOFFSETS"})
_LOST = frozenset({"FAIL", "REQTMOUT"})
# Until then, no request of a transaction is sent.
_CONNECTING = re.compile(r"in state (?:INIT|DOWN|TRY_CONNECT|CONNECT|SSL_HANDSHAKE|AUTH_\w+|APIVERSION_QUERY)\b")
_INFO = 6
"""The syslog level of lines about connections that end."""
_ADVICE = {
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "grant the user WRITE and DESCRIBE on the transactional id",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "grant the user READ on the consumer group",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "grant the user WRITE on the topics",
    KafkaError.OFFSET_METADATA_TOO_LARGE: "raise offset.metadata.max.bytes of the brokers",
    KafkaError.MSG_SIZE_TOO_LARGE: "raise max.message.bytes of the topic, or make the records smaller",
}


class WriterState(enum.Enum):
    """Life-cycle state of a `KafkaTransactionalWriter`; see the diagram of `streamrt.kafka.writing.transactions`."""

    NEW = "new"
    READY = "ready"
    OPEN = "in a transaction"
    FAILED = "in a transaction that failed"
    SPENT = "spent"

    @property
    def successors(self) -> "frozenset[WriterState]":
        """States that may follow this one."""
        return _SUCCESSORS[self]


_SUCCESSORS: Mapping[WriterState, frozenset[WriterState]] = {
    WriterState.NEW: frozenset({WriterState.READY, WriterState.SPENT}),
    WriterState.READY: frozenset({WriterState.OPEN, WriterState.SPENT}),
    WriterState.OPEN: frozenset({WriterState.READY, WriterState.FAILED, WriterState.SPENT}),
    WriterState.FAILED: frozenset({WriterState.SPENT}),
    WriterState.SPENT: frozenset(),
}

_OPEN = WriterState.OPEN


@functools.lru_cache(maxsize=64)
def _group_metadata(group: str) -> object:
    """Return the metadata of a group for a transaction, without a membership check (generation -1)."""
    # The layout is private to librdkafka, so librdkafka creates it. This needs no broker and takes 0.1 ms.
    consumer = ConfluentConsumer({"group.id": group, "log_level": 0})
    try:
        return consumer.consumer_group_metadata()
    finally:
        consumer.close()


class _TransactionLogger(ClientLogger):
    """Log at DEBUG what an exception also reports, and report each connection that ends after it was established.

    Fencing is an ordinary event when a task is reassigned.

    librdkafka logs a connection that ends at level 6 or below, unless the connection was idle; but not if the same error
    has ended the last one, and it has logged that twice within 30 s. So a writer counts all that it hears of.

    Args:
        logger: logger for the lines.
        options: options of the client. The lines that they turn off go to DEBUG.
        on_lost: called for each connection that ends.
    """

    def __init__(self, logger: logging.Logger, options: Mapping[str, Any], on_lost: Callable[[], object]) -> None:
        super().__init__(logger)
        level = str(options.get("log_level", _INFO))
        # As confluent-kafka converts levels of syslog: 3 is an error, and what is below is critical.
        self._least = min(logging.CRITICAL, 10 * (7 - int(level))) if level.isdecimal() else 0
        self._logs_closed = str(options.get("log.connection.close", True)).lower() != "false"
        self._on_lost = on_lost

    def log(self, level: int, pattern: str, *args: object) -> None:
        """Log one line."""
        facility = args[0] if args else ""
        lost = facility in _LOST and not _CONNECTING.search(str(args[-1]))
        if lost:
            self._on_lost()
        if level < self._least or facility in _RAISED or (lost and not self._logs_closed):
            level = logging.DEBUG
        super().log(level, pattern, *args)


class KafkaTransactionalWriter:
    """Produce records in Kafka transactions, each of which also commits input offsets to a consumer group.

    Use a writer in one thread. Its methods raise `TransactionError` as soon as the transaction cannot be committed any
    more; then call `abort`, and create a new writer for the next attempt.

    Args:
        connection: connection to the brokers.
        transactional_id: id under which one producer at a time can commit; see `transactional_id`.
        group: consumer group of the committed offsets. Its membership is not checked.
        options: producer options of the user, named as in librdkafka.
        poll_timeout: seconds to wait for events in each poll of the producer.
        transaction_timeout_s: seconds after which the brokers abort an open transaction, and thus a limit for each
            `commit`; `transaction.timeout.ms` in `options` overrides it.
        reports_deliveries: whether `on_delivery` of `produce` is called not only for records that are not delivered,
            but also for those that are. Each call takes time.

    Raises:
        ConfigurationError: if an option contradicts transactions, or librdkafka refuses the options.

    Example:
        ```python
        writer = TransactionalWriter(
            connection, transactional_id("streamrt", "shop", "orders", 0), "shop"
        )
        writer.init(timeout_s=60, topic="orders")
        writer.produce("totals", b"5", b"customer-1", None, None)
        writer.commit({TopicPartition("orders", 0): 17})
        ```
    """

    def __init__(
        self,
        connection: ConnectionConfig,
        transactional_id: str,
        group: str,
        options: Mapping[str, Any] | None = None,
        poll_timeout: float = 0.0,
        transaction_timeout_s: float = DEFAULT_TRANSACTION_TIMEOUT_S,
        reports_deliveries: bool = False,
    ) -> None:
        for name, contradicts in _CONTRADICTIONS.items():
            if contradicts((options or {}).get(name)):
                raise ConfigurationError(
                    f"the producer option {name}={(options or {})[name]} conflicts with exactly-once processing, which "
                    "sets this option; remove it"
                )
        self._id = transactional_id
        self._group = group
        self._poll_timeout = poll_timeout
        self._state = WriterState.NEW
        self._closed = False
        self._unpolled = 0
        # Since the transaction began: whether any error occurred, undelivered records, and the reason for its failure.
        self._doubtful = False
        self._stuck = False
        self._errors: list[ProducerError] = []
        self._failed: TransactionError | None = None
        # Since creation: the error after which the client refuses all requests.
        self._fatal: KafkaError | None = None
        self._lost_connection = False
        settings = client_options(
            connection,
            options,
            logger,
            self._on_client_error,
            defaults={**TRANSACTION_DEFAULTS, "transaction.timeout.ms": round(transaction_timeout_s * 1000)},
            fixed={
                "transactional.id": transactional_id,
                "delivery.report.only.error": not reports_deliveries,
                "on_delivery": self._on_delivery,
            },
        )
        settings.update(_logging_options(settings, self._note_lost_connection))
        # The client rejects options that are not numbers.
        self._producer = build_client(ConfluentProducer, settings)
        self._timeout_s = float(settings["transaction.timeout.ms"]) / 1000

    @property
    def state(self) -> WriterState:
        """Life-cycle state of the writer."""
        return self._state

    @property
    def usable(self) -> bool:
        """Whether a transaction may continue or begin; if not, a new writer is necessary."""
        return self._state in (WriterState.READY, WriterState.OPEN)

    @property
    def worn_out(self) -> bool:
        """Whether it has committed everything, but a new writer is necessary for the next transaction."""
        return self._state is WriterState.SPENT and self._failed is None and not self._closed

    def init(self, timeout_s: float = 60.0, topic: str | None = None) -> None:
        """Fence every earlier producer with the same id, and abort the transaction that it left open.

        Args:
            timeout_s: seconds to wait. Usually it takes 20 ms, or 0.5 s if there is a transaction to abort.
            topic: an existing topic, such as the input topic. Its look-up establishes a connection first; without one,
                librdkafka often tries too early, and again only after 0.5 s.

        Raises:
            ConfigurationError: if the transaction timeout is above the limit of the brokers.
            InvalidOperationError: if `init` was called before.
            TransactionError: if the request failed.
        """
        self._require_state(WriterState.NEW)
        deadline = time.monotonic() + timeout_s
        # The first answer may come over the connection to the bootstrap address, which is then closed. The second
        # answer proves that a connection to a broker is up.
        for _ in range(0 if topic is None else 2):
            try:
                self._producer.list_topics(topic, timeout=max(_LEAST_S, deadline - time.monotonic()))
            except KafkaException as error:
                logger.debug("Topic %s could not be looked up: %s", topic, error_in(error).str())
                break
        try:
            self._repeat_request(
                f"the transactional id {self._id} could not be acquired", self._producer.init_transactions, deadline
            )
        except TransactionError as error:
            if _code_of_cause(error) == KafkaError.INVALID_TRANSACTION_TIMEOUT:
                raise ConfigurationError(
                    f"the brokers do not allow a transaction timeout of {self._timeout_s:g} s: set "
                    "transaction.timeout.ms in the producer options to at most their transaction.max.timeout.ms"
                ) from None
            raise
        self._move_to(WriterState.READY)

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        timestamp: int | None,
        headers: Headers | None,
        partition: int = -1,
        on_delivery: DeliveryCallback | None = None,
    ) -> None:
        """Add a record to the transaction, and begin one if none is open. If the queue is full, wait.

        A `ProducerError` concerns only this record. The record is not part of the transaction, which is unchanged and
        can be committed without it; the caller decides whether to call `abort` instead. If an accepted record cannot be
        delivered later, the transaction fails.

        Args:
            topic: target topic.
            value: the value; None is a tombstone.
            key: the key.
            timestamp: milliseconds since the Unix epoch; None is the wall clock, and 0 is written as 1.
            headers: the headers.
            partition: the partition; with -1, the key determines it.
            on_delivery: function of the outcome, called by a later method of the writer; see `reports_deliveries`.

        Raises:
            ProducerError: if the record is refused at once, for example because it is too large.
            TransactionError: if the transaction cannot be committed any more.
        """
        # `client_timestamp` inlined for most records.
        usual = timestamp is not None and 0 < timestamp <= LATEST_TIMESTAMP_MS
        stamp = timestamp if usual else client_timestamp(timestamp, topic)
        if self._state is not _OPEN:
            self._begin_transaction()
        # The client calls one function for a record.
        report = None if on_delivery is None else functools.partial(self._report_delivery, on_delivery)
        while True:
            try:
                # Arguments by position take two thirds of the time. The client has two names for the callback, and does
                # not look at the second one if the first one is given, even as None.
                self._producer.produce(topic, value, key, partition, report, None, stamp, headers)
            except BufferError:
                self._poll_events(_FULL_QUEUE_WAIT_S)
            except KafkaException as error:
                reason = error_in(error)
                if reason.code() in _REFUSED:
                    raise refused_record(topic, value, key, reason) from error
                raise self._make_refusal(reason) from (self._errors[0] if self._errors else error)
            else:
                break
        self._unpolled += 1
        if self._unpolled >= _POLL_EVERY:
            self._unpolled = 0
            self._poll_events(self._poll_timeout)

    def produce_all(self, topic: str, portion: Portion) -> None:
        """Add the records of a portion to the transaction in their order; see `produce`.

        Args:
            topic: target topic.
            portion: the records; it is told what becomes of them.

        Raises:
            ProducerError: if a record is refused at once; `portion.accepted` says how many are not.
            TransactionError: if the transaction cannot be committed any more.
        """
        if self._state is not _OPEN:
            self._begin_transaction()
        while portion.accepted < len(portion):
            refused = portion.offer(self._producer, topic, self._on_delivery)
            if refused is not None and refused[1].code() in _REFUSED:
                raise portion.refusal(topic, *refused)
            if refused is not None:
                raise self._make_refusal(refused[1])
            self._poll_events(_FULL_QUEUE_WAIT_S if portion.accepted < len(portion) else self._poll_timeout)

    def partitions(self, topic: str, timeout_s: float) -> int | None:
        """Return how many partitions a topic has now; None if that is not known in time."""
        return known_partitions(self._producer, topic, timeout_s)

    def poll(self, timeout_s: float = 0.0) -> None:
        """Call `on_delivery` of records whose outcome is known.

        Args:
            timeout_s: seconds to wait for one.

        Raises:
            TransactionError: if the transaction cannot be committed any more.
        """
        self._unpolled = 0
        self._poll_events(timeout_s)

    def flush(self) -> list[Exception]:
        """Wait until each record is delivered or has failed, and return the errors since the last flush.

        After an error the transaction cannot be committed. The wait ends, because librdkafka gives up a record at the
        latest when the transaction timeout expires.
        """
        if self._state is not _OPEN:
            return [] if self._failed is None else [self._failed]
        try:
            self._flush_records()
        except TransactionError as error:
            errors: list[Exception] = [*self._errors]
            return errors or [error]
        return []

    def commit(self, offsets: Mapping[TopicPartition, int], metadata: OffsetMetadata = None) -> None:
        """Commit the records of the transaction together with the offsets. Do nothing if there are neither.

        Afterwards the next transaction may begin if `usable` is True.

        Args:
            offsets: the next offset to read of each input partition.
            metadata: text to store with the offsets, or one for each partition; brokers allow 4096 bytes by default.

        Raises:
            TransactionError: if the transaction failed, another producer has taken the id, or the outcome is unknown.
                Its cause is a `ProducerError` if a record could not be delivered.
        """
        if self._state is not _OPEN:
            if not offsets and self._state is WriterState.READY:
                return
            self._begin_transaction()
        # Flush first: offsets that are sent while partitions are still being added wait longer.
        self._flush_records()
        deadline = time.monotonic() + min(self._timeout_s, _COMMIT_S)
        if offsets:
            entries = partition_offsets(offsets, metadata)
            self._repeat_request(
                f"the transaction of {self._id} could not include the offsets of group {self._group!r}",
                functools.partial(self._producer.send_offsets_to_transaction, entries, _group_metadata(self._group)),
                deadline,
            )
        self._repeat_request(
            f"the transaction of {self._id} was not committed", self._producer.commit_transaction, deadline
        )
        # Only now does the client report a connection that was lost during the commit.
        self._serve_callbacks(0.0)
        self._move_to(WriterState.SPENT if self._in_doubt else WriterState.READY)

    def abort(self) -> None:
        """Abort the transaction if one is open; readers of committed records never see its records.

        It never raises, and takes at most 10 s. If it fails, the next writer's `init` aborts the transaction, or the
        brokers do so after the transaction timeout.
        """
        self._abort_transaction(_ABORT_S)

    def close(self) -> None:
        """Abort an open transaction, drop undelivered records, and close the connections. It never raises."""
        if self._closed:
            return
        self._abort_transaction(_CLOSE_S)
        if self._state is not WriterState.SPENT:
            self._move_to(WriterState.SPENT)
        self._closed = True
        if not self._stuck:
            with contextlib.suppress(KafkaException):
                self._producer.purge()
        # The client ends with its last reference.
        del self._producer

    @property
    def _in_doubt(self) -> bool:
        """Whether a request may still arrive."""
        return self._doubtful or self._lost_connection

    def _begin_transaction(self) -> None:
        self._require_state(WriterState.READY)
        # Brokers that cannot be reached between two transactions are harmless.
        self._serve_callbacks(0.0)
        self._doubtful = False
        self._errors.clear()
        self._repeat_request(
            f"a transaction of {self._id} cannot begin", lambda _timeout: self._producer.begin_transaction(), 0.0
        )
        self._move_to(WriterState.OPEN)

    def _flush_records(self) -> None:
        """Wait until all records are delivered.

        Raises:
            TransactionError: if a record was not delivered.
        """
        self._unpolled = 0
        # The client gives up records at the transaction timeout, and then reports the reason.
        deadline = time.monotonic() + min(self._timeout_s + _FLUSH_S, _DELIVERY_S)
        left = 1
        while left and not self._errors and self._fatal is None:
            timeout = min(FLUSH_PIECE_S, deadline - time.monotonic())
            if timeout <= 0:
                reason = KafkaError(KafkaError._TIMED_OUT, f"{left} records are still in flight")
                raise self._note_failure(f"the records of {self._id} were not delivered in time", reason)
            try:
                with keeping_interrupts():
                    left = self._producer.flush(timeout)
            except (KafkaException, SystemError) as error:
                self._note_raised(error)
        self._check_failures()

    def _poll_events(self, timeout: float) -> None:
        """Handle events; raise `TransactionError` if one of them reports a failed transaction."""
        self._serve_callbacks(timeout)
        self._check_failures()

    def _serve_callbacks(self, timeout: float) -> None:
        """Handle events."""
        if self._stuck:
            return
        try:
            self._producer.poll(timeout)
        except (KafkaException, SystemError) as error:
            self._note_raised(error)

    def _check_failures(self) -> None:
        if self._errors or self._fatal is not None:
            failure = self._note_failure(
                f"the transaction of {self._id} failed", self._fatal or KafkaError(KafkaError._FAIL)
            )
            raise failure from (self._errors[0] if self._errors else None)

    def _repeat_request(self, what: str, call: Callable[[float], object], deadline: float) -> None:
        """Repeat a request until it succeeds, fails permanently, or the deadline passes.

        Raises:
            TransactionError: if it did not succeed.
        """
        backoff = Backoff(_RETRY_S, deadline)
        while True:
            if self._stuck:
                raise self._note_failure(what, _STUCK)
            try:
                limit = _DOUBTFUL_CALL_S if self._lost_connection else _CALL_S
                call_within(call, min(limit, max(_LEAST_S, deadline - time.monotonic())), _GRACE_S)
            except StuckCallError:
                # Keep the client: freeing it would also wait for the call.
                self._stuck = True
                _abandoned.append(self._producer)
                raise self._note_failure(what, _STUCK) from None
            except (KafkaException, SystemError) as error:
                self._note_raised(error)
                reason = self._fatal or raised_in_callback(error)
                hopeless = reason.fatal() or reason.txn_requires_abort() or not is_retriable(reason)
                if hopeless or not backoff.pause():
                    self._serve_callbacks(0.0)
                    # The client never lets go of the error of a fatal one, nor the error of the frames that hold the client.
                    error.__traceback__ = None
                    raise self._note_failure(what, reason) from (self._errors[0] if self._errors else error)
            else:
                return

    def _abort_transaction(self, timeout_s: float) -> None:
        if self._state not in (WriterState.OPEN, WriterState.FAILED):
            return
        failed = self._state is WriterState.FAILED
        deadline = time.monotonic() + timeout_s
        if self._fatal is None:
            try:
                self._repeat_request(
                    f"the transaction of {self._id} was not aborted", self._producer.abort_transaction, deadline
                )
            except TransactionError as error:
                failed = True
                logger.debug("%s", error)
        # Dropped records are reported as errors; ignore them.
        self._serve_callbacks(0.0)
        self._errors.clear()
        self._move_to(WriterState.SPENT if failed or self._in_doubt else WriterState.READY)

    def _require_state(self, state: WriterState) -> None:
        if self._state is state:
            return
        if self._failed is not None:
            raise TransactionError(str(self._failed), self._failed.fenced)
        raise InvalidOperationError(
            f"the producer {self._id} is {self._state.value} and not {state.value}: call init once, and create a new "
            "writer when this one is no longer usable"
        )

    def _note_failure(self, what: str, reason: KafkaError) -> TransactionError:
        """Note that the transaction has failed, and return the error with the reason."""
        self._move_to(WriterState.FAILED if self._state in (_OPEN, WriterState.FAILED) else WriterState.SPENT)
        # The answer to a request after the failure is less specific than the cause of the failure.
        reason = self._fatal or reason
        fenced = reason.code() in _FENCED
        if fenced:
            # Errors of dropped records are less specific.
            why = f"another producer has taken its id (fenced), or it exceeded its timeout of {self._timeout_s:g} s"
        elif self._errors:
            why = str(self._errors[0])
        else:
            why = f"{reason.str()} ({reason.name()})"
        advice = None if self._errors else _ADVICE.get(reason.code())
        text = f"{what}: {why}" + (f"; {advice}" if advice else "")
        # Not the one that is raised: its frames keep the client, whose callbacks keep this object.
        self._failed = TransactionError(text, fenced)
        return TransactionError(text, fenced)

    def _make_refusal(self, reason: KafkaError) -> TransactionError:
        # The reason only says that the transaction has failed; an event holds why.
        self._serve_callbacks(0.0)
        return self._note_failure(f"the transaction of {self._id} accepts no records", reason)

    def _note_raised(self, error: KafkaException | SystemError) -> None:
        reason = raised_in_callback(error)
        if reason.code() == KafkaError._FATAL:
            # The reason is lost here, but the client keeps it and reports it for every refused request.
            try:
                self._producer.abort_transaction(_LEAST_S)
            except KafkaException as refusal:
                if error_in(refusal).fatal():
                    reason = error_in(refusal)
        self._note_error(reason)

    def _note_error(self, error: KafkaError) -> None:
        self._doubtful = True
        if error.fatal():
            self._fatal = self._fatal or error

    def _move_to(self, state: WriterState) -> None:
        if state is not self._state and state not in self._state.successors:
            raise InvalidOperationError(
                f"the producer {self._id} is {self._state.value} and cannot become {state.value}"
            )
        self._state = state

    def _report_delivery(self, on_delivery: DeliveryCallback, error: KafkaError | None, message: Message) -> None:
        self._on_delivery(error, message)
        on_delivery(error, message)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._errors.append(lost_record(message, error))

    def _note_lost_connection(self) -> None:
        self._lost_connection = True

    def _on_client_error(self, error: KafkaError) -> None:
        self._note_error(error)
        logger.debug("Producer %s: %s", self._id, error.str())


def _logging_options(options: Mapping[str, Any], on_lost: Callable[[], object]) -> dict[str, Any]:
    """Return the options with which a client logs each connection that ends, whatever the user wants to see."""
    level = str(options.get("log_level", _INFO))
    return {
        # The client refuses a level that is not a number.
        "log_level": max(int(level), _INFO) if level.isdecimal() else level,
        "log.connection.close": True,
        "logger": _TransactionLogger(logger, options, on_lost),
    }


def _code_of_cause(error: BaseException) -> int | None:
    cause = error.__cause__
    return error_in(cause).code() if isinstance(cause, KafkaException) else None


TRANSACTIONAL_ID_PREFIX = "streamrt"
"""Common prefix of the transactional ids of all applications."""

_ID_LENGTH = 240
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


def transactional_id(prefix: str, group: str, topic: str, partition: int) -> str:
    """Return the transactional id of the task of an input partition, stable and unique for each task.

    Letters, digits, "-" and "_" in names are kept and all other characters escaped, so that dots in names cannot give
    two tasks the same id. The prefix is unchanged, for ACLs on prefixes. An id of more than 240 characters is
    truncated, and ends in a hash of the full id.

    Args:
        prefix: common prefix of all ids of the application.
        group: the consumer group.
        topic: the input topic.
        partition: the input partition.

    Example:
        >>> transactional_id("streamrt", "shop", "orders.eu", 3)
        'streamrt.shop.orders~2eeu.3'
    """
    whole = ".".join((prefix, _escape_name(group), _escape_name(topic), str(partition)))
    if len(whole) <= _ID_LENGTH:
        return whole
    digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()
    # No full id ends like this: in a full id, a dot follows the last "~".
    return f"{whole[: _ID_LENGTH - len(digest) - 1]}~{digest}"


def _escape_name(name: str) -> str:
    return "".join(
        char if char in _PLAIN else "".join(f"~{byte:02x}" for byte in char.encode("utf-8", "surrogatepass"))
        for char in name
    )
