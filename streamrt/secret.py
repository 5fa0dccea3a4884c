"""Transfer of secrets to other processes: pickles contain references to secrets, never the secrets.

Pickles end up in Spark's logs and on disks, so a `Secret` is pickled as a random number. The sender of a pickle
collects the secrets that it refers to, and sends them separately in a way that others cannot read. The receiver accepts
them before it unpickles.
"""

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from streamrt.errors import ConfigurationError

__all__ = ["Secret", "accept_secrets", "collect_secrets", "masked"]

# Secrets by reference, of this process and received from others. A secret has one reference.
_texts: dict[str, str] = {}
_references: dict[str, str] = {}
_collected: ContextVar[dict[str, str] | None] = ContextVar("streamrt_collected_secrets", default=None)


_SHORTEST_MASKED = 6
"""Shorter secrets occur in texts by chance, and are not masked there."""


class Secret:
    """A secret text that is masked and never pickled.

    Args:
        text: the secret.

    Example:
        >>> secret = Secret("sesame")
        >>> secret
        Secret(***)
        >>> import pickle
        >>> with collect_secrets() as collected:
        ...     data = pickle.dumps(secret)
        >>> b"sesame" in data, list(collected.values())
        (False, ['sesame'])
        >>> pickle.loads(data).reveal()
        'sesame'
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the secret in plain text."""
        return self._text

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        reference = _references.setdefault(self._text, secrets.token_hex(16))
        _texts[reference] = self._text
        collected = _collected.get()
        if collected is not None:
            collected[reference] = self._text
        return _resolved, (reference,)

    def __repr__(self) -> str:
        return "Secret(***)"


@contextmanager
def collect_secrets() -> Iterator[Mapping[str, str]]:
    """Collect the secrets that are pickled inside the `with` block, by reference."""
    collected: dict[str, str] = {}
    token = _collected.set(collected)
    try:
        yield collected
    finally:
        _collected.reset(token)


def accept_secrets(collected: Mapping[str, str]) -> None:
    """Register secrets that another process has collected."""
    _texts.update(collected)
    _references.update({text: reference for reference, text in collected.items()})


def masked(text: str) -> str:
    """Return a text without the secrets that this process has received or sent, such as the message of a user's error.

    Example:
        >>> accept_secrets({"reference": "open-sesame"})
        >>> masked("cannot log in with open-sesame")
        'cannot log in with ***'
    """
    for secret in sorted(_texts.values(), key=len, reverse=True):
        if len(secret) >= _SHORTEST_MASKED:
            text = text.replace(secret, "***")
    return text


def _resolved(reference: str) -> Secret:
    text = _texts.get(reference)
    if text is None:
        raise ConfigurationError(
            "a password or another secret was not transferred to this process: objects with secrets can be sent only "
            "as part of their application, and cannot be pickled for other processes"
        )
    return Secret(text)
