"""Shared by both runners: write settings, clean up after dead tasks, explain Spark's errors."""

import contextlib
import re
import threading
import uuid
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

from pyspark.errors import StreamingQueryException

from streamrt.config import ApplicationConfig
from streamrt.records import TopicPartition
from streamrt.runtime.metadata import CommitMetadata
from streamrt.runtime.spec import TaskSpec
from streamrt.runtime.tasks.fencing import fence_owners
from streamrt.secret import collect_secrets, masked
from streamrt.spark.java_group import leave_group, members_of_group, watch_strangers
from streamrt.spark.runner_settings import RunSettings
from streamrt.spark.sessions.spark_session import SparkEnvironment, local_slots
from streamrt.spark.workers.executor import ClientSettings, SpecReference
from streamrt.spark.workers.worker_link import LinkAddress

_FENCES = 8
_LEAVE_S = 8.0
_DEAD_WORKER = "Python worker exited unexpectedly"
_PYTHON_ERROR = re.compile(r"[A-Za-z_.]+(Error|Exception|Warning): \S|KeyboardInterrupt\b")


def remove_members(
    environment: SparkEnvironment, config: ApplicationConfig, settings: RunSettings, instance_ids: Iterable[str]
) -> None:
    """Remove static members from the application's group, so that no instance waits for their session timeout."""
    brokers = settings.connection.bootstrap_servers
    arguments = (environment.session, brokers, settings.java_options, config.consumer_group, list(instance_ids))
    # Only for other instances: after any error of the JVM or the brokers, the application continues, or ends.
    thread = threading.Thread(target=leave_group, args=arguments, name="streamrt-leave-group", daemon=True)
    thread.start()
    thread.join(_LEAVE_S)


def look_for_strangers(
    environment: SparkEnvironment,
    config: ApplicationConfig,
    settings: RunSettings,
    topics: Collection[str],
    over: threading.Event,
) -> None:
    """Look for other applications in the group, in a background thread, until the run is over."""
    brokers, group = settings.connection.bootstrap_servers, config.consumer_group
    members = partial(members_of_group, environment.session, brokers, settings.java_options, group)
    arguments = (group, topics, members, over.wait)
    threading.Thread(target=watch_strangers, args=arguments, name="streamrt-strangers", daemon=True).start()


def client_settings(config: ApplicationConfig, settings: RunSettings) -> ClientSettings:
    """Return the settings of the tasks' Kafka clients."""
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
    """Broadcast the settings; return the reference that tasks load them from. `discard_reference` removes them.

    Args:
        environment: the Spark environment of the tasks.
        config: the application's configuration.
        settings: clients.
        spec: the task specification.
        member_options: for tasks that are members of the consumer group.
        link: for tasks that connect to the driver.
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
    broadcast = context.broadcast(clients.to_json())
    return SpecReference(uuid.uuid4().hex, dumped, broadcast, config.loglevel, config.log_format, part)


def discard_reference(reference: SpecReference) -> None:
    """Remove the broadcast settings from all machines; the tasks are over."""
    with contextlib.suppress(Exception):  # without its JVM nothing is left
        reference.clients.destroy()


def fence(clients: ClientSettings, metadata: CommitMetadata, partitions: Iterable[TopicPartition]) -> None:
    """End the transactions that dead tasks left open, and take over the claims of other versions.

    Args:
        clients: settings of the clients.
        metadata: builds this version's offset metadata.
        partitions: the input partitions.

    Raises:
        TransactionError: if Kafka does not allow it.
        KafkaRequestError: if the group's offsets cannot be read.
    """

    def fence_owner(partition: TopicPartition) -> None:
        opened = clients.open()
        try:
            fence_owners(opened, [partition], metadata)
        finally:
            opened.close()

    with ThreadPoolExecutor(_FENCES, "streamrt-fence") as pool:
        list(pool.map(fence_owner, set(partitions)))


def spark_cause(error: Exception) -> str:
    r"""Return the relevant sentence of one of Spark's long error messages.

    Example:
        >>> spark_cause(Exception("Job aborted\n  File ...\nOSError: disk full\nat org.apache..."))
        'OSError: disk full'
        >>> spark_cause(Exception("An exception was thrown\n  File ...\nKeyboardInterrupt\nSQLSTATE: 38000"))
        'KeyboardInterrupt'
        >>> spark_cause(Exception("Job aborted\nPython worker exited unexpectedly (crashed)\nat java..."))
        'a process that runs tasks ended unexpectedly: it was killed, for instance for want of memory, or a function ended it'
        >>> spark_cause(Exception("Job aborted\nModuleNotFoundError: No module named 'geo'\nat java..."))[:47]
        "ModuleNotFoundError: No module named 'geo'; the"
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
    cause = masked(((python or causes)[-1:] or lines or [type(error).__name__])[0])[:500]
    if cause.startswith("ModuleNotFoundError"):
        cause += (
            "; the Python of Spark's workers lacks the module: install it there, or name a Python that has it as "
            "spark.pyspark.python or PYSPARK_PYTHON"
        )
    return cause
