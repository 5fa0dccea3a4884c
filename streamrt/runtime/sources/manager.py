"""The processes of sources: each source runs in a separate process, which the application watches.

```
application                                    process of a source
-----------                                    -------------------
start:  new process, pipe between the two
        search path of modules  -------------> import StreamRT
        source, topic, secrets  -------------> restore the state, configure, start
                                               (wait for the lease: one instance runs the source)
check:                          <------------- result at the end of the source
stop:   "stop"                  -------------> source.stop(), in another thread than start()
        wait shutdown_timeout, then SIGKILL
        the pipe closes         -------------> the application is gone: stop, and exit after shutdown_timeout
```

The process is a new interpreter, not a fork, because clients and threads of the application do not survive a fork. The
"spawn" method of Python's `multiprocessing` would import the user's program again, which fails if the program does not
guard its `app.run()`. Instead, functions and classes of the program are pickled by value, as for tasks.

Secrets are sent only through the pipe, never by command line, environment or file.
"""

import contextlib
import json
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from streamrt.common.child_process import start_child
from streamrt.common.logs import LogFormat
from streamrt.common.pickles import dump_functions
from streamrt.connectors import BaseSource, Instances, StatefulSource
from streamrt.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ConfigurationError,
    InvalidOperationError,
    SourceError,
    argument_error,
)
from streamrt.kafka import ConnectionConfig, TopicConfig
from streamrt.runtime.sources.process import STOP
from streamrt.secret import collect_secrets
from streamrt.topics import Topic
from streamrt.topics.internal import source_changelog_name

__all__ = ["SourceManager", "SourceProcess", "SourceStats"]

logger = logging.getLogger("streamrt.sources")

_DEFAULT_SHUTDOWN_S = 10.0
_LOOK_S = 0.05


@dataclass(frozen=True)
class SourceStats:
    """The state of a source in this instance.

    Attributes:
        topic: name of the topic that it produces to.
        alive: whether its process runs. It may wait for the end of the same source in another instance.
        paused: whether `pause_source` has stopped it.
        ended: whether it has ended by itself, without an error.
        error: the reason of its failure; empty without one.
    """

    topic: str
    alive: bool
    paused: bool
    ended: bool
    error: str = ""


