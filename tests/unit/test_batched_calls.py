"""Batches of asynchronous calls, with an event loop and nothing else: what is cancelled, and what another loop does."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from streamrt.operators.calls.batches import BatchedCalls

NEVER_S = 3_600.0


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0)


def test_d6_a_batch_is_cancelled_with_the_last_of_its_records() -> None:
    begun: list[Any] = []
    cancelled: list[Any] = []

    async def call(values: list[int]) -> list[int]:
        begun.append(values)
        try:
            await asyncio.sleep(NEVER_S)
        except asyncio.CancelledError:
            cancelled.append(values)
            raise
        return values

    async def main() -> None:
        calls = BatchedCalls(call, 2, NEVER_S, "op")
        first, second = (asyncio.ensure_future(calls(number)) for number in (1, 2))
        await until(lambda: bool(begun))
        first.cancel()
        await until(first.cancelled)
        for _ in range(5):
            await asyncio.sleep(0)
        assert not cancelled
        second.cancel()
        await until(lambda: bool(cancelled))
        await until(lambda: not calls._running)

    asyncio.run(main())
    assert cancelled == [[1, 2]]


def test_d6_records_that_were_cancelled_before_are_not_in_the_batch() -> None:
    async def call(values: list[int]) -> list[int]:
        return [len(values)] * len(values)

    async def main() -> Any:
        calls = BatchedCalls(call, 3, NEVER_S, "op")
        gone = asyncio.ensure_future(calls(0))
        await asyncio.sleep(0)
        gone.cancel()
        await until(gone.cancelled)
        return await asyncio.gather(calls(1), calls(2))

    assert asyncio.run(main()) == [2, 2]


def test_d6_another_loop_gets_another_batch() -> None:
    """A loop that was blocked is replaced, and its open batch is left to it."""

    async def call(values: list[int]) -> list[int]:
        return values

    calls = BatchedCalls(call, 2, NEVER_S, "op")

    async def leave() -> None:
        waiting = asyncio.ensure_future(calls(1))
        await asyncio.sleep(0)
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting

    async def both() -> Any:
        return await asyncio.gather(calls(2), calls(3))

    asyncio.run(leave())
    assert asyncio.run(both()) == [2, 3]


def test_d6_an_error_is_that_of_all_records_and_the_next_batch_goes_on() -> None:
    async def call(values: list[int]) -> list[int]:
        if 1 in values:
            raise ValueError("one")
        return values

    async def main() -> None:
        calls = BatchedCalls(call, 2, NEVER_S, "op")
        results = await asyncio.gather(calls(1), calls(2), calls(3), calls(4), return_exceptions=True)
        assert [str(each) for each in results] == ["one", "one", "3", "4"]
        with pytest.raises(ValueError, match="one"):
            await asyncio.gather(calls(1), calls(5))

    asyncio.run(main())
