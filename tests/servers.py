"""Servers for tests, and a browser: `python -m tests.servers` installs them, `Server` runs one.

The programs come from the packages of Debian and Ubuntu. Elsewhere, install them by other means; tests whose server cannot
be found fail and name it.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.processes import freeze, process_tree, thaw
from tests.support import wait_until

# The program of each package. Its service is not started: tests run the program themselves.
PACKAGES = {
    "chromium": "chromium",
    "influxdb": "influxd",
    "mariadb-server": "mariadbd",
    "mosquitto": "mosquitto",
    # With promtool.
    "prometheus": "prometheus",
    "redis-server": "redis-server",
}
_POLICY = Path("/usr/sbin/policy-rc.d")
# Where packages put programs that are not for everyone.
_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))


class NoServerError(Exception):
    """There is no program of this name."""


def program(name: str) -> str:
    """Return the path of a program.

    Raises:
        NoServerError: if it is not installed.
    """
    found = shutil.which(name, path=_PATH)
    if found is None:
        raise NoServerError(f"{name} is not installed: run `make servers`, or install it")
    return found


def free_port() -> int:
    """Return a port of the loopback interface that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Server:
    """A program that listens on a port of the loopback interface.

    Args:
        command: the command line.
        port: the port.
        directory: the working directory; the output of the program goes to `log` in it.
        options: further arguments of `subprocess.Popen`, such as `user`.
    """

    def __init__(self, command: Sequence[str], port: int, directory: Path, **options: Any) -> None:
        self.port = port
        self.directory = directory
        self._command = list(command)
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the program, and wait until it accepts connections."""
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory, **self._options
            )
        wait_until(self._listens, 120, f"{self._command[0]} to listen on port {self.port}")

    def kill(self) -> None:
        """Kill the program, as a crash would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ask the program to end, and wait for it."""
        self._end(signal.SIGTERM)

    def freeze(self) -> None:
        """Halt the program; clients wait for its answers."""
        assert self._process is not None
        freeze(process_tree(self._process.pid))

    def thaw(self) -> None:
        """Let a frozen program go on."""
        assert self._process is not None
        thaw(process_tree(self._process.pid))

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _listens(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.directory / "log").read_text(errors="replace")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False


@contextlib.contextmanager
def workspace(name: str) -> Iterator[Path]:
    """A directory for a server, open to the user that it runs as, and deleted at the end."""
    # The directories of pytest belong only to root, if root runs it.
    directory = Path(tempfile.mkdtemp(prefix=f"streamrt-{name}-"))
    directory.chmod(0o755)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def install() -> int:
    """Install the packages that are missing; return an exit code."""
    missing = [package for package, name in PACKAGES.items() if shutil.which(name, path=_PATH) is None]
    if not missing:
        return 0
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        print(f"tests need these programs: {', '.join(missing)}; install them", file=sys.stderr)
        return 0
    print(f"Installing {', '.join(missing)} for tests")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with _no_services():
        for arguments in (["update", "-q"], ["install", "-q", "-y", "--no-install-recommends", *missing]):
            done = subprocess.run(["apt-get", *arguments], env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                print(done.stderr[-2_000:], file=sys.stderr)
    return int(any(shutil.which(PACKAGES[package], path=_PATH) is None for package in missing))


@contextlib.contextmanager
def _no_services() -> Iterator[None]:
    """Keep packages from starting their services (policy-rc.d(5))."""
    if _POLICY.exists():
        yield
        return
    _POLICY.write_text("#!/bin/sh\nexit 101\n")
    _POLICY.chmod(0o755)
    try:
        yield
    finally:
        _POLICY.unlink()


if __name__ == "__main__":
    sys.exit(install())
