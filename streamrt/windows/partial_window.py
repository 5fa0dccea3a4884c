"""The first phase of windows over a whole stream: each partition aggregates its own records, whatever their keys are.

The record key in the store is the partition, as `PartSource` names it. The head is the list of the open windows in the order
of their starts, each `[start, count, state, sent]`: how many records it has, their state, and whether this state is passed
on already.

**A part is all that the partition has counted in a window so far.** So a part replaces the former one of its partition, and
one that a crash repeats changes nothing. Its value is `[source, start, count, state]`.

**The timestamp of a part says how far the partition is**: what it passes on later is of windows that end after it. The part
of a window that closes has the end of the window. So windows behind the exchange close as soon as all partitions have sent
their parts, and no part comes too late, but that of a partition which was idle.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from streamrt.operators.closing import DueHeads, checked_time, settle_heads
from streamrt.operators.observing import observer
from streamrt.records import Headers, Tick
from streamrt.state.journal import due
from streamrt.state.spec import StoreSpec
from streamrt.state.transactions.timed import NEVER, TimedTransaction
from streamrt.topology import Node, OperatorContext, RecordHandler
from streamrt.windows.aggregation import Plan
from streamrt.windows.closing import TimeWindowOperator
from streamrt.windows.fixed import window_starts
from streamrt.windows.parts import ALL, PartSource, make_parts_plan

__all__ = ["PartialWindow"]


@dataclass(frozen=True)
class PartialWindow(TimeWindowOperator):
    """Aggregates the records of a partition in tumbling or hopping windows, and passes on parts of the results.

    Attributes:
        duration_ms: length of a window, in milliseconds.
        step_ms: distance between the starts of two windows, in milliseconds.
        offset_ms: distance of the starts from multiples of the step, in milliseconds.
        every_ms: how often the part of an open window is passed on, if it has changed, in milliseconds of the wall clock.
        timer: for windows that are not final, the store of the time at which this is due.
    """

    name: ClassVar[str] = "window_part"
    duration_ms: int = 1
    step_ms: int = 1
    offset_ms: int = 0
    every_ms: int = 0
    timer: StoreSpec | None = None

    def stores(self) -> tuple[StoreSpec, ...]:  # noqa: D102
        return (self.store,) if self.timer is None else (self.store, self.timer)

    def wall_clock_stores(self) -> tuple[str, ...]:  # noqa: D102
        return () if self.timer is None else (self.timer.name,)

    def keeps(self) -> tuple[str, ...]:
        """Return what windows keep; how often parts are passed on does not change it."""
        return tuple(text for text in super().keeps() if not text.startswith("every_ms="))

    @property
    def holds_back_ms(self) -> int | None:
        """The part of a window that closes has its end as timestamp, and is passed on after the grace period."""
        return self.grace_ms

    @property
    def most_open(self) -> int:  # noqa: D102
        return (self.duration_ms + self.grace_ms) // self.step_ms + 1

    def closes_at(self, head: Any) -> int | None:  # noqa: D102
        return head[0][0] + self.duration_ms + self.grace_ms if head else None

    def ends(self) -> bool:
        """Parts that have not been passed on are; windows that are not final stay open."""
        return True

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        running = self.running(context)
        windows = _Parts(self, child, context)
        heads = DueHeads(
            self.store.name, windows.close, self.closing, self._heads_at_end, self.closes_at, self.resumes(), True
        )
        observe, wrap = observer(self.closing.watermark, settle_heads(heads, running, node, context))
        late = self.late_records(context)
        duration, step_ms, offset, grace = self.duration_ms, self.step_ms, self.offset_ms, self.grace_ms
        plan, fold, prefix_of = windows.plan, windows.plan.fold, windows.prefix
        note_change = self._make_timer(windows, running, node, context)

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            checked_time(timestamp)
            transaction, prefix = running(), prefix_of()
            opened = transaction.head(prefix) or []
            clock, changes = transaction.clock, []
            value_in = plan.input_of(value)
            # Compute everything before storing anything: an exception leaves the windows unchanged.
            for start in window_starts(timestamp, duration, step_ms, offset):
                if start + duration + grace <= clock:
                    late(value, key, timestamp, clock - grace - timestamp, max(start, 0), start + duration)
                    continue
                at = bisect_left(opened, [start])
                known = at < len(opened) and opened[at][0] == start
                count, state = opened[at][1:3] if known else (0, fold.initial(transaction))
                changes.append([start, count + 1, fold.step(state, value_in, timestamp, transaction), False])
            if changes:
                for window in changes:
                    at = bisect_left(opened, [window[0]])
                    known = at < len(opened) and opened[at][0] == window[0]
                    opened[at : at + known] = [window]
                windows.keep(transaction, prefix, opened)
                note_change()
            else:
                late.leave_out(value, key, timestamp, headers)
            observe(transaction, timestamp)

        return wrap(run, node)

    def _heads_at_end(self, transaction: TimedTransaction) -> Iterator[tuple[int, bytes, Any]]:
        return transaction.due(NEVER) if self.final else iter(())

    def _make_timer(
        self, windows: "_Parts", running: Callable[[], TimedTransaction], node: Node, context: OperatorContext
    ) -> Callable[[], None]:
        """Return the function to call for each change, after which changed parts are passed on in time."""
        if self.timer is None:
            return lambda: None
        every, timers = self.every_ms, cast("Callable[[], TimedTransaction]", context.store(self.timer))
        prefix = TimedTransaction.prefix(ALL)
        # Wall clock of the session, set by its first tick.
        now = 0

        def note_change() -> None:
            transaction = timers()
            if transaction.head(prefix) is None:
                transaction.set_head(prefix, True, now + every)

        def tick(moment: Tick, *, _node: Node = node) -> None:
            nonlocal now
            now = max(now, moment.now)
            transaction = timers()
            for _, found, _ in transaction.due(NEVER if moment.final else now):
                transaction.delete_head(found)
                windows.send_changed(running())

        context.on_tick(node, tick)
        return note_change

    def read(self, transaction: TimedTransaction, prefix: bytes) -> Iterator[dict[str, Any]]:
        """Yield the results of what this partition has counted."""
        plan = make_parts_plan(self.aggregation)
        for start, _, state, _ in transaction.head(prefix) or ():
            yield plan.output(max(start, 0), start + self.duration_ms, state, (), transaction)


class _Parts:
    """Passes on the parts of the windows of a partition."""

    def __init__(self, operator: PartialWindow, child: RecordHandler, context: OperatorContext) -> None:
        self.plan: Plan = make_parts_plan(operator.aggregation)
        self._duration, self._grace = operator.duration_ms, operator.grace_ms
        self._child = child
        self._source = PartSource(operator.store, context)

    def prefix(self) -> bytes:
        """Return the record key of the partition at work."""
        return TimedTransaction.prefix(self._source.name())

    def keep(self, transaction: TimedTransaction, prefix: bytes, opened: list[Any]) -> None:
        """Store the open windows."""
        if opened:
            transaction.set_head(prefix, opened, opened[0][0] + self._duration + self._grace)
        else:
            transaction.delete_head(prefix)

    def close(self, transaction: TimedTransaction, prefix: bytes, head: Any, key: Any, clock: int) -> None:
        """Close the windows that are due, the earliest first, and pass on their parts."""
        while head and head[0][0] + self._duration + self._grace <= clock:
            window = head[0]
            # One at a time: if an operator below fails on a window, the next windows are still stored.
            del head[0]
            self.keep(transaction, prefix, head)
            self._send(transaction, key, window, window[0] + self._duration)

    def send_changed(self, transaction: TimedTransaction) -> None:
        """Pass on the parts of open windows that have changed since."""
        prefix = self.prefix()
        opened = transaction.head(prefix) or []
        changed = [window for window in opened if not window[3]]
        if not changed:
            return
        # Windows that end later may still get their first record.
        reached = max(0, min(transaction.clock - self._grace, opened[0][0] + self._duration - 1))
        for window in changed:
            window[3] = True
            self.keep(transaction, prefix, opened)
            self._send(transaction, self._source.name(), window, reached)

    def _send(self, transaction: TimedTransaction, source: str, window: list[Any], reached: int) -> None:
        start, count, state, _ = window
        due(transaction.journal, self._child)([source, start, count, state], ALL, reached, None)
