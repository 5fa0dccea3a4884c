"""`maintain`: merges requests to write a table into its rows, and writes these."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from streamrt.errors import SchemaMismatchError
from streamrt.records import Headers, Tick, TimestampType
from streamrt.relations.adoption import RowAdoption, TakeRow
from streamrt.relations.change import PassOn, decode_row, encode_row, make_pass_on, row_time, rows_differ
from streamrt.relations.merge_rules import RowMerger
from streamrt.relations.upserts import topic_and_key
from streamrt.state.journal import due
from streamrt.state.layout import LATEST_EXPIRY
from streamrt.state.spec import StoreSpec
from streamrt.state.transactions.process_functions import ProcessTransaction
from streamrt.state.transactions.timers import Timers
from streamrt.tables.descriptions.topics import TableTopic
from streamrt.topology import Node, Operator, OperatorContext, RecordHandler, SourceOperator, StateAccess, Topology

if TYPE_CHECKING:
    from streamrt.state.access.keyed_state import KeyedState
    from streamrt.tables.access.task_links import TaskLinks

__all__ = ["Maintain", "find_request_topics", "find_row_topics"]

_ROW: Final = "row"
_SHARE: Final = 16
_SHORTEST_BEAT_MS: Final = 1_000
_LONGEST_BEAT_MS: Final = 600_000
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)

WriteChange = Callable[[Any, Any, Any, int], None]
"""Writes what a change of a row was: takes the former and the present row, key and timestamp."""


@dataclass(frozen=True)
class Maintain(Operator):
    """Merges requests into the rows of a table, writes the rows that change, and passes on their changes.

    The store has the present rows by their keys. Without `ttl_ms`, their times are those of their requests. With it, they are
    the event time of the partition when the last request for them came, and a timer finds them when they may be too old.

    Attributes:
        topic: the topic of the table.
        merger: the rules.
        store: the store of the rows.
        changelog: the topic of the changes; None if they are not written.
        task_links: how tasks read the rows that the table has before; None in the test driver, whose tables have none.
    """

    name: ClassVar[str] = "maintain"
    in_place: ClassVar[bool] = True
    topic: TableTopic
    merger: RowMerger
    store: StoreSpec
    changelog: TableTopic | None = None
    task_links: TaskLinks | None = field(default=None, compare=False, repr=False)

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        from streamrt.tables.descriptions.requests import read_op

        apply = self._make_apply(child, context)
        upsert, delete, read = self.merger.make_upsert(), self.merger.make_delete(), self.merger.make_reader()
        _, make_key = topic_and_key(self.topic)

        def merge(request: Any, key: Any, headers: Headers | None, before: Any) -> Any:
            if key is None:
                raise SchemaMismatchError("a request to write a row must have a key")
            # A record without a value reaches no deserializer.
            op, columns = (read_op(headers), None) if request is None else request
            after = (upsert if op == "u" else delete)(before, columns)
            if before is None and after is not None and make_key(after) != key:
                raise SchemaMismatchError("the key of the record is not that of its columns")
            return after

        pass_on = make_pass_on(child, context)
        if self.merger.rules.ttl_ms is not None:
            expiring = _ExpiringRows(self, apply, merge, read, pass_on, node, context)
            self._adopt_rows(expiring.take, expiring.state_of, node, context)
            return expiring.make_handler()
        state_of, repeats = context.state(self.store), context.repeats_records

        def run(request: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            state = state_of(key, timestamp)
            before = _read_row(state, read)
            after = merge(request, key, headers, before)
            changed = after is not before and rows_differ(before, after)
            if changed:
                _store_row(state, after, timestamp)
            if changed or repeats:
                apply(before, after, key, timestamp, headers)

        def take(key: Any, row: Any, timestamp: int) -> None:
            state = state_of(key, timestamp)
            before = _read_row(state, read)
            _store_row(state, row, timestamp)
            pass_on(before, row, key, timestamp, None)

        self._adopt_rows(take, state_of, node, context)
        return run

    def _adopt_rows(self, take: TakeRow, state_of: StateAccess, node: Node, context: OperatorContext) -> None:
        """Let ticks take the rows that the table has already."""
        if self.task_links is not None:
            adoption = RowAdoption(
                self.topic, self.task_links, take, state_of, context.access(self.store), node, context
            )
            context.on_tick(node, adoption.handle_tick)

    def _make_apply(self, child: RecordHandler, context: OperatorContext) -> _Apply:
        """Return the function that writes a change of a row, and passes it on."""
        send, pass_on, time_of = (
            context.sender(self.topic),
            make_pass_on(child, context),
            self.topic.timestamp_extractor,
        )
        log = None if self.changelog is None else _make_log(context.sender(self.changelog))

        def apply(before: Any, after: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
            if rows_differ(before, after):
                at = timestamp
                if after is not None and time_of is not None:
                    at = time_of(after, None, timestamp, TimestampType.TIMESTAMP_CREATE_TIME)
                send(after, key, at, None)
                if log is not None:
                    log(before, after, key, timestamp)
            pass_on(before, after, key, timestamp, None)

        return apply

    def describe(self) -> str:  # noqa: D102
        return self.topic.table

    def keeps(self) -> tuple[str, ...]:
        """Return what the store has, and for how long."""
        ttl = self.merger.rules.ttl_ms
        return (*super().keeps(), *(() if ttl is None else (f"ttl_ms={ttl}",)))

    def keeps_columns(self, columns: tuple[str, ...]) -> bool:  # noqa: D102
        return False

    def stores(self) -> tuple[StoreSpec, ...]:  # noqa: D102
        return (self.store,)

    @property
    def _expires(self) -> bool:
        return self.merger.rules.ttl_ms is not None

    def multiplies_records(self) -> bool:
        """A request may let rows of other keys expire."""
        return self._expires

    def wall_clock_stores(self) -> tuple[str, ...]:  # noqa: D102
        return (self.store.name,) if self._expires else ()

    @property
    def holds_back_ms(self) -> int | None:
        """A row that expires has the time of its deadline."""
        return None if self._expires else 0

    def resumes(self) -> bool:  # noqa: D102
        return self._expires or self.task_links is not None

    def timed(self) -> bool:  # noqa: D102
        return self._expires


def find_request_topics(topology: Topology) -> tuple[str, ...]:
    """Return the names of the topics whose requests an application merges, and which nothing else reads.

    Args:
        topology: the operators of the application.
    """
    return tuple(
        name
        for name, source in topology.sources.items()
        if isinstance(source.operator, SourceOperator)
        and any(isinstance(child.operator, Maintain) for child in topology.children.get(source.id, ()))
    )


def find_row_topics(topology: Topology) -> tuple[str, ...]:
    """Return the names of the topics with the rows of the tables that an application maintains: these are its state.

    Args:
        topology: the operators of the application.
    """
    return tuple(node.operator.topic.name for node in topology.nodes if isinstance(node.operator, Maintain))


class _Apply(Protocol):
    def __call__(self, before: Any, after: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
        """Write a change of a row, and pass it on."""


class _ExpiringRows:
    """Rows of a table with a ttl, in one process, for all of its tasks.

    Time is the event time of the partition. A timer of the wall clock moves it while nothing arrives, at most up to the clock
    and by how long it was set for. So the time in which no instance runs does not count, and rows whose requests wait stay.

    Args:
        operator: the operator.
        apply: writes a change, and passes it on.
        merge: returns the row after a request; takes it, its key, its headers, and the row before it.
        read: returns a stored row with the columns of the schema.
        pass_on: passes a change on, and does not write it.
        node: the node of the operator.
        context: the services of the task.
    """

    def __init__(
        self,
        operator: Maintain,
        apply: _Apply,
        merge: Callable[[Any, Any, Headers | None, Any], Any],
        read: Callable[[Any], Any],
        pass_on: PassOn,
        node: Node,
        context: OperatorContext,
    ) -> None:
        self._pass_on = pass_on
        self._ttl = ttl = operator.merger.rules.ttl_ms or 0
        self._beat = min(max(ttl // _SHARE, _SHORTEST_BEAT_MS), _LONGEST_BEAT_MS)
        self._apply, self._merge, self._read = apply, merge, read
        _, self._make_key = topic_and_key(operator.topic)
        self._node = node
        self._repeats = context.repeats_records
        self._begin_portion, self._when_complete = context.begin_portion, context.when_complete
        self._now = 0
        # Set before the first record and tick.
        self._transaction: ProcessTransaction
        context.follow(operator.store, self._use)
        context.on_tick(node, self._handle_tick)

    def _use(self, transaction: Any) -> None:
        self._transaction = transaction

    def state_of(self, key: Any, timestamp: int) -> KeyedState:
        """Return the state of a key."""
        return self._transaction.state_at(self._transaction.prefix_of(key), timestamp)

    def take(self, key: Any, row: Any, timestamp: int) -> None:
        """Take a row that the table has already; its time is that of its record."""
        transaction = self._transaction
        if timestamp > transaction.event_time:
            transaction.event_time = transaction.clock = timestamp
        state = self.state_of(key, timestamp)
        before = _read_row(state, self._read)
        _store_row(state, row, timestamp)
        if row is not None and before is None:
            transaction.event_timers.register(transaction.prefix_of(key), _timer_time(timestamp + self._ttl))
            self._keep_beating(transaction)
        self._pass_on(before, row, key, timestamp, None)

    def make_handler(self) -> RecordHandler:
        """Return the handler of requests."""
        apply, merge, ttl, repeats = self._apply, self._merge, self._ttl, self._repeats

        def run(request: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = self._node) -> None:
            transaction = self._transaction
            if timestamp > transaction.event_time:
                transaction.event_time = transaction.clock = timestamp
            now = transaction.event_time
            prefix = transaction.prefix_of(key)
            state = transaction.state_at(prefix, timestamp)
            self._expire_row(state, prefix, now)
            before = _read_row(state, self._read)
            after = merge(request, key, headers, before)
            if after is not None and after is not before:
                if before is None:
                    transaction.event_timers.register(prefix, _timer_time(now + ttl))
                # A request that changes nothing counts as well.
                _store_row(state, after, now)
                self._keep_beating(transaction)
            elif after is None and before is not None:
                state.delete(_ROW)
            if repeats or after is not before:
                apply(before, after, key, timestamp, headers)
            if transaction.event_timers.due_from <= now:
                self._when_complete(self._node, self._expire_due)

        return run

    def _expire_row(self, state: KeyedState, prefix: bytes, now: int) -> int | None:
        """Delete the row of a key if it is too old; return the time at which it will be, if there is one that is not."""
        stored = state.get_bytes(_ROW)
        if stored is None:
            return None
        deadline = row_time(stored) + self._ttl
        if deadline > now:
            return deadline
        row = self._read(decode_row(stored))
        state.delete(_ROW)
        self._apply(row, None, self._make_key(row), deadline, None)
        return None

    def _expire_due(self) -> None:
        """Delete the rows that are too old, until the portion is over; ticks go on with the rest."""
        _node = self._node
        transaction = self._transaction
        timers, now = transaction.event_timers, transaction.event_time
        must_stop: Callable[[], bool] | None = None
        while (timer := timers.due(now)) is not None:
            if must_stop is None:
                must_stop = self._begin_portion(self._node)
            if must_stop():
                return
            timers.fire(timer)
            due(transaction.journal, self._handle_timer)(timer[1], now)

    def _handle_timer(self, prefix: bytes, now: int) -> None:
        transaction = self._transaction
        deadline = self._expire_row(transaction.state_at(prefix, now), prefix, now)
        if deadline is not None:
            transaction.event_timers.register(prefix, _timer_time(deadline))

    def _handle_tick(self, moment: Tick) -> None:
        if moment.final:
            # More of the rows' requests may come in another run.
            return
        self._now = max(self._now, moment.now)
        transaction = self._transaction
        beats = transaction.processing_timers
        beaten = False
        while (beat := beats.due(moment.now)) is not None:
            beats.fire(beat)
            beaten = True
        if beaten:
            transaction.event_time = max(transaction.event_time, min(transaction.event_time + self._beat, moment.now))
        self._expire_due()
        self._keep_beating(transaction)

    def _keep_beating(self, transaction: ProcessTransaction) -> None:
        """Set the timer of the wall clock if there are rows, and none is set."""
        if _is_empty(transaction.processing_timers) and not _is_empty(transaction.event_timers):
            transaction.processing_timers.register(transaction.prefix_of(None), self._now + self._beat)


def _timer_time(time: int) -> int:
    return min(max(time, 0), LATEST_EXPIRY)


def _is_empty(timers: Timers) -> bool:
    return timers.next_time is None


def _read_row(state: Any, read: Callable[[Any], Any]) -> Any:
    stored = state.get_bytes(_ROW)
    return None if stored is None else read(decode_row(stored))


def _store_row(state: Any, row: Any, timestamp: int) -> None:
    if row is None:
        state.delete(_ROW)
    else:
        state.set_bytes(_ROW, encode_row(row, timestamp))


def _make_log(send: RecordHandler) -> WriteChange:
    """Return the function that writes changes of rows as rows: an update as two, one after the other."""

    def log(before: Any, after: Any, key: Any, timestamp: int) -> None:
        at = _EPOCH + datetime.timedelta(milliseconds=timestamp)
        if before is not None:
            kind = "-D" if after is None else "-U"
            send({"_change_type": kind, "_at": at, **before}, key, timestamp, None)
        if after is not None:
            kind = "+I" if before is None else "+U"
            send({"_change_type": kind, "_at": at, **after}, key, timestamp, None)

    return log
