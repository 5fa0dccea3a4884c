"""The token of a control server, as its owner and its callers give it."""

import os
from collections.abc import Callable

from pydantic import SecretStr

from streamrt.connectors.credentials import Credential
from streamrt.errors import ConfigurationError
from streamrt.secret import Secret

__all__ = ["ControlToken", "bearer", "given_token"]

ControlToken = str | SecretStr | Secret | Callable[[], str]
"""A token as users give it. A function is called for each request, so it may read a file that changes."""


def given_token(token: ControlToken | None) -> Credential | None:
    """Return a token: the given one, or that of the environment variable `STREAMRT_CONTROL_TOKEN`.

    Args:
        token: the given one.

    Raises:
        ConfigurationError: if it is not a token.

    Example:
        >>> given_token("sesame")
        Credential(***)
    """
    if token is None:
        token = os.environ.get("STREAMRT_CONTROL_TOKEN")
    if isinstance(token, Secret):
        token = token.reveal()
    credential = Credential.optional(token, "control_token")
    if credential is not None and not credential.changes:
        bearer(credential)
    return credential


def bearer(token: Credential, name: str = "control_token (environment variable STREAMRT_CONTROL_TOKEN)") -> str:
    """Return the text of a token, as it can be sent in a header.

    Args:
        token: the token.
        name: what an error calls it.

    Raises:
        ConfigurationError: if it cannot be sent. The message does not show it.
    """
    text = token.reveal()
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise ConfigurationError(
            f"{name} is empty, or has a character that is a space or "
            " not printable ASCII: give a token such as the output of `openssl rand -hex 32`, without a line end"
        )
    return text
