"""Connection settings of the Kafka cluster: the connection options of librdkafka, with masked secrets."""

import contextlib
import json
import urllib.parse
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NoReturn, SupportsIndex, get_args

from pydantic import ConfigDict, Field, ImportString, SecretStr, field_validator, model_validator
from typing_extensions import Self, override

from streamrt.errors import ArgumentTypeError, ArgumentValueError, ConfigurationError
from streamrt.secret import conceal
from streamrt.settings import KeywordSettings

__all__ = ["ConnectionConfig", "HoldsSecrets", "OAuthCallback", "SecretsNotPicklableError", "as_connection"]

SecurityProtocol = Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"]
SaslMechanism = Literal["GSSAPI", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
OAuthCallback = Callable[[str], tuple[Any, ...]]

_MASK = "***"
_ALIASES = {"sasl.mechanisms": "sasl.mechanism", "metadata.broker.list": "bootstrap.servers"}
_UNDERSCORED = frozenset({"oauth_cb"})
# Secrets of librdkafka that are not settings of a connection here.
_MORE_SECRETS = frozenset(
    {"sasl.oauthbearer.assertion.private.key.pem", "sasl.oauthbearer.assertion.private.key.passphrase"}
)


_NO_URL = "the address of a broker is host:port, without http:// in front of it"


class SecretsNotPicklableError(ConfigurationError, TypeError):
    """An object with secrets cannot be pickled; secrets are transferred by reference only."""


class HoldsSecrets:
    """Common base of clients that keep their options, including secrets, until they connect."""

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> NoReturn:
        raise SecretsNotPicklableError(
            f"a {type(self).__name__} cannot be pickled, because it may hold secrets and open connections: create it "
            "in the process that uses it"
        )


class ConnectionConfig(KeywordSettings):
    """Connection settings of all Kafka clients, named like the options of librdkafka with `_` for `.`.

    Nothing is read from the environment. Secret values are masked in `repr`, in `str` and in error messages. An
    instance is immutable and cannot be pickled; use `to_secret_json` to transfer it to another process.
    `sasl_mechanisms`, librdkafka's alias of `sasl_mechanism`, is also accepted.

    Every option is described in the
    [configuration of librdkafka](https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md).

    Raises:
        ConfigurationError: if an option is unknown or its value is invalid. The message names the option and never
            shows the value.

    Example:
        >>> connection = ConnectionConfig(
        ...     bootstrap_servers="kafka:9093",
        ...     security_protocol="SASL_SSL",
        ...     sasl_mechanism="scram-sha-512",
        ...     sasl_username="shop",
        ...     sasl_password="sesame",
        ... )
        >>> connection.security_protocol, connection.sasl_mechanism
        ('sasl_ssl', 'SCRAM-SHA-512')
        >>> "sesame" in repr(connection)
        False
        >>> connection.as_librdkafka_dict(plaintext_secrets=False)["sasl.password"]
        '***'
    """

    model_config = ConfigDict(validate_default=False)

    bootstrap_servers: str = Field(min_length=1)
    security_protocol: SecurityProtocol | None = None

    client_id: str | None = None

    sasl_mechanism: SaslMechanism | None = None
    sasl_username: str | None = None
    sasl_password: SecretStr | None = None

    sasl_kerberos_kinit_cmd: str | None = None
    sasl_kerberos_keytab: str | None = None
    sasl_kerberos_min_time_before_relogin: int | None = Field(default=None, ge=0)
    sasl_kerberos_service_name: str | None = None
    sasl_kerberos_principal: str | None = None

    oauth_cb: OAuthCallback | ImportString[OAuthCallback] | None = None
    sasl_oauthbearer_config: SecretStr | None = None
    enable_sasl_oauthbearer_unsecure_jwt: bool | None = None
    sasl_oauthbearer_method: Literal["default", "oidc"] | None = None
    sasl_oauthbearer_client_id: str | None = None
    sasl_oauthbearer_client_secret: SecretStr | None = None
    sasl_oauthbearer_scope: str | None = None
    sasl_oauthbearer_extensions: str | None = None
    sasl_oauthbearer_token_endpoint_url: str | None = None

    ssl_cipher_suites: str | None = None
    ssl_curves_list: str | None = None
    ssl_sigalgs_list: str | None = None
    ssl_key_location: str | None = None
    ssl_key_password: SecretStr | None = None
    ssl_key_pem: SecretStr | None = None
    ssl_certificate_location: str | None = None
    ssl_certificate_pem: SecretStr | None = None
    ssl_ca_location: str | None = None
    ssl_ca_pem: SecretStr | None = None
    ssl_ca_certificate_stores: str | None = None
    ssl_crl_location: str | None = None
    ssl_keystore_location: str | None = None
    ssl_keystore_password: SecretStr | None = None
    ssl_providers: str | None = None
    ssl_engine_location: str | None = None
    ssl_engine_id: str | None = None
    enable_ssl_certificate_verification: bool | None = None
    ssl_endpoint_identification_algorithm: Literal["none", "https"] | None = None

    if TYPE_CHECKING:  # secrets are given as plain strings

        def __init__(self, **values: Any) -> None: ...

    @model_validator(mode="before")
    @classmethod
    def _one_name_for_the_mechanism(cls, values: dict[str, Any]) -> dict[str, Any]:
        rest = {name: value for name, value in values.items() if name != "sasl_mechanisms"}
        given = [value for value in (values.get("sasl_mechanism"), values.get("sasl_mechanisms")) if value is not None]
        if len(given) == 2 and given[0] != given[1]:
            raise ValueError("sasl_mechanism and sasl_mechanisms are the same setting, but have different values")
        return {**rest, "sasl_mechanism": given[0]} if given else rest

    @field_validator("bootstrap_servers")
    @classmethod
    def _no_urls(cls, value: str) -> str:
        if _has_url(value):
            raise ValueError(_NO_URL)
        return value

    @field_validator("security_protocol", "sasl_oauthbearer_method", mode="before")
    @classmethod
    def _to_lower(cls, value: object) -> object:
        return value.lower() if isinstance(value, str) else value

    @field_validator("sasl_mechanism", mode="before")
    @classmethod
    def _to_upper(cls, value: object) -> object:
        return value.upper() if isinstance(value, str) else value

    @field_validator("ssl_endpoint_identification_algorithm", mode="before")
    @classmethod
    def _endpoint_algorithm(cls, value: object) -> object:
        # Java's clients write "none" as an empty string.
        return (value.lower() or "none") if isinstance(value, str) else value

    @field_validator("sasl_oauthbearer_token_endpoint_url")
    @classmethod
    def _no_credentials_in_url(cls, value: str | None) -> str | None:
        if value and "@" in urllib.parse.urlsplit(value).netloc:
            raise ValueError("the URL must not contain credentials; use sasl_oauthbearer_client_id and _client_secret")
        return value

    @model_validator(mode="after")
    def _conceal_secrets(self) -> Self:
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, SecretStr):
                conceal(value.get_secret_value())
        return self

    @classmethod
    def from_librdkafka_dict(cls, config: Mapping[str, Any], ignore_extras: bool = False) -> Self:
        """Build a connection from options that are named as in librdkafka.

        Args:
            config: options such as `{"bootstrap.servers": "kafka:9092"}`.
            ignore_extras: whether to ignore options that do not concern connections, instead of refusing them.

        Raises:
            ConfigurationError: if a value is invalid, or an option is unknown and `ignore_extras` is off.

        Example:
            >>> options = {"bootstrap.servers": "kafka:9092", "linger.ms": 5}
            >>> ConnectionConfig.from_librdkafka_dict(options, ignore_extras=True).bootstrap_servers
            'kafka:9092'
        """
        known: dict[str, Any] = {}
        extras: list[str] = []
        for key, value in config.items():
            field = field_of(key)
            if field is None:
                extras.append(key)
            elif known.setdefault(field, value) != value:
                raise ConfigurationError(f"{key} is set twice, under two names, with different values")
        if extras and not ignore_extras:
            raise ConfigurationError(
                f"these are not connection options: {', '.join(sorted(extras))}; pass them as producer_extra_config or "
                "consumer_extra_config, or set ignore_extras=True"
            )
        return cls(**known)

    def as_librdkafka_dict(self, plaintext_secrets: bool = True) -> dict[str, Any]:
        """Return the options that have a value, named as in librdkafka.

        Args:
            plaintext_secrets: whether secrets appear in plain text, as clients need them, or as `***`.

        Example:
            >>> ConnectionConfig(bootstrap_servers="kafka:9092", client_id="shop").as_librdkafka_dict()
            {'bootstrap.servers': 'kafka:9092', 'client.id': 'shop'}
        """
        options: dict[str, Any] = {}
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, SecretStr):
                plain = value.get_secret_value()
                value = _MASK if plain and not plaintext_secrets else plain
            if value is not None and value != "":
                options[_option_of(name)] = value
        return options

    def to_secret_json(self) -> str:
        """Return all options as JSON, **with the secrets in plain text**.

        Write it to a file that only its owner may read, or to a pipe; never to a log, a command line or a pickle.

        Raises:
            ConfigurationError: if the connection has an `oauth_cb`, because a function has no JSON form.

        Example:
            >>> connection = ConnectionConfig(bootstrap_servers="kafka:9092")
            >>> ConnectionConfig.from_secret_json(connection.to_secret_json()) == connection
            True
        """
        if self.oauth_cb is not None:
            raise ConfigurationError(
                "oauth_cb is a Python function and cannot be passed to other processes; "
                "use sasl_oauthbearer_method='oidc' with client id, secret and token endpoint"
            )
        return json.dumps(self.as_librdkafka_dict(plaintext_secrets=True))

    @classmethod
    def from_secret_json(cls, text: str) -> Self:
        """Build a connection from the result of `to_secret_json`.

        Args:
            text: the JSON document.

        Raises:
            ConfigurationError: if the text is not such a document; the message does not quote it.
        """
        options: Any = None
        # Suppressed, not chained, because a JSONDecodeError contains the whole document.
        with contextlib.suppress(ValueError):
            options = json.loads(text)
        if not isinstance(options, dict):
            raise ConfigurationError("the connection file is damaged: it is not a JSON object")
        return cls.from_librdkafka_dict(options)

    @override
    def __repr_args__(self) -> Any:
        for name in type(self).model_fields:
            value = getattr(self, name)
            if value is not None:
                # A functools.partial would show its bound arguments, which may be the client secret.
                yield name, _CALLABLE if name == "oauth_cb" else value

    @override
    def __reduce_ex__(self, protocol: SupportsIndex, /) -> NoReturn:
        raise SecretsNotPicklableError(
            "a ConnectionConfig cannot be pickled, because it may hold secrets: "
            "pass to_secret_json() through a file that only its owner may read"
        )


