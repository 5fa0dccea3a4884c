"""Transfer of secrets to other processes: pickles contain references to secrets, never the secrets.

Pickles end up in Spark's logs and on disks, so a `Secret` is pickled as a random number. The sender of a pickle
collects the secrets that it refers to, and sends them separately in a way that others cannot read. The receiver accepts
them before it unpickles.
"""

import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from typing_extensions import Self

from streamrt.errors import ConfigurationError

__all__ = ["Secret", "SecretRef", "accept_secrets", "collect_secrets", "masked"]

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


@dataclass(frozen=True)
class SecretRef:
    """Where a secret is: in an environment variable or a file of the process that uses it. It is no secret itself.

    Args:
        kind: "env" or "file".
        name: name of the variable, or path of the file.

    Example:
        >>> reference = SecretRef.env("AWS_SECRET")
        >>> str(reference), SecretRef.parse("env:AWS_SECRET") == reference
        ('env:AWS_SECRET', True)
    """

    kind: Literal["env", "file"]
    name: str

    def __post_init__(self) -> None:
        if self.kind not in ("env", "file") or not isinstance(self.name, str) or not self.name:
            raise ConfigurationError(
                "a reference to a secret is SecretRef.env(name of a variable) or SecretRef.file(path of a file)"
            )

    @classmethod
    def env(cls, name: str) -> Self:
        """Return a reference to an environment variable."""
        return cls("env", name)

    @classmethod
    def file(cls, path: str | Path) -> Self:
        """Return a reference to a file; white space at the end of its text is no part of the secret."""
        return cls("file", str(path))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the reference that a text such as `env:NAME` or `file:/run/secrets/name` means.

        Raises:
            ConfigurationError: if it is another text; the message does not show it, because it may be a secret.
        """
        kind, _, name = text.partition(":")
        if kind == "env":
            return cls.env(name)
        if kind == "file":
            return cls.file(name)
        raise ConfigurationError("a reference to a secret is env:NAME or file:PATH, and this text is neither")

    def resolve(self) -> Secret:
        """Return the secret.

        Raises:
            ConfigurationError: if this process does not have the variable, or cannot read the file.
        """
        if self.kind == "env":
            text = os.environ.get(self.name)
            if not text:
                raise ConfigurationError(f"the environment variable {self.name} with a secret is not set: set it")
            return Secret(text)
        try:
            return Secret(Path(self.name).read_text(encoding="utf-8").rstrip())
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise ConfigurationError(f"the file {self.name} with a secret cannot be read: {reason}") from None

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


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
