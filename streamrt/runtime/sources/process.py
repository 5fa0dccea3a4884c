"""The process of a source: restores its state, runs it, and listens to the application; see `sources.py`.

A source that runs in one instance of the application waits for its lease first. When the lease is to be given back, or is
lost, the source is stopped, and waits for the lease again:

```
          +--- (lease lost, or a transaction failed) ---+
          v                                             |
wait for the lease --> fence, restore --> source.start() --> report --> (hold the lease until the application stops)
```

With the lease, there is one source at a time as far as the brokers know. One that was frozen asks them before it takes
more records. One that is cut off from them notices late; what it produces then is repeated, or, in transactions, refused,
since its successor has fenced it.
"""

import contextlib
import json
import logging
import math
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from streamrt.common.logs import log_context
from streamrt.config import configure_logging
from streamrt.connectors import BaseSource, StatefulSource
from streamrt.connectors.sources.producer import KafkaSourceProducer, TransactionalSourceProducer
from streamrt.errors import ChangelogError, KafkaBrokerUnavailableError, ProducerError, TransactionError
from streamrt.kafka import ConnectionConfig, TopicAdmin
from streamrt.kafka.membership.lease import GroupLease
from streamrt.kafka.writing.transactions import TRANSACTIONAL_ID_PREFIX, transactional_id
from streamrt.records import TopicPartition
from streamrt.runtime.tasks.kafka_clients import KafkaTaskClients
from streamrt.runtime.tasks.stores.changelog_restore import replay
from streamrt.secret import accept_secrets, masked
from streamrt.state import MemoryStore, Stamp, State, StoreIdentity, StorePartition
from streamrt.state.transactions.keyed import StoreTransaction
from streamrt.topics import Topic
from streamrt.topics.internal import name_part

__all__ = ["STOP", "ChangelogStore", "run_source"]

logger = logging.getLogger("streamrt.sources")

STOP = b"stop"
"""The message that stops the source."""

_LAST_FLUSH_S = 5.0
_PROBE_S = 1.0
_LOOK_FOR_PARENT_S = 1.0
_LONGEST_TEXT = 20_000
_WAIT_S = 0.5
_SAY_AFTER_S = 2.0
_RETRY_S = 1.0
_LONGEST_RETRY_S = 10.0
_FAILING_S = 300.0

KafkaProducer = KafkaSourceProducer | TransactionalSourceProducer


class ChangelogStore:
    """The state of a source, in memory and in its changelog topic.

    Args:
        partition: the restored store partition.
        identity: the identity of the data.
        log: the changelog partition.
        producer: writes the changelog.

    Attributes:
        committed_at: `time.monotonic()` of the last commit, or of the restore.
    """

    def __init__(
        self, partition: StorePartition, identity: StoreIdentity, log: TopicPartition, producer: KafkaProducer
    ) -> None:
        self.committed_at = time.monotonic()
        self._partition = partition
        self._identity = identity
        self._log = log
        self._producer = producer
        self._transaction: StoreTransaction | None = None

    def state(self) -> State:
        """Return the state, including uncommitted changes. Time to live counts from now."""
        if self._transaction is None:
            self._transaction = StoreTransaction(self._partition)
        return self._transaction.state(None, _now_ms())

    def commit(self, timeout: float | None = None) -> None:
        """Write the changes since the last commit to the changelog, commit what was produced, then write them to memory.

        A crash in between is harmless, because a restart reads the changelog.

        Args:
            timeout: seconds to wait for the brokers; None and -1 wait without limit.

        Raises:
            ProducerError: if the changes were not delivered in time.
            TransactionError: if records and changes were not committed, or the outcome is unknown.
        """
        transaction, self._transaction = self._transaction, None
        if transaction is None:
            self._producer.commit()
            self.committed_at = time.monotonic()
            return
        try:
            changes = transaction.prepare()
            now = _now_ms()
            for key, value in changes:
                self._producer.produce(self._log.topic, value, key, None, self._log.partition, now)
            remaining = self._producer.flush(timeout) if changes else 0
            if remaining:
                raise ProducerError(
                    f"{remaining} records for changelog topic {self._log.topic!r} were not delivered within {timeout:g} s: "
                    "the brokers do not respond in time; see their logs, or give flush() a longer timeout"
                )
            self._producer.commit()
            transaction.flush(Stamp(self._identity, None, None, transaction.stream_time, now))
            self.committed_at = time.monotonic()
        except BaseException:
            transaction.discard()
            raise


