"""A schema that fits the events of an HTTP stream, found by looking at those that arrive."""

import contextlib
import logging
import socket
import threading
from typing import TYPE_CHECKING, Any

from streamrt.connectors.failures import named
from streamrt.errors import InvalidOperationError, SourceError
from streamrt.tables.descriptions.connectors import HTTPSSE, SQSQueue
from streamrt.tables.descriptions.home import TableHome
from streamrt.tables.descriptions.info import TableInfo
from streamrt.tables.endpoints.endpoints import connected
from streamrt.tables.endpoints.native import event_source_of
from streamrt.tables.reading.detection import Detected, described
from streamrt.tables.rows.sampling import sample_reader

if TYPE_CHECKING:
    import httpx_sse

__all__ = ["arriving", "detect_events"]

logger = logging.getLogger("streamrt.tables")

_LEAVE_S = 5.0
_ANSWER_S = 10.0


def detect_events(info: TableInfo, home: TableHome, *, limit: int, timeout: float, types: bool, start: Any) -> Detected:
    """Return what events of an external table look like; `Table.detect_schema` says how.

    Args:
        info: the table.
        home: the catalogue.
        limit: most events.
        timeout: seconds to wait for them.
        types: whether types are inferred.
        start: must be None: a stream begins now.

    Raises:
        InvalidOperationError: if the table is not an HTTP stream, there is a start, or values of its format do not say what
            their columns are.
        SourceError: if the server refuses, or the stream breaks off before the first event.
    """
    if info.connector == SQSQueue.word:
        raise InvalidOperationError(
            f"detect_schema() of table {info.name} ({info.connector}) would take messages from its queue: set a schema by "
            "set_schema()"
        )
    connector = connected(info, home)
    if not isinstance(connector, HTTPSSE):
        raise InvalidOperationError(
            f"detect_schema() of table {info.name} ({info.connector}) is not there yet: set a schema by set_schema()"
        )
    if start is not None:
        raise InvalidOperationError(f"detect_schema(start=...) of table {info.name}: an HTTP stream begins now")
    read = sample_reader(info, None)
    # A server that does not even answer also ends it, and one that sends no event does not.
    events = event_source_of(connector, silence=timeout + _ANSWER_S)
    values = arriving(events, connector.event, limit, timeout, info.name)
    return described(values, info.schema, types, read)


def arriving(events: "httpx_sse.EventSource", name: str | None, limit: int, timeout: float, table: str) -> list[bytes]:
    """Return the data of the events that arrive, and close the stream, whatever happens.

    If the stream breaks off after some events, these are returned, and the log says it.

    Args:
        events: the stream.
        name: name of the events that count; None means all.
        limit: most events.
        timeout: seconds to wait for them.
        table: name of the table, for errors.

    Raises:
        SourceError: if the stream breaks off before the first event, or is none.
    """
    found: list[bytes] = []
    failures: list[Exception] = []

    def read() -> None:
        try:
            for event in events.iter_sse():
                if event.data and name in (None, event.event):
                    found.append(event.data.encode())
                    if len(found) >= limit:
                        return
        except Exception as error:  # noqa: BLE001 - it is raised in the thread that waits
            failures.append(error)

    reader = threading.Thread(target=read, name="streamrt-detect", daemon=True)
    broken: Exception | None = None
    try:
        reader.start()
        reader.join(timeout)
        # Later ones are of the end of the wait.
        broken = failures[0] if failures else None
    finally:
        _close_stream(events, reader)
    values = found[:limit]
    if broken is not None and not values:
        raise SourceError(f"no event of table {table} was read: {named(broken)}") from broken
    if broken is not None:
        logger.warning("The events of table %s broke off after %d: %s", table, len(values), named(broken))
    return values


def _close_stream(events: "httpx_sse.EventSource", reader: threading.Thread) -> None:
    """Close a stream that a thread may be reading, and wait for the end of the thread."""
    try:
        stream = events.response.extensions.get("network_stream")
        if reader.is_alive() and stream is not None:
            # Closing on its own would not wake the thread.
            with contextlib.suppress(OSError):
                stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
            reader.join(_LEAVE_S)
    finally:
        events.response.close()
