"""Asynchronous calls in the simulator: an event loop without a thread, whose calls end in an order that a seed decides."""

import contextlib
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextvars import Context
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import streamrt.runtime.tasks.chain.work_in_flight as calls_module
from tests.sim.driver import Wrong

if TYPE_CHECKING:
    from tests.sim.simulation import Simulation

CAPACITY = 3


class _Turn:
    """Lets other calls go first."""

    def __await__(self) -> Generator[None, None, None]:
        yield


async def later(value: dict[str, Any]) -> dict[str, Any]:
    """Return the value, after others that were asked for later."""
    for _ in range(value["u"] * 7 % 4):
        await _Turn()
    return dict(value)


class SimCall:
    """A coroutine at work; stands in for `asyncio.Task`."""

    def __init__(self, coroutine: Coroutine[Any, Any, None], context: Context) -> None:
        self.over = False
        self._coroutine = coroutine
        self._context = context

    def step(self) -> None:
        """Go on until the coroutine awaits something, or ends."""
        try:
            self._context.run(self._coroutine.send, None)
        except StopIteration:
            self.over = True

    def cancel(self) -> None:
        """End it."""
        self.over = True
        self._coroutine.close()


class SimLoop:
    """Stands in for `EventLoopThread`; works whenever the task calls it, or waits."""

    abandoned = False

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._callbacks: deque[Callable[[], Any]] = deque()
        self._calls: list[SimCall] = []

    def time(self) -> float:
        """Return the time; no call takes too long."""
        return 0.0

    def call_soon(self, callback: Callable[..., Any], *arguments: Any) -> None:
        """Call a function soon."""
        self._callbacks.append(partial(callback, *arguments))

    def call_soon_threadsafe(self, callback: Callable[..., Any], *arguments: Any) -> None:
        """Call a function soon, perhaps before the task goes on."""
        self.call_soon(callback, *arguments)
        for _ in range(self._rng.randrange(6)):
            self.step()

    def call_at(self, when: float, callback: Callable[..., Any], *arguments: Any) -> object:
        """Do nothing: no time passes."""
        return self

    def start(self, coroutine: Coroutine[Any, Any, None], context: Context) -> SimCall:
        """Begin a call."""
        self._calls.append(SimCall(coroutine, context))
        return self._calls[-1]

    def step(self) -> bool:
        """Do the next thing; return whether there was one."""
        self._calls = [call for call in self._calls if not call.over]
        if self._callbacks:
            self._callbacks.popleft()()
        elif self._calls:
            self._rng.choice(self._calls).step()
        else:
            return False
        return True

    def close(self) -> None:
        """End everything."""
        for call in self._calls:
            call.cancel()


@contextlib.contextmanager
def simulated_calls(sim: "Simulation") -> Iterator[None]:
    """Let asynchronous calls run in the simulator."""
    rng = Random(f"calls {sim.seed}")
    loops: list[SimLoop] = []

    def loop_of(calls: Any) -> SimLoop:
        found = vars(calls).get("simulated")
        if found is None:
            found = calls.simulated = SimLoop(rng)
            loops.append(found)
        assert isinstance(found, SimLoop)
        return found

    def wait(node: Any, until: float | None) -> bool:
        while not node._is_ready():
            sim.wait_for_call()
            if until is not None and rng.random() < 0.3:
                return False
            if not node._loop.step():
                raise Wrong("a task waits for calls that nobody makes")
        return True

    former = calls_module.WorkInFlight._loop, calls_module._NodeCalls._wait_for_result
    calls_module.WorkInFlight._loop, calls_module._NodeCalls._wait_for_result = loop_of, wait  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        calls_module.WorkInFlight._loop, calls_module._NodeCalls._wait_for_result = former  # type: ignore[method-assign]
        for loop in loops:
            loop.close()
