"""Count windows: a number of records of a key, whatever their times.

The head of a key is `[number, windows]`: the number of its records since it last had no windows, and the open windows
in the order of their first records, each `[number of the first record, lowest time, highest time, state]`. Collected
values are in the timeline, with their numbers in place of times.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from streamrt.records import Headers
from streamrt.state.journal import due
from streamrt.state.transactions.timed import TimedTransaction
from streamrt.topology import Node, OperatorContext, RecordHandler
from streamrt.windows.closing import WindowOperator, log_no_key

__all__ = ["CountWindowOperator"]


@dataclass(frozen=True)
class CountWindowOperator(WindowOperator):
    """Aggregates `count` records of a key, in the order of their arrival.

    Attributes:
        count: number of records in a window.
        step: number of records between the starts of two windows: `count` for tumbling windows, 1 for sliding windows.
    """

    count: int = 2
    step: int = 2

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        running = self.running(context)
        no_key = log_no_key(self.store.name)
        plan, final, size, every = self.aggregation.plan(), self.final, self.count, self.step
        initial, step, output, collects = plan.fold.initial, plan.fold.step, plan.output, bool(plan.collectors)

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            if key is None:
                no_key()
                return
            transaction = running()
            prefix = transaction.prefix(key)
            head = transaction.head(prefix)
            number, windows = (0, []) if head is None else head
            value_in = plan.input_of(value)
            updated = []
            # Compute new windows before storing anything: an exception leaves the old windows unchanged.
            for first, low, high, state in windows:
                state = step(state, value_in, timestamp, transaction)
                updated.append([first, min(low, timestamp), max(high, timestamp), state])
            if number % every == 0:
                state = step(initial(transaction), value_in, timestamp, transaction)
                updated.append([number, timestamp, timestamp, state])
            if collects:
                transaction.timelines.add(prefix, number, plan.item_of(value))
            number += 1
            emitted = [] if final else updated
            full = updated[:1] if updated and number - updated[0][0] == size else []
            items: list[Any] = []
            if full:
                # Windows start at different records, so only the first window can be full.
                updated = updated[1:]
                if final:
                    emitted = full
                if collects:
                    items = [
                        item for _, _, item in transaction.timelines.items_with_arrival(prefix, full[0][0], number)
                    ]
                    transaction.timelines.delete(prefix, full[0][0], updated[0][0] if updated else number)
            if updated or number % every:
                transaction.set_head(prefix, [number, updated])
            else:
                transaction.delete_head(prefix)
            outputs = [(low, output(low, high, state, items, transaction)) for _, low, high, state in emitted]
            if full:
                plan.release([full[0][3]], transaction)
            # A window that is full is one of several records.
            emit = due(transaction.journal, child) if final else child
            for start, out in outputs:
                emit(out, key, start, None)

        return run

    def read(self, transaction: TimedTransaction, prefix: bytes) -> Iterator[dict[str, Any]]:  # noqa: D102
        plan, head = self.aggregation.plan(), transaction.head(prefix)
        number, windows = (0, []) if head is None else head
        for first, low, high, state in windows:
            items: list[Any] = []
            if plan.collectors:
                items = [item for _, _, item in transaction.timelines.items_with_arrival(prefix, first, number)]
            yield plan.output(low, high, state, items, transaction)
