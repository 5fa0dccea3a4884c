"""The second phase of windows over a whole stream: one task merges the parts that partitions have aggregated.

The head is the list of the open windows in the order of their starts, each `[start, parts]`; the parts are a dict of
`[count, state]` by the partition that has sent them. They are merged in the order of these names, so that the result does
not depend on the order in which parts arrive. Windows that are not final remember what is merged (`PartsMerger`): a result
for each part of many partitions would otherwise cost a merge of all.
"""

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from streamrt.common.throttle import Throttle
from streamrt.operators.closing import Closing, DueHeads, settle_heads
from streamrt.operators.observing import observer
from streamrt.records import Headers
from streamrt.state.journal import due
from streamrt.state.transactions.timed import NEVER, TimedTransaction
from streamrt.topology import Node, OperatorContext, RecordHandler, SideOutput, WatermarkStrategy
from streamrt.topology.tallies import LATE_RECORDS
from streamrt.windows.aggregation import Plan
from streamrt.windows.closing import TimeWindowOperator
from streamrt.windows.partial_window import PartialWindow
from streamrt.windows.parts import PartsMerger, make_parts_plan

__all__ = ["MergedWindow"]

logger = logging.getLogger("streamrt")

_INTERVAL_S: Final = 30.0


@dataclass(frozen=True)
class MergedWindow(TimeWindowOperator):
    """Merges the parts of windows; see `PartialWindow`.

    Attributes:
        duration_ms: length of a window, in milliseconds.
        step_ms: distance between the starts of two windows, in milliseconds.
    """

    name: ClassVar[str] = "window_all"
    duration_ms: int = 1
    step_ms: int = 1

    @classmethod
    def of(cls, parts: PartialWindow) -> "MergedWindow":
        """Return the second phase of a first one, still without a store."""
        strategy = parts.closing.watermark or WatermarkStrategy()
        # The first phase has waited for late records. While all is quiet, it is as far as the last part says, and not
        # farther: the next one may come.
        clock = WatermarkStrategy(idle_timeout=strategy.idle_timeout, when_all_idle="hold")
        return cls(
            store=parts.store,
            aggregation=parts.aggregation,
            final=parts.final,
            closing=Closing("watermark", clock),
            duration_ms=parts.duration_ms,
            step_ms=parts.step_ms,
        )

    def side_outputs(self) -> tuple[SideOutput, ...]:
        """Late records are those of the first phase."""
        return ()

    @property
    def holds_back_ms(self) -> int | None:
        """A result has the start of its window as timestamp."""
        return self.duration_ms

    @property
    def most_open(self) -> int:  # noqa: D102
        return self.duration_ms // self.step_ms + 1

    def closes_at(self, head: Any) -> int | None:  # noqa: D102
        return head[0][0] + self.duration_ms if head else None

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        running, final, duration = self.running(context), self.final, self.duration_ms
        plan, output = make_parts_plan(self.aggregation), self._merge
        # By start of the window; those that are not open any more are forgotten.
        mergers: dict[int, PartsMerger] = {}
        report_late = self._make_late_report(context)

        def close(transaction: TimedTransaction, prefix: bytes, head: Any, key: Any, clock: int) -> None:
            while head and head[0][0] + duration <= clock:
                start, parts = head[0]
                # One at a time: if an operator below fails on a window, the next windows are still stored.
                del head[0]
                self._keep(transaction, prefix, head)
                mergers.pop(start, None)
                if final:
                    result = output(plan, start, parts, transaction, PartsMerger(plan))
                    due(transaction.journal, child)(result, key, max(start, 0), None)

        heads = DueHeads(
            self.store.name, close, self.closing, self._heads_at_end, self.closes_at, self.resumes(), self.ends()
        )
        observe, wrap = observer(self.closing.watermark, settle_heads(heads, running, node, context))

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            transaction = running()
            prefix = transaction.prefix(key)
            source, start, count, state = value
            head = transaction.head(prefix) or []
            result = None
            if start + duration <= transaction.clock:
                report_late(source, start, count)
            else:
                at = bisect_left(head, [start])
                if at == len(head) or head[at][0] != start:
                    head.insert(at, [start, {}])
                parts = head[at][1]
                # A part that a crash has repeated changes nothing.
                if parts.get(source) != [count, state]:
                    parts[source] = [count, state]
                    self._keep(transaction, prefix, head)
                    if not final:
                        merger = mergers.setdefault(start, PartsMerger(plan))
                        result = output(plan, start, parts, transaction, merger)
            observe(transaction, timestamp)
            if result is not None:
                child(result, key, max(start, 0), None)

        return wrap(run, node)

    def _keep(self, transaction: TimedTransaction, prefix: bytes, head: list[Any]) -> None:
        if head:
            transaction.set_head(prefix, head, head[0][0] + self.duration_ms)
        else:
            transaction.delete_head(prefix)

    def _heads_at_end(self, transaction: TimedTransaction) -> Iterator[tuple[int, bytes, Any]]:
        # Windows that are not final have been passed on, and a later run continues them.
        return transaction.due(NEVER) if self.final else iter(())

    def _merge(
        self, plan: Plan, start: int, parts: dict[str, Any], transaction: TimedTransaction, merger: PartsMerger
    ) -> dict[str, Any]:
        """Return the result of a window."""
        state = merger.merge([parts[source][1] for source in sorted(parts)], transaction)
        return plan.output(max(start, 0), start + self.duration_ms, state, (), transaction)

    def _make_late_report(self, context: OperatorContext) -> Callable[[str, int, int], None]:
        """Return the function that reports a part which came after the result of its window."""
        store, duration, throttle, late = self.store.name, self.duration_ms, Throttle(_INTERVAL_S), 0
        context.watch(LATE_RECORDS, store, lambda: late)

        def report(source: str, start: int, count: int) -> None:
            nonlocal late
            late += count
            if throttle.admit():
                logger.warning(
                    "%d records of %s are not in the result of the window %d to %d of %r, which was already complete: their "
                    "partition was idle for longer than the idle timeout, and went on with old records; a longer "
                    "idle_timeout_ms waits for it%s",
                    *(count, source, max(start, 0), start + duration, store),
                    f" (like {throttle.rejected} more parts since the last warning)" if throttle.rejected else "",
                )

        return report

    def read(self, transaction: TimedTransaction, prefix: bytes) -> Iterator[dict[str, Any]]:
        """Yield the open windows with what has been merged so far."""
        plan = make_parts_plan(self.aggregation)
        for start, parts in transaction.head(prefix) or ():
            yield self._merge(plan, start, parts, transaction, PartsMerger(plan))
