"""A real Kafka broker for tests and development, started by Python.

Life cycle:

    new --start()--> running --stop()--> new
                      |   ^
                 kill()   | start()
                      v   |
                     crashed --stop()--> new

A crashed broker keeps its data and its ports, as tests of failures require.
"""

import atexit
import base64
import logging
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from typing_extensions import Self

from streamrt.common.file_lock import FileLock
from streamrt.common.texts import option_text
from streamrt.errors import ConfigurationError, KafkaStartError
from streamrt.jvm.archive import class_archive
from streamrt.jvm.jars import fetch_jars
from streamrt.jvm.java import find_java
from streamrt.testing.guarded import HOST, GuardedProcess, error_in_log, free_port, is_free

__all__ = ["EmbeddedKafka"]

logger = logging.getLogger(__name__)

_START_ATTEMPTS = 3
_STOP_TIMEOUT_S = 15.0
_ARCHIVE_S = 60.0
"""Time limit of a stop in which the JVM writes its class archive."""
_POLL_S = 0.02

_STARTED = "Kafka Server started"
_JVM_OPTIONS = (
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    # The only line at this level that reports that the broker is ready.
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)


class EmbeddedKafka:
    """A single Kafka broker (KRaft, broker and controller in one JVM) on this machine.

    It needs a Java runtime (see `streamrt.jvm.java.find_java`) and downloads Kafka's libraries at first use. Topics are
    not created automatically. The broker ends with this process, also after a crash.

    Args:
        port: port of the plaintext listener on 127.0.0.1; a free one by default.
        data_dir: directory that keeps the data; a later start with the same directory finds the topics again.
            By default a temporary directory that `stop` removes.
        config: broker settings that are added to the default ones and override them.
        extra_listeners: security protocols ("SSL", "SASL_PLAINTEXT", "SASL_SSL"), each with one additional
            listener on a free port, see `address`. `config` contains their settings.
        timeout_s: time limit of `start` in seconds.
        libraries: Java libraries of another version of Kafka, in class path order; by default those of the version that
            StreamRT locks.

    Raises:
        ConfigurationError: if `port` is not a valid port.

    Example:
        >>> with EmbeddedKafka() as kafka:
        ...     kafka.is_alive()
        True
    """

    def __init__(
        self,
        port: int | None = None,
        *,
        data_dir: str | Path | None = None,
        config: Mapping[str, str | int | bool] | None = None,
        extra_listeners: Sequence[str] = (),
        timeout_s: float = 180.0,
        libraries: Sequence[Path] | None = None,
    ) -> None:
        if port is not None and not 0 < port < 65_536:
            raise ConfigurationError(f"port must be between 1 and 65535, not {port}")
        self._wanted_port = port
        self._wanted_dir = Path(data_dir).absolute() if data_dir is not None else None
        self._config = dict(config or {})
        self._listeners = ("PLAINTEXT", *extra_listeners)
        self._timeout_s = timeout_s
        self._libraries = libraries
        self._dir: Path | None = None
        self._ports: dict[str, int] = {}
        self._process: GuardedProcess | None = None
        self._owner = 0
        self._log_start = 0
        self._stop_timeout_s = _STOP_TIMEOUT_S

    @property
    def bootstrap_servers(self) -> str:
        """Address of the plaintext listener, for `bootstrap.servers`."""
        return self.address("PLAINTEXT")

    @property
    def data_dir(self) -> Path:
        """Directory with the data, the settings (`server.properties`) and the log (`kafka.log`).

        Raises:
            KafkaStartError: if the directory is temporary and the broker was not started.
        """
        directory = self._wanted_dir or self._dir
        if directory is None:
            raise KafkaStartError("the embedded Kafka broker has no data directory before it is started")
        return directory

    @property
    def pid(self) -> int | None:
        """Process id of the broker, or None if it is not running."""
        return self._process.pid if self._process is not None and self.is_alive() else None

    def address(self, listener: str) -> str:
        """Return `host:port` of a listener.

        Args:
            listener: "PLAINTEXT" or one of `extra_listeners`.

        Raises:
            KafkaStartError: if the broker has never been started and so has no ports.
        """
        if listener not in self._ports:
            raise KafkaStartError(f"the embedded Kafka broker has no listener {listener} before it is started")
        return f"{HOST}:{self._ports[listener]}"

    def is_alive(self) -> bool:
        """Return whether the broker's process is running."""
        return self._process is not None and self._process.is_alive()

    def logs(self, lines: int = 50) -> list[str]:
        """Return the last lines that the broker logged since its last start.

        Args:
            lines: maximum number of lines.

        Example:
            >>> EmbeddedKafka().logs()
            []
        """
        directory = self._wanted_dir or self._dir
        if directory is None:
            return []
        try:
            with (directory / "kafka.log").open("rb") as file:
                file.seek(self._log_start)
                text = file.read()
        except FileNotFoundError:
            return []
        return text.decode("utf-8", "replace").splitlines()[-lines:]

    def start(self) -> Self:
        """Start the broker and wait until it accepts connections.

        Does nothing if it is running. After `kill`, it has the same data and ports.

        Raises:
            JavaNotFoundError: if there is no Java 17 or newer.
            JarError: if Kafka's libraries cannot be downloaded.
            KafkaStartError: if the port is taken, or the broker ended or was not ready in time.
        """
        if self.is_alive():
            return self
        java = find_java()
        jars = fetch_jars("kafka") if self._libraries is None else list(self._libraries)
        java_command = [str(java.executable), *_JVM_OPTIONS, "-cp", os.pathsep.join(map(str, jars))]
        tool = [*java_command, *class_archive("kafka", java, jars, writes=False).options]
        if self._wanted_dir is None and self._dir is None:
            self._dir = Path(tempfile.mkdtemp(prefix="streamrt-kafka-"))
        self._owner = os.getpid()
        atexit.register(self.stop)
        deadline = time.monotonic() + self._timeout_s
        try:
            if "," in str(self.data_dir):
                raise KafkaStartError(f"{self.data_dir} cannot hold Kafka's data: its name contains a comma")
            self.data_dir.mkdir(parents=True, exist_ok=True)
            keep_ports = bool(self._ports)
            for attempt in range(1, _START_ATTEMPTS + 1):
                if not keep_ports:
                    self._choose_ports()
                with _lock_directory(self.data_dir) as lock:
                    self._format_storage(tool, deadline)
                    archive = class_archive("kafka", java, jars)
                    self._stop_timeout_s = _ARCHIVE_S if archive.writes else _STOP_TIMEOUT_S
                    command = [*java_command, *archive.options]
                    problem = self._run_broker(command, lock.fileno(), deadline)
                if problem is None:
                    return self
                # Another process may take a port between the choice and the start of the broker.
                lost_a_race = "Address already in use" in problem and self._wanted_port is None
                if not lost_a_race or keep_ports or attempt == _START_ATTEMPTS:
                    raise KafkaStartError(f"the embedded Kafka broker did not start: {problem}")
        except OSError as error:
            self.stop()
            raise KafkaStartError(f"the embedded Kafka broker did not start: {error}") from error
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End the broker, and remove its data directory if that is temporary. May be called twice."""
        # A forked child inherits this object and its exit handlers, but does not own the broker.
        if self._owner not in (0, os.getpid()):
            return
        atexit.unregister(self.stop)
        # Data that is removed needs no clean shutdown, which takes half a second. One that writes a class archive needs it.
        is_temporary = self._dir is not None and self._stop_timeout_s < _ARCHIVE_S
        self._end_broker(signal.SIGKILL if is_temporary else signal.SIGTERM)
        self._ports = {}
        if self._dir is not None:
            shutil.rmtree(self._dir, ignore_errors=True)
            self._dir = None

    def kill(self) -> None:
        """Kill the broker (SIGKILL), as in a crash; `start` uses its data and ports again.

        The next start takes some 3 s longer, until the controller gives the old broker up.
        """
        self._end_broker(signal.SIGKILL)

    def wait(self) -> None:
        """Wait until the broker's process ends, which happens only after a failure or a signal."""
        if self._process is not None:
            self._process.wait()

    def restart(self) -> None:
        """Shut the broker down cleanly and start it again with its data and ports.

        Raises:
            KafkaStartError: if the broker did not start again.
        """
        self._end_broker(signal.SIGTERM)
        self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = f"running at {self.bootstrap_servers}" if self.is_alive() else "not running"
        return f"<{type(self).__name__} {state}>"

    def _choose_ports(self) -> None:
        if self._wanted_port is not None and not is_free(self._wanted_port):
            raise KafkaStartError(
                f"port {self._wanted_port} of {HOST} is taken: choose another port or end the program that "
                "listens there"
            )
        ports = {} if self._wanted_port is None else {"PLAINTEXT": self._wanted_port}
        for listener in (*self._listeners, "CONTROLLER"):
            if listener not in ports:
                ports[listener] = free_port(set(ports.values()))
        self._ports = ports

    def _broker_settings(self) -> dict[str, str]:
        own = {name: f"{name}://{HOST}:{port}" for name, port in self._ports.items()}
        protocols = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
        settings: dict[str, str | int | bool] = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{HOST}:{self._ports['CONTROLLER']}",
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join(own.values()),
            "advertised.listeners": ",".join(own[name] for name in self._listeners),
            "listener.security.protocol.map": ",".join(
                ["CONTROLLER:PLAINTEXT", *(f"{name}:{name}" for name in protocols)]
            ),
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self.data_dir / "data"),
            "auto.create.topics.enable": False,
            # One broker can hold one replica.
            "default.replication.factor": 1,
            "min.insync.replicas": 1,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            # Faster tests: internal topics have few partitions, and groups do not wait for more members.
            "offsets.topic.num.partitions": 4,
            "transaction.state.log.num.partitions": 4,
            "share.coordinator.state.topic.num.partitions": 4,
            "group.initial.rebalance.delay.ms": 0,
            # With group_protocol="consumer", members do not choose these.
            "group.consumer.heartbeat.interval.ms": 500,
            "group.consumer.min.heartbeat.interval.ms": 500,
            "group.consumer.session.timeout.ms": 10_000,
            "group.consumer.min.session.timeout.ms": 3_000,
            # Tests write records with old timestamps, which retention by time would delete.
            "log.retention.ms": -1,
            # A killed broker is accepted again only after its old session ends; Kafka's default is 9 s.
            "broker.session.timeout.ms": 3_000,
            "broker.heartbeat.interval.ms": 500,
            "num.network.threads": 2,
            "num.io.threads": 4,
            "log.cleaner.dedupe.buffer.size": 16 * 1024 * 1024,
        }
        settings.update(self._config)
        return {name: option_text(value) for name, value in settings.items()}

    def _format_storage(self, command: list[str], deadline: float) -> None:
        settings = self._broker_settings()
        properties = self.data_dir / "server.properties"
        lines = [f"{name}={_escape_property(value)}\n" for name, value in settings.items()]
        properties.write_text("".join(lines), encoding="ascii")
        first_log_dir = settings["log.dirs"].split(",")[0].strip()
        if Path(first_log_dir, "meta.properties").exists():
            return
        tool = ["kafka.tools.StorageTool", "format", "--cluster-id", _cluster_id()]
        tool += ["--config", str(properties)]
        try:
            done = subprocess.run(  # noqa: S603 - our own command
                [*command, *tool],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=max(1.0, deadline - time.monotonic()),
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise KafkaStartError(f"the embedded Kafka broker was not ready within {self._timeout_s:g} s") from error
        if done.returncode != 0:
            reason = error_in_log(done.stdout.splitlines())
            raise KafkaStartError(f"the embedded Kafka broker could not format {first_log_dir}: {reason}")

    def _run_broker(self, command: list[str], lock: int, deadline: float) -> str | None:
        """Start the JVM and wait; return the error, or None if the broker is ready."""
        log_file = self.data_dir / "kafka.log"
        begun = time.monotonic()
        with log_file.open("ab") as log:
            self._log_start = log.tell()
            command = [*command, "kafka.Kafka", str(self.data_dir / "server.properties")]
            self._process = GuardedProcess(command, log, kept=lock, scratch=self._dir)
        while not any(_STARTED in line for line in self.logs(lines=1000)):
            if not self.is_alive():
                reason = error_in_log(self.logs(lines=1000))
                self._end_broker(signal.SIGKILL)
                return reason
            if time.monotonic() > deadline:
                reason = error_in_log(self.logs(lines=1000))
                self._end_broker(signal.SIGKILL)
                return f"it was not ready within {self._timeout_s:g} s ({reason})"
            time.sleep(_POLL_S)
        logger.debug("Kafka broker %s ready after %.1f s", self.bootstrap_servers, time.monotonic() - begun)
        return None

    def _end_broker(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.end(how, self._stop_timeout_s, "Kafka broker")


def _lock_directory(directory: Path) -> FileLock:
    """Lock `directory` against a second broker; a process that inherits the descriptor keeps the lock.

    Kafka has its own lock, but a second broker takes it only after it has written into the metadata log of the
    first.
    """
    lock = FileLock.try_acquire(directory / "broker.lock", mode=0o644)
    if lock is None:
        raise KafkaStartError(f"{directory} is in use by another Kafka broker: end it or choose another")
    return lock


def _escape_property(value: str) -> str:
    """Return `value` in the form of a Java properties file, which is Latin-1."""
    escaped = value.replace("\\", "\\\\").replace("\r", "\\r").replace("\n", "\\n")
    units = escaped.encode("utf-16-be", "surrogatepass")
    codes = [int.from_bytes(units[partition : partition + 2], "big") for partition in range(0, len(units), 2)]
    return "".join(chr(code) if code < 128 else f"\\u{code:04x}" for code in codes)


def _cluster_id() -> str:
    # Kafka's tool would take an id that begins with a dash for an option.
    while True:
        name = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not name.startswith("-"):
            return name
