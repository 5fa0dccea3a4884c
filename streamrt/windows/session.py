"""Session windows: records of a key that are not further apart than a gap, which is the same for all or follows from each.

A session is [first record, last record], emitted with an exclusive end of one millisecond more. A record covers the time
from its timestamp to its *reach*, which is its gap later, both inclusive. Records whose covered times meet are in one
session, so a record may merge several sessions into one; if it meets none, it starts a new one. A record is late if its
reach is before clock - grace. A session closes when the clock has passed its reach by its longest gap and the grace: by
then, no record can meet it that is not late.

The head of a key is `[clock, sessions]`: the highest event time among its records, and its open sessions in order, each
`[first, last, state]`, and with gaps that follow from the records `[first, last, state, reach, longest gap]`. Collected
values are in the timeline.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from operator import itemgetter
from typing import Any

from streamrt.operators.late import LateRecords
from streamrt.records import Headers
from streamrt.state.journal import due
from streamrt.state.transactions.timed import TimedTransaction
from streamrt.topics.durations import milliseconds
from streamrt.topology import Node, OperatorContext, RecordHandler
from streamrt.windows.closing import TimeWindowOperator

__all__ = ["DynamicSessionWindow", "GapOf", "SessionWindow", "gap_of"]

GapOf = Callable[[Any], "int | timedelta"]
"""Function of a record's value; returns the gap after it."""


def gap_of(function: GapOf, value: Any) -> int:
    """Return the gap after a record, in milliseconds.

    Raises:
        ConfigurationError: if the function returns no duration of at least 1 ms.
    """
    return milliseconds("the inactivity gap that the function returns", function(value), least=1)


@dataclass(frozen=True)
class SessionWindow(TimeWindowOperator):
    """Aggregates records in sessions.

    Attributes:
        gap_ms: maximum distance between two consecutive records of a session, in milliseconds.
    """

    gap_ms: int = 1

    def closes_at(self, head: Any) -> int | None:  # noqa: D102
        return head[1][0][1] + 2 * self.gap_ms + self.grace_ms + 1 if head[1] else None

    @property
    def most_open(self) -> int:  # noqa: D102
        return self.grace_ms // max(1, self.gap_ms) + 2

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        return self.executor(_Sessions(self, self.gap_ms, child, self.late_records(context)), child, node, context)

    def read(self, transaction: TimedTransaction, prefix: bytes) -> Iterator[dict[str, Any]]:  # noqa: D102
        return _read_sessions(self, transaction, prefix)


@dataclass(frozen=True)
class DynamicSessionWindow(TimeWindowOperator):
    """Aggregates records in sessions with a gap for each record.

    Attributes:
        gap: returns the gap after a record.
    """

    gap: GapOf = field(kw_only=True)

    def closes_at(self, head: Any) -> int | None:  # noqa: D102
        return min(map(_open_until, head[1])) + self.grace_ms + 1 if head[1] else None

    @property
    def most_open(self) -> int:  # noqa: D102
        return self.grace_ms + 2

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        return self.executor(_Sessions(self, self.gap, child, self.late_records(context)), child, node, context)

    def read(self, transaction: TimedTransaction, prefix: bytes) -> Iterator[dict[str, Any]]:  # noqa: D102
        return _read_sessions(self, transaction, prefix)


def _read_sessions(
    operator: TimeWindowOperator, transaction: TimedTransaction, prefix: bytes
) -> Iterator[dict[str, Any]]:
    """Yield the sessions of a key as results."""
    plan, head = operator.aggregation.plan(by_arrival=True), transaction.head(prefix)
    for first, last, state, *_ in [] if head is None else head[1]:
        items: list[Any] = []
        if plan.collectors:
            items = [item for _, _, item in transaction.timelines.items_with_arrival(prefix, first, last + 1)]
        yield plan.output(first, last + 1, state, items, transaction)


