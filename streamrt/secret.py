"""Transfer of secrets to other processes: pickles contain references to secrets, never the secrets.

Pickles end up in Spark's logs and on disks, so a `Secret` is pickled as a random number. The sender of a pickle
collects the secrets that it refers to, and sends them separately in a way that others cannot read. The receiver accepts
them before it unpickles.
"""

import os
import pickle
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import cloudpickle
from typing_extensions import Self

from streamrt.errors import ConfigurationError, RunnerError, StreamRTError

__all__ = [
    "Secret",
    "SecretRef",
    "accept_secrets",
    "collect_secrets",
    "conceal",
    "concealed",
    "masked",
    "masked_text",
    "names_secret",
    "stand_in",
]

E = TypeVar("E", bound=BaseException)

# Secrets by reference, of this process and received from others. A secret has one reference.
_texts: dict[str, str] = {}
_references: dict[str, str] = {}
_collected: ContextVar[dict[str, str] | None] = ContextVar("streamrt_collected_secrets", default=None)
# Further secrets that this process uses, the oldest first.
_concealed: dict[str, None] = {}


_SHORTEST_MASKED = 6
"""Shorter secrets occur in text by chance, and are not masked there."""
_SECRET_NAME = re.compile(
    r"pass(word|wd|phrase)?$|pwd$|secret|token|credential|authorization|cookie|private.?key|api.?key|account.?key|"
    r"(^|[_.-])(access[_.-]key|pem|sas|sig(nature)?)$|conn(ection)?.?str(ing)?$|dsn$",
    re.IGNORECASE,
)
_MOST_CONCEALED = 1_000
"""Most secrets that `conceal` remembers: a function may return another token every minute."""


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
        return _resolve_reference, (reference,)

    def __repr__(self) -> str:
        return "Secret(***)"


@dataclass(frozen=True)
class SecretRef:
    """Where a secret is: in an environment variable or a file of the process that uses it. It is not a secret itself.

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
        """Return a reference to a file; white space at the end of its text is not part of the secret."""
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


def names_secret(name: str) -> bool:
    """Return whether an option, a header or a parameter of this name holds a secret, in whichever system.

    Example:
        >>> names_secret("sasl.password"), names_secret("X-Api-Key"), names_secret("ssl_key_pem"), names_secret("topic")
        (True, True, True, False)
    """
    return _SECRET_NAME.search(name) is not None


def conceal(text: str) -> None:
    """Have `masked` mask a secret of this process that it neither sends nor receives as a `Secret`.

    Args:
        text: the secret; a short one is not masked.
    """
    if len(text) >= _SHORTEST_MASKED:
        _concealed.pop(text, None)
        _concealed[text] = None
        while len(_concealed) > _MOST_CONCEALED:
            _concealed.pop(next(iter(_concealed)), None)


def masked(text: str) -> str:
    """Return a text without the secrets that this process has received, sent or concealed, such as the message of an error.

    Example:
        >>> accept_secrets({"reference": "open-sesame"})
        >>> masked("cannot log in with open-sesame")
        'cannot log in with ***'
    """
    for secret in sorted({*_texts.copy().values(), *_concealed.copy()}, key=len, reverse=True):
        if len(secret) >= _SHORTEST_MASKED:
            text = text.replace(secret, "***")
    return text


def concealed(error: E, *, sent: bool = False) -> E | None:
    """Mask the secrets in the text of an exception, of its causes and of its notes, in place.

    Args:
        error: the exception.
        sent: whether another process receives it. Its pickle may restore what was masked, so it is also looked at.

    Returns:
        The exception; None if it shows a secret that is not part of its arguments, or cannot be changed. Such a cause is
        cut off.

    Example:
        >>> accept_secrets({"reference": "open-sesame"})
        >>> concealed(ConnectionError("refused: open-sesame"))
        ConnectionError('refused: ***')
    """
    return error if _conceal_in(error, set(), sent) else None


def stand_in(error: BaseException) -> StreamRTError:
    """Return an exception for one that shows secrets: with its text, masked, and of its nearest class of StreamRT.

    Args:
        error: the exception.

    Returns:
        The exception; a `RunnerError` if no class of StreamRT fits.

    Example:
        >>> class NoLogin(ConfigurationError):
        ...     __module__ = "shop"
        >>> accept_secrets({"reference": "open-sesame"})
        >>> stand_in(NoLogin("refused: open-sesame"))
        ConfigurationError('NoLogin: refused: ***')
    """
    text = masked_text(error)
    for kind in type(error).__mro__:
        if issubclass(kind, StreamRTError) and kind.__module__.partition(".")[0] == "streamrt":
            # Some classes take something else than a text.
            with suppress(Exception):
                made = kind(text)
                if str(made) == text:
                    return made
    return RunnerError(text)


def masked_text(error: BaseException) -> str:
    """Return class and text of an exception, without secrets.

    Example:
        >>> accept_secrets({"reference": "open-sesame"})
        >>> masked_text(ConnectionError("refused: open-sesame"))
        'ConnectionError: refused: ***'
    """
    name = type(error).__name__
    try:
        return masked(f"{name}: {error}")
    except Exception:  # noqa: BLE001 - of a user's class
        return name


def _conceal_in(error: BaseException, seen: set[int], sent: bool) -> bool:
    if id(error) in seen:
        return True
    seen.add(id(error))
    try:
        return _is_concealed(error, seen, sent)
    except Exception:  # noqa: BLE001 - a user's class may refuse to be changed
        return False


def _is_concealed(error: BaseException, seen: set[int], sent: bool) -> bool:
    if error.__cause__ is not None and not _conceal_in(error.__cause__, seen, sent):
        error.__cause__ = None
    if error.__context__ is not None and not _conceal_in(error.__context__, seen, sent):
        error.__context__ = None
    grouped = getattr(error, "exceptions", ())
    if isinstance(grouped, tuple) and not all(_conceal_in(each, seen, sent) for each in grouped):
        return False
    if notes := getattr(error, "__notes__", None):
        # The class of the notes may not allow to change them.
        error.__notes__ = [masked(str(note)) for note in notes]  # type: ignore[attr-defined]
    if not _shows_none(error):
        error.args = tuple(masked(each) if isinstance(each, str) else each for each in error.args)
        if not _shows_none(error):
            error.args = (masked(str(error)),)
    return _shows_none(error) and not (sent and _restores_message(error))


def _restores_message(error: BaseException) -> bool:
    """Return whether the pickle of an exception restores a secret, as one of its attributes that become arguments again."""
    try:
        restored = pickle.loads(cloudpickle.dumps(error))
    except Exception:  # noqa: BLE001 - what cannot be pickled reaches no other process
        return False
    return not _shows_none(restored)


def _shows_none(error: BaseException) -> bool:
    try:
        shown = f"{error}\n{error!r}"
    except Exception:  # noqa: BLE001 - what cannot be shown shows no secret
        return True
    return masked(shown) == shown


def _resolve_reference(reference: str) -> Secret:
    text = _texts.get(reference)
    if text is None:
        raise ConfigurationError(
            "a password or another secret was not transferred to this process: objects with secrets can be sent only "
            "as part of their application, and cannot be pickled for other processes"
        )
    return Secret(text)
