"""The process from which Spark forks its Python workers: PySpark's daemon, with the workers' imports already done.

Spark starts it as `python -m streamrt.spark.workers.daemon pyspark.worker` for its first job. The imports would then take a
second, for which an application would wait. `Prepared` therefore starts such a process in parallel with Spark's JVM.
The process that Spark starts passes its standard streams, its environment and its working directory to the prepared
one.

No module may start a thread on import, because threads do not survive a fork. That is why pyarrow, which micro-batches
need, is not imported here.
"""

import contextlib
import gc
import json
import os
import select
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["Prepared"]

_ADDRESS = "STREAMRT_WORKERS"
_LENGTH = struct.Struct(">I")
_ACCEPTED = b"+"
_END_S = 5.0
_STDIN, _STDOUT, _STDERR = 0, 1, 2
_OF_THE_INTERPRETER = ("PYTHONHASHSEED", "PYTHONOPTIMIZE", "PYTHONMALLOC", "PYTHONUTF8", "PYTHONWARNINGS", "LD_PRELOAD")
"""Variables that take effect only at the start of an interpreter."""


class Prepared:
    """A process that imports the workers' modules, until Spark takes it over, or until `close`.

    Args:
        python: the Python of the workers.
        environment: the environment of Spark's JVM; the variable with the process's address is added to it.
        directory: directory of its socket; only this user can read it.
    """

    def __init__(self, python: str, environment: dict[str, str], directory: Path) -> None:
        # As Spark does for workers: all have the same string hashes, and their output is unbuffered.
        own = {**environment, "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0"), "PYTHONUNBUFFERED": "YES"}
        address = str(directory / "workers")
        self._process: subprocess.Popen[bytes] | None = None
        Path(address).unlink(missing_ok=True)
        # Spark reports a Python that cannot be started, because it starts it later.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as listener:
            # Bound here, so that a process that connects early waits for it.
            listener.bind(address)
            listener.listen()
            self._process = subprocess.Popen(  # noqa: S603 - StreamRT's module
                [python, "-m", "streamrt.spark.workers.daemon", str(listener.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=own,
                pass_fds=(listener.fileno(),),
                # Ctrl+C in a terminal is only for this process.
                preexec_fn=_own_group,
            )
            environment[_ADDRESS] = address

    @property
    def alive(self) -> bool:
        """Whether the process is still running."""
        return self._process is not None and self._process.poll() is None

    def close(self, timeout_s: float = _END_S) -> None:
        """Let the process end; if Spark has taken it over, Spark has stopped.

        Args:
            timeout_s: seconds after which it is killed.
        """
        if self._process is None:
            return
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _own_group() -> None:
    os.setpgid(0, 0)


def hand_over(address: str) -> bool:
    """Pass this process's streams and environment to the prepared process, and wait until that ends.

    Returns:
        False if there is no prepared process.
    """
    with socket.socket(socket.AF_UNIX) as link:
        try:
            link.connect(address)
            given = {"environment": dict(os.environ), "directory": str(Path.cwd()), "arguments": sys.argv}
            data = json.dumps(given).encode()
            socket.send_fds(link, [_LENGTH.pack(len(data))], [_STDIN, _STDOUT, _STDERR])
            link.sendall(data)
            if link.recv(1) != _ACCEPTED:
                return False
        except OSError:
            return False
        # Spark takes the standard streams of this process for those of the other one.
        for number in (_STDIN, _STDOUT):
            os.close(number)
        while link.recv(1):
            pass
    return True


def take_over(listener: socket.socket) -> socket.socket | None:
    """Wait for a process that Spark has started, and continue in its place.

    Returns:
        The connection, which ends with this process and so reports its end; None if nothing is left to wait for.
    """
    while True:
        # The process that prepared this one closes its end of standard input when Spark no longer needs it.
        if _STDIN in select.select([_STDIN, listener.fileno()], [], [])[0]:
            return None
        link, _ = listener.accept()
        with contextlib.suppress(OSError, ValueError, struct.error):
            size, streams, _, _ = socket.recv_fds(link, _LENGTH.size, 3)
            (length,) = _LENGTH.unpack(size)
            with link.makefile("rb") as reader:
                given = json.loads(reader.read(length))
            if _suits_environment(given["environment"]):
                _become_worker(given["environment"], given["directory"], given["arguments"], streams)
                link.sendall(_ACCEPTED)
                return link
            for stream in streams:
                os.close(stream)
        link.close()


def _suits_environment(environment: Mapping[str, str]) -> bool:
    return all(environment.get(name) == os.environ.get(name) for name in _OF_THE_INTERPRETER)


def _become_worker(environment: Mapping[str, str], directory: str, arguments: list[str], streams: list[int]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    sys.argv[:] = arguments
    more = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path and path not in sys.path]
    sys.path[1:1] = more
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)


def work() -> None:
    """Import the workers' modules, and fork workers until Spark ends."""
    _import_modules()
    from pyspark.daemon import manager

    manager()


def _import_modules() -> None:

    import streamrt.joins.lookup
    import streamrt.slots.resident_task
    import streamrt.windows  # noqa: F401 - loaded for the workers
    from streamrt.state.rocksdb import load_rocksdb

    load_rocksdb()
    # Garbage collections would touch these objects and so copy their memory pages.
    gc.freeze()


def main() -> None:
    """Run as the arguments require: prepared for Spark, or started by Spark."""
    if not sys.argv[1].isdigit():
        address = os.environ.pop(_ADDRESS, None)
        if address is None or not hand_over(address):
            work()
        return
    with socket.socket(fileno=int(sys.argv[1])) as listener:
        _import_modules()
        link = take_over(listener)
    if link is not None:
        with link:
            work()


if __name__ == "__main__":
    main()
