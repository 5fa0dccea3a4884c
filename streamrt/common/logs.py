"""Log lines as text or as JSON, and what JSON says about where a line comes from.

Code logs through the standard library and knows nothing of formats. What is at work is in a context variable: a task sets
its fields when it begins to work, and only the formatter reads them, so a record costs nothing. A formatter of the standard
library is all that this needs; a library for structured logs would be one more import in each process of tasks.
"""

import json
import logging
from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from datetime import datetime, timezone
from types import TracebackType
from typing import Any, Literal

from streamrt.common.texts import readable_lines

__all__ = ["JsonFormatter", "LogFields", "LogFormat", "line_formatter", "log_context", "log_fields"]

LogFormat = Literal["text", "json"]
LogFields = Mapping[str, Any] | Callable[[], Mapping[str, Any]]
"""Fields of log lines, or a function that returns them when a line is written."""

_context: ContextVar[tuple[LogFields, ...]] = ContextVar("streamrt_log_context", default=())


class log_context:  # noqa: N801 - a context manager
    """Adds fields to the log lines that this thread writes inside of a `with` block; inner fields replace outer ones.

    Args:
        fields: the fields, or a function that returns them when a line is written.

    Example:
        >>> with log_context({"stream": "orders", "partition": 3}), log_context(lambda: {"offset": 7}):
        ...     log_fields()
        {'stream': 'orders', 'partition': 3, 'offset': 7}
        >>> log_fields()
        {}
    """

    __slots__ = ("_fields", "_token")

    def __init__(self, fields: LogFields) -> None:
        self._fields = fields

    def __enter__(self) -> None:
        self._token: Token[tuple[LogFields, ...]] = _context.set((*_context.get(), self._fields))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _context.reset(self._token)


def log_fields() -> dict[str, Any]:
    """Return the fields of a log line that this thread would write now."""
    fields: dict[str, Any] = {}
    for source in _context.get():
        fields.update(source() if callable(source) else source)
    return fields


class JsonFormatter(logging.Formatter):
    """Formats each log line as one JSON object.

    It writes a fixed set of fields, so attributes that other libraries add to a line do not get into it.

    Args:
        name: the name in each line; None for that of the logger.
        group: the consumer group, for lines that no context gives one; None if it is not known.

    Example:
        >>> line = JsonFormatter(group="shop").format(logging.makeLogRecord({"msg": "read %d", "args": (3,)}))
        >>> document = json.loads(line)
        >>> document["message"], document["group"]
        ('read 3', 'shop')
    """

    def __init__(self, name: str | None = None, group: str | None = None) -> None:
        super().__init__()
        self._name = name
        self._group = group

    def share(self, group: str | None) -> None:
        """Note that lines may also be about another group: then only a context says which one it is."""
        if group != self._group:
            self._group = None

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        document: dict[str, Any] = {
            "time": _format_utc(record.created),
            "level": record.levelname,
            "logger": self._name or record.name,
            "process": record.process,
            "message": record.getMessage(),
        }
        if self._group is not None:
            document["group"] = self._group
        document.update(log_fields())
        if record.exc_info and record.exc_info[0] is not None:
            document["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            document["stack"] = self.formatStack(record.stack_info)
        # ASCII, because standard error replaces characters that its encoding lacks by escapes that are not JSON.
        return json.dumps(document, default=str)


class _TextFormatter(logging.Formatter):
    """Formats lines as text in which nothing controls a terminal, and no further line looks like one of the program."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - of the standard library
        return super().formatMessage(record).replace("\n", "\n    ")

    def format(self, record: logging.LogRecord) -> str:
        return readable_lines(super().format(record))


def line_formatter(
    log_format: LogFormat, *, name: str | None = None, group: str | None = None, pid: bool = False
) -> logging.Formatter:
    """Return the formatter of a handler.

    Args:
        log_format: text or JSON.
        name: the name in each line; None for that of the logger.
        group: the consumer group, for JSON.
        pid: whether text contains the process id, as JSON always does.
    """
    if log_format == "json":
        return JsonFormatter(name, group)
    shown = "%(name)s" if name is None else name.replace("%", "%%")
    process = " [%(process)d]" if pid else ""
    return _TextFormatter(f"[%(asctime)s] [%(levelname)s]{process} [{shown}] %(message)s")


def _format_utc(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds, timezone.utc)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1_000:03d}Z"
