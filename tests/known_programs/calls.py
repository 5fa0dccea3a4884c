"""Programs of asynchronous calls: order, capacity, time-outs."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from tests.known_programs.program import BY_HAND, END, Advance, In, Out, Parts, Together, program

UNTIL_DONE = timedelta(seconds=60)


# -- 15: asynchronous calls --------------------------------------------------------------------------------------------


class Gate:
    """Calls that end in a given order, when enough of them have begun.

    Args:
        order: the values.
        at_once: number of calls that begin before the first one ends.
    """

    def __init__(self, order: list[int], at_once: int) -> None:
        self.order, self.at_once = order, at_once
        self.begun = 0

    async def __call__(self, value: int) -> int:
        self.begun += 1
        while self.begun < self.at_once or self.order[0] != value:
            await asyncio.sleep(0)
        del self.order[0]
        return value


class Alone:
    """A call that fails if another one is under way."""

    def __init__(self) -> None:
        self.running = False

    async def __call__(self, value: int) -> int:
        if self.running:
            raise RuntimeError("two calls at once")
        self.running = True
        for _ in range(3):
            await asyncio.sleep(0)
        self.running = False
        return value


async def two_alone_ends(value: int) -> int:
    if value != 2:
        await asyncio.sleep(3_600)
    return value


def results(*values: int) -> Iterator[Out]:
    return (Out("k", value, 0) for value in values)


ONCE: dict[str, Any] = {"clocks": ("watermark",)}
THREE = Together((1, 2, 3))
LIST = In("k", [1, 2, 3], 0)
"""Its calls begin at once: between two records, a commit may come, which waits for calls."""


@pytest.mark.rows("PF-K2")
@program("p15-ordered", LIST, *results(1, 2, 3), END, **ONCE)
def ordered_calls(parts: Parts) -> None:
    values = parts.frame().apply(list, expand=True)
    parts.put_out(values.apply_async(Gate([2, 3, 1], 3), timeout=UNTIL_DONE, capacity=3))


@pytest.mark.rows("PF-K1")
@program("p15-unordered", LIST, *results(2, 3, 1), END, **ONCE)
def unordered_calls(parts: Parts) -> None:
    values = parts.frame().apply(list, expand=True)
    parts.put_out(values.apply_async(Gate([2, 3, 1], 3), timeout=UNTIL_DONE, capacity=3, ordered=False))


@pytest.mark.rows("PF-K1")
@program(
    "p15-unordered-with-a-tick",
    Together((1, 2)),
    *results(2, 1),
    Advance(10),
    In("k", 3, 0),
    *results(3),
    END,
    in_driver_alone=BY_HAND,
    **ONCE,
)
def unordered_calls_with_a_tick(parts: Parts) -> None:
    parts.put_out(parts.frame().apply_async(Gate([2, 1, 3], 2), timeout=UNTIL_DONE, capacity=3, ordered=False))


@pytest.mark.rows("PF-K3")
@program("p15-time-out", THREE, *results(-1, 2, -3), END, in_driver_alone="a time-out may be short there", **ONCE)
def calls_with_a_time_out(parts: Parts) -> None:
    frame = parts.frame().apply_async(two_alone_ends, timeout=15, capacity=3, on_timeout=lambda value: -value)
    parts.put_out(frame)


@program("p15-capacity-one", THREE, *results(1, 2, 3), END, **ONCE)
def calls_one_after_the_other(parts: Parts) -> None:
    parts.put_out(parts.frame().apply_async(Alone(), timeout=UNTIL_DONE, capacity=1, ordered=False))
