"""Outcomes of the rows that a writer has accepted."""

import functools
import threading
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from streamrt.errors import DeliveryTimeoutError, ProducerError
from streamrt.kafka.completion_token import Offsets
from streamrt.kafka.writing.portion import Portion
from streamrt.kafka.writing.sender import Delivered

__all__ = ["BatchResult", "Deliveries", "RecordPosition", "WriteResult"]

_NAMED = 5
"""How many of the lost rows an error names."""


class RecordPosition(NamedTuple):
    """Where a row is.

    Attributes:
        topic: name of the topic.
        partition: number of the partition.
        offset: offset of the record.
        timestamp: milliseconds since the Unix epoch.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int


class _Outcome(Protocol):
    """Is told what became of a row."""

    def record_outcome(self, error: Exception | None, partition: int, offset: int, timestamp: int) -> None:
        """Note it."""


class Deliveries:
    """Counts the rows of a writer, those that were delivered, and those that were lost. It may be used in any thread.

    Args:
        table: name of the table.
        topic: name of its topic.
        topic_id: Kafka's id of the topic, if known.
        serve: waits for outcomes, for that many seconds at most, and has them reported here.
        timeout: seconds for which `WriteResult.token` waits.
        start: the token of what was written before.
    """

    def __init__(
        self,
        table: str,
        topic: str,
        topic_id: str | None,
        serve: Callable[[float], None],
        timeout: float,
        start: Offsets | None = None,
    ) -> None:
        self.topic = topic
        self.timeout = timeout
        self.serve = serve
        self._table = table
        self._ids = {} if topic_id is None else {topic: topic_id}
        self._lock = threading.Lock()
        self._next = {} if start is None else start.partition_map(topic)
        self._accepted = 0
        self._settled = 0
        self._number = 0
        # Rows that were written together, of which some are outstanding.
        self._portions: list[Portion] = []
        # Numbers of rows of which it is unknown whether the sender has them.
        self._abandoned: set[int] = set()
        self._closed = False
        # By reason, how many rows, and the numbers of the first ones.
        self._lost: dict[str, int] = {}
        self._lost_first: list[int] = []

    def accept(self, outcome: _Outcome) -> Delivered:
        """Count a row; return what to call with its outcome."""
        with self._lock:
            number, self._number = self._number, self._number + 1
            self._accepted += 1
        return functools.partial(self._settle_row, number, outcome)

    def withdraw(self, refused: bool) -> None:
        """Forget the row that was accepted last.

        Args:
            refused: whether the sender has refused it. If not, an interrupt leaves open whether it has the row, whose
                outcome, which may come yet, must not count for another one.
        """
        with self._lock:
            self._accepted -= 1
            if refused:
                self._number -= 1
            else:
                self._abandoned.add(self._number - 1)

    def reserve(self, rows: int) -> int:
        """Return the number of the first of several rows that are written together."""
        with self._lock:
            number, self._number = self._number, self._number + rows
        return number

    def follow(self, portion: Portion) -> None:
        """Count the rows of a portion that the sender is about to take."""
        with self._lock:
            self._portions.append(portion)

    @property
    def outstanding(self) -> int:
        """How many rows are neither delivered nor lost."""
        with self._lock:
            return self._count_outstanding()

    @property
    def closed(self) -> bool:
        """Whether nothing is delivered any more."""
        return self._closed

    def close(self) -> None:
        """Rows that are outstanding now are lost."""
        with self._lock:
            self._collect_outcomes()
            for each in self._portions:
                each.end(self.dropped())
            self._closed = True

    def token(self) -> Offsets:
        """Return the offsets after all rows that were delivered."""
        with self._lock:
            self._collect_outcomes()
            return self.offsets(self._next)

    def offsets(self, following: dict[int, int]) -> Offsets:
        """Return offsets of the topic, with its id."""
        return Offsets({(self.topic, partition): offset for partition, offset in following.items()}, self._ids)

    def raise_losses(self) -> None:
        """Raise an error for the rows that were lost since the last call.

        Raises:
            ProducerError: if there are any.
        """
        with self._lock:
            self._collect_outcomes()
            lost, self._lost = self._lost, {}
            numbers, self._lost_first = sorted(self._lost_first), []
            outstanding = self._count_outstanding()
        if not lost:
            return
        count = sum(lost.values())
        named = ", ".join(map(str, numbers)) + (", ..." if count > len(numbers) else "")
        reasons = "; ".join(f"{several} because {reason}" for reason, several in lost.items())
        still = f"; {outstanding} more are still on their way" if outstanding else ""
        raise ProducerError(
            f"{_rows(count)} of table {self._table!r} {_were(count)} not delivered (of the rows of this "
            f"writer, counted from 0: {named}): {reasons}{still}",
            self.topic,
        )

    def raise_unwritten(self, timeout: float) -> None:
        """Raise an error for the rows that were lost, and for those that were outstanding when the writer was closed.

        Args:
            timeout: seconds for which the writer waited.

        Raises:
            ProducerError: if there are any.
        """
        with self._lock:
            self._collect_outcomes()
            unknown = self._lost.pop(str(self.dropped()), 0) + max(0, self._count_outstanding())
            if unknown:
                lost, numbers = sum(self._lost.values()), sorted(self._lost_first)
                reasons = "; ".join(self._lost)
                self._lost, self._lost_first = {}, []
        if not unknown:
            self.raise_losses()
            return
        named = f" (among them, counted from 0, row {', '.join(map(str, numbers))} of this writer)" if numbers else ""
        others = f"; {_rows(lost)} more {_were(lost)} lost: {reasons}" if lost else ""
        raise DeliveryTimeoutError(
            f"{_rows(unknown)} of table {self._table!r} {_were(unknown)} not delivered within {timeout:g} s{named}, and the "
            f"writer is closed now: brokers may have some of them{others}; look in the table which are there, and write the "
            "others again; flush(timeout=...) before the end waits longer, and a writer with an id writes each row once",
            self.topic,
        )

    def unreported(self, rows: int) -> ProducerError:
        """Return the error for rows of which the sender knows nothing any more; they are counted no longer."""
        with self._lock:
            self._collect_outcomes()
            self._accepted = self._settled
            for each in self._portions:
                each.accepted = each.delivered + len(each.lost)
        return ProducerError(
            f"it is not known whether {_rows(rows)} of table {self._table!r} {_were(rows)} delivered, because an interrupt "
            "hit the report of it: look in the table which rows are there",
            self.topic,
        )

    def broken(self, rows: int) -> ProducerError:
        """Return the error for a producer that can do no more, and may have lost rows."""
        return ProducerError(
            f"the producer of table {self._table!r} had a fatal error and may have lost {max(0, rows)} rows: see the log, "
            "and make a new writer",
            self.topic,
        )

    def late(self, rows: int, timeout: float) -> DeliveryTimeoutError:
        """Return the error for rows whose outcome is not known in time."""
        return DeliveryTimeoutError(
            f"{_rows(rows)} of table {self._table!r} {_were(rows)} not delivered within {timeout:g} s and may still be: "
            "call flush() again, and see the logs of the brokers",
            self.topic,
        )

    def dropped(self) -> ProducerError:
        """Return the error for rows that were outstanding when the writer was closed."""
        return ProducerError(
            f"a row of table {self._table!r} was not delivered before its writer was closed, or a transaction failed",
            self.topic,
        )

    def wait(self, is_done: Callable[[], bool], timeout: float | None, rows: Callable[[], int]) -> None:
        """Wait until rows are delivered or lost.

        Raises:
            DeliveryTimeoutError: if they are not in time.
            ProducerError: if the writer was closed before.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not is_done():
            if self._closed:
                raise self.dropped()
            left = 1.0 if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise self.late(rows(), timeout or 0.0)
            self.serve(left)

    def _settle_row(
        self, number: int, outcome: _Outcome, error: Exception | None, partition: int, offset: int, timestamp: int
    ) -> None:
        if error is not None and self._closed:
            error = self.dropped()
        with self._lock:
            if number in self._abandoned:
                self._abandoned.discard(number)
                self._accepted += 1
            self._settled += 1
            if error is not None:
                self._lose_row(number, error)
            else:
                self._next[partition] = max(self._next.get(partition, 0), offset + 1)
        outcome.record_outcome(error, partition, offset, timestamp)

    def _count_outstanding(self) -> int:
        return self._accepted - self._settled + sum(each.outstanding for each in self._portions)

    def _collect_outcomes(self) -> None:
        """Note what has become known of rows that were written together."""
        still = []
        for each in self._portions:
            # First, so that nothing comes after what is noted here.
            settled = each.settled
            advance(self._next, each)
            for number, error in each.take_losses():
                self._lose_row(number, error)
            if settled:
                each.release()
            else:
                still.append(each)
        self._portions = still

    def _lose_row(self, number: int, error: Exception) -> None:
        self._lost[str(error)] = self._lost.get(str(error), 0) + 1
        if len(self._lost_first) < _NAMED:
            self._lost_first.append(number)


