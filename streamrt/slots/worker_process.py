"""The cache of a process that runs tasks: clients, tasks and logging of each application."""

import contextlib
import io
import json
import logging
import os
import resource
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

from streamrt.common.collection import collect_on_request
from streamrt.common.logs import LogFormat, line_formatter
from streamrt.kafka.connection import ConnectionConfig
from streamrt.runtime.spec import TaskSpec
from streamrt.runtime.tasks.kafka_clients import KEPT_WRITERS, KafkaTaskClients
from streamrt.runtime.tasks.task_executor import TaskExecutor
from streamrt.runtime.tasks.watchdog import Notes, Watchdog
from streamrt.secret import accept_secrets
from streamrt.slots.worker_link import LinkAddress

__all__ = ["ClientSettings", "HeldText", "Lines", "SharedText", "SpecReference", "WorkerProcess"]

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


class SharedText(Protocol):
    """A text that all processes of tasks can read, such as a broadcast variable of Spark."""

    @property
    def value(self) -> str:
        """The text."""

    def destroy(self) -> None:
        """Remove it from all machines."""


@dataclass(frozen=True)
class HeldText:
    """A text with secrets that is part of what it is pickled with.

    Attributes:
        value: the text.
    """

    value: str = field(repr=False)

    def destroy(self) -> None:
        """It ends with the processes that have it."""


@dataclass(frozen=True)
class SpecReference:
    """Reference from which a task loads its specification and the connection.

    Attributes:
        id: unique for each run of an application.
        spec: the pickled `TaskSpec`.
        clients: a `ClientSettings` as JSON. It contains secrets, and only the processes of slots may read it.
        loglevel: level of the `streamrt` logger.
        log_format: the format of log lines.
        state_part: on a cluster, the application's part of a state directory: `<group>/<n>`. A machine whose environment
            has `STREAMRT_STATE_DIR` keeps state in that part of its own directory; the others use the driver's path.
        find_directory: returns a directory that the processes of a machine share until the end of the application.
    """

    id: str
    spec: bytes
    clients: SharedText
    loglevel: int | str | None
    find_directory: Callable[[], Path]
    log_format: LogFormat = "text"
    state_part: str | None = None

    def load(self) -> TaskSpec:
        """Return the specification as it applies to this machine."""
        spec = TaskSpec.loads(self.spec)
        own_dir = os.environ.get("STREAMRT_STATE_DIR")
        if spec.state is None or self.state_part is None or not own_dir:
            return spec
        return replace(spec, state=replace(spec.state, base_dir=Path(own_dir).absolute() / self.state_part))


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
        self._watchdog = _watchdog(spec, reference.find_directory)
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

    It is that of the driver, or Spark passes it on to that of the driver or of the executor.
    """
    root = logging.getLogger()
    if not root.handlers:
        handler = logging.StreamHandler()
        handler.set_name(_HANDLER)
        root.addHandler(handler)
    for present in root.handlers:
        if present.get_name() == _HANDLER:
            present.setFormatter(formatter)


def _watchdog(spec: TaskSpec, find_directory: Callable[[], Path]) -> Watchdog | None:
    """Return the watchdog for functions that do not return. Its notes are for other processes of the same machine."""
    if spec.processing_timeout is None:
        return None
    return Watchdog(spec.processing_timeout, Notes(find_directory() / f"streamrt-ended-{spec.run_id}"))


def _allow_files() -> None:
    """Raise the limit of open files of this process to the system's maximum: each open store has some ten of them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
