"""Whom a program asks for the JVM of another process. It imports nothing of Spark, since the program may need no JVM."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

__all__ = ["LentJvm", "accept_lender", "current_lender"]


@dataclass(frozen=True)
class LentJvm:
    """Access of a program to the JVM.

    Attributes:
        port: port of its py4j gateway.
        secret: secret of the gateway.
        environment: the environment of its Python workers, unless the program sets another one.
        directory: directory of its sockets; Spark reads this setting once in the life of a JVM.
    """

    port: int
    secret: str = field(repr=False)
    environment: Mapping[str, str] = field(repr=False)
    directory: str


_lender: Callable[[], LentJvm] | None = None


def accept_lender(lender: Callable[[], LentJvm] | None) -> None:
    """Let this process use the JVM of another one.

    Args:
        lender: waits for the JVM and returns access to it; None for a separate JVM.
    """
    global _lender
    _lender = lender


def current_lender() -> Callable[[], LentJvm] | None:
    """Return what lends a JVM to this process, if anything does."""
    return _lender