class _Callable:
    def __repr__(self) -> str:
        return "<callable>"


_CALLABLE = _Callable()


def as_connection(broker_address: "str | ConnectionConfig") -> ConnectionConfig:
    """Convert `broker_address` to a connection.

    Args:
        broker_address: `host:port` (several separated by commas), or a `ConnectionConfig`.

    Raises:
        ConfigurationError: if it is neither.

    Example:
        >>> as_connection("kafka:9092").bootstrap_servers
        'kafka:9092'
    """
    if isinstance(broker_address, ConnectionConfig):
        return broker_address
    if isinstance(broker_address, str):
        return _connect_to(broker_address)
    raise ArgumentTypeError(
        f"broker_address is a {type(broker_address).__name__}: use 'host:port' or a ConnectionConfig"
    )


def field_of(option: str) -> str | None:
    """Return the field for librdkafka's `option`, or None if it is not a connection option."""
    option = _ALIASES.get(option, option)
    field = option.replace(".", "_")
    return field if field in ConnectionConfig.model_fields and _option_of(field) == option else None


def is_secret_option(option: str) -> bool:
    """Return whether librdkafka's `option` holds a secret.

    Example:
        >>> is_secret_option("ssl.key.pem"), is_secret_option("sasl.oauthbearer.token.endpoint.url")
        (True, False)
    """
    field = field_of(option)
    if field is None:
        return option in _MORE_SECRETS
    return SecretStr in get_args(ConnectionConfig.model_fields[field].annotation)