class _Sessions:
    """Updates and closes the sessions of a key.

    Args:
        operator: the window.
        gap: the gap after each record, or the function that returns it.
        child: takes the results.
        late: takes late records.
    """

    def __init__(
        self, operator: SessionWindow | DynamicSessionWindow, gap: int | GapOf, child: RecordHandler, late: LateRecords
    ) -> None:
        self._plan = operator.aggregation.plan(by_arrival=True)
        self._collects = bool(self._plan.collectors)
        self._grace = operator.grace_ms
        self._final = operator.final
        self._by_key = operator.closing.by_key
        self._late = late
        self._child = child
        self._function = gap if callable(gap) else None
        self._gap = 0 if callable(gap) else gap
        self._reach: Callable[[list[Any]], int]
        # With equal gaps, the first session closes first.
        self._closes_at: Callable[[list[list[Any]]], int]
        if callable(gap):
            wait = operator.grace_ms + 1
            self._reach = itemgetter(3)
            self._closes_at = lambda sessions: min(map(_open_until, sessions)) + wait
        else:
            open_for = 2 * gap + operator.grace_ms + 1
            self._reach = lambda session: session[1] + gap
            self._closes_at = lambda sessions: sessions[0][1] + open_for

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
        gap = self._gap if self._function is None else gap_of(self._function, value)
        reach = timestamp + gap
        if reach < clock - self._grace:
            self._late(value, key, timestamp, clock - self._grace - reach, timestamp, timestamp + 1)
            self._late.leave_out(value, key, timestamp, headers)
            return []
        plan = self._plan
        fold = plan.fold
        sessions: list[list[Any]] = [] if head is None else head[1]
        # Covered times of sessions do not meet, so those that meet the record's are neighbours.
        low = bisect_left(sessions, timestamp, key=self._reach)
        high = low
        while high < len(sessions) and sessions[high][0] <= reach:
            high += 1
        first, last, state = sessions[low][:3] if low < high else (timestamp, timestamp, fold.initial(transaction))
        state = fold.step(state, plan.input_of(value), timestamp, transaction)
        for _, later, other, *_ in sessions[low + 1 : high]:
            last = max(last, later)
            # The definition of the window has checked that `merge` is not None.
            state = fold.merge(state, other, transaction)  # type: ignore[misc]
        first, last = min(first, timestamp), max(last, timestamp)
        if self._collects:
            transaction.timelines.add(prefix, timestamp, plan.item_of(value))
        session = [first, last, state]
        if self._function is not None:
            for *_, other_reach, other_gap in sessions[low:high]:
                reach, gap = max(reach, other_reach), max(gap, other_gap)
            session += [reach, gap]
        sessions[low:high] = [session]
        if head is None:
            head = [timestamp, sessions]
        elif timestamp > head[0]:
            head[0] = timestamp
        self._keep_head(transaction, prefix, head)
        return [] if self._final else [(first, plan.output(first, last + 1, state, (), transaction))]

    def close(self, transaction: TimedTransaction, prefix: bytes, head: Any, key: Any, clock: int) -> None:
        """Close the due sessions of a head, the one that is due first before the others, and emit them."""
        sessions = head[1]
        while sessions and self._closes_at(sessions) <= clock:
            session = sessions[0] if self._function is None else min(sessions, key=_open_until)
            first, last, state = session[:3]
            items: list[Any] = []
            if self._collects:
                items = [item for _, _, item in transaction.timelines.items_with_arrival(prefix, first, last + 1)]
                transaction.timelines.delete(prefix, first, last + 1)
            # One at a time: if an operator below fails on a session, the next sessions are still stored.
            sessions.remove(session)
            self._keep_head(transaction, prefix, head)
            output = self._plan.output(first, last + 1, state, items, transaction) if self._final else None
            self._plan.release((state,), transaction)
            if output is not None:
                due(transaction.journal, self._child)(output, key, first, None)

    def _keep_head(self, transaction: TimedTransaction, prefix: bytes, head: Any) -> None:
        if self._by_key:
            transaction.set_head(prefix, head)
        elif head[1]:
            transaction.set_head(prefix, head, self._closes_at(head[1]))
        else:
            transaction.delete_head(prefix)


def _open_until(session: list[Any]) -> int:
    """Return when a session closes that has its reach and its longest gap, without the grace."""
    until: int = session[3] + session[4]
    return until
