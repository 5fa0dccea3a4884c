"""The common base of sinks that write lines of the line protocol of InfluxDB."""

import abc
from collections.abc import Callable, Sequence
from typing import ClassVar

from streamrt.connectors.failures import PassingError
from streamrt.connectors.retries import Retries
from streamrt.connectors.sinks.batch import SinkBatch, SinkItem
from streamrt.connectors.sinks.client_sink import ClientHolder
from streamrt.connectors.sinks.common import send_in_parts
from streamrt.connectors.time_series.line_protocol import LineProtocol, RefusedWriteError, explained
from streamrt.errors import SinkError

__all__ = ["LineSink"]


class LineSink(ClientHolder):
    """Writes values as lines, in requests of at most `_batch_size` of them. Points are the same when they are written again.

    The constructor of a subclass sets `_lines`, `_batch_size` and `_retries`.
    """

    _owner: ClassVar[str]
    """Name of the sink."""
    _lines: LineProtocol
    _batch_size: int
    _retries: Retries

    @property
    @abc.abstractmethod
    def _target(self) -> str:
        """The database, for messages."""

    @abc.abstractmethod
    def _request_for(self, lines: str) -> Callable[[], object]:
        """Return the function that sends lines; it may be called again.

        It raises `PassingError` if a later call may succeed, and `RefusedWriteError` if the server refuses the lines.
        """

    def write(self, batch: SinkBatch) -> None:
        """Write the values of one partition.

        Args:
            batch: the values.

        Raises:
            SinkError: if a value has no form in the protocol, or the server refuses it.
            SinkBackpressureError: if the server is busy or cannot be reached.
        """
        for chunk in batch.iter_chunks(self._batch_size):
            # A request may also be refused because it is too large as a whole.
            send_in_parts(chunk, lambda items: self._write_checked(items, batch), _is_about_values)

    def _write_checked(self, items: Sequence[SinkItem], batch: SinkBatch) -> None:
        try:
            self._write_items(items, batch)
        except RefusedWriteError as error:
            first, last = items[0].offset, items[-1].offset
            offsets = f"offset {first}" if len(items) == 1 else f"offsets {first} to {last}"
            where = f"{batch.topic}[{batch.partition}] {offsets}"
            is_about_value = len(items) == 1 and error.status in (400, 413, 422)
            raise SinkError(
                f"{self._owner} cannot write {where} to {self._target}: {error}{explained(error.text)}",
                batch.record_of(items[0]) if is_about_value else None,
            ) from error

    def _write_items(self, items: Sequence[SinkItem], batch: SinkBatch) -> None:
        """Write items in one request.

        Raises:
            RefusedWriteError: if the server refuses it.
        """
        request = self._request_for("\n".join(self._lines.line(item, batch) for item in items))
        self._retries.write(request, passing=(PassingError,), what=f"{self._owner}: writing to {self._target}")


def _is_about_values(error: Exception) -> bool:
    # Credentials and missing databases concern all items.
    cause = error.__cause__
    return isinstance(cause, RefusedWriteError) and cause.status not in (401, 403, 404)
