"""Variables in the catalogue: `${env:NAME}` is the environment variable NAME of the process that uses a table."""

import os
import re
from collections.abc import Mapping
from typing import Any

import orjson

from streamrt.errors import ConfigurationError
from streamrt.secret import SecretRef, names_secret

__all__ = [
    "check_variables",
    "from_text",
    "resolve",
    "stored_options",
    "unstored_options",
    "variables_in",
]

_VARIABLE = re.compile(r"\$\{([^{}]*)\}")
_NAME = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SECRET_KEY = "secret"  # noqa: S105 - the name, and no secret
# Secrets within strings: a password in a URL, and parts of connection strings.
_SECRET_TEXT = re.compile(
    r"[a-z][a-z0-9+.-]*://[^/?#\s]*:[^/?#\s@]+@|(password|pwd|accountkey|sharedaccesskey|accesskey)\s*=\s*[^;&\s]",
    re.IGNORECASE,
)


def variables_in(text: str) -> list[str]:
    """Return the names of the environment variables in a text.

    Example:
        >>> variables_in("${env:STAGE}.orders")
        ['STAGE']
    """
    return [found.removeprefix("env:") for found in _VARIABLE.findall(text)]


def check_variables(what: str, text: str) -> None:
    """Refuse variables that are written in another way than `${env:NAME}`.

    Args:
        what: what has the text, for the error.
        text: the text.

    Raises:
        ConfigurationError: if it has another variable.
    """
    wrong = [found for found in _VARIABLE.findall(text) if not _NAME.fullmatch(found)]
    if wrong or "${" in _VARIABLE.sub("", text):
        shown = f"${{{wrong[0]}}}" if wrong else "'${' without an end"
        raise ConfigurationError(f"{what} has the variable {shown}: variables are ${{env:NAME}}")


def resolve(what: str, text: str, environment: Mapping[str, str] | None = None) -> str:
    """Return a text with the values of its variables.

    Args:
        what: what has the text, for the error.
        text: the text.
        environment: values by name; by default, the environment of this process.

    Raises:
        ConfigurationError: if a variable is not set.

    Example:
        >>> resolve("the topic", "${env:STAGE}.orders", {"STAGE": "test"})
        'test.orders'
    """
    values = os.environ if environment is None else environment
    check_variables(what, text)

    def value_of(found: "re.Match[str]") -> str:
        name = found.group(1).removeprefix("env:")
        if not values.get(name):
            raise ConfigurationError(f"{what} is {text!r}, and the environment variable {name} is not set: set it")
        return values[name]

    return _VARIABLE.sub(value_of, text)


def from_text(text: str) -> Any:
    """Return the value of an option that was given as a text: what JSON means by it, or else the text.

    Example:
        >>> from_text("5"), from_text("true"), from_text('["a"]'), from_text("eu-west-1"), from_text('"5"')
        (5, True, ['a'], 'eu-west-1', '5')
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def stored_options(what: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as a catalogue keeps them: references to secrets, and no secrets.

    Args:
        what: what has the options, for the error.
        options: values by name: strings, numbers, bools, None, lists and mappings of such, and `SecretRef`.

    Raises:
        ConfigurationError: if a value is a secret, or cannot be kept.

    Example:
        >>> stored_options("the connection", {"region": "eu-west-1", "secret_access_key": SecretRef.env("AWS_SECRET")})
        {'region': 'eu-west-1', 'secret_access_key': {'secret': 'env:AWS_SECRET'}}
    """
    return {name: _store_value(what, name, value) for name, value in options.items()}


def unstored_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `stored_options` was given.

    Raises:
        ConfigurationError: if a reference to a secret cannot be read.
    """
    return {name: _restore_value(value) for name, value in options.items()}


def _store_value(what: str, name: str, value: Any) -> Any:
    if isinstance(value, SecretRef):
        return {_SECRET_KEY: str(value)}
    if isinstance(value, str):
        plain = _VARIABLE.sub("", value)
        if plain and (names_secret(name) or _SECRET_TEXT.search(plain)):
            raise ConfigurationError(
                f"{what} has a secret in {name!r}, and a catalogue keeps none: give SecretRef.env(NAME) or "
                "SecretRef.file(PATH)"
            )
        check_variables(f"{name!r} of {what}", value)
        return value
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, Mapping) and all(isinstance(each, str) for each in value) and set(value) != {_SECRET_KEY}:
        # All that is in a secret is one.
        is_secret = names_secret(name)
        return {
            inner: _store_value(what, f"{inner}.{name}" if is_secret else inner, each) for inner, each in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_store_value(what, name, each) for each in value]
    raise ConfigurationError(
        f"{what} has a {type(value).__name__} in {name!r}, which a catalogue cannot keep: give a text, a number, a list, a "
        "mapping, or SecretRef.env(NAME)"
    )


def _restore_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        if set(value) == {_SECRET_KEY} and isinstance(value[_SECRET_KEY], str):
            return SecretRef.parse(value[_SECRET_KEY])
        return {name: _restore_value(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_restore_value(each) for each in value]
    return value
