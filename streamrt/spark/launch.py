"""What both runners do around their tasks: start Spark, write settings, clear up after dead tasks, tell Spark's errors."""

import contextlib
import re
import threading
import uuid
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from pyspark.errors import StreamingQueryException

from streamrt.config import ApplicationConfig
from streamrt.kafka import java_system_properties
from streamrt.models import TopicPartition
from streamrt.runtime import TaskSpec
from streamrt.secret import collect_secrets
from streamrt.spark.executor import ClientSettings, SpecReference
from streamrt.spark.group import leave_group
from streamrt.spark.link import LinkAddress
from streamrt.spark.session import SparkEnvironment, local_slots, open_session
from streamrt.spark.settings import RunSettings
from streamrt.topology import Topology

_FENCES = 8
_LEAVE_S = 8.0
_DEAD_WORKER = "Python worker exited unexpectedly"
_PYTHON_ERROR = re.compile(r"[A-Za-z_.]+(Error|Exception|Warning): \S|KeyboardInterrupt\b")


def start_spark(
    pool: ThreadPoolExecutor, config: ApplicationConfig, settings: RunSettings
) -> "Future[SparkEnvironment]":
    """Have Spark started, or reached, in a thread of its own."""
    return pool.submit(
        open_session,
        config.spark_master,
        settings.spark_config,
        settings.spark_session,
        java_system_properties(settings.connection),
    )


def started(session: "Future[SparkEnvironment]") -> SparkEnvironment | None:
    """Return what `start_spark` has come to; None if that was nothing, or nothing yet."""
    usable = session.done() and not session.cancelled() and session.exception() is None
    return session.result() if usable else None


def remove_members(
    environment: SparkEnvironment, config: ApplicationConfig, settings: RunSettings, instance_ids: Iterable[str]
) -> None:
    """Remove static members from the application's group, so that nobody waits until their sessions are over."""
    brokers = settings.connection.bootstrap_servers
    arguments = (environment.session, brokers, settings.java_options, config.consumer_group, list(instance_ids))
    # A courtesy to others: whatever the JVM and the brokers do, the application goes on, or ends.
    thread = threading.Thread(target=leave_group, args=arguments, name="streamrt-leave-group", daemon=True)
    thread.start()
    thread.join(_LEAVE_S)


def client_settings(config: ApplicationConfig, settings: RunSettings) -> ClientSettings:
    """Return how tasks reach Kafka."""
    return ClientSettings(
        settings.connection, config.consumer_group, settings.producer_options, config.producer_poll_timeout
    )


def make_reference(
    environment: SparkEnvironment,
    config: ApplicationConfig,
    settings: RunSettings,
    spec: TaskSpec,
    *,
    member_options: Mapping[str, Any] | None = None,
    link: LinkAddress | None = None,
) -> SpecReference:
    """Return what tells tasks where all they need is; `discard_reference` removes it.

    Args:
        environment: where tasks run.
        config: the application's configuration.
        settings: clients.
        spec: what tasks do.
        member_options: for tasks that are members of the consumer group.
        link: for tasks that talk to the driver.
    """
    with collect_secrets() as collected:
        dumped = spec.dumps()
    clients = replace(
        client_settings(config, settings), secrets=collected, member_options=dict(member_options or {}), link=link
    )
    context = environment.session.sparkContext
    part: str | None = None
    if local_slots(context.master) is None:
        state_dir = config.state_dir.absolute()
        part = None if spec.state is None else str(spec.state.base_dir.relative_to(state_dir))
    return SpecReference(uuid.uuid4().hex, dumped, context.broadcast(clients.to_json()), config.loglevel, part)


def discard_reference(reference: SpecReference) -> None:
    """Remove what tasks were given from all machines; they are over."""
    with contextlib.suppress(Exception):  # without its JVM there is nothing left
        reference.clients.destroy()


def fence(clients: ClientSettings, topology: Topology, places: Iterable[TopicPartition]) -> None:
    """End the transactions that dead tasks of input partitions have left open.

    Raises:
        TransactionError: if Kafka does not let that happen.
    """

    def fence_task(task: TopicPartition) -> None:
        opened = clients.open()
        try:
            opened.transactional(task, topic=topology.inputs(task)[0].topic, reuse=False)
        finally:
            opened.close()

    with ThreadPoolExecutor(_FENCES, "streamrt-fence") as pool:
        list(pool.map(fence_task, {topology.task(place) for place in places}))


def spark_cause(error: Exception) -> str:
    r"""Return the sentence that matters in one of Spark's long error messages.

    Example:
        >>> spark_cause(Exception("Job aborted\n  File ...\nOSError: disk full\nat org.apache..."))
        'OSError: disk full'
        >>> spark_cause(Exception("An exception was thrown\n  File ...\nKeyboardInterrupt\nSQLSTATE: 38000"))
        'KeyboardInterrupt'
        >>> spark_cause(Exception("Job aborted\nPython worker exited unexpectedly (crashed)\nat java..."))
        'a process that runs tasks ended unexpectedly: it was killed, for instance for want of memory, or a function ended it'
    """
    text = str(error)
    if isinstance(error, StreamingQueryException):
        text = error.getMessage() or text
    if _DEAD_WORKER in text:
        return (
            "a process that runs tasks ended unexpectedly: it was killed, for instance for want of memory, or a function "
            "ended it"
        )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    python = [line for line in lines if _PYTHON_ERROR.match(line)]
    causes = [line for line in lines if line.startswith("Caused by:")]
    return ((python or causes)[-1:] or lines or [type(error).__name__])[0][:500]
