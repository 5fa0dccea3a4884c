"""A real schema registry for tests and development, started by Python: Apicurio, which speaks Confluent's API."""

import atexit
import contextlib
import http.client
import logging
import os
import shutil
import signal
import tarfile
import tempfile
import time
from pathlib import Path
from types import TracebackType

from typing_extensions import Self

from streamrt.errors import SchemaRegistryUnavailableError
from streamrt.jvm.archive import cache_directory
from streamrt.jvm.jars import fetch_jars, locked_jars
from streamrt.jvm.java import find_java
from streamrt.testing.guarded import HOST, GuardedProcess, error_in_log, free_port

__all__ = ["EmbeddedSchemaRegistry"]

logger = logging.getLogger(__name__)

_API = "/apis/ccompat/v7"
_JAVA = 21
_STOP_TIMEOUT_S = 10.0
_POLL_S = 0.05
_JVM_OPTIONS = (
    "-Xmx384m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Djava.awt.headless=true",
    f"-Dquarkus.http.host={HOST}",
    # Health and metrics; port 0 selects any free port.
    f"-Dquarkus.management.host={HOST}",
    "-Dquarkus.management.port=0",
)


class EmbeddedSchemaRegistry:
    """A schema registry on this machine that keeps its schemas in memory.

    It needs Java 21 or newer (see `streamrt.jvm.java.find_java`) and downloads Apicurio (160 MB) at first use. It ends
    with this process, also after a crash.

    Args:
        timeout_s: time limit of `start` in seconds, without the download.

    Example:
        ```python
        with EmbeddedSchemaRegistry() as registry:
            config = SchemaRegistryClientConfig(url=registry.url)
        ```
    """

    def __init__(self, *, timeout_s: float = 180.0) -> None:
        self._timeout_s = timeout_s
        self._port: int | None = None
        self._dir: Path | None = None
        self._process: GuardedProcess | None = None
        self._owner = 0

    @property
    def url(self) -> str:
        """Address for `SchemaRegistryClientConfig`.

        Raises:
            SchemaRegistryUnavailableError: if the registry has never been started and so has no port.
        """
        return f"http://{self.address}{_API}"

    @property
    def address(self) -> str:
        """Host and port.

        Raises:
            SchemaRegistryUnavailableError: if the registry has never been started and so has no port.
        """
        if self._port is None:
            raise SchemaRegistryUnavailableError("the embedded schema registry has no address before it is started")
        return f"{HOST}:{self._port}"

    def is_alive(self) -> bool:
        """Return whether the registry's process is running."""
        return self._process is not None and self._process.is_alive()

    def logs(self, lines: int = 50) -> list[str]:
        """Return the last lines that the registry logged.

        Args:
            lines: maximum number of lines.
        """
        if self._dir is None:
            return []
        with contextlib.suppress(FileNotFoundError):
            return (self._dir / "registry.log").read_text("utf-8", "replace").splitlines()[-lines:]
        return []

    def start(self) -> Self:
        """Start the registry and wait until it answers.

        Does nothing if it is running. After `kill`, the port is the same, and the schemas are gone.

        Raises:
            JavaNotFoundError: if there is no Java 21 or newer.
            JarError: if Apicurio cannot be downloaded.
            SchemaRegistryUnavailableError: if the registry ended or was not ready in time.
        """
        if self.is_alive():
            return self
        java = find_java(_JAVA)
        home = _unpack_files()
        if self._dir is None:
            self._dir = Path(tempfile.mkdtemp(prefix="streamrt-registry-"))
        if self._port is None:
            self._port = free_port()
        self._owner = os.getpid()
        atexit.register(self.stop)
        try:
            self._run_registry(
                [
                    str(java.executable),
                    *_JVM_OPTIONS,
                    f"-Djava.io.tmpdir={self._dir}",
                    f"-Dquarkus.http.port={self._port}",
                    *("-jar", str(home / "quarkus-run.jar")),
                ],
                self._dir,
            )
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Shut the registry down. May be called twice."""
        # A forked child inherits this object and its exit handlers, but does not own the registry.
        if self._owner not in (0, os.getpid()):
            return
        atexit.unregister(self.stop)
        self._end_registry(signal.SIGTERM)
        self._port = None
        if self._dir is not None:
            shutil.rmtree(self._dir, ignore_errors=True)
            self._dir = None

    def kill(self) -> None:
        """Kill the registry (SIGKILL), as in a crash; `start` uses the same port again."""
        self._end_registry(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {f'running at {self.url}' if self.is_alive() else 'not running'}>"

    def _run_registry(self, command: list[str], directory: Path) -> None:
        begun = time.monotonic()
        with (directory / "registry.log").open("ab") as log:
            self._process = GuardedProcess(command, log, kept=log.fileno(), scratch=directory, working_dir=directory)
        while not self._is_answering():
            if not self.is_alive():
                raise SchemaRegistryUnavailableError(
                    f"the embedded schema registry did not start: {error_in_log(self.logs(lines=1000))}"
                )
            if time.monotonic() - begun > self._timeout_s:
                raise SchemaRegistryUnavailableError(
                    f"the embedded schema registry was not ready within {self._timeout_s:g} s "
                    f"({error_in_log(self.logs(lines=1000))})"
                )
            time.sleep(_POLL_S)
        logger.debug("schema registry %s ready after %.1f s", self.url, time.monotonic() - begun)

    def _is_answering(self) -> bool:
        connection = http.client.HTTPConnection(self.address, timeout=5.0)
        try:
            connection.request("GET", f"{_API}/subjects")
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _end_registry(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.end(how, _STOP_TIMEOUT_S, "schema registry")


def _unpack_files() -> Path:
    """Return the directory with the registry's files, which are unpacked once and kept."""
    (archive,) = locked_jars("registry")
    cache = cache_directory()
    target = cache / f"{archive.artifact}-{archive.version}-{archive.sha256[:12]}"
    if target.is_dir():
        return target
    (path,) = fetch_jars("registry")
    cache.mkdir(parents=True, exist_ok=True)
    # Unpacked into another directory and renamed: a killed process, or two at once, leave no partial directory.
    staging = Path(tempfile.mkdtemp(dir=cache, prefix=".unpacking-"))
    try:
        with tarfile.open(path) as files:
            files.extractall(staging, filter="data")
        with contextlib.suppress(OSError):  # another process was faster
            staging.rename(target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return target
