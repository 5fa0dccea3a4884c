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
from streamrt.errors import ConfigurationError
from streamrt.kafka.connection import ConnectionConfig, SecretsNotPicklableError, field_of
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
    connection: ConnectionConfig, consumer_extra_config: Mapping[str, Any] | None = None
) -> ConsumerOptions:
    """Divide a consumer's options between the driver's group member and Spark's client.

    Args:
        connection: connection to the cluster.
        consumer_extra_config: options of the consumer, named as in librdkafka.

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
    for option, value in (consumer_extra_config or {}).items():
        if field_of(option) is not None:
            connection = _merged(connection, option, value)
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


def _merged(connection: ConnectionConfig, option: str, value: object) -> ConnectionConfig:
    given = connection.as_librdkafka_dict()
    if field_of(option) == "bootstrap_servers":
        raise ConfigurationError(f"consumer_extra_config: {option} is refused: use Application(broker_address=...)")
    merged = ConnectionConfig.from_librdkafka_dict({**_without(given, option), option: value})
    name = field_of(option) or ""
    if getattr(connection, name) not in (None, getattr(merged, name)):
        raise ConfigurationError(
            f"consumer_extra_config: {option} conflicts with broker_address, which sets it too; set it once"
        )
    return merged


def _without(options: Mapping[str, Any], option: str) -> dict[str, Any]:
    return {key: value for key, value in options.items() if field_of(key) != field_of(option)}


# The other options of a consumer: each rule returns the options for Java's client.

_Rule = Callable[[str, Any], dict[str, str]]


def _member_only(_option: str, _value: Any) -> dict[str, str]:
    return {}


def _same(option: str, value: Any) -> dict[str, str]:
    return {option: option_text(value)}


def _named(name: str, replaced: Mapping[str, str] | None = None) -> _Rule:
    def rule(_option: str, value: Any) -> dict[str, str]:
        text = option_text(value)
        return {name: (replaced or {}).get(text, text)}

    return rule


def _only(*allowed: str, because: str, name: str | None = None) -> _Rule:
    def rule(option: str, value: Any) -> dict[str, str]:
        if option_text(value).lower() not in allowed:
            raise ConfigurationError(f"consumer_extra_config: {option} can only be {' or '.join(allowed)}: {because}")
        return {name: option_text(value).lower()} if name else {}

    return rule


def _refused(because: str) -> _Rule:
    def rule(option: str, _value: Any) -> dict[str, str]:
        raise ConfigurationError(f"consumer_extra_config: {option} is refused: {because}")

    return rule


def _rules(rule: _Rule, *options: str) -> dict[str, _Rule]:
    return dict.fromkeys(options, rule)


_RULES: dict[str, _Rule] = {
    # Membership, and functions of the member alone: its view of topics, its log, its statistics.
    **_rules(
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
    "group.protocol": _only("classic", because="the member waits for the runner before partitions move"),
    "partition.assignment.strategy": _only(
        "range", because="joined topics need the same partition numbers in one member"
    ),
    # Reading and networking.
    **_rules(
        _same,
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
    "client.dns.lookup": _only(
        "use_all_dns_ips",
        "resolve_canonical_bootstrap_servers_only",
        because="no other values exist",
        name="client.dns.lookup",
    ),
    "connections.max.idle.ms": _named("connections.max.idle.ms", {"0": "-1"}),
    "fetch.message.max.bytes": _named("max.partition.fetch.bytes"),
    "fetch.wait.max.ms": _named("fetch.max.wait.ms"),
    "isolation.level": _only(
        "read_committed", "read_uncommitted", because="no other values exist", name="isolation.level"
    ),
    "socket.receive.buffer.bytes": _named("receive.buffer.bytes", {"0": "-1"}),
    "socket.send.buffer.bytes": _named("send.buffer.bytes", {"0": "-1"}),
    "socket.timeout.ms": _named("request.timeout.ms"),
    # Options whose behaviour is fixed in Java's client.
    "broker.address.family": _only(
        "any", because="in a JVM it is set by java.net.preferIPv4Stack or java.net.preferIPv6Addresses"
    ),
    "enable.partition.eof": _only("false", because="Spark reads the records and has no such event"),
    "socket.keepalive.enable": _only("true", because="Java's client always keeps connections alive"),
    "socket.nagle.disable": _only("true", because="Java's client always sets TCP_NODELAY"),
    # Options that the application sets.
    "auto.commit.enable": _refused("offsets are committed with the results; see Application(commit_interval=...)"),
    "auto.commit.interval.ms": _refused("use Application(commit_interval=...)"),
    "auto.offset.reset": _refused("use Application(auto_offset_reset=...)"),
    "enable.auto.commit": _refused("offsets are committed with the results; see Application(commit_interval=...)"),
    "enable.auto.offset.store": _refused(
        "offsets are committed with the results; see Application(commit_interval=...)"
    ),
    "error_cb": _refused("use Application(on_consumer_error=...)"),
    "group.id": _refused("use Application(consumer_group=...)"),
    "on_commit": _refused("offsets are committed by the runner, or inside a transaction"),
    "stats_cb": _refused("Spark's consumer reads the records and cannot call Python"),
    "throttle_cb": _refused("Spark's consumer reads the records and cannot call Python"),
    # Options that have an effect only in librdkafka.
    **_rules(
        _refused("it tunes the queues of librdkafka; use fetch.max.bytes and max.partition.fetch.bytes"),
        "consume.callback.max.messages",
        "fetch.queue.backoff.ms",
        "queued.max.messages.kbytes",
        "queued.min.messages",
        "queuing.strategy",
    ),
    **_rules(
        _refused("Java's client has no such option"),
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
    "fetch.error.backoff.ms": _refused("use retry.backoff.ms"),
    "message.max.bytes": _refused("it limits requests; use fetch.max.bytes or max.partition.fetch.bytes"),
    "max.poll.records": _refused("the trigger limits a micro-batch, not the size of a poll"),
    "group.remote.assignor": _refused("it belongs to group.protocol=consumer"),
    "group.protocol.type": _refused("it must be 'consumer'"),
    **_rules(
        _refused("it is deprecated and has no effect"),
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
