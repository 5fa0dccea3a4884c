"""When windows close: which clock counts, and how the windows that are due are found."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast, get_args

from streamrt.errors import ConfigurationError, StateError
from streamrt.models import Tick
from streamrt.state import StoreSpec, TimedTransaction
from streamrt.topology import Node, Operator, OperatorContext
from streamrt.windows.aggregation import Aggregation
from streamrt.windows.late import OnLate

__all__ = [
    "Close",
    "Closing",
    "ClosingStrategy",
    "TimeWindowOperator",
    "WindowOperator",
    "checked_time",
    "log_no_key",
    "note_observed",
]

ClosingStrategy = Literal["key", "partition", "watermark"]

logger = logging.getLogger("streamrt")

Close = Callable[[TimedTransaction, bytes, Any, Any, int], None]
"""Closes the windows of one head that are due: takes transaction, prefix, head, record key and clock."""


@dataclass(frozen=True)
class Closing:
    """Which clock closes windows.

    Attributes:
        strategy: "key": the highest event time of the key's own records. "partition": that of all records that reach the
            window in its partition. "watermark": the lowest of the highest event times of all partitions.
        idle_ms: for "watermark", after how long a partition without records is left out, in milliseconds; None elsewhere.

    Raises:
        ConfigurationError: if there is no such strategy.
    """

    strategy: ClosingStrategy = "key"
    idle_ms: int | None = None

    def __post_init__(self) -> None:
        if self.strategy not in get_args(ClosingStrategy):
            raise ConfigurationError(
                f"closing_strategy={self.strategy!r}: it is 'key' (each key has its own clock), 'partition' (all records of "
                "a partition move its clock) or 'watermark' (one clock for all partitions)"
            )

    @property
    def by_key(self) -> bool:
        """Whether each key has its own clock."""
        return self.strategy == "key"

    @property
    def by_partition(self) -> bool:
        """Whether all records of a partition move one clock."""
        return self.strategy == "partition"


@dataclass(frozen=True)
class WindowOperator(Operator):
    """What all operators of windows have in common.

    Attributes:
        store: where windows are kept.
        aggregation: what is computed.
        final: whether windows are emitted when they close; otherwise with each record that changes them.
    """

    name: ClassVar[str] = "window"
    store: StoreSpec
    aggregation: Aggregation
    final: bool

    def describe(self) -> str:  # noqa: D102
        return f"{self.store.name}, {'final' if self.final else 'current'}"

    def stores(self) -> tuple[StoreSpec, ...]:  # noqa: D102
        return (self.store,)

    def running(self, context: OperatorContext) -> Callable[[], TimedTransaction]:
        """Return the function that gives the running transaction."""
        return cast("Callable[[], TimedTransaction]", context.store(self.store))


@dataclass(frozen=True)
class TimeWindowOperator(WindowOperator):
    """What operators of windows over event time have in common.

    Attributes:
        grace_ms: how long windows stay open for late records, in milliseconds.
        closing: which clock closes them.
        on_late: called for each record and each window that it is too late for.
    """

    grace_ms: int = 0
    closing: Closing = Closing()
    on_late: OnLate | None = None

    def watermarks(self) -> tuple[tuple[str, int | None], ...]:  # noqa: D102
        return ((self.store.name, self.closing.idle_ms),) if self.closing.strategy == "watermark" else ()

    def settle(
        self, close: Close, running: Callable[[], TimedTransaction], node: Node, context: OperatorContext
    ) -> Callable[[TimedTransaction], None]:
        """Return the function that closes what is due at stream time, in the order of deadlines.

        With watermarks, it is also called whenever one arrives.
        """
        name = self.store.name

        def settle(transaction: TimedTransaction) -> None:
            clock = transaction.clock
            # One at a time: a head that is due may be the last one that fits into memory.
            for _, prefix, head in transaction.due(clock):
                close(transaction, prefix, head, transaction.key_of(prefix), clock)

        def tick(moment: Tick, *, _node: Node = node) -> None:
            watermark = moment.watermarks.get(name)
            if watermark is not None:
                transaction = running()
                transaction.advance(watermark)
                settle(transaction)

        if self.closing.strategy == "watermark":
            context.on_tick(node, tick)
        return settle


def log_no_key(store: str) -> Callable[[], None]:
    """Return a function that tells, once, that records without a key are left out."""
    told = False

    def tell() -> None:
        nonlocal told
        if not told:
            told = True
            logger.debug("records without a key are in no window, so %r leaves them out", store)

    return tell


def note_observed(transaction: TimedTransaction, timestamp: int) -> None:
    """Note the event time of a record, from which watermarks are made."""
    observed = transaction.observed
    if observed is None or timestamp > observed:
        transaction.observed = timestamp


def checked_time(timestamp: int) -> None:
    """Refuse a record without a time.

    Raises:
        StateError: if its event time is negative.
    """
    if timestamp < 0:
        raise StateError(
            f"a record with the timestamp {timestamp} is in no window: event times begin at 0 (1970); give such records "
            "another timestamp with set_timestamp, or drop them with filter"
        )
