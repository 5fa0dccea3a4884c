"""The processes of sources: each source runs in a separate process, which the application watches.

```
application                                    process of a source
-----------                                    -------------------
start:  new process, pipe between the two
        search path of modules  -------------> import StreamRT
        source, topic, secrets  -------------> restore the state, configure, start
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
import multiprocessing.spawn
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection, Pipe
from typing import Any

import cloudpickle

from streamrt.connectors import BaseSource, StatefulSource
from streamrt.errors import ArgumentTypeError, ConfigurationError, InvalidOperationError, SourceError
from streamrt.kafka import ConnectionConfig, TopicConfig
from streamrt.runtime.driver.source_process import STOP
from streamrt.secret import collect_secrets
from streamrt.topics import Topic

__all__ = ["SourceManager", "SourceProcess"]

logger = logging.getLogger("streamrt.sources")

# Runs before StreamRT can be imported, because the application may have extended the module search path. The working
# directory must not be searched for Python's modules, and SIGTERM must not end a process that cannot stop cleanly yet.
_BOOTSTRAP = (
    "import sys; sys.path[:] = filter(None, sys.path); "
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "from multiprocessing.connection import Connection; pipe = Connection(int(sys.argv[1])); "
    "sys.path[:] = pipe.recv(); from streamrt.runtime.driver.source_process import run_source; run_source(pipe)"
)
_DEFAULT_SHUTDOWN_S = 10.0


class SourceManager:
    """Starts, watches and stops the sources of an application. Used by one thread.

    Args:
        connection: the connection to the brokers.
        group: the consumer group of the application, which is part of the names of changelog topics.
        producer_options: the user's producer options, with librdkafka's names.
        use_changelogs: whether changelog topics may be used; without them, stateful sources are rejected.
        loglevel: level of the `streamrt` logger in the processes of sources; None does not configure logging.

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
    ) -> None:
        self._connection = connection
        self._group = group
        self._options = dict(producer_options or {})
        self._use_changelogs = use_changelogs
        self._loglevel = loglevel
        self._processes: list[SourceProcess] = []

    @property
    def processes(self) -> tuple["SourceProcess", ...]:
        """The processes, in the registration order of their sources."""
        return tuple(self._processes)

    def register(self, source: BaseSource, topic: Topic) -> None:
        """Add a source.

        Args:
            source: the source.
            topic: the topic that it produces to.

        Raises:
            ConfigurationError: if it is not a source, or needs a changelog although these are disabled.
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
        if isinstance(source, StatefulSource) and not self._use_changelogs:
            raise ConfigurationError(
                f"the source {name} keeps its state in a changelog topic: it cannot be used with use_changelog_topics=False"
            )
        changelog = _changelog_name(self._group, source) if isinstance(source, StatefulSource) else None
        self._processes.append(
            SourceProcess(source, topic, self._connection, self._group, self._options, changelog, self._loglevel)
        )

    def changelog_topics(self, replication_factor: int | None = 1) -> list[Topic]:
        """Return the changelog topics of stateful sources; they must exist before `start`.

        Args:
            replication_factor: number of replicas; None for the cluster's default.

        Raises:
            ConfigurationError: if the name of a source gives no valid topic name.
        """
        topics = []
        for process in self._processes:
            if isinstance(process.source, StatefulSource):
                config = TopicConfig(
                    process.source.store_partitions_count, replication_factor, {"cleanup.policy": "compact"}
                )
                name = _changelog_name(self._group, process.source)
                topics.append(Topic(name, config, "bytes", "bytes", "bytes", "bytes"))
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
            for process in self._processes:
                process.start()
        except BaseException:
            self.stop()
            raise

    def check(self) -> None:
        """Check whether a source has failed. A source that has ended normally is no failure.

        Raises:
            SourceError: if a source has failed; has its name and the reason.
        """
        for process in self._processes:
            process.check()

    def is_alive(self) -> bool:
        """Return whether any process is running."""
        return any(process.is_alive() for process in self._processes)

    def stop(self) -> None:
        """Request all sources to stop, and kill those that have not ended within their `shutdown_timeout`.

        Failures are raised by `check`.
        """
        for process in self._processes:
            process.ask_to_stop()
        for process in self._processes:
            process.wait_until_stopped()


class SourceProcess:
    """The application's side of one source and its process. Used by one thread.

    Args:
        source: the source.
        topic: the topic that it produces to.
        connection: the connection to the brokers.
        group: the consumer group of the application.
        options: the user's producer options.
        changelog: name of the changelog topic, for a stateful source.
        loglevel: level of the `streamrt` logger in the process.
    """

    def __init__(
        self,
        source: BaseSource,
        topic: Topic,
        connection: ConnectionConfig,
        group: str,
        options: Mapping[str, Any],
        changelog: str | None,
        loglevel: int | str | None,
    ) -> None:
        self.source = source
        self.topic = topic
        self.name = name_of(source)
        self._connection = connection
        self._group = group
        self._options = options
        self._changelog = changelog
        self._loglevel = loglevel
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._asked_at: float | None = None
        self._ended = False
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
        self._asked_at, self._ended, self._failure = None, False, None
        order = self.order()
        ours, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and program
                [
                    os.fsdecode(multiprocessing.spawn.get_executable()),
                    *(f"-W{option}" for option in sys.warnoptions),
                    "-c",
                    _BOOTSTRAP,
                    str(theirs.fileno()),
                    f"streamrt source {self.name}",
                ],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                # Ctrl-C reaches the whole process group; the application decides when its sources stop.
                start_new_session=True,
            )
        self._pipe = ours
        # If the process has already ended, check() reports it.
        with contextlib.suppress(OSError):
            ours.send([str(entry) for entry in sys.path])
            ours.send_bytes(order)
        logger.info("source %s started for topic %s (process %d)", self.name, self.topic.name, self._process.pid)

    def order(self) -> bytes:
        """Return the pickled order for the process, including secrets.

        Raises:
            ConfigurationError: if the connection cannot be sent, because of an `oauth_cb`.
            SourceError: if the source cannot be sent.
        """
        try:
            with collect_secrets() as collected:
                source = cloudpickle.dumps((self.source, self.topic))
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
            "changelog": self._changelog,
            "loglevel": self._loglevel,
            "shutdown_timeout": _shutdown_timeout_of(self.source),
            "parent": os.getpid(),
        }
        try:
            data: bytes = cloudpickle.dumps(order)
        except Exception as error:
            raise SourceError(
                f"the producer options of source {self.name} cannot be sent to its process ({type(error).__name__}: "
                f"{error}): do not put functions that hold clients, locks or open files into producer_extra_config"
            ) from error
        return data

    def check(self) -> None:
        """Check whether the source has failed.

        Raises:
            SourceError: if it has; the stack trace is in the log, at level DEBUG.
        """
        self._collect()
        if self._failure is not None:
            raise SourceError(self._failure)

    def is_alive(self) -> bool:
        """Return whether the process is running."""
        return self._process is not None and self._process.poll() is None

    def ask_to_stop(self) -> None:
        """Send the stop request, once."""
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
        self._collect()
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None

    def _collect(self) -> None:
        """Read the result of the source, if it has ended."""
        if self._ended or self._process is None:
            return
        # Poll before the pipe is read: the process sends its report before it exits.
        code = self._process.poll()
        try:
            if self._pipe is not None and self._pipe.poll():
                self._handle(json.loads(self._pipe.recv_bytes()))
        except (EOFError, OSError):
            # The other end closes shortly before the exit code is available.
            pass
        if not self._ended and code is not None:
            self._ended = True
            self._failure = f"source {self.name} failed: its process {_exit_words(code)}"

    def _handle(self, report: Mapping[str, str]) -> None:
        self._ended = True
        if "error" in report:
            self._failure = f"source {self.name} failed: {report['error']}"
            logger.debug("source %s failed:\n%s", self.name, report["traceback"])
        else:
            logger.info("source %s has ended", self.name)


def name_of(source: BaseSource) -> str:
    """Return the name of a source: its `name`, or that of its class."""
    return str(getattr(source, "name", "") or type(source).__name__)


def _shutdown_timeout_of(source: BaseSource) -> float:
    return float(getattr(source, "shutdown_timeout", _DEFAULT_SHUTDOWN_S))


def _changelog_name(group: str, source: StatefulSource) -> str:
    return f"changelog__{group}--{source.store_name}"


def _exit_words(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code} without a report"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was ended by {name}{', possibly because memory ran out' if -code == signal.SIGKILL else ''}"
