"""Secrets on their way to other processes: pickles hold references to them, and never the secrets themselves.

What is pickled ends up in Spark's logs and on disks. So a `Secret` is pickled as a random number; whoever sends the pickle to
another process collects the secrets that it refers to, and sends them by a way that nobody else can read. There they are
accepted before the pickle is opened.
"""

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from streamrt.errors import ConfigurationError

__all__ = ["Secret", "accept_secrets", "collect_secrets"]

# Texts by reference, of this process and of those that sent some to it. A text has one reference.
_texts: dict[str, str] = {}
_references: dict[str, str] = {}
_collected: ContextVar[dict[str, str] | None] = ContextVar("streamrt_collected_secrets", default=None)


class Secret:
    """A text that nobody may see.

    Args:
        text: the text.

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
        """Return the text."""
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
    """Collect the secrets that are pickled meanwhile: their texts by reference."""
    collected: dict[str, str] = {}
    token = _collected.set(collected)
    try:
        yield collected
    finally:
        _collected.reset(token)


def accept_secrets(collected: Mapping[str, str]) -> None:
    """Make secrets that another process has collected known here."""
    _texts.update(collected)
    _references.update({text: reference for reference, text in collected.items()})


def _resolved(reference: str) -> Secret:
    text = _texts.get(reference)
    if text is None:
        raise ConfigurationError(
            "a password or another secret was sent to this process without the file that it is in: objects with secrets "
            "travel with the application that they are given to, and cannot be pickled for another process"
        )
    return Secret(text)
