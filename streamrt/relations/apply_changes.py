"""`to_table` with a sequence: changes of rows at their origin become rows of a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Final, cast

from streamrt.errors import SchemaMismatchError
from streamrt.joins.notes import Warnings
from streamrt.records import Headers
from streamrt.relations.captured import ChangeKey, ChangeReader
from streamrt.relations.change import make_pass_on
from streamrt.relations.change_counts import WriteCounts
from streamrt.relations.present_row import KeyChange, PresentRow
from streamrt.relations.row_history import RowHistory
from streamrt.relations.row_rules import START_AT, RowRules
from streamrt.relations.upserts import topic_and_key
from streamrt.state.spec import StoreSpec
from streamrt.state.transactions.timed import TimedTransaction
from streamrt.tables.descriptions.topics import TableTopic
from streamrt.topics import Topic
from streamrt.topology import ExchangeOperator, Node, Operator, OperatorContext, RecordHandler

__all__ = ["ApplyChanges", "KeyChanges"]

_KEYS_AT_ONCE: Final = 100
"""Number of keys that one record looks at because their deadline is over."""


@dataclass(frozen=True)
class KeyChanges(ExchangeOperator):
    """Gives changes the key of their row, as `group_by` does. A truncate goes to all partitions, because it is of all keys.

    Attributes:
        topic: the repartition topic.
        key: makes the key of a change.
        group: name of the grouping.
    """

    name: ClassVar[str] = "group_by"
    topic: Topic
    key: ChangeKey
    group: str

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        make_key, reader, columns = self.key, self.key.reader, self.key.columns
        is_truncate, split = reader.make_truncate_test(), reader.split
        send = context.sender(self.topic)
        send_to, count = context.partition_sender(self.topic)

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            if is_truncate(value):
                for partition in range(count):
                    send_to(value, None, timestamp, headers, partition)
            else:
                for change in split(value, columns):
                    send(change, make_key(change), timestamp, headers)

        return run

    def multiplies_records(self) -> bool:
        """A truncate becomes a record for each partition."""
        return True

    def describe(self) -> str:  # noqa: D102
        return self.group


@dataclass(frozen=True)
class ApplyChanges(Operator):
    """Applies changes to the rows of a table, in the order of their sequences, and passes on changes of present rows.

    A deletion is remembered for some time, so that a change that happened before it, and comes after it, does not bring its
    row back.

    Attributes:
        topic: the topic of the table.
        reader: tells changes from values.
        rules: which columns changes give.
        keeper: what is kept of each key.
        store: the store of it.
    """

    name: ClassVar[str] = "to_table"
    topic: TableTopic
    reader: ChangeReader
    rules: RowRules
    keeper: PresentRow | RowHistory
    store: StoreSpec

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        topic, make_key = topic_and_key(self.topic)
        send, store = context.sender(topic), context.store(self.store)
        read, author, apply = self.reader.make_reader(), self.rules.make_author(), self.keeper.make_keeper()
        convert, pass_on = self._make_sequence_check(), make_pass_on(child, context, node)
        count_write = WriteCounts(node, context).add
        forget, retention = self.keeper.forget, self.keeper.retention_ms
        too_late = Warnings(
            "%s left out a change, because newer ones of its key are older than the retention of to_table()", node
        )
        no_key = TimedTransaction.prefix(None)

        def forget_truncates(head: list[Any], now: int) -> tuple[list[Any] | None, int | None]:
            kept = [truncate for truncate in head if truncate[1] > now - retention]
            return (kept, kept[0][1] + retention) if kept else (None, None)

        def forget_expired(now: int, transaction: TimedTransaction) -> None:
            for _, prefix, head in islice(transaction.due(now), _KEYS_AT_ONCE):
                kept, look_at = forget_truncates(head, now) if prefix == no_key else forget(head, now, transaction)
                if kept is None:
                    transaction.delete_head(prefix)
                else:
                    transaction.set_head(prefix, kept, look_at)

        def change_row(
            prefix: bytes, key: Any, change: KeyChange, transaction: TimedTransaction, timestamp: int, headers: Any
        ) -> None:
            head = transaction.head(prefix)
            if head is None:
                # Truncates also deleted rows of keys that were not known.
                for cell, arrived in transaction.head(no_key) or ():
                    truncated = apply(head, KeyChange(transaction.unpack(cell), None, arrived), transaction)
                    head = head if truncated is None else truncated.head
            applied = apply(head, change, transaction)
            if applied is None:
                if head is not None and self.history:
                    too_late.note()
                return
            for before, after in applied.writes:
                if before != after:
                    count_write(after)
                    send(after, make_key(before if after is None else after), timestamp, headers)
            transaction.set_head(prefix, applied.head, applied.forget_at)
            pass_on(applied.before, applied.after, key, timestamp, headers)

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            kind, sequence, row = read(value)
            sequence = convert(sequence)
            transaction = cast("TimedTransaction", store())
            transaction.advance(timestamp)
            now = transaction.clock
            if now >= transaction.due_from:
                forget_expired(now, transaction)
            if kind == "truncate":
                truncates = [*(transaction.head(no_key) or ()), [transaction.pack(sequence), now]]
                transaction.set_head(no_key, truncates, truncates[0][1] + retention)
                for prefix, _ in transaction.heads():
                    if prefix != no_key:
                        change = KeyChange(sequence, None, now)
                        change_row(prefix, transaction.key_of(prefix), change, transaction, timestamp, headers)
                return
            _check_key(key, self.rules)
            change = KeyChange(sequence, None if kind == "delete" else author(row), now)
            change_row(transaction.prefix(key), key, change, transaction, timestamp, headers)

        return run

    def describe(self) -> str:  # noqa: D102
        return self.topic.table

    @property
    def history(self) -> bool:
        """Whether former versions of rows are kept."""
        return isinstance(self.keeper, RowHistory)

    def _make_sequence_check(self) -> Callable[[Any], Any]:
        """Return the function that returns a sequence as a history keeps it."""
        if not self.history:
            return lambda sequence: sequence
        from streamrt.schema import RowCheck

        schema = self.rules.schema
        check = RowCheck([schema.fields[schema.names.index(START_AT)]], from_json=True)
        return lambda sequence: check({START_AT: sequence})[START_AT]

    def multiplies_records(self) -> bool:
        """A truncate changes the rows of all keys."""
        return self.reader.may_truncate

    def keeps(self) -> tuple[str, ...]:
        """Return what the store has."""
        return (*super().keeps(), type(self.keeper).__name__, *sorted(self.rules.ignored))

    def stores(self) -> tuple[StoreSpec, ...]:  # noqa: D102
        return (self.store,)


def _check_key(key: Any, rules: RowRules) -> None:
    if key is None or (isinstance(key, list) and None in key):
        raise SchemaMismatchError(f"the key of a change, {', '.join(rules.key)}, must not be null")
