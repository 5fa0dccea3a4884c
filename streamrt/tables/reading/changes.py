"""`ChangeListener`: calls a function with frames of the rows that come."""

import logging
import math
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

import pyarrow as pa
from typing_extensions import Self

from streamrt.arguments import refuse_async
from streamrt.errors import ArgumentTypeError, ArgumentValueError, InvalidOperationError, SchemaError
from streamrt.kafka.completion_token import Offsets
from streamrt.tables.reading.scan import frame_of
from streamrt.tables.reading.stream import TableStream
from streamrt.tables.rows.row_changes import CHANGE_COLUMN, SIGN_COLUMN
from streamrt.tables.rows.rows import ChangeType

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ChangeListener", "OnChanges", "require_listener_arguments"]

logger = logging.getLogger("streamrt.tables")

OnChanges = Callable[["pd.DataFrame", int], object]
_TAKEN_BACK = frozenset({ChangeType.UPDATE_BEFORE.short, ChangeType.DELETE.short})


def require_listener_arguments(callback: object, max_rows: object, max_delay: float) -> None:
    """Check the arguments of `Table.on_changes`.

    Raises:
        ArgumentTypeError: if one has the wrong type.
        ArgumentValueError: if a number is too low.
    """
    if not callable(callback):
        raise ArgumentTypeError(f"on_changes() needs a function of a DataFrame and a number, got {callback!r}")
    refuse_async("on_changes()", callback)
    if not isinstance(max_rows, int) or isinstance(max_rows, bool) or max_rows < 1:
        raise ArgumentValueError(f"max_rows must be 1 or more, got {max_rows!r}")
    if not 0 <= max_delay < math.inf:
        raise ArgumentValueError(f"max_delay must be 0 or more seconds, got {max_delay!r}")


class ChangeListener:
    """Calls a function with the rows that come, in a thread; `Table.on_changes` returns it.

    An exception of the function, or of reading, ends it, and is `error`; so does `sys.exit()`, which ends nothing else.

    Args:
        stream: where rows come from; with the column `_change_type`. It is closed at the end.
        callback: called with a DataFrame and its number, from 0 on.
        max_rows: most rows of a frame.
        max_delay: seconds for which the first row of a frame waits for others at most.
    """

    def __init__(self, stream: TableStream, callback: OnChanges, max_rows: int, max_delay: float) -> None:
        if SIGN_COLUMN in stream.schema.names:
            stream.close()
            raise SchemaError(
                f"the column {SIGN_COLUMN!r} is in the schema, and would be added: leave it out of columns="
            )
        self._stream = stream
        self._callback = callback
        self._max_rows = max_rows
        self._max_delay = max_delay
        self._position = stream.position
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run_calls, name="streamrt-changes", daemon=True)
        self._thread.start()

    @property
    def error(self) -> BaseException | None:
        """The exception that has ended it, or None."""
        return self._error

    @property
    def running(self) -> bool:
        """Whether it still listens."""
        return self._thread.is_alive() and not self._stream.closed

    @property
    def position(self) -> Offsets:
        """The position after the last row with which the function has returned."""
        return self._position

    def stop(self, timeout: float | None = None) -> None:
        """Stop listening, and wait until the function returns. Rows that it was not called with are delivered again later.

        Args:
            timeout: seconds to wait; None waits as long as it takes.

        Raises:
            InvalidOperationError: if the function has not returned in time.
        """
        self._stream.close()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout)
            if self._thread.is_alive():
                raise InvalidOperationError(f"the function of on_changes() has not returned within {timeout:g} s")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _run_calls(self) -> None:
        number = 0
        try:
            while True:
                rows = self._collect_rows()
                if rows is None:
                    return
                position = self._stream.position
                self._callback(self._to_frame(rows), number)
                number += 1
                self._position = position
        except BaseException as error:
            # threading would drop sys.exit() without a word.
            self._error = error
            logger.exception("on_changes() of %r ends with frame %d: %s", self._stream, number, type(error).__name__)
        finally:
            self._stream.close()

    def _collect_rows(self) -> pa.Table | None:
        """Return as many rows as there are in time, at least one; None when the stream is closed."""
        found: list[pa.Table] = []
        left, deadline = self._max_rows, math.inf
        while left > 0:
            timeout_s = deadline - time.monotonic()
            if timeout_s <= 0:
                break
            try:
                rows = self._stream.poll_arrow(None if timeout_s == math.inf else timeout_s, left)
            except Exception:
                if self._stream.closed:
                    # Rows that were collected are not lost: they are after `position`.
                    return None
                if found:
                    # The next poll raises it.
                    break
                raise
            if rows.num_rows:
                deadline = min(deadline, time.monotonic() + self._max_delay)
                found.append(rows)
                left -= rows.num_rows
        return None if self._stream.closed else pa.concat_tables(found)

    @staticmethod
    def _to_frame(rows: pa.Table) -> "pd.DataFrame":
        frame = frame_of(rows)
        frame[SIGN_COLUMN] = [-1 if change in _TAKEN_BACK else 1 for change in frame[CHANGE_COLUMN]]
        return frame
