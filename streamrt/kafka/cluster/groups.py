"""Consumer groups as the brokers know them: names, states and members."""

import struct
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import ConsumerGroupType, KafkaError, KafkaException

from streamrt.kafka.cluster.group_description import describe_apart
from streamrt.kafka.cluster.requests import AdminRequests, retry, seconds_left
from streamrt.records import TopicPartition

__all__ = ["ConsumerGroups", "GroupDescription", "GroupListing", "ListedMember"]


@dataclass(frozen=True)
class GroupListing:
    """One group in the list of all groups.

    Attributes:
        name: name of the group.
        state: Kafka's name of its state, such as "stable" or "empty".
        protocol: "classic", or "consumer" for the protocol of KIP-848.
    """

    name: str
    state: str
    protocol: str

    @property
    def is_active(self) -> bool:
        """Whether the group has members."""
        return self.state not in ("empty", "dead")


@dataclass(frozen=True)
class ListedMember:
    """One member of a group.

    Attributes:
        member_id: id from the group's coordinator.
        client_id: `client.id` of the member's client.
        host: address that the client connects from.
        partitions: partitions that are assigned to it.
    """

    member_id: str
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True)
class GroupDescription:
    """A group and its members.

    Attributes:
        group: the group.
        members: its members, sorted by id.
    """

    group: GroupListing
    members: tuple[ListedMember, ...]


class ConsumerGroups:
    """List and describe consumer groups.

    Args:
        requests: the admin client.
    """

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    def list(self, timeout: float) -> dict[str, GroupListing]:
        """Return all groups by name, sorted.

        Raises:
            KafkaRequestError: if not all coordinators answered in time.
        """
        deadline = time.monotonic() + timeout

        def ask() -> dict[str, GroupListing]:
            # `describe_consumer_groups` of librdkafka 2.16 ends the process if the coordinator goes away during the
            # call.
            future = self._requests.client.list_consumer_groups(request_timeout=seconds_left(deadline))
            answer, error = self._requests.wait_for_result(future, seconds_left(deadline))
            if error is not None:
                raise KafkaException(error)
            if answer is None or answer.errors:
                # A coordinator may still be loading its groups.
                raise KafkaException(KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS))
            # Brokers that do not say the protocol are older than the other one.
            found = (
                GroupListing(
                    each.group_id,
                    _to_word(each.state),
                    "consumer" if each.type is ConsumerGroupType.CONSUMER else "classic",
                )
                for each in answer.valid
            )
            return {group.name: group for group in sorted(found, key=lambda group: group.name)}

        return retry("the consumer groups could not be listed", ask, deadline)

    def describe(self, name: str, timeout: float) -> GroupDescription | None:
        """Return a group with its members, or None if it does not exist.

        Raises:
            KafkaRequestError: if the brokers refuse or do not answer in time.
        """
        deadline = time.monotonic() + timeout
        group = self.list(timeout).get(name)
        if group is None:
            return None
        return GroupDescription(group, self._list_members(group, seconds_left(deadline)))

    def members(self, name: str, timeout: float, *, is_classic: bool = False) -> tuple[ListedMember, ...]:
        """Return the members of a group; without partitions while the group has no assignment.

        Args:
            name: its name.
            timeout: seconds to wait for the brokers.
            is_classic: whether the group has the classic protocol, if it exists.

        Raises:
            KafkaRequestError: if the brokers refuse or do not answer in time.
        """
        deadline = time.monotonic() + timeout
        found = self._classic_members(name, timeout)
        if found is not None or is_classic:
            return found or ()
        # Coordinators call a group of the other protocol dead.
        group = self.list(seconds_left(deadline)).get(name)
        return () if group is None else self._list_members(group, seconds_left(deadline))

    def _list_members(self, group: GroupListing, timeout: float) -> tuple[ListedMember, ...]:
        if group.protocol != "consumer":
            return self._classic_members(group.name, timeout) or ()
        deadline = time.monotonic() + timeout

        def ask() -> tuple[ListedMember, ...]:
            found = describe_apart(self._requests.connection, group.name, seconds_left(deadline))
            members = (
                ListedMember(
                    each["member_id"],
                    each["client_id"],
                    each["host"],
                    tuple(sorted(TopicPartition(topic, number) for topic, number in each["partitions"])),
                )
                for each in found
            )
            return tuple(sorted(members, key=lambda member: member.member_id))

        return retry(f"the members of group {group.name} could not be read", ask, deadline)

    def _classic_members(self, name: str, timeout: float) -> tuple[ListedMember, ...] | None:
        """Return the members of a group of the classic protocol; None if there is no such group."""
        deadline = time.monotonic() + timeout

        def ask() -> tuple[ListedMember, ...] | None:
            with warnings.catch_warnings():
                # This request is deprecated, but the new one can end the process: see `list`.
                warnings.simplefilter("ignore", DeprecationWarning)
                answer = self._requests.client.list_groups(name, timeout=seconds_left(deadline))
            for found in answer:
                if found.error is not None and found.error.code() != KafkaError.GROUP_ID_NOT_FOUND:
                    raise KafkaException(found.error)
                if found.error is not None or found.state == "Dead":
                    return None
                members = (
                    ListedMember(
                        member.id or "",
                        member.client_id or "",
                        (member.client_host or "").lstrip("/"),
                        assigned_partitions(member.assignment or b""),
                    )
                    for member in found.members
                )
                return tuple(sorted(members, key=lambda member: member.member_id))
            return ()

        return retry(f"the members of group {name} could not be read", ask, deadline)


def assigned_partitions(assignment: bytes) -> tuple[TopicPartition, ...]:
    """Return the partitions in a member's assignment, in the format of Kafka's `ConsumerProtocol`.

    The format: version (int16), number of topics (int32), and for each topic its name (int16 length, UTF-8), number of
    partitions (int32) and partitions (int32 each); other data follows.

    Args:
        assignment: the bytes. Those of other protocols, such as that of Kafka Connect, give no partitions.

    Example:
        >>> assigned_partitions(bytes.fromhex("0000" "00000001" "0001" "61" "00000001" "00000002"))
        (TopicPartition(topic='a', partition=2),)
    """
    found: list[TopicPartition] = []
    try:
        (count,) = struct.unpack_from(">i", assignment, 2)
        at = 6
        for _ in range(count):
            (length,) = struct.unpack_from(">h", assignment, at)
            topic = assignment[at + 2 : at + 2 + length].decode()
            at += 2 + length
            (partitions,) = struct.unpack_from(">i", assignment, at)
            if length < 0 or partitions < 0:
                # It would be read for ever.
                return ()
            numbers: Sequence[int] = struct.unpack_from(f">{partitions}i", assignment, at + 4)
            at += 4 + 4 * partitions
            found.extend(TopicPartition(topic, number) for number in numbers)
    except (struct.error, UnicodeDecodeError):
        return ()
    return tuple(sorted(found))


def _to_word(value: Any) -> str:
    # An enum, or None if the broker is too old to say it.
    return "unknown" if value is None else str(value.name).lower()
