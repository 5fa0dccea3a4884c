"""A schema that fits the events of an HTTP stream, found by looking at those that arrive."""

import contextlib
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

from streamrt.errors import InvalidOperationError
from streamrt.tables.connectors import HTTPSSE, SQSQueue, table_connector
from streamrt.tables.detection import Detected, described
from streamrt.tables.info import TableInfo
from streamrt.tables.native import event_source_of

if TYPE_CHECKING:
    import httpx_sse

__all__ = ["detect_events"]

_LEAVE_S = 5.0


def detect_events(info: TableInfo, *, limit: int, timeout: float, types: bool, start: Any) -> Detected:
    """Return what events of an external table look like; `Table.detect_schema` says how.

    Args:
        info: the table.
        limit: most events.
        timeout: seconds to wait for them.
        types: whether types are inferred.
        start: must be None: a stream begins now.

    Raises:
        InvalidOperationError: if the table is no HTTP stream, or there is a start.
        SourceError: if the server refuses.
    """
    if info.connector == SQSQueue.word:
        raise InvalidOperationError(
            f"detect_schema() of table {info.name} ({info.connector}) would take messages from its queue: set a schema by "
            "set_schema()"
        )
    connector = table_connector(info).resolved()
    if not isinstance(connector, HTTPSSE):
        raise InvalidOperationError(
            f"detect_schema() of table {info.name} ({info.connector}) is not there yet: set a schema by set_schema()"
        )
    if start is not None:
        raise InvalidOperationError(f"detect_schema(start=...) of table {info.name}: an HTTP stream begins now")
    values = _arriving(event_source_of(connector), connector.event, limit, timeout)
    return described(values, info.schema, types)


def _arriving(events: "httpx_sse.EventSource", name: str | None, limit: int, timeout: float) -> list[bytes]:
    found: list[bytes] = []

    def read() -> None:
        # The end of the stream, or of the wait for it.
        with contextlib.suppress(Exception):
            for event in events.iter_sse():
                if event.data and name in (None, event.event):
                    found.append(event.data.encode())
                    if len(found) >= limit:
                        return

    reader = threading.Thread(target=read, name="streamrt-detect", daemon=True)
    deadline = time.monotonic() + timeout
    reader.start()
    reader.join(max(0.0, deadline - time.monotonic()))
    if reader.is_alive():
        stream = events.response.extensions.get("network_stream")
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
        reader.join(_LEAVE_S)
    events.response.close()
    return found[:limit]