class WriteResult:
    """The outcome of a row; `TableWriter.append` returns it. It may be used in any thread.

    Rows that are not waited for are also delivered: the writer's `flush` raises if one is lost.

    Args:
        deliveries: those of the writer.
    """

    __slots__ = ("_deliveries", "_error", "_position")

    def __init__(self, deliveries: Deliveries) -> None:
        self._deliveries = deliveries
        self._error: Exception | None = None
        self._position: RecordPosition | None = None

    def done(self) -> bool:
        """Return whether the row is delivered or lost. It does not wait."""
        if not self._is_settled() and not self._deliveries.closed:
            self._deliveries.serve(0.0)
        return self._is_settled() or self._deliveries.closed

    def wait(self, timeout: float | None = None) -> RecordPosition:
        """Wait until the row is delivered; return where it is.

        Args:
            timeout: seconds; None waits until brokers have it, or the client gives it up (`message.timeout.ms`).

        Raises:
            ProducerError: if it was lost.
            DeliveryTimeoutError: if it was not delivered in time.
        """
        self._deliveries.wait(self._is_settled, timeout, lambda: 1)
        if self._error is not None:
            raise self._error
        assert self._position is not None  # noqa: S101 - one of the two is there
        return self._position

    @property
    def token(self) -> Offsets:
        """The offsets after this row, for which it waits as `wait` does, for as long as the catalogue waits for answers."""
        at = self.wait(self._deliveries.timeout)
        return self._deliveries.offsets({at.partition: at.offset + 1})

    def record_outcome(self, error: Exception | None, partition: int, offset: int, timestamp: int) -> None:
        """Note the outcome."""
        if error is None:
            self._position = RecordPosition(self._deliveries.topic, partition, offset, timestamp)
        self._error = error

    def _is_settled(self) -> bool:
        return self._position is not None or self._error is not None

    def __repr__(self) -> str:
        return f"<WriteResult {self._position or self._error or 'on its way'}>"


