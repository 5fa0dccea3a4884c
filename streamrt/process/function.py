"""The base classes of process functions."""

import abc
from collections.abc import Iterable
from typing import Any, ClassVar

from streamrt.process.context import Context, TaskContext

__all__ = ["CoProcessFunction", "ProcessFunction", "TimedFunction"]


class TimedFunction:
    """The common part of all process functions: side outputs, timers, and a beginning and an end in each process.

    Attributes:
        outputs: the side outputs that `ctx.output` may use; `frame.side_output(tag)` reads them.
    """

    outputs: ClassVar[tuple[str, ...]] = ()

    def open(self, context: TaskContext) -> None:
        """Prepare the function; called in each process that runs tasks, before the first record or timer."""

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any] | None:
        """Process a timer of a key. It is deleted before.

        Args:
            timestamp: the time for which it was registered, in milliseconds.
            ctx: a `TimerContext`, in a `BroadcastProcessFunction` a `BroadcastTimerContext`: its key, the state of the key,
                timers and side outputs.

        Returns:
            The results; None for none.
        """
        return None

    def close(self) -> None:
        """Release what `open` has opened; called when the process has no more work for the application."""


class ProcessFunction(TimedFunction, abc.ABC):
    """A function of records and timers, with state, for `StreamingDataFrame.process`.

    Derive from it. The object is pickled with the operators, and each process that runs tasks has its own copy for all
    partitions: whatever must survive, or belongs to a key, goes into `ctx.state`.

    Both methods return an iterable of results, such as a generator, or None. Each result goes on with the key, timestamp
    and headers of the record; from `on_timer` with the key and the time of the timer, and without headers.

    Attributes:
        outputs: the side outputs that `ctx.output` may use; `frame.side_output(tag)` reads them.

    Example:
        ```python
        class Sessions(ProcessFunction):
            def process_element(self, value, ctx):
                count, last = ctx.state.value("count", default=0), ctx.state.value("last")
                if last.value() is not None:
                    ctx.delete_event_time_timer(last.value() + 60_000)
                count.update(count.value() + 1)
                last.update(ctx.timestamp)
                ctx.register_event_time_timer(ctx.timestamp + 60_000)

            def on_timer(self, timestamp, ctx):
                yield {"count": ctx.state.value("count").value()}
                ctx.state.clear()
        ```
    """

    @abc.abstractmethod
    def process_element(self, value: Any, ctx: Context) -> Iterable[Any] | None:
        """Process a record.

        Args:
            value: its value.
            ctx: its key, timestamp and headers, the state of the key, timers and side outputs.

        Returns:
            The results; None for none.
        """


class CoProcessFunction(TimedFunction, abc.ABC):
    """A function of the records of two dataframes, with common state and timers, for `ConnectedFrames.process`.

    Derive from it. It is pickled and copied like a `ProcessFunction`, and results go on in the same way. Records of a key
    have the same state, whichever side they come from.

    Attributes:
        outputs: the side outputs that `ctx.output` may use; `frame.side_output(tag)` reads them.

    Example:
        ```python
        class Fares(CoProcessFunction):
            def process_element1(self, ride, ctx):
                ctx.state.value("ride").update(ride)

            def process_element2(self, fare, ctx):
                ride = ctx.state.value("ride").value()
                if ride is not None:
                    yield {**ride, **fare}

        rides.connect(fares).process(Fares()).to_topic(paid)
        ```
    """

    @abc.abstractmethod
    def process_element1(self, value: Any, ctx: Context) -> Iterable[Any] | None:
        """Process a record of the frame on which `connect` was called.

        Args:
            value: its value.
            ctx: its key, timestamp and headers, the state of the key, timers and side outputs.

        Returns:
            The results; None for none.
        """

    @abc.abstractmethod
    def process_element2(self, value: Any, ctx: Context) -> Iterable[Any] | None:
        """Process a record of the frame that was passed to `connect`.

        Args:
            value: its value.
            ctx: as for `process_element1`.

        Returns:
            The results; None for none.
        """
