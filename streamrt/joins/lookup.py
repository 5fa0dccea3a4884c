"""`join_lookup`: enriches records with data from outside Kafka."""

import base64
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, cast

from streamrt.common.copies import deep_copy
from streamrt.errors import ColumnTypeError, StoreCorruptedError
from streamrt.joins.lookups import BaseField, BaseLookup, LookupBuffer
from streamrt.joins.notes import Warnings
from streamrt.operators.columns import column_of
from streamrt.records import Headers, Tick
from streamrt.state.journal import due
from streamrt.state.spec import StoreSpec
from streamrt.state.transactions.timed import NEVER, TimedTransaction
from streamrt.topology import Node, Operator, OperatorContext, RecordHandler
from streamrt.topology.tallies import LOOKUP_HITS, LOOKUP_MISSES

__all__ = ["BufferedLookupJoin", "LookupJoin"]

Enrich = Callable[[Any, Any, int, Headers | None], None]


@dataclass(frozen=True)
class LookupJoin(Operator):
    """Sets columns of each value in place, with a lookup.

    Attributes:
        lookup: the lookup.
        fields: the fields by column.
        on: the value to look up: a column, a function of value and key, or None for the key.

    Example:
        >>> from streamrt.joins.lookups import SQLiteLookup, SQLiteLookupField
        >>> fields = (("airline", SQLiteLookupField("carriers", ["name"], on="code")),)
        >>> LookupJoin(SQLiteLookup("airlines.sqlite"), fields, "carrier").describe()
        'SQLiteLookup, airline'
    """

    name: ClassVar[str] = "join_lookup"
    in_place: ClassVar[bool] = True
    lookup: BaseLookup[Any]
    fields: tuple[tuple[str, BaseField], ...]
    on: str | Callable[[Any, Any], Any] | None

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        enrich = self.enrich()
        self.count(node, context)

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            enrich(value, key, timestamp, headers)
            child(value, key, timestamp, headers)

        return run

    def count(self, node: Node, context: OperatorContext) -> None:
        """Have the hits and misses of the lookup's cache read for metrics."""
        lookup = self.lookup

        def known(what: Literal["hits", "misses"]) -> float:
            # A lookup may be the user's: what it cannot say must not end the application.
            with contextlib.suppress(Exception):
                info = lookup.cache_info()
                return 0 if info is None else info[what]
            return 0

        context.watch(LOOKUP_HITS, node.label, partial(known, "hits"))
        context.watch(LOOKUP_MISSES, node.label, partial(known, "misses"))

    def enrich(self) -> Enrich:
        """Return the function that sets the columns of a value."""
        join, fields, on = self.lookup.join, dict(self.fields), self.on
        target = _make_target(on)

        def enrich(value: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
            if not isinstance(value, dict):
                raise ColumnTypeError(
                    f"join_lookup() sets columns of a dict, but the value is of type {type(value).__name__}"
                )
            join(fields, target(value, key), value, key, timestamp, headers)

        return enrich

    def describe(self) -> str:  # noqa: D102
        return ", ".join((type(self.lookup).__name__, *(column for column, _ in self.fields)))


@dataclass(frozen=True)
class BufferedLookupJoin(LookupJoin):
    """Sets columns of each value with a lookup, and holds back records that are not resolved.

    The waiting records of a key are items of its timeline, with numbers in place of times, which keeps their order of
    arrival. An item is value, timestamp, headers, and the wall clock time of its arrival. The head holds a number below
    which there are no items, the number of the next item, and the count of items. Its deadline is the wall clock time
    at which the wait of the first item ends.

    Attributes:
        buffer: the settings of the wait.
        store: the store of waiting records.
    """

    buffer: LookupBuffer
    store: StoreSpec

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        enrich, store, begin_portion = self.enrich(), context.store(self.store), context.begin_portion
        is_resolved, grace, most = (
            self.buffer.is_resolved,
            int(cast("int", self.buffer.grace_ms)),
            self.buffer.max_buffered_per_key,
        )
        emit = self.buffer.on_timeout == "emit"
        self.count(node, context)
        full = Warnings(
            "%s dropped a record of key %r: %d records of this key already wait for their lookup; raise "
            "max_buffered_per_key, or lower grace_ms",
            node,
        )
        dropped = Warnings("%s dropped a record of key %r whose lookup was not resolved within %d ms", node)
        # Wall clock of the session, set by its first tick.
        now = 0

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            enrich(value, key, timestamp, headers)
            transaction = cast("TimedTransaction", store())
            prefix = transaction.prefix(key)
            waiting = transaction.head(prefix)
            if is_resolved(value):
                if waiting is not None:
                    release(transaction, prefix, key)
                child(value, key, timestamp, headers)
            elif waiting is not None and waiting[2] >= most:
                full.note(key, most)
            else:
                first, following, count = waiting or (0, 0, 0)
                transaction.timelines.add(prefix, following, [value, timestamp, _store_headers(headers), now])
                since = _find_oldest(transaction, prefix, first, following + 1)[1][3]
                transaction.set_head(prefix, [first, following + 1, count + 1], since + grace)

        def release(transaction: TimedTransaction, prefix: bytes, key: Any) -> None:
            """Repeat the lookup for the waiting records of a key, and pass on those that are resolved."""
            first, following, _ = transaction.head(prefix)
            for number, (value, timestamp, headers, _) in transaction.timelines.items(prefix, first, following):
                value, headers = deep_copy(value), _read_headers(headers)
                enrich(value, key, timestamp, headers)
                if is_resolved(value):
                    take(transaction, prefix, number)
                    due(transaction.journal, child)(value, key, timestamp, headers)

        def take(transaction: TimedTransaction, prefix: bytes, number: int) -> None:
            """Remove a waiting record."""
            first, following, count = transaction.head(prefix)
            transaction.timelines.delete(prefix, number, number + 1)
            if count == 1:
                transaction.delete_head(prefix)
            else:
                first, (_, _, _, since) = _find_oldest(transaction, prefix, first, following)
                transaction.set_head(prefix, [first, following, count - 1], since + grace)

        def give_up(transaction: TimedTransaction, until: int) -> None:
            """Pass on or drop the records whose wait ends up to a time, until the portion is over."""
            must_stop: Callable[[], bool] | None = None
            for _, prefix, _ in transaction.due(until):
                key = transaction.key_of(prefix)
                while (waiting := transaction.head(prefix)) is not None:
                    number, (value, timestamp, headers, since) = _find_oldest(
                        transaction, prefix, waiting[0], waiting[1]
                    )
                    if since + grace > until:
                        break
                    if must_stop is None:
                        must_stop = begin_portion(node)
                    if must_stop():
                        return
                    take(transaction, prefix, number)
                    if emit:
                        due(transaction.journal, child)(deep_copy(value), key, timestamp, _read_headers(headers))
                    else:
                        dropped.note(key, grace)

        def tick(tick: Tick, *, _node: Node = node) -> None:
            nonlocal now
            now = max(now, tick.now)
            transaction = cast("TimedTransaction", store())
            # At the end of a bounded run nothing is waited for.
            give_up(transaction, NEVER if tick.final else now)

        context.on_tick(node, tick)
        return run

    def multiplies_records(self) -> bool:
        """Records of the key that wait may follow one whose lookup is resolved."""
        return True

    def stores(self) -> tuple[StoreSpec, ...]:  # noqa: D102
        return (self.store,)

    def wall_clock_stores(self) -> tuple[str, ...]:  # noqa: D102
        return (self.store.name,)

    @property
    def holds_back_ms(self) -> int | None:
        """A record keeps its timestamp, however long it has waited."""
        return None

    def resumes(self) -> bool:  # noqa: D102
        return True

    def ends(self) -> bool:
        """Waiting records are passed on or dropped."""
        return True

    def timed(self) -> bool:  # noqa: D102
        return True


def _find_oldest(transaction: TimedTransaction, prefix: bytes, start: int, end: int) -> tuple[int, Any]:
    """Return number and content of the first item in a non-empty range, without reading the whole range."""
    length = 1
    while True:
        found = transaction.timelines.items(prefix, start, min(start + length, end))
        if found:
            return found[0]
        start += length
        length *= 2
        if start >= end:
            raise StoreCorruptedError("a lookup buffer has fewer records than its counter says")


def _make_target(on: str | Callable[[Any, Any], Any] | None) -> Callable[[Any, Any], Any]:
    """Return the function from value and key to the value to look up."""
    if on is None:
        return lambda value, key: key
    return on if callable(on) else lambda value, key: column_of(value, on)


def _store_headers(headers: Headers | None) -> list[list[Any]] | None:
    """Return headers in a form for JSON: name, value, and whether the value is base64 of bytes."""
    return (
        None
        if headers is None
        else [
            [name, base64.b64encode(value).decode(), True] if isinstance(value, bytes) else [name, value, False]
            for name, value in headers
        ]
    )


def _read_headers(headers: list[list[Any]] | None) -> Headers | None:
    return (
        None
        if headers is None
        else [(name, base64.b64decode(value) if is_bytes else value) for name, value, is_bytes in headers]
    )
