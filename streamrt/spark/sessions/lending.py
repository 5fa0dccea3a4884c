"""A JVM for Spark that outlives its programs: one process owns it and lends it to one program after another."""

import os
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamrt.jvm.jars import fetch_jars
from streamrt.runtime.driver.life.exits import in_background
from streamrt.slots.runtime_dir import make_runtime_dir, remove_runtime_dir
from streamrt.spark.sessions.gateway import Boot, Jvm, archive_kind, connect, start_jvm

__all__ = ["Borrowed", "LentJvm", "LentSpark", "accept_lender", "borrow"]

_SHAPING = ("spark.driver.memory", "spark.driver.extraJavaOptions")
"""Spark settings that a running JVM can no longer apply."""


@dataclass(frozen=True)
class LentJvm:
    """Access of a program to the JVM.

    Attributes:
        port: port of its py4j gateway.
        secret: secret of the gateway.
        environment: the environment of its Python workers, unless the program sets another one.
        directory: directory of its sockets; Spark reads this setting once in the life of a JVM.
    """

    port: int
    secret: str = field(repr=False)
    environment: Mapping[str, str] = field(repr=False)
    directory: str


class LentSpark:
    """A JVM that boots in the background, for the use of one program after another.

    Args:
        mode: the processing mode, which selects the class archive.
    """

    def __init__(self, mode: str) -> None:
        self._kind = archive_kind(mode)
        self._runtime_dir = make_runtime_dir()
        self._boot = Boot()
        self._starting = self._start_jvm()

    def jvm(self) -> LentJvm:
        """Return access to the JVM when it has booted; a JVM that has died is booted again.

        Raises:
            RunnerError: if it cannot be started.
            JavaNotFoundError: if there is no Java.
            JarError: if its libraries are missing and cannot be downloaded.
        """
        if self._starting.done() and (self._starting.exception() or self._starting.result().process.poll() is not None):
            self._starting = self._start_jvm()
        jvm = self._starting.result()
        return LentJvm(jvm.port, jvm.secret, dict(os.environ), str(self._runtime_dir))

    def mute(self, muted: bool) -> None:
        """Set whether the output of the JVM and its workers is discarded, because a program has ended."""
        if self._is_ready():
            flag = self._starting.result().muted
            flag.set() if muted else flag.clear()

    def prepare_workers(self) -> None:
        """Prepare a process from which the workers of the next program are forked."""
        if self._is_ready():
            self._starting.result().prepare_workers()

    def close(self) -> None:
        """End the JVM."""
        self._boot.give_up()
        if self._is_ready():
            self._starting.result().end()
        remove_runtime_dir(self._runtime_dir)

    def _start_jvm(self) -> "Future[Jvm]":
        def start() -> Jvm:
            try:
                return start_jvm(fetch_jars("spark"), {}, self._runtime_dir, sys.executable, self._boot, self._kind)
            finally:
                self._boot.end()

        return in_background("streamrt-jvm", start)

    def _is_ready(self) -> bool:
        return self._starting.done() and self._starting.exception() is None


_lender: Callable[[], LentJvm] | None = None


def accept_lender(lender: Callable[[], LentJvm] | None) -> None:
    """Let this process use the JVM of another one.

    Args:
        lender: waits for the JVM and returns access to it; None for a separate JVM.
    """
    global _lender
    _lender = lender


@dataclass(frozen=True)
class Borrowed:
    """A JVM of another process.

    Attributes:
        gateway: py4j's gateway to it.
        environment: variables of this program's Python workers that other programs' workers do not have.
        directory: directory of its sockets.
    """

    gateway: Any
    environment: dict[str, str] = field(repr=False)
    directory: Path


def borrow(settings: Mapping[str, str]) -> Borrowed | None:
    """Return the JVM lent to this process, without a Spark context.

    Args:
        settings: Spark's settings. If they shape the JVM, the process needs a separate one.
    """
    if _lender is None or any(name in settings for name in _SHAPING):
        return None
    lent = _lender()
    gateway = connect(lent.port, lent.secret)
    left = getattr(getattr(gateway.jvm.org.apache.spark, "SparkContext$"), "MODULE$").getActive()
    if left.isDefined():
        # A killed program could not stop its context.
        left.get().stop()
    changed = {name: value for name, value in os.environ.items() if lent.environment.get(name) != value}
    path = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path)
    return Borrowed(gateway, {**changed, "PYTHONPATH": path}, Path(lent.directory))
