"""Session windows whose gap follows from the records.

A record covers the time from its timestamp to its *reach*, which is its gap later, both inclusive. Records whose covered
times meet are in one session. With equal gaps, these are the sessions of `session.py`: a record is late if its reach is
before clock - grace, and a session closes when the clock has passed its reach by its longest gap and the grace.

The head of a key is `[clock, sessions]`: the highest event time among its records, and its open sessions in order, each
`[first, last, state, reach, longest gap]`. Collected values are in the timeline.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from streamrt.operators.durations import milliseconds
from streamrt.records import Headers
from streamrt.state.timed import TimedTransaction
from streamrt.topology import Node, OperatorContext, RecordHandler
from streamrt.windows.closing import TimeWindowOperator
from streamrt.windows.late import LateRecords
from streamrt.windows.session import read_sessions

__all__ = ["DynamicSessionWindow", "GapOf", "gap_of"]

GapOf = Callable[[Any], "int | timedelta"]
"""Function of a record's value; returns the gap after it."""


def gap_of(function: GapOf, value: Any) -> int:
    """Return the gap after a record, in milliseconds.

    Raises:
        ConfigurationError: if the function returns no duration of at least 1 ms.
    """
    return milliseconds("the inactivity gap that the function returns", function(value), least=1)


@dataclass(frozen=True)
class DynamicSessionWindow(TimeWindowOperator):
    """Aggregates records in sessions with a gap for each record.

    Attributes:
        gap: returns the gap after a record.
    """

    gap: GapOf = field(kw_only=True)

    def closed_at(self, head: Any) -> int | None:  # noqa: D102
        return max((_closed_at(session, self.grace_ms) for session in head[1]), default=None)

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        return self.executor(_Sessions(self, child, self.late_records(context)), child, node, context)

    def read(self, transaction: TimedTransaction, prefix: bytes) -> Iterator[dict[str, Any]]:  # noqa: D102
        return read_sessions(self, transaction, prefix)


class _Sessions:
    """Updates and closes the sessions of a key."""

    def __init__(self, operator: DynamicSessionWindow, child: RecordHandler, late: LateRecords) -> None:
        self._plan = operator.aggregation.plan()
        self._collects = bool(self._plan.collectors)
        self._gap = operator.gap
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
        """Count a record in its session, and return the outputs."""
        gap = gap_of(self._gap, value)
        reach = timestamp + gap
        if reach < clock - self._grace:
            self._late(value, key, timestamp, clock - self._grace - reach, timestamp, timestamp + 1)
            self._late.leave_out(value, key, timestamp, headers)
            return []
        plan, fold = self._plan, self._plan.fold
        sessions: list[list[Any]] = [] if head is None else head[1]
        met = [session for session in sessions if session[0] <= reach and timestamp <= session[3]]
        first, last, state = met[0][:3] if met else (timestamp, timestamp, fold.initial(transaction))
        state = fold.step(state, plan.input_of(value), timestamp, transaction)
        for _, later, other, *_ in met[1:]:
            last = max(last, later)
            # The definition of the window has checked that `merge` is not None.
            state = fold.merge(state, other, transaction)  # type: ignore[misc]
        first, last = min(first, timestamp), max(last, timestamp)
        if self._collects:
            transaction.timelines.add(prefix, timestamp, plan.item_of(value))
        reach, gap = max([reach, *(each[3] for each in met)]), max([gap, *(each[4] for each in met)])
        rest = [session for session in sessions if session not in met]
        sessions = sorted([*rest, [first, last, state, reach, gap]], key=_first)
        if head is None:
            head = [timestamp, sessions]
        else:
            head[:] = [max(head[0], timestamp), sessions]
        self._keep(transaction, prefix, head)
        return [] if self._final else [(first, plan.output(first, last + 1, state, (), transaction))]

    def close(self, transaction: TimedTransaction, prefix: bytes, head: Any, key: Any, clock: int) -> None:
        """Close the due sessions of a head, the earliest first, and emit them."""
        sessions = head[1]
        while sessions and self._closes(due := min(sessions, key=self._closes)) <= clock:
            first, last, state, *_ = due
            items: list[Any] = []
            if self._collects:
                items = [item for _, _, item in transaction.timelines.items_with_arrival(prefix, first, last + 1)]
                transaction.timelines.delete(prefix, first, last + 1)
            # One at a time: if an operator below fails on a session, the next sessions are still stored.
            sessions.remove(due)
            self._keep(transaction, prefix, head)
            if self._final:
                self._child(self._plan.output(first, last + 1, state, items, transaction), key, first, None)

    def _closes(self, session: list[Any]) -> int:
        return _closed_at(session, self._grace)

    def _keep(self, transaction: TimedTransaction, prefix: bytes, head: Any) -> None:
        if self._by_key:
            transaction.set_head(prefix, head)
        elif head[1]:
            transaction.set_head(prefix, head, min(map(self._closes, head[1])))
        else:
            transaction.delete_head(prefix)


def _closed_at(session: list[Any], grace_ms: int) -> int:
    closed: int = session[3] + session[4] + grace_ms + 1
    return closed


def _first(session: list[Any]) -> int:
    first: int = session[0]
    return first
