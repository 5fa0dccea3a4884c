"""Credentials of connectors: given as text or as a function, shown to no one."""

import base64
import pickle
from collections.abc import Callable, Mapping
from typing import Any

import cloudpickle
from pydantic import SecretStr

from streamrt.errors import ArgumentTypeError, ConfigurationError
from streamrt.secret import Secret, conceal

__all__ = ["ClientSettings", "Credential", "CredentialInput"]

CredentialInput = str | SecretStr | Callable[[], str]
"""A credential as users give it. The process that connects calls a function, so it may read a file or a vault there."""


class Credential:
    """A credential that is masked, and never pickled as text.

    Args:
        given: the text, or a function that returns it.
        parameter: the parameter in words, such as `SQSSink(aws_secret_access_key=...)`.

    Raises:
        ConfigurationError: if it is neither.

    Example:
        >>> credential = Credential("sesame", "Cave(password=...)")
        >>> credential, credential.reveal()
        (Credential(***), 'sesame')
    """

    __slots__ = ("_function", "_parameter", "_texts")

    def __init__(self, given: CredentialInput, parameter: str) -> None:
        self._parameter = parameter
        self._function: Callable[[], str] | None = None
        # The text, or the last two that the function returned: requests that carry the former may still fail.
        self._texts: tuple[Secret, ...] = ()
        if isinstance(given, SecretStr):
            given = given.get_secret_value()
        if isinstance(given, str):
            self._texts = (Secret(given),)
            conceal(given)
        elif callable(given):
            self._function = given
        else:
            raise ArgumentTypeError(
                f"{parameter} must be a string or a function that returns one, got {type(given).__name__}"
            )

    @classmethod
    def optional(cls, given: CredentialInput | None, parameter: str) -> "Credential | None":
        """Return the credential, or None if there is none.

        Args:
            given: the text, a function that returns it, or None.
            parameter: the parameter in words.

        Raises:
            ConfigurationError: if it is something else.
        """
        return None if given is None else cls(given, parameter)

    @property
    def known(self) -> tuple[str, ...]:
        """The strings that must not be shown, as far as they are known."""
        return tuple(text.reveal() for text in self._texts)

    @property
    def changes(self) -> bool:
        """Whether a function makes it, so that it may be another one next time."""
        return self._function is not None

    def reveal(self) -> str:
        """Return the text.

        Raises:
            ConfigurationError: if the function returns no string.
        """
        if self._function is None:
            return self._texts[0].reveal()
        made = self._function()
        if not isinstance(made, str):
            raise ConfigurationError(f"the function of {self._parameter} returned {type(made).__name__}, not a string")
        self._texts = (*self._texts[-1:], Secret(made))
        conceal(made)
        return made

    def masked(self, text: str) -> str:
        """Return a text of a library or a server without the credential.

        Args:
            text: such as an error message.
        """
        for known in filter(None, self.known):
            text = text.replace(known, "***")
        return text

    def __repr__(self) -> str:
        return "Credential(***)"


class ClientSettings:
    """More settings of a client. They may contain credentials, so all of them are kept as secrets are.

    Args:
        connector: name of the connector.
        settings: the settings.

    Raises:
        ArgumentTypeError: if they cannot be sent to other processes.

    Example:
        >>> ClientSettings("RedisSink", {"username": "writer"}).reveal()
        {'username': 'writer'}
    """

    def __init__(self, connector: str, settings: Mapping[str, Any]) -> None:
        try:
            data = cloudpickle.dumps(dict(settings))
        except Exception as error:  # noqa: BLE001 - pickles fail in all ways
            names = ", ".join(settings)
            raise ArgumentTypeError(
                f"{connector} cannot send its settings {names} to other processes: {type(error).__name__}"
            ) from None
        self._data = Secret(base64.b64encode(data).decode()) if settings else None

    def reveal(self) -> dict[str, Any]:
        """Return the settings."""
        if self._data is None:
            return {}
        settings: dict[str, Any] = pickle.loads(base64.b64decode(self._data.reveal()))
        return settings
