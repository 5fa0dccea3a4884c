"""The process that workers are forked from: prepared ahead, taken over by Spark, or started by it."""

import os
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from streamrt.spark.workers.daemon import Prepared
from tests.support import wait_until

END_S = 60.0


class Started:
    """The process that Spark starts when it needs workers.

    Args:
        directory: where its socket lies.
        variables: of its environment.
    """

    def __init__(self, directory: Path, variables: dict[str, str]) -> None:
        environment = {
            **os.environ,
            "PYTHONHASHSEED": "0",
            **variables,
            "PYTHON_WORKER_FACTORY_SOCK_DIR": str(directory),
        }
        environment["PYTHON_UNIX_DOMAIN_ENABLED"] = "true"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "streamrt.spark.workers.daemon", "pyspark.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        assert self.process.stdout is not None
        (length,) = struct.unpack(">i", self.process.stdout.read(4))
        self._address = self.process.stdout.read(length).decode()
        self._link = socket.socket(socket.AF_UNIX)

    def fork(self) -> psutil.Process:
        """Have a worker forked, which then waits for work."""
        self._link.connect(self._address)
        (number,) = struct.unpack(">i", self._link.recv(4))
        return psutil.Process(number)

    def end(self) -> None:
        """End as Spark does it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self._link.close()
        self.process.wait(END_S)


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory of sockets, whose paths must be short."""
    with tempfile.TemporaryDirectory(prefix="s") as name:
        yield Path(name)


@pytest.fixture
def environment() -> dict[str, str]:
    return dict(os.environ)


def number_of(prepared: Prepared) -> int:
    assert prepared._process is not None
    return prepared._process.pid


@pytest.fixture
def prepared(directory: Path, environment: dict[str, str]) -> Iterator[Prepared]:
    made = Prepared(sys.executable, environment, directory)
    try:
        yield made
    finally:
        made.close()


def test_workers_are_forked_from_the_process_that_is_prepared(
    directory: Path, prepared: Prepared, environment: dict[str, str]
) -> None:
    started = Started(directory, {**environment, "PYTHONHASHSEED": "0", "SHOP": "open"})
    worker = started.fork()
    assert worker.ppid() == number_of(prepared)
    started.end()
    assert prepared._process is not None
    prepared._process.wait(END_S)
    wait_until(lambda: not worker.is_running(), what="the end of the worker")


@pytest.mark.parametrize("why", ["there is none", "another seed of hashes", "it has died"])
def test_what_spark_starts_works_by_itself_where_nothing_suits(
    directory: Path, prepared: Prepared, environment: dict[str, str], why: str
) -> None:
    variables = {**environment, "PYTHONHASHSEED": "0"}
    if why == "there is none":
        del variables["STREAMRT_WORKERS"]
    elif why == "another seed of hashes":
        variables["PYTHONHASHSEED"] = "7"
    else:
        psutil.Process(number_of(prepared)).kill()
    started = Started(directory, variables)
    worker = started.fork()
    assert worker.ppid() == started.process.pid
    started.end()


def test_a_second_one_works_by_itself(directory: Path, prepared: Prepared, environment: dict[str, str]) -> None:
    # Spark starts another one where the first one has died, or for workers with another environment.
    first = Started(directory, {**environment, "PYTHONHASHSEED": "0"})
    second = Started(directory, {**environment, "PYTHONHASHSEED": "0"})
    assert first.fork().ppid() == number_of(prepared)
    assert second.fork().ppid() == second.process.pid
    for started in (first, second):
        started.end()


def test_nobody_takes_it_over(prepared: Prepared) -> None:
    prepared.close()
    assert prepared._process is not None
    assert prepared._process.returncode is not None


def test_a_python_that_is_not_there_is_not_prepared(directory: Path, environment: dict[str, str]) -> None:
    before = dict(environment)
    Prepared("/nowhere/python", environment, directory).close()
    assert environment == before
