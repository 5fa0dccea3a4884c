"""The code that runs inside Spark's Python workers: one call for each Spark task.

Spark reuses a worker for any task of any partition, and ends workers that are idle for a while. Workers keep only a
cache between calls: producers, and the closures of the operators. Nothing relies on it.
"""

import contextlib
import io
import json
import logging
import os
import resource
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from pyspark import Broadcast, SparkFiles, TaskContext

from streamrt.common.collection import collect_on_request
from streamrt.common.logs import LogFormat, line_formatter
from streamrt.kafka.connection import ConnectionConfig
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.report import Report
from streamrt.runtime.spec import TaskSpec
from streamrt.runtime.tasks.kafka_clients import KEPT_WRITERS, KafkaTaskClients
from streamrt.runtime.tasks.task_executor import TaskExecutor
from streamrt.runtime.tasks.watchdog import Notes, Watchdog
from streamrt.secret import accept_secrets
from streamrt.spark.workers.reports import dump_report
from streamrt.spark.workers.worker_link import LinkAddress
from streamrt.topology import TaskId

logger = logging.getLogger("streamrt")

_HANDLER = "streamrt"

_COMMITS_AT_ONCE = 8

_KEPT_APPLICATIONS = 4
"""Each application has connections, producers and their threads."""
_UNUSED_S = 60.0
_FILES = 65_536


@dataclass(frozen=True)
class ClientSettings:
    """Kafka clients of tasks. Contains secrets: never log it, never pickle it.

    Attributes:
        connection: the brokers and the credentials.
        group: the consumer group.
        producer_options: the user's producer options, with librdkafka's names.
        producer_poll_timeout: seconds that the producer may wait for events in one poll.
        secrets: secrets that the task specification refers to.
        member_options: the user's options for group members and consumers, with librdkafka's names; for tasks that are
            members.
        link: address of the driver, for tasks that connect to it.
    """

    connection: ConnectionConfig = field(repr=False)
    group: str
    producer_options: Mapping[str, Any] = field(repr=False)
    producer_poll_timeout: float
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    member_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    link: LinkAddress | None = None

    def to_json(self) -> str:
        """Return the settings with their secrets as text, for a file that only its owner can read."""
        document = {
            "connection": self.connection.to_secret_json(),
            "group": self.group,
            "producer_options": dict(self.producer_options),
            "producer_poll_timeout": self.producer_poll_timeout,
            "secrets": dict(self.secrets),
            "member_options": dict(self.member_options),
            "link": None if self.link is None else self.link.to_document(),
        }
        return json.dumps(document)

    @classmethod
    def from_json(cls, text: str) -> "ClientSettings":
        """Read the result of `to_json`."""
        document = json.loads(text)
        connection = ConnectionConfig.from_secret_json(document.pop("connection"))
        link = document.pop("link")
        return cls(connection, **document, link=None if link is None else LinkAddress.from_document(link))

    def open(self) -> KafkaTaskClients:
        """Return the clients of one process."""
        return KafkaTaskClients(
            self.connection,
            self.group,
            self.producer_options,
            self.producer_poll_timeout,
            # Resident tasks have all of their transactions open at the same time.
            kept_writers=KEPT_WRITERS if self.link is None else None,
        )


@dataclass(frozen=True)
class SpecReference:
    """Reference from which a task loads its specification and the connection.

    Attributes:
        id: unique for each run of an application.
        spec: the pickled `TaskSpec`.
        clients: a `ClientSettings` as JSON. It contains secrets. Spark keeps broadcast variables in files that only
            their owner can read, and removes them from all machines when they are destroyed; closures have no such
            protection.
        loglevel: level of the `streamrt` logger.
        log_format: the format of log lines.
        state_part: on a cluster, the application's part of a state directory: `<group>/<n>`. A machine whose environment
            has `STREAMRT_STATE_DIR` keeps state in that part of its own directory; the others use the driver's path.
    """

    id: str
    spec: bytes
    clients: Broadcast[str]
    loglevel: int | str | None
    log_format: LogFormat = "text"
    state_part: str | None = None

    def load(self) -> TaskSpec:
        """Return the specification as it applies to this machine."""
        spec = TaskSpec.loads(self.spec)
        own_dir = os.environ.get("STREAMRT_STATE_DIR")
        if spec.state is None or self.state_part is None or not own_dir:
            return spec
        return replace(spec, state=replace(spec.state, base_dir=Path(own_dir).absolute() / self.state_part))


class TickTasks:
    """Ticks partitions without records, for `run_on_numbers`: numbers of partitions in, one report out."""

    def __init__(self, reference: SpecReference, tasks: Sequence[TaskId], context: BatchContext) -> None:
        self._reference = reference
        self._tasks = tasks
        self._context = context

    def __call__(self, numbers: Iterable[int]) -> Iterator[bytes]:
        """Tick the tasks of the given numbers."""
        own = [self._tasks[number] for number in numbers]
        yield from work_of_worker(self._reference, self._context, lambda executor, context: executor.tick(own, context))