class BatchResult:
    """The outcome of several rows that were written by one call. It may be used in any thread.

    Args:
        deliveries: those of the writer.
        rows: how many there are.
    """

    def __init__(self, deliveries: Deliveries, rows: int) -> None:
        self._deliveries = deliveries
        self._rows = rows
        # Those of which some rows are outstanding.
        self._portions: list[Portion] = []
        self._next: dict[int, int] = {}
        self._error: Exception | None = None
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self._rows

    def __bool__(self) -> bool:
        # Without this, the result of no rows would be falsy.
        return True

    def follow(self, portion: Portion) -> None:
        """Wait for a part of the rows."""
        self._portions.append(portion)

    def done(self) -> bool:
        """Return whether all rows are delivered or lost. It does not wait."""
        if not self._is_settled() and not self._deliveries.closed:
            self._deliveries.serve(0.0)
        return self._is_settled() or self._deliveries.closed

    def wait(self, timeout: float | None = None) -> Offsets:
        """Wait until all rows are delivered; return the offsets after them.

        Args:
            timeout: seconds; None waits until brokers have them, or the client gives one up (`message.timeout.ms`).

        Raises:
            ProducerError: if one was lost.
            DeliveryTimeoutError: if one was not delivered in time.
        """
        self._deliveries.wait(self._is_settled, timeout, self._count_left)
        if self._error is not None:
            raise self._error
        return self._deliveries.offsets(self._next)

    @property
    def token(self) -> Offsets:
        """The offsets after these rows, for which it waits as long as the catalogue waits for answers."""
        return self.wait(self._deliveries.timeout)

    def _count_left(self) -> int:
        return sum(each.outstanding for each in self._portions)

    def _is_settled(self) -> bool:
        with self._lock:
            still = []
            for each in self._portions:
                settled = each.settled
                advance(self._next, each)
                if each.lost and self._error is None:
                    self._error = each.lost[0][1]
                if not settled:
                    still.append(each)
            self._portions = still
        return not still

    def __repr__(self) -> str:
        return f"<BatchResult of {self._rows} rows, {self._count_left()} on their way>"


def advance(following: dict[int, int], portion: Portion) -> None:
    """Move offsets behind the rows of a portion that were delivered."""
    # A copy, because another thread may add a partition.
    for partition, offset in portion.last.copy().items():
        if partition is not None and offset is not None:
            following[partition] = max(following.get(partition, 0), offset + 1)


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def _were(count: int) -> str:
    return "was" if count == 1 else "were"
