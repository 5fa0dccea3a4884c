"""Session windows: records of a key that are not further apart than a gap.

A session is [first record, last record], emitted with an exclusive end of one millisecond more. A record joins the
sessions that are at most the gap away; it may merge two sessions into one. Without such a session, it starts a new one.
Records older than clock - gap - grace are late, so a session that ended more than two gaps and the grace ago cannot
change any more and is closed.

The head of a key is `[clock, sessions]`: the highest event time among its records, and its open sessions in order, each
`[first, last, state]`. Collected values are in the timeline.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from streamrt.records import Headers
from streamrt.state.timed import TimedTransaction
from streamrt.topology import Node, OperatorContext, RecordHandler
from streamrt.windows.closing import TimeWindowOperator
from streamrt.windows.late import LateRecords

__all__ = ["SessionWindow", "read_sessions"]


@dataclass(frozen=True)
class SessionWindow(TimeWindowOperator):
    """Aggregates records in sessions.

    Attributes:
        gap_ms: maximum distance between two consecutive records of a session, in milliseconds.
    """

    gap_ms: int = 1

    def closed_at(self, head: Any) -> int | None:  # noqa: D102
        return head[1][-1][1] + 2 * self.gap_ms + self.grace_ms + 1 if head[1] else None

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        return self.executor(_Sessions(self, child, self.late_records(context)), child, node, context)

    def read(self, transaction: TimedTransaction, prefix: bytes) -> Iterator[dict[str, Any]]:  # noqa: D102
        return read_sessions(self, transaction, prefix)


def read_sessions(
    operator: TimeWindowOperator, transaction: TimedTransaction, prefix: bytes
) -> Iterator[dict[str, Any]]:
    """Yield the sessions of a key as results; sessions begin with `[first, last, state]`."""
    plan, head = operator.aggregation.plan(), transaction.head(prefix)
    for first, last, state, *_ in [] if head is None else head[1]:
        items: list[Any] = []
        if plan.collectors:
            items = [item for _, _, item in transaction.timelines.items_with_arrival(prefix, first, last + 1)]
        yield plan.output(first, last + 1, state, items, transaction)


class _Sessions:
    """Updates and closes the sessions of a key."""

    def __init__(self, operator: SessionWindow, child: RecordHandler, late: LateRecords) -> None:
        self._plan = operator.aggregation.plan()
        self._collects = bool(self._plan.collectors)
        self._gap = operator.gap_ms
        self._wait = operator.gap_ms + operator.grace_ms
        self._open_for = operator.gap_ms + self._wait + 1
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
        """Count a record in its session, and return the outputs."""
        if timestamp < clock - self._wait:
            self._late(value, key, timestamp, clock - self._wait - timestamp, timestamp, timestamp + 1)
            self._late.leave_out(value, key, timestamp, headers)
            return []
        plan = self._plan
        fold = plan.fold
        sessions: list[list[Any]] = [] if head is None else head[1]
        # Sessions are more than a gap apart, so a record can join at most two neighbours.
        low = bisect_left(sessions, timestamp - self._gap, key=_last)
        high = low
        while high < len(sessions) and sessions[high][0] <= timestamp + self._gap:
            high += 1
        first, last, state = sessions[low] if low < high else (timestamp, timestamp, fold.initial(transaction))
        state = fold.step(state, plan.input_of(value), timestamp, transaction)
        for _, later, other in sessions[low + 1 : high]:
            last = later
            # The definition of the window has checked that `merge` is not None.
            state = fold.merge(state, other, transaction)  # type: ignore[misc]
        first, last = min(first, timestamp), max(last, timestamp)
        if self._collects:
            transaction.timelines.add(prefix, timestamp, plan.item_of(value))
        sessions[low:high] = [[first, last, state]]
        if head is None:
            head = [timestamp, sessions]
        elif timestamp > head[0]:
            head[0] = timestamp
        self._keep(transaction, prefix, head)
        return [] if self._final else [(first, plan.output(first, last + 1, state, (), transaction))]

    def close(self, transaction: TimedTransaction, prefix: bytes, head: Any, key: Any, clock: int) -> None:
        """Close the due sessions of a head, the earliest first, and emit them."""
        sessions = head[1]
        while sessions and sessions[0][1] + self._open_for <= clock:
            first, last, state = sessions[0]
            items: list[Any] = []
            if self._collects:
                items = [item for _, _, item in transaction.timelines.items_with_arrival(prefix, first, last + 1)]
                transaction.timelines.delete(prefix, first, last + 1)
            # One at a time: if an operator below fails on a session, the next sessions are still stored.
            del sessions[0]
            self._keep(transaction, prefix, head)
            if self._final:
                self._child(self._plan.output(first, last + 1, state, items, transaction), key, first, None)

    def _keep(self, transaction: TimedTransaction, prefix: bytes, head: Any) -> None:
        if self._by_key:
            transaction.set_head(prefix, head)
        elif head[1]:
            transaction.set_head(prefix, head, head[1][0][1] + self._open_for)
        else:
            transaction.delete_head(prefix)


def _last(session: list[Any]) -> int:
    last: int = session[1]
    return last
