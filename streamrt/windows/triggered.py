"""Windows with triggers: any assigner, any trigger, with an evictor and a window function.

For each record: its windows are assigned (and merged), late ones are left out, the record is added, the trigger decides, and
a window that fires is emitted. Each window has a timer for its end, at its last millisecond plus the grace period; then
its content and its states are deleted. Timers of the trigger and this one are in the same order, and the same one if their
times are equal.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, cast

from streamrt.operators.closing import Closing, checked_time
from streamrt.operators.endings import Endings
from streamrt.operators.late import LATE, LateRecords, OnLate
from streamrt.records import Headers, Tick
from streamrt.state.journal import due
from streamrt.state.layout import split_pane
from streamrt.state.spec import ProcessStoreSpec
from streamrt.state.transactions.panes import PaneTransaction
from streamrt.state.transactions.timers import NEVER, Timers
from streamrt.topology import Node, Operator, OperatorContext, RecordHandler, SideOutput, WatermarkStrategy
from streamrt.topology.node import numbers_of
from streamrt.topology.tallies import LATE_RECORDS, TIMERS
from streamrt.windows.closing import log_no_key
from streamrt.windows.pane_work import Output, PaneRules, Panes
from streamrt.windows.panes import Contents
from streamrt.windows.window import END_OF_TIME, Window

__all__ = ["DELAY_MS", "TriggeredWindow"]

DELAY_MS: Final = 1
"""How much later than its time a timer is due: a watermark is below all later records."""

_BY_PARTITION: Final = Closing("partition")


@dataclass(frozen=True)
class TriggeredWindow(PaneRules, Operator):
    """Runs windows with triggers.

    Attributes:
        store: the store of the windows.
        closing: the clock of event time.
        on_late: called for each late record and each window that it missed.
    """

    name: ClassVar[str] = "window"
    store: ProcessStoreSpec = field(kw_only=True)
    closing: Closing = _BY_PARTITION
    on_late: OnLate | None = None

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        execution = _Execution(self, child, node, context)
        context.on_tick(node, execution.tick)
        return execution.process

    def describe(self) -> str:  # noqa: D102
        return f"{self.store.name}, {self.trigger.describe()}"

    def stores(self) -> tuple[ProcessStoreSpec, ...]:  # noqa: D102
        return (self.store,)

    def keeps(self) -> tuple[str, ...]:
        """Return the kind of the windows with their lengths, and what is kept of their elements."""
        kept = ("elements",) if self.aggregation is None else self.aggregation.keeps()
        return (*super().keeps(), type(self.assigner).__name__, *numbers_of(self.assigner), *numbers_of(self), *kept)

    def watermarks(self) -> tuple[tuple[str, WatermarkStrategy], ...]:  # noqa: D102
        return self.closing.watermarks(self.store.name)

    def wall_clock_stores(self) -> tuple[str, ...]:
        """The store reports deadlines of both kinds."""
        return (self.store.name,)

    def side_outputs(self) -> tuple[SideOutput, ...]:
        """Late records, and those of the window function."""
        late = (LATE,) if self.by_event_time else ()
        return (*late, *(SideOutput(tag, late=True) for tag in self.tags))

    @property
    def holds_back_ms(self) -> int | None:
        """Results have the start of their window as timestamp, with no bound on its age."""
        return None

    @property
    def collects(self) -> bool:
        """Whether the values of open windows are kept, one by one."""
        return self.keeps_elements

    def read(self, transaction: PaneTransaction, prefix: bytes, window: Window) -> tuple[Window, Any] | None:
        """Return a window as it would be emitted now, without evictor and window function; nothing is changed.

        Args:
            transaction: a transaction with the content of the window, and the elements of its record key.
            prefix: prefix of the record key, without a space.
            window: the window.

        Returns:
            The window, for a global window the bounds of its records, and the aggregate; without an aggregation a list of
            the values. None if the window has no records.
        """
        plan = None if self.aggregation is None else self.aggregation.plan(by_arrival=True)
        contents = Contents(plan, keeps=self.collects, stays=False)
        pane = contents.read(transaction, prefix, window)
        if pane is None or not pane.count:
            return None
        values = [value for _, value in contents.elements(transaction, prefix, pane)]
        if window.end == END_OF_TIME:
            window = Window(pane.low or 0, pane.high or 0)
        return window, values if plan is None else plan.aggregate(pane.state, values, transaction.packing)

    def multiplies_records(self) -> bool:  # noqa: D102
        return True

    def resumes(self) -> bool:  # noqa: D102
        return True

    def timed(self) -> bool:  # noqa: D102
        return True

    def ends(self) -> bool:
        """Timers of event time fire, and those of processing time are dropped."""
        return True


class _Execution:
    """Windows with a trigger at work, in one process, for all tasks of a stream."""

    def __init__(self, operator: TriggeredWindow, child: RecordHandler, node: Node, context: OperatorContext) -> None:
        self._child = child
        self._node = node
        self._store = operator.store.name
        self._by_partition = operator.closing.by_partition
        self._strategy = operator.closing.watermark
        self._running = cast("Callable[[], PaneTransaction]", context.store(operator.store))
        self._begin_portion, self._when_complete = context.begin_portion, context.when_complete
        outputs: Mapping[str, RecordHandler | None] = {tag: context.side_output(tag) for tag in operator.tags}
        side = context.side_output(LATE.tag) if operator.by_event_time else None
        self._endings = Endings(operator.trigger.describe(), self._store)
        self._at_end = False
        late = LateRecords(self._store, operator.on_late, side)
        context.watch(LATE_RECORDS, self._store, lambda: late.count)
        self._fired = 0
        context.watch(TIMERS, self._store, lambda: self._fired)
        self._panes = Panes(operator, late, outputs, context.access(operator.store).metrics)
        self.process: RecordHandler = self._process_of(node)
        self.tick: Callable[[Tick], None] = self._handle_tick

    def _process_of(self, node: Node) -> RecordHandler:
        running, panes, child, by_partition = self._running, self._panes, self._child, self._by_partition
        no_key = log_no_key(self._store)

        def process(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            if key is None:
                no_key()
                return
            checked_time(timestamp)
            transaction = running()
            if timestamp > transaction.clock:
                transaction.clock = timestamp
            for result, time in panes.add(transaction, value, key, timestamp, headers):
                child(result, key, time, None)
            if by_partition:
                if timestamp > transaction.event_time:
                    transaction.event_time = timestamp
            elif timestamp > transaction.moves_from:
                transaction.move(timestamp)
            # Also if time has not moved: the record may have registered a timer that is due at once.
            if transaction.event_timers.due_from <= transaction.event_time - DELAY_MS:
                self._when_complete(node, self._fire_due)

        generator = None if self._strategy is None else self._strategy.generator
        return process if generator is None else self._with_generator(process, node)

    def _with_generator(self, process: RecordHandler, node: Node) -> RecordHandler:
        """Return the handler of records for a strategy with a generator."""
        marks = cast("WatermarkStrategy", self._strategy).marks()

        def generate(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            # First: if the generator fails, the record has no effect.
            mark = marks(value, timestamp)
            process(value, key, timestamp, headers)
            if key is not None and self._running().note_mark(mark):
                self._when_complete(node, self._fire_due)

        return generate

    def _fire_due(self) -> None:
        """Fire the timers of event time that records have made due."""
        # For errors.
        _node = self._node
        transaction = self._running()
        bound = transaction.event_time - DELAY_MS
        self._fire_timers(transaction, transaction.event_timers, bound, self._panes.on_event_time)

    def _handle_tick(self, moment: Tick) -> None:
        _node = self._node
        transaction = self._running()
        if moment.final:
            self._fire_remaining(transaction)
            return
        if not self._by_partition:
            others, watermark = moment.others.get(self._store), moment.watermarks.get(self._store)
            transaction.hear(others, watermark, still=moment.still)
        bound = transaction.event_time - DELAY_MS
        if self._fire_timers(transaction, transaction.event_timers, bound, self._panes.on_event_time):
            # A window by the wall clock ends when its last millisecond is over.
            bound = moment.now - DELAY_MS
            self._fire_timers(transaction, transaction.processing_timers, bound, self._panes.on_processing_time)

    def _fire_timers(
        self,
        transaction: PaneTransaction,
        timers: Timers,
        bound: int,
        fire: Callable[[PaneTransaction, bytes, Any, Window, int], Sequence[Output]],
    ) -> bool:
        """Fire the timers that are due, in the order of their times; return False if the portion is over before."""
        must_stop: Callable[[], bool] | None = None
        while (timer := timers.due(bound)) is not None:
            if must_stop is None:
                must_stop = self._begin_portion(self._node)
            if must_stop():
                return False
            timers.fire(timer)
            self._fired += 1
            time, pane = timer
            prefix, _, start, end = split_pane(pane)
            key = transaction.key_of(prefix)
            for result, timestamp in fire(transaction, prefix, key, Window(start, end), time):
                due(transaction.journal, self._child)(result, key, timestamp, None)
            if self._at_end and end == END_OF_TIME:
                # No other window outlives the timer of its end.
                self._endings.note(timers, pane, key)
        return True

    def _fire_remaining(self, transaction: PaneTransaction) -> None:
        """Fire all timers of event time, and drop those of processing time; no clock moves."""
        clock = transaction.event_time
        # Windows are over, and triggers see it. The stamp must not: records of the next run would be late.
        self._at_end, transaction.event_time = True, END_OF_TIME
        try:
            over = self._fire_timers(transaction, transaction.event_timers, NEVER, self._panes.on_event_time)
        finally:
            self._at_end, transaction.event_time = False, clock
        if over:
            self._endings.drop(transaction.processing_timers, self._begin_portion(self._node))
