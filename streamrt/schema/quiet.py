"""sqlglot without its log lines: what it cannot read is an error here, and its warnings would say it a second time."""

import contextlib
import contextvars
import logging
from collections.abc import Iterator

__all__ = ["quiet_sqlglot"]

_IS_QUIET = contextvars.ContextVar("streamrt_quiet_sqlglot", default=False)


@contextlib.contextmanager
def quiet_sqlglot() -> Iterator[None]:
    """Drop what sqlglot logs in this thread, and in no other: programs may also use it."""
    # Adding a filter again does nothing.
    logging.getLogger("sqlglot").addFilter(_is_heard)
    token = _IS_QUIET.set(True)
    try:
        yield
    finally:
        _IS_QUIET.reset(token)


def _is_heard(record: logging.LogRecord) -> bool:
    return not _IS_QUIET.get()
