"""Runs a topology on Spark: membership in the consumer group, one query per assignment, commits, stop.

Life cycle::

    waiting for partitions --> running a query --> draining --> waiting for partitions
            |                        |                 ^   (partitions revoked: commit, give back)
            |                        +-- failed -------+
            +--> stopping <----------+   (stop, count, timeout, failure)

The thread that calls `run` is the only one that starts and stops queries. Spark's thread runs the micro-batches; the
group member's thread hears of revoked partitions and waits until they are drained.
"""

import logging
import os
import re
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException

from streamrt.config import ApplicationConfig
from streamrt.errors import OffsetOutOfRangeError, RunnerError
from streamrt.kafka import (
    ConnectionConfig,
    GroupFencedError,
    GroupMember,
    KafkaRequestError,
    TopicAdmin,
    java_system_properties,
)
from streamrt.models import TopicPartition
from streamrt.runtime import CommitSchedule, Failure, Output, Report, TaskSpec
from streamrt.runtime.display import Display
from streamrt.runtime.progress import Progress
from streamrt.spark.arrow import REPORT_SCHEMA
from streamrt.spark.executor import ClientSettings, SpecReference, warm_up
from streamrt.spark.group import leave_group
from streamrt.spark.query import MicroBatchQuery, QuerySettings
from streamrt.spark.session import SparkEnvironment, local_slots, open_session

logger = logging.getLogger("streamrt")

_MAX_RECORDS_PER_PARTITION = 100_000
_LONGEST_SLICE_S = 4.0
_SHORTEST_SLICE_S = 0.5
_STOP_S = 6.0
_REVOKE_S = 30.0
_TICK_S = 0.1
_RESTARTS = 3
_PYTHON_ERROR = re.compile(r"[A-Za-z_.]+(Error|Exception|Warning): \S")


@dataclass(frozen=True)
class RunSettings:
    """What the runner needs beside the configuration.

    Attributes:
        connection: how to reach Kafka.
        member_options: options of the group member, in librdkafka's words.
        java_options: options of Spark's Kafka client, in Java's words.
        producer_options: the user's options for producers.
        group_instance_id: for static membership; None for a member that leaves when it stops.
        spark_config: additional Spark settings.
        spark_session: a session to use.
        on_message_processed: called in this process with topic, partition and offset of each processed record.
    """

    connection: ConnectionConfig
    member_options: Mapping[str, Any]
    java_options: Mapping[str, str]
    producer_options: Mapping[str, Any]
    group_instance_id: str | None
    spark_config: Mapping[str, Any]
    spark_session: Any
    on_message_processed: Callable[[str, int, int], None] | None


@dataclass(frozen=True)
class StopConditions:
    """When `run` ends by itself.

    Attributes:
        count: after this many outputs; 0 for no limit.
        timeout_s: after this many seconds without a new record; 0 for no limit.
    """

    count: int = 0
    timeout_s: float = 0.0


