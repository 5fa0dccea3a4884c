"""Options of formats of rows that may use a schema registry."""

from collections.abc import Mapping
from typing import Any

from streamrt.errors import ConfigurationError
from streamrt.serializers.base import MessageField, SerializationContext
from streamrt.serializers.registry import (
    RegistrySchema,
    SchemaRegistryClientConfig,
    open_registry,
    topic_subject_name_strategy,
)
from streamrt.serializers.registry.schema import SchemaType

__all__ = ["registry_options", "would_be_accepted"]


def registry_options(
    name: str,
    options: Mapping[str, Any] | None,
    registry: SchemaRegistryClientConfig | None,
    also: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Return the options of a format that may use a registry, all of them.

    Args:
        name: the format.
        options: those that were given.
        registry: connection to the registry, if there is one.
        also: further options of the format, for the error.

    Raises:
        ConfigurationError: if there is no such option, or the registry is missing.
    """
    given = {"name": "Row", "wire": "plain" if registry is None else "confluent", "auto_register": True}
    for option, value in (options or {}).items():
        if option not in given:
            raise ConfigurationError(
                f"the format {name!r} has no option {option!r}; it has {', '.join((*given, *also))}"
            )
        if type(value) is not type(given[option]):
            raise ConfigurationError(f"the option {option!r} of the format {name!r} is a {type(value).__name__}")
        given[option] = value
    if given["wire"] not in ("plain", "confluent"):
        raise ConfigurationError(f"the option 'wire' of the format {name!r} must be 'plain' or 'confluent'")
    if given["wire"] == "confluent" and registry is None:
        raise ConfigurationError(
            f"the rows are {name} with schemas in a registry, and no registry is known: give its SchemaRegistryClientConfig"
        )
    return given


def would_be_accepted(registry: SchemaRegistryClientConfig | None, topic: str, text: str, kind: SchemaType) -> bool:
    """Return whether a registry would take a schema for the values of a topic; True without a registry.

    Raises:
        SchemaRegistryError: if the registry refuses the request, or does not answer.
    """
    if registry is None:
        return True
    subject = topic_subject_name_strategy(SerializationContext(topic, MessageField.VALUE), None)
    return open_registry(registry).accepts(subject, RegistrySchema(text), kind)
