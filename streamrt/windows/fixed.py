"""Tumbling and hopping windows: intervals of event time that are the same for all keys.

The head of a key is `[clock, windows]`: the highest event time among its records, and its open windows in the order of
their starts, each `[start, state]`. Collected values are in the timeline, once for all windows of the key. If hopping
windows can be emptied before they close, a window is `[start, state, mark, empty]`: it has the items whose arrival
number is at least `mark`. With an offset, the first window of all may begin before 1970; it is emitted as if it began at 0.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from streamrt.operators.closing import checked_time
from streamrt.operators.late import LateRecords
from streamrt.operators.observing import observer
from streamrt.records import Headers
from streamrt.state.journal import due
from streamrt.state.transactions.timed import TimedTransaction
from streamrt.topology import Node, OperatorContext, RecordHandler
from streamrt.windows.closing import TimeWindowOperator, log_no_key
from streamrt.windows.fold import Packing

__all__ = ["FixedWindow", "Trigger", "window_starts"]

Trigger = Callable[[Any, Any, Any, int, Any], Any]
"""Function of aggregate, value, key, event time (ms) and headers; a true result emits the window at once."""

Output = tuple[int, dict[str, Any]]
"""Event time of an output, which is the start of its window, and the value."""


def window_starts(timestamp: int, duration_ms: int, step_ms: int, offset_ms: int = 0) -> range:
    """Return the starts of the windows that contain a record, ascending and not below 0.

    With an offset there is one window that begins less than a step before 0: without it, the first records would be in none.

    Example:
        >>> list(window_starts(12, 10, 5)), list(window_starts(3, 10, 5))
        ([5, 10], [0])
        >>> list(window_starts(12, 10, 5, 1)), list(window_starts(0, 10, 5, 1))
        ([6, 11], [-4])
    """
    if not offset_ms:
        return range(max(0, (timestamp - duration_ms) // step_ms + 1) * step_ms, timestamp + 1, step_ms)
    shift = offset_ms % step_ms
    first = max(-1, (timestamp - duration_ms - shift) // step_ms + 1)
    return range(first * step_ms + shift, timestamp + 1, step_ms)


@dataclass(frozen=True)
class FixedWindow(TimeWindowOperator):
    """Aggregates records in windows [start, start + duration) that start at all multiples of a step.

    Attributes:
        duration_ms: length of a window, in milliseconds.
        step_ms: distance between the starts of two windows, in milliseconds; equal to the duration for tumbling windows.
        offset_ms: distance of the starts from multiples of the step, in milliseconds.
        before_update: called before a record is counted in a window; a true result emits and empties the window
            instead.
        after_update: called after a record was counted; a true result emits and empties the window.
    """

    duration_ms: int = 1
    step_ms: int = 1
    offset_ms: int = 0
    before_update: Trigger | None = None
    after_update: Trigger | None = None

    @property
    def holds_back_ms(self) -> int | None:
        """A result has the start of its window as timestamp, and is emitted after the grace period."""
        return self.duration_ms + self.grace_ms

    @property
    def passes_once(self) -> bool:
        """Whether it passes on a record at most once, as the last thing that it does."""
        triggers = self.before_update is not None or self.after_update is not None
        return self.closing.by_key and not (self.final or triggers) and self.step_ms == self.duration_ms

    def closes_at(self, head: Any) -> int | None:  # noqa: D102
        return head[1][0][0] + self.duration_ms + self.grace_ms if head[1] else None

    @property
    def most_open(self) -> int:  # noqa: D102
        return (self.duration_ms + self.grace_ms) // self.step_ms + 1

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        running = self.running(context)
        if self.offset_ms % self.step_ms:
            child = _from_1970(child)
        windows = _Windows(self, child, self.late_records(context))
        settle = self.settle(windows.close, running, node, context)
        close_key = self.key_closer(windows.close, node, context)
        no_key = log_no_key(self.store.name)
        plan, final = windows.plan, self.final
        by_key, by_partition = self.closing.by_key, self.closing.by_partition
        advance, wrap = observer(self.closing.watermark, settle)
        step, extract, output = plan.fold.step, plan.extract, windows.output
        duration, open_for = self.duration_ms, self.duration_ms + self.grace_ms
        # Most records only change the last window of their key.
        simple = windows.simple

        def run_by_key(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            if key is None:
                no_key()
                return
            transaction = running()
            prefix = transaction.prefix(key)
            head = transaction.head(prefix)
            if simple and head is not None and head[1]:
                clock, opened = head
                window = opened[-1]
                start = window[0]
                if timestamp > clock:
                    clock = timestamp
                if start <= timestamp < start + duration and opened[0][0] + open_for > clock:
                    state = step(window[1], value if extract is None else extract(value), timestamp, transaction)
                    window[1] = state
                    head[0] = clock
                    transaction.set_head(prefix, head)
                    if not final:
                        child(output(start, start + duration, state, (), transaction), key, start, None)
                    return
            outputs = windows.update(transaction, prefix, head, value, key, timestamp, headers)
            if final:
                head = transaction.head(prefix)
                if head is not None:
                    # Those of a trigger come after all that are due.
                    close = windows.close if outputs else close_key
                    close(transaction, prefix, head, key, head[0])
            for start, out in outputs:
                child(out, key, start, None)

        def run_together(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            if key is None:
                no_key()
                return
            transaction = running()
            prefix = transaction.prefix(key)
            head = transaction.head(prefix)
            clock = transaction.clock
            if by_partition and timestamp > clock:
                clock = timestamp
            window = head[1][-1] if simple and head is not None and head[1] else _NO_WINDOW
            start = window[0]
            if start <= timestamp < start + duration and start + open_for > clock:
                state = step(window[1], value if extract is None else extract(value), timestamp, transaction)
                window[1] = state
                if timestamp > head[0]:
                    head[0] = timestamp
                transaction.set_head(prefix, head, (head[1][0][0] if final else start) + open_for)
                outputs = [] if final else [(start, output(start, start + duration, state, (), transaction))]
            else:
                outputs = windows.update(transaction, prefix, head, value, key, timestamp, headers)
            advance(transaction, timestamp)
            clock = transaction.clock
            if final and outputs and transaction.due_from <= clock:
                # The due windows of this key may still be open: emit them first.
                head = transaction.head(prefix)
                if head is not None:
                    windows.close(transaction, prefix, head, key, clock)
            for start, out in outputs:
                child(out, key, start, None)

        return run_by_key if by_key else wrap(run_together, node)

    def read(self, transaction: TimedTransaction, prefix: bytes) -> Iterator[dict[str, Any]]:  # noqa: D102
        head = transaction.head(prefix)
        return (
            iter(())
            if head is None
            else _Windows(self, _no_child, LateRecords(self.store.name, None)).read(transaction, prefix, head[1])
        )


def _from_1970(child: RecordHandler) -> RecordHandler:
    """Return a handler that takes records with a timestamp below 0 as if it was 0."""
    return lambda value, key, timestamp, headers: child(value, key, max(timestamp, 0), headers)


def _no_child(*_: Any) -> None:
    """Do nothing: nothing is emitted."""


_NO_WINDOW: list[Any] = [1 << 64]


class _Windows:
    """Updates the windows of a key, except on the fast path."""

    def __init__(self, operator: FixedWindow, child: RecordHandler, late: LateRecords) -> None:
        self.plan = operator.aggregation.plan()
        self.collects = bool(self.plan.collectors)
        triggers = operator.before_update is not None or operator.after_update is not None
        self.simple = not (triggers or self.collects) and operator.step_ms == operator.duration_ms
        self._duration = operator.duration_ms
        self._step = operator.step_ms
        self._offset = operator.offset_ms % operator.step_ms
        self.output = self._output_from_1970 if self._offset else self.plan.output
        self._grace = operator.grace_ms
        self._open_for = operator.duration_ms + operator.grace_ms
        self._before = operator.before_update
        self._after = operator.after_update
        self._final = operator.final
        self._by_key = operator.closing.by_key
        self._by_partition = operator.closing.by_partition
        self._marked = triggers and self.collects and operator.step_ms < operator.duration_ms
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
    ) -> list[Output]:
        """Count a record in its windows, and return the outputs: updated windows, or triggered ones."""
        plan, before, after, duration = self.plan, self._before, self._after, self._duration
        checked_time(timestamp)
        clock = head[0] if self._by_key and head is not None else transaction.clock
        if timestamp > clock and (self._by_key or self._by_partition):
            clock = timestamp
        windows = [] if head is None else head[1]
        fold, value_in = plan.fold, plan.input_of(value)
        changes: list[tuple[int, Any]] = []
        last = timestamp - (timestamp - self._offset) % duration
        if self.simple and last + self._open_for > clock and (not windows or windows[-1][0] < last):
            # The first record of a new window: the common case if windows have few records.
            changes.append((last, fold.step(fold.initial(transaction), value_in, timestamp, transaction)))
            return self._apply_record(transaction, prefix, head, windows, timestamp, clock, changes)
        item = plan.item_of(value) if self.collects else None
        triggered: list[tuple[int, Any]] = []
        outputs: list[Output] = []
        counted = False
        # Compute everything before storing anything: an exception leaves the windows unchanged.
        for start in window_starts(timestamp, duration, self._step, self._offset):
            if start + self._open_for <= clock:
                self._late(value, key, timestamp, clock - self._grace - timestamp, max(start, 0), start + duration)
                continue
            window = _find_window(windows, start)
            state = fold.initial(transaction) if window is None else window[1]
            if before is not None:
                items = self._collect_items(transaction, prefix, start, window)
                if before(plan.aggregate(state, items, transaction), value, key, timestamp, headers):
                    triggered.append((start, state))
                    outputs.append((start, self.output(start, start + duration, state, items, transaction)))
                    continue
            state = fold.step(state, value_in, timestamp, transaction)
            counted = True
            if after is not None:
                items = self._collect_items(transaction, prefix, start, window, (timestamp, item))
                if after(plan.aggregate(state, items, transaction), value, key, timestamp, headers):
                    triggered.append((start, state))
                    outputs.append((start, self.output(start, start + duration, state, items, transaction)))
                    continue
            changes.append((start, state))
        if not changes and not triggered:
            self._late.leave_out(value, key, timestamp, headers)
            return []
        if self.collects and counted:
            transaction.timelines.add(prefix, timestamp, item)
        for start, state in triggered:
            self._empty_window(transaction, prefix, windows, start, state)
        updated = self._apply_record(transaction, prefix, head, windows, timestamp, clock, changes)
        return outputs if self._final else updated

    def _apply_record(
        self,
        transaction: TimedTransaction,
        prefix: bytes,
        head: Any,
        windows: list[list[Any]],
        timestamp: int,
        clock: int,
        changes: list[tuple[int, Any]],
    ) -> list[Output]:
        """Store new states of windows, and return the outputs of `current()`."""
        if head is None:
            head = [timestamp, windows]
        elif timestamp > head[0]:
            head[0] = timestamp
        for start, state in changes:
            self._put_window(windows, start, state)
        if self._final:
            self._keep_head(transaction, prefix, head)
            return []
        past = bisect_left(windows, [clock - self._open_for + 1])
        if past:
            self.plan.release([window[1] for window in windows[:past]], transaction)
            del windows[:past]
        self._keep_head(transaction, prefix, head)
        # Last, because users' functions may raise: all changes are already stored.
        output, duration = self.output, self._duration
        return [(start, output(start, start + duration, state, (), transaction)) for start, state in changes]

    def close(self, transaction: TimedTransaction, prefix: bytes, head: Any, key: Any, clock: int) -> None:
        """Close the windows of a head that are due, the earliest first, and emit them."""
        windows = head[1]
        if not self._final:
            self.plan.release([window[1] for window in windows], transaction)
            transaction.delete_head(prefix)
            return
        while windows and windows[0][0] + self._open_for <= clock:
            window = windows[0]
            start = window[0]
            items = self._collect_items(transaction, prefix, start, window)
            # One at a time: if an operator below fails on a window, the next windows are still stored.
            del windows[0]
            if self.collects:
                # Later items are also in later windows.
                transaction.timelines.delete(prefix, max(start, 0), start + self._step)
            self._keep_head(transaction, prefix, head)
            if len(window) == 2 or not window[3]:
                output = self.output(start, start + self._duration, window[1], items, transaction)
                self.plan.release((window[1],), transaction)
                due(transaction.journal, self._child)(output, key, start, None)

    def read(self, transaction: TimedTransaction, prefix: bytes, windows: list[list[Any]]) -> Iterator[dict[str, Any]]:
        """Yield the open windows of a key."""
        for window in windows:
            if len(window) == 2 or not window[3]:
                start = window[0]
                items = self._collect_items(transaction, prefix, start, window)
                yield self.output(start, start + self._duration, window[1], items, transaction)

    def _output_from_1970(
        self, start: int, end: int, state: Any, items: Sequence[Any], packing: Packing
    ) -> dict[str, Any]:
        return self.plan.output(max(start, 0), end, state, items, packing)

    def _keep_head(self, transaction: TimedTransaction, prefix: bytes, head: Any) -> None:
        windows = head[1]
        if self._by_key:
            # A key needs its clock also without windows, to recognize late records.
            transaction.set_head(prefix, head)
        elif windows:
            # `current()` emits nothing at the close, so one deadline, that of the last window, is enough.
            window = windows[0 if self._final else -1]
            if self._marked:
                # Keys close in the order of their outputs; empty windows must not change this order.
                window = next((window for window in windows if not window[3]), windows[-1])
            transaction.set_head(prefix, head, window[0] + self._open_for)
        else:
            transaction.delete_head(prefix)

    def _put_window(self, windows: list[list[Any]], start: int, state: Any) -> None:
        at = bisect_left(windows, [start])
        if at < len(windows) and windows[at][0] == start:
            windows[at][1] = state
            if self._marked:
                windows[at][3] = False
        else:
            windows.insert(at, [start, state, 0, False] if self._marked else [start, state])

    def _empty_window(
        self, transaction: TimedTransaction, prefix: bytes, windows: list[list[Any]], start: int, state: Any
    ) -> None:
        """Empty a window that was emitted early, with a state."""
        self.plan.release((state,), transaction)
        at = bisect_left(windows, [start])
        known = at < len(windows) and windows[at][0] == start
        if self._marked:
            # Other windows also contain its items. Those that have arrived so far no longer count here.
            items = transaction.timelines.items_with_arrival(prefix, max(start, 0), start + self._duration)
            mark = max((arrival for _, arrival, _ in items), default=-1) + 1
            windows[at : at + known] = [[start, self.plan.fold.initial(transaction), mark, True]]
        else:
            del windows[at : at + known]
            if self.collects:
                transaction.timelines.delete(prefix, max(start, 0), start + self._duration)

    def _collect_items(
        self,
        transaction: TimedTransaction,
        prefix: bytes,
        start: int,
        window: list[Any] | None,
        added: tuple[int, Any] | None = None,
    ) -> list[Any]:
        """Return the collected items of a window, with the item that the current record adds."""
        if not self.collects:
            return []
        found = transaction.timelines.items_with_arrival(prefix, max(start, 0), start + self._duration)
        if self._marked and window is not None:
            found = [item for item in found if item[1] >= window[2]]
        items = [item for _, _, item in found]
        if added is not None:
            items.insert(bisect_right([time for time, _, _ in found], added[0]), added[1])
        return items


def _find_window(windows: list[list[Any]], start: int) -> list[Any] | None:
    at = bisect_left(windows, [start])
    return windows[at] if at < len(windows) and windows[at][0] == start else None
