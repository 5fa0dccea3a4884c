"""JSON with orjson: compact, UTF-8, key order kept, NaN and infinities as null; validated if there is a schema."""

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import orjson

from streamrt.errors import ArgumentTypeError, ConfigurationError, IgnoreMessage, SerializationError
from streamrt.records import Headers
from streamrt.serializers.base import (
    BoundDeserializer,
    BoundFunctions,
    BoundSerializer,
    Deserializer,
    MessageField,
    SerializationContext,
    Serializer,
)
from streamrt.serializers.json_schema import Check, offline, schema_check, schema_of, schema_text, validator_check

if TYPE_CHECKING:
    from streamrt.serializers.registry import (
        RegisteredSchema,
        RegistrySchema,
        SchemaRegistry,
        SchemaRegistryClientConfig,
        SchemaRegistrySerializationConfig,
    )

JSONSchema = Mapping[str, Any]

DUMP_OPTION: Final = orjson.OPT_PASSTHROUGH_DATETIME

_AS_DIGITS: Final = bytes(ord("0") if char in b"0123456789" else ord(" ") for char in range(256))
_MANY_DIGITS: Final = b"0" * 19
"""An integer beyond 64 bits has so many; orjson reads it as a float."""

_STRIDE: Final = 3
_SAMPLED_DIGITS: Final = b"0" * (len(_MANY_DIGITS) // _STRIDE)
"""So many of those digits are in a sample of each third byte."""

MOST_GROWTH: Final = 5
"""`9e15` is written as `9000000000000000.0`; nothing else that is read becomes as many times longer."""

_LARGE: Final = float(1 << 63)
_FEW: Final = 8
_SCREENED: Final = 64
"""Values that are searched together; many more would not fit into the caches of the processor."""


def default_dumps(value: Any) -> bytes:
    """Return an object as JSON: the default function of `JSONSerializer`.

    Args:
        value: an object with a JSON form.

    Raises:
        TypeError: if it has no JSON form.

    Example:
        >>> default_dumps({"celsius": float("nan")})
        b'{"celsius":null}'
    """
    return orjson.dumps(value, option=orjson.OPT_PASSTHROUGH_DATETIME)


def default_loads(value: bytes | bytearray | str) -> Any:
    """Return the object of a JSON text: the default function of `JSONDeserializer`.

    Args:
        value: the JSON.

    Raises:
        ValueError: if it is not JSON, or has an integer beyond 64 bits.

    Example:
        >>> default_loads(b'{"celsius": 21.5}')
        {'celsius': 21.5}
    """
    return _load_exactly(value, orjson.loads(value))


class JSONSerializer(Serializer):
    """Writes JSON.

    Args:
        dumps: function from an object to JSON as bytes or str; orjson by default, which refuses bytes, sets, datetimes,
            Decimals, dictionaries whose keys are not strings and integers beyond 64 bits.
        schema: JSON Schema that values must follow: a mapping, or a `RegistrySchema` if it refers to other schemas
            of the registry. `$schema` names its dialect; the default is draft 2020-12. A `$ref` is never fetched.
        validator: object whose method `validate(value)` raises if a value is invalid, such as a jsonschema validator;
            it replaces the schema.
        schema_registry_client_config: connection to a schema registry. The schema is registered there, and each value
            begins with its id.
        schema_registry_serialization_config: use of the registry.

    Raises:
        ConfigurationError: if the schema is invalid or has an unresolvable reference, a package is missing, or the
            arguments contradict each other.

    Example:
        >>> from streamrt.serializers import MessageField, SerializationContext
        >>> write = JSONSerializer(schema={"type": "object", "required": ["id"]})
        >>> write({"id": 1}, SerializationContext("orders", MessageField.VALUE))
        b'{"id":1}'
    """

    def __init__(
        self,
        dumps: Callable[[Any], bytes | str] | None = default_dumps,
        schema: "JSONSchema | RegistrySchema | None" = None,
        validator: Any = None,
        schema_registry_client_config: "SchemaRegistryClientConfig | None" = None,
        schema_registry_serialization_config: "SchemaRegistrySerializationConfig | None" = None,
    ) -> None:
        # The default function has a faster path.
        self._dumps = None if dumps is default_dumps else dumps
        self._rules = _Rules(schema, validator, schema_registry_client_config)
        self._calls = BoundFunctions[BoundSerializer]()
        self._writer = None
        if schema_registry_client_config is not None:
            from streamrt.serializers.registry import SchemaWriter

            settings = schema_registry_serialization_config
            self._writer = SchemaWriter("JSON", schema_registry_client_config, settings)
            fixed = settings is not None and (settings.use_latest_version or settings.use_schema_id is not None)
            if schema is None and not fixed:
                raise ConfigurationError(
                    "a JSONSerializer with a schema registry needs a schema, unless it takes one of the registry by "
                    "use_latest_version or use_schema_id"
                )
        elif schema_registry_serialization_config is not None:
            raise ConfigurationError("schema_registry_serialization_config needs schema_registry_client_config")

    @property
    def writes_headers(self) -> bool:  # noqa: D102
        return self._writer is not None and self._writer.writes_headers

    def __call__(self, value: Any, ctx: SerializationContext) -> bytes | None:  # noqa: D102
        data: bytes | None = self._calls.of(self, JSONSerializer.bind, ctx)(value, ctx.headers)
        return data

    def bind(self, topic: str, field: MessageField) -> BoundSerializer:  # noqa: D102
        plain = _dumps if self._dumps is None else _make_dump(self._dumps)
        if self._writer is not None:
            title = self._rules.title
            return self._writer.bind(topic, field, self._rules.schema(), self._make_encoder, record_name=title)
        check = self._rules.check()
        if check is None:
            return plain

        def serialize(value: Any, headers: Headers | None) -> bytes:
            check(value)
            return plain(value, None)

        return serialize

    def _make_encoder(self, registered: "RegisteredSchema", registry: "SchemaRegistry") -> Callable[[Any], bytes]:
        plain = _dumps if self._dumps is None else _make_dump(self._dumps)
        # The value must follow the schema whose id is written: the own schema counts only if it is that one.
        own = self._rules.given is not None or registered.schema.text == self._rules.text
        check = (self._rules.check() if own else None) or _registered_check(registered, registry)

        def encode(value: Any) -> bytes:
            check(value)
            return plain(value, None)

        return encode


class JSONDeserializer(Deserializer):
    """Reads JSON.

    Args:
        loads: function from bytes to an object; orjson by default, without integers beyond 64 bits.
        schema: JSON Schema that values must follow, as for `JSONSerializer`. With a registry, values are validated
            against this schema instead of their writer's; the schema `{}` accepts everything, which saves the
            time.
        validator: object whose method `validate(value)` raises if a value is invalid; it replaces the schema.
        schema_registry_client_config: connection to a schema registry. Each value begins with the id of its schema,
            and is validated against it.

    Raises:
        ConfigurationError: if the schema is invalid or has an unresolvable reference, or a package is missing.

    Example:
        >>> from streamrt.serializers import MessageField, SerializationContext
        >>> read = JSONDeserializer(schema={"type": "object", "required": ["id"]})
        >>> read(b'{"id": 1}', SerializationContext("orders", MessageField.VALUE))
        {'id': 1}
    """

    def __init__(
        self,
        loads: Callable[[bytes], Any] | None = default_loads,
        schema: "JSONSchema | RegistrySchema | None" = None,
        validator: Any = None,
        schema_registry_client_config: "SchemaRegistryClientConfig | None" = None,
    ) -> None:
        self._loads = None if loads is default_loads else loads
        self._rules = _Rules(schema, validator, schema_registry_client_config)
        self._calls = BoundFunctions[BoundDeserializer]()
        self._reader = None
        if schema_registry_client_config is not None:
            from streamrt.serializers.registry import SchemaReader

            self._reader = SchemaReader("JSON", schema_registry_client_config)

    def __call__(self, value: bytes, ctx: SerializationContext) -> Any:  # noqa: D102
        return self._calls.of(self, JSONDeserializer.bind, ctx)(value, ctx.headers)

    def bind(self, topic: str, field: MessageField) -> BoundDeserializer:  # noqa: D102
        if self._reader is not None:
            return self._reader.bind(topic, field, self._make_decoder)
        plain = _loads if self._loads is None else _make_load(self._loads)
        check = self._rules.check()
        if check is None:
            return plain

        def deserialize(data: bytes, headers: Headers | None) -> Any:
            value = plain(data, None)
            check(value)
            return value

        return deserialize

    def _make_decoder(self, registered: "RegisteredSchema", registry: "SchemaRegistry") -> Callable[[bytes], Any]:
        plain = _loads if self._loads is None else _make_load(self._loads)
        check = self._rules.check() or _registered_check(registered, registry)

        def decode(data: bytes) -> Any:
            value = plain(data, None)
            check(value)
            return value

        return decode


class _Rules:
    """The validation of values, in a picklable form; each process makes the functions once."""

    def __init__(
        self,
        schema: "JSONSchema | RegistrySchema | None",
        validator: Any,
        client_config: "SchemaRegistryClientConfig | None",
    ) -> None:
        self.given = None if validator is None else offline(validator)
        self.text: str | None = None
        self.title: str | None = None
        self._references: tuple[Any, ...] = ()
        self._client_config = client_config
        self._check: Check | None = None
        if schema is not None:
            self.text, self._references = _own_schema(schema)
            contents = _parse_schema(self.text)
            title = contents.get("title") if isinstance(contents, Mapping) else None
            self.title = title if isinstance(title, str) else None
            if self._references and client_config is None:
                raise ConfigurationError("a schema with references needs schema_registry_client_config")
        if self.given is not None:
            validator_check(self.given)
        elif not self._references:
            self.check()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_check": None}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Rules) and self.__getstate__() == other.__getstate__()

    __hash__ = None  # type: ignore[assignment]

    def schema(self) -> "RegistrySchema | None":
        """Return the schema in the form of the registry."""
        if self.text is None:
            return None
        from streamrt.serializers.registry import RegistrySchema

        return RegistrySchema(self.text, self._references)

    def check(self) -> Check | None:
        """Return the function that validates values; None if there is no validation."""
        if self._check is None:
            if self.given is not None:
                self._check = validator_check(self.given)
            elif self._references and self.text is not None:
                self._check = schema_check(_parse_schema(self.text), self._other_rules())
            elif self.text is not None:
                self._check = _compile_check(self.text)
        return self._check

    def _other_rules(self) -> dict[str, Any]:
        own = self.schema() if self._references else None
        if own is None or self._client_config is None:
            return {}
        from streamrt.serializers.registry import open_registry

        found = open_registry(self._client_config).references(own)
        return {name: schema_of(other.schema.text) for name, other in found.items()}


def _own_schema(schema: "JSONSchema | RegistrySchema") -> tuple[str, tuple[Any, ...]]:
    if isinstance(schema, Mapping):
        return schema_text(schema), ()
    # No isinstance with the class: importing it takes longer than all the rest.
    text, references = getattr(schema, "text", None), getattr(schema, "references", None)
    if not isinstance(text, str) or not isinstance(references, tuple):
        raise ArgumentTypeError(f"a JSON Schema is a mapping or a RegistrySchema, not a {type(schema).__name__}")
    return text, references


@functools.lru_cache(maxsize=64)
def _compile_check(text: str) -> Check:
    """Return the function of a schema without references, which takes milliseconds to make."""
    return schema_check(_parse_schema(text))


def _parse_schema(text: str) -> Any:
    try:
        return schema_of(text)
    except SerializationError as error:
        raise ConfigurationError(str(error)) from error


def _registered_check(registered: "RegisteredSchema", registry: "SchemaRegistry") -> Check:
    """Return the function that validates values against a schema of the registry."""
    others = {name: schema_of(other.schema.text) for name, other in registry.references(registered.schema).items()}
    try:
        return schema_check(schema_of(registered.schema.text), others)
    except ConfigurationError as error:
        raise SerializationError(f"{registered} of the registry cannot be used: {error}") from error


def _make_dump(dumps: Callable[[Any], bytes | str]) -> Callable[[Any, Headers | None], bytes]:
    def serialize(value: Any, headers: Headers | None) -> bytes:
        try:
            text = dumps(value)
            return text.encode() if isinstance(text, str) else text
        except Exception as error:
            raise SerializationError(f"the value has no JSON form: {str(error) or type(error).__name__}") from error

    return serialize


def _make_load(loads: Callable[[bytes], Any]) -> BoundDeserializer:
    def deserialize(data: bytes, headers: Headers | None) -> Any:
        try:
            return loads(data)
        except IgnoreMessage:
            raise
        except Exception as error:
            raise SerializationError(f"the bytes are not JSON: {str(error) or type(error).__name__}") from error

    return deserialize


def _dumps(
    value: Any,
    headers: Headers | None,
    *,
    _dump: Callable[..., bytes] = orjson.dumps,
    _option: int = DUMP_OPTION,
) -> bytes:
    try:
        return _dump(value, None, _option)
    except TypeError as error:
        raise SerializationError(f"the value has no JSON form: {error}") from error


def _loads(
    value: bytes,
    headers: Headers | None,
    *,
    _load: Callable[[bytes], Any] = orjson.loads,
    _digits: bytes = _AS_DIGITS,
    _sampled: bytes = _SAMPLED_DIGITS,
) -> Any:
    try:
        loaded = _load(value)
        # Most values end here.
        return (
            _load_exactly(value, loaded)
            if len(value) > 18 and _sampled in value[::_STRIDE].translate(_digits)
            else loaded
        )
    except ValueError as error:
        raise SerializationError(f"the bytes are not JSON: {error}") from error


def _loads_screened(value: bytes, headers: Headers | None, *, _load: Callable[[bytes], Any] = orjson.loads) -> Any:
    try:
        return _load(value)
    except ValueError as error:
        raise SerializationError(f"the bytes are not JSON: {error}") from error


def loader_of(load: BoundDeserializer, values: Sequence[bytes | None]) -> BoundDeserializer:
    """Return the fastest function with the results and errors of a deserializer, for some values.

    To search many values at once for integers beyond 64 bits takes a quarter of the time.

    Args:
        load: the deserializer.
        values: the values; others must not be passed to the function.
    """
    if load is not _loads or len(values) < _FEW:
        return load
    given = list(filter(None, values))
    for start in range(0, len(given), _SCREENED):
        joined = b" ".join(given[start : start + _SCREENED])
        # A sample is a third of the work; timestamps in milliseconds have too few digits for it.
        sampled = _SAMPLED_DIGITS in joined[::_STRIDE].translate(_AS_DIGITS)
        if sampled and _MANY_DIGITS in joined.translate(_AS_DIGITS):
            return load
    return _loads_screened


def bare_dumps(dump: BoundSerializer) -> Callable[[Any, None, int], bytes] | None:
    """Return what a serializer calls, with `DUMP_OPTION`, if it does nothing else but to convert errors; or None."""
    return orjson.dumps if dump is _dumps else None


def bare_loads(load: BoundDeserializer) -> Callable[[bytes], Any] | None:
    """Return what a deserializer calls if it does nothing else but to convert errors; None if it does more."""
    return orjson.loads if load is _loads_screened else None


def kept_types(dump: BoundSerializer, load: BoundDeserializer | None) -> frozenset[type]:
    """Return the types whose objects need not be loaded after they were dumped: they would be equal, and cannot change."""
    return frozenset((str, int)) if writes_plainly(dump) and load is _loads else frozenset()


def reads_plainly(load: BoundDeserializer) -> bool:
    """Return whether a function reads JSON by default. What it returns, `writes_plainly` functions write unchanged."""
    return load is _loads


def writes_plainly(dump: BoundSerializer) -> bool:
    """Return whether a function writes JSON by default."""
    return dump is _dumps


def _load_exactly(data: bytes | bytearray | str, loaded: Any) -> Any:
    """Return what orjson has loaded, unless it has rounded an integer to a float.

    Raises:
        SerializationError: if there is an integer beyond 64 bits; names its field.
    """
    raw = data.encode() if isinstance(data, str) else bytes(data)
    if _MANY_DIGITS not in raw.translate(_AS_DIGITS):
        return loaded
    # Most of those digits are in strings, in fractions or in integers that fit.
    if not _has_rounded(loaded):
        return loaded
    path = _beyond_64_bits(json.loads(raw, parse_int=_read_integer))
    if path is None:
        return loaded
    where = f" of field {path.lstrip('.')!r}" if path else ""
    raise SerializationError(f"the integer{where} does not fit into 64 bits: write it as text")


def _has_rounded(loaded: Any) -> bool:
    """Return whether there is a float that may have been an integer beyond 64 bits."""
    left = [loaded]
    while left:
        item = left.pop()
        if type(item) is float:
            if not -_LARGE < item < _LARGE:
                return True
        elif type(item) is dict:
            left.extend(item.values())
        elif type(item) is list:
            left.extend(item)
    return False


def _read_integer(text: str) -> int:
    """Return an integer, or one beyond 64 bits for a text that is too long for Python."""
    return int(text) if len(text) < 100 else 1 << 64


def _beyond_64_bits(value: Any, path: str = "") -> str | None:
    """Return the path of the first integer beyond 64 bits; None if there is none."""
    if isinstance(value, int):
        return None if -(1 << 63) <= value < 1 << 64 else path
    parts: Iterable[tuple[str, Any]] = ()
    if isinstance(value, dict):
        parts = ((f"{path}.{key}", item) for key, item in value.items())
    elif isinstance(value, list):
        parts = ((f"{path}[{index}]", item) for index, item in enumerate(value))
    return next((found for name, item in parts if (found := _beyond_64_bits(item, name)) is not None), None)
