"""Translation of librdkafka's options for Spark's Kafka client, which is Java's.

Users configure one client, librdkafka. Spark reads through another one, whose options have other names, defaults and
formats. Each option is either translated here or refused by name. A silently dropped option could leave a connection
unprotected or a limit unset.

The options of the consumer fall into four kinds:

- membership: the driver's role as a member of the consumer group. Only the driver's consumer gets these options;
  Spark is assigned its partitions and is not a member.
- reading and networking: for both clients, under Java's name for the one that Spark uses.
- connection (`security.*`, `sasl.*`, `ssl.*`): go through `ConnectionConfig`, as everywhere else.
- all others: refused, with the reason.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, SupportsIndex

from typing_extensions import override

from streamrt.common.texts import option_text
from streamrt.config import GroupProtocol
from streamrt.errors import ConfigurationError
from streamrt.kafka.connection import ConnectionConfig, SecretsNotPicklableError, field_of
from streamrt.kafka.group_protocol import GROUP_PROTOCOL
from streamrt.kafka.java_connection import java_connection_options

__all__ = ["ConsumerOptions", "java_client_options"]


@dataclass(frozen=True, repr=False)
class ConsumerOptions:
    """The options of an application's two consumers. They hold secrets, so `repr` shows only the names.

    Attributes:
        member: options of the driver's consumer, named as in librdkafka; pass them to `GroupMember` in addition to the
            connection.
        java: options of Spark's client, including the connection, without Spark's prefix `kafka.`.
    """

    member: dict[str, Any] = field(default_factory=dict)
    java: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"ConsumerOptions(member={sorted(self.member)}, java={sorted(self.java)})"

    @override
    def __reduce_ex__(self, protocol: SupportsIndex, /) -> NoReturn:
        raise SecretsNotPicklableError("ConsumerOptions cannot be pickled, because they hold secrets")


def java_client_options(
    connection: ConnectionConfig,
    consumer_extra_config: Mapping[str, Any] | None = None,
    group_protocol: GroupProtocol = "classic",
) -> ConsumerOptions:
    """Divide a consumer's options between the driver's group member and Spark's client.

    Args:
        connection: connection to the cluster.
        consumer_extra_config: options of the consumer, named as in librdkafka.
        group_protocol: the protocol of the consumer group.

    Returns:
        The options of both, **secrets in plain text**.

    Raises:
        ConfigurationError: if an option cannot be honoured; the message has its name but not its value.

    Example:
        >>> connection = ConnectionConfig(bootstrap_servers="kafka", client_id="shop")
        >>> options = java_client_options(connection, {"session.timeout.ms": 10_000, "fetch.wait.max.ms": 50})
        >>> options.member["session.timeout.ms"], options.java["fetch.max.wait.ms"]
        (10000, '50')
        >>> options.java["bootstrap.servers"], options.java["client.id"]
        ('kafka:9092', 'shop')
    """
    # Java's client would create a missing topic by default; librdkafka's consumer would not.
    java = {"isolation.level": "read_committed", "allow.auto.create.topics": "false"}
    member: dict[str, Any] = {"isolation.level": "read_committed"}
    if group_protocol != "classic":
        member[GROUP_PROTOCOL] = group_protocol
    for option, value in (consumer_extra_config or {}).items():
        _refuse_of_other_protocol(option, value, group_protocol)
        if field_of(option) is not None:
            connection = _merge_option(connection, option, value)
            member[option] = value
            continue
        rule = _RULES.get(option)
        if rule is None:
            raise ConfigurationError(
                f"consumer_extra_config: {option} is unknown; use options of librdkafka's consumer"
            )
        java.update(rule(option, value))
        member[option] = value
    return ConsumerOptions(member, {**java_connection_options(connection), **java})


def _refuse_of_other_protocol(option: str, value: object, protocol: GroupProtocol) -> None:
    reason = _OF_BROKERS.get(option) if protocol == "consumer" else _OF_CONSUMER.get(option)
    if option == GROUP_PROTOCOL and option_text(value).lower() != protocol:
        reason = "use Application(group_protocol=...)"
    if reason is not None:
        raise ConfigurationError(f"consumer_extra_config: {option} is refused: {reason}")


def _merge_option(connection: ConnectionConfig, option: str, value: object) -> ConnectionConfig:
    given = connection.as_librdkafka_dict()
    if field_of(option) == "bootstrap_servers":
        raise ConfigurationError(f"consumer_extra_config: {option} is refused: use Application(broker_address=...)")
    merged = ConnectionConfig.from_librdkafka_dict({**_drop_option(given, option), option: value})
    name = field_of(option) or ""
    if getattr(connection, name) not in (None, getattr(merged, name)):
        raise ConfigurationError(
            f"consumer_extra_config: {option} conflicts with broker_address, which sets it too; set it once"
        )
    return merged


def _drop_option(options: Mapping[str, Any], option: str) -> dict[str, Any]:
    return {key: value for key, value in options.items() if field_of(key) != field_of(option)}


# The other options of a consumer: each rule returns the options for Java's client.

_Rule = Callable[[str, Any], dict[str, str]]


def _member_only(_option: str, _value: Any) -> dict[str, str]:
    return {}


def _keep_option(option: str, value: Any) -> dict[str, str]:
    return {option: option_text(value)}


def _rename_option(name: str, replaced: Mapping[str, str] | None = None) -> _Rule:
    def rule(_option: str, value: Any) -> dict[str, str]:
        text = option_text(value)
        return {name: (replaced or {}).get(text, text)}

    return rule


def _allow_only(*allowed: str, because: str, name: str | None = None) -> _Rule:
    def rule(option: str, value: Any) -> dict[str, str]:
        if option_text(value).lower() not in allowed:
            raise ConfigurationError(f"consumer_extra_config: {option} can only be {' or '.join(allowed)}: {because}")
        return {name: option_text(value).lower()} if name else {}

    return rule


def _refuse_because(because: str) -> _Rule:
    def rule(option: str, _value: Any) -> dict[str, str]:
        raise ConfigurationError(f"consumer_extra_config: {option} is refused: {because}")

    return rule


def _rules_for(rule: _Rule, *options: str) -> dict[str, _Rule]:
    return dict.fromkeys(options, rule)


_OF_BROKERS = {
    name: f"with group_protocol='consumer' the brokers decide: set {setting} there, or for the group"
    for name, setting in {
        "heartbeat.interval.ms": "group.consumer.heartbeat.interval.ms",
        "session.timeout.ms": "group.consumer.session.timeout.ms",
        "partition.assignment.strategy": "group.consumer.assignors",
    }.items()
}
_OF_CONSUMER = {"group.remote.assignor": "it belongs to group_protocol='consumer'"}
_RULES: dict[str, _Rule] = {
    # Membership, and functions that concern only the member: its view of topics, its log, its statistics.
    **_rules_for(
        _member_only,
        "coordinator.query.interval.ms",
        "group.instance.id",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "session.timeout.ms",
        "topic.metadata.propagation.max.ms",
        "topic.metadata.refresh.fast.interval.ms",
        "topic.metadata.refresh.interval.ms",
        "topic.metadata.refresh.sparse",
        "debug",
        "enable.random.seed",
        "internal.termination.signal",
        "log.connection.close",
        "log.thread.name",
        "log_level",
        "statistics.interval.ms",
        # Java has no limit on a response besides fetch.max.bytes; librdkafka requires this option to be above it.
        "receive.message.max.bytes",
    ),
    GROUP_PROTOCOL: _member_only,
    "group.remote.assignor": _allow_only(
        "range", because="joined topics need the same partition numbers in one member"
    ),
    "partition.assignment.strategy": _allow_only(
        "range", because="joined topics need the same partition numbers in one member"
    ),
    # Reading and networking.
    **_rules_for(
        _keep_option,
        "allow.auto.create.topics",
        "check.crcs",
        "client.rack",
        "enable.metrics.push",
        "fetch.max.bytes",
        "fetch.min.bytes",
        "max.partition.fetch.bytes",
        "metadata.max.age.ms",
        "metadata.recovery.strategy",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "socket.connection.setup.timeout.ms",
    ),
    "client.dns.lookup": _allow_only(
        "use_all_dns_ips",
        "resolve_canonical_bootstrap_servers_only",
        because="no other values exist",
        name="client.dns.lookup",
    ),
    "connections.max.idle.ms": _rename_option("connections.max.idle.ms", {"0": "-1"}),
    "fetch.message.max.bytes": _rename_option("max.partition.fetch.bytes"),
    "fetch.wait.max.ms": _rename_option("fetch.max.wait.ms"),
    "isolation.level": _allow_only(
        "read_committed", "read_uncommitted", because="no other values exist", name="isolation.level"
    ),
    "socket.receive.buffer.bytes": _rename_option("receive.buffer.bytes", {"0": "-1"}),
    "socket.send.buffer.bytes": _rename_option("send.buffer.bytes", {"0": "-1"}),
    "socket.timeout.ms": _rename_option("request.timeout.ms"),
    # Options whose behaviour is fixed in Java's client.
    "broker.address.family": _allow_only(
        "any", because="in a JVM it is set by java.net.preferIPv4Stack or java.net.preferIPv6Addresses"
    ),
    "enable.partition.eof": _allow_only("false", because="Spark reads the records and has no such event"),
    "socket.keepalive.enable": _allow_only("true", because="Java's client always keeps connections alive"),
    "socket.nagle.disable": _allow_only("true", because="Java's client always sets TCP_NODELAY"),
    # Options that the application sets.
    "auto.commit.enable": _refuse_because(
        "offsets are committed with the results; see Application(commit_interval=...)"
    ),
    "auto.commit.interval.ms": _refuse_because("use Application(commit_interval=...)"),
    "auto.offset.reset": _refuse_because("use Application(auto_offset_reset=...)"),
    "enable.auto.commit": _refuse_because(
        "offsets are committed with the results; see Application(commit_interval=...)"
    ),
    "enable.auto.offset.store": _refuse_because(
        "offsets are committed with the results; see Application(commit_interval=...)"
    ),
    "error_cb": _refuse_because("use Application(on_consumer_error=...)"),
    "group.id": _refuse_because("use Application(consumer_group=...)"),
    "on_commit": _refuse_because("offsets are committed by the runner, or inside a transaction"),
    "stats_cb": _refuse_because("Spark's consumer reads the records and cannot call Python"),
    "throttle_cb": _refuse_because("Spark's consumer reads the records and cannot call Python"),
    # Options that have an effect only in librdkafka.
    **_rules_for(
        _refuse_because("it tunes the queues of librdkafka; use fetch.max.bytes and max.partition.fetch.bytes"),
        "consume.callback.max.messages",
        "fetch.queue.backoff.ms",
        "queued.max.messages.kbytes",
        "queued.min.messages",
        "queuing.strategy",
    ),
    **_rules_for(
        _refuse_because("Java's client has no such option"),
        "broker.address.ttl",
        "enable.sparse.connections",
        "https.ca.location",
        "https.ca.pem",
        "max.in.flight",
        "max.in.flight.requests.per.connection",
        "message.copy.max.bytes",
        "metadata.recovery.rebootstrap.trigger.ms",
        "plugin.library.paths",
        "topic.blacklist",
    ),
    "fetch.error.backoff.ms": _refuse_because("use retry.backoff.ms"),
    "message.max.bytes": _refuse_because("it limits requests; use fetch.max.bytes or max.partition.fetch.bytes"),
    "max.poll.records": _refuse_because("the trigger limits a micro-batch, not the size of a poll"),
    "group.protocol.type": _refuse_because("it must be 'consumer'"),
    **_rules_for(
        _refuse_because("it is deprecated and has no effect"),
        "api.version.fallback.ms",
        "api.version.request",
        "api.version.request.timeout.ms",
        "broker.version.fallback",
        "metadata.request.timeout.ms",
        "offset.store.method",
        "offset.store.path",
        "offset.store.sync.interval.ms",
        "reconnect.backoff.jitter.ms",
        "socket.blocking.max.ms",
        "socket.max.fails",
        "topic.metadata.refresh.fast.cnt",
    ),
}