class RestoreStores:
    """Restores stores, for `run_on_numbers`: numbers of shares of the tasks in, reports about their restore out."""

    def __init__(self, reference: SpecReference, shares: Sequence[Sequence[TaskId]], context: BatchContext) -> None:
        self._reference = reference
        self._shares = shares
        self._context = context

    def __call__(self, numbers: Iterable[int]) -> Iterator[bytes]:
        """Restore the stores of the tasks in the given shares."""
        tasks = WorkerProcess.current(self._reference).tasks
        own = [task for number in numbers for task in self._shares[number]]
        if own:
            yield dump_report(tasks.restore(own, of_attempt(self._context)))


class Lines(io.TextIOBase):
    """A text stream that passes on each complete line."""

    def __init__(self, take: Callable[[str], None]) -> None:
        self._take = take
        self._rest = ""

    def write(self, text: str) -> int:
        """Add text."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._take(line)
        return len(text)


class WorkerProcess:
    """The cache of this worker for one application; a worker keeps several.

    Args:
        reference: reference to the task specification.
    """

    _kept: ClassVar["OrderedDict[str, WorkerProcess]"] = OrderedDict()
    """By the id of the run; the most recently used comes last."""

    def __init__(self, reference: SpecReference) -> None:
        self.id = reference.id
        self._loglevel = reference.loglevel
        self._log_format = reference.log_format
        self._used_at = 0.0
        self.settings = ClientSettings.from_json(reference.clients.value)
        accept_secrets(self.settings.secrets)
        spec = reference.load()
        self.clients = self.settings.open()
        self._pool = None if self.settings.link is None else ThreadPoolExecutor(_COMMITS_AT_ONCE, "streamrt-commit")
        self._watchdog = _watchdog(spec)
        self.tasks = TaskExecutor(spec, self.clients, pool=self._pool, watchdog=self._watchdog)
        collect_on_request()
        _allow_files()

    @classmethod
    def current(cls, reference: SpecReference) -> "WorkerProcess":
        """Return the cache of an application, ready to use.

        Two applications of a process take turns in its workers. To close and open clients at each turn takes half a
        second, so the cache is kept. The least recently used application is removed to make room, and so is each that
        was unused for a minute: it may have ended.
        """
        process = cls._kept.get(reference.id)
        now = time.monotonic()
        for other in list(cls._kept.values()):
            full = process is None and len(cls._kept) >= _KEPT_APPLICATIONS
            if other is not process and (full or now - other._used_at > _UNUSED_S):
                other.forget()
        if process is None:
            process = cls._kept[reference.id] = cls(reference)
        process._used_at = now
        cls._kept.move_to_end(reference.id)
        # Each application has its own level and format.
        if process._loglevel is not None:
            # What threads log outside of the work of a task may come from any of the applications.
            group = process.settings.group if len(cls._kept) == 1 else None
            _write_lines(line_formatter(process._log_format, group=group))
        logger.setLevel(logging.NOTSET if process._loglevel is None else process._loglevel)
        return process

    def forget(self) -> None:
        """Release everything that is cached for this application."""
        if self._kept.get(self.id) is self:
            del self._kept[self.id]
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        if self._watchdog is not None:
            self._watchdog.close()
        self.tasks.close()
        self.clients.close()


def _write_lines(formatter: logging.Formatter) -> None:
    """Write the log lines of this process to standard error, unless a module of the user has set up logging here.

    Spark passes the standard error of workers on to that of the driver, or of the executor.
    """
    root = logging.getLogger()
    if not root.handlers:
        handler = logging.StreamHandler()
        handler.set_name(_HANDLER)
        root.addHandler(handler)
    for present in root.handlers:
        if present.get_name() == _HANDLER:
            present.setFormatter(formatter)


def _watchdog(spec: TaskSpec) -> Watchdog | None:
    """Return the watchdog for functions that do not return. Its notes are for other workers of the same executor."""
    if spec.processing_timeout is None:
        return None
    notes = Notes(Path(SparkFiles.getRootDirectory()) / f"streamrt-ended-{spec.run_id}")
    return Watchdog(spec.processing_timeout, notes)


def _allow_files() -> None:
    """Raise the limit of open files of this process to the system's maximum: each open store has some ten of them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def of_attempt(context: BatchContext) -> BatchContext:
    """Return the context of this attempt at a Spark task."""
    attempt = TaskContext.get()
    if attempt is None:
        return context
    # Numbers count all attempts of all tasks in this Spark context; later attempts have higher numbers.
    context = replace(context, attempt=attempt.taskAttemptId())
    # The previous attempt may have taken the transactional ids, so the producers of this worker are fenced.
    return replace(context, last_committer={}) if attempt.attemptNumber() > 0 else context


def work_of_worker(
    reference: SpecReference, context: BatchContext, work: Callable[[TaskExecutor, BatchContext], Report]
) -> Iterator[bytes]:
    """Let the tasks of this worker do some work, and yield their report, if any."""
    process = WorkerProcess.current(reference)
    context = of_attempt(context)
    # The prints of users' functions belong on the standard output of the process that called run().
    with contextlib.redirect_stdout(Lines(process.tasks.show_line)):
        report = work(process.tasks, context)
    if process.clients.failed:
        process.forget()
    told = report.ranges or report.shown or report.failure or report.interrupted or report.locked or report.unfinished
    if told:
        yield dump_report(report)
