"""A JVM for Spark that outlives its programs: one process owns it and lends it to one program after another."""

import os
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamrt.jvm.jars import fetch_jars
from streamrt.runtime.driver.life.exits import in_background
from streamrt.slots.runtime_dir import make_runtime_dir, remove_runtime_dir
from streamrt.spark.sessions.gateway import Boot, Jvm, archive_kind, connect, start_jvm
from streamrt.spark.sessions.lender import LentJvm, current_lender

__all__ = ["Borrowed", "LentSpark", "borrow"]

_SHAPING = ("spark.driver.memory", "spark.driver.extraJavaOptions")
"""Spark settings that a running JVM can no longer apply."""


class LentSpark:
    """A JVM for the use of one program after another, which boots when the first one asks for it.

    Args:
        mode: the processing mode, which selects the class archive.
    """

    def __init__(self, mode: str) -> None:
        self._kind = archive_kind(mode)
        self._runtime_dir = make_runtime_dir()
        self._boot = Boot()
        self._lock = threading.Lock()
        self._starting: Future[Jvm] | None = None

    @property
    def is_needed(self) -> bool:
        """Whether a program has asked for it."""
        return self._starting is not None

    def jvm(self) -> LentJvm:
        """Boot the JVM, and return access to it when it has booted; one that has died is booted again.

        Raises:
            RunnerError: if it cannot be started.
            JavaNotFoundError: if there is no Java.
            JarError: if its libraries are missing and cannot be downloaded.
        """
        with self._lock:
            starting = self._starting
            if starting is None or (
                starting.done() and (starting.exception() or starting.result().process.poll() is not None)
            ):
                starting = self._starting = self._start_jvm()
        jvm = starting.result()
        return LentJvm(jvm.port, jvm.secret, dict(os.environ), str(self._runtime_dir))

    def mute(self, muted: bool) -> None:
        """Set whether the output of the JVM and its workers is discarded, because a program has ended."""
        if (jvm := self._booted()) is not None:
            jvm.muted.set() if muted else jvm.muted.clear()

    def prepare_workers(self) -> None:
        """Prepare a process from which the workers of the next program are forked."""
        if (jvm := self._booted()) is not None:
            jvm.prepare_workers()

    def close(self) -> None:
        """End the JVM."""
        self._boot.give_up()
        if (jvm := self._booted()) is not None:
            jvm.end()
        remove_runtime_dir(self._runtime_dir)

    def _start_jvm(self) -> "Future[Jvm]":
        def start() -> Jvm:
            try:
                return start_jvm(fetch_jars("spark"), {}, self._runtime_dir, sys.executable, self._boot, self._kind)
            finally:
                self._boot.end()

        return in_background("streamrt-jvm", start)

    def _booted(self) -> Jvm | None:
        starting = self._starting
        if starting is None or not starting.done() or starting.exception() is not None:
            return None
        return starting.result()


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
    ask = current_lender()
    if ask is None or any(name in settings for name in _SHAPING):
        return None
    lent = ask()
    gateway = connect(lent.port, lent.secret)
    left = getattr(getattr(gateway.jvm.org.apache.spark, "SparkContext$"), "MODULE$").getActive()
    if left.isDefined():
        # A killed program could not stop its context.
        left.get().stop()
    changed = {name: value for name, value in os.environ.items() if lent.environment.get(name) != value}
    path = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path)
    return Borrowed(gateway, {**changed, "PYTHONPATH": path}, Path(lent.directory))
