"""The context of the record that is being processed.

Building a `MessageContext` for every record would cost more than most operators do, so a task only notes which record
it is at; the context is built when somebody asks for it.
"""

from contextvars import ContextVar
from typing import Protocol

from streamrt.errors import InvalidOperationError
from streamrt.models import MessageContext

__all__ = ["message_context", "set_message_context"]


class ContextProvider(Protocol):
    """Knows the record that is being processed; tasks and trials implement it."""

    def message_context(self) -> MessageContext:
        """Build the context of the current record."""

    def set_message_context(self, context: MessageContext | None) -> None:
        """Replace the context until the next record."""


current_provider: ContextVar[ContextProvider | None] = ContextVar("streamrt_context_provider", default=None)
"""Set by whoever feeds records to operators, for as long as it does."""


def message_context() -> MessageContext:
    """Return topic, partition, offset and the other metadata of the record that is being processed.

    Raises:
        InvalidOperationError: outside an operator's function.

    Example:
        ```python
        sdf = sdf.apply(lambda value: {**value, "partition": message_context().partition})
        ```
    """
    return _provider().message_context()


def set_message_context(context: MessageContext | None) -> None:
    """Replace what `message_context()` returns while the current record is being processed.

    Args:
        context: the new context; None restores the record's own.

    Raises:
        InvalidOperationError: outside an operator's function.
    """
    _provider().set_message_context(context)


def _provider() -> ContextProvider:
    provider = current_provider.get()
    if provider is None:
        raise InvalidOperationError(
            "there is no record to tell about: message_context() works inside the functions of operators only"
        )
    return provider
