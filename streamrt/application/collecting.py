"""Collections in and out."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, overload

from typing_extensions import Self

from streamrt.application.declarations import Declarations
from streamrt.application.operations import Operations
from streamrt.application.run_state import RunState
from streamrt.config import require_amounts
from streamrt.connectors import CollectionSource, ListSink
from streamrt.dataframe import StreamingDataFrame
from streamrt.dataframe.branch import branch_of
from streamrt.errors import ArgumentTypeError, ArgumentValueError, InvalidOperationError
from streamrt.runtime.driver.starting.definition import ApplicationDefinition
from streamrt.topics import Topic

__all__ = ["Collected", "Collections"]

_FIRST_LOOK_S = 0.005
_LONGEST_LOOK_S = 0.1


class Collected(Iterator[Any]):
    """The values of a dataframe while the application runs; made by `Application.collect`.

    Close it, or use it in a `with` statement: the application runs until then, or until the end.

    Args:
        operations: stops the application, which runs.
        sink: gets the values.
    """

    def __init__(self, operations: Operations, sink: ListSink) -> None:
        self._operations = operations
        self._sink = sink
        self._taken: Iterator[Any] = iter(())
        self._closed = False

    def __next__(self) -> Any:
        """Return the next value; wait for it.

        Raises:
            StreamRTError: the error that ended the application.
        """
        pause = _FIRST_LOOK_S
        while not self._closed:
            for value in self._taken:
                return value
            # Before the look: values that came before the end must not be lost.
            over = self._operations.wait(0)
            if self._sink.data:
                self._take_outputs()
            elif over:
                self._closed = True
            else:
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_LOOK_S)
        raise StopIteration

    def _take_outputs(self) -> None:
        data = self._sink.data
        # Another thread may append meanwhile.
        count = len(data)
        self._taken = iter(data[:count])
        del data[:count]

    def close(self) -> None:
        """Stop the application, with a commit, and drop the values that were not read."""
        if not self._closed:
            self._closed = True
            self._operations.stop(wait=True)
        self._sink.data.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class Collections:
    """Makes dataframes of collections, and collects the values of dataframes.

    Args:
        definition: the application.
        state: its state.
        operations: starts and stops it.
        declarations: makes its dataframes.
    """

    def __init__(
        self, definition: ApplicationDefinition, state: RunState, operations: Operations, declarations: Declarations
    ) -> None:
        self._definition = definition
        self._state = state
        self._operations = operations
        self._declarations = declarations
        self._collecting: dict[tuple[int, bool], ListSink] = {}

    def from_collection(
        self,
        values: Iterable[Any],
        name: str = "collection",
        *,
        key: Callable[[Any], Any] | None = None,
        timestamp: Callable[[Any], int] | None = None,
        topic: Topic | None = None,
    ) -> StreamingDataFrame:
        """See `Application.from_collection`."""
        return self._declarations.dataframe(topic, CollectionSource(values, name, key=key, timestamp=timestamp))

    @overload
    def collect(self, dataframe: StreamingDataFrame, limit: int, metadata: bool = False) -> list[Any]: ...

    @overload
    def collect(self, dataframe: StreamingDataFrame, limit: None = None, metadata: bool = False) -> Collected: ...

    def collect(
        self, dataframe: StreamingDataFrame, limit: int | None = None, metadata: bool = False
    ) -> list[Any] | Collected:
        """See `Application.collect`."""
        if not isinstance(dataframe, StreamingDataFrame):
            raise ArgumentTypeError(f"collect() needs a dataframe of this application, got {type(dataframe).__name__}")
        branch = branch_of(dataframe)
        if branch.builder is not self._definition.builder:
            raise ArgumentValueError("collect() got a dataframe of another application")
        if limit is not None:
            require_amounts("collect", limit=limit)
            if isinstance(limit, float) or limit < 1:
                raise ArgumentValueError(f"collect(limit=...) must be a number of values, at least 1, got {limit!r}")
        self._require_idle()
        place = branch.node.id, metadata
        sink = self._collecting.get(place)
        if sink is None:
            sink = self._collecting[place] = ListSink(metadata=metadata)
            dataframe.sink(sink)
        sink.data.clear()
        self._operations.start(until="end")
        values = Collected(self._operations, sink)
        if limit is None:
            return values
        with values:
            return list(itertools.islice(values, limit))

    def _require_idle(self) -> None:
        if self._state.status.is_active:
            raise InvalidOperationError("collect() runs the application, which is running already: stop() it first")
