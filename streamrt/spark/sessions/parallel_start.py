"""Starts Spark in parallel with the rest of an application's start."""

import contextlib
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import wait
from typing import Any

from typing_extensions import Self

from streamrt.config import ApplicationConfig
from streamrt.kafka import ConnectionConfig
from streamrt.kafka.java_connection import java_system_properties
from streamrt.runtime.driver.life.exits import StoppedError, in_background
from streamrt.runtime.driver.life.lifecycle import RunControl
from streamrt.runtime.driver.observation.progress import Progress
from streamrt.slots.startup import Startup
from streamrt.spark.sessions.gateway import Boot, archive_kind
from streamrt.spark.sessions.jvm_memory import JvmMemoryWatch
from streamrt.spark.sessions.spark_session import SparkEnvironment, application_runs, give_up, local_slots, open_session

_LOOK_S = 0.1
_CLEAR_S = 0.5


class SparkStart:
    """Spark, which is started, or connected to, in a separate thread.

    An application has it for as long as the block lasts. A start that is unfinished at the end of the block is
    abandoned.

    Args:
        config: the application's configuration.
        connection: connection to Kafka.
        spark_config: additional Spark settings.
        spark_session: a session to use instead of starting Spark.
        progress: receives what the start waits for.
        control: is told when the start is over.
    """

    def __init__(
        self,
        config: ApplicationConfig,
        connection: ConnectionConfig,
        spark_config: Mapping[str, Any],
        spark_session: Any,
        progress: Progress,
        control: RunControl,
    ) -> None:
        self.startup = Startup(config.consumer_group, progress=progress, on_over=control.works)
        self._boot = Boot()
        local = spark_session is None and local_slots(config.spark_master) is not None
        self._awaited = "Java and Spark to start" if local else "the Spark cluster to answer"
        self._arguments = (
            config.spark_master,
            spark_config,
            spark_session,
            java_system_properties(connection),
            self._boot,
            archive_kind(config.processing_mode),
        )
        self._runs = application_runs()
        self._memory = JvmMemoryWatch(progress.meters, lambda: self.environment)

    def __enter__(self) -> Self:
        self._runs.__enter__()
        self._answer = in_background("streamrt-spark", lambda: open_session(*self._arguments))
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            if not self._answer.done():
                self._give_up()
        finally:
            self._runs.__exit__(None, None, None)

    def wait(self, stop: threading.Event, meanwhile: Callable[[], None] | None = None) -> SparkEnvironment | None:
        """Wait until Spark is ready; see `EnvironmentStart`."""
        while not self._answer.done():
            if stop.is_set():
                self._give_up()
                return None
            if meanwhile is not None:
                with contextlib.suppress(StoppedError):
                    meanwhile()
            self.startup.waits_for(self._awaited)
            wait([self._answer], _LOOK_S)
        return self._answer.result()

    def update_figures(self) -> None:
        """Update the figures of the JVM's memory; call it often."""
        self._memory.sample_when_due()

    @property
    def environment(self) -> SparkEnvironment | None:
        """The environment; None if there is none, or none yet."""
        usable = self._answer.done() and self._answer.exception() is None
        return self._answer.result() if usable else None

    def _give_up(self) -> None:
        """Kill a JVM that is starting, and wait a moment until its resources are released."""
        give_up(self._boot)
        wait([self._answer], _CLEAR_S)
