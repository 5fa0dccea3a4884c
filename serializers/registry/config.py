"""Connection to a schema registry, and its use by serializers. Secrets are masked."""

import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ConfigDict, Field, SecretStr, ValidationInfo, field_validator, model_validator
from typing_extensions import Self, override

from streamrt.errors import ConfigurationError
from streamrt.secret import Secret, conceal
from streamrt.serializers.base import SerializationContext
from streamrt.serializers.registry.schema import SchemaReference
from streamrt.settings import KeywordSettings

SubjectNameStrategy = Callable[[SerializationContext, "str | None"], "str | None"]
ReferenceSubjectNameStrategy = Callable[[SerializationContext, SchemaReference], "str | None"]
BearerSource = Literal["OAUTHBEARER", "STATIC_TOKEN"]

_BEARER_NEEDS: dict[str, tuple[str, ...]] = {
    "OAUTHBEARER": (
        "bearer_auth_client_id",
        "bearer_auth_client_secret",
        "bearer_auth_issuer_endpoint_url",
        "bearer_auth_scope",
        "bearer_auth_logical_cluster",
    ),
    "STATIC_TOKEN": ("bearer_auth_token", "bearer_auth_logical_cluster"),
}
_BEARER_FIELDS = frozenset(
    {name for needed in _BEARER_NEEDS.values() for name in needed} | {"bearer_auth_identity_pool_id"}
)


def topic_subject_name_strategy(ctx: SerializationContext, record_name: str | None) -> str:
    """Name the subject `<topic>-key` or `<topic>-value`: one schema for each topic. This is the default.

    Example:
        >>> from streamrt.serializers import MessageField
        >>> topic_subject_name_strategy(SerializationContext("orders", MessageField.VALUE), "shop.Order")
        'orders-value'
    """
    return f"{ctx.topic}-{ctx.field.value}"


def record_subject_name_strategy(ctx: SerializationContext, record_name: str | None) -> str | None:
    """Name the subject after the record's type: one schema for all topics.

    Example:
        >>> from streamrt.serializers import MessageField
        >>> record_subject_name_strategy(SerializationContext("orders", MessageField.VALUE), "shop.Order")
        'shop.Order'
    """
    return record_name


def topic_record_subject_name_strategy(ctx: SerializationContext, record_name: str | None) -> str | None:
    """Name the subject `<topic>-<type of the record>`: several types in one topic.

    Example:
        >>> from streamrt.serializers import MessageField
        >>> topic_record_subject_name_strategy(SerializationContext("orders", MessageField.VALUE), "shop.Order")
        'orders-shop.Order'
    """
    return None if record_name is None else f"{ctx.topic}-{record_name}"


def reference_subject_name_strategy(ctx: SerializationContext, reference: SchemaReference) -> str:
    """Name the subject of a referenced schema after the reference. This is the default."""
    return reference.name


class _Settings(KeywordSettings):
    """Settings with finite numbers, and a `repr` without default values."""

    model_config = ConfigDict(allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, value: object, info: ValidationInfo) -> object:
        # Python treats True as 1.
        if isinstance(value, bool) and cls.model_fields[info.field_name or ""].annotation is not bool:
            raise ValueError(f"must not be {value}")
        return value

    @override
    def __repr_args__(self) -> Any:
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if value != field.default:
                yield name, value


