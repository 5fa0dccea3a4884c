"""Validation with JSON Schema. A schema is self-contained: a `$ref` is never fetched."""

import importlib
import json
import math
import numbers
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from streamrt.common.texts import one_line
from streamrt.errors import ArgumentTypeError, ConfigurationError, SerializationError
from streamrt.extras import install_command

if TYPE_CHECKING:
    from jsonschema.protocols import Validator
    from referencing import Registry, Resource
    from referencing._core import Resolver

Check = Callable[[Any], None]
"""Raises SerializationError if a value does not follow the schema."""

_ABOUT_NAMES = frozenset({"required", "dependentRequired", "additionalProperties", "unevaluatedProperties"})
"""Rules whose messages name properties. Messages of other rules repeat the value, which does not belong in logs."""


def schema_check(schema: Any, others: Mapping[str, Any] | None = None) -> Check:
    """Return the function that validates values against a schema.

    Args:
        schema: the schema; `$schema` names its dialect, draft 2020-12 by default.
        others: further schemas, by their names in `$ref`.

    Raises:
        ConfigurationError: if the schema is invalid, refers to something outside it and `others`, or jsonschema is
            not installed.

    Example:
        >>> check = schema_check({"properties": {"age": {"type": "integer"}}})
        >>> check({"age": 5})
        >>> check({"age": "five"})
        Traceback (most recent call last):
            ...
        streamrt.errors.SerializationError: the value does not follow its JSON Schema at $.age: 'type' must be 'integer'
    """
    validators, referencing = _import_libraries()
    dialect = validators.validator_for(schema, default=None) if _names_dialect(schema) else None
    if dialect is None:
        if _names_dialect(schema):
            raise ConfigurationError(f"the JSON Schema has an unknown dialect: $schema is {schema['$schema']!r}")
        dialect = validators.Draft202012Validator
    try:
        dialect.check_schema(schema)
        registry, resource = _make_registry(referencing, dialect, schema, others or {})
        _check_references(resource, registry.resolver_with_root(resource))
        types = dialect.TYPE_CHECKER.redefine("number", _is_number)
        extended = validators.extend(dialect, {"uniqueItems": _unique_items}, type_checker=types)
        validator = extended(schema, registry=registry)
        # Any value reveals a schema that is nothing but a circle of references.
        validator.is_valid(None)
    except referencing.exceptions.Unresolvable as error:
        raise ConfigurationError(
            f"the JSON Schema refers to {error.ref!r}, which is not in it; schemas are never fetched, add it to '$defs'"
        ) from error
    except RecursionError:
        raise ConfigurationError("the JSON Schema refers to itself without end") from None
    except Exception as error:
        raise _make_invalid_error(error) from error

    def check(value: Any) -> None:
        try:
            error = next(validator.iter_errors(value), None)
        except RecursionError:
            raise SerializationError("the value is nested too deeply to be validated") from None
        except Exception as trouble:
            raise SerializationError(f"the value cannot be validated: {one_line(trouble)}") from trouble
        if error is not None:
            raise SerializationError(_explain_error(error))

    return check


def validator_check(validator: Any) -> Check:
    """Return the function that validates values with a validator of the user.

    Args:
        validator: an object with a method `validate(value)` that raises, such as those of jsonschema.
    """
    validate = getattr(validator, "validate", None)
    if not callable(validate):
        raise ArgumentTypeError(f"a validator needs a method validate(value); {type(validator).__name__} has none")

    def check(value: Any) -> None:
        try:
            validate(value)
        except Exception as error:
            known = hasattr(error, "json_path") and hasattr(error, "validator_value")
            message = _explain_error(error) if known else f"the validator refuses the value: {one_line(error)}"
            raise SerializationError(message) from error

    return check


def offline(validator: Any) -> Any:
    """Return a validator that never fetches schemas: the validator, or a copy of one that fetches by default.

    A validator that was made with a registry keeps that registry.

    Raises:
        ConfigurationError: if its schema is invalid, or it was made with a `RefResolver`, the old way to fetch schemas.
    """
    check_schema, schema = getattr(validator, "check_schema", None), getattr(validator, "schema", None)
    if callable(check_schema) and schema is not None:
        try:
            check_schema(schema)
        except Exception as error:
            raise _make_invalid_error(error) from error
    validators, _ = _import_libraries() if type(validator).__module__.startswith("jsonschema") else (None, None)
    unset = getattr(validators, "_REMOTE_WARNING_REGISTRY", None)
    if getattr(validator, "_ref_resolver", None) is not None:
        raise ConfigurationError("a validator with a RefResolver would fetch schemas: make it with registry= instead")
    if unset is None or getattr(validator, "_registry", None) is not unset:
        return validator
    # Not `evolve`, which keeps the way in which references are resolved.
    return type(validator)(validator.schema, format_checker=validator.format_checker, registry=_public_drafts())