class SourceManager:
    """Starts, watches and stops the sources of an application; `pause` and `resume` may be called by any thread.

    Args:
        connection: the connection to the brokers.
        group: the consumer group of the application, which is part of the names of changelog topics.
        producer_options: the user's producer options, with librdkafka's names.
        use_changelogs: whether changelog topics may be used; without them, stateful sources are rejected.
        loglevel: level of the `streamrt` logger in the processes of sources; None does not configure logging.
        log_format: the format of their log lines.
        exactly_once: whether stateful sources produce in transactions.

    Example:
        >>> from streamrt.connectors import CSVSource
        >>> manager = SourceManager(ConnectionConfig(bootstrap_servers="localhost:9092"), "shop")
        >>> manager.register(CSVSource("orders.csv", name="orders"), Topic("orders"))
        >>> manager.is_alive()
        False
    """

    def __init__(
        self,
        connection: ConnectionConfig,
        group: str,
        producer_options: Mapping[str, Any] | None = None,
        use_changelogs: bool = True,
        loglevel: int | str | None = None,
        log_format: LogFormat = "text",
        exactly_once: bool = False,
    ) -> None:
        self._connection = connection
        self._group = group
        self._options = dict(producer_options or {})
        self._use_changelogs = use_changelogs
        self._loglevel = loglevel
        self._log_format = log_format
        self._exactly_once = exactly_once
        self._processes: list[SourceProcess] = []
        # Guards the processes while they run.
        self._lock = threading.Lock()
        self._running = False
        self._paused: set[str] = set()

    @property
    def processes(self) -> tuple["SourceProcess", ...]:
        """The processes, in the registration order of their sources."""
        return tuple(self._processes)

    def register(self, source: BaseSource, topic: Topic, instances: Instances | None = None) -> None:
        """Add a source.

        Args:
            source: the source.
            topic: the topic that it produces to.
            instances: whether it runs in "one" instance of the application or in "each"; None for the source's choice.

        Raises:
            ConfigurationError: if it is not a source, needs an internal topic although these are disabled, or cannot run in
                one instance.
            InvalidOperationError: if this source, or another one with its name or topic, is already registered.
        """
        if not isinstance(source, BaseSource):
            raise ArgumentTypeError(f"a {type(source).__name__} is not a source: derive its class from Source")
        name = name_of(source)
        for other in self._processes:
            if other.source is source:
                raise InvalidOperationError(
                    f"the source {name} is added twice: create a second object with another name"
                )
            if other.name == name:
                raise InvalidOperationError(f"two sources are called {name}: give each a unique name")
            if other.topic.name == topic.name:
                raise InvalidOperationError(
                    f"the sources {other.name} and {name} both produce to topic {topic.name!r}: give each a separate topic"
                )
        chosen = source.instances if instances is None else instances
        if chosen not in ("one", "each"):
            raise argument_error(
                f"the source {name} is to run in the instances {chosen!r}: give 'one' or 'each'",
                of_type=isinstance(chosen, str),
            )
        stateful = isinstance(source, StatefulSource)
        if stateful and not self._use_changelogs:
            raise ConfigurationError(
                f"the source {name} keeps its state in a changelog topic: it cannot be used with use_changelog_topics=False"
            )
        if chosen == "one" and not self._use_changelogs:
            raise ConfigurationError(
                f"the source {name} is to run in one instance, which an internal topic decides on: it cannot be used with "
                "use_changelog_topics=False"
            )
        if chosen == "one" and isinstance(source, StatefulSource) and source.store_partitions_count != 1:
            raise ConfigurationError(
                f"the source {name} has {source.store_partitions_count} partitions of state, each for one instance: it "
                "cannot run with instances='one'"
            )
        internal = _internal_topic(self._group, source) if stateful or chosen == "one" else None
        self._processes.append(
            SourceProcess(
                source,
                topic,
                self._connection,
                self._group,
                self._options,
                internal,
                self._loglevel,
                self._log_format,
                instances=chosen,
                transactional=stateful and self._exactly_once,
            )
        )

    def changelog_topics(self, replication_factor: int | None = 1) -> list[Topic]:
        """Return the internal topics of sources that have state or a lease; they must exist before `start`.

        Args:
            replication_factor: number of replicas; None for the cluster's default.

        Raises:
            ConfigurationError: if the name of a source gives no valid topic name.
        """
        topics = []
        for process in self._processes:
            if process.internal_topic is not None:
                source = process.source
                count = source.store_partitions_count if isinstance(source, StatefulSource) else 1
                config = TopicConfig(count, replication_factor, {"cleanup.policy": "compact"})
                topics.append(Topic(process.internal_topic, config, "bytes", "bytes", "bytes", "bytes"))
        return topics

    def refuse_unsendable(self) -> None:
        """Raise the errors that `start` would raise for unsendable sources, without starting them.

        Raises:
            ConfigurationError: if the connection cannot be sent, because of an `oauth_cb`.
            SourceError: if a source cannot be sent to its process.
        """
        for process in self._processes:
            process.order()

    @contextlib.contextmanager
    def running(self) -> Iterator["SourceManager"]:
        """Run the sources while the `with` block runs: `start`, then `stop`, then `check` if the block has not failed.

        Raises:
            SourceError: if a source cannot be started, or has failed.
        """
        self.start()
        try:
            yield self
        finally:
            self.stop()
        self.check()

    def start(self) -> None:
        """Start all processes, without waiting for their sources. They can be started again after `stop`.

        Raises:
            ConfigurationError: if the connection cannot be sent, because of an `oauth_cb`.
            SourceError: if a source cannot be sent to its process.
        """
        try:
            with self._lock:
                self._running = True
                for process in self._processes:
                    if process.name not in self._paused:
                        process.start()
        except BaseException:
            self.stop()
            raise

    def check(self) -> None:
        """Check whether a source has failed. A source that has ended normally is not a failure.

        Raises:
            SourceError: if a source has failed; has its name and the reason.
        """
        with self._lock:
            for process in self._processes:
                process.check()

    def is_alive(self) -> bool:
        """Return whether any source runs, or will run after a pause."""
        with self._lock:
            return bool(self._paused) or any(process.is_alive() for process in self._processes)

    def stop(self) -> None:
        """Request all sources to stop, and kill those that have not ended within their `shutdown_timeout`.

        Failures are raised by `check`.
        """
        with self._lock:
            self._running = False
            for process in self._processes:
                process.ask_to_stop()
            for process in self._processes:
                process.wait_until_stopped()

    def pause(self, name: str) -> None:
        """Stop a source, or do not start it, until `resume`.

        Args:
            name: name of the source.

        Raises:
            ArgumentValueError: if there is no such source.
        """
        process = self._find_process(name)
        with self._lock:
            self._paused.add(name)
            process.ask_to_stop()
        self._finish_pause(process)

    def resume(self, name: str) -> None:
        """Start a source again that was paused. One that runs goes on, and one that is being paused is paused first.

        Args:
            name: name of the source.

        Raises:
            ArgumentValueError: if there is no such source.
            SourceError: if the source cannot be sent to its process.
        """
        process = self._find_process(name)
        self._finish_pause(process)
        with self._lock:
            if name in self._paused:
                self._paused.discard(name)
                if self._running:
                    process.start()

    def _finish_pause(self, process: "SourceProcess") -> None:
        """Return when a process that a pause has asked to stop has ended, or the pause is over."""
        while True:
            with self._lock:
                if process.name not in self._paused or not process.is_stopping:
                    return
                if not process.is_alive() or process.is_overdue:
                    process.wait_until_stopped()
                    return
            # Without the lock, which the run needs for its checks.
            time.sleep(_LOOK_S)

    @property
    def paused(self) -> frozenset[str]:
        """Names of the sources that are paused."""
        return frozenset(self._paused)

    def stats(self) -> dict[str, SourceStats]:
        """Return the states of the sources, by name."""
        with self._lock:
            return {process.name: process.stats(paused=process.name in self._paused) for process in self._processes}

    def _find_process(self, name: str) -> "SourceProcess":
        for process in self._processes:
            if process.name == name:
                return process
        names = ", ".join(process.name for process in self._processes) or "none"
        raise ArgumentValueError(f"there is no source {name!r}; the sources of the application are: {names}")


