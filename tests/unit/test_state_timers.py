"""Timers in stores: against a naive model with commits, failures, restarts and restores; and what they cost."""

import copy
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamrt.errors import StateError
from streamrt.state import MemoryStore, RocksDBStore, Stamp, Store, StorePartition
from streamrt.state.base import budget
from streamrt.state.changelog import restore_changes
from streamrt.state.spec import ProcessStoreSpec
from streamrt.state.transactions.process_functions import ProcessTransaction
from streamrt.state.transactions.timed import TimedTransaction
from streamrt.state.transactions.timers import NEVER, Timers
from tests.support import LONG
from tests.unit.state_timed import IDENTITY, Run

KEYS: list[Any] = [None, b"", b"a", b"ab", "a", 1]


def memory() -> StorePartition:
    return MemoryStore("process_it", "orders", Path("unused")).open(0)


def commit(transaction: ProcessTransaction, offset: int = 1) -> list[tuple[bytes, bytes | None]]:
    changes = transaction.prepare()
    stamp = Stamp(IDENTITY, offset, offset, transaction.stream_time, 0, observed=transaction.observed_time)
    transaction.flush(stamp)
    return changes


def contents(partition: StorePartition) -> list[tuple[bytes, bytes]]:
    """All but the bounds of indexes."""
    return [entry for entry in partition.scan(b"", None) if entry[0][0] != 0xF1]


@dataclass(frozen=True)
class Op:
    """Effect of one call."""

    name: str
    domain: int
    key: int
    time: int


@dataclass
class Model:
    """Timers as sets, of which the earliest is searched."""

    timers: tuple[set[tuple[int, bytes]], set[tuple[int, bytes]]] = field(default_factory=lambda: (set(), set()))

    def act(self, op: Op) -> Any:
        own, prefix = self.timers[op.domain], ProcessTransaction(memory()).prefix_of(KEYS[op.key])
        if op.name == "register":
            own.add((op.time, prefix))
        elif op.name == "delete":
            own.discard((op.time, prefix))
        elif op.name == "times":
            return sorted(time for time, owner in own if owner == prefix)
        elif op.name == "next":
            return min(own)[0] if own else None
        elif op.name == "fire":
            fired: list[tuple[int, bytes]] = []
            while own and min(own)[0] <= op.time and len(fired) < 20:
                timer = min(own)
                fired.append(timer)
                own.discard(timer)
                for time in nested(timer[0], op):
                    own.add((time, timer[1]))
            return fired
        return None


def nested(time: int, op: Op) -> list[int]:
    """Return what a call of on_timer registers: later, earlier or the same times, or nothing."""
    return {0: [time + 3], 1: [max(0, time - 2), time + 1], 2: [time], 3: []}[(time + op.key) % 4] if op.key < 3 else []


def act(op: Op, transaction: ProcessTransaction) -> Any:
    own: Timers = (transaction.event_timers, transaction.processing_timers)[op.domain]
    prefix = transaction.prefix_of(KEYS[op.key])
    if op.name == "register":
        own.register(prefix, op.time)
    elif op.name == "delete":
        own.delete(prefix, op.time)
    elif op.name == "times":
        return own.times(prefix)
    elif op.name == "next":
        assert own.due_from <= (NEVER if own.next_time is None else own.next_time)
        return own.next_time
    elif op.name == "fire":
        fired: list[Any] = []
        while len(fired) < 20 and (timer := own.due(op.time)) is not None:
            own.fire(timer)
            fired.append(timer)
            for time in nested(timer[0], op):
                own.register(timer[1], time)
        return fired
    elif op.name == "state":
        state = transaction.state(KEYS[op.key], transaction.clock)
        state.list("l").add(op.time)
        state.set("v", op.time)
    elif op.name == "clear":
        transaction.state(KEYS[op.key], transaction.clock).clear()
    return None


class TimersRun(Run):
    """A store partition with its changelog, used by a process function."""

    def begin(self) -> TimedTransaction:
        # The base class is for other stores of time; what it does with a transaction, all of them can.
        return cast("TimedTransaction", ProcessTransaction(self.partition, self.options))


ops = st.builds(
    Op,
    st.sampled_from(
        ["register", "register", "register", "delete", "delete", "fire", "fire", "times", "next", "state", "clear"]
    ),
    st.sampled_from([0, 0, 1]),
    st.integers(0, len(KEYS) - 1),
    st.integers(0, 20),
)
endings = st.sampled_from(["commit", "commit", "commit", "discard", "prepare", "reopen", "forget", "move", "move"])
histories = st.lists(st.tuples(st.lists(ops, max_size=12), endings), max_size=8)

