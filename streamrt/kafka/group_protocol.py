"""The two protocols of consumer groups, as options of a member.

| | `classic` | `consumer` (KIP-848) |
|---|---|---|
| who assigns partitions | a member, by `partition.assignment.strategy` | the coordinator, by `group.remote.assignor` |
| a rebalance takes | all partitions of all members | the partitions that move |
| session timeout, heartbeats | options of the member | settings of the brokers or of the group |
| a static id of a dead member | passes to the member that claims it | stays with the dead member until its session is over |
"""

from collections.abc import Mapping
from typing import Any

from streamrt.errors import ConfigurationError

__all__ = [
    "BROKER_SESSION_TIMEOUT_MS",
    "GROUP_PROTOCOL",
    "MEMBER_DEFAULTS",
    "is_incremental",
    "membership_options",
    "session_timeout_ms",
]

GROUP_PROTOCOL = "group.protocol"
"""The option of librdkafka, which has the values of `Application(group_protocol=...)`."""

MEMBER_DEFAULTS = {
    # librdkafka's default of 60 s is longer than a session: the loss of a broker would be noticed too late.
    "socket.timeout.ms": 10_000,
    # Delay until partitions that are added to a topic are found. librdkafka's default of 5 minutes makes their records
    # wait.
    "topic.metadata.refresh.interval.ms": 10_000,
    # Heartbeats notify members of a rebalance. All members pause from the first notification to the last one: up to 3 s
    # with librdkafka's default.
    "heartbeat.interval.ms": 500,
}

BROKER_SESSION_TIMEOUT_MS = 45_000
"""Default of the brokers' `group.consumer.session.timeout.ms`; they do not tell members what it is."""

_OF_CLASSIC = ("session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy", "group.protocol.type")


def is_incremental(options: Mapping[str, Any]) -> bool:
    """Return whether a member with these options joins by the protocol `consumer`.

    Raises:
        ConfigurationError: if the options name another protocol than `classic` and `consumer`.

    Example:
        >>> is_incremental({"group.protocol": "consumer"}), is_incremental({})
        (True, False)
    """
    protocol = str(options.get(GROUP_PROTOCOL, "classic")).lower()
    if protocol not in ("classic", "consumer"):
        raise ConfigurationError(f"{GROUP_PROTOCOL} must be 'classic' or 'consumer', not {protocol!r}")
    return protocol == "consumer"


def membership_options(options: Mapping[str, Any], assignor: str) -> dict[str, Any]:
    """Return the options of a member for its protocol.

    Args:
        options: the user's options, named as in librdkafka; `group.protocol` chooses the protocol.
        assignor: how partitions are assigned, by a member or by the coordinator.

    Example:
        >>> found = membership_options({"group.protocol": "consumer"}, "range")
        >>> found["group.remote.assignor"], "heartbeat.interval.ms" in found
        ('range', False)
    """
    found = {**MEMBER_DEFAULTS, **options}
    if not is_incremental(options):
        return {**found, "partition.assignment.strategy": assignor}
    # librdkafka refuses the options of the other protocol.
    kept = {name: value for name, value in found.items() if name not in _OF_CLASSIC}
    return {**kept, GROUP_PROTOCOL: "consumer", "group.remote.assignor": assignor}


def session_timeout_ms(options: Mapping[str, Any], default: int) -> int:
    """Return the milliseconds after which the group reassigns the partitions of a dead member.

    Args:
        options: the user's options of the member.
        default: the timeout with the protocol `classic`, where the options have none.

    Example:
        >>> session_timeout_ms({}, 10_000), session_timeout_ms({"group.protocol": "consumer"}, 10_000)
        (10000, 45000)
    """
    return BROKER_SESSION_TIMEOUT_MS if is_incremental(options) else int(options.get("session.timeout.ms", default))