def _make_invalid_error(error: Exception) -> ConfigurationError:
    where = getattr(error, "json_path", "$")
    reason = one_line(getattr(error, "message", None) or str(error) or type(error).__name__)
    return ConfigurationError(f"the JSON Schema is not valid at {where}: {reason}")


def _import_libraries() -> tuple[Any, Any]:
    try:
        import jsonschema.validators
        import referencing.exceptions
        import referencing.jsonschema
    except ImportError as error:
        raise ConfigurationError(
            f"JSON Schema needs packages that are not installed ({error}): run {install_command('json-schema')}"
        ) from error
    return jsonschema.validators, referencing


def _public_drafts() -> "Registry[Any]":
    # Imported by name, because it has no types. The registry cannot fetch missing schemas.
    drafts: Registry[Any] = importlib.import_module("jsonschema_specifications").REGISTRY
    return drafts


def _names_dialect(schema: Any) -> bool:
    return isinstance(schema, Mapping) and isinstance(schema.get("$schema"), str)


def _make_registry(
    referencing: Any, dialect: "type[Validator]", schema: Any, others: Mapping[str, Any]
) -> "tuple[Registry[Any], Resource[Any]]":
    """Return a registry that contains the schemas and the public drafts, and fetches nothing else."""
    default = referencing.jsonschema.specification_with(dialect.META_SCHEMA["$schema"])

    def resource(contents: Any) -> "Resource[Any]":
        made: Resource[Any] = referencing.Resource.from_contents(contents, default_specification=default)
        return made

    registry: Registry[Any] = _public_drafts().with_resources(
        (name, resource(contents)) for name, contents in others.items()
    )
    return registry, resource(schema)


def _check_references(resource: "Resource[Any]", resolver: "Resolver[Any]") -> None:
    contents = resource.contents
    if isinstance(contents, Mapping) and isinstance(contents.get("$ref"), str):
        resolver.lookup(contents["$ref"])
    for part in resource.subresources():
        _check_references(part, resolver.in_subresource(part))


def _is_number(_: Any, value: Any) -> bool:
    """Return whether a value is a number in JSON, where NaN and infinities become null."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, numbers.Number) and not isinstance(value, bool)


def _unique_items(validator: Any, wanted: bool, items: Any, schema: Any) -> Iterable[Any]:
    # The library's rule compares all pairs, which takes minutes for a record of a megabyte.
    from jsonschema.exceptions import ValidationError

    if wanted and validator.is_type(items, "array") and len({_freeze_value(item) for item in items}) < len(items):
        yield ValidationError("the items are not unique")


def _freeze_value(value: Any) -> Any:
    """Return a hashable form that is equal for equal JSON: 1 equals 1.0, but not true."""
    if isinstance(value, bool):
        return (bool, value)
    if isinstance(value, Mapping):
        return (dict, frozenset((key, _freeze_value(item)) for key, item in value.items()))
    if isinstance(value, list | tuple):
        return (list, *(_freeze_value(item) for item in value))
    return value


def _explain_error(error: Any) -> str:
    if error.validator in _ABOUT_NAMES:
        rule = one_line(error.message)
    elif error.validator is None:
        rule = "no value is allowed"
    else:
        rule = f"{error.validator!r} must be {one_line(repr(error.validator_value))}"
    return f"the value does not follow its JSON Schema at {one_line(error.json_path)}: {rule}"


def schema_text(schema: Mapping[str, Any]) -> str:
    """Return a schema as JSON, with its keys in order.

    Raises:
        ConfigurationError: if it has no JSON form.
    """
    try:
        return json.dumps(schema, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"the JSON Schema has no JSON form: {error}") from error


def schema_of(text: str) -> Any:
    """Return the schema of a JSON text.

    Raises:
        SerializationError: if it is not JSON.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SerializationError(f"the text of the schema is not JSON: {one_line(error)}") from error
