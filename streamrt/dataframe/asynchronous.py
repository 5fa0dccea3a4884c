"""Asynchronous functions of dataframes. The public function is a method of `StreamingDataFrame`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

from streamrt.arguments import checked, checked_int, type_name
from streamrt.dataframe.branch import Frame
from streamrt.errors import ArgumentValueError
from streamrt.operators import ApplyAsync, Retry
from streamrt.operators.calls.apply_async import require_async
from streamrt.operators.functions import require_callable, require_parameters
from streamrt.topics.durations import milliseconds

F = TypeVar("F", bound=Frame)


def apply_async(
    self: F,
    func: Callable[..., Awaitable[Any]],
    *,
    timeout: timedelta | int,
    capacity: int = 100,
    ordered: bool = True,
    expand: bool = False,
    metadata: bool = False,
    retry: Retry | None = None,
    on_timeout: Callable[[Any], Any] | None = None,
    batch_size: int | None = None,
    batch_timeout: timedelta | int = 10,
) -> F:
    """Replace each value by the result of an asynchronous function, with calls for several records at once.

    Calls run in an event loop alongside the task, and their results continue in the task. All results are passed on before
    a commit. After a crash, a rebalance or an error, records without a commit are processed again, with their calls.

    Args:
        func: function of the value, defined by `async def`; with `metadata`, of value, key, timestamp (milliseconds)
            and headers. It must not block: others wait meanwhile.
        timeout: maximum duration of a call with all its attempts: a timedelta or milliseconds.
        capacity: maximum number of records in each task whose results have not been passed on. Further records wait.
        ordered: whether results keep the order of their records. Otherwise each is passed on when it is there, but
            never later than a tick of event time that follows its record.
        expand: pass on the items of the returned iterable one by one.
        metadata: whether `func` takes key, timestamp and headers too.
        retry: how calls that fail are repeated; None for one attempt.
        on_timeout: function of the value whose result takes the place of one that did not come in time. None makes it
            a `TimeoutError` of the record.
        batch_size: maximum number of records in one call. `func` then takes a list of values (with `metadata`, four lists)
            and returns a list with a result for each. None makes a call for each record.
        batch_timeout: how long the first record of a batch waits for others: a timedelta or milliseconds.

    Returns:
        A new frame.

    Raises:
        InvalidOperationError: if `func` is not asynchronous or not callable with these arguments, or another argument is
            not valid.

    Example:
        ```python
        async def with_customer(order):
            reply = await client().get(f"/customers/{order['customer']}")
            return {**order, "customer": reply.json()}

        sdf = sdf.apply_async(with_customer, timeout=timedelta(seconds=5), retry=Retry(3, backoff=0.2))
        sdf = sdf.apply_async(predict_all, timeout=timedelta(seconds=5), batch_size=32, capacity=200)
        ```
    """
    require_parameters("apply_async()", func, metadata=metadata, stateful=False, waits=True)
    require_async(func)
    timeout_ms = milliseconds("apply_async(timeout=...)", timeout, least=1)
    checked_int("apply_async(capacity=...)", capacity, 1)
    checked("apply_async(retry=...)", retry, Retry, "a Retry", optional=True, show=type_name)
    if on_timeout is not None:
        require_callable("apply_async(on_timeout=...)", on_timeout)
    wait_ms = milliseconds("apply_async(batch_timeout=...)", batch_timeout, least=0)
    if batch_size is not None:
        _check_batches(batch_size, wait_ms, timeout_ms, capacity)
    operator = ApplyAsync(
        func, timeout_ms / 1_000, capacity, ordered, expand, metadata, retry, on_timeout, batch_size, wait_ms / 1_000
    )
    return self._with(self._branch.add(operator))


def _check_batches(size: int, wait_ms: int, timeout_ms: int, capacity: int) -> None:
    checked("apply_async(batch_size=...)", size, int, "an int", show=type_name)
    if not 1 <= size <= capacity:
        raise ArgumentValueError(
            f"apply_async(batch_size=...) must be 1 to capacity ({capacity}), got {size}: the records of a batch are in "
            "flight, so raise capacity"
        )
    if wait_ms >= timeout_ms:
        raise ArgumentValueError(
            f"apply_async(batch_timeout=...) must be less than timeout ({timeout_ms} ms), got {wait_ms} ms: it is part of it"
        )
