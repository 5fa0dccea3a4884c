"""A naive model of stores for time, and a store with its changelog, for tests that compare the two."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from streamrt.state import MemoryStore, RocksDBOptions, Stamp, Store, StoreIdentity, StorePartition
from streamrt.state.changelog import POSITION_KEY, Position, restore_changes
from streamrt.state.layout import FIRST_KEY, WALL_FIRST_KEY
from streamrt.state.transactions.timed import TimedTransaction

IDENTITY = StoreIdentity("shop", "orders", 0, "default", None, "changelog", 1)
AT_ONCE = RocksDBOptions(open_max_retries=0)
KEYS: list[Any] = [None, b"", b"a", b"ab", "a", 1, 1.0]


@dataclass
class Model:
    """Meaning of heads, timelines and deadlines, in the simplest way."""

    heads: dict[bytes, tuple[Any, int | None]] = field(default_factory=dict)
    line: list[tuple[int, int, bytes, Any]] = field(default_factory=list)
    arrivals: int = 0
    clock: int | None = None

    def copy(self) -> "Model":
        return copy.deepcopy(self)

    def items(self, prefix: bytes, start: int, end: int) -> list[tuple[int, int, Any]]:
        return sorted(
            (time, number, value) for time, number, owner, value in self.line if owner == prefix and start <= time < end
        )

    def add(self, prefix: bytes, time: int, value: Any) -> None:
        self.line.append((time, self.arrivals, prefix, value))
        self.arrivals += 1

    def delete(self, prefix: bytes, start: int, end: int) -> int:
        before = len(self.line)
        self.line = [item for item in self.line if not (item[2] == prefix and start <= item[0] < end)]
        return before - len(self.line)

    def due(self, bound: int) -> list[tuple[int, bytes, Any]]:
        found = [
            (deadline, prefix, value)
            for prefix, (value, deadline) in self.heads.items()
            if deadline is not None and deadline <= bound
        ]
        return sorted(found, key=lambda entry: entry[:2])

    @property
    def next_deadline(self) -> int | None:
        return min((deadline for _, deadline in self.heads.values() if deadline is not None), default=None)


class Run:
    """A store partition and its changelog, and a second one that follows it from time to time."""

    def __init__(self, kind: type[Store], folder: Path, memory: int = 1 << 26) -> None:
        self.options = replace(AT_ONCE, object_cache_size=memory)
        self.stores = [kind(name, "orders", folder, self.options) for name in ("one", "two")]
        self.partition: StorePartition = self.stores[0].open(0)
        self.changelog: list[tuple[bytes, bytes | None]] = []
        self.commits = 0

    def begin(self) -> TimedTransaction:
        return TimedTransaction(self.partition, self.options)

    def commit(self, transaction: TimedTransaction) -> None:
        changes = transaction.prepare()
        assert len({key for key, _ in changes}) == len(changes)
        self.commits += 1
        position = Position(self.commits, None, 1, transaction.stream_time)
        self.changelog += [*changes, (POSITION_KEY, position.encode())]
        transaction.flush(Stamp(IDENTITY, self.commits, len(self.changelog), transaction.stream_time, 0))

    def reopen(self) -> None:
        self.partition.close()
        self.partition = self.stores[0].open(0)

    def move(self) -> None:
        """Go on with the other store, which takes from the changelog what it has missed."""
        stamp = self.partition.stamp
        self.partition.close()
        self.stores.reverse()
        self.partition = self.stores[0].open(0)
        own = self.partition.stamp
        begin = 0 if own is None or own.changelog_offset is None else own.changelog_offset
        if stamp is not None:
            self.partition.write(restore_changes(self.changelog[begin:], self.partition).changes, stamp)


def contents(partition: StorePartition) -> list[tuple[bytes, bytes]]:
    """All that is in a store but the bounds of its indexes, which say how much is known and not what there is."""
    return [entry for entry in partition.scan(b"", None) if entry[0] not in (FIRST_KEY, WALL_FIRST_KEY)]


def check_store(run: Run, batch: int) -> None:
    """The changelog, whole or compacted, gives the same store again; the bounds of the indexes hold."""
    compacted = {key: number for number, (key, _) in enumerate(run.changelog)}
    for records in (run.changelog, [run.changelog[number] for number in sorted(compacted.values())]):
        partition = MemoryStore("default", "orders", Path("unused")).open(0)
        for first in range(0, len(records), batch):
            changes = restore_changes(records[first : first + batch], partition).changes
            partition.write(changes, Stamp(IDENTITY, None, first, None, 0))
        assert contents(partition) == contents(run.partition)
        check_bounds(partition)
    check_bounds(run.partition)


def check_bounds(partition: StorePartition) -> None:
    """No entry of an index is earlier than its bound."""
    for key, space in ((FIRST_KEY, 0xF0), (WALL_FIRST_KEY, 0xF2)):
        bound = partition.get(key)
        index = [int.from_bytes(key[1:9], "big") for key, _ in partition.scan(bytes((space,)), bytes((space + 1,)))]
        if bound is not None and index:
            assert int.from_bytes(bound, "big") <= index[0]
        # The index by the wall clock is looked at only if it has a bound.
        assert space == 0xF0 or bound is not None or not index


@dataclass(frozen=True)
class Op:
    """Effect of one record."""

    name: str
    key: int
    first: int
    second: int
    value: Any


def act(op: Op, transaction: TimedTransaction) -> Any:
    """Do it to a store."""
    prefix = transaction.prefix(KEYS[op.key])
    low, high = op.first, op.first + op.second
    if op.name == "set":
        transaction.head(prefix)
        return transaction.set_head(prefix, [copy.deepcopy(op.value)], high if op.second else None)
    if op.name == "change":
        head = transaction.head(prefix)
        if head is not None:
            head.append(op.second)
            transaction.set_head(prefix, head, high)
        return None
    if op.name == "due":
        return list(_due(op, transaction))
    if op.name == "add":
        return transaction.timelines.add(prefix, op.first, copy.deepcopy(op.value))
    if op.name == "advance":
        transaction.advance(op.first)
        return transaction.stream_time
    simple: dict[str, Callable[[], Any]] = {
        "head": lambda: transaction.head(prefix),
        "delete_head": lambda: transaction.delete_head(prefix),
        "next": lambda: transaction.next_deadline,
        "items": lambda: [list(item) for item in transaction.timelines.items(prefix, low, high)],
        "arrivals": lambda: [list(item) for item in transaction.timelines.items_with_arrival(prefix, low, high)],
        "latest": lambda: transaction.timelines.latest(prefix, op.first),
        "delete": lambda: transaction.timelines.delete(prefix, low, high),
        "delete_front": lambda: transaction.timelines.delete(prefix, 0, op.first),
        "delete_parts": lambda: _delete_in_parts(op, transaction),
    }
    return simple[op.name]()


def _delete_in_parts(op: Op, transaction: TimedTransaction) -> int:
    """Delete some items from the front, and then the others; return how many they were."""
    prefix, most = transaction.prefix(KEYS[op.key]), 1 + op.second % 3
    some = transaction.timelines.delete(prefix, 0, op.first, most)
    rest = len(transaction.timelines.items(prefix, 0, op.first))
    others = transaction.timelines.delete(prefix, 0, op.first)
    assert (others, rest > 0) == (rest, some >= most and rest > 0)
    return some + others


def _due(op: Op, transaction: TimedTransaction) -> Iterator[tuple[int, bytes, Any]]:
    """Look at all heads that are due; delete some, give some a later deadline, maybe one that is due again, and some none."""
    assert transaction.due_from <= (transaction.due_from if (first := transaction.next_deadline) is None else first)
    for deadline, prefix, head in transaction.due(op.first):
        yield deadline, prefix, copy.deepcopy(head)
        choice = (deadline + op.second) % 4
        if choice == 0:
            transaction.delete_head(prefix)
        else:
            head.append(deadline)
            transaction.set_head(prefix, head, None if choice == 1 else deadline + op.second + 1)


def expect(op: Op, model: Model) -> Any:
    """Do it to the model."""
    prefix = TimedTransaction.prefix(KEYS[op.key])
    low, high = op.first, op.first + op.second
    head, _ = model.heads.get(prefix, (None, None))
    if op.name == "set":
        model.heads[prefix] = ([op.value], high if op.second else None)
    elif op.name == "change":
        if head is not None:
            model.heads[prefix] = ([*head, op.second], high)
    elif op.name == "due":
        result = []
        while found := model.due(op.first):
            deadline, prefix, head = found[0]
            result.append(found[0])
            choice = (deadline + op.second) % 4
            if choice == 0:
                del model.heads[prefix]
            else:
                model.heads[prefix] = ([*head, deadline], None if choice == 1 else deadline + op.second + 1)
        return result
    elif op.name == "add":
        model.add(prefix, op.first, op.value)
    elif op.name == "advance":
        model.clock = op.first if model.clock is None else max(model.clock, op.first)
        return model.clock
    elif op.name == "head":
        return head
    elif op.name == "delete_head":
        model.heads.pop(prefix, None)
    elif op.name == "next":
        return model.next_deadline
    elif op.name == "items":
        return [[time, value] for time, _, value in model.items(prefix, low, high)]
    elif op.name == "arrivals":
        return [list(item) for item in model.items(prefix, low, high)]
    elif op.name == "latest":
        before = model.items(prefix, 0, op.first + 1)
        return (before[-1][0], before[-1][2]) if before else None
    elif op.name == "delete":
        return model.delete(prefix, low, high)
    elif op.name in ("delete_front", "delete_parts"):
        return model.delete(prefix, 0, op.first)
    return None