thoroughly = settings(max_examples=5_000 if LONG else 60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def check_restore(run: Run, batch: int) -> None:
    """The changelog, whole or compacted, gives the same store again; the bounds hold."""
    compacted = {key: number for number, (key, _) in enumerate(run.changelog)}
    for records in (run.changelog, [run.changelog[number] for number in sorted(compacted.values())]):
        partition = memory()
        for first in range(0, len(records), batch):
            changes = restore_changes(records[first : first + batch], partition).changes
            partition.write(changes, Stamp(IDENTITY, None, first, None, 0))
        assert contents(partition) == contents(run.partition)
    for domain in (0, 1):
        bound = run.partition.get(b"\xf1timers" + bytes((domain,)))
        index = [
            int.from_bytes(key[2:10], "big")
            for key, _ in run.partition.scan(bytes((0xF3, domain)), bytes((0xF3, domain + 1)))
        ]
        if bound is not None and index:
            assert int.from_bytes(bound, "big") <= index[0]


def check_history(
    kind: type[Store], folder: Path, history: list[tuple[list[Op], str]], batch: int, *, memory: int
) -> None:
    # Without what others have left in this process.
    budget._budgets.cache = budget.CacheBudget()
    run = TimersRun(kind, folder, memory)
    model = Model()
    for number, (records, ending) in enumerate(history):
        transaction = cast("ProcessTransaction", run.begin())
        running = copy.deepcopy(model)
        for op in records:
            assert act(op, transaction) == running.act(op), (number, op)
        if ending in ("discard", "prepare"):
            if ending == "prepare":
                transaction.prepare()
            transaction.discard()
            continue
        run.commit(cast("TimedTransaction", transaction))
        model = running
        if ending == "reopen":
            run.reopen()
        elif ending == "forget":
            run.partition.read_cache = None
        elif ending == "move":
            run.move()
    if run.commits:
        check_restore(run, batch)
    run.partition.close()


@pytest.mark.slow
@given(history=histories, batch=st.integers(1, 10), memory=st.sampled_from([1, 1_500, 1 << 26]))
@thoroughly
def test_memory_store(history: list[tuple[list[Op], str]], batch: int, memory: int) -> None:
    check_history(MemoryStore, Path("unused"), history, batch, memory=memory)


@pytest.mark.slow
@given(history=histories, batch=st.integers(1, 10), memory=st.sampled_from([1, 1 << 26]))
@settings(thoroughly, max_examples=500 if LONG else 25)
def test_rocksdb_store(history: list[tuple[list[Op], str]], batch: int, memory: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check_history(RocksDBStore, Path(folder), history, batch, memory=memory)


def test_golden_bytes() -> None:
    partition = memory()
    transaction = ProcessTransaction(partition)
    prefix = transaction.prefix_of(b"ab")
    transaction.event_timers.register(prefix, 5)
    transaction.processing_timers.register(prefix, 6)
    event, processing = b"\x07\x01\x02ab\x00" + bytes(7) + b"\x05", b"\x07\x01\x02ab\x01" + bytes(7) + b"\x06"
    assert commit(transaction) == [(event, b"\x00"), (processing, b"\x00")]
    assert list(partition.scan(b"\xf1", None)) == [
        (b"\xf1timers\x00", bytes(7) + b"\x05"),
        (b"\xf1timers\x01", bytes(7) + b"\x06"),
        (b"\xf3\x00" + bytes(7) + b"\x05\x01\x02ab", b""),
        (b"\xf3\x01" + bytes(7) + b"\x06\x01\x02ab", b""),
    ]


def test_a_timer_that_comes_and_goes_between_two_commits_is_not_in_the_changelog() -> None:
    transaction = ProcessTransaction(memory())
    prefix = transaction.prefix_of(b"k")
    for time in range(100):
        transaction.event_timers.register(prefix, time)
        transaction.event_timers.delete(prefix, time - 1 if time else 5)
    assert [int.from_bytes(key[-8:], "big") for key, _ in commit(transaction)] == [99]


def test_registering_and_deleting_read_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    partition = memory()
    transaction = ProcessTransaction(partition)
    read: list[bytes] = []
    monkeypatch.setattr(partition, "get", read.append)
    monkeypatch.setattr(partition, "scan", lambda start, end: read.append(start))
    for time in range(100):
        transaction.event_timers.register(transaction.prefix_of(b"k"), time)
        transaction.event_timers.delete(transaction.prefix_of(b"k"), time)
    assert read == []


def test_what_expires_does_not_meet_timers() -> None:
    partition = memory()
    transaction = ProcessTransaction(partition)
    transaction.event_timers.register(transaction.prefix_of(b"k"), 5)
    commit(transaction)
    # Stream time is far beyond the timer, which waits for a watermark.
    transaction = ProcessTransaction(partition)
    transaction.advance(1_000)
    commit(transaction)
    assert ProcessTransaction(partition).event_timers.times(transaction.prefix_of(b"k")) == [5]


def test_the_two_clocks_survive() -> None:
    partition = memory()
    transaction = ProcessTransaction(partition)
    assert (transaction.stream_time, transaction.observed_time) == (None, None)
    transaction.advance(1_000)
    transaction.event_time = 700
    commit(transaction)
    transaction = ProcessTransaction(partition)
    assert (transaction.clock, transaction.event_time) == (1_000, 700)


def test_deadlines_are_later_than_timers_by_the_delay() -> None:
    for delay, expected in ((1, 6), (501, 506), (None, None)):
        transaction = ProcessStoreSpec("process_it", MemoryStore, ProcessTransaction, delay).begin(memory())
        assert isinstance(transaction, ProcessTransaction)
        transaction.event_timers.register(transaction.prefix_of(b"k"), 5)
        assert transaction.next_deadline == expected


def test_nothing_is_left_after_the_end() -> None:
    transaction = ProcessTransaction(memory())
    transaction.event_timers.register(transaction.prefix_of(b"k"), 5)
    transaction.discard()
    assert transaction.event_timers.size == 0
    with pytest.raises(StateError, match="cannot provide state"):
        transaction.state_of(b"k", 0)
