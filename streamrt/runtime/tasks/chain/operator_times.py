"""How long operators take: measured for a few records, so that the others cost nothing more.

Operators are nested closures, so the time of one contains that of all below it. A closure keeps the next one in a cell.
While a sampled record runs, these cells hold functions that read a clock before and after the next closure; then the
closures are put back. An operator that keeps the next one elsewhere, such as for the results of timers, is measured
together with what is below it there.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import CellType, FunctionType
from typing import Any, Final

from streamrt.records import Headers
from streamrt.topology import RecordHandler, Tallies
from streamrt.topology.tallies import OPERATOR_RECORDS, OPERATOR_SECONDS

__all__ = ["OperatorTimes"]

_EVERY_S: Final = 0.2
"""A sampled record takes some microseconds more."""


class OperatorTimes:
    """Measures the operators of one stream, with at most five records a second.

    Args:
        executors: the closures of each operator by its label, one for each of its inputs; deeper ones come first.
        tallies: receives times and numbers of records by operator.
        clock: returns seconds; only differences count.
    """

    def __init__(
        self,
        executors: Mapping[str, Sequence[RecordHandler]],
        tallies: Tallies,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._tallies = tallies
        self._clock = clock
        self._next = clock() + _EVERY_S
        # Seconds and number of sampled records, by operator.
        self._totals: dict[str, list[float]] = {}
        # Which record it is must not depend on how records come.
        self._random = random.Random()  # noqa: S311 - no secret
        # The operators at work, and since when the innermost one is.
        self._stack: list[str] = []
        self._since = 0.0
        self._times: dict[str, float] = {}
        self._timed: dict[int, RecordHandler] = {}
        for operator, handlers in executors.items():
            for handler in handlers:
                # A node that adds no closure has that of the next one.
                self._timed.setdefault(id(handler), self._with_timing(operator, handler))
        self._swaps = tuple(self._find_handlers([each for handlers in executors.values() for each in handlers]))

    def is_due(self) -> bool:
        """Return whether a record is to be measured now."""
        return self._clock() >= self._next

    def choose(self, start: int, stop: int) -> int:
        """Return the index of the record to measure, from `start` to `stop - 1`."""
        return self._random.randrange(start, stop)

    def timed(self, handler: RecordHandler) -> RecordHandler | None:
        """Return the function that measures a closure; None if it is not that of a node."""
        return self._timed.get(id(handler))

    @contextmanager
    def measuring(self, source: str) -> Iterator[None]:
        """Measure one record, which runs inside.

        Args:
            source: what the time outside of operators belongs to, such as that of deserializers.
        """
        self._next = self._clock() + _EVERY_S
        self._stack, self._times = [source], {}
        for put, _, timed in self._swaps:
            put(timed)
        self._since = self._clock()
        try:
            yield
        finally:
            self._spend_time()
            for put, plain, _ in self._swaps:
                put(plain)
            for operator, seconds in self._times.items():
                self._add_time(operator, seconds)

    def _with_timing(self, operator: str, handler: RecordHandler) -> RecordHandler:
        def timed(value: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
            self._spend_time()
            stack = self._stack
            stack.append(operator)
            try:
                handler(value, key, timestamp, headers)
            finally:
                self._spend_time()
                stack.pop()

        return timed

    def _spend_time(self) -> None:
        """Add the time since the last call to that of the innermost operator."""
        now, operator = self._clock(), self._stack[-1]
        self._times[operator] = self._times.get(operator, 0.0) + now - self._since
        self._since = now

    def _find_handlers(
        self, handlers: list[Any]
    ) -> Iterator[tuple[Callable[[Any], None], RecordHandler, RecordHandler]]:
        """Yield, for each place where a closure keeps another one, how to change it, and what to put there."""
        seen: set[int] = set()
        while handlers:
            function = handlers.pop()
            if not isinstance(function, FunctionType) or id(function) in seen:
                continue
            seen.add(id(function))
            for cell in function.__closure__ or ():
                if id(cell) in seen:
                    continue
                seen.add(id(cell))
                try:
                    content = cell.cell_contents
                except ValueError:
                    # Nothing was put there yet.
                    continue
                if id(content) in self._timed:
                    yield _into_cell(cell), content, self._timed[id(content)]
                elif isinstance(content, list):
                    # The branches below a node.
                    for index, each in enumerate(content):
                        if id(each) in self._timed:
                            yield _into_list(content, index), each, self._timed[id(each)]
                    handlers += content
                handlers.append(content)

    def _add_time(self, operator: str, seconds: float) -> None:
        totals = self._totals.get(operator)
        if totals is None:
            totals = self._totals[operator] = [0.0, 0.0]
            known = totals
            self._tallies.watch(OPERATOR_SECONDS, operator, lambda: known[0])
            self._tallies.watch(OPERATOR_RECORDS, operator, lambda: known[1])
        totals[0] += seconds
        totals[1] += 1


def _into_cell(cell: CellType) -> Callable[[Any], None]:
    def put(content: Any) -> None:
        cell.cell_contents = content

    return put


def _into_list(items: list[Any], index: int) -> Callable[[Any], None]:
    def put(content: Any) -> None:
        items[index] = content

    return put
