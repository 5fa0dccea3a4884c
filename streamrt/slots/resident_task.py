"""The work of a slot: runs a resident task for as long as the application runs."""

import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from streamrt.common.logs import log_context
from streamrt.config import transaction_timeout_s
from streamrt.kafka.group_protocol import session_timeout_ms
from streamrt.kafka.membership.group_member import GroupMember
from streamrt.kafka.reading.partition_feed import PartitionFeed
from streamrt.records import TopicPartition
from streamrt.runtime.link_messages import LinkClosed
from streamrt.runtime.resident.loop import ResidentLoop, ResidentSettings
from streamrt.runtime.resident.upkeep import Garbage, Upkeep
from streamrt.runtime.topic_identity import InputIdentity
from streamrt.slots.worker_link import DriverLink
from streamrt.slots.worker_process import ClientSettings, Lines, SpecReference, WorkerProcess

__all__ = ["ResidentOptions", "RunResident", "member_of_slot", "session_timeout_s"]

logger = logging.getLogger("streamrt")

_SESSION = {"session.timeout.ms": 10_000}
"""For dynamic members: a task that died is restarted, and the new one waits for the session of the dead one."""
_STATIC_SESSION = {"session.timeout.ms": 45_000}
"""librdkafka's default. A static member regains its place at once. If its session times out while a broker is away, it
may fence itself: librdkafka 2.16 may send a heartbeat without a member id before it joins again."""


@dataclass(frozen=True)
class ResidentOptions:
    """Settings of an application's resident tasks besides their specification and their clients.

    Attributes:
        topics: names of the topics to read.
        group_instance_id: id of the application, for static membership; None for dynamic members.
        poll_timeout: seconds that a member of the group waits in one poll.
        broker_availability_timeout: seconds without any broker after which a member fails; 0 for never.
        commit_interval: seconds between two commits.
        commit_every: number of records after which to commit earlier; 0 for only the interval.
        transaction_interval: exactly once, seconds until a transaction ends; None to end it as soon as this is cheap.
        announced: what the client ids of members say about the control server of this instance; empty for nothing.
    """

    topics: tuple[str, ...]
    group_instance_id: str | None
    poll_timeout: float
    broker_availability_timeout: float
    commit_interval: float
    commit_every: int
    transaction_interval: float | None
    announced: str = ""


def member_of_slot(instance_id: str, slot: int) -> str:
    """Return the id of the static member of a slot.

    The group assigns partitions to members in the order of their ids. If there are fewer partitions than members, each
    instance of the application gets its share only if the slots of all instances alternate.

    Example:
        >>> sorted(member_of_slot(copy, slot) for copy in ("shop-0", "shop-1") for slot in (0, 1))
        ['000-shop-0', '000-shop-1', '001-shop-0', '001-shop-1']
    """
    return f"{slot:03d}-{instance_id}"


def session_timeout_s(member_options: Mapping[str, Any], *, static: bool) -> float:
    """Return the seconds after which the group reassigns the partitions of a dead task.

    Args:
        member_options: options of the user, with librdkafka's names.
        static: whether members have static ids.

    Example:
        >>> session_timeout_s({}, static=False), session_timeout_s({"session.timeout.ms": "6000"}, static=True)
        (10.0, 6.0)
    """
    return session_timeout_ms(member_options, _session_options(static)["session.timeout.ms"]) / 1_000


def _session_options(static: bool) -> dict[str, int]:
    return _STATIC_SESSION if static else _SESSION


class RunResident:
    """Runs resident tasks.

    Args:
        reference: reference to the task specification.
        options: the settings of the task.
    """

    def __init__(self, reference: SpecReference, options: ResidentOptions) -> None:
        self._reference = reference
        self._options = options

    def __call__(self, slot: int, attempt: int) -> None:
        """Run the task of a slot until the driver stops it.

        Args:
            slot: number of the slot, from 0.
            attempt: number of attempts at this slot before this one.
        """
        process = WorkerProcess.current(self._reference)
        clients, options = process.settings, self._options
        if clients.link is None:
            raise RuntimeError("resident tasks need the address of the driver")
        settings = ResidentSettings(
            slot,
            attempt,
            options.commit_interval,
            options.commit_every,
            options.transaction_interval,
            transaction_timeout_s(clients.producer_options),
        )
        try:
            ids = process.tasks.spec.topic_ids
            identity = InputIdentity(process.tasks.clients.topic_ids, ids, options.broker_availability_timeout)
            with contextlib.closing(DriverLink(clients.link)) as link:
                task = ResidentLoop(
                    process.tasks,
                    PartitionFeed(clients.connection, clients.member_options, ids, identity.doubt),
                    lambda on_revoke, on_lost: self._join_group(clients, slot, on_revoke, on_lost),
                    link,
                    settings,
                    upkeep=Upkeep(garbage=Garbage()),
                    identity=identity,
                )
                # The prints of users' functions belong on the standard output of the process that called run().
                lines, fields = Lines(process.tasks.show_line), {"group": clients.group}
                with contextlib.redirect_stdout(lines), log_context(fields):
                    task.run()
        except LinkClosed as closed:
            # The driver is gone. Uncommitted work is dropped, and will be reprocessed.
            logger.debug("slot %d ends: %s", slot, closed)
        finally:
            process.forget()

    def _join_group(
        self,
        clients: ClientSettings,
        slot: int,
        on_revoke: Callable[[frozenset[TopicPartition]], None],
        on_lost: Callable[[frozenset[TopicPartition]], None],
    ) -> GroupMember:
        options = self._options
        own = options.group_instance_id
        # The group derives the ids of dynamic members from client names, and orders members by id.
        named = {} if clients.connection.client_id else {"client.id": f"{slot:03d}-streamrt{options.announced}"}
        return GroupMember(
            clients.connection,
            clients.group,
            options.topics,
            member_options={**_session_options(own is not None), **named, **clients.member_options},
            group_instance_id=None if own is None else member_of_slot(own, slot),
            poll_timeout=options.poll_timeout,
            on_revoke=on_revoke,
            on_lost=on_lost,
            broker_availability_timeout=options.broker_availability_timeout,
            logger=logger,
        )
