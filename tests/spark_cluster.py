"""A Spark standalone cluster of processes on this machine, each of whose workers stands for a machine of its own."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pyspark

from streamrt.jvm.archive import class_archive
from streamrt.jvm.jars import fetch_jars
from streamrt.jvm.java import find_java
from streamrt.spark.sessions.gateway import archive_kind, spark_class_path
from tests.support import wait_until

ROOT = Path(__file__).resolve().parent.parent
EXECUTOR = "CoarseGrainedExecutorBackend"
EXECUTOR_MB = 512
ENVIRONMENT = {
    "JAVA_HOME": str(find_java().home),
    "SPARK_LOCAL_IP": "127.0.0.1",
    "SPARK_SCALA_VERSION": "2.13",
}
"""Variables that all of Spark's processes need, the driver included."""
# Many Javas start at a time. They need not verify Spark's classes.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"


def quick_java() -> dict[str, str]:
    """Return an environment in which Spark's own scripts start Java as StreamRT does, with the archive of classes of drivers.

    An archive belongs to a class path: Spark's, without a directory of configuration, and StreamRT's libraries behind it.
    """
    jars = fetch_jars("spark")
    archive = class_archive(archive_kind("resident"), find_java(), spark_class_path(jars), writes=False)
    return {
        "JAVA_TOOL_OPTIONS": " ".join((QUICK, *archive.options)),
        "SPARK_CONF_DIR": os.devnull + "/none",
        "SPARK_DIST_CLASSPATH": os.pathsep.join(map(str, jars)),
    }


def free_port() -> int:
    """Return a port that no one uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def kill(*victims: psutil.Process) -> None:
    """Kill processes with everything that they have started, at once."""
    everyone: list[psutil.Process] = []
    for victim in victims:
        try:
            everyone += [victim, *victim.children(recursive=True)]
        except psutil.NoSuchProcess:
            continue
    for process in everyone:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(everyone, timeout=30)


class Daemon:
    """A process of Spark's.

    Args:
        directory: where it works and logs.
        main: its class.
        arguments: what follows.
        environment: additional environment variables.
    """

    def __init__(self, directory: Path, main: str, *arguments: str, **environment: str) -> None:
        directory.mkdir(parents=True)
        home = Path(pyspark.__file__).parent
        # That of drivers, whose archive of classes it uses.
        class_path = spark_class_path(fetch_jars("spark"))
        self._log = directory / "log"
        with self._log.open("wb") as log:
            self.process = psutil.Popen(
                [
                    str(find_java().executable),
                    *("-Xmx128m", "-cp", os.pathsep.join(map(str, class_path))),
                    f"org.apache.spark.deploy.{main}",
                    *arguments,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=directory,
                env={
                    **os.environ,
                    **ENVIRONMENT,
                    **quick_java(),
                    "SPARK_HOME": str(home),
                    "PYTHONPATH": str(ROOT),
                    **environment,
                },
            )

    def wait_for(self, text: str) -> None:
        """Wait until it has logged a text."""

        def seen() -> bool:
            if self.process.poll() is not None:
                raise AssertionError(f"it ended: {self._log.read_text()}")
            return text in self._log.read_text()

        wait_until(seen, what=f"{text!r} in {self._log}")

    def kill(self) -> None:
        """Kill it with everything that it has started."""
        kill(self.process)


class Machine(Daemon):
    """A machine with one executor and a disk of its own.

    Args:
        directory: what the machine has.
        master: Spark's master.
    """

    def __init__(self, directory: Path, master: str) -> None:
        self.state_dir = directory / "state"
        super().__init__(
            directory,
            "worker.Worker",
            *("--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", f"{EXECUTOR_MB}m"),
            *("--work-dir", str(directory / "work"), master),
            STREAMRT_STATE_DIR=str(self.state_dir),
        )

    def executor(self) -> psutil.Process | None:
        """Return the JVM of the executor, if there is one."""
        for child in self.process.children(recursive=True):
            try:
                if any(EXECUTOR in part for part in child.cmdline()):
                    return child
            except psutil.Error:
                continue
        return None

    def stores(self, topic: str) -> set[int]:
        """Return the partitions of a topic whose state lies on this machine."""
        return {int(place.name) for place in self.state_dir.glob(f"*/*/{topic}/*/*") if place.name.isdecimal()}


class Cluster:
    """A master with machines that come and go.

    Args:
        directory: where everything lies.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        port = free_port()
        self.url = f"spark://127.0.0.1:{port}"
        self._master = Daemon(
            directory / "master", "master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"
        )
        self._machines: list[Machine] = []
        self._master.wait_for("I have been elected leader")

    def machine(self) -> Machine:
        """Add a machine."""
        self._machines.append(Machine(self._directory / f"machine-{len(self._machines)}", self.url))
        return self._machines[-1]

    def close(self) -> None:
        """Kill everything."""
        kill(self._master.process, *(machine.process for machine in self._machines))


@contextmanager
def cluster(directory: Path) -> Iterator[Cluster]:
    """Have a cluster for as long as the context lasts."""
    begun = time.monotonic()
    started = Cluster(directory)
    print(f"the master took {time.monotonic() - begun:.1f} s")
    try:
        yield started
    finally:
        started.close()
