"""Calls of an asynchronous function that takes several records at once."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Set
from contextvars import Context
from typing import Any

__all__ = ["BatchedCalls"]


class BatchedCalls:
    """Gathers calls for single records, and makes one call for each batch of them, in the event loop.

    Each record waits for its own result, so capacity, order, time-outs and errors are those of calls for single records.

    Args:
        function: asynchronous function of a list of values; or of lists of values, keys, timestamps and headers.
        size: number of records in a full batch.
        wait_s: how long the first record of a batch waits for others, in seconds.
        operator: name of the operator, for errors.
    """

    def __init__(self, function: Callable[..., Awaitable[Any]], size: int, wait_s: float, operator: str) -> None:
        self._function = function
        self._size = size
        self._wait_s = wait_s
        self._operator = operator
        self._open: _Batch | None = None
        # The loop itself refers to its tasks only weakly.
        self._running: set[asyncio.Task[None]] = set()

    async def __call__(self, *record: Any) -> Any:
        """Return the result of one record.

        Args:
            record: what the function takes, for this record.
        """
        loop, batch = asyncio.get_running_loop(), self._open
        # A blocked loop may have been replaced by another one.
        if batch is None or batch.closed or batch.loop is not loop:
            batch = self._open = _Batch(loop)
            batch.timer = loop.call_later(self._wait_s, self._start_call, batch)
        result = loop.create_future()
        batch.calls.append((record, result))
        if len(batch.calls) >= self._size:
            self._start_call(batch)
        return await result

    def _start_call(self, batch: "_Batch") -> None:
        """Make the call of a batch."""
        if batch.timer is not None:
            batch.timer.cancel()
        batch.closed = True
        # Without those that were cancelled meanwhile.
        batch.calls = [call for call in batch.calls if not call[1].done()]
        if not batch.calls:
            return
        # In a context of its own: the batch has no record.
        task = Context().run(batch.loop.create_task, self._perform_call(batch))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

        def give_up(_: Any) -> None:
            if all(result.done() for _, result in batch.calls):
                task.cancel()

        for _, result in batch.calls:
            result.add_done_callback(give_up)

    async def _perform_call(self, batch: "_Batch") -> None:
        records, waiting = zip(*batch.calls, strict=True)
        try:
            results = self._check_results(await self._function(*map(list, zip(*records, strict=True))), len(records))
        except asyncio.CancelledError:
            for result in waiting:
                result.cancel()
            raise
        except BaseException as error:  # noqa: BLE001 - the task decides; SystemExit would end the event loop
            for result in waiting:
                if not result.done():
                    result.set_exception(error)
            return
        for result, value in zip(waiting, results, strict=True):
            if not result.done():
                result.set_result(value)

    def _check_results(self, results: Any, count: int) -> list[Any]:
        if isinstance(results, str | bytes | Mapping | Set) or not hasattr(results, "__len__"):
            raise TypeError(
                f"{self._operator}: the function of a batch must return a list of results, not {type(results).__name__}"
            )
        made = list(results)
        if len(made) != count:
            raise ValueError(
                f"{self._operator}: the function returned {len(made)} results for a batch of {count} values"
            )
        return made


class _Batch:
    """Records that one call is made for.

    Attributes:
        loop: the event loop that the records wait in.
        calls: the records, and what gets their results.
        timer: closes the batch.
        closed: whether it takes no more records.
    """

    __slots__ = ("calls", "closed", "loop", "timer")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.calls: list[tuple[tuple[Any, ...], asyncio.Future[Any]]] = []
        self.timer: asyncio.TimerHandle | None = None
        self.closed = False