class SchemaRegistryClientConfig(_Settings):
    """Connection to a schema registry with Confluent's API.

    Nothing is read from the environment. Secrets are masked in `repr`, `str` and errors. An instance cannot be
    changed.

    Args:
        url: address of the registry; several are separated by commas. Credentials in it are moved to
            `basic_auth_user_info`.
        ssl_ca_location: path of a file or directory with the certificates of trusted authorities.
        ssl_key_location: path of the client's private key (PEM); needs `ssl_certificate_location`.
        ssl_key_password: password of that key.
        ssl_certificate_location: path of the client's certificate (PEM); the file may also contain the key.
        basic_auth_user_info: `user:password`.
        basic_auth_user_info_location: path of a file with `user:password`, read in the process that uses the registry.
        bearer_auth_credentials_source: "STATIC_TOKEN" or "OAUTHBEARER", if the registry needs a token.
        bearer_auth_token: the static token.
        bearer_auth_client_id: OAuth client id.
        bearer_auth_client_secret: OAuth client secret.
        bearer_auth_scope: OAuth scope.
        bearer_auth_issuer_endpoint_url: URL that issues OAuth tokens.
        bearer_auth_logical_cluster: logical cluster of the registry.
        bearer_auth_identity_pool_id: identity pool of the registry.
        proxy: URL of an HTTP proxy.
        timeout: time limit of one request in seconds.
        max_retries: number of retries when the registry does not answer, or answers with a temporary error
            (HTTP 408, 429, 500, 502, 503, 504).
        retries_wait_ms: upper bound of the pause before the first retry, in milliseconds; it doubles with each retry.
        retries_max_wait_ms: upper bound of any pause, in milliseconds.

    Raises:
        ConfigurationError: if a setting is unknown or invalid. The message never shows the value.

    Example:
        >>> config = SchemaRegistryClientConfig(url="https://shop:sesame@registry:8081")
        >>> config.url
        'https://registry:8081'
        >>> "sesame" in repr(config)
        False
        >>> config.as_dict()["basic.auth.user.info"]
        '***'
    """

    url: str = Field(min_length=1)
    ssl_ca_location: str | None = None
    ssl_key_location: str | None = None
    ssl_key_password: SecretStr | None = None
    ssl_certificate_location: str | None = None
    basic_auth_user_info: SecretStr | None = None
    basic_auth_user_info_location: str | None = None
    bearer_auth_credentials_source: BearerSource | None = None
    bearer_auth_token: SecretStr | None = None
    bearer_auth_client_id: str | None = None
    bearer_auth_client_secret: SecretStr | None = None
    bearer_auth_scope: str | None = None
    bearer_auth_issuer_endpoint_url: str | None = None
    bearer_auth_logical_cluster: str | None = None
    bearer_auth_identity_pool_id: str | None = None
    proxy: SecretStr | None = None
    timeout: float = Field(default=10.0, gt=0)
    max_retries: int = Field(default=3, ge=0, le=100)
    retries_wait_ms: int = Field(default=500, ge=0)
    retries_max_wait_ms: int = Field(default=5000, ge=0)

    if TYPE_CHECKING:  # secrets are given as plain strings

        def __init__(self, **values: Any) -> None: ...

    @model_validator(mode="before")
    @classmethod
    def _move_credentials(cls, values: Any) -> Any:
        url = values.get("url")
        if not isinstance(url, str):
            return values
        bare, credentials = _without_credentials(url)
        if credentials is None:
            return {**values, "url": bare}
        if values.get("basic_auth_user_info") is not None:
            raise ValueError("credentials are given twice: in the url and as basic_auth_user_info")
        return {**values, "url": bare, "basic_auth_user_info": credentials}

    @field_validator("basic_auth_user_info")
    @classmethod
    def _two_parts(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and ":" not in value.get_secret_value():
            raise ValueError("it must have the form user:password")
        return value

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.ssl_certificate_location is None and (self.ssl_key_location or self.ssl_key_password):
            raise ValueError("ssl_key_location and ssl_key_password need ssl_certificate_location")
        if self.basic_auth_user_info is not None and self.basic_auth_user_info_location is not None:
            raise ValueError("give either basic_auth_user_info or basic_auth_user_info_location, not both")
        given = sorted(name for name in _BEARER_FIELDS if getattr(self, name) is not None)
        source = self.bearer_auth_credentials_source
        if source is None:
            if given:
                raise ValueError(f"{given[0]} needs bearer_auth_credentials_source")
            return self
        missing = [name for name in _BEARER_NEEDS[source] if getattr(self, name) is None]
        if missing:
            raise ValueError(f"bearer_auth_credentials_source={source!r} needs {', '.join(missing)}")
        if self.basic_auth_user_info is not None or self.basic_auth_user_info_location is not None:
            raise ValueError("give either basic_auth_user_info or bearer_auth_credentials_source, not both")
        return self

    @model_validator(mode="after")
    def _conceal_secrets(self) -> Self:
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, SecretStr):
                conceal(value.get_secret_value())
        if self.basic_auth_user_info is not None:
            conceal(self.basic_auth_user_info.get_secret_value().partition(":")[2])
        return self

    def __getstate__(self) -> dict[Any, Any]:
        state = super().__getstate__()
        hidden = {
            name: Secret(value.get_secret_value())
            for name, value in state["__dict__"].items()
            if isinstance(value, SecretStr)
        }
        return {**state, "__dict__": {**state["__dict__"], **hidden}}

    def __setstate__(self, state: dict[Any, Any]) -> None:
        shown = {
            name: SecretStr(value.reveal()) for name, value in state["__dict__"].items() if isinstance(value, Secret)
        }
        super().__setstate__({**state, "__dict__": {**state["__dict__"], **shown}})

    def as_dict(self, plaintext_secrets: bool = False) -> dict[str, Any]:
        """Return the settings that have a value, with the names of confluent-kafka's `SchemaRegistryClient`.

        Args:
            plaintext_secrets: whether secrets are plain text, as the client needs them, instead of `***`.

        Raises:
            ConfigurationError: if the file with the credentials is needed and cannot be read, or has another format.
        """
        options: dict[str, Any] = {}
        for name in type(self).model_fields:
            value = getattr(self, name)
            if name == "basic_auth_user_info_location":
                if value is not None:
                    options["basic.auth.user.info"] = _find_credentials(value) if plaintext_secrets else "***"
                continue
            if isinstance(value, SecretStr):
                value = value.get_secret_value() if plaintext_secrets else "***"
            if value is not None:
                options[name.replace("_", ".")] = value
        return options


