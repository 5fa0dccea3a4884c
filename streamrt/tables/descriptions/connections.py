"""Connections: what tables in one other system have in common, such as region and credentials."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from typing_extensions import Self

from streamrt.errors import ConfigurationError
from streamrt.secret import Secret, SecretRef
from streamrt.tables.descriptions.variables import resolve, stored_options, unstored_options

__all__ = ["AWSConnection", "Connection", "connection_of"]


@dataclass(frozen=True)
class Connection:
    """How a system is reached; a subclass is a dataclass, and its fields are what a catalogue keeps."""

    word: ClassVar[str]

    def options(self) -> dict[str, Any]:
        """Return the fields that are given, as a catalogue keeps them.

        Raises:
            ConfigurationError: if one is a secret, and no reference to one.
        """
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        what = f"{type(self).__name__}(...)"
        return stored_options(what, {name: value for name, value in given.items() if value is not None})

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        """Return the connection with options that `options` has returned.

        Raises:
            ConfigurationError: if it has no such option.
        """
        names = [each.name for each in fields(cls)]
        unknown = sorted(options.keys() - set(names))
        if unknown:
            raise ConfigurationError(
                f"a connection {cls.word!r} has no option {unknown[0]!r}; it has {', '.join(names)}"
            )
        return cls(**unstored_options(options))

    def resolve(self) -> dict[str, str | Secret]:
        """Return the fields that are given, with the values of variables, and with the secrets.

        Raises:
            ConfigurationError: if this process does not have a variable or a secret.
        """
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        return {
            name: value.resolve() if isinstance(value, SecretRef) else resolve(f"{name!r} of {self.word!r}", value)
            for name, value in given.items()
            if value is not None
        }


@dataclass(frozen=True)
class AWSConnection(Connection):
    """A region and credentials of Amazon Web Services; without keys, those that the process finds, such as a role.

    Args:
        region: the region.
        access_key_id: the access key ID.
        secret_access_key: reference to the secret access key.
        session_token: reference to the token of temporary credentials.
        endpoint_url: URL of the service; by default that of AWS.

    Raises:
        ConfigurationError: if a secret is given, instead of a reference.

    Example:
        >>> AWSConnection(region="eu-west-1", access_key_id="AKIA", secret_access_key=SecretRef.env("AWS_SECRET"))
        AWSConnection(region='eu-west-1', access_key_id='AKIA', secret_access_key=SecretRef(kind='env', name='AWS_SECRET'), \
session_token=None, endpoint_url=None)
    """

    word: ClassVar[str] = "aws"
    region: str | None = None
    access_key_id: "str | SecretRef | None" = None
    secret_access_key: SecretRef | None = None
    session_token: SecretRef | None = None
    endpoint_url: str | None = None

    def __post_init__(self) -> None:
        for name in ("secret_access_key", "session_token"):
            if not isinstance(getattr(self, name), SecretRef | None):
                raise ConfigurationError(
                    f"AWSConnection({name}=...) must be SecretRef.env(NAME) or SecretRef.file(PATH): a catalogue keeps "
                    "no secrets"
                )
        for name in ("region", "access_key_id", "endpoint_url"):
            if not isinstance(getattr(self, name), str | SecretRef | None):
                raise ConfigurationError(f"AWSConnection({name}=...) must be a text")


_KINDS = {each.word: each for each in (AWSConnection,)}


def connection_of(word: str, options: Mapping[str, Any]) -> Connection:
    """Return the connection of a word with options from a catalogue.

    Raises:
        ConfigurationError: if there is no such kind, or it has no such option.
    """
    kind = _KINDS.get(word)
    if kind is None:
        raise ConfigurationError(f"there is no kind {word!r} of connections; there are {', '.join(_KINDS)}")
    return kind.from_options(options)
