"""The registry client of serializers: confluent-kafka's client, one for each process, with readable errors."""

import atexit
import os
import ssl
import threading
import uuid
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from streamrt.errors import (
    ConfigurationError,
    SchemaRegistryError,
    SchemaRegistryUnavailableError,
    SerializationError,
)
from streamrt.extras import install_command
from streamrt.serializers.registry.config import SchemaRegistryClientConfig
from streamrt.serializers.registry.schema import RegisteredSchema, RegistrySchema, SchemaReference, SchemaType

MAX_SCHEMA_ID = 2**31 - 1
"""Highest id that registries assign."""

_MAX_REFERENCES = 200
_MAX_SCHEMA_CHARACTERS = 4_000_000
_UNKNOWN_SUBJECT, _UNKNOWN_VERSION, _UNKNOWN_SCHEMA = 40401, 40402, 40403
_PASSING_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})

T = TypeVar("T")
Direction = Literal["READ", "WRITE"]


class SchemaRegistry:
    """A schema registry with Confluent's API.

    No method is called for each record: callers cache the results.

    Args:
        config: connection to the registry.

    Raises:
        ConfigurationError: if confluent-kafka's extra is not installed, or the client cannot use the settings.
    """

    def __init__(self, config: SchemaRegistryClientConfig) -> None:
        self._url = config.url
        self._api = _load_api()
        options = config.as_dict(plaintext_secrets=True)
        try:
            self._client = self._api.SchemaRegistryClient(options)
        except (OSError, ValueError, TypeError) as error:
            # ssl.SSLError is an OSError: certificates are missing or damaged.
            raise ConfigurationError(
                f"the settings of the schema registry {self._url} cannot be used: {error}"
            ) from error

    @property
    def url(self) -> str:
        """Address of the registry, without credentials."""
        return self._url

    @property
    def client(self) -> Any:
        """confluent-kafka's client, for functions that this class does not offer."""
        return self._client

    def register(
        self, subject: str, schema: RegistrySchema, kind: SchemaType, normalize: bool = False
    ) -> RegisteredSchema:
        """Register a schema under a subject, unless it is already registered.

        Args:
            subject: name of the subject.
            schema: the schema.
            kind: its format.
            normalize: whether the registry compares schemas in a normal form.

        Raises:
            SchemaRegistryError: if the schema is invalid or not compatible with earlier ones, or the registry denies
                access.
            SchemaRegistryUnavailableError: if the registry does not answer.
        """
        what = f"register a schema under the subject {subject!r}"
        answer = self._call_registry(
            what,
            lambda: self._client.register_schema_full_response(
                subject, self._to_client_schema(schema, kind), normalize
            ),
        )
        # Registries answer with the id, and many with nothing but the id.
        return RegisteredSchema(
            schema, kind, self._check_id(answer.schema_id), _read_uuid(answer.guid), subject, answer.version
        )

    def lookup(
        self, subject: str, schema: RegistrySchema, kind: SchemaType, normalize: bool = False
    ) -> RegisteredSchema:
        """Find a schema that is registered under a subject.

        Args:
            subject: name of the subject.
            schema: the schema.
            kind: its format.
            normalize: whether the registry compares schemas in a normal form.

        Raises:
            SchemaRegistryError: if it is not registered there, or the registry denies access.
            SchemaRegistryUnavailableError: if the registry does not answer.
        """
        answer = self._call_registry(
            f"find the schema under the subject {subject!r}",
            lambda: self._client.lookup_schema(subject, self._to_client_schema(schema, kind), normalize),
        )
        found = self._from_answer(answer, "WRITE")
        return RegisteredSchema(schema, kind, found.id, found.guid, subject, found.version, found.rules)

    def accepts(self, subject: str, schema: RegistrySchema, kind: SchemaType) -> bool:
        """Return whether a schema may come after those of a subject, by its compatibility level. It registers nothing.

        Args:
            subject: name of the subject; one that does not exist yet accepts each schema.
            schema: the schema.
            kind: its format.

        Raises:
            SchemaRegistryError: if the schema is invalid, or the registry denies access.
            SchemaRegistryUnavailableError: if the registry does not answer.
        """
        what = f"compare a schema with those of the subject {subject!r}"
        try:
            return bool(
                self._call_registry(
                    what,
                    lambda: self._client.test_compatibility_all_versions(subject, self._to_client_schema(schema, kind)),
                )
            )
        except _UnknownSubjectError:
            return True

    def latest(self, subject: str) -> RegisteredSchema:
        """Return the latest schema of a subject.

        Args:
            subject: name of the subject.

        Raises:
            SchemaRegistryError: if there is none, or the registry denies access.
            SchemaRegistryUnavailableError: if the registry does not answer.
        """
        what = f"get the latest schema of the subject {subject!r}"
        return self._from_answer(self._call_registry(what, lambda: self._client.get_latest_version(subject)), "WRITE")

    def version(self, subject: str, version: int) -> RegisteredSchema:
        """Return one version of a subject, even if it is deleted.

        Args:
            subject: name of the subject.
            version: its number.

        Raises:
            SchemaRegistryError: if there is none, or the registry denies access.
            SchemaRegistryUnavailableError: if the registry does not answer.
        """
        what = f"get version {version} of the subject {subject!r}"
        answer = self._call_registry(what, lambda: self._client.get_version(subject, version, deleted=True))
        return self._from_answer(answer, "READ")

    def by_id(self, schema_id: int, direction: Direction = "READ") -> RegisteredSchema:
        """Return the schema with an id.

        Args:
            schema_id: the id, such as the one before a value.
            direction: whether it is for reading or for writing, which decides the rules that apply.

        Raises:
            SerializationError: if the registry does not know the id.
            SchemaRegistryError: if the registry denies access.
            SchemaRegistryUnavailableError: if the registry does not answer.
        """
        what = f"get the schema with id {schema_id}"
        try:
            schema = self._call_registry(what, lambda: self._client.get_schema(schema_id))
        except _UnknownSchemaError as error:
            raise SerializationError(f"the schema registry {self._url} has no schema with id {schema_id}") from error
        return self._make_registered(schema, schema_id, None, None, None, direction)

    def by_guid(self, guid: uuid.UUID) -> RegisteredSchema:
        """Return the schema with a global id.

        Args:
            guid: the global id, such as the one in a header.

        Raises:
            SerializationError: if the registry does not know the id.
            SchemaRegistryError: if the registry denies access.
            SchemaRegistryUnavailableError: if the registry does not answer.
        """
        what = f"get the schema with global id {guid}"
        try:
            schema = self._call_registry(what, lambda: self._client.get_schema_by_guid(str(guid)))
        except SchemaRegistryError as error:
            # Registries without global ids answer with a plain 404; bytes that look like one are bad input there.
            if getattr(error.__cause__, "http_status_code", None) != 404:
                raise
            raise SerializationError(f"the schema registry {self._url} has no schema with global id {guid}") from error
        return self._make_registered(schema, None, guid, None, None, "READ")

    def references(self, schema: RegistrySchema) -> dict[str, RegisteredSchema]:
        """Return the schemas that a schema refers to, directly or indirectly, by the names of the references.

        Referenced schemas come before those that refer to them.

        Args:
            schema: the schema.

        Raises:
            SchemaRegistryError: if one is missing, there are more than 200, or the registry denies access.
            SchemaRegistryUnavailableError: if the registry does not answer.
        """
        found: dict[str, RegisteredSchema] = {}
        visited: set[tuple[str, int]] = set()

        def visit(references: tuple[SchemaReference, ...], depth: int) -> None:
            for reference in references:
                version = (reference.subject, reference.version)
                if reference.name in found or version in visited:
                    continue
                visited.add(version)
                if len(visited) > _MAX_REFERENCES or depth > _MAX_REFERENCES // 4:
                    raise SchemaRegistryError(
                        f"a schema of the registry {self._url} refers to more than {_MAX_REFERENCES} others, "
                        f"the limit of StreamRT"
                    )
                other = self.version(reference.subject, reference.version)
                visit(other.schema.references, depth + 1)
                found[reference.name] = other

        visit(schema.references, 0)
        return found

    def close(self) -> None:
        """Close connections."""
        self._client.close()

    # -- Conversion from and to confluent-kafka's objects ----------------------------------------------------------

    def _to_client_schema(self, schema: RegistrySchema, kind: SchemaType) -> Any:
        references = [
            self._api.SchemaReference(name=one.name, subject=one.subject, version=one.version)
            for one in schema.references
        ]
        return self._api.Schema(schema_str=schema.text, schema_type=kind, references=references)

    def _from_answer(self, answer: Any, direction: Direction) -> RegisteredSchema:
        return self._make_registered(
            answer.schema, answer.schema_id, _read_uuid(answer.guid), answer.subject, answer.version, direction
        )

    def _make_registered(
        self,
        schema: Any,
        schema_id: int | None,
        guid: uuid.UUID | None,
        subject: str | None,
        version: int | None,
        direction: Direction,
    ) -> RegisteredSchema:
        text = schema.schema_str
        if not isinstance(text, str) or len(text) > _MAX_SCHEMA_CHARACTERS:
            problem = "no schema" if not isinstance(text, str) else f"a schema of {len(text)} characters"
            raise self._make_answer_error(problem)
        references = tuple(SchemaReference(one.name, one.subject, one.version) for one in schema.references or ())
        for one in references:
            if not (isinstance(one.name, str) and isinstance(one.subject, str) and isinstance(one.version, int)):
                raise self._make_answer_error(f"the reference {one}")
        return RegisteredSchema(
            RegistrySchema(text, references),
            schema.schema_type or "AVRO",
            self._check_id(schema_id),
            guid,
            subject,
            version,
            _rule_names(schema.rule_set, direction),
        )

    def _check_id(self, schema_id: Any) -> int | None:
        if schema_id is not None and (not isinstance(schema_id, int) or not 0 <= schema_id <= MAX_SCHEMA_ID):
            raise self._make_answer_error(f"the id {schema_id!r}")
        return schema_id

    # -- Errors --------------------------------------------------------------------------------------------------

    def _call_registry(self, what: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except self._api.SchemaRegistryError as error:
            raise self._make_refusal(what, error) from error
        except Exception as error:
            # The client passes on all errors of httpx, authlib, ssl and json.
            raise self._make_trouble(what, error) from error

    def _make_answer_error(self, what: str) -> SchemaRegistryError:
        return SchemaRegistryError(
            f"the schema registry {self._url} returned {_shorten_text(what)}, which cannot be used"
        )

    def _make_refusal(self, what: str, error: Any) -> SchemaRegistryError:
        status, code = error.http_status_code, error.error_code
        reason = _shorten_text(f"HTTP {status}" + (f", {error.error_message}" if error.error_message else ""))
        start = f"the schema registry {self._url}"
        if status in _PASSING_STATUS:
            return SchemaRegistryUnavailableError(f"{start} could not {what}: {reason}")
        if status in (401, 403):
            return SchemaRegistryError(
                f"{start} does not let this application {what}: {reason}; check basic_auth_user_info or the token, "
                f"and the permissions"
            )
        if code == _UNKNOWN_SCHEMA:
            return _UnknownSchemaError(
                f"{start} could not {what}: {reason}; register it first, or set auto_register_schemas=True"
            )
        if code in (_UNKNOWN_SUBJECT, _UNKNOWN_VERSION):
            return _UnknownSubjectError(f"{start} could not {what}: {reason}; register a schema there first")
        if status == 404:
            return SchemaRegistryError(f"{start} could not {what}: {reason}; check the path of the url")
        if status == 409:
            return SchemaRegistryError(
                f"{start} refused to {what}, because it is not compatible with those before it: {reason}; change the "
                f"schema, or the compatibility level of the subject"
            )
        return SchemaRegistryError(f"{start} refused to {what}: {reason}")

    def _make_trouble(self, what: str, error: Exception) -> SchemaRegistryError:
        causes = _list_causes(error)
        reason = _shorten_text(str(error) or type(error).__name__)
        if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
            return SchemaRegistryError(
                f"the certificate of the schema registry {self._url} is not trusted: {reason}; check ssl_ca_location"
            )
        if any(isinstance(cause, (*self._api.transport_errors, OSError)) for cause in causes):
            return SchemaRegistryUnavailableError(
                f"the schema registry {self._url} did not answer a request to {what}: {reason}; check the url, and "
                f"that the registry runs"
            )
        return SchemaRegistryError(
            f"the schema registry {self._url} could not {what}: {type(error).__name__}: {reason}"
        )


class _UnknownSchemaError(SchemaRegistryError):
    """The registry itself reports that it has no such schema, so the address is right."""


class _UnknownSubjectError(SchemaRegistryError):
    """The registry has no such subject, or no such version of it."""


class _Api:
    """The names of confluent-kafka that are used here; importing them takes half a second."""

    def __init__(self) -> None:
        from confluent_kafka import schema_registry
        from confluent_kafka.schema_registry import error

        self.SchemaRegistryClient = schema_registry.SchemaRegistryClient
        self.Schema = schema_registry.Schema
        self.SchemaReference = schema_registry.SchemaReference
        self.SchemaRegistryError = error.SchemaRegistryError
        self.transport_errors = _transport_errors()


def _transport_errors() -> tuple[type[Exception], ...]:
    # confluent-kafka uses the first of the two that is installed.
    try:
        import httpx2 as httpx
    except ImportError:
        import httpx
    return (httpx.TransportError,)


_api: _Api | None = None
_registries: dict[SchemaRegistryClientConfig, SchemaRegistry] = {}
_lock = threading.Lock()


def open_registry(config: SchemaRegistryClientConfig) -> SchemaRegistry:
    """Return the registry of a configuration; a process has one for each configuration.

    No request is sent before the first call.

    Args:
        config: connection to the registry.

    Raises:
        ConfigurationError: if confluent-kafka's extra is not installed, or the client cannot use the settings.
    """
    registry = _registries.get(config)
    if registry is None:
        with _lock:
            registry = _registries.get(config)
            if registry is None:
                registry = _registries[config] = SchemaRegistry(config)
    return registry


def _forget_clients() -> None:
    # Connections of the parent process must not be used here, and its locks may be held forever.
    global _lock
    _lock = threading.Lock()
    _registries.clear()


def _close_all() -> None:
    for registry in _registries.values():
        registry.close()
    _registries.clear()


os.register_at_fork(after_in_child=_forget_clients)
atexit.register(_close_all)


def _load_api() -> _Api:
    global _api
    if _api is None:
        try:
            _api = _Api()
        except ImportError as error:
            raise ConfigurationError(
                f"a schema registry needs packages that are not installed ({error}): "
                f"run {install_command('schema-registry')}"
            ) from error
    return _api


def _list_causes(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


def _shorten_text(text: str) -> str:
    # An error page of a proxy would fill the log.
    line = " ".join(text.split())
    return line if len(line) <= 500 else f"{line[:500]}..."


def _read_uuid(text: str | None) -> uuid.UUID | None:
    try:
        return None if text is None else uuid.UUID(text)
    except ValueError:
        return None


def _rule_names(rule_set: Any, direction: Direction) -> tuple[str, ...]:
    if rule_set is None:
        return ()
    return tuple(
        str(rule.name)
        for rule in [*(rule_set.domain_rules or ()), *(rule_set.encoding_rules or ())]
        if not rule.disabled and (rule.mode is None or direction in str(rule.mode))
    )
