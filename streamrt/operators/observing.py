"""The part of a record in event time: it moves the clock of a store.

The clock of a store by itself is the highest event time of its records. That of a store that waits for all partitions is the
lowest of the own watermark, which each record may move, and of what the other partitions have, which a tick reports. It thus
moves between two records, and windows close there.
"""

from collections.abc import Callable
from typing import Any

from streamrt.records import Headers, Tick
from streamrt.state.base import BEFORE_ALL
from streamrt.state.transactions.timed import NEVER, TimedTransaction
from streamrt.topology import Node, RecordHandler, WatermarkStrategy

__all__ = ["Observe", "hear", "observer"]

Observe = Callable[[TimedTransaction, int], None]
"""Moves the clock by the timestamp of a record that was processed, and settles what is then due."""


def observer(
    strategy: WatermarkStrategy | None, settle: Callable[[TimedTransaction], None]
) -> tuple[Observe, Callable[[RecordHandler, Node], RecordHandler]]:
    """Return the function by which records move the clock, and one that wraps a record handler which calls it.

    Args:
        strategy: the watermark strategy; None if the store has a clock by itself.
        settle: processes what is due at the clock of the store.
    """

    def advance(transaction: TimedTransaction, timestamp: int) -> None:
        clock = transaction.clock
        if timestamp > clock:
            transaction.clock = clock = timestamp
        if transaction.due_from <= clock:
            settle(transaction)

    if strategy is None:
        return advance, lambda handler, node: handler

    def observe(transaction: TimedTransaction, mark: int) -> None:
        observed = transaction.observed
        if observed is None or mark > observed:
            transaction.observed = mark
            if mark > transaction.moves_from:
                others = transaction.others
                transaction.clock = transaction.moves_from = clock = mark if mark < others else others
                if clock == others:
                    transaction.moves_from = NEVER
                if transaction.due_from <= clock:
                    settle(transaction)

    def observe_lagging(transaction: TimedTransaction, timestamp: int) -> None:
        # Event times begin at 0; out_of_orderness may be longer than the time since 0.
        observe(transaction, max(0, timestamp - lag))

    lag = strategy.out_of_orderness_ms
    if strategy.generator is None:
        return observe_lagging if lag else observe, lambda handler, node: handler
    marks, mark = strategy.marks(), BEFORE_ALL

    def observe_mark(transaction: TimedTransaction, timestamp: int) -> None:
        if mark > BEFORE_ALL:
            observe(transaction, max(0, mark))

    def wrap(handler: RecordHandler, node: Node) -> RecordHandler:
        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            nonlocal mark
            # First: if the generator fails, the record has no effect.
            mark = marks(value, timestamp)
            handler(value, key, timestamp, headers)

        return run

    return observe_mark, wrap


def hear(transaction: TimedTransaction, store: str, moment: Tick) -> None:
    """Move the clock of a store to what a tick reports.

    Args:
        transaction: the running transaction of the store.
        store: name of the store.
        moment: the tick.
    """
    others = moment.others.get(store)
    if others is not None:
        transaction.others = others
        observed = transaction.observed
        if observed is not None and not moment.still:
            transaction.advance(min(observed, others))
    watermark = moment.watermarks.get(store)
    if watermark is not None:
        transaction.advance(watermark)
    transaction.moves_from = transaction.clock if transaction.clock < transaction.others else NEVER