class _Child:
    """The process of a source: runs the source in the main thread, and listens to the application in another thread."""

    def __init__(self, pipe: Connection, order: dict[str, Any]) -> None:
        self._pipe = pipe
        self._order = order
        self._name: str = order["name"]
        self._stop = threading.Event()
        self._source: BaseSource | None = None
        # Whether the source does not run, which the lease waits for before it is given back.
        self._idle = threading.Event()
        self._idle.set()
        # Signals arrive here even while the main thread is inside a library and cannot run Python.
        self._signals, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.signal(signal.SIGTERM, lambda number, frame: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def run(self) -> int:
        """Run the source; return the exit code."""
        threading.Thread(target=self._listen_for_stop, name="streamrt-source-listener", daemon=True).start()
        report: dict[str, str] = {}
        with contextlib.ExitStack() as stack:
            try:
                self._work(stack)
            except BaseException as error:  # noqa: BLE001 - every failure is reported to the application
                if not (isinstance(error, SystemExit) and error.code in (None, 0)):
                    report = failure_report(error)
            self._send_report(report)
            if not report and self._order["instances"] == "one" and not self._order["stateful"]:
                # Another instance would run the source from its beginning.
                self._stop.wait()
        return 1 if report else 0

    def _send_report(self, report: dict[str, str]) -> None:
        with contextlib.suppress(OSError):
            self._pipe.send_bytes(json.dumps(report).encode())

    def _work(self, stack: contextlib.ExitStack) -> None:
        """Run the source until it has ended, in this instance of the application.

        Args:
            stack: closes the lease.
        """
        order = self._order
        connection = ConnectionConfig.from_secret_json(order["connection"])
        accept_secrets(order.pop("secrets"))
        if order["instances"] != "one":
            self._run_source(connection, None)
            return
        group = f"{name_part(order['group'])}--{name_part(f'source-{self._name}')}"
        lease = stack.enter_context(
            GroupLease(
                connection,
                group,
                order["internal_topic"],
                on_end=lambda lost: self._give_back(connection if lost else None),
                logger=logger,
            )
        )
        while self._wait_for_lease(lease):
            if self._run_source(connection, lease):
                return

    def _wait_for_lease(self, lease: GroupLease) -> bool:
        """Wait for the lease. Return False if the source is to stop."""
        told = time.monotonic() + _SAY_AFTER_S
        while not self._stop.is_set():
            if lease.acquire(_WAIT_S):
                return True
            if time.monotonic() >= told:
                told = math.inf
                logger.info(
                    "source %s waits: another instance of the application runs it, and this one takes over when that ends",
                    self._name,
                )
        return False

    def _give_back(self, lost_by: ConnectionConfig | None) -> None:
        """Stop the source, since its lease is to pass on; return when it has ended.

        Args:
            lost_by: the connection of a lease that was lost, so that no other instance waits for the end. As long as brokers
                are out of reach, the source may wait for them.
        """
        if self._idle.is_set():
            return
        if not self._stop.is_set():
            logger.info("stopping source %s: another instance of the application takes over", self._name)
        self._stop_run()
        while not self._idle.wait(self._order["shutdown_timeout"] + _LAST_FLUSH_S):
            if lost_by is not None:
                # Once they are back, it has its time again.
                lost_by = None if _reaches_brokers(lost_by) else lost_by
                continue
            text = (
                f"it did not stop within {self._order['shutdown_timeout']:g} s when another instance of the application was "
                "to take over; raise its shutdown_timeout if it needs longer"
            )
            self._send_report({"error": text, "traceback": text})
            os._exit(1)

    def _run_source(self, connection: ConnectionConfig, lease: GroupLease | None) -> bool:
        """Run the source, again after a failed transaction. Return False if the lease was lost before its end."""
        pause, failing_since = _RETRY_S, time.monotonic()
        while True:
            source, topic = pickle.loads(self._order["source"])
            store: list[ChangelogStore] = []
            try:
                self._run_once(source, topic, connection, lease, store)
                return lease is None or lease.held or self._stop.is_set()
            except Exception as error:
                if lease is not None and not lease.held and not self._stop.is_set():
                    logger.info("source %s ended when its lease did: %s", self._name, masked(str(error)))
                    return False
                committed_at = store[0].committed_at if store else -math.inf
                if committed_at > failing_since:
                    pause, failing_since = _RETRY_S, committed_at
                if (
                    not _is_passing(error, lease)
                    or self._stop.is_set()
                    or time.monotonic() > failing_since + _FAILING_S
                ):
                    raise
                logger.warning(
                    "source %s starts again in %g s where it was last committed: %s",
                    self._name,
                    pause,
                    masked(str(error)),
                )
            finally:
                self._source = None
                self._idle.set()
            self._stop.wait(pause)
            pause = min(2 * pause, _LONGEST_RETRY_S)

    def _run_once(
        self,
        source: BaseSource,
        topic: Topic,
        connection: ConnectionConfig,
        lease: GroupLease | None,
        store: list[ChangelogStore],
    ) -> None:
        order = self._order

        def may_run() -> bool:
            return lease is None or lease.held

        producer: KafkaProducer
        if order["transactional"]:
            partition = source.assigned_store_partition if isinstance(source, StatefulSource) else 0
            producer = TransactionalSourceProducer(
                connection,
                order["options"],
                # No topic has a colon in its name.
                transactional_id(TRANSACTIONAL_ID_PREFIX, order["group"], f"source:{self._name}", partition),
            )
            producer.open(order["internal_topic"])
        else:
            producer = KafkaSourceProducer(connection, order["options"], None if lease is None else lease.confirm)
        try:
            if isinstance(source, StatefulSource):
                restored = self._restore_state(source, topic, connection, producer, may_run)
                if restored is None:
                    return
                store.append(restored)
                source.configure(topic, producer, store_partition=restored)
            else:
                source.configure(topic, producer)
            self._source = source
            # Before it looks at the lease: the code that gives it back looks at these in the opposite order.
            self._idle.clear()
            if not may_run():
                return
            if self._stop.is_set():
                # The stop request arrived before the source existed.
                source.stop()
            source.start()
            remaining = producer.flush(max(order["shutdown_timeout"], _LAST_FLUSH_S))
            if remaining:
                raise ProducerError(f"{remaining} records for topic {topic.name!r} were not delivered in time")
            for kept in store:
                # Of a source whose cleanup() does not flush.
                kept.commit(_LAST_FLUSH_S)
        finally:
            # Records that were produced before a failure are valid, except in a transaction.
            producer.close(_LAST_FLUSH_S)

    def _restore_state(
        self,
        source: StatefulSource,
        topic: Topic,
        connection: ConnectionConfig,
        producer: KafkaProducer,
        may_run: Callable[[], bool],
    ) -> ChangelogStore | None:
        """Return the store restored from its changelog, or None if the source is to stop."""
        number, count = source.assigned_store_partition, source.store_partitions_count
        log = TopicPartition(self._order["internal_topic"], number)
        if not 0 <= number < count:
            raise ChangelogError(
                f"source {self._name} requests partition {number} of its state, but there are only {count} partitions"
            )
        identity = StoreIdentity(self._order["group"], topic.name, number, source.store_name, None, None, count)
        partition = MemoryStore(source.store_name, topic.name, Path()).open(number)
        clients = KafkaTaskClients(connection, self._order["group"])
        try:
            low, high = clients.bounds(log)
            if low < high:
                on_progress = lambda *_: not self._stop.is_set() and may_run()  # noqa: E731
                done = replay(partition, identity, log, low, high, clients, on_progress)
                if done is None:
                    return None
                logger.info("source %s restored %d changes of its state from %s", self._name, done.records, log)
        finally:
            clients.close()
        return ChangelogStore(partition, identity, log, producer)

    def _listen_for_stop(self) -> None:
        """Wait for a stop request, or for the end of the application."""
        while True:
            if os.getppid() != self._order["parent"]:
                break
            ready = wait([self._pipe, self._signals], _LOOK_FOR_PARENT_S)
            if self._signals in ready and bytes([signal.SIGTERM]) in os.read(self._signals, 4096):
                self._stop_source()
            if self._pipe in ready:
                try:
                    self._pipe.recv_bytes()
                except (EOFError, OSError):
                    break
                self._stop_source()
        logger.info("stopping source %s: the application is gone", self._name)
        self._stop_source()
        # Normally the main thread exits the process first.
        time.sleep(self._order["shutdown_timeout"])
        os._exit(1)

    def _stop_source(self) -> None:
        self._stop.set()
        self._stop_run()

    def _stop_run(self) -> None:
        source = self._source
        if source is not None:
            try:
                source.stop()
            except Exception as error:  # noqa: BLE001 - a user's method; the source is ended another way
                logger.error("stop() of source %s failed: %s", self._name, failure_report(error)["traceback"])


def run_source(pipe: Connection) -> None:
    """Run a source in this process; the application starts one process per source.

    Args:
        pipe: the connection to the application.
    """
    os.set_inheritable(pipe.fileno(), False)
    try:
        order = pickle.loads(pipe.recv_bytes())
    except EOFError:
        # The application died before it sent the order.
        sys.exit(1)
    configure_logging(order["loglevel"], log_format=order["log_format"], group=order["group"])
    with log_context({"source": order["name"]}):
        status = _Child(pipe, order).run()
    sys.exit(status)


def failure_report(error: BaseException) -> dict[str, str]:
    """Return what the process of a source says about an error that ends it, with masked secrets.

    Args:
        error: the error.
    """
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    trace = "".join(traceback.format_exception(error))
    return {"error": _shorten_text(masked(text)), "traceback": _shorten_text(masked(trace))}


def _reaches_brokers(connection: ConnectionConfig) -> bool:
    """Return whether a broker answers. The client of the lease cannot be asked: it is in a callback."""
    with contextlib.closing(TopicAdmin(connection)) as admin, contextlib.suppress(KafkaBrokerUnavailableError):
        admin.wait_for_broker(_PROBE_S)
        return True
    return False


def _is_passing(error: Exception, lease: GroupLease | None) -> bool:
    """Return whether a source may succeed if it starts again where it was last committed."""
    if not isinstance(error, TransactionError):
        return False
    if error.fenced:
        # Without a lease, another instance produces with the same id, and both would fence each other for ever.
        return lease is not None
    # A record that cannot be delivered will be the same one again.
    return not isinstance(error.__cause__, ProducerError)


def _shorten_text(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]} ..."


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
