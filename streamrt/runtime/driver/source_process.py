"""The process of a source: restores its state, runs it, and listens to the application; see `sources.py`."""

import contextlib
import json
import logging
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from streamrt.config import configure_logging
from streamrt.connectors import BaseSource, StatefulSource
from streamrt.connectors.sources.producer import KafkaSourceProducer
from streamrt.errors import ChangelogError, ProducerError
from streamrt.kafka import ConnectionConfig
from streamrt.records import TopicPartition
from streamrt.runtime.tasks.kafka_clients import KafkaTaskClients
from streamrt.runtime.tasks.restore import replay
from streamrt.secret import accept_secrets
from streamrt.state import MemoryStore, Stamp, State, StoreIdentity, StorePartition
from streamrt.state.transaction import StoreTransaction
from streamrt.topics import Topic

__all__ = ["STOP", "ChangelogStore", "run_source"]

logger = logging.getLogger("streamrt.sources")

STOP = b"stop"
"""The message that stops the source."""

_LAST_FLUSH_S = 5.0
_LOOK_FOR_PARENT_S = 1.0
_LONGEST_TEXT = 20_000


class ChangelogStore:
    """The state of a source, in memory and in its changelog topic.

    Args:
        partition: the restored store partition.
        identity: the identity of the data.
        log: the changelog partition.
        producer: writes the changelog.
    """

    def __init__(
        self, partition: StorePartition, identity: StoreIdentity, log: TopicPartition, producer: KafkaSourceProducer
    ) -> None:
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
        """Write the changes since the last commit to the changelog, then to memory.

        A crash in between is harmless, because a restart reads the changelog.

        Args:
            timeout: seconds to wait for the brokers; None and -1 wait without limit.

        Raises:
            ProducerError: if the changes were not delivered in time.
        """
        transaction, self._transaction = self._transaction, None
        if transaction is None:
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
            transaction.flush(Stamp(self._identity, None, None, transaction.stream_time, now))
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
        # Signals arrive here even while the main thread is inside a library and cannot run Python.
        self._signals, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.signal(signal.SIGTERM, lambda number, frame: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def run(self) -> int:
        """Run the source; return the exit code."""
        threading.Thread(target=self._listen, name="streamrt-source-listener", daemon=True).start()
        report: dict[str, str] = {}
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - every failure is reported to the application
            if not (isinstance(error, SystemExit) and error.code in (None, 0)):
                report = {
                    "error": _shortened(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__),
                    "traceback": _shortened(traceback.format_exc()),
                }
        with contextlib.suppress(OSError):
            self._pipe.send_bytes(json.dumps(report).encode())
        return 1 if report else 0

    def _work(self) -> None:
        order = self._order
        connection = ConnectionConfig.from_secret_json(order["connection"])
        accept_secrets(order.pop("secrets"))
        source, topic = pickle.loads(order.pop("source"))
        producer = KafkaSourceProducer(connection, order["options"])
        if isinstance(source, StatefulSource):
            store = self._restored(source, topic, connection, producer)
            if store is None:
                return
            source.configure(topic, producer, store_partition=store)
        else:
            source.configure(topic, producer)
        self._source = source
        if self._stop.is_set():
            # The stop request arrived before the source existed.
            source.stop()
        try:
            source.start()
        except BaseException:
            # Records that were produced before the failure are valid.
            with contextlib.suppress(ProducerError):
                producer.flush(_LAST_FLUSH_S)
            raise
        remaining = producer.flush(max(order["shutdown_timeout"], _LAST_FLUSH_S))
        if remaining:
            raise ProducerError(f"{remaining} records for topic {topic.name!r} were not delivered in time")

    def _restored(
        self, source: StatefulSource, topic: Topic, connection: ConnectionConfig, producer: KafkaSourceProducer
    ) -> ChangelogStore | None:
        """Return the store restored from its changelog, or None if the source is to stop."""
        number, count = source.assigned_store_partition, source.store_partitions_count
        log = TopicPartition(self._order["changelog"], number)
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
                done = replay(partition, identity, log, low, high, clients, lambda *_: not self._stop.is_set())
                if done is None:
                    return None
                logger.info("source %s restored %d changes of its state from %s", self._name, done.records, log)
        finally:
            clients.close()
        return ChangelogStore(partition, identity, log, producer)

    def _listen(self) -> None:
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
        if self._source is not None:
            try:
                self._source.stop()
            except Exception:
                logger.exception("stop() of source %s failed", self._name)


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
    configure_logging(order["loglevel"])
    sys.exit(_Child(pipe, order).run())


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]} ..."


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
