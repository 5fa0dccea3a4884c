"""Shared by both runners: share settings with tasks, clean up after dead ones, and leave the group."""

import contextlib
import logging
import threading
import uuid
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from streamrt.config import ApplicationConfig
from streamrt.errors import ConfigurationError
from streamrt.kafka import KafkaRequestError, TopicAdmin
from streamrt.kafka.cluster.groups import ListedMember
from streamrt.records import TopicPartition
from streamrt.runs.runner_settings import RunSettings
from streamrt.runs.strangers import watch_strangers
from streamrt.runtime.metadata import CommitMetadata
from streamrt.runtime.spec import TaskSpec
from streamrt.runtime.tasks.fencing import fence_owners
from streamrt.secret import collect_secrets
from streamrt.slots.environment import SlotEnvironment
from streamrt.slots.worker_link import LinkAddress
from streamrt.slots.worker_process import ClientSettings, SpecReference

logger = logging.getLogger("streamrt")

_FENCES = 8
_LEAVE_S = 8.0
_MEMBERS_S = 10.0


def remove_members(
    environment: SlotEnvironment, config: ApplicationConfig, settings: RunSettings, instance_ids: Iterable[str]
) -> None:
    """Remove static members from the application's group, so that no instance waits for their session timeout."""
    arguments = (settings.connection, settings.java_options, config.consumer_group, list(instance_ids))
    # Only for other instances: after any error of the JVM or the brokers, the application continues, or ends.
    thread = threading.Thread(target=environment.leave_group, args=arguments, name="streamrt-leave-group", daemon=True)
    thread.start()
    thread.join(_LEAVE_S)


def look_for_strangers(group: str, topics: Collection[str], admin: TopicAdmin, over: threading.Event) -> None:
    """Look for other applications in the group, in a background thread, until the run is over."""

    def list_members() -> tuple[ListedMember, ...]:
        try:
            return admin.group_members(group, _MEMBERS_S)
        except (ConfigurationError, KafkaRequestError) as error:  # nothing depends on it
            logger.debug("the members of group %s could not be listed: %s", group, error)
            return ()

    arguments = (group, topics, list_members, over.wait)
    threading.Thread(target=watch_strangers, args=arguments, name="streamrt-strangers", daemon=True).start()


def client_settings(config: ApplicationConfig, settings: RunSettings) -> ClientSettings:
    """Return the settings of the tasks' Kafka clients."""
    return ClientSettings(
        settings.connection, config.consumer_group, settings.producer_options, config.producer_poll_timeout
    )


def make_reference(
    environment: SlotEnvironment,
    config: ApplicationConfig,
    settings: RunSettings,
    spec: TaskSpec,
    *,
    member_options: Mapping[str, Any] | None = None,
    link: LinkAddress | None = None,
) -> SpecReference:
    """Share the settings; return the reference that tasks load them from. `discard_reference` removes them.

    Args:
        environment: gives tasks their processes.
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
    part: str | None = None
    if not environment.is_local:
        state_dir = config.state_dir.absolute()
        part = None if spec.state is None else str(spec.state.base_dir.relative_to(state_dir))
    shared = environment.share_text(clients.to_json())
    return SpecReference(
        uuid.uuid4().hex, dumped, shared, config.loglevel, environment.find_directory, config.log_format, part
    )


def discard_reference(reference: SpecReference) -> None:
    """Remove the shared settings from all machines; the tasks are over."""
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
