"""Sources at work: each in a process of its own, which the application watches.

```
application                                    process of a source
-----------                                    -------------------
start:  new process, pipe between the two
        search path of modules  -------------> import StreamRT
        source, topic, secrets  -------------> restore the state, configure, start
check:                          <------------- how it ended, or nothing
stop:   "stop"                  -------------> source.stop(), in another thread than start()
        wait shutdown_timeout, then SIGKILL
        the pipe closes         -------------> the application is gone: stop, and exit after shutdown_timeout
```

The process is a new interpreter and not a fork: clients and threads of the application do not survive a fork. What
Python's `multiprocessing` calls "spawn" would import the user's program once more, which only a program that guards its
`app.run()` survives; functions and classes of the program travel by value instead, as they do to tasks.

Secrets go through the pipe alone: no command line, no environment, no file.
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
from streamrt.runtime.source_process import STOP
from streamrt.secret import collect_secrets
from streamrt.topics import Topic

__all__ = ["SourceManager", "SourceProcess"]

logger = logging.getLogger("streamrt.sources")

# Runs before anything of ours can be imported: the application may have found it by a path that it set itself. The
# working directory is no place to look for modules of Python, and SIGTERM must not end what cannot stop well yet.
_BOOTSTRAP = (
    "import sys; sys.path[:] = filter(None, sys.path); "
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "from multiprocessing.connection import Connection; pipe = Connection(int(sys.argv[1])); "
    "sys.path[:] = pipe.recv(); from streamrt.runtime.source_process import run_source; run_source(pipe)"
)
_DEFAULT_SHUTDOWN_S = 10.0


class SourceManager:
    """Starts, watches and stops the sources of an application. Used by one thread.

    Args:
        connection: how to reach the brokers.
        group: the consumer group of the application, whose name is part of the names of changelog topics.
        producer_options: the user's options for producers, in librdkafka's words.
        use_changelogs: whether there may be changelog topics; without them, stateful sources are refused.
        loglevel: level of the `streamrt` logger in the processes of sources; None leaves logging alone.

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
        """The processes, in the order in which their sources were registered."""
        return tuple(self._processes)

    def register(self, source: BaseSource, topic: Topic) -> None:
        """Add a source.

        Args:
            source: the source.
            topic: the topic that it produces to.

        Raises:
            ConfigurationError: if it is no source, or needs a changelog that it cannot have.
            InvalidOperationError: if it, or another one with its name or its topic, was registered before.
        """
        if not isinstance(source, BaseSource):
            raise ArgumentTypeError(f"a {type(source).__name__} is no source: derive its class from Source")
        name = name_of(source)
        for other in self._processes:
            if other.source is source:
                raise InvalidOperationError(f"the source {name} is added twice: make a second object with another name")
            if other.name == name:
                raise InvalidOperationError(f"two sources are called {name}: give each a name of its own")
            if other.topic.name == topic.name:
                raise InvalidOperationError(
                    f"the sources {other.name} and {name} both produce to topic {topic.name!r}: give each a topic of its own"
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
            replication_factor: number of copies; None leaves it to the cluster.

        Raises:
            ConfigurationError: if the name of a source makes no name of a topic.
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
        """Refuse what `start` would refuse, without starting anything.

        Raises:
            ConfigurationError: if the connection cannot be handed over, because of an `oauth_cb`.
            SourceError: if a source cannot be sent to its process.
        """
        for process in self._processes:
            process.order()

    @contextlib.contextmanager
    def running(self) -> Iterator["SourceManager"]:
        """Run the sources while the `with` block runs: `start`, then `stop`, then `check` if the block has not failed.

        Raises:
            SourceError: if a source cannot be started, or has failed by the end.
        """
        self.start()
        try:
            yield self
        finally:
            self.stop()
        self.check()

    def start(self) -> None:
        """Start all processes; returns when they are on their way. After a `stop` they can be started again.

        Raises:
            ConfigurationError: if the connection cannot be handed over, because of an `oauth_cb`.
            SourceError: if a source cannot be sent to its process.
        """
        try:
            for process in self._processes:
                process.start()
        except BaseException:
            self.stop()
            raise

    def check(self) -> None:
        """Look whether a source has failed. A source that has ended by itself is fine.

        Raises:
            SourceError: telling which, and why.
        """
        for process in self._processes:
            process.check()

    def is_alive(self) -> bool:
        """Return whether a process runs."""
        return any(process.is_alive() for process in self._processes)

    def stop(self) -> None:
        """Ask all sources to stop, and kill those that have not ended after their `shutdown_timeout`.

        What failed meanwhile is told by `check`.
        """
        for process in self._processes:
            process.ask_to_stop()
        for process in self._processes:
            process.wait_until_stopped()


class SourceProcess:
    """One source and its process, as the application sees it. Used by one thread.

    Args:
        source: the source.
        topic: the topic that it produces to.
        connection: how to reach the brokers.
        group: the consumer group of the application.
        options: the user's options for producers.
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
            ConfigurationError: if the connection cannot be handed over, because of an `oauth_cb`.
            SourceError: if the source cannot be sent to its process.
            InvalidOperationError: if it runs already.
        """
        if self.is_alive():
            raise InvalidOperationError(f"the source {self.name} runs already: stop it first")
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
        # A process that is gone already is told by check().
        with contextlib.suppress(OSError):
            ours.send([str(entry) for entry in sys.path])
            ours.send_bytes(order)
        logger.info("source %s started for topic %s (process %d)", self.name, self.topic.name, self._process.pid)

    def order(self) -> bytes:
        """Return what the process needs, secrets included.

        Raises:
            ConfigurationError: if the connection cannot be handed over, because of an `oauth_cb`.
            SourceError: if the source cannot be sent.
        """
        try:
            with collect_secrets() as collected:
                source = cloudpickle.dumps((self.source, self.topic))
        except Exception as error:
            raise SourceError(
                f"the source {self.name} cannot be sent to its process ({type(error).__name__}: {error}): make clients, "
                "locks and open files in setup(), not in __init__, and keep the application out of it"
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
                f"{error}): keep functions with clients, locks and open files out of producer_extra_config"
            ) from error
        return data

    def check(self) -> None:
        """Look whether the source has failed.

        Raises:
            SourceError: if it has; the stack trace is in the log, at level DEBUG.
        """
        self._collect()
        if self._failure is not None:
            raise SourceError(self._failure)

    def is_alive(self) -> bool:
        """Return whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def ask_to_stop(self) -> None:
        """Tell the source to stop, once."""
        if self._asked_at is not None or self._pipe is None:
            return
        self._asked_at = time.monotonic()
        with contextlib.suppress(OSError):
            self._pipe.send_bytes(STOP)

    def wait_until_stopped(self) -> None:
        """Wait for the end of the process; kill it `shutdown_timeout` after it was asked to stop."""
        if self._process is None:
            return
        timeout = _shutdown_timeout_of(self.source)
        deadline = timeout + (time.monotonic() if self._asked_at is None else self._asked_at)
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            logger.warning(
                "source %s did not stop within %g s and is killed; raise its shutdown_timeout if it needs longer",
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
        """Take in how the source has ended, if it has."""
        if self._ended or self._process is None:
            return
        # Asked before the pipe is read: what a process says, it says before it exits.
        code = self._process.poll()
        try:
            if self._pipe is not None and self._pipe.poll():
                self._take(json.loads(self._pipe.recv_bytes()))
        except (EOFError, OSError):
            # The other end closes a moment before the exit code is there.
            pass
        if not self._ended and code is not None:
            self._ended = True
            self._failure = f"source {self.name} failed: its process {_exit_words(code)}"

    def _take(self, report: Mapping[str, str]) -> None:
        self._ended = True
        if "error" in report:
            self._failure = f"source {self.name} failed: {report['error']}"
            logger.debug("source %s failed:\n%s", self.name, report["traceback"])
        else:
            logger.info("source %s has ended", self.name)


def name_of(source: BaseSource) -> str:
    """Return what a source is called: its `name`, or that of its class."""
    return str(getattr(source, "name", "") or type(source).__name__)


def _shutdown_timeout_of(source: BaseSource) -> float:
    return float(getattr(source, "shutdown_timeout", _DEFAULT_SHUTDOWN_S))


def _changelog_name(group: str, source: StatefulSource) -> str:
    return f"changelog__{group}--{source.store_name}"


def _exit_words(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code} without saying why"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was ended by {name}{', perhaps for want of memory' if -code == signal.SIGKILL else ''}"
