"""The cluster that a command works with: its options, its settings, and its client."""

import contextlib
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamrt.errors import ConfigurationError, TopicNotFoundError

if TYPE_CHECKING:
    from streamrt.kafka import ConnectionConfig, TopicAdmin, TopicConfig
    from streamrt.records import TopicPartition

__all__ = [
    "REGISTRY_PREFIX",
    "BrokerOption",
    "Cluster",
    "ConfigOption",
    "NewTopic",
    "TimeoutOption",
    "connection_from",
    "open_cluster",
    "read_properties",
    "silent_logger",
]

_MISSING = (
    "the address of a broker is missing: pass --broker host:port, set STREAMRT_BROKER_ADDRESS, put bootstrap.servers "
    "into the file of --config, or start a broker on this machine with `streamrt dev kafka`"
)
REGISTRY_PREFIX = "schema.registry."
"""Beginning of the names of a schema registry's options in the file of `--config`."""
_JAVA_OPTIONS = {
    "sasl.jaas.config": "use sasl.username and sasl.password",
    "ssl.truststore.location": "use ssl.ca.location, with a PEM file",
    "ssl.truststore.password": "use ssl.ca.location, with a PEM file",
}
BrokerOption = Annotated[
    str | None,
    typer.Option(
        "--broker",
        "--broker-address",
        envvar="STREAMRT_BROKER_ADDRESS",
        metavar="HOST:PORT",
        help="A broker, or several separated by commas; by default bootstrap.servers of the file of --config.",
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        envvar="STREAMRT_CONNECTION_FILE",
        metavar="FILE",
        help="Properties file with connection options, named as in librdkafka: login and TLS.",
    ),
]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", min=0.1, metavar="SECONDS", help="Time limit of each request to the brokers.")
]


@dataclass(frozen=True)
class NewTopic:
    """A topic to create."""

    name: str
    config: "TopicConfig"


@dataclass(frozen=True)
class Cluster:
    """A cluster that answers.

    Attributes:
        connection: connection to the brokers.
        admin: a client.
        timeout: time limit of a request, in seconds.
    """

    connection: "ConnectionConfig"
    admin: "TopicAdmin"
    timeout: float

    def configs_of(self, topics: Iterable[str]) -> "dict[str, TopicConfig]":
        """Return the settings of topics.

        Raises:
            TopicNotFoundError: if some do not exist.
        """
        names = list(topics)
        with self._name_topics(names):
            found = self.admin.inspect_topics(names, self.timeout)
        missing = [name for name, config in found.items() if config is None]
        if missing:
            raise self._make_missing_error(missing)
        return {name: config for name, config in found.items() if config is not None}

    def partitions_of(self, topic: str, chosen: Iterable[int] = ()) -> "list[TopicPartition]":
        """Return the partitions of a topic, or some of them.

        Args:
            topic: the topic.
            chosen: numbers of partitions; none for all.

        Raises:
            TopicNotFoundError: if the topic does not exist.
            ConfigurationError: if it does not have a chosen partition.
        """
        from streamrt.records import TopicPartition

        # Unlike `configs_of`, this needs no permission to see options.
        with self._name_topics([topic]):
            count = len(self.admin.partition_replicas(topic, self.timeout))
        if not count:
            raise self._make_missing_error([topic])
        numbers = sorted(set(chosen)) or range(count)
        for number in numbers:
            if number >= count:
                raise ConfigurationError(
                    f"topic {topic} has no partition {number}: its partitions are 0 to {count - 1}"
                )
        return [TopicPartition(topic, number) for number in numbers]

    def _make_missing_error(self, topics: list[str]) -> TopicNotFoundError:
        several = len(topics) > 1
        return TopicNotFoundError(
            f"{'topics' if several else 'topic'} {', '.join(topics)} {'do' if several else 'does'} not exist at "
            f"{self.connection.bootstrap_servers}: `streamrt topics list` lists the topics, "
            f"`streamrt topics create {topics[0]}` creates one"
        )

    @contextlib.contextmanager
    def _name_topics(self, topics: list[str]) -> Iterator[None]:
        """Add the names of topics, and what the user needs, to the error of a user who may not see them."""
        from streamrt.kafka import KafkaError, KafkaRequestError

        try:
            yield
        except KafkaRequestError as error:
            if error.code != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise
            raise KafkaRequestError(
                f"the user may not see {', '.join(topics)}, or a topic of this name does not exist: grant the user "
                f"DESCRIBE on it, and DESCRIBE_CONFIGS for its options ({error})",
                error.code,
            ) from None


@contextlib.contextmanager
def open_cluster(broker: str | None, config: Path | None, timeout: float) -> Iterator[Cluster]:
    """Connect to a cluster, and close the client at the end.

    Args:
        broker: the option `--broker`.
        config: the option `--config`.
        timeout: the option `--timeout`.

    Raises:
        ConfigurationError: if the settings are missing or invalid.
        KafkaBrokerUnavailableError: if no broker answers in time.
    """
    from streamrt.kafka import TopicAdmin

    connection = connection_from(broker, config)
    admin = TopicAdmin(connection, silent_logger())
    try:
        admin.wait_for_broker(timeout)
        yield Cluster(connection, admin, timeout)
    finally:
        admin.close()


def connection_from(broker: str | None, config: Path | None) -> "ConnectionConfig":
    """Return the connection that the options describe.

    Args:
        broker: the option `--broker`, which overrides the address in the file.
        config: the option `--config`.

    Raises:
        ConfigurationError: if the address is missing, or the file cannot be read or has invalid options; the message
            never shows the value of an option.
    """
    from streamrt.kafka.connection import ConnectionConfig, as_connection, field_of

    found = {} if config is None else read_properties(config)
    options = {name: value for name, value in found.items() if not name.startswith(REGISTRY_PREFIX)}
    for name in options:
        if field_of(name) is None:
            advice = _JAVA_OPTIONS.get(name, "remove it; only connection options are allowed here")
            raise ConfigurationError(f"{config}: {name} is not a connection option of librdkafka: {advice}")
    if broker is not None:
        options = {
            **{name: value for name, value in options.items() if field_of(name) != "bootstrap_servers"},
            "bootstrap.servers": as_connection(broker).bootstrap_servers,
        }
    if not any(field_of(name) == "bootstrap_servers" for name in options):
        raise ConfigurationError(_MISSING)
    return ConnectionConfig.from_librdkafka_dict(options)


def read_properties(path: Path) -> dict[str, str]:
    """Return the options in the file of `--config`.

    Args:
        path: the file.

    Raises:
        ConfigurationError: if it cannot be read, or a line is wrong; the message never shows a value.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigurationError(f"{path} cannot be read: {reason}; pass a properties file with --config") from None
    options: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, equals, value = (part.strip() for part in line.partition("="))
        if not name.startswith(("#", "!")) and (name or equals):
            if not equals or not name:
                # The line may be a part of a secret, so it is not shown.
                raise ConfigurationError(f"{path}, line {number}: write name=value, or # before a comment")
            if name in options:
                raise ConfigurationError(f"{path}, line {number}: {name} is set twice; remove one of the lines")
            options[name] = value
    return options


def silent_logger() -> logging.Logger:
    """Return a logger without output: a command reports a failure once, as its error."""
    logger = logging.getLogger("streamrt.cli.broker")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    return logger
