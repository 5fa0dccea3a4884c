"""Collections in and out: `Application` derives from `CollectingApplication`."""

from __future__ import annotations

import abc
import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, overload

from typing_extensions import Self

from streamrt.config import require_amounts
from streamrt.connectors import BaseSource, CollectionSource, ListSink
from streamrt.dataframe import StreamingDataFrame
from streamrt.dataframe.branch import branch_of
from streamrt.errors import ArgumentTypeError, ArgumentValueError, InvalidOperationError
from streamrt.runtime.driver.bounded import BoundedApplication
from streamrt.topics import Topic

__all__ = ["Collected", "CollectingApplication"]

_FIRST_LOOK_S = 0.005
_LONGEST_LOOK_S = 0.1


class Collected(Iterator[Any]):
    """The values of a dataframe while the application runs; made by `Application.collect`.

    Close it, or use it in a `with` statement: the application runs until then, or until the end.

    Args:
        app: the application, which runs.
        sink: gets the values.
    """

    def __init__(self, app: BoundedApplication, sink: ListSink) -> None:
        self._app = app
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
            over = self._app.wait(0)
            if self._sink.data:
                self._take()
            elif over:
                self._closed = True
            else:
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_LOOK_S)
        raise StopIteration

    def _take(self) -> None:
        data = self._sink.data
        # Another thread may append meanwhile.
        count = len(data)
        self._taken = iter(data[:count])
        del data[:count]

    def close(self) -> None:
        """Stop the application, with a commit, and drop the values that were not read."""
        if not self._closed:
            self._closed = True
            self._app.stop(wait=True)
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


class CollectingApplication(BoundedApplication):
    """Adds dataframes of collections, and collections of the values of dataframes."""

    def __init__(self) -> None:
        super().__init__()
        self._collecting: dict[tuple[int, bool], ListSink] = {}

    @abc.abstractmethod
    def dataframe(self, topic: Topic | None = None, source: BaseSource | None = None) -> StreamingDataFrame:
        """Make a dataframe that reads a topic."""

    def from_collection(
        self,
        values: Iterable[Any],
        name: str = "collection",
        *,
        key: Callable[[Any], Any] | None = None,
        timestamp: Callable[[Any], int] | None = None,
        topic: Topic | None = None,
    ) -> StreamingDataFrame:
        """Make a dataframe of the values of a collection: short for `dataframe(source=CollectionSource(...))`.

        Args:
            values: the values, at least one.
            name: name of the source, unique in the application. A restart goes on with the first value that was not produced.
            key: function of a value that returns the record's key; without it, records have no key.
            timestamp: function of a value that returns the record's timestamp in milliseconds since the Unix epoch; without
                it, it is the time of producing.
            topic: the topic to produce to; by default one named after the source.

        Raises:
            ConfigurationError: if there are no values, or an argument cannot be used.
            InvalidOperationError: if the application has a source with this name.

        Example:
            ```python
            orders = app.from_collection([{"id": "a", "total": 5}], "orders", key=lambda order: order["id"])
            print(app.collect(orders.apply(lambda order: order["total"]), limit=1))
            ```
        """
        return self.dataframe(topic, CollectionSource(values, name, key=key, timestamp=timestamp))

    @overload
    def collect(self, dataframe: StreamingDataFrame, limit: int, metadata: bool = False) -> list[Any]: ...

    @overload
    def collect(self, dataframe: StreamingDataFrame, limit: None = None, metadata: bool = False) -> Collected: ...

    def collect(
        self, dataframe: StreamingDataFrame, limit: int | None = None, metadata: bool = False
    ) -> list[Any] | Collected:
        """Run the application until the end, as `run(until="end")` does, and return the values of a dataframe.

        The values arrive once for each commit, in the order of the offsets within each partition. The dataframe gets a sink
        for them, which stays. All dataframes of the application run.

        Args:
            dataframe: the dataframe.
            limit: number of values after which the application is stopped. It may have processed more records by then.
            metadata: add `_key`, `_timestamp`, `_headers`, `_topic`, `_partition` and `_offset`, as `ListSink(metadata=True)`
                does.

        Returns:
            With a limit, a list. Without one, an iterator, which must be closed or used in a `with` statement.

        Raises:
            ApplicationStateError: if the application is running.
            InvalidOperationError: if the dataframe is of another application.
            StreamRTError: the error that ended the run.

        Example:
            ```python
            with app.collect(late_flights) as values:
                for value in values:
                    print(value)
            ```
        """
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
        self.start(until="end")
        values = Collected(self, sink)
        if limit is None:
            return values
        with values:
            return list(itertools.islice(values, limit))

    def _require_idle(self) -> None:
        if self.status.is_active:
            raise InvalidOperationError("collect() runs the application, which is running already: stop() it first")