def _option_of(field: str) -> str:
    return field if field in _UNDERSCORED else field.replace("_", ".")


def connection_of(given: str | ConnectionConfig | None, configured: str | None) -> ConnectionConfig:
    """Return the connection from an application's argument, or from other configuration.

    Args:
        given: the argument of the application.
        configured: the address to use if `given` is not a `ConnectionConfig`.

    Raises:
        ConfigurationError: if both are missing.
    """
    if isinstance(given, ConnectionConfig):
        return given
    if configured is None:
        raise ConfigurationError(
            "broker_address is missing: pass Application(broker_address='host:port'), set STREAMRT_BROKER_ADDRESS, or "
            "start a broker on this machine with `streamrt dev kafka`"
        )
    return _connect_to(configured)


def _connect_to(addresses: str) -> ConnectionConfig:
    if _has_url(addresses):
        raise ArgumentValueError(f"broker_address is invalid: {_NO_URL}")
    return ConnectionConfig(bootstrap_servers=addresses)


def _has_url(addresses: str) -> bool:
    """Return whether an address has a scheme other than the security protocols that librdkafka accepts there."""
    schemes = (address.strip().rpartition("://")[0].lower() for address in addresses.split(","))
    return any(scheme and scheme not in get_args(SecurityProtocol) for scheme in schemes)
