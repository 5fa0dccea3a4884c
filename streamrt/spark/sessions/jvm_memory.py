"""The memory of Spark's JVM in the driver's machine."""

import time
from collections.abc import Callable
from typing import Any

from streamrt.common.memory import resident_memory
from streamrt.runtime.driver.observation.meters import JvmMemory, Meters
from streamrt.spark.sessions.spark_session import SparkEnvironment

__all__ = ["JvmMemoryWatch"]

_EVERY_S = 10.0


class JvmMemoryWatch:
    """Asks the JVM for its memory, at most every ten seconds: three calls of a millisecond or less.

    Args:
        meters: gets the answers.
        environment: returns Spark's environment; None while there is none.
        clock: returns seconds that never go back.
    """

    def __init__(
        self,
        meters: Meters,
        environment: Callable[[], SparkEnvironment | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._meters = meters
        self._environment = environment
        self._clock = clock
        self._due = 0.0
        self._runtime: Any = None
        self._process: int | None = None

    def sample_when_due(self) -> None:
        """Ask if it is time. Errors are not news: code that needs the JVM also meets them."""
        now = self._clock()
        if now < self._due:
            return
        self._due = now + _EVERY_S
        try:
            environment = self._environment()
            if environment is not None:
                self._ask_jvm(environment)
        except Exception:  # noqa: BLE001 - a figure that is missing must not end an application
            self._runtime = None
            self._meters.jvm_memory(None)

    def _ask_jvm(self, environment: SparkEnvironment) -> None:
        if self._runtime is None:
            java = environment.session.sparkContext._jvm.java.lang
            self._runtime = java.Runtime.getRuntime()
            self._process = int(java.ProcessHandle.current().pid())
        runtime = self._runtime
        used = int(runtime.totalMemory()) - int(runtime.freeMemory())
        self._meters.jvm_memory(JvmMemory(used, int(runtime.maxMemory()), resident_memory(self._process)))
