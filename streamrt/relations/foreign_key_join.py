"""The join of a table with another one by a foreign key: its rows name the key of a row of the other table.

```
left ──> Subscribe ──(topic, by foreign key)──> MatchForeignKeys ──(topic, by key)──> ResolveMatches ──> joined rows
  |                                      right ──┘                                      |
  └─────────────────────────────────────────────────────────────────────────────────────┘
```

Where a row of the right table is, its subscribers are known: the keys of the left rows that name it. Each subscription, and
each change of the right row, sends the right row back to where the left row is. Only there it is joined, so only the present
left row counts, whatever is still on its way: a right row of a foreign key that the left row no longer has is kept aside.

What belongs to one foreign key passes one partition of either topic, so it stays in order. Across foreign keys there is no
order, and none is needed.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Literal, cast

from streamrt.joins.merging import Merge
from streamrt.records import Headers, Tick
from streamrt.relations.change import (
    TIME_BYTES,
    decode_row,
    encode_row,
    holds_same_row,
    is_same_key,
    make_pass_on,
    row_time,
    rows_differ,
)
from streamrt.state.access.state import State
from streamrt.state.encoding import dumps_exact, loads_exact
from streamrt.state.journal import due
from streamrt.state.spec import StoreSpec
from streamrt.state.transactions.process_functions import ProcessTransaction
from streamrt.topics import Topic
from streamrt.topology import ExchangeOperator, MergeOperator, Node, OperatorContext, RecordHandler

__all__ = ["ForeignHow", "ForeignKey", "MatchForeignKeys", "ResolveMatches", "SendByKey", "SendMatch", "Subscribe"]

ForeignHow = Literal["inner", "left"]
"""Which left rows are joined: those that have a right row, or all."""

_SUBSCRIBERS: Final = "subscribers"
_RIGHT: Final = "right"
_LEFT: Final = "left"
_RESULT: Final = "result"
_ON_ITS_WAY: Final = b"\0"
_TIMER: Final = 0
"""The time of all timers: they only say which foreign keys have work left."""
_MISSING: Final = b""
"""A right row that is known to be missing."""


@dataclass(frozen=True)
class ForeignKey:
    """Returns the foreign key of a left row; None if it names no row.

    Attributes:
        function: function of the row. In a list or tuple, no part may be None.

    Example:
        >>> ForeignKey(lambda row: [row["country"], row["city"]])({"country": "FR", "city": None}) is None
        True
    """

    function: Callable[[Any], Any]

    def __call__(self, row: Any) -> Any:
        """Return the foreign key."""
        key = None if row is None else self.function(row)
        return None if isinstance(key, list | tuple) and None in key else key


@dataclass(frozen=True)
class _TableExchange(ExchangeOperator):
    """Sends records to the partitions of a table.

    Attributes:
        topic: the repartition topic.
        group: name of the join.
        like: the topic of the table, which has as many partitions.
    """

    topic: Topic
    group: str
    like: str

    @property
    def sized_by(self) -> str:
        return self.like

    def sized(self, partitions: int, like: str) -> ExchangeOperator:
        return replace(self, like=like)

    def describe(self) -> str:
        return self.group


@dataclass(frozen=True)
class SendByKey(_TableExchange):
    """Sends records of a stream to the partitions of the rows that they name. Those that name none have the key None there.

    Attributes:
        foreign_key: returns the key of the row.
    """

    name: ClassVar[str] = "send_by_key"
    foreign_key: ForeignKey

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        send, foreign_key = context.sender(self.topic), self.foreign_key

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            send(value, foreign_key(value), timestamp, headers)

        return run


@dataclass(frozen=True)
class Subscribe(_TableExchange):
    """Tells the partition of a foreign key which left row names it now, and the former one that it no longer does.

    Attributes:
        foreign_key: returns the foreign key of a row.
    """

    name: ClassVar[str] = "subscribe"
    foreign_key: ForeignKey

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        send, foreign_key, writes = context.sender(self.topic), self.foreign_key, context.repeats_records

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            former, present = foreign_key(value[0]), foreign_key(value[1])
            same = is_same_key(former, present)
            if same and (writes or rows_differ(*value)):
                return
            if former is not None and not same:
                send([key, False], former, timestamp, None)
            if present is not None:
                send([key, True], present, timestamp, None)

        return run


@dataclass
class _Sending:
    """A right row on its way to its subscribers.

    Attributes:
        key: the foreign key.
        row: the row; None if it is deleted.
        time: its time in milliseconds.
        last: the last subscriber that has it; None if none has.
    """

    key: Any
    row: Any
    time: int
    last: str | None = None

    def encode(self) -> bytes:
        """Return what stands in place of the row until all have it: a zero after the time, which no row has."""
        data = encode_row([self.key, self.row, self.last], self.time)
        return data[:TIME_BYTES] + _ON_ITS_WAY + data[TIME_BYTES:]


def _read_sending(stored: bytes | None) -> _Sending | None:
    """Return the row that is still on its way; None if all have it."""
    if stored is None or not stored.startswith(_ON_ITS_WAY, TIME_BYTES):
        return None
    key, row, last = loads_exact(stored[TIME_BYTES + len(_ON_ITS_WAY) :])
    return _Sending(key, row, row_time(stored), last)


@dataclass(frozen=True)
class MatchForeignKeys(MergeOperator):
    """Keeps who has subscribed to a right row, and passes it on: to a new subscriber, and to all of them when it changes.

    The first input has subscriptions, the second one the changes of the right table. Results have the left key. Their value
    is a list: the foreign key, the right row, and its time; or the foreign key only, if the left row no longer has it. A row
    that is missing has the time of its deletion, or None if that is not known.

    A row may have any number of subscribers. They get it in portions, after each of which the task is committed. Until the
    last one, the entry of the row says how far that is, and the foreign key has a timer, by which ticks find it.

    Attributes:
        store: the store of right rows and subscribers.
    """

    name: ClassVar[str] = "match"
    by_key: ClassVar[bool] = True
    updates: ClassVar[bool] = True
    keeps_rows: ClassVar[bool] = True
    regroups: ClassVar[bool] = True
    store: StoreSpec

    def build_inputs(self, child: RecordHandler, node: Node, context: OperatorContext) -> tuple[RecordHandler, ...]:  # noqa: D102
        running = cast("Callable[[], ProcessTransaction]", context.store(self.store))
        begin_portion = context.begin_portion

        def subscription(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            state, (subscriber, subscribes) = running().state(key, timestamp), value
            subscribers, name = state.map(_SUBSCRIBERS), dumps_exact(subscriber).decode()
            if not subscribes:
                subscribers.discard(name)
                child([key], subscriber, timestamp, None)
                return
            subscribers[name] = None
            stored = state.get_bytes(_RIGHT)
            if stored is None:
                child([key, None, None], subscriber, timestamp, None)
                return
            sending, time = _read_sending(stored), row_time(stored)
            row = decode_row(stored) if sending is None else sending.row
            child([key, row, time], subscriber, max(timestamp, time), None)

        def right(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            transaction, after = running(), value[1]
            state = transaction.state(key, timestamp)
            data, stored = None if after is None else encode_row(after, timestamp), state.get_bytes(_RIGHT)
            if stored is None if data is None else holds_same_row(stored, data):
                # The row was sent before it was stored.
                return
            sending, waited = _Sending(key, after, timestamp), _read_sending(stored) is not None
            finished = send(sending, state, child, begin_portion(node))
            store_row(sending, state, transaction, transaction.prefix_of(key), finished=finished, waited=waited)

        def send(sending: _Sending, state: State, to: RecordHandler, must_stop: Callable[[], bool]) -> bool:
            """Pass a row on to the subscribers that do not have it; return False if the portion is over before."""
            subscribers = state.map(_SUBSCRIBERS)
            for name in subscribers.keys() if sending.last is None else subscribers.keys(after=sending.last):
                if must_stop():
                    return False
                sending.last = name
                to([sending.key, sending.row, sending.time], loads_exact(name.encode()), sending.time, None)
            return True

        def store_row(
            sending: _Sending,
            state: State,
            transaction: ProcessTransaction,
            prefix: bytes,
            *,
            finished: bool,
            waited: bool,
        ) -> None:
            """Store a row, and how far it was sent."""
            if not finished:
                # Both are in one entry, so that a part of a commit does not have the one without the other.
                state.set_bytes(_RIGHT, sending.encode())
                transaction.event_timers.register(prefix, _TIMER)
                return
            if waited:
                transaction.event_timers.delete(prefix, _TIMER)
            if sending.row is None:
                state.delete(_RIGHT)
            else:
                state.set_bytes(_RIGHT, encode_row(sending.row, sending.time))

        def tick(moment: Tick, *, _node: Node = node) -> None:
            transaction = running()
            to, must_stop = due(transaction.journal, child), begin_portion(node)
            while (timer := transaction.event_timers.due(_TIMER)) is not None:
                _, prefix = timer
                state = transaction.state_at(prefix, 0)
                sending = _read_sending(state.get_bytes(_RIGHT))
                if sending is None:
                    # At least once, a crash can leave a timer behind.
                    transaction.event_timers.delete(prefix, _TIMER)
                    continue
                finished = False
                try:
                    finished = send(sending, state, to, must_stop)
                finally:
                    # If one subscriber fails, and that is skipped, the next tick goes on behind it.
                    store_row(sending, state, transaction, prefix, finished=finished, waited=True)
                if not finished:
                    return

        context.on_tick(node, tick)
        return subscription, right

    def multiplies_records(self) -> bool:
        """A right row may have many subscribers."""
        return True

    def resumes(self) -> bool:  # noqa: D102
        return True

    def stores(self) -> tuple[StoreSpec, ...]:  # noqa: D102
        return (self.store,)


@dataclass(frozen=True)
class SendMatch(_TableExchange):
    """Sends a right row to the partition of a left row that has subscribed to it."""

    name: ClassVar[str] = "send_match"

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        send = context.sender(self.topic)

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            send(value, key, timestamp, headers)

        return run


@dataclass(frozen=True)
class ResolveMatches(MergeOperator):
    """Joins the present left row with the right row of its foreign key.

    The first input has the changes of the left table, the second one the right rows that were sent to their keys. Until the
    right row of a new foreign key has arrived, the joined row stays as it is.

    Attributes:
        how: which left rows are joined.
        merge: function of the left and the right row; a missing row is None.
        foreign_key: returns the foreign key of a left row.
        store: the store of the rows.
    """

    name: ClassVar[str] = "join"
    by_key: ClassVar[bool] = True
    updates: ClassVar[bool] = True
    keeps_rows: ClassVar[bool] = True
    passes_on_last: ClassVar[bool] = True
    how: ForeignHow
    merge: Merge
    foreign_key: ForeignKey
    store: StoreSpec

    def build_inputs(self, child: RecordHandler, node: Node, context: OperatorContext) -> tuple[RecordHandler, ...]:  # noqa: D102
        merge, foreign_key, state_of = self.merge, self.foreign_key, context.state(self.store)
        needs_right, pass_on = self.how == "inner", make_pass_on(child, context, node)

        def resolve(state: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
            """Pass on what the present rows make of the joined row."""
            stored, former = state.get_bytes(_LEFT), state.get_bytes(_RESULT)
            left = decode_row(stored)
            foreign = foreign_key(left)
            right = _MISSING if foreign is None else state.get_bytes(_match_key(foreign))
            if left is not None and right is None:
                # It is on its way.
                return
            time = timestamp if stored is None else max(timestamp, row_time(stored))
            row = None
            if left is not None and (right or not needs_right):
                row = merge(left, decode_row(right) if right else None)
                time = max(time, row_time(right)) if right else time
            before = decode_row(former)
            if row is not None:
                state.set_bytes(_RESULT, encode_row(row, time))
            elif former is not None:
                state.delete(_RESULT)
            pass_on(before, row, key, time, headers)

        def left(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            state, after = state_of(key, timestamp), value[1]
            if after is None:
                state.delete(_LEFT)
            else:
                state.set_bytes(_LEFT, encode_row(after, timestamp))
            resolve(state, key, timestamp, headers)

        def match(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            state, name = state_of(key, timestamp), _match_key(value[0])
            if len(value) == 1:
                state.delete(name)
                return
            # The record may have the time of a former left row: it was its subscription.
            _, row, time = value
            state.set_bytes(name, _MISSING if row is None else encode_row(row, time))
            stored = state.get_bytes(_LEFT)
            if stored is not None and foreign_key(decode_row(stored)) is not None:
                resolve(state, key, row_time(stored) if time is None else time, headers)

        return left, match

    def describe(self) -> str:  # noqa: D102
        return self.how

    def keeps(self) -> tuple[str, ...]:
        """Return which left rows are joined: others have passed on no row."""
        return (*super().keeps(), self.how)

    def stores(self) -> tuple[StoreSpec, ...]:  # noqa: D102
        return (self.store,)


def _match_key(foreign: Any) -> str:
    return f"match {dumps_exact(foreign).decode()}"