class SourceProcess:
    """The application's side of one source and its process. Used by one thread.

    Args:
        source: the source.
        topic: the topic that it produces to.
        connection: the connection to the brokers.
        group: the consumer group of the application.
        options: the user's producer options.
        internal_topic: name of the topic of the source's state and of its lease; None if it has neither.
        loglevel: level of the `streamrt` logger in the process.
        log_format: the format of its log lines.
        instances: whether it runs in one instance of the application, or in each.
        transactional: whether it produces in transactions.
    """

    def __init__(
        self,
        source: BaseSource,
        topic: Topic,
        connection: ConnectionConfig,
        group: str,
        options: Mapping[str, Any],
        internal_topic: str | None,
        loglevel: int | str | None,
        log_format: LogFormat,
        *,
        instances: Instances,
        transactional: bool,
    ) -> None:
        self.source = source
        self.topic = topic
        self.name = name_of(source)
        self._connection = connection
        self._group = group
        self._options = options
        self.internal_topic = internal_topic
        self._instances = instances
        self._transactional = transactional
        self._loglevel = loglevel
        self._log_format = log_format
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._asked_at: float | None = None
        self._ended = False
        self._finished = False
        self._failure: str | None = None

    @property
    def pid(self) -> int | None:
        """Id of the process, or None before `start`."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process.

        Raises:
            ConfigurationError: if the connection cannot be sent, because of an `oauth_cb`.
            SourceError: if the source cannot be sent to its process.
            InvalidOperationError: if it is already running.
        """
        if self.is_alive():
            raise InvalidOperationError(f"the source {self.name} is already running: stop it first")
        self._asked_at, self._ended, self._finished, self._failure = None, False, False, None
        order = self.order()
        self._process, self._pipe = start_child(
            "streamrt.runtime.sources.process", "run_source", f"streamrt source {self.name}"
        )
        # If the process has already ended, check() reports it.
        with contextlib.suppress(OSError):
            self._pipe.send_bytes(order)
        logger.info("source %s started for topic %s (process %d)", self.name, self.topic.name, self._process.pid)

    def order(self) -> bytes:
        """Return the pickled order for the process, including secrets.

        Raises:
            ConfigurationError: if the connection cannot be sent, because of an `oauth_cb`.
            SourceError: if the source cannot be sent.
        """
        try:
            with collect_secrets() as collected:
                source = dump_functions((self.source, self.topic))
        except Exception as error:
            raise SourceError(
                f"the source {self.name} cannot be sent to its process ({type(error).__name__}: {error}): create clients, "
                "locks and open files in setup(), not in __init__, and do not store the application in it"
            ) from error
        order = {
            "name": self.name,
            "source": source,
            "secrets": collected,
            "connection": self._connection.to_secret_json(),
            "group": self._group,
            "options": dict(self._options),
            "internal_topic": self.internal_topic,
            "instances": self._instances,
            "stateful": isinstance(self.source, StatefulSource),
            "transactional": self._transactional,
            "loglevel": self._loglevel,
            "log_format": self._log_format,
            "shutdown_timeout": _shutdown_timeout_of(self.source),
            "parent": os.getpid(),
        }
        try:
            return dump_functions(order)
        except Exception as error:
            raise SourceError(
                f"the producer options of source {self.name} cannot be sent to its process ({type(error).__name__}: "
                f"{error}): do not put functions that hold clients, locks or open files into producer_extra_config"
            ) from error

    def check(self) -> None:
        """Check whether the source has failed.

        Raises:
            SourceError: if it has; the stack trace is in the log, at level DEBUG.
        """
        self._collect_result()
        if self._failure is not None:
            raise SourceError(self._failure)

    def is_alive(self) -> bool:
        """Return whether the process is running."""
        return self._process is not None and self._process.poll() is None

    @property
    def is_stopping(self) -> bool:
        """Whether it was asked to stop, and `wait_until_stopped` has not returned since."""
        return self._asked_at is not None and self._pipe is not None

    @property
    def is_overdue(self) -> bool:
        """Whether it was asked to stop more than `shutdown_timeout` seconds ago."""
        return self._asked_at is not None and time.monotonic() > self._asked_at + _shutdown_timeout_of(self.source)

    def stats(self, *, paused: bool) -> SourceStats:
        """Return the state of the source.

        Args:
            paused: whether it was paused.
        """
        self._collect_result()
        alive = self.is_alive()
        return SourceStats(self.topic.name, alive, paused, self._finished and not alive, self._failure or "")

    def ask_to_stop(self) -> None:
        """Send the stop request, once."""
        # A source that has ended before has ended by itself.
        self._collect_result()
        if self._asked_at is not None or self._pipe is None:
            return
        self._asked_at = time.monotonic()
        with contextlib.suppress(OSError):
            self._pipe.send_bytes(STOP)

    def wait_until_stopped(self) -> None:
        """Wait for the end of the process; kill it `shutdown_timeout` seconds after the stop request."""
        if self._process is None:
            return
        timeout = _shutdown_timeout_of(self.source)
        deadline = timeout + (time.monotonic() if self._asked_at is None else self._asked_at)
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            logger.warning(
                "source %s did not stop within %g s; killing its process; raise its shutdown_timeout if it needs longer",
                self.name,
                timeout,
            )
            self._ended = True
            self._process.kill()
            self._process.wait()
        self._collect_result()
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None

    def _collect_result(self) -> None:
        """Read the result of the source, if it has ended."""
        if self._ended or self._process is None:
            return
        # Poll before the pipe is read: the process sends its report before it exits.
        code = self._process.poll()
        try:
            if self._pipe is not None and self._pipe.poll():
                self._handle_report(json.loads(self._pipe.recv_bytes()))
        except (EOFError, OSError):
            # The other end closes shortly before the exit code is available.
            pass
        if not self._ended and code is not None:
            self._ended = True
            self._failure = f"source {self.name} failed: its process {_exit_words(code)}"

    def _handle_report(self, report: Mapping[str, str]) -> None:
        self._ended = True
        if "error" in report:
            self._failure = f"source {self.name} failed: {report['error']}"
            logger.debug("source %s failed:\n%s", self.name, report["traceback"])
        else:
            self._finished = self._asked_at is None
            logger.info("source %s has ended", self.name)


def name_of(source: BaseSource) -> str:
    """Return the name of a source: its `name`, or that of its class."""
    return str(getattr(source, "name", "") or type(source).__name__)


def _shutdown_timeout_of(source: BaseSource) -> float:
    return float(getattr(source, "shutdown_timeout", _DEFAULT_SHUTDOWN_S))


def _internal_topic(group: str, source: BaseSource) -> str:
    store = source.store_name if isinstance(source, StatefulSource) else f"source-{name_of(source)}"
    return source_changelog_name(group, store)


def _exit_words(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code} without a report"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was ended by {name}{', possibly because memory ran out' if -code == signal.SIGKILL else ''}"