class SparkRunner:
    """Runs one application until it is stopped, fails, or a stop condition holds.

    Args:
        config: the application's configuration.
        settings: clients and Spark.
        spec: what tasks do.
        topics: names of the topics to read.
        admin: answers questions about topics and offsets.
        conditions: when to stop.
        stop: set by whoever wants the application to stop.
        discard: set if what was not committed shall be processed again.
        progress: kept up to date for whoever watches.
        display: shows what `print` and `print_table` put out.
    """

    def __init__(
        self,
        config: ApplicationConfig,
        settings: RunSettings,
        spec: TaskSpec,
        topics: list[str],
        admin: TopicAdmin,
        conditions: StopConditions,
        stop: threading.Event,
        discard: threading.Event,
        progress: Progress,
        display: Display,
    ) -> None:
        self._config = config
        self._settings = settings
        self._spec = spec
        self._topics = topics
        self._admin = admin
        self._conditions = conditions
        self._stop = stop
        self._discard = discard
        self._progress = progress
        self._display = display
        self._schedule = CommitSchedule(config.commit_interval, config.commit_every)
        self._lock = threading.RLock()
        self._failure: Failure | None = None
        self._outputs = 0
        self._collected: list[Output] = []
        self._last_record = 0.0
        self._idle_since: float | None = None
        self._revoking = threading.Event()
        self._drained = threading.Event()
        self._closing = threading.Event()
        self._generation = 0
        self._max_records: int | None = None
        self._member: GroupMember | None = None
        self._client_file: Path | None = None

    def run(self) -> list[Output]:
        """Run until the end; return the collected outputs.

        Raises:
            ProcessingError: if an operator failed and no callback skipped the record; likewise `ConsumerError` and
                `ProducerError`.
            RunnerError: if Spark failed for good.
        """
        # The JVM boots while the group forms.
        with ThreadPoolExecutor(1, "streamrt-spark") as pool:
            session = pool.submit(
                open_session,
                self._config.spark_master,
                self._settings.spark_config,
                self._settings.spark_session,
                java_system_properties(self._settings.connection),
            )
            self._member = GroupMember(
                self._settings.connection,
                self._config.consumer_group,
                self._topics,
                member_options=self._settings.member_options,
                group_instance_id=self._settings.group_instance_id,
                poll_timeout=self._config.consumer_poll_timeout,
                on_revoke=self._on_revoke,
                on_lost=self._on_lost,
                broker_availability_timeout=self._config.broker_availability_timeout,
                logger=logger,
            )
            self._member.start()
            try:
                self._run_assignments(session)
            finally:
                self._closing.set()
                self._drained.set()
                self._member.close()
                self._leave(session)
                if self._client_file is not None:
                    self._client_file.unlink(missing_ok=True)
                self._display.close()
        self._raise_failure()
        return self._collected

    # -- Assignments ---------------------------------------------------------------------------------------------

    def _run_assignments(self, session: "Future[SparkEnvironment]") -> None:
        environment = self._wait_for(session)
        if environment is None:
            return
        # Python workers take seconds to start; they do so while Spark plans the query.
        threading.Thread(target=_warm_up, args=(environment,), name="streamrt-warm-up", daemon=True).start()
        reference = self._reference(environment)
        logger.info("Spark is ready with %d slots; waiting for partitions", environment.slots)
        restarts = 0
        while not self._stop.is_set():
            self._finish_revoke()
            assigned = self._assignment()
            if assigned is None:
                continue
            try:
                positions = self._start_positions(assigned)
            except (GroupFencedError, KafkaRequestError) as away:
                if isinstance(away, KafkaRequestError) and not away.retriable:
                    raise
                logger.warning("%s; trying again", away)
                self._admin.wait_for_broker(self._config.broker_availability_timeout)
                continue
            with self._lock:
                self._schedule.start(positions, time.monotonic())
                self._progress.assigned(positions)
            records = self._progress.records
            error = self._run_query(environment, reference, positions)
            if error is None:
                restarts = 0
                continue
            restarts = 0 if self._progress.records > records else restarts + 1
            self._recover(error, restarts)

    def _wait_for(self, session: "Future[SparkEnvironment]") -> SparkEnvironment | None:
        while not session.done():
            wait([session], timeout=_TICK_S)
            if self._stop.is_set() and session.cancel():
                return None
        return session.result()

    def _assignment(self) -> frozenset[TopicPartition] | None:
        current = self._group_member().current_assignment(timeout=_TICK_S)
        if current is None:
            return None
        if not current.partitions and self._waited_enough():
            self._stop.set()
        self._generation = current.generation
        return current.partitions or None

    def _run_query(
        self, environment: SparkEnvironment, reference: SpecReference, positions: dict[TopicPartition, int]
    ) -> Exception | None:
        """Run a query until it must end; return an error of Spark's, if that was why."""
        settings = self._query_settings(len(positions))
        query = MicroBatchQuery(environment, reference, settings, positions, self._on_report, self._outputs_left)
        logger.info("processing %s", ", ".join(f"{place} from offset {at}" for place, at in sorted(positions.items())))
        try:
            query.start()
        except Exception as failed:
            raise RunnerError(f"Spark could not start the query: {_spark_cause(failed)}") from failed
        error: Exception | None = None
        try:
            while not self._stop.is_set() and not self._revoking.is_set():
                self._stop.wait(_TICK_S)
                if query.resize is not None:
                    break
                error = query.failure()
                if error is not None:
                    break
                self._check_member()
                self._commit_if_due(query)
                with self._lock:
                    self._display.tick()
                if self._conditions.timeout_s and query.caught_up() and self._waited_enough():
                    self._stop.set()
        finally:
            begun = time.monotonic()
            clean = query.stop(_REVOKE_S if self._revoking.is_set() else _STOP_S)
            if not clean:
                logger.warning(
                    "the running tasks did not reach a boundary in time; the records since the last commit will repeat"
                )
            logger.debug("stopping the query took %.2f s", time.monotonic() - begun)
            if not self._discard.is_set():
                self._commit()
        if query.resize is not None:
            logger.info("micro-batches are now limited to %d records, after %d", query.resize, settings.max_records)
            self._max_records = query.resize
        return error

    def _recover(self, error: Exception, restarts: int) -> None:
        """Decide whether a query that Spark gave up is worth another try; otherwise raise."""
        cause = _spark_cause(error)
        self._admin.wait_for_broker(self._config.broker_availability_timeout)
        if restarts >= _RESTARTS:
            raise RunnerError(f"Spark gave the query up {restarts} times without progress: {cause}") from error
        logger.warning("Spark gave the query up (%s); going on from the committed offsets", cause)

    # -- Offsets -------------------------------------------------------------------------------------------------

    def _start_positions(self, assigned: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where to begin: at the committed offsets, and where there are none as `auto_offset_reset` says."""
        timeout = self._config.request_timeout
        committed = self._admin.committed(self._config.consumer_group, assigned, timeout=timeout)
        watermarks = self._admin.watermarks(assigned, timeout=timeout)
        positions: dict[TopicPartition, int] = {}
        fresh: dict[TopicPartition, int] = {}
        for place in sorted(assigned):
            low, high = watermarks[place]
            offset = committed.get(place)
            if offset is None or offset < 0:
                positions[place] = fresh[place] = self._reset(place, low, high)
            elif low <= offset <= high:
                positions[place] = offset
            else:
                positions[place] = fresh[place] = self._out_of_range(place, offset, low, high)
        if fresh:
            # From now on a restart goes on here, also if "latest" records arrive before the first commit.
            self._group_member().commit(fresh)
        return positions

    def _reset(self, place: TopicPartition, low: int, high: int) -> int:
        if self._config.auto_offset_reset == "error":
            raise OffsetOutOfRangeError(
                f"consumer group {self._config.consumer_group!r} has no committed offset for {place}, and "
                "auto_offset_reset='error' forbids to choose one: commit an offset, or set 'earliest' or 'latest'"
            )
        return low if self._config.auto_offset_reset == "earliest" else high

    def _out_of_range(self, place: TopicPartition, offset: int, low: int, high: int) -> int:
        what = f"the committed offset {offset} of {place} is outside of the topic, which has {low} to {high}"
        if not self._config.auto_recover_from_source_offset_out_of_range:
            raise OffsetOutOfRangeError(
                f"{what}: records were deleted before they were processed, or the topic was made anew; set the group's "
                "offset, or allow auto_recover_from_source_offset_out_of_range"
            )
        start = self._reset(place, low, high)
        lost = f"; {low - offset} records were deleted before they were processed" if offset < low else ""
        logger.error("%s%s; going on from offset %d", what, lost, start)
        return start

    def _commit_if_due(self, query: MicroBatchQuery) -> None:
        with self._lock:
            now = time.monotonic()
            if self._schedule.due(now):
                self._commit()
            elif self._schedule.quiet(now):
                # Markers of transactions at the end of a partition are no records, but they count as lag.
                self._schedule.committed({}, now)
                self._schedule.processed(query.finished_offsets(), 0)
                self._progress.processed_to(self._schedule.pending())

    def _commit(self) -> None:
        with self._lock:
            offsets = self._schedule.pending()
            if not offsets:
                return
            try:
                self._group_member().commit(offsets, generation=self._generation)
            except GroupFencedError as error:
                logger.warning("%s; the records since the last commit will repeat", error)
                self._revoking.set()
            except KafkaRequestError as error:
                if not error.retriable:
                    raise
                logger.warning("%s; trying again later", error)
                offsets = {}
            self._schedule.committed(offsets, time.monotonic())

    # -- Reports, called by Spark's thread -----------------------------------------------------------------------

    def _on_report(self, report: Report) -> None:
        with self._lock:
            offsets = {place: done.end for place, done in report.ranges.items()}
            self._schedule.processed(offsets, report.records)
            self._progress.report(report)
            self._outputs += report.outputs
            self._collected += report.collected
            self._display.show(report.shown)
            if report.records:
                self._last_record = time.monotonic()
            if report.failure is not None:
                self._failure = report.failure
                self._stop.set()
            if self._outputs_left() == 0:
                self._stop.set()
            if self._schedule.due(time.monotonic()):
                self._commit()
        callback = self._settings.on_message_processed
        if callback is not None:
            for place, processed in report.processed.items():
                for offset in processed:
                    self._tell_processed(callback, place, offset)

    def _tell_processed(self, callback: Callable[[str, int, int], None], place: TopicPartition, offset: int) -> None:
        try:
            callback(place.topic, place.partition, offset)
        except Exception as error:  # noqa: BLE001 - it ends the application, in the thread that called run()
            message = f"on_message_processed failed for {place} at offset {offset}: {type(error).__name__}: {error}"
            self._failure = self._failure or Failure("callback", place, offset, message, error)
            self._stop.set()

    def _outputs_left(self) -> int | None:
        return max(0, self._conditions.count - self._outputs) if self._conditions.count else None

    # -- Rebalances, called by the member's thread -----------------------------------------------------------------

    def _on_revoke(self, partitions: frozenset[TopicPartition]) -> None:
        if self._closing.is_set():
            return
        logger.info("giving back %s", ", ".join(map(str, sorted(partitions))))
        self._drained.clear()
        self._revoking.set()
        if not self._drained.wait(_REVOKE_S + _STOP_S):
            logger.warning("the running tasks did not finish in time; their records will repeat on another member")

    def _on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        logger.warning(
            "the group gave %s to others, because no heartbeat arrived",
            ", ".join(map(str, sorted(partitions))),
        )
        self._revoking.set()

    def _finish_revoke(self) -> None:
        """Let the member's thread go on: no query runs, and what could be committed is."""
        self._revoking.clear()
        self._drained.set()

    # -- Helpers ---------------------------------------------------------------------------------------------------

    def _group_member(self) -> GroupMember:
        if self._member is None:
            raise RuntimeError("the runner joins the consumer group before anything else")
        return self._member

    def _check_member(self) -> None:
        error = self._group_member().error
        if error is not None:
            raise error

    def _leave(self, session: "Future[SparkEnvironment]") -> None:
        instance_id = self._settings.group_instance_id
        if instance_id is None or not session.done() or session.exception() is not None:
            return
        brokers = self._settings.connection.bootstrap_servers
        leave_group(
            session.result().session,
            brokers,
            self._settings.java_options,
            self._config.consumer_group,
            instance_id,
        )

    def _waited_enough(self) -> bool:
        """Tell, while nothing is left to process, whether the time-out for new records is over."""
        now = time.monotonic()
        if self._idle_since is None:
            self._idle_since = now
        limit = self._conditions.timeout_s
        return limit > 0 and now - max(self._idle_since, self._last_record) >= limit

    def _reference(self, environment: SparkEnvironment) -> SpecReference:
        run_id = uuid.uuid4().hex
        path = self._client_file = environment.runtime_dir / f"clients-{run_id}.json"
        clients = ClientSettings(
            self._settings.connection, self._settings.producer_options, self._config.producer_poll_timeout
        )
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(clients.to_json())
        if local_slots(environment.session.sparkContext.master) is None:
            environment.session.sparkContext.addFile(str(path))
        return SpecReference(run_id, self._spec.dumps(), str(path), self._config.loglevel)

    def _query_settings(self, partitions: int) -> QuerySettings:
        every = self._config.commit_every
        largest = _MAX_RECORDS_PER_PARTITION * partitions
        if every > 0:
            largest = min(largest, every)
        options = {
            "includeHeaders": "true",
            "failOnDataLoss": "true",
            "groupIdPrefix": self._config.consumer_group,
            # Spark's source waits this long for more data than it has; at low rates that is all latency.
            "kafka.fetch.max.wait.ms": "5",
            **{f"kafka.{name}": value for name, value in self._settings.java_options.items()},
        }
        return QuerySettings(
            kafka_options=options,
            max_records=min(self._max_records or largest, largest),
            slice_s=min(_LONGEST_SLICE_S, max(_SHORTEST_SLICE_S, self._config.commit_interval)),
            count=self._conditions.count > 0,
            largest=largest,
        )

    def _raise_failure(self) -> None:
        if self._failure is not None:
            failure = self._failure
            logger.debug("%s", failure.traceback)
            raise failure.error() from failure.cause


def _warm_up(environment: SparkEnvironment) -> None:
    try:
        numbers = environment.session.range(0, environment.slots, 1, environment.slots)
        numbers.mapInArrow(warm_up, REPORT_SCHEMA).collect()
    except Exception as error:  # noqa: BLE001 - then the first micro-batch starts the workers, and tells what is wrong
        logger.debug("the Python workers could not be started ahead: %s", error)


def _spark_cause(error: Exception) -> str:
    """Return the sentence that matters in one of Spark's long error messages."""
    text = str(error)
    if isinstance(error, StreamingQueryException):
        text = error.getMessage() or text
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    python = [line for line in lines if _PYTHON_ERROR.match(line)]
    causes = [line for line in lines if line.startswith("Caused by:")]
    return ((python or causes)[-1:] or lines or [type(error).__name__])[0][:500]
