"""`JoinRows`: the join of the rows of two tables with equal values in any columns.

Both sides are sent to the partition of these values (`Regroup` by an `ExactKey`), where each has its rows in a bag
(`row_bag.py`). A row that is added or taken back makes pairs with all rows of the other side. The result is a bag as well:
its rows have no key, and may be equal. Each partition takes back only what it has added before, so it does not matter in
which order changes of several partitions arrive.

The head of a key is `[left, right]`, two bags. While a change is passed on in portions, it has a third item, `[side,
before, after, had rows, timestamp, last row, copies]`: the change as exact JSON, whether its side had rows before, and up to
which row of the other side, and to how many of those that are equal to it, it has been passed on. Such a head has a deadline,
by which ticks find it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, Final, Literal, cast

from streamrt.joins.merging import Merge
from streamrt.joins.notes import Warnings
from streamrt.records import Headers, Tick
from streamrt.relations.change import Change, rows_differ
from streamrt.relations.change_counts import ChangeCounts
from streamrt.relations.row_bag import Bag, add_row, count_row, read_rows, take_row
from streamrt.state.encoding import dumps_exact, unpack
from streamrt.state.journal import due
from streamrt.state.spec import StoreSpec
from streamrt.state.transactions.timed import TimedTransaction
from streamrt.topology import MergeOperator, Node, OperatorContext, RecordHandler

__all__ = ["Condition", "JoinHow", "JoinRows"]

JoinHow = Literal["inner", "left", "right", "outer", "semi", "anti"]
"""Which rows a join has: pairs, with the rows without a partner of either side, or left rows with, or without, a partner."""

Condition = Callable[[Any, Any], Any]
"""Function of the left and the right row of a pair, which returns whether it is one."""

_LEFT, _RIGHT = 0, 1
_FEW: Final = 64
"""Number of results up to which a change is not passed on in portions."""

_AT_ONCE: Final = 0
"""The deadline of heads with work left."""

Stop = Callable[[], bool]
"""Returns whether an operator must stop."""

PassOn = Callable[[Any, Any, int], None]
"""Passes on the former and the present row, with a timestamp."""


@dataclass(frozen=True)
class JoinRows(MergeOperator):
    """Joins the rows of two tables that have equal keys. Each change of a row changes the rows that it is a part of.

    Records have the key of the join, which is a list. One with a null in it matches nothing, as in SQL, unless nulls are
    equal.
    A joined row has the time of the change that made it.

    Attributes:
        how: which rows the result has.
        merge: function of the left and the right row; a missing row is None. Not for "semi" and "anti".
        store: the store of the rows.
        on: what the keys of the sides are made of, for drawings and for the state.
        condition: which rows with equal keys are partners; None for all.
        nulls_equal: whether null equals null.
    """

    name: ClassVar[str] = "join"
    keeps_rows: ClassVar[bool] = True
    updates: ClassVar[bool] = True
    how: JoinHow
    merge: Merge
    store: StoreSpec
    on: tuple[str, str]
    condition: Condition | None = None
    nulls_equal: bool = False

    def build_inputs(self, child: RecordHandler, node: Node, context: OperatorContext) -> tuple[RecordHandler, ...]:  # noqa: D102
        store, nulls_equal, begin_portion = context.store(self.store), self.nulls_equal, context.begin_portion
        add = ChangeCounts(node, context).add
        missing = Warnings(
            "%s was to take back a row of the key %s that it has not got: a record was repeated, or a function above gives "
            "another result for the same row than before",
            node,
        )

        def make_pass_on(to: RecordHandler) -> PassOn:
            def pass_on(before: Any, after: Any, timestamp: int) -> None:
                differs = rows_differ(before, after)
                add(before, after, differs=differs)
                if differs:
                    to(Change(before, after), None, timestamp, None)

            return pass_on

        pass_on = make_pass_on(child)
        sides = _Side(self, _LEFT), _Side(self, _RIGHT)

        def make_handler(side: _Side) -> RecordHandler:
            own = side.number

            def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
                before, after = value
                if None in key and not nulls_equal:
                    pass_on(*side.change_alone(before, after), timestamp)
                    return
                former = None if before is None else dumps_exact(before).decode()
                present = None if after is None else dumps_exact(after).decode()
                if former == present:
                    return
                transaction = cast("TimedTransaction", store())
                prefix, sets = transaction.prefix(key), transaction.counted
                head = transaction.head(prefix)
                if head is None:
                    head = [[], []]
                elif len(head) > 2:
                    # Operators above may pass on several changes before they stop.
                    sides[head[2][0]].go_on(head, prefix, transaction, pass_on, _never)
                bag = head[own]
                had_rows = bool(bag)
                if present is not None:
                    add_row(bag, present, prefix, sets)
                if former is not None and not take_row(bag, former, prefix, sets):
                    missing.note(key)
                    former = None
                    if present is None:
                        return
                del head[2:]
                side.begin(
                    head, prefix, transaction, (former, present), had_rows, timestamp, pass_on, begin_portion, node
                )
                transaction.advance(timestamp)

            return run

        def tick(moment: Tick, *, _node: Node = node) -> None:
            transaction = cast("TimedTransaction", store())
            if transaction.due_from > _AT_ONCE:
                return
            to, must_stop = make_pass_on(due(transaction.journal, child)), begin_portion(node)
            for _, prefix, head in transaction.due(_AT_ONCE):
                finished = False
                try:
                    finished = sides[head[2][0]].go_on(head, prefix, transaction, to, must_stop)
                finally:
                    # If one result fails, and that is skipped, the next tick goes on behind it.
                    _store_head(transaction, prefix, head, finished=finished)
                if not finished:
                    return

        context.on_tick(node, tick)
        return make_handler(sides[_LEFT]), make_handler(sides[_RIGHT])

    def describe(self) -> str:  # noqa: D102
        return f"{self.how}, {self.on[0]} = {self.on[1]}"

    def keeps(self) -> tuple[str, ...]:
        """Return what the keys are made of, and which rows there are."""
        condition = () if self.condition is None else ("condition",)
        return (*super().keeps(), self.how, *self.on, *condition, *(("nulls",) if self.nulls_equal else ()))

    def multiplies_records(self) -> bool:
        """A row may have many partners."""
        return True

    def resumes(self) -> bool:  # noqa: D102
        return True

    def stores(self) -> tuple[StoreSpec, ...]:  # noqa: D102
        return (self.store,)


class _Side:
    """What a change of a row of one side does.

    Args:
        join: the join.
        number: 0 for the left side, 1 for the right one.
    """

    def __init__(self, join: JoinRows, number: int) -> None:
        self.number = number
        merge, condition, how = join.merge, join.condition, join.how
        if number == _LEFT:
            self._merge, self._matches = merge, condition
        else:
            self._merge = lambda own, other: merge(other, own)
            self._matches = None if condition is None else lambda own, other: condition(other, own)
        self._pairs = how not in ("semi", "anti")
        self._keeps_own = how in ("outer", ("left", "right")[number])
        self._keeps_other = how in ("outer", ("right", "left")[number])
        # Whether rows of this side, or of the other one, are results by themselves, depending on partners.
        self._filters_own = not self._pairs and number == _LEFT
        self._filters_other = not self._pairs and number == _RIGHT
        self._if_matched = how == "semi"

    def change_alone(self, before: Any, after: Any) -> tuple[Any, Any]:
        """Return the change of the result if neither row has a partner."""
        return self._make_alone(before), self._make_alone(after)

    def _make_alone(self, row: Any) -> Any:
        """Return the result of a row without a partner; None for none."""
        if row is None:
            return None
        if self._pairs:
            return self._merge(row, None) if self._keeps_own else None
        return row if self._filters_own and not self._if_matched else None

    def begin(
        self,
        head: list[Any],
        prefix: bytes,
        transaction: TimedTransaction,
        change: tuple[str | None, str | None],
        had_rows: bool,
        timestamp: int,
        pass_on: PassOn,
        begin_portion: Callable[[Node], Stop],
        node: Node,
    ) -> None:
        """Pass on what a change does, or the first portion of it, and store the head.

        Args:
            head: the head, after the change.
            prefix: the prefix of the record key.
            transaction: the running transaction.
            change: the former and the present row as exact JSON.
            had_rows: whether the side had rows before the change.
            timestamp: time of the change in milliseconds.
            pass_on: takes the results.
            begin_portion: begins work of unknown length.
            node: the node of the operator.
        """
        own, other = head[self.number], head[1 - self.number]
        finished = True
        if self._keeps_own or self._filters_own:
            pass_on(*self._change_own(other, prefix, transaction, change), timestamp)
        if other and (self._pairs or self._filters_other):
            large = _is_large(other)
            if self._matches is None and not self._pairs and had_rows == bool(own):
                # All rows of the other side still have a partner, or none.
                pass
            elif self._matches is None and self._pairs and not large:
                self._pair_few(other, change, had_rows, bool(own), timestamp, pass_on)
            else:
                head.append([self.number, *change, had_rows, timestamp, None, 0])
                must_stop = begin_portion(node) if large else _never
                finished = self.go_on(head, prefix, transaction, pass_on, must_stop)
        _store_head(transaction, prefix, head, finished=finished)

    def _pair_few(
        self,
        other: Bag,
        change: tuple[str | None, str | None],
        had_rows: bool,
        has_rows: bool,
        timestamp: int,
        pass_on: PassOn,
    ) -> None:
        """Pass on the pairs of a change with all rows of a small bag: what `go_on` does, in less time."""
        merge, (before, after) = self._merge, change
        was_alone, is_alone = self._keeps_other and not had_rows, self._keeps_other and not has_rows
        for place in range(0, len(other), 2):
            count, row = other[place : place + 2]
            for _ in range(count):
                # Each row is decoded for itself, because operators below may change it.
                old = new = None
                if before is not None:
                    old = merge(unpack(before), unpack(row))
                elif was_alone:
                    old = merge(None, unpack(row))
                if after is not None:
                    new = merge(unpack(after), unpack(row))
                elif is_alone:
                    new = merge(None, unpack(row))
                pass_on(old, new, timestamp)

    def _change_own(
        self, other: Bag, prefix: bytes, transaction: TimedTransaction, change: tuple[str | None, str | None]
    ) -> tuple[Any, Any]:
        """Return the change of the results that are rows of this side by themselves."""
        return cast(
            "tuple[Any, Any]",
            tuple(None if text is None else self._make_own(text, other, prefix, transaction) for text in change),
        )

    def _make_own(self, text: str, other: Bag, prefix: bytes, transaction: TimedTransaction) -> Any:
        matches = self._matches
        if matches is None or not other:
            matched = bool(other)
        else:
            rows = read_rows(other, prefix, transaction.counted)
            matched = any(matches(unpack(text), unpack(row)) for row, _ in rows)
        if self._pairs:
            return None if matched else self._merge(unpack(text), None)
        return unpack(text) if matched is self._if_matched else None

    def go_on(
        self, head: list[Any], prefix: bytes, transaction: TimedTransaction, pass_on: PassOn, must_stop: Stop
    ) -> bool:
        """Pass on what a change does with the rows of the other side; return False if it must go on later.

        Args:
            head: the head, with the work; how far it is, is noted in it.
            prefix: the prefix of the record key.
            transaction: the running transaction.
            pass_on: takes the results.
            must_stop: returns whether to stop, before each step.
        """
        work = head[2]
        _, before, after, had_rows, timestamp, last, copies = work
        own, other = head[self.number], head[1 - self.number]
        sets = transaction.counted
        make = self._make_change(before, after, had_rows, own, prefix, transaction)
        rows = read_rows(other, prefix, sets, last)
        if last is not None:
            rows = chain([(last, count_row(other, last, prefix, sets))], rows)
        for row, count in rows:
            done = copies if row == last else 0
            result = make(row)
            while done < count:
                if must_stop():
                    return False
                done = count if result is None else done + 1
                # Before it is passed on: what fails, and is skipped, is not tried again.
                work[5:] = row, done
                if result is not None:
                    pass_on(*result(), timestamp)
        return True

    def _make_change(
        self,
        before: str | None,
        after: str | None,
        had_rows: bool,
        own: Bag,
        prefix: bytes,
        transaction: TimedTransaction,
    ) -> Callable[[str], Callable[[], tuple[Any, Any]] | None]:
        """Return the function from a row of the other side to one that makes the change of a result with it, or to None."""
        matches, merge, pairs = self._matches, self._merge, self._pairs
        keeps_other, if_matched = self._keeps_other, self._if_matched
        has_rows = bool(own)

        def decide(row: str) -> Callable[[], tuple[Any, Any]] | None:
            was, is_now, matched_before, matched_after = before is not None, after is not None, had_rows, has_rows
            if matches is not None:
                was = before is not None and bool(matches(unpack(before), unpack(row)))
                is_now = after is not None and bool(matches(unpack(after), unpack(row)))
                matched_before, matched_after = was, is_now
                if (
                    not (was and is_now)
                    and (keeps_other or not pairs)
                    and self._has_other_match(row, after, own, prefix, transaction)
                ):
                    matched_before = matched_after = True
            if not pairs:
                if matched_before == matched_after:
                    return None
                if matched_after == if_matched:
                    return lambda: (None, unpack(row))
                return lambda: (unpack(row), None)

            def make() -> tuple[Any, Any]:
                old = new = None
                if was:
                    old = merge(unpack(before), unpack(row))
                elif keeps_other and not matched_before:
                    old = merge(None, unpack(row))
                if is_now:
                    new = merge(unpack(after), unpack(row))
                elif keeps_other and not matched_after:
                    new = merge(None, unpack(row))
                return old, new

            if was or is_now or (keeps_other and matched_before != matched_after):
                return make
            return None

        return decide

    def _has_other_match(
        self, row: str, after: str | None, own: Bag, prefix: bytes, transaction: TimedTransaction
    ) -> bool:
        """Return whether a row of the other side has a partner that was there before a change, and still is."""
        matches = cast("Condition", self._matches)
        for text, count in read_rows(own, prefix, transaction.counted):
            if (text != after or count > 1) and matches(unpack(text), unpack(row)):
                return True
        return False


def _store_head(transaction: TimedTransaction, prefix: bytes, head: list[Any], *, finished: bool) -> None:
    """Store the head of a key, without the work on a change if that is finished."""
    if not finished:
        transaction.set_head(prefix, head, _AT_ONCE)
        return
    del head[2:]
    if head[_LEFT] or head[_RIGHT]:
        transaction.set_head(prefix, head)
    else:
        transaction.delete_head(prefix)


def _is_large(bag: Bag) -> bool:
    """Return whether a change of a partner may have more than a few results."""
    return bag[0] is None or sum(bag[::2]) > _FEW


def _never() -> bool:
    return False
