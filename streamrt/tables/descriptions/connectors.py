"""Places of tables: topics of Kafka, and endpoints of other systems. These are descriptions, which applications connect."""

import re
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from typing_extensions import Self

from streamrt.errors import ConfigurationError
from streamrt.secret import SecretRef, names_secret
from streamrt.tables.descriptions.info import TableInfo
from streamrt.tables.descriptions.variables import (
    check_variables,
    from_text,
    resolve,
    stored_options,
    unstored_options,
)

_NUMBER = re.compile("0|[1-9][0-9]{0,8}")
_NAME_IN_PATH = re.compile(r'(?:"([^"]+)"|([^".]+))(?:\.(?=.)|\Z)', re.DOTALL)

__all__ = [
    "CONNECTORS",
    "HTTPSSE",
    "Connector",
    "KafkaTopic",
    "SQSQueue",
    "SinkTable",
    "SourceTable",
    "connector_of",
    "connector_of_texts",
    "table_connector",
]


@dataclass(frozen=True)
class Connector:
    """Where the rows of a table are. A subclass is a dataclass; its fields are what a catalogue keeps."""

    word: ClassVar[str]
    """The word for the connector, which a catalogue keeps."""

    def options(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults, as a catalogue keeps them.

        Raises:
            ConfigurationError: if one is a secret.
        """
        given = {
            each.name: getattr(self, each.name) for each in fields(self) if getattr(self, each.name) != each.default
        }
        return stored_options(f"the connector {self.word!r}", given)

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        """Return the connector with options that `options` has returned.

        Raises:
            ConfigurationError: if it has no such option, or one is missing.
        """
        names = {each.name for each in fields(cls)}
        unknown = sorted(options.keys() - names)
        if unknown:
            raise ConfigurationError(
                f"the connector {cls.word!r} has no option {unknown[0]!r}; it has {', '.join(sorted(names))}"
            )
        try:
            return cls(**unstored_options(options))
        except TypeError:
            raise ConfigurationError(
                f"the connector {cls.word!r} lacks an option; it has {', '.join(sorted(names))}"
            ) from None

    @classmethod
    def from_texts(cls, settings: Mapping[str, str]) -> Self:
        """Return the connector with options that are strings, as statements have them: `auth` is `env:NAME` or `file:PATH`.

        `arguments.NAME` is an entry of the mapping `arguments`, and `arguments.NAME.INNER` one of a mapping in it. A name
        that has a point itself is in double quotes, as in TOML: `arguments.headers."a.b"`. Names of secrets have such
        references; others have JSON, or strings.

        Raises:
            ConfigurationError: if it has no such option, or a string is not a value of it.
        """
        read: dict[str, Any] = {}
        defaults = {each.name: each.default for each in fields(cls)}
        kinds = {each.name: str(each.type) for each in fields(cls)}
        for name, text in settings.items():
            option, _, path = name.partition(".")
            if path and "Mapping[" in kinds.get(option, ""):
                value = from_text(text) if "Any" in kinds[option] else text
                what = f"{name!r} of {cls.word!r}"
                _enter_setting(read.setdefault(option, {}), _names_in(path, what), text, value, what)
            elif "SecretRef" in str(kinds.get(name)):
                read[name] = stored_options(cls.word, {name: SecretRef.parse(text)})[name]
            elif isinstance(defaults.get(name), bool):
                read[name] = {"true": True, "false": False}.get(text.lower(), text)
            elif isinstance(defaults.get(name), int) and _NUMBER.fullmatch(text):
                read[name] = int(text)
            else:
                read[name] = text
        return cls.from_options(read)

    def resolved(self) -> Self:
        """Return the connector with the values of variables; references to secrets stay.

        Raises:
            ConfigurationError: if a variable is not set.
        """
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return type(self)(
            **{name: _resolve_value(f"{name!r} of {self.word!r}", value) for name, value in values.items()}
        )


@dataclass(frozen=True)
class KafkaTopic(Connector):
    """A topic of the catalogue's cluster.

    Args:
        topic: name of the topic; it may have variables such as `${env:STAGE}`.
    """

    word: ClassVar[str] = "kafka"
    topic: str

    def __post_init__(self) -> None:
        _check_text(self, "topic")


@dataclass(frozen=True)
class HTTPSSE(Connector):
    """Events of an HTTP stream (server-sent events), which are read-only.

    Args:
        url: the URL, without user, password or secret parameters; it may have variables such as `${env:HOST}`.
        event: name of the events to read; None for all.
        headers: more headers of the request; none with secrets.
        auth: reference to a token for the header `Authorization: Bearer`.
        last_event_id: whether a lost stream continues after the last event.

    Raises:
        ConfigurationError: if the URL or a header has a secret.

    Example:
        >>> HTTPSSE("https://rides.example/stream", auth=SecretRef.env("RIDES_TOKEN")).options()
        {'url': 'https://rides.example/stream', 'auth': {'secret': 'env:RIDES_TOKEN'}}
    """

    word: ClassVar[str] = "http-sse"
    url: str
    event: str | None = None
    headers: Mapping[str, str] | None = None
    auth: SecretRef | None = None
    last_event_id: bool = True

    def __post_init__(self) -> None:
        _check_text(self, "url")
        _check_url(self.url)
        if self.headers is not None and not isinstance(self.headers, Mapping):
            raise ConfigurationError("HTTPSSE(headers=...) must be a mapping of names and texts")
        for name in self.headers or ():
            if names_secret(name):
                raise ConfigurationError(
                    f"the header {name!r} has a secret, and a catalogue keeps none: give auth=SecretRef.env(NAME)"
                )
        if self.auth is not None and not isinstance(self.auth, SecretRef):
            raise ConfigurationError("HTTPSSE(auth=...) must be SecretRef.env(NAME) or SecretRef.file(PATH)")
        _check_type(self, "last_event_id", bool)
        if self.event is not None:
            _check_text(self, "event")


@dataclass(frozen=True)
class SQSQueue(Connector):
    """A queue of Amazon SQS. Reading takes messages away.

    Args:
        name: name or URL of the queue; it may have variables such as `${env:STAGE}`.
        connection: name of the catalogue's connection with region and credentials.
        wait_time_s: seconds that a request waits for messages, 1 to 20.
        visibility_timeout_s: seconds after which a message that was received and not deleted is delivered again.
        fifo: whether it is a FIFO queue.
    """

    word: ClassVar[str] = "sqs"
    name: str
    connection: str | None = None
    wait_time_s: int = 20
    visibility_timeout_s: int = 60
    fifo: bool = False

    def __post_init__(self) -> None:
        _check_text(self, "name")
        if self.connection is not None:
            _check_text(self, "connection")
        _check_type(self, "fifo", bool)
        for name, least, most in (("wait_time_s", 1, 20), ("visibility_timeout_s", 0, 43_200)):
            value = _check_type(self, name, int)
            if not least <= value <= most:
                raise ConfigurationError(f"SQSQueue({name}=...) must be {least} to {most}, got {value}")


@dataclass(frozen=True)
class SourceTable(Connector):
    """The input of a source of `streamrt.connectors`, such as a change stream of a database.

    Args:
        source: name of the class in `streamrt.connectors`, such as "KinesisSource".
        arguments: its arguments; secrets as `SecretRef`.

    Example:
        >>> table = SourceTable("KinesisSource", {"stream_name": "clicks", "aws_secret_access_key": SecretRef.env("KEY")})
        >>> SourceTable.from_options(table.options()) == table
        True
    """

    word: ClassVar[str] = "source"
    source: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_class(self, "source", "KinesisSource")


@dataclass(frozen=True)
class SinkTable(Connector):
    """The output of a sink of `streamrt.connectors`, such as a table of a database.

    Args:
        sink: name of the class in `streamrt.connectors`, such as "PostgreSQLSink".
        arguments: its arguments; secrets as `SecretRef`.

    Example:
        >>> table = SinkTable("PostgreSQLSink", {"host": "db", "password": SecretRef.env("PGPASSWORD")})
        >>> SinkTable.from_options(table.options()) == table
        True
    """

    word: ClassVar[str] = "sink"
    sink: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_class(self, "sink", "PostgreSQLSink")
        # Whoever may write a catalogue must not choose what a database does.
        if "statement" in self.arguments:
            raise ConfigurationError(
                f"SinkTable({self.sink!r}) has a statement, but tables take rows: pass a sink with a statement to sdf.sink()"
            )


_KINDS = (KafkaTopic, HTTPSSE, SQSQueue, SourceTable, SinkTable)
CONNECTORS: Mapping[str, type[Connector]] = {each.word: each for each in _KINDS}
"""The connectors by their words."""


def connector_of(word: str, options: Mapping[str, Any]) -> Connector:
    """Return the connector of a word with options from a catalogue.

    Raises:
        ConfigurationError: if there is no such connector, or it has no such option.
    """
    return _connector_kind(word).from_options(options)


def connector_of_texts(word: str, settings: Mapping[str, str]) -> Connector:
    """Return the connector of a word with options that are strings; see `Connector.from_texts`.

    Raises:
        ConfigurationError: if the connector or the option does not exist, or a string is not a valid value.
    """
    return _connector_kind(word).from_texts(settings)


def table_connector(info: TableInfo) -> Connector:
    """Return the connector of a table, variables as given.

    Raises:
        ConfigurationError: if the catalogue has settings that it cannot have.
    """
    named = {} if info.connection is None else {"connection": info.connection}
    return connector_of(info.connector, {**info.options, **named})


def _check_class(connector: Connector, kind: str, example: str) -> None:
    """Refuse a connector that names no class, or has no arguments for it."""
    _check_text(connector, kind)
    owner, name = type(connector).__name__, getattr(connector, kind)
    if not name.isidentifier() or not name.endswith(kind.capitalize()):
        raise ConfigurationError(
            f"{owner}({name!r}) names no {kind}: give the name of a class of streamrt.connectors, such as {example!r}"
        )
    arguments: object = getattr(connector, "arguments", None)
    if not isinstance(arguments, Mapping) or not all(isinstance(each, str) for each in arguments):
        raise ConfigurationError(f"{owner}(arguments=...) must be a mapping of names and values")


def _connector_kind(word: str) -> type[Connector]:
    if word not in CONNECTORS:
        raise ConfigurationError(f"there is no connector {word!r}; there are {', '.join(CONNECTORS)}")
    return CONNECTORS[word]


def _names_in(path: str, what: str) -> list[str]:
    """Return the names in a path such as `headers."a.b"`."""
    names: list[str] = []
    at = 0
    while at < len(path):
        found = _NAME_IN_PATH.match(path, at)
        if found is None:
            raise ConfigurationError(
                f"{what} has no name, or a quote inside of one: names are separated by points, and one that has a point "
                'itself is in double quotes, as in arguments."a.b"'
            )
        names.append(found[1] or found[2])
        at = found.end()
    return names


def _enter_setting(target: dict[str, Any], path: Sequence[str], text: str, value: Any, what: str) -> None:
    """Put a value into a mapping of mappings, or the reference to a secret that its text is."""
    name, *inner = path
    if not name or (not inner and name in target):
        raise ConfigurationError(f"{what} has no name, or is there twice")
    if inner:
        found = target.setdefault(name, {})
        if not isinstance(found, dict) or set(found) == {"secret"}:
            raise ConfigurationError(f"{what} is a value and a mapping: give one of them")
        _enter_setting(found, inner, text, value, what)
    elif names_secret(name):
        try:
            target[name] = stored_options(what, {name: SecretRef.parse(text)})[name]
        except ConfigurationError as error:
            raise ConfigurationError(f"{what} names a secret: {error}") from None
    else:
        target[name] = value


def _check_text(connector: Connector, name: str) -> None:
    value = getattr(connector, name)
    if not isinstance(value, str) or not value:
        raise ConfigurationError(f"{type(connector).__name__}({name}=...) must be a text that is not empty")
    check_variables(f"{name!r} of {connector.word!r}", value)


def _check_type(connector: Connector, name: str, kind: type) -> Any:
    value = getattr(connector, name)
    if type(value) is not kind:
        raise ConfigurationError(f"{type(connector).__name__}({name}=...) must be {kind.__name__}, got {value!r}")
    return value


def _check_url(url: str) -> None:
    try:
        parts = urllib.parse.urlsplit(url)
        has_login = parts.username is not None or parts.password is not None
        names = [name for name, _ in urllib.parse.parse_qsl(parts.query, keep_blank_values=True)]
    except ValueError:
        raise ConfigurationError("HTTPSSE(url=...) is not a URL") from None
    if has_login or any(names_secret(name) for name in names):
        raise ConfigurationError(
            "the URL of a table has a secret, and a catalogue keeps none: give auth=SecretRef.env(NAME)"
        )
    if parts.scheme not in ("http", "https") and not url.startswith("${"):
        raise ConfigurationError("HTTPSSE(url=...) must begin with http:// or https://")


def _resolve_value(what: str, value: Any) -> Any:
    if isinstance(value, str):
        return resolve(what, value)
    if isinstance(value, Mapping):
        return {name: _resolve_value(f"{name!r} in {what}", each) for name, each in value.items()}
    if isinstance(value, list):
        return [_resolve_value(what, each) for each in value]
    return value
