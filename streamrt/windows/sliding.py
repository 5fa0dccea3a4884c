"""Sliding windows: one for each event time of a record, which is the end of the window.

The windows of a key are [max(0, t - duration), t], both ends inclusive, for the distinct event times t of its records.
A window contains all records of the key in this interval, in the order of their arrival, including those that were too
late for a window that ends at their time. A window closes when the clock has passed its start + duration + grace. This
is t + grace, except for windows that are cut off at 0.

The head of a key is `[clock, windows, ragged, dropped]`: the highest event time among its records; the open windows in the
order of their ends, each `[end, state]`; the time up to which the timeline is not in the order of arrival; and the time
before which the timeline is empty. The timeline holds the inputs of all records that a window may still need.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from streamrt.operators.late import LateRecords
from streamrt.records import Headers
from streamrt.state.journal import due
from streamrt.state.transactions.timed import NEVER, TimedTransaction
from streamrt.topology import Node, OperatorContext, RecordHandler
from streamrt.windows.closing import TimeWindowOperator

__all__ = ["SlidingWindow"]

_arrival = itemgetter(1)


@dataclass(frozen=True)
class SlidingWindow(TimeWindowOperator):
    """Aggregates, for each event time, the records in the time before it.

    Attributes:
        duration_ms: length of a window, in milliseconds.
    """

    duration_ms: int = 1

    @property
    def holds_back_ms(self) -> int | None:
        """A result has the start of its window as timestamp, and is emitted after its end and the grace period."""
        return self.duration_ms + self.grace_ms + 1

    def closes_at(self, head: Any) -> int | None:  # noqa: D102
        return max(head[1][0][0], self.duration_ms) + self.grace_ms + 1 if head[1] else None

    @property
    def most_open(self) -> int:  # noqa: D102
        return self.grace_ms + 2

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        return self.executor(_Windows(self, child, self.late_records(context)), child, node, context)

    @property
    def collects(self) -> bool:
        """Only collectors need single values for a result."""
        return bool(self.aggregation.collectors)

    def read(self, transaction: TimedTransaction, prefix: bytes) -> Iterator[dict[str, Any]]:  # noqa: D102
        plan, head = self.aggregation.plan(keep_inputs=True), transaction.head(prefix)
        for end, state in [] if head is None else head[1]:
            start = max(0, end - self.duration_ms)
            items: list[Any] = []
            if plan.collectors:
                found = transaction.timelines.items_with_arrival(prefix, max(head[3], end - self.duration_ms), end + 1)
                items = [item for _, _, item in found]
            yield plan.output(start, end, state, items, transaction)


class _Windows:
    """Updates and closes the windows of a key."""

    def __init__(self, operator: SlidingWindow, child: RecordHandler, late: LateRecords) -> None:
        self._plan = operator.aggregation.plan(keep_inputs=True)
        self._collects = bool(self._plan.collectors)
        self._duration = operator.duration_ms
        self._grace = operator.grace_ms
        self._final = operator.final
        self._by_key = operator.closing.by_key
        self._late = late
        self._child = child

    def update(
        self,
        transaction: TimedTransaction,
        prefix: bytes,
        head: Any,
        value: Any,
        key: Any,
        timestamp: int,
        headers: Headers | None,
        clock: int,
    ) -> list[tuple[int, dict[str, Any]]]:
        """Count a record in its windows, and return the outputs."""
        plan, duration = self._plan, self._duration
        step = plan.fold.step
        item = plan.input_of(value)
        windows: list[list[Any]] = [] if head is None else head[1]
        # Windows that end before this are closed.
        closed = self._closed_before(clock)
        own = timestamp >= closed
        if not own:
            start = max(0, timestamp - duration)
            self._late(value, key, timestamp, clock - self._grace - timestamp, start, timestamp)
            if timestamp + duration < closed:
                self._late.leave_out(value, key, timestamp, headers)
                return []
        # The windows that contain the record end at its time or later.
        low = bisect_left(windows, [max(timestamp, closed)])
        high = bisect_left(windows, [timestamp + duration + 1], low)
        states = [step(window[1], item, timestamp, transaction) for window in windows[low:high]]
        fresh: list[Any] | None = None
        if own and (low == len(windows) or windows[low][0] != timestamp):
            fresh = [timestamp, self._fold_window(transaction, prefix, head, timestamp, item)]
        transaction.timelines.add(prefix, timestamp, item)
        if head is None:
            head = [timestamp, windows, -1, 0]
        elif timestamp > head[0]:
            head[0] = timestamp
        elif timestamp < head[0]:
            head[2] = head[0]
        for window, state in zip(windows[low:high], states, strict=True):
            window[1] = state
        if fresh is not None:
            windows.insert(low, fresh)
            high += 1
        changed: list[list[Any]] = []
        if not self._final:
            changed = windows[low:high]
            self._drop_closed(transaction, windows, closed)
        self._keep_head(transaction, prefix, head, clock)
        # Last, because users' functions may raise: all changes are already stored.
        return [self._make_output(transaction, end, state, ()) for end, state in changed]

    def close(self, transaction: TimedTransaction, prefix: bytes, head: Any, key: Any, clock: int) -> None:
        """Close the due windows of a head, the earliest first, and emit them; drop records that no window needs."""
        windows = head[1]
        closed = self._closed_before(clock)
        if not self._final:
            self._drop_closed(transaction, windows, closed)
        kept = False
        while windows and windows[0][0] < closed:
            end, state = windows[0]
            items: list[Any] = []
            if self._collects:
                found = transaction.timelines.items_with_arrival(prefix, max(head[3], end - self._duration), end + 1)
                items = [item for _, _, item in found]
            # One at a time: if an operator below fails on a window, the next windows are still stored.
            del windows[0]
            self._keep_head(transaction, prefix, head, clock)
            kept = True
            start, output = self._make_output(transaction, end, state, items)
            self._plan.release((state,), transaction)
            due(transaction.journal, self._child)(output, key, start, None)
        if not kept:
            self._keep_head(transaction, prefix, head, clock)

    def _drop_closed(self, transaction: TimedTransaction, windows: list[list[Any]], closed: int) -> None:
        past = bisect_left(windows, [closed])
        if past:
            self._plan.release([state for _, state in windows[:past]], transaction)
            del windows[:past]

    def _closed_before(self, clock: int) -> int:
        """Return the time such that all windows that end before it are closed.

        A window that is cut off at 0 closes together with the full-length window that starts at 0.
        """
        bound = clock - self._grace
        return bound if bound > self._duration else 0

    def _fold_window(self, transaction: TimedTransaction, prefix: bytes, head: Any, timestamp: int, item: Any) -> Any:
        """Return the state of a new window that ends at a record."""
        if head is None:
            return self._plan.fold_all([(timestamp, 0, item)], transaction)
        start = max(head[3], timestamp - self._duration)
        found = transaction.timelines.items_with_arrival(prefix, start, timestamp + 1)
        if start <= head[2]:
            found.sort(key=_arrival)
        found.append((timestamp, 0, item))
        return self._plan.fold_all(found, transaction)

    def _keep_head(self, transaction: TimedTransaction, prefix: bytes, head: Any, clock: int) -> None:
        """Store a head, and delete the records that no window needs."""
        windows, duration, grace = head[1], self._duration, self._grace
        purge_at = head[0] + duration + grace + 1
        if purge_at <= clock and not windows and not self._by_key:
            transaction.timelines.delete(prefix, head[3], NEVER)
            transaction.delete_head(prefix)
            return
        # The start of the earliest window that may still be made or emitted.
        needed = self._closed_before(clock) - duration
        if windows and windows[0][0] - duration < needed:
            needed = windows[0][0] - duration
        # Delete in bulk: several records cost little more than one.
        if needed - head[3] > duration >> 3:
            transaction.timelines.delete(prefix, head[3], needed)
            head[3] = needed
        if self._by_key:
            transaction.set_head(prefix, head)
        elif windows and self._final:
            transaction.set_head(prefix, head, max(windows[0][0], duration) + grace + 1)
        else:
            transaction.set_head(prefix, head, purge_at)

    def _make_output(
        self, transaction: TimedTransaction, end: int, state: Any, items: Any
    ) -> tuple[int, dict[str, Any]]:
        start = max(0, end - self._duration)
        return start, self._plan.output(start, end, state, items, transaction)
