"""PyFlink's operators, driven one element and one watermark at a time, without a JVM.

PyFlink makes the operators as in its worker processes, from `extract_stateful_function`. What the JVM does in a cluster is
done here: state is in dicts, and timers are kept in the way of Flink's InternalTimerServiceImpl: the watermark is set
first, then the earliest timer is taken, removed and fired, as long as its time has been reached.
"""

from __future__ import annotations

import heapq
from types import SimpleNamespace
from typing import Any

import cloudpickle
from pyflink.fn_execution.datastream.process import operations
from pyflink.fn_execution.datastream.process.runtime_context import StreamingRuntimeContext

from tests.oracle.state import Backend

__all__ = ["BEFORE_ALL", "Operator"]

BEFORE_ALL = -(1 << 63)
EVENT, PROCESSING = 0, 1
_REGISTERS = (0, 1)
"""Values of PyFlink's TimerOperandType: event time first, processing time second; deletions are 2 and 3."""


class Operator:
    """One operator at work.

    Attributes:
        watermark: the current watermark.
        now: processing time.
        results: pairs of output tag and result, of the last call.
    """

    def __init__(self, kind: int, definition: Any) -> None:
        self.backend = Backend()
        self.watermark = BEFORE_ALL
        self.now = 0
        self.late = SimpleNamespace(dropped=0)
        self._timers: tuple[list[Any], list[Any]] = ([], [])
        self._alive: tuple[set[Any], set[Any]] = (set(), set())
        proto = SimpleNamespace(function_type=kind, payload=cloudpickle.dumps(definition), has_side_output=True)
        context = StreamingRuntimeContext("oracle", "oracle (1/1)", 1, 1, 0, 0, {}, _Metrics(), self.backend, False)
        opened, self._closed, self._process, self._fire, service = operations.extract_stateful_function(
            proto, context, self.backend, None
        )
        stream = SimpleNamespace(maybe_flush=lambda: None)
        coder = SimpleNamespace(
            encode_to_stream=lambda timer, _, __: self._timer(timer.user_key),
            _key_coder_impl=SimpleNamespace(_value_coder=SimpleNamespace(_output_stream=stream)),
        )
        service.add_timer_info(SimpleNamespace(timer_coder_impl=coder, output_stream=stream))
        service.current_processing_time = lambda: self.now
        opened()

    def element(self, key: str, value: Any, timestamp: int) -> list[tuple[str, Any]]:
        """Process an element; return tags and results."""
        return [(tag, row[2]) for tag, row in self._process((timestamp, self.watermark, (key, value)))]

    def advance(self, watermark: int) -> list[tuple[int, tuple[str, Any]]]:
        """Let a watermark arrive; return what timers put out, with their times."""
        self.watermark = max(self.watermark, watermark)
        return self._fire_due(EVENT, self.watermark)

    def pass_time(self, bound: int) -> list[tuple[int, tuple[str, Any]]]:
        """Fire timers of processing time up to a time."""
        return self._fire_due(PROCESSING, bound)

    def close(self) -> None:
        self._closed()

    def _timer(self, data: Any) -> None:
        operation, _, time, key, namespace = data
        domain, entry = operation % 2, (time, tuple(key), namespace)
        if operation not in _REGISTERS:
            self._alive[domain].discard(entry)
        elif entry not in self._alive[domain]:
            self._alive[domain].add(entry)
            heapq.heappush(self._timers[domain], entry)

    def _fire_due(self, domain: int, bound: int) -> list[tuple[int, tuple[str, Any]]]:
        found = []
        waiting, alive = self._timers[domain], self._alive[domain]
        while waiting and waiting[0][0] <= bound:
            entry = heapq.heappop(waiting)
            if entry not in alive:
                continue
            alive.remove(entry)
            time, key, namespace = entry
            row = operations.Row(*key)
            for tag, result in self._fire((domain, self.watermark, time, row, namespace)):
                found.append((time, (tag, result[2])))
        return found


class _Metrics:
    """Metrics that go nowhere."""

    def counter(self, name: str) -> _Metrics:
        return self

    def inc(self, by: int = 1) -> None:
        pass
