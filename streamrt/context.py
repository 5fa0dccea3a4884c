"""The context of the record that is being processed.

A `MessageContext` for every record would cost more than most operators do. A task only notes its current record, and
the context is built on demand.
"""

from contextvars import ContextVar
from typing import Protocol

from streamrt.errors import InvalidOperationError
from streamrt.records import MessageContext

__all__ = ["MessageContextNotSetError", "message_context", "set_message_context"]

MessageContextNotSetError = InvalidOperationError
"""Its name in Quix Streams."""


class ContextProvider(Protocol):
    """Provider of the current record's context; tasks and trials implement it."""

    def message_context(self) -> MessageContext:
        """Build the context of the current record."""

    def set_message_context(self, context: MessageContext | None) -> None:
        """Replace the context until the next record."""


current_provider: ContextVar[ContextProvider | None] = ContextVar("streamrt_context_provider", default=None)
"""Provider in this thread or task, set while it feeds records to operators."""

_outside: ContextVar[MessageContext | None] = ContextVar("streamrt_context_outside", default=None)
"""Context for tests of users' functions, where no record is processed."""


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
            "message_context() was called, but no record is being processed: call it inside functions of operators, or "
            "call set_message_context() before, as in a test"
        )
    return context


def set_message_context(context: MessageContext | None) -> None:
    """Replace the result of `message_context()` while the current record is being processed.

    Outside of operators, `message_context()` returns this context from then on, in this thread or task. A test can thus
    call a function that uses `message_context()`.

    Args:
        context: the new context; None restores the record's context, or none outside of operators.

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