class SchemaRegistrySerializationConfig(_Settings):
    """Use of the registry by a serializer. Deserializers use only `use_deprecated_format`.

    Args:
        auto_register_schemas: whether the schema is registered under its subject when the first record is serialized.
            Otherwise it must already be registered.
        normalize_schemas: whether the registry compares schemas in a normal form, which ignores the order of properties
            and the like.
        use_latest_version: serialize with the latest schema of the subject instead of the serializer's own; needs
            `auto_register_schemas=False`. The schema is looked up once per process.
        use_schema_id: serialize with the schema of this id; needs `auto_register_schemas=False`.
        subject_name_strategy: function of a `SerializationContext` and the name of the record's type that returns the
            subject; `topic_subject_name_strategy` by default.
        schema_id_location: location of the schema's id: "prefix", before the value (magic byte 0 and four bytes), or
            "header", in the header `__key_schema_id` or `__value_schema_id`. Deserializers read both.
        skip_known_types: only Protobuf: do not register Google's well-known types that the schema refers to.
        reference_subject_name_strategy: only Protobuf: function of a `SerializationContext` and a `SchemaReference`
            that returns the subject of a referenced schema; its name by default.
        use_deprecated_format: only Protobuf: write message indexes like confluent-kafka older than 1.8.

    Raises:
        ConfigurationError: if a setting is unknown, or settings contradict each other.

    Example:
        >>> SchemaRegistrySerializationConfig(normalize_schemas=True).auto_register_schemas
        True
    """

    auto_register_schemas: bool = True
    normalize_schemas: bool = False
    use_latest_version: bool = False
    use_schema_id: int | None = Field(default=None, ge=0, le=2**31 - 1)
    subject_name_strategy: SubjectNameStrategy = topic_subject_name_strategy
    schema_id_location: Literal["prefix", "header"] = "prefix"
    skip_known_types: bool = False
    reference_subject_name_strategy: ReferenceSubjectNameStrategy = reference_subject_name_strategy
    use_deprecated_format: bool = False

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        fixed = [name for name in ("use_latest_version", "use_schema_id") if getattr(self, name) not in (False, None)]
        if len(fixed) == 2:
            raise ValueError("give either use_latest_version or use_schema_id, not both")
        if fixed and self.auto_register_schemas:
            raise ValueError(f"{fixed[0]} needs auto_register_schemas=False: nothing is registered then")
        return self


def _find_credentials(location: str) -> str:
    try:
        text = Path(location).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigurationError(f"the basic_auth_user_info_location {location} cannot be read: {reason}") from None
    if ":" not in text:
        raise ConfigurationError(f"the file {location} must hold user:password")
    return text


def _without_credentials(url: str) -> tuple[str, str | None]:
    """Return a list of URLs without credentials, and the credentials, which must not differ."""
    bare, found = [], set()
    for one in url.split(","):
        parts = urllib.parse.urlsplit(one.strip())
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("url must look like http://host:8081")
        if parts.query or parts.fragment:
            raise ValueError("url must have no query and no fragment")
        userinfo, _, host = parts.netloc.rpartition("@")
        if userinfo:
            user, separator, password = userinfo.partition(":")
            if not separator:
                raise ValueError("credentials in the url must have the form user:password")
            found.add(f"{urllib.parse.unquote(user)}:{urllib.parse.unquote(password)}")
        bare.append(urllib.parse.urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", "")))
    if len(found) > 1:
        raise ValueError("the credentials of all addresses must be the same")
    return ",".join(bare), next(iter(found), None)
