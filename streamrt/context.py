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

_outside: ContextVar[MessageContext | None] = ContextVar("streamrt_context_outside", default=None)
"""What tests of users' functions have set, where no record is processed."""


def message_context() -> MessageContext:
    """Return topic, partition, offset and the other metadata of the record that is being processed.

    Raises:
        InvalidOperationError: outside an operator's function, unless `set_message_context()` was called there.

    Example:
        ```python
        sdf = sdf.apply(lambda value: {**value, "partition": message_context().partition})
        ```
    """
    provider = current_provider.get()
    context = _outside.get() if provider is None else provider.message_context()
    if context is None:
        raise InvalidOperationError(
            "there is no record to tell about: message_context() works inside the functions of operators, and where a test "
            "has called set_message_context() before"
        )
    return context


def set_message_context(context: MessageContext | None) -> None:
    """Replace what `message_context()` returns while the current record is being processed.

    Outside of operators it is what `message_context()` returns there from then on, in this thread or task: so a test can call
    a function that asks for it.

    Args:
        context: the new context; None restores the record's own, or none outside of operators.

    Example:
        >>> set_message_context(MessageContext(topic="orders", partition=2, offset=7, size=0))
        >>> message_context().partition
        2
        >>> set_message_context(None)
    """
    provider = current_provider.get()
    if provider is None:
        _outside.set(context)
    else:
        provider.set_message_context(context)
